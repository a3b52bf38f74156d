/* SPDX-License-Identifier: MIT */
/*
 * The operations in plain C with OpenMP, as a good programmer writes them for a compiler to vectorise: the yardstick
 * of `make bench-cpu`. f32, batch 1, HV = H, T a multiple of 64, tensors packed as in warpdrive.h. The matrix
 * operations also come in a form that gives their products to OpenBLAS.
 */
#ifndef BASELINE_H
#define BASELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The multiply-add peak of all threads, in operations a second: the best of a few short runs. */
double base_fma_rate(void);

void base_fp8_quant(size_t tokens, size_t hidden, size_t group, const float *x, float *q, float *s);
void base_fp8_quant_e4m3(size_t tokens, size_t hidden, size_t group, const float *x, uint8_t *q, float *s);

/* W = 4, with bias, no activation. x and out [D][S] or [S][D]. */
void base_conv_bds(size_t D, size_t S, const float *x, const float *weight, const float *bias, float *out);
void base_conv_bsd(size_t D, size_t S, const float *x, const float *weight, const float *bias, float *out);
/* One token: x and out [B][D], state [B][D][3]. */
void base_conv_update(size_t B, size_t D, const float *x, const float *weight, const float *bias, float *state,
                      float *out);

struct base_shape {
    size_t T, H, K, V;
};

void base_recompute_w_u(struct base_shape s, bool lower, const float *k, const float *v, const float *beta,
                        const float *A, const float *g, float *w, float *u);
void base_chunk_fwd_h(struct base_shape s, const float *k, const float *w, const float *u, const float *g, float *h,
                      float *v_new);
void base_chunk_fwd_o(struct base_shape s, float scale, const float *q, const float *k, const float *v_new,
                      const float *h, const float *g, float *o);
void base_gdn_prepare(struct base_shape s, const float *k, const float *gate, const float *beta, float *g, float *A);
/* scratch: g [T][H], A [T][H][64], w [T][H][K], u and v_new [T][H][V], h [T/64][H][K][V], in this order */
size_t base_forward_scratch(struct base_shape s);
void base_gdn_forward(struct base_shape s, float scale, const float *q, const float *k, const float *v,
                      const float *gate, const float *beta, float *o, float *scratch);
/* One token for each of B sequences: q, k [B][H][K], v, o [B][H][V], gate, beta [B][H], state [B][H][K][V]. */
void base_gdn_decode(size_t B, struct base_shape s, float scale, const float *q, const float *k, const float *v,
                     const float *gate, const float *beta, float *state, float *o);

/* Call it first in main(): lets OpenBLAS use one thread a product, and the kernels that the processor is made for, for
 * which the program may have to start anew. */
void blas_begin(char **argv);
/* Whose kernels it uses, as "SkylakeX". */
const char *blas_core(void);

/* The same with cblas_sgemm, one product a call on one thread, threads over chunks or heads. */
void blas_recompute_w_u(struct base_shape s, const float *k, const float *v, const float *beta, const float *A,
                        const float *g, float *w, float *u);
void blas_chunk_fwd_h(struct base_shape s, const float *k, const float *w, const float *u, const float *g, float *h,
                      float *v_new);
void blas_chunk_fwd_o(struct base_shape s, float scale, const float *q, const float *k, const float *v_new,
                      const float *h, const float *g, float *o);

#endif
