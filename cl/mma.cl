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
 *   tile           __local uint4[]       the right operand: rows of lines, MMA_TILE(rows, lines) chunks in all
 *
 *   mma_kn(m, c, a, tile, lines, block, row, line)   C += A @ X, X being rows row .. row + MMA_LINE - 1 of one line
 *   mma_nk(m, c, n, a, tile, lines, row, line)       C += A @ X^T
 *
 * mma_nk makes n of a C's float4s, the first being row % MMA_CHUNK. A half line (mma_kn_half) has MMA_UNIT of them, where
 * c[j].y is MMA_UNIT columns past c[j].x, in the same chunk.
 *
 * How the depth of a product is numbered is no one's business as long as A and X agree. A step's eight words of depth
 * are here words 2i and 2i+1 of one chunk of each of four items, so that every access, A's and C's too, is 16 bytes
 * wide and the words of X^T stand in registers as the instruction wants them. Every MMA_CHUNK rows a tile skips one
 * chunk, so that neither way to read it meets a bank twice.
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

#include "common.cl"

#ifndef MMA_TYPE
#define MMA_TYPE f32
#endif
#ifndef MMA_MATH
#define MMA_MATH 0
#endif

#define MMA_WARP 32

#define MMA_SIZE_f32 4
#define MMA_SIZE_f16 2
#define MMA_SIZE_bf16 2
#define MMA_IS_F16_f32 0
#define MMA_IS_F16_f16 1
#define MMA_IS_F16_bf16 0

#define MMA_WIDE (CAT(MMA_SIZE_, MMA_TYPE) == 4)
#define MMA_SPLIT (MMA_WIDE && MMA_MATH == 0)
#define MMA_PARTS (MMA_SPLIT ? 2 : 1) /* of a factor */
#define MMA_CHUNK (16 / CAT(MMA_SIZE_, MMA_TYPE))
#define MMA_LINE (8 * MMA_CHUNK)
#define MMA_LINES(n) (((n) + MMA_LINE - 1) / MMA_LINE) /* that n elements take */

#define MMA_NVIDIA (WD_SM >= 80)

/* Operands must stay in registers, so no call may remain. */
#define MMA_FN static inline __attribute__((always_inline))

/* This item's place in its warp. */
struct mma {
    uint row, col; /* where its part of C begins: row 0..7, chunk 0..3 */
    uint pick;     /* the chunk, or the block of MMA_CHUNK rows, that it reads of a right operand: 0..7 */
    /* 0, which the compiler must not know: what is or-ed with it stands in a register of its own. NVIDIA's takes a
     * mere copy, or a mask of bits that the engine drops, back to where it came from and copies it again for each use. */
    uint zero;
    __local uint *exchange;
};

MMA_FN struct mma mma_here(__local uint *exchange)
{
    const uint id = (uint)get_local_id(0), row = id % MMA_WARP / 4;
    const struct mma m = {row, id % 4, row / 2 + row % 2 * 4, (uint)get_global_offset(0), exchange};
    return m;
}

/* At the head of a kernel of `items` work-items (a multiple of 32): declares m. */
#if MMA_NVIDIA
#define MMA_HERE(m, items) const struct mma m = mma_here(0)
#define MMA_SKIP(condition) (condition)
#define MMA_UNROLL _Pragma("unroll")
#define MMA_LOOP _Pragma("unroll 1") /* registers are dearer than branches */
#else
#define MMA_HERE(m, items)                                                                                             \
    __local uint mma_exchange[(items)*MMA_EXCHANGE];                                                                   \
    const struct mma m = mma_here(mma_exchange + get_local_id(0) / MMA_WARP * MMA_WARP * MMA_EXCHANGE)
#define MMA_EXCHANGE (MMA_PARTS * (4 + 2 * MMA_CHUNK)) /* words of operands that an item shows to its warp */
#define MMA_SKIP(condition) false
#define MMA_UNROLL
#define MMA_LOOP
#endif

/* ---- Tiles ---- */

