/* SPDX-License-Identifier: MIT */
/*
 * The first half of gdn_forward on Hopper's matrix engine: what chunks of 64 tokens need no state for. With A as
 * gdn_prepare.cl defines it, of each chunk and head
 *     inverse   T'_ij = A_ij * beta_j
 *     P         P_ij = scale * (q_i . k_j) * exp(g_i - g_j) for j <= i, stored transposed
 *     scales    of q scale * exp(g), of k exp(g_last - g), of k @ S exp(g), 64 of each, then exp(g_last)
 * for gdn_walk_wgmma.cl. With l2norm q and k stay as they are, and all three contain the factors that normalise them.
 *
 * Layout    q and k [B][T][H][K], gate and beta [B][T][HV]; out T' and P [B][NT][HV], each a panel of wgmma.cl, scales
 *           [B][NT][HV][196]. q, k, T' and P of one 16-bit type; K is 64 or 128.
 * Launch    B*NT * H * ceil(HV/H / 2) groups of 128 items: a group serves a chunk and two heads that share a head of k,
 *           the last of an odd number alone. Heads are neighbours, as in memory.
 * How       four warps make k k^T and k q^T, 16 rows each, of which row i holds column i of every L and of P. L and P of
 *           both heads go through local memory: P on to where it belongs, L into A as in gdn_prepare_mma.cl. Between
 *           tokens of different blocks of 16, exp(g_j - g_i) is a product: what is left of i when j's block begins, and
 *           of that at j. So few exponentials are made. Neither overflows: log gates are not positive.
 * Traffic   q and k once for two heads, outputs once. Local: 64 rows of q, which give way to P of both heads, and of k,
 *           which give way to L.
 * Numerics  as gdn_prepare_mma.cl's in 16 bits; P is rounded once. Tokens past a short chunk's end count as zero.
 */
#ifndef K
#define K 128
#define T_K bf16
#define T_Q bf16
#define T_GATE f32
#define T_BETA f32
#define T_INVERSE bf16
#define T_P bf16
#define L2NORM 1
#endif

#define MMA_TYPE T_K
#include "common.cl"
#include "gdn_keys_mma.cl"
#include "gdn_solve_mma.cl"
#include "wgmma.cl"

#define ITEMS WG_ITEMS
#define HEADS 2                       /* ITEMS / CHUNK */
#define TILE (K / WG_LINE * WG_PANEL) /* 64 rows of K */
#define K_STEPS (K / 16)
#define L_ROOM (CHUNK * L_PITCH / 8) /* in uint4 */
#define D_ROOM (D_SIZE / 4)
#define MORE(a, b) ((a) > (b) ? (a) : (b))

/* The factor that normalises a row of a tile. */
MMA_FN float tile_factor(__local const uint4 *tile, uint row, float eps)
{
    float sum = 0;
    for (uint h = 0; h < K / 8; h++) {
        float f[8];
        CAT(mma_read_, T_K)(f, (__local const ELEM(T_K) *)(tile + h / 8 * WG_PANEL + WG_AT(row, h % 8)));
        for (uint e = 0; e < 8; e++)
            sum += f[e] * f[e];
    }
    return row_factor(sum, eps);
}

/* Two neighbours, for rows i and i + 8. */
MMA_FN float4 pair(__local const float *x) { return (*(__local const float2 *)x).xyxy; }

/* exp(g_j - g_i) for tokens j and j + 1 and rows i and i + 8, where j >= i. */
MMA_FN float4 exactly(__local const float2 *gates, uint j, uint i)
{
    const float2 first = gates[j], second = gates[j + 1], low = gates[i], high = gates[i + 8];
    return (float4)(keep(j >= i, since(first, low)), keep(j + 1 >= i, since(second, low)),
                    keep(j >= i + 8, since(first, high)), keep(j + 1 >= i + 8, since(second, high)));
}

