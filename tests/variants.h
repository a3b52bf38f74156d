/* SPDX-License-Identifier: MIT */
/* Every variant of an operation against the reference, on the device that tests run on: $WARPDRIVE_TEST_DEVICE, by the
 * rules of wd_open(), or the best one. */
#ifndef VARIANTS_H
#define VARIANTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "dims.h"
#include "status.h"
#include "trial.h"

static wd_context *ctx;

static inline int open_device(void **state)
{
    (void)state;
    if (wd_open(getenv("WARPDRIVE_TEST_DEVICE"), &ctx))
        fail_msg("%s", wd_last_error());
    return 0;
}

static inline int close_device(void **state)
{
    (void)state;
    wd_context_destroy(ctx);
    return 0;
}

struct variants_choice {
    struct wd_choice choice;
    struct wd_kernel *kernel; /* NULL: a chain */
};

static inline wd_status variants_launch(void *user, struct wd_trial *t, const wd_launch *launch)
{
    const struct variants_choice *v = user;
    return wd_plan_launch(t->ctx, &t->p, &v->choice, v->kernel, launch);
}

/* Runs each variant that does not refuse the call, with the model's numbers, and compares. `label` names the case in
 * messages. `only`: one variant's name, or NULL. Returns how many ran. */
static inline size_t variants_check(const char *label, const struct wd_op *op, const void *args, const char *only,
                                    const struct wd_trial_options *options)
{
    struct wd_problem p;
    struct wd_trial *t;
    size_t ran = 0;
    if (wd_op_check(op, args, false, &p) || wd_trial_create(ctx, &p, options, &t))
        fail_msg("%s: %s", label, wd_last_error());
    for (const struct wd_variant *const *v = op->variants; *v; v++) {
        struct variants_choice chosen = {.kernel = NULL};
        struct wd_trial_result result;
        if ((only && strcmp((*v)->name, only) != 0) || !wd_tuning_model(&ctx->caps, &t->p, *v, &chosen.choice))
            continue;
        if ((!(*v)->chain && wd_plan_compile(ctx, &t->p, &chosen.choice, &chosen.kernel)) || wd_trial_reset(t) ||
            wd_trial_run(t, variants_launch, &chosen) || wd_trial_check(t, &result))
            fail_msg("%s: %s: %s", label, (*v)->name, wd_last_error());
        if (!result.ok)
            fail_msg("%s: %s: %s", label, (*v)->name, result.text);
        ran++;
    }
    wd_trial_destroy(t);
    return ran;
}

#endif
