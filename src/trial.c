/* SPDX-License-Identifier: MIT */
/* Building, running and taking down a trial. What its numbers are worth is decided in trial_check.c. */
#include "trial.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "convert.h"
#include "parallel.h"
#include "status.h"

enum { GUARD = 64 }; /* elements before and after a view */

/* ---- Building ---- */

/* Where tensor i lies in its buffer. Only the three outermost dims may have strides; a row is what is inside them. */
static void lay_out(struct wd_trial *t, size_t i, const struct wd_trial_options *o)
{
    struct wd_trial_tensor *x = &t->tensor[i];
    size_t ext[WD_MAX_RANK], span = 0;
    const size_t rank = wd_tensor_extents(&t->p, i, ext);
    const size_t strided = rank > 3 ? 3 : rank - 1;
    x->inner = 1;
    for (size_t r = strided; r < rank; r++)
        x->inner *= ext[r];
    size_t step = x->inner + o->pad;
    for (size_t r = 3; r-- > 0;) {
        x->extent[r] = r < strided ? ext[r] : 1;
        x->stride[r] = step;
        step *= x->extent[r];
    }
    for (size_t r = 0; r < strided; r++)
        span += ext[r] ? (ext[r] - 1) * x->stride[r] : 0;
    x->offset = GUARD + o->shift;
    x->bytes = (x->offset + span + x->inner + GUARD) * wd_dtype_size(t->p.tensor[i].dtype);

    const wd_tensor arg = {
        .offset = x->offset,
        .stride = {strided > 0 ? x->stride[0] : 0, strided > 1 ? x->stride[1] : 0, strided > 2 ? x->stride[2] : 0},
        .dtype = t->p.tensor[i].dtype,
    };
    memcpy(t->args.byte + t->p.op->tensors[i].offset, &arg, sizeof arg);
}

static wd_status no_memory(void)
{
    return wd_fail(WD_ENOMEM, "trial: host memory is exhausted");
}

/* Memory is handed out before it is there: a process that asks for too much would not be told, but ended. */
static wd_status check_room(const struct wd_trial *t, const struct wd_trial_options *o)
{
    double device = 0, host = 0;
    for (size_t i = 0; i < t->p.op->num_tensors; i++)
        if (t->p.tensor[i].present) {
            const double elements = (double)wd_tensor_elements(&t->p, i);
            const double bytes = elements * (double)wd_dtype_size(t->p.tensor[i].dtype);
            device += bytes;
            host += bytes + (o->like ? 0 : elements * sizeof(double)); /* the image; values, or what they should be */
        }
    const double device_has = (double)t->ctx->caps.global_bytes;
    const double host_has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (device > device_has)
        return wd_fail(WD_ENOMEM, "trial: the tensors are %.4g GB, and the device has %.4g GB of memory", device * 1e-9,
                       device_has * 1e-9);
    if (host > host_has)
        return wd_fail(WD_ENOMEM, "trial: checking needs %.4g GB on the host, which has %.4g GB of memory", host * 1e-9,
                       host_has * 1e-9);
    return WD_OK;
}

/* Does input i repeat another trial's? Indices mean something in their own shape alone. */
static bool repeats(const struct wd_trial *t, size_t i, const struct wd_trial_options *o)
{
    return o->like && t->p.op->tensors[i].access != WD_OUT && t->p.tensor[i].dtype != WD_I32;
}

/* Random inputs, packed; cu_seqlens first, since gates follow it. */
static wd_status fill_inputs(struct wd_trial *t, const struct wd_trial_options *o)
{
    const struct wd_op *op = t->p.op;
    double *value[WD_MAX_TENSORS] = {NULL};
    for (int offsets = 1; offsets >= 0; offsets--)
        for (size_t i = 0; i < op->num_tensors; i++) {
            if (!t->p.tensor[i].present || op->tensors[i].access == WD_OUT || repeats(t, i, o) ||
                (op->tensors[i].fill == WD_FILL_OFFSETS) != (offsets == 1))
                continue;
            value[i] = t->tensor[i].value = calloc(wd_tensor_elements(&t->p, i) + 1, sizeof(double));
            if (!value[i])
                return no_memory();
            wd_fill(&t->p, i, o->gates, o->seed, value);
        }
    if (o->edit)
        o->edit(o->user, &t->p, value);
    return WD_OK;
}

