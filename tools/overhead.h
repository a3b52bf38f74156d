/* SPDX-License-Identifier: MIT */
/* What a call of the library costs the host beyond the OpenCL calls that it makes. */
#ifndef OVERHEAD_H
#define OVERHEAD_H

#include "cli.h"

/** `warpdrive bench --overhead`: prints it for one small call of each kind; returns an exit code. */
int bench_overhead(const struct cli *cli);

#endif
