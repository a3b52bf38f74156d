/* SPDX-License-Identifier: MIT */
/*
 * recompute_w_u on any device: per chunk of 64 tokens and per head
 *     u = A @ (v * beta)        w = A @ (k * beta * exp(g))
 * (Yang, Kautz, Hatamizadeh: "Gated Delta Networks", 2024; recompute_w_u of flash-linear-attention.)
 *
 * Layout    k [B][T][H][K], v [B][T][HV][V], beta and g [B][T][HV], A [B][T][HV][64]; out w [B][T][HV][K] and
 *           u [B][T][HV][V]. Head hv reads k of head hv / (HV/H).
 * Variants  plain: an item computes one element of w or u; no local memory, any group size.
 *           tile:  a group computes 64 rows by 4*TX columns of w or u (tile.cl), scaling the columns of A.
 * Launch    plain: B*NT * HV * 64 * (K+V) items, rounded up to whole groups.
 *           tile:  B*NT * HV * (ceil(K / (4*TX)) + ceil(V / (4*TX))) groups of TX * 64/MR items.
 * Traffic   tile: k, v, w, u once, A once a group, from the cache but for the first; 9 + TX/2 KB of local memory.
 * Numerics  f32 sums over the chunk's tokens. Rows and columns past a short chunk's end are not used; what stands above
 *           A's diagonal counts as given, unless A_IS_LOWER (plain).
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
#include "tile.cl"

#define WU_ARGS                                                                                                        \
    IN(T_K, k), IN(T_V, v), IN(f32, beta), IN(T_A, A), IN(T_G, g), IN(i32, cu_seqlens), OUT(T_W, w), OUT(T_U, u),      \
        GDN_SIZES

/* ---- plain ---- */

__kernel void recompute_w_u_plain(WU_ARGS)
{
    const ulong id = get_global_id(0), hv = id / (K + V) % HV, row = id / (K + V) / HV;
    if (row / CHUNK >= B * NT)
        return;
    const struct gdn_chunk chunk = gdn_chunk(row / CHUNK, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const uint i = row % CHUNK, column = id % (K + V);
    if (i >= chunk.rows)
        return;
    const ulong b = chunk.batch, t = chunk.token, hk = hv / (HV / H);
    __global const ELEM(T_A) *a = ROW3(A, b, t + i, hv);
    const uint depth = A_IS_LOWER ? i + 1 : chunk.rows;
    float sum = 0;
    for (uint j = 0; j < depth; j++) {
        const float x = LD(T_A, a, j) * ROW2(beta, b, t + j)[hv];
        if (column < K)
            sum += x * exp(GATE_SUM(ROW2(g, b, t + j)[hv])) * LD(T_K, ROW3(k, b, t + j, hk), column);
        else
            sum += x * LD(T_V, ROW3(v, b, t + j, hv), column - K);
    }
    if (column < K)
        ST(T_W, ROW3(w, b, t + i, hv), column, sum);
    else
        ST(T_U, ROW3(u, b, t + i, hv), column - K, sum);
}



#define TILES(width) (((width) + COLUMNS - 1) / COLUMNS)

GROUP_SIZE(TILE_ITEMS) __kernel void recompute_w_u_tile(WU_ARGS)
{
    TILE_LOCAL(left, CHUNK * TILE_PITCH(DEPTH));
    TILE_LOCAL(right, DEPTH * COLUMNS);
    TILE_LOCAL(scale, CHUNK);

    const uint tiles = TILES(K) + TILES(V), tile = (uint)(get_group_id(0) % tiles);
    const ulong piece = get_group_id(0) / tiles, hv = piece % HV, hk = hv / (HV / H);
    const struct gdn_chunk chunk = gdn_chunk(piece / HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const ulong b = chunk.batch, t = chunk.token;
    const int rows = (int)chunk.rows;
    const bool is_w = tile < TILES(K);
    const uint column = (is_w ? tile : tile - TILES(K)) * COLUMNS;

    for (uint j = tile_item(); j < CHUNK; j += TILE_ITEMS) {
        scale[j] = 0;
        if ((int)j < rows)
            scale[j] = ROW2(beta, b, t + j)[hv] * (is_w ? exp(GATE_SUM(ROW2(g, b, t + j)[hv])) : 1.0f);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float4 acc[MR];
    tile_zero(acc);
    for (int d = 0; d < rows; d += DEPTH) {
        TILE_STAGE(T_A, left, TILE_PITCH(DEPTH), CHUNK, DEPTH, ROW3(A, b, t, hv) + d, A_at.z, rows, rows - d,
                   x * *(__local const float4 *)(scale + d + c))
        if (is_w) {
            TILE_STAGE(T_K, right, COLUMNS, DEPTH, COLUMNS, ROW3(k, b, t + d, hk) + column, k_at.z, rows - d,
                       K - column, x)
        } else {
            TILE_STAGE(T_V, right, COLUMNS, DEPTH, COLUMNS, ROW3(v, b, t + d, hv) + column, v_at.z, rows - d,
                       V - column, x)
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        tile_multiply(acc, left, TILE_PITCH(DEPTH), right, COLUMNS, DEPTH);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const uint c = column + 4 * tile_x();
    _Pragma("unroll") for (uint r = 0; r < MR; r++) {
        const uint i = TILE_ROW(r);
        if ((int)i < rows && is_w)
            TILE_STORE(T_W, ROW3(w, b, t + i, hv) + c, acc[r], K - (int)c);
        else if ((int)i < rows)
            TILE_STORE(T_U, ROW3(u, b, t + i, hv) + c, acc[r], V - (int)c);
    }
}
