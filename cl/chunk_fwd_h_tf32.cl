/* SPDX-License-Identifier: MIT */
/*
 * chunk_fwd_h on Hopper's matrix engine, for f32, by the factors of wgmma_tf32.cl: for each chunk
 *   v_new = u - w @ S,   S' = S * exp(g_last) + k^T @ (v_new * exp(g_last - g))
 * Stores S before each chunk as h, v_new, and S after the last.
 *
 * Layout    all tensors f32 but gates. K is 128, V a multiple of 64.
 * Launch    a group for each sequence, head and 64 columns of V, neighbours in memory: four warps that multiply, four
 *           that have w, four k, and four u, v_new and h. They begin with 128 registers each; those that multiply take
 *           over what the others do not need.
 * How       everything is transposed, as in gdn_walk_wgmma.cl: S^T and v_new^T are sums and left operands as they
 *           stand, in registers from the first chunk to the last. w is a right operand as it lies. k has to be turned,
 *           and in f32 what the engine drops of both has to be written beside them: others do it, k while w is
 *           multiplied and w while k is. h and v_new leave where w and u came from.
 * Traffic   k and w once for each 64 columns, mostly from cache, the others once. Local memory: two chunks of w and u,
 *           one of k and of k^T, and what is dropped of w and k^T; in TF32 three of w and u. It is busy 3/4 of the
 *           time.
 * Numerics  wgmma_tf32.cl's; the state is f32, and rounded once a chunk. Tokens past a short chunk's end count as
 *           zero. In f32 what is infinite in w, k or the state becomes NaN where it is multiplied.
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

#define MMA_TYPE T_K
#define MMA_MATH MATH
#define STATE_ROW m.col /* as WG_COLUMN says */
#define STATE_NEXT 4
#define STATE_COLUMN (2 * m.row) /* neighbours, which local memory gives and takes at once */
#define STATE_BESIDE 1
#include "common.cl"
#include "wgmma_tf32.cl"
#include "gdn_walk_share.cl"

/* The item's place in rows of 64 f32 is `row`, below 8, and `column` and the next: there and `next` rows on, which is 1
 * for even rows or 4. DO(two places, two numbers) for each of n float4s, 8 rows apart. */
#define FOR_PAIRS(DO, lines, row, next, n, sums)                                                                       \
    do {                                                                                                               \
        __local float2 *here_ = (__local float2 *)((__local float *)(lines) + LINE_AT(row, column));                   \
        __local float2 *next_ = (__local float2 *)((__local float *)(lines) + LINE_AT(row, column ^ 8));               \
        MMA_UNROLL                                                                                                     \
        for (uint j_ = 0; j_ < (n); j_++) {                                                                            \
            DO(here_[8 * j_ * SLICE / 2], (sums)[j_].xz);                                                              \
            DO(next_[(8 * j_ + (next)) * SLICE / 2], (sums)[j_].yw);                                                   \
        }                                                                                                              \
    } while (0)

#define PANELS (K / WG_COLUMNS)
#define ROWS (CHUNK * K / 4)  /* uint4s of 64 rows of K */
#define LOW (MMA_PARTS - 1)    /* buffers of what is dropped */
#define STAGES (4 - MMA_PARTS) /* chunks of w and u at a time */

/* ---- What the copying items do: `id` is below FETCHERS ---- */

/* An item has 16 bytes of each eighth row, of each second panel. */
#define W_AT(panel, row, h) ((panel)*WG_PANEL + WG_AT(row, h))

MMA_FN void copy_w(__local uint4 *tile, __global const float *w, ulong pitch, uint rows, uint id)
{
    const uint panel = id / 64, row = id / 8 % 8, h = id % 8;
    tile += W_AT(panel, row, h);
    w += row * pitch + panel * WG_COLUMNS + h * 4;
    MMA_UNROLL
    for (uint i = 0; i < CHUNK; i += 8, w += 8 * pitch)
        MMA_UNROLL
        for (uint p = 0; p < PANELS; p += 2)
            mma_copy(row + i < rows, tile + W_AT(p, i, 0), w + p * WG_COLUMNS);
}

/* Of what this item has copied. */
MMA_FN void drop_w(__local uint4 *low, __local const uint4 *tile, uint id)
{
    uint4 x[CHUNK / 8]; /* none is stored before all are there: the compiler would wait for each */
    MMA_UNROLL
    for (uint p = 0; p < PANELS / 2; p++) {
        const uint at = W_AT(id / 64 + 2 * p, id / 8 % 8, id % 8);
        MMA_UNROLL
        for (uint i = 0; i < CHUNK / 8; i++)
            x[i] = tile[at + W_AT(0, 8 * i, 0)];
        MMA_UNROLL
        for (uint i = 0; i < CHUNK / 8; i++)
            low[at + W_AT(0, 8 * i, 0)] = wg_low(x[i]);
    }
}

