/* SPDX-License-Identifier: MIT */
/* NVIDIA's OpenCL compiles to PTX, and its binaries are that text. */
#ifndef WD_PTX_H
#define WD_PTX_H

#include <stddef.h>

/**
 * Instructions that exist only for one architecture, as wgmma for sm_90a, no OpenCL compiler is ever told to allow.
 * Kernels write them into inline PTX as comments, "//sm_90a: wgmma...", which stay where they are. This makes
 * instructions of them, and "sm_90a" of the text's ".target sm_90".
 *
 * Returns the new text (free() it) and its *bytes; NULL if it has no such target or no such comment, or out of memory.
 * `ptx` need not end with 0.
 */
#define WD_PTX_MARK "//sm_90a: "
char *wd_ptx_retarget(const char *ptx, size_t size, size_t *bytes);

#endif
