/* SPDX-License-Identifier: MIT */
/* Entries of the disk cache: whole or none, whatever happens to their files. */
#include "cache_place.h"

/* ---- Entries ---- */

static void wd_cache_get__after_put__same_bytes(void **state)
{
    (void)state;
    struct wd_cache *cache = open_cache(0);
    assert_int_equal(get(cache, 1), WD_CACHE_MISS);
    put(cache, 1);
    assert_int_equal(get(cache, 1), WD_CACHE_HIT);
    assert_int_equal(get(cache, 2), WD_CACHE_MISS);
    wd_cache_close(cache);
    cache = open_cache(0);
    assert_int_equal(get(cache, 1), WD_CACHE_HIT);
    wd_cache_remove(cache, key(1));
    assert_int_equal(get(cache, 1), WD_CACHE_MISS);
    wd_cache_close(cache);
    assert_int_equal(lines, 0);
}

static void wd_cache_get__empty_payload__hit(void **state)
{
    void *payload;
    size_t bytes = 1;
    (void)state;
    struct wd_cache *cache = open_cache(0);
    assert_true(wd_cache_put(cache, key(1), "", NULL, 0));
    assert_int_equal(wd_cache_get(cache, key(1), &payload, &bytes), WD_CACHE_HIT);
    assert_int_equal(bytes, 0);
    free(payload);
    wd_cache_close(cache);
}

static void wd_cache_put__files__private_to_the_user(void **state)
{
    struct stat st;
    (void)state;
    strcat(place, "/a/b");
    struct wd_cache *cache = open_cache(0);
    put(cache, 1);
    assert_int_equal(stat(path_of(1), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(place, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    *strrchr(place, '/') = '\0';
    assert_int_equal(stat(place, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    *strrchr(place, '/') = '\0';
    wd_cache_close(cache);
}

/* ---- Damage ---- */

static void assert_damaged(struct wd_cache *cache, const unsigned char *file, size_t bytes)
{
    write_path(path_of(1), file, bytes);
    assert_int_equal(get(cache, 1), WD_CACHE_DAMAGED);
    assert_false(exists(path_of(1)));
    assert_int_equal(get(cache, 1), WD_CACHE_MISS);
}

static void wd_cache_get__cut_anywhere__removed(void **state)
{
    unsigned char file[FILE_BYTES];
    (void)state;
    struct wd_cache *cache = open_cache(0);
    put(cache, 1);
    const size_t bytes = read_path(path_of(1), file);
    for (size_t n = 0; n < bytes; n++)
        assert_damaged(cache, file, n);
    file[bytes] = 0;
    assert_damaged(cache, file, bytes + 1);
    put(cache, 1);
    assert_int_equal(get(cache, 1), WD_CACHE_HIT);
    wd_cache_close(cache);
}

/* Magic, version, key, length, hash, label and payload alike. */
static void wd_cache_get__any_bit_flipped__removed(void **state)
{
    unsigned char file[FILE_BYTES];
    (void)state;
    struct wd_cache *cache = open_cache(0);
    put(cache, 1);
    const size_t bytes = read_path(path_of(1), file);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_damaged(cache, file, bytes);
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    write_path(path_of(1), file, bytes);
    assert_int_equal(get(cache, 1), WD_CACHE_HIT);
    wd_cache_close(cache);
}

static void wd_cache_get__another_version__removed(void **state)
{
    unsigned char file[FILE_BYTES];
    (void)state;
    struct wd_cache *cache = open_cache(0);
    put(cache, 1);
    const size_t bytes = read_path(path_of(1), file);
    assert_int_equal(file[8], 1); /* the version stands behind the magic */
    file[8] = 2;
    assert_damaged(cache, file, bytes);
    wd_cache_close(cache);
}

static void wd_cache_get__file_of_another_key__removed(void **state)
{
    (void)state;
    struct wd_cache *cache = open_cache(0);
    put(cache, 2);
    char *from = strdup(path_of(2));
    assert_int_equal(rename(from, path_of(1)), 0);
    assert_int_equal(get(cache, 1), WD_CACHE_DAMAGED);
    assert_false(exists(path_of(1)));
    free(from);
    wd_cache_close(cache);
}

static void wd_cache_get__link__ignored_and_its_target_untouched(void **state)
{
    unsigned char before[FILE_BYTES], after[FILE_BYTES];
    char target[PATH_BYTES + 16];
    struct stat st;
    (void)state;
    struct wd_cache *cache = open_cache(0);
    put(cache, 1);
    snprintf(target, sizeof target, "%s/target", place);
    assert_int_equal(rename(path_of(1), target), 0);
    assert_int_equal(symlink(target, path_of(1)), 0);
    const size_t bytes = read_path(target, before);
    assert_int_equal(get(cache, 1), WD_CACHE_MISS);
    assert_true(wd_cache_put(cache, key(1), "", "other", 5));
    assert_int_equal(lstat(path_of(1), &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(read_path(target, after), bytes);
    assert_memory_equal(before, after, bytes);
    wd_cache_close(cache);
}

static void wd_cache_get__no_plain_file__miss(void **state)
{
    (void)state;
    struct wd_cache *cache = open_cache(0);
    assert_int_equal(mkdir(path_of(1), 0700), 0);
    assert_int_equal(mkfifo(path_of(2), 0600), 0);
    assert_int_equal(get(cache, 1), WD_CACHE_MISS);
    assert_int_equal(get(cache, 2), WD_CACHE_MISS);
    wd_cache_close(cache);
}

static void wd_cache_get__another_users_file__miss(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can give files away */
    struct wd_cache *cache = open_cache(0);
    put(cache, 1);
    assert_int_equal(chown(path_of(1), 12345, 12345), 0);
    assert_int_equal(get(cache, 1), WD_CACHE_MISS);
    put(cache, 1);
    assert_int_equal(get(cache, 1), WD_CACHE_HIT);
    wd_cache_close(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wd_cache_get__after_put__same_bytes),        TEST(wd_cache_get__empty_payload__hit),
        TEST(wd_cache_put__files__private_to_the_user),   TEST(wd_cache_get__cut_anywhere__removed),
        TEST(wd_cache_get__any_bit_flipped__removed),     TEST(wd_cache_get__another_version__removed),
        TEST(wd_cache_get__file_of_another_key__removed), TEST(wd_cache_get__link__ignored_and_its_target_untouched),
        TEST(wd_cache_get__no_plain_file__miss),          TEST(wd_cache_get__another_users_file__miss),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
