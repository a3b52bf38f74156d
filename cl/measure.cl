/* SPDX-License-Identifier: MIT */
/*
 * What a device can do: the rates that times are compared with, and the write that empties its caches.
 *
 *   measure_fill   dst[i] = value: evicts what the last-level cache held
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
/* Four neighbours on a CPU, four far apart on a GPU. */
#define AT(i, n) (4 * (i))
#define STEP(n) 1
#define FIRST(v) (v).s0

#else

#define WIDE
typedef float4 wide;
#define FOR_MINE(i, n) for (ulong i = get_global_id(0); i < (n); i += get_global_size(0))
#define PUT(p, v) (*(p) = (v))
typedef float lanes;
#define CHAINS 8
#define AT(i, n) (i)
#define STEP(n) (n)
#define FIRST(v) (v)

#endif

WIDE __kernel void measure_fill(__global wide *dst, const ulong n, const float value)
{
    FOR_MINE(i, n) PUT(dst + i, (wide)(value));
}

/* The second half of a buffer to its first; four loads in flight before the first store. */
WIDE __kernel void measure_copy(__global wide *dst, const ulong n, const float unused)
{
    __global const wide *src = dst + n;
    FOR_MINE(i, n / 4)
    {
        const ulong at = AT(i, n / 4);
        const ulong step = STEP(n / 4);
        const wide a = src[at], b = src[at + step], c = src[at + 2 * step], d = src[at + 3 * step];
        PUT(dst + at, a);
        PUT(dst + at + step, b);
        PUT(dst + at + 2 * step, c);
        PUT(dst + at + 3 * step, d);
    }
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
