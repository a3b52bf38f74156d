/* SPDX-License-Identifier: MIT */
/* The matrix operations with their products given to OpenBLAS. */
#include "baseline.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { C = 64 };

/* OpenBLAS 0.3.21 does not know every virtual machine's processor, and takes kernels of 2004 then. */
static const char *core_to_use(const char *found)
{
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    static const char *const with_avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
    static const char *const with_avx2[] = {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids", NULL};
    const char *const *good = avx512 ? with_avx512 : avx2 ? with_avx2 : NULL;
    for (size_t i = 0; good && good[i]; i++)
        if (strcmp(found, good[i]) == 0)
            return NULL;
    return good ? good[0] : NULL;
}

void blas_begin(char **argv)
{
    const char *core = core_to_use(openblas_get_corename());
    if (core && !getenv("OPENBLAS_CORETYPE")) { /* it is read when the library is loaded */
        setenv("OPENBLAS_CORETYPE", core, 1);
        execv("/proc/self/exe", argv);
    }
    openblas_set_num_threads(1); /* products are small and each thread of ours has its own: more would only wait */
}

const char *blas_core(void)
{
    return openblas_get_corename();
}

/* c[m][n] = alpha * a[m][k] @ b[k][n] + beta * c, rows lda, ldb, ldc apart. */
static void product(size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda, const float *b, size_t ldb,
                    float beta, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb,
                beta, c, (int)ldc);
}

/* c[m][n] = alpha * a[k][m]^T @ b[k][n] + beta * c */
static void product_tn(size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda, const float *b,
                       size_t ldb, float beta, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta,
                c, (int)ldc);
}

void blas_recompute_w_u(struct base_shape s, const float *k, const float *v, const float *beta, const float *A,
                        const float *g, float *w, float *u)
{
    const size_t H = s.H, K = s.K, V = s.V;
#pragma omp parallel for schedule(static)
    for (size_t id = 0; id < s.T / C * H; id++) {
        const size_t row = id / H * C * H + id % H;
        float bv[C * V], bk[C * K];
        for (size_t j = 0; j < C; j++) {
            const size_t at = row + j * H;
            const float b = beta[at], e = b * expf(g[at]);
            for (size_t i = 0; i < V; i++)
                bv[j * V + i] = b * v[at * V + i];
            for (size_t i = 0; i < K; i++)
                bk[j * K + i] = e * k[at * K + i];
        }
        product(C, V, C, 1, A + row * C, H * C, bv, V, 0, u + row * V, H * V);
        product(C, K, C, 1, A + row * C, H * C, bk, K, 0, w + row * K, H * K);
    }
}

void blas_chunk_fwd_h(struct base_shape s, const float *k, const float *w, const float *u, const float *g, float *h,
                      float *v_new)
{
    const size_t H = s.H, K = s.K, V = s.V;
#pragma omp parallel for schedule(static)
    for (size_t hd = 0; hd < H; hd++) {
        float S[K * V], decayed[C * V];
        memset(S, 0, sizeof S);
        for (size_t c = 0; c < s.T / C; c++) {
            const size_t row = c * C * H + hd;
            const float last = g[row + (C - 1) * H];
            memcpy(h + (c * H + hd) * K * V, S, sizeof S);
            for (size_t i = 0; i < C; i++)
                memcpy(v_new + (row + i * H) * V, u + (row + i * H) * V, V * sizeof *u);
            product(C, V, K, -1, w + row * K, H * K, S, V, 1, v_new + row * V, H * V);
            for (size_t i = 0; i < C; i++) {
                const float decay = expf(last - g[row + i * H]);
                for (size_t j = 0; j < V; j++)
                    decayed[i * V + j] = decay * v_new[(row + i * H) * V + j];
            }
            product_tn(K, V, C, 1, k + row * K, H * K, decayed, V, expf(last), S, V);
        }
    }
}

void blas_chunk_fwd_o(struct base_shape s, float scale, const float *q, const float *k, const float *v_new,
                      const float *h, const float *g, float *o)
{
    const size_t H = s.H, K = s.K, V = s.V;
#pragma omp parallel for schedule(static)
    for (size_t id = 0; id < s.T / C * H; id++) {
        const size_t row = id / H * C * H + id % H;
        float scores[C * C];
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, C, C, (int)K, scale, q + row * K, (int)(H * K),
                    k + row * K, (int)(H * K), 0, scores, C);
        product(C, V, K, scale, q + row * K, H * K, h + id * K * V, V, 0, o + row * V, H * V);
        for (size_t i = 0; i < C; i++) {
            const float gi = g[row + i * H], e = expf(gi);
            for (size_t j = 0; j < V; j++)
                o[(row + i * H) * V + j] *= e;
            for (size_t j = 0; j < C; j++)
                scores[i * C + j] = j <= i ? scores[i * C + j] * expf(gi - g[row + j * H]) : 0;
        }
        product(C, V, C, 1, scores, C, v_new + row * V, H * V, 1, o + row * V, H * V);
    }
}
