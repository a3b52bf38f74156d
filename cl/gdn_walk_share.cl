/* SPDX-License-Identifier: MIT */
/*
 * What the walks on Hopper's matrix engine share: where a group is, and how chunks come and go, by warps of their own,
 * STAGES ahead; where the engine is emulated, when needed. Who includes this says what is done about chunk c:
 *   BRING_CHUNK(c)   what an item asks the memory system for; none if not IMAGES
 *   COPY_CHUNK(c)    what the FETCHERS copy where no results have been
 *   STORE_CHUNK(c)   the results that they carry away
 *   REFILL_CHUNK(c)  what they copy over results
 */
#ifndef WD_GDN_WALK_SHARE
#define WD_GDN_WALK_SHARE

#ifndef T_K
#define T_K bf16
#endif

#include "wgmma.cl"
#include "gdn_walk.cl"

#define ITEMS WG_ITEMS
#define FETCHERS 128 /* items that only copy; where the engine is emulated, the same that multiply */
#define SLICE 64     /* columns of V that a group serves */
#define STEPS (K / 16)
#define SUMS (K / 8)           /* float4s of the state */
#define TOKENS (CHUNK / 8)     /* float4s of 64 tokens */
#define SCALES (3 * CHUNK + 4) /* floats of a chunk and head that gdn_intra_wgmma.cl leaves */

/* A group's place: one of the slices of a sequence and head. */
#define WALK_HERE()                                                                                                    \
    const uint slices = V / SLICE, group = (uint)get_group_id(0), id = (uint)get_local_id(0);                          \
    const uint s = group / slices / (uint)HV, hv = group / slices % (uint)HV, hk = hv / ((uint)HV / (uint)H);          \
    const struct gdn_sequence seq = gdn_sequence(s, cu_seqlens + cu_seqlens_at.x, T);                                  \
    const ulong b = seq.batch;                                                                                         \
    const uint chunks = (uint)((seq.end - seq.begin + CHUNK - 1) / CHUNK);                                             \
    const uint last_rows = (uint)(seq.end - seq.begin) - (chunks - 1) * CHUNK;                                         \
    const uint slice = group % slices * SLICE /* its first column */

/* ---- States ---- */

/* Which rows of a state an item has of each 8, and which columns of its warp's 16: the first, and how far the other is.
 * Who includes this may say otherwise. */
#ifndef STATE_ROW
#define STATE_ROW (2 * m.col)
#define STATE_NEXT 1
#endif
#ifndef STATE_COLUMN
#define STATE_COLUMN m.row
#define STATE_BESIDE 8
#endif

/* An item's first place in a state. */
#define STATE_AT(x) (ROW2(x, s, hv) + STATE_ROW * x##_at.w + slice + id / MMA_WARP * 16 + STATE_COLUMN)

/* What an item has of a state [K][V], whose rows are `step` elements apart: p is its first place there. */
#define FOR_STATE(DO, p, step)                                                                                         \
    MMA_UNROLL                                                                                                         \
    for (uint j = 0; j < SUMS; j++) {                                                                                  \
        DO((p)[(ulong)(8 * j) * (step)], state[j].x);                                                                  \
        DO((p)[(ulong)(8 * j + STATE_NEXT) * (step)], state[j].y);                                                     \
        DO((p)[(ulong)(8 * j) * (step) + STATE_BESIDE], state[j].z);                                                   \
        DO((p)[(ulong)(8 * j + STATE_NEXT) * (step) + STATE_BESIDE], state[j].w);                                      \
    }
#define STORE_STATE(there, here) there = here
#define LOAD_STATE(there, here) here = there

/* The state before the first chunk. */
#if HAS_INITIAL_STATE
#define BEGIN_STATE() FOR_STATE(LOAD_STATE, STATE_AT(initial_state), initial_state_at.w)
#else
#define BEGIN_STATE()                                                                                                  \
    MMA_UNROLL                                                                                                         \
    for (uint j = 0; j < SUMS; j++)                                                                                    \
        state[j] = 0;
#endif

/* ---- Scales ---- */

/* The item's pairs of tokens, of what stands in `scale` from its first token on. */
MMA_FN void take_scales(float2 x[TOKENS], __local const float *scale)
{
    MMA_UNROLL
    for (uint j = 0; j < TOKENS; j++)
        x[j] = *(__local const float2 *)(scale + 8 * j);
}

/* ---- Rows ---- */

/* The share that an item copies of a tensor's rows: 16 bytes of so many rows at a time, a multiple of 8, that they
 * stand at even distances in a tile. */
struct share {
    uint row, tile;           /* its first row; where that stands in a tile */
    ulong first, next, chunk; /* in elements: where it begins; how far its next row is, and the next chunk */
};

/* Copies its share of a chunk, of which there are `rows` rows and then zeros; x goes on to the next. `step`: rows at a
 * time, `line`: uint4s from one row to the next in the tile. */
