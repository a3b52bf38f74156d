/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_h on matrix engines where there are few heads: 8 columns of V a group, so that more units have one, and
 * nothing is transposed: per head, chunk after chunk of 64 tokens, from a state S [K][V]
 *     v_new = u - w @ S;    S' = S * exp(g_last) + k^T @ (v_new * exp(g_last - g))
 *
 * Layout    as chunk_fwd_h.cl. k, w and u f32; h and v_new of any type. K 64, 128 or 256, V a multiple of 8.
 * Params    STAGES: chunks of w and k in local memory at a time.
 * Launch    a group of 128 items for each sequence, head and 8 columns of V, and from sm_90 on four more warps that
 *           fetch; groups of one head are neighbours, as they read the same w and k.
 * How       w and k^T are left operands as their rows lie in local memory, S and v_new right ones, through local memory
 *           too. A warp makes v_new of 16 tokens, of which it has every fourth, and keeps K/4 rows of S as sums.
 * Traffic   u, h and v_new once, w and k once for each 8 columns, mostly from cache. Local: STAGES * 64 rows of w, k
 *           and u, 8 columns of S and of v_new.
 * Numerics  mma.cl's; the state is f32, but rounded as an operand. Sums are of 16 products at most before they are
 *           added as f32. Rows past a short chunk's end count as zero.
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
#ifndef STAGES
#define STAGES 1
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "gdn_walk_fetch.cl"

#define ITEMS 128
#define WIDTH 8 /* columns of V */
#define K_LINES MMA_LINES(K)
#define TOKENS (CHUNK / MMA_LINE) /* lines of tokens in a chunk */
#define OWN (K / 4)               /* rows of S that a warp keeps, in tiles of 16 */
#define TILES (OWN / 16)
#define NEIGHBOURS (TILES > 1 ? 4 : 2) /* of them that an item has in a row */
#define FETCHERS (4 * MMA_WARP)        /* items */

