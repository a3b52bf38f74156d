/* SPDX-License-Identifier: MIT */
/*
 * gdn_decode for CPUs; gdn_decode.cl says what it computes. A work-item takes a slice of a state's columns and streams
 * over its rows twice a token: first S^T k and S^T q of the old state, RB rows at a time so that the sums are loaded
 * and stored once for RB rows; then the update, out of the cache. The output needs no third pass:
 * S^T q after the update is exp(g) S^T q + (k . q) delta.
 *
 * Parameters VL, RB, NC as cpu_panel.cl has them.
 * Launch    groups of one, B * HV * slices of them, for any number of slices.
 * Traffic   the state in and out once where a slice fits the second-level cache; q and k once a slice.
 * Numerics  f32.
 */
#include "common.cl"

#ifndef K
#define K 128
#define V 128
#define T_Q f32
#define T_K f32
#define T_V f32
#define T_G f32
#define T_BETA f32
#define T_O f32
#endif

#include "gdn_cpu.cl"

/* One token, as a head sees it. */
struct token {
    float k[KPAD], q[KPAD]; /* with their factors; zero from K on */
    float kq;               /* their product */
    float decay, beta;
};

static inline float row_product(const float *a, const float *b)
{
    VFLOAT products = 0;
    for (uint d = 0; d < KPAD; d += VL)
        products += CAT(vload, VL)(0, a + d) * CAT(vload, VL)(0, b + d);
    return lane_sum(products);
}

/* sk += rows d .. d+RB of S^T k, sq likewise with q, for panels begin .. end. */
static inline void rows_products(VFLOAT (*sk)[NC], VFLOAT (*sq)[NC], const struct token *token,
                                 __global const float *S, ulong stride, uint d, uint begin, uint end)
{
    for (uint p = begin; p < end; p++) {
        VFLOAT row[NC];
        UNROLL for (uint r = 0; r < RB; r++) {
            if (d + r < K)
                PANEL_LOAD(f32, row, S + (d + r) * stride + p * PANEL, V - p * PANEL);
            UNROLL for (uint n = 0; n < NC && d + r < K; n++) {
                sk[p][n] += token->k[d + r] * row[n];
                sq[p][n] += token->q[d + r] * row[n];
            }
        }
    }
}

/* Row d of S = exp(g) S + k delta. This comes out of the cache, so there is time to fetch what stands `ahead`. */
static inline void row_update(__global float *S, ulong stride, const struct token *token, const VFLOAT (*delta)[NC],
                              uint d, uint begin, uint end, ulong ahead)
{
    for (uint p = begin; p < end; p++) {
        VFLOAT row[NC];
        PREFETCH(S + ahead + d * stride + p * PANEL);
        PANEL_LOAD(f32, row, S + d * stride + p * PANEL, V - p * PANEL);
        UNROLL for (uint n = 0; n < NC; n++)
            row[n] = row[n] * token->decay + token->k[d] * delta[p][n];
        PANEL_STORE(f32, S + d * stride + p * PANEL, row, V - p * PANEL);
    }
}

/* One token against columns of panels begin .. end; S, v, o stand at column 0, the next head's state `ahead` of S. */
static inline void step(__global float *S, ulong stride, const struct token *token, __global const ELEM(T_V) *v,
                        __global ELEM(T_O) *o, uint begin, uint end, ulong ahead)
{
    VFLOAT sk[PANELS(V)][NC], sq[PANELS(V)][NC], value[NC];
    for (uint p = begin; p < end; p++)
        UNROLL for (uint n = 0; n < NC; n++)
            sk[p][n] = sq[p][n] = 0;
    for (uint d = 0; d < K; d += RB)
        rows_products(sk, sq, token, S, stride, d, begin, end);
    for (uint p = begin; p < end; p++) {
        PANEL_LOAD(T_V, value, v + p * PANEL, V - p * PANEL);
        UNROLL for (uint n = 0; n < NC; n++) {
            sk[p][n] = token->beta * (value[n] - token->decay * sk[p][n]); /* delta */
            sq[p][n] = token->decay * sq[p][n] + token->kq * sk[p][n];
        }
        PANEL_STORE(T_O, o + p * PANEL, sq[p], V - p * PANEL);
    }
    for (uint d = 0; d < K; d++)
        row_update(S, stride, token, sk, d, begin, end, ahead);
}

WIDE GROUP_SIZE(1) __kernel void gdn_decode_cpu(
    IN(T_Q, q), IN(T_K, k), IN(T_V, v), IN(T_G, g), IN(T_BETA, beta), IN(f32, A_log), IN(f32, dt_bias),
    OUT(f32, state), IN(i32, slot), OUT(T_O, o), const ulong B, const ulong T, const ulong H, const ulong HV,
    const ulong SLOTS, const float l2norm_eps, const float scale)
{
    struct token token;
    const ulong slices = get_num_groups(0) / (B * HV), slice = get_group_id(0) % slices;
    const ulong hv = get_group_id(0) / slices % HV, b = get_group_id(0) / slices / HV, hk = hv / (HV / H);
    const uint begin = (uint)(PANELS(V) * slice / slices), end = (uint)(PANELS(V) * (slice + 1) / slices);
    const ulong owner = state_of(slot + slot_at.x, b, SLOTS);
    if (owner == SKIPPED)
        return;
    for (ulong t = 0; t < T; t++) {
        __global const ELEM(T_K) *kt = ROW3(k, b, t, hk);
        __global const ELEM(T_Q) *qt = ROW3(q, b, t, hk);
        ROW_PACK(T_K, token.k, kt, K, ROW_FACTOR(T_K, kt, l2norm_eps));
        ROW_PACK(T_Q, token.q, qt, K, scale * ROW_FACTOR(T_Q, qt, l2norm_eps));
        token.kq = row_product(token.k, token.q);
        token.decay =
            exp(log_gate(LD(T_G, ROW2(g, b, t), hv), A_log + A_log_at.x, dt_bias + dt_bias_at.x, hv));
        token.beta = beta_value(LD(T_BETA, ROW2(beta, b, t), hv));
        step(ROW2(state, owner, hv), state_at.w, &token, ROW3(v, b, t, hv), ROW3(o, b, t, hv), begin, end, state_at.z);
    }
}
