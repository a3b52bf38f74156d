/* SPDX-License-Identifier: MIT */
/* chunk_fwd_h: the recurrence over chunks: the state before each, v_new, and the final state. */
#include "dims.h"
#include "op_gdn.h"
#include "reference.h"

typedef wd_chunk_fwd_h_args args;

static const struct wd_dim_desc dims[] = {WD_GDN_DIMS(args)};

/* w is small, or the random states of long sequences would leave f16's range. */
static const struct wd_tensor_desc tensors[] = {
    [FWDH_k] = WD_GDN_DATA(args, k, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [FWDH_w] = WD_GDN_DATA(args, w, WD_IN, WD_FILL_SMALL, GDN_B, GDN_T, GDN_HV, GDN_K),
    [FWDH_u] = WD_GDN_DATA(args, u, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    [FWDH_g] = WD_GDN_F32(args, g, WD_IN, WD_FILL_GATE_SUM, GDN_B, GDN_T, GDN_HV),
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
    .model = wd_gdn_cpu_model,
    .valid = wd_gdn_cpu_valid,
    .grid = cpu_grid,
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

static const struct wd_variant *const variants[] = {&cpu, &plain, NULL};

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
