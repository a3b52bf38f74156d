/* SPDX-License-Identifier: MIT */
/*
 * `make bench-cpu`: every operation on the CPU against plain C with OpenMP and, for matrix work, OpenBLAS.
 *
 * All forms of a case compute the same from the same random arrays, in the same memory, and are compared first. Then
 * they run in turn, round after round and every other round backwards, caches emptied before each. The table shows
 * medians, the median of the per-round ratios with its range, our share of the copy rate or multiply-add peak measured
 * in the same run, and how much faster than one core all of them are, ours and C's.
 *
 * usage: bench_cpu [-p] [PATTERN]    cases whose name holds PATTERN
 *   -p   processor time of all threads over their number, instead of time: where other programs run beside. Rates are
 *        measured in time all the same.
 */
#include "baseline.h"
#include "bench.h"
#include "context.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 9, ROUNDS_ONE = 5, PAGE = 4096 };

void bench_check(wd_status st)
{
    if (!st)
        return;
    fprintf(stderr, "%s: %s\n", wd_status_string(st), wd_last_error());
    exit(1);
}

static void check_cl(cl_int err, const char *what)
{
    if (!err)
        return;
    fprintf(stderr, "%s: OpenCL error %d\n", what, err);
    exit(1);
}

static float *allocate(size_t bytes)
{
    float *p = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    if (!p)
        exit(1);
    return p;
}

/* ---- Arrays ---- */

float *bench_array(struct bench *b, size_t n, size_t element)
{
    struct bench_array *a = &b->array[b->num_arrays++];
    *a = (struct bench_array){.bytes = n * element, .element = element};
    a->host = allocate(a->bytes);
    memset(a->host, 0xff, a->bytes);
    for (int i = 0; i < BENCH_NUM_SIDES; i++) {
        cl_int err;
        a->mem[i] = clCreateBuffer(b->side[i].cl, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, a->bytes, a->host, &err);
        check_cl(err, "clCreateBuffer");
    }
    return a->host;
}

static void drop_arrays(struct bench *b)
{
    for (size_t i = 0; i < b->num_arrays; i++) {
        for (int j = 0; j < BENCH_NUM_SIDES; j++)
            clReleaseMemObject(b->array[i].mem[j]);
        free(b->array[i].host);
    }
    b->num_arrays = 0;
}

/* ---- The two sides ---- */

static void open_side(struct bench_side *s, cl_device_id device, int threads)
{
    cl_int err;
    s->threads = threads;
    s->cl = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    check_cl(err, "clCreateContext");
    s->launch.queue = clCreateCommandQueue(s->cl, device, 0, &err);
    check_cl(err, "clCreateCommandQueue");
    const wd_context_desc desc = {.struct_size = sizeof desc, .context = s->cl};
    bench_check(wd_context_create(&desc, &s->ctx));
    bench_check(wd_meter_init(&s->meter, s->ctx, s->launch.queue));
    bench_check(wd_meter_rates(&s->meter, &s->copy_rate, &s->fma_rate));
}

static void close_side(struct bench_side *s)
{
    wd_meter_fini(&s->meter);
    wd_context_destroy(s->ctx);
    clReleaseCommandQueue(s->launch.queue);
    clReleaseContext(s->cl);
}

