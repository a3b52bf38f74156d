/* SPDX-License-Identifier: MIT */
/*
 * What kernels on matrix engines that begin with a chunk's k k^T share: running sums of gates in two floats, rows of k
 * in local memory as left operands, and how an item looks at its part of the product.
 */
#ifndef WD_GDN_KEYS_MMA
#define WD_GDN_KEYS_MMA

#include "gdn.cl"
#include "gdn_gates.cl"
#include "mma.cl"

#ifndef K
#define K 128
#endif

#define K_LINES MMA_LINES(K)
#define TOKENS (CHUNK / MMA_LINE) /* lines of tokens in a chunk */

/* ---- Sums in two floats ---- */

MMA_FN float2 add2(float2 a, float2 b)
{
    return sum_add(a, b.x) + (float2)(0, b.y);
}

MMA_FN float since(float2 a, float2 b) /* exp(a - b) */
{
    return mma_exp((a.x - b.x) + (a.y - b.y));
}

/* Running sums of 64 values, each item of the first 64 bringing its own; or, of the first `n`, each 64 of them theirs.
 * `sums`: 2 * n. */
MMA_FN float2 running_sum(float value, __local float2 *sums, uint n)
{
    const uint id = (uint)get_local_id(0);
    float2 sum = (float2)(value, 0);
    uint now = 0;
    for (uint step = 1; step < CHUNK; step *= 2, now ^= n) {
        if (id < n)
            sums[now + id] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id % CHUNK >= step && id < n)
            sum = add2(sum, sums[now + id - step]);
    }
    return sum;
}

/* ---- Rows ---- */

/* A line of rows i and i + 8 of a tile as a left operand. */
MMA_FN void tile_operand(struct mma m, struct mma_a a[4], __local const uint4 *tile, uint i, uint line)
{
    uint4 x[4];
    MMA_UNROLL
    for (uint n = 0; n < 4; n++) {
        const uint row = i + n % 2 * 8;
        x[n] = tile[MMA_AT(row, line * 8 + n / 2 * 4 + m.col, K_LINES)];
    }
    mma_fetched(m, a, x);
}

/* ---- Products of rows ---- */

/* One of the four numbers of a sum: of row m.row or, low = false, m.row + 8; .x or, odd, .y. */
#define PART_OF(c, low, odd) ((low) ? ((odd) ? (c).y : (c).x) : ((odd) ? (c).w : (c).z))

/* The factors that normalise rows of k, by whoever has an element of the diagonal of k k^T. i: the item's first row. */
MMA_FN void diagonal_factors(struct mma m, __local float *factor, float4 c[TOKENS][MMA_CHUNK], uint i, float eps)
{
    MMA_UNROLL
    for (uint n = 0; n < CHUNK / 8; n++) {
        const uint j = n / MMA_CHUNK * MMA_LINE + m.col * MMA_CHUNK + n % MMA_CHUNK;
        const float4 x = c[n / MMA_CHUNK][n % MMA_CHUNK];
        if (j == i || j == i + 8)
            factor[j] = row_factor(j == i ? x.x : x.z, eps);
        if (j + 4 * MMA_CHUNK == i || j + 4 * MMA_CHUNK == i + 8)
            factor[j + 4 * MMA_CHUNK] = row_factor(j + 4 * MMA_CHUNK == i ? x.y : x.w, eps);
    }
}

#endif
