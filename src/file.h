/* SPDX-License-Identifier: MIT */
/* Small text files that several processes read and change at once: whole reads, locks, and replacement in one step. */
#ifndef WD_FILE_H
#define WD_FILE_H

#include "status.h"

/** The whole of a text file, NUL-terminated; free() it. A missing file is WD_OK with *text NULL. */
wd_status wd_file_read(const char *path, char **text);

/** Opens a file to read and append, made if it is missing, and locks it against every other holder: of this process,
 *  too. The lock lasts until wd_file_unlock(). `wait`: until it is free. -1, and errno, on failure. */
int wd_file_lock(const char *path, bool wait);
void wd_file_unlock(int fd);

/** Puts `text` in the place of a file's contents: readers see the old or the new, whole. The caller holds its lock.
 * Where `path` is a link, the file behind it is replaced. */
wd_status wd_file_replace(const char *path, const char *text, size_t bytes);

/** Writes everything, or returns false with errno. */
bool wd_file_write(int fd, const void *data, size_t bytes);

#endif
