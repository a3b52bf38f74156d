/* SPDX-License-Identifier: MIT */
/* What the tuner tries and in what order, and what it remembers of it: no device needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "journal.h"
#include "search.h"

/* ---- A space of two parameters ---- */

static const struct wd_caps caps = {.name = "none", .max_group = 1024, .max_local = {1024, 1024, 1024}};

static void grid(const struct wd_caps *c, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)c;
    (void)p;
    (void)param;
    *g = (struct wd_grid){1, {1, 1, 1}, {1, 1, 1}};
}

static void model(const struct wd_caps *c, const struct wd_problem *p, int *param)
{
    (void)c;
    (void)p;
    param[0] = 3; /* between two values of the list */
    param[1] = 2;
}

static bool valid(const struct wd_caps *c, const struct wd_problem *p, const int *param)
{
    (void)c;
    (void)p;
    return param[0] * param[1] <= 64;
}

static const char *refuse(const struct wd_caps *c, const struct wd_problem *p)
{
    (void)c;
    (void)p;
    return "never";
}

static const struct wd_param few[] = {
    {"a", (const int[]){1, 2, 4, 8, 0}}, {"b", (const int[]){1, 2, 16, 0}}, {NULL, NULL}};
static const struct wd_param many[] = {
    {"a", (const int[]){1, 2, 4, 8, 16, 32, 64, 0}}, {"b", (const int[]){1, 2, 3, 4, 5, 6, 7, 8, 0}}, {NULL, NULL}};
static const struct wd_variant never = {.name = "never", .params = few, .refuse = refuse, .model = model, .grid = grid};
static const struct wd_variant small = {.name = "small", .params = few, .model = model, .valid = valid, .grid = grid};
static const struct wd_variant large = {.name = "large", .params = many, .model = model, .valid = valid, .grid = grid};
static const struct wd_variant plain = {.name = "plain", .grid = grid};

static const struct wd_variant *const small_variants[] = {&never, &small, &plain, NULL};
static const struct wd_variant *const large_variants[] = {&large, &plain, NULL};
static const struct wd_op small_op = {.name = "small", .variants = small_variants};
static const struct wd_op large_op = {.name = "large", .variants = large_variants};
static const struct wd_problem small_problem = {.op = &small_op}, large_problem = {.op = &large_op};

/* ---- The order ---- */

/* A bowl whose bottom is at a = 16, b = 5. */
static double bowl(const struct wd_candidate *c)
{
    if (c->variant == &plain)
        return 1000;
    return 100 + fabs(log2(c->param[0]) - 4) * 10 + abs(c->param[1] - 5) * 5;
}

static size_t search(struct wd_search *s, double (*ns)(const struct wd_candidate *))
{
    size_t at, n = 0;
    while (wd_search_next(s, &at)) {
        assert_true(s->candidate[at].ns == 0); /* nothing is tried twice */
        wd_search_tell(s, at, ns(&s->candidate[at]));
        n++;
    }
    return n;
}

static void init__candidates__are_valid_and_once(void **state)
{
    struct wd_search s;
    (void)state;
    assert_int_equal(wd_search_init(&s, &caps, &small_problem), WD_OK);
    /* (3, 2) and plain by the model; of 4 x 3 combinations (8, 16) is too large */
    assert_int_equal(s.models, 2);
    assert_int_equal(s.count, 2 + 11);
    assert_int_equal(s.candidate[0].param[0], 3);
    assert_ptr_equal(s.candidate[1].variant, &plain);
    for (size_t i = 0; i < s.count; i++)
        for (size_t k = 0; k < i; k++)
            assert_false(s.candidate[i].variant == s.candidate[k].variant &&
                         memcmp(s.candidate[i].param, s.candidate[k].param, sizeof s.candidate[i].param) == 0);
    wd_search_fini(&s);
}

static void init__all_refuse__is_not_supported(void **state)
{
    static const struct wd_variant *const none[] = {&never, NULL};
    const struct wd_op op = {.name = "none", .variants = none};
    const struct wd_problem p = {.op = &op};
    struct wd_search s;
    (void)state;
    assert_int_equal(wd_search_init(&s, &caps, &p), WD_ENOTSUP);
}

