/* SPDX-License-Identifier: MIT */
/*
 * recompute_w_u on matrix engines: per chunk of 64 tokens and per head
 *     u = A @ (v * beta)        w = A @ (k * beta * exp(g))
 * as (A * beta) @ v and (A * beta * exp(g)) @ k, scaling the columns of A: half the work of scaling v and k, and
 * these go from memory to the engine's tiles untouched.
 *
 * Layout    as recompute_w_u.cl. k and v of one type; A, w and u of any. K and V multiples of 16.
 * Variants  mma:        a group makes u or w of one chunk and head, with A in registers.
 *           mma_steps:  a group makes several, one after the other, and fetches what the next one needs, A included,
 *                       while it computes.
 * Launch    groups of 128 items, four warps of 16 rows each. mma: B*NT * HV * 2 groups; mma_steps: any number of groups
 *           (PER_UNIT for each compute unit), each takes every so manieth step. u and w are neighbours, then heads.
 * Traffic   k, v, w, u once; A twice, the second time from cache. Local: 64 rows of v or k; mma_steps: twice that and
 *           of A.
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
#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "gdn.cl"
#include "mma.cl"

#define ITEMS 128
#define DEPTH (CHUNK / MMA_LINE) /* lines of a row of A, as the product sees it */
#define LINES (K > V ? MMA_LINES(K) : MMA_LINES(V))
#define TILE_SIZE MMA_TILE(CHUNK, LINES) /* of k or v, in chunks of 16 bytes */

/* Stores a line of w or u: rows i and i + 8 of a chunk, where they are there. */
#define STORE(T, out, pitch, width, rows)                                                                              \
    MMA_STORE_LINE(T, m, c, line, out, (out) + 8 * (pitch), width, i < (rows), i + 8 < (rows))

#define WU_ARGS                                                                                                        \
    IN(T_K, k), IN(T_V, v), IN(f32, beta), IN(T_A, A), IN(T_G, g), IN(i32, cu_seqlens), OUT(T_W, w), OUT(T_U, u),      \
        GDN_SIZES

#if !WD_ONE || KERNEL_recompute_w_u_mma
/* ---- mma ---- */

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

/* One output, line by line. */
#define MULTIPLY(T, tile, lines, out, pitch, width)                                                                    \
    MMA_LOOP                                                                                                           \
    for (uint line = 0; line < lines; line++) {                                                                        \
        float4 c[MMA_CHUNK] = {0};                                                                                     \
        MMA_UNROLL                                                                                                     \
        for (uint d = 0; d < DEPTH; d++) {                                                                             \
            if (!MMA_SKIP(A_IS_LOWER && d * MMA_LINE > i - m.row + 15))                                                \
                mma_kn(m, c, a[d], tile, lines, d * MMA_LINE, line);                                                   \
        }                                                                                                              \
        STORE(T, out, pitch, width, chunk.rows);                                                                       \
    }

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void recompute_w_u_mma(WU_ARGS)
{
    __local uint4 tile[TILE_SIZE] MMA_TILE_ALIGNED;
    __local float scale[CHUNK];
    MMA_HERE(m, ITEMS);

    const uint group = (uint)get_group_id(0), hv = group / 2 % (uint)HV, hk = hv / ((uint)HV / (uint)H);
    const bool is_w = group % 2;
    const struct gdn_chunk chunk = gdn_chunk(group / 2 / (uint)HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    if (chunk.rows == 0)
        return;
    const ulong b = chunk.batch, t = chunk.token;
    const uint id = (uint)get_local_id(0);
    if (is_w)
        mma_copy_rows(tile, MMA_LINES(K), MMA_LINES(K), CHUNK, ROW3(k, b, t, hk), k_at.z, chunk.rows, K, id, ITEMS);
    else
        mma_copy_rows(tile, MMA_LINES(V), MMA_LINES(V), CHUNK, ROW3(v, b, t, hv), v_at.z, chunk.rows, V, id, ITEMS);
    mma_commit();

    const uint i = id / MMA_WARP * 16 + m.row; /* this item's rows: i and i + 8 */
    const uint low = min(i, chunk.rows - 1), high = min(i + 8, chunk.rows - 1); /* rows past the end go nowhere */
    float4 c_A[DEPTH][MMA_CHUNK];
    load_A(m, c_A, ROW3(A, b, t + low, hv), ROW3(A, b, t + high, hv));
    if (id < CHUNK) {
        float x = 0;
        if (id < chunk.rows)
            x = ROW2(beta, b, t + id)[hv] * (is_w ? mma_exp(GATE_SUM(ROW2(g, b, t + id)[hv])) : 1);
        scale[id] = x;
    }
    if (chunk.rows < CHUNK)
        trim_A(m, c_A, chunk.rows);
    MMA_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);

    struct mma_a a[DEPTH][4];
    scale_A(m, a, c_A, scale);
    if (is_w)
        MULTIPLY(T_W, tile, MMA_LINES(K), ROW3(w, b, t + i, hv), w_at.z, K)
    else
        MULTIPLY(T_U, tile, MMA_LINES(V), ROW3(u, b, t + i, hv), u_at.z, V)
}

#endif

#if !WD_ONE || KERNEL_recompute_w_u_mma_steps
/* ---- mma_steps ---- */

#define A_CHUNKS (CHUNK * CAT(MMA_SIZE_, T_A) / 16)   /* of a row of A */
#define A_PITCH (A_CHUNKS + 4)                        /* so that two rows do not meet in a bank */
#define STAGE_SIZE (TILE_SIZE + CHUNK * A_PITCH)

