/* SPDX-License-Identifier: MIT */
/*
 * JSON as it is written, emit_...(): values are added in order, and the whole is printed at the end, so that what
 * reaches stdout is always complete. `key` is NULL inside arrays and at the top. Numbers that JSON cannot say (NaN,
 * infinities) become null. A page of code in place of a library, which `warpdrive bench` has for reading.
 */
#ifndef JSON_H
#define JSON_H

#include "text.h"

struct json {
    struct wd_text text;
    unsigned depth;
    bool comma; /* a value stands before the next one */
};

/** `bracket`: '{' or '['; '}' or ']'. */
void emit_open(struct json *json, const char *key, char bracket);
void emit_close(struct json *json, char bracket);

void emit_string(struct json *json, const char *key, const char *text); /* NULL: null */
void emit_integer(struct json *json, const char *key, uint64_t value);
void emit_number(struct json *json, const char *key, double value);
void emit_numbers(struct json *json, const char *key, const double *value, size_t n); /* an array, on one line */
void emit_bool(struct json *json, const char *key, bool value);

/** Prints the text to stdout and forgets it. */
void emit_print(struct json *json);
/** Forgets it unprinted. */
void emit_drop(struct json *json);

#endif
