/* SPDX-License-Identifier: MIT */
/* fp8_quant on a device: every variant, bit for bit where the outputs are codes. */
#include "sweep.h"

#include <float.h>
#include <math.h>

#include "convert.h"

/* ---- Inputs that random numbers do not hit ---- */

static double limit_of(const struct wd_problem *p)
{
    return p->tensor[FP8_q].dtype == WD_E5M2 ? 57344 : 448;
}

/* One kind of group after the other, NaN and Inf at changing places. */
static void special_groups(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    const size_t group = p->dim[FP8_GROUP], n = p->dim[FP8_TOKENS] * p->dim[FP8_GROUPS];
    for (size_t g = 0; g < n; g++) {
        double *x = t[FP8_x] + g * group, *at = x + g % group;
        for (size_t i = 0; i < group; i++)
            switch (g % 10) {
            case 1: x[i] = 0; break;
            case 2: x[i] = i % 2 ? -0.0 : 0.0; break;
            case 3: x[i] *= 1e-41; break;
            case 4: x[i] *= 1e-12; break;
            case 5: x[i] = i % 3 ? FLT_MAX : -FLT_MAX / 3; break;
            case 6: x[i] *= pow(2, (double)(i % 40) - 30); break;
            default: break;
            }
        if (g % 10 == 7)
            *at = (double)NAN;
        if (g % 10 == 8)
            *at = g % 20 == 8 ? (double)INFINITY : -(double)INFINITY;
        if (g % 10 == 9)
            x[0] = -(double)NAN, x[group - 1] = (double)INFINITY;
    }
}

/* Groups of two with a scale of 1: M, and each code's value, each midpoint of neighbours, and floats beside it. */
static void conversion_table(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    const wd_dtype q = p->tensor[FP8_q].dtype;
    assert_int_equal(p->dim[FP8_GROUP], 2);
    for (size_t g = 0; g < p->dim[FP8_TOKENS] * p->dim[FP8_GROUPS]; g++) {
        const uint32_t code = (uint32_t)(g / 8 % 128);
        const double low = wd_decode(q, code), high = wd_decode(q, code + 1);
        const float middle = (float)(isfinite(low) && isfinite(high) ? (low + high) / 2 : limit_of(p) * 0.99);
        const float value = g % 4 == 0   ? isfinite(low) ? (float)low : 0
                            : g % 4 == 1 ? middle
                            : g % 4 == 2 ? nextafterf(middle, 0)
                                         : nextafterf(middle, FLT_MAX);
        t[FP8_x][2 * g] = (double)(g / 4 % 2 ? -value : value);
        t[FP8_x][2 * g + 1] = limit_of(p);
    }
}

/* Whole numbers, so that ties between codes are common. */
static void whole_numbers(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    for (size_t i = 0; i < p->dim[FP8_TOKENS] * p->dim[FP8_HIDDEN]; i++)
        t[FP8_x][i] = rint(t[FP8_x][i] * 16);
}

/* ---- Cases ---- */