/* Step 2 * (c * HV + hv) + is_w makes w or u of chunk c of all, head hv. */
struct step {
    uint c, r;   /* r = 2 * hv + is_w */
    ulong b, t;
    uint rows;   /* 0: no such chunk */
};

/* Moves on by `groups` steps, from c and r alone. */
MMA_FN void step_on(struct step *step, uint groups, __global const int *cu_seqlens, GDN_SIZES)
{
    step->r += groups;
    if (step->r >= 2 * (uint)HV) {
        step->c += step->r / (2 * (uint)HV);
        step->r %= 2 * (uint)HV;
    }
    step->rows = 0;
    if (step->c < (uint)(B * NT)) {
        const struct gdn_chunk chunk = gdn_chunk(step->c, cu_seqlens, T, N, NT);
        step->b = chunk.batch;
        step->t = chunk.token;
        step->rows = chunk.rows;
    }
}

/* Starts copying the rows of A that are there. */
MMA_FN void fetch_A(__local uint4 *to, __global const ELEM(T_A) *A, ulong pitch, uint rows)
{
    MMA_UNROLL
    for (uint i = 0; i < CHUNK * A_CHUNKS / ITEMS; i++) {
        const uint id = (uint)get_local_id(0), row = id / A_CHUNKS + i * (ITEMS / A_CHUNKS), chunk = id % A_CHUNKS;
        mma_copy(row < rows, to + row * A_PITCH + chunk, (__global const uint4 *)(A + row * pitch) + chunk);
    }
}

/* Line d of rows i and i + 8 of A as a left operand, its columns scaled. Columns past a short chunk's end may hold
 * anything: zero. */
MMA_FN void scaled_A(struct mma m, struct mma_a a[4], __local const uint4 *A, uint i, uint d,
                     __local const float *scale, uint rows)
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

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void recompute_w_u_mma_steps(WU_ARGS)
{
    __local uint4 stages[2][STAGE_SIZE] MMA_TILE_ALIGNED;
    __local float scales[2][CHUNK] __attribute__((aligned(16)));
    MMA_HERE(m, ITEMS);
    const uint id = (uint)get_local_id(0), i = id / MMA_WARP * 16 + m.row; /* this item's rows: i and i + 8 */
    const uint groups = (uint)get_num_groups(0);

    struct step now = {0, 0, 0, 0, 0}, next = now;
    step_on(&next, (uint)get_group_id(0), cu_seqlens + cu_seqlens_at.x, B, T, H, HV, N, NT);
    float scale = 0, gate = 0; /* of row `id` of the step that was fetched last */

    /* Each round fetches the next step and computes the one before it. */
    MMA_LOOP
    for (uint n = 0; n == 0 || now.c < (uint)(B * NT); n++) {
        if (id < CHUNK)
            scales[n % 2][id] = scale * mma_exp(gate);
        MMA_WAIT(0);
        barrier(CLK_LOCAL_MEM_FENCE); /* what to compute is there, and no one reads what was there before it */
        if (next.rows > 0) {
            __local uint4 *to = stages[n % 2];
            const ulong hv = next.r / 2, hk = (uint)hv / ((uint)HV / (uint)H), b = next.b, t = next.t;
            fetch_A(to + TILE_SIZE, ROW3(A, b, t, hv), A_at.z, next.rows);
            if (next.r % 2)
                mma_copy_rows(to, LINES, MMA_LINES(K), CHUNK, ROW3(k, b, t, hk), k_at.z, next.rows, K, id, ITEMS);
            else
                mma_copy_rows(to, LINES, MMA_LINES(V), CHUNK, ROW3(v, b, t, hv), v_at.z, next.rows, V, id, ITEMS);
            mma_commit();
            scale = id < next.rows ? ROW2(beta, b, t + id)[hv] : 0;
            gate = next.r % 2 && id < next.rows ? GATE_SUM(ROW2(g, b, t + id)[hv]) : 0;
        }
        if (now.rows > 0) {
            __local const uint4 *tile = stages[n % 2 ^ 1];
            __global ELEM(T_W) *out_w = ROW3(w, now.b, now.t + i, now.r / 2);
            __global ELEM(T_U) *out_u = ROW3(u, now.b, now.t + i, now.r / 2);
            struct mma_a a[DEPTH][4];
            MMA_UNROLL
            for (uint d = 0; d < DEPTH; d++)
                scaled_A(m, a[d], tile + TILE_SIZE, i, d, scales[n % 2], now.rows);
            MMA_LOOP
            for (uint line = 0; line < (now.r % 2 ? MMA_LINES(K) : MMA_LINES(V)); line++) {
                float4 c[MMA_CHUNK] = {0};
                MMA_UNROLL
                for (uint d = 0; d < DEPTH; d++) {
                    if (!MMA_SKIP(A_IS_LOWER && d * MMA_LINE > i - m.row + 15))
                        mma_kn(m, c, a[d], tile, LINES, d * MMA_LINE, line);
                }
                if (now.r % 2)
                    STORE(T_W, out_w, w_at.z, K, now.rows);
                else
                    STORE(T_U, out_u, u_at.z, V, now.rows);
            }
        }
        now = next;
        step_on(&next, groups, cu_seqlens + cu_seqlens_at.x, B, T, H, HV, N, NT);
    }
}
#endif
