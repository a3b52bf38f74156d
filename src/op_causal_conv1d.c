/* SPDX-License-Identifier: MIT */
/* causal_conv1d: depthwise causal convolution with states and packed sequences. */
#include "dims.h"
#include "op_stream.h"
#include "reference.h"
#include "status.h"

#define ARG(member) offsetof(wd_causal_conv1d_args, member)

static const struct wd_dim_desc dims[] = {
    [CONV_B] = {"B", ARG(B), WD_DIM_ARG},          [CONV_D] = {"D", ARG(D), WD_DIM_ARG},
    [CONV_S] = {"S", ARG(S), WD_DIM_ARG},          [CONV_W] = {"W", ARG(W), WD_DIM_FIXED},
    [CONV_N] = {"N", ARG(N), WD_DIM_ARG},          [CONV_TAIL] = {"tail", WD_DERIVED, WD_DIM_HOST},
    [CONV_SEQ] = {"seq", WD_DERIVED, WD_DIM_HOST}, [CONV_N1] = {"N1", WD_DERIVED, WD_DIM_HOST},
};

enum { DATA = WD_TYPES_DATA, I32 = WD_TYPE(WD_I32) };

#define ROWS                                                                                                           \
    {                                                                                                                  \
        {3, {CONV_B, CONV_D, CONV_S}},                                                                                 \
        {                                                                                                              \
            3,                                                                                                         \
            {                                                                                                          \
                CONV_B, CONV_S, CONV_D                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }
#define STATES                                                                                                         \
    {                                                                                                                  \
        {                                                                                                              \
            3,                                                                                                         \
            {                                                                                                          \
                CONV_SEQ, CONV_D, CONV_TAIL                                                                            \
            }                                                                                                          \
        }                                                                                                              \
    }

static const struct wd_tensor_desc tensors[] = {
    [CONV_x] = {"x", ARG(x), WD_IN, false, true, DATA, WD_F32, WD_FILL_NORMAL, ROWS},
    [CONV_weight] = {"weight", ARG(weight), WD_IN, false, false, DATA, WD_F32, WD_FILL_NORMAL, {{2, {CONV_D, CONV_W}}}},
    [CONV_bias] = {"bias", ARG(bias), WD_IN, true, false, DATA, WD_F32, WD_FILL_NORMAL, {{1, {CONV_D}}}},
    [CONV_initial_state] = {"initial_state", ARG(initial_state), WD_IN, true, false, DATA, WD_F32, WD_FILL_NORMAL,
                            STATES},
    [CONV_cu_seqlens] =
        {"cu_seqlens", ARG(cu_seqlens), WD_IN, true, false, I32, WD_I32, WD_FILL_OFFSETS, {{1, {CONV_N1}}}},
    [CONV_out] = {"out", ARG(out), WD_OUT, false, true, DATA, WD_F32, WD_FILL_NORMAL, ROWS},
    [CONV_final_state] = {"final_state", ARG(final_state), WD_OUT, true, false, DATA, WD_F32, WD_FILL_NORMAL, STATES},
};

static const char *const layouts[] = {"bds", "bsd", NULL};
static const char *const acts[] = {"none", "silu", NULL};

static const struct wd_scalar_desc scalars[] = {
    [CONV_layout] = {"layout", ARG(layout), WD_CHOICE, 0, layouts},
    [CONV_act] = {"act", ARG(act), WD_CHOICE, 0, acts},
};

static wd_status check(struct wd_problem *p)
{
    size_t *d = p->dim;
    if (d[CONV_W] < 1 || d[CONV_W] > 16)
        return wd_fail(WD_EINVAL, "wd_causal_conv1d: W: %zu is not in 1..16", d[CONV_W]);
    if (d[CONV_N] && p->choice[CONV_layout] != WD_LAYOUT_BSD)
        return wd_fail(WD_EINVAL, "wd_causal_conv1d: layout: packed sequences need WD_LAYOUT_BSD");
    wd_status st = wd_check_packed(p, CONV_cu_seqlens, d[CONV_N], d[CONV_B], d[CONV_S]);
    if (st)
        return st;
    d[CONV_TAIL] = d[CONV_W] - 1;
    d[CONV_SEQ] = d[CONV_N] ? d[CONV_N] : d[CONV_B];
    d[CONV_N1] = d[CONV_N] + 1;
    if (d[CONV_TAIL] == 0) /* states without elements: kernels need not know */
        p->tensor[CONV_initial_state].present = p->tensor[CONV_final_state].present = false;
    return WD_OK;
}

static double flops(const struct wd_problem *p)
{
    return 2.0 * (double)p->dim[CONV_B] * (double)p->dim[CONV_D] * (double)p->dim[CONV_S] * (double)p->dim[CONV_W];
}

static bool is_bsd(const struct wd_problem *p)
{
    return p->choice[CONV_layout] == WD_LAYOUT_BSD;
}

/* ---- plain: an item an output ---- */

static void plain_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    const size_t states = !p->tensor[CONV_final_state].present ? 0 : p->dim[CONV_N] ? p->dim[CONV_N] : 1;
    const size_t tokens = p->dim[CONV_S] + states, channels = p->dim[CONV_D];
    g->dims = 3;
    g->local[0] = (size_t)wd_stream_local(caps, 64);
    g->local[1] = g->local[2] = 1;
    g->groups[0] = wd_ceil_div(is_bsd(p) ? channels : tokens, g->local[0]);
    g->groups[1] = is_bsd(p) ? tokens : channels;
    g->groups[2] = p->dim[CONV_B];
}

static const struct wd_variant plain = {
    .name = "plain",
    .file = "causal_conv1d.cl",
    .kernel = "causal_conv1d_plain",
    .grid = plain_grid,
};

/* ---- cpu: an item a run of blocks ---- */

enum { CPU_VL, CPU_STREAM, CPU_BLOCK };
static const struct wd_param cpu_params[] = {
    [CPU_VL] = {"vl", wd_stream_vl_values},
    [CPU_STREAM] = {"stream", wd_stream_stores_values},
    [CPU_BLOCK] = {"block", (const int[]){128, 256, 512, 1024, 2048, 0}},
    {NULL, NULL},
};

/* [B][S][D]: the private array of weights should leave room in L1. */
static void cpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    param[CPU_VL] = wd_stream_vl(caps);
    param[CPU_STREAM] = wd_stream_stores(caps, p);
    param[CPU_BLOCK] = !is_bsd(p) ? 2048 : p->dim[CONV_W] <= 4 ? 1024 : 256;
}

