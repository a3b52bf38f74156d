/* SPDX-License-Identifier: MIT */
/*
 * mma.cl's memory: tiles of right operands in local memory and how rows and tiles get there, elements of any type, and
 * left operands in local memory or from rows.
 */
#ifndef WD_MMA_MEMORY
#define WD_MMA_MEMORY

#include "mma_engine.cl"

/* ---- Tiles ---- */

#define MMA_TILE(rows, lines) ((rows) * (lines)*8)
#define MMA_TILE_ALIGNED __attribute__((aligned(128)))
/* What is xor-ed to the places of chunks in the lines of block n of MMA_CHUNK rows. Of blocks 0 to 3, and 4 to 7, the
 * low two bits differ, for mma_kn, and the high two, for mma_kn_half; n and n + 4 differ by 4, for mma_nk. For numbers
 * that have no bits in common, MMA_TURN(x + y) is MMA_TURN(x) ^ MMA_TURN(y). */
#define MMA_TURN(n) (((n) ^ (n) * 2) & 7)
/* Where chunk `chunk` of row `row` of a tile stands. */
#define MMA_AT(row, chunk, lines) ((row) * (lines)*8 + ((chunk) ^ MMA_TURN((row) / MMA_CHUNK)))
/* Place `at ^ turn` of a tile. Constants to be added come after it: then they are offsets in instructions, where each
 * sum of indices would take a register. */
#if MMA_NVIDIA
#define MMA_TURNED(tile, at, turn) ((__local uint4 *)((size_t)((tile) + (at)) ^ (turn)*16))
#else
#define MMA_TURNED(tile, at, turn) ((__local uint4 *)(tile) + ((at) ^ (turn)))
#endif

/* Starts copying 16 bytes, or zeros if not `there` (then src is not read). Copies are collected into groups by
 * mma_commit(); MMA_WAIT(n) waits until all of this item's groups but the last n have arrived. */
MMA_FN void mma_copy(bool there, __local uint4 *dst, __global const void *src)
{
#if MMA_NVIDIA
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"((uint)(size_t)dst), "l"(src), "r"(there ? 16 : 0)
                     : "memory");
#else
    *dst = there ? vload4(0, (__global const uint *)src) : (uint4)(0);
#endif
}

MMA_FN void mma_copy_word(__local float *dst, __global const float *src)
{
#if MMA_NVIDIA
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4;" : : "r"((uint)(size_t)dst), "l"(src) : "memory");
#else
    *dst = *src;
#endif
}

MMA_FN void mma_commit(void)
{
#if MMA_NVIDIA
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
#endif
}

#if MMA_NVIDIA
#define MMA_WAIT(n) __asm__ volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#else
#define MMA_WAIT(n)
#endif

/* Starts copying `all` rows into the first `fill` lines of a tile's rows: those below `rows` from x, `pitch` elements
 * apart and `width` wide (a multiple of MMA_CHUNK); the rest are zeros. `items` work-items take part, of which this is
 * `id`: a power of two, at least 8 for each line to fill. lines, fill, all and items are constants. */
MMA_FN void mma_copy_rows(__local uint4 *tile, uint lines, uint fill, uint all, __global const ELEM(MMA_TYPE) *x,
                          ulong pitch, uint rows, uint width, uint id, uint items)
{
    const uint step = items / (fill * 8); /* rows at a time */
    const uint r0 = id / (fill * 8), chunk = id % (fill * 8);
    const bool there = chunk * MMA_CHUNK < width;
    __global const ELEM(MMA_TYPE) *src = x + r0 * pitch + chunk * MMA_CHUNK;
    const ulong stride = step * pitch;
    if (items % (fill * 8) == 0 && step % MMA_CHUNK == 0 && all % step == 0) {
        const uint first = MMA_AT(r0, chunk, lines);
        MMA_UNROLL
        for (uint i = 0; i < all / step; i++, src += stride)
            mma_copy(there && r0 + i * step < rows,
                     MMA_TURNED(tile, first, MMA_TURN(i * step / MMA_CHUNK)) + i * step * lines * 8, src);
    } else if (r0 < step) {
        MMA_LOOP
        for (uint r = r0; r < all; r += step, src += stride)
            mma_copy(there && r < rows, tile + MMA_AT(r, chunk, lines), src);
    }
}

