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
/** Adds `s` as a JSON string with its quotes. */
void wd_text_add_json(struct wd_text *text, const char *s);
void wd_text_free(struct wd_text *text);

#endif
