/* SPDX-License-Identifier: MIT */
/* More of each variant than variants.h tries, other parameters than the model's and the GPU forms on a CPU; and the
 * public calls. */
#ifndef SWEEP_H
#define SWEEP_H

#include "variants.h"

/* Lets the device pass for a CPU or not, so that the forms for the others run on it, too; false if they cannot: GPUs
 * have no use for the CPU forms' private arrays. Only for calls that go past the context's plans, which are
 * variants_check() and sweep_check(). sweep_end() ends it. */
static bool sweep_changed, sweep_was_cpu;

static inline bool sweep_as(bool cpu)
{
    if (cpu && !ctx->caps.cpu && strcmp(ctx->caps.kind, "oclgrind") != 0)
        return false;
    sweep_changed = true;
    sweep_was_cpu = ctx->caps.cpu;
    ctx->caps.cpu = cpu;
    return true;
}

static inline void sweep_end(void)
{
    if (sweep_changed)
        ctx->caps.cpu = sweep_was_cpu;
    sweep_changed = false;
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

/* False if the device cannot run what it has compiled: a driver may allow a kernel fewer items than the device has. */
static inline bool sweep_run(const char *label, struct wd_trial *t, const struct wd_choice *choice)
{
    struct variants_choice chosen = {.choice = *choice};
    struct wd_trial_result result = {0};
    struct wd_text numbers = {0};
    wd_choice_text(choice, &numbers);
    wd_status err = wd_plan_compile(ctx, &t->p, choice, &chosen.kernel);
    if (!err)
        err = wd_trial_reset(t);
    if (!err)
        err = wd_trial_run(t, variants_launch, &chosen);
    const bool runs = err != WD_ENOTSUP || ctx->caps.cpu;
    if (runs && (err || wd_trial_check(t, &result)))
        fail_msg("%s: %s: %s", label, numbers.data, wd_last_error());
    if (runs && !result.ok)
        fail_msg("%s: %s: %s", label, numbers.data, result.text);
    wd_text_free(&numbers);
    return runs;
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
            ran += sweep_run(label, t, &choice);
        }
    }
    wd_trial_destroy(t);
    return ran;
}

/* ---- Public calls ---- */

typedef void (*sweep_edit_fn)(void *user, const struct wd_problem *p, double *const *t);

/* A type for present tensors (wd_prepare's way to say so), none for absent ones. */
static inline wd_tensor sweep_optional(bool present, wd_dtype dtype)
{
    return (wd_tensor){.dtype = !present ? WD_DTYPE_DEFAULT : dtype ? dtype : WD_F32};
}

/* The call as applications make it. */
static inline void sweep_public_call(const char *name, const struct wd_op *op, const void *args,
                                     const struct wd_trial_options *options)
{
    struct wd_problem p;
    struct wd_trial_result result;
    if (wd_op_check(op, args, false, &p) || wd_trial(ctx, &p, options, &result))
        fail_msg("%s: %s", name, wd_last_error());
    if (!result.ok)
        fail_msg("%s: %s", name, result.text);
}

/* `args` are wrong: it says so, naming operation and argument, whoever asks. */
static inline void sweep_refused(wd_op_id id, const char *op, void *args, const char *says)
{
    assert_false(wd_supported(ctx, id, args));
    assert_int_equal(wd_prepare(ctx, id, args), WD_EINVAL);
    if (!strstr(wd_last_error(), op) || !strstr(wd_last_error(), says))
        fail_msg("not \"%s%s\" but \"%s\"", op, says, wd_last_error());
}

#endif
