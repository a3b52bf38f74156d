/* SPDX-License-Identifier: MIT */
/* What a plain copy takes, by size: no kernel that moves as many bytes can be much faster. */
#ifndef COPIES_H
#define COPIES_H

#include "cli.h"

/** `warpdrive bench --copies`: prints it for powers of two; returns an exit code. */
int bench_copies(const struct cli *cli);

#endif
