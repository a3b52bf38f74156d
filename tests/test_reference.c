/* SPDX-License-Identifier: MIT */
/* The references against each other, where two ways lead to the same numbers, and against their definitions. Those
 * against published vectors are in test_vectors.c. Nothing here touches a device. */
#include "call.h"

#include "convert.h"

/* ---- fp8_quant ---- */

static void fp8_quant__nan_zero_and_infinite_groups__stay_in_their_group(void **state)
{
    (void)state;
    const wd_fp8_quant_args args = {.struct_size = sizeof args,
                                    .tokens = 3,
                                    .hidden = 8,
                                    .group = 4,
                                    .q.dtype = WD_E4M3,
                                    .s_layout = WD_SCALE_COLUMN};
    struct call c;
    call_make(&c, &wd_op_fp8_quant, &args, WD_GATES_MILD);
    double *x = c.t[FP8_x];
    x[1] = (double)NAN;              /* token 0, group 0 */
    memset(x + 8, 0, 4 * sizeof *x); /* token 1, group 0 */
    x[20] = (double)INFINITY;        /* token 2, group 1 */
    call_run(&c);
    const double *q = c.t[FP8_q], *s = c.t[FP8_s]; /* s is [2][4] */
    for (size_t i = 0; i < 4; i++) {
        assert_true(isnan(q[i]) && isfinite(q[4 + i]) && q[8 + i] == 0 && isfinite(q[12 + i]) && isfinite(q[16 + i]));
        assert_true(i == 0 ? isnan(q[20]) : q[20 + i] == 0);
    }
    assert_true(isnan(s[0]) && s[1] == (double)(1e-10f / 448.0f) && isfinite(s[2]) && s[3] == 0);
    assert_true(isfinite(s[4]) && isfinite(s[5]) && isinf(s[6]) && s[7] == 0);
    call_free(&c);
}

static void fp8_quant__ue8m0__scale_is_the_next_power_of_two(void **state)
{
    (void)state;
    const wd_fp8_quant_args args = {
        .struct_size = sizeof args, .tokens = 5, .hidden = 64, .group = 16, .q.dtype = WD_E4M3, .s.dtype = WD_UE8M0};
    struct call c;
    call_make(&c, &wd_op_fp8_quant, &args, WD_GATES_MILD);
    call_run(&c);
    for (size_t i = 0; i < 5 * 4; i++) {
        double largest = 0;
        for (size_t k = 0; k < 16; k++)
            largest = fmax(largest, fabs(c.t[FP8_x][i * 16 + k]));
        const double s = c.t[FP8_s][i];
        int exponent;
        assert_true(frexp(s, &exponent) == 0.5);
        assert_true(largest <= 448 * s && largest > 224 * s);
        for (size_t k = 0; k < 16; k++)
            assert_true(c.t[FP8_q][i * 16 + k] == wd_round(WD_E4M3, c.t[FP8_x][i * 16 + k] / s));
    }
    call_free(&c);
}

/* ---- Convolution: packed, in steps, and both layouts ---- */

enum { D = 5, TOKENS = 23 };

static wd_causal_conv1d_args conv_args(size_t W, size_t N)
{
    return (wd_causal_conv1d_args){.struct_size = sizeof(wd_causal_conv1d_args),
                                   .B = 1,
                                   .D = D,
                                   .S = TOKENS,
                                   .W = W,
                                   .N = N,
                                   .bias.dtype = WD_F32,
                                   .initial_state.dtype = WD_F32,
                                   .final_state.dtype = WD_F32,
                                   .layout = WD_LAYOUT_BSD,
                                   .act = WD_ACT_SILU};
}

static void causal_conv1d__packed__each_sequence_as_if_alone(void **state)
{
    (void)state;
    for (size_t W = 1; W <= 16; W += 5) {
        wd_causal_conv1d_args args = conv_args(W, 4);
        args.cu_seqlens.dtype = WD_I32;
        struct call packed, one;
        call_make(&packed, &wd_op_causal_conv1d, &args, WD_GATES_MILD);
        call_run(&packed);
        for (size_t s = 0; s < 4; s++) {
            const double *cu = packed.t[CONV_cu_seqlens];
            const size_t begin = (size_t)cu[s], tail = D * (W - 1);
            wd_causal_conv1d_args alone = conv_args(W, 0);
            alone.S = (size_t)cu[s + 1] - begin;
            call_make(&one, &wd_op_causal_conv1d, &alone, WD_GATES_MILD);
            copy(&one, CONV_weight, &packed, CONV_weight);
            copy(&one, CONV_bias, &packed, CONV_bias);
            memcpy(one.t[CONV_x], packed.t[CONV_x] + begin * D, alone.S * D * sizeof(double));
            if (tail) /* W = 1 has no state */
                memcpy(one.t[CONV_initial_state], packed.t[CONV_initial_state] + s * tail, tail * sizeof(double));
            call_run(&one);
            assert_true(distance(one.t[CONV_out], packed.t[CONV_out] + begin * D, alone.S * D) == 0);
            assert_true(!tail || distance(one.t[CONV_final_state], packed.t[CONV_final_state] + s * tail, tail) == 0);
            call_free(&one);
        }
        call_free(&packed);
    }
}

