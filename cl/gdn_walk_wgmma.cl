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
 *           count as zero. What is not finite in v, u or k, or past f16's
 *           range in v - (k @ S) * exp(g), spreads through all 64 tokens of its chunk.
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
#include "gdn_walk.cl"
#include "wgmma.cl"

#define ITEMS WG_ITEMS
#define FETCHERS 128                  /* items that only copy; where the engine is emulated, the same that multiply */
#define TILE (K / WG_LINE * WG_PANEL) /* 64 rows of K */
#define STEPS (K / 16)
#define SUMS (K / 8)           /* float4s of the state */
#define TOKENS (CHUNK / 8)     /* float4s of 64 tokens */
#define SCALES (3 * CHUNK + 4) /* floats: q's, k's, of k @ S, exp(g_last) */
#define SLICE 64               /* columns of V */

/* 64 tokens of x as a left operand. */
MMA_FN void tokens_operand(uint4 a[4], const float4 x[TOKENS])
{
    MMA_UNROLL
    for (uint s = 0; s < 4; s++)
        a[s] = wg_operand(x, s);
}

/* What an item has of a state [K][V], whose rows are `step` elements apart: p is its first place there. */
#define FOR_STATE(DO, p, step)                                                                                         \
    MMA_UNROLL                                                                                                         \
    for (uint j = 0; j < SUMS; j++) {                                                                                  \
        DO((p)[(ulong)(8 * j) * (step)], state[j].x);                                                                  \
        DO((p)[(ulong)(8 * j + 1) * (step)], state[j].y);                                                              \
        DO((p)[(ulong)(8 * j) * (step) + 8], state[j].z);                                                              \
        DO((p)[(ulong)(8 * j + 1) * (step) + 8], state[j].w);                                                          \
    }
#define STORE_STATE(there, here) there = here
#define LOAD_STATE(there, here) here = there

MMA_FN void decay_state(float4 state[SUMS], float decay)
{
    MMA_UNROLL
    for (uint j = 0; j < SUMS; j++)
        state[j] *= decay;
}