#define MMA_PITCH(lines) (MMA_CHUNK * (lines)*8 + 1) /* from a block of MMA_CHUNK rows to the next */
#define MMA_PITCH_HALF(lines) (MMA_PITCH(lines) + 1) /* the same in a tile for mma_kn_half */
/* For the rows of k in a state's update: a half line of 16-bit data is what a warp is likely to keep (gdn_walk_mma.cl). */
#define MMA_BLOCK_K(lines) (!MMA_WIDE && (lines) <= 2 ? MMA_PITCH_HALF(lines) : MMA_PITCH(lines))
#define MMA_TILE(rows, lines) (((rows) + MMA_CHUNK - 1) / MMA_CHUNK * MMA_PITCH(lines))
/* Where in a tile row i begins, in chunks. */
#define MMA_ROW(i, lines, block) ((i) / MMA_CHUNK * (block) + (i) % MMA_CHUNK * (lines)*8)

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

/* Starts copying `all` rows into the first `fill` lines of a tile's rows, its blocks being `block` apart: those below
 * `rows` from x, `pitch` elements apart and `width` wide (a multiple of MMA_CHUNK); the rest are zeros. `items`
 * work-items take part, at least 8 for each line to fill. lines, fill, block, all and items are constants. */
MMA_FN void mma_copy_rows(__local uint4 *tile, uint lines, uint fill, uint block, uint all, __global const ELEM(MMA_TYPE) *x,
                          ulong pitch, uint rows, uint width, uint items)
{
    const uint step = items / (fill * 8); /* rows at a time */
    const uint id = (uint)get_local_id(0), r0 = id / (fill * 8), chunk = id % (fill * 8);
    const bool there = chunk * MMA_CHUNK < width;
    __global const ELEM(MMA_TYPE) *src = x + r0 * pitch + chunk * MMA_CHUNK;
    const ulong stride = step * pitch;
    if (items % (fill * 8) == 0 && step % MMA_CHUNK == 0 && all % step == 0) {
        __local uint4 *dst = tile + r0 / MMA_CHUNK * block + r0 % MMA_CHUNK * lines * 8 + chunk;
        const uint next = step / MMA_CHUNK * block;
        MMA_UNROLL
        for (uint i = 0; i < all / step; i++, src += stride)
            mma_copy(there && r0 + i * step < rows, dst + i * next, src);
    } else if (r0 < step) {
        MMA_LOOP
        for (uint r = r0; r < all; r += step, src += stride)
            mma_copy(there && r < rows, tile + r / MMA_CHUNK * block + r % MMA_CHUNK * lines * 8 + chunk, src);
    }
}

/* ---- Copies that announce themselves ---- */

/* From sm_90 on the memory system copies by itself: no item moves data, and local memory is written at its full width.
 * One item asks, and each request costs it some 50 cycles, so this is for whole tiles. A place in local memory tells
 * when all bytes that were announced there have come; it counts rounds from 0. Another may count the warps that are done
 * with what came, so that it may be overwritten. */
#define MMA_BULK (WD_SM >= 90)

#if MMA_BULK
MMA_FN uint mma_address(__local const void *p) { return (uint)(size_t)p; }

/* Once, by one item, for n places that each wait for `count` arrivals; then a barrier. */
MMA_FN void mma_places(__local ulong *place, uint n, uint count)
{
    for (uint i = 0; i < n; i++)
        __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(mma_address(place + i)), "r"(count) : "memory");
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

