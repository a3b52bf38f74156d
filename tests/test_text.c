/* SPDX-License-Identifier: MIT */
/* Text as JSON strings: whatever a driver calls its device, what is printed stays JSON, which is UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "text.h"

#define BAD "\xef\xbf\xbd" /* U+FFFD */

/* RFC 3629: sequences of one to four bytes, none longer than needed, no surrogates, nothing over U+10FFFF. */
static const struct {
    const char *in, *out;
} cases[] = {
    {"", "\"\""},
    {"plain", "\"plain\""},
    {"a\"b\\c", "\"a\\\"b\\\\c\""},
    {"tab\tend\n", "\"tab\\u0009end\\u000a\""},
    {"\x7f", "\"\x7f\""},
    {"\xc3\xa9 \xe2\x84\xa2 \xf0\x9f\x98\x80", "\"\xc3\xa9 \xe2\x84\xa2 \xf0\x9f\x98\x80\""},
    {"Radeon\xae", "\"Radeon" BAD "\""},                            /* Latin-1 */
    {"\x80\xbf", "\"" BAD BAD "\""},                                /* continuations of nothing */
    {"cut \xe2\x84", "\"cut " BAD BAD "\""},                        /* by a buffer's end */
    {"cut \xe2\x84 on", "\"cut " BAD BAD " on\""},                  /* by the next word */
    {"\xc0\xaf \xc1\xbf", "\"" BAD BAD " " BAD BAD "\""},           /* longer than needed: two bytes */
    {"\xe0\x80\xaf", "\"" BAD BAD BAD "\""},                        /* three */
    {"\xe0\xa0\x80", "\"\xe0\xa0\x80\""},                           /* the first that needs three */
    {"\xf0\x8f\xbf\xbf", "\"" BAD BAD BAD BAD "\""},                /* longer than needed: four */
    {"\xed\xa0\x80", "\"" BAD BAD BAD "\""},                        /* a surrogate */
    {"\xed\x9f\xbf \xee\x80\x80", "\"\xed\x9f\xbf \xee\x80\x80\""}, /* the neighbours of surrogates */
    {"\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\""},                   /* the last one */
    {"\xf4\x90\x80\x80", "\"" BAD BAD BAD BAD "\""},                /* past it */
    {"\xf8\x88\x80\x80\x80 \xff\xfe", "\"" BAD BAD BAD BAD BAD " " BAD BAD "\""},
};

static void wd_text_add_json__any_bytes__valid_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wd_text text = {0};
        wd_text_add_json(&text, cases[i].in);
        assert_false(text.failed);
        assert_string_equal(text.data, cases[i].out);
        wd_text_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wd_text_add_json__any_bytes__valid_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
