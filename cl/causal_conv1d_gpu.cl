/* SPDX-License-Identifier: MIT */
/*
 * causal_conv1d, GPU form: a work-item computes WIDTH neighbours in memory, tokens in [B][D][S], channels in [B][S][D].
 *
 * [B][D][S]: a team of LANES items takes a segment of a row, each item INFLIGHT vectors, LANES vectors apart. An item
 *   loads them and the elements before them that the taps reach, then computes. The second loads hit the first-level
 *   cache.
 * [B][S][D]: an item takes RUN tokens of WIDTH channels. It loads INFLIGHT tokens ahead of the arithmetic and keeps
 *   weights and the last TAIL inputs in registers.
 *
 * Parameters: LOCAL0 (local), WIDTH (16 bytes of x are best; any works), INFLIGHT, and SPAN, which is LANES (a divisor
 * of LOCAL0) or RUN (a multiple of INFLIGHT).
 * Launch: work-groups for the outputs, then with a final state one item for each channel of each sequence.
 * Traffic: x once from memory in [B][D][S], 1 + TAIL / RUN times in [B][S][D]; out once. No local memory, no barrier.
 */
#ifndef WIDTH
#define WIDTH 4
#define INFLIGHT 4
#define SPAN 32
#endif
#ifndef LOCAL0
#define LOCAL0 256
#endif

#include "conv.cl"
#include "lanes.cl"

#define ALL_WHOLE (VEC >= WIDTH) /* rows are whole vectors */

/* The first `valid` of WIDTH elements at p, a multiple of WIDTH from its row's start; the others are 0. */
static inline VFLOAT load_some(__global const ELEM(T_X) *p, ulong valid)
{
    if (ALL_WHOLE || valid >= WIDTH)
        return LDA(T_X, WIDTH, p);
    float e[WIDTH];
    #pragma unroll
    for (uint i = 0; i < WIDTH; i++)
        e[i] = i < valid ? LD(T_X, p, i) : 0.0f;
    return PACK(e);
}

