/* SPDX-License-Identifier: MIT */
/*
 * The walk along a sequence on Hopper's matrix engine: what gdn_walk_mma.cl computes, for 16-bit types. By the
 * operation that compiles this file, it is
 *   chunk_fwd_h_wgmma   v_new = u - w @ S; stores S before each chunk as h, and v_new
 *   gdn_walk_wgmma      (FORWARD) v_new = T' @ (v - (k @ S) * exp(g)); stores o = (q @ S) * q_scale + P @ v_new: the
 *                       second half of gdn_forward, where gdn_intra_wgmma.cl made T', P and the scales
 * and after each chunk S' = S * exp(g_last) + k^T @ (v_new * k_scale).
 *
 * Layout    as there; FORWARD takes q, k and v as gdn_forward gets them, `inverse` (T') and P (transposed) as panels of
 *           wgmma.cl; scales are 64 of q_scale, k_scale and exp(g) each, then exp(g_last). K is 64 or 128, V a
 *           multiple of 64. All but gates, scales and states of one 16-bit type.
 * Params    STAGES: chunks in local memory at a time, 2 at least.
 * Launch    a group for each sequence, head and 64 columns of V, neighbours in memory: four warps that multiply and
 *           four that copy.
 * How       everything is transposed: S^T and v_new^T are sums and left operands as they stand, in registers from the
 *           first chunk to the last, and k, q, w, T' and P right operands as they lie. So no warp's product waits for
 *           another warp. o, or h and v_new, they leave where v, or w and u, came from, and the others carry it away.
 *           What they read of local memory while products run comes late, so they read it before or after.
 * Traffic   k, q, w, T' and P once for each 64 columns, mostly from cache, the others once. Local: STAGES times 64 rows
 *           of k, of q or w, of T' and P, and of 64 columns of v or u.
 * Numerics  sums and the state are f32, rounded once for each product that takes them. Tokens past a short chunk's end
 *           count as zero. What is not finite in v, u or k, or past f16's range in v - (k @ S) * exp(g), spreads through
 *           all 64 tokens of its chunk.
 */
#ifndef K
#define K 128
#define V 128
#define T_K bf16
#define T_W bf16
#define T_U bf16
#define T_H bf16
#define T_V_NEW bf16
#define HAS_INITIAL_STATE 0
#define HAS_FINAL_STATE 0
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifdef T_Q
#define FORWARD 1
#else
#define FORWARD 0
#endif

#define MMA_TYPE T_K
#include "common.cl"
#include "gdn_walk_share.cl"

#define TILE (K / WG_LINE * WG_PANEL) /* 64 rows of K */

/* 64 tokens of x as a left operand. */
MMA_FN void tokens_operand(uint4 a[4], const float4 x[TOKENS])
{
    MMA_UNROLL
    for (uint s = 0; s < 4; s++)
        a[s] = wg_operand(x, s);
}

MMA_FN void decay_state(float4 state[SUMS], float decay)
{
    MMA_UNROLL
    for (uint j = 0; j < SUMS; j++)
        state[j] *= decay;
}

/* 64 tokens of the item's columns, as an operand's words. */
MMA_FN void take_tokens(struct mma m, uint4 x[4], __local const uint4 *tile)
{
    MMA_UNROLL
    for (uint j = 0; j < 4; j++)
        x[j] = wg_take_columns(m, tile, j);
}

MMA_FN void put_tokens(struct mma m, __local uint4 *tile, const uint4 x[4])
{
    MMA_UNROLL
    for (uint j = 0; j < 4; j++)
        wg_put_columns(m, tile, j, x[j]);
}

/* x = v - x * scale; words of v as an operand's. */
MMA_FN void subtract(float4 *x, uint2 words, float4 scale)
{
    *x = fma(*x, -scale, (float4)(CAT(mma_unpack_, T_K)(words.x), CAT(mma_unpack_, T_K)(words.y)));
}

