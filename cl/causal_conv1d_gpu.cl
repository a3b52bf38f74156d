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
#include "conv.cl"

#ifndef WIDTH
#define WIDTH 4
#define INFLIGHT 4
#define RUN 16
#endif
#ifndef LOCAL0
#define LOCAL0 256
#endif

/* WIDTH elements, of which some may not exist. */
union vector {
    CAT(float, WIDTH) v;
    float e[WIDTH];
};

/* Loads them from p, a multiple of WIDTH from its row's start; what does not exist is 0. */
static inline union vector load_some(__global const ELEM(T_X) *p, ulong valid)
{
    union vector r;
    if (valid >= WIDTH) {
        r.v = LDA(T_X, WIDTH, p);
    } else {
        #pragma unroll
        for (uint e = 0; e < WIDTH; e++)
            r.e[e] = e < valid ? LD(T_X, p, e) : 0.0f;
    }
    return r;
}

static inline void store_some(__global ELEM(T_OUT) *p, union vector x, ulong valid)
{
    if (valid >= WIDTH) {
        STA(T_OUT, WIDTH, p, x.v);
    } else {
        #pragma unroll
        for (uint e = 0; e < WIDTH; e++)
            if (e < valid)
                ST(T_OUT, p, e, x.e[e]);
    }
}

#if LAYOUT == 0

#define BACK ((TAIL + WIDTH - 1) / WIDTH) /* vectors before its own that an item reads */

/* The inputs that outputs t .. t + WIDTH - 1 of a row need; t is a multiple of WIDTH. */
static inline void load_window(CONV_ARGS, struct sequence s, ulong d, ulong t, union vector window[BACK + 1])
{
    #pragma unroll
    for (uint v = 0; v <= BACK; v++) {
        const long p = (long)(t + v * WIDTH) - BACK * WIDTH;
        if (p >= 0) {
            window[v] = load_some(ROW2(x, s.b, d) + p, S - (ulong)p);
        } else {
            #pragma unroll
            for (uint e = 0; e < WIDTH; e++)
                window[v].e[e] = p + e >= -TAIL ? input_at(CONV, s, d, p + e) : 0.0f;
        }
    }
}

static inline void convolve_window(CONV_ARGS, struct sequence s, ulong d, ulong t, const union vector window[BACK + 1])
{
    union vector y;
    y.v = BIAS(d);
    #pragma unroll
    for (uint k = 0; k < W; k++) {
        const float w = WEIGHT(d, k);
        #pragma unroll
        for (uint e = 0; e < WIDTH; e++) {
            const uint i = BACK * WIDTH - TAIL + e + k;
            y.e[e] += w * window[i / WIDTH].e[i % WIDTH];
        }
    }
    y.v = ACTIVATE(y.v);
    store_some(ROW2(out, s.b, d) + t, y, S - t);
}

/* Work-groups that compute outputs. */
static inline ulong output_groups(CONV_ARGS)
{
    const ulong total = B * D * ((S + WIDTH - 1) / WIDTH);
    return (total + LOCAL0 * INFLIGHT - 1) / (LOCAL0 * INFLIGHT);
}

static inline void convolve(CONV_ARGS)
{
    const ulong vectors = (S + WIDTH - 1) / WIDTH, rows = B * D;
    const ulong first = get_group_id(0) * (LOCAL0 * INFLIGHT) + get_local_id(0);
    union vector window[INFLIGHT][BACK + 1];
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

/* The TAIL inputs before token t of channels d .. */
static inline void load_history(CONV_ARGS, struct sequence s, ulong d, ulong valid, ulong t, union vector history[W])
{
    #pragma unroll
    for (int k = 0; k < TAIL; k++) {
        const long p = max((long)(t - s.begin), 0L) - TAIL + k;
        if (p >= 0) {
            history[k] = load_some(AT(x, s.b, d, s.begin + p), valid);
        } else {
            #pragma unroll
            for (uint e = 0; e < WIDTH; e++)
                history[k].e[e] = e < valid ? input_at(CONV, s, d + e, p) : 0.0f;
        }
    }
}

/* One token: history[TAIL] is its own input. The history moves on. */
static inline union vector convolve_token(const union vector w[W], union vector y, union vector history[W])
{
    #pragma unroll
    for (uint k = 0; k < W; k++)
        y.v += w[k].v * history[k].v;
    #pragma unroll
    for (uint k = 0; k < TAIL; k++)
        history[k] = history[k + 1];
    y.v = ACTIVATE(y.v);
    return y;
}

static inline ulong output_groups(CONV_ARGS)
{
    const ulong total = B * ((S + RUN - 1) / RUN) * ((D + WIDTH - 1) / WIDTH);
    return (total + LOCAL0 - 1) / LOCAL0;
}

static inline void convolve(CONV_ARGS)
{
    const ulong vectors = (D + WIDTH - 1) / WIDTH, runs = (S + RUN - 1) / RUN;
    const ulong i = get_global_id(0), run = divide(i, vectors), b = divide(run, runs);
    const ulong d = (i - run * vectors) * WIDTH, valid = D - d, t0 = (run - b * runs) * RUN, t1 = min(t0 + RUN, S);
    if (b >= B)
        return;
    union vector w[W], start, history[W], ahead[INFLIGHT];
    #pragma unroll
    for (uint e = 0; e < WIDTH; e++) {
        start.e[e] = e < valid ? BIAS(d + e) : 0.0f;
        #pragma unroll
        for (uint k = 0; k < W; k++)
            w[k].e[e] = e < valid ? WEIGHT(d + e, k) : 0.0f;
    }
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
                const union vector y = convolve_token(w, start, history);
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
