/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_o on any device: per chunk of 64 tokens and per head
 *     o = scale * ( (q @ h) * exp(g) + [i >= j] (q @ k^T * exp(g_i - g_j)) @ v_new )
 * (Yang, Kautz, Hatamizadeh: "Gated Delta Networks", 2024; chunk_fwd_o of flash-linear-attention.)
 *
 * Layout    q and k [B][T][H][K], v_new and o [B][T][HV][V], h [B][NT][HV][K][V], g [B][T][HV]. Head hv reads q and k
 *           of head hv / (HV/H).
 * Variants  plain: an item computes one row of o, its scores in private memory; any group size.
 *           tile:  a group computes 64 rows by NB*64 columns (tile.cl); the scores go through local memory.
 * Launch    plain: B*NT * 64 * HV items, rounded up to whole groups.
 *           tile:  B*NT * HV * ceil(V / (NB*64)) groups of 16 * 64/MR items.
 * Traffic   v_new, h and o once; q and k once for each group of columns. tile: 18 + 8*NB KB of local memory.
 * Numerics  f32 sums. The mask acts before exp, and gate differences are taken before exp: gates of any steepness stay
 *           finite. Rows past a short chunk's end are never read.
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

#ifndef NB
#define NB 1
#endif
#define TX 16 /* as many columns as a chunk has tokens */

#include "gdn.cl"
#include "tile.cl"

#define FWD_O_ARGS                                                                                                     \
    IN(T_Q, q), IN(T_K, k), IN(T_V_NEW, v_new), IN(T_H, h), IN(T_G, g), IN(i32, cu_seqlens), OUT(T_O, o), GDN_SIZES,   \
        const float scale

/* ---- plain ---- */

