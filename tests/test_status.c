/* SPDX-License-Identifier: MIT */
/* Status texts, and what the last error keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

static void wd_status_string__every_code__a_text_of_its_own(void **state)
{
    (void)state;
    for (int i = WD_OK; i <= WD_EIO; i++) {
        assert_true(*wd_status_string((wd_status)i));
        assert_string_not_equal(wd_status_string((wd_status)i), wd_status_string((wd_status)999));
        for (int j = WD_OK; j < i; j++)
            assert_string_not_equal(wd_status_string((wd_status)i), wd_status_string((wd_status)j));
    }
}

static void wd_fail__formats__text_and_status(void **state)
{
    (void)state;
    assert_int_equal(wd_fail(WD_EINVAL, "group: %d does not divide %s", 3, "hidden"), WD_EINVAL);
    assert_string_equal(wd_last_error(), "group: 3 does not divide hidden");
}

static void wd_fail__last_error_as_argument__wrapped(void **state)
{
    (void)state;
    wd_fail(WD_EINVAL, "inner");
    wd_fail(WD_EINVAL, "outer: %s", wd_last_error());
    assert_string_equal(wd_last_error(), "outer: inner");
}

/* Every length round the buffer's end: head and end are kept, and only a text that fits is whole. */
static void wd_fail__long_text__keeps_head_and_end(void **state)
{
    (void)state;
    for (size_t n = 3000; n < 20000; n = n < 5000 ? n + 1 : 2 * n) {
        char *text = malloc(n + 1);
        assert_non_null(text);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + i % 23);
        text[n] = '\0';
        memcpy(text, "head", 4);
        memcpy(text + n - 4, "tail", 4);
        wd_fail(WD_EBUILD, "%s", text);
        const char *kept = wd_last_error();
        const size_t size = strlen(kept);
        assert_true(size >= 3000 && size <= n);
        assert_memory_equal(kept, "head", 4);
        assert_string_equal(kept + size - 4, "tail");
        assert_memory_equal(kept + size - 2000, text + n - 2000, 2000);
        assert_true((strcmp(kept, text) == 0) == (strstr(kept, "[...]") == NULL));
        free(text);
    }
}

static void wd_fail_cl__memory_errors__enomem(void **state)
{
    static const struct {
        cl_int err;
        wd_status status;
        const char *text;
    } cases[] = {
        {CL_OUT_OF_HOST_MEMORY, WD_ENOMEM, "fp8: clFoo: CL_OUT_OF_HOST_MEMORY (-6)"},
        {CL_MEM_OBJECT_ALLOCATION_FAILURE, WD_ENOMEM, "fp8: clFoo: CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)"},
        {CL_OUT_OF_RESOURCES, WD_EOPENCL, "fp8: clFoo: CL_OUT_OF_RESOURCES (-5)"},
        {CL_INVALID_KERNEL_ARGS, WD_EOPENCL, "fp8: clFoo: CL_INVALID_KERNEL_ARGS (-52)"},
        {-9999, WD_EOPENCL, "fp8: clFoo: CL error -9999 (-9999)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(wd_fail_cl(cases[i].err, "fp8", "clFoo"), cases[i].status);
        assert_string_equal(wd_last_error(), cases[i].text);
    }
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    char *first = strdup(wd_last_error());
    wd_fail(WD_EIO, "elsewhere");
    return first;
}

static void wd_last_error__other_threads__each_its_own(void **state)
{
    pthread_t thread;
    void *first;
    (void)state;
    wd_fail(WD_EINVAL, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, &first);
    assert_string_equal(first, "");
    assert_string_equal(wd_last_error(), "here");
    free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wd_status_string__every_code__a_text_of_its_own),
        cmocka_unit_test(wd_fail__formats__text_and_status),
        cmocka_unit_test(wd_fail__last_error_as_argument__wrapped),
        cmocka_unit_test(wd_fail__long_text__keeps_head_and_end),
        cmocka_unit_test(wd_fail_cl__memory_errors__enomem),
        cmocka_unit_test(wd_last_error__other_threads__each_its_own),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
