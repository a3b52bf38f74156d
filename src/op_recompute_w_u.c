/* SPDX-License-Identifier: MIT */
/* recompute_w_u: u = A @ (v * beta) and w = A @ (k * beta * exp(g)), chunk by chunk. */
#include "dims.h"
#include "op_gdn.h"
#include "op_gdn_mma.h"
#include "reference.h"

typedef wd_recompute_w_u_args args;

static const struct wd_dim_desc dims[] = {WD_GDN_DIMS(args)};

static const struct wd_tensor_desc tensors[] = {
    [WU_k] = WD_GDN_DATA(args, k, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [WU_v] = WD_GDN_DATA(args, v, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    [WU_beta] = WD_GDN_F32(args, beta, WD_IN, WD_FILL_BETA, GDN_B, GDN_T, GDN_HV),
    [WU_A] = WD_GDN_DATA(args, A, WD_IN, WD_FILL_LOWER, GDN_B, GDN_T, GDN_HV, GDN_C),
    [WU_g] = WD_GDN_SUM(args, WD_IN, WD_FILL_GATE_SUM, GDN_B, GDN_T, GDN_HV),
    [WU_cu_seqlens] = WD_GDN_CU_SEQLENS(args, GDN_N1),
    [WU_w] = WD_GDN_DATA(args, w, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_K),
    [WU_u] = WD_GDN_DATA(args, u, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
};

static const struct wd_scalar_desc scalars[] = {
    [WU_math] = WD_GDN_MATH(args),
    [WU_A_is_lower] = {.name = "A_is_lower", .offset = offsetof(args, A_is_lower), .kind = WD_FLAG},
};

static wd_status check(struct wd_problem *p)
{
    return wd_gdn_check(p, WU_cu_seqlens);
}

static double flops(const struct wd_problem *p)
{
    const double depth = p->choice[WU_A_is_lower] ? (WD_GDN_CHUNK + 1) / 2.0 : WD_GDN_CHUNK;
    return 2 * depth * (double)p->dim[GDN_B] * (double)p->dim[GDN_T] * (double)p->dim[GDN_HV] *
           (double)(p->dim[GDN_K] + p->dim[GDN_V]);
}

/* Chunks and heads: what each kernel's groups are counted by. */
static size_t pieces(const struct wd_problem *p)
{
    return p->dim[GDN_B] * p->dim[GDN_NT] * p->dim[GDN_HV];
}

/* ---- cpu ---- */

static void cpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    const size_t panels = wd_gdn_cpu_panels(param, p->dim[GDN_K]) + wd_gdn_cpu_panels(param, p->dim[GDN_V]);
    wd_gdn_grid(g, 1, pieces(p) * wd_gdn_slices(caps, pieces(p), panels, 4));
}

static const struct wd_variant cpu = {
    .name = "cpu",
    .file = "recompute_w_u_cpu.cl",
    .kernel = "recompute_w_u_cpu",
    .params = wd_gdn_cpu_params,
    .refuse = wd_gdn_cpu_refuse,
    .model = wd_gdn_cpu_model,
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

static bool tile_fits(const struct wd_caps *caps, int tx, int mr)
{
    const size_t columns = 4 * (size_t)tx;
    return wd_tile_fits(caps, tx, mr, WD_TILE_STAGE + WD_TILE_DEPTH * columns + WD_GDN_CHUNK);
}

static const char *tile_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    (void)p;
    return tile_fits(caps, 4, 8) ? NULL : "needs work-groups of 32 and 12 KB of local memory";
}

/* 64 columns of f32 are two to four whole cache lines. Such a group of 256 items takes 17 KB: two fit the local memory
 * of any GPU (32 KB is OpenCL's least), three to thirteen that of AMD, Intel and NVIDIA (64 to 227 KB), so that one
 * loads while another multiplies. */
static void tile_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    (void)p;
    param[TILE_TX] = 16;
    while (param[TILE_TX] > 4 && !tile_fits(caps, param[TILE_TX], wd_tile_model_mr(caps, param[TILE_TX])))
        param[TILE_TX] /= 2;
    param[TILE_MR] = wd_tile_model_mr(caps, param[TILE_TX]);
}

static bool tile_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    (void)p;
    return tile_fits(caps, param[TILE_TX], param[TILE_MR]);
}

static void tile_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    const size_t columns = 4 * (size_t)param[TILE_TX];
    const size_t tiles = (p->dim[GDN_K] + columns - 1) / columns + (p->dim[GDN_V] + columns - 1) / columns;
    wd_gdn_grid(g, (size_t)(param[TILE_TX] * WD_GDN_CHUNK / param[TILE_MR]), pieces(p) * tiles);
}

static const struct wd_variant tile = {
    .name = "tile",
    .file = "recompute_w_u.cl",
    .kernel = "recompute_w_u_tile",
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
    wd_gdn_grid_plain(caps, pieces(p) * WD_GDN_CHUNK * (p->dim[GDN_K] + p->dim[GDN_V]), g);
}

static const struct wd_variant plain = {
    .name = "plain",
    .file = "recompute_w_u.cl",
    .kernel = "recompute_w_u_plain",
    .grid = plain_grid,
};

static const struct wd_variant *const variants[] = {
    &cpu, &wd_variant_recompute_w_u_mma, &wd_variant_recompute_w_u_mma_steps, &tile, &plain, NULL,
};

const struct wd_op wd_op_recompute_w_u = {
    .id = WD_OP_RECOMPUTE_W_U,
    .name = "recompute_w_u",
    .summary = "w and u of the gated delta rule's chunks from A, k, v, beta and g",
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
    .reference = wd_reference_recompute_w_u,
};

wd_status wd_recompute_w_u(wd_context *ctx, const wd_recompute_w_u_args *a, const wd_launch *launch)
{
    return wd_op_call(ctx, &wd_op_recompute_w_u, a, launch);
}
