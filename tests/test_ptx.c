/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "ptx.h"

/* What becomes of `ptx`, as a string that begins again at each call; NULL: nothing. */
static const char *retargeted(const char *ptx)
{
    static char text[512];
    size_t bytes = 0;
    char *exact = malloc(strlen(ptx)); /* nothing behind its end may be read */
    assert_non_null(exact);
    memcpy(exact, ptx, strlen(ptx));
    char *out;
    assert_int_equal(wd_ptx_retarget(exact, strlen(ptx), &out, &bytes), WD_OK);
    free(exact);
    if (!out) {
        assert_int_equal(bytes, 0);
        return NULL;
    }
    assert_true(bytes < sizeof text);
    memcpy(text, out, bytes);
    text[bytes] = '\0';
    free(out);
    return text;
}

static void ptx_retarget__comments__become_instructions(void **unused)
{
    (void)unused;
    assert_string_equal(retargeted(".version 9.0\n.target sm_90, texmode_independent\n"
                                   "\t// begin inline asm\n\t//sm_90a: wgmma.fence;\n\t// end\n//sm_90a: x;//sm_90a: "),
                        ".version 9.0\n.target sm_90a, texmode_independent\n"
                        "\t// begin inline asm\n\twgmma.fence;\n\t// end\nx;");
}

static void ptx_retarget__target_of_its_own__stays(void **unused)
{
    (void)unused;
    assert_string_equal(retargeted(".target sm_90a\n//sm_90a: x;\n"), ".target sm_90a\nx;\n");
    assert_string_equal(retargeted("//sm_90a: \n.target sm_90\n//sm_90a: x"), "//sm_90a: \n.target sm_90a\nx");
}

static void ptx_retarget__nothing_to_do__nothing_comes(void **unused)
{
    (void)unused;
    assert_null(retargeted(""));
    assert_null(retargeted(".target sm_90\n// sm_90a: x;"));
    assert_null(retargeted(".target sm_89\n//sm_90a: x;"));
    assert_null(retargeted("//sm_90a: x;\n.target sm_90"));
    assert_null(retargeted(".target sm_90\n//sm_90a:"));
    assert_null(retargeted("\177ELF"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ptx_retarget__comments__become_instructions),
        cmocka_unit_test(ptx_retarget__target_of_its_own__stays),
        cmocka_unit_test(ptx_retarget__nothing_to_do__nothing_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
