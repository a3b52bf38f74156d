/* SPDX-License-Identifier: MIT */
/* warpdrive bench: time of operations against what the device can do at best, measured in the same run. */
#include "commands.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "context.h"
#include "json.h"
#include "measure.h"
#include "overhead.h"
#include "shape.h"
#include "trial.h"

enum { BUDGET_MS = 500 };

/* ---- What is measured ---- */

struct rates {
    double bytes_per_s, flops_per_s; /* copy, and f32 multiply-adds */
};

struct measurement {
    struct wd_problem p;
    struct wd_choice choice;
    struct wd_trial_result result;
    struct wd_timing time;
    double bytes, flops;
    double floor_ns;   /* bytes over the copy rate, or operations over the peak: the larger */
    bool memory_bound; /* which of them it was */
    const char *fault; /* why there is no time; NULL: there is one */
};

struct bench {
    struct cli cli;
    wd_context *ctx;
    struct wd_meter meter;
    struct rates rates;
    double budget_ns;
    struct cli_table table;
    struct json json;
    size_t failed;
};

static wd_status run_again(void *user)
{
    struct wd_trial *t = user;
    const wd_launch launch = {.queue = t->queue};
    return wd_op_call(t->ctx, t->p.op, &t->args, &launch);
}

/* Correctness first: a wrong kernel has no time. */
static wd_status measure(struct bench *b, struct measurement *m)
{
    const struct wd_op *op = m->p.op;
    const struct wd_trial_options options = {.seed = 1, .gates = WD_GATES_MILD, .queue = wd_context_queue(b->ctx)};
    struct wd_trial *trial = NULL;
    const struct wd_plan *plan = NULL;
    cli_progress("%s: checking", op->name);
    wd_status st = wd_trial_create(b->ctx, &m->p, &options, &trial);
    if (!st && !(st = wd_plan_get(b->ctx, &trial->p, &plan)) && !(st = wd_trial_run(trial, NULL, NULL)) &&
        !(st = wd_trial_check(trial, &m->result)) && m->result.ok) {
        cli_progress("%s: timing", op->name);
        m->p = trial->p;
        m->choice = plan->choice;
        st = wd_meter_time(&b->meter, run_again, trial, b->budget_ns, 0, &m->time);
    }
    wd_trial_destroy(trial);
    if (st)
        return st;
    m->bytes = m->p.bytes;
    m->flops = op->flops(&m->p);
    const double memory_ns = m->bytes / b->rates.bytes_per_s * 1e9, math_ns = m->flops / b->rates.flops_per_s * 1e9;
    m->memory_bound = memory_ns >= math_ns;
    m->floor_ns = fmax(memory_ns, math_ns);
    return WD_OK;
}

/* ---- Output ---- */

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

static void print_text(struct bench *b, const struct measurement *m, const char *choice)
{
    char number[CLI_NUMBER], shape[SHAPE_TEXT];
    const double ns = m->time.median_ns;
    cli_table_cell(&b->table, COL_OP, CLI_PLAIN, "%s", m->p.op->name);
    cli_table_cell(&b->table, COL_SHAPE, CLI_PLAIN, "%s", shape_text(&m->p, shape));
    if (!m->fault) {
        cli_table_cell(&b->table, COL_TIME, CLI_BOLD, "%s", cli_time(ns, number));
        cli_table_cell(&b->table, COL_SPREAD, CLI_PLAIN, "%.0f%%",
                       50.0 * (m->time.max_ns - m->time.min_ns) / fmax(ns, 1.0));
        cli_table_cell(&b->table, COL_GBS, CLI_PLAIN, "%.1f", m->bytes / ns);
        cli_table_cell(&b->table, COL_GFLOPS, CLI_PLAIN, "%.1f", m->flops / ns);
        cli_table_cell(&b->table, COL_FLOOR, CLI_PLAIN, "%s", cli_time(m->floor_ns, number));
        cli_table_cell(&b->table, COL_RATIO, CLI_PLAIN, "%.2f", ns / m->floor_ns);
        cli_table_cell(&b->table, COL_BOUND, CLI_PLAIN, "%s", m->memory_bound ? "memory" : "math");
        cli_table_cell(&b->table, COL_ERROR, CLI_PLAIN, "%.1e", m->result.error);
        cli_table_cell(&b->table, COL_VARIANT, CLI_PLAIN, "%s", choice);
    } else {
        cli_table_cell(&b->table, COL_VARIANT, CLI_RED, "%s", m->fault);
    }
    cli_table_row(&b->table);
}

