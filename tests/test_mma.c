/* SPDX-License-Identifier: MIT */
/*
 * The kernels on matrix engines (mma.cl) against the references. Where the device has no such engine they run all the
 * same, on the emulated instruction: the host's half is told that there is one, the kernel's half is not.
 */
#include "variants.h"

#include <math.h>
#include <stdio.h>

#include "op_gdn_mma.h"
#include "search.h"

/* ---- Cases ---- */

struct shape {
    const char *name;
    const struct wd_variant *variant;
    size_t B, T, H, HV, K, V, N;
    wd_dtype data, A, out; /* of the factors; of A or of h where that is an output; of the other outputs */
    wd_math math;
    enum wd_gates gates;
    bool A_is_lower, states, raw; /* raw: gates, beta, q and k as Qwen3-Next hands them over */
    bool forgets, empty;          /* log gates of -inf and -800 among the others; sequences without a token */
    bool sizes;                   /* rows of q and k from 2^-12 to 2^12, v and the state below 2^-60 */
    bool falls;                   /* v of 2^60 until the state is forgotten at token 64, then ordinary */
    wd_dtype sums;                /* gdn_prepare, chunk_fwd_h: of g */
    size_t pad;                   /* elements between rows, and before the first */
    int param[3];                 /* zero: the model's */
};

#define STEPS     &wd_variant_recompute_w_u_mma_steps
#define WU        &wd_variant_recompute_w_u_mma
#define FWD_H     &wd_variant_chunk_fwd_h_mma
#define EIGHT     &wd_variant_chunk_fwd_h_narrow
#define FWD_O     &wd_variant_chunk_fwd_o_mma
#define WHOLE     &wd_variant_gdn_forward_mma
#define PREP      &wd_variant_gdn_prepare_mma
#define HOPPER_H  &wd_variant_chunk_fwd_h_wgmma
#define HOPPER_HF &wd_variant_chunk_fwd_h_tf32
#define HOPPER    &wd_variant_gdn_forward_wgmma
#define HOPPER_O  &wd_variant_chunk_fwd_o_wgmma

