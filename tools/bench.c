/* SPDX-License-Identifier: MIT */
/* A run of `warpdrive bench` in memory. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

struct bench_case *bench_add(struct bench_run *run)
{
    struct bench_case *grown = realloc(run->cases, (run->count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    run->cases = grown;
    grown[run->count] = (struct bench_case){0};
    return &grown[run->count++];
}

void bench_free(struct bench_run *run)
{
    free(run->cases);
    *run = (struct bench_run){0};
}

static void sort_samples(double sorted[BENCH_SAMPLES], const double *sample, size_t n)
{
    memcpy(sorted, sample, n * sizeof *sample);
    qsort(sorted, n, sizeof *sample, wd_by_value);
}

void bench_sort(const struct bench_case *c, double sorted[BENCH_SAMPLES])
{
    sort_samples(sorted, c->sample_ns, c->samples);
}

void bench_summarise(struct bench_case *c)
{
    double sorted[BENCH_SAMPLES] = {0};
    if (c->samples == 0)
        return;
    sort_samples(sorted, c->sample_ns, c->samples);
    c->median_ns = fmax(sorted[c->samples / 2], 1);
    c->min_ns = sorted[0];
    c->max_ns = sorted[c->samples - 1];
}

void bench_set_floor(struct bench_case *c, const struct bench_run *run)
{
    const double memory_ns = c->bytes / run->copy.per_s * 1e9, math_ns = c->flops / run->fma.per_s * 1e9;
    c->memory_bound = memory_ns >= math_ns;
    c->floor_ns = fmax(memory_ns, math_ns);
}

void bench_set_rate(struct bench_rate *rate, bool peak)
{
    double sorted[BENCH_SAMPLES] = {0};
    if (rate->samples == 0)
        return;
    sort_samples(sorted, rate->sample, rate->samples);
    rate->per_s = sorted[peak ? rate->samples - 1 : rate->samples / 2];
}
