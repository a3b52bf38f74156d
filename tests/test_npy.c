/* SPDX-License-Identifier: MIT */
/* .npy files: what is written is read, and no file, however made, is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy.h"

static char path[] = "/tmp/wd_test_npy_XXXXXX";

static int make_file(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 || close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_then_read__every_type__same(void **state)
{
    (void)state;
    const unsigned char bytes[48] = {1, 2, 3, 250, 5, 6, 7, 8, 9, 200, 11, 12, 13, 14, 15, 16};
    for (int type = NPY_F4; type <= NPY_I8; type++) {
        unsigned char copy[sizeof bytes];
        memcpy(copy, bytes, sizeof copy);
        const struct npy a = {(enum npy_type)type, 2, {2, 3}, copy};
        struct npy b;
        assert_int_equal(npy_write(path, &a), WD_OK);
        assert_int_equal(npy_read(path, &b), WD_OK);
        assert_int_equal(b.type, type);
        assert_int_equal(b.rank, 2);
        assert_int_equal(b.shape[0], 2);
        assert_int_equal(b.shape[1], 3);
        assert_memory_equal(b.data, bytes, 6 * npy_type_size(b.type));
        npy_free(&b);
    }
}

static void write_then_read__scalar_and_empty__same(void **state)
{
    (void)state;
    float value = 1.5f;
    const struct npy scalar = {NPY_F4, 0, {0}, &value}, empty = {NPY_F4, 2, {4, 0}, NULL};
    struct npy b;
    assert_int_equal(npy_write(path, &scalar), WD_OK);
    assert_int_equal(npy_read(path, &b), WD_OK);
    assert_int_equal(b.rank, 0);
    assert_true(npy_value(&b, 0) == 1.5);
    npy_free(&b);
    assert_int_equal(npy_write(path, &empty), WD_OK);
    assert_int_equal(npy_read(path, &b), WD_OK);
    assert_int_equal(npy_count(&b), 0);
    npy_free(&b);
}

/* Headers, each followed by 24 bytes of data; NULL: it is read. */
static const struct {
    const char *header, *error;
} headers[] = {
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", NULL},
    {"{\"shape\": (6,), 'descr': '<f4', 'fortran_order': False}\n", NULL},
    {"{'descr': '|u1', 'fortran_order': False, 'shape': (24,)}", NULL},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", "bytes of data"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }", "bytes of data"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", "bytes of data"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }", "too large"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,6), }", "more than 8"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-6,), }", "a number must be"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6", "no tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': 6, }", "no tuple"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", "Fortran order"},
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (6,), }", "dtype"},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (6,), }", "dtype"},
    {"{'descr': '', 'fortran_order': False, 'shape': (6,), }", "dtype"},
    {"{'descr': '<f4aaaaaaaaaaaaaaaaaaaaaaaaaaa', 'fortran_order': False, 'shape': (6,), }", "too long"},
    {"{'descr': '<f4, fortran_order: False, shape: (6,), }", "no end"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }", "a string must be"},
    {"{'descr': '<f4', 'shape': (6,), }", "lacks"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': 1}", "unknown key"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,)", "no dict"},
    {"{", "a string must be"},
    {"", "no dict"},
};

static void write_raw(const void *data, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void check_read(const char *error)
{
    struct npy a;
    const wd_status st = npy_read(path, &a);
    if (!error) {
        assert_int_equal(st, WD_OK);
    } else {
        assert_int_equal(st, WD_EINVAL);
        assert_null(a.data);
        assert_non_null(strstr(wd_last_error(), path));
        if (!strstr(wd_last_error(), error))
            fail_msg("the error is '%s', without '%s'", wd_last_error(), error);
    }
    npy_free(&a);
}

/* The start of a file of either version with this header, and 24 bytes of data; returns its length. */
static size_t make_raw(unsigned char raw[512], unsigned char version, const char *header)
{
    const size_t n = strlen(header), start = version == 1 ? 10 : 12;
    memset(raw, 0, 512);
    memcpy(raw, "\x93NUMPY", 6);
    raw[6] = version;
    raw[8] = (unsigned char)n;
    memcpy(raw + start, header, n);
    return start + n + 24;
}

static void read__headers_of_both_versions__refused_or_read(void **state)
{
    (void)state;
    unsigned char raw[512];
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        for (unsigned char version = 1; version <= 2; version++) {
            write_raw(raw, make_raw(raw, version, headers[i].header));
            check_read(headers[i].error);
        }
}

static void read__cut_at_every_byte__refused(void **state)
{
    (void)state;
    unsigned char raw[512];
    const size_t n = make_raw(raw, 1, headers[0].header);
    for (size_t cut = 0; cut < n; cut++) {
        write_raw(raw, cut);
        check_read("");
    }
}

static void read__header_length_past_the_file__refused(void **state)
{
    (void)state;
    unsigned char raw[512];
    const size_t n = make_raw(raw, 2, headers[0].header);
    raw[11] = 0xFF;
    write_raw(raw, n);
    check_read("too long");
}

static void read__no_file__names_it(void **state)
{
    (void)state;
    struct npy a;
    assert_int_equal(npy_read("/nowhere/x.npy", &a), WD_EIO);
    assert_non_null(strstr(wd_last_error(), "/nowhere/x.npy"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_then_read__every_type__same),
        cmocka_unit_test(write_then_read__scalar_and_empty__same),
        cmocka_unit_test(read__headers_of_both_versions__refused_or_read),
        cmocka_unit_test(read__cut_at_every_byte__refused),
        cmocka_unit_test(read__header_length_past_the_file__refused),
        cmocka_unit_test(read__no_file__names_it),
    };
    return cmocka_run_group_tests_name("npy", tests, make_file, remove_file);
}
