/* SPDX-License-Identifier: MIT */
#include "baseline.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { C = 64 };

/* ---- The peak ---- */

enum { CHAINS = 12, STEPS = 1 << 22, RUNS = 5 };

#ifdef __AVX512F__
typedef float lanes __attribute__((vector_size(64)));
#else
typedef float lanes __attribute__((vector_size(32)));
#endif

/* Twelve chains: two multiply-adds a cycle, each four or five cycles long, need ten. */
static float multiply_add(float factor)
{
    lanes c[CHAINS];
    for (int k = 0; k < CHAINS; k++)
        c[k] = (lanes){(float)k} + factor;
    for (int i = 0; i < STEPS; i++)
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++)
            c[k] = c[k] * factor + 0.25f;
    for (int k = 1; k < CHAINS; k++)
        c[0] += c[k];
    return c[0][0];
}

double base_fma_rate(void)
{
    double best = 1e9;
    int threads = 1;
    for (int run = 0; run < RUNS; run++) {
        volatile float factor = 0.5f;
        float sum = 0;
        const double start = omp_get_wtime();
#pragma omp parallel reduction(+ : sum)
        {
            sum += multiply_add(factor);
#pragma omp single
            threads = omp_get_num_threads();
        }
        const double s = omp_get_wtime() - start;
        best = s < best && sum > 0 ? s : best;
    }
    return 2.0 * CHAINS * STEPS * (sizeof(lanes) / sizeof(float)) * threads / best;
}

/* ---- fp8_quant ---- */

static float group_scale(size_t group, const float *x)
{
    float m = 1e-10f;
    for (size_t i = 0; i < group; i++) {
        const float a = fabsf(x[i]);
        m = a > m ? a : m;
    }
    return m / 448.0f;
}

static float clamp448(float v)
{
    v = v > 448.0f ? 448.0f : v;
    return v < -448.0f ? -448.0f : v;
}

void base_fp8_quant(size_t tokens, size_t hidden, size_t group, const float *x, float *q, float *s)
{
#pragma omp parallel for schedule(static)
    for (size_t g = 0; g < tokens * hidden / group; g++) {
        const float scale = s[g] = group_scale(group, x + g * group);
        for (size_t i = 0; i < group; i++)
            q[g * group + i] = clamp448(x[g * group + i] / scale);
    }
}

/* Rounds half to even into 3 bits of mantissa; below 2^-6 into multiples of 2^-9. |v| <= 448. */
static uint8_t e4m3(float v)
{
    uint32_t b, magic;
    memcpy(&b, &v, 4);
    const uint32_t a = b & 0x7fffffffu;
    const uint32_t normal = ((a + 0x7ffffu + ((a >> 20) & 1)) >> 20) - 960u;
    const float sum = fabsf(v) + 16384.0f;
    memcpy(&magic, &sum, 4);
    return (uint8_t)((a >= 0x3c800000u ? normal : magic - 0x46800000u) | ((b >> 24) & 0x80u));
}

void base_fp8_quant_e4m3(size_t tokens, size_t hidden, size_t group, const float *x, uint8_t *q, float *s)
{
#pragma omp parallel for schedule(static)
    for (size_t g = 0; g < tokens * hidden / group; g++) {
        const float scale = s[g] = group_scale(group, x + g * group);
        for (size_t i = 0; i < group; i++)
            q[g * group + i] = e4m3(clamp448(x[g * group + i] / scale));
    }
}

/* ---- causal_conv1d ---- */

void base_conv_bds(size_t D, size_t S, const float *x, const float *weight, const float *bias, float *out)
{
#pragma omp parallel for schedule(static)
    for (size_t d = 0; d < D; d++) {
        const float *in = x + d * S, *w = weight + 4 * d;
        float *to = out + d * S;
        for (size_t t = 0; t < 3 && t < S; t++) {
            to[t] = bias[d];
            for (size_t i = 0; i <= t; i++)
                to[t] += w[3 - i] * in[t - i];
        }
        for (size_t t = 3; t < S; t++)
            to[t] = bias[d] + w[0] * in[t - 3] + w[1] * in[t - 2] + w[2] * in[t - 1] + w[3] * in[t];
    }
}

