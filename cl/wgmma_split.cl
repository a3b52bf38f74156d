/* SPDX-License-Identifier: MIT */
/*
 * f32 on Hopper's matrix engine, which has no f32 and takes TF32 only as rows lie: by f16, the type with as many bits
 * as TF32 and twice its rate. A factor is brought near 2^15 by a power of two, one for a tile or a row, by MMA_MATH
 *   0  as f32: the sum of two f16, x = hi + lo in 22 bits and more, and lo*hi + hi*lo + hi*hi are summed
 *   1  as TF32: one f16, 11 bits
 * (Ootomo, Yokota: "Recovering single precision accuracy from Tensor Cores", 2022.) Numbers count by their size in their
 * tile or row: what is below 2^-17 (TF32: 2^-29) of the largest there begins to lose bits, and below 2^-40 it is zero.
 *
 * Exponents are whole numbers: a tile's is n where what it stands for is 2^n times what is stored.
 */
#ifndef WD_WGMMA_SPLIT
#define WD_WGMMA_SPLIT

#ifndef MMA_TYPE
#define MMA_TYPE f32
#endif
#include "wgmma.cl"

#define WG_MOST 16       /* float4s of a C */
#define WG_TOP 14        /* the exponent that the largest gets */
#define WG_BOUND 0x1p36f /* what a sum of 64 products stays below, and */
#define WG_DOWN 21       /* the power of two that makes a factor of that */

/* The whole part of log2 x, x not negative: -127 for zero, 128 where x is not finite. */
MMA_FN int wg_exponent(float x) { return (int)(as_uint(x) >> 23) - 127; }

/* 2^e, as far as normal numbers go; below them 0, above them 2^127. */
MMA_FN float wg_power(int e) { return as_float((uint)clamp(e + 127, 0, 254) << 23); }

MMA_FN int2 wg_exponents(float2 x) { return (int2)(wg_exponent(x.x), wg_exponent(x.y)); }
MMA_FN float2 wg_powers(int2 e) { return (float2)(wg_power(e.x), wg_power(e.y)); }

MMA_FN float wg_top(float4 x) { return fmax(fmax(fabs(x.x), fabs(x.y)), fmax(fabs(x.z), fabs(x.w))); }

/* Of each of n numbers, not negative, the largest that so many neighbours of a warp have, a power of two. All of the warp
 * take part. */
MMA_FN void wg_tops_among(struct mma m, float *x, uint n, uint neighbours)
{
#if MMA_NVIDIA
    MMA_UNROLL
    for (uint i = 1; i < neighbours; i *= 2)
        MMA_UNROLL
        for (uint j = 0; j < n; j++) {
            float other;
            __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(x[j]), "r"(i));
            x[j] = fmax(x[j], other);
        }
#else
    const uint lane = m.row * 4 + m.col;
    for (uint j = 0; j < n; j++) {
        m.exchange[lane * MMA_EXCHANGE] = as_uint(x[j]);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < neighbours; i++)
            x[j] = fmax(x[j], as_float(m.exchange[(lane / neighbours * neighbours + i) * MMA_EXCHANGE]));
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#endif
}

/* The largest size in an item's rows, of n of a C's float4s. (A loop up to n compilers unroll before n is known, by two,
 * and not again.) */
MMA_FN float2 wg_rows_top(struct mma m, const float4 *c, uint n)
{
    float top[2] = {0, 0};
    MMA_UNROLL
    for (uint j = 0; j < WG_MOST; j++)
        if (j < n) {
            top[0] = fmax(top[0], fmax(fabs(c[j].x), fabs(c[j].y)));
            top[1] = fmax(top[1], fmax(fabs(c[j].z), fabs(c[j].w)));
        }
    wg_tops_among(m, top, 2, 4);
    return (float2)(top[0], top[1]);
}

/* The largest x, not negative, of 128 items: each gives its own, all meet at a barrier, and each may take the result.
 */
#define WG_TOPS (MMA_NVIDIA ? WG_ITEMS / MMA_WARP : WG_ITEMS)
MMA_FN void wg_give_top(__local float *tops, float x)
{
    const uint id = (uint)get_local_id(0) % WG_ITEMS;
#if MMA_NVIDIA
    uint top;
    __asm__ volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(top) : "r"(as_uint(x)));
    if (id % MMA_WARP == 0)
        tops[id / MMA_WARP] = as_float(top);
#else
    tops[id] = x;
#endif
}

/* Of all of them, or of a half, which begins at tops and is `n`: WG_TOPS or WG_TOPS / 2. */
MMA_FN float wg_take_top(__local const float *tops, uint n)
{
    float top = 0;
    MMA_UNROLL
    for (uint i = 0; i < WG_TOPS; i++)
        if (i < n)
            top = fmax(top, tops[i]);
    return top;
}

/* Takes the next part off two numbers. */
MMA_FN uint wg_part(float2 *x)
{
    const uint word = mma_pack_f16(x->x, x->y);
    *x -= mma_unpack_f16(word);
    return word;
}

