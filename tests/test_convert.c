/* SPDX-License-Identifier: MIT */
/* Host conversions, against a published table and against what rounding half to even means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "convert.h"
#include "npy.h"

#define TABLE TEST_DATA "/fp8_bytes/convert_table/"

static struct npy load(const char *path)
{
    struct npy a;
    if (npy_read(path, &a))
        fail_msg("%s", wd_last_error());
    return a;
}

static void check_table(wd_dtype dtype, const char *path)
{
    struct npy values = load(TABLE "f32.npy"), codes = load(path);
    const size_t n = npy_count(&values);
    assert_int_equal(npy_count(&codes), n);
    double *value = malloc(n * sizeof *value);
    unsigned char *bytes = malloc(n);
    assert_non_null(value);
    assert_non_null(bytes);
    wd_to_double(WD_F32, values.data, n, value);
    wd_from_double(dtype, value, n, bytes);
    assert_memory_equal(bytes, codes.data, n);
    free(bytes);
    free(value);
    npy_free(&codes);
    npy_free(&values);
}

static void e4m3__published_table__same_bytes(void **state)
{
    (void)state;
    check_table(WD_E4M3, TABLE "e4m3.npy");
}

static void e5m2__published_table__same_bytes(void **state)
{
    (void)state;
    check_table(WD_E5M2, TABLE "e5m2.npy");
}

/* Codes 0 .. last of each type are its values from zero up; `sign` is its sign bit. */
static const struct {
    wd_dtype dtype;
    uint32_t last, sign;
} formats[] = {
    {WD_F16, 0x7BFF, 0x8000},
    {WD_BF16, 0x7F7F, 0x8000},
    {WD_E4M3, 0x7E, 0x80},
    {WD_E5M2, 0x7B, 0x80},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static void every_code__decoded_and_encoded__comes_back(void **state)
{
    (void)state;
    for (size_t f = 0; f < FORMATS; f++)
        for (uint32_t code = 0; code <= formats[f].last; code++) {
            const double value = wd_decode(formats[f].dtype, code);
            assert_true(isfinite(value));
            assert_int_equal(wd_encode(formats[f].dtype, value), code);
            assert_int_equal(wd_encode(formats[f].dtype, -value), code | formats[f].sign);
        }
}

static void between_codes__nearest_and_ties_to_even(void **state)
{
    (void)state;
    for (size_t f = 0; f < FORMATS; f++)
        for (uint32_t code = 0; code < formats[f].last; code++) {
            const wd_dtype dtype = formats[f].dtype;
            const double low = wd_decode(dtype, code), high = wd_decode(dtype, code + 1);
            const double middle = low + (high - low) / 2;
            assert_true(low < high);
            assert_int_equal(wd_encode(dtype, middle), code + (code & 1));
            assert_int_equal(wd_encode(dtype, nextafter(middle, low)), code);
            assert_int_equal(wd_encode(dtype, nextafter(middle, high)), code + 1);
        }
}

/* What has no code, and the ends of the ranges. */
static const struct {
    wd_dtype dtype;
    double value;
    uint32_t code;
} ends[] = {
    {WD_F16, 65519.0, 0x7BFF},
    {WD_F16, 65520.0, 0x7C00},
    {WD_F16, (double)INFINITY, 0x7C00},
    {WD_F16, -(double)INFINITY, 0xFC00},
    {WD_F16, (double)NAN, 0x7E00},
    {WD_F16, 0x1p-25, 0x0000},
    {WD_F16, 1e-300, 0x0000},
    {WD_BF16, 3.4e38, 0x7F80},
    {WD_BF16, (double)NAN, 0x7FC0},
    {WD_BF16, 1.0 + 0x1p-8, 0x3F80}, /* a tie */
    {WD_E4M3, 448.0, 0x7E},
    {WD_E4M3, 1e30, 0x7E},
    {WD_E4M3, (double)INFINITY, 0x7E},
    {WD_E4M3, -(double)INFINITY, 0xFE},
    {WD_E4M3, (double)NAN, 0x7F},
    {WD_E4M3, 0x1p-10, 0x00},
    {WD_E5M2, 57344.0, 0x7B},
    {WD_E5M2, 1e30, 0x7B},
    {WD_E5M2, (double)NAN, 0x7F},
    {WD_UE8M0, 0.0, 0},
    {WD_UE8M0, 1e-300, 0},
    {WD_UE8M0, 0x1p-127, 0},
    {WD_UE8M0, 0x1.000002p-127, 1},
    {WD_UE8M0, 1.0, 127},
    {WD_UE8M0, 1.0000001, 128},
    {WD_UE8M0, 0x1p127, 254},
    {WD_UE8M0, 1e300, 254},
    {WD_UE8M0, (double)INFINITY, 255},
    {WD_UE8M0, -1.0, 255},
    {WD_UE8M0, (double)NAN, 255},
    {WD_I32, -5.0, 0xFFFFFFFBu},
    {WD_I32, 1e12, 0x7FFFFFFFu},
    {WD_F32, 1.0, 0x3F800000u},
};

static void ends_of_ranges__as_documented(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (wd_encode(ends[i].dtype, ends[i].value) != ends[i].code)
            fail_msg("case %zu: %g gives %#x, not %#x", i, ends[i].value, wd_encode(ends[i].dtype, ends[i].value),
                     ends[i].code);
}

static void codes_without_a_number__decode_to_nan_or_infinity(void **state)
{
    (void)state;
    assert_true(isnan(wd_decode(WD_E4M3, 0x7F)) && isnan(wd_decode(WD_E4M3, 0xFF)));
    assert_true(isnan(wd_decode(WD_E5M2, 0x7D)) && isnan(wd_decode(WD_E5M2, 0x7F)));
    assert_true(isinf(wd_decode(WD_E5M2, 0x7C)) && isinf(wd_decode(WD_E5M2, 0xFC)));
    assert_true(isinf(wd_decode(WD_F16, 0x7C00)) && isnan(wd_decode(WD_F16, 0x7C01)));
    assert_true(isinf(wd_decode(WD_BF16, 0xFF80)) && isnan(wd_decode(WD_BF16, 0x7FC0)));
    assert_true(isnan(wd_decode(WD_UE8M0, 0xFF)));
}

static void ue8m0__every_code__comes_back(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 254; code++) {
        assert_true(wd_decode(WD_UE8M0, code) == ldexp(1.0, (int)code - 127));
        assert_int_equal(wd_encode(WD_UE8M0, wd_decode(WD_UE8M0, code)), code);
    }
}