/* Stores a strip of T': rows i and i + 8. */
MMA_FN void store_strip(struct mma m, const float4 x[8], uint strip, __global ELEM(T_INVERSE) *panel, uint i,
                        __local const float *beta)
{
    MMA_UNROLL
    for (uint n = 0; n < BLOCKS; n++) {
        const uint at = (strip - n) % BLOCKS * BLOCK + 4 * m.col; /* past block 0 those above the diagonal */
        const float4 weight = n <= strip ? *(__local const float4 *)(beta + at) : (float4)(0);
        const float4 low = (float4)(x[2 * n].xy, x[2 * n + 1].xy), high = (float4)(x[2 * n].zw, x[2 * n + 1].zw);
        __global ELEM(T_INVERSE) *to = panel + WG_AT(i, at / 8) * 8 + at % 8;
        CAT(mma_store4_, T_INVERSE)(to, n <= strip ? low * weight : (float4)(0));
        CAT(mma_store4_, T_INVERSE)(to + 8 * WG_LINE, n <= strip ? high * weight : (float4)(0));
    }
}

__kernel GROUP_SIZE(ITEMS)
void gdn_intra_wgmma(IN(T_Q, q), IN(T_K, k), IN(T_GATE, gate), IN(T_BETA, beta), IN(f32, A_log), IN(f32, dt_bias),
                     IN(i32, cu_seqlens), OUT(T_INVERSE, inverse), OUT(T_P, P), OUT(f32, scales), GDN_SIZES,
                     const float l2norm_eps, const float scale)
{
    __local uint4 room_q[MORE(TILE, HEADS * WG_PANEL)] __attribute__((aligned(1024)));
    __local uint4 room_k[MORE(TILE, HEADS * (L_ROOM + D_ROOM))] __attribute__((aligned(1024)));
    __local ELEM(T_K) *const L = (__local ELEM(T_K) *)room_k;
    __local float *const D = (__local float *)(room_k + HEADS * L_ROOM);
    __local float2 sums[2 * ITEMS], gates[ITEMS];
#if L2NORM
    __local float factor[2 * CHUNK]; /* of q's rows, of k's */
#endif
    __local float betas[ITEMS] __attribute__((aligned(16)));
    __local float of_L[ITEMS] __attribute__((aligned(8))), of_P[ITEMS] __attribute__((aligned(8))); /* of a column */
    /* The same times exp(g - g of the block's first token). */
    __local float onward_L[ITEMS] __attribute__((aligned(8))), onward_P[ITEMS] __attribute__((aligned(8)));
    MMA_HERE(m, ITEMS);

    const uint id = (uint)get_local_id(0), warp = id / MMA_WARP;
    const uint sharing = (uint)HV / (uint)H, pairs = (sharing + 1) / 2;
    const uint group = (uint)get_group_id(0), two = group % pairs, hk = group / pairs % (uint)H;
    const struct gdn_chunk chunk = gdn_chunk(group / pairs / (uint)H, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const uint rows = chunk.rows;
    if (MMA_SKIP(rows == 0))
        return;
    const uint hv = hk * sharing + 2 * two, heads = rows == 0 ? 0 : min(sharing - 2 * two, 2u);
    const uint served = MMA_SKIP(true) ? heads : HEADS;
    const ulong b = chunk.batch, t = chunk.token;

    wg_copy_rows(room_k, ROW3(k, b, t, hk), k_at.z, rows, K);
    wg_copy_rows(room_q, ROW3(q, b, t, hk), q_at.z, rows, K);
    mma_commit();

    /* Two by two: items of the first head, items of the second. */
    const uint token = id % CHUNK, own = hv + id / CHUNK;
    const bool there = token < rows && id / CHUNK < heads;
    float of_gate = 0, of_beta = 0;
    if (there) {
        of_gate = log_gate(LD(T_GATE, ROW2(gate, b, t + token), own), A_log + A_log_at.x, dt_bias + dt_bias_at.x, own);
        of_beta = beta_value(LD(T_BETA, ROW2(beta, b, t + token), own));
    }
    const float2 sum = running_sum(of_gate, sums, ITEMS);
    gates[id] = sum;
    betas[id] = of_beta;
    MMA_WAIT(0);
    wg_written();
    barrier(CLK_LOCAL_MEM_FENCE);

    float4 of_k[CHUNK / 8], of_q[CHUNK / 8]; /* k k^T, k q^T */
    uint4 keys[K_STEPS];
    wg_take_all_rows(m, keys, room_k, K_STEPS);
    wg_begin();
    wg_nk_rows(m, of_k, keys, room_k, 0, K_STEPS);
    wg_nk_rows(m, of_q, keys, room_q, 0, K_STEPS);
    wg_commit();

    float factor_q = 1, factor_k = 1;
#if L2NORM
    factor[id] = tile_factor(id < CHUNK ? room_q : room_k, token, l2norm_eps);
    barrier(CLK_LOCAL_MEM_FENCE);
    factor_q = factor[token];
    factor_k = factor[CHUNK + token];
#endif
    const float2 last = gates[id / CHUNK * CHUNK + max(rows, 1u) - 1];
    const float block = since(sum, gates[id / BLOCK * BLOCK]), now = mma_exp(sum.x + sum.y);
    of_L[id] = -of_beta * factor_k;
    of_P[id] = scale * factor_q;
    onward_L[id] = of_L[id] * block;
    onward_P[id] = of_P[id] * block;
    if (id / CHUNK < heads) {
        __global float *to = ROW3(scales, b, chunk.index, own);
        to[token] = now * of_P[id];
        to[CHUNK + token] = token < rows ? factor_k * since(last, sum) : 0;
        to[2 * CHUNK + token] = factor_k * now;
        if (token < 4)
            to[3 * CHUNK + token] = mma_exp(last.x + last.y);
    }
    WG_WAIT(0);
    wg_pin(of_k, CHUNK / 8);
    wg_pin(of_q, CHUNK / 8);
    barrier(CLK_LOCAL_MEM_FENCE);

    const uint i = warp * BLOCK + m.row; /* this item's rows: i and i + 8 */
    float4 of_row = 1;                   /* k's factors, of them */
#if L2NORM
    of_row = (float4)((float2)factor[CHUNK + i], (float2)factor[CHUNK + i + 8]);
#endif
    MMA_LOOP
    for (uint n = 0; n < heads; n++) {
        __local const float2 *g = gates + n * CHUNK;
        MMA_UNROLL
        for (uint to = 0; to < BLOCKS; to++) {
            float4 of_both[2] = {0, 0}; /* P */
            if (to >= warp) {
                float4 left = of_row; /* exp(g_j - g_i), or of it what onward_L and onward_P do not have */
                if (to > warp) {
                    const float2 begin = g[to * BLOCK];
                    left *= (float4)((float2)since(begin, g[i]), (float2)since(begin, g[i + 8]));
                }
                MMA_UNROLL
                for (uint e = 0; e < 2; e++) {
                    const uint j = to * BLOCK + 8 * e + 2 * m.col;
                    const uint at = n * CHUNK + j;
                    if (to > warp) {
                        const float4 x = of_k[2 * to + e] * left * pair(onward_L + at);
                        __local ELEM(T_K) *column = L + (n * CHUNK + L_COLUMN(i)) * L_PITCH + j;
                        PUT2(column, x.x, x.y);
                        PUT2(column + (L_COLUMN(8) - L_COLUMN(0)) * L_PITCH, x.z, x.w);
                        of_both[e] = of_q[2 * to + e] * left * pair(onward_P + at);
                    } else {
                        const float4 decay = left * exactly(g, j, i);
                        const float4 x = of_k[2 * to + e] * decay * pair(of_L + at);
                        __local float *of_D = D + n * D_SIZE;
                        *(__local float2 *)(of_D + D_AT(i, j)) = (float2)(keep(j > i, x.x), keep(j + 1 > i, x.y));
                        *(__local float2 *)(of_D + D_AT(i + 8, j)) =
                            (float2)(keep(j > i + 8, x.z), keep(j + 1 > i + 8, x.w));
                        of_both[e] = of_q[2 * to + e] * decay * pair(of_P + at);
                    }
                }
            }
            wg_put_rows(m, room_q + n * WG_PANEL, to, wg_operand(of_both, 0));
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    for (uint n = 0; n < heads; n++) {
        __global uint *to = (__global uint *)ROW3(P, b, chunk.index, hv + n);
        MMA_UNROLL
        for (uint at = 0; at < WG_PANEL; at += ITEMS)
            MMA_STORE4(uint, to + (at + id) * 4, room_q[n * WG_PANEL + at + id]);
    }
    invert_diagonals(L, D);
    barrier(CLK_LOCAL_MEM_FENCE);

    MMA_LOOP
    for (uint n = 0; n < served; n++) {
        const uint strip = n ? BLOCKS - 1 - warp : warp, row = strip * BLOCK + m.row;
        float4 x[8];
        solve_inverse(m, x, L + n * CHUNK * L_PITCH, strip);
        if (n < heads)
            store_strip(m, x, strip, ROW3(inverse, b, chunk.index, hv + n), row, betas + n * CHUNK);
    }
}
