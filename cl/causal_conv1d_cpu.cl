/* SPDX-License-Identifier: MIT */
/*
 * causal_conv1d, CPU form: a work-item takes a run of blocks, in vectors of VL floats.
 *
 * [B][D][S]: a block is BLOCK outputs of a row; each tap of a vector is one unaligned load, and the row is asked for
 *   ahead of them.
 * [B][S][D]: a block is RUN tokens of BLOCK channels, ROWS tokens at a time, so that an input is loaded once for ROWS
 *   outputs; the next rows are asked for meanwhile. Weights are transposed into a private array when a block begins
 *   other channels than the one before.
 *
 * Parameters: VL (vl), STREAM (2: non-temporal stores, where rows are aligned for them), BLOCK (a multiple of VL).
 * Launch: {items}, local size 1; the items share all blocks evenly, then the final states of all channels.
 * Traffic: x once from memory, out once.
 */
#include "cpu.cl"
#include "conv.cl"
#include "conv_cpu.cl"

#if LAYOUT == 0

static inline ulong blocks_of(CONV_VIEWS)
{
    return B * D * ((S + BLOCK - 1) / BLOCK);
}

/* Outputs of a row that are made one by one, in whole vectors. */
#define HEAD ((TAIL + VL - 1) / VL * VL)

/* Outputs i .. n - 1 of a row, as far as VL goes into them; a tap is one unaligned load. Returns where it stopped. */
static inline uint convolve_vectors(__global const ELEM(T_X) *in, const float w[W], float b, __global ELEM(T_OUT) *to,
                                    uint i, uint n, const bool stream)
{
    for (; i + VL <= n; i += VL) {
        VFLOAT y = b;
        PREFETCH_AHEAD(in + i);
        for (uint k = 0; k < W; k++)
            y += w[k] * LDVL(T_X, in + i + k - TAIL);
        put(to + i, y, stream);
    }
    return i;
}

static inline void convolve(CONV_VIEWS, ulong first, ulong last)
{
    const ulong blocks = (S + BLOCK - 1) / BLOCK;
    float w[W];
    for (ulong i = first; i < last; i++) {
        const ulong row = i / blocks, d = row % D, t = (i - row * blocks) * BLOCK;
        const uint n = (uint)min(S - t, (ulong)BLOCK);
        struct sequence s;
        sequence_number(CONV, row / D, &s);
        __global const ELEM(T_X) *from = ROW2(x, s.b, d) + t;
        __global ELEM(T_OUT) *to = ROW2(out, s.b, d) + t;

        for (uint k = 0; k < W; k++)
            w[k] = WEIGHT(d, k);
        /* The first outputs reach into the initial state. */
        uint done = t == 0 ? min(n, (uint)HEAD) : 0;
        for (uint j = 0; j < done; j++)
            ST(T_OUT, to, j, output_at(CONV, &s, d, j));
        if (can_stream(to, BYTES(T_OUT)))
            done = convolve_vectors(from, w, BIAS(d), to, done, n, true);
        else
            done = convolve_vectors(from, w, BIAS(d), to, done, n, false);
        for (; done < n; done++)
            ST(T_OUT, to, done, output_at(CONV, &s, d, t + done));
    }
}

#else

#define RUN 64
#define ROWS 4

static inline ulong blocks_of(CONV_VIEWS)
{
    return (D + BLOCK - 1) / BLOCK * B * ((S + RUN - 1) / RUN);
}

