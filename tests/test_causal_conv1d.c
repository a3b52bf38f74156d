/* SPDX-License-Identifier: MIT */
/* causal_conv1d on a device: every variant. */
#include "sweep.h"

#include <math.h>

/* ---- Inputs that random numbers do not hit ---- */

/* One NaN and one Inf in x: they may reach W outputs of their own channel and sequence, and nothing else. */
static void poisoned(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    const size_t n = wd_tensor_elements(p, CONV_x);
    t[CONV_x][n / 3] = (double)NAN;
    t[CONV_x][n / 2] = (double)INFINITY;
}

/* The activation's whole range. */
static void steep(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    for (size_t i = 0; i < wd_tensor_elements(p, CONV_x); i++)
        t[CONV_x][i] *= i % 7 ? 1e-3 : 100;
}

/* Of nine sequences: three of no token inside and at both ends, the last but two of one. */
static void short_sequences(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    static const double share[] = {0, 0, 0.1, 0.1, 0.1, 0.5};
    const size_t S = p->dim[CONV_S], last = WD_COUNT(share);
    for (size_t i = 0; i <= p->dim[CONV_N]; i++)
        t[CONV_cu_seqlens][i] = i < last ? floor(share[i] * (double)S) : (double)(i == last ? S - 1 : S);
}

/* ---- Cases ---- */

#define BDS  WD_LAYOUT_BDS
#define BSD  WD_LAYOUT_BSD
#define SILU WD_ACT_SILU
enum { BIAS = 1, INIT = 2, FINAL = 4, ALL = BIAS | INIT | FINAL };

