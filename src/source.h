/* SPDX-License-Identifier: MIT */
/* The text of a program: a prelude of macros and a kernel file, its includes expanded. */
#ifndef WD_SOURCE_H
#define WD_SOURCE_H

#include "text.h"

/**
 * Adds `prelude`, then the kernel file `file` with each `#include "x.cl"` replaced by that file, the first time, and
 * by nothing after that. #line directives let the compiler name file and line. Files come from
 * $WARPDRIVE_KERNEL_DIR if that is set (WD_EIO if one is not there), else from the library itself.
 *
 * A program holds one kernel, so a file with several guards each: `#if !WD_ONE || KERNEL_<name>`. WD_ONE and
 * KERNEL_<kernel> are defined as 1 here, and neither where a file is compiled alone.
 */
wd_status wd_source_add(struct wd_text *text, const char *prelude, const char *file, const char *kernel);

#endif
