/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool reserve(struct wd_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (text->size + more <= text->capacity)
        return true;
    const size_t capacity = 2 * text->capacity + more + 256;
    char *data = realloc(text->data, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void wd_text_add(struct wd_text *text, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, fmt, args);
    if (n < 0)
        text->failed = true;
    else if (reserve(text, (size_t)n + 1)) {
        vsnprintf(text->data + text->size, (size_t)n + 1, fmt, again);
        text->size += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

/* RFC 3629, section 4. The second byte has narrower bounds after some first bytes: no sequence is longer than it need
 * be, none is a surrogate, none is past U+10FFFF. A NUL is within no bounds, so nothing past the end is read. */
size_t wd_utf8_length(const char *s)
{
    static const struct {
        unsigned char first, last, low, high; /* of the first byte, and of the second */
        size_t length;
    } rows[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
                {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    const unsigned char *const u = (const unsigned char *)s;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (u[0] < rows[i].first || u[0] > rows[i].last)
            continue;
        if (rows[i].length > 1 && (u[1] < rows[i].low || u[1] > rows[i].high))
            return 0;
        for (size_t at = 2; at < rows[i].length; at++)
            if (u[at] < 0x80 || u[at] > 0xbf)
                return 0;
        return rows[i].length;
    }
    return 0;
}

void wd_text_add_json(struct wd_text *text, const char *s)
{
    wd_text_add(text, "\"");
    for (size_t n; *s; s += n ? n : 1) {
        const unsigned char c = (unsigned char)*s;
        n = wd_utf8_length(s);
        if (n == 0)
            wd_text_add(text, "\xef\xbf\xbd"); /* U+FFFD, the replacement character */
        else if (c == '"' || c == '\\')
            wd_text_add(text, "\\%c", c);
        else if (c < 0x20)
            wd_text_add(text, "\\u%04x", c);
        else
            wd_text_add(text, "%.*s", (int)n, s);
    }
    wd_text_add(text, "\"");
}

void wd_text_free(struct wd_text *text)
{
    free(text->data);
    *text = (struct wd_text){0};
}
