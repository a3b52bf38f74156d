/* SPDX-License-Identifier: MIT */
/* causal_conv1d_update on a device: every variant, and that its steps equal one pass of causal_conv1d. */
#include "sweep.h"

#include <math.h>

#define SILU WD_ACT_SILU

/* Every third sequence is skipped; one names a slot that does not exist. */
static void some_skipped(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    for (size_t b = 0; b < p->dim[UPD_B]; b++)
        if (b % 3 == 1)
            t[UPD_slot][b] = -1;
}

static const struct update_case {
    const char *name;
    size_t B, D, T, W, slots;
    wd_act act;
    bool bias, slot;
    wd_dtype x, weight, state, out;
    size_t shift, pad;
    sweep_edit_fn edit;
} cases[] = {
    {"one token", 3, 40, 0, 4, 0, 0, true, false, 0, 0, 0, 0, 0, 0, NULL},
    {"few tokens", 3, 40, 3, 4, 0, SILU, true, false, 0, 0, 0, 0, 0, 0, NULL},
    {"more tokens than W", 2, 9, 7, 3, 0, SILU, false, false, 0, 0, 0, 0, 0, 0, NULL},
    {"slots", 4, 33, 1, 4, 9, SILU, true, true, 0, 0, 0, 0, 0, 0, NULL},
    {"slots, some skipped", 7, 33, 2, 4, 20, SILU, true, true, 0, 0, 0, 0, 0, 0, some_skipped},
    {"W 1", 2, 16, 2, 1, 0, SILU, true, false, 0, 0, 0, 0, 0, 0, NULL},
    {"W 2", 2, 16, 2, 2, 0, 0, true, false, 0, 0, 0, 0, 0, 0, NULL},
    {"W 16", 2, 16, 2, 16, 0, 0, true, false, 0, 0, 0, 0, 0, 0, NULL},
    {"bf16", 5, 300, 1, 4, 8, SILU, true, true, WD_BF16, WD_BF16, WD_BF16, WD_BF16, 0, 0, NULL},
    {"f16", 5, 300, 1, 4, 8, SILU, true, true, WD_F16, WD_F16, WD_F16, WD_F16, 0, 0, NULL},
    {"bf16, f32 state", 5, 64, 4, 4, 0, SILU, true, false, WD_BF16, WD_F32, WD_F32, WD_F16, 0, 0, NULL},
    {"offsets", 5, 64, 2, 4, 0, SILU, true, false, 0, 0, 0, 0, 3, 0, NULL},
    {"padded rows", 5, 64, 2, 4, 8, SILU, true, true, WD_BF16, 0, 0, WD_BF16, 0, 3, NULL},
    {"one channel", 5, 1, 2, 4, 0, 0, true, false, 0, 0, 0, 0, 0, 0, NULL},
    {"no sequence", 0, 8, 1, 4, 3, 0, true, false, 0, 0, 0, 0, 0, 0, NULL},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static wd_causal_conv1d_update_args args_of(const struct update_case *c)
{
    return (wd_causal_conv1d_update_args){
        .struct_size = sizeof(wd_causal_conv1d_update_args),
        .B = c->B,
        .D = c->D,
        .T = c->T,
        .W = c->W,
        .slots = c->slots,
        .x = {.dtype = c->x},
        .weight = {.dtype = c->weight},
        .bias = sweep_optional(c->bias, WD_F32),
        .state = {.dtype = c->state},
        .slot = {.dtype = c->slot ? WD_I32 : WD_DTYPE_DEFAULT},
        .out = {.dtype = c->out},
        .act = c->act,
    };
}

static void check_form(const char *form)
{
    size_t ran = 0;
    for (size_t i = 0; i < CASES; i++) {
        const struct update_case *c = &cases[i];
        const wd_causal_conv1d_update_args args = args_of(c);
        const struct wd_trial_options options = {.seed = 1, .shift = c->shift, .pad = c->pad, .edit = c->edit};
        if (c->B)
            ran += variants_check(c->name, &wd_op_causal_conv1d_update, &args, form, &options);
    }
    assert_true(ran > 0 || ctx->caps.max_group < 32);
}

static void causal_conv1d_update__public_call__matches_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const struct update_case *c = &cases[i];
        const wd_causal_conv1d_update_args args = args_of(c);
        const struct wd_trial_options options = {.seed = 1, .shift = c->shift, .pad = c->pad, .edit = c->edit};
        sweep_public_call(c->name, &wd_op_causal_conv1d_update, &args, &options);
    }
}

