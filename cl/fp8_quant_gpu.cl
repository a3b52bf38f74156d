/* SPDX-License-Identifier: MIT */
/*
 * fp8_quant, GPU form: a team of LANES work-items takes a group, and INFLIGHT groups at a time.
 *
 * An item holds PER vectors of WIDTH elements of each of its groups in registers, so x is read once. The team finds
 * the largest |x| within its warp on NVIDIA (sm_80 and later) and through local memory elsewhere.
 *
 * Parameters: LOCAL0 (local, a multiple of LANES), LANES (a power of two), WIDTH (16 bytes of x are best), INFLIGHT.
 * GROUP = LANES * WIDTH * PER.
 * Launch: {items} in work-groups of LOCAL0, each for LOCAL0 / LANES * INFLIGHT groups; any number past the last.
 * Traffic: x, q and s once. Local memory: 4 bytes a group, and where teams are not warps 4 an item and group in flight.
 * Numerics: q is x / s correctly rounded, by a division or by what stands under "Quotients".
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
#include "warp.cl"

#define TEAMS (LOCAL0 / LANES)
#define PER (GROUP / (LANES * WIDTH))
#define WAVE (LOCAL0 < WD_SIMD ? LOCAL0 : WD_SIMD)
#define TOGETHER (WAVE / LANES >= 8) /* the scales that a wave stores at once fill 32 bytes */

/* ---- Maximum over a team ---- */

#if WD_SM >= 80
#define WARP (LANES < 32 ? LANES : 32)

/* Over WARP neighbours. All items of the warp must come here together. */
static inline uint warp_max(uint v)
{
#if LANES >= 32
    __asm__ volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(v) : "r"(v));
#else
    #pragma unroll
    for (uint step = LANES / 2; step > 0; step /= 2)
        v = max(v, warp_exchange(v, step));
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

