/* SPDX-License-Identifier: MIT */
#include "ptx.h"

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

char *wd_ptx_retarget(const char *ptx, size_t size, size_t *bytes)
{
    const char *const end = ptx + size;
    const char *at = find(ptx, end, target);
    *bytes = 0;
    if (at == end || find(at, end, mark) == end)
        return NULL;
    at += strlen(target);
    char *text = malloc(size + 1), *out = text;
    if (!text)
        return NULL;
    memcpy(out, ptx, (size_t)(at - ptx));
    out += at - ptx;
    if (at == end || *at != 'a')
        *out++ = 'a';
    while (at < end) {
        const char *next = find(at, end, mark);
        memcpy(out, at, (size_t)(next - at));
        out += next - at;
        at = next < end ? next + strlen(mark) : end;
    }
    *bytes = (size_t)(out - text);
    return text;
}
