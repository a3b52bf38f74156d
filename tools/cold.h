/* SPDX-License-Identifier: MIT */
/* How long a new process takes to its first result. */
#ifndef COLD_H
#define COLD_H

#include "cli.h"

/** `warpdrive bench --cold`: prints it for each operation; returns an exit code. The process must not have touched
 *  OpenCL: it forks. */
int bench_cold(const struct cli *cli);

#endif
