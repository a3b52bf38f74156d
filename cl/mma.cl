/* SPDX-License-Identifier: MIT */
/*
 * The matrix primitive: products of small tiles with f32 sums, spread over a warp of 32 items.
 *
 * Everything is counted in lines of 128 bytes. A line is 8 chunks of 16 bytes, a chunk holds MMA_CHUNK elements (4 of
 * f32, 8 of f16 or bf16), a line MMA_LINE of them (32 or 64). A product takes one line of depth at a time:
 *
 *   C[16][line]    float4 c[MMA_CHUNK]   sums, spread over the warp:
 *                      c[j].x row m.row, column m.col * MMA_CHUNK + j
 *                      c[j].y row m.row, column (m.col + 4) * MMA_CHUNK + j
 *                      c[j].z, c[j].w the same of row m.row + 8
 *                  so that an item holds two chunks of a row, and neighbours hold neighbouring chunks.
 *   A[16][line]    struct mma_a a[4]     the left operand, in the same places; made from a C by mma_operand() or read
 *                                        from rows in memory by mma_fetch(), mma_fetched()
 *   tile           __local uint4[]       the right operand: rows of lines, MMA_TILE(rows, lines) chunks in all, each at
 *                                        MMA_AT(row, chunk, lines)
 *
 *   mma_kn(m, c, a, tile, lines, row, line)      C += A @ X, X being rows row .. row + MMA_LINE - 1 of one line
 *   mma_nk(m, c, n, a, tile, lines, row, line)   C += A @ X^T
 *
 * mma_nk makes n of a C's float4s, the first being row % MMA_CHUNK. A half line (mma_kn_half) has MMA_UNIT of them,
 * where c[j].y is MMA_UNIT columns past c[j].x, in the same chunk.
 *
 * How the depth of a product is numbered is no one's business as long as A and X agree. A step's eight words of depth
 * are here words 2i and 2i+1 of one chunk of each of four items, so that every access, A's and C's too, is 16 bytes
 * wide and the words of X^T stand in registers as the instruction wants them. Chunks of a tile change places within
 * their line, by another number every MMA_CHUNK rows, so that no way to read it meets a bank twice. To skip a chunk now
 * and then would do too; but NVIDIA's copies take up to four times as long where they move rows by less than a line.
 *
 * MMA_TYPE says what the operands are (f32 f16 bf16), MMA_MATH how f32 is multiplied:
 *   0  as f32: each factor is split in two TF32 numbers, x = hi + lo exactly in 24 bits, and hi*hi + hi*lo + lo*hi
 *      are summed. What is dropped is 2^-20 of a product at most. (Ootomo, Yokota: "Recovering single precision
 *      accuracy from Tensor Cores", 2022.) An infinite factor gives NaN.
 *   1  as TF32, each factor rounded to 11 bits.
 *
 * Back ends: NVIDIA sm_80 and later, mma.sync through inline PTX. Everywhere else the instruction is emulated: items
 * exchange operands through local memory with two barriers for every few instructions, to test these kernels on any
 * device, not to be fast. So every call must be reached by the whole work-group: never under a condition that differs
 * between warps, unless it is in MMA_SKIP(). Another vendor's engine (AMD MFMA, Intel DPAS) takes a back end of its own
 * here: struct mma, mma_operand, the two products and where C lies, which kernels ask m and MMA_CHUNK for.
 */
#ifndef WD_MMA
#define WD_MMA

#include "mma_engine.cl"
#include "mma_memory.cl"

/* ---- Products ---- */

