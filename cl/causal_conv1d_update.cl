/* SPDX-License-Identifier: MIT */
/*
 * causal_conv1d_update, portable form: T new tokens of each sequence against its state, in place. Any device and type.
 *
 * x and out [B][T][D], state [slots][D][TAIL], oldest first. A work-item does a channel of a sequence: it holds its
 * state in registers and stores it once. Sequence b uses state slot[b], or b; one whose slot is outside of
 * 0 .. slots - 1 is skipped.
 *
 * Launch: {D, B}, any local size.
 * Traffic: everything once.
 */
#ifndef T_X
#define T_X f32
#define T_STATE f32
#define T_SLOT i32
#define T_OUT f32
#define HAS_SLOT 1
#endif
#include "conv_taps.cl"

__kernel void causal_conv1d_update(IN(T_X, x), IN(T_WEIGHT, weight), IN(T_BIAS, bias), OUT(T_STATE, state),
                                   IN(T_SLOT, slot), OUT(T_OUT, out), const ulong B, const ulong D, const ulong T,
                                   const ulong slots)
{
    const ulong d = get_global_id(0), b = get_global_id(1);
    if (d >= D)
        return;
    const ulong s = STATE_OF(b);
    if (s == SKIPPED)
        return;

    __global ELEM(T_STATE) *home = ROW2(state, s, d);
    float w[W], h[TAIL + 1];
    for (uint k = 0; k < W; k++)
        w[k] = WEIGHT(d, k);
    for (uint k = 0; k < TAIL; k++)
        h[k] = LD(T_STATE, home, k);
    for (ulong t = 0; t < T; t++)
        ST(T_OUT, ROW2(out, b, t), d, convolve_next(w, BIAS(d), h, LD(T_X, ROW2(x, b, t), d)));
    for (uint k = 0; k < TAIL; k++)
        ST(T_STATE, home, k, h[k]);
}
