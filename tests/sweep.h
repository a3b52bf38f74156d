/* SPDX-License-Identifier: MIT */
/* More of each variant than variants.h tries: other parameters than the model's, and the GPU forms on a CPU. */
#ifndef SWEEP_H
#define SWEEP_H

#include "variants.h"

/* Makes the variants for GPUs run on a device that says it is a CPU. Only for calls that go past the context's plans:
 * variants_check() and sweep_check(). */
static inline void sweep_as_gpu(bool on)
{
    static bool cpu;
    if (on)
        cpu = ctx->caps.cpu;
    ctx->caps.cpu = on ? false : cpu;
}

static inline size_t sweep_count(const struct wd_param *params)
{
    size_t n = 1;
    for (; params && params->name; params++) {
        size_t values = 0;
        while (params->values[values])
            values++;
        n *= values;
    }
    return n;
}

/* Combination `i` of all values. */
static inline void sweep_pick(const struct wd_param *params, size_t i, int *param)
{
    for (; params && params->name; params++) {
        size_t values = 0;
        while (params->values[values])
            values++;
        *param++ = params->values[i % values];
        i /= values;
    }
}

static inline void sweep_run(const char *label, struct wd_trial *t, const struct wd_choice *choice)
{
    struct variants_choice chosen = {.choice = *choice};
    struct wd_trial_result result;
    struct wd_text numbers = {0};
    wd_choice_text(choice, &numbers);
    if (wd_plan_compile(ctx, &t->p, choice, &chosen.kernel) || wd_trial_reset(t) ||
        wd_trial_run(t, variants_launch, &chosen) || wd_trial_check(t, &result))
        fail_msg("%s: %s: %s", label, numbers.data, wd_last_error());
    if (!result.ok)
        fail_msg("%s: %s: %s", label, numbers.data, result.text);
    wd_text_free(&numbers);
}

/* Tries about `most` valid combinations of the parameters of each variant that does not refuse. Returns how many. */
static inline size_t sweep_check(const char *label, const struct wd_op *op, const void *args, size_t most,
                                 const struct wd_trial_options *options)
{
    struct wd_problem p;
    struct wd_trial *t;
    size_t ran = 0;
    if (wd_op_check(op, args, false, &p) || wd_trial_create(ctx, &p, options, &t))
        fail_msg("%s: %s", label, wd_last_error());
    for (const struct wd_variant *const *v = op->variants; *v; v++) {
        const size_t n = sweep_count((*v)->params), step = n / most | 1;
        struct wd_choice choice = {.variant = *v};
        for (size_t i = 0; !(*v)->chain && i < n; i += step) {
            sweep_pick((*v)->params, i, choice.param);
            if (wd_choice_fault(&ctx->caps, &t->p, &choice))
                continue;
            sweep_run(label, t, &choice);
            ran++;
        }
    }
    wd_trial_destroy(t);
    return ran;
}

#endif
