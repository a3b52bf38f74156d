/* SPDX-License-Identifier: MIT */
#include "records.h"
#include "file.h"
#include "op.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Words ---- */

/* Steps over the word at `w`; a quoted value may hold blanks. Its name ends at *equals, if it has a value. */
static const char *skip_word(const char *w, const char **equals, const char **value, size_t *length)
{
    *equals = w + strcspn(w, "= ");
    const char *v = **equals == '=' ? *equals + 1 : *equals;
    const bool quoted = **equals == '=' && *v == '"';
    v += quoted;
    *value = v;
    *length = strcspn(v, quoted ? "\"" : " ");
    w = v + *length + (quoted && v[*length] == '"');
    return w + strspn(w, " ");
}

int wd_words_find(const char *words, const char *name, const char **value)
{
    const size_t n = strlen(name);
    for (const char *w = words + strspn(words, " "); *w;) {
        const char *equals, *v, *begin = w;
        size_t length;
        w = skip_word(w, &equals, &v, &length);
        if ((size_t)(equals - begin) == n && strncmp(begin, name, n) == 0 && *equals == '=') {
            *value = v;
            return (int)length;
        }
    }
    return -1;
}

bool wd_words_have(const char *words, const char *w, size_t length)
{
    while (*words) {
        const size_t n = strcspn(words, " ");
        if (n == length && strncmp(words, w, length) == 0)
            return true;
        words += n;
        words += strspn(words, " ");
    }
    return false;
}

/* ---- Parsing ---- */

/* Cuts the field that begins at *at off at the next tab; NULL when it is empty or there is none. */
static const char *cut(char **at)
{
    char *field = *at;
    if (!field)
        return NULL;
    *at = strchr(field, '\t');
    if (*at) {
        **at = '\0';
        (*at)++;
    }
    return *field ? field : NULL;
}

/* Does the field say something, and nothing but what devices are told by? */
static bool names_device(const char *field)
{
    static const char *const known[] = {"kind", "arch", "device", "driver", "type"};
    if (strcmp(field, "*") == 0)
        return true;
    for (const char *w = field; *w;) {
        const char *equals, *value, *begin = w;
        size_t length, i = 0;
        w = skip_word(w, &equals, &value, &length);
        while (i < WD_COUNT(known) && (strlen(known[i]) != (size_t)(equals - begin) ||
                                       strncmp(begin, known[i], (size_t)(equals - begin)) != 0))
            i++;
        if (i == WD_COUNT(known) || *equals != '=')
            return false;
    }
    return true;
}

/* Cuts the line into fields. What is wrong with it, or NULL. */
static const char *parse_line(struct wd_record *r)
{
    char *at = r->line;
    r->op = cut(&at);
    r->device = cut(&at);
    r->class_ = cut(&at);
    r->choice = cut(&at);
    r->note = at ? at : "";
    if (!r->op || !r->device || !r->class_ || !r->choice)
        return "fewer than four fields separated by tabs";
    if (!wd_op_by_name(r->op))
        return "an unknown operation";
    return names_device(r->device) ? NULL : "an unknown word for a device";
}

/* The line that begins at *at, without its end; *at moves to the next. */
static size_t next_line(const char **at)
{
    const char *line = *at;
    size_t length = strcspn(line, "\n");
    *at += length + (line[length] == '\n');
    while (length > 0 && (line[length - 1] == '\r' || line[length - 1] == ' '))
        length--;
    return length;
}

static char *copy_line(const char *line, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy) {
        memcpy(copy, line, length);
        copy[length] = '\0';
    }
    return copy;
}

wd_status wd_records_parse(struct wd_records *records, const char *name, const char *text, const struct wd_log *log)
{
    *records = (struct wd_records){0};
    snprintf(records->name, sizeof records->name, "%s", name);
    int number = 0;
    for (const char *at = text; *at;) {
        const char *line = at;
        const size_t length = next_line(&at);
        number++;
        if (length == 0 || line[0] == '#')
            continue;
        struct wd_record *grown = realloc(records->record, (records->count + 1) * sizeof *grown);
        if (!grown)
            goto undo_records;
        records->record = grown;
        struct wd_record *r = &grown[records->count];
        *r = (struct wd_record){.number = number, .line = copy_line(line, length)};
        if (!r->line)
            goto undo_records;
        const char *fault = parse_line(r);
        if (fault) {
            wd_log(log, WD_LOG_WARNING, "tuning: %s line %d is skipped: %s", name, number, fault);
            free(r->line);
            continue;
        }
        records->count++;
    }
    return WD_OK;

undo_records:
    wd_records_free(records);
    return wd_fail(WD_ENOMEM, "tuning: %s: out of memory", name);
}

void wd_records_free(struct wd_records *records)
{
    for (size_t i = 0; i < records->count; i++)
        free(records->record[i].line);
    free(records->record);
    records->record = NULL;
    records->count = 0;
}

/* ---- Saving ---- */

static const char heading[] =
    "# Tuning records of this user, written by `warpdrive tune`; lines may be added by hand.\n"
    "# op\tdevice\tclass\tvariant parameters\t# provenance\n";

static bool same_place(const char *line, size_t length, const char *place)
{
    const size_t n = strlen(place);
    return length >= n && strncmp(line, place, n) == 0;
}

/* The file's text with the record in it. */
static void put_record(struct wd_text *out, const char *old, const struct wd_record *r)
{
    struct wd_text place = {0};
    bool placed = false;
    wd_text_add(&place, "%s\t%s\t%s\t", r->op, r->device, r->class_);
    if (!*old)
        wd_text_add(out, "%s", heading);
    for (const char *at = old; *at && place.data;) {
        const char *line = at;
        const size_t length = next_line(&at);
        if (!same_place(line, length, place.data))
            wd_text_add(out, "%.*s%s", (int)(at - line), line, at[-1] == '\n' ? "" : "\n");
        else if (!placed)
            wd_text_add(out, "%s%s\t%s\n", place.data, r->choice, r->note);
        placed |= same_place(line, length, place.data);
    }
    if (!placed && place.data)
        wd_text_add(out, "%s%s\t%s\n", place.data, r->choice, r->note);
    out->failed |= place.failed;
    wd_text_free(&place);
}

wd_status wd_records_save(const char *path, const struct wd_record *record)
{
    struct wd_text text = {0};
    char *old = NULL;
    const int lock = wd_file_lock(path, true);
    if (lock < 0)
        return wd_fail(WD_EIO, "tuning: %s: %s", path, strerror(errno));
    wd_status st = wd_file_read(path, &old);
    if (!st) {
        put_record(&text, old ? old : "", record);
        st = text.failed ? wd_fail(WD_ENOMEM, "tuning: %s: out of memory", path)
                         : wd_file_replace(path, text.data, text.size);
    }
    wd_text_free(&text);
    free(old);
    wd_file_unlock(lock);
    return st;
}