/* Tokens of a block in [B][S][D]: RUN of causal_conv1d_cpu.cl. */
enum { CPU_RUN = 64 };

static void cpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    const size_t block = (size_t)param[CPU_BLOCK], B = p->dim[CONV_B], D = p->dim[CONV_D], S = p->dim[CONV_S];
    const size_t blocks =
        is_bsd(p) ? B * wd_ceil_div(D, block) * wd_ceil_div(S, CPU_RUN) : B * D * wd_ceil_div(S, block);
    const size_t states = p->tensor[CONV_final_state].present ? p->dim[CONV_SEQ] * D : 0;
    wd_stream_cpu_grid(caps, blocks > states ? blocks : states, g);
}

static const struct wd_variant cpu = {
    .name = "cpu",
    .file = "causal_conv1d_cpu.cl",
    .kernel = "causal_conv1d_cpu",
    .params = cpu_params,
    .refuse = wd_stream_cpu_refuse,
    .model = cpu_model,
    .grid = cpu_grid,
};

/* ---- gpu: an item some vectors of tokens, or some tokens of a vector of channels ---- */

enum { GPU_LOCAL, GPU_WIDTH, GPU_INFLIGHT, GPU_SPAN };
static const struct wd_param gpu_params[] = {
    [GPU_LOCAL] = {"local", wd_stream_local_values},
    [GPU_WIDTH] = {"width", wd_stream_width_values},
    [GPU_INFLIGHT] = {"inflight", wd_stream_inflight_values},
    /* [B][D][S]: the items of a team; [B][S][D]: the tokens of a run. */
    [GPU_SPAN] = {"span", (const int[]){1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 0}},
    {NULL, NULL},
};

/* Elements that an item holds in registers: windows of tokens, or weights, history and tokens ahead. */
static size_t elements_held(const struct wd_problem *p, const int *param)
{
    const size_t W = p->dim[CONV_W], width = (size_t)param[GPU_WIDTH], inflight = (size_t)param[GPU_INFLIGHT];
    return is_bsd(p) ? (2 * W + inflight) * width : inflight * (W - 1 + width);
}

enum { MAX_HELD = 128 };

static bool gpu_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    return elements_held(p, param) <= wd_stream_held(caps, MAX_HELD) &&
           (is_bsd(p) ? param[GPU_SPAN] % param[GPU_INFLIGHT] : param[GPU_LOCAL] % param[GPU_SPAN]) == 0;
}

/* Vectors of a row that a team takes, whether they exist or not. */
static size_t segment(const int *param)
{
    return (size_t)(param[GPU_SPAN] * param[GPU_INFLIGHT]);
}

/* Two vectors an item, or four where an activation is to be hidden as well; as many items a team as leave at most an
 * eighth of its last segment without work, but 128 bytes side by side. */
