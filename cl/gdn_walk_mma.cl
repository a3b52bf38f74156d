/* SPDX-License-Identifier: MIT */
/*
 * The walk along a sequence on matrix engines: per head, chunk after chunk of 64 tokens, from a state S [K][V]
 *     v_new = u - w @ S;    S' = S * exp(g_last) + k^T @ (v_new * k_scale)
 * as one of two kernels, by the operation that compiles this file:
 *   chunk_fwd_h_mma   stores S before each chunk as h, and v_new; k_scale = exp(g_last - g)
 *   gdn_walk_mma      (FORWARD) stores o = (q @ S) * q_scale + P @ v_new instead: the second half of gdn_forward, where
 *                     gdn_local_mma.cl made w, u, P and the scales
 *
 * Layout    k [B][T][H][K], w [B][T][HV][K], u [B][T][HV][V], g [B][T][HV]; out h [B][NT][HV][K][V], v_new and o as u;
 *           states [B or N][HV][K][V]. FORWARD takes q, k, w, P, u and scales as gdn_local_mma.cl leaves them. The
 *           factors of one type; u, h, v_new and o of any; states f32. K and V multiples of 16.
 * Params    WV, WK: warps of a group along V and along K. 16 * WV divides V; WK is 1, 2 or 4, at most twice K's lines.
 *           STAGES: chunks in local memory at a time.
 * Launch    a group of 32 * WV * WK items for each sequence, head and 16 * WV columns of V; groups of one head are
 *           neighbours, as they read the same w and k.
 * How       everything is transposed. A warp keeps 16 columns of V by K/WK of K as sums, from the first chunk to the
 *           last. Sums and left operands have one layout, so v_new^T = u^T - S^T @ w^T and S^T += v_new^T @ k need no
 *           other. With WK > 1 a warp makes v_new and o of its 64/WK tokens, and the warps of the same columns hand
 *           each other S^T and v_new^T through local memory, as operands. Meanwhile later chunks arrive.
 * Traffic   u, h, v_new and o once, the others once for each 16 * WV columns, mostly from cache. Local: STAGES * 64
 *           rows of w and k, and of q and P; for WK > 1 WV * (K + 64) * 16 elements, and 64 * 16 more with P.
 * Numerics  mma.cl's; the state is f32 whatever the type, but rounded as an operand. Rows past a short chunk's end
 *           count as zero.
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
#define STAGES 1
#endif
#ifdef T_Q
#define FORWARD 1
#else
#define FORWARD 0
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "gdn_walk_fetch.cl"

#define ITEMS (32 * WV * WK)
#define K_LINES MMA_LINES(K)
#define TOKENS (CHUNK / MMA_LINE) /* lines of tokens in a chunk */

/* What a warp keeps of K: OWN lines, or half of one. */
#define HALVES (2 * K_LINES / WK)
#define OWN ((HALVES + 1) / 2)
#define OF_LINE (HALVES > 1 ? 2 : 1)
#define WIDTH (OF_LINE * MMA_UNIT)                    /* float4s of a line that it keeps */
#define NEXT (HALVES > 1 ? 4 * MMA_CHUNK : MMA_UNIT) /* from the .x of one to its .y, in K */

#define SHARE (8 / WK)                               /* float4s of v_new^T that a warp makes: of 8 * SHARE tokens */
#define PART (SHARE < MMA_CHUNK ? SHARE : MMA_CHUNK) /* of them in a line */
#define SETS (SHARE < 4 && !FORWARD ? 2 : 1) /* two sums in a row would wait for each other: lines take turns */

#define TILE_K MMA_TILE(CHUNK, K_LINES) /* of k, w and q */
#define TILE_P MMA_TILE(CHUNK, TOKENS)
#define SIZE_U CAT(MMA_SIZE_, T_U)
#define U_CHUNKS (WV * CHUNK * SIZE_U) /* of 16 bytes in the group's columns of u */

/* Token of own float4 n, from the item's first: of .x and .z; .y and .w are 4 * MMA_CHUNK later. */
#define TOKEN(n) ((n) / MMA_CHUNK * MMA_LINE + (n) % MMA_CHUNK)

