/* SPDX-License-Identifier: MIT */
/* A file is: "\x93NUMPY", version (2 bytes), header length (2 or 4 bytes), header, data. The header is a Python dict
 * literal with the keys descr, fortran_order and shape, padded with spaces up to a newline. */
#include "npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"

static const char magic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

enum { HEADER_MAX = 64 * 1024, ALIGNMENT = 64 };

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [NPY_F4] = {"f4", 4}, [NPY_F8] = {"f8", 8}, [NPY_F2] = {"f2", 2}, [NPY_U1] = {"u1", 1},
    [NPY_U2] = {"u2", 2}, [NPY_I4] = {"i4", 4}, [NPY_I8] = {"i8", 8},
};
enum { NUM_TYPES = sizeof types / sizeof types[0] };

size_t npy_type_size(enum npy_type type)
{
    return types[type].size;
}

const char *npy_type_name(enum npy_type type)
{
    return types[type].name;
}

size_t npy_count(const struct npy *a)
{
    size_t n = 1;
    for (size_t r = 0; r < a->rank; r++)
        n *= a->shape[r];
    return n;
}

void npy_free(struct npy *a)
{
    free(a->data);
    *a = (struct npy){0};
}

const char *npy_shape_text(const struct npy *a, char text[NPY_SHAPE_TEXT])
{
    size_t used = 0;
    snprintf(text, NPY_SHAPE_TEXT, "scalar");
    for (size_t r = 0; r < a->rank && used < NPY_SHAPE_TEXT; r++)
        used += (size_t)snprintf(text + used, NPY_SHAPE_TEXT - used, r ? " x %zu" : "%zu", a->shape[r]);
    return text;
}

double npy_value(const struct npy *a, size_t i)
{
    const unsigned char *at = (const unsigned char *)a->data + i * types[a->type].size;
    uint16_t u2;
    double f8, value = 0;
    int64_t i8;
    switch (a->type) {
    case NPY_F4: wd_to_double(WD_F32, at, 1, &value); return value;
    case NPY_F2: wd_to_double(WD_F16, at, 1, &value); return value;
    case NPY_I4: wd_to_double(WD_I32, at, 1, &value); return value;
    case NPY_F8: memcpy(&f8, at, sizeof f8); return f8;
    case NPY_U1: return *at;
    case NPY_U2: memcpy(&u2, at, sizeof u2); return u2;
    case NPY_I8: memcpy(&i8, at, sizeof i8); return (double)i8;
    }
    return value;
}

/* ---- The header ---- */

/* What is left of the header. `why` is set at the first mistake. */
struct cursor {
    const char *at, *end;
    const char *why;
};

static bool mistake(struct cursor *c, const char *why)
{
    if (!c->why)
        c->why = why;
    return false;
}

static void skip_spaces(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t'))
        c->at++;
}