static void model_bds(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    const size_t vectors = wd_ceil_div(p->dim[CONV_S], (size_t)param[GPU_WIDTH]);
    param[GPU_INFLIGHT] = p->choice[CONV_act] ? 4 : 2;
    while (param[GPU_INFLIGHT] > 1 && ((size_t)(32 * param[GPU_INFLIGHT]) > vectors ||
                                       elements_held(p, param) > wd_stream_held(caps, MAX_HELD) / 2))
        param[GPU_INFLIGHT] /= 2;
    param[GPU_SPAN] = param[GPU_LOCAL];
    while (param[GPU_SPAN] > 8 && wd_ceil_div(vectors, segment(param)) * segment(param) - vectors > vectors / 8)
        param[GPU_SPAN] /= 2;
}

/* Four channels an item, since it holds 2 W vectors. A run of 32 tokens reads W - 1 again from the cache. */
static void model_bsd(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    const size_t vectors = p->dim[CONV_B] * p->dim[CONV_D] * p->dim[CONV_S] / (size_t)wd_stream_width(WD_F32);
    param[GPU_INFLIGHT] = 4;
    param[GPU_WIDTH] = wd_stream_width(WD_F32);
    param[GPU_SPAN] = 2 * wd_stream_inflight(caps, vectors / 2, 16);
    while (param[GPU_SPAN] < param[GPU_INFLIGHT])
        param[GPU_SPAN] *= 2;
    while (param[GPU_INFLIGHT] > 1 && elements_held(p, param) > wd_stream_held(caps, MAX_HELD) / 2)
        param[GPU_INFLIGHT] /= 2;
}

/* 16-byte loads along a row, so that a wave's are whole cache lines; narrower ones only where the registers are few
 * (Intel's SIMD16, ARM): 16 lanes of 8 bytes are two lines of 64 still. Half of what an item may hold is taken, so that
 * a compute unit has waves to change to while loads are under way. */
static void gpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    param[GPU_LOCAL] = wd_stream_local(caps, 128);
    param[GPU_WIDTH] = wd_stream_width(p->tensor[CONV_x].dtype);
    if (is_bsd(p))
        model_bsd(caps, p, param);
    else
        model_bds(caps, p, param);
    while (param[GPU_WIDTH] > 2 && elements_held(p, param) > wd_stream_held(caps, MAX_HELD))
        param[GPU_WIDTH] /= 2;
}

static void gpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    const size_t local = (size_t)param[GPU_LOCAL], width = (size_t)param[GPU_WIDTH];
    const size_t B = p->dim[CONV_B], D = p->dim[CONV_D], S = p->dim[CONV_S];
    const size_t teams = B * D * wd_ceil_div(wd_ceil_div(S, width), segment(param));
    const size_t items = B * wd_ceil_div(S, (size_t)param[GPU_SPAN]) * wd_ceil_div(D, width);
    const size_t outputs = is_bsd(p) ? wd_ceil_div(items, local) : wd_ceil_div(teams, local / (size_t)param[GPU_SPAN]);
    const size_t states = p->tensor[CONV_final_state].present ? wd_ceil_div(p->dim[CONV_SEQ] * D, local) : 0;
    wd_stream_grid(g, local, outputs + states);
}

static const struct wd_variant gpu = {
    .name = "gpu",
    .file = "causal_conv1d_gpu.cl",
    .kernel = "causal_conv1d_gpu",
    .params = gpu_params,
    .refuse = wd_stream_gpu_refuse,
    .model = gpu_model,
    .valid = gpu_valid,
    .grid = gpu_grid,
};

static const struct wd_variant *const variants[] = {&cpu, &gpu, &plain, NULL};

const struct wd_op wd_op_causal_conv1d = {
    .id = WD_OP_CAUSAL_CONV1D,
    .name = "causal_conv1d",
    .summary = "depthwise causal convolution, with states and packed sequences",
    .args_size = sizeof(wd_causal_conv1d_args),
    .dims = dims,
    .num_dims = WD_COUNT(dims),
    .tensors = tensors,
    .num_tensors = WD_COUNT(tensors),
    .scalars = scalars,
    .num_scalars = WD_COUNT(scalars),
    .layout = CONV_layout,
    .workspace_offset = WD_DERIVED,
    .cu_seqlens_offset = ARG(cu_seqlens_host),
    .variants = variants,
    .check = check,
    .flops = flops,
    .reference = wd_reference_causal_conv1d,
};

wd_status wd_causal_conv1d(wd_context *ctx, const wd_causal_conv1d_args *args, const wd_launch *launch)
{
    return wd_op_call(ctx, &wd_op_causal_conv1d, args, launch);
}
