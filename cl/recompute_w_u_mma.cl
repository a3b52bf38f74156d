/* SPDX-License-Identifier: MIT */
/*
 * recompute_w_u on matrix engines: per chunk of 64 tokens and per head
 *     u = A @ (v * beta)        w = A @ (k * beta * exp(g))
 * as (A * beta) @ v and (A * beta * exp(g)) @ k, scaling the columns of A: half the work of scaling v and k, and
 * these go from memory to the engine's tiles untouched.
 *
 * Layout    as recompute_w_u.cl. k and v of one type; A, w and u of any. K and V multiples of 16.
 * Params    STAGES: steps that are in local memory at once, 2 or more. PER_UNIT (the host's, for the grid): groups for
 *           each compute unit.
 * Launch    any number of groups of 128 items: four warps of 16 rows each. A step makes u or w of one chunk and head;
 *           groups take every so manieth step, and fetch ahead while they compute. Neighbouring steps are neighbours in
 *           memory.
 * Traffic   k, v, w, u once, A twice, the second time from cache. Local: STAGES * 64 rows of k or v, and of A.
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
#define STAGES 2
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "gdn.cl"
#include "mma.cl"

#define ITEMS 128
#define DEPTH (CHUNK / MMA_LINE) /* lines of a row of A, as the product sees it */
#define LINES (K > V ? MMA_LINES(K) : MMA_LINES(V))
#define BATCH (16 / MMA_CHUNK) /* lines that are summed at once */
#define AHEAD (STAGES - 1)     /* steps from the fetch of a tile to its use */

#define TILE_SIZE MMA_TILE(CHUNK, LINES)              /* in chunks of 16 bytes */
#define A_CHUNKS (CHUNK * CAT(MMA_SIZE_, T_A) / 16)   /* of a row of A */
#define A_PITCH (A_CHUNKS + 4)                        /* so that two rows do not meet in a bank */
#define STAGE_SIZE (TILE_SIZE + CHUNK * A_PITCH)

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

/* Starts copying the rows of A that are there; the others make rows of w and u that go nowhere. */
MMA_FN void fetch_A(__local uint4 *to, __global const ELEM(T_A) *A, ulong pitch, uint rows)
{
    MMA_UNROLL
    for (uint i = 0; i < CHUNK * A_CHUNKS / ITEMS; i++) {
        const uint id = (uint)get_local_id(0), row = id / A_CHUNKS + i * (ITEMS / A_CHUNKS), chunk = id % A_CHUNKS;
        if (row < rows)
            mma_copy(to + row * A_PITCH + chunk, (__global const uint4 *)(A + row * pitch) + chunk);
    }
}

/* Line d of rows i and i + 8 of A as a left operand, its columns scaled. Columns past a short chunk's end may hold
 * anything: zero. */