#if WD_SM >= 80
/* The larger of both; NaN if one is. */
static inline float larger(float a, float b)
{
    float r;
    __asm__("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
#else
static inline float larger(float a, float b) { return as_float(max(as_uint(a), as_uint(b))); }
#endif

/* The bits of the largest |x| of an item's part; NaN is larger than everything. */
static inline uint largest_of(const VFLOAT v[PER])
{
    float most = 0.0f;
    #pragma unroll
    for (uint k = 0; k < PER; k++) {
        float x[WIDTH];
        UNPACK(x, v[k]);
        #pragma unroll
        for (uint e = 0; e < WIDTH; e++)
            most = larger(most, fabs(x[e]));
    }
    return as_uint(most);
}

/* ---- Quotients ---- */

/* A division takes a dozen instructions and a look at both exponents, for every element. With fma, q = x / s takes five
 * once r = 1 / s is there, correctly rounded. The first remainder makes q a neighbour of the quotient, and then the
 * second rounds it as the division does (Markstein, "Computation of elementary functions on the IBM RISC System/6000
 * processor", 1990, theorem 4.2). A remainder with the sign turned keeps the sign of zeros.
 *
 * Nothing may overflow or lose bits below 2^-149. With the group's largest |x| from 2^-50 to 2^30 only elements below
 * TINY may: as bytes all of these become 0 anyway, as floats they are divided. */
#if WD_SM
#define EXACT_FMA 1
#define TINY 0x12800000u /* 2^-90 */

static inline bool group_is_tame(uint largest)
{
    return largest - 0x26800000u < 0x4e800000u - 0x26800000u;
}

static inline VFLOAT quotient_by(VFLOAT x, float s, float r)
{
    VFLOAT q = x * r;
    q = fma(-fma((VFLOAT)(s), q, -x), (VFLOAT)(r), q);
    return fma(-fma((VFLOAT)(s), q, -x), (VFLOAT)(r), q);
}

static inline float reciprocal(float s)
{
    float r;
    __asm__("rcp.rn.f32 %0, %1;" : "=f"(r) : "f"(s));
    return r;
}

/* group_scale() of a tame group. */
static inline float tame_scale(uint largest, float eps)
{
    const float m = as_float(max(largest, as_uint(eps))), r = 1.0f / LIMIT;
    float s = m * r;
    s = fma(-fma(LIMIT, s, -m), r, s);
    return CAT(STORED_, T_S)(fma(-fma(LIMIT, s, -m), r, s));
}
#else
#define EXACT_FMA 0
#endif

#define CLAMPS_f32(q) clamp_all(q)
#define CLAMPS_e4m3(q) (q) /* the conversion saturates */
#define CLAMPS_e5m2(q) (q)
#define HOLDS_TINY_f32(x) any((CAT(as_uint, WIDTH)(x) & 0x7fffffffu) - 1u < (CAT(uint, WIDTH))(TINY - 1u))
#define HOLDS_TINY_e4m3(x) 0
#define HOLDS_TINY_e5m2(x) 0

static inline VFLOAT clamp_all(VFLOAT q)
{
    q = q > LIMIT ? (VFLOAT)(LIMIT) : q;
    return q < -LIMIT ? (VFLOAT)(-LIMIT) : q;
}

/* An item's part of a group with the largest |x| `most` to `home`. Returns the scale. */
static inline float quantise(__global ELEM(T_Q) *home, const VFLOAT v[PER], uint most, float eps)
{
#if EXACT_FMA
    if (group_is_tame(max(most, as_uint(eps)))) {
        const float s = tame_scale(most, eps), r = reciprocal(s);
        #pragma unroll
        for (uint k = 0; k < PER; k++) {
            VFLOAT q = quotient_by(v[k], s, r);
            if (CAT(HOLDS_TINY_, T_Q)(v[k]))
                q = v[k] / s;
            STA(T_Q, WIDTH, home + k * LANES * WIDTH, CAT(CLAMPS_, T_Q)(q));
        }
        return s;
    }
#endif
    const float s = group_scale(most, eps);
    #pragma unroll
    for (uint k = 0; k < PER; k++)
        STA(T_Q, WIDTH, home + k * LANES * WIDTH, CAT(CLAMPS_, T_Q)(v[k] / s));
    return s;
}

/* Group j of a token; of packed rows, which are one long row, all groups are those of token 0. */
struct place {
    ulong token, j;
};

static inline struct place place_of(ulong index, ulong groups, bool flat)
{
    const ulong token = flat ? 0 : divide(index, groups);
    return (struct place){token, index - token * groups};
}

__kernel GROUP_SIZE(LOCAL0) void
fp8_quant_gpu(IN(T_X, x), OUT(T_Q, q), OUT(T_S, s), const ulong tokens, const ulong groups, const ulong tokens4,
              const float eps)
{
    const bool flat = S_LAYOUT == 0 && x_at.y == groups * GROUP && q_at.y == groups * GROUP && s_at.y == groups;
    const ulong first = get_group_id(0) * (TEAMS * INFLIGHT) + get_local_id(0) / LANES, all = tokens * groups;
    const uint lane = get_local_id(0) % LANES;
    VFLOAT v[INFLIGHT][PER];
    uint most[INFLIGHT];
    struct place at[INFLIGHT];
#if !TOGETHER
    __local float scale[TEAMS * INFLIGHT];
#endif
#if ENTRIES > 1
    __local uint scratch[INFLIGHT * TEAMS * ENTRIES];
#endif

    /* A group past the end reads the first one instead. */
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++) {
        at[u] = place_of(first + u * TEAMS < all ? first + u * TEAMS : 0, groups, flat);
        __global const ELEM(T_X) *home = ROW1(x, at[u].token) + at[u].j * GROUP + lane * WIDTH;
        #pragma unroll
        for (uint k = 0; k < PER; k++)
            v[u][k] = LDA(T_X, WIDTH, home + k * LANES * WIDTH);
    }
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++)
        most[u] = largest_of(v[u]);
#if ENTRIES > 1
    team_max(most, scratch);
#else
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++)
        most[u] = warp_max(most[u]);
#endif
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++)
        if (first + u * TEAMS < all) {
            const float r = quantise(ROW1(q, at[u].token) + at[u].j * GROUP + lane * WIDTH, v[u], most[u], eps);
            if (lane == 0)
#if TOGETHER
                store_scale(s, s_at, at[u].token, at[u].j, tokens, tokens4, r);
#else
                scale[u * TEAMS + get_local_id(0) / LANES] = r;
#endif
        }
#if !TOGETHER
    /* Stored one by one, 4 bytes for each 512 of x, they took 4 % of all time on the H200. */
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_local_id(0); i < TEAMS * INFLIGHT; i += LOCAL0) {
        const ulong index = get_group_id(0) * (TEAMS * INFLIGHT) + i;
        if (index < all) {
            const struct place to = place_of(index, groups, flat);
            store_scale(s, s_at, to.token, to.j, tokens, tokens4, scale[i]);
        }
    }
#endif
}
