/* SPDX-License-Identifier: MIT */
/* Random test data for an operation's inputs, by the `fill` kinds of its table. The same seed gives the same data on
 * every machine up to the last bits of log() and cos(). */
#ifndef WD_FILL_H
#define WD_FILL_H

#include "op.h"

/* How fast states are forgotten: what log gates look like. */
enum wd_gates {
    WD_GATES_MILD,  /* uniform in [-0.1, 0]: the state matters for many chunks */
    WD_GATES_STEEP, /* down to tens a token, as published test inputs are: exp() of a sum is almost always 0 */
    WD_GATES_ZERO,  /* nothing is forgotten */
};

/** Fills value[tensor], packed in its shape. If cu_seqlens is present and another tensor, it must be filled. */
void wd_fill(const struct wd_problem *p, size_t tensor, enum wd_gates gates, uint64_t seed, double *const *value);

#endif