static const struct shape shapes[] = {
    {"short last chunk", WU, 1, 100, 1, 2, 32, 64, 0, .A_is_lower = true},
    {"padded lines, 16-bit A and w", WU, 1, 70, 1, 1, 48, 80, 0, .A = WD_BF16, .out = WD_F16, .gates = WD_GATES_STEEP},
    {"TF32, packed", WU, 1, 150, 1, 1, 32, 32, 3, .math = WD_MATH_TF32},
    {"bf16, shared k", WU, 2, 65, 2, 4, 64, 64, 0, .data = WD_BF16, .A = WD_BF16, .out = WD_BF16, .A_is_lower = true},
    {"f16, padded line, packed", WU, 1, 150, 1, 1, 80, 32, 2, .data = WD_F16, .out = WD_F16},
    {"two batches", STEPS, 2, 65, 2, 4, 64, 64, 0, .data = WD_BF16, .A = WD_BF16, .out = WD_BF16, .param = {1}},
    {"f32 A and outputs, packed", STEPS, 1, 150, 1, 1, 64, 32, 2, .data = WD_F16, .A_is_lower = true},
    {"f32 data", STEPS, 1, 70, 1, 1, 32, 32, 0, .gates = WD_GATES_STEEP},

    {"a line for each warp", FWD_H, 1, 130, 1, 2, 64, 32, 0, .states = true, .param = {1, 2, 1}},
    {"half a line for each warp", FWD_H, 1, 70, 1, 1, 64, 32, 0, .gates = WD_GATES_STEEP, .param = {2, 4, 2}},
    {"all of K in a warp, TF32", FWD_H, 2, 70, 1, 1, 96, 16, 0, .math = WD_MATH_TF32, .states = true,
     .param = {1, 1, 2}},
    {"bf16, f32 h, packed", FWD_H, 1, 150, 1, 1, 128, 32, 3, .data = WD_BF16, .out = WD_BF16, .states = true,
     .param = {2, 4, 3}},
    {"short last chunk", EIGHT, 1, 130, 1, 2, 64, 32, 0, .states = true, .param = {1}},
    {"steep, two at a time", EIGHT, 2, 70, 1, 1, 128, 16, 0, .gates = WD_GATES_STEEP, .states = true, .param = {2}},
    {"TF32, packed, gates in two floats", EIGHT, 1, 150, 2, 2, 128, 16, 3, .math = WD_MATH_TF32, .sums = WD_F32X2,
     .states = true, .empty = true, .param = {2}},
    {"views, shared k", EIGHT, 2, 70, 1, 2, 64, 32, 0, .states = true, .pad = 8, .param = {1}},
    {"TF32, three at a time", EIGHT, 1, 300, 1, 1, 64, 16, 0, .math = WD_MATH_TF32, .param = {3}},
    {"widest, bf16 h", EIGHT, 1, 65, 1, 1, 256, 16, 0, .A = WD_BF16, .states = true, .param = {1}},
    {"f16, padded line", FWD_H, 1, 65, 1, 1, 48, 48, 0, .data = WD_F16, .A = WD_F16, .out = WD_F16, .param = {1, 2, 1}},

    {"short last chunk", FWD_O, 1, 100, 1, 2, 32, 64, 0, .param = {2, 1}},
    {"padded lines, split columns", FWD_O, 1, 70, 1, 1, 48, 96, 0, .gates = WD_GATES_STEEP, .param = {4, 2}},
    {"TF32, packed", FWD_O, 1, 150, 1, 1, 64, 32, 3, .math = WD_MATH_TF32, .param = {3, 1}},
    {"bf16, f32 out", FWD_O, 2, 65, 2, 4, 64, 64, 0, .data = WD_BF16, .A = WD_BF16},
    {"f16, padded line", FWD_O, 1, 70, 1, 1, 80, 48, 0, .data = WD_F16, .A = WD_F16, .out = WD_F16},

    {"short last chunk", WHOLE, 1, 100, 1, 2, 32, 32, 0, .states = true},
    {"steep", WHOLE, 1, 70, 1, 1, 48, 16, 0, .gates = WD_GATES_STEEP, .param = {1, 2, 1}},
    {"three chunks in flight", WHOLE, 1, 200, 1, 1, 64, 32, 0, .states = true, .param = {2, 1, 3}},
    {"bf16, packed, raw", WHOLE, 1, 150, 2, 2, 64, 32, 3, .data = WD_BF16, .out = WD_BF16, .states = true, .raw = true},
    {"f16, f32 out", WHOLE, 2, 65, 1, 2, 80, 48, 0, .data = WD_F16},

    {"bf16, packed", HOPPER_O, 1, 150, 1, 2, 128, 64, 3, .data = WD_BF16, .A = WD_BF16, .out = WD_BF16},
    {"f16, steep", HOPPER_O, 2, 65, 1, 1, 64, 128, 0, .data = WD_F16, .A = WD_F16, .out = WD_F16,
     .gates = WD_GATES_STEEP},

    {"bf16, packed", HOPPER_H, 1, 150, 1, 1, 128, 64, 3, .data = WD_BF16, .A = WD_BF16, .out = WD_BF16, .states = true},
    {"two slices, steep", HOPPER_H, 1, 130, 1, 2, 64, 128, 0, .data = WD_BF16, .A = WD_BF16, .out = WD_BF16,
     .gates = WD_GATES_STEEP, .param = {2}},
    {"f16", HOPPER_H, 2, 65, 1, 1, 64, 64, 0, .data = WD_F16, .A = WD_F16, .out = WD_F16, .states = true},

    {"f32, packed", HOPPER_HF, 1, 150, 1, 1, 128, 64, 3, .states = true, .empty = true},
    {"views, two slices, steep", HOPPER_HF, 2, 70, 1, 2, 128, 128, 0, .gates = WD_GATES_STEEP, .states = true,
     .sums = WD_F32X2, .pad = 4},
    {"forgets nothing", HOPPER_HF, 1, 130, 1, 1, 128, 64, 0, .gates = WD_GATES_ZERO, .states = true},
    {"TF32, short last chunk", HOPPER_HF, 1, 200, 1, 1, 128, 64, 0, .math = WD_MATH_TF32, .states = true},

    {"bf16, packed, raw", HOPPER, 1, 150, 2, 4, 64, 64, 3, .data = WD_BF16, .out = WD_BF16, .states = true,
     .raw = true},
    {"steep, odd heads", HOPPER, 1, 200, 1, 3, 128, 128, 0, .data = WD_BF16, .out = WD_BF16, .gates = WD_GATES_STEEP,
     .states = true},
    {"forgets, heads of their own", HOPPER, 1, 130, 2, 2, 64, 64, 0, .data = WD_BF16, .out = WD_BF16,
     .gates = WD_GATES_STEEP, .states = true, .forgets = true},
    {"f16", HOPPER, 2, 65, 1, 1, 128, 64, 0, .data = WD_F16, .out = WD_F16, .param = {2}},
    {"f32, packed, raw, sizes", HOPPER, 1, 150, 1, 2, 64, 64, 3, .states = true, .raw = true, .sizes = true},
    {"f32, forgets, odd heads", HOPPER, 1, 65, 1, 3, 128, 64, 0, .gates = WD_GATES_STEEP, .states = true,
     .forgets = true},
    {"f32, falls", HOPPER, 1, 200, 1, 1, 64, 64, 0, .states = true, .falls = true},
    {"TF32, two slices", HOPPER, 1, 65, 1, 1, 64, 128, 0, .math = WD_MATH_TF32},

    {"narrowest, three heads", PREP, 2, 65, 1, 3, 16, 0, 0, .gates = WD_GATES_MILD},
    {"short last chunk, steep", PREP, 1, 100, 2, 4, 16, 0, 0, .gates = WD_GATES_STEEP},
    {"heads of their own", PREP, 1, 127, 2, 2, 16, 0, 0, .gates = WD_GATES_ZERO},
    {"widest, raw", PREP, 1, 70, 1, 2, 256, 0, 0, .raw = true},
    {"widest, raw, forgets", PREP, 1, 130, 2, 10, 256, 0, 0, .raw = true, .forgets = true},
    {"padded line, packed, forgets", PREP, 1, 200, 1, 2, 48, 0, 6, .sums = WD_F32X2, .forgets = true, .empty = true},
    {"TF32, raw", PREP, 1, 65, 1, 2, 96, 0, 0, .math = WD_MATH_TF32, .raw = true},
    {"bf16, packed, raw", PREP, 1, 150, 2, 4, 128, 0, 3, .data = WD_BF16, .A = WD_BF16, .out = WD_BF16, .raw = true},
    {"bf16, f32 out, raw", PREP, 2, 63, 1, 4, 80, 0, 0, .data = WD_BF16, .gates = WD_GATES_STEEP, .raw = true},
    {"f16, narrowest", PREP, 1, 129, 1, 2, 16, 0, 0, .data = WD_F16, .A = WD_F16},
};