static void open_sides(struct bench *b)
{
    wd_context *found;
    bench_check(wd_open("cpu", &found));
    cl_device_id device = wd_context_device(found), one;
    wd_context_destroy(found);
    const cl_device_partition_property single[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1,
                                                   CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    check_cl(clCreateSubDevices(device, single, 1, &one, NULL), "clCreateSubDevices");
    open_side(&b->side[ALL_CORES], device, omp_get_max_threads());
    open_side(&b->side[ONE_CORE], one, 1);
}

/* ---- Comparing ---- */

static float *copy_of(const struct bench_array *a)
{
    return memcpy(allocate(a->bytes), a->host, a->bytes);
}

static bool same_array(const struct bench_array *a, const float *want)
{
    const uint8_t *got8 = (const uint8_t *)a->host, *want8 = (const uint8_t *)want;
    double diff = 0, norm = 0;
    bool ok = true;
    if (a->element == 1) /* C's rounding of s may differ in the last place, so a code by one step */
        for (size_t i = 0; i < a->bytes; i++)
            ok = ok && abs(got8[i] - want8[i]) <= 1;
    else
        for (size_t i = 0; i < a->bytes / sizeof *want; i++) {
            diff += ((double)a->host[i] - (double)want[i]) * ((double)a->host[i] - (double)want[i]);
            norm += (double)want[i] * (double)want[i];
        }
    return ok && diff <= 1e-10 * norm;
}

/* Runs a form and waits for it. */
static void run(struct bench *b, const struct bench_case *c, enum bench_form form)
{
    c->run(b, &c->shape, form);
    if (form == OURS)
        check_cl(clFinish(b->at->launch.queue), "clFinish");
}

/* C's outputs and states against ours, from the same inputs. */
static bool same(struct bench *b, const struct bench_case *c)
{
    float *before[BENCH_MAX_ARRAYS], *want[BENCH_MAX_ARRAYS];
    bool ok = true;
    for (size_t i = 0; i < b->num_arrays; i++)
        before[i] = copy_of(&b->array[i]);
    run(b, c, PLAIN_C);
    for (size_t i = 0; i < b->num_arrays; i++) {
        want[i] = copy_of(&b->array[i]);
        memcpy(b->array[i].host, before[i], b->array[i].bytes);
    }
    run(b, c, OURS);
    for (size_t i = 0; i < b->num_arrays; i++) {
        ok = ok && (b->array[i].scratch || same_array(&b->array[i], want[i]));
        free(before[i]);
        free(want[i]);
    }
    return ok;
}

/* ---- Timing ---- */

struct result {
    double ms[BENCH_NUM_FORMS][ROUNDS], ratio[BENCH_NUM_FORMS][ROUNDS]; /* sorted; form / ours */
    int rounds;
};

static double now_ms(const struct bench *b)
{
    struct timespec t;
    clock_gettime(b->processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return ((double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6) / (b->processor_time ? b->at->threads : 1);
}

static double timed(struct bench *b, const struct bench_case *c, enum bench_form form)
{
    bench_check(wd_meter_flush(&b->at->meter));
    check_cl(clFinish(b->at->launch.queue), "clFinish");
    const double start = now_ms(b);
    run(b, c, form);
    return now_ms(b) - start;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_case(struct bench *b, const struct bench_case *c, enum bench_cores cores, int forms, struct result *t)
{
    b->at = &b->side[cores];
    omp_set_num_threads(b->at->threads);
    t->rounds = cores == ONE_CORE ? ROUNDS_ONE : ROUNDS;
    run(b, c, OURS);
    for (int r = 0; r < t->rounds; r++) {
        for (int i = 0; i < forms; i++) {
            const int f = r % 2 ? forms - 1 - i : i;
            t->ms[f][r] = timed(b, c, (enum bench_form)f);
        }
        for (int f = 0; f < forms; f++)
            t->ratio[f][r] = t->ms[f][r] / t->ms[OURS][r];
    }
    for (int f = 0; f < forms; f++) {
        qsort(t->ms[f], (size_t)t->rounds, sizeof t->ms[f][0], by_value);
        qsort(t->ratio[f], (size_t)t->rounds, sizeof t->ratio[f][0], by_value);
    }
}

static double median(const struct result *t, enum bench_form form)
{
    return t->ms[form][t->rounds / 2];
}

static void print_case(struct bench *b, const struct bench_case *c)
{
    struct result all, one;
    const struct bench_side *side = &b->side[ALL_CORES];
    time_case(b, c, ALL_CORES, c->blas ? 3 : 2, &all);
    time_case(b, c, ONE_CORE, 2, &one);
    const double s = median(&all, OURS) * 1e-3;
    printf("%-38s %8.3f %8.3f  %5.2f (%.2f..%.2f)", c->shape.name, median(&all, OURS), median(&all, PLAIN_C),
           all.ratio[PLAIN_C][ROUNDS / 2], all.ratio[PLAIN_C][0], all.ratio[PLAIN_C][ROUNDS - 1]);
    if (c->blas)
        printf(" %8.3f  %5.2f", median(&all, BLAS), all.ratio[BLAS][ROUNDS / 2]);
    else
        printf(" %8s  %5s", "-", "-");
    if (c->flops > 0)
        printf("  %6.1f GFLOP/s %3.0f %% of FMA ", c->flops / s * 1e-9, 100 * c->flops / s / side->fma_rate);
    else
        printf("  %6.1f GB/s    %3.0f %% of copy", c->bytes / s * 1e-9, 100 * c->bytes / s / side->copy_rate);
    printf("  %4.2f  %4.2f\n", median(&one, OURS) / median(&all, OURS), median(&one, PLAIN_C) / median(&all, PLAIN_C));
    fflush(stdout);
}

static void print_head(const struct bench *b)
{
    const struct bench_side *all = &b->side[ALL_CORES], *one = &b->side[ONE_CORE];
    const double c_peak = base_fma_rate();
    printf("%s: copy %.1f GB/s (one core %.1f, x %.2f), multiply-add %.1f GFLOP/s (one core %.1f, x %.2f; C %.1f)\n",
           all->ctx->caps.name, all->copy_rate * 1e-9, one->copy_rate * 1e-9, all->copy_rate / one->copy_rate,
           all->fma_rate * 1e-9, one->fma_rate * 1e-9, all->fma_rate / one->fma_rate, c_peak * 1e-9);
    if (c_peak < 0.75 * one->fma_rate)
        printf(
            "C's own loop had no core to itself: other work, or threads pinned to one core; its times are too long\n");
    printf("%s in ms, medians of %d rounds; the last columns: all cores over one, ours and C; OpenBLAS for %s\n",
           b->processor_time ? "processor time" : "times", ROUNDS, blas_core());
    printf("%-38s %8s %8s  %-18s %8s  %5s  %-27s  %4s  %4s\n", "case", "ours", "C", "C/ours (range)", "OpenBLAS",
           "ratio", "rate", "ours", "C");
}

int main(int argc, char **argv)
{
    static struct bench b = {.seed = 1};
    int failures = 0;
    blas_begin(argv);
    b.processor_time = argc > 1 && strcmp(argv[1], "-p") == 0;
    const char *pattern = argc > 1 + b.processor_time ? argv[1 + b.processor_time] : "";
    open_sides(&b);
    print_head(&b);
    for (size_t i = 0; i < bench_num_cases; i++) {
        const struct bench_case *c = &bench_cases[i];
        if (!strstr(c->shape.name, pattern))
            continue;
        b.at = &b.side[ALL_CORES];
        omp_set_num_threads(b.at->threads);
        c->setup(&b, &c->shape);
        if (same(&b, c))
            print_case(&b, c);
        else {
            printf("%-38s ours and C differ\n", c->shape.name);
            failures++;
        }
        drop_arrays(&b);
    }
    for (int i = 0; i < BENCH_NUM_SIDES; i++)
        close_side(&b.side[i]);
    return failures ? 1 : 0;
}
