/* SPDX-License-Identifier: MIT */
/*
 * fp8_quant, GPU form: a team of LANES work-items takes a group, and INFLIGHT groups at a time.
 *
 * An item holds PER vectors of WIDTH elements of each of its groups in registers, so x is read once. The team finds
 * the largest |x| by one warp reduction on NVIDIA (redux.sync, sm_80 and later) and through local memory elsewhere.
 *
 * Parameters: LOCAL0 (local, a multiple of LANES), LANES (a power of two), WIDTH (16 bytes of x are best), INFLIGHT.
 * GROUP = LANES * WIDTH * PER.
 * Launch: {items} in work-groups of LOCAL0, each for LOCAL0 / LANES * INFLIGHT groups; any number past the last.
 * Traffic: x, q and s once. Local memory: 4 bytes an item and group in flight, none for warps.
 */
#ifndef LANES
#define LANES 32
#define WIDTH 4
#define INFLIGHT 4
#endif
#ifndef LOCAL0
#define LOCAL0 256
#endif

#include "fp8.cl"
#include "lanes.cl"

#define TEAMS (LOCAL0 / LANES)
#define PER (GROUP / (LANES * WIDTH))

/* ---- Maximum over a team ---- */

#if WD_SM >= 80
#define WARP (LANES < 32 ? LANES : 32)

/* Over WARP neighbours, all of which must come here together. */
static inline uint warp_max(uint v)
{
#if WARP > 1
    const uint mask = (0xffffffffu >> (32 - WARP)) << (get_local_id(0) % 32 / WARP * WARP);
    __asm__ volatile("redux.sync.max.u32 %0, %1, %2;" : "=r"(v) : "r"(v), "r"(mask));
#endif
    return v;
}
#else
#define WARP 1
#define warp_max(v) (v)
#endif

#define ENTRIES (LANES / WARP) /* values of a team that meet in local memory */

#if ENTRIES > 1
#define LEFT (ENTRIES < 32 ? ENTRIES : 32)

/* most[u] of the item to most[u] of its team. Barriers: all items come here. */
static inline void team_max(uint most[INFLIGHT], __local uint *scratch)
{
    const uint entry = get_local_id(0) % LANES / WARP;
    __local uint *mine = scratch + get_local_id(0) / LANES * ENTRIES;
    for (uint u = 0; u < INFLIGHT; u++) {
        const uint v = warp_max(most[u]);
        if (get_local_id(0) % WARP == 0)
            mine[u * TEAMS * ENTRIES + entry] = v;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint n = ENTRIES / 2; n >= LEFT; n /= 2) {
        if (get_local_id(0) % WARP == 0 && entry < n)
            for (uint u = 0; u < INFLIGHT; u++)
                mine[u * TEAMS * ENTRIES + entry] =
                    max(mine[u * TEAMS * ENTRIES + entry], mine[u * TEAMS * ENTRIES + entry + n]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint u = 0; u < INFLIGHT; u++)
        for (uint e = 0; e < LEFT; e++)
            most[u] = max(most[u], mine[u * TEAMS * ENTRIES + e]);
}
#endif

/* ---- A group's part ---- */

static inline uint largest_of(const VFLOAT v[PER])
{
    uint most = 0;
    #pragma unroll
    for (uint k = 0; k < PER; k++) {
        float x[WIDTH];
        UNPACK(x, v[k]);
        #pragma unroll
        for (uint e = 0; e < WIDTH; e++)
            most = max(most, abs_bits(x[e]));
    }
    return most;
}

static inline VFLOAT quotient(VFLOAT x, float scale)
{
    VFLOAT q = x / scale;
    q = q > LIMIT ? (VFLOAT)(LIMIT) : q;
    return q < -LIMIT ? (VFLOAT)(-LIMIT) : q;
}

__kernel GROUP_SIZE(LOCAL0) void
fp8_quant_gpu(IN(T_X, x), OUT(T_Q, q), OUT(T_S, s), const ulong tokens, const ulong groups, const ulong tokens4,
              const float eps)
{
    const ulong first = get_group_id(0) * (TEAMS * INFLIGHT) + get_local_id(0) / LANES;
    const uint lane = get_local_id(0) % LANES;
    VFLOAT v[INFLIGHT][PER];
    uint most[INFLIGHT];
    ulong token[INFLIGHT], j[INFLIGHT];

    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++) {
        token[u] = u ? token[u - 1] : divide(first, groups);
        j[u] = u ? j[u - 1] + TEAMS : first - token[u] * groups;
        for (; j[u] >= groups; j[u] -= groups)
            token[u]++;
        #pragma unroll
        for (uint k = 0; k < PER; k++)
            v[u][k] = token[u] < tokens
                          ? LDA(T_X, WIDTH, ROW1(x, token[u]) + j[u] * GROUP + (k * LANES + lane) * WIDTH)
                          : (VFLOAT)(0.0f);
    }
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++)
        most[u] = largest_of(v[u]);
#if ENTRIES > 1
    __local uint scratch[INFLIGHT * TEAMS * ENTRIES];
    team_max(most, scratch);
#else
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++)
        most[u] = warp_max(most[u]);
#endif
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++) {
        if (token[u] >= tokens)
            continue;
        const float scale = group_scale(most[u], eps);
        if (lane == 0)
            store_scale(s, s_at, token[u], j[u], tokens, tokens4, scale);
        #pragma unroll
        for (uint k = 0; k < PER; k++)
            STA(T_Q, WIDTH, ROW1(q, token[u]) + j[u] * GROUP + (k * LANES + lane) * WIDTH, quotient(v[u][k], scale));
    }
}
