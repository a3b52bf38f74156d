/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_h on any device: the recurrence of the gated delta rule over chunks of 64 tokens. Per sequence and head,
 * from a state S [K][V] (initial_state, or zero), for one chunk after the other
 *     h = S;   v_new = u - w @ S;   S = S * exp(g_last) + k^T @ (v_new * exp(g_last - g))
 * and final_state = S at the end. g_last is the chunk's last gate, at min(its end, T) - 1.
 * (Yang, Kautz, Hatamizadeh: "Gated Delta Networks", 2024; chunk_gated_delta_rule_fwd_h of flash-linear-attention.)
 *
 * Layout    k [B][T][H][K], w [B][T][HV][K], u and v_new [B][T][HV][V], g [B][T][HV], h [B][NT][HV][K][V], states
 *           [B or N][HV][K][V] f32. Head hv reads k of head hv / (HV/H).
 * Variants  plain: an item follows one column of a state through a sequence in private memory; any group size.
 *           tile:  a group follows 4*TX columns, kept in local memory (tile.cl).
 * Launch    plain: sequences * HV * V items, rounded up to whole groups.
 *           tile:  sequences * HV * ceil(V / (4*TX)) groups of TX * 64/MR items.
 * Traffic   u, v_new, h once; w and k once for each group of columns. tile: (K + 64) * TX/64 + 9 KB of local memory.
 * Numerics  f32 state and sums. Gate differences are taken before exp. Rows past a short chunk's end are never read.
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
#include "tile.cl"

#define SEQUENCES (HAS_CU_SEQLENS ? N : B)

#define FWD_H_ARGS                                                                                                     \
    IN(T_K, k), IN(T_W, w), IN(T_U, u), IN(T_G, g), IN(f32, initial_state), IN(i32, cu_seqlens), OUT(T_H, h),          \
        OUT(T_V_NEW, v_new), OUT(f32, final_state), GDN_SIZES

/* ---- plain ---- */

__kernel void chunk_fwd_h_plain(FWD_H_ARGS)
{
    const ulong id = get_global_id(0), hv = id / V % HV, s = id / V / HV, hk = hv / (HV / H);
    const uint column = id % V;
    if (s >= SEQUENCES)
        return;
    const struct gdn_sequence seq = gdn_sequence(s, cu_seqlens + cu_seqlens_at.x, T);
    const ulong b = seq.batch;
    float S[K], x[CHUNK];
    for (uint d = 0; d < K; d++)
        S[d] = HAS_INITIAL_STATE ? ROW3(initial_state, s, hv, d)[column] : 0.0f;
    for (ulong t = seq.begin, c = seq.first_chunk; t < seq.end; t += CHUNK, c++) {
        const uint rows = (uint)min(seq.end - t, (ulong)CHUNK);
        const ELEM(T_G) last = ROW2(g, b, t + rows - 1)[hv];
        for (uint i = 0; i < rows; i++) {
            __global const ELEM(T_W) *row = ROW3(w, b, t + i, hv);
            float sum = LD(T_U, ROW3(u, b, t + i, hv), column);
            for (uint d = 0; d < K; d++)
                sum -= LD(T_W, row, d) * S[d];
            ST(T_V_NEW, ROW3(v_new, b, t + i, hv), column, sum);
            x[i] = sum * exp(GATE_SUM(last - ROW2(g, b, t + i)[hv]));
        }
        for (uint d = 0; d < K; d++) {
            ST(T_H, ROW3(h, b, c, hv), d * V + column, S[d]);
            float sum = S[d] * exp(GATE_SUM(last));
            for (uint i = 0; i < rows; i++)
                sum += LD(T_K, ROW3(k, b, t + i, hk), d) * x[i];
            S[d] = sum;
        }
    }
#if HAS_FINAL_STATE
    for (uint d = 0; d < K; d++)
        ROW3(final_state, s, hv, d)[column] = S[d];
#endif
}

/* ---- tile ---- */

#define KPAD ((K + DEPTH - 1) / DEPTH * DEPTH)
#define TILES ((V + COLUMNS - 1) / COLUMNS)

/* acc = u - w @ S for a chunk of `rows` tokens, zero in the rows behind them. u stands at the item's columns, of which
 * `left` exist. */