/* The item's pairs of tokens, of what stands in `scale` from its first token on. */
MMA_FN void take_scales(float2 x[TOKENS], __local const float *scale)
{
    MMA_UNROLL
    for (uint j = 0; j < TOKENS; j++)
        x[j] = *(__local const float2 *)(scale + 8 * j);
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

/* ---- How chunks come and go: by warps of their own, STAGES ahead; where the engine is emulated, when needed. ---- */

/* The share that an item copies of a tensor's rows, of K elements or of the group's columns of V: so many rows at a
 * time, a multiple of 8, that its 16 bytes stand at even distances in a tile. In elements, but for `tile`. */
struct share {
    uint row, tile;           /* its first row; where that stands in a tile */
    ulong first, next, chunk; /* where it begins; how far its next row is, and the next chunk */
};
#define AT_A_TIME(width) (FETCHERS * 8 / (width))

MMA_FN struct share share_of(uint id, uint width, ulong pitch)
{
    const uint row = id / (width / 8), h = id % (width / 8);
    const struct share s = {row, h / 8 * WG_PANEL + WG_AT(row, h % 8), row * pitch + h * 8, AT_A_TIME(width) * pitch,
                            CHUNK * pitch};
    return s;
}

/* Copies its share of a chunk, of which there are `rows` rows and then zeros; x goes on to the next. */
MMA_FN void copy_share(struct share s, __global const ELEM(T_K) **x, __local uint4 *tile, uint rows, uint width)
{
    __global const ELEM(T_K) *from = *x;
    if (rows >= CHUNK) {
        MMA_UNROLL
        for (uint i = 0; i < CHUNK; i += AT_A_TIME(width), from += s.next)
            mma_copy(true, tile + s.tile + i * 8, from);
    } else {
        MMA_LOOP
        for (uint i = 0; i < CHUNK; i += AT_A_TIME(width), from += s.next)
            mma_copy(s.row + i < rows, tile + s.tile + i * 8, from);
    }
    *x += s.chunk;
}

/* The way back: an item stores what it will copy over. */
MMA_FN void store_share(struct share s, __global ELEM(T_K) **x, __local const uint4 *tile, uint rows, uint width)
{
    __global ELEM(T_K) *to = *x;
    MMA_UNROLL
    for (uint i = 0; i < CHUNK; i += AT_A_TIME(width), to += s.next)
        if (s.row + i < rows)
            MMA_STORE4(uint, (__global uint *)to, tile[s.tile + i * 8]);
    *x += s.chunk;
}

#if FORWARD
#define COPY_CHUNK(c, id)                                                                                              \
    do {                                                                                                               \
        copy_share(k_share, &k_next, tile_k[(c) % STAGES], ROWS_OF(c), K);                                             \
        copy_share(q_share, &q_next, tile_q[(c) % STAGES], ROWS_OF(c), K);                                             \
        copy_share(v_share, &v_next, tile_v[(c) % STAGES], ROWS_OF(c), SLICE);                                         \
    } while (0)
#define STORE_CHUNK(c) store_share(o_share, &o_next, tile_v[(c) % STAGES], ROWS_OF(c), SLICE)
#else
#define COPY_CHUNK(c, id)                                                                                              \
    do {                                                                                                               \
        copy_share(w_share, &w_next, tile_w[(c) % STAGES], ROWS_OF(c), K);                                             \
        copy_share(k_share, &k_next, tile_k[(c) % STAGES], ROWS_OF(c), K);                                             \
        copy_share(u_share, &u_next, tile_v[(c) % STAGES], ROWS_OF(c), SLICE);                                         \
        copy_gates(gates[(c) % STAGES], ROW2(g, b, seq.begin + (ulong)(c)*CHUNK) + hv, g_at.z, ROWS_OF(c), id,         \
                   FETCHERS);                                                                                          \
    } while (0)
#define STORE_CHUNK(c)                                                                                                 \
    do {                                                                                                               \
        store_share(h_share, &h_next, tile_w[(c) % STAGES], CHUNK, K);                                                 \
        store_share(v_new_share, &v_new_next, tile_v[(c) % STAGES], ROWS_OF(c), SLICE);                                \
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

#if WD_WGMMA
#define SYNC() __asm__ volatile("bar.sync 1, %0;" ::"n"(ITEMS) : "memory")
#define AWAIT(c)                                                                                                       \
    do {                                                                                                               \
        mma_await(&arrived[(c) % STAGES], (c) / STAGES);                                                               \
        wg_written();                                                                                                  \
    } while (0)
#define RELEASE(c)                                                                                                     \
    do {                                                                                                               \
        WG_WARP_SYNC(); /* the one that arrives speaks for what all have put there */                                  \
        if (id % MMA_WARP == 0)                                                                                        \
            mma_arrive(&free[(c) % STAGES]);                                                                           \
    } while (0)
#else
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define AWAIT(c)                                                                                                       \
    do {                                                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        COPY_CHUNK(c, id);                                                                                             \
        COPY_IMAGES(c, id);                                                                                            \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#define RELEASE(c)                                                                                                     \
    do {                                                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        STORE_CHUNK(c);                                                                                                \
    } while (0)
#if FORWARD
#define COPY_IMAGES(c, id)                                                                                             \
    do {                                                                                                               \
        copy_tile(tile_t[(c) % STAGES], OF(inverse, c, hv), WG_PANEL, id, ITEMS);                                      \
        copy_tile(tile_p[(c) % STAGES], OF(P, c, hv), WG_PANEL, id, ITEMS);                                            \
        copy_tile((__local uint4 *)scale[(c) % STAGES], OF(scales, c, hv), SCALES / 4, id, ITEMS);                     \
    } while (0)
#else
#define COPY_IMAGES(c, id)
#endif
#endif

__kernel GROUP_SIZE(ITEMS + (WD_WGMMA ? FETCHERS : 0))
#if FORWARD
void gdn_walk_wgmma(IN(T_Q, q), IN(T_K, k), IN(T_V, v), IN(T_INVERSE, inverse), IN(T_P, P), IN(f32, scales),
                    IN(f32, initial_state), IN(i32, cu_seqlens), OUT(T_O, o), OUT(f32, final_state), GDN_SIZES)
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

    const uint slices = V / SLICE, group = (uint)get_group_id(0), id = (uint)get_local_id(0);
    const uint s = group / slices / (uint)HV, hv = group / slices % (uint)HV, hk = hv / ((uint)HV / (uint)H);
    const struct gdn_sequence seq = gdn_sequence(s, cu_seqlens + cu_seqlens_at.x, T);
    const ulong b = seq.batch;
    const uint chunks = (uint)((seq.end - seq.begin + CHUNK - 1) / CHUNK);
    const uint last_rows = (uint)(seq.end - seq.begin) - (chunks - 1) * CHUNK;
    const uint slice = group % slices * SLICE; /* the group's first column */

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

#if WD_WGMMA
    if (id == 0) {
        mma_places(arrived, STAGES, FETCHERS + FORWARD);
        mma_places(free, STAGES, ITEMS / MMA_WARP);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id >= ITEMS) {
        for (uint c = 0; c < chunks + STAGES; c++) {
            const uint stage = c % STAGES;
            if (c >= STAGES) {
                mma_await(&free[stage], c / STAGES - 1);
                STORE_CHUNK(c - STAGES);
            }
            if (c >= chunks)
                continue;
#if FORWARD
            if (id == ITEMS) {
                mma_announce(&arrived[stage], 2 * WG_PANEL * 16 + SCALES * 4);
                mma_bring(&arrived[stage], tile_t[stage], OF(inverse, c, hv), WG_PANEL * 16);
                mma_bring(&arrived[stage], tile_p[stage], OF(P, c, hv), WG_PANEL * 16);
                mma_bring(&arrived[stage], scale[stage], OF(scales, c, hv), SCALES * 4);
            }
#endif
            COPY_CHUNK(c, id - ITEMS);
            mma_arrive_copied(&arrived[stage]);
        }
        return;
    }
#endif

    const uint token = 2 * m.col; /* the item's first in a chunk: it and the next */
/* Its first place in a state: it and the next row, in its column and 8 on. */
#define STATE_AT(x) (ROW2(x, s, hv) + 2 * m.col * x##_at.w + slice + id / MMA_WARP * 16 + m.row)

    float4 state[SUMS];
    MMA_UNROLL
    for (uint j = 0; j < SUMS; j++)
        state[j] = 0;
#if HAS_INITIAL_STATE
    FOR_STATE(LOAD_STATE, STATE_AT(initial_state), initial_state_at.w)
#endif

    MMA_LOOP
    for (uint c = 0; c < chunks; c++) {
        const uint stage = c % STAGES;
        float4 x[TOKENS]; /* (k or w @ S)^T, then v_new^T */
        uint4 a_s[STEPS], a_v[4], tokens[4]; /* v, then o; or u, then v_new */
        MMA_UNROLL
        for (uint j = 0; j < STEPS; j++)
            a_s[j] = wg_operand(state, j);
#if FORWARD
        float4 y[TOKENS], z[TOKENS]; /* o^T: from the state, from v_new */
        float2 of_token[TOKENS];
        uint4 a_p[4];
        AWAIT(c);
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