/* A warp has 32 columns, an item 16 bytes of each fourth token. Where 16 bytes of a row stand: such that those of the
 * tokens that turn_k() reads at once meet no bank twice. */
#define K_AT(token, h) ((token) * (K / 4) + ((h) ^ ((token) / 8 % 4 * 2 + (token) % 2)))

MMA_FN void copy_k(__local uint4 *rows_of_k, __global const float *k, ulong pitch, uint rows, uint id)
{
    const uint row = id % MMA_WARP / 8, h = id / MMA_WARP * 8 + id % 8;
    k += row * pitch + h * 4;
    MMA_UNROLL
    for (uint i = 0; i < CHUNK; i += 4, k += 4 * pitch)
        mma_copy(row + i < rows, rows_of_k + K_AT(row + i, h), k);
}

/* Of 32 tokens from `row` on and four columns, chunk h of a row: column m.col of tokens 0, 2, 4 and 6 of eight, the
 * (m.row / 2)th, or of 1, 3, 5 and 7. */
MMA_FN uint4 take_turned(struct mma m, __local const uint4 *rows_of_k, uint row, uint h)
{
    uint4 x;
#if MMA_BULK
    const uint lane = (uint)get_local_id(0) % MMA_WARP, token = row + lane % 8 / 2 * 8 + lane / 8 * 2 + lane % 2;
    WG_MATRICES(x, "", mma_address(rows_of_k + K_AT(token, h)));
#else
    const uint token = row + m.row / 2 * 8 + m.row % 2;
    __local const uint *words = (__local const uint *)rows_of_k + m.col;
    x = (uint4)(words[K_AT(token, h) * 4], words[K_AT(token + 2, h) * 4], words[K_AT(token + 4, h) * 4],
                words[K_AT(token + 6, h) * 4]);
#endif
    return x;
}

/* Turns what this warp has copied: a column becomes a row of panels of 32 tokens, in the order that sums have them as a
 * left operand. It stands where the state's sums shall have it. */
MMA_FN void turn_k(struct mma m, __local uint4 *turned, __local uint4 *low, __local const uint4 *rows_of_k, uint id)
{
    const uint h = id / MMA_WARP * 8;
    MMA_UNROLL
    for (uint part = 0; part < CHUNK / 32; part++) {
        uint4 x[8];
        MMA_UNROLL
        for (uint i = 0; i < 8; i++)
            x[i] = take_turned(m, rows_of_k, part * 32, h + i);
        MMA_UNROLL
        for (uint i = 0; i < 8; i++) {
            const uint row = (h + i) / 2 * 8 + WG_COLUMN(i % 2 * 4 + m.col), at = part * (K * 8) + WG_AT(row, m.row);
            turned[at] = x[i];
            if (MMA_PARTS == 2)
                low[at] = wg_low(x[i]);
        }
    }
}

