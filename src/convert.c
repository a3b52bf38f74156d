/* SPDX-License-Identifier: MIT */
/*
 * Host conversions. The four small float types differ only in numbers, so one encoder and one decoder serve them
 * all; they work on the bits of a double, in which every value of every type is exact.
 *
 * IEEE 754 binary16; bfloat16 is the upper half of binary32; FP8 from "OCP 8-bit Floating Point Specification
 * (OFP8)" 1.0; UE8M0 is the scale type E8M0 of "OCP Microscaling Formats (MX)" 1.0, rounded up so that a value
 * divided by its scale never grows.
 */
#include "convert.h"

#include <math.h>
#include <string.h>

/* sign | exponent | mantissa; codes without their sign bit. Codes above `max` are infinity (if there is one) or NaN. */
struct format {
    int mantissa_bits, bias;
    uint32_t sign, max, inf, nan, overflow;
};

static const struct format format_f16 = {10, 15, 0x8000, 0x7BFF, 0x7C00, 0x7E00, 0x7C00};
static const struct format format_bf16 = {7, 127, 0x8000, 0x7F7F, 0x7F80, 0x7FC0, 0x7F80};
static const struct format format_e4m3 = {3, 7, 0x80, 0x7E, UINT32_MAX, 0x7F, 0x7E};
static const struct format format_e5m2 = {2, 15, 0x80, 0x7B, 0x7C, 0x7F, 0x7B};

enum { DOUBLE_MANTISSA = 52, DOUBLE_BIAS = 1023, UE8M0_BIAS = 127, UE8M0_MAX = 254, UE8M0_NAN = 255 };

static uint64_t double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static double double_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* 2^e for normal doubles. */
static double power_of_two(int e)
{
    return double_from_bits((uint64_t)(e + DOUBLE_BIAS) << DOUBLE_MANTISSA);
}

/* The unbiased exponent of |x|; -1023 for zero and subnormal doubles, which every type here rounds to zero. */
static int exponent_of(double x)
{
    return (int)(double_bits(x) >> DOUBLE_MANTISSA & 0x7FF) - DOUBLE_BIAS;
}

/*
 * Keeps the upper bits of the significand, rounded half to even. With the implicit one kept in `n`, a code is
 * ((exponent + bias - 1) << mantissa_bits) + n for normal numbers, and n alone at the smallest exponent for
 * subnormal ones; a carry out of the rounding moves to the next exponent by itself.
 */
static uint32_t narrow(const struct format *f, double x)
{
    if (isnan(x))
        return f->nan;
    const uint32_t sign = signbit(x) ? f->sign : 0;
    const int exponent = exponent_of(x);
    const int lowest = 1 - f->bias;
    const int e = exponent > lowest ? exponent : lowest;
    int drop = DOUBLE_MANTISSA - f->mantissa_bits + (e - exponent);
    if (drop > DOUBLE_MANTISSA + 2) /* far below half of the smallest subnormal */
        drop = DOUBLE_MANTISSA + 2;

    const uint64_t one = UINT64_C(1);
    const uint64_t significand = (double_bits(x) & ((one << DOUBLE_MANTISSA) - 1)) | one << DOUBLE_MANTISSA;
    const uint64_t rest = significand & ((one << drop) - 1), half = one << (drop - 1);
    uint64_t n = significand >> drop;
    n += rest > half || (rest == half && (n & 1));

    const uint64_t code = ((uint64_t)(e + f->bias - 1) << f->mantissa_bits) + n;
    return sign | (code > f->max ? f->overflow : (uint32_t)code);
}

static double widen(const struct format *f, uint32_t bits)
{
    const uint32_t code = bits & (f->sign - 1);
    const uint32_t fraction = code & ((1u << f->mantissa_bits) - 1);
    const int exponent = (int)(code >> f->mantissa_bits);
    double x;
    if (code > f->max)
        x = code == f->inf ? (double)INFINITY : (double)NAN;
    else if (exponent == 0)
        x = fraction * power_of_two(1 - f->bias - f->mantissa_bits);
    else
        x = double_from_bits((uint64_t)(exponent - f->bias + DOUBLE_BIAS) << DOUBLE_MANTISSA |
                             (uint64_t)fraction << (DOUBLE_MANTISSA - f->mantissa_bits));
    return bits & f->sign ? -x : x;
}

