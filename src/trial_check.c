/* SPDX-License-Identifier: MIT */
/* What a trial's numbers are worth: guards, then every output against the reference. */
#include "trial.h"

#include <math.h>
#include <pthread.h>
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

/* Outputs begin as NaN, or as in-out tensors are: what the reference leaves alone the device must leave alone, too. */
static void begin_output(void *user, size_t block)
{
    const struct wd_trial_tensor *x = user;
    const struct wd_range runs = wd_trial_block(x, block);
    for (size_t k = runs.first * x->inner; k < runs.end * x->inner; k++)
        x->want[k] = x->value ? x->value[k] : (double)NAN;
}

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
        wd_parallel(wd_trial_blocks(x), begin_output, x);
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

/* An output that is compared, in blocks of elements side by side; what the blocks found is gathered here. */
struct comparison {
    const struct wd_trial *t;
    size_t i, n;
    unsigned char *buffer; /* as it came back */
    double *got;
    double bar, rms;
    pthread_mutex_t lock;
    double norm, off, max_abs; /* sums of squares: of the reference, of the differences */
    size_t first_bad;          /* element; n: none */
    uint64_t bits;
};

/* The view's elements to `got`, and in their place what was there before. */
static void take_runs(void *user, size_t block)
{
    const struct comparison *c = user;
    const struct wd_trial_tensor *x = &c->t->tensor[c->i];
    const wd_dtype dtype = c->t->p.tensor[c->i].dtype;
    const size_t size = wd_dtype_size(dtype);
    const struct wd_range runs = wd_trial_block(x, block);
    for (size_t r = runs.first; r < runs.end; r++) {
        const size_t at = wd_trial_run_start(x, r) * size;
        wd_to_double(dtype, c->buffer + at, x->inner, c->got + r * x->inner);
        memcpy(c->buffer + at, x->image + at, x->inner * size);
    }
}

static void sum_squares(void *user, size_t block)
{
    struct comparison *c = user;
    const double *want = c->t->tensor[c->i].want;
    const struct wd_range r = wd_block(c->n, WD_BLOCK, block);
    double norm = 0;
    for (size_t k = r.first; k < r.end; k++)
        if (isfinite(want[k]))
            norm += want[k] * want[k];
    pthread_mutex_lock(&c->lock);
    c->norm += norm;
    pthread_mutex_unlock(&c->lock);
}

/* A hash of the values, and of where they stand: FNV-1a by words of 64 bits. */
static uint64_t hash_values(uint64_t first, const double *value, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u ^ first, word;
    for (size_t i = 0; i < n; i++) {
        memcpy(&word, &value[i], sizeof word);
        hash = (hash ^ word ^ word >> 32) * 0x100000001b3u;
    }
    return hash;
}

static void sum_differences(void *user, size_t block)
{
    struct comparison *c = user;
    const double *want = c->t->tensor[c->i].want, *got = c->got;
    const struct wd_range r = wd_block(c->n, WD_BLOCK, block);
    double off = 0, max_abs = 0;
    size_t bad = c->n;
    for (size_t k = r.first; k < r.end; k++) {
        if (same(got[k], want[k]))
            continue;
        const double difference = fabs(got[k] - want[k]), d = isnan(difference) ? INFINITY : difference;
        if (bad == c->n && (isinf(d) || d > tolerance(c->bar, want[k], c->rms)))
            bad = k;
        off += d * d;
        max_abs = fmax(max_abs, d);
    }
    const uint64_t bits = hash_values(r.first, got + r.first, r.end - r.first);
    pthread_mutex_lock(&c->lock);
    c->off += off;
    c->max_abs = fmax(c->max_abs, max_abs);
    c->first_bad = bad < c->first_bad ? bad : c->first_bad;
    c->bits += bits;
    pthread_mutex_unlock(&c->lock);
}