/* ---- Copies that announce themselves ---- */

/* From sm_90 on the memory system copies by itself: no item moves data, and local memory is written at its full width.
 * One item asks, and each request costs it some 50 cycles, so this is for whole tiles. A place in local memory tells
 * when all bytes that were announced there have come; it counts rounds from 0. Another may count the warps that are
 * done with what came, so that it may be overwritten. */
#define MMA_BULK (WD_SM >= 90)

#if MMA_BULK
MMA_FN uint mma_address(__local const void *p) { return (uint)(size_t)p; }

/* Once, by one item, for n places that each wait for `count` arrivals; then a barrier. */
MMA_FN void mma_places(__local ulong *place, uint n, uint count)
{
    for (uint i = 0; i < n; i++)
        __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                         :
                         : "r"(mma_address(place + i)), "r"(count)
                         : "memory");
    __asm__ volatile("fence.proxy.async;" ::: "memory");
}

/* Announces all bytes of a round; the one arrival that a place of count 1 waits for. */
MMA_FN void mma_announce(__local ulong *place, uint bytes)
{
    __asm__ volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :
                     : "r"(mma_address(place)), "r"(bytes)
                     : "memory");
}

MMA_FN void mma_arrive(__local ulong *place)
{
    __asm__ volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(mma_address(place)) : "memory");
}

/* Arrives once this item's copies of before have. */
MMA_FN void mma_arrive_copied(__local ulong *place)
{
    __asm__ volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" : : "r"(mma_address(place)) : "memory");
}

MMA_FN void mma_await(__local ulong *place, uint round)
{
    uint done;
    do {
        __asm__ volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done)
                         : "r"(mma_address(place)), "r"(round & 1)
                         : "memory");
    } while (!done);
}

/* Asks for `bytes`, a multiple of 16. */
MMA_FN void mma_bring(__local ulong *place, __local void *dst, __global const void *src, uint bytes)
{
    __asm__ volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :
                     : "r"(mma_address(dst)), "l"(src), "r"(bytes), "r"(mma_address(place))
                     : "memory");
}
#endif

/* ---- Elements in memory ---- */

#if MMA_NVIDIA
#define MMA_LOAD4(T, p) (*(__global const T##4 *)(p)) /* vload4 would be four loads */
#define MMA_STORE4(T, p, v) (*(__global T##4 *)(p) = (v))
#else
#define MMA_LOAD4(T, p) vload4(0, (__global const T *)(p))
#define MMA_STORE4(T, p, v) vstore4(v, 0, (__global T *)(p))
#endif

/* Two neighbours. */
MMA_FN float2 mma_pair_f32(__local const float *p) { return *(__local const float2 *)p; }
MMA_FN float2 mma_pair_f16(__local const half *p) { return mma_unpack_f16(*(__local const uint *)p); }
MMA_FN float2 mma_pair_bf16(__local const ushort *p) { return mma_unpack_bf16(*(__local const uint *)p); }
MMA_FN void mma_store2_f32(__global float *p, float x, float y) { *(__global float2 *)p = (float2)(x, y); }
MMA_FN void mma_store2_f16(__global half *p, float x, float y) { *(__global uint *)p = mma_pack_f16(x, y); }
MMA_FN void mma_store2_bf16(__global ushort *p, float x, float y) { *(__global uint *)p = mma_pack_bf16(x, y); }

