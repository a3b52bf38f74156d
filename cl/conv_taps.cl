/* SPDX-License-Identifier: MIT */
/* What causal_conv1d and causal_conv1d_update share: the width, weights [D][W], biases [D] and the activation. */
#ifndef WD_CONV_TAPS
#define WD_CONV_TAPS

#include "common.cl"

#ifndef T_WEIGHT
#define T_WEIGHT f32
#define T_BIAS f32
#define HAS_BIAS 1
#define ACT 1
#define W 4
#endif

#define TAIL (W - 1)

#if HAS_BIAS
#define BIAS(d) LD(T_BIAS, ROW1(bias, 0), d)
#else
#define BIAS(d) 0.0f
#endif
#define WEIGHT(d, k) LD(T_WEIGHT, ROW1(weight, d), k)

/* SiLU of a float or a vector. NVIDIA's reciprocal is right to 1 ulp and ten times as fast as a division. */
#if ACT == 1 && WD_SM
#define ACTIVATE(y) ((y)*native_recip(1.0f + exp(-(y))))
#elif ACT == 1
#define ACTIVATE(y) ((y) / (1.0f + exp(-(y))))
#else
#define ACTIVATE(y) (y)
#endif

/* One token of one channel: h holds its last TAIL inputs, which move on. */
static inline float convolve_next(const float w[W], float bias, float h[TAIL + 1], float input)
{
    float y = bias + w[TAIL] * input;
    #pragma unroll
    for (uint k = 0; k < TAIL; k++)
        y += w[k] * h[k];
    #pragma unroll
    for (uint k = 0; k + 1 < TAIL; k++)
        h[k] = h[k + 1];
    if (TAIL > 0)
        h[TAIL - 1] = input;
    return ACTIVATE(y);
}

/* Which state sequence b of causal_conv1d_update uses, or SKIPPED. */
#if HAS_SLOT
#define STATE_OF(b) slot_state(LD(i32, ROW1(slot, 0), b), slots)
#else
#define STATE_OF(b) ((ulong)(b))
#endif

#endif
