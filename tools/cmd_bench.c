/* SPDX-License-Identifier: MIT */
/* warpdrive bench: time of operations against what the device can do at best, measured in the same run. */
#include "commands.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cases.h"
#include "cold.h"
#include "context.h"
#include "copies.h"
#include "overhead.h"

enum { BUDGET_MS = 500 };

struct bench {
    struct cli cli;
    struct bench_list list;
    struct bench_run run, before; /* before: of --compare */
    struct bench_comparison comparison;
    double budget_ns;
    struct cli_table table;
};

/* ---- The list of shapes ---- */

/* Adds a problem, unless it is there. */
static wd_status add_problem(struct bench_list *list, const struct wd_problem *p)
{
    char text[SHAPE_TEXT], other[SHAPE_TEXT];
    shape_text(p, text);
    for (size_t i = 0; i < list->count; i++)
        if (list->problem[i].op == p->op && strcmp(shape_text(&list->problem[i], other), text) == 0)
            return WD_OK;
    struct wd_problem *grown = realloc(list->problem, (list->count + 1) * sizeof *grown);
    if (!grown)
        return wd_fail(WD_ENOMEM, "bench: out of memory");
    list->problem = grown;
    grown[list->count++] = *p;
    return WD_OK;
}

/* One operation and shape, in each type of --dtype. */
static wd_status add_shape(struct bench *b, const struct wd_op *op, const char *words)
{
    const char *types = cli_get(&b->cli, "dtype");
    wd_status st;
    do {
        struct shape shape;
        struct wd_problem p;
        char type[16] = "f32";
        const size_t length = types ? strcspn(types, ",") : 0;
        if (types)
            snprintf(type, sizeof type, "%.*s", (int)length, types);
        shape_init(&shape, op);
        if ((st = shape_set(&shape, "dtype", type)) || (st = shape_parse(&shape, words)) ||
            (st = wd_op_check(op, &shape.args, false, &p)) || (st = add_problem(&b->list, &p)))
            return st;
        types = types && types[length] ? types + length + 1 : NULL;
    } while (types);
    return WD_OK;
}

/* Lines of "OP SHAPE"; '#' begins a comment. */
static wd_status add_file(struct bench *b, const char *path)
{
    char line[512];
    wd_status st = WD_OK;
    FILE *file = fopen(path, "r");
    if (!file)
        return wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    for (unsigned number = 1; !st && fgets(line, sizeof line, file); number++) {
        line[strcspn(line, "#\n")] = '\0';
        const char *name = strtok(line, " \t"), *words = strtok(NULL, " \t");
        const struct wd_op *op = name ? wd_op_by_name(name) : NULL;
        if (!name)
            continue;
        if (!op || !words)
            st = wd_fail(WD_EINVAL, "%s: line %u: an operation and a SHAPE must stand here", path, number);
        else if (cli_wants_op(&b->cli, name) && (st = add_shape(b, op, words)))
            st = wd_fail(st, "%s: line %u: %s", path, number, wd_last_error());
    }
    fclose(file);
    return st;
}

static wd_status add_standard(struct bench *b, bool cpu)
{
    wd_status st = WD_OK;
    for (const struct op_case *c = op_cases; c->op && !st; c++)
        if (c->use & (cpu ? CASE_BENCH_CPU : CASE_BENCH_GPU) && cli_wants_op(&b->cli, c->op))
            st = add_shape(b, wd_op_by_name(c->op), c->shape);
    return st;
}

static wd_status make_list(struct bench *b, bool cpu)
{
    const char *words = cli_get(&b->cli, "shape"), *file = cli_get(&b->cli, "shapes");
    if (words)
        return add_shape(b, wd_op_by_name(b->cli.operands[0]), words);
    return file ? add_file(b, file) : add_standard(b, cpu);
}

/* ---- The table ---- */

enum {
    COL_OP,
    COL_TIME,
    COL_SPREAD,
    COL_GBS,
    COL_GFLOPS,
    COL_FLOOR,
    COL_RATIO,
    COL_BOUND,
    COL_ERROR,
    COL_SHAPE,
    COL_VARIANT
};

static const struct cli_column columns[] = {
    [COL_OP] = {"operation", false, 0},    [COL_TIME] = {"time", true, 8},        [COL_SPREAD] = {"+-", true, 4},
    [COL_GBS] = {"GB/s", true, 7},         [COL_GFLOPS] = {"GFLOP/s", true, 8},   [COL_FLOOR] = {"floor", true, 8},
    [COL_RATIO] = {"time/floor", true, 0}, [COL_BOUND] = {"bound", false, 6},     [COL_ERROR] = {"error", true, 7},
    [COL_SHAPE] = {"shape", false, 0},     [COL_VARIANT] = {"variant", false, 0}, {NULL, false, 0},
};

