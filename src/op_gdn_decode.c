/* SPDX-License-Identifier: MIT */
/* gdn_decode: one token (or a few) per sequence against a state, in place. */
#include "dims.h"
#include "op_gdn_gates.h"
#include "op_stream.h"
#include "reference.h"
#include "status.h"

typedef wd_gdn_decode_args args;

static const struct wd_dim_desc dims[] = {
    [DEC_B] = WD_GDN_DIM(args, B, WD_DIM_ARG),         [DEC_T] = WD_GDN_DIM(args, T, WD_DIM_ARG),
    [DEC_H] = WD_GDN_DIM(args, H, WD_DIM_ARG),         [DEC_HV] = WD_GDN_DIM(args, HV, WD_DIM_ARG),
    [DEC_K] = WD_GDN_DIM(args, K, WD_DIM_FIXED),       [DEC_V] = WD_GDN_DIM(args, V, WD_DIM_FIXED),
    [DEC_SLOTS] = WD_GDN_DIM(args, slots, WD_DIM_ARG),
};

static const struct wd_tensor_desc tensors[] = {
    [DEC_q] = WD_GDN_DATA(args, q, WD_IN, WD_FILL_UNIT_ROW, DEC_B, DEC_T, DEC_H, DEC_K),
    [DEC_k] = WD_GDN_DATA(args, k, WD_IN, WD_FILL_UNIT_ROW, DEC_B, DEC_T, DEC_H, DEC_K),
    [DEC_v] = WD_GDN_DATA(args, v, WD_IN, WD_FILL_NORMAL, DEC_B, DEC_T, DEC_HV, DEC_V),
    [DEC_g] = WD_GDN_GATE(args, g, WD_FILL_GATE, DEC_B, DEC_T, DEC_HV),
    [DEC_beta] = WD_GDN_GATE(args, beta, WD_FILL_BETA, DEC_B, DEC_T, DEC_HV),
    [DEC_A_log] = WD_GDN_PER_HEAD(args, A_log),
    [DEC_dt_bias] = WD_GDN_PER_HEAD(args, dt_bias),
    [DEC_state] = {.name = "state",
                   .offset = offsetof(args, state),
                   .access = WD_INOUT,
                   .vector = true,
                   .dtypes = WD_TYPE(WD_F32),
                   .dtype = WD_F32,
                   .fill = WD_FILL_NORMAL,
                   .shape = WD_GDN_SHAPE(DEC_SLOTS, DEC_HV, DEC_K, DEC_V)},
    [DEC_slot] = {.name = "slot",
                  .offset = offsetof(args, slot),
                  .access = WD_IN,
                  .optional = true,
                  .dtypes = WD_TYPE(WD_I32),
                  .dtype = WD_I32,
                  .fill = WD_FILL_SLOTS,
                  .shape = WD_GDN_SHAPE(DEC_B)},
    [DEC_o] = WD_GDN_DATA(args, o, WD_OUT, WD_FILL_NORMAL, DEC_B, DEC_T, DEC_HV, DEC_V),
};

static const struct wd_scalar_desc scalars[] = {
    [DEC_beta_mode] = WD_GDN_BETA_MODE(args),
    [DEC_l2norm] = WD_GDN_L2NORM(args),
    [DEC_l2norm_eps] = WD_GDN_L2NORM_EPS(args),
    [DEC_scale] = {.name = "scale", .offset = offsetof(args, scale), .kind = WD_REAL},
};

static wd_status check(struct wd_problem *p)
{
    size_t *d = p->dim;
    wd_status st = wd_gdn_check_heads(p, DEC_V);
    if (st || (st = wd_gdn_check_gates(p, DEC_A_log, DEC_dt_bias, DEC_l2norm_eps)))
        return st;
    if (d[DEC_T] == 0)
        d[DEC_T] = 1;
    if (d[DEC_SLOTS] == 0)
        d[DEC_SLOTS] = d[DEC_B];
    if (!p->tensor[DEC_slot].present && d[DEC_SLOTS] < d[DEC_B])
        return wd_fail(WD_EINVAL, "wd_gdn_decode: slots: %zu, fewer than the %zu sequences, and no slot is given",
                       d[DEC_SLOTS], d[DEC_B]);
    wd_gdn_default_scale(p, DEC_scale);
    if (d[DEC_K] == 0 || d[DEC_V] == 0 || d[DEC_B] == 0) /* no sequences: no outputs, whatever the other sizes */
        d[DEC_B] = d[DEC_SLOTS] = 0;
    return WD_OK;
}

/* S^T k, S^T q and the update. */
static double flops(const struct wd_problem *p)
{
    const size_t *d = p->dim;
    return 6 * (double)d[DEC_B] * (double)d[DEC_T] * (double)d[DEC_HV] * (double)d[DEC_K] * (double)d[DEC_V];
}

