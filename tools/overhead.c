/* SPDX-License-Identifier: MIT */
/*
 * A warm call of the library, against the clSetKernelArg and clEnqueueNDRangeKernel calls that it makes, made directly.
 *
 * Both run the same kernel with the same arguments on the same queue, a batch each in turns. Time is the host's, from
 * the first enqueue of a batch to the return of the last; the queue is drained between batches, outside it. A driver
 * that runs work on the host's cores disturbs the host: the fastest rounds say most, so the lower quartile is told
 * beside the median.
 */
#include "overhead.h"

#include <stdio.h>
#include <stdlib.h>

#include "context.h"
#include "json.h"
#include "measure.h"
#include "shape.h"
#include "trial.h"

enum { ROUNDS = 61, BATCH = 64 };

static const struct {
    const char *op, *shape;
} calls[] = {
    {"fp8_quant", "tokens=1,hidden=128"},
    {"causal_conv1d_update", "B=1,D=16,W=4"},
    {"gdn_decode", "B=1,H=1,K=16,V=16"},
};

struct subject {
    struct wd_trial *trial;
    const struct wd_plan *plan;
    struct wd_grid grid;
    size_t global[3];
};

static wd_status call_library(struct subject *s)
{
    const wd_launch launch = {.queue = s->trial->queue};
    return wd_op_call(s->trial->ctx, s->trial->p.op, &s->trial->args, &launch);
}

static wd_status call_opencl(struct subject *s)
{
    cl_kernel kernel = s->plan->kernel->kernel;
    cl_int err = wd_plan_arguments(&s->trial->p, kernel);
    if (!err)
        err = clEnqueueNDRangeKernel(s->trial->queue, kernel, s->grid.dims, NULL, s->global, s->grid.local, 0, NULL,
                                     NULL);
    return err ? wd_fail_cl(err, "overhead", "clEnqueueNDRangeKernel") : WD_OK;
}

/* Nanoseconds a call. */
static wd_status time_batch(struct subject *s, wd_status (*call)(struct subject *), double *ns)
{
    wd_status st = WD_OK;
    const uint64_t start = wd_now_ns();
    for (int i = 0; i < BATCH && !st; i++)
        st = call(s);
    *ns = (double)(wd_now_ns() - start) / BATCH;
    const cl_int err = clFinish(s->trial->queue);
    return !st && err ? wd_fail_cl(err, "overhead", "clFinish") : st;
}

struct costs {
    double library[ROUNDS], opencl[ROUNDS];
};

static wd_status measure(wd_context *ctx, const char *op_name, const char *words, struct costs *c)
{
    struct shape shape;
    struct wd_problem p;
    struct subject s = {0};
    const struct wd_trial_options options = {.queue = wd_context_queue(ctx)};
    shape_init(&shape, wd_op_by_name(op_name));
    wd_status st = shape_parse(&shape, words);
    if (st || (st = wd_op_check(shape.op, &shape.args, false, &p)) ||
        (st = wd_trial_create(ctx, &p, &options, &s.trial)))
        return st;
    if ((st = wd_trial_run(s.trial, NULL, NULL)) || (st = wd_plan_get(ctx, &s.trial->p, &s.plan)))
        goto undo_trial;
    s.plan->choice.variant->grid(&ctx->caps, &s.trial->p, s.plan->choice.param, &s.grid);
    for (cl_uint d = 0; d < s.grid.dims; d++)
        s.global[d] = s.grid.groups[d] * s.grid.local[d];
    for (int i = 0; i < ROUNDS && !st; i++)
        if (!(st = time_batch(&s, call_library, &c->library[i])))
            st = time_batch(&s, call_opencl, &c->opencl[i]);
    qsort(c->library, ROUNDS, sizeof c->library[0], wd_by_value);
    qsort(c->opencl, ROUNDS, sizeof c->opencl[0], wd_by_value);

undo_trial:
    wd_trial_destroy(s.trial);
    return st;
}

static void print_json(struct json *json, const char *op, const char *shape, const struct costs *c)
{
    emit_open(json, NULL, '{');
    emit_string(json, "operation", op);
    emit_string(json, "shape", shape);
    emit_number(json, "library_ns", c->library[ROUNDS / 2]);
    emit_number(json, "opencl_ns", c->opencl[ROUNDS / 2]);
    emit_number(json, "library_quartile_ns", c->library[ROUNDS / 4]);
    emit_number(json, "opencl_quartile_ns", c->opencl[ROUNDS / 4]);
    emit_close(json, '}');
}

static void print_text(const char *op, const char *shape, const struct costs *c)
{
    const size_t half = ROUNDS / 2, quarter = ROUNDS / 4;
    printf("%-21s %-20s %7.0f ns a call, %7.0f ns its OpenCL calls alone: %.2f (lower quartiles %.0f and %.0f: %.2f)\n",
           op, shape, c->library[half], c->opencl[half], c->library[half] / c->opencl[half], c->library[quarter],
           c->opencl[quarter], c->library[quarter] / c->opencl[quarter]);
}

int bench_overhead(const struct cli *cli)
{
    wd_context *ctx;
    struct json json = {0};
    wd_status st = wd_open(cli_get(cli, "device"), &ctx);
    if (st)
        return cli_fail(cli, st);
    if (cli->json)
        emit_open(&json, NULL, '[');
    for (size_t i = 0; i < WD_COUNT(calls) && !st; i++) {
        struct costs c;
        cli_progress("%s: enqueueing", calls[i].op);
        st = measure(ctx, calls[i].op, calls[i].shape, &c);
        cli_progress("%s", "");
        if (!st && cli->json)
            print_json(&json, calls[i].op, calls[i].shape, &c);
        else if (!st)
            print_text(calls[i].op, calls[i].shape, &c);
    }
    if (!st && cli->json) {
        emit_close(&json, ']');
        emit_print(&json);
    }
    emit_drop(&json);
    wd_context_destroy(ctx);
    return st ? cli_fail(cli, st) : CLI_OK;
}
