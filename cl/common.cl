/* SPDX-License-Identifier: MIT */
/*
 * Shared primitives. Every kernel file starts by including this one, so each compiles alone; the library embeds
 * both and compiles prelude + common.cl + <op>.cl.
 *
 * Element types: a tensor X of type T_X (a macro: f32 f16 bf16 e4m3 e5m2 ue8m0 i32 f32x2) is declared
 * IN(T_X, x) or OUT(T_X, x), and read and written as float, rounding half to even, NaN kept:
 *
 *   LD(T, p, i)      ST(T, p, i, v)     element i
 *   LDV(T, N, p)     STV(T, N, p, v)    N elements from p as floatN, any address. N: 2 4 8 16
 *   LDA(T, N, p)     STA(T, N, p, v)    the same where p stands a multiple of N elements from a row's start: one wide
 *                                       access if VEC says that rows are aligned for it, else LDV and STV
 *
 * f32, f16 and bf16 load and store, i32 loads as int, f32x2 is a float2 to be used as it is; fp8.cl adds the stores of
 * e4m3, e5m2 and ue8m0. `half` is touched by vload_half and vstore_half only, so no device needs cl_khr_fp16.
 */
#ifndef WD_COMMON
#define WD_COMMON

#ifndef WD_CPU
#define WD_CPU 0 /* the device is a CPU */
#endif
#ifndef WD_SM
#define WD_SM 0 /* NVIDIA compute capability x 10 where inline PTX works, else 0 */
#define WD_WGMMA 0 /* sm_90a's instructions work, in comments (wgmma.cl) */
#endif
#ifndef WD_SIMD
#define WD_SIMD 1 /* items that run in lock-step; on a CPU floats in a vector register */
#endif
#ifndef VEC
#define VEC 1 /* every row of a vector tensor starts at a multiple of VEC elements */
#endif

/* Before a kernel that is launched with groups of exactly n items. */
#define GROUP_SIZE(n) __attribute__((reqd_work_group_size(n, 1, 1)))

/* Before a loop to be left as it is. Intel's compiler otherwise unrolls such loops whole and keeps every address that it
 * then finds; when registers run out it starts again, with all private arrays in memory. NVIDIA's is left alone. */
#if WD_SM
#define ROLLED
#else
#define ROLLED _Pragma("unroll 1")
#endif

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

/* ---- Element types ---- */

#define ELEM(T) CAT(elem_, T)
typedef float elem_f32;
typedef half elem_f16;
typedef ushort elem_bf16;
typedef uchar elem_e4m3;
typedef uchar elem_e5m2;
typedef uchar elem_ue8m0;
typedef int elem_i32;
typedef float2 elem_f32x2; /* a value, and what f32 rounds off it */

/* A tensor parameter: pointer and, as `<name>_at`, offset and outer strides in elements. */
#define IN(T, name) __global const ELEM(T) *restrict name, const ulong4 name##_at
#define OUT(T, name) __global ELEM(T) *restrict name, const ulong4 name##_at
/* The same as parameters of a function. No `restrict`: some drivers stumble over what inlining makes of it. */
#define VIEW_IN(T, name) __global const ELEM(T) *name, const ulong4 name##_at
#define VIEW_OUT(T, name) __global ELEM(T) *name, const ulong4 name##_at
/* The row of `name` at outer indices (i), (i, j), (i, j, k). */
#define ROW1(name, i) (name + name##_at.x + (ulong)(i)*name##_at.y)
#define ROW2(name, i, j) (ROW1(name, i) + (ulong)(j)*name##_at.z)
#define ROW3(name, i, j, k) (ROW2(name, i, j) + (ulong)(k)*name##_at.w)

