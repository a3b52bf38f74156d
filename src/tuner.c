/* SPDX-License-Identifier: MIT */
#include "tuner.h"
#include "context.h"
#include "embedded.h"
#include "search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- The journal ---- */

char *wd_tuner_journal_path(const char *tuning_file)
{
    const size_t n = strlen(tuning_file) + sizeof ".journal";
    char *path = malloc(n);
    if (path)
        snprintf(path, n, "%s.journal", tuning_file);
    return path;
}

/* Of the kernels' text (FNV-1a): trials of others say nothing. */
static uint32_t kernels_hash(void)
{
    uint32_t h = 2166136261u;
    for (const struct wd_embedded *e = wd_embedded; e->name; e++)
        for (size_t i = 0; i < e->size; i++)
            h = (h ^ (unsigned char)e->text[i]) * 16777619u;
    return h;
}

/* What the keys of this library's journals begin with. */
static void key_beginning(struct wd_text *key)
{
    wd_text_add(key, "%s %08x ", wd_version(), (unsigned)kernels_hash());
}

/* All that a trial's time depends on, besides its candidate. */
static void journal_key(const struct wd_tuner *t, const struct wd_problem *p, struct wd_text *key)
{
    key_beginning(key);
    wd_device_text(&t->ctx->caps, key);
    wd_text_add(key, " %s ", p->op->name);
    wd_class_text(p, key);
    for (size_t i = 0; i < p->op->num_dims; i++)
        if (p->op->dims[i].offset != WD_DERIVED && p->op->dims[i].kind != WD_DIM_FIXED)
            wd_text_add(key, " %s=%zu", p->op->dims[i].name, p->dim[i]);
}

static struct wd_journal *open_journal(const struct wd_context *ctx, bool wait)
{
    char *path = ctx->tuning.user_file ? wd_tuner_journal_path(ctx->tuning.user_file) : NULL;
    struct wd_journal *journal = path ? wd_journal_open(path, wait, &ctx->log) : NULL;
    struct wd_text beginning = {0};
    key_beginning(&beginning);
    if (!beginning.failed)
        wd_journal_keep(journal, beginning.data);
    wd_text_free(&beginning);
    free(path);
    return journal;
}

bool wd_tuner_ended(const struct wd_tuner *t, const struct wd_problem *p)
{
    struct wd_text key = {0};
    journal_key(t, p, &key);
    const bool ended = !key.failed && wd_journal_ended(t->journal, key.data);
    wd_text_free(&key);
    return ended;
}

void wd_tuner_forget(struct wd_tuner *t, const struct wd_problem *p)
{
    struct wd_text key = {0};
    journal_key(t, p, &key);
    if (!key.failed)
        wd_journal_forget(t->journal, key.data);
    wd_text_free(&key);
}

/* ---- Set-up ---- */

wd_status wd_tuner_init(struct wd_tuner *t, struct wd_context *ctx, bool wait)
{
    cl_int err;
    *t = (struct wd_tuner){.ctx = ctx};
    t->queue = clCreateCommandQueue(ctx->cl, ctx->caps.id, 0, &err);
    if (!t->queue)
        return wd_fail_cl(err, "tuner", "clCreateCommandQueue");
    const wd_status st = wd_meter_init(&t->meter, ctx, t->queue);
    if (st) {
        wd_tuner_fini(t);
        return st;
    }
    t->journal = open_journal(ctx, wait);
    return WD_OK;
}

void wd_tuner_fini(struct wd_tuner *t)
{
    wd_journal_close(t->journal);
    wd_meter_fini(&t->meter);
    if (t->queue)
        clReleaseCommandQueue(t->queue);
    *t = (struct wd_tuner){0};
}

/* ---- The search ---- */

struct job {
    struct wd_tuner *t;
    const struct wd_problem *p;
    const struct wd_tune_options *o;
    struct wd_search search;
    struct wd_contest contest;
    struct wd_text key;
    uint64_t start;
    size_t fresh;      /* trials made, not known from the journal */
    double longest_ns; /* of them, compiling included: another may take as long */
    bool stopped;      /* by whoever watches */
};

static double best_ns(const struct wd_search *s)
{
    return s->best == SIZE_MAX ? 0 : s->candidate[s->best].ns;
}

/* Tells whoever watches; false: stop. */
static bool tell(struct job *job, const char *choice, double ns, const char *why)
{
    const struct wd_search *s = &job->search;
    struct wd_text best = {0};
    if (!job->o->watch)
        return true;
    if (s->best != SIZE_MAX) {
        const struct wd_choice c = wd_search_choice(s, s->best);
        wd_choice_text(&c, &best);
    }
    const struct wd_tune_event event = {
        .choice = choice,
        .ns = ns,
        .why = why,
        .tried = s->tried,
        .total = s->count,
        .best = best.data ? best.data : "",
        .best_ns = best_ns(s),
    };
    const bool go_on = job->o->watch(job->o->user, &event);
    wd_text_free(&best);
    return go_on;
}

