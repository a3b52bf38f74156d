/* SPDX-License-Identifier: MIT */
/*
 * The second half of gdn_forward on Hopper's matrix engine, for f32: what gdn_walk_wgmma.cl computes, by the factors of
 * wgmma_split.cl.
 *
 * Layout    v, o and states f32. The others as gdn_intra_wgmma.cl leaves them: tiles of q and k, T' and P (transposed)
 *           as panels of f16 in parts; scales are 64 of q_scale, k_scale and exp(g) each, exp(g_last), the exponents of
 *           T' and P, and one that all k_scale stay below. K is 64 or 128, V a multiple of 64.
 * Params, Launch: as there.
 * How       as there. A left operand is brought near the top of what f16 holds by a power of two for each column of V:
 *           the state by the largest that it may have become, v - (k @ S) * exp(g) by its largest, v_new, which is T'
 *           times that, by what a sum of 64 products can be. So the largest of the state is sought while products run.
 *           The state's sums have the unit of what is added to them.
 * Numerics  wgmma_split.cl's. Tokens past a short chunk's end count as zero. What is not finite in v, u or k spreads
 *           through all 64 tokens of its chunk.
 */
#ifndef K
#define K 128
#define V 128
#define T_K f32
#define T_O f32
#define HAS_INITIAL_STATE 0
#define HAS_FINAL_STATE 0
#define MATH 0
#endif
#ifndef STAGES
#define STAGES 2
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "wgmma_split.cl"
#include "gdn_walk_share.cl"

#define TILE (K / WG_LINE * WG_PANEL) /* 64 rows of K, a part of them */
#define REACH 60                      /* how far an exponent may grow in a state's sums */

/* The item's place in rows of 64 f32 is 2 * m.col and `column`: there and in the next row, there and 8 columns on.
 * DO(place, x) for each of n float4s, 8 rows apart. An odd row's columns stand swapped, as LINE_AT() has it. */
#define FOR_LINES(DO, lines, n, sums)                                                                                  \
    do {                                                                                                               \
        __local float *low_ = (__local float *)(lines) + LINE_AT(2 * m.col, column);                                   \
        __local float *high_ = (__local float *)(lines) + LINE_AT(2 * m.col, column + 8);                              \
        MMA_UNROLL                                                                                                     \
        for (uint j_ = 0; j_ < (n); j_++) {                                                                            \
            DO(low_[8 * j_ * SLICE], (sums)[j_].x);                                                                    \
            DO(high_[(8 * j_ + 1) * SLICE], (sums)[j_].y);                                                             \
            DO(high_[8 * j_ * SLICE], (sums)[j_].z);                                                                   \
            DO(low_[(8 * j_ + 1) * SLICE], (sums)[j_].w);                                                              \
        }                                                                                                              \
    } while (0)

#define IMAGES 1
#define BRING_CHUNK(c)                                                                                                 \
    do {                                                                                                               \
        ANNOUNCE(c, (2 * TILE + 2 * WG_PANEL) * MMA_PARTS * 16 + SCALES * 4);                                          \
        BRING(c, tile_k[(c) % STAGES], OF(k_tile, c, hk), MMA_PARTS * TILE * 16);                                      \
        BRING(c, tile_q[(c) % STAGES], OF(q_tile, c, hk), MMA_PARTS * TILE * 16);                                      \
        BRING(c, tile_t[(c) % STAGES], OF(inverse, c, hv), MMA_PARTS * WG_PANEL * 16);                                 \
        BRING(c, tile_p[(c) % STAGES], OF(P, c, hv), MMA_PARTS * WG_PANEL * 16);                                       \
        BRING(c, scale[(c) % STAGES], OF(scales, c, hv), SCALES * 4);                                                  \
    } while (0)
#define COPY_CHUNK(c)
#define STORE_CHUNK(c) store_share(o_share, &o_next, tile_v[(c) % STAGES], ROWS_OF(c), CHUNK, ROWS_STEP, 16)
#define REFILL_CHUNK(c) copy_share(v_share, &v_next, tile_v[(c) % STAGES], ROWS_OF(c), ROWS_STEP, 16)