/* The parts of 8 numbers as 16 bytes each, two to a word. */
typedef uint4 wg_parts[MMA_PARTS];
MMA_FN void wg_split8(wg_parts part, float2 a, float2 b, float2 c, float2 d)
{
    MMA_UNROLL
    for (uint p = 0; p < MMA_PARTS; p++)
        part[p] = (uint4)(wg_part(&a), wg_part(&b), wg_part(&c), wg_part(&d));
}

/* Rows of f32, 64 of `width` elements: an item's share are 8 neighbours of each of WG_SHARE rows, so many apart that
 * they stand at even distances in panels. Items width / 8 of which are neighbours have one row. */
#define WG_SHARE(width) ((width) / 16)
#define WG_SHARE_ROW(width, i) ((uint)get_local_id(0) % WG_ITEMS / ((width) / 8) + (i) * (WG_ITEMS * 8 / (width)))

/* A share of rows, of which there are `rows` and then zeros. */
MMA_FN void wg_take_share(float4 x[][2], __global const float *from, ulong pitch, uint rows, uint width)
{
    const uint h = (uint)get_local_id(0) % (width / 8);
    MMA_UNROLL
    for (uint i = 0; i < WG_SHARE(width); i++) {
        const uint row = WG_SHARE_ROW(width, i);
        x[i][0] = x[i][1] = 0;
        if (row < rows) {
            x[i][0] = MMA_LOAD4(float, from + row * pitch + h * 8);
            x[i][1] = MMA_LOAD4(float, from + row * pitch + h * 8 + 4);
        }
    }
}

/* Puts it into panels, part behind part; and into `image` as they stand, if that is not NULL. Each row is brought near
 * the top by a power of two, which is left in units. */
MMA_FN void wg_put_share(struct mma m, __local uint4 *tile, __local float *units, __global uint *image,
                         const float4 x[][2], uint width)
{
    const uint h = (uint)get_local_id(0) % (width / 8);
    float top[WG_MOST];
    MMA_UNROLL
    for (uint i = 0; i < WG_SHARE(width); i++)
        top[i] = fmax(wg_top(x[i][0]), wg_top(x[i][1]));
    wg_tops_among(m, top, WG_SHARE(width), width / 8);
    MMA_UNROLL
    for (uint i = 0; i < WG_SHARE(width); i++) {
        const uint row = WG_SHARE_ROW(width, i);
        const int unit = wg_exponent(top[i]) - WG_TOP;
        const float4 low = x[i][0] * wg_power(-unit), high = x[i][1] * wg_power(-unit);
        if (h == 0)
            units[row] = wg_power(unit);
        wg_parts part;
        wg_split8(part, low.xy, low.zw, high.xy, high.zw);
        MMA_UNROLL
        for (uint p = 0; p < MMA_PARTS; p++) {
            const uint at = (p * (width / WG_LINE) + h / 8) * WG_PANEL + WG_AT(row, h % 8);
            tile[at] = part[p];
            if (image)
                MMA_STORE4(uint, image + at * 4, part[p]);
        }
    }
}

/* Step s of a C as a left operand, the item's rows times scale.x and, 8 rows on, scale.y. */
MMA_FN void wg_split(wg_parts a, const float4 *c, uint s, float2 scale)
{
    const float4 x = c[2 * s] * scale.xxyy, y = c[2 * s + 1] * scale.xxyy;
    wg_split8(a, x.xy, x.zw, y.xy, y.zw);
}

/* wgmma.cl's products of a step, where a tile in parts has `size` uint4s each: the small products first. */
#define WG_PRODUCT_SPLIT(product, m, c, n, a, tile, size, s, first)                                                    \
    do {                                                                                                               \
        MMA_UNROLL                                                                                                     \
        for (uint p_ = MMA_PARTS - 1; p_ > 0; p_--) {                                                                  \
            product(m, c, n, (a)[p_], tile, s, first);                                                                 \
            product(m, c, n, (a)[0], (tile) + p_ * (size), s, false);                                                  \
        }                                                                                                              \
        product(m, c, n, (a)[0], tile, s, (first) && MMA_PARTS == 1);                                                  \
    } while (0)

/* C[64][64] (+)= A @ X^T, X 64 rows of panels: step s. */
MMA_FN void wg_nk_split(struct mma m, float4 c[8], const uint4 *a, __local const uint4 *tile, uint size, uint s,
                        bool first)
{
    __local const uint4 *panel = tile + s / 4 * WG_PANEL;
    WG_PRODUCT_SPLIT(wg_nk, m, c, 8, a, panel, size, s % 4, first);
}

/* C[64][8n] (+)= A @ X, step s. */
MMA_FN void wg_kn_split(struct mma m, float4 *c, uint n, const uint4 *a, __local const uint4 *tile, uint size, uint s,
                        bool first)
{
    WG_PRODUCT_SPLIT(wg_kn, m, c, n, a, tile, size, s, first);
}

#endif