void base_conv_bsd(size_t D, size_t S, const float *x, const float *weight, const float *bias, float *out)
{
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < S; t++) {
        float *to = out + t * D;
        memcpy(to, bias, D * sizeof *to);
        for (size_t i = 0; i < 4 && i <= t; i++) {
            const float *in = x + (t - i) * D;
            for (size_t d = 0; d < D; d++)
                to[d] += weight[4 * d + 3 - i] * in[d];
        }
    }
}

void base_conv_update(size_t B, size_t D, const float *x, const float *weight, const float *bias, float *state,
                      float *out)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < B * D; i++) {
        const float *w = weight + 4 * (i % D);
        float *st = state + 3 * i;
        out[i] = bias[i % D] + w[0] * st[0] + w[1] * st[1] + w[2] * st[2] + w[3] * x[i];
        st[0] = st[1];
        st[1] = st[2];
        st[2] = x[i];
    }
}

/* ---- Gated delta net ---- */

/* c[0..n) += a * b[0..n) */
static inline void axpy(size_t n, float a, const float *restrict b, float *restrict c)
{
    for (size_t i = 0; i < n; i++)
        c[i] += a * b[i];
}

static inline float dot(size_t n, const float *restrict a, const float *restrict b)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

void base_recompute_w_u(struct base_shape s, bool lower, const float *k, const float *v, const float *beta,
                        const float *A, const float *g, float *w, float *u)
{
    const size_t H = s.H;
#pragma omp parallel for schedule(static)
    for (size_t id = 0; id < s.T / C * H; id++) {
        const size_t t0 = id / H * C, h = id % H;
        float bu[C], bw[C];
        for (size_t j = 0; j < C; j++) {
            bu[j] = beta[(t0 + j) * H + h];
            bw[j] = bu[j] * expf(g[(t0 + j) * H + h]);
        }
        for (size_t i = 0; i < C; i++) {
            float *to_u = u + ((t0 + i) * H + h) * s.V, *to_w = w + ((t0 + i) * H + h) * s.K;
            const float *a = A + ((t0 + i) * H + h) * C;
            memset(to_u, 0, s.V * sizeof *to_u);
            memset(to_w, 0, s.K * sizeof *to_w);
            for (size_t j = 0; j < (lower ? i + 1 : C); j++) {
                axpy(s.V, a[j] * bu[j], v + ((t0 + j) * H + h) * s.V, to_u);
                axpy(s.K, a[j] * bw[j], k + ((t0 + j) * H + h) * s.K, to_w);
            }
        }
    }
}

void base_chunk_fwd_h(struct base_shape s, const float *k, const float *w, const float *u, const float *g, float *h,
                      float *v_new)
{
    const size_t H = s.H, K = s.K, V = s.V;
#pragma omp parallel for schedule(static)
    for (size_t hd = 0; hd < H; hd++) {
        float S[K * V];
        memset(S, 0, sizeof S);
        for (size_t c = 0; c < s.T / C; c++) {
            const size_t t0 = c * C;
            const float last = g[(t0 + C - 1) * H + hd], kept = expf(last);
            memcpy(h + (c * H + hd) * K * V, S, sizeof S);
            for (size_t i = 0; i < C; i++) {
                const size_t row = (t0 + i) * H + hd;
                memcpy(v_new + row * V, u + row * V, V * sizeof *u);
                for (size_t j = 0; j < K; j++)
                    axpy(V, -w[row * K + j], S + j * V, v_new + row * V);
            }
            for (size_t j = 0; j < K * V; j++)
                S[j] *= kept;
            for (size_t i = 0; i < C; i++) {
                const size_t row = (t0 + i) * H + hd;
                const float decay = expf(last - g[row]);
                for (size_t j = 0; j < K; j++)
                    axpy(V, k[row * K + j] * decay, v_new + row * V, S + j * V);
            }
        }
    }
}