/* ---- From a case to a call ---- */

union args {
    wd_recompute_w_u_args wu;
    wd_chunk_fwd_h_args h;
    wd_chunk_fwd_o_args o;
    wd_gdn_forward_args whole;
    wd_gdn_prepare_args prepare;
};

#define SIZES(s) s->B, s->T, s->H, s->HV, s->K, s->V, s->N
#define GIVEN(there)                                                                                                   \
    {                                                                                                                  \
        .dtype = (there) ? WD_F32 : WD_DTYPE_DEFAULT                                                                   \
    }
#define OFFSETS(s) .cu_seqlens = {.dtype = s->N ? WD_I32 : WD_DTYPE_DEFAULT}

static const struct wd_op *call(const struct shape *s, union args *a)
{
    if (s->variant == FWD_H || s->variant == EIGHT || s->variant == HOPPER_H || s->variant == HOPPER_HF) {
        *a = (union args){.h = {sizeof a->h, SIZES(s), .k.dtype = s->data, .w.dtype = s->data, .u.dtype = s->out,
                                .g.dtype = s->sums, .h.dtype = s->A, .v_new.dtype = s->out,
                                .initial_state = GIVEN(s->states), .final_state = GIVEN(s->states), .math = s->math,
                                OFFSETS(s)}};
        return &wd_op_chunk_fwd_h;
    }
    if (s->variant == FWD_O || s->variant == HOPPER_O) {
        *a = (union args){.o = {sizeof a->o, SIZES(s), .q.dtype = s->data, .k.dtype = s->data, .v_new.dtype = s->data,
                                .h.dtype = s->data, .o.dtype = s->out, .math = s->math, OFFSETS(s)}};
        return &wd_op_chunk_fwd_o;
    }
    if (s->variant == WHOLE || s->variant == HOPPER) {
        *a = (union args){.whole = {sizeof a->whole, SIZES(s), .q.dtype = s->data, .k.dtype = s->data,
                                    .v.dtype = s->data, .o.dtype = s->out, .A_log = GIVEN(s->raw),
                                    .dt_bias = GIVEN(s->raw), .beta_mode = s->raw ? WD_BETA_SIGMOID : WD_BETA_VALUE,
                                    .l2norm = s->raw, .initial_state = GIVEN(s->states),
                                    .final_state = GIVEN(s->states), .math = s->math, OFFSETS(s)}};
        return &wd_op_gdn_forward;
    }
    if (s->variant == PREP) {
        const wd_dtype rows = s->out ? s->out : WD_F32, none = WD_DTYPE_DEFAULT;
        *a = (union args){.prepare = {sizeof a->prepare,
                                      s->B,
                                      s->T,
                                      s->H,
                                      s->HV,
                                      s->K,
                                      s->N,
                                      .k.dtype = s->data,
                                      .A_log = GIVEN(s->raw),
                                      .dt_bias = GIVEN(s->raw),
                                      .g.dtype = s->sums,
                                      .A.dtype = s->A,
                                      .beta_out = GIVEN(s->raw),
                                      .q.dtype = s->raw ? s->data ? s->data : WD_F32 : none,
                                      .q_out.dtype = s->raw ? rows : none,
                                      .k_out.dtype = s->raw ? rows : none,
                                      .beta_mode = s->raw ? WD_BETA_SIGMOID : WD_BETA_VALUE,
                                      .l2norm = s->raw,
                                      .math = s->math,
                                      OFFSETS(s)}};
        return &wd_op_gdn_prepare;
    }
    *a = (union args){.wu = {sizeof a->wu, SIZES(s), .k.dtype = s->data, .v.dtype = s->data, .A.dtype = s->A,
                             .w.dtype = s->out, .math = s->math, .A_is_lower = s->A_is_lower, OFFSETS(s)}};
    return &wd_op_recompute_w_u;
}

