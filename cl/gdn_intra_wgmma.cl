/* SPDX-License-Identifier: MIT */
/*
 * The first half of gdn_forward on Hopper's matrix engine: what chunks of 64 tokens need no state for. With A as
 * gdn_prepare.cl defines it, of each chunk and head
 *     inverse   T'_ij = A_ij * beta_j
 *     P         P_ij = scale * (q_i . k_j) * exp(g_i - g_j) for j <= i, stored transposed
 *     scales    of q scale * exp(g), of k exp(g_last - g), of k @ S exp(g), 64 of each, then exp(g_last)
 * for gdn_walk_wgmma.cl. With l2norm q and k stay as they are, and all three contain the factors that normalise them.
 * In f32 (HAS_K_TILE) T' and P are panels in parts, and so are q and k, as q_tile and k_tile, for gdn_walk_split.cl,
 * and the scales go on with exponents (wgmma_split.cl): of T', of P, and one that all of k's scales stay below.
 *
 * Layout    q and k [B][T][H][K], gate and beta [B][T][HV]; out T' and P [B][NT][HV], each a panel of wgmma.cl or one
 *           for each part, q_tile and k_tile [B][NT][H], 64 rows in panels, part behind part, scales [B][NT][HV][196].
 *           q and k of one type; what is made of 16 bits is of it too, of f32 f16. K is 64 or 128.
 * Launch    B*NT * H * ceil(HV/H / 2) groups of 128 items: a group serves a chunk and two heads that share a head of k,
 *           the last of an odd number alone. Heads are neighbours, as in memory.
 * How       four warps make k k^T and k q^T, 16 rows each, of which row i holds column i of every L and of P. L and P of
 *           both heads go through local memory: P on to where it belongs, L into A as in gdn_prepare_mma.cl. Between
 *           tokens of different blocks of 16, exp(g_j - g_i) is a product: what is left of i when j's block begins, and
 *           of that at j. So few exponentials are made. Neither overflows: log gates are not positive.
 * Traffic   q and k once for two heads, outputs once. Local: 64 rows of q and of k, which give way to L of both heads
 *           and to P of one.
 * Numerics  k k^T and k q^T are wgmma.cl's products, or wgmma_split.cl's; A is made as in gdn_prepare_mma.cl; T' and P
 *           are rounded once, in f32 to 22 bits. Tokens past a short chunk's end count as zero.
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
#define HAS_K_TILE 0
#define MATH 0
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "gdn_keys_mma.cl"
#include "gdn_solve_mma.cl"
#include "wgmma_split.cl"

#define ITEMS WG_ITEMS
#define HEADS 2                       /* ITEMS / CHUNK */
#define TILE (K / WG_LINE * WG_PANEL) /* 64 rows of K */
#define K_STEPS (K / 16)
#define L_ROOM (CHUNK * L_PITCH / MMA_CHUNK) /* in uint4 */
#define D_ROOM (D_SIZE / 4)
#define ROOM (2 * MMA_PARTS * TILE)
#define LATER (MMA_PARTS * WG_PANEL + HEADS * (L_ROOM + D_ROOM))

/* Element pairs of the row of a tile: the sum of its parts. */
MMA_FN float2 tile_pair(__local const uint4 *tile, uint row, uint n)
{
    const uint at = n / 32 * WG_PANEL * 4 + WG_AT(row, n % 32 / 4) * 4 + n % 4;
    float2 x = CAT(mma_unpack_, WG_TYPE)(((__local const uint *)tile)[at]);
#if MMA_PARTS > 1
    x += mma_unpack_f16(((__local const uint *)(tile + TILE))[at]);
#endif
    return x;
}

/* The factor that normalises a row of a tile, whose numbers are `unit` each. */
MMA_FN float tile_factor(__local const uint4 *tile, uint row, float unit, float eps)
{
    float sum = 0;
    for (uint n = 0; n < K / 2; n++) {
        const float2 x = tile_pair(tile, row, n) * unit;
        sum += x.x * x.x + x.y * x.y;
    }
    return row_factor(sum, eps);
}

