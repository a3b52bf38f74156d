/* SPDX-License-Identifier: MIT */
/* The disk cache as a directory: where it lies, what is pruned, and many processes at once. */
#include "cache_place.h"

#include <sys/wait.h>

/* ---- The place ---- */

static void wd_cache_place__environment__first_that_is_set(void **state)
{
    static const struct {
        const char *dir, *own, *xdg, *home, *expected;
    } cases[] = {
        {"/dir", "/own", "/xdg", "/home/me", "/dir"},
        {NULL, "/own", "/xdg", "/home/me", "/own"},
        {NULL, NULL, "/xdg", "/home/me", "/xdg/warpdrive"},
        {NULL, "", "/xdg", "/home/me", NULL},
        {NULL, NULL, NULL, "/home/me", "/home/me/.cache/warpdrive"},
        {NULL, NULL, "relative", "/home/me", "/home/me/.cache/warpdrive"},
        {NULL, NULL, NULL, NULL, NULL},
        {"", "/own", "/xdg", "/home/me", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const names[] = {"WARPDRIVE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
        const char *const values[] = {cases[i].own, cases[i].xdg, cases[i].home};
        char *before[3];
        for (size_t v = 0; v < 3; v++) {
            before[v] = getenv(names[v]) ? strdup(getenv(names[v])) : NULL;
            if (values[v])
                setenv(names[v], values[v], 1);
            else
                unsetenv(names[v]);
        }
        char *found = wd_cache_place(cases[i].dir);
        for (size_t v = 0; v < 3; v++) {
            if (before[v])
                setenv(names[v], before[v], 1);
            else
                unsetenv(names[v]);
            free(before[v]);
        }
        if (cases[i].expected)
            assert_string_equal(found, cases[i].expected);
        else
            assert_null(found);
        free(found);
    }
}

static void wd_cache_open__no_directory_possible__null_and_one_line(void **state)
{
    char under_file[PATH_BYTES + 16];
    (void)state;
    snprintf(under_file, sizeof under_file, "%s/file", place);
    write_path(under_file, "", 0);
    strcat(under_file, "/sub");
    assert_null(wd_cache_open(under_file, 0, &log_lines));
    assert_int_equal(lines, 1);
    assert_null(wd_cache_open(under_file, 0, NULL));
    assert_null(wd_cache_open("", 0, &log_lines));
    assert_int_equal(lines, 1);
}

static void wd_cache_open__another_users_directory__null_and_one_line(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can give directories away */
    assert_int_equal(chown(place, 12345, 12345), 0);
    assert_null(wd_cache_open(place, 0, &log_lines));
    assert_int_equal(lines, 1);
}

static void wd_cache_put__directory_gone__false_and_one_line(void **state)
{
    (void)state;
    struct wd_cache *cache = open_cache(0);
    assert_int_equal(rmdir(place), 0);
    for (int i = 0; i < 3; i++)
        assert_false(wd_cache_put(cache, key(1), "", PAYLOAD, sizeof PAYLOAD));
    assert_int_equal(get(cache, 1), WD_CACHE_MISS);
    assert_int_equal(lines, 1);
    wd_cache_close(cache);
    assert_int_equal(mkdir(place, 0700), 0);
}

static void cache__null__finds_and_keeps_nothing(void **state)
{
    struct wd_cache_entry *list;
    size_t count = 1;
    (void)state;
    assert_int_equal(get(NULL, 1), WD_CACHE_MISS);
    assert_false(wd_cache_put(NULL, key(1), "", PAYLOAD, sizeof PAYLOAD));
    wd_cache_remove(NULL, key(1));
    assert_int_equal(wd_cache_prune(NULL, 0), 0);
    assert_int_equal(wd_cache_clear(NULL), 0);
    assert_int_equal(wd_cache_list(NULL, &list, &count), WD_OK);
    assert_int_equal(count, 0);
    assert_string_equal(wd_cache_path(NULL), "");
    wd_cache_close(NULL);
}

/* ---- The directory as a whole ---- */

static void wd_cache_list__three_entries__oldest_used_first(void **state)
{
    static const unsigned char order[] = {3, 1, 2};
    struct wd_cache_entry *list;
    size_t count;
    (void)state;
    struct wd_cache *cache = open_cache(0);
    for (unsigned char i = 1; i <= 3; i++)
        put(cache, i);
    for (size_t i = 0; i < 3; i++)
        set_age(path_of(order[i]), 100 - (time_t)i);
    assert_int_equal(wd_cache_list(cache, &list, &count), WD_OK);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(strstr(path_of(order[i]), list[i].name));
        assert_string_equal(list[i].label, "a label");
        assert_true(list[i].bytes > sizeof PAYLOAD);
    }
    free(list);
    wd_cache_close(cache);
}

static void wd_cache_prune__over_the_limit__oldest_used_go(void **state)
{
    struct wd_cache_entry *list;
    size_t count;
    (void)state;
    struct wd_cache *cache = open_cache(0);
    for (unsigned char i = 1; i <= 4; i++) {
        put(cache, i);
        set_age(path_of(i), 100 - i);
    }
    assert_int_equal(get(cache, 1), WD_CACHE_HIT); /* used now */
    assert_int_equal(wd_cache_list(cache, &list, &count), WD_OK);
    const uint64_t size = list[0].bytes;
    free(list);
    assert_int_equal(wd_cache_prune(cache, 4 * size), 0);
    assert_int_equal(wd_cache_prune(cache, 2 * size + size / 2), 2);
    assert_int_equal(get(cache, 2), WD_CACHE_MISS);
    assert_int_equal(get(cache, 3), WD_CACHE_MISS);
    assert_int_equal(get(cache, 4), WD_CACHE_HIT);
    assert_int_equal(get(cache, 1), WD_CACHE_HIT);
    wd_cache_close(cache);
}

static void wd_cache_put__over_the_limit__oldest_used_go(void **state)
{
    (void)state;
    struct wd_cache *cache = open_cache(500); /* two entries */
    for (unsigned char i = 1; i <= 3; i++) {
        put(cache, i);
        if (i < 3)
            set_age(path_of(i), 100 - i);
    }
    assert_int_equal(get(cache, 1), WD_CACHE_MISS);
    assert_int_equal(get(cache, 2), WD_CACHE_HIT);
    assert_int_equal(get(cache, 3), WD_CACHE_HIT);
    wd_cache_close(cache);
}

static void wd_cache_put__larger_than_the_limit__not_stored(void **state)
{
    static const char large[600];
    (void)state;
    struct wd_cache *cache = open_cache(500);
    put(cache, 1);
    assert_false(wd_cache_put(cache, key(2), "", large, sizeof large));
    assert_int_equal(get(cache, 1), WD_CACHE_HIT);
    wd_cache_close(cache);
}

static void wd_cache_prune__leftover_temporary_files__old_ones_go(void **state)
{
    static const char *const names[] = {"tmp-1-0", "tmp-2-0", "tuning.tune"};
    char path[3][PATH_BYTES + 16];
    (void)state;
    struct wd_cache *cache = open_cache(0);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", place, names[i]);
        write_path(path[i], "x", 1);
        if (i != 1)
            set_age(path[i], 2 * 3600);
    }
    put(cache, 1);
    assert_false(exists(path[0]));
    assert_true(exists(path[1]));
    assert_true(exists(path[2]));
    assert_int_equal(wd_cache_clear(cache), 1);
    assert_false(exists(path[1]));
    assert_true(exists(path[2]));
    assert_int_equal(get(cache, 1), WD_CACHE_MISS);
    wd_cache_close(cache);
}

