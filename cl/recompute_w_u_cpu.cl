/* SPDX-License-Identifier: MIT */
/*
 * recompute_w_u for CPUs; recompute_w_u.cl says what it computes.
 *
 * A work-item takes a slice of the panels of columns of w and u (w's first) of one chunk and head. It packs A and the
 * scaled rows of k and v, row by row as they lie in memory, then computes RB rows of all its panels at a time, so that
 * outputs too are written row by row.
 * Parameters VL, RB, NC as cpu_panel.cl has them; RB divides 64.
 * Launch     groups of one, B*NT * HV * slices of them, for any number of slices.
 * Traffic    k, v, w, u once, A once a slice.
 * Numerics   of what stands above A's diagonal, if A_IS_LOWER, only what shares RB rows with the diagonal is read.
 */
#include "common.cl"

#ifndef K
#define K 128
#define V 128
#define T_K f32
#define T_V f32
#define T_A f32
#define T_W f32
#define T_U f32
#define A_IS_LOWER 0
#endif

#include "gdn.cl"
#include "cpu_panel.cl"

/* Packs row j of a panel: the next `columns` elements at p, times `scale`. */
#define PACK(T, row, p, columns, scale)                                                                                \
    do {                                                                                                               \
        PANEL_LOAD(T, row, p, columns);                                                                                \
        UNROLL for (uint n_ = 0; n_ < NC; n_++)                                                                        \
            (row)[n_] *= scale;                                                                                        \
    } while (0)

WIDE GROUP_SIZE(1) __kernel void recompute_w_u_cpu(
    IN(T_K, k), IN(T_V, v), IN(f32, beta), IN(T_A, A), IN(T_G, g), IN(i32, cu_seqlens), OUT(T_W, w), OUT(T_U, u),
    GDN_SIZES)
{
    float a[CHUNK * CHUNK];
    VFLOAT panel[PANELS(K) + PANELS(V)][CHUNK][NC];

    const uint panels = PANELS(K) + PANELS(V);
    const ulong slices = get_num_groups(0) / (B * NT * HV);
    const ulong slice = get_group_id(0) % slices, piece = get_group_id(0) / slices, hv = piece % HV, hk = hv / (HV / H);
    const struct gdn_chunk chunk = gdn_chunk(piece / HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const ulong b = chunk.batch, t = chunk.token;
    const uint rows = chunk.rows, begin = (uint)(panels * slice / slices), end = (uint)(panels * (slice + 1) / slices);

    for (uint j = 0; j < rows; j++) {
        const float scale_v = ROW2(beta, b, t + j)[hv], scale_k = scale_v * exp(GATE_SUM(ROW2(g, b, t + j)[hv]));
        ROW_PACK(T_A, a + j * CHUNK, ROW3(A, b, t + j, hv), CHUNK, 1.0f);
        for (uint p = begin; p < end; p++) {
            const uint c = (p < PANELS(K) ? p : p - PANELS(K)) * PANEL;
            if (p < PANELS(K))
                PACK(T_K, panel[p][j], ROW3(k, b, t + j, hk) + c, PANEL_LEFT(K, c), scale_k);
            else
                PACK(T_V, panel[p][j], ROW3(v, b, t + j, hv) + c, PANEL_LEFT(V, c), scale_v);
        }
    }
    for (uint i = 0; i < rows; i += RB) {
        for (uint r = i; r < min(i + RB, rows) && hv + 1 < HV; r++) { /* most likely the next group's */
            ROW_PREFETCH(ROW3(A, b, t + r, hv + 1), CHUNK);
            ROW_PREFETCH(ROW3(k, b, t + r, (hv + 1) / (HV / H)), K);
            ROW_PREFETCH(ROW3(v, b, t + r, hv + 1), V);
        }
        for (uint p = begin; p < end; p++) {
            const uint c = (p < PANELS(K) ? p : p - PANELS(K)) * PANEL;
            VFLOAT acc[RB][NC];
            block_zero(acc);
            block_multiply(acc, a + i * CHUNK, CHUNK, 1, panel[p], A_IS_LOWER ? min(i + RB, rows) : rows);
            if (p < PANELS(K))
                BLOCK_STORE(T_W, ROW3(w, b, t + i, hv) + c, w_at.z, acc, rows - i, PANEL_LEFT(K, c));
            else
                BLOCK_STORE(T_U, ROW3(u, b, t + i, hv) + c, u_at.z, acc, rows - i, PANEL_LEFT(V, c));
        }
    }
}
