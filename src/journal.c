/* SPDX-License-Identifier: MIT */
#include "journal.h"
#include "file.h"
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry {
    char *line; /* cut into the fields below by NULs */
    const char *verb, *key, *choice, *result;
};

struct wd_journal {
    int fd; /* holds the lock; appended to */
    char *path;
    struct wd_log log;
    struct entry *entry;
    size_t count, capacity;
    bool told; /* the log knows that lines cannot be written */
};

static const char started[] = "started", timed[] = "timed", unusable[] = "unusable", ended[] = "ended";

/* ---- Lines ---- */

/* Cuts a line into its fields, of which late ones may be missing. Takes `line`. */
static bool add_entry(struct wd_journal *j, char *line)
{
    if (line && j->count == j->capacity) {
        const size_t capacity = 2 * j->capacity + 64;
        struct entry *grown = realloc(j->entry, capacity * sizeof *grown);
        if (!grown) {
            free(line);
            return false;
        }
        j->entry = grown;
        j->capacity = capacity;
    }
    if (!line)
        return false;
    struct entry *e = &j->entry[j->count++];
    const char **const field[] = {&e->verb, &e->key, &e->choice, &e->result};
    e->line = line;
    for (size_t i = 0; i < sizeof field / sizeof field[0]; i++) {
        *field[i] = line;
        line += strcspn(line, "\t");
        if (*line)
            *line++ = '\0';
    }
    return true;
}

/* A last line without an end was cut by a kill: it says nothing. */
static bool add_text(struct wd_journal *j, const char *text)
{
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *copy = malloc((size_t)(end - line) + 1);
        if (!copy)
            return false;
        memcpy(copy, line, (size_t)(end - line));
        copy[end - line] = '\0';
        if (!add_entry(j, copy))
            return false;
    }
    return true;
}

static void cannot(struct wd_journal *j, const char *what)
{
    if (!j->told)
        wd_log(&j->log, WD_LOG_WARNING, "tuning: %s: %s: %s", j->path, what, strerror(errno));
    j->told = true;
}

static void append(struct wd_journal *j, const char *verb, const char *key, const char *choice, const char *result)
{
    struct wd_text line = {0};
    if (!j)
        return;
    wd_text_add(&line, "%s\t%s\t%s\t%s\n", verb, key, choice, result);
    if (!line.failed && (!wd_file_write(j->fd, line.data, line.size) || fsync(j->fd)))
        cannot(j, "cannot be written");
    if (!line.failed)
        add_text(j, line.data);
    wd_text_free(&line);
}

/* ---- Opening ---- */

struct wd_journal *wd_journal_open(const char *path, bool wait, const struct wd_log *log)
{
    struct wd_journal *j = calloc(1, sizeof *j);
    char *text = NULL;
    if (!j || !(j->path = strdup(path))) {
        free(j);
        return NULL;
    }
    j->log = log ? *log : (struct wd_log){0};
    j->fd = wd_file_lock(path, wait);
    if (j->fd < 0) {
        if (errno == EWOULDBLOCK)
            wd_log(log, WD_LOG_INFO, "tuning: %s: another search holds it, this one goes without", path);
        else
            cannot(j, "cannot be opened");
        wd_journal_close(j);
        return NULL;
    }
    if (wd_file_read(path, &text) || (text && !add_text(j, text))) {
        wd_log(&j->log, WD_LOG_WARNING, "tuning: %s: cannot be read", path);
        free(text);
        wd_journal_close(j);
        return NULL;
    }
    /* What a kill cut short says nothing, and must not run into the next line. */
    const char *end = text ? strrchr(text, '\n') : NULL;
    if (text && ftruncate(j->fd, end ? end + 1 - text : 0))
        cannot(j, "cannot be written");
    free(text);
    return j;
}

void wd_journal_close(struct wd_journal *j)
{
    if (!j)
        return;
    if (j->fd >= 0 && j->count == 0)
        unlink(j->path);
    for (size_t i = 0; i < j->count; i++)
        free(j->entry[i].line);
    wd_file_unlock(j->fd);
    free(j->entry);
    free(j->path);
    free(j);
}

/* ---- Asking ---- */

double wd_journal_find(const struct wd_journal *j, const char *key, const char *choice)
{
    unsigned starts = 0;
    for (size_t i = j ? j->count : 0; i-- > 0;) {
        const struct entry *e = &j->entry[i];
        if (strcmp(e->key, key) != 0 || strcmp(e->choice, choice) != 0)
            continue;
        if (!strcmp(e->verb, timed) && strtod(e->result, NULL) > 0)
            return strtod(e->result, NULL);
        if (!strcmp(e->verb, unusable))
            return INFINITY;
        starts += !strcmp(e->verb, started);
    }
    return starts >= 2 ? INFINITY : 0;
}

bool wd_journal_ended(const struct wd_journal *j, const char *key)
{
    for (size_t i = 0; j && i < j->count; i++)
        if (!strcmp(j->entry[i].verb, ended) && !strcmp(j->entry[i].key, key))
            return true;
    return false;
}

/* ---- Telling ---- */

void wd_journal_start(struct wd_journal *j, const char *key, const char *choice)
{
    append(j, started, key, choice, "");
}

void wd_journal_finish(struct wd_journal *j, const char *key, const char *choice, double ns, const char *why)
{
    char result[160];
    if (isinf(ns))
        snprintf(result, sizeof result, "%.*s", (int)strcspn(why, "\t\n"), why);
    else
        snprintf(result, sizeof result, "%.0f", fmax(ns, 1)); /* whole: no locale spells it otherwise */
    append(j, isinf(ns) ? unusable : timed, key, choice, result);
}

void wd_journal_end(struct wd_journal *j, const char *key)
{
    append(j, ended, key, "", "");
}

const char *wd_journal_blame(struct wd_journal *j, const char *why)
{
    const struct entry *last = j && j->count ? &j->entry[j->count - 1] : NULL;
    if (!last || strcmp(last->verb, started) != 0)
        return "";
    const char *const key = last->key, *const choice = last->choice;
    wd_journal_finish(j, key, choice, INFINITY, why);
    return choice;
}

/* Leaves out the entries of this key (`same`), or those whose key does not begin with it. */
static void filter(struct wd_journal *j, const char *key, bool same)
{
    struct wd_text text = {0};
    size_t kept = 0;
    const size_t length = strlen(key), before = j->count;
    for (size_t i = 0; i < before; i++) {
        const struct entry e = j->entry[i];
        if (same ? !strcmp(e.key, key) : strncmp(e.key, key, length) != 0) {
            free(e.line);
            continue;
        }
        wd_text_add(&text, "%s\t%s\t%s\t%s\n", e.verb, e.key, e.choice, e.result);
        j->entry[kept++] = e;
    }
    j->count = kept;
    /* In place, so that the lock stays with the file; a kill between the two costs what was known, no more. */
    if (kept < before &&
        (text.failed || ftruncate(j->fd, 0) || (text.size && !wd_file_write(j->fd, text.data, text.size))))
        cannot(j, "cannot be written");
    wd_text_free(&text);
}

void wd_journal_forget(struct wd_journal *j, const char *key)
{
    if (j)
        filter(j, key, true);
}

void wd_journal_keep(struct wd_journal *j, const char *beginning)
{
    if (j)
        filter(j, beginning, false);
}
