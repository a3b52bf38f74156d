/* SPDX-License-Identifier: MIT */
/*
 * One gated-delta-net layer of Qwen3-Next, on any device: a prompt in one go, then new tokens one by one.
 *
 *     example_qwen3_next [DEVICE]        a name, type or index as `warpdrive devices` prints them
 *
 * What comes in are the results of the layer's input projections: qkv [T][8192], the gates' a [T][32] and b [T][32].
 * What goes out is o [T][32][128], which the model then gates, normalises and projects. Between them:
 *
 *     qkv = silu(causal_conv1d(qkv))                       width 4, depthwise
 *     q, k, v = heads of qkv                               16, 16 and 32 heads of 128; q and k are L2-normalised
 *     gate = -exp(A_log) * softplus(a + dt_bias)           beta = sigmoid(b)
 *     S = S*exp(gate);  S += k (beta * (v - S^T k))^T;  o = S^T q / sqrt(128)
 *
 * A sequence's memory is the convolution's last three inputs and the states S: 8 MB here, however long it is. Weights
 * and inputs are random but fixed, and everything is checked against the same layer in double, token by token.
 */
#include <warpdrive.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    H = 16,                        /* heads of q and k */
    HV = 32,                       /* heads of v */
    K = 128,                       /* size of a head of q and k */
    V = 128,                       /* size of a head of v */
    CHANNELS = 2 * H * K + HV * V, /* of the convolution: q, k and v side by side */
    WIDTH = 4,                     /* of the convolution */
    PROMPT = 150,
    NEW = 20,
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- The layer ---- */

/* Weights. They are read only, so all sequences share them. */
struct layer {
    wd_context *ctx;
    cl_mem conv_weight; /* [CHANNELS][WIDTH] */
    cl_mem A_log;       /* [HV] */
    cl_mem dt_bias;     /* [HV] */
};

/* What a sequence remembers between calls. */
struct memory {
    cl_mem conv;   /* [CHANNELS][WIDTH-1] */
    cl_mem states; /* [HV][K][V] */
};

/* The heads of q, k and v lie beside each other in a token's CHANNELS values: views with strides, no copies. */
static wd_tensor heads(cl_mem qkv, size_t first_channel, size_t head_size)
{
    return (wd_tensor){.mem = qkv, .offset = first_channel, .stride = {0, CHANNELS, head_size}};
}

/* A prompt of T tokens from an empty memory. `mixed` [T][CHANNELS] is scratch. */
static wd_status layer_prompt(const struct layer *l, struct memory *m, size_t T, cl_mem qkv, cl_mem a, cl_mem b,
                              cl_mem mixed, cl_mem o)
{
    wd_status st = wd_causal_conv1d(l->ctx,
                                    &(wd_causal_conv1d_args){
                                        .struct_size = sizeof(wd_causal_conv1d_args),
                                        .B = 1,
                                        .D = CHANNELS,
                                        .S = T,
                                        .W = WIDTH,
                                        .x = {.mem = qkv},
                                        .weight = {.mem = l->conv_weight},
                                        .out = {.mem = mixed},
                                        .final_state = {.mem = m->conv},
                                        .layout = WD_LAYOUT_BSD,
                                        .act = WD_ACT_SILU,
                                    },
                                    NULL);
    if (st)
        return st;
    return wd_gdn_forward(l->ctx,
                          &(wd_gdn_forward_args){
                              .struct_size = sizeof(wd_gdn_forward_args),
                              .B = 1,
                              .T = T,
                              .H = H,
                              .HV = HV,
                              .K = K,
                              .V = V,
                              .q = heads(mixed, 0, K),
                              .k = heads(mixed, H * K, K),
                              .v = heads(mixed, 2 * H * K, V),
                              .g = {.mem = a},
                              .beta = {.mem = b},
                              .A_log = {.mem = l->A_log},
                              .dt_bias = {.mem = l->dt_bias},
                              .o = {.mem = o},
                              .final_state = {.mem = m->states},
                              .beta_mode = WD_BETA_SIGMOID,
                              .l2norm = true,
                          },
                          NULL);
}