__kernel GROUP_SIZE(ITEMS + (WD_WGMMA ? FETCHERS : 0))
void gdn_walk_split(IN(f32, q), IN(f32, k), IN(T_K, v), IN(f16, inverse), IN(f16, P), IN(f32, scales), IN(f16, q_tile),
                    IN(f16, k_tile), IN(f32, initial_state), IN(i32, cu_seqlens), OUT(T_O, o), OUT(f32, final_state),
                    GDN_SIZES)
{
    __local uint4 tile_k[STAGES][MMA_PARTS * TILE] __attribute__((aligned(1024)));
    __local uint4 tile_q[STAGES][MMA_PARTS * TILE] __attribute__((aligned(1024)));
    __local uint4 tile_t[STAGES][MMA_PARTS * WG_PANEL] __attribute__((aligned(1024)));
    __local uint4 tile_p[STAGES][MMA_PARTS * WG_PANEL] __attribute__((aligned(1024)));
    __local float scale[STAGES][SCALES] __attribute__((aligned(16)));
    __local uint4 tile_v[STAGES][CHUNK * SLICE / 4] __attribute__((aligned(16))); /* then o */
#if WD_WGMMA
    __local ulong arrived[STAGES], free[STAGES];
#endif
    MMA_HERE(m, ITEMS);
    WALK_HERE();

#define SHARE(space, x)                                                                                                \
    const struct share x##_share = share_of_f32(id % FETCHERS, x##_at.z);                                              \
    space float *x##_next = AT(x, 0, hv) + slice + x##_share.first
    SHARE(__global const, v);
    SHARE(__global, o);
    FETCH()

    const uint column = id / MMA_WARP * 16 + m.row; /* the item's first of the slice */
    const uint token = 2 * m.col;                   /* its first in a chunk: it and the next */
    float4 state[SUMS];                             /* 2^unit each, by columns */
    int2 unit = 0;
    BEGIN_STATE()

    /* What is larger than any of the state's columns, and the state as an operand, 2^of_s each. */
    float2 bound = wg_rows_top(m, state, SUMS);
    int2 of_s;
    wg_parts a_s[STEPS];
#define SPLIT_STATE()                                                                                                  \
    do {                                                                                                               \
        const int2 top_ = wg_exponents(bound);                                                                         \
        of_s = unit + top_ - WG_TOP;                                                                                   \
        MMA_UNROLL                                                                                                     \
        for (uint n = 0; n < STEPS; n++)                                                                               \
            wg_split(a_s[n], state, n, wg_powers(WG_TOP - top_));                                                      \
    } while (0)
/* The state gets ready for what is added to it, in units of 2^own, where it must not grow past all bounds. exact: the
 * state's largest. */
#define DECAY_STATE(decay, own, exact)                                                                                 \
    do {                                                                                                               \
        const int2 least_ = max(unit + wg_exponents(bound * (decay)) - REACH, unit - 127);                             \
        const int2 next_ = max(max(own, -126), least_); /* so that 2^next and 2^(unit - next) are normal numbers */    \
        const float2 onward_ = (decay)*wg_powers(unit - next_);                                                        \
        MMA_UNROLL                                                                                                     \
        for (uint j = 0; j < SUMS; j++)                                                                                \
            state[j] *= onward_.xxyy;                                                                                  \
        bound = (exact)*onward_ + WG_BOUND;                                                                            \
        unit = next_;                                                                                                  \
    } while (0)
    SPLIT_STATE();

/* Steps of an operand may follow each other into the engine as they get ready. */
#define FOR_STEPS(from, to)                                                                                            \
    MMA_UNROLL                                                                                                         \
    for (uint n = from; n < (to); n++)

    MMA_LOOP
    for (uint c = 0; c < chunks; c++) {
        const uint stage = c % STAGES;
        float4 x[TOKENS]; /* (k @ S)^T, v - that, v_new by its scales; then P's part of o^T */
        float4 y[TOKENS]; /* (q @ S)^T, then o^T */
        float4 z[TOKENS]; /* v^T, then v_new^T */
        wg_parts a_x[4], a_v[4], a_p[4];
        float2 of_token[TOKENS];
        AWAIT(c);
        wg_begin();
        FOR_STEPS (0, STEPS)
            wg_nk_split(m, x, a_s[n], tile_k[stage], TILE, n, n == 0);
        wg_commit();
        FOR_STEPS (0, STEPS / 2)
            wg_nk_split(m, y, a_s[n], tile_q[stage], TILE, n, n == 0);
        wg_commit();
        const float2 back = wg_powers(of_s);
        take_scales(of_token, &scale[stage][2 * CHUNK + token]);
        WG_WAIT(1);
        wg_pin(x, TOKENS);
        FOR_LINES(TAKE, tile_v[stage], TOKENS, z);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            x[j] = fma(x[j], of_token[j].xyxy * -back.xxyy, z[j]);
        const int2 top_x = wg_exponents(wg_rows_top(m, x, TOKENS));
        WG_WAIT(0); /* long since: registers of what was multiplied are free again */
        wg_pin(y, TOKENS);
        FOR_STEPS (0, 4) {
            wg_split(a_x[n], x, n, wg_powers(WG_TOP - top_x));
            wg_begin();
            wg_nk_split(m, z, a_x[n], tile_t[stage], WG_PANEL, n, n == 0);
        }
        wg_commit();
        FOR_STEPS (STEPS / 2, STEPS)
            wg_nk_split(m, y, a_s[n], tile_q[stage], TILE, n, false);
        wg_commit();
        const float2 exact = wg_rows_top(m, state, SUMS);
        /* v_new is 2^of_x each, below WG_BOUND of them. */
        __local const float *of_chunk = &scale[stage][3 * CHUNK];
        const int2 of_x = top_x - WG_TOP + (int)of_chunk[1];
        DECAY_STATE(of_chunk[0], of_x + WG_DOWN + (int)of_chunk[3], exact);
        take_scales(of_token, &scale[stage][CHUNK + token]);
        WG_WAIT(1);
        wg_pin(z, TOKENS);
        wg_pin(state, SUMS);
        FOR_STEPS (0, 4) {
            x[2 * n] = z[2 * n] * of_token[2 * n].xyxy;
            x[2 * n + 1] = z[2 * n + 1] * of_token[2 * n + 1].xyxy;
            wg_split(a_v[n], x, n, wg_powers(of_x - unit));
            wg_begin();
            wg_kn_split(m, state, SUMS, a_v[n], tile_k[stage], TILE, n, false);
        }
        wg_commit();
        WG_WAIT(1); /* soon: q is done before the state begins */
        wg_pin(y, TOKENS);
        FOR_STEPS (0, 4) {
            wg_split(a_p[n], z, n, wg_power(-WG_DOWN));
            wg_begin();
            wg_kn_split(m, x, TOKENS, a_p[n], tile_p[stage], WG_PANEL, n, n == 0);
        }
        wg_commit();
        take_scales(of_token, &scale[stage][token]);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            y[j] *= of_token[j].xyxy * back.xxyy;
        WG_WAIT(1);
        wg_pin(state, SUMS);
        SPLIT_STATE();
        WG_WAIT(0);
        wg_pin(x, TOKENS);
        const float2 from_p = wg_powers(of_x + WG_DOWN + (int)of_chunk[2]);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++)
            y[j] = fma(x[j], from_p.xxyy, y[j]);
        FOR_LINES(PUT, tile_v[stage], TOKENS, y);
        RELEASE(c);
    }
#if HAS_FINAL_STATE
    const float2 of_state = wg_powers(unit);
    MMA_UNROLL
    for (uint j = 0; j < SUMS; j++)
        state[j] *= of_state.xxyy;
    FOR_STATE(STORE_STATE, STATE_AT(final_state), final_state_at.w)
#endif
}
