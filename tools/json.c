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

void json_open(struct json *json, const char *key, char bracket)
{
    lead(json, key);
    wd_text_add(&json->text, "%c", bracket);
    json->depth++;
    json->comma = false;
}

void json_close(struct json *json, char bracket)
{
    json->depth--;
    if (json->comma)
        wd_text_add(&json->text, "\n%*s", (int)(2 * json->depth), "");
    wd_text_add(&json->text, "%c", bracket);
    json->comma = true;
}

void json_string(struct json *json, const char *key, const char *text)
{
    lead(json, key);
    if (text)
        wd_text_add_json(&json->text, text);
    else
        wd_text_add(&json->text, "null");
}

void json_integer(struct json *json, const char *key, uint64_t value)
{
    lead(json, key);
    wd_text_add(&json->text, "%" PRIu64, value);
}

void json_number(struct json *json, const char *key, double value)
{
    lead(json, key);
    if (isfinite(value))
        wd_text_add(&json->text, "%.9g", value);
    else
        wd_text_add(&json->text, "null");
}

void json_bool(struct json *json, const char *key, bool value)
{
    lead(json, key);
    wd_text_add(&json->text, value ? "true" : "false");
}

void json_print(struct json *json)
{
    if (json->text.failed)
        puts("{\"error\": \"out of memory\"}");
    else if (json->text.size > 0)
        puts(json->text.data);
    fflush(stdout);
    json_drop(json);
}

void json_drop(struct json *json)
{
    wd_text_free(&json->text);
    *json = (struct json){0};
}
