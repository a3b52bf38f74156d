/* SPDX-License-Identifier: MIT */
/*
 * References of the gated delta net.
 *
 * "Gated Delta Networks" (Yang, Kautz, Hatamizadeh 2024, arXiv:2412.06464) gives the recurrence; its chunked form is
 * the WY representation of "Parallelizing Linear Transformers with the Delta Rule over Sequence Length" (Yang et al.
 * 2024, arXiv:2406.06484) with gates, in the notation of the flash-linear-attention project. Raw gates and beta are
 * those of Mamba-2 and Qwen3-Next.
 *
 * The single kernels compute the chunk formulas. gdn_forward and gdn_decode are the token-by-token recurrence, which
 * knows nothing of chunks, WY or triangular inverses: an independent opinion.
 *
 * The columns of a state never meet: column v of S depends on column v of the values alone. So wherever a state runs
 * through a sequence, a block of COLUMNS of them is followed from its start to its end, and stays in the cache. Nor do
 * value heads meet, each of which may have a thread.
 */
#include "reference.h"

#include "dims.h"
#include "parallel.h"

#include <math.h>
#include <string.h>

enum { C = WD_GDN_CHUNK, COLUMNS = 32 };

/* ---- Small pieces ---- */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y += a * x */
static void add_scaled(double *restrict y, double a, const double *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* log(1 + exp(x)) without overflow. */
static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

/* The factor that makes a row's L2 norm one; eps under the root, as in flash-linear-attention's l2norm. */
static double inverse_norm(bool l2norm, const double *x, size_t n, double eps)
{
    return l2norm ? 1 / sqrt(dot(x, x, n) + eps) : 1.0;
}

/* The log gate of head hv: as given, or from a raw gate as Mamba-2 does, -exp(A_log) * softplus(gate + dt_bias). */
static double log_gate(double gate, size_t hv, const double *A_log, const double *dt_bias)
{
    return A_log ? -exp(A_log[hv]) * softplus(gate + dt_bias[hv]) : gate;
}

static double beta_of(int mode, double beta)
{
    return mode == WD_BETA_SIGMOID ? sigmoid(beta) : beta;
}

/* ---- Heads ---- */

typedef void (*head_fn)(const struct wd_problem *p, double *const *t, size_t hv);

struct heads {
    const struct wd_problem *p;
    double *const *t;
    head_fn head;
};

static void one_head(void *user, size_t hv)
{
    const struct heads *heads = user;
    heads->head(heads->p, heads->t, hv);
}

static void for_heads(const struct wd_problem *p, double *const *t, size_t HV, head_fn head)
{
    struct heads heads = {p, t, head};
    wd_parallel(HV, one_head, &heads);
}

/* ---- A block of a state's columns ---- */

struct block {
    size_t K, V;     /* of the whole state */
    size_t first, n; /* its columns; those past n are zero throughout */
    double row[WD_GDN_HEAD_MAX][COLUMNS];
};

/* Starts columns first.. of a state [K][V]; NULL: a state of zeros. */
static void block_load(struct block *b, size_t K, size_t V, size_t first, const double *state)
{
    b->K = K;
    b->V = V;
    b->first = first;
    b->n = min_size(COLUMNS, V - first);
    memset(b->row, 0, K * sizeof b->row[0]);
    for (size_t k = 0; state && k < K; k++)
        memcpy(b->row[k], state + k * V + first, b->n * sizeof(double));
}

static void block_store(const struct block *b, double *state)
{
    for (size_t k = 0; k < b->K; k++)
        memcpy(state + k * b->V + b->first, b->row[k], b->n * sizeof(double));
}

/* ---- recompute_w_u ---- */

/* u = A @ (v*beta) and w = A @ (k * beta * exp(g)) for `rows` tokens from `first` of head hv. Columns of A past the
 * chunk's end meet no token. */
static void recompute_chunk(const struct wd_problem *p, double *const *t, size_t first, size_t rows, size_t hv)
{
    const size_t H = p->dim[GDN_H], HV = p->dim[GDN_HV], K = p->dim[GDN_K], V = p->dim[GDN_V];
    const size_t h = hv / (HV / H);
    for (size_t i = 0; i < rows; i++) {
        const size_t at = (first + i) * HV + hv;
        double *w = t[WU_w] + at * K, *u = t[WU_u] + at * V;
        memset(w, 0, K * sizeof *w);
        memset(u, 0, V * sizeof *u);
        const size_t columns = p->choice[WU_A_is_lower] ? i + 1 : rows;
        for (size_t j = 0; j < columns; j++) {
            const size_t from = (first + j) * HV + hv;
            const double a = t[WU_A][at * C + j] * t[WU_beta][from];
            add_scaled(w, a * exp(t[WU_g][from]), t[WU_k] + ((first + j) * H + h) * K, K);
            add_scaled(u, a, t[WU_v] + from * V, V);
        }
    }
}

static void recompute_head(const struct wd_problem *p, double *const *t, size_t hv)
{
    for (size_t s = 0; s < p->dim[GDN_SEQ]; s++) {
        const struct wd_span span = wd_sequence_span(t[WU_cu_seqlens], p->dim[GDN_T], s);
        for (size_t first = span.begin; first < span.end; first += C)
            recompute_chunk(p, t, first, min_size(C, span.end - first), hv);
    }
}

void wd_reference_recompute_w_u(const struct wd_problem *p, double *const *t)
{
    for_heads(p, t, p->dim[GDN_HV], recompute_head);
}

/* ---- chunk_fwd_h ---- */

/* One chunk of head hv against a block of the state: v_new = u - w @ S, then
 * S = S*exp(g_last) + k^T @ (v_new * exp(g_last - g)). */
static void advance_chunk(const struct wd_problem *p, double *const *t, size_t first, size_t rows, size_t hv,
                          struct block *b)
{
    const size_t H = p->dim[GDN_H], HV = p->dim[GDN_HV], K = b->K, V = b->V;
    const size_t h = hv / (HV / H);
    double v_new[C][COLUMNS];
    for (size_t i = 0; i < rows; i++) {
        const size_t at = (first + i) * HV + hv;
        memset(v_new[i], 0, sizeof v_new[i]);
        memcpy(v_new[i], t[FWDH_u] + at * V + b->first, b->n * sizeof(double));
        for (size_t k = 0; k < K; k++)
            add_scaled(v_new[i], -t[FWDH_w][at * K + k], b->row[k], COLUMNS);
        memcpy(t[FWDH_v_new] + at * V + b->first, v_new[i], b->n * sizeof(double));
    }
    const double g_last = t[FWDH_g][(first + rows - 1) * HV + hv], decay = exp(g_last);
    for (size_t k = 0; k < K; k++)
        for (size_t c = 0; c < COLUMNS; c++)
            b->row[k][c] *= decay;
    for (size_t i = 0; i < rows; i++) {
        const double gate = exp(g_last - t[FWDH_g][(first + i) * HV + hv]);
        const double *key = t[FWDH_k] + ((first + i) * H + h) * K;
        for (size_t k = 0; k < K; k++)
            add_scaled(b->row[k], key[k] * gate, v_new[i], COLUMNS);
    }
}

static void advance_head(const struct wd_problem *p, double *const *t, size_t hv)
{
    const size_t HV = p->dim[GDN_HV], K = p->dim[GDN_K], V = p->dim[GDN_V];
    const double *initial = t[FWDH_initial_state];
    double *final = t[FWDH_final_state];
    struct block b;
    for (size_t s = 0; s < p->dim[GDN_SEQ]; s++) {
        const struct wd_span span = wd_sequence_span(t[FWDH_cu_seqlens], p->dim[GDN_T], s);
        const size_t state = (s * HV + hv) * K * V;
        for (size_t v = 0; v < V; v += COLUMNS) {
            block_load(&b, K, V, v, initial ? initial + state : NULL);
            for (size_t first = span.begin, n = span.chunk; first < span.end; first += C, n++) {
                block_store(&b, t[FWDH_h] + (n * HV + hv) * K * V);
                advance_chunk(p, t, first, min_size(C, span.end - first), hv, &b);
            }
            if (final)
                block_store(&b, final + state);
        }
    }
}

void wd_reference_chunk_fwd_h(const struct wd_problem *p, double *const *t)
{
    for_heads(p, t, p->dim[GDN_HV], advance_head);
}

/* ---- chunk_fwd_o ---- */

/* o = scale * ( (q @ h)*exp(g) + [i>=j](q @ k^T * exp(g_i - g_j)) @ v_new ); `state` is the chunk's h. */
static void output_chunk(const struct wd_problem *p, double *const *t, size_t first, size_t rows, size_t hv,
                         const double *state)
{
    const size_t H = p->dim[GDN_H], HV = p->dim[GDN_HV], K = p->dim[GDN_K], V = p->dim[GDN_V];
    const size_t h = hv / (HV / H);
    const double scale = (double)p->real[FWDO_scale];
    for (size_t i = 0; i < rows; i++) {
        const size_t at = (first + i) * HV + hv;
        const double g = t[FWDO_g][at], decay = exp(g);
        const double *q = t[FWDO_q] + ((first + i) * H + h) * K;
        double *o = t[FWDO_o] + at * V;
        memset(o, 0, V * sizeof *o);
        for (size_t k = 0; k < K; k++)
            add_scaled(o, scale * q[k] * decay, state + k * V, V);
        for (size_t j = 0; j <= i; j++) {
            const size_t from = (first + j) * HV + hv;
            const double score = dot(q, t[FWDO_k] + ((first + j) * H + h) * K, K) * exp(g - t[FWDO_g][from]);
            add_scaled(o, scale * score, t[FWDO_v_new] + from * V, V);
        }
    }
}

static void output_head(const struct wd_problem *p, double *const *t, size_t hv)
{
    const size_t HV = p->dim[GDN_HV], state = p->dim[GDN_K] * p->dim[GDN_V];
    for (size_t s = 0; s < p->dim[GDN_SEQ]; s++) {
        const struct wd_span span = wd_sequence_span(t[FWDO_cu_seqlens], p->dim[GDN_T], s);
        for (size_t first = span.begin, n = span.chunk; first < span.end; first += C, n++)
            output_chunk(p, t, first, min_size(C, span.end - first), hv, t[FWDO_h] + (n * HV + hv) * state);
    }
}

void wd_reference_chunk_fwd_o(const struct wd_problem *p, double *const *t)
{
    for_heads(p, t, p->dim[GDN_HV], output_head);
}

/* ---- gdn_prepare ---- */

/*
 * g = running sum of the log gates, none below WD_GDN_FORGET;
 * A = (I + L)^-1 with L_ij = beta_i * (k_i . k_j) * exp(g_i - g_j) below the diagonal, by forward
 * substitution: row i of A is e_i - sum_{j<i} L_ij * (row j of A).
 */
static void prepare_chunk(const struct wd_problem *p, double *const *t, size_t first, size_t rows, size_t hv)
{
    const size_t H = p->dim[PREP_H], HV = p->dim[PREP_HV], K = p->dim[PREP_K];
    const size_t h = hv / (HV / H);
    double g[C], beta[C], norm[C], sum = 0;
    for (size_t i = 0; i < rows; i++) {
        const size_t at = (first + i) * HV + hv;
        const double *key = t[PREP_k] + ((first + i) * H + h) * K;
        const double gate = log_gate(t[PREP_gate][at], hv, t[PREP_A_log], t[PREP_dt_bias]);
        g[i] = t[PREP_g][at] = sum += gate < WD_GDN_FORGET ? WD_GDN_FORGET : gate;
        beta[i] = beta_of(p->choice[PREP_beta_mode], t[PREP_beta][at]);
        norm[i] = inverse_norm(p->choice[PREP_l2norm], key, K, (double)p->real[PREP_l2norm_eps]);
        if (t[PREP_beta_out])
            t[PREP_beta_out][at] = beta[i];

        double *A = t[PREP_A] + at * C;
        memset(A, 0, C * sizeof *A);
        A[i] = 1;
        for (size_t j = 0; j < i; j++) {
            const double kk = dot(key, t[PREP_k] + ((first + j) * H + h) * K, K) * norm[i] * norm[j];
            add_scaled(A, -beta[i] * kk * exp(g[i] - g[j]), t[PREP_A] + ((first + j) * HV + hv) * C, j + 1);
        }
    }
}

/* `rows` rows of n: out = in divided by its norm. */
static void normalize_rows(const struct wd_problem *p, const double *in, double *out, size_t rows, size_t n)
{
    for (size_t r = 0; in && out && r < rows; r++) {
        const double norm = inverse_norm(p->choice[PREP_l2norm], in + r * n, n, (double)p->real[PREP_l2norm_eps]);
        for (size_t i = 0; i < n; i++)
            out[r * n + i] = in[r * n + i] * norm;
    }
}

static void prepare_head(const struct wd_problem *p, double *const *t, size_t hv)
{
    for (size_t s = 0; s < p->dim[PREP_SEQ]; s++) {
        const struct wd_span span = wd_sequence_span(t[PREP_cu_seqlens], p->dim[PREP_T], s);
        for (size_t first = span.begin; first < span.end; first += C)
            prepare_chunk(p, t, first, min_size(C, span.end - first), hv);
    }
}

void wd_reference_gdn_prepare(const struct wd_problem *p, double *const *t)
{
    for_heads(p, t, p->dim[PREP_HV], prepare_head);
    const size_t rows = p->dim[PREP_B] * p->dim[PREP_T] * p->dim[PREP_H];
    normalize_rows(p, t[PREP_q], t[PREP_q_out], rows, p->dim[PREP_K]);
    normalize_rows(p, t[PREP_k], t[PREP_k_out], rows, p->dim[PREP_K]);
}

/* ---- gdn_forward and gdn_decode: the recurrence ---- */

/* What both operations have, seen as rows of tokens. */
struct recurrence {
    size_t H, HV, K, V;
    const double *q, *k, *v, *gate, *beta, *A_log, *dt_bias;
    double *o;
    int beta_mode;
    bool l2norm;
    double l2norm_eps, scale;
};

/* Token `row` of head hv against a block of the state:
 * S = S*exp(g);  S += k (beta * (v - S^T k))^T;  o = scale * S^T q. */
static void delta_rule(const struct recurrence *r, size_t row, size_t hv, struct block *b)
{
    const size_t qk = (row * r->H + hv / (r->HV / r->H)) * r->K, at = row * r->HV + hv;
    const double *q = r->q + qk, *k = r->k + qk;
    const double q_norm = inverse_norm(r->l2norm, q, r->K, r->l2norm_eps);
    const double k_norm = inverse_norm(r->l2norm, k, r->K, r->l2norm_eps);
    const double decay = exp(log_gate(r->gate[at], hv, r->A_log, r->dt_bias));
    const double beta = beta_of(r->beta_mode, r->beta[at]);

    double delta[COLUMNS] = {0}, o[COLUMNS] = {0};
    for (size_t i = 0; i < r->K; i++)
        for (size_t c = 0; c < COLUMNS; c++) {
            b->row[i][c] *= decay;
            delta[c] += k_norm * k[i] * b->row[i][c];
        }
    for (size_t c = 0; c < b->n; c++)
        delta[c] = beta * (r->v[at * r->V + b->first + c] - delta[c]);
    for (size_t i = 0; i < r->K; i++)
        for (size_t c = 0; c < COLUMNS; c++) {
            b->row[i][c] += k_norm * k[i] * delta[c];
            o[c] += r->scale * q_norm * q[i] * b->row[i][c];
        }
    memcpy(r->o + at * r->V + b->first, o, b->n * sizeof *o);
}

/* Rows [begin, end) of head hv from states [HV][K][V] to states [HV][K][V]; either may be NULL, both the same. */
static void run_sequence(const struct recurrence *r, size_t hv, size_t begin, size_t end, const double *initial,
                         double *final)
{
    const size_t state = hv * r->K * r->V;
    struct block b;
    for (size_t v = 0; v < r->V; v += COLUMNS) {
        block_load(&b, r->K, r->V, v, initial ? initial + state : NULL);
        for (size_t row = begin; row < end; row++)
            delta_rule(r, row, hv, &b);
        if (final)
            block_store(&b, final + state);
    }
}

static void forward_head(const struct wd_problem *p, double *const *t, size_t hv)
{
    const struct recurrence r = {
        .H = p->dim[GDN_H],
        .HV = p->dim[GDN_HV],
        .K = p->dim[GDN_K],
        .V = p->dim[GDN_V],
        .q = t[FWD_q],
        .k = t[FWD_k],
        .v = t[FWD_v],
        .gate = t[FWD_g],
        .beta = t[FWD_beta],
        .A_log = t[FWD_A_log],
        .dt_bias = t[FWD_dt_bias],
        .o = t[FWD_o],
        .beta_mode = p->choice[FWD_beta_mode],
        .l2norm = p->choice[FWD_l2norm],
        .l2norm_eps = (double)p->real[FWD_l2norm_eps],
        .scale = (double)p->real[FWD_scale],
    };
    const size_t states = r.HV * r.K * r.V;
    const double *initial = t[FWD_initial_state];
    double *final = t[FWD_final_state];
    for (size_t s = 0; s < p->dim[GDN_SEQ]; s++) {
        const struct wd_span span = wd_sequence_span(t[FWD_cu_seqlens], p->dim[GDN_T], s);
        run_sequence(&r, hv, span.begin, span.end, initial ? initial + s * states : NULL,
                     final ? final + s * states : NULL);
    }
}

void wd_reference_gdn_forward(const struct wd_problem *p, double *const *t)
{
    for_heads(p, t, p->dim[GDN_HV], forward_head);
}

static void decode_head(const struct wd_problem *p, double *const *t, size_t hv)
{
    const struct recurrence r = {
        .H = p->dim[DEC_H],
        .HV = p->dim[DEC_HV],
        .K = p->dim[DEC_K],
        .V = p->dim[DEC_V],
        .q = t[DEC_q],
        .k = t[DEC_k],
        .v = t[DEC_v],
        .gate = t[DEC_g],
        .beta = t[DEC_beta],
        .A_log = t[DEC_A_log],
        .dt_bias = t[DEC_dt_bias],
        .o = t[DEC_o],
        .beta_mode = p->choice[DEC_beta_mode],
        .l2norm = p->choice[DEC_l2norm],
        .l2norm_eps = (double)p->real[DEC_l2norm_eps],
        .scale = (double)p->real[DEC_scale],
    };
    const size_t T = p->dim[DEC_T];
    for (size_t b = 0; b < p->dim[DEC_B]; b++) {
        const double slot = t[DEC_slot] ? t[DEC_slot][b] : (double)b;
        if (slot < 0 || slot >= (double)p->dim[DEC_SLOTS])
            continue;
        double *state = t[DEC_state] + (size_t)slot * r.HV * r.K * r.V;
        run_sequence(&r, hv, b * T, (b + 1) * T, state, state);
    }
}

void wd_reference_gdn_decode(const struct wd_problem *p, double *const *t)
{
    for_heads(p, t, p->dim[DEC_HV], decode_head);
}