static void scale_rows(const struct wd_problem *p, double *const *t, size_t tensor, size_t width, int from, int steps)
{
    for (size_t i = 0; t[tensor] && i < wd_tensor_elements(p, tensor); i++)
        t[tensor][i] = ldexp(t[tensor][i], from + (int)(i / width * 7 % (size_t)steps));
}

/* Of the gates every eighth is -inf and every ninth -800, or what softplus makes such; of its sequences every other is
 * empty; and numbers have other sizes. */
static void edit(void *user, const struct wd_problem *p, double *const *t)
{
    const struct shape *s = user;
    const size_t gate = s->variant == PREP ? (size_t)PREP_gate : (size_t)FWD_g;
    for (size_t i = 0; s->forgets && i < wd_tensor_elements(p, gate); i++)
        if (i % 8 == 3 || i % 9 == 5)
            t[gate][i] = (s->raw ? -1 : 1) * (i % 8 == 3 ? -INFINITY : -800);
    double *const offset = t[s->variant == PREP ? (size_t)PREP_cu_seqlens : (size_t)FWDH_cu_seqlens];
    for (size_t i = 1; s->empty && i < s->N; i += 2)
        offset[i] = offset[i - 1];
    for (size_t i = 0; s->falls && i < 64 * s->HV * s->V; i++)
        t[FWD_v][i] = ldexp(t[FWD_v][i], 60);
    for (size_t i = 0; s->falls && i < s->HV; i++)
        t[FWD_g][64 * s->HV + i] = -INFINITY;
    if (s->sizes) {
        scale_rows(p, t, FWD_q, s->K, -12, 25);
        scale_rows(p, t, FWD_k, s->K, -12, 25);
        scale_rows(p, t, FWD_v, s->V, -60, 1);
        scale_rows(p, t, FWD_initial_state, s->V, -60, 1);
    }
}

