/* SPDX-License-Identifier: MIT */
/* wd_context: create, destroy, counters; and the front door for programs without OpenCL code of their own. */
#include "context.h"
#include "status.h"
#include "tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *wd_version(void)
{
#define STRING_(x) #x
#define STRING(x)  STRING_(x)
    return STRING(WD_VERSION_MAJOR) "." STRING(WD_VERSION_MINOR) "." STRING(WD_VERSION_PATCH);
}

/* ---- Create and destroy ---- */

/* The device a description means: its own, checked to be in the context, or the context's first. */
static wd_status pick_device(const wd_context_desc *desc, cl_device_id *out)
{
    size_t bytes = 0;
    cl_int err = clGetContextInfo(desc->context, CL_CONTEXT_DEVICES, 0, NULL, &bytes);
    if (err)
        return wd_fail_cl(err, "wd_context_create: context", "clGetContextInfo");
    cl_device_id *devices = malloc(bytes ? bytes : 1);
    if (!devices)
        return wd_fail(WD_ENOMEM, "wd_context_create: out of memory");
    wd_status st = WD_OK;
    err = clGetContextInfo(desc->context, CL_CONTEXT_DEVICES, bytes, devices, NULL);
    const size_t n = bytes / sizeof *devices;
    size_t i = 0;
    while (!err && desc->device && i < n && devices[i] != desc->device)
        i++;
    if (err)
        st = wd_fail_cl(err, "wd_context_create: context", "clGetContextInfo");
    else if (i >= n)
        st = wd_fail(WD_EINVAL, "wd_context_create: device: not a device of the context");
    else
        *out = devices[i];
    free(devices);
    return st;
}

static wd_status load_tuning(struct wd_context *ctx, const wd_context_desc *desc)
{
    char *path = wd_tuning_place(desc->tuning_file, desc->cache_dir);
    const wd_status st = wd_tuning_init(&ctx->tuning, &ctx->caps, path, &ctx->log);
    free(path);
    return st;
}

wd_status wd_context_create(const wd_context_desc *desc, wd_context **out)
{
    if (!out)
        return wd_fail(WD_EINVAL, "wd_context_create: out: NULL");
    *out = NULL;
    if (!desc)
        return wd_fail(WD_EINVAL, "wd_context_create: desc: NULL");
    if (desc->struct_size != sizeof *desc)
        return wd_fail(WD_EINVAL, "wd_context_create: struct_size: %zu, not %zu", desc->struct_size, sizeof *desc);
    if (!desc->context)
        return wd_fail(WD_EINVAL, "wd_context_create: context: NULL");
    if (desc->tune != WD_TUNE_NEVER && desc->tune != WD_TUNE_MISSING)
        return wd_fail(WD_EINVAL, "wd_context_create: tune: %d is none of its values", (int)desc->tune);

    struct wd_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return wd_fail(WD_ENOMEM, "wd_context_create: out of memory");
    ctx->log = (struct wd_log){desc->log, desc->log_user};
    ctx->measure = desc->tune == WD_TUNE_MISSING ? wd_tuner_missing : NULL;
    ctx->tune_limit_ms = desc->tune_limit_ms ? desc->tune_limit_ms : 2000;
    cl_device_id device = NULL;
    cl_int err;
    wd_status st = pick_device(desc, &device);
    if (st || (st = wd_caps_query(device, &ctx->caps)))
        goto undo_alloc;
    if ((err = clRetainContext(desc->context))) {
        st = wd_fail_cl(err, "wd_context_create: context", "clRetainContext");
        goto undo_alloc;
    }
    ctx->cl = desc->context;
    if ((st = load_tuning(ctx, desc)))
        goto undo_tuning;
    if ((st = wd_plans_init(&ctx->plans)))
        goto undo_tuning;
    ctx->cache = wd_cache_open(desc->cache_dir, desc->cache_limit_bytes, &ctx->log);
    if ((st = wd_programs_init(&ctx->programs, &ctx->caps, ctx->cl, ctx->cache, &ctx->log)))
        goto undo_cache;
    *out = ctx;
    return WD_OK;

undo_cache:
    wd_cache_close(ctx->cache);
    wd_plans_fini(&ctx->plans);
undo_tuning:
    wd_tuning_fini(&ctx->tuning);
    clReleaseContext(ctx->cl);
undo_alloc:
    free(ctx);
    return st;
}

void wd_context_destroy(wd_context *ctx)
{
    if (!ctx)
        return;
    wd_programs_fini(&ctx->programs);
    wd_cache_close(ctx->cache);
    wd_plans_fini(&ctx->plans);
    wd_tuning_fini(&ctx->tuning);
    if (ctx->queue)
        clReleaseCommandQueue(ctx->queue);
    clReleaseContext(ctx->cl);
    free(ctx);
}

