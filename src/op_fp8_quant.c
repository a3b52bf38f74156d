/* SPDX-License-Identifier: MIT */
/* fp8_quant: per-group absmax scaling to FP8. */
#include "dims.h"
#include "op_stream.h"
#include "reference.h"
#include "status.h"

#define ARG(member) offsetof(wd_fp8_quant_args, member)

static const struct wd_dim_desc dims[] = {
    [FP8_TOKENS] = {"tokens", ARG(tokens), WD_DIM_ARG},  [FP8_HIDDEN] = {"hidden", ARG(hidden), WD_DIM_HOST},
    [FP8_GROUP] = {"group", ARG(group), WD_DIM_FIXED},   [FP8_GROUPS] = {"groups", WD_DERIVED, WD_DIM_ARG},
    [FP8_TOKENS4] = {"tokens4", WD_DERIVED, WD_DIM_ARG},
};

enum {
    Q_TYPES = WD_TYPE(WD_F32) | WD_TYPE(WD_E4M3) | WD_TYPE(WD_E5M2),
    S_TYPES = WD_TYPE(WD_F32) | WD_TYPE(WD_UE8M0),
};

static const struct wd_tensor_desc tensors[] = {
    [FP8_x] = {"x", ARG(x), WD_IN, false, true, WD_TYPES_DATA, WD_F32, WD_FILL_NORMAL, {{2, {FP8_TOKENS, FP8_HIDDEN}}}},
    [FP8_q] = {"q", ARG(q), WD_OUT, false, true, Q_TYPES, WD_F32, WD_FILL_NORMAL, {{2, {FP8_TOKENS, FP8_HIDDEN}}}},
    [FP8_s] = {"s",
               ARG(s),
               WD_OUT,
               false,
               false,
               S_TYPES,
               WD_F32,
               WD_FILL_NORMAL,
               {{2, {FP8_TOKENS, FP8_GROUPS}}, {2, {FP8_GROUPS, FP8_TOKENS4}}}},
};

static const char *const layouts[] = {"row", "column", NULL};

static const struct wd_scalar_desc scalars[] = {
    [FP8_s_layout] = {"s_layout", ARG(s_layout), WD_CHOICE, 0, layouts},
    [FP8_eps] = {"eps", ARG(eps), WD_REAL, 1e-10f, NULL},
};

static wd_status check(struct wd_problem *p)
{
    size_t *d = p->dim;
    if (d[FP8_GROUP] == 0)
        d[FP8_GROUP] = 128;
    if (d[FP8_GROUP] > INT32_MAX)
        return wd_fail(WD_EINVAL, "wd_fp8_quant: group: %zu is more than %d", d[FP8_GROUP], INT32_MAX);
    if (d[FP8_HIDDEN] % d[FP8_GROUP])
        return wd_fail(WD_EINVAL, "wd_fp8_quant: group: %zu does not divide hidden, %zu", d[FP8_GROUP], d[FP8_HIDDEN]);
    if (!(p->real[FP8_eps] > 0))
        return wd_fail(WD_EINVAL, "wd_fp8_quant: eps: %g is negative", (double)p->real[FP8_eps]);
    if (d[FP8_TOKENS] > SIZE_MAX - 3)
        return wd_fail(WD_EINVAL, "wd_fp8_quant: tokens: %zu are too many", d[FP8_TOKENS]);
    d[FP8_GROUPS] = d[FP8_HIDDEN] / d[FP8_GROUP];
    d[FP8_TOKENS4] = (d[FP8_TOKENS] + 3) / 4 * 4;
    return WD_OK;
}

/* An absolute value and comparison, then a division and two comparisons. */
static double flops(const struct wd_problem *p)
{
    return 5.0 * (double)p->dim[FP8_TOKENS] * (double)p->dim[FP8_HIDDEN];
}

static size_t num_groups(const struct wd_problem *p)
{
    return p->dim[FP8_TOKENS] * p->dim[FP8_GROUPS];
}

/* ---- plain: an item a group ---- */

static void plain_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    g->dims = 2;
    g->local[0] = (size_t)wd_stream_local(caps, 64);
    g->local[1] = 1;
    g->groups[0] = wd_ceil_div(p->dim[FP8_GROUPS], g->local[0]);
    g->groups[1] = p->dim[FP8_TOKENS];
}

static const struct wd_variant plain = {
    .name = "plain",
    .file = "fp8_quant.cl",
    .kernel = "fp8_quant_plain",
    .grid = plain_grid,
};

/* ---- cpu: an item a run of groups ---- */

enum { CPU_VL, CPU_STREAM };
static const struct wd_param cpu_params[] = {
    [CPU_VL] = {"vl", wd_stream_vl_values},
    [CPU_STREAM] = {"stream", wd_stream_stores_values},
    {NULL, NULL},
};

static void cpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    param[CPU_VL] = wd_stream_vl(caps);
    param[CPU_STREAM] = wd_stream_stores(caps, p);
}

static void cpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    wd_stream_cpu_grid(caps, num_groups(p), g);
}

static const struct wd_variant cpu = {
    .name = "cpu",
    .file = "fp8_quant_cpu.cl",
    .kernel = "fp8_quant_cpu",
    .params = cpu_params,
    .refuse = wd_stream_cpu_refuse,
    .model = cpu_model,
    .grid = cpu_grid,
};

