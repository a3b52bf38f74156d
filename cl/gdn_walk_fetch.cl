/* SPDX-License-Identifier: MIT */
/*
 * How chunks come to the walks on mma.sync, u among them, and how a state comes and goes.
 *
 * What a chunk begins with and what it ends with come apart, as the kernel's COPY_FIRST(c, id, items) and COPY_SECOND
 * bring them: the first half of STAGES chunks ahead, the second of one less. From sm_90 on FETCHERS further items fetch
 * (APART), as soon as a place is free, which RELEASE says; elsewhere the ITEMS themselves, where FETCH stands. AWAIT
 * waits for what came or for what this item copied; then comes SYNC.
 */
#ifndef WD_GDN_WALK_FETCH
#define WD_GDN_WALK_FETCH

#include "gdn_walk.cl"

#ifndef T_U
#define T_U f32
#endif

#define APART MMA_BULK

#if APART
#define FETCH_PLACES                                                                                                   \
    __local ulong arrived_first[STAGES], arrived_second[STAGES], free_first[STAGES], free_second[STAGES];
/* By item 0, then a barrier: `arrivals` say that a half came, those of `warps` that its place is free. */
#define FETCH_INIT(arrivals, warps)                                                                                    \
    do {                                                                                                               \
        mma_places(arrived_first, STAGES, arrivals);                                                                   \
        mma_places(arrived_second, STAGES, arrivals);                                                                  \
        mma_places(free_first, STAGES, warps);                                                                         \
        mma_places(free_second, STAGES, warps);                                                                        \
    } while (0)
#define FETCH_AWAIT(place, c)                                                                                          \
    if ((c) >= STAGES)                                                                                                 \
    mma_await(&place[(c) % STAGES], (c) / STAGES - 1)
/* All that an item which fetches does, where those copy. */
#define FETCH_ALL(id)                                                                                                  \
    do {                                                                                                               \
        for (uint c = 0; c < chunks; c++) {                                                                            \
            FETCH_AWAIT(free_first, c);                                                                                \
            COPY_FIRST(c, id, FETCHERS);                                                                               \
            mma_arrive_copied(&arrived_first[c % STAGES]);                                                             \
            FETCH_AWAIT(free_second, c);                                                                               \
            COPY_SECOND(c, id, FETCHERS);                                                                              \
            mma_arrive_copied(&arrived_second[c % STAGES]);                                                            \
        }                                                                                                              \
        MMA_WAIT(0);                                                                                                   \
    } while (0)
#define FETCH(which, c)
#define RELEASE(place)                                                                                                 \
    if (id % MMA_WARP == 0)                                                                                            \
    mma_arrive(&place[c % STAGES])
#define AWAIT(place) mma_await(&place[c % STAGES], c / STAGES)
#define SYNC() __asm__ volatile("bar.sync 1, %0;" ::"n"(ITEMS) : "memory")
#else
/* Past the last chunk nothing comes, but it counts as a copy to wait for. */
#define FETCH(which, c)                                                                                                \
    do {                                                                                                               \
        if ((c) < chunks)                                                                                              \
            COPY_##which(c, id, ITEMS);                                                                                \
        mma_commit();                                                                                                  \
    } while (0)
#define RELEASE(place)
#define AWAIT(place) MMA_WAIT(2 * (STAGES - 1))
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#endif

/* `strips` times `columns` neighbouring columns of u: as [strips][64][columns]. Past the end the last of `rows`, which
 * meets zeros in k. */
MMA_FN void copy_u(__local uint4 *to, __global const ELEM(T_U) *from, ulong pitch, uint rows, uint strips, uint columns,
                   uint id, uint items)
{
    const uint each = 16 / CAT(MMA_SIZE_, T_U), across = columns / each, strip = CHUNK * across;
    for (uint first = 0; first < strips * strip; first += items) {
        const uint i = first + id;
        if (i < strips * strip)
            mma_copy(true, to + i,
                     from + min(i / across % CHUNK, rows - 1) * pitch + i / strip * columns + i % across * each);
    }
}

/* A kernel's FOR_STATE(DO, base, step) does DO(p, x, y) for each pair of neighbouring columns of what an item has of a
 * state, where p is its place in a [K][V] whose rows are `step` elements apart and whose row 0 is at `base`. */
#define STORE_H(p, x, y) CAT(mma_store2_, T_H)(p, x, y)
#define STORE_STATE(p, x, y) mma_store2_f32(p, x, y)
#define LOAD_STATE(p, x_, y_)                                                                                          \
    do {                                                                                                               \
        const float2 pair = *(__global const float2 *)(p);                                                             \
        x_ = pair.x, y_ = pair.y;                                                                                      \
    } while (0)

#endif