static void compare(struct comparison *c, struct wd_trial_result *r)
{
    const char *op = c->t->p.op->name, *name = c->t->p.op->tensors[c->i].name;
    const size_t blocks = wd_blocks(c->n, WD_BLOCK);
    char at[96];
    wd_parallel(blocks, sum_squares, c);
    c->rms = c->n ? sqrt(c->norm / (double)c->n) : 0;
    wd_parallel(blocks, sum_differences, c);
    if (c->first_bad < c->n)
        fault(r, "%s: %s%s is %.9g, not %.9g", op, name, index_text(&c->t->p, c->i, c->first_bad, at),
              c->got[c->first_bad], c->t->tensor[c->i].want[c->first_bad]);
    /* Where the whole reference is denormal or zero, absolute noise of that size is none. */
    const double error = sqrt(c->off) / fmax(sqrt(c->norm), 1e-30);
    if (error > c->bar)
        fault(r, "%s: %s: relative error %.3g, more than %.3g", op, name, error, c->bar);
    if (share_of_bar(error, c->bar) >= share_of_bar(r->error, r->bar)) {
        r->error = error;
        r->bar = c->bar;
    }
    r->max_abs = fmax(r->max_abs, c->max_abs);
    r->bits = (r->bits ^ c->bits) * 0x100000001b3u;
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

static wd_status read_back(const struct wd_trial *t, size_t i, unsigned char *buffer)
{
    const struct wd_trial_tensor *x = &t->tensor[i];
    const cl_int err = clEnqueueReadBuffer(t->queue, x->mem, CL_TRUE, 0, x->bytes, buffer, 0, NULL, NULL);
    return err ? wd_fail_cl(err, "trial", "clEnqueueReadBuffer") : WD_OK;
}

static wd_status check_tensor(struct wd_trial *t, size_t i, struct wd_trial_result *r)
{
    const bool output = t->p.op->tensors[i].access != WD_IN;
    const size_t n = wd_tensor_elements(&t->p, i);
    struct comparison c = {.t = t, .i = i, .n = n, .bar = wd_trial_bar(&t->p, i), .first_bad = n};
    wd_status st = WD_OK;
    if (pthread_mutex_init(&c.lock, NULL))
        return wd_fail(WD_ENOMEM, "trial: no mutex");
    c.buffer = malloc(t->tensor[i].bytes);
    c.got = output ? malloc((n + 1) * sizeof *c.got) : NULL;
    if (!c.buffer || (output && !c.got)) {
        st = wd_fail(WD_ENOMEM, "trial: host memory is exhausted");
        goto undo_memory;
    }
    if ((st = read_back(t, i, c.buffer)))
        goto undo_memory;
    if (output) {
        wd_parallel(wd_trial_blocks(&t->tensor[i]), take_runs, &c);
        compare(&c, r);
    }
    check_untouched(t, i, c.buffer, r);

undo_memory:
    free(c.got);
    free(c.buffer);
    pthread_mutex_destroy(&c.lock);
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

static wd_status adopt_tensor(struct wd_trial *t, size_t i)
{
    struct wd_trial_tensor *x = &t->tensor[i];
    struct comparison c = {.t = t, .i = i};
    wd_status st = WD_OK;
    free(x->want);
    c.got = x->want = malloc((wd_tensor_elements(&t->p, i) + 1) * sizeof *x->want);
    c.buffer = malloc(x->bytes);
    if (!c.got || !c.buffer)
        st = wd_fail(WD_ENOMEM, "trial: host memory is exhausted");
    else if (!(st = read_back(t, i, c.buffer)))
        wd_parallel(wd_trial_blocks(x), take_runs, &c);
    free(c.buffer);
    return st;
}

wd_status wd_trial_adopt(struct wd_trial *t)
{
    for (size_t i = 0; i < t->p.op->num_tensors; i++) {
        const wd_status st = t->p.tensor[i].present && t->p.op->tensors[i].access != WD_IN ? adopt_tensor(t, i) : WD_OK;
        if (st)
            return st;
    }
    t->has_reference = true;
    return WD_OK;
}