#define LD(T, p, i) CAT(ld_, T)((p) + (i))
#define ST(T, p, i, v) CAT(st_, T)((p) + (i), v)
#define LDV(T, N, p) CAT(CAT(ldv, N), CAT(_, T))(p)
#define STV(T, N, p, v) CAT(CAT(stv, N), CAT(_, T))(p, v)
#define LDA(T, N, p) CAT(CAT(CAT(ld, ALIGNED(N)), N), CAT(_, T))(p)
#define STA(T, N, p, v) CAT(CAT(CAT(st, ALIGNED(N)), N), CAT(_, T))(p, v)

/* ---- bfloat16: bf16_to_f32, f32_to_bf16, and their vector forms bf16_to_f32_4 and so on ---- */

#define BF16_CONVERSIONS(N, _N)                                                                                        \
    static inline float##N bf16_to_f32##_N(ushort##N h) { return as_float##N(convert_uint##N(h) << 16); }              \
    static inline ushort##N f32_to_bf16##_N(float##N x)                                                                \
    {                                                                                                                  \
        const uint##N bits = as_uint##N(x);                                                                            \
        const uint##N rounded = bits + 0x7fffu + ((bits >> 16) & 1u);                                                  \
        return convert_ushort##N(select(rounded, bits | 0x400000u, isnan(x)) >> 16);                                   \
    }

BF16_CONVERSIONS(, )
BF16_CONVERSIONS(2, _2)
BF16_CONVERSIONS(4, _4)
BF16_CONVERSIONS(8, _8)
BF16_CONVERSIONS(16, _16)

/* ---- One element ---- */

/* Compilers that weigh the cost of vload_half would rather call these, many times. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE float ld_f32(__global const float *p) { return *p; }
ALWAYS_INLINE float ld_f16(__global const half *p) { return vload_half(0, p); }
ALWAYS_INLINE float ld_bf16(__global const ushort *p) { return bf16_to_f32(*p); }
ALWAYS_INLINE int ld_i32(__global const int *p) { return *p; }

ALWAYS_INLINE void st_f32(__global float *p, float v) { *p = v; }
ALWAYS_INLINE void st_f16(__global half *p, float v) { vstore_half_rte(v, 0, p); }
ALWAYS_INLINE void st_bf16(__global ushort *p, float v) { *p = f32_to_bf16(v); }

/* ---- N elements at any address ---- */

/* Compilers for CPUs make N accesses of vloadN and vstoreN on small elements, but one of a packed struct. */
#if WD_CPU
#define PACKED(TYPE)                                                                                                   \
    typedef struct __attribute__((packed)) {                                                                           \
        TYPE v;                                                                                                        \
    } packed_##TYPE;
#define VLOAD(TYPE, N, p) (((__global const packed_##TYPE##N *)(p))->v)
#define VSTORE(TYPE, N, p, x) (((__global packed_##TYPE##N *)(p))->v = (x))
#else
#define PACKED(TYPE)
#define VLOAD(TYPE, N, p) vload##N(0, p)
#define VSTORE(TYPE, N, p, x) vstore##N(x, 0, p)
#endif

/* Halves by way of a private copy of their bits, moved as above: free where the compiler sees through it. Others, and
 * Oclgrind, which loses track there, get vload_halfN itself. */
#if WD_CPU || WD_SM
#define F16_LOAD(N, BITS, from)                                                                                        \
    {                                                                                                                  \
        const BITS bits = from;                                                                                        \
        return vload_half##N(0, (__private const half *)&bits);                                                        \
    }
#define F16_STORE(N, BITS, to, v)                                                                                      \
    {                                                                                                                  \
        BITS bits;                                                                                                     \
        vstore_half##N##_rte(v, 0, (__private half *)&bits);                                                           \
        to;                                                                                                            \
    }
#else
#define F16_LOAD(N, BITS, from) { return vload_half##N(0, p); }
#define F16_STORE(N, BITS, to, v) { vstore_half##N##_rte(v, 0, p); }
#endif

