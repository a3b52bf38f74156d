/* SPDX-License-Identifier: MIT */
/* References of fp8_quant and the causal convolutions. Those of the gated delta net are in reference_gdn.c. */
#include "reference.h"

#include "convert.h"
#include "dims.h"
#include "parallel.h"

#include <math.h>

struct wd_span wd_sequence_span(const double *cu_seqlens, size_t T, size_t s)
{
    if (!cu_seqlens)
        return (struct wd_span){s * T, (s + 1) * T, s * wd_gdn_chunks(T, 0)};
    struct wd_span span = {(size_t)cu_seqlens[s], (size_t)cu_seqlens[s + 1], 0};
    for (size_t i = 0; i < s; i++)
        span.chunk += wd_gdn_chunks((size_t)(cu_seqlens[i + 1] - cu_seqlens[i]), 0);
    return span;
}

/* ---- fp8_quant ---- */

/*
 * One group, as in DeepSeek-V3 (technical report, section 3.3; its act_quant kernel) and SGLang's
 * per_token_group_quant_fp8:
 *     s = max(max|x|, eps) / M,   q = clamp(x / s, -M, M)
 *
 * In float, on purpose: bytes are compared bit for bit, and which way x / s rounds to a byte depends on the float that
 * s is. IEEE division makes every step here the one that a conforming device takes; in double, ties would fall
 * differently. Returns s as it is stored.
 */
static double quantize_group(const double *x, size_t n, float eps, wd_dtype s_dtype, wd_dtype q_dtype, double *q)
{
    const float limit = q_dtype == WD_E5M2 ? 57344.0f : 448.0f;
    float largest = eps;
    bool any_nan = false;
    for (size_t i = 0; i < n; i++) {
        any_nan |= isnan(x[i]);
        largest = fmaxf(largest, fabsf((float)x[i]));
    }
    float s = any_nan ? NAN : largest / limit;
    const double stored = wd_round(s_dtype, (double)s);
    if (s_dtype == WD_UE8M0 && isfinite(s)) /* an infinite scale has no UE8M0 code, but still divides */
        s = (float)stored;
    for (size_t i = 0; i < n; i++) {
        const float ratio = (float)x[i] / s;
        const float clamped = isnan(ratio) ? ratio : fminf(fmaxf(ratio, -limit), limit);
        q[i] = wd_round(q_dtype, (double)clamped);
    }
    return stored;
}

/* What a thread needs of a call. */
struct call {
    const struct wd_problem *p;
    double *const *t;
};

static void quantize_token(void *user, size_t token)
{
    const struct call *call = user;
    const struct wd_problem *p = call->p;
    double *const *t = call->t;
    const size_t hidden = p->dim[FP8_HIDDEN], group = p->dim[FP8_GROUP], groups = p->dim[FP8_GROUPS];
    const bool column = p->choice[FP8_s_layout] == WD_SCALE_COLUMN;
    for (size_t j = 0; j < groups; j++) {
        const size_t at = token * hidden + j * group;
        t[FP8_s][column ? j * p->dim[FP8_TOKENS4] + token : token * groups + j] = quantize_group(
            t[FP8_x] + at, group, p->real[FP8_eps], p->tensor[FP8_s].dtype, p->tensor[FP8_q].dtype, t[FP8_q] + at);
    }
}

void wd_reference_fp8_quant(const struct wd_problem *p, double *const *t)
{
    const size_t tokens = p->dim[FP8_TOKENS], tokens4 = p->dim[FP8_TOKENS4];
    struct call call = {p, t};
    wd_parallel(tokens, quantize_token, &call);
    for (size_t j = 0; p->choice[FP8_s_layout] == WD_SCALE_COLUMN && j < p->dim[FP8_GROUPS]; j++)
        for (size_t i = tokens; i < tokens4; i++)
            t[FP8_s][j * tokens4 + i] = wd_round(p->tensor[FP8_s].dtype, 0.0);
}

/* ---- causal_conv1d ---- */

