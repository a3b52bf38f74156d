/* SPDX-License-Identifier: MIT */
/*
 * Helpers of the CPU forms, in which one work-item does a block with vectors of VL floats.
 *
 * VL is 4, 8 or 16 (a tuned parameter): floats of a hardware register, or two of them.
 * WIDE before a kernel lets the compiler use 512-bit registers where the host has them.
 * STREAM 2 asks for non-temporal stores: they spare reading lines that are overwritten anyway, which pays where the
 * outputs do not fit the last-level cache. They need aligned addresses, so a block asks can_stream() first.
 */
#ifndef WD_CPU_CL
#define WD_CPU_CL

#ifndef WD_CPU
#define WD_CPU 1
#endif
#include "common.cl"

#ifndef VL
#define VL 8
#endif
#ifndef STREAM
#define STREAM 1
#endif

#ifndef __has_attribute
#define __has_attribute(x) 0
#endif
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif

#if __has_attribute(min_vector_width)
#define WIDE __attribute__((min_vector_width(512)))
#else
#define WIDE
#endif

/* Is this compiled for the machine itself? Neither hint survives the way through SPIR-V, whose own macro Mesa takes
 * back. */
#if defined(__x86_64__) || defined(__i386__) || defined(__aarch64__) || defined(__arm__) || defined(__riscv)
#define NATIVE 1
#else
#define NATIVE 0
#endif

#if NATIVE && __has_builtin(__builtin_prefetch)
#define PREFETCH(p) __builtin_prefetch(p)
#else
#define PREFETCH(p) (void)0
#endif

/* Hardware prefetchers stop where a page of 4 KB ends, and a new one costs a walk through the page tables as well: a
 * stream that runs on past its page is asked for this many bytes early. */
#define AHEAD 2048
#define PREFETCH_AHEAD(p) PREFETCH((__global const uchar *)(p) + AHEAD)
/* The lines of the n elements at p. */
#define PREFETCH_LINES(p, n)                                                                                           \
    for (ulong at_ = 0; at_ < (ulong)(n) * sizeof *(p); at_ += 64)                                                     \
    PREFETCH((__global const uchar *)(p) + at_)

#define VFLOAT CAT(float, VL)
#define VUINT CAT(uint, VL)
#define VINT CAT(int, VL)
#define AS_VFLOAT CAT(as_float, VL)
#define AS_VUINT CAT(as_uint, VL)
/* VL elements at p. */
#define LDVL(T, p) LDV(T, VL, p)
#define STVL(T, p, v) STV(T, VL, p, v)

/* ---- Non-temporal stores ---- */

/* VL elements of a type of the language, e.g. ushort, at any address. */
#define STORE_RAW(TYPE, p, x) (((__global CAT(packed_, CAT(TYPE, VL)) *)(p))->v = (x))

#if NATIVE && STREAM == 2 && __has_builtin(__builtin_nontemporal_store)

/* The same past the caches; p is a multiple of the vector's size. */
#define STREAM_RAW(TYPE, p, x) __builtin_nontemporal_store(x, (__global CAT(TYPE, VL) *)(p))
/* May vectors of VL elements of `bytes` each go there? */
#define can_stream(p, bytes) (((size_t)(p) & (VL * (bytes)-1)) == 0)

static inline void stream_f32(__global float *p, VFLOAT v) { STREAM_RAW(float, p, v); }
static inline void stream_bf16(__global ushort *p, VFLOAT v) { STREAM_RAW(ushort, p, CAT(f32_to_bf16_, VL)(v)); }
static inline void stream_f16(__global half *p, VFLOAT v)
{
    CAT(ushort, VL) bits;
    CAT(CAT(vstore_half, VL), _rte)(v, 0, (__private half *)&bits);
    STREAM_RAW(ushort, p, bits);
}
/* STVL past the caches. */
#define STREAM_VL(T, p, v) CAT(stream_, T)(p, v)

#else

#define STREAM_RAW(TYPE, p, x) STORE_RAW(TYPE, p, x)
#define can_stream(p, bytes) false
#define STREAM_VL(T, p, v) STVL(T, p, v)

#endif

#define BYTES(T) CAT(BYTES_, T)
#define BYTES_f32 4
#define BYTES_f16 2
#define BYTES_bf16 2

/* ---- Reductions ---- */

/* The larger of two vectors of non-negative floats given as their bits. NaN is the largest: it stays. */
static inline VUINT max_bits(VUINT a, VUINT b) { return a > b ? a : b; }

/* The largest lane, as bits. */
static inline uint max_lane(VUINT v)
{
#if VL == 16
    const uint8 v8 = max(v.lo, v.hi);
#elif VL == 8
    const uint8 v8 = v;
#endif
#if VL >= 8
    const uint4 v4 = max(v8.lo, v8.hi);
#else
    const uint4 v4 = v;
#endif
    const uint2 v2 = max(v4.lo, v4.hi);
    return max(v2.x, v2.y);
}

#endif
