/* SPDX-License-Identifier: MIT */
#include "measure.h"
#include "context.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SCRATCH_BYTES = 256 << 20,
    MAX_ROUNDS = 25,
    MIN_ROUNDS = 3,
    BATCH = 10, /* flush and work pairs in a round on a GPU */
};

uint64_t wd_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- The meter's own kernels ---- */

static wd_status own_kernel(struct wd_meter *m, const char *name, struct wd_kernel **out)
{
    struct wd_text prelude = {0};
    wd_text_add(&prelude, "#define WD_CPU %d\n#define WD_SIMD %u\n", m->ctx->caps.cpu, m->ctx->caps.simd);
    const struct wd_source source = {prelude.data, "measure.cl", name};
    const wd_status st = prelude.failed ? wd_fail(WD_ENOMEM, "measure: out of memory")
                                        : wd_program_kernel(&m->ctx->programs, &source, out);
    wd_text_free(&prelude);
    return st;
}

static size_t local_size(const struct wd_meter *m, const struct wd_kernel *k)
{
    const size_t local = m->ctx->caps.cpu ? 1 : 256;
    return k->group_max < local ? k->group_max : local;
}

/* Groups that fill the device and leave each item a long run. */
static size_t fill_groups(const struct wd_meter *m)
{
    return (size_t)m->ctx->caps.compute_units * (m->ctx->caps.cpu ? 4 : 16);
}

/* Bytes of one element of measure.cl's fill and copy. */
static size_t item_bytes(const struct wd_meter *m)
{
    return m->ctx->caps.cpu ? 64 : 16;
}

/* Enqueues fill, copy or fma: (scratch, count, number). */
static wd_status enqueue(struct wd_meter *m, struct wd_kernel *k, size_t groups, cl_ulong count, cl_float number)
{
    const size_t local = local_size(m, k), global = groups * local;
    const bool unsaved = wd_kernel_unsaved(k); /* later launches go without an event, which costs 2 us on NVIDIA */
    cl_event event = NULL;
    pthread_mutex_lock(&k->lock);
    cl_int err = clSetKernelArg(k->kernel, 0, sizeof m->scratch, &m->scratch);
    if (!err)
        err = clSetKernelArg(k->kernel, 1, sizeof count, &count);
    if (!err)
        err = clSetKernelArg(k->kernel, 2, sizeof number, &number);
    if (!err)
        err = clEnqueueNDRangeKernel(m->queue, k->kernel, 1, NULL, &global, &local, 0, NULL, unsaved ? &event : NULL);
    pthread_mutex_unlock(&k->lock);
    if (err)
        return wd_fail_cl(err, "measure", "clEnqueueNDRangeKernel");
    if (unsaved) {
        wd_kernel_launched(&m->ctx->programs, k, event);
        clReleaseEvent(event);
    }
    return WD_OK;
}

static wd_status fill(struct wd_meter *m)
{
    return enqueue(m, m->fill, fill_groups(m), m->scratch_bytes / item_bytes(m), 1.0f);
}

wd_status wd_meter_flush(struct wd_meter *m)
{
    return m->read ? enqueue(m, m->read, fill_groups(m), m->scratch_bytes / item_bytes(m), 0.0f) : fill(m);
}

wd_status wd_meter_init(struct wd_meter *m, struct wd_context *ctx, cl_command_queue queue)
{
    *m = (struct wd_meter){.ctx = ctx, .queue = queue, .scratch_bytes = SCRATCH_BYTES};
    while (m->scratch_bytes > ctx->caps.max_alloc_bytes || m->scratch_bytes > ctx->caps.global_bytes / 4)
        m->scratch_bytes /= 2;
    cl_int err;
    m->scratch = clCreateBuffer(ctx->cl, CL_MEM_READ_WRITE, m->scratch_bytes, NULL, &err);
    if (!m->scratch)
        return wd_fail_cl(err, "measure: scratch", "clCreateBuffer");
    wd_status st = own_kernel(m, "measure_fill", &m->fill);
    if (!st && ctx->caps.cpu) /* pages that nothing was written to would all be the one of zeros */
        st = (st = fill(m)) ? st : own_kernel(m, "measure_read", &m->read);
    if (st)
        wd_meter_fini(m);
    return st;
}

void wd_meter_fini(struct wd_meter *m)
{
    if (m->scratch)
        clReleaseMemObject(m->scratch);
    m->scratch = NULL;
}

/* ---- Timing ---- */

static wd_status finish(const struct wd_meter *m)
{
    const cl_int err = clFinish(m->queue);
    return err ? wd_fail_cl(err, "measure", "clFinish") : WD_OK;
}