static const struct conv_case {
    const char *name;
    size_t B, D, S, W, N;
    wd_conv_layout layout;
    wd_act act;
    unsigned with; /* BIAS, INIT, FINAL */
    wd_dtype x, weight, bias, state, out;
    size_t shift, pad;
    sweep_edit_fn edit;
} cases[] = {
    {"bds", 2, 5, 200, 4, 0, BDS, 0, BIAS, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bsd", 2, 40, 70, 4, 0, BSD, 0, BIAS, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bds, all", 2, 3, 1100, 4, 0, BDS, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, poisoned},
    {"bsd, all", 2, 33, 130, 4, 0, BSD, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, poisoned},
    {"bds, nothing optional", 1, 7, 33, 4, 0, BDS, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bsd, nothing optional", 1, 7, 33, 4, 0, BSD, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bds, W 1", 1, 6, 64, 1, 0, BDS, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, steep},
    {"bsd, W 1", 1, 64, 6, 1, 0, BSD, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, steep},
    {"bds, W 2", 3, 4, 50, 2, 0, BDS, 0, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bsd, W 3", 3, 20, 50, 3, 0, BSD, 0, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bds, W 16", 1, 3, 100, 16, 0, BDS, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bsd, W 16", 1, 40, 100, 16, 0, BSD, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bds, S < W", 2, 9, 3, 8, 0, BDS, 0, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bsd, S < W", 2, 9, 3, 8, 0, BSD, 0, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bds, one token", 2, 9, 1, 4, 0, BDS, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bsd, one channel", 2, 1, 90, 4, 0, BSD, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"bds, f16", 2, 5, 200, 4, 0, BDS, SILU, ALL, WD_F16, WD_F16, WD_F16, WD_F16, WD_F16, 0, 0, NULL},
    {"bsd, f16", 2, 40, 70, 4, 0, BSD, SILU, ALL, WD_F16, WD_F16, WD_F16, WD_F16, WD_F16, 0, 0, NULL},
    {"bds, bf16", 2, 5, 200, 4, 0, BDS, SILU, ALL, WD_BF16, WD_BF16, WD_BF16, WD_BF16, WD_BF16, 0, 0, NULL},
    {"bsd, bf16", 2, 40, 70, 4, 0, BSD, SILU, ALL, WD_BF16, WD_BF16, WD_BF16, WD_BF16, WD_BF16, 0, 0, NULL},
    {"bds, mixed types", 1, 5, 72, 4, 0, BDS, 0, ALL, WD_BF16, WD_F32, WD_F16, WD_F32, WD_F16, 0, 0, NULL},
    {"bsd, mixed types", 1, 24, 72, 4, 0, BSD, 0, ALL, WD_F16, WD_BF16, WD_F32, WD_F32, WD_F32, 0, 0, NULL},
    {"bds, offsets", 2, 5, 200, 4, 0, BDS, SILU, ALL, 0, 0, 0, 0, 0, 3, 0, NULL},
    {"bsd, offsets", 2, 40, 70, 4, 0, BSD, SILU, ALL, 0, 0, 0, 0, 0, 1, 0, NULL},
    {"bds, padded rows", 2, 5, 200, 4, 0, BDS, SILU, ALL, WD_BF16, 0, 0, 0, WD_BF16, 0, 5, NULL},
    {"bsd, padded rows", 2, 40, 70, 4, 0, BSD, SILU, ALL, 0, 0, 0, 0, 0, 0, 8, NULL},
    {"packed", 1, 40, 300, 4, 5, BSD, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"packed, zero states", 1, 40, 300, 4, 5, BSD, 0, BIAS, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"packed, short sequences", 1, 19, 150, 4, 9, BSD, 0, ALL, 0, 0, 0, 0, 0, 0, 0, short_sequences},
    {"packed, many", 1, 16, 100, 8, 40, BSD, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"packed, one", 1, 16, 100, 4, 1, BSD, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"packed, bf16, offsets", 1, 40, 300, 4, 5, BSD, SILU, ALL, WD_BF16, WD_BF16, WD_BF16, 0, WD_BF16, 2, 6, NULL},
    {"no tokens, states", 2, 9, 0, 4, 0, BDS, 0, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"no tokens, states, bsd", 2, 9, 0, 4, 0, BSD, 0, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"no batch", 0, 9, 10, 4, 0, BDS, 0, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static wd_causal_conv1d_args args_of(const struct conv_case *c)
{
    return (wd_causal_conv1d_args){
        .struct_size = sizeof(wd_causal_conv1d_args),
        .B = c->B,
        .D = c->D,
        .S = c->S,
        .W = c->W,
        .N = c->N,
        .x = {.dtype = c->x},
        .weight = {.dtype = c->weight},
        .bias = sweep_optional(c->with & BIAS, c->bias),
        .initial_state = sweep_optional(c->with & INIT, c->state),
        .cu_seqlens = {.dtype = c->N ? WD_I32 : WD_DTYPE_DEFAULT},
        .out = {.dtype = c->out},
        .final_state = sweep_optional(c->with & FINAL, c->state),
        .layout = c->layout,
        .act = c->act,
    };
}

static struct wd_trial_options options_of(const struct conv_case *c)
{
    return (struct wd_trial_options){.seed = 1, .shift = c->shift, .pad = c->pad, .edit = c->edit};
}

static void causal_conv1d__public_call__matches_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const wd_causal_conv1d_args args = args_of(&cases[i]);
        const struct wd_trial_options options = options_of(&cases[i]);
        sweep_public_call(cases[i].name, &wd_op_causal_conv1d, &args, &options);
    }
}

/* One form over all cases; it may refuse some of them, but not all, unless groups are tiny here. */
static void check_form(const char *form)
{
    size_t ran = 0;
    for (size_t i = 0; i < CASES; i++) {
        const wd_causal_conv1d_args args = args_of(&cases[i]);
        const struct wd_trial_options options = options_of(&cases[i]);
        if (cases[i].B)
            ran += variants_check(cases[i].name, &wd_op_causal_conv1d, &args, form, &options);
    }
    assert_true(ran > 0 || ctx->caps.max_group < 32);
}

static void causal_conv1d__plain_form__matches_reference(void **state)
{
    (void)state;
    check_form("plain");
}

static void causal_conv1d__cpu_form__matches_reference(void **state)
{
    (void)state;
    if (sweep_as(true))
        check_form("cpu");
    sweep_end();
}

static void causal_conv1d__gpu_form__matches_reference(void **state)
{
    (void)state;
    if (sweep_as(false))
        check_form("gpu");
    sweep_end();
}

static void causal_conv1d__all_parameters__match_reference(void **state)
{
    (void)state;
    static const struct conv_case swept[] = {
        {"bds", 2, 3, 1104, 4, 0, BDS, SILU, ALL, 0, 0, 0, 0, 0, 0, 0, NULL},
        {"packed, bf16", 1, 64, 300, 4, 5, BSD, SILU, ALL, WD_BF16, 0, 0, 0, WD_BF16, 0, 0, NULL},
    };
    for (size_t i = 0; i < WD_COUNT(swept); i++) {
        const wd_causal_conv1d_args args = args_of(&swept[i]);
        const struct wd_trial_options options = options_of(&swept[i]);
        for (int cpu = 0; cpu < 2; cpu++) {
            if (sweep_as(cpu))
                assert_true(sweep_check(swept[i].name, &wd_op_causal_conv1d, &args, 4, &options) > 0);
            sweep_end();
        }
    }
}

/* ---- Offsets that only the device sees ---- */

/* Whatever cu_seqlens holds, nothing outside of the tensors is read or written; tokens outside of 0 .. S are no
 * tokens. (The sanitizers and Oclgrind look on; here the guards of the outputs do.) */
static void causal_conv1d__wild_offsets__stay_inside(void **state)
{
    (void)state;
    enum { D = 24, S = 50, W = 4, N = 3 };
    static const int32_t wild[][N + 1] = {
        {-5, 1000, 7, 2000000000}, {10, 20, 30, 40}, {50, 40, 30, 0}, {-2000000000, -1, -1, -1}, {60, 70, 80, 90},
    };
    static float zeros[(S + 16) * D], out[(S + 16) * D];
    cl_mem x, weight, cu, y, final;
    assert_int_equal(wd_buffer_create(ctx, S * D * sizeof(float), zeros, &x), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, D * W * sizeof(float), zeros, &weight), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof wild[0], NULL, &cu), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof out, NULL, &y), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, N * D * (W - 1) * sizeof(float), NULL, &final), WD_OK);
    for (size_t i = 0; i < WD_COUNT(wild); i++) {
        for (size_t k = 0; k < WD_COUNT(out); k++)
            out[k] = 7;
        assert_int_equal(wd_buffer_write(ctx, y, 0, sizeof out, out), WD_OK);
        assert_int_equal(wd_buffer_write(ctx, cu, 0, sizeof wild[i], wild[i]), WD_OK);
        const wd_causal_conv1d_args args = {
            .struct_size = sizeof args,
            .B = 1,
            .D = D,
            .S = S,
            .W = W,
            .N = N,
            .layout = WD_LAYOUT_BSD,
            .x = {.mem = x},
            .weight = {.mem = weight},
            .cu_seqlens = {.mem = cu},
            .out = {.mem = y, .offset = 8 * D},
            .final_state = {.mem = final},
        };
        if (wd_causal_conv1d(ctx, &args, NULL))
            fail_msg("%s", wd_last_error());
        assert_int_equal(wd_buffer_read(ctx, y, 0, sizeof out, out), WD_OK);
        for (size_t k = 0; k < 8 * D; k++)
            assert_true(out[k] == 7 && out[(S + 8) * D + k] == 7);
        for (size_t k = 8 * D; k < (S + 8) * D; k++)
            assert_true(out[k] == 7 || out[k] == 0);
    }
    wd_buffer_destroy(x);
    wd_buffer_destroy(weight);
    wd_buffer_destroy(cu);
    wd_buffer_destroy(y);
    wd_buffer_destroy(final);
}