static inline void new_values(float4 acc[MR], __local float *stage, __local const float *S, __global const ELEM(T_U) *u,
                              ulong u_stride, __global const ELEM(T_W) *w, ulong w_stride, int rows, int left)
{
    _Pragma("unroll") for (uint r = 0; r < MR; r++) {
        acc[r] = 0;
        if ((int)TILE_ROW(r) < rows)
            acc[r] = TILE_LOAD(T_U, u + TILE_ROW(r) * u_stride, left);
    }
    for (int d = 0; d < K; d += DEPTH) {
        TILE_STAGE(T_W, stage, TILE_PITCH(DEPTH), CHUNK, DEPTH, w + d, w_stride, rows, K - d, -x)
        barrier(CLK_LOCAL_MEM_FENCE);
        tile_multiply(acc, stage, TILE_PITCH(DEPTH), S + d * COLUMNS, COLUMNS, DEPTH);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* h = S, then S = decay * S + k^T @ values, CHUNK rows of S at a time. h stands at the item's columns. */
static inline void advance_state(__local float *S, float decay, __local float *stage, __local const float *values,
                                 __global ELEM(T_H) *h, __global const ELEM(T_K) *k, ulong k_stride, int rows, int left)
{
    float4 acc[MR];
    for (int d = 0; d < K; d += CHUNK) {
        _Pragma("unroll") for (uint r = 0; r < MR; r++) {
            const int i = d + (int)TILE_ROW_TN(r);
            acc[r] = 0;
            if (i < K) {
                acc[r] = *(__local const float4 *)(S + i * COLUMNS + 4 * tile_x());
                TILE_STORE(T_H, h + i * V, acc[r], left);
                acc[r] *= decay;
            }
        }
        for (int j = 0; j < rows; j += DEPTH) {
            TILE_STAGE(T_K, stage, CHUNK, DEPTH, CHUNK, k + j * k_stride + d, k_stride, rows - j, K - d, x)
            barrier(CLK_LOCAL_MEM_FENCE);
            tile_multiply_tn(acc, stage, CHUNK, values + j * COLUMNS, COLUMNS, DEPTH);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        _Pragma("unroll") for (uint r = 0; r < MR; r++)
            if (d + (int)TILE_ROW_TN(r) < K)
                *(__local float4 *)(S + (d + TILE_ROW_TN(r)) * COLUMNS + 4 * tile_x()) = acc[r];
    }
}

GROUP_SIZE(TILE_ITEMS) __kernel void chunk_fwd_h_tile(FWD_H_ARGS)
{
    TILE_LOCAL(S, KPAD * COLUMNS);
    TILE_LOCAL(values, CHUNK * COLUMNS);
    TILE_LOCAL(stage, CHUNK * TILE_PITCH(DEPTH)); /* w: tokens by DEPTH; k: DEPTH tokens by CHUNK */

    const ulong state = get_group_id(0) / TILES, hv = state % HV, s = state / HV, hk = hv / (HV / H);
    const struct gdn_sequence seq = gdn_sequence(s, cu_seqlens + cu_seqlens_at.x, T);
    const ulong b = seq.batch;
    const int column = (int)(get_group_id(0) % TILES * COLUMNS), mine = column + 4 * (int)tile_x();

#if HAS_INITIAL_STATE
    TILE_STAGE(f32, S, COLUMNS, KPAD, COLUMNS, ROW3(initial_state, s, hv, 0) + column, initial_state_at.w, K,
               V - column, x)
#else
    for (uint e = tile_item(); e < KPAD * COLUMNS; e += TILE_ITEMS)
        S[e] = 0;
#endif
    barrier(CLK_LOCAL_MEM_FENCE); /* a sequence without chunks has no other before its final state */
    for (ulong t = seq.begin, n = seq.first_chunk; t < seq.end; t += CHUNK, n++) {
        const int rows = (int)min(seq.end - t, (ulong)CHUNK);
        const ELEM(T_G) last = ROW2(g, b, t + rows - 1)[hv];
        float4 acc[MR];
        new_values(acc, stage, S, ROW3(u, b, t, hv) + mine, u_at.z, ROW3(w, b, t, hv), w_at.z, rows, V - mine);
        _Pragma("unroll") for (uint r = 0; r < MR; r++) {
            const uint i = TILE_ROW(r);
            if ((int)i < rows) {
                TILE_STORE(T_V_NEW, ROW3(v_new, b, t + i, hv) + mine, acc[r], V - mine);
                acc[r] *= exp(GATE_SUM(last - ROW2(g, b, t + i)[hv]));
            }
            *(__local float4 *)(values + i * COLUMNS + 4 * tile_x()) = acc[r];
        }
        advance_state(S, exp(GATE_SUM(last)), stage, values, ROW3(h, b, n, hv) + mine, ROW3(k, b, t, hk), k_at.z, rows,
                      V - mine);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#if HAS_FINAL_STATE
    for (uint e = tile_item(); e < K * TX; e += TILE_ITEMS) {
        const int i = (int)(e / TX), c = 4 * (int)(e % TX);
        TILE_STORE(f32, ROW3(final_state, s, hv, i) + column + c, *(__local const float4 *)(S + i * COLUMNS + c),
                   V - column - c);
    }
#endif
}
