/* SPDX-License-Identifier: MIT */
/* chunk_fwd_h: the recurrence over chunks: the state before each, v_new, and the final state. */
#include "dims.h"
#include "op_gdn.h"
#include "op_gdn_mma.h"
#include "reference.h"

typedef wd_chunk_fwd_h_args args;

static const struct wd_dim_desc dims[] = {WD_GDN_DIMS(args)};

/* w is small, or the random states of long sequences would leave f16's range. */
static const struct wd_tensor_desc tensors[] = {
    [FWDH_k] = WD_GDN_DATA(args, k, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [FWDH_w] = WD_GDN_DATA(args, w, WD_IN, WD_FILL_SMALL, GDN_B, GDN_T, GDN_HV, GDN_K),
    [FWDH_u] = WD_GDN_DATA(args, u, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    [FWDH_g] = WD_GDN_SUM(args, WD_IN, WD_FILL_GATE_SUM, GDN_B, GDN_T, GDN_HV),
    [FWDH_initial_state] = WD_GDN_STATE(args, initial_state, WD_IN, GDN_SEQ, GDN_HV, GDN_K, GDN_V),
    [FWDH_cu_seqlens] = WD_GDN_CU_SEQLENS(args, GDN_N1),
    [FWDH_h] = WD_GDN_DATA(args, h, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, GDN_K, GDN_V),
    [FWDH_v_new] = WD_GDN_DATA(args, v_new, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    [FWDH_final_state] = WD_GDN_STATE(args, final_state, WD_OUT, GDN_SEQ, GDN_HV, GDN_K, GDN_V),
};

static const struct wd_scalar_desc scalars[] = {[FWDH_math] = WD_GDN_MATH(args)};

static wd_status check(struct wd_problem *p)
{
    return wd_gdn_check(p, FWDH_cu_seqlens);
}

static double flops(const struct wd_problem *p)
{
    return 4 * (double)p->dim[GDN_B] * (double)p->dim[GDN_T] * (double)p->dim[GDN_HV] * (double)p->dim[GDN_K] *
           (double)p->dim[GDN_V];
}

static size_t states(const struct wd_problem *p)
{
    return p->dim[GDN_SEQ] * p->dim[GDN_HV];
}

/* ---- cpu ---- */

/* Packed w and k, larger than the first-level cache, are read once a panel: where registers are few, wide panels of few
 * rows read them less often: a tenth less time than 4 x 2 on AVX2. Not where they end in
 * more columns of padding. */
static void cpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    const size_t past = p->dim[GDN_V] % 32;
    wd_gdn_cpu_model(caps, p, param);
    if (param[WD_CPU_VL] == 8 && (past == 0 || past > 16)) {
        param[WD_CPU_RB] = 2;
        param[WD_CPU_NC] = 4;
    }
}

static void cpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    wd_gdn_grid(g, 1, states(p) * wd_gdn_slices(caps, states(p), wd_gdn_cpu_panels(param, p->dim[GDN_V]), 4));
}

static const struct wd_variant cpu = {
    .name = "cpu",
    .file = "chunk_fwd_h_cpu.cl",
    .kernel = "chunk_fwd_h_cpu",
    .params = wd_gdn_cpu_params,
    .refuse = wd_gdn_cpu_refuse,
    .model = cpu_model,
    .valid = wd_gdn_cpu_valid,
    .grid = cpu_grid,
};

/* ---- tile ---- */

enum { TILE_TX, TILE_MR };
static const struct wd_param tile_params[] = {
    [TILE_TX] = {"tx", wd_tile_tx},
    [TILE_MR] = {"mr", wd_tile_mr},
    {NULL, NULL},
};

/* The state and v_new of 4*TX columns stay in local memory. */
static bool tile_fits(const struct wd_caps *caps, const struct wd_problem *p, int tx, int mr)
{
    const size_t padded = (p->dim[GDN_K] + WD_TILE_DEPTH - 1) / WD_TILE_DEPTH * WD_TILE_DEPTH;
    return wd_tile_fits(caps, tx, mr, (padded + WD_GDN_CHUNK) * 4 * (size_t)tx + WD_TILE_STAGE);
}

static const char *tile_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    return tile_fits(caps, p, 4, 8) ? NULL : "needs work-groups of 32 and 30 KB of local memory for K 256";
}

static size_t tiles(const struct wd_problem *p, int tx)
{
    return (p->dim[GDN_V] + 4 * (size_t)tx - 1) / (4 * (size_t)tx);
}

/* Wide groups read w and k less often, narrow ones keep more compute units busy: the widest that fit and leave none
 * without work, for the chunks of a state come one after the other. For K 128 a group of 64 columns takes 58 KB of
 * local memory, of 32 columns 34 KB, of 16 columns 21 KB: one, one and three of them on AMD and Intel (64 KB). */
static void tile_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    int tx = 16;
    while (tx > 4 &&
           (!tile_fits(caps, p, tx, wd_tile_model_mr(caps, tx)) || states(p) * tiles(p, tx) < caps->compute_units))
        tx /= 2;
    param[TILE_TX] = tx;
    param[TILE_MR] = wd_tile_model_mr(caps, tx);
}

static bool tile_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    return tile_fits(caps, p, param[TILE_TX], param[TILE_MR]);
}

static void tile_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    wd_gdn_grid(g, (size_t)(param[TILE_TX] * WD_GDN_CHUNK / param[TILE_MR]), states(p) * tiles(p, param[TILE_TX]));
}

static const struct wd_variant tile = {
    .name = "tile",
    .file = "chunk_fwd_h.cl",
    .kernel = "chunk_fwd_h_tile",
    .params = tile_params,
    .refuse = tile_refuse,
    .model = tile_model,
    .valid = tile_valid,
    .grid = tile_grid,
};

/* ---- plain ---- */

static void plain_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    wd_gdn_grid_plain(caps, states(p) * p->dim[GDN_V], g);
}

static const struct wd_variant plain = {
    .name = "plain",
    .file = "chunk_fwd_h.cl",
    .kernel = "chunk_fwd_h_plain",
    .grid = plain_grid,
};

static const struct wd_variant *const variants[] = {&cpu,
                                                    &wd_variant_chunk_fwd_h_wgmma,
                                                    &wd_variant_chunk_fwd_h_narrow,
                                                    &wd_variant_chunk_fwd_h_tf32,
                                                    &wd_variant_chunk_fwd_h_mma,
                                                    &tile,
                                                    &plain,
                                                    NULL};

const struct wd_op wd_op_chunk_fwd_h = {
    .id = WD_OP_CHUNK_FWD_H,
    .name = "chunk_fwd_h",
    .summary = "the gated delta rule's recurrence over chunks: states, v_new, final state",
    .args_size = sizeof(args),
    .dims = dims,
    .num_dims = WD_COUNT(dims),
    .tensors = tensors,
    .num_tensors = WD_COUNT(tensors),
    .scalars = scalars,
    .num_scalars = WD_COUNT(scalars),
    .layout = -1,
    .workspace_offset = WD_DERIVED,
    .cu_seqlens_offset = offsetof(args, cu_seqlens_host),
    .variants = variants,
    .check = check,
    .flops = flops,
    .reference = wd_reference_chunk_fwd_h,
};

wd_status wd_chunk_fwd_h(wd_context *ctx, const wd_chunk_fwd_h_args *a, const wd_launch *launch)
{
    return wd_op_call(ctx, &wd_op_chunk_fwd_h, a, launch);
}
