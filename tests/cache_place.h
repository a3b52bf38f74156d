/* SPDX-License-Identifier: MIT */
/* A cache directory for each test, its entries as files, and what was logged. */
#ifndef CACHE_PLACE_H
#define CACHE_PLACE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"

#define PAYLOAD "the payload"

enum { PATH_BYTES = 512, FILE_BYTES = 4096 };

/* A fresh directory for each test, and the lines that were logged. */
static char place[PATH_BYTES];
static int lines;

static inline void count_line(void *user, wd_log_level level, const char *line)
{
    (void)user;
    assert_int_equal(level, WD_LOG_WARNING);
    assert_null(strchr(line, '\n'));
    lines++;
}

static const struct wd_log log_lines = {count_line, NULL};

static inline int make_place(void **state)
{
    (void)state;
    lines = 0;
    snprintf(place, sizeof place, "%s/wd-cache-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(place) ? 0 : -1;
}

static inline int remove_place(void **state)
{
    char command[PATH_BYTES + 16];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", place);
    return system(command);
}

static inline struct wd_cache *open_cache(uint64_t limit_bytes)
{
    struct wd_cache *cache = wd_cache_open(place, limit_bytes, &log_lines);
    assert_non_null(cache);
    return cache;
}

static inline const unsigned char *key(unsigned char number)
{
    static unsigned char bytes[WD_CACHE_KEY_BYTES];
    memset(bytes, number, sizeof bytes);
    return bytes;
}

/* The file of an entry, as anybody can see it. */
static inline char *path_of(unsigned char number)
{
    static char path[PATH_BYTES + 80];
    int n = snprintf(path, sizeof path, "%s/", place);
    for (size_t i = 0; i < WD_CACHE_KEY_BYTES; i++)
        n += snprintf(path + n, sizeof path - (size_t)n, "%02x", number);
    snprintf(path + n, sizeof path - (size_t)n, ".bin");
    return path;
}

static inline size_t read_path(const char *path, unsigned char *data)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(data, 1, FILE_BYTES, f);
    fclose(f);
    return n;
}

static inline void write_path(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static inline bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static inline void put(struct wd_cache *cache, unsigned char number)
{
    assert_true(wd_cache_put(cache, key(number), "a label", PAYLOAD, sizeof PAYLOAD));
}

static inline enum wd_cache_find get(struct wd_cache *cache, unsigned char number)
{
    void *payload;
    size_t bytes;
    const enum wd_cache_find found = wd_cache_get(cache, key(number), &payload, &bytes);
    if (found == WD_CACHE_HIT) {
        assert_int_equal(bytes, sizeof PAYLOAD);
        assert_string_equal(payload, PAYLOAD);
    } else {
        assert_null(payload);
        assert_int_equal(bytes, 0);
    }
    free(payload);
    return found;
}

static inline void set_age(const char *path, time_t seconds)
{
    const struct timespec t = {.tv_sec = time(NULL) - seconds};
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){t, t}, 0), 0);
}

/* Files in the directory whose names begin with `prefix`. */
static inline size_t count_files(const char *prefix)
{
    size_t n = 0;
    DIR *dir = opendir(place);
    assert_non_null(dir);
    for (const struct dirent *d; (d = readdir(dir)) != NULL;)
        n += d->d_name[0] != '.' && strncmp(d->d_name, prefix, strlen(prefix)) == 0;
    closedir(dir);
    return n;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)

#endif
