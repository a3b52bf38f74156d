/* SPDX-License-Identifier: MIT */
/*
 * Bytes by key on disk. Knows no OpenCL.
 *
 * One file an entry, named by its key. What a reader gets is what a writer put, whole, or nothing: an entry that
 * is damaged or of another format is removed and counts as missing. Many processes and threads may share a
 * directory; nobody waits for anybody. Every function takes a NULL cache and then finds and keeps nothing.
 */
#ifndef WD_CACHE_H
#define WD_CACHE_H

#include "log.h"
#include "sha256.h"

enum {
    WD_CACHE_KEY_BYTES = WD_SHA256_BYTES,
    WD_CACHE_LABEL_BYTES = 96, /* what people see in a list; longer labels are cut */
};

struct wd_cache;

/** Where the cache lies: `dir`, or if that is NULL $WARPDRIVE_CACHE_DIR, $XDG_CACHE_HOME/warpdrive or
 *  ~/.cache/warpdrive. NULL: nowhere ("" says so, or no variable is set). The caller frees it. Touches no disk. */
char *wd_cache_place(const char *dir);

/** Opens the directory at wd_cache_place(dir), which is made with mode 0700 if it is not there. limit_bytes 0:
 *  256 MiB. NULL, after one warning in the log, if the place cannot be used; silently for "". */
struct wd_cache *wd_cache_open(const char *dir, uint64_t limit_bytes, const struct wd_log *log);
void wd_cache_close(struct wd_cache *cache);

/** The directory's name. */
const char *wd_cache_path(const struct wd_cache *cache);

enum wd_cache_find {
    WD_CACHE_MISS,
    WD_CACHE_HIT,
    WD_CACHE_DAMAGED, /* there was an entry, but not a sound one; it is removed */
};

/** On a hit *payload (free() it) and *bytes; the entry counts as used now. */
enum wd_cache_find wd_cache_get(struct wd_cache *cache, const unsigned char key[WD_CACHE_KEY_BYTES], void **payload,
                                size_t *bytes);

/** Stores or replaces an entry, then prunes to the limit. False if it could not be stored. */
bool wd_cache_put(struct wd_cache *cache, const unsigned char key[WD_CACHE_KEY_BYTES], const char *label,
                  const void *payload, size_t bytes);

void wd_cache_remove(struct wd_cache *cache, const unsigned char key[WD_CACHE_KEY_BYTES]);

struct wd_cache_entry {
    char name[2 * WD_CACHE_KEY_BYTES + 1]; /* the key in hex */
    char label[WD_CACHE_LABEL_BYTES];
    uint64_t bytes;  /* of the file */
    int64_t used_ns; /* last hit or write, since 1970 */
};

/** All entries, oldest-used first; the label of a damaged one is "". Allocates *list (free() it); an empty cache is
 * NULL and 0. */
wd_status wd_cache_list(struct wd_cache *cache, struct wd_cache_entry **list, size_t *count);

/** Removes the oldest-used entries until the rest fits into limit_bytes, and temporary files that a killed
 *  process left behind. Returns the number of entries removed. Readers are not disturbed. */
size_t wd_cache_prune(struct wd_cache *cache, uint64_t limit_bytes);

/** Removes every entry and temporary file, nothing else. Returns the number of entries removed. */
size_t wd_cache_clear(struct wd_cache *cache);

#endif
