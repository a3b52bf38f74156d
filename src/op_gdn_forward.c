/* SPDX-License-Identifier: MIT */
/* gdn_forward: the whole gated delta rule, from q, k, v, gates and beta to o and the final state. */
#include "chain.h"
#include "dims.h"
#include "op_gdn_gates.h"
#include "op_gdn_mma.h"
#include "reference.h"

typedef wd_gdn_forward_args args;

static const struct wd_dim_desc dims[] = {WD_GDN_DIMS(args)};

static const struct wd_tensor_desc tensors[] = {
    [FWD_q] = WD_GDN_DATA(args, q, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [FWD_k] = WD_GDN_DATA(args, k, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [FWD_v] = WD_GDN_DATA(args, v, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    [FWD_g] = WD_GDN_GATE(args, g, WD_FILL_GATE, GDN_B, GDN_T, GDN_HV),
    [FWD_beta] = WD_GDN_GATE(args, beta, WD_FILL_BETA, GDN_B, GDN_T, GDN_HV),
    [FWD_A_log] = WD_GDN_PER_HEAD(args, A_log),
    [FWD_dt_bias] = WD_GDN_PER_HEAD(args, dt_bias),
    [FWD_initial_state] = WD_GDN_STATE(args, initial_state, WD_IN, GDN_SEQ, GDN_HV, GDN_K, GDN_V),
    [FWD_cu_seqlens] = WD_GDN_CU_SEQLENS(args, GDN_N1),
    [FWD_o] = WD_GDN_DATA(args, o, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    [FWD_final_state] = WD_GDN_STATE(args, final_state, WD_OUT, GDN_SEQ, GDN_HV, GDN_K, GDN_V),
};

static const struct wd_scalar_desc scalars[] = {
    [FWD_beta_mode] = WD_GDN_BETA_MODE(args),
    [FWD_l2norm] = WD_GDN_L2NORM(args),
    [FWD_l2norm_eps] = WD_GDN_L2NORM_EPS(args),
    [FWD_scale] = {.name = "scale", .offset = offsetof(args, scale), .kind = WD_REAL},
    [FWD_math] = WD_GDN_MATH(args),
};

static wd_status check(struct wd_problem *p)
{
    const wd_status st = wd_gdn_check_gates(p, FWD_A_log, FWD_dt_bias, FWD_l2norm_eps);
    if (st)
        return st;
    wd_gdn_default_scale(p, FWD_scale);
    return wd_gdn_check(p, FWD_cu_seqlens);
}

/* The chunked form, lower triangles counted as such: k k^T and q k^T, the triangular solve and P @ x of V columns, and
 * k @ S, q @ S and k^T @ x. */
static double flops(const struct wd_problem *p)
{
    const double K = (double)p->dim[GDN_K], V = (double)p->dim[GDN_V];
    const double tokens = (double)p->dim[GDN_B] * (double)p->dim[GDN_T];
    return 2 * tokens *
           ((double)p->dim[GDN_H] * WD_GDN_CHUNK * K + (double)p->dim[GDN_HV] * (WD_GDN_CHUNK + 3 * K) * V);
}

/* ---- cpu ---- */

enum { CPU_RUN = WD_CPU_NC + 1 };

static const struct wd_param cpu_params[] = {
    [WD_CPU_VL] = {"VL", (const int[]){4, 8, 16, 0}},
    [WD_CPU_RB] = {"RB", (const int[]){4, 8, 0}},
    [WD_CPU_NC] = {"NC", (const int[]){1, 2, 4, 0}},
    [CPU_RUN] = {"RUN", (const int[]){16, 32, 64, 0}},
    {NULL, NULL},
};

/* The shortest run that fills a panel: a token costs 3KV + RUN*(K+V) multiply-adds. */
static void cpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    wd_gdn_cpu_model(caps, p, param);
    param[CPU_RUN] = param[WD_CPU_VL] * param[WD_CPU_NC] <= 16 ? 16 : 32;
}

static void cpu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    const size_t heads = p->dim[GDN_SEQ] * p->dim[GDN_HV];
    wd_gdn_grid(g, 1, heads * wd_gdn_slices(caps, heads, wd_gdn_cpu_panels(param, p->dim[GDN_V]), 4));
}

static const struct wd_variant cpu = {
    .name = "cpu",
    .file = "gdn_forward_cpu.cl",
    .kernel = "gdn_forward_cpu",
    .params = cpu_params,
    .refuse = wd_gdn_cpu_refuse,
    .model = cpu_model,
    .valid = wd_gdn_cpu_valid,
    .grid = cpu_grid,
};

/* ---- chain ---- */

/* What stands between the four calls. */
struct between {
    wd_tensor g, beta, A, q, k, w, u, h, v_new;
};

/* Data between the calls has the type of q: matrix engines round their operands to it anyway, and it halves the
 * traffic. But keys of a few elements all but repeat each other, new values cancel, and what 16 bits round off them
 * shows. */
static wd_dtype data_between(const struct wd_problem *p)
{
    return p->dim[GDN_K] < 16 ? WD_F32 : p->tensor[FWD_q].dtype;
}

/* Elements of each, in the order in which scratch is dealt out. */
static void deal(const struct wd_problem *p, struct wd_chain *c, size_t *bytes, struct between *m)
{
    const size_t tokens = p->dim[GDN_B] * p->dim[GDN_T], heads = tokens * p->dim[GDN_HV];
    const size_t K = p->dim[GDN_K], V = p->dim[GDN_V], keys = tokens * p->dim[GDN_H] * K;
    const wd_dtype data = data_between(p);
    const bool normalised = p->choice[FWD_l2norm];
    const struct wd_chain_piece piece[] = {
        {&m->g, heads, data == WD_F32 ? WD_F32X2 : WD_F32}, /* others' bars are wider than what f32 rounds off */
        {&m->beta, heads, WD_F32},
        {&m->A, heads * WD_GDN_CHUNK, data},
        {&m->q, normalised ? keys : 0, data},
        {&m->k, normalised ? keys : 0, data},
        {&m->w, heads * K, data},
        {&m->u, heads * V, data},
        {&m->h, p->dim[GDN_B] * p->dim[GDN_NT] * p->dim[GDN_HV] * K * V, data},
        {&m->v_new, heads * V, data},
    };
    wd_chain_deal(c, bytes, piece, WD_COUNT(piece));
}

static size_t chain_workspace(const struct wd_problem *p)
{
    struct between unused;
    size_t bytes = 0;
    deal(p, NULL, &bytes, &unused);
    return bytes;
}

static const char *chain_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    return chain_workspace(p) > caps->max_alloc_bytes ? "its scratch is more than this device allows in one buffer"
                                                      : NULL;
}

/* The sizes that all four args structs have. */
#define SIZES(type)                                                                                                    \
    .struct_size = sizeof(type), .B = d[GDN_B], .T = d[GDN_T], .H = d[GDN_H], .HV = d[GDN_HV], .K = d[GDN_K],          \
    .N = d[GDN_N], .math = (wd_math)p->choice[FWD_math], .cu_seqlens_host = p->cu_seqlens_host,                        \
    .cu_seqlens = wd_chain_pass(c, FWD_cu_seqlens)

static void chain_prepare(struct wd_chain *c, const struct between *m)
{
    const struct wd_problem *p = c->p;
    const size_t *d = p->dim;
    wd_gdn_prepare_args a = {
        SIZES(wd_gdn_prepare_args),
        .k = wd_chain_pass(c, FWD_k),
        .gate = wd_chain_pass(c, FWD_g),
        .beta = wd_chain_pass(c, FWD_beta),
        .A_log = wd_chain_pass(c, FWD_A_log),
        .dt_bias = wd_chain_pass(c, FWD_dt_bias),
        .g = m->g,
        .A = m->A,
        .beta_out = m->beta,
        .beta_mode = (wd_beta_mode)p->choice[FWD_beta_mode],
        .l2norm = p->choice[FWD_l2norm],
        .l2norm_eps = p->real[FWD_l2norm_eps],
    };
    if (a.l2norm) {
        a.q = wd_chain_pass(c, FWD_q);
        a.q_out = m->q;
        a.k_out = m->k;
    }
    wd_chain_call(c, &wd_op_gdn_prepare, &a, false);
}

static void chain_chunks(struct wd_chain *c, const struct between *m)
{
    const struct wd_problem *p = c->p;
    const size_t *d = p->dim;
    const bool normalised = p->choice[FWD_l2norm];
    const wd_tensor q = normalised ? m->q : wd_chain_pass(c, FWD_q), k = normalised ? m->k : wd_chain_pass(c, FWD_k);
    const wd_recompute_w_u_args w_u = {
        SIZES(wd_recompute_w_u_args),
        .V = d[GDN_V],
        .k = k,
        .v = wd_chain_pass(c, FWD_v),
        .beta = m->beta,
        .A = m->A,
        .g = m->g,
        .w = m->w,
        .u = m->u,
        .A_is_lower = true,
    };
    const wd_chunk_fwd_h_args fwd_h = {
        SIZES(wd_chunk_fwd_h_args),
        .V = d[GDN_V],
        .k = k,
        .w = m->w,
        .u = m->u,
        .g = m->g,
        .initial_state = wd_chain_pass(c, FWD_initial_state),
        .h = m->h,
        .v_new = m->v_new,
        .final_state = wd_chain_pass(c, FWD_final_state),
    };
    const wd_chunk_fwd_o_args fwd_o = {
        SIZES(wd_chunk_fwd_o_args),  .V = d[GDN_V], .q = q,    .k = k,
        .v_new = m->v_new,           .h = m->h,     .g = m->g, .o = wd_chain_pass(c, FWD_o),
        .scale = p->real[FWD_scale],
    };
    wd_chain_call(c, &wd_op_recompute_w_u, &w_u, false);
    wd_chain_call(c, &wd_op_chunk_fwd_h, &fwd_h, false);
    wd_chain_call(c, &wd_op_chunk_fwd_o, &fwd_o, true);
}

static wd_status chain_run(struct wd_context *ctx, const struct wd_problem *p, const int *param,
                           const wd_launch *launch)
{
    (void)param;
    struct wd_chain c;
    struct between m;
    wd_chain_begin(&c, ctx, p, launch, chain_workspace(p));
    deal(p, &c, NULL, &m);
    chain_prepare(&c, &m);
    chain_chunks(&c, &m);
    return wd_chain_end(&c);
}

static const struct wd_variant chain = {
    .name = "chain",
    .refuse = chain_refuse,
    .chain = chain_run,
    .workspace = chain_workspace,
};

static const struct wd_variant *const variants[] = {&cpu, &wd_variant_gdn_forward_wgmma, &wd_variant_gdn_forward_mma,
                                                    &chain, NULL};

const struct wd_op wd_op_gdn_forward = {
    .id = WD_OP_GDN_FORWARD,
    .name = "gdn_forward",
    .summary = "the whole gated delta rule: q, k, v, log gates and beta to o and the final state",
    .args_size = sizeof(args),
    .dims = dims,
    .num_dims = WD_COUNT(dims),
    .tensors = tensors,
    .num_tensors = WD_COUNT(tensors),
    .scalars = scalars,
    .num_scalars = WD_COUNT(scalars),
    .layout = -1,
    .workspace_offset = offsetof(args, workspace),
    .cu_seqlens_offset = offsetof(args, cu_seqlens_host),
    .variants = variants,
    .check = check,
    .flops = flops,
    .reference = wd_reference_gdn_forward,
};

wd_status wd_gdn_forward(wd_context *ctx, const wd_gdn_forward_args *a, const wd_launch *launch)
{
    return wd_op_call(ctx, &wd_op_gdn_forward, a, launch);
}
