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

void wd_text_add_json(struct wd_text *text, const char *s)
{
    wd_text_add(text, "\"");
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            wd_text_add(text, "\\%c", c);
        else if (c < 0x20)
            wd_text_add(text, "\\u%04x", c);
        else
            wd_text_add(text, "%c", c);
    }
    wd_text_add(text, "\"");
}

void wd_text_free(struct wd_text *text)
{
    free(text->data);
    *text = (struct wd_text){0};
}