#define COPY_ROWS(tile, x, c, head, id, items)                                                                         \
    mma_copy_rows(tile[(c) % STAGES], K_LINES, K_LINES, CHUNK, AT(x, c, head), x##_at.z, ROWS_OF(c), K, id, items)
#define COPY_FIRST(c, id, items)                                                                                       \
    do {                                                                                                               \
        COPY_ROWS(tile_w, w, c, hv, id, items);                                                                        \
        copy_u(tile_u[(c) % STAGES], AT(u, c, hv) + slice, u_at.z, ROWS_OF(c), 1, WIDTH, id, items);                   \
        copy_gates(gates[(c) % STAGES], ROW2(g, b, seq.begin + (ulong)(c)*CHUNK) + hv, g_at.z, ROWS_OF(c), id, items); \
    } while (0)
#define COPY_SECOND(c, id, items) COPY_ROWS(tile_k, k, c, hk, id, items)

/* A right operand in local memory, transposed: WIDTH rows of `lines` lines. Chunks change places so that neither a row
 * and the next, four chunks of each, nor every other row, two chunks of each, meet in a bank. */
#define COLUMN(row, chunk, lines) ((row) * (lines)*8 + ((chunk) ^ ((row) & 6) ^ (row) % 2 * 4))

/* The rows of S that an item has: half 0 of tile t is .x and .y, half 1 .z and .w. */
#define ROW_OF_S(t, half) (row_of_s + (t) / 2 * 32 + (t) % 2 * 2 + (half))
#define FOR_STATE(DO, base, step)                                                                                      \
    MMA_UNROLL                                                                                                         \
    for (uint t_ = 0; t_ < TILES; t_++) {                                                                              \
        DO((base) + ROW_OF_S(t_, 0) * (step) + column, state[t_].x, state[t_].y);                                      \
        DO((base) + ROW_OF_S(t_, 1) * (step) + column, state[t_].z, state[t_].w);                                      \
    }

#if TILES > 1
#define PAIR uint4 /* of rows of S */
#define IN_CHUNK 0
#else
#define PAIR uint2
#define IN_CHUNK (m.row % 2)
#endif

__kernel GROUP_SIZE(ITEMS + (APART ? FETCHERS : 0))
void chunk_fwd_h_narrow(IN(T_K, k), IN(T_W, w), IN(T_U, u), IN(T_G, g), IN(f32, initial_state), IN(i32, cu_seqlens),
                        OUT(T_H, h), OUT(T_V_NEW, v_new), OUT(f32, final_state), GDN_SIZES)
{
    __local uint4 tile_w[STAGES][MMA_TILE(CHUNK, K_LINES)] MMA_TILE_ALIGNED;
    __local uint4 tile_k[STAGES][MMA_TILE(CHUNK, K_LINES)] MMA_TILE_ALIGNED;
    __local uint4 tile_u[STAGES][CHUNK * WIDTH / 4] __attribute__((aligned(16)));
    __local ELEM(T_G) gates[STAGES][CHUNK] __attribute__((aligned(16)));
    __local uint4 columns_s[WIDTH * K_LINES * 8] MMA_TILE_ALIGNED, columns_v[WIDTH * TOKENS * 8] MMA_TILE_ALIGNED;
#if APART
    FETCH_PLACES
#endif
    MMA_HERE(m, ITEMS);

    const uint slices = V / WIDTH, group = (uint)get_group_id(0);
    const uint id = (uint)get_local_id(0), warp = id / MMA_WARP % 4;
    const uint s = group / slices / (uint)HV, hv = group / slices % (uint)HV, hk = hv / ((uint)HV / (uint)H);
    const struct gdn_sequence seq = gdn_sequence(s, cu_seqlens + cu_seqlens_at.x, T);
    const ulong b = seq.batch;
    const uint chunks = (uint)((seq.end - seq.begin + CHUNK - 1) / CHUNK);
    const uint last_rows = (uint)(seq.end - seq.begin) - (chunks - 1) * CHUNK;

    const uint slice = group % slices * WIDTH;             /* the group's first column */
    const uint column = slice + 2 * m.col;                 /* this item's columns: it and the next */
    const uint token = m.pick * MMA_CHUNK + warp;          /* its tokens in a chunk: it and CHUNK / 2 later */
    const uint row_of_s = warp * OWN + m.row * NEIGHBOURS; /* its first row of S */

#if APART
    if (id == 0)
        FETCH_INIT(FETCHERS, ITEMS / MMA_WARP);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (id >= ITEMS) {
        FETCH_ALL(id - ITEMS);
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

    float4 state[TILES];
    MMA_UNROLL
    for (uint t = 0; t < TILES; t++)
        state[t] = 0;
#if HAS_INITIAL_STATE
    FOR_STATE(LOAD_STATE, ROW2(initial_state, s, hv), initial_state_at.w)
#endif
    MMA_LOOP
    for (uint c = 0; c < chunks; c++) {
        const uint rows = ROWS_OF(c);
        const ulong t = seq.begin + (ulong)c * CHUNK;

        /* S as a right operand. */
        MMA_UNROLL
        for (uint i = 0; i < TILES; i += 2) {
            const uint chunk = (row_of_s + i / 2 * 32) / MMA_CHUNK;
#if TILES > 1
            *(__local float4 *)&columns_s[COLUMN(2 * m.col, chunk, K_LINES)] =
                (float4)(state[i].xz, state[i + 1].xz) * MMA_GIVEN;
            *(__local float4 *)&columns_s[COLUMN(2 * m.col + 1, chunk, K_LINES)] =
                (float4)(state[i].yw, state[i + 1].yw) * MMA_GIVEN;
#else
            ((__local float2 *)&columns_s[COLUMN(2 * m.col, chunk, K_LINES)])[m.row % 2] = state[i].xz * MMA_GIVEN;
            ((__local float2 *)&columns_s[COLUMN(2 * m.col + 1, chunk, K_LINES)])[m.row % 2] = state[i].yw * MMA_GIVEN;
#endif
        }
        FOR_STATE(STORE_H, ROW3(h, b, seq.first_chunk + c, hv), (size_t)V)
        AWAIT(arrived_first);
        SYNC(); /* w and S are there, and no one reads k and v_new of the chunk before */
        FETCH(SECOND, c + STAGES - 1);

        float4 x[K_LINES * 2];
        MMA_UNROLL
        for (uint l = 0; l < K_LINES; l++) {
            uint4 word[4];
            struct mma_a a[4];
            MMA_UNROLL
            for (uint n = 0; n < 4; n++)
                word[n] = MMA_TURNED(tile_w[c % STAGES], MMA_AT(token, m.col, K_LINES), n / 2 * 4)
                    [n % 2 * (CHUNK / 2) * K_LINES * 8 + l * 8];
            mma_fetched(m, a, word);
            x[2 * l] = x[2 * l + 1] = 0;
            MMA_UNROLL
            for (uint half_line = 0; half_line < 2; half_line++) {
                const uint4 y = MMA_TURNED(columns_s, COLUMN(m.row, m.col, K_LINES), half_line * 4)[l * 8];
                const struct mma_b b0 = mma_fresh_b(m, y.xy), b1 = mma_fresh_b(m, y.zw);
                mma_multiply(m, &x[2 * l], a[2 * half_line], &b0, 1);
                mma_multiply(m, &x[2 * l + 1], a[2 * half_line + 1], &b1, 1);
            }
        }
        MMA_UNROLL
        for (uint l = 1; l < K_LINES * 2; l++)
            x[0] += x[l];
        __local const float2 *of_u = (__local const float2 *)tile_u[c % STAGES] + token * (WIDTH / 2) + m.col;
        /* v_new of two tokens, then a right operand */
        float4 v = (float4)(of_u[0], of_u[CHUNK / 2 * (WIDTH / 2)]) - x[0];
        __global ELEM(T_V_NEW) *to = ROW3(v_new, b, t + token, hv) + column;
        if (token < rows)
            CAT(mma_store2_, T_V_NEW)(to, v.x, v.y);
        if (token + CHUNK / 2 < rows)
            CAT(mma_store2_, T_V_NEW)(to + CHUNK / 2 * v_new_at.z, v.z, v.w);
        __local const ELEM(T_G) *gate = gates[c % STAGES];
        const ELEM(T_G) last = gate[rows - 1];
        const float decay = mma_exp(GATE_SUM(last));
        v.xy *= mma_exp(GATE_SUM(last - gate[token])) * MMA_GIVEN;
        v.zw *= mma_exp(GATE_SUM(last - gate[token + CHUNK / 2])) * MMA_GIVEN;
        __local float *even = (__local float *)&columns_v[COLUMN(2 * m.col, m.pick, TOKENS)] + warp;
        __local float *odd = (__local float *)&columns_v[COLUMN(2 * m.col + 1, m.pick, TOKENS)] + warp;
        even[0] = v.x, even[MMA_LINE] = v.z;
        odd[0] = v.y, odd[MMA_LINE] = v.w;
        AWAIT(arrived_second);
        SYNC(); /* v_new and k are there, and no one reads w and S any more */
        RELEASE(free_first);
        FETCH(FIRST, c + STAGES);

        const uint first = MMA_AT(m.col * MMA_CHUNK, row_of_s / MMA_CHUNK, K_LINES);
        float4 sum[TILES][2 * TOKENS];
        MMA_UNROLL
        for (uint i = 0; i < TILES * 2 * TOKENS; i++)
            sum[i / (2 * TOKENS)][i % (2 * TOKENS)] = 0;
        MMA_UNROLL
        for (uint l = 0; l < TOKENS; l++) {
            MMA_UNROLL
            for (uint half_line = 0; half_line < 2; half_line++) {
                const uint4 y = MMA_TURNED(columns_v, COLUMN(m.row, m.col, TOKENS), half_line * 4)[l * 8];
                MMA_UNROLL
                for (uint step = 0; step < 2; step++) { /* of two tokens an item */
                    const struct mma_b b_v = mma_fresh_b(m, step ? y.zw : y.xy);
                    __local const uint4 *tokens = MMA_TURNED(tile_k[c % STAGES], first, half_line * 4) +
                                                  (l * MMA_LINE + half_line * 4 * MMA_CHUNK + step * 2) * K_LINES * 8;
                    MMA_UNROLL
                    for (uint i = 0; i < TILES; i += 2) {
                        __local const uint4 *of_k = tokens + i / 2 * 8;
                        const PAIR low = ((__local const PAIR *)of_k)[IN_CHUNK];
                        const PAIR high = ((__local const PAIR *)(of_k + K_LINES * 8))[IN_CHUNK];
                        float4 *to_sum = &sum[i][2 * l + step];
                        mma_multiply(m, to_sum, mma_make_a(m, (uint4)(low.xy, high.xy)), &b_v, 1);
#if TILES > 1
                        to_sum = &sum[i + 1][2 * l + step];
                        mma_multiply(m, to_sum, mma_make_a(m, (uint4)(low.zw, high.zw)), &b_v, 1);
#endif
                    }
                }
            }
        }
        MMA_UNROLL
        for (uint i = 0; i < TILES; i++) {
            MMA_UNROLL
            for (uint l = 1; l < 2 * TOKENS; l++)
                sum[i][0] += sum[i][l];
            state[i] = fma(state[i], (float4)(decay), sum[i][0]);
        }
        RELEASE(free_second);
    }
#if HAS_FINAL_STATE
    FOR_STATE(STORE_STATE, ROW2(final_state, s, hv), final_state_at.w)
#endif
}
