/* SPDX-License-Identifier: MIT */
#include "tune.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "context.h"
#include "shape.h"
#include "tuner.h"

enum { COL_OP, COL_SHAPE, COL_TIME, COL_MODEL, COL_RATIO, COL_RANGE, COL_TRIED, COL_CHOICE };

static const struct cli_column columns[] = {
    [COL_OP] = {"operation", false, 0}, [COL_SHAPE] = {"shape", false, 0}, [COL_TIME] = {"time", true, 8},
    [COL_MODEL] = {"model's", true, 8}, [COL_RATIO] = {"faster", true, 6}, [COL_RANGE] = {"range", false, 12},
    [COL_TRIED] = {"tried", true, 5},   [COL_CHOICE] = {"best", false, 0}, {NULL, false, 0},
};

/* A shape to tune. */
struct item {
    struct wd_problem p;
    char words[SHAPE_TEXT];
};

struct work {
    const struct tune_plan *plan;
    struct cli_table table;
    struct item *item;
    size_t count, at; /* `at`: the one at hand */
    uint64_t start;
    size_t faster, same; /* results */
    bool unfinished;     /* some search has not come to its end */
};

static volatile sig_atomic_t interrupted = 0;

/* The second one is for the default action. */
static void on_interrupt(int number)
{
    interrupted = 1;
    signal(number, SIG_DFL);
}

/* ---- What is tuned ---- */

static bool has_class(const struct work *w, const struct wd_problem *p)
{
    struct wd_text a = {0}, b = {0};
    bool found = false;
    wd_class_text(p, &a);
    for (size_t i = 0; i < w->count && !found; i++) {
        wd_text_free(&b);
        wd_class_text(&w->item[i].p, &b);
        found = w->item[i].p.op == p->op && !a.failed && !b.failed && strcmp(a.data, b.data) == 0;
    }
    wd_text_free(&a);
    wd_text_free(&b);
    return found;
}

/* Adds a shape, unless one of its class is there. `dtype`: where the words say nothing. */
static wd_status add_item(struct work *w, const struct wd_op *op, const char *words, const char *dtype)
{
    struct shape shape;
    struct wd_problem p;
    shape_init(&shape, op);
    wd_status st = shape_set(&shape, "dtype", dtype);
    if (st || (st = shape_parse(&shape, words)) || (st = wd_op_check(op, &shape.args, false, &p)))
        return st;
    if (p.empty)
        return wd_fail(WD_EINVAL, "tune: %s: nothing to compute", words);
    if (has_class(w, &p))
        return WD_OK;
    struct item *grown = realloc(w->item, (w->count + 1) * sizeof *grown);
    if (!grown)
        return wd_fail(WD_ENOMEM, "tune: out of memory");
    w->item = grown;
    grown[w->count].p = p;
    shape_text(&p, grown[w->count].words);
    w->count++;
    return WD_OK;
}

/* The shapes asked for, in one type. */
static wd_status add_items(struct work *w, bool cpu, const char *dtype)
{
    const struct tune_plan *plan = w->plan;
    wd_status st = WD_OK;
    if (plan->shape)
        return add_item(w, wd_op_by_name(plan->cli->operands[0]), plan->shape, dtype);
    for (const struct op_case *c = op_cases; c->op && !st; c++)
        if (c->use & (cpu ? CASE_BENCH_CPU : CASE_BENCH_GPU) && cli_wants_op(plan->cli, c->op))
            st = add_item(w, wd_op_by_name(c->op), c->shape, dtype);
    return st;
}

/* In each type of a list such as "f32,bf16". */
static wd_status add_types(struct work *w, bool cpu)
{
    wd_status st = WD_OK;
    for (const char *type = w->plan->dtype ? w->plan->dtype : "f32"; *type && !st;) {
        char name[16];
        const size_t length = strcspn(type, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, type);
        st = add_items(w, cpu, name);
        type += length + (type[length] == ',');
    }
    return st;
}

