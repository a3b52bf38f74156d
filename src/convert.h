/* SPDX-License-Identifier: MIT */
/* Element types on the host: what the bits of a wd_dtype mean, and how a value becomes bits. Knows no OpenCL calls. */
#ifndef WD_CONVERT_H
#define WD_CONVERT_H

#include "warpdrive.h"

/** The bits of `value` as an element of `dtype`, rounded once, half to even, straight from double.
 *  f16 and bf16 overflow to infinity; e4m3 and e5m2 saturate at their largest finite value, infinity included.
 *  ue8m0 rounds up to a power of two, from 2^-127 (also for 0) to 2^127; infinity and negative values are NaN.
 *  NaN becomes the quiet NaN of the type (e4m3, e5m2: 0x7F; ue8m0: 0xFF); i32 clamps to its range, NaN is 0. */
uint32_t wd_encode(wd_dtype dtype, double value);

/** The value of an element's bits; exact for every type. NaN for WD_DTYPE_DEFAULT and unknown types. f32x2 is no type
 *  of one number: neither of these knows it, only the functions below do. */
double wd_decode(wd_dtype dtype, uint32_t bits);

/** `value` as it would read back from an element of `dtype`. */
static inline double wd_round(wd_dtype dtype, double value)
{
    return wd_decode(dtype, wd_encode(dtype, value));
}

/** `n` packed elements at `src` to doubles, and back by the rules of wd_encode(). No alignment is needed. */
void wd_to_double(wd_dtype dtype, const void *src, size_t n, double *dst);
void wd_from_double(wd_dtype dtype, const double *src, size_t n, void *dst);

#endif
