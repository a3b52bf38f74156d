/* SPDX-License-Identifier: MIT */
/* Status codes, their texts, and this thread's last error in full. */
#ifndef WD_STATUS_H
#define WD_STATUS_H

#include "warpdrive.h"

#if defined(__GNUC__)
#define WD_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define WD_PRINTF(fmt, first)
#endif

/** Replaces this thread's last error by the formatted text and returns `status`, so that a caller can write
 *  `return wd_fail(WD_EINVAL, "%s: group: %zu does not divide hidden (%zu)", ...)`. Long texts keep their end. */
wd_status wd_fail(wd_status status, const char *fmt, ...) WD_PRINTF(2, 3);

/** wd_fail() for an OpenCL call: "what: clFoo: CL_OUT_OF_RESOURCES (-5)". WD_ENOMEM for the CL errors that mean
 *  exhausted memory, else WD_EOPENCL. */
wd_status wd_fail_cl(cl_int err, const char *what, const char *call);

/** "CL_INVALID_VALUE", or "CL error -9999" for unknown codes (this thread's static buffer). */
const char *wd_cl_error_name(cl_int err);

#endif