static inline void store_some(__global ELEM(T_OUT) *p, VFLOAT y, ulong valid)
{
    if (ALL_WHOLE || valid >= WIDTH) {
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

#define LANES SPAN
#define TEAMS (LOCAL0 / LANES)

/* An item reads BACK elements before its own, in pieces of PIECE: of TAIL or more the least that loads as vectors. */
#if TAIL <= 2 || WIDTH == 2
#define PIECE 2
#elif TAIL <= 4 || WIDTH == 4
#define PIECE 4
#elif TAIL <= 8 || WIDTH == 8
#define PIECE 8
#else
#define PIECE 16
#endif
#define BACK ((TAIL + PIECE - 1) / PIECE * PIECE)
#define SPREAD(e, v) CAT(UNPACK_, PIECE)(e, v)
/* A compiler that sees which elements of a piece are not needed loads the others one by one. */
#if WD_SM && VEC >= PIECE && PIECE == 4
#define LOAD_f32(p) as_float4(words_at_uint4((__global const uint4 *)(p)))
#else
#define LOAD_f32(p) LDA(f32, PIECE, p)
#endif
#define LOAD_f16(p) LDA(f16, PIECE, p)
#define LOAD_bf16(p) LDA(bf16, PIECE, p)

/* The BACK inputs before token t + step of a row, a multiple of WIDTH. */
static inline void load_before(CONV_VIEWS, ulong b, ulong d, ulong t, ulong step, float before[BACK + 1])
{
    if (step >= BACK || t + step >= BACK) {
        #pragma unroll
        for (uint v = 0; v < BACK; v += PIECE) {
            const CAT(float, PIECE) in = CAT(LOAD_, T_X)(ROW2(x, b, d) + (t + step + v - BACK));
            SPREAD(before + v, in);
        }
    } else {
        struct sequence s;
        sequence_number(CONV, b, &s);
        #pragma unroll
        for (uint e = 0; e < BACK; e++)
            before[e] = e < BACK - TAIL ? 0.0f : input_at(CONV, &s, d, (long)(t + step + e) - BACK);
    }
}

/* Outputs t .. t + WIDTH - 1 of a row with weights w[0 .. W - 1] and bias w[W]. */
static inline void convolve_window(CONV_VIEWS, ulong b, ulong d, ulong t, const float w[W + 1],
                                   const float before[BACK + 1], VFLOAT own)
{
    float window[BACK + WIDTH];
    #pragma unroll
    for (uint e = 0; e < BACK; e++)
        window[e] = before[e];
    UNPACK(window + BACK, own);
    VFLOAT y = w[W];
    #pragma unroll
    for (uint k = 0; k < W; k++)
        y += w[k] * PACK(window + BACK - TAIL + k);
    store_some(ROW2(out, b, d) + t, ACTIVATE(y), S - t);
}

/* Segments that a row is cut into, and work-groups that compute outputs. */
static inline ulong row_segments(ulong S)
{
    return (S + LANES * INFLIGHT * WIDTH - 1) / (LANES * INFLIGHT * WIDTH);
}

static inline ulong output_groups(CONV_VIEWS)
{
    return (B * D * row_segments(S) + TEAMS - 1) / TEAMS;
}

/* An item's vectors from t on. `all` exist; else some may lie past the end. */
static inline __attribute__((always_inline)) void convolve_vectors(CONV_VIEWS, ulong b, ulong d, ulong t, bool all)
{
    const ulong step = LANES * WIDTH;
    VFLOAT own[INFLIGHT];
    float w[W + 1], before[INFLIGHT][BACK + 1];
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++)
        if (all || t + u * step < S)
            own[u] = load_some(ROW2(x, b, d) + (t + u * step), S - (t + u * step));
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++)
        if (all || t + u * step < S)
            load_before(CONV, b, d, t, u * step, before[u]);
    #pragma unroll
    for (uint k = 0; k < W; k++)
        w[k] = WEIGHT(d, k);
    w[W] = BIAS(d);
    #pragma unroll
    for (uint u = 0; u < INFLIGHT; u++)
        if (all || t + u * step < S)
            convolve_window(CONV, b, d, t + u * step, w, before[u], own[u]);
}

static inline void convolve(CONV_VIEWS)
{
    const ulong team = get_group_id(0) * TEAMS + get_local_id(0) / LANES, segments = row_segments(S);
    const ulong row = segments == 1 ? team : divide(team, segments), b = B == 1 && row < D ? 0 : divide(row, D);
    const ulong d = row - b * D;
    const ulong begin = (team - row * segments) * (LANES * INFLIGHT * WIDTH);
    const ulong t = begin + get_local_id(0) % LANES * WIDTH;
    if (b >= B)
        return;
    if (begin + LANES * INFLIGHT * WIDTH <= S)
        convolve_vectors(CONV, b, d, t, true);
    else
        convolve_vectors(CONV, b, d, t, false);
}

#else

#define RUN SPAN

/* The TAIL inputs before token t of `valid` channels from d. */
static inline void load_history(CONV_VIEWS, const struct sequence *s, ulong d, ulong valid, ulong t, VFLOAT history[W])
{
    #pragma unroll
    for (int k = 0; k < TAIL; k++) {
        const long p = max((long)(t - s->begin), 0L) - TAIL + k;
        if (p >= 0) {
            history[k] = load_some(AT(x, s->b, d, s->begin + p), valid);
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
    struct sequence s;
    sequence_of(CONV, b, t0, &s);
    load_history(CONV, &s, d, valid, t0, history);
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
                    sequence_of(CONV, b, t + u, &s);
                    load_history(CONV, &s, d, valid, t + u, history);
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
    if (seq < SEQUENCES) {
        struct sequence s;
        sequence_number(CONV, seq, &s);
        store_final_state(CONV, &s, i - seq * D);
    }
#endif
}
