/* SPDX-License-Identifier: MIT */
/* causal_conv1d_update: a few new tokens of each sequence against its state, in place. */
#include "dims.h"
#include "op_stream.h"
#include "reference.h"
#include "status.h"

#define ARG(member) offsetof(wd_causal_conv1d_update_args, member)

static const struct wd_dim_desc dims[] = {
    [UPD_B] = {"B", ARG(B), WD_DIM_ARG},
    [UPD_D] = {"D", ARG(D), WD_DIM_ARG},
    [UPD_T] = {"T", ARG(T), WD_DIM_ARG},
    [UPD_W] = {"W", ARG(W), WD_DIM_FIXED},
    [UPD_SLOTS] = {"slots", ARG(slots), WD_DIM_ARG},
    [UPD_TAIL] = {"tail", WD_DERIVED, WD_DIM_HOST},
};

enum { DATA = WD_TYPES_DATA, I32 = WD_TYPE(WD_I32) };

static const struct wd_tensor_desc tensors[] = {
    [UPD_x] = {"x", ARG(x), WD_IN, false, true, DATA, WD_F32, WD_FILL_NORMAL, {{3, {UPD_B, UPD_T, UPD_D}}}},
    [UPD_weight] = {"weight", ARG(weight), WD_IN, false, false, DATA, WD_F32, WD_FILL_NORMAL, {{2, {UPD_D, UPD_W}}}},
    [UPD_bias] = {"bias", ARG(bias), WD_IN, true, false, DATA, WD_F32, WD_FILL_NORMAL, {{1, {UPD_D}}}},
    [UPD_state] = {"state",
                   ARG(state),
                   WD_INOUT,
                   false,
                   false,
                   DATA,
                   WD_F32,
                   WD_FILL_NORMAL,
                   {{3, {UPD_SLOTS, UPD_D, UPD_TAIL}}}},
    [UPD_slot] = {"slot", ARG(slot), WD_IN, true, false, I32, WD_I32, WD_FILL_SLOTS, {{1, {UPD_B}}}},
    [UPD_out] = {"out", ARG(out), WD_OUT, false, true, DATA, WD_F32, WD_FILL_NORMAL, {{3, {UPD_B, UPD_T, UPD_D}}}},
};

static const char *const acts[] = {"none", "silu", NULL};

static const struct wd_scalar_desc scalars[] = {
    [UPD_act] = {"act", ARG(act), WD_CHOICE, 0, acts},
};

static wd_status check(struct wd_problem *p)
{
    size_t *d = p->dim;
    if (d[UPD_W] < 1 || d[UPD_W] > 16)
        return wd_fail(WD_EINVAL, "wd_causal_conv1d_update: W: %zu is not in 1..16", d[UPD_W]);
    if (d[UPD_T] == 0)
        d[UPD_T] = 1;
    if (d[UPD_SLOTS] == 0)
        d[UPD_SLOTS] = d[UPD_B];
    if (!p->tensor[UPD_slot].present && d[UPD_SLOTS] < d[UPD_B])
        return wd_fail(WD_EINVAL, "wd_causal_conv1d_update: slots: %zu for %zu sequences, and no slot is given",
                       d[UPD_SLOTS], d[UPD_B]);
    d[UPD_TAIL] = d[UPD_W] - 1;
    return WD_OK;
}

static double flops(const struct wd_problem *p)
{
    return 2.0 * (double)p->dim[UPD_B] * (double)p->dim[UPD_T] * (double)p->dim[UPD_D] * (double)p->dim[UPD_W];
}

/* ---- plain and gpu: an item a channel, or `width` channels ---- */

enum { GPU_LOCAL, GPU_WIDTH };
static const struct wd_param gpu_params[] = {
    [GPU_LOCAL] = {"local", wd_stream_local_values},
    [GPU_WIDTH] = {"width", wd_stream_width_values},
    {NULL, NULL},
};

enum { MAX_HELD = 128 }; /* weights, states and inputs that an item holds in registers */