/* Four neighbours. */
MMA_FN void mma_store4_f32(__global float *p, float4 v) { MMA_STORE4(float, p, v); }
MMA_FN void mma_store4_f16(__global half *p, float4 v)
{
    *(__global uint2 *)p = (uint2)(mma_pack_f16(v.x, v.y), mma_pack_f16(v.z, v.w));
}
MMA_FN void mma_store4_bf16(__global ushort *p, float4 v)
{
    *(__global uint2 *)p = (uint2)(mma_pack_bf16(v.x, v.y), mma_pack_bf16(v.z, v.w));
}

/* MMA_CHUNK neighbours of any type, as floats: mma_store_T to global memory, mma_load_T from there, mma_read_T from
 * local memory. */
MMA_FN void mma_store_f32(__global float *p, const float *f)
{
    MMA_UNROLL
    for (uint i = 0; i < MMA_CHUNK; i += 4)
        MMA_STORE4(float, p + i, ((float4)(f[i], f[i + 1], f[i + 2], f[i + 3])));
}

#define MMA_FETCH_F32(name, space, LOAD4)                                                                              \
    MMA_FN void name##_f32(float *f, space const float *p)                                                             \
    {                                                                                                                  \
        MMA_UNROLL                                                                                                     \
        for (uint i = 0; i < MMA_CHUNK; i += 4) {                                                                      \
            const float4 x = LOAD4(float, p + i);                                                                      \
            f[i] = x.x, f[i + 1] = x.y, f[i + 2] = x.z, f[i + 3] = x.w;                                                \
        }                                                                                                              \
    }
#define MMA_READ4(T, p) (*(__local const T##4 *)(p))
MMA_FETCH_F32(mma_load, __global, MMA_LOAD4)
MMA_FETCH_F32(mma_read, __local, MMA_READ4)

#define MMA_FETCH_16(T, name, space)                                                                                   \
    MMA_FN void name##_##T(float *f, space const ELEM(T) *p)                                                           \
    {                                                                                                                  \
        uint2 x[MMA_CHUNK / 4];                                                                                        \
        MMA_UNROLL                                                                                                     \
        for (uint j = 0; j < MMA_CHUNK / 4; j++)                                                                       \
            x[j] = ((space const uint2 *)p)[j];                                                                        \
        MMA_UNROLL                                                                                                     \
        for (uint j = 0; j < MMA_CHUNK / 4; j++) {                                                                     \
            const float2 low = mma_unpack_##T(x[j].x), high = mma_unpack_##T(x[j].y);                                  \
            f[4 * j] = low.x, f[4 * j + 1] = low.y, f[4 * j + 2] = high.x, f[4 * j + 3] = high.y;                      \
        }                                                                                                              \
    }
