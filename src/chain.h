/* SPDX-License-Identifier: MIT */
/*
 * A call that is made of other operations' calls, each waiting for the one before, with scratch memory between them.
 *
 *     struct wd_chain c;
 *     wd_chain_begin(&c, ctx, p, launch, scratch_bytes);
 *     first.g = wd_chain_pass(&c, MINE_g);
 *     first.x = second.x = wd_chain_scratch(&c, elements, WD_F32);
 *     wd_chain_call(&c, &wd_op_first, &first, false);
 *     wd_chain_call(&c, &wd_op_second, &second, true);
 *     return wd_chain_end(&c);
 *
 * With `launch` NULL (wd_variant.chain says when) the calls are prepared and nothing is enqueued. After a failure the
 * remaining calls do nothing and wd_chain_end() returns it. A chain belongs to one thread.
 */
#ifndef WD_CHAIN_H
#define WD_CHAIN_H

#include "op.h"

struct wd_chain {
    struct wd_context *ctx;
    const struct wd_problem *p;
    const wd_launch *launch;
    bool linked;   /* the queue is out of order: events keep the calls in order */
    bool begun;    /* the caller's wait list is spent */
    cl_event last; /* of the latest call, when linked */
    cl_mem memory; /* scratch: the caller's workspace, or the chain's own until its end */
    size_t used;   /* bytes of it */
    wd_status status;
};

/** Starts a chain; takes the caller's workspace, or allocates one of `scratch_bytes`. */
void wd_chain_begin(struct wd_chain *c, struct wd_context *ctx, const struct wd_problem *p, const wd_launch *launch,
                    size_t scratch_bytes);

/** The caller's tensor `i`, for the args of a call. Absent ones stay absent. */
wd_tensor wd_chain_pass(const struct wd_chain *c, size_t i);

/** The next `elements` of scratch. */
wd_tensor wd_chain_scratch(struct wd_chain *c, size_t elements, wd_dtype dtype);

/** Adds to `*bytes` what wd_chain_scratch() would take; SIZE_MAX once it overflows. */
void wd_chain_scratch_add(size_t *bytes, size_t elements, wd_dtype dtype);

/** A piece of scratch: where its tensor goes, and what is in it. */
struct wd_chain_piece {
    wd_tensor *out;
    size_t elements;
    wd_dtype dtype;
};

/** Deals out all pieces, in order; or, with c NULL, only adds up their bytes. */
void wd_chain_deal(struct wd_chain *c, size_t *bytes, const struct wd_chain_piece *piece, size_t num);

/** One call. `last`: its completion is the chain's. */
void wd_chain_call(struct wd_chain *c, const struct wd_op *op, const void *args, bool last);

/** Ends the chain, also after a failure. Scratch lives on until the calls have run: OpenCL sees to that. */
wd_status wd_chain_end(struct wd_chain *c);

#endif
