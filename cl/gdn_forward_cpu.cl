/* SPDX-License-Identifier: MIT */
/*
 * gdn_forward for CPUs, fused: per sequence and head, over runs of RUN tokens,
 *     x = (I + L)^-1 (beta (v - exp(g) (k @ S)))                  L as in gdn_prepare.cl, over the run
 *     o = scale * (exp(g) (q @ S) + [i>=j] (q @ k^T * exp(g_i - g_j)) @ x)
 *     S = exp(g_last) S + k^T @ (x * exp(g_last - g))
 * which is the chunked form with A never made: A @ (v*beta) - (A @ (k*beta*exp(g))) @ S is one triangular solve. That
 * saves w, u and the inverse, and leaves the length of a run free: it costs 3KV + RUN*(K+V) multiply-adds a token, so
 * short runs win until the state is loaded and stored too often.
 *
 * Layout    q, k [B][T][H][K], v, o [B][T][HV][V], g, beta [B][T][HV], states [B or N][HV][K][V] f32. Head hv reads
 *           q and k of head hv / (HV/H).
 * Parameters RUN tokens at a time; VL, RB, NC as cpu_panel.cl has them.
 * Launch    a work-item takes a slice of a state's panels of columns through one sequence: groups of one,
 *           sequences * HV * slices of them, for any number of slices.
 * Traffic   everything once; q and k once a slice. A state stays in private memory: K * V/slices floats, and RUN rows
 *           of q and k beside it.
 * Numerics  f32. Tokens past a short run's end are not read and count as zero.
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
#define HAS_INITIAL_STATE 1
#define HAS_FINAL_STATE 1
#endif
#ifndef HAS_CU_SEQLENS
#define HAS_CU_SEQLENS 0
#endif
#ifndef RUN
#define RUN 16
#endif

#include "gdn.cl"
#include "gdn_cpu.cl"

/* One panel of columns of a state, and the run's new values against it. */
typedef VFLOAT state_panel[KPAD][NC];

/* x = (I + L)^-1 (beta (v - exp(g) (k @ S))) for one panel of columns; v stands at its first column. */
static inline void solve_values(VFLOAT (*x)[NC], triangle minus_L, const struct run *run, tokens keys, state_panel S,
                                __global const ELEM(T_V) *v, ulong stride, uint columns)
{
    for (uint i = 0; i < run->padded; i += RB) {
        VFLOAT acc[RB][NC];
        block_zero(acc);
        tokens_multiply(acc, keys, i, S);
        UNROLL for (uint r = 0; r < RB; r++) {
            VFLOAT value[NC];
            if (i + r < run->rows)
                PANEL_LOAD(T_V, value, v + (i + r) * stride, columns);
            UNROLL for (uint n = 0; n < NC; n++)
                acc[r][n] = i + r < run->rows ? run->beta[i + r] * (value[n] - run->up[i + r] * acc[r][n])
                                              : (VFLOAT)(0);
        }
        triangle_solve(acc, minus_L, i, x, 0);
    }
}

/* o = exp(g) (q @ S) + scores @ x */
static inline void write_outputs(__global ELEM(T_O) *o, ulong stride, uint columns, const struct run *run,
                                 tokens queries, state_panel S, triangle scores, const VFLOAT (*x)[NC])
{
    for (uint i = 0; i < run->padded; i += RB) {
        VFLOAT acc[RB][NC];
        block_zero(acc);
        tokens_multiply(acc, queries, i, S);
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                acc[r][n] *= run->up[i + r];
        triangle_multiply(acc, scores, i, x, 0, i + RB);
        UNROLL for (uint r = 0; r < RB; r++)
            if (i + r < run->rows)
                PANEL_STORE(T_O, o + (i + r) * stride, acc[r], columns);
    }
}

