/* SPDX-License-Identifier: MIT */
#include "chain.h"

#include "context.h"
#include "status.h"

#include <string.h>

/* Where pieces of scratch begin: enough for any vector type and for whole cache lines. */
enum { ALIGN = 256 };

static void fail(struct wd_chain *c, wd_status status)
{
    if (!c->status)
        c->status = status;
}

static void begin_queue(struct wd_chain *c)
{
    cl_command_queue_properties properties = 0;
    cl_int err = clGetCommandQueueInfo(c->launch->queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    if (err)
        fail(c, wd_fail_cl(err, c->p->op->name, "clGetCommandQueueInfo"));
    c->linked = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
}

static void begin_scratch(struct wd_chain *c, size_t bytes)
{
    size_t given = 0;
    cl_int err = CL_SUCCESS;
    c->memory = c->p->workspace;
    if (!bytes)
        return;
    if (c->memory) {
        if ((err = clGetMemObjectInfo(c->memory, CL_MEM_SIZE, sizeof given, &given, NULL)))
            fail(c, wd_fail_cl(err, c->p->op->name, "workspace: clGetMemObjectInfo"));
        else if (given < bytes)
            fail(c,
                 wd_fail(WD_EINVAL, "wd_%s: workspace: %zu bytes, this call needs %zu", c->p->op->name, given, bytes));
        return;
    }
    c->memory = clCreateBuffer(c->ctx->cl, CL_MEM_READ_WRITE, bytes, NULL, &err);
    if (err)
        fail(c, wd_fail_cl(err, c->p->op->name, "workspace: clCreateBuffer"));
}

void wd_chain_begin(struct wd_chain *c, struct wd_context *ctx, const struct wd_problem *p, const wd_launch *launch,
                    size_t scratch_bytes)
{
    memset(c, 0, sizeof *c);
    c->ctx = ctx;
    c->p = p;
    c->launch = launch;
    if (!launch)
        return;
    begin_queue(c);
    begin_scratch(c, scratch_bytes);
}

wd_tensor wd_chain_pass(const struct wd_chain *c, size_t i)
{
    const struct wd_view *v = &c->p->tensor[i];
    wd_tensor t = {0};
    if (v->present)
        t = (wd_tensor){v->mem, v->at[0], {v->at[1], v->at[2], v->at[3]}, v->dtype};
    return t;
}

void wd_chain_scratch_add(size_t *bytes, size_t elements, wd_dtype dtype)
{
    const size_t size = wd_dtype_size(dtype);
    if (*bytes == SIZE_MAX || elements > (SIZE_MAX - *bytes - ALIGN) / size)
        *bytes = SIZE_MAX;
    else
        *bytes += (elements * size + ALIGN - 1) / ALIGN * ALIGN;
}

wd_tensor wd_chain_scratch(struct wd_chain *c, size_t elements, wd_dtype dtype)
{
    const wd_tensor t = {.mem = c->memory, .offset = c->used / wd_dtype_size(dtype), .dtype = dtype};
    wd_chain_scratch_add(&c->used, elements, dtype);
    return t;
}

void wd_chain_deal(struct wd_chain *c, size_t *bytes, const struct wd_chain_piece *piece, size_t num)
{
    for (size_t i = 0; i < num; i++)
        if (c)
            *piece[i].out = wd_chain_scratch(c, piece[i].elements, piece[i].dtype);
        else
            wd_chain_scratch_add(bytes, piece[i].elements, piece[i].dtype);
}

void wd_chain_call(struct wd_chain *c, const struct wd_op *op, const void *args, bool last)
{
    if (c->status)
        return;
    if (!c->launch) {
        fail(c, wd_op_prepare(c->ctx, op, args));
        return;
    }
    wd_launch l = {.queue = c->launch->queue};
    cl_event done = NULL;
    if (!c->begun) {
        l.num_wait = c->launch->num_wait;
        l.wait_list = c->launch->wait_list;
    } else if (c->linked) {
        l.num_wait = 1;
        l.wait_list = &c->last;
    }
    if (last)
        l.done = c->launch->done;
    else if (c->linked)
        l.done = &done;
    fail(c, wd_op_call(c->ctx, op, args, &l));
    c->begun = true;
    if (c->last)
        clReleaseEvent(c->last);
    c->last = done;
}

wd_status wd_chain_end(struct wd_chain *c)
{
    if (c->last)
        clReleaseEvent(c->last);
    if (c->memory && c->memory != c->p->workspace)
        clReleaseMemObject(c->memory);
    return c->status;
}