static void print_json(struct bench *b, const struct measurement *m, const char *choice)
{
    struct json *json = &b->json;
    char shape[SHAPE_TEXT];
    json_open(json, NULL, '{');
    json_string(json, "operation", m->p.op->name);
    json_string(json, "shape", shape_text(&m->p, shape));
    json_bool(json, "ok", !m->fault);
    if (!m->fault) {
        json_number(json, "error", m->result.error);
        json_string(json, "variant", m->choice.variant->name);
        json_string(json, "choice", choice);
        json_string(json, "reason", m->choice.reason);
        json_number(json, "median_ns", m->time.median_ns);
        json_number(json, "min_ns", m->time.min_ns);
        json_number(json, "max_ns", m->time.max_ns);
        json_integer(json, "rounds", m->time.rounds);
        json_number(json, "bytes", m->bytes);
        json_number(json, "flops", m->flops);
        json_number(json, "floor_ns", m->floor_ns);
        json_number(json, "time_over_floor", m->time.median_ns / m->floor_ns);
        json_string(json, "bound", m->memory_bound ? "memory" : "math");
    } else {
        json_string(json, "fault", m->fault);
    }
    json_close(json, '}');
}

static void print_head(struct bench *b)
{
    const struct wd_caps *caps = &b->ctx->caps;
    if (!b->cli.json) {
        printf("%s, driver %s: copies %.1f GB/s, f32 multiply-adds %.1f GFLOP/s\n\n", caps->name, caps->driver,
               b->rates.bytes_per_s * 1e-9, b->rates.flops_per_s * 1e-9);
        return;
    }
    json_open(&b->json, NULL, '{');
    json_string(&b->json, "version", wd_version());
    json_string(&b->json, "device", caps->name);
    json_string(&b->json, "driver", caps->driver);
    json_string(&b->json, "platform", caps->platform_version);
    json_number(&b->json, "copy_bytes_per_s", b->rates.bytes_per_s);
    json_number(&b->json, "fma_flops_per_s", b->rates.flops_per_s);
    json_open(&b->json, "results", '[');
}

/* ---- The list of shapes ---- */

/* One operation and shape; with --dtype, in that type. */
static wd_status bench_shape(struct bench *b, const struct wd_op *op, const char *words)
{
    struct shape shape;
    struct measurement m = {0};
    struct wd_text choice = {0};
    shape_init(&shape, op);
    const char *dtype = cli_get(&b->cli, "dtype");
    wd_status st = dtype ? shape_set(&shape, "dtype", dtype) : WD_OK;
    if (!st)
        st = shape_parse(&shape, words);
    if (!st)
        st = wd_op_check(op, &shape.args, false, &m.p);
    if (st)
        return st;

    st = measure(b, &m);
    m.fault = st ? wd_last_error() : m.result.ok ? NULL : m.result.text;
    if (!m.fault)
        wd_choice_text(&m.choice, &choice);
    (b->cli.json ? print_json : print_text)(b, &m, choice.data ? choice.data : "");
    wd_text_free(&choice);
    b->failed += m.fault && st != WD_ENOTSUP && st != WD_ENOMEM; /* what a device cannot hold is no failure of ours */
    return WD_OK;
}