static void f32x2__values_of_48_bits__come_back(void **state)
{
    (void)state;
    static const double values[] = {0, 1, -6400.000123456789, 0x1p60 + 0x1p36, -0x1p-100, (double)INFINITY};
    double back[sizeof values / sizeof values[0]];
    float pairs[2 * sizeof values / sizeof values[0]];
    assert_int_equal(wd_dtype_size(WD_F32X2), sizeof(float[2]));
    wd_from_double(WD_F32X2, values, sizeof values / sizeof values[0], pairs);
    wd_to_double(WD_F32X2, pairs, sizeof values / sizeof values[0], back);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_true(pairs[2 * i] == (float)values[i]);
        assert_true(back[i] == values[i] || fabs(back[i] - values[i]) <= ldexp(fabs(values[i]), -48));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e4m3__published_table__same_bytes),
        cmocka_unit_test(e5m2__published_table__same_bytes),
        cmocka_unit_test(every_code__decoded_and_encoded__comes_back),
        cmocka_unit_test(between_codes__nearest_and_ties_to_even),
        cmocka_unit_test(ends_of_ranges__as_documented),
        cmocka_unit_test(codes_without_a_number__decode_to_nan_or_infinity),
        cmocka_unit_test(ue8m0__every_code__comes_back),
        cmocka_unit_test(f32x2__values_of_48_bits__come_back),
    };
    return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
