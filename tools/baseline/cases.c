/* SPDX-License-Identifier: MIT */
/* The cases of `make bench-cpu`: for each operation its random inputs, and one call of each form. */
#include "baseline.h"
#include "bench.h"

#include <math.h>

/* ---- Inputs ---- */

static float uniform(struct bench *b)
{
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(b->seed >> 40) / (float)(1 << 24);
}

/* low + (high - low) * uniform; outputs have low = high = 0 and stay NaN. `bytes` an element. */
static float *add(struct bench *b, size_t n, size_t bytes, float low, float high)
{
    float *x = bench_array(b, n, bytes);
    for (size_t i = 0; low < high && i < n; i++)
        x[i] = low + (high - low) * uniform(b);
    return x;
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

/* Running sums of gates in [-0.1, 0) per chunk of 64, in place. */
static void gate_sums(float *g, size_t T, size_t H)
{
    for (size_t t = 0; t < T; t++)
        for (size_t h = 0; h < H && t % WD_GDN_CHUNK; h++)
            g[t * H + h] += g[(t - 1) * H + h];
}

static float *host(struct bench *b, size_t i)
{
    return b->array[i].host;
}

static wd_tensor view(struct bench *b, size_t i)
{
    return (wd_tensor){.mem = b->array[i].mem[b->at - b->side]};
}

/* ---- Cases ---- */

static void setup_fp8(struct bench *b, const struct bench_shape *s)
{
    add(b, s->a * s->b, 4, -4, 4);
    add(b, s->a * s->b, s->c, 0, 0);
    add(b, s->a * s->b / 128, 4, 0, 0);
}

static void run_fp8(struct bench *b, const struct bench_shape *s, enum bench_form form)
{
    if (form == OURS) {
        wd_fp8_quant_args a = {
            .struct_size = sizeof a, .tokens = s->a, .hidden = s->b, .x = view(b, 0), .q = view(b, 1), .s = view(b, 2)};
        a.q.dtype = s->c == 1 ? WD_E4M3 : WD_F32;
        bench_check(wd_fp8_quant(b->at->ctx, &a, &b->at->launch));
    } else if (s->c == 1)
        base_fp8_quant_e4m3(s->a, s->b, 128, host(b, 0), (uint8_t *)host(b, 1), host(b, 2));
    else
        base_fp8_quant(s->a, s->b, 128, host(b, 0), host(b, 1), host(b, 2));
}

static void setup_conv(struct bench *b, const struct bench_shape *s)
{
    add(b, s->a * s->b, 4, -1, 1);
    add(b, s->a * 4, 4, -1, 1);
    add(b, s->a, 4, -1, 1);
    add(b, s->a * s->b, 4, 0, 0);
}

static void run_conv(struct bench *b, const struct bench_shape *s, enum bench_form form)
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
        bench_check(wd_causal_conv1d(b->at->ctx, &a, &b->at->launch));
    } else
        (s->c ? base_conv_bsd : base_conv_bds)(s->a, s->b, host(b, 0), host(b, 1), host(b, 2), host(b, 3));
}

static void setup_update(struct bench *b, const struct bench_shape *s)
{
    add(b, s->a * s->b, 4, -1, 1);
    add(b, s->b * 4, 4, -1, 1);
    add(b, s->b, 4, -1, 1);
    add(b, s->a * s->b * 3, 4, -1, 1);
    add(b, s->a * s->b, 4, 0, 0);
}

static void run_update(struct bench *b, const struct bench_shape *s, enum bench_form form)
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
        bench_check(wd_causal_conv1d_update(b->at->ctx, &a, &b->at->launch));
    } else
        base_conv_update(s->a, s->b, host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4));
}

static struct base_shape gdn(const struct bench_shape *s)
{
    return (struct base_shape){s->a, s->b, s->c, s->d};
}

