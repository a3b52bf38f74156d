/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_h on matrix engines: per sequence and head, chunk after chunk of 64 tokens,
 *     store h;  v_new = u - w @ h;  h = h * exp(g_last) + k^T @ (v_new * exp(g_last - g))
 *
 * Layout    k [B][T][H][K], w [B][T][HV][K], u [B][T][HV][V], g [B][T][HV]; out h [B][NT][HV][K][V], v_new as u; states
 *           [B or N][HV][K][V]. k and w of one type; u, h and v_new of any; states f32. K a multiple of 16 and of
 *           WK lines, V of 16.
 * Params    WV, WK: warps of a group along V and along K. A group has 16 * WV columns of the state.
 * Launch    a group of 32 * WV * WK items for each sequence, head and 16 * WV columns of V; groups of one head are
 *           neighbours, as they read the same w and k.
 * How       everything is transposed. A warp keeps 16 columns of V by K/WK of K as sums, from the first chunk to the
 *           last. As sums and left operands have one layout, it multiplies by w straight from registers: v_new^T =
 *           u^T - h^T @ w^T, and then v_new^T likewise by k. With WK > 1 the warps' parts of the first product are
 *           added through local memory, by each of them in the same order. Meanwhile the next chunk's w and k arrive.
 * Traffic   u, h and v_new once, w and k once for each 16 * WV columns, mostly from cache.
 *           Local: 4 * 64 rows of K, and 4 KB a warp if WK > 1.
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
#define OWN (K_LINES / WK)        /* lines of K that a warp keeps */
#define TOKENS (CHUNK / MMA_LINE) /* lines of tokens in a chunk */
#define TILES 8                   /* float4s of a chunk's tokens: TOKENS * MMA_CHUNK */
#define SHARE (TILES / WK)        /* of them a warp reads u for, and stores v_new of */
#define TILE_SIZE (CHUNK * K_LINES * 8)

/* The first of the two tokens in tile n; the second is 4 * MMA_CHUNK later. */
MMA_FN uint token_of(struct mma m, uint n) { return (n / MMA_CHUNK * 8 + m.col) * MMA_CHUNK + n % MMA_CHUNK; }

/* The place in K of c[line][j].x; that of .y is 4 * MMA_CHUNK later. */
MMA_FN uint place_of(struct mma m, uint line, uint j) { return (line * 8 + m.col) * MMA_CHUNK + j; }

/* Calls DO(p, x, y) for every pair of neighbouring columns (x, y) of the state and where it is in a [K][V] at `base`. */
#define FOR_STATE(DO, base)                                                                                            \
    MMA_UNROLL                                                                                                         \
    for (uint l = 0; l < OWN; l++) {                                                                                   \
        MMA_UNROLL                                                                                                     \
        for (uint j = 0; j < MMA_CHUNK; j++) {                                                                         \
            const uint low = place_of(m, wk * OWN + l, j), high = low + 4 * MMA_CHUNK;                                 \
            if (there && (K % MMA_LINE == 0 || low < K))                                                               \
                DO((base) + low * V, state[l][j].x, state[l][j].z);                                                    \
            if (there && (K % MMA_LINE == 0 || high < K))                                                              \
                DO((base) + high * V, state[l][j].y, state[l][j].w);                                                   \
        }                                                                                                              \
    }
#define STORE_H(p, x, y) CAT(mma_store2_, T_H)(p, x, y)
#define STORE_STATE(p, x, y) mma_store2_f32(p, x, y)
#define LOAD_STATE(p, x_, y_)                                                                                          \
    do {                                                                                                               \
        const float2 pair = mma_load2_f32(p);                                                                          \
        x_ = pair.x, y_ = pair.y;                                                                                      \
    } while (0)

