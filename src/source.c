/* SPDX-License-Identifier: MIT */
#include "source.h"
#include "embedded.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 16, NAME_BYTES = 64 };

struct expansion {
    struct wd_text *text;
    const char *dir; /* $WARPDRIVE_KERNEL_DIR or NULL */
    char seen[MAX_FILES][NAME_BYTES];
    size_t num_seen;
};

/* ---- Where files come from ---- */

static wd_status read_file(const char *dir, const char *name, struct wd_text *out)
{
    char path[4096], block[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return wd_fail(WD_EIO, "WARPDRIVE_KERNEL_DIR: %s: %s", path, strerror(errno));
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        wd_text_add(out, "%.*s", (int)n, block);
    const bool bad = ferror(f) != 0;
    fclose(f);
    return bad ? wd_fail(WD_EIO, "WARPDRIVE_KERNEL_DIR: %s: cannot be read", path) : WD_OK;
}

/* One of the library's own files, or NULL. */
static const char *embedded(const char *name)
{
    for (const struct wd_embedded *e = wd_embedded; e->name; e++)
        if (strcmp(e->name, name) == 0)
            return e->text;
    return NULL;
}

/* ---- Expansion ---- */

/* True, and the name, if the line is `#include "name"`. */
static bool is_include(const char *line, size_t length, char name[NAME_BYTES])
{
    char copy[128];
    if (length >= sizeof copy)
        return false;
    memcpy(copy, line, length);
    copy[length] = '\0';
    return sscanf(copy, " # include \"%63[^\"\n]\"", name) == 1;
}

/* False if the file is in the text already. */
static bool first_time(struct expansion *x, const char *name)
{
    for (size_t i = 0; i < x->num_seen; i++)
        if (strcmp(x->seen[i], name) == 0)
            return false;
    if (x->num_seen < MAX_FILES)
        snprintf(x->seen[x->num_seen++], NAME_BYTES, "%s", name);
    return true;
}

static wd_status add_file(struct expansion *x, const char *name);

static wd_status add_lines(struct expansion *x, const char *name, const char *content)
{
    wd_text_add(x->text, "#line 1 \"%s\"\n", name);
    unsigned number = 1;
    for (const char *line = content, *next; *line; line = next, number++) {
        const char *end = strchr(line, '\n');
        next = end ? end + 1 : line + strlen(line);
        char include[NAME_BYTES];
        if (!is_include(line, (size_t)(next - line), include)) {
            wd_text_add(x->text, "%.*s%s", (int)(next - line), line, end ? "" : "\n");
            continue;
        }
        const wd_status st = add_file(x, include);
        if (st != WD_OK)
            return st;
        wd_text_add(x->text, "#line %u \"%s\"\n", number + 1, name);
    }
    return WD_OK;
}

/* Depth is bounded: a file is entered once. */
static wd_status add_file(struct expansion *x, const char *name)
{
    if (!first_time(x, name))
        return WD_OK;
    if (!x->dir) {
        const char *content = embedded(name);
        return content ? add_lines(x, name, content) : wd_fail(WD_EBUILD, "%s: no such kernel file", name);
    }
    struct wd_text content = {0};
    wd_status st = read_file(x->dir, name, &content);
    if (st == WD_OK && content.failed)
        st = wd_fail(WD_ENOMEM, "%s: out of memory", name);
    if (st == WD_OK && content.data)
        st = add_lines(x, name, content.data);
    wd_text_free(&content);
    return st;
}

wd_status wd_source_add(struct wd_text *text, const char *prelude, const char *file, const char *kernel)
{
    const char *dir = getenv("WARPDRIVE_KERNEL_DIR");
    struct expansion x = {.text = text, .dir = dir && *dir ? dir : NULL};
    wd_text_add(text, "#define WD_ONE 1\n#define KERNEL_%s 1\n#line 1 \"prelude\"\n%s\n", kernel, prelude);
    const wd_status st = add_file(&x, file);
    if (st != WD_OK)
        return st;
    return text->failed ? wd_fail(WD_ENOMEM, "%s: out of memory", file) : WD_OK;
}
