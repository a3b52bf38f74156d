/* SPDX-License-Identifier: MIT */
/* What a trial's numbers are worth: guards, then every output against the reference. */
#include "trial.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "status.h"

/* The first fault is told; later ones are silent. */
static void fault(struct wd_trial_result *r, const char *fmt, ...) WD_PRINTF(2, 3);
static void fault(struct wd_trial_result *r, const char *fmt, ...)
{
    va_list args;
    if (!r->ok)
        return;
    r->ok = false;
    va_start(args, fmt);
    vsnprintf(r->text, sizeof r->text, fmt, args);
    va_end(args);
}

/* ---- Bars ---- */

static bool is_tf32(const struct wd_problem *p)
{
    for (size_t i = 0; i < p->op->num_scalars; i++)
        if (strcmp(p->op->scalars[i].name, "math") == 0)
            return p->choice[i] == WD_MATH_TF32;
    return false;
}

/* Is any tensor of data (one that may have 16 bits) of this type? */
static bool has_data(const struct wd_problem *p, wd_dtype dtype)
{
    for (size_t i = 0; i < p->op->num_tensors; i++)
        if (p->tensor[i].present && p->tensor[i].dtype == dtype && p->op->tensors[i].dtypes & WD_TYPE(WD_BF16))
            return true;
    return false;
}

/* FP8 codes and scales are exact. For the rest the coarsest data type decides, since matrix engines round what stands
 * between their products to it; fp8_quant has no products and computes in f32 whatever x is. */
double wd_trial_bar(const struct wd_problem *p, size_t tensor)
{
    const wd_op_id id = p->op->id;
    switch (p->tensor[tensor].dtype) {
    case WD_E4M3:
    case WD_E5M2:
    case WD_UE8M0: return 0;
    default: break;
    }
    if (id == WD_OP_FP8_QUANT)
        return 2e-6;
    if (has_data(p, WD_BF16))
        return 1e-2;
    if (has_data(p, WD_F16) || is_tf32(p))
        return 2e-3;
    return id == WD_OP_GDN_FORWARD || id == WD_OP_GDN_DECODE ? 1e-5 : 2e-6;
}

/* ---- The reference ---- */

/* Outputs begin as NaN: what the reference leaves alone must be left alone by the device, too. */
static wd_status compute_reference(struct wd_trial *t)
{
    double *want[WD_MAX_TENSORS] = {NULL};
    for (size_t i = 0; i < t->p.op->num_tensors; i++) {
        struct wd_trial_tensor *x = &t->tensor[i];
        const size_t n = wd_tensor_elements(&t->p, i);
        if (!t->p.tensor[i].present)
            continue;
        if (t->p.op->tensors[i].access == WD_IN) {
            want[i] = x->want = x->value;
            if (!x->value)
                return wd_fail(WD_EINVAL, "trial: one that repeats another's inputs cannot be checked");
            continue;
        }
        free(x->want);
        want[i] = x->want = malloc((n + 1) * sizeof(double));
        if (!want[i])
            return wd_fail(WD_ENOMEM, "trial: host memory is exhausted");
        for (size_t k = 0; k < n; k++)
            want[i][k] = x->value ? x->value[k] : (double)NAN;
    }
    t->p.op->reference(&t->p, want);
    t->has_reference = true;
    return WD_OK;
}

/* ---- Comparing ---- */

/* "[0][3][17]": packed element n of tensor i. */
static const char *index_text(const struct wd_problem *p, size_t i, size_t n, char text[96])
{
    size_t ext[WD_MAX_RANK], at[WD_MAX_RANK] = {0}, used = 0;
    const size_t rank = wd_tensor_extents(p, i, ext);
    for (size_t r = rank; r-- > 0; n /= ext[r])
        at[r] = n % ext[r];
    for (size_t r = 0; r < rank && used < 96; r++)
        used += (size_t)snprintf(text + used, 96 - used, "[%zu]", at[r]);
    return text;
}

/* Both NaN, or the same infinity, or the same number. */
static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* How far an element may be off. WD_MATH_F32 on f32 data: the published tolerance. Coarser types round what stands
 * between the inputs and the output, so there the typical size `rms` counts too: this only catches single elements
 * that are plainly wrong and vanish in the norm. */
static double tolerance(double bar, double want, double rms)
{
    if (bar == 0)
        return 0;
    return bar < 1e-4 ? 1e-3 + 1e-3 * fabs(want) : 20 * bar * (rms + fabs(want));
}

static double share_of_bar(double error, double bar)
{
    return error > 0 ? error / bar : 0;
}

