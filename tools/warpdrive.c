/* SPDX-License-Identifier: MIT */
/* The `warpdrive` program: finds the command and hands over. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

#include "op.h"

static const struct cli_command *const commands[] = {
    &cmd_devices, &cmd_query, &cmd_tune, &cmd_verify, &cmd_run, &cmd_bench, &cmd_demo, &cmd_cache, &cmd_doctor,
};

static void print_help(void)
{
    printf("Usage: warpdrive COMMAND [options]\n\n"
           "Runs, checks and measures WarpDrive's kernels on OpenCL devices.\n\nCommands:\n");
    for (size_t i = 0; i < WD_COUNT(commands); i++)
        printf("  %-10s %-22s %s\n", commands[i]->name, commands[i]->operands, commands[i]->summary);

    printf("\nOperations (OP):\n");
    for (const struct wd_op *const *op = wd_ops; *op; op++)
        printf("  %-25s %s\n", (*op)->name, (*op)->summary);

    printf("\nSHAPE is name=value,... with an operation's sizes and options: tokens=256,hidden=4096,group=128.\n"
           "'warpdrive COMMAND --help' says more, 'warpdrive run OP --help' lists an operation's names.\n\n"
           "Exit codes: %d done; %d a check failed; %d wrong options, values or shapes; %d no such device;\n"
           "%d not supported on this device; %d the driver failed or memory ran out; %d a file failed.\n",
           CLI_OK, CLI_FAILED, CLI_USAGE, CLI_NO_DEVICE, CLI_UNSUPPORTED, CLI_RUNTIME, CLI_IO);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";

    if (!strcmp(name, "--version")) {
        printf("warpdrive %s\n", wd_version());
        return CLI_OK;
    }
    if (!strcmp(name, "-h") || !strcmp(name, "--help") || !strcmp(name, "help")) {
        print_help();
        return argc > 1 ? CLI_OK : CLI_USAGE;
    }
    for (size_t i = 0; i < WD_COUNT(commands); i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i]->run(commands[i], argc - 1, argv + 1);
    cli_error("'%s' is no command; 'warpdrive --help' lists them", name);
    return CLI_USAGE;
}
