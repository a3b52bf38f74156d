/* SPDX-License-Identifier: MIT */
/*
 * recompute_w_u on matrix engines: per chunk of 64 tokens and per head
 *     u = A @ (v * beta)        w = A @ (k * beta * exp(g))
 * as (A * beta) @ v and (A * beta * exp(g)) @ k, scaling the columns of A: half the work of scaling v and k, and
 * these go from memory to the engine's tiles untouched.
 *
 * Layout    as recompute_w_u.cl. k and v of one type; A, w and u of any. K and V multiples of 16.
 * Params    SPLIT: 1: a group makes u and w; 2: one of them.
 * Launch    B*NT * HV * SPLIT groups of 128 items: four warps of 16 rows each. Heads are neighbours, as in memory.
 * Traffic   k, v, w, u once, A SPLIT times. Local: 64 rows of v and of k.
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
#ifndef SPLIT
#define SPLIT 1
#endif

#define MMA_TYPE T_K
#define MMA_MATH MATH
#include "common.cl"
#include "gdn.cl"
#include "mma.cl"

#define ITEMS 128
#define DEPTH (CHUNK / MMA_LINE) /* lines of a row of A */
#define K_LINES MMA_LINES(K)
#define V_LINES MMA_LINES(V)

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
            if (!MMA_SKIP(A_IS_LOWER && d * MMA_LINE > i - m.row))                                                     \
                mma_kn(m, c, a[d], tile, lines, d * MMA_LINE, line);                                                   \
        }                                                                                                              \
        MMA_STORE_LINE(T, m, c, line, out, (out) + 8 * (pitch), width, i < chunk.rows, i + 8 < chunk.rows);            \
    }

__kernel GROUP_SIZE(ITEMS)
void recompute_w_u_mma(IN(T_K, k), IN(T_V, v), IN(f32, beta), IN(T_A, A), IN(f32, g), IN(i32, cu_seqlens),
                       OUT(T_W, w), OUT(T_U, u), GDN_SIZES)
{
    __local uint4 tile_v[CHUNK * V_LINES * 8] __attribute__((aligned(16)));
    __local uint4 tile_k[CHUNK * K_LINES * 8] __attribute__((aligned(16)));
    __local float scale_u[CHUNK], scale_w[CHUNK];
    MMA_HERE(m, ITEMS);

    const uint group = (uint)get_group_id(0) / SPLIT, half_ = (uint)get_group_id(0) % SPLIT;
    const ulong hv = group % (uint)HV, hk = (uint)hv / (uint)(HV / H);
    const struct gdn_chunk chunk = gdn_chunk(group / (uint)HV, cu_seqlens + cu_seqlens_at.x, T, N, NT);
    if (chunk.rows == 0)
        return;
    const bool make_u = SPLIT == 1 || half_ == 0, make_w = SPLIT == 1 || half_ == 1;
    const ulong b = chunk.batch, t = chunk.token;

    if (make_u)
        mma_copy_rows(tile_v, V_LINES, CHUNK, ROW3(v, b, t, hv), v_at.z, chunk.rows, V, ITEMS);
    mma_commit();
    if (make_w)
        mma_copy_rows(tile_k, K_LINES, CHUNK, ROW3(k, b, t, hk), k_at.z, chunk.rows, K, ITEMS);
    mma_commit();

    const uint id = (uint)get_local_id(0), i = id / MMA_WARP * 16 + m.row; /* this item's rows: i and i + 8 */
    if (id < CHUNK) {
        const bool there = id < chunk.rows;
        const float x = there ? ROW2(beta, b, t + id)[hv] : 0;
        scale_u[id] = x;
        scale_w[id] = there ? x * exp(ROW2(g, b, t + id)[hv]) : 0;
    }
    const uint low = min(i, chunk.rows - 1), high = min(i + 8, chunk.rows - 1); /* rows past the end go nowhere */
    float4 c_A[DEPTH][MMA_CHUNK];
    load_A(m, c_A, ROW3(A, b, t + low, hv), ROW3(A, b, t + high, hv));

    struct mma_a a[DEPTH][4];
    MMA_WAIT(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (chunk.rows < CHUNK)
        trim_A(m, c_A, chunk.rows);
    if (make_u) {
        scale_A(m, a, c_A, scale_u);
        MULTIPLY(T_U, tile_v, V_LINES, ROW3(u, b, t + i, hv), u_at.z, V)
    }
    MMA_WAIT(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (make_w) {
        scale_A(m, a, c_A, scale_w);
        MULTIPLY(T_W, tile_k, K_LINES, ROW3(w, b, t + i, hv), w_at.z, K)
    }
}
