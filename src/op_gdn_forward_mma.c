/* SPDX-License-Identifier: MIT */
/*
 * gdn_forward on matrix engines, in two kernels that are operations of their own, known to no one else:
 *   gdn_local   what chunks need no state for, all at once: w, u, P and scales (cl/gdn_local_mma.cl)
 *   gdn_walk    the state's way along each sequence, and o (cl/gdn_walk_mma.cl)
 * h and v_new never leave the chip, nor is (I + L)^-1 ever made.
 */
#include "chain.h"
#include "dims.h"
#include "op_gdn_gates.h"
#include "op_gdn_mma.h"

#include <string.h>

/* Sizes of what gdn_local leaves for a chunk and head, in elements: scales, tiles of w, q and k, and of P, and u. */
enum { HALF_SC = GDN_N1 + 1, HALF_TK, HALF_TP, HALF_UV };

enum { ITEMS = 128 };

#define HALF_DIMS(args)                                                                                                \
    WD_GDN_DIMS(args), [HALF_SC] = {"SC", WD_DERIVED, WD_DIM_HOST}, [HALF_TK] = {"TK", WD_DERIVED, WD_DIM_HOST},       \
                       [HALF_TP] = {"TP", WD_DERIVED, WD_DIM_HOST}, [HALF_UV] = {"UV", WD_DERIVED, WD_DIM_HOST}

/* The sizes above from K, V and the size of an element. */
static void half_sizes(size_t *dim, size_t size)
{
    dim[HALF_SC] = WD_WALK_SCALES;
    dim[HALF_TK] = wd_mma_tile(WD_GDN_CHUNK, dim[GDN_K], size) / size;
    dim[HALF_TP] = wd_mma_tile(WD_GDN_CHUNK, WD_GDN_CHUNK, size) / size;
    dim[HALF_UV] = WD_GDN_CHUNK * dim[GDN_V];
}

static wd_status half_check(struct wd_problem *p, size_t cu, size_t k)
{
    half_sizes(p->dim, wd_dtype_size(p->tensor[k].dtype));
    return wd_gdn_check(p, cu);
}

/* ---- gdn_local ---- */

struct local_args {
    size_t struct_size;
    size_t B, T, H, HV, K, V, N;
    wd_tensor q, k, v, g, beta, A_log, dt_bias, cu_seqlens, w, u, P, q_tile, k_tile, scales;
    wd_beta_mode beta_mode;
    bool l2norm;
    float l2norm_eps, scale;
    wd_math math;
    const int32_t *cu_seqlens_host;
};

enum { LOCAL_q, LOCAL_k, LOCAL_v, LOCAL_g, LOCAL_beta, LOCAL_A_log, LOCAL_dt_bias, LOCAL_cu_seqlens, LOCAL_w };

static const struct wd_dim_desc local_dims[] = {HALF_DIMS(struct local_args)};