/* Stores the warp's 16 rows of a panel, as they stand; what its items put there is seen, and they may put more. */
MMA_FN void store_own(__global ELEM(WG_TYPE) *image, __local const uint4 *panel)
{
    const uint id = (uint)get_local_id(0), first = id / MMA_WARP * 16 * 8 + id % MMA_WARP;
    WG_WARP_SYNC();
    MMA_UNROLL
    for (uint i = 0; i < 16 * 8; i += MMA_WARP)
        MMA_STORE4(uint, (__global uint *)image + (first + i) * 4, panel[first + i]);
    WG_WARP_SYNC();
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

/* A strip of T' out of one of A: rows i and i + 8. */
MMA_FN void weigh_strip(struct mma m, float4 x[8], uint strip, __local const float *beta)
{
    MMA_UNROLL
    for (uint n = 0; n < BLOCKS; n++) {
        const uint at = (strip - n) % BLOCKS * BLOCK + 4 * m.col; /* past block 0 those above the diagonal */
        const float4 weight = n <= strip ? *(__local const float4 *)(beta + at) : (float4)(0);
        x[2 * n] = n <= strip ? x[2 * n] * weight.xyxy : (float4)(0);
        x[2 * n + 1] = n <= strip ? x[2 * n + 1] * weight.zwzw : (float4)(0);
    }
}

MMA_FN void store_strip(struct mma m, const float4 x[8], uint strip, __global ELEM(WG_TYPE) *panel, uint i,
                        float scale)
{
    MMA_UNROLL
    for (uint n = 0; n < BLOCKS; n++) {
        const uint at = (strip - n) % BLOCKS * BLOCK + 4 * m.col;
        float4 low = (float4)(x[2 * n].xy, x[2 * n + 1].xy) * scale;
        float4 high = (float4)(x[2 * n].zw, x[2 * n + 1].zw) * scale;
        MMA_UNROLL
        for (uint p = 0; p < MMA_PARTS; p++) {
            __global ELEM(WG_TYPE) *to = panel + p * WG_PANEL * 8 + WG_AT(i, at / 8) * 8 + at % 8;
#if HAS_K_TILE
            float2 a = low.xy, b = low.zw, c = high.xy, d = high.zw;
            *(__global uint2 *)to = (uint2)(wg_part(&a), wg_part(&b));
            *(__global uint2 *)(to + 8 * WG_LINE) = (uint2)(wg_part(&c), wg_part(&d));
            low = (float4)(a, b), high = (float4)(c, d);
#else
            CAT(mma_store4_, WG_TYPE)(to, low);
            CAT(mma_store4_, WG_TYPE)(to + 8 * WG_LINE, high);
#endif
        }
    }
}

__kernel GROUP_SIZE(ITEMS)
void gdn_intra_wgmma(IN(T_Q, q), IN(T_K, k), IN(T_GATE, gate), IN(T_BETA, beta), IN(f32, A_log), IN(f32, dt_bias),
                     IN(i32, cu_seqlens), OUT(T_INVERSE, inverse), OUT(T_P, P), OUT(f32, scales), OUT(f16, q_tile),
                     OUT(f16, k_tile), GDN_SIZES, const float l2norm_eps, const float scale)
{
    __local uint4 room[ROOM > LATER ? ROOM : LATER] __attribute__((aligned(1024)));
    __local uint4 *const room_q = room, *const room_k = room + MMA_PARTS * TILE, *const panel = room; /* of P */
    __local ELEM(T_K) *const L = (__local ELEM(T_K) *)(room + MMA_PARTS * WG_PANEL);
    __local float *const D = (__local float *)(room + MMA_PARTS * WG_PANEL + HEADS * L_ROOM);
    __local float2 sums[2 * ITEMS], gates[ITEMS];
#if L2NORM || HAS_K_TILE
    __local float factor[2 * CHUNK]; /* of q's rows, of k's: what they are times a tile's, normalised too */
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

#if HAS_K_TILE
    __local float tops[3 + HEADS][WG_TOPS]; /* of P, k's scales, gates and T' */
    float4 of_q_rows[WG_SHARE(K)][2], of_k_rows[WG_SHARE(K)][2];
    wg_take_share(of_q_rows, ROW3(q, b, t, hk), q_at.z, rows, K);
    wg_take_share(of_k_rows, ROW3(k, b, t, hk), k_at.z, rows, K);
#else
    wg_copy_rows(room_k, ROW3(k, b, t, hk), k_at.z, rows, K);
    wg_copy_rows(room_q, ROW3(q, b, t, hk), q_at.z, rows, K);
    mma_commit();
#endif

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
#if HAS_K_TILE
    wg_give_top(tops[2], fmax(of_gate, 0.0f));
#endif
    float4 of_k[CHUNK / 8], of_q[CHUNK / 8]; /* k k^T, k q^T */
#if HAS_K_TILE
    const bool first = heads > 0 && two == 0; /* of those that share q and k */
    __global uint *const q_image = first ? (__global uint *)ROW3(q_tile, b, chunk.index, hk) : 0;
    __global uint *const k_image = first ? (__global uint *)ROW3(k_tile, b, chunk.index, hk) : 0;
    wg_put_share(m, room_q, factor, q_image, of_q_rows, K);
    wg_put_share(m, room_k, factor + CHUNK, k_image, of_k_rows, K);
    wg_written();
    barrier(CLK_LOCAL_MEM_FENCE);
    wg_parts keys[K_STEPS];
    MMA_UNROLL
    for (uint n = 0; n < K_STEPS * MMA_PARTS; n++)
        keys[n / MMA_PARTS][n % MMA_PARTS] =
            wg_take_rows(m, room_k + n % MMA_PARTS * TILE + n / MMA_PARTS / 4 * WG_PANEL, n / MMA_PARTS % 4);
    wg_begin();
    MMA_UNROLL
    for (uint n = 0; n < K_STEPS; n++)
        wg_nk_split(m, of_k, keys[n], room_k, TILE, n, n == 0);
    MMA_UNROLL
    for (uint n = 0; n < K_STEPS; n++)
        wg_nk_split(m, of_q, keys[n], room_q, TILE, n, n == 0);
#else
    MMA_WAIT(0);
    wg_written();
    barrier(CLK_LOCAL_MEM_FENCE);
    uint4 keys[K_STEPS];
    wg_take_all_rows(m, keys, room_k, K_STEPS);
    wg_begin();
    wg_nk_rows(m, of_k, keys, room_k, 0, K_STEPS);
    wg_nk_rows(m, of_q, keys, room_q, 0, K_STEPS);
#endif
    wg_commit();

    float factor_q = 1, factor_k = 1;
#if L2NORM
    float unit = 1;
#if HAS_K_TILE
    unit = factor[id];
#endif
    factor[id] = unit * tile_factor(id < CHUNK ? room_q : room_k, token, unit, l2norm_eps);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
#if L2NORM || HAS_K_TILE
    factor_q = factor[token];
    factor_k = factor[CHUNK + token];
#endif
    const float2 last = gates[id / CHUNK * CHUNK + max(rows, 1u) - 1];
    const float block = since(sum, gates[id / BLOCK * BLOCK]), now = mma_exp(sum.x + sum.y);
    of_L[id] = -of_beta * factor_k;
    of_P[id] = scale * factor_q;
    onward_L[id] = of_L[id] * block;
    onward_P[id] = of_P[id] * block;
    const float of_update = token < rows ? factor_k * since(last, sum) : 0;
#if HAS_K_TILE
    wg_give_top(tops[1], of_update);
#endif
    if (id / CHUNK < heads) {
        __global float *to = ROW3(scales, b, chunk.index, own);
        to[token] = now * of_P[id];
        to[CHUNK + token] = of_update;
        to[2 * CHUNK + token] = factor_k * now;
        if (token == 0)
            to[3 * CHUNK] = mma_exp(last.x + last.y);
    }
    WG_WAIT(0);
    wg_pin(of_k, CHUNK / 8);
    wg_pin(of_q, CHUNK / 8);
    barrier(CLK_LOCAL_MEM_FENCE);

    const uint i = warp * BLOCK + m.row; /* this item's rows: i and i + 8 */
    float4 of_row = 1;                   /* k's factors, of them */
#if L2NORM || HAS_K_TILE
    of_row = (float4)((float2)factor[CHUNK + i], (float2)factor[CHUNK + i + 8]);
#endif
#if HAS_K_TILE
    float largest = 0; /* of P, if there were no gates, which make it more only where they are positive */
    MMA_UNROLL
    for (uint j = 0; j < CHUNK / 8; j++)
        largest = fmax(largest, wg_top(of_q[j] * of_row * pair(of_P + 8 * j + 2 * m.col)));
    wg_give_top(tops[0], largest);
    barrier(CLK_LOCAL_MEM_FENCE);
    const float more = wg_take_top(tops[2], WG_TOPS) * (CHUNK * 1.45f); /* log2 e */
    const int exponent_P = wg_exponent(wg_take_top(tops[0], WG_TOPS)) - WG_TOP + (int)ceil(fmin(more, 127.0f));
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
#if HAS_K_TILE
            wg_parts part;
            wg_split(part, of_both, 0, wg_power(-exponent_P));
            MMA_UNROLL
            for (uint p = 0; p < MMA_PARTS; p++)
                wg_put_rows(m, panel + p * WG_PANEL, to, part[p]);
#else
            wg_put_rows(m, panel, to, wg_operand(of_both, 0));
#endif
        }
        for (uint p = 0; p < MMA_PARTS; p++)
            store_own(ROW3(P, b, chunk.index, hv + n) + p * WG_PANEL * 8, panel + p * WG_PANEL);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    invert_diagonals(L, D);
    barrier(CLK_LOCAL_MEM_FENCE);

#if HAS_K_TILE
    /* Both heads meet at one barrier: a warp's strip is long in one and short in the other. */
    float4 x[HEADS][8];
    MMA_UNROLL
    for (uint n = 0; n < HEADS; n++) {
        const uint strip = n ? BLOCKS - 1 - warp : warp;
        if (MMA_SKIP(n >= heads))
            continue;
        solve_inverse(m, x[n], L + n * CHUNK * L_PITCH, strip);
        weigh_strip(m, x[n], strip, betas + n * CHUNK);
        const float2 top = wg_rows_top(m, x[n], 8);
        wg_give_top(tops[3 + n], fmax(top.x, top.y));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    MMA_UNROLL
    for (uint n = 0; n < HEADS; n++) {
        const uint strip = n ? BLOCKS - 1 - warp : warp;
        if (n >= heads)
            continue;
        const int exponent = wg_exponent(wg_take_top(tops[3 + n], WG_TOPS)) - WG_TOP;
        if (id == 0) {
            __global float *to = ROW3(scales, b, chunk.index, hv + n) + 3 * CHUNK;
            to[1] = exponent;
            to[2] = exponent_P;
            to[3] = wg_exponent(wg_take_top(tops[1] + n * (WG_TOPS / 2), WG_TOPS / 2)) + 1;
        }
        store_strip(m, x[n], strip, ROW3(inverse, b, chunk.index, hv + n), strip * BLOCK + m.row, wg_power(-exponent));
    }
#else
    MMA_LOOP
    for (uint n = 0; n < served; n++) {
        const uint strip = n ? BLOCKS - 1 - warp : warp;
        float4 x[8];
        solve_inverse(m, x, L + n * CHUNK * L_PITCH, strip);
        weigh_strip(m, x, strip, betas + n * CHUNK);
        if (n < heads)
            store_strip(m, x, strip, ROW3(inverse, b, chunk.index, hv + n), strip * BLOCK + m.row, 1);
    }
#endif
}
