/* SPDX-License-Identifier: MIT */
/* gdn_prepare: from k, beta and gates to the running gates g and the inverse A of each chunk. */
#include "dims.h"
#include "op_gdn_gates.h"
#include "op_gdn_mma.h"
#include "reference.h"
#include "status.h"

typedef wd_gdn_prepare_args args;

static const struct wd_dim_desc dims[] = {
    [PREP_B] = WD_GDN_DIM(args, B, WD_DIM_ARG),   [PREP_T] = WD_GDN_DIM(args, T, WD_DIM_ARG),
    [PREP_H] = WD_GDN_DIM(args, H, WD_DIM_ARG),   [PREP_HV] = WD_GDN_DIM(args, HV, WD_DIM_ARG),
    [PREP_K] = WD_GDN_DIM(args, K, WD_DIM_FIXED), [PREP_N] = WD_GDN_DIM(args, N, WD_DIM_ARG),
    [PREP_NT] = {"NT", WD_DERIVED, WD_DIM_ARG},   [PREP_SEQ] = {"SEQ", WD_DERIVED, WD_DIM_HOST},
    [PREP_C] = {"C", WD_DERIVED, WD_DIM_HOST},    [PREP_N1] = {"N1", WD_DERIVED, WD_DIM_HOST},
};

#define OPTIONAL_ROWS(member, kind)                                                                                    \
    {                                                                                                                  \
        .name = #member, .offset = offsetof(args, member), .access = kind, .optional = true, .vector = true,           \
        .dtypes = WD_TYPES_DATA, .dtype = WD_F32, .fill = WD_FILL_UNIT_ROW,                                            \
        .shape = WD_GDN_SHAPE(PREP_B, PREP_T, PREP_H, PREP_K)                                                          \
    }

static const struct wd_tensor_desc tensors[] = {
    [PREP_k] = WD_GDN_DATA(args, k, WD_IN, WD_FILL_UNIT_ROW, PREP_B, PREP_T, PREP_H, PREP_K),
    [PREP_gate] = WD_GDN_GATE(args, gate, WD_FILL_GATE, PREP_B, PREP_T, PREP_HV),
    [PREP_beta] = WD_GDN_GATE(args, beta, WD_FILL_BETA, PREP_B, PREP_T, PREP_HV),
    [PREP_A_log] = WD_GDN_PER_HEAD(args, A_log),
    [PREP_dt_bias] = WD_GDN_PER_HEAD(args, dt_bias),
    [PREP_q] = OPTIONAL_ROWS(q, WD_IN),
    [PREP_cu_seqlens] = WD_GDN_CU_SEQLENS(args, PREP_N1),
    [PREP_g] = WD_GDN_SUM(args, WD_OUT, WD_FILL_NORMAL, PREP_B, PREP_T, PREP_HV),
    [PREP_A] = WD_GDN_DATA(args, A, WD_OUT, WD_FILL_NORMAL, PREP_B, PREP_T, PREP_HV, PREP_C),
    [PREP_beta_out] = {.name = "beta_out",
                       .offset = offsetof(args, beta_out),
                       .access = WD_OUT,
                       .optional = true,
                       .dtypes = WD_TYPE(WD_F32),
                       .dtype = WD_F32,
                       .shape = WD_GDN_SHAPE(PREP_B, PREP_T, PREP_HV)},
    [PREP_q_out] = OPTIONAL_ROWS(q_out, WD_OUT),
    [PREP_k_out] = OPTIONAL_ROWS(k_out, WD_OUT),
};

static const struct wd_scalar_desc scalars[] = {
    [PREP_beta_mode] = WD_GDN_BETA_MODE(args),
    [PREP_l2norm] = WD_GDN_L2NORM(args),
    [PREP_l2norm_eps] = WD_GDN_L2NORM_EPS(args),
    [PREP_math] = WD_GDN_MATH(args),
};

/* q is read for q_out alone, and both *_out are what l2norm makes: anything else is a call that means something that is
 * not done. */