static void print_head(void *user, const struct bench_run *run)
{
    const struct bench *b = user;
    if (!b->cli.json)
        printf("%s, driver %s: copies %.1f GB/s, f32 multiply-adds %.1f GFLOP/s\n\n", run->device, run->driver,
               run->copy.per_s * 1e-9, run->fma.per_s * 1e-9);
}

static void print_case(void *user, const struct bench_case *c)
{
    struct bench *b = user;
    char number[CLI_NUMBER];
    const double ns = c->median_ns;
    if (b->cli.json)
        return;
    cli_table_cell(&b->table, COL_OP, CLI_PLAIN, "%s", c->operation);
    cli_table_cell(&b->table, COL_SHAPE, CLI_PLAIN, "%s", c->shape);
    if (!c->fault[0]) {
        cli_table_cell(&b->table, COL_TIME, CLI_BOLD, "%s", cli_time(ns, number));
        cli_table_cell(&b->table, COL_SPREAD, CLI_PLAIN, "%.0f%%", 50.0 * (c->max_ns - c->min_ns) / ns);
        cli_table_cell(&b->table, COL_GBS, CLI_PLAIN, "%.1f", c->bytes / ns);
        cli_table_cell(&b->table, COL_GFLOPS, CLI_PLAIN, "%.1f", c->flops / ns);
        cli_table_cell(&b->table, COL_FLOOR, CLI_PLAIN, "%s", cli_time(c->floor_ns, number));
        cli_table_cell(&b->table, COL_RATIO, CLI_PLAIN, "%.2f", ns / c->floor_ns);
        cli_table_cell(&b->table, COL_BOUND, CLI_PLAIN, "%s", c->memory_bound ? "memory" : "math");
        cli_table_cell(&b->table, COL_ERROR, CLI_PLAIN, "%.1e", c->error);
        cli_table_cell(&b->table, COL_VARIANT, CLI_PLAIN, "%s", c->choice);
    } else {
        cli_table_cell(&b->table, COL_VARIANT, CLI_RED, "%s", c->fault);
    }
    cli_table_row(&b->table);
}

/* ---- Measuring, or reading what was measured ---- */

static wd_status measure(struct bench *b)
{
    wd_context *ctx;
    const char *old = cli_get(&b->cli, "compare");
    const struct bench_watcher watcher = {.begin = print_head, .show = print_case, .user = b};
    wd_status st = wd_open(cli_get(&b->cli, "device"), &ctx);
    if (st)
        return st;
    if ((old && (st = bench_same_device(&b->before, old, ctx->caps.name))) || (st = make_list(b, ctx->caps.cpu)))
        goto undo_context;
    for (size_t i = 0; i < b->list.count; i++) {
        char text[SHAPE_TEXT];
        cli_table_fit(&b->table, COL_OP, b->list.problem[i].op->name);
        cli_table_fit(&b->table, COL_SHAPE, shape_text(&b->list.problem[i], text));
    }
    st = bench_measure(ctx, &b->list, b->budget_ns, &watcher, &b->run);

undo_context:
    wd_context_destroy(ctx);
    return st;
}

static wd_status read_run(struct bench *b, const char *path)
{
    wd_status st = bench_read(path, &b->run);
    if (st)
        return st;
    for (size_t i = 0; i < b->run.count; i++) {
        cli_table_fit(&b->table, COL_OP, b->run.cases[i].operation);
        cli_table_fit(&b->table, COL_SHAPE, b->run.cases[i].shape);
    }
    print_head(b, &b->run);
    for (size_t i = 0; i < b->run.count; i++)
        print_case(b, &b->run.cases[i]);
    return WD_OK;
}

/* All that is asked for; what can fail without a measurement comes before it. */
static wd_status produce(struct bench *b)
{
    const char *from = cli_get(&b->cli, "from"), *old = cli_get(&b->cli, "compare"), *plot = cli_get(&b->cli, "plot");
    wd_status st = old ? bench_read(old, &b->before) : WD_OK;
    if (st || (st = from ? read_run(b, from) : measure(b)))
        return st;
    if (old && (st = bench_compare(&b->before, old, &b->run, &b->comparison)))
        return st;
    if (b->cli.json) {
        struct json json = {0};
        bench_write(&json, &b->run, old ? &b->comparison : NULL);
        emit_print(&json);
    } else if (old) {
        bench_print_comparison(&b->comparison);
    }
    return plot ? bench_plot(&b->run, plot) : WD_OK;
}

