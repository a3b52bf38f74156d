/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_o for CPUs; chunk_fwd_o.cl says what it computes.
 *
 * A work-item takes a slice of the panels of columns of one chunk and head. It packs q and k and computes the scores
 * once, then per panel the products with the state and, below the diagonal only, with v_new.
 * Parameters VL, RB, NC as cpu_panel.cl has them; RB divides PANEL.
 * Launch     groups of one, B*NT * HV * slices of them, for any number of slices.
 * Traffic    v_new, h and o once; q and k once a slice.
 */
#include "common.cl"

#ifndef K
#define K 128
#define V 128
#define T_Q f32
#define T_K f32
#define T_V_NEW f32
#define T_H f32
#define T_O f32
#endif

#define RUN 64 /* WD_GDN_CHUNK */
#include "gdn.cl"
#include "gdn_cpu.cl"

/* Fills up and decay from a chunk's sums of gates, a float and what it rounds off. */
static inline void chunk_decays(struct run *run, const float g[CHUNK], const float rest[CHUNK])
{
    for (uint i = 0; i < run->padded; i++) {
        run->up[i] = exp(g[i] + rest[i]);
        for (uint p = 0; p <= i / PANEL; p++)
            UNROLL for (uint n = 0; n < NC; n++) {
                const uint j = p * PANEL + n * VL;
                const VFLOAT difference = (g[i] - CAT(vload, VL)(0, g + j)) + (rest[i] - CAT(vload, VL)(0, rest + j));
                run->decay[p][i][n] = exp(lanes_before(j, i + 1) ? difference : (VFLOAT)(0));
            }
    }
}

/* Packs a panel of columns of h and of v_new; rows of v_new past the chunk's end are zero. */
static inline void load_columns(VFLOAT (*S)[NC], VFLOAT (*x)[NC], __global const ELEM(T_H) *h,
                                __global const ELEM(T_V_NEW) *v_new, ulong stride, const struct run *run, uint columns)
{
    for (uint d = 0; d < K; d++)
        PANEL_LOAD(T_H, S[d], h + d * V, columns);
    for (uint j = 0; j < run->padded; j++)
        if (j < run->rows)
            PANEL_LOAD(T_V_NEW, x[j], v_new + j * stride, columns);
        else
            UNROLL for (uint n = 0; n < NC; n++)
                x[j][n] = 0;
}

/* o = exp(g) (q @ S) + scores @ x */
static inline void write_columns(__global ELEM(T_O) *o, ulong stride, uint columns, const struct run *run,
                                 tokens queries, const VFLOAT (*S)[NC], triangle scores, const VFLOAT (*x)[NC])
{
    for (uint i = 0; i < run->padded; i += RB) {
        VFLOAT acc[RB][NC];
        block_zero(acc);
        tokens_multiply(acc, queries, i, S);
        UNROLL for (uint r = 0; r < RB; r++)
            UNROLL for (uint n = 0; n < NC; n++)
                acc[r][n] *= run->up[i + r];
        triangle_multiply(acc, scores, i, x, 0, i + RB);
        BLOCK_STORE(T_O, o + i * stride, stride, acc, run->rows - i, columns);
    }
}

WIDE GROUP_SIZE(1) __kernel void chunk_fwd_o_cpu(
    IN(T_Q, q), IN(T_K, k), IN(T_V_NEW, v_new), IN(T_H, h), IN(T_G, g), IN(i32, cu_seqlens), OUT(T_O, o), GDN_SIZES,
    const float scale)
{
    struct run run;
    tokens queries, keys;
    triangle scores;
    VFLOAT S[KPAD][NC], x[CHUNK][NC];
    float gate[CHUNK], rest[CHUNK];

    const ulong slices = get_num_groups(0) / (B * NT * HV);
    const ulong slice = get_group_id(0) % slices, piece = get_group_id(0) / slices, hv = piece % HV, hk = hv / (HV / H);
    const struct gdn_chunk chunk = gdn_chunk(piece / HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const ulong b = chunk.batch, t = chunk.token;
    const uint begin = (uint)(PANELS(V) * slice / slices), end = (uint)(PANELS(V) * (slice + 1) / slices);
    if (chunk.rows == 0)
        return;

    run.rows = chunk.rows;
    run.padded = ROUND_UP(run.rows, RB);
    for (uint i = 0; i < CHUNK; i++) {
        const float2 sum = GATE_PARTS(ROW2(g, b, t + min(i, run.rows - 1))[hv]);
        gate[i] = sum.x;
        rest[i] = sum.y;
    }
    chunk_decays(&run, gate, rest);
    TOKENS_LOAD_FROM(T_Q, queries, run.rows, ROW3(q, b, t, hk), q_at.z, 0, scale);
    TOKENS_LOAD_FROM(T_K, keys, run.rows, ROW3(k, b, t, hk), k_at.z, 0, 1);
    tokens_products(scores, run.padded, queries, keys);
    run_make_scores(scores, &run);
    for (uint p = begin; p < end; p++) {
        const uint c = p * PANEL;
        load_columns(S, x, ROW3(h, b, chunk.index, hv) + c, ROW3(v_new, b, t, hv) + c, v_new_at.z, &run,
                     PANEL_LEFT(V, c));
        write_columns(ROW3(o, b, t, hv) + c, o_at.z, PANEL_LEFT(V, c), &run, queries, S, scores, x);
    }
}