/* Sequences and heads: what each kernel's groups are counted by. */
static size_t heads(const struct wd_problem *p)
{
    return p->dim[DEC_B] * p->dim[DEC_HV];
}

/* ---- cpu ---- */

static void cpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    wd_gdn_grid(g, 1, heads(p) * wd_gdn_slices(caps, heads(p), wd_gdn_cpu_panels(param, p->dim[DEC_V]), 4));
}

static const struct wd_variant cpu = {
    .name = "cpu",
    .file = "gdn_decode_cpu.cl",
    .kernel = "gdn_decode_cpu",
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
    wd_gdn_grid_plain(caps, heads(p) * p->dim[DEC_V], g);
}

static const struct wd_variant plain = {
    .name = "plain",
    .file = "gdn_decode.cl",
    .kernel = "gdn_decode_plain",
    .grid = plain_grid,
};

/* ---- rows ---- */

enum { ROWS_TX, ROWS_TY };
static const struct wd_param rows_params[] = {
    [ROWS_TX] = {"TX", (const int[]){1, 2, 4, 8, 16, 32, 0}},
    [ROWS_TY] = {"TY", (const int[]){4, 8, 16, 32, 0}},
    {NULL, NULL},
};

static const char *rows_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    if (p->vec < 4)
        return "rows do not begin at multiples of 4 elements";
    return caps->max_group < 16 ? "it needs work-groups of 16" : NULL;
}

enum { ROW_REGISTERS = 6 }; /* a float4 of state, k, q */

static size_t rows_local_bytes(size_t tx, size_t ty)
{
    return 4 * ty * (tx + 1) * sizeof(cl_float4);
}

/* Wide tiles are read in long pieces: 16 float4 are 256 bytes, two to four cache lines. 16 rows an item, of which half
 * of its registers are full (96 of 256 on NVIDIA and AMD), keep enough loads under way; devices with fewer registers
 * get fewer rows and more items above each other instead. But one sequence of few heads needs narrow tiles and few rows
 * an item to reach every compute unit. Where items cannot exchange values the sums meet in local memory: two groups
 * should fit a compute unit. */
static void rows_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    const size_t K = p->dim[DEC_K], quads = p->dim[DEC_V] / 4, units = caps->compute_units;
    size_t tx = 16;
    while (tx > 1 && (tx > quads || (tx > 4 && heads(p) * wd_ceil_div(quads, tx) < 2 * units)))
        tx /= 2;
    size_t rows = heads(p) * wd_ceil_div(quads, tx) < 4 * units ? 4 : 16;
    while (rows > 4 && rows * ROW_REGISTERS > wd_stream_held(caps, 128))
        rows /= 2;
    size_t ty = 4;
    while (ty < 32 && ty * rows < K)
        ty *= 2;
    while (tx > 1 && (tx * ty > caps->max_group || rows_local_bytes(tx, ty) > caps->local_bytes / 2))
        tx /= 2;
    param[ROWS_TX] = (int)tx;
    param[ROWS_TY] = (int)ty;
}

static bool rows_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    const size_t tx = (size_t)param[ROWS_TX], ty = (size_t)param[ROWS_TY], rows = (p->dim[DEC_K] + ty - 1) / ty;
    return rows <= 16 && rows_local_bytes(tx, ty) <= caps->local_bytes;
}

static void rows_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    const size_t width = 4 * (size_t)param[ROWS_TX];
    wd_gdn_grid(g, (size_t)(param[ROWS_TX] * param[ROWS_TY]), heads(p) * ((p->dim[DEC_V] + width - 1) / width));
}

static const struct wd_variant rows = {
    .name = "rows",
    .file = "gdn_decode_rows.cl",
    .kernel = "gdn_decode_rows",
    .params = rows_params,
    .refuse = rows_refuse,
    .model = rows_model,
    .valid = rows_valid,
    .grid = rows_grid,
};

static const struct wd_variant *const variants[] = {&cpu, &rows, &plain, NULL};

const struct wd_op wd_op_gdn_decode = {
    .id = WD_OP_GDN_DECODE,
    .name = "gdn_decode",
    .summary = "the gated delta rule for one token (or a few) per sequence, against a state in place",
    .args_size = sizeof(args),
    .dims = dims,
    .num_dims = WD_COUNT(dims),
    .tensors = tensors,
    .num_tensors = WD_COUNT(tensors),
    .scalars = scalars,
    .num_scalars = WD_COUNT(scalars),
    .layout = -1,
    .workspace_offset = WD_DERIVED,
    .cu_seqlens_offset = WD_DERIVED,
    .variants = variants,
    .check = check,
    .flops = flops,
    .reference = wd_reference_gdn_decode,
};

wd_status wd_gdn_decode(wd_context *ctx, const wd_gdn_decode_args *a, const wd_launch *launch)
{
    return wd_op_call(ctx, &wd_op_gdn_decode, a, launch);
}