static void causal_conv1d_update__token_by_token__same_as_at_once(void **state)
{
    (void)state;
    const wd_causal_conv1d_args args = conv_args(4, 0);
    const wd_causal_conv1d_update_args step_args = {
        .struct_size = sizeof step_args, .B = 1, .D = D, .W = 4, .bias.dtype = WD_F32, .act = WD_ACT_SILU};
    struct call whole, step;
    call_make(&whole, &wd_op_causal_conv1d, &args, WD_GATES_MILD);
    call_make(&step, &wd_op_causal_conv1d_update, &step_args, WD_GATES_MILD);
    copy(&step, UPD_weight, &whole, CONV_weight);
    copy(&step, UPD_bias, &whole, CONV_bias);
    copy(&step, UPD_state, &whole, CONV_initial_state);
    call_run(&whole);
    for (size_t i = 0; i < TOKENS; i++) {
        memcpy(step.t[UPD_x], whole.t[CONV_x] + i * D, D * sizeof(double));
        call_run(&step);
        assert_true(distance(step.t[UPD_out], whole.t[CONV_out] + i * D, D) == 0);
    }
    assert_close(&step, UPD_state, &whole, CONV_final_state, 0);
    call_free(&step);
    call_free(&whole);
}

/* ---- Gated delta net: the chunk formulas against the recurrence ---- */

struct chain_case {
    const char *name;
    size_t B, T, H, HV, K, V, N;
    bool options, states; /* l2norm, sigmoid and raw gates; initial and final state */
};

static struct chain_case chains[] = {
    {"chain__one_short_chunk__is_the_recurrence", 1, 37, 1, 1, 9, 60, 0, false, false},
    {"chain__short_last_chunk__is_the_recurrence", 2, 150, 2, 2, 32, 33, 0, false, true},
    {"chain__grouped_heads_and_options__is_the_recurrence", 1, 130, 2, 6, 40, 16, 0, true, true},
    {"chain__packed__is_the_recurrence", 1, 300, 1, 2, 16, 40, 5, false, true},
    {"chain__packed_with_options__is_the_recurrence", 1, 129, 2, 2, 24, 8, 3, true, false},
};
enum { CHAINS = sizeof chains / sizeof chains[0] };

/* gdn_forward and the four kernels that are the same thing. */
struct chain {
    struct call whole, prepare, w_u, h, o;
};

static wd_dtype present(bool is)
{
    return is ? WD_F32 : WD_DTYPE_DEFAULT;
}

static void chain_make_whole(struct chain *c, const struct chain_case *s, enum wd_gates gates)
{
    const wd_gdn_forward_args whole = {.struct_size = sizeof whole,
                                       .B = s->B,
                                       .T = s->T,
                                       .H = s->H,
                                       .HV = s->HV,
                                       .K = s->K,
                                       .V = s->V,
                                       .N = s->N,
                                       .A_log.dtype = present(s->options),
                                       .dt_bias.dtype = present(s->options),
                                       .initial_state.dtype = present(s->states),
                                       .final_state.dtype = present(s->states),
                                       .cu_seqlens.dtype = s->N ? WD_I32 : WD_DTYPE_DEFAULT,
                                       .beta_mode = s->options ? WD_BETA_SIGMOID : WD_BETA_VALUE,
                                       .l2norm = s->options,
                                       .scale = 0.3f};
    const wd_gdn_prepare_args prepare = {.struct_size = sizeof prepare,
                                         .B = s->B,
                                         .T = s->T,
                                         .H = s->H,
                                         .HV = s->HV,
                                         .K = s->K,
                                         .N = s->N,
                                         .A_log = whole.A_log,
                                         .dt_bias = whole.dt_bias,
                                         .cu_seqlens = whole.cu_seqlens,
                                         .q.dtype = present(s->options),
                                         .q_out.dtype = present(s->options),
                                         .k_out.dtype = present(s->options),
                                         .beta_out.dtype = WD_F32,
                                         .beta_mode = whole.beta_mode,
                                         .l2norm = s->options};
    call_make(&c->whole, &wd_op_gdn_forward, &whole, gates);
    call_make(&c->prepare, &wd_op_gdn_prepare, &prepare, gates);
}

