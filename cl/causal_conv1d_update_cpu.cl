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
#include "threes.cl"

/* ---- Up to VL channels ---- */

static inline VFLOAT load_x(__global const ELEM(T_X) *p, uint n)
{
    if (n == VL)
        return LDVL(T_X, p);
    float e[VL] = {0};
    for (uint c = 0; c < n; c++)
        e[c] = LD(T_X, p, c);
    return CAT(vload, VL)(0, e);
}

static inline void store_out(__global ELEM(T_OUT) *p, uint n, VFLOAT y)
{
    if (n == VL) {
        put(p, y, false);
        return;
    }
    float e[VL];
    CAT(vstore, VL)(y, 0, e);
    for (uint c = 0; c < n; c++)
        ST(T_OUT, p, c, ACTIVATE(e[c]));
}

/* States of n channels, `step` elements apart: h[k] holds the k-th oldest input of each. */
static inline void load_state(__global const ELEM(T_STATE) *p, ulong step, uint n, VFLOAT h[TAIL + 1])
{
#if TAIL == 3
    if (n == VL && step == TAIL) {
        const VFLOAT m[3] = {LDVL(T_STATE, p), LDVL(T_STATE, p + VL), LDVL(T_STATE, p + 2 * VL)};
        take_threes(h, m);
        return;
    }
#endif
    for (uint k = 0; k < TAIL; k++) {
        float e[VL] = {0};
        for (uint c = 0; c < n; c++)
            e[c] = LD(T_STATE, p + c * step, k);
        h[k] = CAT(vload, VL)(0, e);
    }
}

static inline void store_state(__global ELEM(T_STATE) *p, ulong step, uint n, const VFLOAT h[TAIL + 1])
{
#if TAIL == 3
    if (n == VL && step == TAIL) {
        VFLOAT m[3];
        give_threes(m, h);
        STVL(T_STATE, p, m[0]);
        STVL(T_STATE, p + VL, m[1]);
        STVL(T_STATE, p + 2 * VL, m[2]);
        return;
    }
#endif
    for (uint k = 0; k < TAIL; k++) {
        float e[VL];
        CAT(vstore, VL)(h[k], 0, e);
        for (uint c = 0; c < n; c++)
            ST(T_STATE, p + c * step, k, e[c]);
    }
}

/* The channels' next token; h moves on. w and b: of the first of them. */
static inline VFLOAT convolve(const float *w, const float *b, VFLOAT h[TAIL + 1], VFLOAT v)
{
    VFLOAT sum = CAT(vload, VL)(0, b) + CAT(vload, VL)(0, w + TAIL * BLOCK) * v;
    #pragma unroll
    for (uint k = 0; k < TAIL; k++) {
        sum += CAT(vload, VL)(0, w + k * BLOCK) * h[k];
        h[k] = k + 1 < TAIL ? h[k + 1] : v;
    }
    return sum;
}

/* Channels whose memory is asked for at a time, and how long before: a block ends before a page of its state does, and
 * what comes then lies in another sequence. */
#define PART 64
#define LEAD (4 * PART)

WIDE __kernel void causal_conv1d_update_cpu(IN(T_X, x), IN(T_WEIGHT, weight), IN(T_BIAS, bias), OUT(T_STATE, state),
                                            IN(T_SLOT, slot), OUT(T_OUT, out), const ulong B, const ulong D,
                                            const ulong T, const ulong slots)
{
    const ulong item = get_global_id(0), items = get_global_size(0), blocks = B * ((D + BLOCK - 1) / BLOCK);
    float w[W][BLOCK], start[BLOCK];
    VFLOAT h[TAIL + 1];
    ulong loaded = D;
    for (ulong i = blocks * item / items; i < blocks * (item + 1) / items; i++) {
        const ulong b = i % B, first = i / B * BLOCK, next = (i + 1) % B, next_first = (i + 1) / B * BLOCK;
        const uint channels = (uint)min(D - first, (ulong)BLOCK);
        const ulong s = STATE_OF(b), next_s = STATE_OF(next);
        if (s == SKIPPED)
            continue;
        if (first != loaded)
            load_weights(weight, weight_at, bias, bias_at, first, channels, w, start);
        loaded = first;
        for (uint at = 0; at < channels; at += VL) {
            const ulong d = first + at;
            const uint n = min(channels - at, (uint)VL);
            const bool here = at + LEAD < channels;
            if (at % PART == 0 && (here || next_s != SKIPPED)) {
                const ulong lead = here ? d + LEAD : next_first + at + LEAD - channels;
                PREFETCH_LINES(ROW2(x, here ? b : next, 0) + lead, PART);
                PREFETCH_LINES(ROW2(state, here ? s : next_s, lead), PART * TAIL);
            }
            load_state(ROW2(state, s, d), state_at.z, n, h);
            for (ulong t = 0; t < T; t++)
                store_out(ROW2(out, b, t) + d, n, convolve(w[0] + at, start + at, h, load_x(ROW2(x, b, t) + d, n)));
            store_state(ROW2(state, s, d), state_at.z, n, h);
        }
    }
}