/* Elements `first` and on of an endless repetition of `like`, whose rows are packed. */
static void repeat(const struct wd_trial_tensor *like, size_t first, size_t size, unsigned char *out, size_t n)
{
    const size_t period = wd_trial_runs(like) * like->inner;
    while (n > 0 && period > 0) {
        const size_t at = first % period, count = n < period - at ? n : period - at;
        memcpy(out, like->image + (like->offset + at) * size, count * size);
        out += count * size;
        first += count;
        n -= count;
    }
}

/* A tensor whose image is made. */
struct painting {
    struct wd_trial *t;
    size_t i;
    const struct wd_trial_options *o;
};

/* Some runs of contiguous elements: the input as the type has it, which also comes back as values, or all ones. */
static void paint_runs(void *user, size_t block)
{
    const struct painting *painting = user;
    const struct wd_trial *t = painting->t;
    const struct wd_trial_tensor *x = &t->tensor[painting->i];
    const wd_dtype dtype = t->p.tensor[painting->i].dtype;
    const struct wd_range runs = wd_trial_block(x, block);
    for (size_t r = runs.first; r < runs.end; r++) {
        unsigned char *run = x->image + wd_trial_run_start(x, r) * wd_dtype_size(dtype);
        if (x->value) {
            wd_from_double(dtype, x->value + r * x->inner, x->inner, run);
            wd_to_double(dtype, run, x->inner, x->value + r * x->inner);
        } else if (repeats(t, painting->i, painting->o)) {
            repeat(&painting->o->like->tensor[painting->i], r * x->inner, wd_dtype_size(dtype), run, x->inner);
        } else {
            memset(run, 0xFF, x->inner * wd_dtype_size(dtype));
        }
    }
}

static void poison(void *user, size_t block)
{
    const struct wd_trial_tensor *x = user;
    const struct wd_range bytes = wd_block(x->bytes, WD_BLOCK, block);
    for (size_t b = bytes.first; b < bytes.end; b++)
        x->image[b] = b % 2 ? 0xFF : 0xFE;
}

/* The buffer before a run: NaN patterns, and in them the input, from which the values come back rounded. Elements of
 * outputs are all ones; everything else, which nobody may touch, is another NaN. */
static wd_status make_image(struct wd_trial *t, size_t i, const struct wd_trial_options *o)
{
    struct wd_trial_tensor *x = &t->tensor[i];
    struct painting painting = {t, i, o};
    x->image = malloc(x->bytes);
    if (!x->image)
        return no_memory();
    wd_parallel(wd_blocks(x->bytes, WD_BLOCK), poison, x);
    wd_parallel(wd_trial_blocks(x), paint_runs, &painting);
    return WD_OK;
}

/* Enough for whichever variant is run. */
static wd_status make_workspace(struct wd_trial *t)
{
    const struct wd_op *op = t->p.op;
    size_t bytes = 0;
    for (size_t i = 0; op->variants[i] && op->workspace_offset != WD_DERIVED; i++) {
        const struct wd_variant *v = op->variants[i];
        const size_t need = v->workspace && !(v->refuse && v->refuse(&t->ctx->caps, &t->p)) ? v->workspace(&t->p) : 0;
        bytes = need > bytes ? need : bytes;
    }
    if (!bytes)
        return WD_OK;
    const wd_status st = wd_buffer_create(t->ctx, bytes, NULL, &t->workspace);
    if (!st)
        memcpy(t->args.byte + op->workspace_offset, &t->workspace, sizeof t->workspace);
    return st;
}