static void setup_w_u(struct bench *b, const struct bench_shape *s)
{
    const size_t rows = s->a * s->b;
    unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
    add(b, rows * s->d, 4, -1, 1);
    add(b, rows, 4, 0.1f, 0.9f);
    float *A = add(b, rows * WD_GDN_CHUNK, 4, -0.1f, 0.1f);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < WD_GDN_CHUNK; j++) {
            const size_t i = r / s->b % WD_GDN_CHUNK;
            A[r * WD_GDN_CHUNK + j] = j == i ? 1 : j > i ? 0 : A[r * WD_GDN_CHUNK + j];
        }
    gate_sums(add(b, rows, 4, -0.1f, -0.01f), s->a, s->b);
    add(b, rows * s->c, 4, 0, 0);
    add(b, rows * s->d, 4, 0, 0);
}

/* e: 0 all of A, 1 its lower triangle, 2 ours the triangle and C all. */
static void run_w_u(struct bench *b, const struct bench_shape *s, enum bench_form form)
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
                                   .A_is_lower = s->e > 0};
        bench_check(wd_recompute_w_u(b->at->ctx, &a, &b->at->launch));
    } else if (form == PLAIN_C)
        base_recompute_w_u(gdn(s), s->e == 1, host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4), host(b, 5),
                           host(b, 6));
    else
        blas_recompute_w_u(gdn(s), host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4), host(b, 5), host(b, 6));
}

static void setup_fwd_h(struct bench *b, const struct bench_shape *s)
{
    const size_t rows = s->a * s->b;
    for (size_t i = 0; i < 2; i++) {
        unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
        for (size_t j = 0; i == 1 && j < rows * s->c; j++)
            host(b, 1)[j] *= 0.5f;
    }
    add(b, rows * s->d, 4, -1, 1);
    gate_sums(add(b, rows, 4, -0.1f, -0.01f), s->a, s->b);
    add(b, s->a / WD_GDN_CHUNK * s->b * s->c * s->d, 4, 0, 0);
    add(b, rows * s->d, 4, 0, 0);
}

static void run_fwd_h(struct bench *b, const struct bench_shape *s, enum bench_form form)
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
        bench_check(wd_chunk_fwd_h(b->at->ctx, &a, &b->at->launch));
    } else
        (form == PLAIN_C ? base_chunk_fwd_h : blas_chunk_fwd_h)(gdn(s), host(b, 0), host(b, 1), host(b, 2), host(b, 3),
                                                                host(b, 4), host(b, 5));
}

static void setup_fwd_o(struct bench *b, const struct bench_shape *s)
{
    const size_t rows = s->a * s->b;
    for (size_t i = 0; i < 2; i++)
        unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
    add(b, rows * s->d, 4, -1, 1);
    add(b, s->a / WD_GDN_CHUNK * s->b * s->c * s->d, 4, -1, 1);
    gate_sums(add(b, rows, 4, -0.1f, -0.01f), s->a, s->b);
    add(b, rows * s->d, 4, 0, 0);
}

static void run_fwd_o(struct bench *b, const struct bench_shape *s, enum bench_form form)
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
        bench_check(wd_chunk_fwd_o(b->at->ctx, &a, &b->at->launch));
    } else
        (form == PLAIN_C ? base_chunk_fwd_o : blas_chunk_fwd_o)(gdn(s), scale, host(b, 0), host(b, 1), host(b, 2),
                                                                host(b, 3), host(b, 4), host(b, 5));
}

static void setup_prepare(struct bench *b, const struct bench_shape *s)
{
    const size_t rows = s->a * s->b;
    unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
    add(b, rows, 4, -0.1f, -0.01f);
    add(b, rows, 4, 0.1f, 0.9f);
    add(b, rows, 4, 0, 0);
    add(b, rows * WD_GDN_CHUNK, 4, 0, 0);
}