/* ---- Refusals ---- */

static void causal_conv1d__wrong_argument__is_named(void **state)
{
    (void)state;
    static const int32_t falling[] = {0, 6, 4, 10}, late[] = {1, 4, 6, 10}, early[] = {0, 4, 6, 9};
    const wd_tensor cu = {.dtype = WD_I32};
    const struct {
        const char *says;
        wd_causal_conv1d_args args;
    } wrong[] = {
        {"W: 0 ", {.B = 1, .D = 8, .S = 10}},
        {"W: 17 ", {.B = 1, .D = 8, .S = 10, .W = 17}},
        {"layout: 2", {.B = 1, .D = 8, .S = 10, .W = 4, .layout = (wd_conv_layout)2}},
        {"act: -1", {.B = 1, .D = 8, .S = 10, .W = 4, .act = (wd_act)-1}},
        {"layout: packed", {.B = 1, .D = 8, .S = 10, .W = 4, .N = 3, .cu_seqlens = cu}},
        {"B: 2", {.B = 2, .D = 8, .S = 10, .W = 4, .N = 3, .cu_seqlens = cu, .layout = BSD}},
        {"cu_seqlens: missing", {.B = 1, .D = 8, .S = 10, .W = 4, .N = 3, .layout = BSD}},
        {"cu_seqlens: given", {.B = 1, .D = 8, .S = 10, .W = 4, .cu_seqlens = cu, .layout = BSD}},
        {"cu_seqlens_host: falls",
         {.B = 1, .D = 8, .S = 10, .W = 4, .N = 3, .cu_seqlens = cu, .layout = BSD, .cu_seqlens_host = falling}},
        {"cu_seqlens_host: begins",
         {.B = 1, .D = 8, .S = 10, .W = 4, .N = 3, .cu_seqlens = cu, .layout = BSD, .cu_seqlens_host = late}},
        {"cu_seqlens_host: ends",
         {.B = 1, .D = 8, .S = 10, .W = 4, .N = 3, .cu_seqlens = cu, .layout = BSD, .cu_seqlens_host = early}},
        {"x: dtype", {.B = 1, .D = 8, .S = 10, .W = 4, .x = {.dtype = WD_E4M3}}},
        {"final_state: dtype", {.B = 1, .D = 8, .S = 10, .W = 4, .final_state = {.dtype = WD_I32}}},
        {"out: strides", {.B = 2, .D = 8, .S = 10, .W = 4, .out = {.stride = {40}}}},
    };
    for (size_t i = 0; i < WD_COUNT(wrong); i++) {
        wd_causal_conv1d_args args = wrong[i].args;
        args.struct_size = sizeof args;
        sweep_refused(WD_OP_CAUSAL_CONV1D, "wd_causal_conv1d: ", &args, wrong[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_conv1d__public_call__matches_reference),
        cmocka_unit_test(causal_conv1d__plain_form__matches_reference),
        cmocka_unit_test(causal_conv1d__cpu_form__matches_reference),
        cmocka_unit_test(causal_conv1d__gpu_form__matches_reference),
        cmocka_unit_test(causal_conv1d__all_parameters__match_reference),
        cmocka_unit_test(causal_conv1d__wild_offsets__stay_inside),
        cmocka_unit_test(causal_conv1d__wrong_argument__is_named),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
