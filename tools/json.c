/* SPDX-License-Identifier: MIT */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Comma, line and indentation before a value, then its key. */
static void lead(struct json *json, const char *key)
{
    if (json->comma)
        wd_text_add(&json->text, ",");
    if (json->depth > 0)
        wd_text_add(&json->text, "\n%*s", (int)(2 * json->depth), "");
    if (key) {
        wd_text_add_json(&json->text, key);
        wd_text_add(&json->text, ": ");
    }
    json->comma = true;
}

void emit_open(struct json *json, const char *key, char bracket)
{
    lead(json, key);
    wd_text_add(&json->text, "%c", bracket);
    json->depth++;
    json->comma = false;
}

void emit_close(struct json *json, char bracket)
{
    json->depth--;
    if (json->comma)
        wd_text_add(&json->text, "\n%*s", (int)(2 * json->depth), "");
    wd_text_add(&json->text, "%c", bracket);
    json->comma = true;
}

void emit_string(struct json *json, const char *key, const char *text)
{
    lead(json, key);
    if (text)
        wd_text_add_json(&json->text, text);
    else
        wd_text_add(&json->text, "null");
}

void emit_integer(struct json *json, const char *key, uint64_t value)
{
    lead(json, key);
    wd_text_add(&json->text, "%" PRIu64, value);
}

static void add_number(struct json *json, double value)
{
    if (isfinite(value))
        wd_text_add(&json->text, "%.9g", value);
    else
        wd_text_add(&json->text, "null");
}

void emit_number(struct json *json, const char *key, double value)
{
    lead(json, key);
    add_number(json, value);
}

void emit_numbers(struct json *json, const char *key, const double *value, size_t n)
{
    lead(json, key);
    wd_text_add(&json->text, "[");
    for (size_t i = 0; i < n; i++) {
        wd_text_add(&json->text, "%s", i ? ", " : "");
        add_number(json, value[i]);
    }
    wd_text_add(&json->text, "]");
}

void emit_bool(struct json *json, const char *key, bool value)
{
    lead(json, key);
    wd_text_add(&json->text, value ? "true" : "false");
}

void emit_print(struct json *json)
{
    if (json->text.failed)
        puts("{\"error\": \"out of memory\"}");
    else if (json->text.size > 0)
        puts(json->text.data);
    fflush(stdout);
    emit_drop(json);
}

void emit_drop(struct json *json)
{
    wd_text_free(&json->text);
    *json = (struct json){0};
}
