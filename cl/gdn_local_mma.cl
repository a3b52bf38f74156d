/* SPDX-License-Identifier: MIT */
/*
 * gdn_forward's first half on matrix engines: what a chunk of 64 tokens and a head need no state for,
 *     w = (I + L)^-1 (k * beta * exp(g))     u = (I + L)^-1 (v * beta)     L_ij = beta_i (k_i . k_j) exp(g_i - g_j), i
 *     > j P = [i >= j] scale (q_i . k_j) exp(g_i - g_j)
 * and the scales that gdn_walk_mma multiplies by: of q, scale * exp(g); of k, exp(g_last - g); of the state,
 * exp(g_last). With l2norm, q and k stand for their normalised rows, of which only the factors are made, here and in
 * the scales. (Yang, Kautz, Hatamizadeh: "Gated Delta Networks", 2024: the UT transform of their section 3.)
 *
 * Layout    q, k [B][T][H][K], v [B][T][HV][V], g, beta [B][T][HV]. Out, by chunk and head, as the walk wants them in
 *           local memory (mma.cl): tiles of 64 rows of w, P [B][NT][HV] and of q, k [B][NT][H]; u
 *           [B][NT][HV][V/16][64][16]; scales [B][NT][HV][132]: 64 of q, 64 of k, 1 of the state. Rows past a short
 *           chunk's end are zero, but those of P anything. q, k, v and the outputs of one type. K and V multiples of
 *           16.
 * Launch    B*NT * HV groups of 128 items. Heads are neighbours, as in memory.
 * How       four warps make k k^T and q k^T of 16 rows each. Then L is cut into blocks of 16 tokens: those on the
 *           diagonal are inverted by substitution, in f32, and each warp takes strips of 16 columns of k and v,
 *           transposed, through X_b = (I + L_bb)^-1 (Y_b - sum over a < b of L_ba X_a), where sums and left operands
 *           have one layout. So (I + L)^-1 itself is never made.
 * Traffic   q, k, v once, q and k once more for each further head that shares them, mostly from cache; outputs once.
 *           Local: 64 rows of k and of v, L and its diagonal.
 * Numerics  mma.cl's; in 16 bits L, the inverses and each X_b are rounded once. Differences of gates come from sums in
 *           two floats: a gate of -800 leaves its mild neighbours exact. Rows past a short chunk's end count as zero.
 */
#ifndef K
#define K 128
#define V 128
#define T_Q f32
#define T_K f32
#define T_V f32
#define T_G f32
#define T_BETA f32
#define T_W f32
#define T_U f32
#define T_P f32
#define T_Q_TILE f32
#define T_K_TILE f32
#define MATH 0
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "gdn_keys_mma.cl"
#include "gdn_solve_mma.cl"

#define ITEMS 128
#define WARPS (ITEMS / MMA_WARP)
#define V_LINES MMA_LINES(V)
#define STRIPS_W (K_LINES * MMA_LINE / BLOCK) /* strips of w, its zero columns too */
#define SCALES (2 * CHUNK + 4)

/* ---- Rows ---- */

MMA_FN float squares_f32(uint4 x)
{
    const float4 f = as_float4(x);
    return f.x * f.x + f.y * f.y + f.z * f.z + f.w * f.w;
}
#define SQUARES_16(T)                                                                                                  \
    MMA_FN float squares_##T(uint4 x)                                                                                  \
    {                                                                                                                  \
        float sum = 0;                                                                                                 \
        MMA_UNROLL                                                                                                     \
        for (uint i = 0; i < 4; i++) {                                                                                 \
            const float2 pair = mma_unpack_##T(mma_word(x, i));                                                        \
            sum += pair.x * pair.x + pair.y * pair.y;                                                                  \
        }                                                                                                              \
        return sum;                                                                                                    \
    }
SQUARES_16(f16)
SQUARES_16(bf16)

#if L2NORM
#define Q_FACTOR(row) row_factor(squares[row][0] + squares[row][1] + squares[row][2] + squares[row][3], l2norm_eps)
#else
#define Q_FACTOR(row) 1.0f
#endif

/* Where in a tile the element `column` of token 2 * m.col stands, and, from there, that of the n-th 8 tokens on. */
#define IN_TILE(m, column, lines)                                                                                      \
    (MMA_AT(2 * (m).col, (column) / MMA_CHUNK, lines) * MMA_CHUNK + (column) % MMA_CHUNK)
#define TOKENS_ON(at, n, lines) ((n)*8 * (lines)*MMA_LINE + ((at) ^ MMA_TURN((n)*8 / MMA_CHUNK) * MMA_CHUNK))