static const struct fp8_case {
    const char *name;
    size_t tokens, hidden, group;
    wd_dtype x, q, s;
    wd_scale_layout layout;
    float eps;
    size_t shift, pad;
    sweep_edit_fn edit;
} cases[] = {
    {"defaults", 3, 512, 0, 0, 0, 0, 0, 0, 0, 0, NULL},
    {"one group", 1, 128, 128, WD_F32, WD_F32, WD_F32, 0, 0, 0, 0, NULL},
    {"many groups", 37, 1024, 128, WD_F32, WD_F32, WD_F32, 0, 0, 0, 0, special_groups},
    {"e4m3", 37, 1024, 128, WD_F32, WD_E4M3, WD_F32, 0, 0, 0, 0, special_groups},
    {"e5m2", 37, 1024, 128, WD_F32, WD_E5M2, WD_F32, 0, 0, 0, 0, special_groups},
    {"e4m3, ue8m0", 37, 1024, 128, WD_F32, WD_E4M3, WD_UE8M0, 0, 0, 0, 0, special_groups},
    {"e5m2, ue8m0, column", 37, 1024, 128, WD_F32, WD_E5M2, WD_UE8M0, WD_SCALE_COLUMN, 0, 0, 0, special_groups},
    {"f32, ue8m0", 5, 1024, 128, WD_F32, WD_F32, WD_UE8M0, 0, 0, 0, 0, special_groups},
    {"column", 7, 640, 128, WD_F32, WD_E4M3, WD_F32, WD_SCALE_COLUMN, 0, 0, 0, NULL},
    {"column, no padding", 8, 256, 128, WD_F32, WD_F32, WD_F32, WD_SCALE_COLUMN, 0, 0, 0, NULL},
    {"column, one token", 1, 256, 64, WD_F32, WD_E4M3, WD_F32, WD_SCALE_COLUMN, 0, 0, 0, NULL},
    {"bf16 e4m3", 21, 896, 128, WD_BF16, WD_E4M3, WD_F32, 0, 0, 0, 0, special_groups},
    {"f16 e4m3", 21, 896, 128, WD_F16, WD_E4M3, WD_F32, 0, 0, 0, 0, special_groups},
    {"bf16 e5m2", 6, 256, 64, WD_BF16, WD_E5M2, WD_UE8M0, 0, 0, 0, 0, special_groups},
    {"f16 f32", 6, 256, 64, WD_F16, WD_F32, WD_F32, WD_SCALE_COLUMN, 0, 0, 0, special_groups},
    {"e4m3 codes", 32, 64, 2, WD_F32, WD_E4M3, WD_F32, 0, 0, 0, 0, conversion_table},
    {"e5m2 codes", 32, 64, 2, WD_F32, WD_E5M2, WD_F32, 0, 0, 0, 0, conversion_table},
    {"e4m3 ties", 64, 1024, 128, WD_F32, WD_E4M3, WD_F32, 0, 0, 0, 0, whole_numbers},
    {"group 1", 5, 33, 1, WD_F32, WD_E4M3, WD_F32, 0, 0, 0, 0, special_groups},
    {"group 7", 9, 77, 7, WD_F32, WD_E4M3, WD_F32, 0, 0, 0, 0, special_groups},
    {"group 100", 3, 300, 100, WD_F32, WD_F32, WD_F32, WD_SCALE_COLUMN, 0, 0, 0, special_groups},
    {"group 96", 3, 288, 96, WD_BF16, WD_E4M3, WD_F32, 0, 0, 0, 0, special_groups},
    {"a token a group", 5, 7168, 7168, WD_F32, WD_E4M3, WD_F32, 0, 0, 0, 0, special_groups},
    {"a wide group", 2, 20000, 20000, WD_BF16, WD_E4M3, WD_F32, 0, 0, 0, 0, NULL},
    {"offsets", 5, 384, 128, WD_F32, WD_F32, WD_F32, 0, 0, 3, 0, special_groups},
    {"offsets, bytes", 5, 384, 128, WD_BF16, WD_E4M3, WD_UE8M0, WD_SCALE_COLUMN, 0, 5, 0, special_groups},
    {"padded rows", 5, 384, 128, WD_F32, WD_F32, WD_F32, 0, 0, 0, 7, NULL},
    {"padded rows, aligned", 5, 384, 128, WD_F32, WD_E4M3, WD_F32, WD_SCALE_COLUMN, 0, 4, 16, NULL},
    {"a large eps", 4, 256, 128, WD_F32, WD_E4M3, WD_F32, 0, 100, 0, 0, NULL},
    {"a tiny eps", 11, 256, 128, WD_F32, WD_E4M3, WD_UE8M0, 0, 1e-44f, 0, 0, special_groups},
    {"no tokens", 0, 256, 128, WD_F32, WD_E4M3, WD_F32, 0, 0, 0, 0, NULL},
    {"nothing hidden", 3, 0, 128, WD_F32, WD_E4M3, WD_F32, 0, 0, 0, 0, NULL},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static wd_fp8_quant_args args_of(const struct fp8_case *c)
{
    return (wd_fp8_quant_args){
        .struct_size = sizeof(wd_fp8_quant_args),
        .tokens = c->tokens,
        .hidden = c->hidden,
        .group = c->group,
        .x = {.dtype = c->x},
        .q = {.dtype = c->q},
        .s = {.dtype = c->s},
        .s_layout = c->layout,
        .eps = c->eps,
    };
}

static struct wd_trial_options options_of(const struct fp8_case *c)
{
    return (struct wd_trial_options){.seed = 1, .shift = c->shift, .pad = c->pad, .edit = c->edit};
}

static void fp8_quant__public_call__matches_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const wd_fp8_quant_args args = args_of(&cases[i]);
        const struct wd_trial_options options = options_of(&cases[i]);
        sweep_public_call(cases[i].name, &wd_op_fp8_quant, &args, &options);
    }
}

/* One form over all cases; it may refuse some of them, but not all, unless groups are tiny here. */
static void check_form(const char *form)
{
    size_t ran = 0;
    for (size_t i = 0; i < CASES; i++) {
        const wd_fp8_quant_args args = args_of(&cases[i]);
        const struct wd_trial_options options = options_of(&cases[i]);
        if (cases[i].tokens && cases[i].hidden)
            ran += variants_check(cases[i].name, &wd_op_fp8_quant, &args, form, &options);
    }
    assert_true(ran > 0 || ctx->caps.max_group < 32);
}

static void fp8_quant__plain_form__matches_reference(void **state)
{
    (void)state;
    check_form("plain");
}

