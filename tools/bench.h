/* SPDX-License-Identifier: MIT */
/*
 * What a run of `warpdrive bench` found: measured (bench_measure.c) or read from the JSON of an earlier run
 * (bench_json.c); shown as a table (cmd_bench.c), as JSON, beside an earlier run (bench_compare.c), and as a
 * chart (bench_plot.c). Only the first knows OpenCL.
 */
#ifndef BENCH_H
#define BENCH_H

#include "cli.h"
#include "json.h"
#include "op.h"
#include "shape.h"
#include "verdict.h"

enum { BENCH_SAMPLES = VERDICT_SAMPLES, BENCH_WORD = 128, BENCH_TEXT = 256 };

/* One of the device's own rates: bytes copied (read plus written), or f32 operations, a second. */
struct bench_rate {
    double per_s;                 /* of those taken in turns with the first cases; all floors rest on it */
    double sample[BENCH_SAMPLES]; /* the latest */
    size_t samples;
};

/* An operation on one shape. */
struct bench_case {
    char operation[BENCH_WORD], shape[SHAPE_TEXT];
    char fault[BENCH_TEXT]; /* why there is no time, and nothing below but the samples' number, 0; "": there is one */
    char variant[BENCH_WORD], choice[BENCH_TEXT], reason[BENCH_TEXT];
    double error; /* against the reference */
    double bytes, flops;
    double floor_ns;                  /* bytes over the copy rate, or operations over the peak: the larger */
    bool memory_bound;                /* which of them it was */
    double sample_ns[BENCH_SAMPLES];  /* in the order in which they were taken */
    size_t samples;                   /* 0 where there is a fault */
    double median_ns, min_ns, max_ns; /* of the samples */
};

struct bench_run {
    char version[BENCH_WORD], date[BENCH_WORD], device[BENCH_WORD], driver[BENCH_WORD], platform[BENCH_WORD];
    struct bench_rate copy, fma;
    struct bench_case *cases;
    size_t count;
    size_t failed; /* cases whose result was wrong */
};

/** Adds an empty case, or returns NULL when memory is exhausted. Cases move when one is added. */
struct bench_case *bench_add(struct bench_run *run);
/** Median and range from the samples; the floor from the run's rates; a rate from its samples, if
 * there are any: the median, or the peak, from which all that runs beside only takes. */
void bench_summarise(struct bench_case *c);
void bench_set_floor(struct bench_case *c, const struct bench_run *run);
void bench_set_rate(struct bench_rate *rate, bool peak);
/** The samples in ascending order. */
void bench_sort(const struct bench_case *c, double sorted[BENCH_SAMPLES]);
void bench_free(struct bench_run *run);

/* ---- bench_measure.c ---- */

struct bench_list {
    struct wd_problem *problem; /* checked; buffers are not looked at */
    size_t count;
};

struct bench_watcher {
    /** The device's rates are known; then each case, in order, as those that took turns are done. */
    void (*begin)(void *user, const struct bench_run *run);
    void (*show)(void *user, const struct bench_case *c);
    void *user;
};

/** Measures everything on the list. `budget_ns`: time for each case's rounds. */
wd_status bench_measure(wd_context *ctx, const struct bench_list *list, double budget_ns,
                        const struct bench_watcher *watcher, struct bench_run *run);

/* ---- bench_json.c ---- */

/** Reads what an earlier run wrote. WD_EIO: the file cannot be read; WD_EINVAL: it is not of that kind, and the error
 *  says where. Either way bench_free() afterwards. */
wd_status bench_read(const char *path, struct bench_run *run);

struct bench_comparison;
/** Writes the run, and the comparison if there is one, as one object. */
void bench_write(struct json *json, const struct bench_run *run, const struct bench_comparison *comparison);

/* ---- bench_compare.c ---- */

struct bench_pair {
    const struct bench_case *before, *now; /* NULL: only in the other run */
    struct verdict_ratio ratio;            /* where the verdict is known */
    enum verdict verdict;
};

struct bench_comparison {
    const char *path;
    const struct bench_run *before;
    double copy_drift, fma_drift; /* how many times as long the device itself takes now */
    struct bench_pair *pair;      /* the cases of the new run in their order, then those which only the old one has */
    size_t count, number[4];      /* pairs, and how many of each verdict */
};

/** WD_EINVAL: `device` is another than the run's of `path`. */
wd_status bench_same_device(const struct bench_run *before, const char *path, const char *device);

/** Both runs outlive the comparison; bench_uncompare() it. */
wd_status bench_compare(const struct bench_run *before, const char *path, const struct bench_run *now,
                        struct bench_comparison *c);
void bench_uncompare(struct bench_comparison *c);
void bench_print_comparison(const struct bench_comparison *c);

/* ---- bench_plot.c ---- */

/** Writes an SVG chart of time over floor. */
wd_status bench_plot(const struct bench_run *run, const char *path);

#endif
