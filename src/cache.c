/* SPDX-License-Identifier: MIT */
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct wd_cache {
    int dir; /* files are named relative to it, so the process may change its directory */
    char *path;
    uint64_t limit_bytes;
    struct wd_log log;
    atomic_uint temp_number;
    atomic_flag told; /* the log knows that entries cannot be written */
};

#define DEFAULT_LIMIT_BYTES ((uint64_t)256 << 20)
#define NS_PER_S            ((int64_t)1000000000)
#define TEMP_PREFIX         "tmp-"
#define TEMP_MAX_AGE_NS     (3600 * NS_PER_S)
#define ENTRY_SUFFIX        ".bin"

enum {
    HEX_CHARS = 2 * WD_CACHE_KEY_BYTES,
    NAME_BYTES = HEX_CHARS + sizeof ENTRY_SUFFIX,
};

/* ---- The contents of an entry: a header, then the payload. The hash covers label and payload; every other byte of
 * the header has one right value. ---- */

#define MAGIC "WDCACHE\n"

enum {
    FORMAT_VERSION = 1,
    MAGIC_AT = 0,
    VERSION_AT = 8,
    KEY_AT = 12,
    LENGTH_AT = KEY_AT + WD_CACHE_KEY_BYTES,
    HASH_AT = LENGTH_AT + 8,
    LABEL_AT = HASH_AT + WD_SHA256_BYTES,
    HEADER_BYTES = LABEL_AT + WD_CACHE_LABEL_BYTES,
};

static void put_little_endian(unsigned char *out, uint64_t x, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(x >> (8 * i));
}

static void make_header(unsigned char header[HEADER_BYTES], const unsigned char *key,
                        const char label[WD_CACHE_LABEL_BYTES], const void *payload, size_t bytes)
{
    struct wd_sha256 h;
    memcpy(header + MAGIC_AT, MAGIC, VERSION_AT - MAGIC_AT);
    put_little_endian(header + VERSION_AT, FORMAT_VERSION, KEY_AT - VERSION_AT);
    memcpy(header + KEY_AT, key, WD_CACHE_KEY_BYTES);
    put_little_endian(header + LENGTH_AT, bytes, HASH_AT - LENGTH_AT);
    memcpy(header + LABEL_AT, label, WD_CACHE_LABEL_BYTES);
    wd_sha256_init(&h);
    wd_sha256_add(&h, label, WD_CACHE_LABEL_BYTES);
    wd_sha256_add(&h, payload, bytes);
    wd_sha256_end(&h, header + HASH_AT);
}

static void entry_name(char name[NAME_BYTES], const unsigned char *key)
{
    for (size_t i = 0; i < WD_CACHE_KEY_BYTES; i++)
        snprintf(name + 2 * i, 3, "%02x", key[i]);
    memcpy(name + HEX_CHARS, ENTRY_SUFFIX, sizeof ENTRY_SUFFIX);
}

static bool is_entry(const char *name)
{
    return strspn(name, "0123456789abcdef") == HEX_CHARS && strcmp(name + HEX_CHARS, ENTRY_SUFFIX) == 0;
}

static bool is_temp(const char *name)
{
    return strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0;
}

/* ---- Opening ---- */

static char *join(const char *a, const char *b)
{
    const size_t bytes = strlen(a) + strlen(b) + 1;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s%s", a, b);
    return path;
}

/* The directory asked for by the caller or the environment: "" for none, NULL for the default. */
static const char *wanted_place(const char *dir)
{
    return dir ? dir : getenv("WARPDRIVE_CACHE_DIR");
}

char *wd_cache_place(const char *dir)
{
    dir = wanted_place(dir);
    if (dir)
        return *dir ? join(dir, "") : NULL;
    const char *xdg = getenv("XDG_CACHE_HOME");
    if (xdg && *xdg == '/') /* its specification: relative paths are to be ignored */
        return join(xdg, "/warpdrive");
    const char *home = getenv("HOME");
    return home && *home ? join(home, "/.cache/warpdrive") : NULL;
}

/* Makes the directory and those above it where they are missing; an errno. Changes `path` and restores it. */
static int make_directories(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
}

/* Opens the directory; -1 and the reason if it is of no use. Another user's could hold binaries made to harm us. */
static int open_directory(char *path, const char **why)
{
    struct stat st;
    const int error = make_directories(path);
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid())
        return fd;
    *why = fd >= 0 ? "belongs to another user" : strerror(error ? error : errno);
    if (fd >= 0)
        close(fd);
    return -1;
}

