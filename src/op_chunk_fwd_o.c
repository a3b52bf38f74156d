/* SPDX-License-Identifier: MIT */
/* chunk_fwd_o: o = scale * ((q @ h) * exp(g) + [i>=j] (q @ k^T * exp(g_i - g_j)) @ v_new), chunk by chunk. */
#include <math.h>

#include "dims.h"
#include "op_gdn.h"
#include "op_gdn_mma.h"
#include "reference.h"

typedef wd_chunk_fwd_o_args args;

static const struct wd_dim_desc dims[] = {WD_GDN_DIMS(args)};

static const struct wd_tensor_desc tensors[] = {
    [FWDO_q] = WD_GDN_DATA(args, q, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [FWDO_k] = WD_GDN_DATA(args, k, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [FWDO_v_new] = WD_GDN_DATA(args, v_new, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    [FWDO_h] = WD_GDN_DATA(args, h, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, GDN_K, GDN_V),
    [FWDO_g] = WD_GDN_SUM(args, WD_IN, WD_FILL_GATE_SUM, GDN_B, GDN_T, GDN_HV),
    [FWDO_cu_seqlens] = WD_GDN_CU_SEQLENS(args, GDN_N1),
    [FWDO_o] = WD_GDN_DATA(args, o, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
};

static const struct wd_scalar_desc scalars[] = {
    [FWDO_scale] = {.name = "scale", .offset = offsetof(args, scale), .kind = WD_REAL},
    [FWDO_math] = WD_GDN_MATH(args),
};

static wd_status check(struct wd_problem *p)
{
    wd_gdn_default_scale(p, FWDO_scale);
    return wd_gdn_check(p, FWDO_cu_seqlens);
}

/* Of the two 64 x 64 products only the lower triangle is asked for. */
static double flops(const struct wd_problem *p)
{
    const double K = (double)p->dim[GDN_K], V = (double)p->dim[GDN_V];
    return 2 * (double)p->dim[GDN_B] * (double)p->dim[GDN_T] * (double)p->dim[GDN_HV] *
           (K * V + (WD_GDN_CHUNK + 1) / 2.0 * (K + V));
}

static size_t pieces(const struct wd_problem *p)
{
    return p->dim[GDN_B] * p->dim[GDN_NT] * p->dim[GDN_HV];
}

/* ---- cpu ---- */

static void cpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    wd_gdn_grid(g, 1, pieces(p) * wd_gdn_slices(caps, pieces(p), wd_gdn_cpu_panels(param, p->dim[GDN_V]), 4));
}

static const struct wd_variant cpu = {
    .name = "cpu",
    .file = "chunk_fwd_o_cpu.cl",
    .kernel = "chunk_fwd_o_cpu",
    .params = wd_gdn_cpu_params,
    .refuse = wd_gdn_cpu_refuse,
    .model = wd_gdn_cpu_model,
    .valid = wd_gdn_cpu_valid,
    .grid = cpu_grid,
};

/* ---- tile ---- */

enum { TILE_NB, TILE_MR, TX = 16 };
static const struct wd_param tile_params[] = {
    [TILE_NB] = {"nb", (const int[]){1, 2, 0}},
    [TILE_MR] = {"mr", wd_tile_mr},
    {NULL, NULL},
};

static bool tile_fits(const struct wd_caps *caps, int nb, int mr)
{
    const size_t columns = (size_t)nb * WD_GDN_CHUNK;
    return wd_tile_fits(caps, TX, mr, 2 * WD_TILE_STAGE + WD_TILE_DEPTH * columns + WD_GDN_CHUNK);
}

static const char *tile_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    (void)p;
    return tile_fits(caps, 1, 8) ? NULL : "needs work-groups of 128 and 27 KB of local memory";
}

/* A group of all columns computes the scores once. An item then holds 8 MR outputs and 4 MR scores beside factors and
 * addresses, about 8 MR more: 80 registers, which spill where an item has 64 (ARM, Intel) or 128 (Intel's Xe-HPC). */
static void tile_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    param[TILE_MR] = wd_tile_model_mr(caps, TX);
    const bool few_registers = (size_t)(20 * param[TILE_MR]) > caps->registers / 2 && caps->registers;
    param[TILE_NB] = p->dim[GDN_V] > WD_GDN_CHUNK && !few_registers && tile_fits(caps, 2, param[TILE_MR]) ? 2 : 1;
}

static bool tile_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    (void)p;
    return tile_fits(caps, param[TILE_NB], param[TILE_MR]);
}

static void tile_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    const size_t columns = (size_t)param[TILE_NB] * WD_GDN_CHUNK;
    wd_gdn_grid(g, (size_t)(TX * WD_GDN_CHUNK / param[TILE_MR]), pieces(p) * ((p->dim[GDN_V] + columns - 1) / columns));
}

static const struct wd_variant tile = {
    .name = "tile",
    .file = "chunk_fwd_o.cl",
    .kernel = "chunk_fwd_o_tile",
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
    wd_gdn_grid_plain(caps, pieces(p) * WD_GDN_CHUNK, g);
}

static const struct wd_variant plain = {
    .name = "plain",
    .file = "chunk_fwd_o.cl",
    .kernel = "chunk_fwd_o_plain",
    .grid = plain_grid,
};

static const struct wd_variant *const variants[] = {
    &cpu, &wd_variant_chunk_fwd_o_wgmma, &wd_variant_chunk_fwd_o_mma, &tile, &plain, NULL};

const struct wd_op wd_op_chunk_fwd_o = {
    .id = WD_OP_CHUNK_FWD_O,
    .name = "chunk_fwd_o",
    .summary = "outputs of the gated delta rule's chunks from q, k, v_new, h and g",
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
    .reference = wd_reference_chunk_fwd_o,
};

wd_status wd_chunk_fwd_o(wd_context *ctx, const wd_chunk_fwd_o_args *a, const wd_launch *launch)
{
    return wd_op_call(ctx, &wd_op_chunk_fwd_o, a, launch);
}
