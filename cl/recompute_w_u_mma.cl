/* SPDX-License-Identifier: MIT */
/*
 * recompute_w_u on matrix engines: per chunk of 64 tokens and per head
 *     u = A @ (v * beta)        w = A @ (k * beta * exp(g))
 * as (A * beta) @ v and (A * beta * exp(g)) @ k, scaling the columns of A: half the work of scaling v and k, and
 * these go from memory to the engine's tiles untouched.
 *
 * Layout    as recompute_w_u.cl. k and v of one type; A, w and u of any. K and V multiples of 16.
 * Params    STAGES: tiles in local memory, 2 or 3. PER_UNIT: groups for each compute unit (the host's, for the grid).
 * Launch    any number of groups of 128 items: four warps of 16 rows each. A step makes u or w of one chunk and head;
 *           groups take every so manieth step, and fetch ahead while they compute. Neighbouring steps are neighbours in
 *           memory.
 * Traffic   k, v, w, u once, A twice, the second time from cache. Local: STAGES * 64 rows of k or v.
 * Numerics  mma.cl's; in 16 bits A times its scale is rounded once more. Rows past a short chunk's end count as zero.
 */
#ifndef K
#define K 128
#define V 128
#define T_K f32
#define T_V f32
#define T_A f32
#define T_W f32
#define T_U f32
#define MATH 0
#define A_IS_LOWER 0
#endif
#ifndef STAGES
#define STAGES 3
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "gdn.cl"
#include "mma.cl"

#define ITEMS 128
#define DEPTH (CHUNK / MMA_LINE) /* lines of a row of A */
#define LINES (K > V ? MMA_LINES(K) : MMA_LINES(V))
#define AHEAD (STAGES - 1) /* steps from the fetch of a tile to its use */

/* Rows m.row and m.row + 8 of A as in a C. */
MMA_FN void load_A(struct mma m, float4 c[DEPTH][MMA_CHUNK], __global const ELEM(T_A) *low,
                   __global const ELEM(T_A) *high)
{
    MMA_UNROLL
    for (uint i = 0; i < 2 * DEPTH; i++) {
        const uint at = (i * 4 + m.col) * MMA_CHUNK;
        float x[MMA_CHUNK], y[MMA_CHUNK];
        CAT(mma_load_, T_A)(x, low + at);
        CAT(mma_load_, T_A)(y, high + at);
        MMA_UNROLL
        for (uint j = 0; j < MMA_CHUNK; j++) {
            if (i % 2)
                c[i / 2][j].yw = (float2)(x[j], y[j]);
            else
                c[i / 2][j].xz = (float2)(x[j], y[j]);
        }
    }
}

/* Columns of A past the end of a short chunk may hold anything: zero. */
MMA_FN void trim_A(struct mma m, float4 c[DEPTH][MMA_CHUNK], uint rows)
{
    MMA_UNROLL
    for (uint i = 0; i < CHUNK / 8; i++) {
        const uint at = i / MMA_CHUNK * MMA_LINE + m.col * MMA_CHUNK + i % MMA_CHUNK;
        float4 *a = &c[i / MMA_CHUNK][i % MMA_CHUNK];
        a->xz = at < rows ? a->xz : 0;
        a->yw = at + 4 * MMA_CHUNK < rows ? a->yw : 0;
    }
}

/* The left operand: A with its columns scaled. */
MMA_FN void scale_A(struct mma m, struct mma_a a[DEPTH][4], float4 c[DEPTH][MMA_CHUNK], __local const float *scale)
{
    MMA_UNROLL
    for (uint d = 0; d < DEPTH; d++) {
        float4 x[MMA_CHUNK];
        MMA_UNROLL
        for (uint j = 0; j < MMA_CHUNK; j++) {
            __local const float *s = scale + d * MMA_LINE + m.col * MMA_CHUNK + j;
            x[j] = c[d][j] * (float4)(s[0], s[4 * MMA_CHUNK], s[0], s[4 * MMA_CHUNK]);
        }
        mma_operand(m, a[d], x);
    }
}

struct step {
    ulong b, t, hv;
    uint rows; /* 0: nothing to do */
    bool is_w;
};

/* Step s of 2 * B * NT * HV: u and w take turns. */
MMA_FN struct step step_at(uint s, __global const int *cu_seqlens, GDN_SIZES)
{
    struct step step = {0, 0, s / 2 % (uint)HV, 0, s % 2};
    const uint c = s / 2 / (uint)HV;
    if (c < (uint)(B * NT)) {
        const struct gdn_chunk chunk = gdn_chunk(c, cu_seqlens, T, N, NT);
        step.b = chunk.batch;
        step.t = chunk.token;
        step.rows = chunk.rows;
    }
    return step;
}

