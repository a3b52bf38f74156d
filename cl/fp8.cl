/* SPDX-License-Identifier: MIT */
/*
 * What all forms of fp8_quant share: the element types e4m3, e5m2 and ue8m0, the scale of a group, the clamp.
 *
 *     s = max(max|x|, eps) / M,   q = clamp(x / s, -M, M)      M: 448, or 57344 for e5m2
 *
 * (DeepSeek-V3's act_quant, SGLang's per_token_group_quant_fp8.) The largest |x| of a group is found on the bits of
 * |x|: they order as the floats do, and NaN is larger than everything, so it reaches s and from there all of q.
 * A group with an infinity has s = Inf: its finite elements become 0, the infinite ones NaN.
 */
#ifndef WD_FP8
#define WD_FP8

#include "common.cl"

#ifndef T_X
#define T_X f32
#define T_Q f32
#define T_S f32
#define S_LAYOUT 0
#define GROUP 128
#endif

/* ---- Bytes: f32_to_e4m3 and, for x that are not NaN, number_to_e4m3 (as uint); vector forms f32_to_e4m3_4 ---- */

/* With MBITS of mantissa: |x| plus a power of two 2^(23-MBITS) times as large as its own leading bit drops the bits
 * that the format lacks, rounded half to even by the addition itself; below the smallest normal (exponent field MIN)
 * the power stays, which makes the subnormals. Saturates at MAX (bits of a float). NaN is 0x7f in both formats. */
#define FP8_CONVERSION(FP8, N, _N, MBITS, MIN, MAX)                                                                    \
    static inline uint##N number_to_##FP8##_N(float##N x)                                                              \
    {                                                                                                                  \
        const uint##N bits = as_uint##N(x), a = bits & 0x7fffffffu;                                                    \
        const uint##N size = a > MAX ? (uint##N)(MAX) : a;                                                             \
        const uint##N power = size & 0x7f800000u;                                                                      \
        const uint##N lead = power < (MIN << 23) ? (uint##N)(MIN << 23) : power;                                       \
        const uint##N big = lead + ((23u - MBITS) << 23);                                                              \
        const uint##N m = as_uint##N(as_float##N(size) + as_float##N(big)) - big;                                      \
        return ((lead >> (23 - MBITS)) - (MIN << MBITS) + m) | ((bits >> 24) & 0x80u);                                 \
    }                                                                                                                  \
    static inline uchar##N f32_to_##FP8##_N(float##N x)                                                                \
    {                                                                                                                  \
        return convert_uchar##N(select(number_to_##FP8##_N(x), (uint##N)(0x7fu), isnan(x)));                           \
    }

#define FP8_CONVERSIONS(N, _N)                                                                                         \
    FP8_CONVERSION(e4m3, N, _N, 3, 121u, 0x43e00000u)                                                                  \
    FP8_CONVERSION(e5m2, N, _N, 2, 113u, 0x47600000u)

/* NVIDIA converts pairs of numbers from sm_89 on. Words of four and more are made of registers: compilers take vectors
 * of bytes apart. */
