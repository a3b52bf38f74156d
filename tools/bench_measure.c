/* SPDX-License-Identifier: MIT */
/*
 * Measuring for `warpdrive bench`. Each case is checked before it is timed. Cases whose buffers fit into a quarter of
 * the device's memory together take turns, a round each, with a round of the device's own rates between: what disturbs
 * the machine for a second disturbs a round of each, not all rounds of one.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "context.h"
#include "measure.h"
#include "trial.h"

enum {
    MIN_ROUNDS = 7, /* so that two runs can be compared */
    MAX_TOGETHER = 16,
};

/* A case whose turn comes. */
struct subject {
    size_t at; /* into the run's cases */
    struct wd_trial *trial;
    double spent_ns;
};

struct job {
    wd_context *ctx;
    struct wd_meter meter;
    struct bench_run *run;
    const struct bench_watcher *watcher;
    double budget_ns;
    struct subject subject[MAX_TOGETHER];
    size_t subjects;
    double bytes;        /* of the subjects' buffers */
    size_t shown, total; /* cases */
    bool begun;          /* the rates are known */
};

static wd_status run_again(void *user)
{
    struct wd_trial *t = user;
    const wd_launch launch = {.queue = t->queue};
    return wd_op_call(t->ctx, t->p.op, &t->args, &launch);
}

/* ---- Turns ---- */

/* What a device cannot hold or do is no failure of ours. */
static void add_fault(struct job *job, struct bench_case *c, wd_status st, const char *why)
{
    snprintf(c->fault, sizeof c->fault, "%s", why);
    c->samples = 0;
    job->run->failed += st != WD_ENOTSUP && st != WD_ENOMEM;
}

static bool wants_more(const struct job *job, const struct subject *s)
{
    const struct bench_case *c = &job->run->cases[s->at];
    return !c->fault[0] && c->samples < BENCH_SAMPLES && (c->samples < MIN_ROUNDS || s->spent_ns < job->budget_ns);
}

static void take_turn(struct job *job, struct subject *s)
{
    struct bench_case *c = &job->run->cases[s->at];
    const uint64_t start = wd_now_ns();
    const wd_status st = wd_meter_round(&job->meter, run_again, s->trial, &c->sample_ns[c->samples]);
    if (st)
        add_fault(job, c, st, wd_last_error());
    else
        c->samples++;
    s->spent_ns += (double)(wd_now_ns() - start);
}

static wd_status take_rate(struct job *job, enum wd_rate which, struct bench_rate *rate)
{
    if (rate->samples == BENCH_SAMPLES) /* the latest ones: the first batch is not the whole run */
        memmove(rate->sample, rate->sample + 1, --rate->samples * sizeof rate->sample[0]);
    return wd_meter_rate_round(&job->meter, which, &rate->sample[rate->samples++]);
}

/* The cases that are done. */
static void show(struct job *job)
{
    struct bench_run *run = job->run;
    const struct bench_watcher *w = job->watcher;
    if (!job->begun) {
        bench_set_rate(&run->copy, false);
        bench_set_rate(&run->fma, true);
        w->begin(w->user, run);
        job->begun = true;
    }
    for (; job->shown < run->count; job->shown++) {
        struct bench_case *c = &run->cases[job->shown];
        if (!c->fault[0])
            bench_set_floor(c, run);
        bench_summarise(c);
        w->show(w->user, c);
    }
}

/* The subjects' rounds, until none wants more; then they leave. */
static wd_status take_turns(struct job *job)
{
    wd_status st = WD_OK;
    bool more = job->subjects > 0;
    for (unsigned round = 1; more && !st; round++) {
        more = false;
        cli_progress("[%zu/%zu] timing, round %u", job->run->count, job->total, round);
        for (size_t i = 0; i < job->subjects; i++)
            if (wants_more(job, &job->subject[i])) {
                take_turn(job, &job->subject[i]);
                more = true;
            }
        if (more && !(st = take_rate(job, WD_RATE_COPY, &job->run->copy)))
            st = take_rate(job, WD_RATE_FMA, &job->run->fma);
    }
    for (size_t i = 0; i < job->subjects; i++)
        wd_trial_destroy(job->subject[i].trial);
    job->subjects = 0;
    job->bytes = 0;
    if (!st)
        show(job);
    return st;
}

