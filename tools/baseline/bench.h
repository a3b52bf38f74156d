/* SPDX-License-Identifier: MIT */
/*
 * What bench_cpu.c (comparing, timing, the table) and cases.c (inputs and calls) share.
 *
 * All forms of a case work on the same memory: our buffers are the host's arrays (CL_MEM_USE_HOST_PTR, which PoCL does
 * not copy), so none has luckier pages than the other.
 */
#ifndef BENCH_H
#define BENCH_H

#include "measure.h"

enum { BENCH_MAX_ARRAYS = 10 };

enum bench_form { OURS, PLAIN_C, BLAS, BENCH_NUM_FORMS };

/* All cores of the CPU, or one of them as a sub-device. */
enum bench_cores { ALL_CORES, ONE_CORE, BENCH_NUM_SIDES };

struct bench_side {
    cl_context cl;
    wd_context *ctx;
    wd_launch launch; /* its queue */
    int threads;      /* for C */
    struct wd_meter meter;
    double copy_rate, fma_rate; /* bytes/s, operations/s */
};

struct bench_array {
    size_t bytes, element;
    float *host;
    cl_mem mem[BENCH_NUM_SIDES];
    bool scratch; /* only C writes it */
};

struct bench {
    struct bench_side side[BENCH_NUM_SIDES], *at; /* at: where calls go now */
    struct bench_array array[BENCH_MAX_ARRAYS];
    size_t num_arrays;
    uint64_t seed;
    bool processor_time; /* of all threads over their number, instead of time */
};

struct bench_shape {
    const char *name;
    size_t a, b, c, d, e; /* as the case reads them */
};

struct bench_case {
    struct bench_shape shape;
    bool blas;
    double bytes, flops; /* moved; or, if not 0, multiplied and added */
    void (*setup)(struct bench *b, const struct bench_shape *s);
    /** Runs one form. OURS is enqueued only. */
    void (*run)(struct bench *b, const struct bench_shape *s, enum bench_form form);
};

extern const struct bench_case bench_cases[];
extern const size_t bench_num_cases;

/** Adds an array of n elements of `element` bytes, all NaN, and its buffers. */
float *bench_array(struct bench *b, size_t n, size_t element);

/** Ends the program if a call failed. */
void bench_check(wd_status st);

#endif