static void check(const struct shape *s)
{
    union args args;
    struct shape mine = *s;
    const struct wd_op *op = call(s, &args);
    const struct wd_trial_options options = {.seed = 1,
                                             .gates = s->gates,
                                             .shift = s->pad,
                                             .pad = s->pad,
                                             .edit = s->forgets || s->empty || s->sizes || s->falls ? edit : NULL,
                                             .user = &mine};
    struct wd_caps engine = ctx->caps;
    struct wd_problem p;
    struct wd_trial *t = NULL;
    struct wd_trial_result result;
    struct variants_choice chosen = {.kernel = NULL};
    if (engine.sm < 80)
        engine.sm = 80;
    engine.wgmma = true;
    if (wd_op_check(op, &args, false, &p) || wd_trial_create(ctx, &p, &options, &t))
        fail_msg("%s: %s: %s", op->name, s->name, wd_last_error());
    t->p.workspace = NULL; /* it is as large as the variants that this device has need */
    if (!wd_tuning_model(&engine, &t->p, s->variant, &chosen.choice))
        fail_msg("%s: %s: refused: %s", op->name, s->name, chosen.choice.reason);
    for (size_t i = 0; i < 3; i++)
        if (s->param[i])
            chosen.choice.param[i] = s->param[i];
    if (wd_choice_fault(&engine, &t->p, &chosen.choice)) { /* an engine of its own may have no room for these */
        assert_true(ctx->caps.sm >= 80);
        assert_true(wd_tuning_model(&engine, &t->p, s->variant, &chosen.choice));
    }
    if ((!s->variant->chain && wd_plan_compile(ctx, &t->p, &chosen.choice, &chosen.kernel)) || wd_trial_reset(t) ||
        wd_trial_run(t, variants_launch, &chosen) || wd_trial_check(t, &result))
        fail_msg("%s: %s: %s", op->name, s->name, wd_last_error());
    if (!result.ok)
        fail_msg("%s: %s: %s", op->name, s->name, result.text);
    if (s->variant == HOPPER_HF && s->math == WD_MATH_TF32 && result.error > 6e-4)
        fail_msg("%s: %s: error %.1e: the engine's mean is not made up for", op->name, s->name, result.error);
    wd_trial_destroy(t);
}

static void check_all(const struct wd_variant *variant)
{
    for (size_t i = 0; i < WD_COUNT(shapes); i++)
        if (shapes[i].variant == variant)
            check(&shapes[i]);
}

/* A GPU with another engine has neither this one nor an emulation of it. */
static void check_hopper(const struct wd_variant *variant)
{
    if (ctx->caps.sm >= 80 && !ctx->caps.wgmma)
        skip();
    check_all(variant);
}

/* ---- Tests ---- */

static void mma__recompute_w_u__matches_reference(void **unused)
{
    (void)unused;
    check_all(WU);
}

static void mma__recompute_w_u_steps__matches_reference(void **unused)
{
    (void)unused;
    check_all(STEPS);
}

static void mma__chunk_fwd_h__matches_reference(void **unused)
{
    (void)unused;
    check_all(FWD_H);
    check_all(EIGHT);
}

static void mma__chunk_fwd_o__matches_reference(void **unused)
{
    (void)unused;
    check_all(FWD_O);
}

static void mma__gdn_forward__matches_reference(void **unused)
{
    (void)unused;
    check_all(WHOLE);
}

static void mma__chunk_fwd_o_on_hopper__matches_reference(void **unused)
{
    (void)unused;
    check_hopper(HOPPER_O);
}

static void mma__chunk_fwd_h_on_hopper__matches_reference(void **unused)
{
    (void)unused;
    check_hopper(HOPPER_H);
}

static void mma__chunk_fwd_h_in_f32_on_hopper__matches_reference(void **unused)
{
    (void)unused;
    check_hopper(HOPPER_HF);
}

static void mma__gdn_forward_on_hopper__matches_reference(void **unused)
{
    (void)unused;
    check_hopper(HOPPER);
}

static void mma__gdn_prepare__matches_reference(void **unused)
{
    (void)unused;
    check_all(PREP);
}

static size_t measured;

static wd_status measure(struct wd_context *context, const struct wd_problem *p, struct wd_choice *choice)
{
    (void)context;
    (void)p;
    (void)choice;
    measured++;
    return WD_ENOTSUP;
}

/* They have no reference to compare with. */
static void mma__halves_of_gdn_forward__are_not_measured(void **unused)
{
    (void)unused;
    static const struct shape small = {"", WHOLE, 1, 70, 1, 1, 48, 16, 0, .gates = WD_GATES_STEEP};
    union args args;
    struct wd_problem p;
    assert_int_equal(wd_op_check(call(&small, &args), &args, false, &p), WD_OK);
    ctx->measure = measure;
    measured = 0;
    assert_int_equal(wd_variant_gdn_forward_mma.chain(ctx, &p, (const int[]){1, 2, 1}, NULL), WD_OK);
    ctx->measure = NULL;
    assert_int_equal(measured, 0);
}

