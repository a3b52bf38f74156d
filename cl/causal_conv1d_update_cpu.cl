/* SPDX-License-Identifier: MIT */
/*
 * causal_conv1d_update, CPU form: a work-item takes a run of blocks; a block is BLOCK channels of a sequence, VL at a
 * time. States are transposed on their way into registers and back; weights once for all sequences of a block. PART
 * channels at a time; what the next parts read is asked for meanwhile.
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

/* ---- n elements between memory and a private array ---- */

static inline void load_x(__global const ELEM(T_X) *p, uint n, float *to)
{
    uint i = 0;
    for (; i + VL <= n; i += VL)
        CAT(vstore, VL)(LDVL(T_X, p + i), 0, to + i);
    for (; i < n; i++)
        to[i] = LD(T_X, p, i);
}

static inline void load_state(__global const ELEM(T_STATE) *p, uint n, float *to)
{
    uint i = 0;
    for (; i + VL <= n; i += VL)
        CAT(vstore, VL)(LDVL(T_STATE, p + i), 0, to + i);
    for (; i < n; i++)
        to[i] = LD(T_STATE, p, i);
}

static inline void store_state(__global ELEM(T_STATE) *p, uint n, const float *from)
{
    uint i = 0;
    for (; i + VL <= n; i += VL)
        STVL(T_STATE, p + i, CAT(vload, VL)(0, from + i));
    for (; i < n; i++)
        ST(T_STATE, p, i, from[i]);
}

static inline void store_out(__global ELEM(T_OUT) *p, uint n, const float *from)
{
    uint i = 0;
    for (; i + VL <= n; i += VL)
        put(p + i, CAT(vload, VL)(0, from + i), false);
    for (; i < n; i++)
        ST(T_OUT, p, i, ACTIVATE(from[i]));
}

/* One token of n channels; h [channel][TAIL] moves on. A loop that compilers turn into vectors. */
static inline void convolve(const float *w, const float *b, float *restrict h, const float *restrict v, uint n,
                            float *restrict y)
{
    for (uint c = 0; c < n; c++) {
        float sum = b[c] + w[TAIL * BLOCK + c] * v[c];
        #pragma unroll
        for (uint k = 0; k < TAIL; k++)
            sum += w[k * BLOCK + c] * h[c * TAIL + k];
        #pragma unroll
        for (uint k = 0; k + 1 < TAIL; k++)
            h[c * TAIL + k] = h[c * TAIL + k + 1];
        if (TAIL > 0)
            h[c * TAIL + TAIL - 1] = v[c];
        y[c] = sum;
    }
}

/* Channels whose states are in flight at a time: no more than the first cache holds beside the weights. */
#define PART 64

WIDE __kernel void causal_conv1d_update_cpu(IN(T_X, x), IN(T_WEIGHT, weight), IN(T_BIAS, bias), OUT(T_STATE, state),
                                            IN(T_SLOT, slot), OUT(T_OUT, out), const ulong B, const ulong D,
                                            const ulong T, const ulong slots)
{
    const ulong item = get_global_id(0), items = get_global_size(0), blocks = B * ((D + BLOCK - 1) / BLOCK);
    float w[W][BLOCK], start[BLOCK], h[TAIL * PART + 1], v[PART], y[PART];
    ulong loaded = D;
    for (ulong i = blocks * item / items; i < blocks * (item + 1) / items; i++) {
        const ulong b = i % B, first = i / B * BLOCK;
        const uint channels = (uint)min(D - first, (ulong)BLOCK);
        const long s = STATE_OF(b);
        if (s < 0)
            continue;
        if (first != loaded)
            load_weights(weight, weight_at, bias, bias_at, first, channels, w, start);
        loaded = first;
        for (uint at = 0; at < channels; at += PART) {
            const ulong d = first + at;
            const uint n = min(channels - at, (uint)PART);
            PREFETCH_PART(ROW2(x, b, 0) + d, n);
            PREFETCH_PART(ROW2(state, s, d), n * TAIL);
            if (state_at.z == TAIL)
                load_state(ROW2(state, s, d), n * TAIL, h);
            else
                for (uint c = 0; c < n; c++)
                    load_state(ROW2(state, s, d + c), TAIL, h + c * TAIL);
            for (ulong t = 0; t < T; t++) {
                load_x(ROW2(x, b, t) + d, n, v);
                convolve(w[0] + at, start + at, h, v, n, y);
                store_out(ROW2(out, b, t) + d, n, y);
            }
            if (state_at.z == TAIL)
                store_state(ROW2(state, s, d), n * TAIL, h);
            else
                for (uint c = 0; c < n; c++)
                    store_state(ROW2(state, s, d + c), TAIL, h + c * TAIL);
        }
    }
}