void base_chunk_fwd_o(struct base_shape s, float scale, const float *q, const float *k, const float *v_new,
                      const float *h, const float *g, float *o)
{
    const size_t H = s.H, K = s.K, V = s.V;
#pragma omp parallel for schedule(static)
    for (size_t id = 0; id < s.T / C * H; id++) {
        const size_t t0 = id / H * C, hd = id % H;
        const float *S = h + id * K * V;
        for (size_t i = 0; i < C; i++) {
            const size_t row = (t0 + i) * H + hd;
            const float gate = scale * expf(g[row]);
            float *to = o + row * V;
            memset(to, 0, V * sizeof *to);
            for (size_t j = 0; j < K; j++)
                axpy(V, q[row * K + j] * gate, S + j * V, to);
            for (size_t j = 0; j <= i; j++) {
                const size_t col = (t0 + j) * H + hd;
                axpy(V, scale * dot(K, q + row * K, k + col * K) * expf(g[row] - g[col]), v_new + col * V, to);
            }
        }
    }
}

void base_gdn_prepare(struct base_shape s, const float *k, const float *gate, const float *beta, float *g, float *A)
{
    const size_t H = s.H, K = s.K;
#pragma omp parallel for schedule(static)
    for (size_t id = 0; id < s.T / C * H; id++) {
        const size_t t0 = id / H * C, h = id % H;
        float sum = 0, inv[C][C] = {{0}};
        for (size_t i = 0; i < C; i++) {
            const size_t row = (t0 + i) * H + h;
            g[row] = sum += gate[row];
            for (size_t j = 0; j < i; j++) {
                const size_t col = (t0 + j) * H + h;
                const float l = beta[row] * dot(K, k + row * K, k + col * K) * expf(g[row] - g[col]);
                axpy(j + 1, -l, inv[j], inv[i]);
            }
            inv[i][i] = 1;
            memcpy(A + row * C, inv[i], sizeof inv[i]);
        }
    }
}

size_t base_forward_scratch(struct base_shape s)
{
    return s.T * s.H * (1 + C + s.K + 2 * s.V) + s.T / C * s.H * s.K * s.V;
}

void base_gdn_forward(struct base_shape s, float scale, const float *q, const float *k, const float *v,
                      const float *gate, const float *beta, float *o, float *scratch)
{
    const size_t rows = s.T * s.H;
    float *g = scratch, *A = g + rows, *w = A + rows * C, *u = w + rows * s.K, *v_new = u + rows * s.V;
    float *h = v_new + rows * s.V;
    base_gdn_prepare(s, k, gate, beta, g, A);
    base_recompute_w_u(s, true, k, v, beta, A, g, w, u);
    base_chunk_fwd_h(s, k, w, u, g, h, v_new);
    base_chunk_fwd_o(s, scale, q, k, v_new, h, g, o);
}

void base_gdn_decode(size_t B, struct base_shape s, float scale, const float *q, const float *k, const float *v,
                     const float *gate, const float *beta, float *state, float *o)
{
    const size_t K = s.K, V = s.V;
#pragma omp parallel for schedule(static)
    for (size_t id = 0; id < B * s.H; id++) {
        float *S = state + id * K * V, *to = o + id * V, delta[V];
        const float decay = expf(gate[id]);
        for (size_t i = 0; i < K * V; i++)
            S[i] *= decay;
        memcpy(delta, v + id * V, sizeof delta);
        for (size_t j = 0; j < K; j++)
            axpy(V, -k[id * K + j], S + j * V, delta);
        memset(to, 0, V * sizeof *to);
        for (size_t j = 0; j < K; j++) {
            axpy(V, k[id * K + j] * beta[id], delta, S + j * V);
            axpy(V, scale * q[id * K + j], S + j * V, to);
        }
    }
}
