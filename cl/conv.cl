/* SPDX-License-Identifier: MIT */
/*
 * What all forms of causal_conv1d share: the arguments, the layouts, sequences and their states.
 *
 *     out[b,d,t] = act(bias[d] + sum_{k<W} weight[d,k] * x[b,d,t-W+1+k])
 *
 * Depthwise causal convolution as in Dao-AILab/causal-conv1d (Mamba). A sequence is a batch entry, or with cu_seqlens
 * the tokens from cu_seqlens[i] to cu_seqlens[i + 1] of the only entry. Position p of a sequence is its token p;
 * positions -TAIL .. -1 are its initial state, oldest first, or zeros. Tokens of no sequence are left alone.
 */
#ifndef WD_CONV
#define WD_CONV

#include "conv_taps.cl"

#ifndef LAYOUT
#define LAYOUT 0
#endif
#ifndef T_X
#define T_X f32
#define T_INITIAL_STATE f32
#define T_CU_SEQLENS i32
#define T_OUT f32
#define T_FINAL_STATE f32
#define HAS_INITIAL_STATE 1
#define HAS_CU_SEQLENS 0
#define HAS_FINAL_STATE 1
#endif

/* The arguments of a kernel; the same for functions, and to hand them on. */
#define CONV_ARGS CONV_LIST(IN, OUT)
#define CONV_VIEWS CONV_LIST(VIEW_IN, VIEW_OUT)
#define CONV_LIST(IN_, OUT_)                                                                                           \
    IN_(T_X, x), IN_(T_WEIGHT, weight), IN_(T_BIAS, bias), IN_(T_INITIAL_STATE, initial_state),                        \
        IN_(T_CU_SEQLENS, cu_seqlens), OUT_(T_OUT, out), OUT_(T_FINAL_STATE, final_state), const ulong B,              \
        const ulong D, const ulong S, const ulong N
#define CONV                                                                                                           \
    x, x_at, weight, weight_at, bias, bias_at, initial_state, initial_state_at, cu_seqlens, cu_seqlens_at, out,        \
        out_at, final_state, final_state_at, B, D, S, N

/* Where channel d of token t of batch entry b stands: x and out are [B][D][S], or [B][S][D] with LAYOUT 1. */
#if LAYOUT == 0
#define AT(name, b, d, t) (ROW2(name, b, d) + (t))
#else
#define AT(name, b, d, t) (ROW2(name, b, t) + (d))
#endif

#if HAS_CU_SEQLENS
#define SEQUENCES N
#else
#define SEQUENCES B
#endif

/* Tokens begin .. end of batch entry b; number `state` of the states. */
struct sequence {
    ulong b, begin, end, state;
};

static inline void sequence_number(CONV_VIEWS, ulong i, struct sequence *s)
{
#if HAS_CU_SEQLENS
    const ulong2 bounds = seq_bounds(cu_seqlens + cu_seqlens_at.x, i, S);
    *s = (struct sequence){0, bounds.x, bounds.y, i};
#else
    *s = (struct sequence){i, 0, S, i};
#endif
}

/* The sequence of token t of batch entry b; if it has none, one with t outside of begin .. end. */
static inline void sequence_of(CONV_VIEWS, ulong b, ulong t, struct sequence *s)
{
#if HAS_CU_SEQLENS
    b = seq_of(cu_seqlens + cu_seqlens_at.x, N, t);
#endif
    sequence_number(CONV, b, s);
}

/* Position p >= -TAIL of channel d. */
static inline float input_at(CONV_VIEWS, const struct sequence *s, ulong d, long p)
{
    if (p >= 0)
        return LD(T_X, AT(x, s->b, d, s->begin + (ulong)p), 0);
#if HAS_INITIAL_STATE
    return LD(T_INITIAL_STATE, ROW2(initial_state, s->state, d), TAIL + p);
#else
    return 0.0f;
#endif
}

/* Token t, tap by tap. */
static inline float output_at(CONV_VIEWS, const struct sequence *s, ulong d, ulong t)
{
    float y = BIAS(d);
    for (int k = 0; k < W; k++)
        y += WEIGHT(d, k) * input_at(CONV, s, d, (long)(t - s->begin) - TAIL + k);
    return ACTIVATE(y);
}

/* The final state of channel d: the last TAIL positions. */
static inline void store_final_state(CONV_VIEWS, const struct sequence *s, ulong d)
{
    const long length = (long)(s->end - s->begin);
    for (int k = 0; k < TAIL; k++)
        ST(T_FINAL_STATE, ROW2(final_state, s->state, d), k, input_at(CONV, s, d, length - TAIL + k));
}

#endif