/* A share of rows of `width` elements. */
#define AT_A_TIME(width) (FETCHERS * 8 / (width))
MMA_FN struct share share_of(uint id, uint width, ulong pitch)
{
    const uint row = id / (width / 8), h = id % (width / 8);
    const struct share s = {row, h / 8 * WG_PANEL + WG_AT(row, h % 8), row * pitch + h * 8, AT_A_TIME(width) * pitch,
                            CHUNK * pitch};
    return s;
}
#define COPY(c, x, tile, width) copy_share(x##_share, &x##_next, tile[(c) % STAGES], ROWS_OF(c), AT_A_TIME(width), 8)
#define STORE(c, x, tile, rows, width)                                                                                 \
    store_share(x##_share, &x##_next, tile[(c) % STAGES], rows, CHUNK, AT_A_TIME(width), 8)

#if FORWARD
#define IMAGES 1
#define BRING_CHUNK(c)                                                                                                 \
    do {                                                                                                               \
        ANNOUNCE(c, 2 * WG_PANEL * 16 + SCALES * 4);                                                                   \
        BRING(c, tile_t[(c) % STAGES], OF(inverse, c, hv), WG_PANEL * 16);                                             \
        BRING(c, tile_p[(c) % STAGES], OF(P, c, hv), WG_PANEL * 16);                                                   \
        BRING(c, scale[(c) % STAGES], OF(scales, c, hv), SCALES * 4);                                                  \
    } while (0)
#define COPY_CHUNK(c)                                                                                                  \
    do {                                                                                                               \
        COPY(c, k, tile_k, K);                                                                                         \
        COPY(c, q, tile_q, K);                                                                                         \
    } while (0)
#define STORE_CHUNK(c) STORE(c, o, tile_v, ROWS_OF(c), SLICE)
#define REFILL_CHUNK(c) COPY(c, v, tile_v, SLICE)
#else
#define IMAGES 0
#define BRING_CHUNK(c)
#define COPY_CHUNK(c)                                                                                                  \
    do {                                                                                                               \
        COPY(c, k, tile_k, K);                                                                                         \
        copy_gates(gates[(c) % STAGES], ROW2(g, b, seq.begin + (ulong)(c)*CHUNK) + hv, g_at.z, ROWS_OF(c),             \
                   id % FETCHERS, FETCHERS);                                                                           \
    } while (0)
#define STORE_CHUNK(c)                                                                                                 \
    do {                                                                                                               \
        STORE(c, h, tile_w, CHUNK, K);                                                                                 \
        STORE(c, v_new, tile_v, ROWS_OF(c), SLICE);                                                                    \
    } while (0)
#define REFILL_CHUNK(c)                                                                                                \
    do {                                                                                                               \
        COPY(c, w, tile_w, K);                                                                                         \
        COPY(c, u, tile_v, SLICE);                                                                                     \
    } while (0)

/* Of a state's rows, which are columns of its tile's panels. */
MMA_FN struct share share_of_state(uint id, ulong chunk)
{
    struct share s = share_of(id, K, V);
    const uint h = id % (K / 8);
    s.first = (h / 8 * 64 + s.row) * V + h % 8 * 8;
    s.chunk = chunk;
    return s;
}
#endif

__kernel GROUP_SIZE(ITEMS + (WD_WGMMA ? FETCHERS : 0))
#if FORWARD
void gdn_walk_wgmma(IN(T_Q, q), IN(T_K, k), IN(T_V, v), IN(T_INVERSE, inverse), IN(T_P, P), IN(f32, scales),
                    IN(f16, q_tile), IN(f16, k_tile), IN(f32, initial_state), IN(i32, cu_seqlens), OUT(T_O, o),
                    OUT(f32, final_state), GDN_SIZES)
#else
void chunk_fwd_h_wgmma(IN(T_K, k), IN(T_W, w), IN(T_U, u), IN(T_G, g), IN(f32, initial_state), IN(i32, cu_seqlens),
                       OUT(T_H, h), OUT(T_V_NEW, v_new), OUT(f32, final_state), GDN_SIZES)
#endif
{
    __local uint4 tile_k[STAGES][TILE] __attribute__((aligned(1024)));
    __local uint4 tile_v[STAGES][WG_PANEL] __attribute__((aligned(1024))); /* or u */
#if FORWARD
    __local uint4 tile_q[STAGES][TILE] __attribute__((aligned(1024)));
    __local uint4 tile_t[STAGES][WG_PANEL] __attribute__((aligned(1024)));
    __local uint4 tile_p[STAGES][WG_PANEL] __attribute__((aligned(1024)));
    __local float scale[STAGES][SCALES] __attribute__((aligned(16)));
#else
    __local uint4 tile_w[STAGES][TILE] __attribute__((aligned(1024)));
    __local ELEM(T_G) gates[STAGES][CHUNK] __attribute__((aligned(16)));
#endif
#if WD_WGMMA
    __local ulong arrived[STAGES], free[STAGES];
#endif
    MMA_HERE(m, ITEMS);
    WALK_HERE();

#define SHARE(space, x, head, column, width)                                                                           \
    const struct share x##_share = share_of(id % FETCHERS, width, x##_at.z);                                           \
    space ELEM(T_K) *x##_next = AT(x, 0, head) + (column) + x##_share.first
    SHARE(__global const, k, hk, 0, K);
#if FORWARD
    SHARE(__global const, q, hk, 0, K);
    SHARE(__global const, v, hv, slice, SLICE);
    SHARE(__global, o, hv, slice, SLICE);
#else
    SHARE(__global const, w, hv, 0, K);
    SHARE(__global const, u, hv, slice, SLICE);
    SHARE(__global, v_new, hv, slice, SLICE);
    const struct share h_share = share_of_state(id % FETCHERS, h_at.z);
    __global ELEM(T_K) *h_next = OF(h, 0, hv) + slice + h_share.first;
#endif

    FETCH()

    const uint token = 2 * m.col; /* the item's first in a chunk: it and the next */
    float4 state[SUMS];
    BEGIN_STATE()

    MMA_LOOP
    for (uint c = 0; c < chunks; c++) {
        const uint stage = c % STAGES;
        float4 x[TOKENS];                    /* (k or w @ S)^T, then v_new^T */
        uint4 a_s[STEPS], a_v[4], tokens[4]; /* v, then o; or u, then v_new */
        MMA_UNROLL
        for (uint j = 0; j < STEPS; j++)
            a_s[j] = wg_operand(state, j);
#if FORWARD
        float4 y[TOKENS], z[TOKENS]; /* o^T: from the state, from v_new */
        float2 of_token[TOKENS];
        uint4 a_p[4];
        AWAIT(c);
        wg_written();
        wg_begin();
        wg_nk_rows(m, x, a_s, tile_k[stage], 0, STEPS);
        wg_commit();
        wg_nk_rows(m, y, a_s, tile_q[stage], 0, STEPS / 2);
        wg_commit();
        WG_WAIT(1);
        wg_pin(x, TOKENS);
        take_tokens(m, tokens, tile_v[stage]);
        take_scales(of_token, &scale[stage][2 * CHUNK + token]);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            subtract(x + j, j % 2 ? tokens[j / 2].zw : tokens[j / 2].xy, of_token[j].xyxy);
        tokens_operand(a_v, x);
        wg_begin();
        MMA_UNROLL
        for (uint j = 0; j < 4; j++)
            wg_nk(m, x, TOKENS, a_v[j], tile_t[stage], j, j == 0);
        wg_commit();
        wg_nk_rows(m, y, a_s, tile_q[stage], STEPS / 2, STEPS);
        wg_commit();
        decay_state(state, scale[stage][3 * CHUNK]);
        WG_WAIT(1);
        wg_pin(x, TOKENS);
        take_scales(of_token, &scale[stage][CHUNK + token]);
        tokens_operand(a_p, x);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            x[j] *= of_token[j].xyxy;
        tokens_operand(a_v, x);
        wg_pin(state, SUMS);
        wg_begin();
        MMA_UNROLL
        for (uint j = 0; j < 4; j++)
            wg_kn(m, z, TOKENS, a_p[j], tile_p[stage], j, j == 0);
        wg_commit();
#else
        AWAIT(c);
        wg_written();
        take_tokens(m, tokens, tile_v[stage]); /* while the engine reads local memory they would come late */
        wg_begin();
        wg_nk_rows(m, x, a_s, tile_w[stage], 0, STEPS);
        wg_commit();
        const ELEM(T_G) last = gates[stage][ROWS_OF(c) - 1];
        float2 onward[TOKENS]; /* exp(g_last - g) */
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++) {
            __local const ELEM(T_G) *at = &gates[stage][token + 8 * j];
            onward[j] = (float2)(mma_exp(GATE_SUM(last - at[0])), mma_exp(GATE_SUM(last - at[1])));
        }
        WG_WAIT(0);
        wg_pin(x, TOKENS);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            subtract(x + j, j % 2 ? tokens[j / 2].zw : tokens[j / 2].xy, 1);
        tokens_operand(tokens, x);
        decay_state(state, mma_exp(GATE_SUM(last)));
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            x[j] *= onward[j].xyxy;
        tokens_operand(a_v, x);
        wg_pin(state, SUMS);
        wg_begin();
#endif
        MMA_UNROLL
        for (uint j = 0; j < 4; j++)
            wg_kn(m, state, SUMS, a_v[j], tile_k[stage], j, false);
        wg_commit();
#if !FORWARD
        SYNC(); /* no one reads w any more */
        MMA_UNROLL
        for (uint j = 0; j < STEPS; j++)
            wg_put_columns(m, tile_w[stage] + j / 4 * WG_PANEL, j % 4, a_s[j]);
#else
        WG_WAIT(1);
        wg_pin(y, TOKENS);
        wg_pin(z, TOKENS);
        take_scales(of_token, &scale[stage][token]);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            y[j] = fma(y[j], of_token[j].xyxy, z[j]);
        tokens_operand(tokens, y);
#endif
        put_tokens(m, tile_v[stage], tokens);
        WG_WAIT(0);
        wg_pin(state, SUMS);
        RELEASE(c);
    }
#if HAS_FINAL_STATE
    FOR_STATE(STORE_STATE, STATE_AT(final_state), final_state_at.w)
#endif
}
