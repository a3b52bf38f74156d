/* SPDX-License-Identifier: MIT */
/*
 * `make bench-cpu`: every operation on the CPU against plain C with OpenMP and, for matrix work, OpenBLAS.
 *
 * All forms of a case compute the same from the same random inputs and are compared first. Then they run in turn,
 * round after round, caches emptied before each, and the table shows medians, the median of the per-round ratios with
 * its range, and our share of the copy rate or multiply-add peak measured in the same run.
 *
 * usage: bench_cpu [PATTERN]    cases whose name holds PATTERN
 */
#include "baseline.h"
#include "measure.h"
#include "context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9, MAX_FORMS = 3, MAX_ARRAYS = 10 };

enum form { OURS, PLAIN_C, BLAS };

/* An array of a case: the host's copy for C, a buffer for us, and what C computed into it. */
struct array {
    size_t n, bytes;
    float *host;
    cl_mem mem;
    bool output;
};

struct bench {
    wd_context *ctx;
    struct wd_meter meter;
    double copy_rate, fma_rate;
    struct array array[MAX_ARRAYS];
    size_t num_arrays;
    uint64_t seed;
};

struct shape {
    const char *name;
    size_t a, b, c, d, e; /* as the case reads them */
};

struct test_case {
    struct shape shape;
    bool blas;
    double bytes, flops;
    /** Makes the arrays (first call) or runs one form. */
    void (*setup)(struct bench *b, const struct shape *s);
    void (*run)(struct bench *b, const struct shape *s, enum form form);
};

/* ---- Arrays ---- */

static float uniform(struct bench *b)
{
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(b->seed >> 40) / (float)(1 << 24);
}

static void check(wd_status st)
{
    if (!st)
        return;
    fprintf(stderr, "%s: %s\n", wd_status_string(st), wd_last_error());
    exit(1);
}

/* low + (high - low) * uniform; outputs have low = high = 0 and begin as NaN. `bytes` an element. */
static float *add(struct bench *b, size_t n, size_t bytes, float low, float high)
{
    struct array *a = &b->array[b->num_arrays++];
    *a = (struct array){.n = n, .bytes = n * bytes, .output = low == high};
    a->host = malloc(a->bytes);
    if (!a->host)
        exit(1);
    if (a->output)
        memset(a->host, 0xff, a->bytes);
    for (size_t i = 0; !a->output && i < n; i++)
        a->host[i] = low + (high - low) * uniform(b);
    check(wd_buffer_create(b->ctx, a->bytes, a->host, &a->mem));
    return a->host;
}

static void unit_rows(float *x, size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++) {
        float sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += x[r * n + i] * x[r * n + i];
        for (size_t i = 0; i < n; i++)
            x[r * n + i] /= sqrtf(sum);
    }
}

/* After the host's copy was changed. */
static void upload(struct bench *b, size_t i)
{
    check(wd_buffer_write(b->ctx, b->array[i].mem, 0, b->array[i].bytes, b->array[i].host));
}

static float *host(struct bench *b, size_t i)
{
    return b->array[i].host;
}

static wd_tensor view(struct bench *b, size_t i)
{
    return (wd_tensor){.mem = b->array[i].mem};
}

static void drop_arrays(struct bench *b)
{
    for (size_t i = 0; i < b->num_arrays; i++) {
        wd_buffer_destroy(b->array[i].mem);
        free(b->array[i].host);
    }
    b->num_arrays = 0;
}

/* Running sums of gates in [-0.1, 0) per chunk of 64, in place. */
static void gate_sums(float *g, size_t T, size_t H)
{
    for (size_t t = 0; t < T; t++)
        for (size_t h = 0; h < H && t % WD_GDN_CHUNK; h++)
            g[t * H + h] += g[(t - 1) * H + h];
}

/* ---- Cases ---- */

static void setup_fp8(struct bench *b, const struct shape *s)
{
    add(b, s->a * s->b, 4, -4, 4);
    add(b, s->a * s->b, s->c, 0, 0);
    add(b, s->a * s->b / 128, 4, 0, 0);
}

