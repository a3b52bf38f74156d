/* SPDX-License-Identifier: MIT */
/*
 * causal_conv1d, GPU form: a work-item computes WIDTH neighbours in memory, tokens in [B][D][S], channels in [B][S][D].
 *
 * [B][D][S]: an item takes INFLIGHT vectors, LOCAL0 vectors apart in the line of all rows' vectors. It loads them and
 *   the vectors before them that the taps reach, then computes. The second loads hit the first-level cache.
 * [B][S][D]: an item takes RUN tokens of WIDTH channels. It loads INFLIGHT tokens ahead of the arithmetic and keeps
 *   weights and the last TAIL inputs in registers.
 *
 * Parameters: LOCAL0 (local), WIDTH (16 bytes of x are best; any works), INFLIGHT, RUN (a multiple of INFLIGHT).
 * Launch: work-groups for the outputs, then with a final state one item for each channel of each sequence.
 * Traffic: x once from memory in [B][D][S], 1 + TAIL / RUN times in [B][S][D]; out once. No local memory, no barrier.
 */
#ifndef WIDTH
#define WIDTH 4
#define INFLIGHT 4
#define RUN 16
#endif
#ifndef LOCAL0
#define LOCAL0 256
#endif

#include "conv.cl"
#include "lanes.cl"

/* The first `valid` of WIDTH elements at p, a multiple of WIDTH from its row's start; the others are 0. */
static inline VFLOAT load_some(__global const ELEM(T_X) *p, ulong valid)
{
    if (valid >= WIDTH)
        return LDA(T_X, WIDTH, p);
    float e[WIDTH];
    #pragma unroll
    for (uint i = 0; i < WIDTH; i++)
        e[i] = i < valid ? LD(T_X, p, i) : 0.0f;
    return PACK(e);
}

static inline void store_some(__global ELEM(T_OUT) *p, VFLOAT y, ulong valid)
{
    if (valid >= WIDTH) {
        STA(T_OUT, WIDTH, p, y);
        return;
    }
    float e[WIDTH];
    UNPACK(e, y);
    #pragma unroll
    for (uint i = 0; i < WIDTH; i++)
        if (i < valid)
            ST(T_OUT, p, i, e[i]);
}

#if LAYOUT == 0

#define BACK ((TAIL + WIDTH - 1) / WIDTH * WIDTH) /* how far before its own an item reads, in whole vectors */

/* The inputs that outputs t .. t + WIDTH - 1 of a row need; t is a multiple of WIDTH. */
static inline void load_window(CONV_VIEWS, struct sequence s, ulong d, ulong t, float window[BACK + WIDTH])
{
    #pragma unroll
    for (uint v = 0; v < BACK + WIDTH; v += WIDTH) {
        const long p = (long)(t + v) - BACK;
        if (p >= 0) {
            const VFLOAT in = load_some(ROW2(x, s.b, d) + p, S - (ulong)p);
            UNPACK(window + v, in);
        } else {
            #pragma unroll
            for (uint e = 0; e < WIDTH; e++)
                window[v + e] = p + e >= -TAIL ? input_at(CONV, s, d, p + e) : 0.0f;
        }
    }
}

static inline void convolve_window(CONV_VIEWS, struct sequence s, ulong d, ulong t, const float window[BACK + WIDTH])
{
    VFLOAT y = BIAS(d);
    #pragma unroll
    for (uint k = 0; k < W; k++)
        y += WEIGHT(d, k) * PACK(window + BACK - TAIL + k);
    store_some(ROW2(out, s.b, d) + t, ACTIVATE(y), S - t);
}

/* Work-groups that compute outputs. */
static inline ulong output_groups(CONV_VIEWS)
{
    const ulong total = B * D * ((S + WIDTH - 1) / WIDTH);
    return (total + LOCAL0 * INFLIGHT - 1) / (LOCAL0 * INFLIGHT);
}

static inline void convolve(CONV_VIEWS)
{
    const ulong vectors = (S + WIDTH - 1) / WIDTH, rows = B * D;
    const ulong first = get_group_id(0) * (LOCAL0 * INFLIGHT) + get_local_id(0);
    float window[INFLIGHT][BACK + WIDTH];
    struct sequence s[INFLIGHT];
    ulong d[INFLIGHT], t[INFLIGHT];
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++) {
        const ulong i = first + u * LOCAL0, row = divide(i, vectors), b = divide(row, D);
        s[u] = sequence_number(CONV, b);
        d[u] = row - b * D;
        t[u] = row < rows ? (i - row * vectors) * WIDTH : S;
        if (t[u] < S)
            load_window(CONV, s[u], d[u], t[u], window[u]);
    }
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++)
        if (t[u] < S)
            convolve_window(CONV, s[u], d[u], t[u], window[u]);
}

