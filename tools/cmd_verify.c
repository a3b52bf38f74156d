/* SPDX-License-Identifier: MIT */
/* warpdrive verify: every operation, variant and element type against the reference, on this device. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "context.h"
#include "shape.h"
#include "trial.h"

enum { COL_OP, COL_VARIANT, COL_DTYPE, COL_SHAPE, COL_ERROR, COL_ABS, COL_RESULT };

static const struct cli_column columns[] = {
    [COL_OP] = {"operation", false, 0},   [COL_VARIANT] = {"variant", false, 0},
    [COL_DTYPE] = {"dtype", false, 0},    [COL_SHAPE] = {"shape", false, 0},
    [COL_ERROR] = {"rel error", true, 0}, [COL_ABS] = {"max error", true, 0},
    [COL_RESULT] = {"result", false, 0},  {NULL, false, 0},
};

enum { MAX_VARIANTS = 16 };

struct verify {
    wd_context *ctx;
    unsigned use; /* cases tried: CASE_... */
    struct cli_table table;
    char skipped[MAX_VARIANTS][192]; /* by variant of the operation at hand: the reason told last */
    size_t ok, failed, skips;
};

/* ---- One variant on prepared trials ---- */

/* A mild and a steep gate regime: a kernel that drops the state passes the steep one. */
enum { REGIMES = 2 };

struct forced {
    const struct wd_choice *choice;
    struct wd_kernel *kernel; /* NULL: a chain */
};

static wd_status run_forced(void *user, struct wd_trial *t, const wd_launch *launch)
{
    const struct forced *f = user;
    return wd_plan_launch(t->ctx, &t->p, f->choice, f->kernel, launch);
}

/* Twice, since a race may go unseen once: the same bits both times. */
static wd_status try_twice(struct wd_trial *trial, struct forced *forced, struct wd_trial_result *result)
{
    struct wd_trial_result first;
    wd_status st = WD_OK;
    for (int turn = 0; turn < 2 && !st; turn++) {
        first = *result;
        if (!(st = wd_trial_reset(trial)) && !(st = wd_trial_run(trial, run_forced, forced)))
            st = wd_trial_check(trial, result);
    }
    if (!st && result->ok && first.bits != result->bits) {
        result->ok = false;
        snprintf(result->text, sizeof result->text, "%s: two runs differ", trial->p.op->name);
    }
    return st;
}

static wd_status try_variant(const struct verify *v, struct wd_trial *const trial[REGIMES],
                             const struct wd_choice *choice, struct wd_trial_result *worst)
{
    struct forced forced = {.choice = choice};
    wd_status st = choice->variant->chain ? WD_OK : wd_plan_compile(v->ctx, &trial[0]->p, choice, &forced.kernel);
    *worst = (struct wd_trial_result){.ok = true};
    for (size_t i = 0; i < REGIMES && !st && worst->ok && trial[i]; i++) {
        struct wd_trial_result result = {0};
        if ((st = try_twice(trial[i], &forced, &result)))
            break;
        if (!result.ok || result.error >= worst->error)
            *worst = result;
    }
    return st;
}

static void print_line(struct verify *v, const struct wd_op *op, const struct wd_variant *variant, const char *dtype,
                       const char *shape)
{
    cli_table_cell(&v->table, COL_OP, CLI_PLAIN, "%s", op->name);
    cli_table_cell(&v->table, COL_VARIANT, CLI_PLAIN, "%s", variant->name);
    cli_table_cell(&v->table, COL_DTYPE, CLI_PLAIN, "%s", dtype);
    cli_table_cell(&v->table, COL_SHAPE, CLI_PLAIN, "%s", shape);
    cli_table_row(&v->table);
}

/* A reason is told once, not for every shape and type. */
static void skip(struct verify *v, const struct wd_op *op, size_t variant, const char *dtype, const char *shape,
                 const char *reason)
{
    v->skips++;
    if (!strncmp(v->skipped[variant], reason, sizeof v->skipped[variant] - 1))
        return;
    snprintf(v->skipped[variant], sizeof v->skipped[variant], "%s", reason);
    cli_table_cell(&v->table, COL_RESULT, CLI_YELLOW, "skip: %s", reason);
    print_line(v, op, op->variants[variant], dtype, shape);
}

static void verify_variant(struct verify *v, struct wd_trial *const trial[REGIMES], size_t variant, const char *dtype,
                           const char *shape)
{
    const struct wd_op *op = trial[0]->p.op;
    struct wd_choice choice;
    struct wd_trial_result result;
    if (!wd_tuning_model(&v->ctx->caps, &trial[0]->p, op->variants[variant], &choice)) {
        skip(v, op, variant, dtype, shape, choice.reason);
        return;
    }
    const wd_status st = try_variant(v, trial, &choice, &result);
    if (st == WD_ENOTSUP) {
        skip(v, op, variant, dtype, shape, wd_last_error());
        return;
    }
    if (!st) {
        cli_table_cell(&v->table, COL_ERROR, CLI_PLAIN, "%.1e", result.error);
        cli_table_cell(&v->table, COL_ABS, CLI_PLAIN, "%.1e", result.max_abs);
    }
    if (st)
        cli_table_cell(&v->table, COL_RESULT, CLI_RED, "FAIL: %s", wd_last_error());
    else if (!result.ok)
        cli_table_cell(&v->table, COL_RESULT, CLI_RED, "FAIL: %s", result.text);
    else
        cli_table_cell(&v->table, COL_RESULT, CLI_GREEN, "ok");
    print_line(v, op, op->variants[variant], dtype, shape);
    *(st || !result.ok ? &v->failed : &v->ok) += 1;
}