__kernel GROUP_SIZE(ITEMS)
void recompute_w_u_mma(IN(T_K, k), IN(T_V, v), IN(f32, beta), IN(T_A, A), IN(f32, g), IN(i32, cu_seqlens),
                       OUT(T_W, w), OUT(T_U, u), GDN_SIZES)
{
    __local uint4 tiles[STAGES][MMA_TILE(CHUNK, LINES)] __attribute__((aligned(16)));
    __local float scales[2][CHUNK];
    MMA_HERE(m, ITEMS);
    const uint id = (uint)get_local_id(0), i = id / MMA_WARP * 16 + m.row; /* this item's rows: i and i + 8 */
    const uint groups = (uint)get_num_groups(0), end = 2 * (uint)(B * NT * HV);

#define STEP_AT(s) step_at(s, cu_seqlens + cu_seqlens_at.x, B, T, H, HV, N, NT)
/* Starts to read a step's tile. */
#define FETCH(step, n)                                                                                                 \
    do {                                                                                                               \
        __local uint4 *tile = tiles[(n) % STAGES];                                                                     \
        if (step.rows > 0 && step.is_w)                                                                                \
            mma_copy_rows(tile, LINES, MMA_LINES(K), CHUNK,                                                            \
                          ROW3(k, step.b, step.t, (uint)step.hv / ((uint)HV / (uint)H)), k_at.z, step.rows, K, ITEMS); \
        else if (step.rows > 0)                                                                                        \
            mma_copy_rows(tile, LINES, MMA_LINES(V), CHUNK, ROW3(v, step.b, step.t, step.hv), v_at.z, step.rows, V,    \
                          ITEMS);                                                                                      \
        mma_commit();                                                                                                  \
    } while (0)
/* Reads a step's rows of A; rows past the end go nowhere. */
#define LOAD_A(step)                                                                                                   \
    if (step.rows > 0)                                                                                                 \
        load_A(m, c_A, ROW3(A, step.b, step.t + min(i, step.rows - 1), step.hv),                                       \
               ROW3(A, step.b, step.t + min(i + 8, step.rows - 1), step.hv))
/* Reads this item's share of a step's scales. */
#define LOAD_SCALE(step)                                                                                               \
    if (id < step.rows) {                                                                                              \
        scale = ROW2(beta, step.b, step.t + id)[step.hv];                                                              \
        gate = step.is_w ? ROW2(g, step.b, step.t + id)[step.hv] : 0;                                                  \
    } else {                                                                                                           \
        scale = 0;                                                                                                     \
    }
#define GIVE_SCALE(n)                                                                                                  \
    if (id < CHUNK)                                                                                                    \
        scales[(n) % 2][id] = scale * exp(gate);

    uint s = (uint)get_group_id(0);
    struct step now = STEP_AT(s), next = STEP_AT(s + groups), later = STEP_AT(s + 2 * groups);
    FETCH(now, 0);
    if (AHEAD == 2)
        FETCH(next, 1);
    float4 c_A[DEPTH][MMA_CHUNK];
    LOAD_A(now);
    float scale, gate = 0;
    LOAD_SCALE(now)
    GIVE_SCALE(0)
    LOAD_SCALE(next)

    MMA_LOOP
    for (uint n = 0; s < end; n++, s += groups) {
        MMA_WAIT(AHEAD - 1);
        barrier(CLK_LOCAL_MEM_FENCE); /* tile and scales are there, and no one reads those before any more */
        if (AHEAD == 2)
            FETCH(later, n + 2);
        else
            FETCH(next, n + 1);
        GIVE_SCALE(n + 1)
        LOAD_SCALE(later)

        struct mma_a a[DEPTH][4];
        if (now.rows < CHUNK)
            trim_A(m, c_A, now.rows);
        scale_A(m, a, c_A, scales[n % 2]);
        LOAD_A(next);

        const uint lines = now.is_w ? MMA_LINES(K) : MMA_LINES(V);
        const bool low = i < now.rows, high = i + 8 < now.rows;
        __global ELEM(T_W) *out_w = ROW3(w, now.b, now.t + i, now.hv);
        __global ELEM(T_U) *out_u = ROW3(u, now.b, now.t + i, now.hv);
        MMA_LOOP
        for (uint line = 0; line < lines; line++) {
            float4 c[MMA_CHUNK] = {0};
            MMA_UNROLL
            for (uint d = 0; d < DEPTH; d++) {
                if (!MMA_SKIP(A_IS_LOWER && d * MMA_LINE > i - m.row + 15))
                    mma_kn(m, c, a[d], tiles[n % STAGES], LINES, d * MMA_LINE, line);
            }
            if (now.is_w)
                MMA_STORE_LINE(T_W, m, c, line, out_w, out_w + 8 * w_at.z, K, low, high);
            else
                MMA_STORE_LINE(T_U, m, c, line, out_u, out_u + 8 * u_at.z, V, low, high);
        }
        now = next;
        next = later;
        later = STEP_AT(s + 3 * groups);
    }
}
