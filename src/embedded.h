/* SPDX-License-Identifier: MIT */
/* Files that the library carries: cl/ as it was at build time, written as C by tools/embed.c. */
#ifndef WD_EMBEDDED_H
#define WD_EMBEDDED_H

#include <stddef.h>

struct wd_embedded {
    const char *name; /* without directories: "fp8_quant.cl", "defaults.tune" */
    const char *text; /* NUL-terminated */
    size_t size;      /* without the NUL */
};

extern const struct wd_embedded wd_embedded[]; /* ended by a NULL name */

#endif
