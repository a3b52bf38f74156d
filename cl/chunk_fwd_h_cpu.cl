/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_h for CPUs; chunk_fwd_h.cl says what it computes.
 *
 * A work-item takes a slice of a state's panels of columns through one sequence. Per chunk it packs w (negated) and k
 * once for all its panels; the panels of the state stay in private memory: 4*K*V/slices bytes, in the second-level
 * cache.
 * Parameters VL, RB, NC as cpu_panel.cl has them; RB divides 64.
 * Launch     groups of one, sequences * HV * slices of them, for any number of slices.
 * Traffic    u, v_new, h once; w and k once a slice.
 */
#include "common.cl"

#ifndef K
#define K 128
#define V 128
#define T_K f32
#define T_W f32
#define T_U f32
#define T_H f32
#define T_V_NEW f32
#define HAS_INITIAL_STATE 1
#define HAS_FINAL_STATE 1
#endif

#include "gdn.cl"
#include "cpu_panel.cl"

#define KPAD ROUND_UP(K, PANEL)
#define K_ROW (KPAD + 16) /* a cache line more, or a column of k would lie in few sets of the cache */

/* x = u - w @ S for one panel of columns; v_new gets it. Rows past `rows` of x are not set. */
static inline void new_values(VFLOAT (*x)[NC], const float *minus_w, const VFLOAT (*S)[NC],
                              __global const ELEM(T_U) *u, ulong u_stride, __global ELEM(T_V_NEW) *v_new,
                              ulong v_stride, uint rows, uint columns)
{
    for (uint i = 0; i < rows; i += RB) {
        VFLOAT acc[RB][NC];
        for (uint r = i; r < min(i + RB, rows); r++)
            PANEL_LOAD(T_U, x[r], u + r * u_stride, columns);
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                acc[r][n] = x[i + r][n];
        block_multiply(acc, minus_w + i * KPAD, KPAD, 1, S, K);
        BLOCK_STORE(T_V_NEW, v_new + i * v_stride, v_stride, acc, rows - i, columns);
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                x[i + r][n] = acc[r][n];
    }
}

/* h = S;  S = left * S + k^T @ x for one panel of columns. */
static inline void advance_state(VFLOAT (*S)[NC], float left, const float *keys, const VFLOAT (*x)[NC],
                                 __global ELEM(T_H) *h, uint rows, uint columns)
{
    for (uint d = 0; d < K; d += RB) {
        VFLOAT acc[RB][NC];
        for (uint r = d; r < min(d + RB, (uint)K); r++)
            PANEL_STORE(T_H, h + r * V, S[r], columns);
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                acc[r][n] = S[d + r][n] * left;
        block_multiply(acc, keys + d, 1, K_ROW, x, rows);
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                S[d + r][n] = acc[r][n];
    }
}

WIDE GROUP_SIZE(1) __kernel void chunk_fwd_h_cpu(
    IN(T_K, k), IN(T_W, w), IN(T_U, u), IN(T_G, g), IN(f32, initial_state), IN(i32, cu_seqlens), OUT(T_H, h),
    OUT(T_V_NEW, v_new), OUT(f32, final_state), GDN_SIZES)
{
    VFLOAT S[PANELS(V)][KPAD][NC], x[CHUNK][NC];
    float minus_w[CHUNK * KPAD], keys[CHUNK * K_ROW];

    const ulong slices = get_num_groups(0) / ((HAS_CU_SEQLENS ? N : B) * HV);
    const ulong slice = get_group_id(0) % slices, head = get_group_id(0) / slices, hv = head % HV, hk = hv / (HV / H);
    const struct gdn_sequence seq = gdn_sequence(head / HV, cu_seqlens + cu_seqlens_at.x, T);
    const uint begin = (uint)(PANELS(V) * slice / slices), end = (uint)(PANELS(V) * (slice + 1) / slices);
    const ulong b = seq.batch;

    for (uint p = begin; p < end; p++)
        for (uint d = 0; d < KPAD; d++) {
            UNROLL for (uint n = 0; n < NC; n++)
                S[p][d][n] = 0;
#if HAS_INITIAL_STATE
            if (d < K)
                PANEL_LOAD(f32, S[p][d], ROW3(initial_state, head / HV, hv, d) + p * PANEL, PANEL_LEFT(V, p * PANEL));
#endif
        }
    for (ulong t = seq.begin, c = seq.first_chunk; t < seq.end; t += CHUNK, c++) {
        const uint rows = (uint)min(seq.end - t, (ulong)CHUNK);
        const ELEM(T_G) last = ROW2(g, b, t + rows - 1)[hv];
        for (uint i = 0; i < ROUND_UP(rows, RB); i++) {
            const ulong token = t + min(i, rows - 1);
            ROW_PACK(T_W, minus_w + i * KPAD, ROW3(w, b, token, hv), K, -1.0f);
            ROW_PACK(T_K, keys + i * K_ROW, ROW3(k, b, token, hk), K, exp(GATE_SUM(last - ROW2(g, b, token)[hv])));
        }
        for (uint p = begin; p < end; p++) {
            const uint column = p * PANEL;
            for (uint i = CHUNK * (p - begin) / (end - begin); i < CHUNK * (p + 1 - begin) / (end - begin); i++)
                if (t + CHUNK + i < seq.end) { /* each panel asks for its share of the next chunk */
                    ROW_PREFETCH(ROW3(w, b, t + CHUNK + i, hv), K);
                    ROW_PREFETCH(ROW3(k, b, t + CHUNK + i, hk), K);
                    ROW_PREFETCH(ROW3(u, b, t + CHUNK + i, hv) + begin * PANEL, (end - begin) * PANEL);
                }
            new_values(x, minus_w, S[p], ROW3(u, b, t, hv) + column, u_at.z, ROW3(v_new, b, t, hv) + column, v_new_at.z,
                       rows, PANEL_LEFT(V, column));
            advance_state(S[p], exp(GATE_SUM(last)), keys, x, ROW3(h, b, c, hv) + column, rows, PANEL_LEFT(V, column));
        }
    }
#if HAS_FINAL_STATE
    for (uint p = begin; p < end; p++)
        for (uint d = 0; d < K; d++)
            PANEL_STORE(f32, ROW3(final_state, head / HV, hv, d) + p * PANEL, S[p][d], PANEL_LEFT(V, p * PANEL));
#endif
}
