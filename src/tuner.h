/* SPDX-License-Identifier: MIT */
/*
 * Measuring which variant and numbers serve a problem best: candidates and their order from search.h, each measured as
 * contest.h says, all that is known kept in a journal (journal.h). In the end the winner and the model's choice take
 * turns; a winner that is not surely faster is not kept.
 *
 * Buffers and queue are the tuner's own. Not thread-safe; wd_tuner_missing() is, if the context's lock is held.
 */
#ifndef WD_TUNER_H
#define WD_TUNER_H

#include "contest.h"
#include "journal.h"

struct wd_tuner {
    struct wd_context *ctx;
    cl_command_queue queue; /* in order */
    struct wd_meter meter;
    struct wd_journal *journal; /* beside the context's tuning file; NULL: nothing is kept */
};

/** `wait`: for another process that holds the journal; else this one goes without. */
wd_status wd_tuner_init(struct wd_tuner *t, struct wd_context *ctx, bool wait);
void wd_tuner_fini(struct wd_tuner *t);

/** A trial that begins (ns 0) or has ended, or the comparison with the model's choice, which begins. Strings live until
 *  the callback returns. */
struct wd_tune_event {
    const char *choice; /* NULL: the comparison */
    double ns;          /* INFINITY: of no use, and `why` says why not */
    const char *why;
    size_t tried, total; /* candidates */
    const char *best;    /* "": none yet */
    double best_ns;
};

struct wd_tune_options {
    double budget_ns; /* no candidate begins that may not end within; at least one is tried */
    double trial_ns;  /* about how long the rounds of one candidate take */
    double check_ns;  /* about how long a reference may take */
    bool confirm;     /* compare the winner with the model's choice in turns, for about ten times trial_ns */
    /** May be NULL. False: no further candidate. */
    bool (*watch)(void *user, const struct wd_tune_event *event);
    void *user;
};

struct wd_tune_result {
    struct wd_choice best, model;
    double best_ns,
        model_ns;          /* medians of the turns, or of their trials; model_ns INFINITY: the model's is of no use */
    struct wd_turns turns; /* model against best; no pairs: they are the same, or there was no comparison */
    size_t tried, total;
    bool ended; /* the search came to its end */
    bool lost;  /* another candidate had the best trial, but is not surely faster: best is the model's */
};

/** Searches. `p` is checked; its buffers are not looked at. WD_ENOTSUP: no candidate works.
 *  WD_OK with tried 0 if it was stopped before the first. */
wd_status wd_tuner_run(struct wd_tuner *t, const struct wd_problem *p, const struct wd_tune_options *options,
                       struct wd_tune_result *result);

/** What a record's note says where tuning found nothing that is surely faster than the model's choice. */
extern const char wd_note_model[];

/** Writes a result into the context's tuning file. WD_OK where there is none. */
wd_status wd_tuner_save(const struct wd_tuner *t, const struct wd_problem *p, const struct wd_tune_result *result);

/** Did an earlier run, whose journal is still there, come to this search's end? */
bool wd_tuner_ended(const struct wd_tuner *t, const struct wd_problem *p);
/** Removes from the journal what is known of a problem. */
void wd_tuner_forget(struct wd_tuner *t, const struct wd_problem *p);

/** WD_TUNE_MISSING: a choice for a class of which no record speaks, found within the context's limit and kept in its
 *  tuning file. */
wd_status wd_tuner_missing(struct wd_context *ctx, const struct wd_problem *p, struct wd_choice *choice);

/** Where the journal of a tuning file lies; free() it. */
char *wd_tuner_journal_path(const char *tuning_file);

#endif
