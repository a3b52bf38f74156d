/* SPDX-License-Identifier: MIT */
/*
 * causal_conv1d_update, CPU form: a work-item takes a run of blocks; a block is BLOCK channels of a sequence, VL at a
 * time. States are transposed on their way into registers and back; weights once for all sequences of a block.
 *
 * x and out [B][T][D], state [slots][D][TAIL], oldest first.
 * Parameters: VL (vl), BLOCK (a multiple of VL).
 * Launch: {items}, local size 1; the items share all blocks evenly.
 * Traffic: everything once, weights again for each item that comes to a block.
 */
#ifndef T_X
#define T_X f32
#define T_STATE f32
#define T_SLOT i32
#define T_OUT f32
#define HAS_SLOT 1
#endif
#include "conv_cpu.cl"

/* Arguments of a call, and what walks with them. */
#define UPDATE_ARGS                                                                                                    \
    IN(T_X, x), IN(T_WEIGHT, weight), IN(T_BIAS, bias), OUT(T_STATE, state), IN(T_SLOT, slot), OUT(T_OUT, out),        \
        const ulong B, const ulong D, const ulong T, const ulong slots
#define UPDATE                                                                                                         \
    x, x_at, weight, weight_at, bias, bias_at, state, state_at, slot, slot_at, out, out_at, B, D, T, slots

/* VL channels from d of sequence b with packed states; w and start are theirs, BLOCK from tap to tap. */
static inline void update_vector(UPDATE_ARGS, ulong b, ulong s, ulong d, const float *w, const float *start)
{
    __global ELEM(T_STATE) *states = ROW2(state, s, d);
    float flat[TAIL * VL + VL];
    VFLOAT h[W];
    for (uint k = 0; k < TAIL; k++)
        CAT(vstore, VL)(LDVL(T_STATE, states + k * VL), 0, flat + k * VL);
    for (uint k = 0; k < TAIL; k++) {
        float lane[VL];
        for (uint e = 0; e < VL; e++)
            lane[e] = flat[e * TAIL + k];
        h[k] = CAT(vload, VL)(0, lane);
    }
    for (ulong t = 0; t < T; t++) {
        h[TAIL] = LDVL(T_X, ROW2(x, b, t) + d);
        VFLOAT y = CAT(vload, VL)(0, start);
        for (uint k = 0; k < W; k++)
            y += CAT(vload, VL)(0, w + k * BLOCK) * h[k];
        put(ROW2(out, b, t) + d, y, false);
        for (uint k = 0; k < TAIL; k++)
            h[k] = h[k + 1];
    }
    for (uint k = 0; k < TAIL; k++) {
        float lane[VL];
        CAT(vstore, VL)(h[k], 0, lane);
        for (uint e = 0; e < VL; e++)
            flat[e * TAIL + k] = lane[e];
    }
    for (uint k = 0; k < TAIL; k++)
        STVL(T_STATE, states + k * VL, CAT(vload, VL)(0, flat + k * VL));
}

/* One channel d of sequence b. */
static inline void update_channel(UPDATE_ARGS, ulong b, ulong s, ulong d, const float *w, float start)
{
    __global ELEM(T_STATE) *states = ROW2(state, s, d);
    float h[W];
    for (uint k = 0; k < TAIL; k++)
        h[k] = LD(T_STATE, states, k);
    for (ulong t = 0; t < T; t++) {
        float y = start;
        h[TAIL] = LD(T_X, ROW2(x, b, t), d);
        for (uint k = 0; k < W; k++)
            y += w[k * BLOCK] * h[k];
        ST(T_OUT, ROW2(out, b, t), d, ACTIVATE(y));
        for (uint k = 0; k < TAIL; k++)
            h[k] = h[k + 1];
    }
    for (uint k = 0; k < TAIL; k++)
        ST(T_STATE, states, k, h[k]);
}

WIDE __kernel void causal_conv1d_update_cpu(UPDATE_ARGS)
{
    const ulong item = get_global_id(0), items = get_global_size(0), blocks = B * ((D + BLOCK - 1) / BLOCK);
    float w[W][BLOCK], start[BLOCK];
    ulong loaded = D;
    for (ulong i = blocks * item / items; i < blocks * (item + 1) / items; i++) {
        const ulong b = i % B, d = i / B * BLOCK;
        const uint n = (uint)min(D - d, (ulong)BLOCK);
        const long s = STATE_OF(b);
        if (s < 0)
            continue;
        if (d != loaded)
            load_weights(weight, weight_at, bias, bias_at, d, n, w, start);
        loaded = d;
        uint c = 0;
        if (state_at.z == TAIL)
            for (; c + VL <= n; c += VL)
                update_vector(UPDATE, b, (ulong)s, d + c, &w[0][c], start + c);
        for (; c < n; c++)
            update_channel(UPDATE, b, (ulong)s, d + c, &w[0][c], start[c]);
    }
}