static void compare(const struct wd_trial *t, size_t i, const double *got, struct wd_trial_result *r)
{
    const char *op = t->p.op->name, *name = t->p.op->tensors[i].name;
    const double *want = t->tensor[i].want, bar = wd_trial_bar(&t->p, i);
    const size_t n = wd_tensor_elements(&t->p, i);
    double norm = 0, off = 0;
    char at[96];
    for (size_t k = 0; k < n; k++)
        if (isfinite(want[k]))
            norm += want[k] * want[k];
    const double rms = n ? sqrt(norm / (double)n) : 0;
    for (size_t k = 0; k < n; k++) {
        if (same(got[k], want[k]))
            continue;
        const double difference = fabs(got[k] - want[k]), d = isnan(difference) ? INFINITY : difference;
        if (isinf(d) || d > tolerance(bar, want[k], rms))
            fault(r, "%s: %s%s is %.9g, not %.9g", op, name, index_text(&t->p, i, k, at), got[k], want[k]);
        off += d * d;
        r->max_abs = fmax(r->max_abs, d);
    }
    /* Where the whole reference is denormal or zero, absolute noise of that size is none. */
    const double error = sqrt(off) / fmax(sqrt(norm), 1e-30);
    if (error > bar)
        fault(r, "%s: %s: relative error %.3g, more than %.3g", op, name, error, bar);
    if (share_of_bar(error, bar) >= share_of_bar(r->error, r->bar)) {
        r->error = error;
        r->bar = bar;
    }
}

/* `buffer` as it came back: the view's elements to `got`, and in their place what was there before. */
static void take_view(const struct wd_trial *t, size_t i, unsigned char *buffer, double *got)
{
    const struct wd_trial_tensor *x = &t->tensor[i];
    const wd_dtype dtype = t->p.tensor[i].dtype;
    const size_t size = wd_dtype_size(dtype);
    for (size_t r = 0; r < wd_trial_runs(x); r++) {
        const size_t at = wd_trial_run_start(x, r) * size;
        wd_to_double(dtype, buffer + at, x->inner, got + r * x->inner);
        memcpy(buffer + at, x->image + at, x->inner * size);
    }
}

/* FNV-1a over the bytes of a view's values, on top of `hash`. */
static uint64_t hash_values(uint64_t hash, const double *value, size_t n)
{
    const unsigned char *byte = (const unsigned char *)value;
    for (size_t i = 0; i < n * sizeof *value; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

/* Everything that is not an output's element must be as it was. */
static void check_untouched(const struct wd_trial *t, size_t i, const unsigned char *buffer, struct wd_trial_result *r)
{
    const struct wd_trial_tensor *x = &t->tensor[i];
    size_t b = 0;
    if (memcmp(buffer, x->image, x->bytes) == 0)
        return;
    while (buffer[b] == x->image[b])
        b++;
    const size_t element = b / wd_dtype_size(t->p.tensor[i].dtype);
    fault(r, "%s: %s: written %s its view, %zu elements %s its start", t->p.op->name, t->p.op->tensors[i].name,
          t->p.op->tensors[i].access == WD_IN ? "in or around" : "outside",
          element < x->offset ? x->offset - element : element - x->offset, element < x->offset ? "before" : "after");
}

static wd_status check_tensor(struct wd_trial *t, size_t i, struct wd_trial_result *r)
{
    const struct wd_trial_tensor *x = &t->tensor[i];
    const bool output = t->p.op->tensors[i].access != WD_IN;
    wd_status st = WD_OK;
    unsigned char *buffer = malloc(x->bytes);
    double *got = output ? malloc((wd_tensor_elements(&t->p, i) + 1) * sizeof *got) : NULL;
    if (!buffer || (output && !got)) {
        st = wd_fail(WD_ENOMEM, "trial: host memory is exhausted");
        goto undo_memory;
    }
    const cl_int err = clEnqueueReadBuffer(t->queue, x->mem, CL_TRUE, 0, x->bytes, buffer, 0, NULL, NULL);
    if (err) {
        st = wd_fail_cl(err, "trial", "clEnqueueReadBuffer");
        goto undo_memory;
    }
    if (output) {
        take_view(t, i, buffer, got);
        compare(t, i, got, r);
        r->bits = hash_values(r->bits, got, wd_tensor_elements(&t->p, i));
    }
    check_untouched(t, i, buffer, r);

undo_memory:
    free(got);
    free(buffer);
    return st;
}

wd_status wd_trial_check(struct wd_trial *t, struct wd_trial_result *result)
{
    *result = (struct wd_trial_result){.ok = true, .bits = 0xcbf29ce484222325u};
    wd_status st = t->has_reference ? WD_OK : compute_reference(t);
    for (size_t i = 0; !st && i < t->p.op->num_tensors; i++)
        if (t->p.tensor[i].present)
            st = check_tensor(t, i, result);
    return st;
}

wd_status wd_trial_adopt(struct wd_trial *t)
{
    for (size_t i = 0; i < t->p.op->num_tensors; i++) {
        struct wd_trial_tensor *x = &t->tensor[i];
        if (!t->p.tensor[i].present || t->p.op->tensors[i].access == WD_IN)
            continue;
        const size_t n = wd_tensor_elements(&t->p, i);
        unsigned char *buffer = malloc(x->bytes);
        free(x->want);
        x->want = malloc((n + 1) * sizeof *x->want);
        if (!buffer || !x->want) {
            free(buffer);
            return wd_fail(WD_ENOMEM, "trial: host memory is exhausted");
        }
        const cl_int err = clEnqueueReadBuffer(t->queue, x->mem, CL_TRUE, 0, x->bytes, buffer, 0, NULL, NULL);
        if (!err)
            take_view(t, i, buffer, x->want);
        free(buffer);
        if (err)
            return wd_fail_cl(err, "trial", "clEnqueueReadBuffer");
    }
    t->has_reference = true;
    return WD_OK;
}