/* ---- One shape and type ---- */

static bool has_gates(const struct wd_op *op)
{
    for (size_t i = 0; i < op->num_tensors; i++)
        if (op->tensors[i].fill == WD_FILL_GATE || op->tensors[i].fill == WD_FILL_GATE_SUM)
            return true;
    return false;
}

static wd_status verify_case(struct verify *v, const struct wd_op *op, const char *shape_words, wd_dtype dtype)
{
    static const enum wd_gates gates[REGIMES] = {WD_GATES_MILD, WD_GATES_STEEP};
    struct wd_trial *trial[REGIMES] = {NULL};
    struct shape shape;
    struct wd_problem p;
    char words[SHAPE_TEXT];
    snprintf(words, sizeof words, "%s,dtype=%s", shape_words, wd_dtype_name(dtype));
    shape_init(&shape, op);
    wd_status st = shape_parse(&shape, words);
    if (!st)
        st = wd_op_check(op, &shape.args, false, &p);
    for (size_t i = 0; i < (has_gates(op) ? REGIMES : 1) && !st; i++) {
        const struct wd_trial_options options = {.seed = 1 + i, .gates = gates[i], .queue = wd_context_queue(v->ctx)};
        st = wd_trial_create(v->ctx, &p, &options, &trial[i]);
    }
    if (st == WD_ENOMEM) { /* this shape is too large here; the next may not be */
        skip(v, op, 0, wd_dtype_name(dtype), shape_words, wd_last_error());
        goto undo_trials;
    }
    for (size_t i = 0; op->variants[i] && i < MAX_VARIANTS && !st; i++) {
        cli_progress("%s %s %s %s", op->name, op->variants[i]->name, wd_dtype_name(dtype), shape_words);
        verify_variant(v, trial, i, wd_dtype_name(dtype), shape_words);
    }

undo_trials:
    for (size_t i = 0; i < REGIMES; i++)
        wd_trial_destroy(trial[i]);
    return st == WD_ENOMEM ? WD_OK : st;
}

static wd_status verify_op(struct verify *v, const struct wd_op *op)
{
    wd_status st = WD_OK;
    memset(v->skipped, 0, sizeof v->skipped);
    for (const struct op_case *c = op_cases; c->op && !st; c++) {
        if (strcmp(c->op, op->name) != 0 || !(c->use & v->use))
            continue;
        const wd_dtype last = c->use & CASE_VERIFY ? WD_BF16 : WD_F32;
        for (wd_dtype t = WD_F32; t <= last && !st; t++)
            st = verify_case(v, op, c->shape, t);
    }
    return st;
}

/* ---- The command ---- */

static void fit_columns(const struct cli *cli, unsigned use, struct cli_table *table)
{
    cli_table_init(table, columns);
    cli_table_fit(table, COL_DTYPE, "bf16");
    for (const struct wd_op *const *op = wd_ops; *op; op++) {
        if (!cli_wants_op(cli, (*op)->name))
            continue;
        cli_table_fit(table, COL_OP, (*op)->name);
        for (size_t i = 0; (*op)->variants[i]; i++)
            cli_table_fit(table, COL_VARIANT, (*op)->variants[i]->name);
    }
    for (const struct op_case *c = op_cases; c->op; c++)
        if (c->use & use && cli_wants_op(cli, c->op))
            cli_table_fit(table, COL_SHAPE, c->shape);
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli cli;
    struct verify v = {0};
    const int done = cli_parse(&cli, self, NULL, argc, argv);
    if (done >= 0)
        return done;
    const int wrong = cli_check_ops(&cli);
    if (wrong)
        return wrong;

    v.use = cli_get(&cli, "tiny") ? CASE_TINY : CASE_VERIFY | CASE_VERIFY_F32;
    wd_status st = wd_open(cli_get(&cli, "device"), &v.ctx);
    fit_columns(&cli, v.use, &v.table);
    for (const struct wd_op *const *op = wd_ops; *op && !st; op++)
        if (cli_wants_op(&cli, (*op)->name))
            st = verify_op(&v, *op);
    cli_progress("%s", "");
    if (!st)
        printf("%zu ok, %zu failed, %zu skipped on %s\n", v.ok, v.failed, v.skips, v.ctx->caps.name);
    wd_context_destroy(v.ctx);
    if (st)
        return cli_fail(&cli, st);
    return v.failed || v.ok == 0 ? CLI_FAILED : CLI_OK;
}

static const struct cli_option options[] = {
    {"tiny", 0, NULL, "the smallest shapes only, for simulators that watch every access"},
    CLI_DEVICE,
    {0},
};

const struct cli_command cmd_verify = {
    .name = "verify",
    .operands = "[OP...]",
    .summary = "Check every variant of the operations against the reference on this device",
    .details =
        "One line an operation, variant, type and shape. 'rel error' is the relative Frobenius error, 'max error'\n"
        "the largest absolute one; gates are tried mild and steep, each twice, and both runs must give the same\n"
        "bits. A variant that the device or the shape rules out is skipped; each reason is told once. Exit code 1:\n"
        "something failed.",
    .options = options,
    .run = run,
};