/* ---- While it runs ---- */

static double left_s(const struct work *w)
{
    return w->plan->budget_s - (double)(wd_now_ns() - w->start) * 1e-9;
}

/* "[2/15] causal_conv1d  5/31 tried, 1:48 left, best 2.47 ms by cpu vl=16 stream=2 block=512, now cpu vl=8 ..." */
static void show_progress(const struct work *w, const struct wd_tune_event *e, const char *best)
{
    const int left = (int)fmax(left_s(w), 0);
    const char *op = w->item[w->at].p.op->name;
    if (!e->choice)
        cli_progress("[%zu/%zu] %s  %zu/%zu tried, %s, in turns with the model's choice%s", w->at + 1, w->count, op,
                     e->tried, e->total, e->best, interrupted ? "; Ctrl-C again does not wait" : "");
    else
        cli_progress("[%zu/%zu] %s  %zu/%zu tried, %d:%02d left, best %s%s%s, now %s", w->at + 1, w->count, op,
                     e->tried, e->total, left / 60, left % 60, best, *e->best ? " by " : "", e->best, e->choice);
}

/* Begin and end of each trial: the progress line, the alarm for one that hangs, and whether to go on. */
static bool watch(void *user, const struct wd_tune_event *e)
{
    const struct work *w = user;
    const struct item *item = &w->item[w->at];
    char time[CLI_NUMBER], best[CLI_NUMBER];
    if (getppid() != w->plan->parent) /* killed: what is known is on disk */
        _exit(TUNE_INTERRUPTED);
    alarm(e->ns > 0 ? 0 : TUNE_TRIAL_S);
    snprintf(best, sizeof best, "-");
    if (e->best_ns > 0)
        cli_time(e->best_ns, best);
    if (isatty(STDERR_FILENO))
        show_progress(w, e, best);
    else if (isinf(e->ns))
        fprintf(stderr, "%s %s: %zu/%zu %s: %.100s\n", item->p.op->name, item->words, e->tried, e->total, e->choice,
                e->why);
    else if (e->ns > 0)
        fprintf(stderr, "%s %s: %zu/%zu %s: %s, best %s\n", item->p.op->name, item->words, e->tried, e->total,
                e->choice, cli_time(e->ns, time), best);
    return !interrupted;
}

/* A row a shape, as each is done: what the record now says, and why it may be trusted. */
static void print_row(struct work *w, const struct wd_tune_result *r)
{
    char number[CLI_NUMBER];
    struct wd_text choice = {0};
    const bool compared = r->turns.pairs > 0, faster = compared && !r->lost;
    wd_choice_text(&r->best, &choice);
    cli_table_cell(&w->table, COL_OP, CLI_PLAIN, "%s", w->item[w->at].p.op->name);
    cli_table_cell(&w->table, COL_SHAPE, CLI_PLAIN, "%s", w->item[w->at].words);
    cli_table_cell(&w->table, COL_CHOICE, CLI_PLAIN, "%s", choice.data ? choice.data : "");
    cli_table_cell(&w->table, COL_TIME, CLI_BOLD, "%s", cli_time(r->best_ns, number));
    if (!isinf(r->model_ns))
        cli_table_cell(&w->table, COL_MODEL, CLI_PLAIN, "%s", cli_time(r->model_ns, number));
    if (compared) /* of the candidate that had the best trial, kept or not */
        cli_table_cell(&w->table, COL_RANGE, CLI_PLAIN, "%.2f to %.2f", r->turns.low, r->turns.high);
    if (faster)
        cli_table_cell(&w->table, COL_RATIO, CLI_GREEN, "%.2fx", r->turns.ratio);
    else
        cli_table_cell(&w->table, COL_RATIO, CLI_PLAIN, isinf(r->model_ns) ? "-" : "model");
    cli_table_cell(&w->table, COL_TRIED, CLI_PLAIN, "%zu/%zu", r->tried, r->total);
    cli_table_row(&w->table);
    *(faster ? &w->faster : &w->same) += 1;
    wd_text_free(&choice);
}

