/* SPDX-License-Identifier: MIT */
/*
 * X = (I + L)^-1 Y on matrix engines, L strictly lower triangular over the 64 tokens of a chunk, a strip of 16 columns
 * at a time: in blocks of 16 tokens, X_b = (I + L_bb)^-1 (Y_b - sum over a < b of L_ba X_a). X and Y are transposed, so
 * that sums serve as left operands as they stand: in x[n] of a strip's 8 float4s, .x and .y are tokens 8n + 2 * m.col
 * and the next of column 2 * m.row, .z and .w of column 2 * m.row + 1. L is kept in local memory, negative, and its
 * blocks on the diagonal give way to their inverses. Or X = Y (I + L)^-1, a strip of 16 rows at a time, by the same
 * steps from the last block to the first; then X and Y are not transposed, but L is.
 */
#ifndef WD_GDN_SOLVE_MMA
#define WD_GDN_SOLVE_MMA

#include "gdn.cl"
#include "mma.cl"

#define BLOCK 16
#define BLOCKS (CHUNK / BLOCK)

/* Row i of L, negative, in the order in which items read it: by blocks of 16 tokens, then by an item's pairs of each
 * half block. Two rows are 64 bytes apart in the banks, in 16 bits 32. */
#define L_PITCH (CHUNK + BLOCK)
#define L_AT(i, j) ((i)*L_PITCH + (j) / BLOCK * BLOCK + (j) % 8 / 2 * 4 + (j) / 8 % 2 * 2 + (j) % 2)
/* The same for column (m.col + half * 4) * MMA_CHUNK + f of a line, f < MMA_CHUNK, as a sum of what depends on the item
 * and of a constant. */
#if MMA_WIDE
#define L_ITEM(m) ((m).col % 2 * 8 + (m).col / 2 * 2)
#define L_REST(f, half) ((half)*16 + (f) / 2 * 4 + (f) % 2)
#else
#define L_ITEM(m) ((m).col / 2 * 16 + (m).col % 2 * 2)
#define L_REST(f, half) ((half)*32 + (f) / 2 * 4 + (f) % 2)
#endif

/* Where L stands transposed, its columns are rows, of which a block's are in the order in which sums have them, so that
 * .x and .y of two float4s are four neighbours: 4 * m.col and on. */
#define L_COLUMN(i) ((i) / BLOCK * BLOCK + (i) % 4 / 2 * 8 + (i) % BLOCK / 4 * 2 + (i) % 2)

MMA_FN void put2_f32(__local float *p, float x, float y) { *(__local float2 *)p = (float2)(x, y); }
MMA_FN void put2_f16(__local half *p, float x, float y) { *(__local uint *)p = mma_pack_f16(x, y); }
MMA_FN void put2_bf16(__local ushort *p, float x, float y) { *(__local uint *)p = mma_pack_bf16(x, y); }
#define PUT2(p, x, y) CAT(put2_, MMA_TYPE)(p, x, y)
MMA_FN void put_f32(__local float *p, float x) { *p = x; }
MMA_FN void put_f16(__local half *p, float x) { vstore_half_rte(x, 0, p); }
MMA_FN void put_bf16(__local ushort *p, float x) { *p = f32_to_bf16(x); }
#define PUT(p, x) CAT(put_, MMA_TYPE)(p, x)

/* MMA_CHUNK neighbours, 16 bytes. */
MMA_FN void put_chunk(__local ELEM(MMA_TYPE) *p, const float *f)
{
#if MMA_WIDE
    *(__local float4 *)p = (float4)(f[0], f[1], f[2], f[3]);
#else
    *(__local uint4 *)p = (uint4)(CAT(mma_pack_, MMA_TYPE)(f[0], f[1]), CAT(mma_pack_, MMA_TYPE)(f[2], f[3]),
                                  CAT(mma_pack_, MMA_TYPE)(f[4], f[5]), CAT(mma_pack_, MMA_TYPE)(f[6], f[7]));
#endif
}

#define STEPS (MMA_WIDE ? 2 : 1) /* of depth in a block */

/* A block of tokens of X^T, two float4s where .x and .y are neighbouring tokens, as a left operand. */
MMA_FN void block_operand(struct mma m, struct mma_a a[STEPS], const float4 *c)
{
#if MMA_WIDE
    a[0] = mma_make_a(m, as_uint4(c[0].xzyw));
    a[1] = mma_make_a(m, as_uint4(c[1].xzyw));
#else
    a[0] = mma_fresh_a(m, (uint4)(CAT(mma_pack_, MMA_TYPE)(c[0].x, c[0].y), CAT(mma_pack_, MMA_TYPE)(c[0].z, c[0].w),
                                 CAT(mma_pack_, MMA_TYPE)(c[1].x, c[1].y), CAT(mma_pack_, MMA_TYPE)(c[1].z, c[1].w)));
#endif
}