static void chain_make_parts(struct chain *c, const struct chain_case *s)
{
    const wd_tensor cu_seqlens = {.dtype = s->N ? WD_I32 : WD_DTYPE_DEFAULT};
    const wd_recompute_w_u_args w_u = {.struct_size = sizeof w_u,
                                       .B = s->B,
                                       .T = s->T,
                                       .H = s->H,
                                       .HV = s->HV,
                                       .K = s->K,
                                       .V = s->V,
                                       .N = s->N,
                                       .cu_seqlens = cu_seqlens};
    const wd_chunk_fwd_h_args h = {.struct_size = sizeof h,
                                   .B = s->B,
                                   .T = s->T,
                                   .H = s->H,
                                   .HV = s->HV,
                                   .K = s->K,
                                   .V = s->V,
                                   .N = s->N,
                                   .cu_seqlens = cu_seqlens,
                                   .initial_state.dtype = present(s->states),
                                   .final_state.dtype = present(s->states)};
    const wd_chunk_fwd_o_args o = {.struct_size = sizeof o,
                                   .B = s->B,
                                   .T = s->T,
                                   .H = s->H,
                                   .HV = s->HV,
                                   .K = s->K,
                                   .V = s->V,
                                   .N = s->N,
                                   .cu_seqlens = cu_seqlens,
                                   .scale = 0.3f};
    call_make(&c->w_u, &wd_op_recompute_w_u, &w_u, WD_GATES_MILD);
    call_make(&c->h, &wd_op_chunk_fwd_h, &h, WD_GATES_MILD);
    call_make(&c->o, &wd_op_chunk_fwd_o, &o, WD_GATES_MILD);
}

/* Runs the whole, and the parts up to chunk_fwd_o's inputs. */
static void chain_run(struct chain *c, const struct chain_case *s)
{
    const size_t whole_to_prepare[][2] = {
        {PREP_k, FWD_k},         {PREP_gate, FWD_g},          {PREP_beta, FWD_beta},
        {PREP_A_log, FWD_A_log}, {PREP_dt_bias, FWD_dt_bias}, {PREP_cu_seqlens, FWD_cu_seqlens}};
    for (size_t i = 0; i < WD_COUNT(whole_to_prepare); i++)
        copy(&c->prepare, whole_to_prepare[i][0], &c->whole, whole_to_prepare[i][1]);
    if (s->options)
        copy(&c->prepare, PREP_q, &c->whole, FWD_q);
    call_run(&c->whole);
    call_run(&c->prepare);

    const size_t k = s->options ? PREP_k_out : PREP_k;
    copy(&c->w_u, WU_k, &c->prepare, k);
    copy(&c->w_u, WU_v, &c->whole, FWD_v);
    copy(&c->w_u, WU_beta, &c->prepare, PREP_beta_out);
    copy(&c->w_u, WU_A, &c->prepare, PREP_A);
    copy(&c->w_u, WU_g, &c->prepare, PREP_g);
    copy(&c->w_u, WU_cu_seqlens, &c->prepare, PREP_cu_seqlens);
    call_run(&c->w_u);

    copy(&c->h, FWDH_k, &c->prepare, k);
    copy(&c->h, FWDH_w, &c->w_u, WU_w);
    copy(&c->h, FWDH_u, &c->w_u, WU_u);
    copy(&c->h, FWDH_g, &c->prepare, PREP_g);
    copy(&c->h, FWDH_initial_state, &c->whole, FWD_initial_state);
    copy(&c->h, FWDH_cu_seqlens, &c->prepare, PREP_cu_seqlens);
    call_run(&c->h);

    copy(&c->o, FWDO_q, s->options ? &c->prepare : &c->whole, s->options ? (size_t)PREP_q_out : (size_t)FWD_q);
    copy(&c->o, FWDO_k, &c->prepare, k);
    copy(&c->o, FWDO_v_new, &c->h, FWDH_v_new);
    copy(&c->o, FWDO_h, &c->h, FWDH_h);
    copy(&c->o, FWDO_g, &c->prepare, PREP_g);
    copy(&c->o, FWDO_cu_seqlens, &c->prepare, PREP_cu_seqlens);
}

static void chain_free(struct chain *c)
{
    call_free(&c->whole);
    call_free(&c->prepare);
    call_free(&c->w_u);
    call_free(&c->h);
    call_free(&c->o);
}

static void chunk_formulas__chained__are_the_recurrence(void **state)
{
    const struct chain_case *s = *state;
    for (int gates = WD_GATES_MILD; gates <= WD_GATES_ZERO; gates++) {
        struct chain c;
        chain_make_whole(&c, s, (enum wd_gates)gates);
        chain_make_parts(&c, s);
        chain_run(&c, s);
        call_run(&c.o);
        assert_close(&c.o, FWDO_o, &c.whole, FWD_o, 1e-9);
        if (s->states)
            assert_close(&c.h, FWDH_final_state, &c.whole, FWD_final_state, 1e-9);
        chain_free(&c);
    }
}