/* Time from the first enqueue to completion of n times flush (if asked) and work (if any). */
static wd_status run_batch(struct wd_meter *m, unsigned n, bool flushed, wd_work_fn work, void *user, double *ns)
{
    wd_status st = finish(m);
    const uint64_t start = wd_now_ns();
    for (unsigned i = 0; i < n && !st; i++) {
        if (flushed)
            st = wd_meter_flush(m);
        if (!st && work)
            st = work(user);
    }
    if (!st)
        st = finish(m);
    *ns = (double)(wd_now_ns() - start);
    return st;
}

wd_status wd_meter_round(struct wd_meter *m, wd_work_fn work, void *user, double *ns)
{
    double both = 0, alone = 0;
    if (m->ctx->caps.cpu) {
        const wd_status st = wd_meter_flush(m);
        return st ? st : run_batch(m, 1, false, work, user, ns);
    }
    wd_status st = run_batch(m, BATCH, true, work, user, &both);
    if (!st)
        st = run_batch(m, BATCH, true, NULL, NULL, &alone);
    *ns = both > alone ? (both - alone) / BATCH : 0;
    return st;
}

int wd_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

wd_status wd_meter_time(struct wd_meter *m, wd_work_fn work, void *user, double budget_ns, double stop_ns,
                        struct wd_timing *out)
{
    double ns[MAX_ROUNDS] = {0}, warm, fastest = 0;
    unsigned n = 0;
    wd_status st = run_batch(m, 2, false, work, user, &warm);
    const uint64_t start = wd_now_ns();
    while (!st && n < MAX_ROUNDS && (n < MIN_ROUNDS || (double)(wd_now_ns() - start) < budget_ns)) {
        st = wd_meter_round(m, work, user, &ns[n]);
        fastest = n == 0 || ns[n] < fastest ? ns[n] : fastest;
        if (++n == 2 && stop_ns > 0 && fastest > stop_ns)
            break;
    }
    if (st)
        return st;
    qsort(ns, n, sizeof ns[0], wd_by_value);
    *out = (struct wd_timing){.median_ns = ns[n / 2], .min_ns = ns[0], .max_ns = ns[n - 1], .rounds = n};
    return WD_OK;
}

/* ---- The device's rates ---- */

struct copy {
    struct wd_meter *meter;
    size_t bytes; /* half of them read, half written */
};

static wd_status work_copy(void *user)
{
    const struct copy *copy = user;
    struct wd_meter *m = copy->meter;
    const size_t elements = copy->bytes / 2 / item_bytes(m), local = local_size(m, m->copy);
    return enqueue(m, m->copy, m->ctx->caps.cpu ? fill_groups(m) : (elements + local - 1) / local, elements, 0.0f);
}

wd_status wd_meter_time_copy(struct wd_meter *m, size_t bytes, double budget_ns, struct wd_timing *out)
{
    struct copy copy = {m, bytes};
    return wd_meter_time(m, work_copy, &copy, budget_ns, 0, out);
}

/* Long enough that launching is little of the time: a CPU has few items. */
static cl_ulong fma_steps(const struct wd_meter *m)
{
    return m->ctx->caps.cpu ? 1 << 18 : 1 << 12;
}

static wd_status work_fma(void *user)
{
    struct wd_meter *m = user;
    return enqueue(m, m->fma, fill_groups(m), fma_steps(m), 0.5f);
}

/* f32 operations of one run of work_fma(). */
static double fma_flops(const struct wd_meter *m)
{
    const bool cpu = m->ctx->caps.cpu;
    const double lanes = cpu ? m->ctx->caps.simd >= 16 ? 16 : m->ctx->caps.simd >= 8 ? 8 : 4 : 1;
    const double items = (double)fill_groups(m) * (double)local_size(m, m->fma);
    return items * lanes * (cpu ? 10 : 8) * (double)fma_steps(m) * 2;
}

wd_status wd_meter_rates(struct wd_meter *m, double *bytes_per_s, double *flops_per_s)
{
    struct wd_timing t;
    wd_status st = own_kernel(m, "measure_copy", &m->copy);
    if (st || (st = own_kernel(m, "measure_fma", &m->fma)) || (st = wd_meter_time_copy(m, m->scratch_bytes, 3e8, &t)))
        return st;
    *bytes_per_s = (double)m->scratch_bytes / (t.median_ns * 1e-9);
    if ((st = wd_meter_time(m, work_fma, m, 3e8, 0, &t)))
        return st;
    *flops_per_s = fma_flops(m) / (t.min_ns * 1e-9);
    return WD_OK;
}

wd_status wd_meter_rate_round(struct wd_meter *m, enum wd_rate rate, double *per_s)
{
    double ns = 0;
    struct copy all = {m, m->scratch_bytes};
    const bool copy = rate == WD_RATE_COPY;
    const wd_status st = copy ? wd_meter_round(m, work_copy, &all, &ns) : wd_meter_round(m, work_fma, m, &ns);
    *per_s = (copy ? (double)m->scratch_bytes : fma_flops(m)) / ((ns > 1 ? ns : 1) * 1e-9);
    return st;
}