__kernel void chunk_fwd_o_plain(FWD_O_ARGS)
{
    const ulong id = get_global_id(0), hv = id % HV, c = id / HV / CHUNK, hk = hv / (HV / H);
    const uint i = id / HV % CHUNK;
    if (c >= B * NT)
        return;
    const struct gdn_chunk chunk = gdn_chunk(c, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    if (i >= chunk.rows)
        return;
    const ulong b = chunk.batch, t = chunk.token;
    __global const ELEM(T_Q) *query = ROW3(q, b, t + i, hk);
    __global const ELEM(T_H) *state = ROW3(h, b, chunk.index, hv);
    const ELEM(T_G) gate = ROW2(g, b, t + i)[hv];
    const float up = exp(GATE_SUM(gate));
    float score[CHUNK];
    for (uint j = 0; j <= i; j++) {
        __global const ELEM(T_K) *key = ROW3(k, b, t + j, hk);
        float sum = 0;
        for (uint d = 0; d < K; d++)
            sum += LD(T_Q, query, d) * LD(T_K, key, d);
        score[j] = sum * exp(GATE_SUM(gate - ROW2(g, b, t + j)[hv]));
    }
    for (uint column = 0; column < V; column++) {
        float sum = 0;
        for (uint d = 0; d < K; d++)
            sum += LD(T_Q, query, d) * LD(T_H, state, d * V + column);
        sum *= up;
        for (uint j = 0; j <= i; j++)
            sum += score[j] * LD(T_V_NEW, ROW3(v_new, b, t + j, hv), column);
        ST(T_O, ROW3(o, b, t + i, hv), column, sum * scale);
    }
}

/* ---- tile ---- */

#define WIDTH (NB * COLUMNS)
#define TILES ((V + WIDTH - 1) / WIDTH)
#define SCORES TILE_PITCH(CHUNK)

/* One score, decayed; the mask acts before exp. */
static inline float decayed(float score, __local const ELEM(T_G) *gate, int i, int j, int rows)
{
    return j <= i && i < rows ? score * exp(GATE_SUM(gate[i] - gate[j])) : 0.0f;
}

/* The item's scores, of columns x, x + TX and so on (tile_multiply_nt). */
static inline void store_scores(__local float *scores, const float4 score[MR], __local const ELEM(T_G) *gate, int rows)
{
    const int j = (int)tile_x();
    _Pragma("unroll") for (uint r = 0; r < MR; r++) {
        const int i = (int)TILE_ROW(r);
        __local float *row = scores + i * SCORES + j;
        row[0] = decayed(score[r].x, gate, i, j, rows);
        row[TX] = decayed(score[r].y, gate, i, j + TX, rows);
        row[2 * TX] = decayed(score[r].z, gate, i, j + 2 * TX, rows);
        row[3 * TX] = decayed(score[r].w, gate, i, j + 3 * TX, rows);
    }
}

GROUP_SIZE(TILE_ITEMS) __kernel void chunk_fwd_o_tile(FWD_O_ARGS)
{
    TILE_LOCAL(left, 2 * CHUNK * TILE_PITCH(DEPTH)); /* q and k, then the scores */
    TILE_LOCAL(right, DEPTH * WIDTH);                /* h, then v_new */
    __local ELEM(T_G) gate[CHUNK];
    __local float *keys = left + CHUNK * TILE_PITCH(DEPTH);

    const ulong piece = get_group_id(0) / TILES, hv = piece % HV, hk = hv / (HV / H);
    const struct gdn_chunk chunk = gdn_chunk(piece / HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const ulong b = chunk.batch, t = chunk.token;
    const int rows = (int)chunk.rows, column = (int)(get_group_id(0) % TILES) * WIDTH;
    float4 score[MR], acc[NB][MR];

    for (int i = (int)tile_item(); i < rows; i += TILE_ITEMS)
        gate[i] = ROW2(g, b, t + i)[hv];
    tile_zero(score);
    _Pragma("unroll") for (uint n = 0; n < NB; n++)
        tile_zero(acc[n]);
    for (int d = 0; d < K && rows > 0; d += DEPTH) {
        TILE_STAGE(T_Q, left, TILE_PITCH(DEPTH), CHUNK, DEPTH, ROW3(q, b, t, hk) + d, q_at.z, rows, K - d, x)
        TILE_STAGE(T_K, keys, TILE_PITCH(DEPTH), CHUNK, DEPTH, ROW3(k, b, t, hk) + d, k_at.z, rows, K - d, x)
        TILE_STAGE(T_H, right, WIDTH, DEPTH, WIDTH, ROW3(h, b, chunk.index, hv) + d * V + column, V, K - d, V - column,
                   x)
        barrier(CLK_LOCAL_MEM_FENCE);
        tile_multiply_nt(score, left, TILE_PITCH(DEPTH), keys, TILE_PITCH(DEPTH), DEPTH);
        _Pragma("unroll") for (uint n = 0; n < NB; n++)
            tile_multiply(acc[n], left, TILE_PITCH(DEPTH), right + n * COLUMNS, WIDTH, DEPTH);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    store_scores(left, score, gate, rows);
    _Pragma("unroll") for (uint r = 0; r < MR; r++)
        _Pragma("unroll") for (uint n = 0; n < NB; n++)
            acc[n][r] *= (int)TILE_ROW(r) < rows ? exp(GATE_SUM(gate[TILE_ROW(r)])) : 0.0f;
    for (int j = 0; j < rows; j += DEPTH) {
        TILE_STAGE(T_V_NEW, right, WIDTH, DEPTH, WIDTH, ROW3(v_new, b, t + j, hv) + column, v_new_at.z, rows - j,
                   V - column, x)
        barrier(CLK_LOCAL_MEM_FENCE);
        _Pragma("unroll") for (uint n = 0; n < NB; n++)
            tile_multiply(acc[n], left + j, SCORES, right + n * COLUMNS, WIDTH, DEPTH);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    _Pragma("unroll") for (uint r = 0; r < MR; r++)
        _Pragma("unroll") for (uint n = 0; n < NB; n++) {
            const int i = (int)TILE_ROW(r), c = column + (int)n * COLUMNS + 4 * (int)tile_x();
            if (i < rows)
                TILE_STORE(T_O, ROW3(o, b, t + i, hv) + c, acc[n][r] * scale, V - c);
        }
}