/* row: a multiple of MMA_LINE. */
MMA_FN void mma_kn(struct mma m, float4 *c, const struct mma_a a[4], __local const uint4 *tile, uint lines, uint row,
                   uint line)
{
    const uint first = m.col * MMA_CHUNK * lines * 8 + (m.pick ^ MMA_TURN(m.col));
    MMA_UNROLL
    for (uint s = 0; s < 4; s++) {
        __local const uint4 *x = MMA_TURNED(tile, first, s / 2 * 4);
        const uint at = (row + s / 2 * 4 * MMA_CHUNK + s % 2 * MMA_UNIT) * lines * 8 + line * 8;
        uint4 y[MMA_UNIT]; /* words of MMA_UNIT rows */
        MMA_UNROLL
        for (uint i = 0; i < MMA_UNIT; i++)
            y[i] = x[at + i * lines * 8];
        struct mma_b b[MMA_CHUNK];
        MMA_UNROLL
        for (uint j = 0; j < MMA_CHUNK; j++) {
#if MMA_WIDE
            b[j] = mma_make_b(m, (uint2)(mma_word(y[0], j), mma_word(y[1], j)));
#else
            b[j] = mma_make_b(m, (uint2)(mma_halves(mma_word(y[0], j / 2), mma_word(y[1], j / 2), j % 2),
                                         mma_halves(mma_word(y[2], j / 2), mma_word(y[3], j / 2), j % 2)));
#endif
        }
        mma_multiply(m, c, a[s], b, MMA_CHUNK);
    }
}

/* The same for half a line of columns: chunks half * 4 to half * 4 + 3. */
MMA_FN void mma_kn_half(struct mma m, float4 *c, const struct mma_a a[4], __local const uint4 *tile, uint lines,
                        uint row, uint line, uint half_line)
{
    const uint first = m.col * MMA_CHUNK * lines * 8 + ((half_line * 4 + m.row / 2) ^ MMA_TURN(m.col));
    MMA_UNROLL
    for (uint s = 0; s < 4; s++) {
        __local const uint2 *x = (__local const uint2 *)MMA_TURNED(tile, first, s / 2 * 4) + m.row % 2;
        const uint at = (row + s / 2 * 4 * MMA_CHUNK + s % 2 * MMA_UNIT) * lines * 8 + line * 8;
        uint2 y[MMA_UNIT];
        MMA_UNROLL
        for (uint i = 0; i < MMA_UNIT; i++)
            y[i] = x[(at + i * lines * 8) * 2];
        struct mma_b b[MMA_UNIT];
#if MMA_WIDE
        b[0] = mma_make_b(m, (uint2)(y[0].x, y[1].x));
        b[1] = mma_make_b(m, (uint2)(y[0].y, y[1].y));
#else
        MMA_UNROLL
        for (uint j = 0; j < MMA_UNIT; j++)
            b[j] = mma_make_b(m, (uint2)(mma_halves(j < 2 ? y[0].x : y[0].y, j < 2 ? y[1].x : y[1].y, j % 2),
                                         mma_halves(j < 2 ? y[2].x : y[2].y, j < 2 ? y[3].x : y[3].y, j % 2)));
#endif
        mma_multiply(m, c, a[s], b, MMA_UNIT);
    }
}

/* n of the rows, from `row` on: of MMA_CHUNK from a multiple of it. */
MMA_FN void mma_nk(struct mma m, float4 *c, uint n, const struct mma_a a[4], __local const uint4 *tile, uint lines,
                   uint row, uint line)
{
    const uint first = m.pick * MMA_CHUNK * lines * 8 + (m.col ^ MMA_TURN(m.pick));
    tile += row * lines * 8;
    MMA_UNROLL
    for (uint s = 0; s < 4; s += 2) {
        __local const uint4 *x = MMA_TURNED(tile, first, s / 2 * 4);
        struct mma_b b[2][MMA_CHUNK];
        MMA_UNROLL
        for (uint j = 0; j < n; j++) {
            const uint4 y = x[(j * lines + line) * 8];
            b[0][j] = mma_make_b(m, y.xy);
            b[1][j] = mma_make_b(m, y.zw);
        }
        mma_multiply(m, c, a[s], b[0], n);
        mma_multiply(m, c, a[s + 1], b[1], n);
    }
}

#endif