static void run_fp8(struct bench *b, const struct shape *s, enum form form)
{
    if (form == OURS) {
        wd_fp8_quant_args a = {
            .struct_size = sizeof a, .tokens = s->a, .hidden = s->b, .x = view(b, 0), .q = view(b, 1), .s = view(b, 2)};
        a.q.dtype = s->c == 1 ? WD_E4M3 : WD_F32;
        check(wd_fp8_quant(b->ctx, &a, NULL));
    } else if (s->c == 1)
        base_fp8_quant_e4m3(s->a, s->b, 128, host(b, 0), (uint8_t *)host(b, 1), host(b, 2));
    else
        base_fp8_quant(s->a, s->b, 128, host(b, 0), host(b, 1), host(b, 2));
}

static void setup_conv(struct bench *b, const struct shape *s)
{
    add(b, s->a * s->b, 4, -1, 1);
    add(b, s->a * 4, 4, -1, 1);
    add(b, s->a, 4, -1, 1);
    add(b, s->a * s->b, 4, 0, 0);
}

static void run_conv(struct bench *b, const struct shape *s, enum form form)
{
    if (form == OURS) {
        wd_causal_conv1d_args a = {.struct_size = sizeof a,
                                   .B = 1,
                                   .D = s->a,
                                   .S = s->b,
                                   .W = 4,
                                   .x = view(b, 0),
                                   .weight = view(b, 1),
                                   .bias = view(b, 2),
                                   .out = view(b, 3),
                                   .layout = s->c ? WD_LAYOUT_BSD : WD_LAYOUT_BDS};
        check(wd_causal_conv1d(b->ctx, &a, NULL));
    } else
        (s->c ? base_conv_bsd : base_conv_bds)(s->a, s->b, host(b, 0), host(b, 1), host(b, 2), host(b, 3));
}

static void setup_update(struct bench *b, const struct shape *s)
{
    add(b, s->a * s->b, 4, -1, 1);
    add(b, s->b * 4, 4, -1, 1);
    add(b, s->b, 4, -1, 1);
    add(b, s->a * s->b * 3, 4, -1, 1);
    add(b, s->a * s->b, 4, 0, 0);
}

static void run_update(struct bench *b, const struct shape *s, enum form form)
{
    if (form == OURS) {
        wd_causal_conv1d_update_args a = {.struct_size = sizeof a,
                                          .B = s->a,
                                          .D = s->b,
                                          .W = 4,
                                          .x = view(b, 0),
                                          .weight = view(b, 1),
                                          .bias = view(b, 2),
                                          .state = view(b, 3),
                                          .out = view(b, 4)};
        check(wd_causal_conv1d_update(b->ctx, &a, NULL));
    } else
        base_conv_update(s->a, s->b, host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4));
}

static struct base_shape gdn(const struct shape *s)
{
    return (struct base_shape){s->a, s->b, s->c, s->d};
}

static void setup_w_u(struct bench *b, const struct shape *s)
{
    const size_t rows = s->a * s->b;
    unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
    upload(b, 0);
    add(b, rows * s->d, 4, -1, 1);
    add(b, rows, 4, 0.1f, 0.9f);
    float *A = add(b, rows * WD_GDN_CHUNK, 4, -0.1f, 0.1f);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < WD_GDN_CHUNK; j++) {
            const size_t i = r / s->b % WD_GDN_CHUNK;
            A[r * WD_GDN_CHUNK + j] = j == i ? 1 : j > i ? 0 : A[r * WD_GDN_CHUNK + j];
        }
    upload(b, 3);
    gate_sums(add(b, rows, 4, -0.1f, -0.01f), s->a, s->b);
    upload(b, 4);
    add(b, rows * s->c, 4, 0, 0);
    add(b, rows * s->d, 4, 0, 0);
}

