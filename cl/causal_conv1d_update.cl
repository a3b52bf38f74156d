/* SPDX-License-Identifier: MIT */
/*
 * causal_conv1d_update: T new tokens of each sequence against its state, in place. Any device and type.
 *
 * x and out [B][T][D], state [slots][D][TAIL], oldest first. A work-item does WIDTH channels of a sequence: it holds
 * their states and the new token in registers, computes, moves on, and stores the states once. Sequence b uses state
 * slot[b], or b; one whose slot is outside of 0 .. slots - 1 is skipped.
 *
 * Parameters: WIDTH (1 2 4 8; 1 is the portable form).
 * Launch: {D / WIDTH, B}, any local size.
 * Traffic: everything once. States and weights of WIDTH channels are contiguous where these are packed; they are then
 * moved as vectors if their address allows it.
 */
#ifndef T_X
#define T_X f32
#define T_STATE f32
#define T_SLOT i32
#define T_OUT f32
#define HAS_SLOT 1
#endif
#include "conv_taps.cl"

#ifndef WIDTH
#define WIDTH 1
#endif

/* ---- WIDTH channels of `rows` elements, `step` apart at p; `valid` of them exist. Held as [channel][row] ---- */

#if WIDTH > 1
#define MOVES_WIDE(p, rows, step, valid)                                                                               \
    (VEC >= WIDTH && (valid) >= WIDTH && (step) == (rows) && ((size_t)(p) & (sizeof(*(p)) * WIDTH - 1)) == 0)
#define LOAD_WIDE(T, dst, p) CAT(vstore, WIDTH)(LDA(T, WIDTH, p), 0, dst)
#define STORE_WIDE(T, p, src) STA(T, WIDTH, p, CAT(vload, WIDTH)(0, src))
#else
#define MOVES_WIDE(p, rows, step, valid) false
#define LOAD_WIDE(T, dst, p) (void)0
#define STORE_WIDE(T, p, src) (void)0
#endif

#define LOAD_BLOCK(T, dst, p, rows, step, valid)                                                                       \
    if (MOVES_WIDE(p, rows, step, valid)) {                                                                            \
        for (uint i_ = 0; i_ < (rows)*WIDTH; i_ += WIDTH)                                                              \
            LOAD_WIDE(T, dst + i_, (p) + i_);                                                                          \
    } else {                                                                                                           \
        for (uint e_ = 0; e_ < WIDTH; e_++)                                                                            \
            for (uint r_ = 0; r_ < (rows); r_++)                                                                       \
                (dst)[e_ * (rows) + r_] = e_ < (valid) ? LD(T, (p) + e_ * (step), r_) : 0.0f;                          \
    }

#define STORE_BLOCK(T, p, src, rows, step, valid)                                                                      \
    if (MOVES_WIDE(p, rows, step, valid)) {                                                                            \
        for (uint i_ = 0; i_ < (rows)*WIDTH; i_ += WIDTH)                                                              \
            STORE_WIDE(T, (p) + i_, src + i_);                                                                         \
    } else {                                                                                                           \
        for (uint e_ = 0; e_ < WIDTH && e_ < (valid); e_++)                                                            \
            for (uint r_ = 0; r_ < (rows); r_++)                                                                       \
                ST(T, (p) + e_ * (step), r_, (src)[e_ * (rows) + r_]);                                                 \
    }

/* One token of one channel: h holds its last TAIL inputs, which move on. */
static inline float convolve(const float w[W], float bias, float h[W], float input)
{
    float y = bias + w[TAIL] * input;
    for (uint k = 0; k < TAIL; k++)
        y += w[k] * h[k];
    for (uint k = 0; k + 1 < TAIL; k++)
        h[k] = h[k + 1];
    if (TAIL > 0)
        h[TAIL - 1] = input;
    return ACTIVATE(y);
}

__kernel void causal_conv1d_update(IN(T_X, x), IN(T_WEIGHT, weight), IN(T_BIAS, bias), OUT(T_STATE, state),
                                   IN(T_SLOT, slot), OUT(T_OUT, out), const ulong B, const ulong D, const ulong T,
                                   const ulong slots)
{
    const ulong d = get_global_id(0) * WIDTH, b = get_global_id(1);
    if (d >= D)
        return;
    const ulong valid = D - d;
    const long s = STATE_OF(b);
    if (s < 0)
        return;

    float w[W * WIDTH], start[WIDTH], h[TAIL * WIDTH + 1], v[WIDTH];
    LOAD_BLOCK(T_WEIGHT, w, ROW1(weight, d), W, weight_at.y, valid)
    LOAD_BLOCK(T_STATE, h, ROW2(state, s, d), TAIL, state_at.z, valid)
    for (uint e = 0; e < WIDTH; e++)
        start[e] = e < valid ? BIAS(d + e) : 0.0f;
    for (ulong t = 0; t < T; t++) {
        LOAD_BLOCK(T_X, v, ROW2(x, b, t) + d, 1, 1, valid)
        for (uint e = 0; e < WIDTH; e++)
            v[e] = convolve(w + e * W, start[e], h + e * TAIL, v[e]);
        STORE_BLOCK(T_OUT, ROW2(out, b, t) + d, v, 1, 1, valid)
    }
    STORE_BLOCK(T_STATE, ROW2(state, s, d), h, TAIL, state_at.z, valid)
}