static void mma__no_heads__need_no_groups(void **unused)
{
    (void)unused;
    static const struct shape none[] = {
        {.variant = PREP, .B = 1, .T = 70, .K = 32},
        {.variant = WU, .B = 1, .T = 70, .K = 64, .V = 64},
        {.variant = FWD_H, .B = 1, .T = 70, .K = 64, .V = 64},
        {.variant = HOPPER_HF, .B = 1, .T = 70, .K = 128, .V = 64},
        {.variant = FWD_O, .B = 1, .T = 70, .K = 64, .V = 64},
        {.variant = WHOLE, .B = 1, .T = 70, .K = 64, .V = 64},
        {.variant = HOPPER, .B = 1, .T = 70, .K = 64, .V = 64, .data = WD_BF16, .out = WD_BF16},
    };
    struct wd_caps engine = ctx->caps;
    engine.sm = 90;
    engine.wgmma = true;
    for (size_t i = 0; i < WD_COUNT(none); i++) {
        const struct wd_variant *variant = none[i].variant;
        union args args;
        struct wd_problem p;
        struct wd_grid grid = {.groups = {1}};
        struct wd_choice choice;
        assert_int_equal(wd_op_check(call(&none[i], &args), &args, false, &p), WD_OK);
        assert_true(wd_tuning_model(&engine, &p, variant, &choice));
        if (variant->chain) {
            assert_int_equal(variant->chain(ctx, &p, choice.param, NULL), WD_OK);
        } else {
            variant->grid(&ctx->caps, &p, choice.param, &grid);
            assert_int_equal(grid.groups[0], 0);
        }
    }
}

static void mma__what_the_engine_cannot_do__is_refused(void **unused)
{
    (void)unused;
    static const struct shape good = {.variant = FWD_O, .B = 1, .T = 64, .H = 1, .HV = 1, .K = 32, .V = 32};
    struct wd_caps engine = ctx->caps;
    struct wd_choice choice;
    struct wd_problem p;
    engine.sm = 80;
    for (int bad = 0; bad < 4; bad++) {
        struct shape s = good;
        union args args;
        s.K = bad == 1 ? 40 : good.K;
        const struct wd_op *op = call(&s, &args);
        if (bad == 2)
            args.o.h.dtype = WD_BF16;
        if (bad == 3)
            args.o.q.offset = 1;
        assert_int_equal(wd_op_check(op, &args, false, &p), WD_OK);
        assert_int_equal(wd_tuning_model(&engine, &p, s.variant, &choice), bad == 0);
    }
    engine.sm = 75;
    assert_false(wd_tuning_model(&engine, &p, FWD_O, &choice));

    static const struct shape whole = {.B = 1, .T = 64, .H = 1, .HV = 1, .K = 64, .V = 64, .raw = true};
    const struct wd_variant *const forms[] = {WHOLE, HOPPER};
    engine.sm = 90;
    engine.wgmma = true;
    for (int n = 0; n < 4; n++) {
        struct shape s = whole;
        union args args;
        s.variant = forms[n / 2];
        s.data = s.out = n % 2 ? WD_F16 : WD_BF16;
        assert_int_equal(wd_op_check(call(&s, &args), &args, false, &p), WD_OK);
        assert_int_equal(wd_tuning_model(&engine, &p, s.variant, &choice), n % 2 == 0);
    }
    static const struct shape narrow = {.variant = PREP, .B = 1, .T = 64, .H = 1, .HV = 1};
    union args args;
    assert_int_equal(wd_op_check(call(&narrow, &args), &args, false, &p), WD_OK);
    assert_false(wd_tuning_model(&engine, &p, PREP, &choice));
}