__kernel GROUP_SIZE(ITEMS + (WD_WGMMA ? 3 * FETCHERS : 0))
void chunk_fwd_h_tf32(IN(T_K, k), IN(T_W, w), IN(T_U, u), IN(T_G, g), IN(f32, initial_state), IN(i32, cu_seqlens),
                      OUT(T_H, h), OUT(T_V_NEW, v_new), OUT(f32, final_state), GDN_SIZES)
{
    __local uint4 tile_w[STAGES + LOW][ROWS] __attribute__((aligned(1024))); /* then h; and what is dropped of one */
    __local uint4 turned[1 + LOW][ROWS] __attribute__((aligned(1024)));      /* k^T */
    __local uint4 rows_of_k[ROWS] __attribute__((aligned(16)));
    __local uint4 tile_u[STAGES][CHUNK * SLICE / 4] __attribute__((aligned(16))); /* then v_new */
    __local ELEM(T_G) gates[STAGES][CHUNK] __attribute__((aligned(16)));
    MMA_HERE(m, ITEMS);
    WALK_HERE();
    const uint mine = id % FETCHERS;

#define SHARE(space, x, first_row, pitch, chunk_)                                                                      \
    struct share x##_share = share_of_f32(mine, pitch);                                                                \
    x##_share.chunk = chunk_;                                                                                          \
    space float *x##_next = (first_row) + slice + x##_share.first
    SHARE(__global const, u, AT(u, 0, hv), u_at.z, CHUNK * u_at.z);
    SHARE(__global, v_new, AT(v_new, 0, hv), v_new_at.z, CHUNK * v_new_at.z);
    SHARE(__global, h, OF(h, 0, hv), V, h_at.z);
#define BRING_W(c)                                                                                                     \
    do {                                                                                                               \
        copy_w(tile_w[(c) % STAGES], AT(w, c, hv), w_at.z, ROWS_OF(c), mine);                                          \
        copy_gates(gates[(c) % STAGES], ROW2(g, b, seq.begin + (ulong)(c)*CHUNK) + hv, g_at.z, ROWS_OF(c), mine,       \
                   FETCHERS);                                                                                          \
        mma_commit();                                                                                                  \
    } while (0)
#define BRING_U(c) copy_share(u_share, &u_next, tile_u[(c) % STAGES], ROWS_OF(c), ROWS_STEP, 16)
#define BRING_K(c)                                                                                                     \
    do {                                                                                                               \
        copy_k(rows_of_k, AT(k, c, hk), k_at.z, ROWS_OF(c), mine);                                                     \
        mma_commit();                                                                                                  \
    } while (0)
#define DROP_OF_W(c)                                                                                                   \
    do {                                                                                                               \
        if (MMA_PARTS == 2)                                                                                            \
            drop_w(tile_w[STAGES], tile_w[(c) % STAGES], mine);                                                        \
    } while (0)
#define TURN_K() turn_k(m, turned[0], turned[LOW], rows_of_k, mine)
#define STORE_RESULTS(c)                                                                                               \
    do {                                                                                                               \
        store_share(h_share, &h_next, tile_w[(c) % STAGES], K, K, ROWS_STEP, 16);                                      \
        store_share(v_new_share, &v_new_next, tile_u[(c) % STAGES], ROWS_OF(c), CHUNK, ROWS_STEP, 16);                 \
    } while (0)

#if WD_WGMMA
#define FEWER_REGISTERS() WG_REGISTERS("dec", 88)
#define MORE_REGISTERS() WG_REGISTERS("inc", 248)

    /* w and u have come; w has been multiplied; h and v_new stand in their places; they have been carried away. k is
     * turned; it has been multiplied. */
    __local ulong w_there[STAGES], w_used, w_left[STAGES], w_free[STAGES], k_there, k_free;
    if (id == 0) {
        mma_places(w_there, STAGES, 2 * FETCHERS);
        mma_places(&w_used, 1, ITEMS / MMA_WARP);
        mma_places(w_left, STAGES, ITEMS / MMA_WARP);
        mma_places(w_free, STAGES, FETCHERS);
        mma_places(&k_there, 1, FETCHERS);
        mma_places(&k_free, 1, ITEMS / MMA_WARP);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#define AWAIT_W(c) mma_await(&w_there[(c) % STAGES], (c) / STAGES)
#define AWAIT_USED(c) mma_await(&w_used, c)
#define AWAIT_K(c) mma_await(&k_there, c)
#define USED_W(c) LEAVE(&w_used)
#define LEAVE_W(c) LEAVE(&w_left[(c) % STAGES])
#define LEAVE_K(c) LEAVE(&k_free)
    if (id >= ITEMS)
        FEWER_REGISTERS();
    if (id >= ITEMS + 2 * FETCHERS) {
        for (uint c = 0; c < chunks + STAGES; c++) {
            if (c >= STAGES) {
                mma_await(&w_left[c % STAGES], c / STAGES - 1);
                STORE_RESULTS(c - STAGES);
                mma_arrive(&w_free[c % STAGES]);
            }
            if (c < chunks) {
                BRING_U(c);
                mma_arrive_copied(&w_there[c % STAGES]);
            }
        }
        return;
    }
    if (id >= ITEMS + FETCHERS) {
        if (chunks > 0)
            BRING_K(0);
        for (uint c = 0; c < chunks; c++) {
            if (c > 0)
                mma_await(&k_free, c - 1);
            MMA_WAIT(0);
            WG_WARP_SYNC(); /* the warp's other items too have what they copied */
            TURN_K();
            wg_written();
            mma_arrive(&k_there);
            WG_WARP_SYNC();
            if (c + 1 < chunks)
                BRING_K(c + 1);
        }
        return;
    }
    if (id >= ITEMS) {
        for (uint c = 0; c < STAGES && c < chunks; c++)
            BRING_W(c);
        for (uint c = 0; c < chunks; c++) {
            if (MMA_PARTS == 2 && c > 0)
                mma_await(&w_used, c - 1);
            if (c + STAGES - 2 < chunks)
                MMA_WAIT(STAGES - 2);
            else
                MMA_WAIT(0);
            DROP_OF_W(c);
            wg_written();
            mma_arrive(&w_there[c % STAGES]);
            if (c > 0 && c - 1 + STAGES < chunks) {
                mma_await(&w_free[(c - 1) % STAGES], (c - 1) / STAGES);
                BRING_W(c - 1 + STAGES);
            }
        }
        return;
    }
    MORE_REGISTERS();
#else
#define AWAIT_W(c)                                                                                                     \
    do {                                                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        BRING_W(c);                                                                                                    \
        BRING_U(c);                                                                                                    \
        BRING_K(c);                                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        DROP_OF_W(c);                                                                                                  \
        TURN_K();                                                                                                      \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#define AWAIT_USED(c) barrier(CLK_LOCAL_MEM_FENCE)
#define AWAIT_K(c)
#define USED_W(c)
#define LEAVE_W(c)                                                                                                     \
    do {                                                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        STORE_RESULTS(c);                                                                                              \
    } while (0)
#define LEAVE_K(c)
#endif

    const uint column = id / MMA_WARP * 16 + STATE_COLUMN; /* the item's first of the slice: it and the next */
    const uint token = 2 * m.col;                          /* its first in a chunk: it and the next */
    float4 state[SUMS];
    BEGIN_STATE()

/* Left operands of n steps: x is to stand in registers of its own, since sums have another order there. */
#define LEFT(hi, lo, x, n)                                                                                             \
    MMA_UNROLL                                                                                                         \
    for (uint j = 0; j < (n); j++) {                                                                                   \
        hi[j] = as_float4(as_uint4(wg_left((x)[j])) | m.zero);                                                         \
        if (MMA_PARTS == 2)                                                                                            \
            lo[j] = wg_low(as_uint4(hi[j]));                                                                           \
    }
    float4 hi_s[SUMS];
    uint4 lo_s[SUMS];
    LEFT(hi_s, lo_s, state, SUMS)

    MMA_LOOP
    for (uint c = 0; c < chunks; c++) {
        float4 x[TOKENS], y[TOKENS]; /* (w @ S)^T, then v_new^T; that times exp(g_last - g) */
        float4 added[SUMS];          /* k^T @ the latter, transposed */
        float4 hi_v[TOKENS];
        uint4 lo_v[TOKENS];
        float2 onward[TOKENS];
        AWAIT_W(c);
        wg_begin();
        wg_tf32(m, x, TOKENS, hi_s, lo_s, SUMS, tile_w[c % STAGES], tile_w[STAGES + LOW - 1]);
        wg_commit();
        FOR_PAIRS(TAKE, tile_u[c % STAGES], token, 1, TOKENS, y);
        const ELEM(T_G) last = gates[c % STAGES][ROWS_OF(c) - 1];
        const float decay = mma_exp(GATE_SUM(last));
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++) {
            __local const ELEM(T_G) *at = &gates[c % STAGES][token + 8 * j];
            onward[j] = (float2)(mma_exp(GATE_SUM(last - at[0])), mma_exp(GATE_SUM(last - at[1]))) * WG_DROPPED;
        }
        WG_WAIT(0);
        wg_pin(x, TOKENS);
        USED_W(c);
        MMA_UNROLL
        for (uint j = 0; j < TOKENS; j++) {
            x[j] = fma(x[j], -WG_DROPPED, y[j]);
            y[j] = x[j] * onward[j].xyxy;
        }
        if (MMA_PARTS == 2) /* there are not registers enough to do it later */
            FOR_PAIRS(PUT, tile_u[c % STAGES], token, 1, TOKENS, x);
        LEFT(hi_v, lo_v, y, TOKENS)
        AWAIT_K(c);
        wg_begin();
        wg_tf32(m, added, SUMS, hi_v, lo_v, TOKENS, turned[0], turned[LOW]);
        wg_commit();
        if (MMA_PARTS == 1)
            FOR_PAIRS(PUT, tile_u[c % STAGES], token, 1, TOKENS, x);
        AWAIT_USED(c);
        MMA_UNROLL
        for (uint j = 0; j < SUMS; j++)
            state[j] = wg_left(hi_s[j]);
        FOR_PAIRS(PUT, tile_w[c % STAGES], STATE_ROW, STATE_NEXT, SUMS, state);
        LEAVE_W(c);
        WG_WAIT(0);
        wg_pin(added, SUMS);
        LEAVE_K(c);
        MMA_UNROLL
        for (uint j = 0; j < SUMS; j++)
            state[j] = fma(state[j], decay, added[j]);
        LEFT(hi_s, lo_s, state, SUMS)
    }
#if HAS_FINAL_STATE
    FOR_STATE(STORE_STATE, STATE_AT(final_state), final_state_at.w)
#endif
}
