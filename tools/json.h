/* SPDX-License-Identifier: MIT */
/*
 * JSON as it is written: values are added in order, and the whole is printed at the end, so that what reaches
 * stdout is always complete. `key` is NULL inside arrays and at the top. Numbers that JSON cannot say (NaN,
 * infinities) become null. A page of code in place of a library: the program only ever writes JSON.
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
void json_open(struct json *json, const char *key, char bracket);
void json_close(struct json *json, char bracket);

void json_string(struct json *json, const char *key, const char *text); /* NULL: null */
void json_integer(struct json *json, const char *key, uint64_t value);
void json_number(struct json *json, const char *key, double value);
void json_bool(struct json *json, const char *key, bool value);

/** Prints the text to stdout and forgets it. */
void json_print(struct json *json);
/** Forgets it unprinted. */
void json_drop(struct json *json);

#endif