#define FP8_PAIR(FP8)                                                                                                  \
    static inline uchar2 f32_to_##FP8##_2(float2 x)                                                                    \
    {                                                                                                                  \
        ushort r;                                                                                                      \
        __asm__("cvt.rn.satfinite." #FP8 "x2.f32 %0, %1, %2;" : "=h"(r) : "f"(x.y), "f"(x.x));                         \
        return as_uchar2(r);                                                                                           \
    }                                                                                                                  \
    static inline uchar f32_to_##FP8(float x) { return f32_to_##FP8##_2((float2)(x, 0.0f)).x; }                        \
    static inline uint FP8##_words_4(float4 x)                                                                         \
    {                                                                                                                  \
        uint r;                                                                                                        \
        __asm__("{ .reg .b16 lo, hi; cvt.rn.satfinite." #FP8 "x2.f32 lo, %2, %1; cvt.rn.satfinite." #FP8               \
                "x2.f32 hi, %4, %3; mov.b32 %0, {lo, hi}; }"                                                           \
                : "=r"(r)                                                                                              \
                : "f"(x.s0), "f"(x.s1), "f"(x.s2), "f"(x.s3));                                                         \
        return r;                                                                                                      \
    }                                                                                                                  \
    static inline ushort FP8##_words_2(float2 x) { return as_ushort(f32_to_##FP8##_2(x)); }                            \
    static inline uint2 FP8##_words_8(float8 x) { return (uint2)(FP8##_words_4(x.lo), FP8##_words_4(x.hi)); }          \
    static inline uint4 FP8##_words_16(float16 x) { return (uint4)(FP8##_words_8(x.lo), FP8##_words_8(x.hi)); }        \
    static inline uchar4 f32_to_##FP8##_4(float4 x) { return as_uchar4(FP8##_words_4(x)); }                            \
    static inline uchar8 f32_to_##FP8##_8(float8 x) { return as_uchar8(FP8##_words_8(x)); }                            \
    static inline uchar16 f32_to_##FP8##_16(float16 x) { return as_uchar16(FP8##_words_16(x)); }

#if WD_SM >= 89
FP8_PAIR(e4m3)
FP8_PAIR(e5m2)
#else
FP8_CONVERSIONS(, )
FP8_CONVERSIONS(2, _2)
FP8_CONVERSIONS(4, _4)
FP8_CONVERSIONS(8, _8)
FP8_CONVERSIONS(16, _16)
#endif

static inline void st_e4m3(__global uchar *p, float v) { *p = f32_to_e4m3(v); }
static inline void st_e5m2(__global uchar *p, float v) { *p = f32_to_e5m2(v); }

#define FP8_ACCESS(N)                                                                                                  \
    PACKED(uchar##N)                                                                                                   \
    static inline void stv##N##_e4m3(__global uchar *p, float##N v) { VSTORE(uchar, N, p, f32_to_e4m3_##N(v)); }       \
    static inline void stv##N##_e5m2(__global uchar *p, float##N v) { VSTORE(uchar, N, p, f32_to_e5m2_##N(v)); }

FP8_ACCESS(2)
FP8_ACCESS(4)
FP8_ACCESS(8)
FP8_ACCESS(16)

/* As VECTOR_ALIGNED. WORD: what N bytes fill. */
#if WD_SM < 89
#define WORDS_OF(FP8, N, WORD, x) as_##WORD(f32_to_##FP8##_##N(x))
#else
#define WORDS_OF(FP8, N, WORD, x) FP8##_words_##N(x)
#endif
#define FP8_ALIGNED(N, WORD)                                                                                           \
    static inline void sta##N##_e4m3(__global uchar *p, float##N v)                                                    \
    {                                                                                                                  \
        *(__global WORD *)p = WORDS_OF(e4m3, N, WORD, v);                                                              \
    }                                                                                                                  \
    static inline void sta##N##_e5m2(__global uchar *p, float##N v)                                                    \
    {                                                                                                                  \
        *(__global WORD *)p = WORDS_OF(e5m2, N, WORD, v);                                                              \
    }

FP8_ALIGNED(2, ushort)
FP8_ALIGNED(4, uint)
FP8_ALIGNED(8, uint2)
FP8_ALIGNED(16, uint4)

/* ---- Scales ---- */

/* The smallest power of two >= x, for x >= 0; at least 2^-127. Inf and NaN stay. */
static inline float ceil_pow2(float x)
{
    const uint up = (as_uint(x) + 0x7fffffu) & 0x7f800000u;
    return isfinite(x) ? as_float(as_uint(x) <= 0x400000u ? 0x400000u : up) : x;
}

/* v: from ceil_pow2(), or 0 for padding. What has no code (Inf, NaN) is 0xff. */
static inline void st_ue8m0(__global uchar *p, float v) { *p = isnan(v) ? 0xff : (uchar)(as_uint(v) >> 23); }

#define LIMIT_f32 448.0f
#define LIMIT_e4m3 448.0f
#define LIMIT_e5m2 57344.0f
#define LIMIT CAT(LIMIT_, T_Q)

#define STORED_f32(s) (s)
#define STORED_ue8m0(s) ceil_pow2(s)

static inline uint abs_bits(float x)
{
    return as_uint(x) & 0x7fffffffu;
}

/* The scale of a group whose largest |x| has the bits `largest`, as it is stored. */
static inline float group_scale(uint largest, float eps)
{
    return CAT(STORED_, T_S)(as_float(max(largest, as_uint(eps))) / LIMIT);
}

/* NaN stays. */
static inline float clamp_to_limit(float q)
{
    q = q > LIMIT ? LIMIT : q;
    return q < -LIMIT ? -LIMIT : q;
}

/* Stores the scale of group j of a token: s[token][j], or s[j][token] where the last token also fills its group's
 * padding up to tokens4 with zeros. */
static inline void store_scale(VIEW_OUT(T_S, s), ulong token, ulong j, ulong tokens, ulong tokens4, float scale)
{
#if S_LAYOUT == 0
    ST(T_S, ROW1(s, token), j, scale);
#else
    __global ELEM(T_S) *row = ROW1(s, j);
    ST(T_S, row, token, scale);
    if (token + 1 == tokens)
        for (ulong pad = tokens; pad < tokens4; pad++)
            ST(T_S, row, pad, 0.0f);
#endif
}

#endif
