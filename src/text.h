/* SPDX-License-Identifier: MIT */
/* A growing string. Running out of memory is remembered and told once, at the end. */
#ifndef WD_TEXT_H
#define WD_TEXT_H

#include "status.h"

struct wd_text {
    char *data; /* NUL-terminated once something was added; the owner frees it with wd_text_free() */
    size_t size, capacity;
    bool failed;
};

void wd_text_add(struct wd_text *text, const char *fmt, ...) WD_PRINTF(2, 3);
/** Adds `s` as a JSON string with its quotes. JSON is UTF-8: bytes that are not become U+FFFD. */
void wd_text_add_json(struct wd_text *text, const char *s);
void wd_text_free(struct wd_text *text);

/** Bytes of the UTF-8 sequence that `s` begins with; 0 where it begins with none. */
size_t wd_utf8_length(const char *s);

#endif