static void causal_conv1d_update__plain_form__matches_reference(void **state)
{
    (void)state;
    check_form("plain");
}

static void causal_conv1d_update__cpu_form__matches_reference(void **state)
{
    (void)state;
    if (sweep_as(true))
        check_form("cpu");
    sweep_end();
}

static void causal_conv1d_update__gpu_form__matches_reference(void **state)
{
    (void)state;
    if (sweep_as(false))
        check_form("gpu");
    sweep_end();
}

static void causal_conv1d_update__all_parameters__match_reference(void **state)
{
    (void)state;
    const wd_causal_conv1d_update_args args = {
        .struct_size = sizeof args,
        .B = 3,
        .D = 72,
        .T = 2,
        .W = 4,
        .x = {.dtype = WD_BF16},
        .act = WD_ACT_SILU,
    };
    const struct wd_trial_options options = {.seed = 1};
    for (int cpu = 0; cpu < 2; cpu++) {
        if (sweep_as(cpu))
            assert_true(sweep_check("update", &wd_op_causal_conv1d_update, &args, 4, &options) > 0);
        sweep_end();
    }
}

/* ---- Steps against one pass ---- */

enum { STEPS_B = 2, STEPS_D = 20, STEPS_S = 13, STEPS_W = 4, STEPS_TAIL = STEPS_W - 1 };

/* One pass over the whole input, and its final state. */
static void prefill(cl_mem x, cl_mem weight, cl_mem initial, size_t begin, size_t end, cl_mem out, cl_mem final)
{
    const wd_causal_conv1d_args args = {
        .struct_size = sizeof args,
        .B = STEPS_B,
        .D = STEPS_D,
        .S = end - begin,
        .W = STEPS_W,
        .x = {.mem = x, .offset = begin * STEPS_D, .stride = {STEPS_S * STEPS_D}},
        .weight = {.mem = weight},
        .initial_state = {.mem = initial},
        .out = {.mem = out, .offset = begin * STEPS_D, .stride = {STEPS_S * STEPS_D}},
        .final_state = {.mem = final},
        .layout = WD_LAYOUT_BSD,
        .act = WD_ACT_SILU,
    };
    if (wd_causal_conv1d(ctx, &args, NULL))
        fail_msg("%s", wd_last_error());
}

/* `tokens` from `begin` on, in place. */
static void step(cl_mem x, cl_mem weight, cl_mem state, size_t begin, size_t tokens, cl_mem out)
{
    const wd_causal_conv1d_update_args args = {
        .struct_size = sizeof args,
        .B = STEPS_B,
        .D = STEPS_D,
        .T = tokens,
        .W = STEPS_W,
        .x = {.mem = x, .offset = begin * STEPS_D, .stride = {STEPS_S * STEPS_D}},
        .weight = {.mem = weight},
        .state = {.mem = state},
        .out = {.mem = out, .offset = begin * STEPS_D, .stride = {STEPS_S * STEPS_D}},
        .act = WD_ACT_SILU,
    };
    if (wd_causal_conv1d_update(ctx, &args, NULL))
        fail_msg("%s", wd_last_error());
}