static void run_w_u(struct bench *b, const struct shape *s, enum form form)
{
    if (form == OURS) {
        wd_recompute_w_u_args a = {.struct_size = sizeof a,
                                   .B = 1,
                                   .T = s->a,
                                   .H = s->b,
                                   .K = s->c,
                                   .V = s->d,
                                   .k = view(b, 0),
                                   .v = view(b, 1),
                                   .beta = view(b, 2),
                                   .A = view(b, 3),
                                   .g = view(b, 4),
                                   .w = view(b, 5),
                                   .u = view(b, 6),
                                   .A_is_lower = s->e};
        check(wd_recompute_w_u(b->ctx, &a, NULL));
    } else if (form == PLAIN_C)
        base_recompute_w_u(gdn(s), s->e, host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4), host(b, 5),
                           host(b, 6));
    else
        blas_recompute_w_u(gdn(s), host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4), host(b, 5), host(b, 6));
}

static void setup_fwd_h(struct bench *b, const struct shape *s)
{
    const size_t rows = s->a * s->b;
    for (size_t i = 0; i < 2; i++) {
        unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
        for (size_t j = 0; i == 1 && j < rows * s->c; j++)
            host(b, 1)[j] *= 0.5f;
        upload(b, i);
    }
    add(b, rows * s->d, 4, -1, 1);
    gate_sums(add(b, rows, 4, -0.1f, -0.01f), s->a, s->b);
    upload(b, 3);
    add(b, s->a / WD_GDN_CHUNK * s->b * s->c * s->d, 4, 0, 0);
    add(b, rows * s->d, 4, 0, 0);
}

static void run_fwd_h(struct bench *b, const struct shape *s, enum form form)
{
    if (form == OURS) {
        wd_chunk_fwd_h_args a = {.struct_size = sizeof a,
                                 .B = 1,
                                 .T = s->a,
                                 .H = s->b,
                                 .K = s->c,
                                 .V = s->d,
                                 .k = view(b, 0),
                                 .w = view(b, 1),
                                 .u = view(b, 2),
                                 .g = view(b, 3),
                                 .h = view(b, 4),
                                 .v_new = view(b, 5)};
        check(wd_chunk_fwd_h(b->ctx, &a, NULL));
    } else
        (form == PLAIN_C ? base_chunk_fwd_h : blas_chunk_fwd_h)(gdn(s), host(b, 0), host(b, 1), host(b, 2), host(b, 3),
                                                                host(b, 4), host(b, 5));
}

static void setup_fwd_o(struct bench *b, const struct shape *s)
{
    const size_t rows = s->a * s->b;
    for (size_t i = 0; i < 2; i++) {
        unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
        upload(b, i);
    }
    add(b, rows * s->d, 4, -1, 1);
    add(b, s->a / WD_GDN_CHUNK * s->b * s->c * s->d, 4, -1, 1);
    gate_sums(add(b, rows, 4, -0.1f, -0.01f), s->a, s->b);
    upload(b, 4);
    add(b, rows * s->d, 4, 0, 0);
}

static void run_fwd_o(struct bench *b, const struct shape *s, enum form form)
{
    const float scale = 1 / sqrtf((float)s->c);
    if (form == OURS) {
        wd_chunk_fwd_o_args a = {.struct_size = sizeof a,
                                 .B = 1,
                                 .T = s->a,
                                 .H = s->b,
                                 .K = s->c,
                                 .V = s->d,
                                 .q = view(b, 0),
                                 .k = view(b, 1),
                                 .v_new = view(b, 2),
                                 .h = view(b, 3),
                                 .g = view(b, 4),
                                 .o = view(b, 5)};
        check(wd_chunk_fwd_o(b->ctx, &a, NULL));
    } else
        (form == PLAIN_C ? base_chunk_fwd_o : blas_chunk_fwd_o)(gdn(s), scale, host(b, 0), host(b, 1), host(b, 2),
                                                                host(b, 3), host(b, 4), host(b, 5));
}

