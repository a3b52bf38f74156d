/* SPDX-License-Identifier: MIT */
/* wd_parallel(): every piece once, whatever their number; blocks that cover all elements. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <setjmp.h>

#include <cmocka.h>

#include "op.h"
#include "parallel.h"

struct tally {
    unsigned char times[1000];
};

static void count(void *user, size_t i)
{
    ((struct tally *)user)->times[i]++;
}

static void parallel__any_number_of_pieces__each_once(void **unused)
{
    static const size_t numbers[] = {0, 1, 2, 3, 63, 64, 65, 1000};
    (void)unused;
    for (size_t n = 0; n < WD_COUNT(numbers); n++) {
        struct tally tally = {{0}};
        wd_parallel(numbers[n], count, &tally);
        for (size_t i = 0; i < WD_COUNT(tally.times); i++)
            assert_int_equal(tally.times[i], i < numbers[n]);
    }
}

static void blocks__any_length__cover_it_once(void **unused)
{
    (void)unused;
    for (size_t n = 0; n < 40; n++)
        for (size_t block = 1; block < 20; block++) {
            size_t next = 0;
            for (size_t i = 0; i < wd_blocks(n, block); i++) {
                const struct wd_range r = wd_block(n, block, i);
                assert_int_equal(r.first, next);
                assert_true(r.end > r.first && r.end - r.first <= block);
                next = r.end;
            }
            assert_int_equal(next, n);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parallel__any_number_of_pieces__each_once),
        cmocka_unit_test(blocks__any_length__cover_it_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