/* Tokens of block `to`, c[0] and c[1], += those of block `from` through L. */
MMA_FN void block_multiply(struct mma m, float4 *c, const struct mma_a a[STEPS], __local const ELEM(MMA_TYPE) *L,
                           uint to, uint from)
{
    struct mma_b b[STEPS][2];
    MMA_UNROLL
    for (uint n = 0; n < 2; n++) {
        __local const ELEM(MMA_TYPE) *row = L + (to * BLOCK + n * 8 + m.row) * L_PITCH + from * BLOCK + m.col * 4;
#if MMA_WIDE
        const uint4 x = *(__local const uint4 *)row;
        b[0][n] = mma_make_b(m, x.xy);
        b[1][n] = mma_make_b(m, x.zw);
#else
        b[0][n] = mma_make_b(m, *(__local const uint2 *)row);
#endif
    }
    MMA_UNROLL
    for (uint s = 0; s < STEPS; s++)
        mma_multiply(m, c, a[s], b[s], 2);
}

/* The blocks on L's diagonal in f32, negative too and transposed: element (i, j) is at D_AT(j, i). Blocks begin 16 bytes
 * apart in the banks, since a warp reads two at a time. */
#define D_PITCH (BLOCK + 4)
#define D_AT(j, i) ((j)*D_PITCH + (j) / BLOCK * 4 + (i) % BLOCK)
#define D_SIZE D_AT(CHUNK, 0)

/* Column id % 16 of the inverse of I + L's block id / 16 on the diagonal: as soon as an element is known, it gives those
 * below it their due, which do not wait for each other. */
MMA_FN void invert_column(float column[BLOCK], __local const float *D)
{
    const uint x = (uint)get_local_id(0) % BLOCK;
    __local const float *row = D + D_AT((uint)get_local_id(0) % CHUNK / BLOCK * BLOCK, 0);
    MMA_UNROLL
    for (uint i = 0; i < BLOCK; i++)
        column[i] = i == x ? 1.0f : 0.0f;
    MMA_UNROLL
    for (uint j = 0; j < BLOCK - 1; j++) {
        float f[BLOCK];
        MMA_UNROLL
        for (uint i = 0; i < BLOCK; i += 4)
            if (i + 3 > j) {
                const float4 four = *(__local const float4 *)(row + j * D_PITCH + i);
                f[i] = four.x, f[i + 1] = four.y, f[i + 2] = four.z, f[i + 3] = four.w;
            }
        MMA_UNROLL
        for (uint i = 0; i < BLOCK; i++)
            if (i > j)
                column[i] += f[i] * column[j];
    }
}

/* (I + L)^-1 of a strip, in place. Backwards, X (I + L) = Y: x begins with block `last` and goes down to block 0, and
 * what comes after that is of no use; L stands transposed. */
MMA_FN void solve(struct mma m, float4 x[8], __local const ELEM(MMA_TYPE) *L, bool backwards, uint last)
{
#define BLOCK_OF(n) (backwards ? max(last, n) - (n) : (n))
    struct mma_a a[STEPS];
    MMA_UNROLL
    for (uint to = 0; to < BLOCKS; to++) {
        float4 *y = x + 2 * to;
        if (!MMA_SKIP(backwards && to > last)) {
            MMA_UNROLL
            for (uint from = 0; from < to; from++) {
                block_operand(m, a, x + 2 * from);
                block_multiply(m, y, a, L, BLOCK_OF(to), BLOCK_OF(from));
            }
            block_operand(m, a, y);
            y[0] = y[1] = 0;
            block_multiply(m, y, a, L, BLOCK_OF(to), BLOCK_OF(to));
        }
    }
#undef BLOCK_OF
}

/* The blocks on the diagonal of a transposed L, id / CHUNK chunks of 64 columns on, give way to their inverses. */
MMA_FN void invert_diagonals(__local ELEM(MMA_TYPE) *L, __local const float *D)
{
    const uint id = (uint)get_local_id(0), token = id % CHUNK;
    float column[BLOCK];
    invert_column(column, D + id / CHUNK * D_SIZE);
    MMA_UNROLL
    for (uint n = 0; n < BLOCK; n += MMA_CHUNK)
        put_chunk(L + (id / CHUNK * CHUNK + L_COLUMN(token)) * L_PITCH + token / BLOCK * BLOCK + n, column + n);
}

/* Strip `strip` of (I + L)^-1, of a transposed L: x begins with the block on the diagonal. */
MMA_FN void solve_inverse(struct mma m, float4 x[8], __local const ELEM(MMA_TYPE) *L, uint strip)
{
    const uint at = 4 * m.col;
    MMA_UNROLL
    for (uint n = 0; n < 8; n++)
        x[n] = 0;
    x[0] = (float4)(at == m.row, at + 1 == m.row, at == m.row + 8, at + 1 == m.row + 8);
    x[1] = (float4)(at + 2 == m.row, at + 3 == m.row, at + 2 == m.row + 8, at + 3 == m.row + 8);
    solve(m, x, L, true, strip);
}

#endif
