/* SPDX-License-Identifier: MIT */
/*
 * What the CPU forms of gdn_prepare and gdn_forward share. They work on a run of up to RUN tokens at a time: rows of q
 * and k packed for the products of cpu_panel.cl, the decay between each two tokens, and the triangular system solved.
 */
#ifndef WD_GDN_CPU
#define WD_GDN_CPU

#include "cpu_panel.cl"
#include "gdn_gates.cl"

#ifndef K
#define K 128
#endif
#ifndef RUN
#define RUN 64 /* a multiple of RB */
#endif
#define KPAD ROUND_UP(K, PANEL) /* elements of a packed row of q or k, and rows of a state */

/* Rows of q or k as columns: token j is column j % PANEL of piece j / PANEL, element d of it row d. One packing serves
 * as a right factor (a piece is a panel), as a left one whose rows are tokens (row 1, step PANEL) and as a left one
 * whose rows are elements (row PANEL, step 1). Tokens past the run's end and elements past K are zero. */
typedef VFLOAT tokens[PANELS(RUN)][KPAD][NC];

/* Tokens by tokens: column j is column j % PANEL of piece j / PANEL. Pieces right of the diagonal are not set. */
typedef VFLOAT triangle[PANELS(RUN)][RUN][NC];

struct run {
    uint rows, padded; /* tokens, and the same rounded up to RB: the rows that products compute */
    float beta[RUN];   /* 0 past the end */
    float up[RUN];     /* exp(g_i): what is left at token i of a state at the run's start */
    float down[RUN];   /* exp(g_last - g_i): what is left at its end of what token i adds */
    triangle decay;    /* exp(g_i - g_j), zero above the diagonal */
};

/* ---- Rows of q and k ---- */

static inline float lane_sum(VFLOAT v)
{
    float part[VL], sum = 0;
    CAT(vstore, VL)(v, 0, part);
    UNROLL for (uint l = 0; l < VL; l++)
        sum += part[l];
    return sum;
}

/* Every other element of two vectors. One shuffle where the compiler lets say so: the language's own way takes three,
 * with undefined lanes that Oclgrind stumbles over. */
#if __has_builtin(__builtin_shufflevector) && VL == 16
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif __has_builtin(__builtin_shufflevector) && VL == 8
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#elif __has_builtin(__builtin_shufflevector)
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#else
#define EVEN(a, b) ((VFLOAT)((a).even, (b).even))
#define ODD(a, b) ((VFLOAT)((a).odd, (b).odd))
#endif

#if VL == 16
#define VHALF float8
#elif VL == 8
#define VHALF float4
#else
#define VHALF float2
#endif

/* Rows become columns. */
static inline void transpose(VFLOAT m[VL])
{
    VHALF t[VL][2];
    UNROLL for (uint step = 1; step < VL; step *= 2) {
        UNROLL for (uint r = 0; r < VL / 2; r++) {
            t[r][0] = m[2 * r].even;
            t[r][1] = m[2 * r + 1].even;
            t[VL / 2 + r][0] = m[2 * r].odd;
            t[VL / 2 + r][1] = m[2 * r + 1].odd;
        }
        UNROLL for (uint r = 0; r < VL; r++)
            m[r] = CAT(vload, VL)(0, (const float *)t[r]);
    }
}

/* row_squares_T: the sum of squares of a row of K elements.
 * tokens_load_T: packs `rows` of them, `stride` apart, each normalised if the call asks for it and times `scale`. */
