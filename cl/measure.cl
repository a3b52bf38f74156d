/* SPDX-License-Identifier: MIT */
/*
 * What a device can do: the rates that times are compared with, and what empties its caches.
 *
 *   measure_fill   dst[i] = value: evicts what a GPU's last-level cache held
 *   measure_read   reads dst: evicts what a CPU's held
 *   measure_copy   the second half of dst to its first
 *   measure_fma    CHAINS independent multiply-add chains an item, `steps` long: the f32 arithmetic peak
 *
 * Launch: one dimension, LOCAL0 items a group. GPU: n float4 strided over all items. CPU: an item does the
 * float16s of one contiguous block, with non-temporal stores where the compiler has them.
 */
#include "common.cl"

#ifndef LOCAL0
#define LOCAL0 256
#endif

#if WD_CPU

#define STREAM 2
#define VL 16
#include "cpu.cl"
typedef float16 wide;
#define FOR_MINE(i, n)                                                                                                 \
    const ulong per = ((n) + get_global_size(0) - 1) / get_global_size(0);                                             \
    const ulong begin = get_global_id(0) * per, end = min(begin + per, (ulong)(n));                                    \
    for (ulong i = begin; i < end; i++)
#if NATIVE && __has_builtin(__builtin_nontemporal_store)
#define PUT(p, v) __builtin_nontemporal_store(v, p)
#else
#define PUT(p, v) (*(p) = (v))
#endif
#if WD_SIMD >= 16
typedef float16 lanes;
#elif WD_SIMD >= 8
typedef float8 lanes;
#else
typedef float4 lanes;
#endif
#define CHAINS 10
#define FIRST(v) (v).s0

#else

#define WIDE
typedef float4 wide;
#define FOR_MINE(i, n) for (ulong i = get_global_id(0); i < (n); i += get_global_size(0))
#define PUT(p, v) (*(p) = (v))
typedef float lanes;
#define CHAINS 8
#define FIRST(v) (v)

#endif

WIDE __kernel void measure_fill(__global wide *dst, const ulong n, const float value)
{
    FOR_MINE(i, n) PUT(dst + i, (wide)(value));
}

#if WD_CPU
/* Stores nothing, which the compiler cannot know: dst holds ones. CPUs read, since a write would leave the cache full
 * of lines that whatever is timed next has to write back, and a non-temporal one evicts nothing. */
WIDE __kernel void measure_read(__global wide *dst, const ulong n, const float value)
{
    wide sum = 0.0f;
    FOR_MINE(i, n) sum += dst[i];
    if (FIRST(sum) < value)
        dst[0] = sum;
}
#endif

/* The second half of a buffer to its first. On a CPU four loads before the first store, and lines asked
 * for early. GPUs get an item for each
 * element: on the H200 that beat two to eight of them an item by 3-5 %, resident groups that stride by 5 %, prefetching
 * ones by 5 %, and every cache hint (.cs, L1::no_allocate, .lu, .wt) by 3-7 %. */
WIDE __kernel void measure_copy(__global wide *dst, const ulong n, const float unused)
{
    __global const wide *src = dst + n;
#if WD_CPU
    FOR_MINE(i, n / 4)
    {
        PREFETCH_LINES(src + 4 * i + AHEAD / sizeof *src, 4);
        const wide a = src[4 * i], b = src[4 * i + 1], c = src[4 * i + 2], d = src[4 * i + 3];
        PUT(dst + 4 * i, a);
        PUT(dst + 4 * i + 1, b);
        PUT(dst + 4 * i + 2, c);
        PUT(dst + 4 * i + 3, d);
    }
#else
    FOR_MINE(i, n) dst[i] = src[i];
#endif
}

/* Sums one lane of all chains; the result is stored only if it is negative, which it never is, but the compiler cannot
 * know. All lanes do the same work, so none is dropped: `factor` is uniform, and the lanes start apart. */
WIDE __kernel void measure_fma(__global float *dst, const ulong steps, const float factor)
{
    lanes c[CHAINS];
#pragma unroll
    for (int k = 0; k < CHAINS; k++)
        c[k] = (lanes)((float)k + (float)get_global_id(0));
    for (ulong i = 0; i < steps; i++) {
#pragma unroll
        for (int k = 0; k < CHAINS; k++)
            c[k] = c[k] * factor + 0.25f;
    }
    lanes sum = c[0];
#pragma unroll
    for (int k = 1; k < CHAINS; k++)
        sum += c[k];
    if (FIRST(sum) < 0.0f)
        ((__global lanes *)dst)[get_global_id(0)] = sum;
}