struct wd_cache *wd_cache_open(const char *dir, uint64_t limit_bytes, const struct wd_log *log)
{
    const char *wanted = wanted_place(dir);
    if (wanted && !*wanted)
        return NULL;
    const char *why = "neither WARPDRIVE_CACHE_DIR nor HOME is set";
    char *path = wd_cache_place(dir);
    const int fd = path ? open_directory(path, &why) : -1;
    struct wd_cache *cache = fd < 0 ? NULL : malloc(sizeof *cache);
    if (!cache) {
        wd_log(log, WD_LOG_WARNING, "no kernel cache: %s%s%s", path ? path : "", path ? ": " : "",
               fd < 0 ? why : "no memory");
        if (fd >= 0)
            close(fd);
        free(path);
        return NULL;
    }
    *cache = (struct wd_cache){
        .dir = fd,
        .path = path,
        .limit_bytes = limit_bytes ? limit_bytes : DEFAULT_LIMIT_BYTES,
        .log = log ? *log : (struct wd_log){0},
        .told = ATOMIC_FLAG_INIT,
    };
    return cache;
}

void wd_cache_close(struct wd_cache *cache)
{
    if (!cache)
        return;
    close(cache->dir);
    free(cache->path);
    free(cache);
}

const char *wd_cache_path(const struct wd_cache *cache)
{
    return cache ? cache->path : "";
}

/* ---- Reading and writing ---- */

