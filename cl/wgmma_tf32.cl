/* SPDX-License-Identifier: MIT */
/*
 * f32 on Hopper's matrix engine as TF32, 8 deep where 16 bits are 16. The right operand is rows of f32 as they lie, of
 * which the engine drops 13 bits of each; it cannot be transposed. By MMA_MATH a product is that of
 *   0  f32: each factor x is a sum of two TF32, hi + lo. hi the engine makes of x by itself; lo stands beside it, in a
 *      tile or in registers (wg_low()). lo*hi, hi*lo and hi*hi are summed: what is dropped is 2^-19 of a product at
 *      most. (Ootomo, Yokota: "Recovering single precision accuracy from Tensor Cores", 2022.)
 *   1  TF32. What is dropped makes products too small by a factor of WG_DROPPED in the mean, by which sums are to be
 *      multiplied.
 * An infinite factor gives NaN in the first. The engine cuts off, towards zero, what its sums have no place for. So the
 * small products are summed first, when little is cut, and sums begin at zero: what they are added to is for the item
 * to add.
 *
 *   C[64][8n], n = 8 or 16   as wgmma.cl has it
 *   wg_left(c[s])            its columns 8s to 8s+7 as a step of a left operand [64][8]: depth 0 to 3 are the even
 *                            ones, 4 to 7 the odd
 *   panel                    8n rows of 32 f32, chunk h of 16 bytes of row r at WG_AT(r, h)
 *   wg_tf32(m, c, n, hi, lo, steps, tile, low)
 *                            C = A @ X^T, for so many steps of A and a quarter as many panels; low are the panels of
 *                            what X's lack
 */
#ifndef WD_WGMMA_TF32
#define WD_WGMMA_TF32

#ifndef MMA_TYPE
#define MMA_TYPE f32
#endif
#include "wgmma.cl"

#define WG_DROPPED (MMA_SPLIT ? 1 : MMA_ROUND * MMA_ROUND)
#define WG_COLUMNS 32                        /* of a panel */
#define WG_COLUMN(i) ((i) % 4 * 2 + (i) / 4) /* of a C's eight, which depth i of a left operand is */

MMA_FN float4 wg_left(float4 x) { return x.xzyw; } /* and back */

/* What the engine drops of these. */
MMA_FN uint4 wg_low(uint4 x) { return as_uint4(as_float4(x) - as_float4(x & MMA_HIGH)); }

/* One instruction, or what it makes of its sums: cut off, not rounded. */
#if WD_WGMMA
MMA_FN void wg_tf32_step(struct mma m, float4 *c, uint n, uint4 a, __local const uint4 *panel, uint s, bool first)
{
    const ulong x = wg_panel(panel) + 2 * s;
    WG_PRODUCTS("k8.f32.tf32.tf32", "");
}
#else
MMA_FN float wg_cut(float a, float b)
{
    const float sum = a + b, of_b = sum - a, lost = (a - (sum - of_b)) + (b - of_b);
    return lost * sum < 0 ? as_float(as_uint(sum) - 1) : sum;
}

MMA_FN void wg_tf32_step(struct mma m, float4 *c, uint n, uint4 a, __local const uint4 *panel, uint s, bool first)
{
    vstore4(a, 0, m.exchange + (m.row * 4 + m.col) * MMA_EXCHANGE);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = 0; j < n; j++) {
        float4 sum = 0;
        for (uint i = 0; i < 8; i++) {
            __local const uint *from = m.exchange + (m.row * 4 + i % 4) * MMA_EXCHANGE + i / 4 * 2;
            const float low = as_float(from[0] & MMA_HIGH), high = as_float(from[1] & MMA_HIGH);
            const uint row = 8 * j + 2 * m.col, chunk = 2 * s + i / 4;
            __local const uint *words = (__local const uint *)panel;
            const float x = as_float(words[WG_AT(row, chunk) * 4 + i % 4] & MMA_HIGH);
            const float y = as_float(words[WG_AT(row + 1, chunk) * 4 + i % 4] & MMA_HIGH);
            sum += (float4)(low * x, low * y, high * x, high * y);
        }
        c[j] = first ? sum : (float4)(wg_cut(c[j].x, sum.x), wg_cut(c[j].y, sum.y), wg_cut(c[j].z, sum.z),
                                      wg_cut(c[j].w, sum.w));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

MMA_FN void wg_tf32(struct mma m, float4 *c, uint n, const float4 *hi, const uint4 *lo, uint steps,
                    __local const uint4 *tile, __local const uint4 *low)
{
    const uint panel = 8 * n * 8; /* in uint4s */
#if MMA_SPLIT
    MMA_UNROLL
    for (uint s = 0; s < steps; s++) {
        wg_tf32_step(m, c, n, lo[s], tile + s / 4 * panel, s % 4, s == 0);
        wg_tf32_step(m, c, n, as_uint4(hi[s]), low + s / 4 * panel, s % 4, false);
    }
#endif
    MMA_UNROLL
    for (uint s = 0; s < steps; s++)
        wg_tf32_step(m, c, n, as_uint4(hi[s]), tile + s / 4 * panel, s % 4, !MMA_SPLIT && s == 0);
}

#endif