MMA_FN void copy_share(struct share s, __global const ELEM(T_K) **x, __local uint4 *tile, uint rows, uint step,
                       uint line)
{
    __global const ELEM(T_K) *from = *x;
    if (rows >= CHUNK) {
        MMA_UNROLL
        for (uint i = 0; i < CHUNK; i += step, from += s.next)
            mma_copy(true, tile + s.tile + i * line, from);
    } else {
        MMA_LOOP
        for (uint i = 0; i < CHUNK; i += step, from += s.next)
            mma_copy(s.row + i < rows, tile + s.tile + i * line, from);
    }
    *x += s.chunk;
}

/* The way back, of `rows` of `all` rows: an item stores what it will copy over. */
MMA_FN void store_share(struct share s, __global ELEM(T_K) **x, __local const uint4 *tile, uint rows, uint all,
                        uint step, uint line)
{
    __global ELEM(T_K) *to = *x;
    MMA_UNROLL
    for (uint i = 0; i < all; i += step, to += s.next)
        if (s.row + i < rows)
            MMA_STORE4(uint, (__global uint *)to, tile[s.tile + i * line]);
    *x += s.chunk;
}

/* ---- Rows of 64 f32 ---- */

/* In local memory, such that neither 8 columns, or pairs of them, of 4 rows that an item and its neighbours have, be
 * they next to each other or two apart, nor 8 pieces of a row meet a bank twice. In floats. */
#define LINE_AT(row, column) ((row)*SLICE + ((column) ^ ((row) % 4 ^ (row) / 4 % 2) * 8))

#define TAKE(there, here) here = there
#define PUT(there, here) there = here

/* A share of rows of 64 f32. */
#define ROWS_STEP (FETCHERS / 16)
MMA_FN struct share share_of_f32(uint id, ulong pitch)
{
    const uint row = id / 16, h = id % 16;
    const struct share s = {row, LINE_AT(row, h * 4) / 4, row * pitch + h * 4, ROWS_STEP * pitch, CHUNK * pitch};
    return s;
}

/* ---- Chunks ---- */

#if WD_WGMMA
#define SYNC() __asm__ volatile("bar.sync 1, %0;" ::"n"(ITEMS) : "memory")
#define AWAIT(c) mma_await(&arrived[(c) % STAGES], (c) / STAGES)
#define LEAVE(place)                                                                                                   \
    do {                                                                                                               \
        WG_WARP_SYNC(); /* the one that arrives speaks for what all have put there */                                  \
        if (id % MMA_WARP == 0)                                                                                        \
            mma_arrive(place);                                                                                         \
    } while (0)
#define RELEASE(c) LEAVE(&free[(c) % STAGES])

/* Sends the items that fetch on their way; the others go on. Needs `arrived` and `free`. */
#define FETCH()                                                                                                        \
    if (id == 0) {                                                                                                     \
        mma_places(arrived, STAGES, FETCHERS + IMAGES);                                                                \
        mma_places(free, STAGES, ITEMS / MMA_WARP);                                                                    \
    }                                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    if (id >= ITEMS) {                                                                                                 \
        for (uint c = 0; c < chunks + STAGES; c++) {                                                                   \
            const bool more = c < chunks;                                                                              \
            if (c >= STAGES)                                                                                           \
                mma_await(&free[c % STAGES], c / STAGES - 1);                                                          \
            if (more && IMAGES && id == ITEMS)                                                                         \
                BRING_CHUNK(c);                                                                                        \
            if (more)                                                                                                  \
                COPY_CHUNK(c);                                                                                         \
            if (c >= STAGES)                                                                                           \
                STORE_CHUNK(c - STAGES);                                                                               \
            if (!more)                                                                                                 \
                continue;                                                                                              \
            REFILL_CHUNK(c);                                                                                           \
            mma_arrive_copied(&arrived[c % STAGES]);                                                                   \
        }                                                                                                              \
        return;                                                                                                        \
    }
#else
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define AWAIT(c)                                                                                                       \
    do {                                                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        BRING_CHUNK(c);                                                                                                \
        COPY_CHUNK(c);                                                                                                 \
        REFILL_CHUNK(c);                                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
    } while (0)
#define RELEASE(c)                                                                                                     \
    do {                                                                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        STORE_CHUNK(c);                                                                                                \
    } while (0)
#define FETCH()
#endif

/* Asks for `bytes` of an image of a chunk, for which all bytes are announced first; or copies them, all items their
 * share. */
#if WD_WGMMA
#define ANNOUNCE(c, bytes) mma_announce(&arrived[(c) % STAGES], bytes)
#define BRING(c, tile, from, bytes) mma_bring(&arrived[(c) % STAGES], tile, from, bytes)
#else
#define ANNOUNCE(c, bytes)
#define BRING(c, tile, from, bytes) copy_tile((__local uint4 *)(tile), from, (bytes) / 16, id, ITEMS)
#endif

#endif
