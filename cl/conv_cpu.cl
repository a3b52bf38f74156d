/* SPDX-License-Identifier: MIT */
/* What the CPU forms of causal_conv1d and causal_conv1d_update share. */
#ifndef WD_CONV_CPU
#define WD_CONV_CPU

#include "cpu.cl"
#include "conv_taps.cl"

#ifndef T_OUT
#define T_OUT f32
#endif
#ifndef BLOCK
#define BLOCK 512
#endif

/* Activates and stores VL outputs. */
static inline void put(__global ELEM(T_OUT) *p, VFLOAT y, const bool stream)
{
    y = ACTIVATE(y);
    if (stream)
        STREAM_VL(T_OUT, p, y);
    else
        STVL(T_OUT, p, y);
}

/* Weights, transposed, and biases of `n` channels from d; zeros up to a multiple of VL. */
static inline void load_weights(VIEW_IN(T_WEIGHT, weight), VIEW_IN(T_BIAS, bias), ulong d, uint n,
                                float w[W][BLOCK], float b[BLOCK])
{
    for (uint i = 0; i < n; i++) {
        b[i] = BIAS(d + i);
        for (uint k = 0; k < W; k++)
            w[k][i] = WEIGHT(d + i, k);
    }
    for (uint i = n; i % VL != 0; i++) {
        b[i] = 0;
        for (uint k = 0; k < W; k++)
            w[k][i] = 0;
    }
}

#endif