/* 16 columns of k or v, transposed and scaled: x[n] has tokens 8n + 2 * m.col and the next. */
#define LOAD_STRIP(x, tile, lines, column, scale)                                                                      \
    do {                                                                                                               \
        __local const ELEM(MMA_TYPE) *from = (__local const ELEM(MMA_TYPE) *)(tile);                                   \
        const uint at = IN_TILE(m, column, lines);                                                                     \
        MMA_UNROLL                                                                                                     \
        for (uint n = 0; n < 8; n++) {                                                                                 \
            const float2 low = CAT(mma_pair_, MMA_TYPE)(from + TOKENS_ON(at, n, lines));                               \
            const float2 high = CAT(mma_pair_, MMA_TYPE)(from + TOKENS_ON(at, n, lines) + (lines)*MMA_LINE);           \
            const float2 s = *(__local const float2 *)&(scale)[n * 8 + 2 * m.col];                                     \
            x[n] = (float4)(low.x * s.x, high.x * s.y, low.y * s.x, high.y * s.y);                                     \
        }                                                                                                              \
    } while (0)

/* Stores it: at(n) is where in `to` token 8n + 2 * m.col of the item's columns stands, `next` elements before the next.
 * */
#define STORE_STRIP(x, to, at, next)                                                                                   \
    MMA_UNROLL                                                                                                         \
    for (uint n = 0; n < 8; n++) {                                                                                     \
        CAT(mma_store2_, MMA_TYPE)((to) + at(n), x[n].x, x[n].z);                                                      \
        CAT(mma_store2_, MMA_TYPE)((to) + at(n) + (next), x[n].y, x[n].w);                                             \
    }
#define AT_W(n) TOKENS_ON(at_w, n, K_LINES)
#define AT_U(n) ((n)*8 * BLOCK)

/* The pairs of neighbouring columns j, j + 1 that an item has of a row: float4s `pair` and the next of a line, .x and
 * .z or, odd, .y and .w. */
#define FOR_PAIRS(n, odd, line, pair, j)                                                                               \
    MMA_UNROLL                                                                                                         \
    for (uint n = 0, odd = 0, line = 0, pair = 0, j = m.col * MMA_CHUNK; n < CHUNK / 8;                                \
         n++, odd = n % 2, line = n / 2 * 2 / MMA_CHUNK, pair = n / 2 * 2 % MMA_CHUNK,                                 \
              j = line * MMA_LINE + (m.col + odd * 4) * MMA_CHUNK + pair)

MMA_FN void set_part(float4 *c, bool low, bool odd, float x)
{
    if (low && odd)
        c->y = x;
    else if (low)
        c->x = x;
    else if (odd)
        c->w = x;
    else
        c->z = x;
}

/* f32 makes q k^T where it makes k k^T: splitting k's factors costs it more than the registers. 16 bits rather have
 * more groups. */
#define TOGETHER MMA_WIDE
#if L2NORM
#define ADD_SQUARES                                                                                                    \
    q_squares += (float2)(CAT(squares_, T_Q)(next[0]) + CAT(squares_, T_Q)(next[2]),                                   \
                          CAT(squares_, T_Q)(next[1]) + CAT(squares_, T_Q)(next[3]));
#define GIVE_SQUARES                                                                                                   \
    squares[i][m.col] = q_squares.x;                                                                                   \
    squares[i + 8][m.col] = q_squares.y;
#else
#define ADD_SQUARES
#define GIVE_SQUARES
#endif
/* p += line l of q k^T. */
#define TIMES_Q(l)                                                                                                     \
    {                                                                                                                  \
        struct mma_a a_q[4];                                                                                           \
        ADD_SQUARES                                                                                                    \
        mma_fetched(m, a_q, next);                                                                                     \
        mma_fetch(m, next, low, high, (l) + 1 < K_LINES ? (l) + 1 : (l), K);                                           \
        MMA_UNROLL                                                                                                     \
        for (uint j = 0; j < TOKENS; j++)                                                                              \
            mma_nk(m, p[j], MMA_CHUNK, a_q, tile_k, K_LINES, j * MMA_LINE, l);                                         \
    }

/* Puts the inverses of I + L's diagonal blocks in their place in L. */
MMA_FN void invert_diagonal(__local ELEM(MMA_TYPE) *L, __local const float *D)
{
    const uint id = (uint)get_local_id(0);
    float column[BLOCK];
    if (id >= CHUNK)
        return;
    invert_column(column, D);
    MMA_UNROLL
    for (uint i = 0; i < BLOCK; i++)
        PUT(L + L_AT(id / BLOCK * BLOCK + i, id), column[i]);
}