static void next__the_model_first_then_its_neighbours(void **state)
{
    struct wd_search s;
    size_t at;
    (void)state;
    assert_int_equal(wd_search_init(&s, &caps, &small_problem), WD_OK);
    assert_true(wd_search_next(&s, &at));
    assert_int_equal(at, 0);
    wd_search_tell(&s, at, 50);
    for (int i = 0; i < 2; i++) { /* (2, 2) and (4, 2): 3 stands between them; b does not step, 3 is in no list */
        assert_true(wd_search_next(&s, &at));
        assert_ptr_equal(s.candidate[at].variant, &small);
        assert_int_equal(s.candidate[at].param[0], i ? 4 : 2);
        assert_int_equal(s.candidate[at].param[1], 2);
        wd_search_tell(&s, at, 60);
    }
    assert_true(wd_search_next(&s, &at)); /* then the other variants' model numbers */
    assert_ptr_equal(s.candidate[at].variant, &plain);
    wd_search_fini(&s);
}

static void next__small_space__is_tried_to_its_end(void **state)
{
    struct wd_search s;
    (void)state;
    assert_int_equal(wd_search_init(&s, &caps, &small_problem), WD_OK);
    assert_int_equal(search(&s, bowl), s.count);
    assert_int_equal(s.candidate[s.best].param[0], 8);
    assert_int_equal(s.candidate[s.best].param[1], 2);
    wd_search_fini(&s);
}

static void next__large_space__climbs_and_stops(void **state)
{
    struct wd_search s;
    (void)state;
    assert_int_equal(wd_search_init(&s, &caps, &large_problem), WD_OK);
    assert_true(s.count > WD_SEARCH_SMALL);
    search(&s, bowl);
    /* a * b <= 64 cuts the bottom off: 8 and 5 or 16 and 4 are the best there are */
    assert_true(s.candidate[s.best].ns <= 110);
    wd_search_fini(&s);
}

static double nothing_works(const struct wd_candidate *c)
{
    (void)c;
    return INFINITY;
}

static void next__nothing_works__ends_without_a_best(void **state)
{
    struct wd_search s;
    (void)state;
    assert_int_equal(wd_search_init(&s, &caps, &large_problem), WD_OK);
    assert_true(search(&s, nothing_works) > 0);
    assert_true(s.best == SIZE_MAX);
    wd_search_fini(&s);
}

static void tell__the_best_turns_out_wrong__the_next_best_is(void **state)
{
    struct wd_search s;
    (void)state;
    assert_int_equal(wd_search_init(&s, &caps, &small_problem), WD_OK);
    wd_search_tell(&s, 0, 30);
    wd_search_tell(&s, 3, 20);
    wd_search_tell(&s, 4, 10);
    assert_int_equal(s.best, 4);
    wd_search_tell(&s, 4, INFINITY);
    assert_int_equal(s.best, 3);
    assert_int_equal(s.tried, 3);
    wd_search_fini(&s);
}

/* ---- The journal ---- */

static char place[256], path[300];

