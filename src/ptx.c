/* SPDX-License-Identifier: MIT */
#include "ptx.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

static const char target[] = ".target sm_90", mark[] = WD_PTX_MARK;

/* Where `word` stands in text, or `end`. */
static const char *find(const char *text, const char *end, const char *word)
{
    const size_t n = strlen(word);
    for (; (size_t)(end - text) >= n; text++)
        if (memcmp(text, word, n) == 0)
            return text;
    return end;
}

wd_status wd_ptx_retarget(const char *ptx, size_t size, char **out, size_t *bytes)
{
    const char *const end = ptx + size;
    const char *at = find(ptx, end, target);
    *out = NULL;
    *bytes = 0;
    if (at == end || find(at, end, mark) == end)
        return WD_OK;
    at += strlen(target);
    char *text = malloc(size + 1), *to = text;
    if (!text)
        return wd_fail(WD_ENOMEM, "a program for sm_90a: out of memory");
    memcpy(to, ptx, (size_t)(at - ptx));
    to += at - ptx;
    if (at == end || *at != 'a')
        *to++ = 'a';
    while (at < end) {
        const char *next = find(at, end, mark);
        memcpy(to, at, (size_t)(next - at));
        to += next - at;
        at = next < end ? next + strlen(mark) : end;
    }
    *out = text;
    *bytes = (size_t)(to - text);
    return WD_OK;
}