/* ---- The command ---- */

static int check_options(struct bench *b)
{
    static const char *const measuring[] = {"shape", "shapes", "dtype", "budget", "device"};
    uint64_t ms = BUDGET_MS;
    const char *budget = cli_get(&b->cli, "budget");
    if (budget && (!cli_number(budget, &ms) || ms == 0))
        return cli_usage(&b->cli, "--budget: '%s' is not a number of milliseconds", budget);
    if (cli_get(&b->cli, "shape") && (b->cli.num_operands != 1 || cli_get(&b->cli, "shapes")))
        return cli_usage(&b->cli, "--shape: needs one operation, and no --shapes");
    for (size_t i = 0; i < WD_COUNT(measuring) && cli_get(&b->cli, "from"); i++)
        if (cli_get(&b->cli, measuring[i]) || b->cli.num_operands)
            return cli_usage(&b->cli, "--from: nothing is measured, so %s%s says nothing",
                             b->cli.num_operands ? "" : "--", b->cli.num_operands ? b->cli.operands[0] : measuring[i]);
    b->budget_ns = (double)ms * 1e6;
    return cli_check_ops(&b->cli);
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct bench b = {0};
    int code = cli_parse(&b.cli, self, NULL, argc, argv);
    if (code < 0)
        code = check_options(&b) ? CLI_USAGE : -1;
    if (code >= 0)
        return code;
    if (cli_get(&b.cli, "overhead"))
        return bench_overhead(&b.cli);
    if (cli_get(&b.cli, "copies"))
        return bench_copies(&b.cli);
    if (cli_get(&b.cli, "cold"))
        return bench_cold(&b.cli);

    cli_table_init(&b.table, columns);
    const wd_status st = produce(&b);
    cli_progress("%s", "");
    code = st ? cli_fail(&b.cli, st) : b.run.failed || b.comparison.number[VERDICT_SLOWER] ? CLI_FAILED : CLI_OK;
    bench_uncompare(&b.comparison);
    bench_free(&b.run);
    bench_free(&b.before);
    free(b.list.problem);
    return code;
}

static const struct cli_option options[] = {
    {"shape", 0, "SHAPE", "one shape of one operation"},
    {"shapes", 0, "FILE", "lines of 'OP SHAPE'"},
    {"dtype", 0, "TYPE,...", "f32, f16 or bf16 where a SHAPE says nothing (default f32)"},
    {"budget", 0, "MS", "time for each shape's rounds (default 500)"},
    {"compare", 0, "FILE", "what got faster or slower since an earlier run, whose --json is FILE"},
    {"plot", 0, "FILE", "draw time over floor as an SVG chart"},
    {"from", 0, "FILE", "take the results of an earlier run, whose --json is FILE, instead of measuring"},
    {"overhead", 0, NULL, "instead: what a warm call costs the host beyond its OpenCL calls"},
    {"copies", 0, NULL, "instead: what a plain copy of 2, 4, 8 ... MiB takes, read and written ones together"},
    {"cold", 0, NULL, "instead: from the start of a process to its first result, caches empty and full"},
    CLI_DEVICE,
    CLI_JSON,
    {0},
};

const struct cli_command cmd_bench = {
    .name = "bench",
    .operands = "[OP...]",
    .summary = "Time operations against the device's own limits, measured in the same run",
    .details =
        "Each result is checked against the reference before it is timed. Caches are emptied between runs by a\n"
        "write of 256 MiB, on a CPU a read; the time is the median, '+-' half the range of all rounds. Shapes take "
        "turns, a round\n"
        "each. The floor is the bytes that must move over the measured copy rate, or the operations over the\n"
        "measured f32 multiply-add rate, whichever is longer; matrix engines can be faster than that.\n"
        "\n"
        "--compare: the verdict is 'slower' or 'faster' if the 99 % interval of now/before (Hodges and Lehmann,\n"
        "from the ranks of the rounds' times alone) lies beyond 5 %, and beyond what the device's own rate changed\n"
        "by between the runs; else 'same'.\n"
        "\n"
        "Exit code 1: a result was wrong, or something is slower.",
    .options = options,
    .run = run,
};