#define FOR_STATE(DO, base, step)                                                                                      \
    MMA_UNROLL                                                                                                         \
    for (uint l = 0; l < OWN; l++) {                                                                                   \
        MMA_UNROLL                                                                                                     \
        for (uint j = 0; j < WIDTH; j++) {                                                                             \
            const uint low = l * MMA_LINE + j, high = low + NEXT;                                                      \
            if (K % MMA_LINE == 0 || place + low < K)                                                                  \
                DO((base) + place * (step) + column + low * (step), state[l][j].x, state[l][j].z);                     \
            if (K % MMA_LINE == 0 || place + high < K)                                                                 \
                DO((base) + place * (step) + column + high * (step), state[l][j].y, state[l][j].w);                    \
        }                                                                                                              \
    }

/* Stores the warp's tokens of a chunk, transposed: to its first token and the item's columns at p. */
#define STORE_TOKENS(T, p, pitch, sums, rows)                                                                          \
    MMA_UNROLL                                                                                                         \
    for (uint n = 0; n < SHARE; n++) {                                                                                 \
        if (token + TOKEN(n) < (rows))                                                                                 \
            CAT(mma_store2_, T)((p) + TOKEN(n) * (pitch), (sums)[n].x, (sums)[n].z);                                   \
        if (token + TOKEN(n) + 4 * MMA_CHUNK < (rows))                                                                 \
            CAT(mma_store2_, T)((p) + (TOKEN(n) + 4 * MMA_CHUNK) * (pitch), (sums)[n].y, (sums)[n].w);                 \
    }

/* The warp's tokens as a part of the left operand of all 64. */
typedef mma_left left_tokens[TOKENS][4];

MMA_FN void give_tokens(struct mma m, __local left_tokens *left, uint wk, const float4 *x)
{
    const uint line = wk * SHARE / MMA_CHUNK, unit = wk * SHARE % MMA_CHUNK / MMA_UNIT;
    if (SHARE < MMA_UNIT)
        mma_give_half(m, &(*left)[line][unit], x, wk * SHARE % MMA_UNIT != 0);
    MMA_UNROLL
    for (uint i = 0; i < SHARE / MMA_UNIT; i++)
        mma_give_unit(m, &(*left)[line + i / 2][(unit + i) % 2], x + i * MMA_UNIT);
}

/* Line i of what was given to local memory, or with WK = 1 of the sums themselves. */
MMA_FN void take_line(struct mma m, struct mma_a a[4], __local const mma_left *left, const float4 *sums)
{
#if WK > 1
    mma_take(m, a, left);
#else
    mma_operand(m, a, sums);
#endif
}

/* ---- How chunks come: first w, q, u and scales or gates, then k and P ---- */

#define FETCHERS (FORWARD ? MMA_WARP : 4 * MMA_WARP) /* tiles come whole, so that one item is enough, or by rows */

#define SCALES (2 * CHUNK + 4)                                        /* floats: q's, k's, exp(g_last) */

/* What item `id` of `items` copies. */
#if FORWARD
#define COPY_FIRST(c, id, items)                                                                                       \
    do {                                                                                                               \
        copy_tile(tile_w[(c) % STAGES], OF(w, c, hv), TILE_K, id, items);                                              \
        copy_tile(tile_q[(c) % STAGES], OF(q, c, hk), TILE_K, id, items);                                              \
        copy_tile(tile_u[(c) % STAGES], OF(u, c, hv) + slice * CHUNK, U_CHUNKS, id, items);                            \
        copy_tile((__local uint4 *)scale[(c) % STAGES], OF(scales, c, hv), SCALES / 4, id, items);                     \
    } while (0)
#define COPY_SECOND(c, id, items)                                                                                      \
    do {                                                                                                               \
        copy_tile(tile_k[(c) % STAGES], OF(k, c, hk), TILE_K, id, items);                                              \
        copy_tile(tile_p[(c) % STAGES], OF(P, c, hv), TILE_P, id, items);                                              \
    } while (0)
