/* SPDX-License-Identifier: MIT */
/* warpdrive query: which variant and sizes a call would run with, and why. */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>

#include "shape.h"

enum { QUERY_TEXT = 64 * 1024 };

/* The answer may be that nothing serves the call: then it stands in the text, with the reasons. */
static int print_query(const struct cli *cli, wd_context *ctx, const struct shape *shape)
{
    char *text = malloc(QUERY_TEXT);
    if (!text)
        return cli_fail(cli, wd_fail(WD_ENOMEM, "query: out of memory"));
    const wd_status st = wd_query(ctx, shape->op->id, &shape->args, cli->json, text, QUERY_TEXT);
    const bool answered = *text != '\0';
    fputs(text, stdout);
    free(text);
    return answered ? cli_exit_code(st) : cli_fail(cli, st);
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli cli;
    const int done = cli_parse(&cli, self, NULL, argc, argv);
    if (done >= 0)
        return done;
    if (cli.num_operands != 2)
        return cli_usage(&cli, "query: needs an operation and a SHAPE");

    const struct wd_op *op = wd_op_by_name(cli.operands[0]);
    if (!op)
        return cli_usage(&cli, "query: '%s' is no operation", cli.operands[0]);

    struct shape shape;
    shape_init(&shape, op);
    wd_context *ctx = NULL;
    wd_status st = shape_parse(&shape, cli.operands[1]);
    if (!st)
        st = wd_open(cli_get(&cli, "device"), &ctx);
    const int code = st ? cli_fail(&cli, st) : print_query(&cli, ctx, &shape);
    wd_context_destroy(ctx);
    return code;
}

static const struct cli_option options[] = {CLI_DEVICE, CLI_JSON, {0}};

const struct cli_command cmd_query = {
    .name = "query",
    .operands = "OP SHAPE",
    .summary = "Say which variant and sizes a call would run with, and why",
    .details =
        "SHAPE is name=value,... with the operation's sizes (tokens=256,hidden=4096), choices (act=silu), flags\n"
        "(l2norm), types (dtype=bf16 for all, q_dtype=e4m3 for one tensor) and the names of optional tensors\n"
        "that are present (bias,initial_state). 'warpdrive run OP --help' lists them.",
    .options = options,
    .run = run,
};