/* One more token, number t of the inputs and outputs. */
static wd_status layer_token(const struct layer *l, struct memory *m, size_t t, cl_mem qkv, cl_mem a, cl_mem b,
                             cl_mem mixed, cl_mem o)
{
    wd_status st = wd_causal_conv1d_update(l->ctx,
                                           &(wd_causal_conv1d_update_args){
                                               .struct_size = sizeof(wd_causal_conv1d_update_args),
                                               .B = 1,
                                               .D = CHANNELS,
                                               .W = WIDTH,
                                               .x = {.mem = qkv, .offset = t * CHANNELS},
                                               .weight = {.mem = l->conv_weight},
                                               .state = {.mem = m->conv},
                                               .out = {.mem = mixed},
                                               .act = WD_ACT_SILU,
                                           },
                                           NULL);
    if (st)
        return st;
    return wd_gdn_decode(l->ctx,
                         &(wd_gdn_decode_args){
                             .struct_size = sizeof(wd_gdn_decode_args),
                             .B = 1,
                             .H = H,
                             .HV = HV,
                             .K = K,
                             .V = V,
                             .q = heads(mixed, 0, K),
                             .k = heads(mixed, H * K, K),
                             .v = heads(mixed, 2 * H * K, V),
                             .g = {.mem = a, .offset = t * HV},
                             .beta = {.mem = b, .offset = t * HV},
                             .A_log = {.mem = l->A_log},
                             .dt_bias = {.mem = l->dt_bias},
                             .state = {.mem = m->states},
                             .o = {.mem = o, .offset = t * HV * V},
                             .beta_mode = WD_BETA_SIGMOID,
                             .l2norm = true,
                         },
                         NULL);
}

/* ---- The same in double, token by token ---- */

/* One head of v: `mixed` [T][CHANNELS], a and b [T][HV], o [T][HV][V]. */
static void reference_head(size_t T, size_t hv, const double *mixed, const float *a, const float *b, float A_log,
                           float dt_bias, double *o)
{
    static double S[K][V];
    memset(S, 0, sizeof S);
    for (size_t t = 0; t < T; t++) {
        const double *q = mixed + t * CHANNELS + hv / (HV / H) * K, *k = q + H * K;
        const double *v = mixed + t * CHANNELS + 2 * H * K + hv * V;
        const double x = (double)a[t * HV + hv] + (double)dt_bias;
        const double decay = exp(-exp((double)A_log) * log1p(exp(x))), beta = 1 / (1 + exp(-(double)b[t * HV + hv]));
        double qq = 1e-6, kk = 1e-6, delta[V], *out = o + (t * HV + hv) * V;
        for (size_t i = 0; i < K; i++) {
            qq += q[i] * q[i];
            kk += k[i] * k[i];
        }
        for (size_t j = 0; j < V; j++) {
            delta[j] = v[j];
            out[j] = 0;
        }
        for (size_t i = 0; i < K; i++)
            for (size_t j = 0; j < V; j++) {
                S[i][j] *= decay;
                delta[j] -= S[i][j] * k[i] / sqrt(kk);
            }
        for (size_t i = 0; i < K; i++)
            for (size_t j = 0; j < V; j++) {
                S[i][j] += k[i] / sqrt(kk) * beta * delta[j];
                out[j] += S[i][j] * q[i] / sqrt(qq) / sqrt(K);
            }
    }
}

static void reference_conv(size_t T, const float *qkv, const float *weight, double *mixed)
{
    for (size_t t = 0; t < T; t++)
        for (size_t c = 0; c < CHANNELS; c++) {
            double sum = 0;
            for (size_t w = 0; w < WIDTH; w++)
                if (t + w + 1 >= WIDTH)
                    sum += (double)weight[c * WIDTH + w] * (double)qkv[(t + w + 1 - WIDTH) * CHANNELS + c];
            mixed[t * CHANNELS + c] = sum / (1 + exp(-sum));
        }
}

/* ---- Main ---- */

/* Prints the library's account of a failure and ends the program. */
static void must(wd_status status)
{
    if (status == WD_OK)
        return;
    fprintf(stderr, "%s\n", wd_last_error());
    exit(1);
}