static void fp8_quant__cpu_form__matches_reference(void **state)
{
    (void)state;
    if (sweep_as(true))
        check_form("cpu");
    sweep_end();
}

static void fp8_quant__gpu_form__matches_reference(void **state)
{
    (void)state;
    if (sweep_as(false))
        check_form("gpu");
    sweep_end();
}

static void fp8_quant__all_parameters__match_reference(void **state)
{
    (void)state;
    static const struct fp8_case swept[] = {
        {"f32", 9, 1024, 128, WD_F32, WD_F32, WD_F32, WD_SCALE_COLUMN, 0, 0, 0, special_groups},
        {"e4m3", 9, 1024, 128, WD_BF16, WD_E4M3, WD_F32, 0, 0, 0, 0, special_groups},
    };
    for (size_t i = 0; i < WD_COUNT(swept); i++) {
        const wd_fp8_quant_args args = args_of(&swept[i]);
        const struct wd_trial_options options = options_of(&swept[i]);
        for (int cpu = 0; cpu < 2; cpu++) {
            if (sweep_as(cpu))
                assert_true(sweep_check(swept[i].name, &wd_op_fp8_quant, &args, 6, &options) > 0);
            sweep_end();
        }
    }
}

static void fp8_quant__finite_input__has_no_nan_code(void **state)
{
    (void)state;
    static const float scale[] = {1e-38f, 1e-10f, 1, 3.4e38f};
    enum { N = 4096 };
    for (size_t i = 0; i < WD_COUNT(scale); i++) {
        float x[N];
        unsigned char q[N];
        cl_mem mx, mq, ms;
        for (size_t k = 0; k < N; k++)
            x[k] = sinf((float)k * 12.9898f) * scale[i];
        assert_int_equal(wd_buffer_create(ctx, sizeof x, x, &mx), WD_OK);
        assert_int_equal(wd_buffer_create(ctx, sizeof q, NULL, &mq), WD_OK);
        assert_int_equal(wd_buffer_create(ctx, N / 128 * sizeof(float), NULL, &ms), WD_OK);
        const wd_fp8_quant_args args = {
            .struct_size = sizeof args,
            .tokens = 1,
            .hidden = N,
            .x = {.mem = mx},
            .q = {.mem = mq, .dtype = WD_E4M3},
            .s = {.mem = ms},
        };
        assert_int_equal(wd_fp8_quant(ctx, &args, NULL), WD_OK);
        assert_int_equal(wd_buffer_read(ctx, mq, 0, sizeof q, q), WD_OK);
        for (size_t k = 0; k < N; k++)
            assert_true((q[k] & 0x7f) != 0x7f);
        wd_buffer_destroy(mx);
        wd_buffer_destroy(mq);
        wd_buffer_destroy(ms);
    }
}

/* ---- Refusals ---- */

static void fp8_quant__wrong_argument__is_named(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        wd_fp8_quant_args args;
    } refused[] = {
        {"group: 100 does not divide hidden", {.tokens = 1, .hidden = 256, .group = 100}},
        {"group: 128 does not divide hidden", {.tokens = 1, .hidden = 64}},
        {"eps: -1 ", {.tokens = 1, .hidden = 128, .eps = -1}},
        {"eps: ", {.tokens = 1, .hidden = 128, .eps = NAN}},
        {"s_layout: ", {.tokens = 1, .hidden = 128, .s_layout = (wd_scale_layout)2}},
        {"x: dtype e4m3", {.tokens = 1, .hidden = 128, .x = {.dtype = WD_E4M3}}},
        {"q: dtype bf16", {.tokens = 1, .hidden = 128, .q = {.dtype = WD_BF16}}},
        {"s: dtype f16", {.tokens = 1, .hidden = 128, .s = {.dtype = WD_F16}}},
        {"x: stride[1]", {.tokens = 2, .hidden = 128, .x = {.stride = {256, 2}}}},
        {"q: strides", {.tokens = 2, .hidden = 128, .q = {.stride = {64}}}},
        {"x: ", {.tokens = SIZE_MAX / 2, .hidden = 128}},
    };
    for (size_t i = 0; i < WD_COUNT(refused); i++) {
        wd_fp8_quant_args args = refused[i].args;
        args.struct_size = sizeof args;
        sweep_refused(WD_OP_FP8_QUANT, "wd_fp8_quant: ", &args, refused[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp8_quant__public_call__matches_reference),
        cmocka_unit_test(fp8_quant__plain_form__matches_reference),
        cmocka_unit_test(fp8_quant__cpu_form__matches_reference),
        cmocka_unit_test(fp8_quant__gpu_form__matches_reference),
        cmocka_unit_test(fp8_quant__all_parameters__match_reference),
        cmocka_unit_test(fp8_quant__finite_input__has_no_nan_code),
        cmocka_unit_test(fp8_quant__wrong_argument__is_named),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
