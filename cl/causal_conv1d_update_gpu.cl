/* SPDX-License-Identifier: MIT */
/*
 * causal_conv1d_update, GPU form: an item does WIDTH channels of a sequence.
 *
 * x and out [B][T][D], state [slots][D][TAIL], oldest first. An item loads states, weights, biases and its first token
 * at once, computes, moves the states on, and stores them once. Sequence b uses state slot[b], or b; one whose slot is
 * outside of 0 .. slots - 1 is skipped.
 *
 * Parameters: LOCAL0 (local), WIDTH (2 4 8 16; up to 16 bytes of x).
 * Launch: {ceil(D / WIDTH), B} in work-groups of {LOCAL0, 1}.
 * Traffic: everything once. The states and the weights of WIDTH channels lie together where rows are packed; they are
 * then moved as vectors if their address allows it, else element by element.
 */
#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef LOCAL0
#define LOCAL0 128
#endif
#ifndef T_X
#define T_X f32
#define T_STATE f32
#define T_SLOT i32
#define T_OUT f32
#define HAS_SLOT 1
#endif

#include "conv_taps.cl"
#include "lanes.cl"

/* Whether WIDTH channels of `rows` elements, `step` apart from p, can be moved as vectors. */
#define IS_PACKED(p, rows, step) ((step) == (rows) && ((size_t)(p) & (sizeof(*(p)) * WIDTH - 1)) == 0)

/* Channels to and from e[channel * rows + row]: as vectors if `wide`, else those of `valid` that exist. */
#define LOAD_CHANNELS(T, e, p, rows, step)                                                                             \
    if (wide) {                                                                                                        \
        _Pragma("unroll") for (uint i_ = 0; i_ < (rows)*WIDTH; i_ += WIDTH)                                            \
        {                                                                                                              \
            const VFLOAT v_ = LDA(T, WIDTH, (p) + i_);                                                                 \
            UNPACK((e) + i_, v_);                                                                                      \
        }                                                                                                              \
    } else {                                                                                                           \
        _Pragma("unroll") for (uint c_ = 0; c_ < WIDTH; c_++)                                                          \
            _Pragma("unroll") for (uint r_ = 0; r_ < (rows); r_++)                                                     \
                (e)[c_ * (rows) + r_] = c_ < valid ? LD(T, (p) + c_ * (step), r_) : 0.0f;                              \
    }

#define STORE_CHANNELS(T, p, e, rows, step)                                                                            \
    if (wide) {                                                                                                        \
        _Pragma("unroll") for (uint i_ = 0; i_ < (rows)*WIDTH; i_ += WIDTH)                                            \
            STA(T, WIDTH, (p) + i_, PACK((e) + i_));                                                                   \
    } else {                                                                                                           \
        _Pragma("unroll") for (uint c_ = 0; c_ < WIDTH; c_++)                                                          \
            _Pragma("unroll") for (uint r_ = 0; r_ < (rows); r_++)                                                     \
                if (c_ < valid)                                                                                        \
                    ST(T, (p) + c_ * (step), r_, (e)[c_ * (rows) + r_]);                                               \
    }

/* All tokens of channels d .. d + WIDTH - 1 of sequence b with state s. Loads come first, none behind a condition. */
static inline __attribute__((always_inline)) void
update(VIEW_IN(T_X, x), VIEW_IN(T_WEIGHT, weight), VIEW_IN(T_BIAS, bias), VIEW_OUT(T_STATE, state),
       VIEW_OUT(T_OUT, out), ulong T, ulong b, ulong s, ulong d, ulong valid, bool wide)
{
    __global ELEM(T_STATE) *home = ROW2(state, s, d);
    float w[W * WIDTH], start[WIDTH], h[TAIL * WIDTH + 1], v[WIDTH];
    LOAD_CHANNELS(T_STATE, h, home, TAIL, state_at.z)
    LOAD_CHANNELS(T_X, v, ROW2(x, b, 0) + d, 1, 1)
    LOAD_CHANNELS(T_WEIGHT, w, ROW1(weight, d), W, weight_at.y)
#if HAS_BIAS
    LOAD_CHANNELS(T_BIAS, start, ROW1(bias, 0) + d, 1, 1)
#else
    for (uint c = 0; c < WIDTH; c++)
        start[c] = 0.0f;
#endif
    for (ulong t = 0;;) {
        #pragma unroll
        for (uint c = 0; c < WIDTH; c++)
            v[c] = convolve_next(w + c * W, start[c], h + c * TAIL, v[c]);
        STORE_CHANNELS(T_OUT, ROW2(out, b, t) + d, v, 1, 1)
        if (++t >= T)
            break;
        LOAD_CHANNELS(T_X, v, ROW2(x, b, t) + d, 1, 1)
    }
    STORE_CHANNELS(T_STATE, home, h, TAIL, state_at.z)
}

__kernel GROUP_SIZE(LOCAL0) void
causal_conv1d_update_gpu(IN(T_X, x), IN(T_WEIGHT, weight), IN(T_BIAS, bias), OUT(T_STATE, state), IN(T_SLOT, slot),
                         OUT(T_OUT, out), const ulong B, const ulong D, const ulong T, const ulong slots)
{
    const ulong d = get_global_id(0) * WIDTH, b = get_group_id(1), valid = D - d;
    const ulong s = STATE_OF(b);
    if (d >= D || s == SKIPPED)
        return;
    bool wide = VEC >= WIDTH && valid >= WIDTH && IS_PACKED(ROW2(state, s, d), TAIL, state_at.z) &&
                IS_PACKED(ROW1(weight, d), W, weight_at.y);
#if HAS_BIAS
    wide = wide && IS_PACKED(ROW1(bias, 0) + d, 1, 1);
#endif
    if (wide)
        update(x, x_at, weight, weight_at, bias, bias_at, state, state_at, out, out_at, T, b, s, d, valid, true);
    else
        update(x, x_at, weight, weight_at, bias, bias_at, state, state_at, out, out_at, T, b, s, d, valid, false);
}