/* One candidate, or what the journal knows of it. */
static wd_status try_next(struct job *job, size_t at, const struct wd_choice *choice, const char *name)
{
    struct wd_journal *journal = job->t->journal;
    char why[WD_CONTEST_TEXT] = "";
    double ns = wd_journal_find(journal, job->key.data, name);
    if (ns > 0) {
        wd_search_tell(&job->search, at, ns);
        return WD_OK;
    }
    job->stopped = !tell(job, name, 0, NULL);
    if (job->stopped)
        return WD_OK;
    wd_journal_start(journal, job->key.data, name);
    const uint64_t start = wd_now_ns();
    const wd_status st = wd_contest_try(&job->contest, choice, best_ns(&job->search), job->o->trial_ns, &ns, why);
    if (st)
        return st;
    wd_journal_finish(journal, job->key.data, name, ns, why);
    wd_search_tell(&job->search, at, ns);
    job->longest_ns = fmax(job->longest_ns, (double)(wd_now_ns() - start));
    job->fresh++;
    if (isinf(ns))
        wd_log(&job->t->ctx->log, WD_LOG_INFO, "tuning: %s: %s: %s", job->p->op->name, name, why);
    job->stopped = !tell(job, name, ns, why);
    return WD_OK;
}

static wd_status search(struct job *job, bool *ended)
{
    size_t at;
    wd_status st = WD_OK;
    *ended = false;
    while (!st && !job->stopped) {
        if (job->fresh && (double)(wd_now_ns() - job->start) + job->longest_ns > job->o->budget_ns)
            return WD_OK;
        if (!wd_search_next(&job->search, &at)) {
            *ended = true;
            return WD_OK;
        }
        struct wd_text name = {0};
        const struct wd_choice choice = wd_search_choice(&job->search, at);
        wd_choice_text(&choice, &name);
        st = name.failed ? wd_fail(WD_ENOMEM, "tuner: out of memory") : try_next(job, at, &choice, name.data);
        wd_text_free(&name);
    }
    return st;
}

/* ---- The verdict ---- */

/* A trial that is better by less than this is as good as the model's, where no comparison says more. */
static const double noise = 1.03;

/* The best trial of many is also the luckiest: what counts is how it does in turns with the model's choice. It takes
 * that one's place only if it is surely faster, so that no record makes a call slower. */
static wd_status take_turns(struct job *job, struct wd_tune_result *r)
{
    struct wd_turns *turns = &r->turns;
    const double limit_ns = job->stopped ? 0 : 10 * job->o->trial_ns; /* who stopped the search waits for this one */
    tell(job, NULL, 0, NULL);
    const wd_status st = wd_contest_turns(&job->contest, &r->model, &r->best, limit_ns, turns);
    if (st || !turns->pairs)
        return st;
    r->lost = turns->low <= 1;
    r->model_ns = turns->a_ns;
    r->best_ns = turns->b_ns;
    return WD_OK;
}

/* The winner's outputs were wrong after all. */
static void disqualify(struct job *job, const struct wd_choice *choice)
{
    struct wd_text name = {0};
    wd_choice_text(choice, &name);
    if (!name.failed)
        wd_journal_finish(job->t->journal, job->key.data, name.data, INFINITY, "its outputs differ from the model's");
    wd_text_free(&name);
    wd_search_tell(&job->search, job->search.best, INFINITY);
}

static wd_status conclude(struct job *job, struct wd_tune_result *r)
{
    const struct wd_search *s = &job->search;
    wd_status st = WD_OK;
    r->model = wd_search_choice(s, 0);
    r->model_ns = s->models && s->candidate[0].ns > 0 ? s->candidate[0].ns : INFINITY;
    while (s->best != SIZE_MAX && !st) {
        r->best = wd_search_choice(s, s->best);
        r->best_ns = best_ns(s);
        r->lost = s->best != 0 && r->best_ns * noise > r->model_ns && !job->o->confirm;
        if (s->best == 0 || isinf(r->model_ns) || !job->o->confirm || (st = take_turns(job, r)) || r->turns.pairs)
            break;
        disqualify(job, &r->best);
    }
    if (s->best == SIZE_MAX)
        return wd_fail(WD_ENOTSUP, "wd_%s: none of %zu candidates works on %s", job->p->op->name, s->tried,
                       job->t->ctx->caps.name);
    if (r->lost) {
        r->best = r->model;
        r->best_ns = r->model_ns;
    }
    snprintf(r->best.reason, sizeof r->best.reason, "measured: %.1f us, %zu of %zu candidates tried", r->best_ns * 1e-3,
             s->tried, s->count);
    return st;
}