static void run_prepare(struct bench *b, const struct bench_shape *s, enum bench_form form)
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
        bench_check(wd_gdn_prepare(b->at->ctx, &a, &b->at->launch));
    } else
        base_gdn_prepare(gdn(s), host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4));
}

/* q, k, v, gate, beta, o and, for C, its scratch. */
static void setup_forward(struct bench *b, const struct bench_shape *s)
{
    const size_t rows = s->a * s->b;
    for (size_t i = 0; i < 2; i++)
        unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
    add(b, rows * s->d, 4, -1, 1);
    add(b, rows, 4, -0.1f, -0.01f);
    add(b, rows, 4, 0.1f, 0.9f);
    add(b, rows * s->d, 4, 0, 0);
    add(b, base_forward_scratch(gdn(s)), 4, 0, 0);
    b->array[6].scratch = true;
}

static void run_forward(struct bench *b, const struct bench_shape *s, enum bench_form form)
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
        bench_check(wd_gdn_forward(b->at->ctx, &a, &b->at->launch));
    } else
        base_gdn_forward(gdn(s), 1 / sqrtf((float)s->c), host(b, 0), host(b, 1), host(b, 2), host(b, 3), host(b, 4),
                         host(b, 5), host(b, 6));
}

/* e sequences of one token; T is not used. */
static void setup_decode(struct bench *b, const struct bench_shape *s)
{
    const size_t rows = s->e * s->b;
    for (size_t i = 0; i < 2; i++)
        unit_rows(add(b, rows * s->c, 4, -1, 1), rows, s->c);
    add(b, rows * s->d, 4, -1, 1);
    add(b, rows, 4, -0.1f, -0.01f);
    add(b, rows, 4, 0.1f, 0.9f);
    add(b, rows * s->c * s->d, 4, -1, 1);
    add(b, rows * s->d, 4, 0, 0);
}

static void run_decode(struct bench *b, const struct bench_shape *s, enum bench_form form)
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
        bench_check(wd_gdn_decode(b->at->ctx, &a, &b->at->launch));
    } else
        base_gdn_decode(s->e, gdn(s), 1 / sqrtf((float)s->c), host(b, 0), host(b, 1), host(b, 2), host(b, 3),
                        host(b, 4), host(b, 5), host(b, 6));
}

/* ---- The list ---- */

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

#define LOWER(label, e)                                                                                                \
    {                                                                                                                  \
        {label, 2048, 8, 128, 128, e}, true, 0, W_U(2048, 8, 128, 128), setup_w_u, run_w_u                             \
    }

const struct bench_case bench_cases[] = {
    {{"fp8_quant f32 4096x7168", 4096, 7168, 4, 0, 0}, false, MB(2.0 * 4096 * 7168), 0, setup_fp8, run_fp8},
    {{"fp8_quant f32 256x4096", 256, 4096, 4, 0, 0}, false, MB(2.0 * 256 * 4096), 0, setup_fp8, run_fp8},
    {{"fp8_quant e4m3 4096x7168", 4096, 7168, 1, 0, 0}, false, 5.0 * 4096 * 7168, 0, setup_fp8, run_fp8},
    {{"conv bds 2560x4096", 2560, 4096, 0, 0, 0}, false, MB(2.0 * 2560 * 4096), 0, setup_conv, run_conv},
    {{"conv bsd 2560x4096", 2560, 4096, 1, 0, 0}, false, MB(2.0 * 2560 * 4096), 0, setup_conv, run_conv},
    {{"conv update 64x8192", 64, 8192, 0, 0, 0}, false, MB(8.0 * 64 * 8192), 0, setup_update, run_update},
    GDN_CASES(2048, 8, 128, 128, "T2048 H8 K128 V128"),
    LOWER("recompute_w_u lower, C too, T2048 H8", 1),
    LOWER("recompute_w_u lower, C full, T2048 H8", 2),
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

const size_t bench_num_cases = sizeof bench_cases / sizeof bench_cases[0];