/* ---- gpu: a team of `lanes` items a group ---- */

enum { GPU_LOCAL, GPU_LANES, GPU_WIDTH, GPU_INFLIGHT };
static const struct wd_param gpu_params[] = {
    [GPU_LOCAL] = {"local", wd_stream_local_values},
    [GPU_LANES] = {"lanes", (const int[]){1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 0}},
    [GPU_WIDTH] = {"width", wd_stream_width_values},
    [GPU_INFLIGHT] = {"inflight", wd_stream_inflight_values},
    {NULL, NULL},
};

enum { MAX_HELD = 64 }; /* elements of x that an item keeps in registers */

/* Vectors of one group that each item takes; 0: lanes and width do not divide the group. */
static size_t vectors_held(const struct wd_problem *p, const int *param)
{
    const size_t together = (size_t)param[GPU_LANES] * (size_t)param[GPU_WIDTH];
    return p->dim[FP8_GROUP] % together ? 0 : p->dim[FP8_GROUP] / together;
}

static bool gpu_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    const size_t held = vectors_held(p, param) * (size_t)(param[GPU_WIDTH] * param[GPU_INFLIGHT]);
    return held && held <= wd_stream_held(caps, MAX_HELD) && param[GPU_LOCAL] % param[GPU_LANES] == 0 &&
           (size_t)((param[GPU_LOCAL] + param[GPU_LOCAL] / param[GPU_LANES]) * param[GPU_INFLIGHT]) * sizeof(cl_uint) <=
               caps->local_bytes;
}

enum { MOVED = 96 }; /* bytes in and out that pay for what an item does once a group: its place, the scale */

/* Accesses of 16 bytes on the wider side: a wave's are 256 to 1024 bytes in a row, whole cache lines everywhere (64
 * bytes on Intel and ARM, 128 on the others). Teams of a wave at most, since beyond it they meet in local memory,
 * unless groups are too large for registers then: half of what an item may hold leaves room for a second wave. */
static void gpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    const size_t x_bytes = wd_dtype_size(p->tensor[FP8_x].dtype), q_bytes = wd_dtype_size(p->tensor[FP8_q].dtype);
    param[GPU_WIDTH] = (int)(16 / (x_bytes > q_bytes ? x_bytes : q_bytes));
    while (param[GPU_WIDTH] > 2 && p->dim[FP8_GROUP] % (size_t)param[GPU_WIDTH])
        param[GPU_WIDTH] /= 2;
    param[GPU_LOCAL] = wd_stream_local(caps, 128);
    param[GPU_LANES] = 1;
    param[GPU_INFLIGHT] = 1;
    for (int lanes = 2; lanes <= wd_stream_local(caps, 1024); lanes *= 2) {
        const size_t held = vectors_held(p, param) * (size_t)param[GPU_WIDTH];
        if (p->dim[FP8_GROUP] % (size_t)(lanes * param[GPU_WIDTH]) == 0 &&
            (lanes <= (int)caps->simd ? held * (x_bytes + q_bytes) > MOVED : held > wd_stream_held(caps, MAX_HELD) / 2))
            param[GPU_LANES] = lanes;
    }
    if (param[GPU_LOCAL] < param[GPU_LANES])
        param[GPU_LOCAL] = param[GPU_LANES];
}

static const char *gpu_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = wd_stream_gpu_refuse(caps, p);
    int param[WD_MAX_PARAMS];
    if (why)
        return why;
    gpu_model(caps, p, param);
    return gpu_valid(caps, p, param) ? NULL : "groups do not divide into teams of items with few enough elements each";
}

static void gpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    const size_t local = (size_t)param[GPU_LOCAL], groups = local / (size_t)param[GPU_LANES];
    wd_stream_grid(g, local, wd_ceil_div(num_groups(p), groups * (size_t)param[GPU_INFLIGHT]));
}

static const struct wd_variant gpu = {
    .name = "gpu",
    .file = "fp8_quant_gpu.cl",
    .kernel = "fp8_quant_gpu",
    .params = gpu_params,
    .refuse = gpu_refuse,
    .model = gpu_model,
    .valid = gpu_valid,
    .grid = gpu_grid,
};

static const struct wd_variant *const variants[] = {&cpu, &gpu, &plain, NULL};

const struct wd_op wd_op_fp8_quant = {
    .id = WD_OP_FP8_QUANT,
    .name = "fp8_quant",
    .summary = "per-group absmax scaling of activations to FP8",
    .args_size = sizeof(wd_fp8_quant_args),
    .dims = dims,
    .num_dims = WD_COUNT(dims),
    .tensors = tensors,
    .num_tensors = WD_COUNT(tensors),
    .scalars = scalars,
    .num_scalars = WD_COUNT(scalars),
    .layout = FP8_s_layout,
    .workspace_offset = WD_DERIVED,
    .cu_seqlens_offset = WD_DERIVED,
    .variants = variants,
    .check = check,
    .flops = flops,
    .reference = wd_reference_fp8_quant,
};

wd_status wd_fp8_quant(wd_context *ctx, const wd_fp8_quant_args *args, const wd_launch *launch)
{
    return wd_op_call(ctx, &wd_op_fp8_quant, args, launch);
}