__kernel GROUP_SIZE(ITEMS)
void gdn_local_mma(IN(T_Q, q), IN(T_K, k), IN(T_V, v), IN(T_G, g), IN(T_BETA, beta), IN(f32, A_log), IN(f32, dt_bias),
                   IN(i32, cu_seqlens), OUT(T_W, w), OUT(T_U, u), OUT(T_P, P), OUT(T_Q_TILE, q_tile),
                   OUT(T_K_TILE, k_tile), OUT(f32, scales), GDN_SIZES,
                   const float l2norm_eps, const float scale)
{
    __local uint4 tile_k[MMA_TILE(CHUNK, K_LINES)] MMA_TILE_ALIGNED;
    __local uint4 tile_v[MMA_TILE(CHUNK, V_LINES)] MMA_TILE_ALIGNED;
    __local uint L_words[CHUNK * L_PITCH * CAT(MMA_SIZE_, MMA_TYPE) / 4] __attribute__((aligned(16)));
    __local ELEM(MMA_TYPE) *const L = (__local ELEM(MMA_TYPE) *)L_words;
    __local float D[D_SIZE] __attribute__((aligned(16)));
    __local float2 sums[2 * CHUNK], gates[CHUNK];
    __local float weight[CHUNK];             /* beta */
#if L2NORM
    __local float squares[CHUNK][4];         /* of q, by an item's part of a row */
#endif
    __local float factor_k[CHUNK];
    __local float scale_w[CHUNK];
    MMA_HERE(m, ITEMS);

    const uint group = (uint)get_group_id(0), id = (uint)get_local_id(0), warp = id / MMA_WARP;
    const uint hv = group % (uint)HV, hk = hv / ((uint)HV / (uint)H);
    const struct gdn_chunk chunk = gdn_chunk(group / (uint)HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    const uint rows = chunk.rows;
    if (rows == 0)
        return;
    const ulong b = chunk.batch, t = chunk.token;

    float gate = 0;
    if (id < rows)
        gate = log_gate(LD(T_G, ROW2(g, b, t + id), hv), A_log + A_log_at.x, dt_bias + dt_bias_at.x, hv);
    if (id < CHUNK)
        weight[id] = id < rows ? beta_value(LD(T_BETA, ROW2(beta, b, t + id), hv)) : 0.0f;
    mma_copy_rows(tile_k, K_LINES, K_LINES, CHUNK, ROW3(k, b, t, hk), k_at.z, rows, K, id, ITEMS);
    mma_commit();
    mma_copy_rows(tile_v, V_LINES, V_LINES, CHUNK, ROW3(v, b, t, hv), v_at.z, rows, V, id, ITEMS);
    mma_commit();

    const uint i = warp * 16 + m.row; /* this item's rows of k and q: i and i + 8; past the end they go nowhere */
    __global const ELEM(T_Q) *low = ROW3(q, b, t + min(i, rows - 1), hk);
    __global const ELEM(T_Q) *high = ROW3(q, b, t + min(i + 8, rows - 1), hk);
    uint4 next[4];
    if (TOGETHER)
        mma_fetch(m, next, low, high, 0, K);
    const float2 sum = running_sum(gate, sums, CHUNK);
    if (id < CHUNK)
        gates[id] = sum;
    MMA_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);

    /* L and its diagonal from k k^T. */
    float4 c[TOKENS][MMA_CHUNK] = {{0}}, p[TOKENS][MMA_CHUNK] = {{0}};
#if L2NORM
    float2 q_squares = 0;
#endif
    MMA_LOOP
    for (uint l = 0; l < K_LINES; l++) {
        struct mma_a a[4];
        tile_operand(m, a, tile_k, i, l);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            mma_nk(m, c[j], MMA_CHUNK, a, tile_k, K_LINES, j * MMA_LINE, l);
        if (TOGETHER)
            TIMES_Q(l)
    }
#if L2NORM
    diagonal_factors(m, factor_k, c, i, l2norm_eps);
    if (TOGETHER) {
        GIVE_SQUARES
    }
#else
    if (id < CHUNK)
        factor_k[id] = 1;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    MMA_UNROLL
    for (uint r = 0; r < 2; r++) {
        const uint row = i + 8 * r;
        const float2 here = gates[row];
        const float of_k = weight[row] * factor_k[row], of_q = TOGETHER ? scale * Q_FACTOR(row) : 0;
        FOR_PAIRS(n, odd, line, pair, j)
        {
            float x[2];
            MMA_UNROLL
            for (uint e = 0; e < 2; e++) {
                const float decay = factor_k[j + e] * since(here, gates[j + e]);
                float4 *of_p = &p[line][pair + e];
                x[e] = keep(j + e < row, of_k * decay * PART_OF(c[line][pair + e], r == 0, odd));
                if (TOGETHER)
                    set_part(of_p, r == 0, odd, keep(j + e <= row, of_q * decay * PART_OF(*of_p, r == 0, odd)));
            }
            PUT2(L + row * L_PITCH + L_ITEM(m) + line * MMA_LINE + L_REST(pair, odd), -x[0], -x[1]);
            if (j / BLOCK == row / BLOCK) {
                D[D_AT(j, row)] = -x[0];
                D[D_AT(j + 1, row)] = -x[1];
            }
        }
    }
    if (!TOGETHER)
        mma_fetch(m, next, low, high, 0, K);
    barrier(CLK_LOCAL_MEM_FENCE);
    invert_diagonal(L, D);

    /* P from q k^T. */
    if (!TOGETHER) {
        MMA_LOOP
        for (uint l = 0; l < K_LINES; l++)
            TIMES_Q(l)
        GIVE_SQUARES
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    MMA_UNROLL
    for (uint r = 0; !TOGETHER && r < 2; r++) {
        const uint row = i + 8 * r;
        const float2 here = gates[row];
        const float of_q = scale * Q_FACTOR(row);
        FOR_PAIRS(n, odd, line, pair, j)
        {
            MMA_UNROLL
            for (uint e = 0; e < 2; e++) {
                float4 *of_p = &p[line][pair + e];
                set_part(of_p, r == 0, odd,
                         keep(j + e <= row, of_q * factor_k[j + e] * since(here, gates[j + e]) *
                                                PART_OF(*of_p, r == 0, odd)));
            }
        }
    }
    __global ELEM(T_P) *to_p = ROW3(P, b, chunk.index, hv);
    MMA_UNROLL
    for (uint line = 0; line < TOKENS; line++) {
        MMA_UNROLL
        for (uint part = 0; part < 4; part++) {
            float f[MMA_CHUNK];
            mma_chunk_of(f, p[line], part);
            const uint at = MMA_AT(i + part / 2 * 8, line * 8 + part % 2 * 4 + m.col, TOKENS);
            CAT(mma_store_, T_P)(to_p + at * MMA_CHUNK, f);
        }
    }

    if (hv % ((uint)HV / (uint)H) == 0) {
        __global uint4 *to_q = (__global uint4 *)ROW3(q_tile, b, chunk.index, hk);
        __global uint4 *to_k = (__global uint4 *)ROW3(k_tile, b, chunk.index, hk);
        for (uint n = id; n < CHUNK * K_LINES * 8; n += ITEMS) {
            const uint row = n / (K_LINES * 8), at = n % (K_LINES * 8);
            const bool there = row < rows && at * MMA_CHUNK < K;
            __global const ELEM(T_Q) *from = ROW3(q, b, t + (there ? row : 0), hk) + (there ? at * MMA_CHUNK : 0);
            const uint4 x = MMA_LOAD4(uint, (__global const uint *)from);
            to_q[MMA_AT(row, at, K_LINES)] = there ? x : (uint4)(0);
            to_k[n] = tile_k[n];
        }
    }

    const float2 last = gates[rows - 1];
    __global float *to = ROW3(scales, b, chunk.index, hv);
    if (id < CHUNK) {
        const float now = mma_exp(sum.x + sum.y);
        scale_w[id] = weight[id] * factor_k[id] * now;
        to[id] = now * scale * Q_FACTOR(id);
        to[CHUNK + id] = id < rows ? factor_k[id] * since(last, sum) : 0;
    }
    if (id < 4)
        to[2 * CHUNK + id] = mma_exp(last.x + last.y);
    MMA_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

    __global ELEM(T_W) *to_w = ROW3(w, b, chunk.index, hv);
    __global ELEM(T_U) *to_u = ROW3(u, b, chunk.index, hv) + 2 * m.col * BLOCK + 2 * m.row;
    MMA_LOOP
    for (uint n = 0; n < (STRIPS_W + WARPS - 1) / WARPS; n++) {
        const uint strip = n * WARPS + warp, column = min(strip, STRIPS_W - 1u) * BLOCK; /* no warp may stay behind */
        float4 x[8];
        LOAD_STRIP(x, tile_k, K_LINES, column + 2 * m.row, scale_w);
        solve(m, x, L, false, BLOCKS - 1);
        const uint at_w = IN_TILE(m, column + 2 * m.row, K_LINES);
        if (strip < STRIPS_W)
            STORE_STRIP(x, to_w, AT_W, K_LINES * MMA_LINE)
    }
    MMA_LOOP
    for (uint n = 0; n < (V / BLOCK + WARPS - 1) / WARPS; n++) {
        const uint strip = n * WARPS + warp, column = min(strip, V / BLOCK - 1u) * BLOCK;
        float4 x[8];
        LOAD_STRIP(x, tile_v, V_LINES, column + 2 * m.row, weight);
        solve(m, x, L, false, BLOCKS - 1);
        if (strip < V / BLOCK)
            STORE_STRIP(x, to_u + column * CHUNK, AT_U, BLOCK)
    }
}
