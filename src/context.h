/* SPDX-License-Identifier: MIT */
#ifndef WD_CONTEXT_H
#define WD_CONTEXT_H

#include "launch.h"

/* One device in one OpenCL context. Everything below the first line is set once, or guards itself. */
struct wd_context {
    cl_context cl;          /* retained */
    cl_command_queue queue; /* wd_open()'s, else NULL */
    struct wd_caps caps;
    struct wd_log log;
    struct wd_cache *cache; /* NULL: none */
    struct wd_programs programs;
    struct wd_tuning tuning;
    struct wd_plans plans;
    /** Measures a class of which no record speaks, for about tune_limit_ms (tuner.h); NULL: nobody does. */
    wd_status (*measure)(struct wd_context *ctx, const struct wd_problem *p, struct wd_choice *choice);
    unsigned tune_limit_ms;
    atomic_uint_fast64_t memory_hits;
    atomic_uint_fast64_t tuned[4]; /* shape classes by enum wd_origin */
};

/** The queue of a launch, or the context's own; WD_EINVAL if there is neither. */
wd_status wd_context_launch_queue(const struct wd_context *ctx, const wd_launch *launch, cl_command_queue *out);

#endif
