/* SPDX-License-Identifier: MIT */
/* NVIDIA's OpenCL compiles to PTX, and its binaries are that text. */
#ifndef WD_PTX_H
#define WD_PTX_H

#include "warpdrive.h"

/**
 * Instructions that exist only for one architecture, as wgmma for sm_90a, no OpenCL compiler is ever told to allow.
 * Kernels write them into inline PTX as comments, "//sm_90a: wgmma...", which stay where they are. This makes
 * instructions of them, and "sm_90a" of the text's ".target sm_90".
 *
 * Puts the new text (free() it) into *out and its size into *bytes; NULL and 0 if it has no such target or no such
 * comment. WD_ENOMEM. `ptx` need not end with 0.
 */
#define WD_PTX_MARK "//sm_90a: "
wd_status wd_ptx_retarget(const char *ptx, size_t size, char **out, size_t *bytes);

#endif