/* ---- Many processes ---- */

enum { PROCESSES = 8, ROUNDS = 60, KEYS = 3, CHUNK_BYTES = 20000 };

/* Writes and reads; odd ones also prune to nothing. Exit status 0: never saw half an entry. */
static int hammer(int number)
{
    struct wd_cache *cache = wd_cache_open(place, 0, NULL);
    unsigned char *data = malloc(CHUNK_BYTES);
    int bad = !cache || !data;
    for (int i = 0; !bad && i < ROUNDS; i++) {
        const unsigned char which = (unsigned char)((number + i) % KEYS);
        void *payload;
        size_t bytes;
        memset(data, which, CHUNK_BYTES);
        bad |= !wd_cache_put(cache, key(which), "", data, CHUNK_BYTES);
        const enum wd_cache_find found = wd_cache_get(cache, key(which), &payload, &bytes);
        bad |= found == WD_CACHE_DAMAGED;
        bad |= found == WD_CACHE_HIT && (bytes != CHUNK_BYTES || memcmp(payload, data, CHUNK_BYTES) != 0);
        free(payload);
        if (number % 2)
            wd_cache_prune(cache, CHUNK_BYTES);
    }
    free(data);
    wd_cache_close(cache);
    return bad;
}

static void cache__eight_processes_at_once__whole_entries_and_no_leftovers(void **state)
{
    pid_t child[PROCESSES];
    (void)state;
    strcat(place, "/new"); /* all of them make it */
    for (int i = 0; i < PROCESSES; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0)
            _exit(hammer(i));
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(count_files("tmp-"), 0);
    assert_true(count_files("") <= KEYS);
    *strrchr(place, '/') = '\0';
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wd_cache_place__environment__first_that_is_set),
        TEST(wd_cache_open__no_directory_possible__null_and_one_line),
        TEST(wd_cache_open__another_users_directory__null_and_one_line),
        TEST(wd_cache_put__directory_gone__false_and_one_line),
        TEST(cache__null__finds_and_keeps_nothing),
        TEST(wd_cache_list__three_entries__oldest_used_first),
        TEST(wd_cache_prune__over_the_limit__oldest_used_go),
        TEST(wd_cache_put__over_the_limit__oldest_used_go),
        TEST(wd_cache_put__larger_than_the_limit__not_stored),
        TEST(wd_cache_prune__leftover_temporary_files__old_ones_go),
        TEST(cache__eight_processes_at_once__whole_entries_and_no_leftovers),
    };
    return cmocka_run_group_tests_name("cache_dir", tests, NULL, NULL);
}
