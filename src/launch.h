/* SPDX-License-Identifier: MIT */
/* From a checked call to an enqueued kernel. A plan is what a shape class runs: decided and compiled once. */
#ifndef WD_LAUNCH_H
#define WD_LAUNCH_H

#include "program.h"
#include "tuning.h"

struct wd_plan {
    struct wd_plan *next;
    uint64_t key[16]; /* all that macros and tuning depend on */
    struct wd_choice choice;
    struct wd_kernel *kernel; /* NULL for chains */
};

/* Plans by class. Plans live as long as the context, so their addresses may be kept. */
struct wd_plans {
    pthread_mutex_t lock;
    pthread_mutex_t measuring; /* one class at a time is measured; recursive, since chains make plans in the meantime */
    struct wd_plan *bucket[256];
};

wd_status wd_plans_init(struct wd_plans *plans);
void wd_plans_fini(struct wd_plans *plans);

/** Finds or makes the plan for a problem: choice, then kernel. WD_ENOTSUP with the reasons if nothing fits. */
wd_status wd_plan_get(struct wd_context *ctx, const struct wd_problem *p, const struct wd_plan **out);

/** Compiles one choice for a problem, without making it the plan: the tuner's way in. */
wd_status wd_plan_compile(struct wd_context *ctx, const struct wd_problem *p, const struct wd_choice *choice,
                          struct wd_kernel **out);

/** The macros of op.h's header comment. */
void wd_plan_prelude(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_choice *choice,
                     const struct wd_grid *grid, struct wd_text *text);

/** Sets the arguments of op.h's header comment. The caller holds the kernel's lock. */
cl_int wd_plan_arguments(const struct wd_problem *p, cl_kernel kernel);

/** Sets every argument and enqueues, or runs the chain. `p` must be checked with launching = true; `kernel` is NULL
 *  for chains. */
wd_status wd_plan_launch(struct wd_context *ctx, const struct wd_problem *p, const struct wd_choice *choice,
                         struct wd_kernel *kernel, const wd_launch *launch);

/** wd_prepare() with the operation at hand. */
wd_status wd_op_prepare(struct wd_context *ctx, const struct wd_op *op, const void *args);

#endif