/* Why mild gates are always tested: with steep ones the state is forgotten before it is read, and a kernel that leaves
 * out the term which carries it from chunk to chunk would pass. */
static void chunk_fwd_o__without_the_state_term__only_mild_gates_tell(void **state)
{
    (void)state;
    const struct chain_case s = {"", 1, 256, 1, 1, 64, 64, 0, false, false};
    double apart[2];
    for (int gates = WD_GATES_MILD; gates <= WD_GATES_STEEP; gates++) {
        struct chain c;
        chain_make_whole(&c, &s, (enum wd_gates)gates);
        chain_make_parts(&c, &s);
        chain_run(&c, &s);
        memset(c.o.t[FWDO_h], 0, wd_tensor_elements(&c.o.p, FWDO_h) * sizeof(double));
        call_run(&c.o);
        apart[gates] = distance(c.o.t[FWDO_o], c.whole.t[FWD_o], wd_tensor_elements(&c.o.p, FWDO_o));
        chain_free(&c);
    }
    assert_true(apart[WD_GATES_MILD] > 0.1);
    assert_true(apart[WD_GATES_STEEP] < 0.5 * apart[WD_GATES_MILD]);
}

/* ---- Decoding ---- */

enum { STEPS = 7 };

static void gdn_decode__token_by_token_in_a_slot__same_as_forward(void **state)
{
    (void)state;
    const wd_gdn_forward_args args = {.struct_size = sizeof args,
                                      .B = 1,
                                      .T = STEPS,
                                      .H = 2,
                                      .HV = 4,
                                      .K = 20,
                                      .V = 40,
                                      .l2norm = true,
                                      .initial_state.dtype = WD_F32,
                                      .final_state.dtype = WD_F32};
    const wd_gdn_decode_args step_args = {.struct_size = sizeof step_args,
                                          .B = 2,
                                          .H = 2,
                                          .HV = 4,
                                          .K = 20,
                                          .V = 40,
                                          .slots = 3,
                                          .l2norm = true,
                                          .slot.dtype = WD_I32};
    const struct {
        size_t whole, step, width;
    } rows[] = {
        {FWD_q, DEC_q, 40}, {FWD_k, DEC_k, 40}, {FWD_v, DEC_v, 160}, {FWD_g, DEC_g, 4}, {FWD_beta, DEC_beta, 4}};
    const size_t states = 4 * 20 * 40;
    struct call whole, step;
    call_make(&whole, &wd_op_gdn_forward, &args, WD_GATES_MILD);
    call_make(&step, &wd_op_gdn_decode, &step_args, WD_GATES_MILD);
    call_run(&whole);
    step.t[DEC_slot][0] = -1; /* skipped */
    step.t[DEC_slot][1] = 2;
    const double untouched = step.t[DEC_state][0];
    memcpy(step.t[DEC_state] + 2 * states, whole.t[FWD_initial_state], states * sizeof(double));
    for (size_t i = 0; i < STEPS; i++) {
        for (size_t r = 0; r < WD_COUNT(rows); r++)
            memcpy(step.t[rows[r].step] + rows[r].width, whole.t[rows[r].whole] + i * rows[r].width,
                   rows[r].width * sizeof(double));
        call_run(&step);
        assert_true(distance(step.t[DEC_o] + 160, whole.t[FWD_o] + i * 160, 160) < 1e-14);
        assert_true(isnan(step.t[DEC_o][0]));
    }
    assert_true(distance(step.t[DEC_state] + 2 * states, whole.t[FWD_final_state], states) < 1e-14);
    assert_true(step.t[DEC_state][0] == untouched);
    call_free(&step);
    call_free(&whole);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(fp8_quant__nan_zero_and_infinite_groups__stay_in_their_group),
        cmocka_unit_test(fp8_quant__ue8m0__scale_is_the_next_power_of_two),
        cmocka_unit_test(causal_conv1d__packed__each_sequence_as_if_alone),
        cmocka_unit_test(causal_conv1d_update__token_by_token__same_as_at_once),
        cmocka_unit_test(chunk_fwd_o__without_the_state_term__only_mild_gates_tell),
        cmocka_unit_test(gdn_decode__token_by_token_in_a_slot__same_as_forward),
    };
    struct CMUnitTest chained[CHAINS] = {{0}};
    for (size_t i = 0; i < CHAINS; i++) {
        chained[i].name = chains[i].name;
        chained[i].test_func = chunk_formulas__chained__are_the_recurrence;
        chained[i].initial_state = &chains[i];
    }
    return cmocka_run_group_tests_name("chunk formulas", chained, NULL, NULL) +
           cmocka_run_group_tests_name("reference", others, NULL, NULL);
}
