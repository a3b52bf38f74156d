/* SPDX-License-Identifier: MIT */
/*
 * Every operation in plain C double: what tests, `verify` and the tuner believe.
 *
 * Each function is a wd_op.reference: t[i] holds tensor i of the operation's table, packed in its shape, one double
 * an element, whatever its dtype (cu_seqlens and slots too); NULL where an optional tensor is absent. Outputs are
 * written, in-out tensors updated; elements that the operation leaves alone (a skipped sequence's output, chunks past
 * the last one of packed sequences) are left alone here too. `p` is a checked problem: defaults are filled in.
 * They allocate nothing and cannot fail. Written to be read first and to be fast second.
 */
#ifndef WD_REFERENCE_H
#define WD_REFERENCE_H

#include "op.h"

void wd_reference_fp8_quant(const struct wd_problem *p, double *const *t);
void wd_reference_causal_conv1d(const struct wd_problem *p, double *const *t);
void wd_reference_causal_conv1d_update(const struct wd_problem *p, double *const *t);
void wd_reference_recompute_w_u(const struct wd_problem *p, double *const *t);
void wd_reference_chunk_fwd_h(const struct wd_problem *p, double *const *t);
void wd_reference_chunk_fwd_o(const struct wd_problem *p, double *const *t);
void wd_reference_gdn_prepare(const struct wd_problem *p, double *const *t);
void wd_reference_gdn_forward(const struct wd_problem *p, double *const *t);
void wd_reference_gdn_decode(const struct wd_problem *p, double *const *t);

/* A sequence's tokens [begin, end) in a tensor seen as [B*T] rows, and the number of its first chunk in [B*NT]. */
struct wd_span {
    size_t begin, end, chunk;
};

/** Sequence `s`: batch entry s of T tokens, or, with cu_seqlens, packed sequence s. */
struct wd_span wd_sequence_span(const double *cu_seqlens, size_t T, size_t s);

#endif
