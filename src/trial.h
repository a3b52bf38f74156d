/* SPDX-License-Identifier: MIT */
/*
 * One trial: an operation on a device with random inputs, checked against the reference. Tests, `verify`, the tuner
 * and the benchmarks are made of these steps.
 *
 *     wd_op_check(op, args, false, &p)          what to try: sizes, types, which optional tensors
 *     wd_trial_create(ctx, &p, &options, &t)    inputs, buffers, args struct
 *     wd_trial_run(t, NULL, NULL)               as often as wanted; wd_trial_reset(t) before a run that is checked
 *     wd_trial_check(t, &result)
 *     wd_trial_destroy(t)
 *
 * Each tensor lies in a buffer of its own between guards. Outputs, guards and the gaps between padded rows hold NaN
 * patterns before a run, so that an element left out, a read past the end that matters and a write past the end all
 * show. The reference sees the inputs as the device does, rounded to their types.
 *
 * Not thread-safe: a trial belongs to one thread.
 */
#ifndef WD_TRIAL_H
#define WD_TRIAL_H

#include "fill.h"
#include "parallel.h"

struct wd_trial_options {
    uint64_t seed;
    enum wd_gates gates;
    size_t shift;           /* elements by which every view starts later than it would */
    size_t pad;             /* elements between rows of every tensor that may have strides; 0: packed */
    cl_command_queue queue; /* NULL: an in-order queue of the trial's own */
    /** For a trial that is only timed: repeat the inputs of this smaller one (without pad) instead of making
     *  them up, which takes longer than most runs. It cannot be checked. NULL: make them up. */
    const struct wd_trial *like;
    /** Changes inputs before they are rounded: t[i] as wd_op.reference sees it, NULL for outputs. May be NULL. */
    void (*edit)(void *user, const struct wd_problem *p, double *const *t);
    void *user;
};

/* A tensor's buffer and its contents. */
struct wd_trial_tensor {
    cl_mem mem;
    size_t bytes;                               /* of the buffer, guards included */
    size_t offset, extent[3], stride[3], inner; /* extent[0] x [1] x [2] runs of `inner` contiguous elements */
    unsigned char *image;                       /* the buffer before a run */
    double *value;                              /* inputs, packed; NULL for outputs */
    double *want;                               /* what the reference says, after the first check */
};

struct wd_trial {
    struct wd_context *ctx;
    cl_command_queue queue;
    struct wd_problem p; /* checked for launching, with the trial's buffers */
    union {
        size_t struct_size;
        void *align;
        unsigned char byte[WD_MAX_ARGS];
    } args; /* the operation's args struct, for wd_op_call() */
    struct wd_trial_tensor tensor[WD_MAX_TENSORS];
    cl_mem workspace;
    bool has_reference;
};

/** What a check found. */
struct wd_trial_result {
    bool ok;
    double error;   /* relative Frobenius error of the output that is worst against its bar */
    double bar;     /* ... and that bar */
    double max_abs; /* largest absolute difference of any output element */
    uint64_t bits;  /* a hash of all outputs: the same where they are the same bit for bit */
    char text[256]; /* not ok: "chunk_fwd_h: h[0][3][1][17][5] is nan, not 0.25" */
};

/** Fills and uploads everything. `p` from wd_op_check(); its buffers, offsets and strides are not looked at. */
wd_status wd_trial_create(struct wd_context *ctx, const struct wd_problem *p, const struct wd_trial_options *options,
                          struct wd_trial **out);
/** Frees what lies in host memory for checks and resets: from now on the trial can only be run. */
void wd_trial_lighten(struct wd_trial *t);
/** NULL is allowed. */
void wd_trial_destroy(struct wd_trial *t);

/** Puts every buffer back to what it was before the first run. */
wd_status wd_trial_reset(struct wd_trial *t);

/** Enqueues the operation once on `launch`, somehow: NULL stands for wd_op_call() with the trial's args. */
typedef wd_status (*wd_trial_run_fn)(void *user, struct wd_trial *t, const wd_launch *launch);

/** Runs once and waits. */
wd_status wd_trial_run(struct wd_trial *t, wd_trial_run_fn run, void *user);

/** Reads everything back and compares; the reference is computed at the first call. WD_OK also when the numbers are
 *  wrong: see result->ok. */
wd_status wd_trial_check(struct wd_trial *t, struct wd_trial_result *result);

/** Takes what the last run wrote for the reference: later checks compare with that. */
wd_status wd_trial_adopt(struct wd_trial *t);

/** Create, run with wd_op_call(), check, destroy. */
wd_status wd_trial(struct wd_context *ctx, const struct wd_problem *p, const struct wd_trial_options *options,
                   struct wd_trial_result *result);

/** The bar for the relative Frobenius error of output `tensor`; 0: bit for bit. */
double wd_trial_bar(const struct wd_problem *p, size_t tensor);

/** Runs of contiguous elements in a view, in packed order, and the buffer's element where run r begins. */
static inline size_t wd_trial_runs(const struct wd_trial_tensor *x)
{
    return x->inner ? x->extent[0] * x->extent[1] * x->extent[2] : 0;
}

static inline size_t wd_trial_run_start(const struct wd_trial_tensor *x, size_t r)
{
    const size_t k = r % x->extent[2], j = r / x->extent[2] % x->extent[1], i = r / x->extent[2] / x->extent[1];
    return x->offset + i * x->stride[0] + j * x->stride[1] + k * x->stride[2];
}

/** Runs in blocks for wd_parallel(): how many blocks, and the runs of one. */
static inline size_t wd_trial_block_runs(const struct wd_trial_tensor *x)
{
    return x->inner < WD_BLOCK ? WD_BLOCK / (x->inner ? x->inner : 1) : 1;
}

static inline size_t wd_trial_blocks(const struct wd_trial_tensor *x)
{
    return wd_blocks(wd_trial_runs(x), wd_trial_block_runs(x));
}

static inline struct wd_range wd_trial_block(const struct wd_trial_tensor *x, size_t block)
{
    return wd_block(wd_trial_runs(x), wd_trial_block_runs(x), block);
}

#endif