/* Takes `word` if it comes next. */
static bool take(struct cursor *c, const char *word)
{
    const size_t n = strlen(word);
    skip_spaces(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* 'text' or "text" of at most size-1 characters. */
static bool take_string(struct cursor *c, char *text, size_t size)
{
    skip_spaces(c);
    const char quote = c->at < c->end ? *c->at : '\0';
    if (quote != '\'' && quote != '"')
        return mistake(c, "its header has something else where a string must be");
    const char *first = ++c->at, *last = memchr(first, quote, (size_t)(c->end - first));
    if (!last || (size_t)(last - first) >= size)
        return mistake(c, "its header has a string that is too long or has no end");
    memcpy(text, first, (size_t)(last - first));
    text[last - first] = '\0';
    c->at = last + 1;
    return true;
}

static bool take_type(struct cursor *c, enum npy_type *type)
{
    char descr[16];
    if (!take_string(c, descr, sizeof descr))
        return false;
    for (int i = 0; *descr && i < NUM_TYPES; i++) {
        const bool order = *descr == '<' || (*descr == '|' && types[i].size == 1);
        if (order && strcmp(descr + 1, types[i].name) == 0) {
            *type = (enum npy_type)i;
            return true;
        }
    }
    return mistake(c, "its dtype is none of <f4 <f8 <f2 |u1 <u2 <i4 <i8");
}

static bool take_size(struct cursor *c, size_t *size)
{
    skip_spaces(c);
    const char *first = c->at;
    for (*size = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        const size_t digit = (size_t)(*c->at - '0');
        if (*size > (SIZE_MAX - digit) / 10)
            return mistake(c, "its shape has a number that is too large");
        *size = *size * 10 + digit;
    }
    return c->at > first || mistake(c, "its shape has something else where a number must be");
}

static bool take_shape(struct cursor *c, struct npy *a)
{
    if (!take(c, "("))
        return mistake(c, "its shape is no tuple");
    for (a->rank = 0; !take(c, ")"); a->rank++) {
        if (a->rank == NPY_MAX_RANK)
            return mistake(c, "its shape has more than 8 dimensions");
        if (!take_size(c, &a->shape[a->rank]))
            return false;
        if (!take(c, ",") && (c->at == c->end || *c->at != ')'))
            return mistake(c, "its shape is no tuple of numbers");
    }
    return true;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } with the keys in any order. */
static bool take_header(struct cursor *c, struct npy *a)
{
    bool have_type = false, have_order = false, have_shape = false;
    if (!take(c, "{"))
        return mistake(c, "its header is no dict");
    while (!take(c, "}")) {
        char key[16];
        if (!take_string(c, key, sizeof key) || !take(c, ":"))
            return mistake(c, "its header is no dict");
        if (strcmp(key, "descr") == 0) {
            have_type = take_type(c, &a->type);
        } else if (strcmp(key, "shape") == 0) {
            have_shape = take_shape(c, a);
        } else if (strcmp(key, "fortran_order") == 0) {
            have_order = take(c, "False");
            if (!have_order)
                return mistake(c, "it is in Fortran order; save np.ascontiguousarray() of it");
        } else {
            return mistake(c, "its header has an unknown key");
        }
        if (c->why)
            return false;
        if (!take(c, ",") && (c->at == c->end || *c->at != '}'))
            return mistake(c, "its header is no dict");
    }
    return (have_type && have_order && have_shape) || mistake(c, "its header lacks descr, fortran_order or shape");
}

/* Bytes of the data; false if they are more than memory has addresses. */
static bool data_bytes(const struct npy *a, size_t *bytes)
{
    *bytes = types[a->type].size;
    for (size_t r = 0; r < a->rank; r++)
        if (a->shape[r] == 0) {
            *bytes = 0;
            return true;
        }
    for (size_t r = 0; r < a->rank; r++) {
        if (*bytes > SIZE_MAX / a->shape[r])
            return false;
        *bytes *= a->shape[r];
    }
    return true;
}

/* ---- Files ---- */

static wd_status not_understood(const char *path, const char *why)
{
    return wd_fail(WD_EINVAL, "%s: %s", path, why);
}

static wd_status read_header(FILE *file, const char *path, struct npy *a)
{
    unsigned char start[12];
    if (fread(start, 1, 10, file) != 10 || memcmp(start, magic, sizeof magic) != 0)
        return not_understood(path, "not a .npy file");
    const unsigned version = start[6];
    if (version != 1 && version != 2)
        return not_understood(path, "only versions 1 and 2 of .npy are read");
    if (version == 2 && fread(start + 10, 1, 2, file) != 2)
        return not_understood(path, "its header is cut short");
    size_t n = start[8] | (size_t)start[9] << 8;
    if (version == 2)
        n |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    if (n > HEADER_MAX)
        return not_understood(path, "its header is too long");

    char *header = malloc(n + 1);
    if (!header)
        return wd_fail(WD_ENOMEM, "%s: memory is exhausted", path);
    struct cursor c = {header, header + n, NULL};
    wd_status st = WD_OK;
    if (fread(header, 1, n, file) != n)
        st = not_understood(path, "its header is cut short");
    else if (!take_header(&c, a))
        st = not_understood(path, c.why);
    free(header);
    return st;
}

/* The data must be all that is left of the file; that is checked before memory is asked for. */
static wd_status read_data(FILE *file, const char *path, struct npy *a)
{
    size_t bytes;
    const long start = ftell(file);
    if (start < 0 || fseek(file, 0, SEEK_END) || ftell(file) < start)
        return wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    const size_t left = (size_t)(ftell(file) - start);
    if (!data_bytes(a, &bytes) || bytes != left) {
        char shape[NPY_SHAPE_TEXT];
        return wd_fail(WD_EINVAL, "%s: %zu bytes of data, which are not %s of %s", path, left, npy_shape_text(a, shape),
                       types[a->type].name);
    }
    a->data = malloc(bytes + 1);
    if (!a->data)
        return wd_fail(WD_ENOMEM, "%s: memory is exhausted by %zu bytes", path, bytes);
    if (fseek(file, start, SEEK_SET) || fread(a->data, 1, bytes, file) != bytes)
        return wd_fail(WD_EIO, "%s: %s", path, ferror(file) ? strerror(errno) : "it ends early");
    return WD_OK;
}

wd_status npy_read(const char *path, struct npy *out)
{
    *out = (struct npy){0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    wd_status st = read_header(file, path, out);
    if (!st)
        st = read_data(file, path, out);
    if (st)
        npy_free(out);
    fclose(file);
    return st;
}

/* The whole head of a version 1 file; returns its length, a multiple of ALIGNMENT. */
static size_t make_head(const struct npy *a, unsigned char head[512])
{
    char text[400];
    size_t n = (size_t)snprintf(text, sizeof text, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                                types[a->type].size == 1 ? '|' : '<', types[a->type].name);
    for (size_t r = 0; r < a->rank; r++)
        n += (size_t)snprintf(text + n, sizeof text - n, r ? " %zu," : "%zu,", a->shape[r]);
    n += (size_t)snprintf(text + n, sizeof text - n, "), }");

    const size_t total = (10 + n + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, length = total - 10;
    memset(head, ' ', total);
    memcpy(head, magic, sizeof magic);
    head[6] = 1;
    head[7] = 0;
    head[8] = (unsigned char)(length & 0xFF);
    head[9] = (unsigned char)(length >> 8);
    memcpy(head + 10, text, n);
    head[total - 1] = '\n';
    return total;
}

wd_status npy_write(const char *path, const struct npy *a)
{
    unsigned char head[512];
    size_t bytes;
    if (a->rank > NPY_MAX_RANK || !data_bytes(a, &bytes))
        return wd_fail(WD_EINVAL, "%s: too many dimensions or elements for a .npy file", path);
    const size_t n = make_head(a, head);
    FILE *file = fopen(path, "wb");
    if (!file)
        return wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    const bool written = fwrite(head, 1, n, file) == n && (bytes == 0 || fwrite(a->data, 1, bytes, file) == bytes);
    const int reason = errno;
    const bool closed = fclose(file) == 0;
    if (!written || !closed)
        return wd_fail(WD_EIO, "%s: %s", path, strerror(written ? errno : reason));
    return WD_OK;
}