static void setup_prepare(struct bench *b, const struct shape *s)
{
    const size_t rows = s->a * s->b;
    unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
    upload(b, 0);
    add(b, rows, 4, -0.1f, -0.01f);
    add(b, rows, 4, 0.1f, 0.9f);
    add(b, rows, 4, 0, 0);
    add(b, rows * WD_GDN_CHUNK, 4, 0, 0);
}

static void run_prepare(struct bench *b, const struct shape *s, enum form form)
{
    if (form == OURS) {
        wd_gdn_prepare_args a = {.struct_size = sizeof a,
                                 .B = 1,
                                 .T = s->a,
                                 .H = s->b,
                                 .K = s->c,
                                 .k = view(b, 0),
                                 .gate = view(b, 1),
                                 .beta = view(b, 2),
                                 .g = view(b, 3),
                                 .A = view(b, 4)};
        check(wd_gdn_prepare(b->ctx, &a, NULL));
    } else
        base_gdn_prepare(gdn(s), host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4));
}

/* q, k, v, gate, beta, o and, for C, its scratch. */
static void setup_forward(struct bench *b, const struct shape *s)
{
    const size_t rows = s->a * s->b;
    for (size_t i = 0; i < 2; i++) {
        unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
        upload(b, i);
    }
    add(b, rows * s->d, 4, -1, 1);
    add(b, rows, 4, -0.1f, -0.01f);
    add(b, rows, 4, 0.1f, 0.9f);
    add(b, rows * s->d, 4, 0, 0);
    add(b, base_forward_scratch(gdn(s)), 4, -1, 1);
}

static void run_forward(struct bench *b, const struct shape *s, enum form form)
{
    if (form == OURS) {
        wd_gdn_forward_args a = {.struct_size = sizeof a,
                                 .B = 1,
                                 .T = s->a,
                                 .H = s->b,
                                 .K = s->c,
                                 .V = s->d,
                                 .q = view(b, 0),
                                 .k = view(b, 1),
                                 .v = view(b, 2),
                                 .g = view(b, 3),
                                 .beta = view(b, 4),
                                 .o = view(b, 5)};
        check(wd_gdn_forward(b->ctx, &a, NULL));
    } else
        base_gdn_forward(gdn(s), 1 / sqrtf((float)s->c), host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4),
                         host(b, 5), host(b, 6));
}

/* e sequences of one token; T is not used. */
static void setup_decode(struct bench *b, const struct shape *s)
{
    const size_t rows = s->e * s->b;
    for (size_t i = 0; i < 2; i++) {
        unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
        upload(b, i);
    }
    add(b, rows * s->d, 4, -1, 1);
    add(b, rows, 4, -0.1f, -0.01f);
    add(b, rows, 4, 0.1f, 0.9f);
    add(b, rows * s->c * s->d, 4, -1, 1);
    add(b, rows * s->d, 4, 0, 0);
}

static void run_decode(struct bench *b, const struct shape *s, enum form form)
{
    if (form == OURS) {
        wd_gdn_decode_args a = {.struct_size = sizeof a,
                                .B = s->e,
                                .H = s->b,
                                .K = s->c,
                                .V = s->d,
                                .q = view(b, 0),
                                .k = view(b, 1),
                                .v = view(b, 2),
                                .g = view(b, 3),
                                .beta = view(b, 4),
                                .state = view(b, 5),
                                .o = view(b, 6)};
        check(wd_gdn_decode(b->ctx, &a, NULL));
    } else
        base_gdn_decode(s->e, gdn(s), 1 / sqrtf((float)s->c), host(b, 0), host(b, 1), host(b, 2), host(b, 3),
                        host(b, 4), host(b, 5), host(b, 6));
}

/* ---- The table ---- */