MMA_FN void scaled_A(struct mma m, struct mma_a a[4], __local const uint4 *A, uint i, uint d, __local const float *scale,
                     uint rows)
{
    float4 c[MMA_CHUNK];
    MMA_UNROLL
    for (uint part = 0; part < 2; part++) {
        const uint column = d * MMA_LINE + (m.col + part * 4) * MMA_CHUNK;
        float low[MMA_CHUNK], high[MMA_CHUNK];
        CAT(mma_read_, T_A)(low, (__local const ELEM(T_A) *)(A + i * A_PITCH) + column);
        CAT(mma_read_, T_A)(high, (__local const ELEM(T_A) *)(A + (i + 8) * A_PITCH) + column);
        MMA_UNROLL
        for (uint j = 0; j < MMA_CHUNK; j++) {
            float2 x = (float2)(low[j], high[j]) * scale[column + j];
            if (rows < CHUNK)
                x = column + j < rows ? x : 0;
            if (part == 0)
                c[j].xz = x;
            else
                c[j].yw = x;
        }
    }
    mma_operand(m, a, c);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void recompute_w_u_mma(IN(T_K, k), IN(T_V, v), IN(f32, beta), IN(T_A, A), IN(f32, g), IN(i32, cu_seqlens),
                       OUT(T_W, w), OUT(T_U, u), GDN_SIZES)
{
    __local uint4 stages[STAGES][STAGE_SIZE] __attribute__((aligned(16)));
    __local float scales[2][CHUNK] __attribute__((aligned(16)));
    MMA_HERE(m, ITEMS);
    const uint id = (uint)get_local_id(0), i = id / MMA_WARP * 16 + m.row; /* this item's rows: i and i + 8 */
    const uint groups = (uint)get_num_groups(0), end = 2 * (uint)(B * NT * HV);

#define STEP_AT(s) step_at(s, cu_seqlens + cu_seqlens_at.x, B, T, H, HV, N, NT)
/* Starts to read what step n of the group needs. */
#define FETCH(step, n)                                                                                                 \
    do {                                                                                                               \
        __local uint4 *to = stages[(n) % STAGES];                                                                      \
        if (step.rows > 0) {                                                                                           \
            fetch_A(to + TILE_SIZE, ROW3(A, step.b, step.t, step.hv), A_at.z, step.rows);                              \
            if (step.is_w)                                                                                             \
                mma_copy_rows(to, LINES, MMA_LINES(K), CHUNK,                                                          \
                              ROW3(k, step.b, step.t, (uint)step.hv / ((uint)HV / (uint)H)), k_at.z, step.rows, K,     \
                              ITEMS);                                                                                  \
            else                                                                                                       \
                mma_copy_rows(to, LINES, MMA_LINES(V), CHUNK, ROW3(v, step.b, step.t, step.hv), v_at.z, step.rows, V,  \
                              ITEMS);                                                                                  \
        }                                                                                                              \
        mma_commit();                                                                                                  \
    } while (0)
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
        scales[(n) % 2][id] = scale * mma_exp(gate);

    uint s = (uint)get_group_id(0);
    struct step now = STEP_AT(s), next = STEP_AT(s + groups), later = STEP_AT(s + 2 * groups);
    FETCH(now, 0);
    if (AHEAD == 2)
        FETCH(next, 1);
    float scale, gate = 0;
    LOAD_SCALE(now)
    GIVE_SCALE(0)
    LOAD_SCALE(next)

    MMA_LOOP
    for (uint n = 0; s < end; n++, s += groups) {
        MMA_WAIT(AHEAD - 1);
        barrier(CLK_LOCAL_MEM_FENCE); /* the step's data are there, and no one reads the last step's any more */
        if (AHEAD == 2)
            FETCH(later, n + 2);
        else
            FETCH(next, n + 1);
        GIVE_SCALE(n + 1)
        LOAD_SCALE(later)

        __local const uint4 *tile = stages[n % STAGES];
        const uint lines = now.is_w ? MMA_LINES(K) : MMA_LINES(V);
        const bool low = i < now.rows, high = i + 8 < now.rows;
        MMA_LOOP
        for (uint line = 0; line < lines; line += BATCH) {
            float4 c[BATCH][MMA_CHUNK] = {{0}};
            struct mma_a a[4];
            MMA_UNROLL
            for (uint d = 0; d < DEPTH; d++) {
                if (MMA_SKIP(A_IS_LOWER && d * MMA_LINE > i - m.row + 15))
                    continue;
                scaled_A(m, a, tile + TILE_SIZE, i, d, scales[n % 2], now.rows);
                MMA_UNROLL
                for (uint l = 0; l < BATCH; l++) {
                    if (LINES % BATCH == 0 || line + l < LINES)
                        mma_kn(m, c[l], a, tile, LINES, d * MMA_LINE, line + l);
                }
            }
            MMA_UNROLL
            for (uint l = 0; l < BATCH; l++) {
                if (now.is_w) {
                    __global ELEM(T_W) *out = ROW3(w, now.b, now.t + i, now.hv);
                    if (line + l < MMA_LINES(K))
                        MMA_STORE_LINE(T_W, m, c[l], line + l, out, out + 8 * w_at.z, K, low, high);
                } else {
                    __global ELEM(T_U) *out = ROW3(u, now.b, now.t + i, now.hv);
                    if (line + l < MMA_LINES(V))
                        MMA_STORE_LINE(T_U, m, c[l], line + l, out, out + 8 * u_at.z, V, low, high);
                }
            }
        }
        now = next;
        next = later;
        later = STEP_AT(s + 3 * groups);
    }
}