static int make_place(void **state)
{
    (void)state;
    snprintf(place, sizeof place, "%s/wd-search-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(place))
        return -1;
    snprintf(path, sizeof path, "%s/journal", place);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(place);
}

static struct wd_journal *reopen(struct wd_journal *j)
{
    wd_journal_close(j);
    j = wd_journal_open(path, false, NULL);
    assert_non_null(j);
    return j;
}

static void journal__trials__are_known_after_it_was_closed(void **state)
{
    (void)state;
    struct wd_journal *j = reopen(NULL);
    wd_journal_start(j, "key", "a x=1");
    wd_journal_finish(j, "key", "a x=1", 1234.6, NULL);
    wd_journal_start(j, "key", "a x=2");
    wd_journal_finish(j, "key", "a x=2", INFINITY, "wrong\tin\nevery way");
    j = reopen(j);
    assert_true(fabs(wd_journal_find(j, "key", "a x=1") - 1235) < 1);
    assert_true(isinf(wd_journal_find(j, "key", "a x=2")));
    assert_true(wd_journal_find(j, "key", "a x=3") == 0);
    assert_true(wd_journal_find(j, "other key", "a x=1") == 0);
    assert_false(wd_journal_ended(j, "key"));
    wd_journal_end(j, "key");
    j = reopen(j);
    assert_true(wd_journal_ended(j, "key"));
    wd_journal_forget(j, "key");
    wd_journal_close(j);
    assert_int_equal(access(path, F_OK), -1); /* nothing is left: no file */
}

static void journal__started_without_an_end__is_tried_once_more(void **state)
{
    (void)state;
    struct wd_journal *j = reopen(NULL);
    wd_journal_start(j, "key", "a");
    j = reopen(j);
    assert_true(wd_journal_find(j, "key", "a") == 0);
    wd_journal_start(j, "key", "a");
    j = reopen(j);
    assert_true(isinf(wd_journal_find(j, "key", "a")));
    wd_journal_forget(j, "key");
    wd_journal_close(j);
}

static void journal__blame__the_last_started_is_a_crash(void **state)
{
    (void)state;
    struct wd_journal *j = reopen(NULL);
    wd_journal_start(j, "key", "a");
    wd_journal_finish(j, "key", "a", 5, NULL);
    assert_string_equal(wd_journal_blame(j, "signal 11"), "");
    wd_journal_start(j, "key", "b");
    j = reopen(j);
    assert_string_equal(wd_journal_blame(j, "signal 11"), "b");
    j = reopen(j);
    assert_true(isinf(wd_journal_find(j, "key", "b")));
    assert_true(wd_journal_find(j, "key", "a") == 5);
    wd_journal_forget(j, "key");
    wd_journal_close(j);
}

static void journal__forget_and_keep__leave_the_other_keys(void **state)
{
    (void)state;
    struct wd_journal *j = reopen(NULL);
    wd_journal_finish(j, "one", "a", 5, NULL);
    wd_journal_finish(j, "two", "a", 6, NULL);
    wd_journal_forget(j, "one");
    wd_journal_finish(j, "two", "b", 7, NULL);
    j = reopen(j);
    assert_true(wd_journal_find(j, "one", "a") == 0);
    assert_true(wd_journal_find(j, "two", "a") == 6);
    assert_true(wd_journal_find(j, "two", "b") == 7);
    wd_journal_finish(j, "three", "a", 8, NULL);
    wd_journal_keep(j, "t");
    assert_true(wd_journal_find(j, "three", "a") == 8);
    wd_journal_keep(j, "th");
    assert_true(wd_journal_find(j, "two", "b") == 0);
    j = reopen(j);
    assert_true(wd_journal_find(j, "three", "a") == 8);
    wd_journal_forget(j, "three");
    wd_journal_close(j);
}

/* Whatever a kill or a full disk leaves: it is read for what it is worth, and added to. */
static void journal__damaged_file__is_read_as_far_as_it_goes(void **state)
{
    static const char *const damage[] = {
        "timed\tkey\ta\t5\ntimed\tkey\tb\t7", /* no end: the number may lack digits */
        "timed\tkey\ta\t5\nsta",
        "\n\n\t\t\t\t\t\nnonsense\ntimed\tkey\ta\t5\ntimed\tkey\tb\tx\ntimed\tkey\tb\t-3\n",
    };
    (void)state;
    for (size_t i = 0; i < WD_COUNT(damage); i++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(damage[i], f);
        fclose(f);
        struct wd_journal *j = reopen(NULL);
        assert_true(wd_journal_find(j, "key", "a") == 5);
        assert_true(wd_journal_find(j, "key", "b") == 0);
        wd_journal_finish(j, "key", "c", 9, NULL);
        j = reopen(j);
        assert_true(wd_journal_find(j, "key", "a") == 5);
        assert_true(wd_journal_find(j, "key", "b") == 0);
        assert_true(wd_journal_find(j, "key", "c") == 9);
        wd_journal_close(j);
        unlink(path);
    }
}

static void journal__held_by_another__is_not_there(void **state)
{
    (void)state;
    struct wd_journal *j = reopen(NULL);
    assert_null(wd_journal_open(path, false, NULL));
    wd_journal_close(j);
    j = wd_journal_open(path, false, NULL);
    assert_non_null(j);
    wd_journal_close(j);
    /* and no journal is a journal of nothing */
    wd_journal_start(NULL, "key", "a");
    wd_journal_finish(NULL, "key", "a", 1, NULL);
    wd_journal_end(NULL, "key");
    wd_journal_forget(NULL, "key");
    wd_journal_keep(NULL, "key");
    assert_true(wd_journal_find(NULL, "key", "a") == 0);
    assert_false(wd_journal_ended(NULL, "key"));
    assert_string_equal(wd_journal_blame(NULL, "x"), "");
    wd_journal_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init__candidates__are_valid_and_once),
        cmocka_unit_test(init__all_refuse__is_not_supported),
        cmocka_unit_test(next__the_model_first_then_its_neighbours),
        cmocka_unit_test(next__small_space__is_tried_to_its_end),
        cmocka_unit_test(next__large_space__climbs_and_stops),
        cmocka_unit_test(next__nothing_works__ends_without_a_best),
        cmocka_unit_test(tell__the_best_turns_out_wrong__the_next_best_is),
        cmocka_unit_test(journal__trials__are_known_after_it_was_closed),
        cmocka_unit_test(journal__started_without_an_end__is_tried_once_more),
        cmocka_unit_test(journal__blame__the_last_started_is_a_crash),
        cmocka_unit_test(journal__forget_and_keep__leave_the_other_keys),
        cmocka_unit_test(journal__damaged_file__is_read_as_far_as_it_goes),
        cmocka_unit_test(journal__held_by_another__is_not_there),
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