#else

/* The TAIL inputs before token t of `valid` channels from d. */
static inline void load_history(CONV_VIEWS, struct sequence s, ulong d, ulong valid, ulong t, VFLOAT history[W])
{
    #pragma unroll
    for (int k = 0; k < TAIL; k++) {
        const long p = max((long)(t - s.begin), 0L) - TAIL + k;
        if (p >= 0) {
            history[k] = load_some(AT(x, s.b, d, s.begin + p), valid);
        } else {
            float h[WIDTH];
            #pragma unroll
            for (uint e = 0; e < WIDTH; e++)
                h[e] = e < valid ? input_at(CONV, s, d + e, p) : 0.0f;
            history[k] = PACK(h);
        }
    }
}

/* Weights and biases of `valid` channels from d; w[W] are the biases. */
static inline void load_weights(CONV_VIEWS, ulong d, ulong valid, VFLOAT w[W + 1])
{
    #pragma unroll
    for (uint k = 0; k <= W; k++) {
        float r[WIDTH];
        #pragma unroll
        for (uint e = 0; e < WIDTH; e++)
            r[e] = e >= valid ? 0.0f : k < W ? WEIGHT(d + e, k) : BIAS(d + e);
        w[k] = PACK(r);
    }
}

/* One token: history[TAIL] is its own input. The history moves on. */
static inline VFLOAT convolve_token(const VFLOAT w[W + 1], VFLOAT history[W])
{
    VFLOAT y = w[W];
    #pragma unroll
    for (uint k = 0; k < W; k++)
        y += w[k] * history[k];
    #pragma unroll
    for (uint k = 0; k < TAIL; k++)
        history[k] = history[k + 1];
    return ACTIVATE(y);
}

static inline ulong output_groups(CONV_VIEWS)
{
    const ulong total = B * ((S + RUN - 1) / RUN) * ((D + WIDTH - 1) / WIDTH);
    return (total + LOCAL0 - 1) / LOCAL0;
}

static inline void convolve(CONV_VIEWS)
{
    const ulong vectors = (D + WIDTH - 1) / WIDTH, runs = (S + RUN - 1) / RUN;
    const ulong i = get_global_id(0), run = divide(i, vectors), b = divide(run, runs);
    const ulong d = (i - run * vectors) * WIDTH, valid = D - d, t0 = (run - b * runs) * RUN, t1 = min(t0 + RUN, S);
    if (b >= B)
        return;
    VFLOAT w[W + 1], history[W], ahead[INFLIGHT];
    load_weights(CONV, d, valid, w);
    struct sequence s = sequence_of(CONV, b, t0);
    load_history(CONV, s, d, valid, t0, history);
    for (ulong t = t0; t < t1; t += INFLIGHT) {
        #pragma unroll
        for (uint u = 0; u < INFLIGHT; u++)
            if (t + u < t1)
                ahead[u] = load_some(AT(x, b, d, t + u), valid);
        #pragma unroll
        for (uint u = 0; u < INFLIGHT; u++)
            if (t + u < t1) {
#if HAS_CU_SEQLENS
                if (t + u >= s.end) {
                    s = sequence_of(CONV, b, t + u);
                    load_history(CONV, s, d, valid, t + u, history);
                }
#endif
                history[TAIL] = ahead[u];
                const VFLOAT y = convolve_token(w, history);
                if (t + u >= s.begin && t + u < s.end)
                    store_some(AT(out, b, d, t + u), y, valid);
            }
    }
}

#endif

__kernel GROUP_SIZE(LOCAL0) void causal_conv1d_gpu(CONV_ARGS)
{
    const ulong groups = output_groups(CONV);
    if (get_group_id(0) < groups) {
        convolve(CONV);
        return;
    }
#if HAS_FINAL_STATE
    const ulong i = (get_group_id(0) - groups) * LOCAL0 + get_local_id(0), seq = divide(i, D);
    if (seq < SEQUENCES)
        store_final_state(CONV, sequence_number(CONV, seq), i - seq * D);
#endif
}
