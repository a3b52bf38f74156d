/* SPDX-License-Identifier: MIT */
/* SHA-256 against the examples of FIPS 180-4 and of NIST's test vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "sha256.h"

static void assert_digest(struct wd_sha256 *h, const char *expected)
{
    unsigned char digest[WD_SHA256_BYTES];
    char hex[2 * WD_SHA256_BYTES + 1];
    wd_sha256_end(h, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, expected);
}

static void sha256__published_vectors__same_digests(void **state)
{
    static const struct {
        const char *text, *digest;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqr"
         "stu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wd_sha256 h;
        wd_sha256_init(&h);
        wd_sha256_add(&h, cases[i].text, strlen(cases[i].text));
        assert_digest(&h, cases[i].digest);
    }
}

static void sha256__a_million_letters__same_digest(void **state)
{
    char letters[1000];
    struct wd_sha256 h;
    (void)state;
    memset(letters, 'a', sizeof letters);
    wd_sha256_init(&h);
    for (int i = 0; i < 1000; i++)
        wd_sha256_add(&h, letters, sizeof letters);
    assert_digest(&h, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void sha256__cut_anywhere__same_digest(void **state)
{
    unsigned char data[200], whole[WD_SHA256_BYTES], parts[WD_SHA256_BYTES];
    struct wd_sha256 h;
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(7 * i);
    for (size_t size = 0; size <= sizeof data; size++) {
        wd_sha256_init(&h);
        wd_sha256_add(&h, data, size);
        wd_sha256_end(&h, whole);
        for (size_t cut = 0; cut <= size; cut += 9) {
            wd_sha256_init(&h);
            wd_sha256_add(&h, data, cut);
            wd_sha256_add(&h, data + cut, size - cut);
            wd_sha256_end(&h, parts);
            assert_memory_equal(parts, whole, sizeof whole);
        }
    }
}

static void sha256_field__text_moved_between_fields__other_digest(void **state)
{
    unsigned char a[WD_SHA256_BYTES], b[WD_SHA256_BYTES];
    struct wd_sha256 h;
    (void)state;
    wd_sha256_init(&h);
    wd_sha256_field(&h, "ab", 2);
    wd_sha256_field(&h, "c", 1);
    wd_sha256_end(&h, a);
    wd_sha256_init(&h);
    wd_sha256_field(&h, "a", 1);
    wd_sha256_field(&h, "bc", 2);
    wd_sha256_end(&h, b);
    assert_memory_not_equal(a, b, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256__published_vectors__same_digests),
        cmocka_unit_test(sha256__a_million_letters__same_digest),
        cmocka_unit_test(sha256__cut_anywhere__same_digest),
        cmocka_unit_test(sha256_field__text_moved_between_fields__other_digest),
    };
    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
