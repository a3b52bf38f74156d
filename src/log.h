/* SPDX-License-Identifier: MIT */
/* Lines for the application's log function. */
#ifndef WD_LOG_H
#define WD_LOG_H

#include "status.h"

struct wd_log {
    wd_log_fn fn; /* NULL: silent */
    void *user;
};

/** Formats one line and hands it over. `log` may be NULL. */
void wd_log(const struct wd_log *log, wd_log_level level, const char *fmt, ...) WD_PRINTF(3, 4);

#endif