static wd_status check_normalised(const struct wd_problem *p)
{
    if (p->tensor[PREP_q].present != p->tensor[PREP_q_out].present)
        return wd_fail(WD_EINVAL, "wd_gdn_prepare: %s: missing, but %s is given",
                       p->tensor[PREP_q].present ? "q_out" : "q", p->tensor[PREP_q].present ? "q" : "q_out");
    for (size_t i = PREP_q_out; i <= PREP_k_out; i++)
        if (p->tensor[i].present && !p->choice[PREP_l2norm])
            return wd_fail(WD_EINVAL, "wd_gdn_prepare: %s: given, but l2norm is off", p->op->tensors[i].name);
    return WD_OK;
}

static wd_status check(struct wd_problem *p)
{
    wd_status st = wd_gdn_check_heads(p, 0);
    if (st || (st = wd_gdn_check_gates(p, PREP_A_log, PREP_dt_bias, PREP_l2norm_eps)) || (st = check_normalised(p)))
        return st;
    return wd_gdn_check_sequences(p, PREP_cu_seqlens, PREP_N);
}

/* Half of k k^T, and a triangular inverse of a sixth of 64^3. */
static double flops(const struct wd_problem *p)
{
    const double C = WD_GDN_CHUNK, tokens = (double)p->dim[PREP_B] * (double)p->dim[PREP_T];
    return tokens * C * ((double)p->dim[PREP_H] * (double)p->dim[PREP_K] + (double)p->dim[PREP_HV] * C / 3);
}

/* Chunks that there may be. */
static size_t chunks(const struct wd_problem *p)
{
    return p->dim[PREP_B] * p->dim[PREP_NT];
}

/* ---- cpu ---- */

static void cpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    (void)param;
    wd_gdn_grid(g, 1, chunks(p) * p->dim[PREP_H]);
}

static const struct wd_variant cpu = {
    .name = "cpu",
    .file = "gdn_prepare_cpu.cl",
    .kernel = "gdn_prepare_cpu",
    .params = wd_gdn_cpu_params,
    .refuse = wd_gdn_cpu_refuse,
    .model = wd_gdn_cpu_model,
    .valid = wd_gdn_cpu_valid,
    .grid = cpu_grid,
};

/* ---- tile ---- */

enum { TILE_ITEMS = 256, TILE_LOCAL_BYTES = (WD_GDN_CHUNK * (33 + 65) + 4 * WD_GDN_CHUNK) * 4 };

static const char *tile_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    (void)p;
    if (caps->max_group < TILE_ITEMS || caps->max_local[0] < TILE_ITEMS)
        return "it needs work-groups of 256";
    return caps->local_bytes < TILE_LOCAL_BYTES ? "it needs 26 KB of local memory" : NULL;
}

static void tile_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    (void)param;
    wd_gdn_grid(g, TILE_ITEMS, chunks(p) * p->dim[PREP_H]);
}

static const struct wd_variant tile = {
    .name = "tile",
    .file = "gdn_prepare.cl",
    .kernel = "gdn_prepare_tile",
    .refuse = tile_refuse,
    .grid = tile_grid,
};

/* ---- plain ---- */

static void plain_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    wd_gdn_grid_plain(caps, chunks(p) * p->dim[PREP_HV] * WD_GDN_CHUNK, g);
}

static const struct wd_variant plain = {
    .name = "plain",
    .file = "gdn_prepare.cl",
    .kernel = "gdn_prepare_plain",
    .grid = plain_grid,
};

static const struct wd_variant *const variants[] = {&cpu, &wd_variant_gdn_prepare_mma, &tile, &plain, NULL};

const struct wd_op wd_op_gdn_prepare = {
    .id = WD_OP_GDN_PREPARE,
    .name = "gdn_prepare",
    .summary = "running gates g and inverse A of the gated delta rule's chunks from k, beta and log gates",
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
    .reference = wd_reference_gdn_prepare,
};

wd_status wd_gdn_prepare(wd_context *ctx, const wd_gdn_prepare_args *a, const wd_launch *launch)
{
    return wd_op_call(ctx, &wd_op_gdn_prepare, a, launch);
}
