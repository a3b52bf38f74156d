/* SPDX-License-Identifier: MIT */
/* The commands of `warpdrive`, one file each: cmd_<name>.c. */
#ifndef COMMANDS_H
#define COMMANDS_H

#include "cli.h"

extern const struct cli_command cmd_devices, cmd_query, cmd_tune, cmd_verify, cmd_run, cmd_bench, cmd_demo, cmd_cache,
    cmd_doctor;

#endif