#define MB(x)             ((x)*4.0)
#define W_U(T, H, K, V)   2.0 * 64 * (T) * (H) * ((K) + (V))
#define FWD_H(T, H, K, V) 4.0 * (T) * (H) * (K) * (V)
#define FWD_O(T, H, K, V) (T) * (double)(H) * (2.0 * (K) * (V) + 65.0 * ((K) + (V)))
#define PREPARE(T, H, K)  (T) * (double)(H) * (63.0 * (K) + 64 * 64 / 3.0)
#define GDN_CASES(T, H, K, V, label)                                                                                   \
    {{"recompute_w_u " label, T, H, K, V, 0}, true, 0, W_U(T, H, K, V), setup_w_u, run_w_u},                           \
        {{"chunk_fwd_h " label, T, H, K, V, 0}, true, 0, FWD_H(T, H, K, V), setup_fwd_h, run_fwd_h},                   \
    {                                                                                                                  \
        {"chunk_fwd_o " label, T, H, K, V, 0}, true, 0, FWD_O(T, H, K, V), setup_fwd_o, run_fwd_o                      \
    }

static const struct test_case cases[] = {
    {{"fp8_quant f32 4096x7168", 4096, 7168, 4, 0, 0}, false, MB(2.0 * 4096 * 7168), 0, setup_fp8, run_fp8},
    {{"fp8_quant f32 256x4096", 256, 4096, 4, 0, 0}, false, MB(2.0 * 256 * 4096), 0, setup_fp8, run_fp8},
    {{"fp8_quant e4m3 4096x7168", 4096, 7168, 1, 0, 0}, false, 5.0 * 4096 * 7168, 0, setup_fp8, run_fp8},
    {{"conv bds 2560x4096", 2560, 4096, 0, 0, 0}, false, MB(2.0 * 2560 * 4096), 0, setup_conv, run_conv},
    {{"conv bsd 2560x4096", 2560, 4096, 1, 0, 0}, false, MB(2.0 * 2560 * 4096), 0, setup_conv, run_conv},
    {{"conv update 64x8192", 64, 8192, 0, 0, 0}, false, MB(8.0 * 64 * 8192), 0, setup_update, run_update},
    GDN_CASES(2048, 8, 128, 128, "T2048 H8 K128 V128"),
    {{"recompute_w_u lower T2048 H8 K128 V128", 2048, 8, 128, 128, 1},
     true,
     0,
     W_U(2048, 8, 128, 128),
     setup_w_u,
     run_w_u},
    GDN_CASES(2048, 1, 128, 128, "T2048 H1 K128 V128"),
    GDN_CASES(2048, 8, 64, 64, "T2048 H8 K64 V64"),
    GDN_CASES(1024, 8, 100, 100, "T1024 H8 K100 V100"),
    GDN_CASES(1024, 4, 256, 256, "T1024 H4 K256 V256"),
    {{"gdn_prepare T2048 H8 K128", 2048, 8, 128, 128, 0}, false, 0, PREPARE(2048, 8, 128), setup_prepare, run_prepare},
    {{"gdn_forward T2048 H8 K128 V128", 2048, 8, 128, 128, 0},
     false,
     0,
     PREPARE(2048, 8, 128) + W_U(2048, 8, 128, 128) / 2 + FWD_H(2048, 8, 128, 128) + FWD_O(2048, 8, 128, 128),
     setup_forward,
     run_forward},
    {{"gdn_decode B16 HV32 K128 V128", 1, 32, 128, 128, 16},
     false,
     MB(2.0 * 16 * 32 * 128 * 128),
     0,
     setup_decode,
     run_decode},
};

/* ---- Comparing and timing ---- */