static bool gpu_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    return (size_t)param[GPU_WIDTH] * (2 * p->dim[UPD_W] + 1) <= wd_stream_held(caps, MAX_HELD);
}

/* Four channels an item, two until that gives every compute unit 512 items: a quarter of what one holds, which is
 * enough where each has 2 W vectors under way at once. Two also where weights, states and inputs of four exceed the
 * registers (W 4 takes 36; Intel's SIMD16 and ARM have 32 to give). */
static void gpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    const int widest = wd_stream_inflight(caps, 4 * p->dim[UPD_B] * p->dim[UPD_D], 4);
    param[GPU_LOCAL] = wd_stream_local(caps, 128);
    param[GPU_WIDTH] = widest < 2 ? 2 : widest;
    while (param[GPU_WIDTH] > 2 && !gpu_valid(caps, p, param))
        param[GPU_WIDTH] /= 2;
}

static void channel_grid(const struct wd_problem *p, size_t local, size_t width, struct wd_grid *g)
{
    g->dims = 2;
    g->local[0] = local;
    g->local[1] = 1;
    g->groups[0] = wd_ceil_div(p->dim[UPD_D], local * width);
    g->groups[1] = p->dim[UPD_B];
}

static void gpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    channel_grid(p, (size_t)param[GPU_LOCAL], (size_t)param[GPU_WIDTH], g);
}

static void plain_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    channel_grid(p, (size_t)wd_stream_local(caps, 64), 1, g);
}

static const struct wd_variant gpu = {
    .name = "gpu",
    .file = "causal_conv1d_update_gpu.cl",
    .kernel = "causal_conv1d_update_gpu",
    .params = gpu_params,
    .refuse = wd_stream_gpu_refuse,
    .model = gpu_model,
    .valid = gpu_valid,
    .grid = gpu_grid,
};

static const struct wd_variant plain = {
    .name = "plain",
    .file = "causal_conv1d_update.cl",
    .kernel = "causal_conv1d_update",
    .grid = plain_grid,
};

/* ---- cpu: an item a run of blocks of channels ---- */

enum { CPU_VL, CPU_BLOCK };
static const struct wd_param cpu_params[] = {
    [CPU_VL] = {"vl", wd_stream_vl_values},
    [CPU_BLOCK] = {"block", (const int[]){64, 128, 256, 512, 1024, 0}},
    {NULL, NULL},
};

/* Long blocks are long streams for the prefetchers; short ones are shared out better. */
static void cpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    param[CPU_VL] = wd_stream_vl(caps);
    param[CPU_BLOCK] = p->dim[UPD_B] * p->dim[UPD_D] / 1024 >= 4 * (size_t)caps->compute_units ? 1024 : 256;
}

static void cpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    wd_stream_cpu_grid(caps, p->dim[UPD_B] * wd_ceil_div(p->dim[UPD_D], (size_t)param[CPU_BLOCK]), g);
}

static const struct wd_variant cpu = {
    .name = "cpu",
    .file = "causal_conv1d_update_cpu.cl",
    .kernel = "causal_conv1d_update_cpu",
    .params = cpu_params,
    .refuse = wd_stream_cpu_refuse,
    .model = cpu_model,
    .grid = cpu_grid,
};

static const struct wd_variant *const variants[] = {&cpu, &gpu, &plain, NULL};

const struct wd_op wd_op_causal_conv1d_update = {
    .id = WD_OP_CAUSAL_CONV1D_UPDATE,
    .name = "causal_conv1d_update",
    .summary = "causal_conv1d for a few new tokens per sequence, against a state in place",
    .args_size = sizeof(wd_causal_conv1d_update_args),
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
    .reference = wd_reference_causal_conv1d_update,
};

wd_status wd_causal_conv1d_update(wd_context *ctx, const wd_causal_conv1d_update_args *args, const wd_launch *launch)
{
    return wd_op_call(ctx, &wd_op_causal_conv1d_update, args, launch);
}
