/* SPDX-License-Identifier: MIT */
/* The gated delta net on matrix engines (cl/mma.cl): variants for the operations' lists, and what they share. */
#ifndef WD_OP_GDN_MMA_H
#define WD_OP_GDN_MMA_H

#include "op.h"

extern const struct wd_variant wd_variant_gdn_prepare_mma, wd_variant_recompute_w_u_mma,
    wd_variant_recompute_w_u_mma_steps, wd_variant_chunk_fwd_o_wgmma, wd_variant_chunk_fwd_h_mma,
    wd_variant_chunk_fwd_h_narrow, wd_variant_chunk_fwd_h_tf32, wd_variant_chunk_fwd_h_wgmma,
    wd_variant_chunk_fwd_o_mma, wd_variant_gdn_forward_mma, wd_variant_gdn_forward_wgmma;

/* Operations that are halves of gdn_forward: numbers that wd_op_id will not reach. */
enum { WD_OP_GDN_LOCAL = 200, WD_OP_GDN_WALK, WD_OP_GDN_INTRA, WD_OP_GDN_WALK_WGMMA };

/** The description of such a half, from args, dims, tensors, scalars, variants and check that begin with `half`. */
#define WD_GDN_HALF(id_, name_, half)                                                                                  \
    {                                                                                                                  \
        .id = (wd_op_id)(id_), .name = name_, .args_size = sizeof(struct half##_args), .dims = half##_dims,            \
        .num_dims = WD_COUNT(half##_dims), .tensors = half##_tensors, .num_tensors = WD_COUNT(half##_tensors),         \
        .scalars = half##_scalars, .num_scalars = WD_COUNT(half##_scalars), .layout = -1,                              \
        .workspace_offset = WD_DERIVED, .cu_seqlens_offset = offsetof(struct half##_args, cu_seqlens_host),            \
        .variants = half##_variants, .check = half##_check, .flops = wd_gdn_half_flops                                 \
    }
double wd_gdn_half_flops(const struct wd_problem *p); /* 0: the whole operation counts them */

/** Why the engine cannot multiply these `n` tensors in this problem, or NULL. */
const char *wd_mma_refuse(const struct wd_caps *caps, const struct wd_problem *p, const size_t *operands, size_t n);

/** Lines that a row of `width` elements takes; bytes of a tile of such rows. `size`: of an element. */
size_t wd_mma_lines(size_t width, size_t size);
size_t wd_mma_tile(size_t rows, size_t width, size_t size);

/** Kernels that normalise k by a factor on v_new: in f16 a short k's factor may leave its range, where the k that it
 *  normalises does not. `l2norm`: the choice's index. */
#define WD_MMA_F16_KEYS "f16 does not hold the factors that normalise k"
static inline bool wd_mma_f16_keys(const struct wd_problem *p, size_t k, size_t l2norm)
{
    return p->tensor[k].dtype == WD_F16 && p->choice[l2norm];
}

/** Groups that serve all heads of a chunk where one serves two that share a head of k. */
static inline size_t wd_mma_pairs(size_t H, size_t HV)
{
    return H ? H * ((HV / H + 1) / 2) : 0;
}

enum { WD_MMA_DIAGONAL = (WD_GDN_CHUNK * 20 + 16) * 4 }; /* bytes of gdn_solve_mma.cl's D_SIZE floats */

/* ---- The walk along a sequence (cl/gdn_walk_mma.cl), which two operations take ---- */

struct wd_walk {
    size_t k, u;  /* the tensors of a factor and of u, or of u's type */
    bool forward; /* q and P too */
};

enum { WD_WALK_SCALES = 2 * WD_GDN_CHUNK + 4 }; /* floats that gdn_local_mma.cl leaves for a chunk */

enum { WD_WALK_WV, WD_WALK_WK, WD_WALK_STAGES };
extern const struct wd_param wd_walk_params[];

const char *wd_walk_refuse(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_walk *walk);
bool wd_walk_valid(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_walk *walk,
                   const int *param);
void wd_walk_model(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_walk *walk, int *param);
void wd_walk_grid(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_walk *walk, const int *param,
                  struct wd_grid *g);

#endif