/* Lines of "OP SHAPE"; '#' begins a comment. */
static wd_status bench_file(struct bench *b, const char *path)
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
        else if (cli_wants_op(&b->cli, name))
            st = bench_shape(b, op, words);
    }
    fclose(file);
    return st;
}

static wd_status bench_standard(struct bench *b)
{
    const unsigned use = b->ctx->caps.cpu ? CASE_BENCH_CPU : CASE_BENCH_GPU;
    wd_status st = WD_OK;
    for (const struct op_case *c = op_cases; c->op && !st; c++)
        if (c->use & use && cli_wants_op(&b->cli, c->op))
            st = bench_shape(b, wd_op_by_name(c->op), c->shape);
    return st;
}

static wd_status bench_all(struct bench *b)
{
    const char *words = cli_get(&b->cli, "shape"), *file = cli_get(&b->cli, "shapes");
    cli_progress("measuring the device");
    wd_status st = wd_meter_rates(&b->meter, &b->rates.bytes_per_s, &b->rates.flops_per_s);
    cli_progress("%s", "");
    if (st)
        return st;
    print_head(b);
    if (words)
        return bench_shape(b, wd_op_by_name(b->cli.operands[0]), words);
    return file ? bench_file(b, file) : bench_standard(b);
}

/* ---- The command ---- */

static int check_options(struct bench *b)
{
    uint64_t ms = BUDGET_MS;
    const char *budget = cli_get(&b->cli, "budget");
    if (budget && (!cli_number(budget, &ms) || ms == 0))
        return cli_usage(&b->cli, "--budget: '%s' is not a number of milliseconds", budget);
    if (cli_get(&b->cli, "shape") && (b->cli.num_operands != 1 || cli_get(&b->cli, "shapes")))
        return cli_usage(&b->cli, "--shape: needs one operation, and no --shapes");
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

    cli_table_init(&b.table, columns);
    for (const struct wd_op *const *op = wd_ops; *op; op++)
        cli_table_fit(&b.table, COL_OP, (*op)->name);
    if (cli_get(&b.cli, "shape"))
        cli_table_fit(&b.table, COL_SHAPE, cli_get(&b.cli, "shape"));
    for (const struct op_case *c = op_cases; c->op; c++)
        if (c->use & (CASE_BENCH_CPU | CASE_BENCH_GPU) && cli_wants_op(&b.cli, c->op))
            cli_table_fit(&b.table, COL_SHAPE, c->shape);

    wd_status st = wd_open(cli_get(&b.cli, "device"), &b.ctx);
    if (!st)
        st = wd_meter_init(&b.meter, b.ctx, wd_context_queue(b.ctx));
    if (!st)
        st = bench_all(&b);
    if (!st && b.cli.json) {
        json_close(&b.json, ']');
        json_close(&b.json, '}');
        json_print(&b.json);
    }
    cli_progress("%s", "");
    json_drop(&b.json);
    wd_meter_fini(&b.meter);
    wd_context_destroy(b.ctx);
    return st ? cli_fail(&b.cli, st) : b.failed ? CLI_FAILED : CLI_OK;
}

static const struct cli_option options[] = {
    {"shape", 0, "SHAPE", "one shape of one operation"},
    {"shapes", 0, "FILE", "lines of 'OP SHAPE'"},
    {"dtype", 0, "TYPE", "f32, f16 or bf16 where a SHAPE says nothing (default f32)"},
    {"budget", 0, "MS", "time for each shape's rounds (default 500)"},
    {"overhead", 0, NULL, "instead: what a warm call costs the host beyond its OpenCL calls"},
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
        "write of 256 MiB; the time is the median, '+-' half the range of all rounds. The floor is the bytes that\n"
        "must move over the measured copy rate, or the operations over the measured f32 multiply-add rate,\n"
        "whichever is longer; matrix engines can be faster than that. Exit code 1: a result was wrong.",
    .options = options,
    .run = run,
};