__kernel GROUP_SIZE(ITEMS)
void chunk_fwd_h_mma(IN(T_K, k), IN(T_W, w), IN(T_U, u), IN(f32, g), IN(f32, initial_state), IN(i32, cu_seqlens),
                     OUT(T_H, h), OUT(T_V_NEW, v_new), OUT(f32, final_state), GDN_SIZES)
{
    __local uint4 tile_w[2][TILE_SIZE] __attribute__((aligned(16)));
    __local uint4 tile_k[2][TILE_SIZE] __attribute__((aligned(16)));
    __local float gates[2][CHUNK], factors[CHUNK];
#if WK > 1
    __local float4 parts[WK * WV * TILES * MMA_WARP];
#endif
    MMA_HERE(m, ITEMS);

    const uint slices = (V + 16 * WV - 1) / (16 * WV), group = (uint)get_group_id(0);
    const uint id = (uint)get_local_id(0), warp = id / MMA_WARP, wv = warp % WV, wk = warp / WV;
    const uint column = group % slices * 16 * WV + wv * 16 + 2 * m.row; /* this item's columns: it and the next */
    const bool there = V % (16 * WV) == 0 || column < V;
    const uint v0 = there ? column : 0;
    const ulong s = group / slices / (uint)HV, hv = group / slices % (uint)HV, hk = (uint)hv / (uint)(HV / H);
    const struct gdn_sequence seq = gdn_sequence(s, cu_seqlens + cu_seqlens_at.x, T);
    const ulong b = seq.batch;

    float4 state[OWN][MMA_CHUNK] = {{0}};
#if HAS_INITIAL_STATE
    FOR_STATE(LOAD_STATE, ROW2(initial_state, s, hv) + v0)
#endif

/* Starts to read what chunk c (a buffer's number, its first token and its rows) needs. */
#define FETCH_CHUNK(c, t, rows)                                                                                        \
    do {                                                                                                               \
        mma_copy_rows(tile_w[c], K_LINES, CHUNK, ROW3(w, b, t, hv), w_at.z, rows, K, ITEMS);                           \
        mma_copy_rows(tile_k[c], K_LINES, CHUNK, ROW3(k, b, t, hk), k_at.z, rows, K, ITEMS);                           \
        if (id < CHUNK)                                                                                                \
            mma_copy_word(&gates[c][id], &ROW2(g, b, t + min(id, rows - 1))[hv]);                                      \
        MMA_UNROLL                                                                                                     \
        for (uint n = 0; n < SHARE; n++) {                                                                             \
            const uint at = token_of(m, wk * SHARE + n); /* rows past the end meet zeros in w and k */                 \
            next[n].lo = CAT(mma_load2_, T_U)(ROW3(u, b, t + min(at, rows - 1), hv) + v0);                             \
            next[n].hi = CAT(mma_load2_, T_U)(ROW3(u, b, t + min(at + 4 * MMA_CHUNK, rows - 1), hv) + v0);             \
        }                                                                                                              \
    } while (0)

    const uint chunks = (uint)((seq.end - seq.begin + CHUNK - 1) / CHUNK);
    float4 next[SHARE]; /* u of the warp's share of tokens: (token, column), (token, column + 1), then the later token */
    uint rows = (uint)min(seq.end - seq.begin, (ulong)CHUNK);
    if (chunks > 0)
        FETCH_CHUNK(0, seq.begin, rows);
    mma_commit();

    MMA_LOOP
    for (uint c = 0; c < chunks; c++) {
        const uint now = c % 2;
        const ulong t = seq.begin + (ulong)c * CHUNK;
        FOR_STATE(STORE_H, ROW3(h, b, seq.first_chunk + c, hv) + v0)

        float4 sum[TILES]; /* w @ h - u, transposed; the warps of one wv have a part each */
        MMA_UNROLL
        for (uint n = 0; n < TILES; n++)
            sum[n] = n / SHARE == wk ? -next[n % SHARE].xzyw : (float4)(0);

        MMA_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE); /* this chunk has arrived, and no one reads the last one any more */
        const uint rows_now = rows;
        if (c + 1 < chunks) {
            rows = (uint)min(seq.end - t - CHUNK, (ulong)CHUNK);
            FETCH_CHUNK(now ^ 1, t + CHUNK, rows);
        }
        mma_commit();
        const float last = gates[now][rows_now - 1];
        if (id < CHUNK)
            factors[id] = -exp(last - gates[now][id]);

        struct mma_a a[TOKENS][4];
        MMA_UNROLL
        for (uint l = 0; l < OWN; l++) {
            mma_operand(m, a[0], state[l]);
            MMA_UNROLL
            for (uint i = 0; i < TOKENS; i++)
                mma_nk(m, sum + i * MMA_CHUNK, a[0], tile_w[now], K_LINES, i * MMA_LINE, wk * OWN + l);
        }
#if WK > 1
        MMA_UNROLL
        for (uint n = 0; n < TILES; n++)
            parts[(warp * TILES + n) * MMA_WARP + id % MMA_WARP] = sum[n];
#endif
        barrier(CLK_LOCAL_MEM_FENCE); /* factors, parts */
        MMA_UNROLL
        for (uint n = 0; n < TILES; n++) {
#if WK > 1
            sum[n] = parts[(wv * TILES + n) * MMA_WARP + id % MMA_WARP];
            MMA_UNROLL
            for (uint i = 1; i < WK; i++)
                sum[n] += parts[((i * WV + wv) * TILES + n) * MMA_WARP + id % MMA_WARP];
#endif
            const uint low = token_of(m, n), high = low + 4 * MMA_CHUNK;
            if (there && n / SHARE == wk) {
                if (low < rows_now)
                    CAT(mma_store2_, T_V_NEW)(ROW3(v_new, b, t + low, hv) + v0, -sum[n].x, -sum[n].z);
                if (high < rows_now)
                    CAT(mma_store2_, T_V_NEW)(ROW3(v_new, b, t + high, hv) + v0, -sum[n].y, -sum[n].w);
            }
            sum[n] *= (float4)(factors[low], factors[high], factors[low], factors[high]);
        }

        MMA_UNROLL
        for (uint i = 0; i < TOKENS; i++)
            mma_operand(m, a[i], sum + i * MMA_CHUNK);
        const float decay = exp(last);
        MMA_UNROLL
        for (uint l = 0; l < OWN; l++) {
            MMA_UNROLL
            for (uint j = 0; j < MMA_CHUNK; j++)
                state[l][j] *= decay;
            MMA_UNROLL
            for (uint i = 0; i < TOKENS; i++)
                mma_kn(m, state[l], a[i], tile_k[now], K_LINES, i * MMA_LINE, wk * OWN + l);
        }
    }
#if HAS_FINAL_STATE
    FOR_STATE(STORE_STATE, ROW2(final_state, s, hv) + v0)
#endif
}
