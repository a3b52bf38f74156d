/* SPDX-License-Identifier: MIT */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>

void wd_log(const struct wd_log *log, wd_log_level level, const char *fmt, ...)
{
    if (!log || !log->fn)
        return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (n >= 0)
        log->fn(log->user, level, line);
}