static uint32_t encode_ue8m0(double x)
{
    if (isnan(x) || isinf(x) || x < 0)
        return UE8M0_NAN;
    int e = exponent_of(x);
    if (e >= -UE8M0_BIAS && x > power_of_two(e))
        e++;
    e = e < -UE8M0_BIAS ? -UE8M0_BIAS : e > UE8M0_MAX - UE8M0_BIAS ? UE8M0_MAX - UE8M0_BIAS : e;
    return (uint32_t)(e + UE8M0_BIAS);
}

static uint32_t encode_f32(double x)
{
    const float value = (float)x;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static double decode_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

static uint32_t encode_i32(double x)
{
    if (isnan(x))
        return 0;
    return (uint32_t)(int32_t)fmin(fmax(x, INT32_MIN), INT32_MAX);
}

uint32_t wd_encode(wd_dtype dtype, double value)
{
    switch (dtype) {
    case WD_F32: return encode_f32(value);
    case WD_F16: return narrow(&format_f16, value);
    case WD_BF16: return narrow(&format_bf16, value);
    case WD_E4M3: return narrow(&format_e4m3, value);
    case WD_E5M2: return narrow(&format_e5m2, value);
    case WD_UE8M0: return encode_ue8m0(value);
    case WD_I32: return encode_i32(value);
    case WD_F32X2:
    case WD_DTYPE_DEFAULT: break;
    }
    return 0;
}

double wd_decode(wd_dtype dtype, uint32_t bits)
{
    switch (dtype) {
    case WD_F32: return decode_f32(bits);
    case WD_F16: return widen(&format_f16, bits);
    case WD_BF16: return widen(&format_bf16, bits);
    case WD_E4M3: return widen(&format_e4m3, bits);
    case WD_E5M2: return widen(&format_e5m2, bits);
    case WD_UE8M0: return bits == UE8M0_NAN ? (double)NAN : power_of_two((int)bits - UE8M0_BIAS);
    case WD_I32: return (double)(int32_t)bits;
    case WD_F32X2:
    case WD_DTYPE_DEFAULT: break;
    }
    return (double)NAN;
}

void wd_to_double(wd_dtype dtype, const void *src, size_t n, double *dst)
{
    const unsigned char *from = src;
    switch (wd_dtype_size(dtype)) {
    case 1:
        for (size_t i = 0; i < n; i++)
            dst[i] = wd_decode(dtype, from[i]);
        break;
    case 2:
        for (size_t i = 0; i < n; i++) {
            uint16_t bits;
            memcpy(&bits, from + 2 * i, sizeof(bits));
            dst[i] = wd_decode(dtype, bits);
        }
        break;
    case 4:
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, from + 4 * i, sizeof(bits));
            dst[i] = wd_decode(dtype, bits);
        }
        break;
    case 8:
        for (size_t i = 0; i < n; i++) {
            float pair[2];
            memcpy(pair, from + 8 * i, sizeof(pair));
            dst[i] = (double)pair[0] + (double)pair[1];
        }
        break;
    default: break;
    }
}

void wd_from_double(wd_dtype dtype, const double *src, size_t n, void *dst)
{
    unsigned char *to = dst;
    switch (wd_dtype_size(dtype)) {
    case 1:
        for (size_t i = 0; i < n; i++)
            to[i] = (unsigned char)wd_encode(dtype, src[i]);
        break;
    case 2:
        for (size_t i = 0; i < n; i++) {
            const uint16_t bits = (uint16_t)wd_encode(dtype, src[i]);
            memcpy(to + 2 * i, &bits, sizeof(bits));
        }
        break;
    case 4:
        for (size_t i = 0; i < n; i++) {
            const uint32_t bits = wd_encode(dtype, src[i]);
            memcpy(to + 4 * i, &bits, sizeof(bits));
        }
        break;
    case 8:
        for (size_t i = 0; i < n; i++) {
            const float high = (float)src[i], pair[2] = {high, isinf(high) ? 0 : (float)(src[i] - (double)high)};
            memcpy(to + 8 * i, pair, sizeof(pair));
        }
        break;
    default: break;
    }
}