static void *allocate(size_t count, size_t size)
{
    void *p = calloc(count, size);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

/* `count` numbers around `middle`, the same in every run: the sum of four uniform ones. */
static float *random_values(size_t count, float middle, float spread)
{
    static uint32_t state = 1;
    float *x = allocate(count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        float sum = -2;
        for (int n = 0; n < 4; n++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) / 16777216.0f;
        }
        x[i] = middle + spread * sum;
    }
    return x;
}

static cl_mem upload(wd_context *ctx, const float *data, size_t count)
{
    cl_mem mem;
    must(wd_buffer_create(ctx, count * sizeof *data, data, &mem));
    return mem;
}

/* |x - want| / |want| over `count` values. */
static double relative_error(const float *x, const double *want, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)x[i] - want[i]) * ((double)x[i] - want[i]);
        norm += want[i] * want[i];
    }
    return sqrt(difference / norm);
}

int main(int argc, char **argv)
{
    const size_t T = PROMPT + NEW, row = HV * V;
    float *weight = random_values(CHANNELS * WIDTH, 0, 0.5f), *A_log = random_values(HV, -1, 1);
    float *dt_bias = random_values(HV, -2, 1), *qkv = random_values(T * CHANNELS, 0, 1);
    float *a = random_values(T * HV, 0, 1), *b = random_values(T * HV, 0, 2), *o = allocate(T * row, sizeof *o);

    wd_context *ctx;
    must(wd_open(argc > 1 ? argv[1] : NULL, &ctx));
    struct layer layer = {ctx, upload(ctx, weight, CHANNELS * WIDTH), upload(ctx, A_log, HV), upload(ctx, dt_bias, HV)};
    struct memory memory = {upload(ctx, NULL, CHANNELS * (WIDTH - 1)), upload(ctx, NULL, HV * K * V)};
    cl_mem qkv_in = upload(ctx, qkv, T * CHANNELS), a_in = upload(ctx, a, T * HV), b_in = upload(ctx, b, T * HV);
    cl_mem mixed = upload(ctx, NULL, PROMPT * CHANNELS), out = upload(ctx, NULL, T * row);

    must(layer_prompt(&layer, &memory, PROMPT, qkv_in, a_in, b_in, mixed, out));
    for (size_t t = PROMPT; t < T; t++)
        must(layer_token(&layer, &memory, t, qkv_in, a_in, b_in, mixed, out));
    must(wd_buffer_read(ctx, out, 0, T * row * sizeof *o, o));

    double *ref_mixed = allocate(T * CHANNELS, sizeof *ref_mixed), *ref_o = allocate(T * row, sizeof *ref_o);
    reference_conv(T, qkv, weight, ref_mixed);
    for (size_t hv = 0; hv < HV; hv++)
        reference_head(T, hv, ref_mixed, a, b, A_log[hv], dt_bias[hv], ref_o);
    const double prompt_error = relative_error(o, ref_o, PROMPT * row);
    const double token_error = relative_error(o + PROMPT * row, ref_o + PROMPT * row, NEW * row);
    const int ok = prompt_error <= 1e-5 && token_error <= 1e-5; /* not so if either is NaN */
    printf("prompt of %d tokens: relative error %.1e\n%d tokens one by one: relative error %.1e\n%s\n", PROMPT,
           prompt_error, NEW, token_error, ok ? "ok" : "WRONG: the bar is 1e-5");

    cl_mem buffers[] = {
        layer.conv_weight, layer.A_log, layer.dt_bias, memory.conv, memory.states, qkv_in, a_in, b_in, mixed, out};
    for (size_t i = 0; i < COUNT(buffers); i++)
        wd_buffer_destroy(buffers[i]);
    wd_context_destroy(ctx);
    float *arrays[] = {weight, A_log, dt_bias, qkv, a, b, o};
    for (size_t i = 0; i < COUNT(arrays); i++)
        free(arrays[i]);
    free(ref_mixed);
    free(ref_o);
    return !ok;
}