wd_status wd_tuner_run(struct wd_tuner *t, const struct wd_problem *p, const struct wd_tune_options *o,
                       struct wd_tune_result *r)
{
    struct job job = {.t = t, .p = p, .o = o, .start = wd_now_ns()};
    *r = (struct wd_tune_result){0};
    journal_key(t, p, &job.key);
    wd_status st = wd_search_init(&job.search, &t->ctx->caps, p);
    if (!st && job.key.failed)
        st = wd_fail(WD_ENOMEM, "tuner: out of memory");
    if (!st)
        st = wd_contest_init(&job.contest, &t->meter, p, o->check_ns);
    if (!st)
        st = search(&job, &r->ended);
    r->tried = job.search.tried;
    r->total = job.search.count;
    if (!st && r->tried)
        st = conclude(&job, r);
    if (!st && r->ended)
        wd_journal_end(t->journal, job.key.data);
    wd_contest_fini(&job.contest);
    wd_search_fini(&job.search);
    wd_text_free(&job.key);
    return st;
}

/* ---- Keeping it ---- */

const char wd_note_model[] = "the model's choice";

static bool is_models(const struct wd_tune_result *r)
{
    return r->best.variant == r->model.variant && memcmp(r->best.param, r->model.param, sizeof r->best.param) == 0;
}

/* "# 57.1 us 512.3 GB/s 1.03x model (1.01 to 1.05) tokens=256 hidden=4096 7/7 tried 0.1.0 2026-11-30" */
static void provenance(const struct wd_problem *p, const struct wd_tune_result *r, struct wd_text *note)
{
    const double bytes = p->bytes, flops = p->op->flops(p);
    const bool arithmetic = flops > 8 * bytes;
    char date[16] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(date, sizeof date, "%Y-%m-%d", &utc);
    wd_text_add(note, "# %.1f us %.1f %s ", r->best_ns * 1e-3, (arithmetic ? flops : bytes) / r->best_ns,
                arithmetic ? "GFLOP/s" : "GB/s");
    if (isinf(r->model_ns))
        wd_text_add(note, "where the model's choice does not work");
    else if (is_models(r))
        wd_text_add(note, "%s", wd_note_model);
    else if (r->turns.pairs)
        wd_text_add(note, "%.2fx model (%.2f to %.2f)", r->turns.ratio, r->turns.low, r->turns.high);
    else
        wd_text_add(note, "%.2fx model", r->model_ns / r->best_ns);
    for (size_t i = 0; i < p->op->num_dims; i++)
        if (p->op->dims[i].offset != WD_DERIVED && p->op->dims[i].kind != WD_DIM_FIXED && p->dim[i])
            wd_text_add(note, " %s=%zu", p->op->dims[i].name, p->dim[i]);
    wd_text_add(note, " %zu/%zu tried %s %s", r->tried, r->total, wd_version(), date);
}

wd_status wd_tuner_save(const struct wd_tuner *t, const struct wd_problem *p, const struct wd_tune_result *r)
{
    struct wd_text device = {0}, class_text = {0}, choice = {0}, note = {0};
    const char *file = t->ctx->tuning.user_file;
    if (!file)
        return WD_OK;
    wd_device_text(&t->ctx->caps, &device);
    wd_class_text(p, &class_text);
    wd_choice_text(&r->best, &choice);
    provenance(p, r, &note);
    const struct wd_record record = {
        .op = p->op->name, .device = device.data, .class_ = class_text.data, .choice = choice.data, .note = note.data};
    const wd_status st = device.failed || class_text.failed || choice.failed || note.failed
                             ? wd_fail(WD_ENOMEM, "tuner: out of memory")
                             : wd_records_save(file, &record);
    wd_text_free(&device);
    wd_text_free(&class_text);
    wd_text_free(&choice);
    wd_text_free(&note);
    return st;
}

/* ---- WD_TUNE_MISSING ---- */

wd_status wd_tuner_missing(struct wd_context *ctx, const struct wd_problem *p, struct wd_choice *choice)
{
    const uint64_t start = wd_now_ns();
    const double limit_ns = ctx->tune_limit_ms * 1e6;
    struct wd_tuner t;
    struct wd_tune_result r;
    wd_status st = wd_tuner_init(&t, ctx, false);
    if (st)
        return st;
    /* A third is for the comparison of the winner, if it is another than the model's, with that. */
    const struct wd_tune_options options = {.budget_ns = fmax(limit_ns * 2 / 3 - (double)(wd_now_ns() - start), 0),
                                            .trial_ns = limit_ns / 40,
                                            .check_ns = limit_ns / 10,
                                            .confirm = true};
    st = wd_tuner_run(&t, p, &options, &r);
    if (!st) {
        *choice = r.best;
        wd_log(&ctx->log, WD_LOG_INFO, "tuning: %s: %s in %.1f s", p->op->name, choice->reason,
               (double)(wd_now_ns() - start) * 1e-9);
        wd_tuner_forget(&t, p);
        if (wd_tuner_save(&t, p, &r))
            wd_log(&ctx->log, WD_LOG_WARNING, "tuning: the result is not kept: %s", wd_last_error());
    }
    wd_tuner_fini(&t);
    return st;
}