/* Groups of 64 columns leave units idle where groups of 16 would not. */
static void mma__chunk_fwd_h_in_f32__takes_the_engine_that_has_groups(void **unused)
{
    (void)unused;
    struct wd_caps engine = ctx->caps;
    const struct wd_tuning tuning = {.caps = &engine, .log = &ctx->log};
    engine.sm = 90;
    engine.wgmma = true;
    engine.cpu = false;
    engine.local_bytes = 227 * 1024;
    engine.max_group = engine.max_local[0] = 1024;
    engine.compute_units = 132;
    static const struct {
        size_t heads;
        const struct wd_variant *first, *second, *third;
    } cases[] = {
        {8, EIGHT, FWD_H, HOPPER_HF},
        {9, FWD_H, EIGHT, HOPPER_HF},
        {16, FWD_H, EIGHT, HOPPER_HF},
        {17, HOPPER_HF, EIGHT, FWD_H},
    };
    for (size_t i = 0; i < WD_COUNT(cases); i++) {
        const size_t heads = cases[i].heads;
        const struct shape s = {.variant = HOPPER_HF, .B = 1, .T = 70, .H = heads, .HV = heads, .K = 128, .V = 128};
        struct wd_choice choice[WD_MAX_CHOICES];
        struct wd_problem p;
        union args args;
        assert_int_equal(wd_op_check(call(&s, &args), &args, false, &p), WD_OK);
        assert_true(wd_tuning_choices(&tuning, &p, choice, NULL) > 2);
        assert_ptr_equal(choice[0].variant, cases[i].first);
        assert_ptr_equal(choice[1].variant, cases[i].second);
        assert_ptr_equal(choice[2].variant, cases[i].third);
        struct wd_search search; /* the tuner's idea of what the model chooses */
        assert_int_equal(wd_search_init(&search, &engine, &p), WD_OK);
        assert_ptr_equal(wd_search_choice(&search, 0).variant, choice[0].variant);
        wd_search_fini(&search);
    }
}

static void mma__chunk_fwd_h_in_f32__refuses_what_it_cannot_do(void **unused)
{
    (void)unused;
    enum { GOOD, NARROW, HALF_SLICE, SHORT_TYPE, UNALIGNED, OTHER_ENGINE, LITTLE_MEMORY, CASES };
    for (int bad = GOOD; bad < CASES; bad++) {
        struct shape s = {.variant = HOPPER_HF, .B = 1, .T = 64, .H = 1, .HV = 1, .K = 128, .V = 128};
        struct wd_caps engine = ctx->caps;
        struct wd_choice choice;
        struct wd_problem p;
        union args args;
        engine.sm = 90;
        engine.wgmma = bad != OTHER_ENGINE;
        engine.max_group = engine.max_local[0] = 1024;
        engine.local_bytes = (cl_ulong)(bad == LITTLE_MEMORY ? 227 * 1024 - 1 : 227 * 1024);
        s.K = bad == NARROW ? 64 : s.K;
        s.V = bad == HALF_SLICE ? 96 : s.V;
        s.data = s.A = s.out = bad == SHORT_TYPE ? WD_BF16 : WD_DTYPE_DEFAULT;
        const struct wd_op *op = call(&s, &args);
        args.h.w.offset = bad == UNALIGNED ? 1 : 0;
        assert_int_equal(wd_op_check(op, &args, false, &p), WD_OK);
        assert_int_equal(wd_tuning_model(&engine, &p, HOPPER_HF, &choice), bad == GOOD);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mma__recompute_w_u__matches_reference),
        cmocka_unit_test(mma__recompute_w_u_steps__matches_reference),
        cmocka_unit_test(mma__chunk_fwd_h__matches_reference),
        cmocka_unit_test(mma__chunk_fwd_o__matches_reference),
        cmocka_unit_test(mma__halves_of_gdn_forward__are_not_measured), /* first: later their plans are made */
        cmocka_unit_test(mma__gdn_forward__matches_reference),
        cmocka_unit_test(mma__chunk_fwd_o_on_hopper__matches_reference),
        cmocka_unit_test(mma__chunk_fwd_h_on_hopper__matches_reference),
        cmocka_unit_test(mma__chunk_fwd_h_in_f32_on_hopper__matches_reference),
        cmocka_unit_test(mma__chunk_fwd_h_in_f32__refuses_what_it_cannot_do),
        cmocka_unit_test(mma__chunk_fwd_h_in_f32__takes_the_engine_that_has_groups),
        cmocka_unit_test(mma__gdn_forward_on_hopper__matches_reference),
        cmocka_unit_test(mma__gdn_prepare__matches_reference),
        cmocka_unit_test(mma__no_heads__need_no_groups),
        cmocka_unit_test(mma__what_the_engine_cannot_do__is_refused),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