static bool read_all(int fd, void *data, size_t bytes)
{
    for (char *p = data; bytes > 0;) {
        const ssize_t n = read(fd, p, bytes);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        p += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    for (const char *p = data; bytes > 0;) {
        const ssize_t n = write(fd, p, bytes);
        if (n < 0 && errno != EINTR)
            return false;
        p += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Opens an entry that is a file of our own: -1 for links, other owners' files and anything else. */
static int open_entry(const struct wd_cache *cache, const char *name, struct stat *st)
{
    const int fd = openat(cache->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_uid == geteuid())
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Reads and checks an open entry of file_bytes; a miss means that there is no memory for it. */
static enum wd_cache_find read_entry(int fd, uint64_t file_bytes, const unsigned char *key, void **payload,
                                     size_t *bytes)
{
    unsigned char header[HEADER_BYTES], wanted[HEADER_BYTES];
    if (file_bytes < HEADER_BYTES || !read_all(fd, header, HEADER_BYTES))
        return WD_CACHE_DAMAGED;
    const size_t n = (size_t)(file_bytes - HEADER_BYTES);
    void *data = malloc(n ? n : 1);
    if (!data)
        return WD_CACHE_MISS;
    if (read_all(fd, data, n)) {
        make_header(wanted, key, (const char *)header + LABEL_AT, data, n);
        if (memcmp(header, wanted, HEADER_BYTES) == 0) {
            *payload = data;
            *bytes = n;
            return WD_CACHE_HIT;
        }
    }
    free(data);
    return WD_CACHE_DAMAGED;
}

enum wd_cache_find wd_cache_get(struct wd_cache *cache, const unsigned char key[WD_CACHE_KEY_BYTES], void **payload,
                                size_t *bytes)
{
    char name[NAME_BYTES];
    struct stat st;
    *payload = NULL;
    *bytes = 0;
    if (!cache)
        return WD_CACHE_MISS;
    entry_name(name, key);
    const int fd = open_entry(cache, name, &st);
    if (fd < 0)
        return WD_CACHE_MISS;
    const enum wd_cache_find found = read_entry(fd, (uint64_t)st.st_size, key, payload, bytes);
    if (found == WD_CACHE_HIT)
        futimens(fd, NULL); /* used now */
    if (found == WD_CACHE_DAMAGED)
        unlinkat(cache->dir, name, 0);
    close(fd);
    return found;
}

/* Creates a file that no other thread or process has; its name in `name`. */
static int create_temp(struct wd_cache *cache, char *name, size_t name_bytes)
{
    for (;;) {
        snprintf(name, name_bytes, TEMP_PREFIX "%ld-%u", (long)getpid(), atomic_fetch_add(&cache->temp_number, 1));
        const int fd = openat(cache->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
}

/* Every step's failure leaves errno; the name is the entry's only once all bytes are on disk. */
static bool write_entry(struct wd_cache *cache, const char *name, const unsigned char *header, const void *payload,
                        size_t bytes)
{
    char temp[64];
    const int fd = create_temp(cache, temp, sizeof temp);
    if (fd < 0)
        return false;
    const bool written = write_all(fd, header, HEADER_BYTES) && write_all(fd, payload, bytes) && fsync(fd) == 0;
    const int error = errno;
    if (close(fd) == 0 && written && renameat(cache->dir, temp, cache->dir, name) == 0)
        return true;
    if (!written)
        errno = error;
    const int reason = errno;
    unlinkat(cache->dir, temp, 0);
    errno = reason;
    return false;
}

bool wd_cache_put(struct wd_cache *cache, const unsigned char key[WD_CACHE_KEY_BYTES], const char *label,
                  const void *payload, size_t bytes)
{
    char name[NAME_BYTES], label_field[WD_CACHE_LABEL_BYTES] = {0};
    unsigned char header[HEADER_BYTES];
    if (!cache || bytes > cache->limit_bytes)
        return false;
    entry_name(name, key);
    snprintf(label_field, sizeof label_field, "%s", label);
    make_header(header, key, label_field, payload, bytes);
    if (!write_entry(cache, name, header, payload, bytes)) {
        if (!atomic_flag_test_and_set(&cache->told))
            wd_log(&cache->log, WD_LOG_WARNING, "cannot write to the kernel cache: %s: %s", cache->path,
                   strerror(errno));
        return false;
    }
    wd_cache_prune(cache, cache->limit_bytes);
    return true;
}

void wd_cache_remove(struct wd_cache *cache, const unsigned char key[WD_CACHE_KEY_BYTES])
{
    char name[NAME_BYTES];
    if (!cache)
        return;
    entry_name(name, key);
    unlinkat(cache->dir, name, 0);
}

/* ---- The directory as a whole ---- */

static int64_t nanoseconds(struct timespec t)
{
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static int by_age(const void *a, const void *b)
{
    const struct wd_cache_entry *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

struct listing {
    struct wd_cache_entry *entries;
    size_t count, capacity;
};

static bool add_entry(struct listing *l, const char *name, const struct stat *st)
{
    if (l->count == l->capacity) {
        const size_t capacity = 2 * l->capacity + 64;
        struct wd_cache_entry *entries = realloc(l->entries, capacity * sizeof *entries);
        if (!entries)
            return false;
        l->entries = entries;
        l->capacity = capacity;
    }
    struct wd_cache_entry *e = &l->entries[l->count++];
    *e = (struct wd_cache_entry){.bytes = (uint64_t)st->st_size, .used_ns = nanoseconds(st->st_mtim)};
    memcpy(e->name, name, HEX_CHARS);
    return true;
}

/* Lists all entries, oldest-used first, and removes temporary files older than max_age_ns: their writers died. */
static wd_status scan(const struct wd_cache *cache, int64_t max_age_ns, struct listing *l)
{
    *l = (struct listing){0};
    const int fd = openat(cache->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return WD_EIO;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    bool complete = true;
    for (const struct dirent *d; complete && (d = readdir(dir)) != NULL;) {
        struct stat st;
        const bool temp = is_temp(d->d_name);
        if ((!temp && !is_entry(d->d_name)) || fstatat(cache->dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (!temp)
            complete = add_entry(l, d->d_name, &st);
        else if (nanoseconds(now) - nanoseconds(st.st_mtim) > max_age_ns)
            unlinkat(cache->dir, d->d_name, 0);
    }
    closedir(dir);
    if (!complete) {
        free(l->entries);
        return WD_ENOMEM;
    }
    if (l->count)
        qsort(l->entries, l->count, sizeof *l->entries, by_age);
    return WD_OK;
}

static bool remove_entry(const struct wd_cache *cache, const struct wd_cache_entry *e)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s" ENTRY_SUFFIX, e->name);
    return unlinkat(cache->dir, name, 0) == 0;
}

size_t wd_cache_prune(struct wd_cache *cache, uint64_t limit_bytes)
{
    struct listing l;
    if (!cache || scan(cache, TEMP_MAX_AGE_NS, &l) != WD_OK)
        return 0;
    uint64_t total = 0;
    size_t removed = 0;
    for (size_t i = 0; i < l.count; i++)
        total += l.entries[i].bytes;
    for (size_t i = 0; i < l.count && total > limit_bytes; i++) {
        total -= l.entries[i].bytes;
        removed += remove_entry(cache, &l.entries[i]);
    }
    free(l.entries);
    return removed;
}

size_t wd_cache_clear(struct wd_cache *cache)
{
    struct listing l;
    if (!cache || scan(cache, INT64_MIN, &l) != WD_OK)
        return 0;
    size_t removed = 0;
    for (size_t i = 0; i < l.count; i++)
        removed += remove_entry(cache, &l.entries[i]);
    free(l.entries);
    return removed;
}

/* Copies the label out of an entry's file if that is an entry at all. */
static void read_label(const struct wd_cache *cache, struct wd_cache_entry *e)
{
    char name[NAME_BYTES];
    unsigned char header[HEADER_BYTES];
    struct stat st;
    snprintf(name, sizeof name, "%s" ENTRY_SUFFIX, e->name);
    const int fd = open_entry(cache, name, &st);
    if (fd < 0)
        return;
    if (read_all(fd, header, HEADER_BYTES) && memcmp(header, MAGIC, strlen(MAGIC)) == 0)
        memcpy(e->label, header + LABEL_AT, WD_CACHE_LABEL_BYTES - 1);
    close(fd);
}

wd_status wd_cache_list(struct wd_cache *cache, struct wd_cache_entry **list, size_t *count)
{
    struct listing l = {0};
    *list = NULL;
    *count = 0;
    const wd_status st = cache ? scan(cache, TEMP_MAX_AGE_NS, &l) : WD_OK;
    if (st != WD_OK)
        return wd_fail(st, "cache: cannot list %s", cache->path);
    for (size_t i = 0; i < l.count; i++)
        read_label(cache, &l.entries[i]);
    *list = l.entries;
    *count = l.count;
    return WD_OK;
}