static const struct wd_tensor_desc local_tensors[] = {
    [LOCAL_q] = WD_GDN_DATA(struct local_args, q, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [LOCAL_k] = WD_GDN_DATA(struct local_args, k, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [LOCAL_v] = WD_GDN_DATA(struct local_args, v, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    [LOCAL_g] = WD_GDN_GATE(struct local_args, g, WD_FILL_GATE, GDN_B, GDN_T, GDN_HV),
    [LOCAL_beta] = WD_GDN_GATE(struct local_args, beta, WD_FILL_BETA, GDN_B, GDN_T, GDN_HV),
    [LOCAL_A_log] = WD_GDN_PER_HEAD(struct local_args, A_log),
    [LOCAL_dt_bias] = WD_GDN_PER_HEAD(struct local_args, dt_bias),
    [LOCAL_cu_seqlens] = WD_GDN_CU_SEQLENS(struct local_args, GDN_N1),
    [LOCAL_w] = WD_GDN_DATA(struct local_args, w, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, HALF_TK),
    WD_GDN_DATA(struct local_args, u, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, HALF_UV),
    WD_GDN_DATA(struct local_args, P, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, HALF_TP),
    WD_GDN_DATA(struct local_args, q_tile, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_H, HALF_TK),
    WD_GDN_DATA(struct local_args, k_tile, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_H, HALF_TK),
    WD_GDN_F32(struct local_args, scales, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, HALF_SC),
};

static const struct wd_scalar_desc local_scalars[] = {
    WD_GDN_BETA_MODE(struct local_args),
    WD_GDN_L2NORM(struct local_args),
    WD_GDN_L2NORM_EPS(struct local_args),
    {.name = "scale", .offset = offsetof(struct local_args, scale), .kind = WD_REAL},
    WD_GDN_MATH(struct local_args),
};

static wd_status local_check(struct wd_problem *p)
{
    return half_check(p, LOCAL_cu_seqlens, LOCAL_k);
}

/* Bytes of local memory; `data` is the size of an element. */
static size_t local_bytes(const struct wd_problem *p, size_t data)
{
    const size_t tokens = WD_GDN_CHUNK;
    return wd_mma_tile(tokens, p->dim[GDN_K], data) + wd_mma_tile(tokens, p->dim[GDN_V], data) +
           tokens * (tokens + 16) * data +        /* L */
           WD_MMA_DIAGONAL +                      /* its blocks on the diagonal */
           tokens * (6 + 7) * sizeof(float) + 16; /* gates, scales and squares */
}

static void local_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    (void)param;
    wd_gdn_grid(g, ITEMS, p->dim[GDN_B] * p->dim[GDN_NT] * p->dim[GDN_HV]);
}

static const struct wd_variant local = {
    .name = "mma",
    .file = "gdn_local_mma.cl",
    .kernel = "gdn_local_mma",
    .grid = local_grid,
};

static const struct wd_variant *const local_variants[] = {&local, NULL};

static const struct wd_op gdn_local = WD_GDN_HALF(WD_OP_GDN_LOCAL, "gdn_local", local);

/* ---- gdn_walk ---- */

struct walk_args {
    size_t struct_size;
    size_t B, T, H, HV, K, V, N;
    wd_tensor q, k, w, u, P, scales, initial_state, cu_seqlens, o, final_state;
    wd_math math;
    int wv, wk, stages; /* wd_walk_params, which are gdn_forward's to choose */
    const int32_t *cu_seqlens_host;
};

enum { WALK_q, WALK_k, WALK_w, WALK_u, WALK_P, WALK_scales, WALK_initial_state, WALK_cu_seqlens, WALK_o };

static const struct wd_dim_desc walk_dims[] = {HALF_DIMS(struct walk_args)};

static const struct wd_tensor_desc walk_tensors[] = {
    [WALK_q] = WD_GDN_DATA(struct walk_args, q, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_NT, GDN_H, HALF_TK),
    [WALK_k] = WD_GDN_DATA(struct walk_args, k, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_NT, GDN_H, HALF_TK),
    [WALK_w] = WD_GDN_DATA(struct walk_args, w, WD_IN, WD_FILL_SMALL, GDN_B, GDN_NT, GDN_HV, HALF_TK),
    [WALK_u] = WD_GDN_DATA(struct walk_args, u, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, HALF_UV),
    [WALK_P] = WD_GDN_DATA(struct walk_args, P, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, HALF_TP),
    [WALK_scales] = WD_GDN_F32(struct walk_args, scales, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, HALF_SC),
    [WALK_initial_state] = WD_GDN_STATE(struct walk_args, initial_state, WD_IN, GDN_SEQ, GDN_HV, GDN_K, GDN_V),
    [WALK_cu_seqlens] = WD_GDN_CU_SEQLENS(struct walk_args, GDN_N1),
    [WALK_o] = WD_GDN_DATA(struct walk_args, o, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    WD_GDN_STATE(struct walk_args, final_state, WD_OUT, GDN_SEQ, GDN_HV, GDN_K, GDN_V),
};

static const char *const numbers[] = {"0", "1", "2", "3", "4", NULL};

enum { WALK_math, WALK_wv };
static const struct wd_scalar_desc walk_scalars[] = {
    [WALK_math] = WD_GDN_MATH(struct walk_args),
    [WALK_wv] = {.name = "wv", .offset = offsetof(struct walk_args, wv), .kind = WD_CHOICE, .choices = numbers},
    {.name = "wk", .offset = offsetof(struct walk_args, wk), .kind = WD_CHOICE, .choices = numbers},
    {.name = "stages", .offset = offsetof(struct walk_args, stages), .kind = WD_CHOICE, .choices = numbers},
};

static wd_status walk_check(struct wd_problem *p)
{
    return half_check(p, WALK_cu_seqlens, WALK_k);
}

static void walk_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    static const struct wd_walk walk = {WALK_k, WALK_u, true};
    (void)param;
    wd_walk_grid(caps, p, &walk, &p->choice[WALK_wv], g);
}

static const struct wd_variant walk_mma = {
    .name = "mma",
    .file = "gdn_walk_mma.cl",
    .kernel = "gdn_walk_mma",
    .grid = walk_grid,
};

static const struct wd_variant *const walk_variants[] = {&walk_mma, NULL};

static const struct wd_op gdn_walk = WD_GDN_HALF(WD_OP_GDN_WALK, "gdn_walk", walk);

/* ---- The two as a variant of gdn_forward ---- */

struct between {
    wd_tensor w, u, P, q, k, scales;
};

static void deal(const struct wd_problem *p, struct wd_chain *c, size_t *bytes, struct between *m)
{
    const wd_dtype data = p->tensor[FWD_q].dtype;
    size_t dim[WD_MAX_DIMS] = {0};
    memcpy(dim, p->dim, sizeof dim);
    half_sizes(dim, wd_dtype_size(data));
    const size_t chunks = dim[GDN_B] * dim[GDN_NT], all = chunks * dim[GDN_HV], keys = chunks * dim[GDN_H];
    const struct wd_chain_piece piece[] = {
        {&m->w, all * dim[HALF_TK], data},  {&m->u, all * dim[HALF_UV], data},
        {&m->P, all * dim[HALF_TP], data},  {&m->q, keys * dim[HALF_TK], data},
        {&m->k, keys * dim[HALF_TK], data}, {&m->scales, all * dim[HALF_SC], WD_F32},
    };
    wd_chain_deal(c, bytes, piece, WD_COUNT(piece));
}

static size_t workspace(const struct wd_problem *p)
{
    struct between unused;
    size_t bytes = 0;
    deal(p, NULL, &bytes, &unused);
    return bytes;
}

/* The walk as gdn_forward's own problem shows it. */
static const struct wd_walk walk = {FWD_k, FWD_v, true};

static void model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    wd_walk_model(caps, p, &walk, param);
}

static bool valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    return wd_walk_valid(caps, p, &walk, param);
}