static void causal_conv1d_update__after_a_cut__equals_one_pass(void **state)
{
    (void)state;
    enum { ROWS = STEPS_B * STEPS_S * STEPS_D, STATES = STEPS_B * STEPS_D * STEPS_TAIL };
    float x[ROWS], w[STEPS_D * STEPS_W], start[STATES], whole[ROWS], parts[ROWS], whole_state[STATES],
        end_state[STATES];
    cl_mem mx, mw, ms, m0, m1, mo;
    for (size_t i = 0; i < ROWS; i++)
        x[i] = sinf((float)i);
    for (size_t i = 0; i < WD_COUNT(w); i++)
        w[i] = cosf((float)i);
    for (size_t i = 0; i < STATES; i++)
        start[i] = sinf((float)i * 3);
    assert_int_equal(wd_buffer_create(ctx, sizeof x, x, &mx), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof w, w, &mw), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof start, start, &ms), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof start, NULL, &m0), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof start, NULL, &m1), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof x, NULL, &mo), WD_OK);

    prefill(mx, mw, ms, 0, STEPS_S, mo, m0);
    assert_int_equal(wd_buffer_read(ctx, mo, 0, sizeof whole, whole), WD_OK);
    assert_int_equal(wd_buffer_read(ctx, m0, 0, sizeof whole_state, whole_state), WD_OK);
    for (size_t cut = 1; cut < STEPS_S; cut++) { /* a prefill, single tokens, and the rest at once */
        const size_t rest = cut + (STEPS_S - cut) / 2;
        prefill(mx, mw, ms, 0, cut, mo, m1);
        for (size_t t = cut; t < rest; t++)
            step(mx, mw, m1, t, 1, mo);
        step(mx, mw, m1, rest, STEPS_S - rest, mo);
        assert_int_equal(wd_buffer_read(ctx, mo, 0, sizeof parts, parts), WD_OK);
        assert_int_equal(wd_buffer_read(ctx, m1, 0, sizeof end_state, end_state), WD_OK);
        for (size_t i = 0; i < ROWS; i++)
            assert_true(fabsf(parts[i] - whole[i]) <= 1e-6f);
        assert_memory_equal(end_state, whole_state, sizeof end_state);
    }
    const cl_mem all[] = {mx, mw, ms, m0, m1, mo};
    for (size_t i = 0; i < WD_COUNT(all); i++)
        wd_buffer_destroy(all[i]);
}

/* ---- Refusals ---- */

static void causal_conv1d_update__wrong_argument__is_named(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        wd_causal_conv1d_update_args args;
    } wrong[] = {
        {"W: 0 ", {.B = 1, .D = 8}},
        {"W: 17 ", {.B = 1, .D = 8, .W = 17}},
        {"slots: 2", {.B = 3, .D = 8, .W = 4, .slots = 2}},
        {"slot: dtype", {.B = 3, .D = 8, .W = 4, .slot = {.dtype = WD_F32}}},
        {"state: dtype", {.B = 3, .D = 8, .W = 4, .state = {.dtype = WD_E5M2}}},
        {"act: ", {.B = 1, .D = 8, .W = 4, .act = (wd_act)7}},
    };
    for (size_t i = 0; i < WD_COUNT(wrong); i++) {
        wd_causal_conv1d_update_args args = wrong[i].args;
        args.struct_size = sizeof args;
        sweep_refused(WD_OP_CAUSAL_CONV1D_UPDATE, "wd_causal_conv1d_update: ", &args, wrong[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_conv1d_update__public_call__matches_reference),
        cmocka_unit_test(causal_conv1d_update__plain_form__matches_reference),
        cmocka_unit_test(causal_conv1d_update__cpu_form__matches_reference),
        cmocka_unit_test(causal_conv1d_update__gpu_form__matches_reference),
        cmocka_unit_test(causal_conv1d_update__all_parameters__match_reference),
        cmocka_unit_test(causal_conv1d_update__after_a_cut__equals_one_pass),
        cmocka_unit_test(causal_conv1d_update__wrong_argument__is_named),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