MMA_FN uint mma_word(uint4 v, uint i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

/* Two numbers in a word, the first in its low half, rounded half to even. */
MMA_FN uint mma_pack_f16(float a, float b)
{
    uint r;
#if MMA_NVIDIA
    __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
#else
    vstore_half2_rte((float2)(a, b), 0, (__private half *)&r);
#endif
    return r;
}

MMA_FN uint mma_pack_bf16(float a, float b)
{
#if MMA_NVIDIA
    uint r;
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
#else
    return as_uint((ushort2)(f32_to_bf16(a), f32_to_bf16(b)));
#endif
}

MMA_FN float2 mma_unpack_f16(uint x) { return vload_half2(0, (__private const half *)&x); }
MMA_FN float2 mma_unpack_bf16(uint x) { return (float2)(as_float(x << 16), as_float(x & 0xffff0000u)); }

/* Two neighbours. */
MMA_FN float2 mma_pair_f32(__local const float *p) { return *(__local const float2 *)p; }
MMA_FN float2 mma_pair_f16(__local const half *p) { return mma_unpack_f16(*(__local const uint *)p); }
MMA_FN float2 mma_pair_bf16(__local const ushort *p) { return mma_unpack_bf16(*(__local const uint *)p); }
MMA_FN void mma_store2_f32(__global float *p, float x, float y) { *(__global float2 *)p = (float2)(x, y); }
MMA_FN void mma_store2_f16(__global half *p, float x, float y) { *(__global uint *)p = mma_pack_f16(x, y); }
MMA_FN void mma_store2_bf16(__global ushort *p, float x, float y) { *(__global uint *)p = mma_pack_bf16(x, y); }

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

/* Stores a line of C to rows of `width` elements of type T that begin at low and high (rows m.row and m.row + 8). */
#define MMA_STORE_LINE(T, m, c, line, low, high, width, low_there, high_there)                                         \
    do {                                                                                                               \
        MMA_UNROLL                                                                                                     \
        for (uint part_ = 0; part_ < 4; part_++) {                                                                     \
            const uint at_ = ((line)*8 + part_ % 2 * 4 + (m).col) * MMA_CHUNK;                                         \
            float f_[MMA_CHUNK];                                                                                       \
            MMA_UNROLL                                                                                                 \
            for (uint j_ = 0; j_ < MMA_CHUNK; j_++)                                                                    \
                f_[j_] = part_ == 0 ? (c)[j_].x : part_ == 1 ? (c)[j_].y : part_ == 2 ? (c)[j_].z : (c)[j_].w;         \
            if ((part_ < 2 ? (low_there) : (high_there)) && ((width) % MMA_LINE == 0 || at_ < (width)))                \
                CAT(mma_store_, T)((part_ < 2 ? (low) : (high)) + at_, f_);                                            \
        }                                                                                                              \
    } while (0)

/* ---- Operands ---- */

struct mma_a {
    uint4 hi;
#if MMA_SPLIT
    uint4 lo;
#endif
};

struct mma_b {
    uint2 hi;
#if MMA_SPLIT
    uint2 lo;
#endif
};

/* To TF32, which the engine makes of an f32 by dropping 13 bits: this factor moves the mean of what is dropped to
 * zero (it is 1 + 2^-11 / (2 ln 2)), and unlike an addition to the bits it leaves NaN alone. */
#define MMA_ROUND 1.00035222f
#define MMA_HIGH 0xffffe000u

MMA_FN struct mma_a mma_make_a(struct mma m, uint4 x)
{
    struct mma_a a;
#if MMA_SPLIT
    a.hi = (x & MMA_HIGH) | m.zero;
    a.lo = as_uint4(as_float4(x) - as_float4(a.hi));
#elif MMA_WIDE
    a.hi = as_uint4(as_float4(x) * MMA_ROUND);
#else
    a.hi = x | m.zero;
#endif
    return a;
}

/* From words that were just packed or loaded together: they can stay where they are. */
MMA_FN struct mma_a mma_fresh_a(struct mma m, uint4 x)
{
#if MMA_WIDE
    return mma_make_a(m, x);
#else
    const struct mma_a a = {x};
    return a;
#endif
}

MMA_FN struct mma_b mma_make_b(struct mma m, uint2 x)
{
    struct mma_b b;
#if MMA_SPLIT
    b.hi = (x & MMA_HIGH) | m.zero;
    b.lo = as_uint2(as_float2(x) - as_float2(b.hi));
#elif MMA_WIDE
    b.hi = as_uint2(as_float2(x) * MMA_ROUND);
#else
    b.hi = x;
#endif
    return b;
}

#define MMA_UNIT (MMA_CHUNK / 2) /* float4s of a C that make two steps of a left operand: s and s + 2, s < 2 */

/* Half of such a step, from half of those float4s; `odd`: of step s + 2. */
MMA_FN uint2 mma_half(const float4 *c, bool odd)
{
#if MMA_WIDE
    return as_uint2(odd ? c[0].yw : c[0].xz);
#else
    return odd ? (uint2)(CAT(mma_pack_, MMA_TYPE)(c[0].y, c[1].y), CAT(mma_pack_, MMA_TYPE)(c[0].w, c[1].w))
               : (uint2)(CAT(mma_pack_, MMA_TYPE)(c[0].x, c[1].x), CAT(mma_pack_, MMA_TYPE)(c[0].z, c[1].z));
#endif
}

/* Step s of a C as a left operand, not yet made one; or of a half line, whose units are 1. */
MMA_FN uint4 mma_words(const float4 *c, uint s, uint units)
{
    const float4 *unit = c + s % units * MMA_UNIT;
    return (uint4)(mma_half(unit, s >= units), mma_half(unit + MMA_UNIT / 2, s >= units));
}

MMA_FN void mma_operand(struct mma m, struct mma_a a[4], const float4 *c)
{
    MMA_UNROLL
    for (uint s = 0; s < 4; s++)
        a[s] = mma_fresh_a(m, mma_words(c, s, 2));
}

/* ---- Left operands in local memory: made by one warp, used by others ---- */

typedef uint4 mma_left[MMA_WARP]; /* one step, not split yet */

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

/* ---- The instruction ---- */

#if MMA_NVIDIA

MMA_FN void mma_instruction(float4 *c, uint4 a, uint2 b)
{
#define MMA_ASM(shape)                                                                                                 \
    __asm__("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                         \
            : "+f"(c->x), "+f"(c->y), "+f"(c->z), "+f"(c->w)                                                           \
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y))
#if MMA_WIDE
    MMA_ASM("m16n8k8.row.col.f32.tf32.tf32.f32");
#elif CAT(MMA_IS_F16_, MMA_TYPE)
    MMA_ASM("m16n8k16.row.col.f32.f16.f16.f32");
#else
    MMA_ASM("m16n8k16.row.col.f32.bf16.bf16.f32");
#endif
}

MMA_FN uint mma_halves(uint x, uint y, bool high)
{
    uint r;
    if (high)
        __asm__("prmt.b32 %0, %1, %2, 0x7632;" : "=r"(r) : "r"(x), "r"(y));
    else
        __asm__("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(r) : "r"(x), "r"(y));
    return r;
}

#else

/* The sum of products in a word of A and one of B. */
MMA_FN float mma_dot(uint a, uint b)
{
#if MMA_WIDE
    return as_float(a & MMA_HIGH) * as_float(b & MMA_HIGH);
#elif CAT(MMA_IS_F16_, MMA_TYPE)
    const float2 x = vload_half2(0, (__private const half *)&a), y = vload_half2(0, (__private const half *)&b);
    return x.x * y.x + x.y * y.y;
#else
    return as_float(a << 16) * as_float(b << 16) + as_float(a & 0xffff0000u) * as_float(b & 0xffff0000u);
#endif
}

MMA_FN uint4 mma_part_a(struct mma_a a, uint part)
{
#if MMA_SPLIT
    return part ? a.lo : a.hi;
#else
    return a.hi;
#endif
}

MMA_FN uint2 mma_part_b(struct mma_b b, uint part)
{
#if MMA_SPLIT
    return part ? b.lo : b.hi;
#else
    return b.hi;
#endif
}

/* What the instruction makes of a sum and of the operands that the warp's items put at `a` and `b` of their places. */
MMA_FN float4 mma_emulated(struct mma m, float4 sum, uint a, uint b)
{
    for (uint k = 0; k < 8; k++) {
        __local const uint *x = m.exchange + (m.row * 4 + k % 4) * MMA_EXCHANGE + a + k / 4 * 2;
        __local const uint *y = m.exchange + (m.col * 2 * 4 + k % 4) * MMA_EXCHANGE + b + k / 4;
        sum.x += mma_dot(x[0], y[0]);
        sum.y += mma_dot(x[0], y[4 * MMA_EXCHANGE]);
        sum.z += mma_dot(x[1], y[0]);
        sum.w += mma_dot(x[1], y[4 * MMA_EXCHANGE]);
    }
    return sum;
}

MMA_FN uint mma_halves(uint x, uint y, bool high)
{
    return high ? x >> 16 | (y & 0xffff0000u) : (x & 0xffffu) | y << 16;
}

#endif

/* c[j] += a @ b[j] for n independent sums: the small products first. */
MMA_FN void mma_multiply(struct mma m, float4 *c, struct mma_a a, const struct mma_b *b, uint n)
{
#if MMA_NVIDIA
#if MMA_SPLIT
    MMA_UNROLL
    for (uint j = 0; j < n; j++)
        mma_instruction(c + j, a.lo, b[j].hi);
    MMA_UNROLL
    for (uint j = 0; j < n; j++)
        mma_instruction(c + j, a.hi, b[j].lo);
#endif
    MMA_UNROLL
    for (uint j = 0; j < n; j++)
        mma_instruction(c + j, a.hi, b[j].hi);
#else
    __local uint *mine = m.exchange + (m.row * 4 + m.col) * MMA_EXCHANGE;
    for (uint part = 0; part < MMA_PARTS; part++) {
        vstore4(mma_part_a(a, part), 0, mine + part * 4);
        for (uint j = 0; j < n; j++)
            vstore2(mma_part_b(b[j], part), 0, mine + MMA_PARTS * (4 + 2 * j) + part * 2);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint term = 0; term < 2 * MMA_PARTS - 1; term++) {
        const uint part_a = MMA_PARTS > 1 && term == 0, part_b = MMA_PARTS > 1 && term == 1;
        for (uint j = 0; j < n; j++)
            c[j] = mma_emulated(m, c[j], part_a * 4, MMA_PARTS * (4 + 2 * j) + part_b * 2);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

/* ---- Products ---- */

/* row: a multiple of MMA_LINE. block: from a block of the tile's rows to the next, MMA_PITCH(lines), or for
 * mma_kn_half better MMA_PITCH_HALF(lines). */
MMA_FN void mma_kn(struct mma m, float4 *c, const struct mma_a a[4], __local const uint4 *tile, uint lines, uint block,
                   uint row, uint line)
{
    __local const uint4 *x = tile + (m.col * block + m.pick);
    MMA_UNROLL
    for (uint s = 0; s < 4; s++) {
        const uint at = (row / MMA_CHUNK + s / 2 * 4) * block + (s % 2 * MMA_UNIT * lines + line) * 8;
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
                        uint block, uint row, uint line, uint half_line)
{
    __local const uint2 *x = (__local const uint2 *)(tile + m.col * block + half_line * 4) + m.row;
    MMA_UNROLL
    for (uint s = 0; s < 4; s++) {
        const uint at = (row / MMA_CHUNK + s / 2 * 4) * block + (s % 2 * MMA_UNIT * lines + line) * 8;
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
    __local const uint4 *x = tile + (m.pick * MMA_PITCH(lines) + m.col);
    MMA_UNROLL
    for (uint s = 0; s < 4; s += 2) {
        struct mma_b b[2][MMA_CHUNK];
        MMA_UNROLL
        for (uint j = 0; j < n; j++) {
            const uint4 y = x[row / MMA_CHUNK * MMA_PITCH(lines) + (row % MMA_CHUNK + j) * lines * 8 + line * 8 +
                              s / 2 * 4];
            b[0][j] = mma_make_b(m, y.xy);
            b[1][j] = mma_make_b(m, y.zw);
        }
        mma_multiply(m, c, a[s], b[0], n);
        mma_multiply(m, c, a[s + 1], b[1], n);
    }
}

#endif