static bool same(struct bench *b, const struct test_case *c)
{
    bool ok = true;
    c->run(b, &c->shape, PLAIN_C);
    c->run(b, &c->shape, OURS);
    for (size_t i = 0; i < b->num_arrays; i++) {
        struct array *a = &b->array[i];
        if (!a->output)
            continue;
        float *got = malloc(a->bytes);
        if (!got)
            exit(1);
        check(wd_buffer_read(b->ctx, a->mem, 0, a->bytes, got));
        double diff = 0, norm = 0;
        if (a->bytes == a->n) /* FP8 bytes: C's rounding of s may differ in the last place, so a code by one step */
            for (size_t j = 0; j < a->n; j++) {
                const int d = abs(((uint8_t *)got)[j] - ((uint8_t *)a->host)[j]);
                ok = ok && d <= 1;
            }
        else
            for (size_t j = 0; j < a->n; j++) {
                diff += ((double)got[j] - (double)a->host[j]) * ((double)got[j] - (double)a->host[j]);
                norm += (double)a->host[j] * (double)a->host[j];
            }
        ok = ok && diff <= 1e-10 * norm;
        free(got);
    }
    return ok;
}

static double timed(struct bench *b, const struct test_case *c, enum form form)
{
    check(wd_meter_flush(&b->meter));
    clFinish(b->meter.queue);
    const uint64_t start = wd_now_ns();
    c->run(b, &c->shape, form);
    if (form == OURS)
        clFinish(b->meter.queue);
    return (double)(wd_now_ns() - start) * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_case(struct bench *b, const struct test_case *c)
{
    double ms[MAX_FORMS][ROUNDS], ratio[MAX_FORMS][ROUNDS];
    const int forms = c->blas ? 3 : 2;
    for (int r = 0; r < ROUNDS; r++)
        for (int f = 0; f < forms; f++) {
            ms[f][r] = timed(b, c, (enum form)f);
            ratio[f][r] = ms[f][r] / ms[OURS][r];
        }
    for (int f = 0; f < forms; f++) {
        qsort(ms[f], ROUNDS, sizeof ms[f][0], by_value);
        qsort(ratio[f], ROUNDS, sizeof ratio[f][0], by_value);
    }
    const double s = ms[OURS][ROUNDS / 2] * 1e-3;
    printf("%-40s %9.3f %9.3f  %5.2f (%.2f..%.2f)", c->shape.name, ms[OURS][ROUNDS / 2], ms[PLAIN_C][ROUNDS / 2],
           ratio[PLAIN_C][ROUNDS / 2], ratio[PLAIN_C][0], ratio[PLAIN_C][ROUNDS - 1]);
    if (c->blas)
        printf(" %9.3f  %5.2f", ms[BLAS][ROUNDS / 2], ratio[BLAS][ROUNDS / 2]);
    else
        printf(" %9s  %5s", "-", "-");
    if (c->flops > 0)
        printf("  %7.1f GFLOP/s  %3.0f %% of FMA\n", c->flops / s * 1e-9, 100 * c->flops / s / b->fma_rate);
    else
        printf("  %7.1f GB/s     %3.0f %% of copy\n", c->bytes / s * 1e-9, 100 * c->bytes / s / b->copy_rate);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct bench b = {.seed = 1};
    int failures = 0;
    check(wd_open("cpu", &b.ctx));
    check(wd_meter_init(&b.meter, b.ctx, wd_context_queue(b.ctx)));
    check(wd_meter_rates(&b.meter, &b.copy_rate, &b.fma_rate));
    printf("%s: copy %.1f GB/s, multiply-add %.1f GFLOP/s; times in ms, medians of %d rounds\n", b.ctx->caps.name,
           b.copy_rate * 1e-9, b.fma_rate * 1e-9, ROUNDS);
    printf("%-40s %9s %9s  %-18s %9s  %5s  %s\n", "case", "ours", "C", "C/ours (range)", "OpenBLAS", "ratio", "rate");
    for (size_t i = 0; i < WD_COUNT(cases); i++) {
        if (argc > 1 && !strstr(cases[i].shape.name, argv[1]))
            continue;
        cases[i].setup(&b, &cases[i].shape);
        if (same(&b, &cases[i]))
            print_case(&b, &cases[i]);
        else {
            printf("%-40s ours and C differ\n", cases[i].shape.name);
            failures++;
        }
        drop_arrays(&b);
    }
    wd_meter_fini(&b.meter);
    wd_context_destroy(b.ctx);
    return failures ? 1 : 0;
}