#define TOKENS_LOAD(T)                                                                                                 \
    static inline float row_squares_##T(__global const ELEM(T) *p)                                                     \
    {                                                                                                                  \
        VFLOAT row[NC], squares = 0;                                                                                   \
        for (uint d = 0; d < K; d += PANEL) {                                                                          \
            PANEL_LOAD(T, row, p + d, K - d);                                                                          \
            UNROLL for (uint n = 0; n < NC; n++)                                                                       \
                squares += row[n] * row[n];                                                                            \
        }                                                                                                              \
        return lane_sum(squares);                                                                                      \
    }                                                                                                                  \
                                                                                                                       \
    static inline void tokens_load_##T(tokens out, uint rows, __global const ELEM(T) *p, ulong stride, float eps,      \
                                       float scale)                                                                    \
    {                                                                                                                  \
        for (uint j = 0; j < ROUND_UP(rows, PANEL); j += VL) {                                                         \
            float factor[VL];                                                                                          \
            for (uint l = 0; l < VL; l++)                                                                              \
                factor[l] = j + l < rows ? scale * ROW_FACTOR(T, p + (j + l) * stride, eps) : 0.0f;                    \
            for (uint d = 0; d < K; d += PANEL) {                                                                      \
                VFLOAT m[NC][VL], row[NC];                                                                             \
                for (uint l = 0; l < VL; l++) {                                                                        \
                    if (j + l < rows)                                                                                  \
                        PANEL_LOAD(T, row, p + (j + l) * stride + d, K - d);                                           \
                    UNROLL for (uint n = 0; n < NC; n++)                                                               \
                        m[n][l] = j + l < rows ? row[n] * factor[l] : (VFLOAT)(0);                                     \
                }                                                                                                      \
                UNROLL for (uint n = 0; n < NC; n++) {                                                                 \
                    transpose(m[n]);                                                                                   \
                    UNROLL for (uint l = 0; l < VL; l++)                                                               \
                        out[j / PANEL][d + n * VL + l][j % PANEL / VL] = m[n][l];                                      \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

/* What a row of q or k is multiplied by before anything else. */
#define ROW_FACTOR(T, p, eps) (L2NORM ? row_factor(CAT(row_squares_, T)(p), eps) : 1.0f)
#define TOKENS_LOAD_FROM(T, out, rows, p, stride, eps, scale)                                                          \
    CAT(tokens_load_, T)(out, rows, p, stride, eps, scale)

TOKENS_LOAD(f32)
TOKENS_LOAD(f16)
TOKENS_LOAD(bf16)

/* acc += rows i .. i+RB of `left`, as tokens, @ b */
static inline void tokens_multiply(VFLOAT acc[RB][NC], tokens left, uint i, const VFLOAT (*b)[NC])
{
    block_multiply(acc, (const float *)left[i / PANEL] + i % PANEL, 1, PANEL, b, K);
}

/* out_ij = left_i . right_j for j <= i, and a little more. */
static inline void tokens_products(triangle out, uint padded, tokens left, tokens right)
{
    for (uint p = 0; p * PANEL < padded; p++)
        for (uint i = p * PANEL; i < padded; i += RB) {
            VFLOAT acc[RB][NC];
            block_zero(acc);
            tokens_multiply(acc, left, i, right[p]);
            UNROLL for (uint r = 0; r < RB; r++)
                UNROLL for (uint n = 0; n < NC; n++)
                    out[p][i + r][n] = acc[r][n];
        }
}

/* ---- Gates ---- */

/* Fills up, down and decay from the tokens' log gates; what stands past the end is not used. Products of exp(gate), not
 * exp() of sums: a steep gate among mild ones would cost the sums their low bits, and each pair of tokens an exp(). */
static inline void run_decays(struct run *run, const float gate[RUN])
{
    float left[RUN], up = 1, down = 1;
    for (uint i = 0; i < run->padded; i += VL)
        CAT(vstore, VL)(exp(CAT(vload, VL)(0, gate + i)), 0, left + i);
    for (uint i = run->rows; i < run->padded; i++)
        left[i] = 1;
    for (uint i = 0; i < run->padded; i++) {
        run->up[i] = up *= left[i];
        for (uint p = 0; p <= i / PANEL; p++)
            UNROLL for (uint n = 0; n < NC; n++)
                run->decay[p][i][n] = i > p * PANEL ? run->decay[p][i - 1][n] * left[i] : (VFLOAT)(0);
        ((float *)run->decay[i / PANEL][i])[i % PANEL] = 1;
    }
    for (uint i = run->padded; i-- > 0; down *= left[i])
        run->down[i] = down;
}

/* ---- Triangles ---- */

#if VL == 16
#define LANE (VINT)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#elif VL == 8
#define LANE (VINT)(0, 1, 2, 3, 4, 5, 6, 7)
#else
#define LANE (VINT)(0, 1, 2, 3)
#endif

/* Is token `first` + lane before token i? */
static inline VINT lanes_before(uint first, uint i) { return LANE + (int)first < (VINT)((int)i); }

/* minus_L = -strictly_lower(beta_i kk_ij exp(g_i - g_j)). Chosen and not multiplied by zero: nothing of a later token
 * comes in. */
static inline void run_make_L(triangle minus_L, const struct run *run, triangle kk)
{
    for (uint p = 0; p * PANEL < run->padded; p++)
        for (uint i = p * PANEL; i < run->padded; i++)
            UNROLL for (uint n = 0; n < NC; n++) {
                const VFLOAT value = -run->beta[i] * kk[p][i][n] * run->decay[p][i][n];
                minus_L[p][i][n] = lanes_before(p * PANEL + n * VL, i) ? value : (VFLOAT)(0);
            }
}

/* qk becomes lower(qk_ij exp(g_i - g_j)), with the diagonal. */
static inline void run_make_scores(triangle qk, const struct run *run)
{
    for (uint p = 0; p * PANEL < run->padded; p++)
        for (uint i = p * PANEL; i < run->padded; i++)
            UNROLL for (uint n = 0; n < NC; n++) {
                const VFLOAT value = qk[p][i][n] * run->decay[p][i][n];
                qk[p][i][n] = lanes_before(p * PANEL + n * VL, i + 1) ? value : (VFLOAT)(0);
            }
}

/* acc += m @ x for rows i .. i+RB of a triangle, over the tokens from piece `first` on and before `end`. */
static inline void triangle_multiply(VFLOAT acc[RB][NC], triangle m, uint i, const VFLOAT (*x)[NC], uint first,
                                     uint end)
{
    for (uint p = first; p * PANEL < end; p++)
        block_multiply(acc, (const float *)m[p][i], PANEL, 1, x + p * PANEL, min(end - p * PANEL, (uint)PANEL));
}

/* One step of (I + L) x = y: acc holds rows i .. i+RB of y, x the rows before, of which those before piece `first` are
 * zero. Stores rows i .. i+RB of x. */
static inline void triangle_solve(VFLOAT acc[RB][NC], triangle minus_L, uint i, VFLOAT (*x)[NC], uint first)
{
    triangle_multiply(acc, minus_L, i, x, first, i);
    UNROLL for (uint r = 0; r < RB; r++) {
        const float *row = (const float *)minus_L[i / PANEL][i + r] + i % PANEL;
        UNROLL for (uint m = 0; m < r; m++)
            UNROLL for (uint n = 0; n < NC; n++)
                acc[r][n] += row[m] * acc[m][n];
        UNROLL for (uint n = 0; n < NC; n++)
            x[i + r][n] = acc[r][n];
    }
}

#endif