/* ---- One case ---- */

static void describe(struct bench_case *c, const struct wd_trial *t, const struct wd_choice *choice)
{
    struct wd_text text = {0};
    wd_choice_text(choice, &text);
    snprintf(c->variant, sizeof c->variant, "%s", choice->variant->name);
    snprintf(c->choice, sizeof c->choice, "%s", text.data ? text.data : "");
    snprintf(c->reason, sizeof c->reason, "%s", choice->reason);
    wd_text_free(&text);
    c->bytes = t->p.bytes;
    c->flops = t->p.op->flops(&t->p);
}

/* Makes a trial that has been checked and has warmed up, unless its result is wrong. */
static wd_status prepare(struct job *job, const struct wd_problem *p, struct bench_case *c, struct wd_trial **trial,
                         struct wd_trial_result *result)
{
    const struct wd_trial_options options = {.seed = 1, .gates = WD_GATES_MILD, .queue = wd_context_queue(job->ctx)};
    const struct wd_plan *plan = NULL;
    wd_status st = wd_trial_create(job->ctx, p, &options, trial);
    if (st || (st = wd_plan_get(job->ctx, &(*trial)->p, &plan)) || (st = wd_trial_run(*trial, NULL, NULL)) ||
        (st = wd_trial_check(*trial, result)) || !result->ok)
        return st;
    c->error = result->error;
    describe(c, *trial, &plan->choice);
    wd_trial_lighten(*trial);
    for (int i = 0; i < 2 && !st; i++)
        st = run_again(*trial);
    return st;
}

/* Correctness first: a wrong kernel has no time. */
static wd_status add_case(struct job *job, const struct wd_problem *p)
{
    struct wd_trial_result result = {.ok = true};
    struct wd_trial *trial = NULL;
    wd_status st = WD_OK;
    if (job->subjects == MAX_TOGETHER || job->bytes + p->bytes > (double)job->ctx->caps.global_bytes / 4)
        st = take_turns(job);
    struct bench_case *c = st ? NULL : bench_add(job->run);
    if (st || !c)
        return st ? st : wd_fail(WD_ENOMEM, "bench: out of memory");
    snprintf(c->operation, sizeof c->operation, "%s", p->op->name);
    shape_text(p, c->shape);
    cli_progress("[%zu/%zu] %s %s: checking", job->run->count, job->total, c->operation, c->shape);
    st = prepare(job, p, c, &trial, &result);
    if (st || !result.ok) {
        add_fault(job, c, st, st ? wd_last_error() : result.text);
        wd_trial_destroy(trial);
        return WD_OK;
    }
    job->subject[job->subjects++] = (struct subject){.at = job->run->count - 1, .trial = trial};
    job->bytes += p->bytes;
    return WD_OK;
}

/* ---- All ---- */

static void introduce(struct bench_run *run, const struct wd_caps *caps)
{
    const time_t now = time(NULL);
    struct tm utc;
    snprintf(run->version, sizeof run->version, "%s", wd_version());
    snprintf(run->device, sizeof run->device, "%s", caps->name);
    snprintf(run->driver, sizeof run->driver, "%s", caps->driver);
    snprintf(run->platform, sizeof run->platform, "%s", caps->platform_version);
    if (gmtime_r(&now, &utc))
        strftime(run->date, sizeof run->date, "%Y-%m-%d %H:%M UTC", &utc);
}

wd_status bench_measure(wd_context *ctx, const struct bench_list *list, double budget_ns,
                        const struct bench_watcher *watcher, struct bench_run *run)
{
    struct job job = {.ctx = ctx, .run = run, .watcher = watcher, .budget_ns = budget_ns, .total = list->count};
    introduce(run, &ctx->caps);
    cli_progress("measuring the device");
    wd_status st = wd_meter_init(&job.meter, ctx, wd_context_queue(ctx));
    if (st)
        return st;
    st = wd_meter_rates(&job.meter, &run->copy.per_s, &run->fma.per_s);
    for (size_t i = 0; i < list->count && !st; i++)
        st = add_case(&job, &list->problem[i]);
    if (!st)
        st = take_turns(&job);
    for (size_t i = 0; i < job.subjects; i++)
        wd_trial_destroy(job.subject[i].trial);
    cli_progress("%s", "");
    wd_meter_fini(&job.meter);
    return st;
}