#define MMA_CHUNKS(T)                                                                                                  \
    MMA_FETCH_16(T, mma_load, __global)                                                                                \
    MMA_FETCH_16(T, mma_read, __local)                                                                                 \
    MMA_FN void mma_store_##T(__global ELEM(T) *p, const float *f)                                                     \
    {                                                                                                                  \
        const uint2 x = (uint2)(mma_pack_##T(f[0], f[1]), mma_pack_##T(f[2], f[3]));                                   \
        if (MMA_CHUNK == 4)                                                                                            \
            *(__global uint2 *)p = x;                                                                                  \
        else                                                                                                           \
            MMA_STORE4(uint, p, ((uint4)(x, mma_pack_##T(f[MMA_CHUNK - 4], f[MMA_CHUNK - 3]),                          \
                                         mma_pack_##T(f[MMA_CHUNK - 2], f[MMA_CHUNK - 1]))));                          \
    }
MMA_CHUNKS(f16)
MMA_CHUNKS(bf16)

/* exp(x) to 2^-22 of its value while |x| is about 1, 0 below the smallest normal. */
MMA_FN float mma_exp(float x)
{
#if MMA_NVIDIA
    float r;
    __asm__("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f));
    return r;
#else
    return exp(x);
#endif
}

/* Of what an item has of a C the chunk `part`: .x, .y, .z or .w. */
MMA_FN void mma_chunk_of(float *f, const float4 *c, uint part)
{
    MMA_UNROLL
    for (uint j = 0; j < MMA_CHUNK; j++)
        f[j] = part == 0 ? c[j].x : part == 1 ? c[j].y : part == 2 ? c[j].z : c[j].w;
}

/* Stores a line of C to rows of `width` elements of type T that begin at low and high (rows m.row and m.row + 8). */
#define MMA_STORE_LINE(T, m, c, line, low, high, width, low_there, high_there)                                         \
    do {                                                                                                               \
        MMA_UNROLL                                                                                                     \
        for (uint part_ = 0; part_ < 4; part_++) {                                                                     \
            const uint at_ = ((line)*8 + part_ % 2 * 4 + (m).col) * MMA_CHUNK;                                         \
            float f_[MMA_CHUNK];                                                                                       \
            mma_chunk_of(f_, c, part_);                                                                                \
            if ((part_ < 2 ? (low_there) : (high_there)) && ((width) % MMA_LINE == 0 || at_ < (width)))                \
                CAT(mma_store_, T)((part_ < 2 ? (low) : (high)) + at_, f_);                                            \
        }                                                                                                              \
    } while (0)

/* ---- Left operands in local memory: made by one warp, used by others ---- */

typedef uint4 mma_left[MMA_WARP]; /* one step, rounded but not split */

/* Gives a C to left[0..3]; or a half line (units 1) to two of them. */
MMA_FN void mma_give(struct mma m, __local mma_left *left, const float4 *c, uint units)
{
    MMA_UNROLL
    for (uint s = 0; s < 2 * units; s++)
        left[s][m.row * 4 + m.col] = mma_words(c, s, units);
}

/* Gives a unit of a C to left[0] and left[2]; or half a unit, to their first or second half. */
MMA_FN void mma_give_unit(struct mma m, __local mma_left *left, const float4 *c)
{
    MMA_UNROLL
    for (uint odd = 0; odd < 2; odd++)
        left[2 * odd][m.row * 4 + m.col] = mma_words(c, odd, 1);
}

MMA_FN void mma_give_half(struct mma m, __local mma_left *left, const float4 *c, uint second)
{
    MMA_UNROLL
    for (uint odd = 0; odd < 2; odd++)
        ((__local uint2 *)&left[2 * odd][m.row * 4 + m.col])[second] = mma_half(c, odd);
}

MMA_FN void mma_take(struct mma m, struct mma_a a[4], __local const mma_left *left)
{
    MMA_UNROLL
    for (uint s = 0; s < 4; s++)
        a[s] = mma_fresh_a(m, left[s][m.row * 4 + m.col]);
}

/* ---- Left operands from rows in global memory ---- */

/* A line of rows m.row and m.row + 8 of a left operand, from memory: low and high are where these rows of `width`
 * elements begin. */
MMA_FN void mma_fetch(struct mma m, uint4 x[4], __global const ELEM(MMA_TYPE) *low,
                      __global const ELEM(MMA_TYPE) *high, uint line, uint width)
{
    MMA_UNROLL
    for (uint i = 0; i < 4; i++) {
        const uint at = (line * 8 + i / 2 * 4 + m.col) * MMA_CHUNK;
        const bool there = width % MMA_LINE == 0 || at < width;
        x[i] = MMA_LOAD4(uint, (__global const uint *)((i % 2 ? high : low) + (there ? at : 0)));
        if (!there)
            x[i] = 0;
    }
}

/* It as the operand it is. */
MMA_FN void mma_fetched(struct mma m, struct mma_a a[4], const uint4 x[4])
{
    MMA_UNROLL
    for (uint s = 0; s < 4; s++) {
        const uint4 low = x[s / 2 * 2], high = x[s / 2 * 2 + 1];
        a[s] = mma_make_a(m, s % 2 ? (uint4)(low.z, high.z, low.w, high.w) : (uint4)(low.x, high.x, low.y, high.y));
    }
}

#endif
