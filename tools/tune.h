/* SPDX-License-Identifier: MIT */
/* What the measuring child of `warpdrive tune` does. */
#ifndef TUNE_H
#define TUNE_H

#include <sys/types.h>

#include "cli.h"

enum {
    TUNE_TRIAL_S = 120,     /* a trial that takes longer hangs: SIGALRM ends the child */
    TUNE_INTERRUPTED = 130, /* exit code */
};

struct tune_plan {
    const struct cli *cli;              /* operands: the operations */
    const char *device, *shape, *dtype; /* NULL: not given */
    char *tuning_file;
    double budget_s;
    pid_t parent; /* once it is another, the child gives up */
};

/** Tunes, prints a line a shape, returns an exit code. SIGINT and SIGTERM: keeps what is known of the shape at hand,
 * and returns TUNE_INTERRUPTED. */
int tune_work(const struct tune_plan *plan);

#endif