static const char *refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = wd_mma_refuse(caps, p, (const size_t[]){FWD_q, FWD_k, FWD_v}, 3);
    if (why || (why = wd_walk_refuse(caps, p, &walk)))
        return why;
    if (wd_mma_f16_keys(p, FWD_k, FWD_l2norm))
        return WD_MMA_F16_KEYS;
    if (local_bytes(p, wd_dtype_size(p->tensor[FWD_k].dtype)) > caps->local_bytes)
        return "needs local memory for a chunk of k and v";
    return workspace(p) > caps->max_alloc_bytes ? "its scratch is more than this device allows in one buffer" : NULL;
}

static wd_status run(struct wd_context *ctx, const struct wd_problem *p, const int *param, const wd_launch *launch)
{
    struct wd_chain chain, *c = &chain;
    struct between m;
    const size_t *d = p->dim;
    wd_chain_begin(c, ctx, p, launch, workspace(p));
    deal(p, c, NULL, &m);
#define COMMON(type)                                                                                                   \
    .struct_size = sizeof(type), .B = d[GDN_B], .T = d[GDN_T], .H = d[GDN_H], .HV = d[GDN_HV], .K = d[GDN_K],          \
    .V = d[GDN_V], .N = d[GDN_N], .math = (wd_math)p->choice[FWD_math], .cu_seqlens_host = p->cu_seqlens_host,         \
    .cu_seqlens = wd_chain_pass(c, FWD_cu_seqlens), .w = m.w, .u = m.u, .P = m.P, .scales = m.scales
    const struct local_args first = {
        COMMON(struct local_args),
        .q = wd_chain_pass(c, FWD_q),
        .k = wd_chain_pass(c, FWD_k),
        .v = wd_chain_pass(c, FWD_v),
        .g = wd_chain_pass(c, FWD_g),
        .beta = wd_chain_pass(c, FWD_beta),
        .A_log = wd_chain_pass(c, FWD_A_log),
        .dt_bias = wd_chain_pass(c, FWD_dt_bias),
        .beta_mode = (wd_beta_mode)p->choice[FWD_beta_mode],
        .l2norm = p->choice[FWD_l2norm],
        .l2norm_eps = p->real[FWD_l2norm_eps],
        .scale = p->real[FWD_scale],
        .q_tile = m.q,
        .k_tile = m.k,
    };
    const struct walk_args second = {
        COMMON(struct walk_args),
        .q = m.q,
        .k = m.k,
        .initial_state = wd_chain_pass(c, FWD_initial_state),
        .o = wd_chain_pass(c, FWD_o),
        .final_state = wd_chain_pass(c, FWD_final_state),
        .wv = param[WD_WALK_WV],
        .wk = param[WD_WALK_WK],
        .stages = param[WD_WALK_STAGES],
    };
#undef COMMON
    wd_chain_call(c, &gdn_local, &first, false);
    wd_chain_call(c, &gdn_walk, &second, true);
    return wd_chain_end(c);
}

const struct wd_variant wd_variant_gdn_forward_mma = {
    .name = "mma",
    .params = wd_walk_params,
    .refuse = refuse,
    .model = model,
    .valid = valid,
    .chain = run,
    .workspace = workspace,
};