#else
#define COPY_ROWS(tile, x, c, head, id, items)                                                                         \
    mma_copy_rows(tile[(c) % STAGES], K_LINES, K_LINES, CHUNK, AT(x, c, head), x##_at.z, ROWS_OF(c), K, id, items)
#define COPY_FIRST(c, id, items)                                                                                       \
    do {                                                                                                               \
        COPY_ROWS(tile_w, w, c, hv, id, items);                                                                        \
        copy_u(tile_u[(c) % STAGES], AT(u, c, hv) + slice, u_at.z, ROWS_OF(c), WV, 16, id, items);                             \
        copy_gates(gates[(c) % STAGES], ROW2(g, b, seq.begin + (ulong)(c)*CHUNK) + hv, g_at.z, ROWS_OF(c), id, items); \
    } while (0)
#define COPY_SECOND(c, id, items) COPY_ROWS(tile_k, k, c, hk, id, items)
#endif

__kernel GROUP_SIZE(ITEMS + (APART ? FETCHERS : 0))
#if FORWARD
void gdn_walk_mma(IN(T_Q, q), IN(T_K, k), IN(T_W, w), IN(T_U, u), IN(T_P, P), IN(f32, scales), IN(f32, initial_state),
                  IN(i32, cu_seqlens), OUT(T_O, o), OUT(f32, final_state), GDN_SIZES)
#else
void chunk_fwd_h_mma(IN(T_K, k), IN(T_W, w), IN(T_U, u), IN(T_G, g), IN(f32, initial_state), IN(i32, cu_seqlens),
                     OUT(T_H, h), OUT(T_V_NEW, v_new), OUT(f32, final_state), GDN_SIZES)
#endif
{
    __local uint4 tile_w[STAGES][TILE_K] MMA_TILE_ALIGNED;
    __local uint4 tile_k[STAGES][TILE_K] MMA_TILE_ALIGNED;
#if FORWARD
    __local uint4 tile_q[STAGES][TILE_K] MMA_TILE_ALIGNED;
    __local uint4 tile_p[STAGES][TILE_P] MMA_TILE_ALIGNED;
#endif
    __local uint4 tile_u[STAGES][U_CHUNKS] __attribute__((aligned(16)));
#if APART
    FETCH_PLACES
#endif
    __local mma_left left_s[WK > 1 ? WV : 1][K_LINES][4] __attribute__((aligned(16)));
    __local left_tokens left_v[WK > 1 ? WV : 1] __attribute__((aligned(16)));
#if FORWARD
    __local float scale[STAGES][SCALES] __attribute__((aligned(16)));
    __local left_tokens left_p[WK > 1 ? WV : 1] __attribute__((aligned(16)));
#else
    __local ELEM(T_G) gates[STAGES][CHUNK] __attribute__((aligned(16)));
#endif
    MMA_HERE(m, ITEMS);

    const uint slices = V / (16 * WV), group = (uint)get_group_id(0);
    const uint id = (uint)get_local_id(0), wv = id / MMA_WARP % WV, wk = id / MMA_WARP / WV, to = WK > 1 ? wv : 0;
    const uint s = group / slices / (uint)HV, hv = group / slices % (uint)HV, hk = hv / ((uint)HV / (uint)H);
    const struct gdn_sequence seq = gdn_sequence(s, cu_seqlens + cu_seqlens_at.x, T);
    const ulong b = seq.batch;
    const uint chunks = (uint)((seq.end - seq.begin + CHUNK - 1) / CHUNK);
    const uint last_rows = (uint)(seq.end - seq.begin) - (chunks - 1) * CHUNK;

    const uint slice = group % slices * 16 * WV;           /* the group's first column */
    const uint column = slice + wv * 16 + 2 * m.row;       /* this item's columns: it and the next */
    const uint own = wk * HALVES / 2, half_line = HALVES > 1 ? 0 : wk % 2; /* what the warp keeps: its first line */
    const uint place = (own * 8 + half_line * 4 + m.col) * MMA_CHUNK;      /* the item's first place in K */
    const uint tile = TOKEN(wk * SHARE);                                   /* the warp's first row for mma_nk */
    const uint token = tile + m.col * MMA_CHUNK;                           /* the item's first token in a chunk */

#if APART
    if (id == 0)
        FETCH_INIT(FORWARD ? 1 : FETCHERS, WV * WK);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id >= ITEMS) {
#if FORWARD
        for (uint c = 0; id == ITEMS && c < chunks; c++) {
            const uint stage = c % STAGES;
            FETCH_AWAIT(free_first, c);
            mma_announce(&arrived_first[stage], (2 * TILE_K + U_CHUNKS) * 16 + SCALES * 4);
            mma_bring(&arrived_first[stage], tile_w[stage], OF(w, c, hv), TILE_K * 16);
            mma_bring(&arrived_first[stage], tile_q[stage], OF(q, c, hk), TILE_K * 16);
            mma_bring(&arrived_first[stage], tile_u[stage], OF(u, c, hv) + slice * CHUNK, U_CHUNKS * 16);
            mma_bring(&arrived_first[stage], scale[stage], OF(scales, c, hv), SCALES * 4);
            FETCH_AWAIT(free_second, c);
            mma_announce(&arrived_second[stage], (TILE_K + TILE_P) * 16);
            mma_bring(&arrived_second[stage], tile_k[stage], OF(k, c, hk), TILE_K * 16);
            mma_bring(&arrived_second[stage], tile_p[stage], OF(P, c, hv), TILE_P * 16);
        }
#else
        FETCH_ALL(id - ITEMS);
#endif
        return;
    }
#else
    MMA_UNROLL
    for (uint c = 0; c < STAGES; c++) {
        FETCH(FIRST, c);
        if (c + 1 < STAGES)
            FETCH(SECOND, c);
    }
#endif

    float4 state[OWN][WIDTH];
    MMA_UNROLL
    for (uint i = 0; i < OWN * WIDTH; i++)
        state[i / WIDTH][i % WIDTH] = 0;
#if HAS_INITIAL_STATE
    FOR_STATE(LOAD_STATE, ROW2(initial_state, s, hv), initial_state_at.w)
#endif
    MMA_LOOP
    for (uint c = 0; c < chunks; c++) {
        const uint rows = c + 1 < chunks ? CHUNK : last_rows;
        const ulong t = seq.begin + (ulong)c * CHUNK;
#if WK > 1
        MMA_UNROLL
        for (uint l = 0; l < OWN; l++)
            mma_give(m, &left_s[to][own + l][half_line * 2], state[l], OF_LINE);
#endif
#if !FORWARD
        FOR_STATE(STORE_H, ROW3(h, b, seq.first_chunk + c, hv), (size_t)V)
#endif
        AWAIT(arrived_first);
        SYNC(); /* w, q and left_s are there, and no one reads k, P, left_v of the chunk before */
        FETCH(SECOND, c + STAGES - 1);

        float4 x[SETS * SHARE]; /* S^T @ w^T, then v_new^T, of the warp's tokens; sets one after the other */
        MMA_UNROLL
        for (uint n = 0; n < SETS * SHARE; n++)
            x[n] = 0;
#if FORWARD
        float4 y[SHARE], p[SHARE]; /* o^T; v_new^T before it is scaled */
        MMA_UNROLL
        for (uint n = 0; n < SHARE; n++)
            y[n] = 0;
#endif
        struct mma_a a_s[K_LINES][4];
        MMA_UNROLL
        for (uint l = 0; l < K_LINES; l++)
            take_line(m, a_s[l], left_s[to][l], state[l % OWN]);
        MMA_UNROLL
        for (uint l = 0; l < K_LINES; l++) {
            MMA_UNROLL
            for (uint n = 0; n < SHARE; n += PART) {
                mma_nk(m, x + l % SETS * SHARE + n, PART, a_s[l], tile_w[c % STAGES], K_LINES, tile + TOKEN(n), l);
#if FORWARD
                mma_nk(m, y + n, PART, a_s[l], tile_q[c % STAGES], K_LINES, tile + TOKEN(n), l);
#endif
            }
        }

        __local const ELEM(T_U) *of_u = (__local const ELEM(T_U) *)tile_u[c % STAGES];
        of_u += (wv * CHUNK + token) * 16 + 2 * m.row;
        MMA_UNROLL
        for (uint n = 0; n < SHARE; n++) {
            if (SETS > 1)
                x[n] += x[SHARE + n];
            __local const ELEM(T_U) *from = of_u + TOKEN(n) * 16;
            x[n] = (float4)(CAT(mma_pair_, T_U)(from), CAT(mma_pair_, T_U)(from + 4 * MMA_CHUNK * 16)).xzyw - x[n];
        }
#if FORWARD
        const float decay = scale[c % STAGES][2 * CHUNK];
        MMA_UNROLL
        for (uint n = 0; n < SHARE; n++) {
            __local const float *at = &scale[c % STAGES][token + TOKEN(n)];
            y[n] *= (float2)(at[0], at[4 * MMA_CHUNK]).xyxy;
            p[n] = x[n];
            x[n] *= (float2)(at[CHUNK], at[CHUNK + 4 * MMA_CHUNK]).xyxy;
        }
#if WK > 1
        give_tokens(m, &left_p[to], wk, p);
#endif
#else
        STORE_TOKENS(T_V_NEW, ROW3(v_new, b, t + token, hv) + column, v_new_at.z, x, rows)
        const ELEM(T_G) last = gates[c % STAGES][rows - 1];
        const float decay = mma_exp(GATE_SUM(last));
        MMA_UNROLL
        for (uint n = 0; n < SHARE; n++) {
            __local const ELEM(T_G) *at = &gates[c % STAGES][token + TOKEN(n)];
            x[n] *= (float2)(mma_exp(GATE_SUM(last - at[0])), mma_exp(GATE_SUM(last - at[4 * MMA_CHUNK]))).xyxy;
        }
#endif
#if WK > 1
        give_tokens(m, &left_v[to], wk, x);
#endif
        MMA_UNROLL
        for (uint i = 0; i < OWN * WIDTH; i++)
            state[i / WIDTH][i % WIDTH] *= decay;
        AWAIT(arrived_second);
        SYNC(); /* v_new, k and P are there, and no one reads w, q and left_s any more */
        RELEASE(free_first);
        FETCH(FIRST, c + STAGES);

        MMA_UNROLL
        for (uint i = 0; i < TOKENS; i++) {
            struct mma_a a[4];
            take_line(m, a, left_v[to][i], x + i * MMA_CHUNK);
            MMA_UNROLL
            for (uint l = 0; l < OWN; l++) {
                float4 sum[WIDTH] = {0}; /* so that the engine cuts less off, and no line waits for another */
                if (HALVES > 1)
                    mma_kn(m, sum, a, tile_k[c % STAGES], K_LINES, i * MMA_LINE, own + l);
                else
                    mma_kn_half(m, sum, a, tile_k[c % STAGES], K_LINES, i * MMA_LINE, own, half_line);
                MMA_UNROLL
                for (uint j = 0; j < WIDTH; j++)
                    state[l][j] += sum[j];
            }
        }
#if FORWARD
        MMA_UNROLL
        for (uint i = 0; i < TOKENS; i++) {
            struct mma_a a[4];
            take_line(m, a, left_p[to][i], p + i * MMA_CHUNK);
            MMA_UNROLL
            for (uint n = 0; n < SHARE; n += PART)
                mma_nk(m, y + n, PART, a, tile_p[c % STAGES], TOKENS, tile + TOKEN(n), i);
        }
        STORE_TOKENS(T_O, ROW3(o, b, t + token, hv) + column, o_at.z, y, rows)
#endif
        RELEASE(free_second);
    }
#if HAS_FINAL_STATE
    FOR_STATE(STORE_STATE, ROW2(final_state, s, hv), final_state_at.w)
#endif
}