/* ---- One shape ---- */

static wd_status tune(struct work *w, struct wd_tuner *t)
{
    const struct item *item = &w->item[w->at];
    struct wd_tune_result r;
    if (wd_tuner_ended(t, &item->p)) {
        cli_progress("%s", "");
        fprintf(stderr, "%s %s: done by an earlier run\n", item->p.op->name, item->words);
        return WD_OK;
    }
    const double share_ns = left_s(w) * 1e9 / (double)(w->count - w->at);
    const struct wd_tune_options options = {.budget_ns = fmax(share_ns * 0.8, 0),
                                            .trial_ns = fmin(fmax(share_ns / 25, 5e7), 4e8),
                                            .check_ns = fmin(share_ns / 4, 1e9),
                                            .confirm = true,
                                            .watch = watch,
                                            .user = w};
    cli_progress("[%zu/%zu] %s %s: preparing", w->at + 1, w->count, item->p.op->name, item->words);
    wd_status st = wd_tuner_run(t, &item->p, &options, &r);
    alarm(0);
    if (st == WD_ENOTSUP || st == WD_ENOMEM) { /* nothing works, or it is too large: the others may be tuned */
        cli_error("%s %s: %s", item->p.op->name, item->words, wd_last_error());
        return WD_OK;
    }
    w->unfinished |= st || !r.ended;
    if (st || r.tried == 0)
        return st;
    if (r.tried > 1 || r.ended) /* else nothing is known that the model does not know */
        st = wd_tuner_save(t, &item->p, &r);
    print_row(w, &r);
    return st;
}

/* A context for each shape: it sees the records of those before, which the parts of a chain may be. */
static wd_status tune_item(struct work *w)
{
    struct wd_context *ctx;
    struct wd_tuner t;
    wd_status st = wd_open(w->plan->device, &ctx);
    if (st)
        return st;
    if (!(st = wd_tuner_init(&t, ctx, true))) {
        st = tune(w, &t);
        if (!st && w->at + 1 == w->count && !w->unfinished) /* the whole run is at its end */
            for (size_t i = 0; i < w->count; i++)
                wd_tuner_forget(&t, &w->item[i].p);
        wd_tuner_fini(&t);
    }
    wd_context_destroy(ctx);
    return st;
}

/* ---- All of it ---- */

static wd_status list_items(struct work *w)
{
    wd_context *ctx;
    wd_status st = wd_open(w->plan->device, &ctx);
    if (st)
        return st;
    st = add_types(w, ctx->caps.cpu);
    wd_context_destroy(ctx);
    cli_table_init(&w->table, columns);
    for (size_t i = 0; i < w->count; i++) {
        cli_table_fit(&w->table, COL_OP, w->item[i].p.op->name);
        cli_table_fit(&w->table, COL_SHAPE, w->item[i].words);
    }
    return st;
}

int tune_work(const struct tune_plan *plan)
{
    struct work w = {.plan = plan, .start = wd_now_ns()};
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    wd_status st = list_items(&w);
    for (; w.at < w.count && !st && !interrupted && left_s(&w) > 0; w.at++)
        st = tune_item(&w);
    w.unfinished |= w.at < w.count;
    cli_progress("%s", "");
    if (!st && w.faster + w.same)
        printf("\n%zu faster than the model's choice, %zu keep%s it; records in %s\n", w.faster, w.same,
               w.same == 1 ? "s" : "", plan->tuning_file);
    if (!st && w.unfinished)
        printf("not every search came to its end: 'warpdrive tune' with the same operations goes on from here\n");
    free(w.item);
    return st ? cli_fail(plan->cli, st) : interrupted ? TUNE_INTERRUPTED : CLI_OK;
}