/* `rows` tokens, a constant, of `n` channels, a multiple of VL. The first stands at `in` and `to`, TAIL come before. */
static inline void convolve_rows(__global const ELEM(T_X) *in, ulong in_step, const float w[W][BLOCK],
                                 const float b[BLOCK], __global ELEM(T_OUT) *to, ulong to_step, uint n, const uint rows,
                                 const bool stream)
{
    for (uint i = 0; i < n; i += VL) {
        VFLOAT y[ROWS];
        #pragma unroll
        for (uint r = 0; r < rows; r++)
            y[r] = CAT(vload, VL)(0, b + i);
        #pragma unroll
        for (uint r = 0; r < rows; r++)
            PREFETCH(in + i + (r + rows) * in_step);
        #pragma unroll
        for (uint j = 0; j < TAIL + rows; j++) {
            const VFLOAT v = LDVL(T_X, in + i - TAIL * in_step + j * in_step);
            #pragma unroll
            for (uint r = 0; r < rows; r++)
                if (j >= r && j - r < W)
                    y[r] += CAT(vload, VL)(0, w[j - r] + i) * v;
        }
        #pragma unroll
        for (uint r = 0; r < rows; r++)
            put(to + i + r * to_step, y[r], stream);
    }
}

/* Tokens t .. t1 - 1, all of sequence s, of channels d .. d + n - 1. */
static inline void convolve_tokens(CONV_VIEWS, const struct sequence *s, ulong t, ulong t1, ulong d, uint n,
                                   const float w[W][BLOCK], const float b[BLOCK])
{
    const uint whole = n / VL * VL;
    const ulong in_step = x_at.z, to_step = out_at.z;
    for (; t < t1 && t < s->begin + TAIL; t++) /* these reach into the initial state */
        for (uint i = 0; i < n; i++)
            ST(T_OUT, AT(out, s->b, d, t), i, output_at(CONV, s, d + i, t));
    for (ulong u = t; whole < n && u < t1; u++)
        for (uint i = whole; i < n; i++)
            ST(T_OUT, AT(out, s->b, d, u), i, output_at(CONV, s, d + i, u));
    const bool stream = can_stream((size_t)AT(out, s->b, d, t) | (size_t)(to_step * BYTES(T_OUT)), BYTES(T_OUT));
    for (; t + ROWS <= t1; t += ROWS)
        if (stream)
            convolve_rows(AT(x, s->b, d, t), in_step, w, b, AT(out, s->b, d, t), to_step, whole, ROWS, true);
        else
            convolve_rows(AT(x, s->b, d, t), in_step, w, b, AT(out, s->b, d, t), to_step, whole, ROWS, false);
    for (; t < t1; t++)
        convolve_rows(AT(x, s->b, d, t), in_step, w, b, AT(out, s->b, d, t), to_step, whole, 1, false);
}

static inline void convolve(CONV_VIEWS, ulong first, ulong last)
{
    const ulong runs = (S + RUN - 1) / RUN;
    float w[W][BLOCK], b[BLOCK];
    ulong loaded = D;
    for (ulong i = first; i < last; i++) {
        const ulong run = i % runs, entry = i / runs % B, d = i / runs / B * BLOCK;
        const ulong t1 = min((run + 1) * RUN, S);
        const uint n = (uint)min(D - d, (ulong)BLOCK);
        if (d != loaded)
            load_weights(weight, weight_at, bias, bias_at, d, n, w, b);
        loaded = d;
        for (ulong t = run * RUN; t < t1;) {
            struct sequence s;
            sequence_of(CONV, entry, t, &s);
            const bool inside = t >= s.begin && t < s.end;
            const ulong end = inside ? min(s.end, t1) : t + 1;
            if (inside)
                convolve_tokens(CONV, &s, t, end, d, n, w, b);
            t = end;
        }
    }
}

#endif

WIDE __kernel void causal_conv1d_cpu(CONV_ARGS)
{
    const ulong item = get_global_id(0), items = get_global_size(0), blocks = blocks_of(CONV);
    convolve(CONV, blocks * item / items, blocks * (item + 1) / items);
#if HAS_FINAL_STATE
    const ulong rows = SEQUENCES * D;
    for (ulong i = rows * item / items; i < rows * (item + 1) / items; i++) {
        struct sequence s;
        sequence_number(CONV, i / D, &s);
        store_final_state(CONV, &s, i % D);
    }
#endif
}
