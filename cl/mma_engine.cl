/* SPDX-License-Identifier: MIT */
/*
 * mma.cl's lower half: types, where items stand, operands, and the instruction, NVIDIA's or emulated. Another vendor's
 * engine takes a back end of its own here.
 */
#ifndef WD_MMA_ENGINE
#define WD_MMA_ENGINE

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
/* NVIDIA's engine cuts off what a sum has no place for, always towards zero. Where f32 sums are longer than 128 factors
 * (MMA_DEPTH, as a kernel knows) each step begins at zero, and the item adds and rounds. */
#ifndef MMA_DEPTH
#define MMA_DEPTH 0
#endif
#define MMA_FRESH (MMA_SPLIT && MMA_DEPTH > 128)
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
     * mere copy, or a mask of bits that the engine drops, back to where it came from and copies it again for each use.
     * */
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

/* ---- Words ---- */

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

/* x where `there`, else 0: chosen by bits, or compilers branch around each x. */
MMA_FN float keep(bool there, float x) { return as_float(as_uint(x) & (there ? 0xffffffffu : 0u)); }

MMA_FN float2 mma_unpack_f16(uint x)
{
#if MMA_NVIDIA
    float2 r;
    __asm__("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
            : "=f"(r.x), "=f"(r.y)
            : "r"(x));
    return r;
#else
    return vload_half2(0, (__private const half *)&x);
#endif
}
MMA_FN float2 mma_unpack_bf16(uint x) { return (float2)(as_float(x << 16), as_float(x & 0xffff0000u)); }

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
#define MMA_GIVEN (MMA_SPLIT ? 1.0f : MMA_ROUND) /* the factor of words that are to be rounded, but not split */
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

/* From words that are rounded and were just packed or loaded together: they can stay where they are. */
MMA_FN struct mma_a mma_fresh_a(struct mma m, uint4 x)
{
#if MMA_SPLIT
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

/* From words that are rounded. */
MMA_FN struct mma_b mma_fresh_b(struct mma m, uint2 x)
{
#if MMA_SPLIT
    return mma_make_b(m, x);
#else
    const struct mma_b b = {x};
    return b;
#endif
}

#define MMA_UNIT (MMA_CHUNK / 2) /* float4s of a C that make two steps of a left operand: s and s + 2, s < 2 */

/* Half of such a step, rounded, from half of those float4s; `odd`: of step s + 2. */
MMA_FN uint2 mma_half(const float4 *c, bool odd)
{
#if MMA_WIDE
    return as_uint2((odd ? c[0].yw : c[0].xz) * MMA_GIVEN);
#else
    return odd ? (uint2)(CAT(mma_pack_, MMA_TYPE)(c[0].y, c[1].y), CAT(mma_pack_, MMA_TYPE)(c[0].w, c[1].w))
               : (uint2)(CAT(mma_pack_, MMA_TYPE)(c[0].x, c[1].x), CAT(mma_pack_, MMA_TYPE)(c[0].z, c[1].z));
#endif
}

/* Step s of a C as a left operand, rounded but not split; or of a half line, whose units are 1. */
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
    float4 fresh[MMA_CHUNK], *sum = MMA_FRESH ? fresh : c;
    MMA_UNROLL
    for (uint j = 0; MMA_FRESH && j < n; j++)
        fresh[j] = 0;
#if MMA_SPLIT
    MMA_UNROLL
    for (uint j = 0; j < n; j++)
        mma_instruction(sum + j, a.lo, b[j].hi);
    MMA_UNROLL
    for (uint j = 0; j < n; j++)
        mma_instruction(sum + j, a.hi, b[j].lo);
#endif
    MMA_UNROLL
    for (uint j = 0; j < n; j++)
        mma_instruction(sum + j, a.hi, b[j].hi);
    MMA_UNROLL
    for (uint j = 0; MMA_FRESH && j < n; j++)
        c[j] += fresh[j];
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

#endif
