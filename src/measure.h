/* SPDX-License-Identifier: MIT */
/*
 * Time. One protocol for bench and tuner: warm up, empty the caches by a write of 256 MiB (CPUs: a read) before each
 * run, median over rounds. On a GPU a round is (N x (flush + work) - N x flush) / N, so launch gaps hide alike; on a
 * CPU, where a flush takes longer than most work and varies more, each run is timed by itself from enqueue to
 * completion.
 */
#ifndef WD_MEASURE_H
#define WD_MEASURE_H

#include "launch.h"

/* The tools for timing on one queue. Not for several threads at once. */
struct wd_meter {
    struct wd_context *ctx;
    cl_command_queue queue; /* in order */
    cl_mem scratch;
    size_t scratch_bytes;
    struct wd_kernel *fill, *copy, *fma, *read; /* read: NULL but on CPUs */
};

/** Allocates the scratch buffer (less than 256 MiB on small devices) and compiles what empties the caches. */
wd_status wd_meter_init(struct wd_meter *meter, struct wd_context *ctx, cl_command_queue queue);
void wd_meter_fini(struct wd_meter *meter);

struct wd_timing {
    double median_ns, min_ns, max_ns;
    unsigned rounds;
};

/** What is timed: enqueues its work on the queue without waiting. */
typedef wd_status (*wd_work_fn)(void *user);

/** Times `work`. Rounds until about budget_ns are spent, at least 3 and at most 25. Where stop_ns is not 0, gives up
 *  when the first two rounds are both slower than that. */
wd_status wd_meter_time(struct wd_meter *meter, wd_work_fn work, void *user, double budget_ns, double stop_ns,
                        struct wd_timing *out);

/** One round without a warm-up: for comparisons that take turns. */
wd_status wd_meter_round(struct wd_meter *meter, wd_work_fn work, void *user, double *ns);

/** Enqueues what empties the caches. */
wd_status wd_meter_flush(struct wd_meter *meter);

/** The device's own rates by the same protocol, a second: bytes read plus written (median), and f32 operations, of
 * which a multiply-add is two (the fastest round: whatever runs beside takes from a peak). */
wd_status wd_meter_rates(struct wd_meter *meter, double *bytes_per_s, double *flops_per_s);

/** Times a copy of `bytes`, read and written ones together, 2 MiB at least and no more than scratch_bytes, after
 *  wd_meter_rates(): what a launch and a small size cost. */
wd_status wd_meter_time_copy(struct wd_meter *meter, size_t bytes, double budget_ns, struct wd_timing *out);

enum wd_rate { WD_RATE_COPY, WD_RATE_FMA };

/** One round of either, after wd_meter_rates(): for rates taken in turns with other work. */
wd_status wd_meter_rate_round(struct wd_meter *meter, enum wd_rate rate, double *per_s);

/** For qsort() of times and ratios: doubles, ascending. */
int wd_by_value(const void *a, const void *b);

/** Host time, monotonic. */
uint64_t wd_now_ns(void);

#endif