/* One channel of one sequence. */
struct channel {
    const double *x, *weight;
    double *out;
    size_t length, step; /* tokens, and the distance between neighbours in x and out */
    size_t W;
    double bias;
    bool silu;
    const double *before; /* the W-1 inputs before x; NULL: zeros */
    double *after;        /* receives the last W-1 inputs; may be `before`; NULL: not wanted */
};

/* Input i of before | x. */
static double channel_input(const struct channel *c, size_t i)
{
    const size_t tail = c->W - 1;
    if (i >= tail)
        return c->x[(i - tail) * c->step];
    return c->before ? c->before[i] : 0.0;
}

/*
 * Depthwise causal convolution of Dao-AILab/causal-conv1d (Mamba, Gu and Dao 2023):
 *     out[t] = act(bias + sum_{k<W} weight[k] * x[t-W+1+k]),   SiLU(y) = y / (1 + exp(-y))
 */
static void convolve(const struct channel *c)
{
    for (size_t i = 0; i < c->length; i++) {
        double y = c->bias;
        for (size_t k = 0; k < c->W; k++)
            y += c->weight[k] * channel_input(c, i + k);
        c->out[i * c->step] = c->silu ? y / (1 + exp(-y)) : y;
    }
    for (size_t k = 0; c->after && k + 1 < c->W; k++) /* rising: in place, it reads ahead of what it writes */
        c->after[k] = channel_input(c, c->length + k);
}

static void convolve_channel(void *user, size_t d)
{
    const struct call *call = user;
    const struct wd_problem *p = call->p;
    double *const *t = call->t;
    const size_t D = p->dim[CONV_D], S = p->dim[CONV_S], W = p->dim[CONV_W];
    const bool bsd = p->choice[CONV_layout] == WD_LAYOUT_BSD;
    for (size_t s = 0; s < p->dim[CONV_SEQ]; s++) {
        const struct wd_span span = wd_sequence_span(t[CONV_cu_seqlens], S, s);
        const size_t first = bsd ? span.begin * D + d : (s * D + d) * S;
        const size_t state = (s * D + d) * (W - 1);
        const struct channel c = {
            .x = t[CONV_x] + first,
            .weight = t[CONV_weight] + d * W,
            .out = t[CONV_out] + first,
            .length = span.end - span.begin,
            .step = bsd ? D : 1,
            .W = W,
            .bias = t[CONV_bias] ? t[CONV_bias][d] : 0.0,
            .silu = p->choice[CONV_act] == WD_ACT_SILU,
            .before = t[CONV_initial_state] ? t[CONV_initial_state] + state : NULL,
            .after = t[CONV_final_state] ? t[CONV_final_state] + state : NULL,
        };
        convolve(&c);
    }
}

void wd_reference_causal_conv1d(const struct wd_problem *p, double *const *t)
{
    struct call call = {p, t};
    wd_parallel(p->dim[CONV_D], convolve_channel, &call);
}

void wd_reference_causal_conv1d_update(const struct wd_problem *p, double *const *t)
{
    const size_t D = p->dim[UPD_D], T = p->dim[UPD_T], W = p->dim[UPD_W];
    for (size_t b = 0; b < p->dim[UPD_B]; b++) {
        const double slot = t[UPD_slot] ? t[UPD_slot][b] : (double)b;
        if (slot < 0 || slot >= (double)p->dim[UPD_SLOTS])
            continue;
        for (size_t d = 0; d < D; d++) {
            double *state = t[UPD_state] + ((size_t)slot * D + d) * (W - 1);
            const struct channel c = {
                .x = t[UPD_x] + b * T * D + d,
                .weight = t[UPD_weight] + d * W,
                .out = t[UPD_out] + b * T * D + d,
                .length = T,
                .step = D,
                .W = W,
                .bias = t[UPD_bias] ? t[UPD_bias][d] : 0.0,
                .silu = p->choice[UPD_act] == WD_ACT_SILU,
                .before = state,
                .after = state,
            };
            convolve(&c);
        }
    }
}