#define VECTOR_ACCESS(N)                                                                                               \
    PACKED(float##N)                                                                                                   \
    PACKED(int##N)                                                                                                     \
    PACKED(ushort##N)                                                                                                  \
    static inline float##N ldv##N##_f32(__global const float *p) { return VLOAD(float, N, p); }                        \
    static inline float##N ldv##N##_f16(__global const half *p)                                                        \
    F16_LOAD(N, ushort##N, VLOAD(ushort, N, (__global const ushort *)p))                                               \
    static inline float##N ldv##N##_bf16(__global const ushort *p) { return bf16_to_f32_##N(VLOAD(ushort, N, p)); }    \
    static inline int##N ldv##N##_i32(__global const int *p) { return VLOAD(int, N, p); }                              \
    static inline void stv##N##_f32(__global float *p, float##N v) { VSTORE(float, N, p, v); }                         \
    static inline void stv##N##_f16(__global half *p, float##N v)                                                      \
    F16_STORE(N, ushort##N, VSTORE(ushort, N, (__global ushort *)p, bits), v)                                          \
    static inline void stv##N##_bf16(__global ushort *p, float##N v) { VSTORE(ushort, N, p, f32_to_bf16_##N(v)); }

VECTOR_ACCESS(2)
VECTOR_ACCESS(4)
VECTOR_ACCESS(8)
VECTOR_ACCESS(16)

/* ---- N elements at an aligned address ---- */

/* bfloat16 two to a 32-bit word. NVIDIA has the conversion to two of them from sm_80 on. */
#if WD_SM >= 80
static inline uint f32_to_words_2(float2 x)
{
    uint w;
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(x.y), "f"(x.x));
    return w;
}
#else
static inline uint f32_to_words_2(float2 x) { return as_uint(f32_to_bf16_2(x)); }
#endif
static inline float2 words_to_f32_2(uint w) { return (float2)(as_float(w << 16), as_float(w & 0xffff0000u)); }
#if WD_SM
#define BF16_WORDS(N, HALF, WORDS)                                                                                     \
    static inline float##N words_to_f32_##N(WORDS w)                                                                   \
    {                                                                                                                  \
        return (float##N)(words_to_f32_##HALF(w.lo), words_to_f32_##HALF(w.hi));                                       \
    }                                                                                                                  \
    static inline WORDS f32_to_words_##N(float##N x)                                                                   \
    {                                                                                                                  \
        return (WORDS)(f32_to_words_##HALF(x.lo), f32_to_words_##HALF(x.hi));                                          \
    }
#else /* Oclgrind's check of uninitialised reads does not survive vectors made of vectors */
#define BF16_WORDS(N, HALF, WORDS)                                                                                     \
    static inline float##N words_to_f32_##N(WORDS w) { return bf16_to_f32_##N(as_ushort##N(w)); }                      \
    static inline WORDS f32_to_words_##N(float##N x) { return as_##WORDS(f32_to_bf16_##N(x)); }
#endif
BF16_WORDS(4, 2, uint2)
BF16_WORDS(8, 4, uint4)
BF16_WORDS(16, 8, uint8)

/* Words that lie together at an aligned address. LLVM splits a load that it sees come apart into shorts, or leaves out
 * what is not needed: where PTX works, it does not see it. */
static inline uint words_at_uint(__global const uint *p) { return *p; }
static inline uint2 words_at_uint2(__global const uint2 *p)
{
#if WD_SM
    uint2 w;
    __asm__ volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w.s0), "=r"(w.s1) : "l"(p));
    return w;
#else
    return *p;
#endif
}
static inline uint4 words_at_uint4(__global const uint4 *p)
{
#if WD_SM
    uint4 w;
    __asm__ volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.s0), "=r"(w.s1), "=r"(w.s2), "=r"(w.s3)
                     : "l"(p));
    return w;
#else
    return *p;
#endif
}
static inline uint8 words_at_uint8(__global const uint8 *p)
{
#if WD_SM
    __global const uint4 *first = (__global const uint4 *)p;
    return (uint8)(words_at_uint4(first), words_at_uint4(first + 1));
#else
    return *p;
#endif
}

/* Some GPU compilers split vloadN, and wide accesses of small elements too; an access of 32-bit words through their own
 * pointer is one instruction everywhere. WORDS: what N 2-byte elements fill. CPUs gain nothing, and the address of a
 * host buffer need not be aligned at all. */
#define VECTOR_ALIGNED(N, WORDS)                                                                                       \
    static inline float##N lda##N##_f32(__global const float *p) { return *(__global const float##N *)p; }             \
    static inline float##N lda##N##_f16(__global const half *p)                                                        \
    F16_LOAD(N, WORDS, words_at_##WORDS((__global const WORDS *)p))                                                    \
    static inline float##N lda##N##_bf16(__global const ushort *p)                                                     \
    {                                                                                                                  \
        return words_to_f32_##N(words_at_##WORDS((__global const WORDS *)p));                                          \
    }                                                                                                                  \
    static inline int##N lda##N##_i32(__global const int *p) { return *(__global const int##N *)p; }                   \
    static inline void sta##N##_f32(__global float *p, float##N v) { *(__global float##N *)p = v; }                    \
    static inline void sta##N##_f16(__global half *p, float##N v)                                                      \
    F16_STORE(N, WORDS, *(__global WORDS *)p = bits, v)                                                                \
    static inline void sta##N##_bf16(__global ushort *p, float##N v) { *(__global WORDS *)p = f32_to_words_##N(v); }

/* Which family LDA and STA mean for N: `a` or `v`. */
#define ALIGNED(N) CAT(ALIGNED_, N)
#if VEC >= 2 && !WD_CPU
VECTOR_ALIGNED(2, uint)
#define ALIGNED_2 a
#else
#define ALIGNED_2 v
#endif
#if VEC >= 4 && !WD_CPU
VECTOR_ALIGNED(4, uint2)
#define ALIGNED_4 a
#else
#define ALIGNED_4 v
#endif
#if VEC >= 8 && !WD_CPU
VECTOR_ALIGNED(8, uint4)
#define ALIGNED_8 a
#else
#define ALIGNED_8 v
#endif
#if VEC >= 16 && !WD_CPU
VECTOR_ALIGNED(16, uint8)
#define ALIGNED_16 a
#else
#define ALIGNED_16 v
#endif

/* ---- Functions ---- */

/* a / b, by the short division where both fit it: GPUs have no 64-bit one. */
static inline ulong divide(ulong a, ulong b) { return (a | b) >> 32 ? a / b : (uint)a / (uint)b; }

static inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
static inline float silu(float x) { return x / (1.0f + exp(-x)); }
/* As PyTorch's: linear past 20, where log1p(exp(x)) is x in f32. NaN stays. */
static inline float softplus(float x) { return x > 20.0f ? x : log1p(exp(x)); }

/* ---- State slots ---- */

/* The state that a sequence's slot names; SKIPPED if there is none: it is negative or past the last. Only int is asked
 * for its sign: Mesa 22.3 on llvmpipe finds no int that was made a long to be less than zero. */
#define SKIPPED (~(ulong)0)
static inline ulong slot_state(int slot, ulong slots)
{
    return slot >= 0 && (ulong)slot < slots ? (ulong)slot : SKIPPED;
}

/* ---- Packed sequences: sequence i is the tokens from cu[i] to cu[i + 1] ---- */

/* Begin and end of sequence i, forced into 0..tokens whatever stands in `cu`. */
static inline ulong2 seq_bounds(__global const int *cu, ulong i, ulong tokens)
{
    const long begin = clamp((long)cu[i], 0L, (long)tokens);
    const long end = clamp((long)cu[i + 1], begin, (long)tokens);
    return (ulong2)((ulong)begin, (ulong)end);
}

/* Which of `count` >= 1 sequences holds token t: the last i with cu[i] <= t, or 0. */
static inline ulong seq_of(__global const int *cu, ulong count, ulong t)
{
    ulong lo = 0, hi = count;
    while (hi - lo > 1) {
        const ulong mid = lo + (hi - lo) / 2;
        if ((long)cu[mid] <= (long)t)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

#endif
