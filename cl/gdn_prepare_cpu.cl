/* SPDX-License-Identifier: MIT */
/*
 * gdn_prepare for CPUs; gdn_prepare.cl says what it computes. A work-item takes a chunk of one head of k: it packs the
 * keys once and multiplies them once, k k^T, and serves the HV/H heads from that. A comes column panel by column panel
 * from the triangular system (I + L) A = I, RB rows at a time: rows before a panel's first column are zero and skipped.
 *
 * Parameters VL, RB, NC as cpu_panel.cl has them.
 * Launch    groups of one, B*NT * H of them.
 * Traffic   everything once (twice in the cache with l2norm).
 * Numerics  f32; decays are products of exp(gate), so that a steep gate leaves its mild neighbours exact.
 */
#include "common.cl"

#ifndef K
#define K 128
#define T_K f32
#define T_GATE f32
#define T_BETA f32
#define T_Q f32
#define T_A f32
#define T_Q_OUT f32
#define T_K_OUT f32
#endif
#ifndef HAS_BETA_OUT
#define HAS_BETA_OUT 1
#define HAS_Q_OUT 1
#define HAS_K_OUT 1
#endif
#define RUN 64 /* CHUNK */

#include "gdn.cl"
#include "gdn_cpu.cl"

/* out = in with each row divided by its norm. */
#define NORMALISE(FROM, TO, out, out_stride, in, in_stride, rows, eps)                                                 \
    for (uint i = 0; i < (rows); i++) {                                                                                \
        const float factor = ROW_FACTOR(FROM, (in) + i * (in_stride), eps);                                            \
        for (uint d = 0; d < K; d += PANEL) {                                                                          \
            VFLOAT row[NC];                                                                                            \
            PANEL_LOAD(FROM, row, (in) + i * (in_stride) + d, K - d);                                                  \
            UNROLL for (uint n = 0; n < NC; n++)                                                                       \
                row[n] *= factor;                                                                                      \
            PANEL_STORE(TO, (out) + i * (out_stride) + d, row, K - d);                                                 \
        }                                                                                                              \
    }

/* The columns of A from p*PANEL on: the solution of (I + L) x = I there. */
static inline void write_inverse(__global ELEM(T_A) *A, ulong stride, const struct run *run, triangle minus_L, uint p)
{
    VFLOAT x[RUN][NC], zero[NC];
    UNROLL for (uint n = 0; n < NC; n++)
        zero[n] = 0;
    for (uint i = 0; i < min(p * PANEL, run->rows); i++)
        PANEL_STORE(T_A, A + i * stride + p * PANEL, zero, CHUNK - p * PANEL);
    for (uint i = p * PANEL; i < run->padded; i += RB) {
        VFLOAT acc[RB][NC];
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                acc[r][n] = LANE + (int)(p * PANEL + n * VL) == (VINT)(int)(i + r) ? (VFLOAT)(1) : (VFLOAT)(0);
        triangle_solve(acc, minus_L, i, x, p);
        UNROLL for (uint r = 0; r < RB; r++)
            if (i + r < run->rows)
                PANEL_STORE(T_A, A + (i + r) * stride + p * PANEL, acc[r], CHUNK - p * PANEL);
    }
}

WIDE GROUP_SIZE(1) __kernel void gdn_prepare_cpu(
    IN(T_K, k), IN(T_GATE, gate), IN(T_BETA, beta), IN(f32, A_log), IN(f32, dt_bias), IN(T_Q, q), IN(i32, cu_seqlens),
    OUT(T_G, g), OUT(T_A, A), OUT(f32, beta_out), OUT(T_Q_OUT, q_out), OUT(T_K_OUT, k_out), GDN_SIZES,
    const float l2norm_eps)
{
    struct run run;
    tokens keys;
    triangle kk, minus_L;
    float decay[RUN];
    const ulong hk = get_group_id(0) % H;
    const struct gdn_chunk chunk = gdn_chunk(get_group_id(0) / H, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const ulong b = chunk.batch, t = chunk.token;
    if (chunk.rows == 0)
        return;
    run.rows = chunk.rows;
    run.padded = ROUND_UP(run.rows, RB);
    TOKENS_LOAD_FROM(T_K, keys, run.rows, ROW3(k, b, t, hk), k_at.z, l2norm_eps, 1);
    tokens_products(kk, run.padded, keys, keys);
#if HAS_K_OUT
    NORMALISE(T_K, T_K_OUT, ROW3(k_out, b, t, hk), k_out_at.z, ROW3(k, b, t, hk), k_at.z, run.rows, l2norm_eps)
#endif
#if HAS_Q_OUT
    NORMALISE(T_Q, T_Q_OUT, ROW3(q_out, b, t, hk), q_out_at.z, ROW3(q, b, t, hk), q_at.z, run.rows, l2norm_eps)
#endif
    for (ulong hv = hk * (HV / H); hv < (hk + 1) * (HV / H); hv++) {
        float2 sum = (float2)(0);
        for (uint i = 0; i < RUN; i++) {
            const ulong token = t + min(i, run.rows - 1);
            decay[i] = log_gate(LD(T_GATE, ROW2(gate, b, token), hv), A_log + A_log_at.x, dt_bias + dt_bias_at.x, hv);
            run.beta[i] = i < run.rows ? beta_value(LD(T_BETA, ROW2(beta, b, token), hv)) : 0.0f;
        }
        for (uint i = 0; i < run.rows; i++) {
            sum = sum_add(sum, decay[i]);
            ROW2(g, b, t + i)[hv] = GATE_PAIR(sum);
#if HAS_BETA_OUT
            ROW2(beta_out, b, t + i)[hv] = run.beta[i];
#endif
        }
        run_decays(&run, decay);
        run_make_L(minus_L, &run, kk);
        for (uint p = 0; p < PANELS(CHUNK); p++)
            write_inverse(ROW3(A, b, t, hv), A_at.z, &run, minus_L, p);
    }
}
