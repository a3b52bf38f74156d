/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_h on matrix engines: per sequence and head, chunk after chunk of 64 tokens,
 *     store h;  v_new = u - w @ h;  h = h * exp(g_last) + k^T @ (v_new * exp(g_last - g))
 *
 * Layout    k [B][T][H][K], w [B][T][HV][K], u [B][T][HV][V], g [B][T][HV]; out h [B][NT][HV][K][V], v_new as u; states
 *           [B or N][HV][K][V]. k and w of one type; u, h and v_new of any; states f32. K and V multiples of 16.
 * Params    WV, WK: warps of a group along V and along K. 16 * WV divides V; WK is 1, 2 or 4, at most twice K's lines.
 * Launch    a group of 32 * WV * WK items for each sequence, head and 16 * WV columns of V; groups of one head are
 *           neighbours, as they read the same w and k.
 * How       everything is transposed. A warp keeps 16 columns of V by K/WK of K as sums, from the first chunk to the
 *           last. Sums and left operands have one layout, so v_new^T = u^T - h^T @ w^T and h^T += v_new^T @ k need no
 *           other. With WK > 1 a warp makes v_new of its 64/WK tokens, and the warps of the same columns hand each other
 *           h^T and v_new^T through local memory, as operands. Meanwhile the next chunk's w, k and u arrive.
 * Traffic   u, h and v_new once, w and k once for each 16 * WV columns, mostly from cache. Local: 4 * 64 rows of K, and
 *           for WK > 1 WV * (K + 64) * 16 elements, twice if split.
 * Numerics  mma.cl's; the state is f32 whatever the type, but rounded as an operand. Rows past a short chunk's end count
 *           as zero.
 */
#ifndef K
#define K 128
#define V 128
#define T_K f32
#define T_W f32
#define T_U f32
#define T_H f32
#define T_V_NEW f32
#define HAS_INITIAL_STATE 0
#define HAS_FINAL_STATE 0
#define MATH 0
#endif
#ifndef WV
#define WV 2
#define WK 2
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "gdn.cl"
#include "mma.cl"

#define ITEMS (32 * WV * WK)
#define K_LINES MMA_LINES(K)
#define TOKENS (CHUNK / MMA_LINE) /* lines of tokens in a chunk */

/* What a warp keeps of K: OWN lines, or a unit of one. */
#define UNITS (2 * K_LINES / WK)
#define OWN ((UNITS + 1) / 2)
#define WIDTH (UNITS > 1 ? MMA_CHUNK : MMA_UNIT) /* float4s of a line that it keeps */

#define SHARE (8 / WK) /* float4s of v_new^T that a warp makes: of 8 * SHARE tokens */
#define PART (SHARE < MMA_CHUNK ? SHARE : MMA_CHUNK) /* of them in a line */
#define SETS (SHARE < 4 ? 2 : 1) /* fewer than four sums in a row would wait for each other: lines take turns */

#define RAW_U CAT(mma_raw2_, T_U)

/* The state's pairs of neighbouring columns: DO(p, x, y) for each, where p is its place in a [K][V] whose first own
 * element is at `base`. */
#define FOR_STATE(DO, base)                                                                                            \
    MMA_UNROLL                                                                                                         \
    for (uint l = 0; l < OWN; l++) {                                                                                   \
        MMA_UNROLL                                                                                                     \
        for (uint j = 0; j < WIDTH; j++) {                                                                             \
            const uint low = l * MMA_LINE + j, high = low + 4 * MMA_CHUNK;                                             \
            if (K % MMA_LINE == 0 || place + low < K)                                                                  \
                DO((base) + (size_t)low * V, state[l][j].x, state[l][j].z);                                            \
            if (K % MMA_LINE == 0 || place + high < K)                                                                 \
                DO((base) + (size_t)high * V, state[l][j].y, state[l][j].w);                                           \
        }                                                                                                              \
    }
#define STORE_H(p, x, y) CAT(mma_store2_, T_H)(p, x, y)
#define STORE_STATE(p, x, y) mma_store2_f32(p, x, y)
#define LOAD_STATE(p, x_, y_)                                                                                          \
    do {                                                                                                               \
        const float2 pair = *(__global const float2 *)(p);                                                             \
        x_ = pair.x, y_ = pair.y;                                                                                      \
    } while (0)