wd_status wd_context_counters(const wd_context *ctx, wd_counters *out)
{
    if (!ctx || !out)
        return wd_fail(WD_EINVAL, "wd_context_counters: %s: NULL", ctx ? "out" : "ctx");
    if (out->struct_size != sizeof *out)
        return wd_fail(WD_EINVAL, "wd_context_counters: struct_size: %zu, not %zu", out->struct_size, sizeof *out);
    const struct wd_program_counts *c = &ctx->programs.counts;
    *out = (wd_counters){
        .struct_size = sizeof *out,
        .compiles = atomic_load(&c->compiles),
        .memory_hits = atomic_load(&ctx->memory_hits) + atomic_load(&c->memory_hits),
        .disk_hits = atomic_load(&c->disk_hits),
        .disk_rejects = atomic_load(&c->disk_rejects),
        .tuning_user = atomic_load(&ctx->tuned[WD_FROM_USER]),
        .tuning_shipped = atomic_load(&ctx->tuned[WD_FROM_SHIPPED]),
        .tuning_model = atomic_load(&ctx->tuned[WD_FROM_MODEL]),
        .tuning_measured = atomic_load(&ctx->tuned[WD_FROM_MEASURED]),
    };
    return WD_OK;
}

wd_status wd_context_launch_queue(const wd_context *ctx, const wd_launch *launch, cl_command_queue *out)
{
    *out = launch && launch->queue ? launch->queue : ctx->queue;
    if (!*out)
        return wd_fail(WD_EINVAL, "launch: queue: NULL, and the context has none of its own");
    if (launch && (launch->num_wait != 0) != (launch->wait_list != NULL))
        return wd_fail(WD_EINVAL, "launch: wait_list: %s, but num_wait is %u", launch->wait_list ? "given" : "NULL",
                       (unsigned)launch->num_wait);
    return WD_OK;
}

/* ---- The front door ---- */

wd_status wd_open(const char *device, wd_context **out)
{
    if (!out)
        return wd_fail(WD_EINVAL, "wd_open: out: NULL");
    *out = NULL;
    wd_context_desc desc = {.struct_size = sizeof desc};
    wd_status st = wd_device_find(device, &desc.device);
    if (st)
        return st;
    cl_int err;
    desc.context = clCreateContext(NULL, 1, &desc.device, NULL, NULL, &err);
    if (!desc.context)
        return wd_fail_cl(err, "wd_open", "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(desc.context, desc.device, 0, &err);
    if (!queue)
        st = wd_fail_cl(err, "wd_open", "clCreateCommandQueue");
    else if ((st = wd_context_create(&desc, out)))
        clReleaseCommandQueue(queue);
    else
        (*out)->queue = queue;
    clReleaseContext(desc.context);
    return st;
}

cl_context wd_context_cl(const wd_context *ctx)
{
    return ctx ? ctx->cl : NULL;
}

cl_device_id wd_context_device(const wd_context *ctx)
{
    return ctx ? ctx->caps.id : NULL;
}

cl_command_queue wd_context_queue(const wd_context *ctx)
{
    return ctx ? ctx->queue : NULL;
}

wd_status wd_buffer_create(wd_context *ctx, size_t bytes, const void *data, cl_mem *out)
{
    if (!ctx || !out)
        return wd_fail(WD_EINVAL, "wd_buffer_create: %s: NULL", ctx ? "out" : "ctx");
    *out = NULL;
    if (bytes > ctx->caps.max_alloc_bytes)
        return wd_fail(WD_ENOMEM, "wd_buffer_create: bytes: %zu, but %s allows %zu in one buffer", bytes,
                       ctx->caps.name, ctx->caps.max_alloc_bytes);
    cl_int err;
    const cl_mem_flags flags = CL_MEM_READ_WRITE | (data && bytes ? CL_MEM_COPY_HOST_PTR : 0);
    *out = clCreateBuffer(ctx->cl, flags, bytes ? bytes : 1,
                          flags & CL_MEM_COPY_HOST_PTR ? (void *)(uintptr_t)data : NULL, &err);
    return *out ? WD_OK : wd_fail_cl(err, "wd_buffer_create", "clCreateBuffer");
}

void wd_buffer_destroy(cl_mem mem)
{
    if (mem)
        clReleaseMemObject(mem);
}

static wd_status check_copy(const wd_context *ctx, const char *function, cl_mem mem, const void *data)
{
    if (!ctx || !mem || !data)
        return wd_fail(WD_EINVAL, "%s: %s: NULL", function, !ctx ? "ctx" : !mem ? "mem" : "data");
    if (!ctx->queue)
        return wd_fail(WD_EINVAL, "%s: ctx: it has no queue of its own; wd_open() makes one", function);
    return WD_OK;
}

wd_status wd_buffer_write(wd_context *ctx, cl_mem mem, size_t offset_bytes, size_t bytes, const void *data)
{
    const wd_status st = check_copy(ctx, "wd_buffer_write", mem, data);
    if (st || !bytes)
        return st;
    const cl_int err = clEnqueueWriteBuffer(ctx->queue, mem, CL_TRUE, offset_bytes, bytes, data, 0, NULL, NULL);
    return err ? wd_fail_cl(err, "wd_buffer_write", "clEnqueueWriteBuffer") : WD_OK;
}

wd_status wd_buffer_read(wd_context *ctx, cl_mem mem, size_t offset_bytes, size_t bytes, void *data)
{
    const wd_status st = check_copy(ctx, "wd_buffer_read", mem, data);
    if (st || !bytes)
        return st;
    const cl_int err = clEnqueueReadBuffer(ctx->queue, mem, CL_TRUE, offset_bytes, bytes, data, 0, NULL, NULL);
    return err ? wd_fail_cl(err, "wd_buffer_read", "clEnqueueReadBuffer") : WD_OK;
}
