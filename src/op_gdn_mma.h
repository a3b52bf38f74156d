/* SPDX-License-Identifier: MIT */
/* The gated delta net's kernels on matrix engines (mma.cl): variants for the operations' lists. */
#ifndef WD_OP_GDN_MMA_H
#define WD_OP_GDN_MMA_H

#include "op.h"

extern const struct wd_variant wd_variant_recompute_w_u_mma, wd_variant_recompute_w_u_mma_steps,
    wd_variant_chunk_fwd_h_mma, wd_variant_chunk_fwd_o_mma;

#endif