/* Token of own float4 n, from the item's first: of .x and .z; .y and .w are 4 * MMA_CHUNK later. */
#define TOKEN(n) ((n) / MMA_CHUNK * MMA_LINE + (n) % MMA_CHUNK)

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void chunk_fwd_h_mma(IN(T_K, k), IN(T_W, w), IN(T_U, u), IN(f32, g), IN(f32, initial_state), IN(i32, cu_seqlens),
                     OUT(T_H, h), OUT(T_V_NEW, v_new), OUT(f32, final_state), GDN_SIZES)
{
    __local uint4 tiles[2][2][MMA_TILE(CHUNK, K_LINES)] __attribute__((aligned(16))); /* this chunk and next: w, k */
    __local float gates[2][CHUNK] __attribute__((aligned(16)));
#if WK > 1
    __local struct mma_left left_h[WV][K_LINES][4] __attribute__((aligned(16)));
    __local struct mma_left left_v[WV][TOKENS][4] __attribute__((aligned(16)));
#endif
    MMA_HERE(m, ITEMS);

    const uint slices = V / (16 * WV), group = (uint)get_group_id(0);
    const uint id = (uint)get_local_id(0), wv = id / MMA_WARP % WV, wk = id / MMA_WARP / WV;
    const uint s = group / slices / (uint)HV, hv = group / slices % (uint)HV, hk = hv / ((uint)HV / (uint)H);
    const struct gdn_sequence seq = gdn_sequence(s, cu_seqlens + cu_seqlens_at.x, T);
    const ulong b = seq.batch;

    const uint column = group % slices * 16 * WV + wv * 16 + 2 * m.row; /* this item's columns: it and the next */
    const uint own = wk * UNITS / 2, from = UNITS > 1 ? 0 : wk % 2 * MMA_UNIT; /* the warp's first line, float4 */
    const uint place = (own * 8 + m.col) * MMA_CHUNK + from;                   /* the item's first place in K */
    const uint tile = TOKEN(wk * SHARE);                                       /* the warp's first row for mma_nk */
    const uint token = tile + m.col * MMA_CHUNK;                               /* the item's first token in a chunk */

    /* Where the next chunk begins. */
    __global const ELEM(T_W) *next_w = ROW3(w, b, seq.begin, hv);
    __global const ELEM(T_K) *next_k = ROW3(k, b, seq.begin, hk);
    __global const ELEM(T_U) *next_u = ROW3(u, b, seq.begin, hv) + column;
    __global const float *next_g = ROW2(g, b, seq.begin) + hv;
    RAW_U u_low[SHARE], u_high[SHARE]; /* u^T of the warp's tokens */

    const uint chunks = (uint)((seq.end - seq.begin + CHUNK - 1) / CHUNK);
    const uint last_rows = (uint)(seq.end - seq.begin) - (chunks - 1) * CHUNK;

    float4 state[OWN][WIDTH];
    MMA_UNROLL
    for (uint i = 0; i < OWN * WIDTH; i++)
        state[i / WIDTH][i % WIDTH] = 0;
    const size_t first = (size_t)place * V + column;
#if HAS_INITIAL_STATE
    FOR_STATE(LOAD_STATE, ROW2(initial_state, s, hv) + first)
#endif
    __global ELEM(T_H) *h_now = ROW3(h, b, seq.first_chunk, hv) + first;
    __global ELEM(T_V_NEW) *v_now = ROW3(v_new, b, seq.begin + token, hv) + column;

    /* Round c fetches chunk c and computes chunk c - 1. */
    MMA_LOOP
    for (uint c = 0; chunks > 0 && c <= chunks; c++) {
        const uint now = c % 2 ^ 1, rows = c < chunks ? CHUNK : last_rows; /* where chunk c - 1 is, and its tokens */
        float4 sum[SETS][SHARE]; /* w @ h - u, transposed; all sets together */
        if (c > 0) {
            FOR_STATE(STORE_H, h_now)
            h_now += h_at.z;
            MMA_UNROLL
            for (uint n = 0; n < SHARE; n++) {
                sum[SETS - 1][n] = 0;
                sum[0][n] = -(float4)(CAT(mma_unraw2_, T_U)(u_low[n]), CAT(mma_unraw2_, T_U)(u_high[n])).xzyw;
            }
#if WK > 1
            MMA_UNROLL
            for (uint i = 0; i < UNITS; i++)
                mma_give_unit(m, &left_h[wv][own + i / 2][UNITS > 1 ? i % 2 : wk % 2], state[i / 2] + i % 2 * MMA_UNIT);
#endif
        }
        MMA_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE); /* chunk c - 1 and left_h are there, and no one reads chunk c - 2 any more */
        if (c < chunks) {
            const uint next_rows = c + 1 < chunks ? CHUNK : last_rows;
            mma_copy_rows(tiles[now ^ 1][0], K_LINES, K_LINES, CHUNK, next_w, w_at.z, next_rows, K, ITEMS);
            mma_copy_rows(tiles[now ^ 1][1], K_LINES, K_LINES, CHUNK, next_k, k_at.z, next_rows, K, ITEMS);
            for (uint i = id; i < CHUNK; i += ITEMS)
                mma_copy_word(&gates[now ^ 1][i], next_g + min(i, next_rows - 1) * g_at.z);
            mma_commit();
            MMA_UNROLL
            for (uint n = 0; n < SHARE; n++) { /* u of rows past the end meets zeros in k */
                const uint low = min(token + TOKEN(n), next_rows - 1);
                const uint high = min(token + TOKEN(n) + 4 * MMA_CHUNK, next_rows - 1);
                u_low[n] = *(__global const RAW_U *)(next_u + low * u_at.z);
                u_high[n] = *(__global const RAW_U *)(next_u + high * u_at.z);
            }
            next_w += CHUNK * w_at.z;
            next_k += CHUNK * k_at.z;
            next_u += CHUNK * u_at.z;
            next_g += CHUNK * g_at.z;
        }
        if (c == 0)
            continue;

        MMA_UNROLL
        for (uint l = 0; l < K_LINES; l++) {
            struct mma_a a[4];
#if WK > 1
            mma_take(m, a, left_h[wv][l]);
#else
            mma_operand(m, a, state[l]);
#endif
            MMA_UNROLL
            for (uint n = 0; n < SHARE; n += PART)
                mma_nk(m, sum[l % SETS] + n, PART, a, tiles[now][0], K_LINES, tile + TOKEN(n), l);
        }

        const float last = gates[now][rows - 1];
        MMA_UNROLL
        for (uint n = 0; n < SHARE; n++) {
            const uint low = token + TOKEN(n), high = low + 4 * MMA_CHUNK;
            if (SETS > 1)
                sum[0][n] += sum[SETS - 1][n];
            if (low < rows)
                CAT(mma_store2_, T_V_NEW)(v_now + TOKEN(n) * v_new_at.z, -sum[0][n].x, -sum[0][n].z);
            if (high < rows)
                CAT(mma_store2_, T_V_NEW)(v_now + (TOKEN(n) + 4 * MMA_CHUNK) * v_new_at.z, -sum[0][n].y, -sum[0][n].w);
            const float2 f = -(float2)(mma_exp(last - gates[now][low]), mma_exp(last - gates[now][high]));
            sum[0][n] *= f.xyxy;
        }
        v_now += CHUNK * v_new_at.z;
        const float decay = mma_exp(last);
        MMA_UNROLL
        for (uint i = 0; i < OWN * WIDTH; i++)
            state[i / WIDTH][i % WIDTH] *= decay;
#if WK > 1
        const uint line = wk * SHARE / MMA_CHUNK, unit = wk * SHARE % MMA_CHUNK / MMA_UNIT;
        if (SHARE < MMA_UNIT)
            mma_give_half(m, &left_v[wv][line][unit], sum[0], wk * SHARE % MMA_UNIT != 0);
        MMA_UNROLL
        for (uint i = 0; i < SHARE / MMA_UNIT; i++)
            mma_give_unit(m, &left_v[wv][line + i / 2][(unit + i) % 2], sum[0] + i * MMA_UNIT);
        barrier(CLK_LOCAL_MEM_FENCE); /* left_v is there, and no one reads left_h any more */
#endif
        MMA_UNROLL
        for (uint i = 0; i < TOKENS; i++) {
            struct mma_a a[4];
#if WK > 1
            mma_take(m, a, left_v[wv][i]);
#else
            mma_operand(m, a, sum[0] + i * MMA_CHUNK);
#endif
            MMA_UNROLL
            for (uint l = 0; l < OWN; l++)
                mma_kn(m, state[l], WIDTH, a, tiles[now][1], K_LINES, i * MMA_LINE, own + l, from);
        }
    }
#if HAS_FINAL_STATE
    FOR_STATE(STORE_STATE, ROW2(final_state, s, hv) + first)
#endif
}