/* S = exp(g_last) S + k^T @ (x * exp(g_last - g)); x is overwritten. */
static inline void advance_state(state_panel S, const struct run *run, tokens keys, VFLOAT (*x)[NC])
{
    const float left = run->up[run->padded - 1];
    for (uint i = 0; i < run->padded; i++)
        UNROLL for (uint n = 0; n < NC; n++)
            x[i][n] *= run->down[i];
    for (uint d = 0; d < K; d += RB) {
        VFLOAT acc[RB][NC];
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                acc[r][n] = S[d + r][n] * left;
        for (uint p = 0; p * PANEL < run->padded; p++)
            block_multiply(acc, (const float *)keys[p][d], PANEL, 1, x + p * PANEL,
                           min(run->padded - p * PANEL, (uint)PANEL));
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                S[d + r][n] = acc[r][n];
    }
}

WIDE GROUP_SIZE(1) __kernel void gdn_forward_cpu(
    IN(T_Q, q), IN(T_K, k), IN(T_V, v), IN(T_G, g), IN(T_BETA, beta), IN(f32, A_log), IN(f32, dt_bias),
    IN(f32, initial_state), IN(i32, cu_seqlens), OUT(T_O, o), OUT(f32, final_state), GDN_SIZES, const float l2norm_eps,
    const float scale)
{
    struct run run;
    tokens keys, queries;
    triangle products, minus_L;
    float gate[RUN];
    state_panel S[PANELS(V)];
    VFLOAT x[RUN][NC];

    const ulong slices = get_num_groups(0) / ((HAS_CU_SEQLENS ? N : B) * HV);
    const ulong slice = get_group_id(0) % slices, head = get_group_id(0) / slices, hv = head % HV, hk = hv / (HV / H);
    const struct gdn_sequence seq = gdn_sequence(head / HV, cu_seqlens + cu_seqlens_at.x, T);
    const uint begin = (uint)(PANELS(V) * slice / slices), end = (uint)(PANELS(V) * (slice + 1) / slices);

    for (uint p = begin; p < end; p++)
        for (uint d = 0; d < KPAD; d++) {
            UNROLL for (uint n = 0; n < NC; n++)
                S[p][d][n] = 0;
#if HAS_INITIAL_STATE
            if (d < K)
                PANEL_LOAD(f32, S[p][d], ROW3(initial_state, head / HV, hv, d) + p * PANEL, V - p * PANEL);
#endif
        }
    for (ulong t = seq.begin; t < seq.end; t += RUN) {
        run.rows = (uint)min(seq.end - t, (ulong)RUN);
        run.padded = ROUND_UP(run.rows, RB);
        for (uint i = 0; i < RUN; i++) {
            const ulong token = t + min(i, run.rows - 1);
            gate[i] = log_gate(LD(T_G, ROW2(g, seq.batch, token), hv), A_log + A_log_at.x, dt_bias + dt_bias_at.x, hv);
            run.beta[i] = i < run.rows ? beta_value(LD(T_BETA, ROW2(beta, seq.batch, token), hv)) : 0.0f;
        }
        run_decays(&run, gate);
        TOKENS_LOAD_FROM(T_K, keys, run.rows, ROW3(k, seq.batch, t, hk), k_at.z, l2norm_eps, 1);
        TOKENS_LOAD_FROM(T_Q, queries, run.rows, ROW3(q, seq.batch, t, hk), q_at.z, l2norm_eps, scale);
        tokens_products(products, run.padded, keys, keys);
        run_make_L(minus_L, &run, products);
        tokens_products(products, run.padded, queries, keys);
        run_make_scores(products, &run);
        for (uint p = begin; p < end; p++) {
            const uint c = p * PANEL;
            solve_values(x, minus_L, &run, keys, S[p], ROW3(v, seq.batch, t, hv) + c, v_at.z, V - c);
            write_outputs(ROW3(o, seq.batch, t, hv) + c, o_at.z, V - c, &run, queries, S[p], products, x);
            advance_state(S[p], &run, keys, x);
        }
    }
#if HAS_FINAL_STATE
    for (uint p = begin; p < end; p++)
        for (uint d = 0; d < K; d++)
            PANEL_STORE(f32, ROW3(final_state, head / HV, hv, d) + p * PANEL, S[p][d], V - p * PANEL);
#endif
}
