/* SPDX-License-Identifier: MIT */
/*
 * From what a model hands over to what the gated delta rule reads: the log gate and beta of a token, the factor that
 * normalises a row of q or k (Qwen3-Next and its kin), and the state of a sequence. All four are the identity unless
 * the call asks for them.
 */
#ifndef WD_GDN_GATES
#define WD_GDN_GATES

#include "common.cl"

#ifndef HAS_A_LOG
#define HAS_A_LOG 0 /* gates are raw: gate = -exp(A_log) * softplus(gate + dt_bias) */
#endif
#ifndef BETA_MODE
#define BETA_MODE 0 /* 1: beta is sigmoid of what is given */
#endif
#ifndef HAS_SLOT
#define HAS_SLOT 0
#endif
#ifndef L2NORM
#define L2NORM 0 /* rows of q and k are divided by sqrt(sum of squares + eps) */
#endif

/* The lowest log gate, WD_GDN_FORGET: exp() of it is 0 in f32, so lower ones say no more; but their sums lose the low
 * bits of milder neighbours, and those of infinite ones are good for nothing. */
#define FORGET -110.0f

/* The log gate of a token in head hv, not below FORGET; NaN stays. A_log and dt_bias stand at their first element. */
static inline float log_gate(float gate, __global const float *A_log, __global const float *dt_bias, ulong hv)
{
#if HAS_A_LOG
    gate = -exp(A_log[hv]) * softplus(gate + dt_bias[hv]);
#endif
    return gate < FORGET ? FORGET : gate;
}

static inline float beta_value(float b) { return BETA_MODE ? sigmoid(b) : b; }

static inline float row_factor(float squares, float eps) { return L2NORM ? 1.0f / sqrt(squares + eps) : 1.0f; }

/* The state of sequence b, or SKIPPED. */
static inline ulong state_of(__global const int *slot, ulong b, ulong slots)
{
#if HAS_SLOT
    return slot_state(slot[b], slots);
#else
    return b;
#endif
}

#endif