static wd_status make_buffers(struct wd_trial *t, const struct wd_trial_options *o)
{
    const struct wd_op *op = t->p.op;
    for (size_t i = 0; i < op->num_tensors; i++) {
        struct wd_trial_tensor *x = &t->tensor[i];
        if (!t->p.tensor[i].present)
            continue;
        lay_out(t, i, o);
        wd_status st = make_image(t, i, o);
        if (st || (st = wd_buffer_create(t->ctx, x->bytes, x->image, &x->mem)))
            return st;
        memcpy(t->args.byte + op->tensors[i].offset + offsetof(wd_tensor, mem), &x->mem, sizeof x->mem);
    }
    return make_workspace(t);
}

static wd_status use_queue(struct wd_trial *t, cl_command_queue queue)
{
    cl_int err = CL_SUCCESS;
    t->queue = queue;
    if (queue)
        err = clRetainCommandQueue(queue);
    else
        t->queue = clCreateCommandQueue(wd_context_cl(t->ctx), wd_context_device(t->ctx), 0, &err);
    return err ? wd_fail_cl(err, "trial", "clCreateCommandQueue") : WD_OK;
}

wd_status wd_trial_create(struct wd_context *ctx, const struct wd_problem *p, const struct wd_trial_options *options,
                          struct wd_trial **out)
{
    struct wd_trial *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return no_memory();
    t->ctx = ctx;
    t->p = *p;
    wd_op_args(p, t->args.byte);
    wd_status st = use_queue(t, options->queue);
    if (st || (st = check_room(t, options)) || (st = fill_inputs(t, options)) || (st = make_buffers(t, options)) ||
        (st = wd_op_check(p->op, &t->args, true, &t->p))) {
        wd_trial_destroy(t);
        return st;
    }
    *out = t;
    return WD_OK;
}

void wd_trial_lighten(struct wd_trial *t)
{
    for (size_t i = 0; i < WD_MAX_TENSORS; i++) {
        struct wd_trial_tensor *x = &t->tensor[i];
        free(x->image);
        if (x->want != x->value)
            free(x->want);
        free(x->value);
        x->image = NULL;
        x->want = x->value = NULL;
    }
}

void wd_trial_destroy(struct wd_trial *t)
{
    if (!t)
        return;
    wd_trial_lighten(t);
    for (size_t i = 0; i < WD_MAX_TENSORS; i++)
        wd_buffer_destroy(t->tensor[i].mem);
    wd_buffer_destroy(t->workspace);
    if (t->queue)
        clReleaseCommandQueue(t->queue);
    free(t);
}

/* ---- Running ---- */

wd_status wd_trial_reset(struct wd_trial *t)
{
    for (size_t i = 0; i < t->p.op->num_tensors; i++) {
        const struct wd_trial_tensor *x = &t->tensor[i];
        if (!x->mem)
            continue;
        const cl_int err = clEnqueueWriteBuffer(t->queue, x->mem, CL_TRUE, 0, x->bytes, x->image, 0, NULL, NULL);
        if (err)
            return wd_fail_cl(err, "trial", "clEnqueueWriteBuffer");
    }
    return WD_OK;
}

wd_status wd_trial_run(struct wd_trial *t, wd_trial_run_fn run, void *user)
{
    cl_event done = NULL;
    const wd_launch launch = {.queue = t->queue, .done = &done};
    const wd_status st = run ? run(user, t, &launch) : wd_op_call(t->ctx, t->p.op, &t->args, &launch);
    if (st || !done)
        return st;
    const cl_int err = clWaitForEvents(1, &done);
    clReleaseEvent(done);
    return err ? wd_fail_cl(err, "trial", "clWaitForEvents") : WD_OK;
}

wd_status wd_trial(struct wd_context *ctx, const struct wd_problem *p, const struct wd_trial_options *options,
                   struct wd_trial_result *result)
{
    struct wd_trial *t;
    wd_status st = wd_trial_create(ctx, p, options, &t);
    if (!st && !(st = wd_trial_run(t, NULL, NULL)))
        st = wd_trial_check(t, result);
    wd_trial_destroy(t);
    return st;
}
