/* SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700 /* realpath() */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

wd_status wd_file_read(const char *path, char **text)
{
    *text = NULL;
    FILE *f = fopen(path, "rb");
    if (!f)
        return errno == ENOENT ? WD_OK : wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    wd_status st = WD_OK;
    size_t size = 0, capacity = 1 << 16;
    char *data = malloc(capacity);
    while (data) {
        size += fread(data + size, 1, capacity - size - 1, f);
        if (size < capacity - 1)
            break;
        char *grown = realloc(data, capacity *= 2);
        if (!grown)
            free(data);
        data = grown;
    }
    if (!data)
        st = wd_fail(WD_ENOMEM, "%s: out of memory", path);
    else if (ferror(f)) {
        st = wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
        free(data);
    } else {
        data[size] = '\0';
        *text = data;
    }
    fclose(f);
    return st;
}

bool wd_file_write(int fd, const void *data, size_t bytes)
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

/* Is this descriptor still what the path names? Another holder may have replaced the file while we waited. */
static bool is_current(int fd, const char *path)
{
    struct stat ours, theirs;
    return fstat(fd, &ours) == 0 && stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
           ours.st_ino == theirs.st_ino;
}

int wd_file_lock(const char *path, bool wait)
{
    for (;;) {
        const int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (fd < 0)
            return -1;
        int err;
        do
            err = flock(fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB);
        while (err && errno == EINTR);
        if (!err && is_current(fd, path))
            return fd;
        const int reason = errno;
        close(fd);
        if (err) {
            errno = reason;
            return -1;
        }
    }
}

void wd_file_unlock(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* The lock makes the temporary name ours alone; one that a dead process left behind is written over. */
static bool write_beside(const char *path, const char *temp, const char *text, size_t bytes)
{
    struct stat old;
    const int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return false;
    bool ok = wd_file_write(fd, text, bytes) && (stat(path, &old) != 0 || fchmod(fd, old.st_mode & 0777) == 0) &&
              fsync(fd) == 0;
    int reason = errno;
    if (close(fd) && ok) {
        ok = false;
        reason = errno;
    }
    if (ok && rename(temp, path)) {
        ok = false;
        reason = errno;
    }
    if (!ok)
        unlink(temp);
    errno = reason;
    return ok;
}

wd_status wd_file_replace(const char *path, const char *text, size_t bytes)
{
    char *target = realpath(path, NULL);
    const char *place = target ? target : path;
    const size_t n = strlen(place) + sizeof ".new";
    char *temp = malloc(n);
    wd_status st = temp ? WD_OK : wd_fail(WD_ENOMEM, "%s: out of memory", path);
    if (temp) {
        snprintf(temp, n, "%s.new", place);
        if (!write_beside(place, temp, text, bytes))
            st = wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    }
    free(temp);
    free(target);
    return st;
}
