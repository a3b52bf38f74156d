/* SPDX-License-Identifier: MIT */
/*
 * The gated delta net on Hopper's matrix engine (cl/wgmma.cl): recompute_w_u, chunk_fwd_h and chunk_fwd_o, and
 * gdn_forward in two kernels that are operations of their own, known to no one else. gdn_intra makes what chunks need
 * no state for, all at once (cl/gdn_intra_wgmma.cl); gdn_walk goes along each sequence with the state, and makes o
 * (cl/gdn_walk_wgmma.cl, cl/gdn_walk_split.cl). h and v_new never leave the chip, and w and u never come to be.
 *
 * The engine has no f32. gdn_forward multiplies it as f16 in parts (cl/wgmma_split.cl), chunk_fwd_h, which has to turn
 * one of its operands anyway, as TF32 (cl/wgmma_tf32.cl, cl/chunk_fwd_h_tf32.cl).
 */
#include "chain.h"
#include "dims.h"
#include "op_gdn_gates.h"
#include "op_gdn_mma.h"

#include <string.h>

enum { PANEL_BYTES = 64 * 128, SLICE = 64, FETCHERS = 128, ITEMS = 128 };

enum { SCALES = 3 * WD_GDN_CHUNK + 4 }; /* floats that gdn_intra leaves for a chunk */

static bool is_wide(const struct wd_problem *p, size_t tensor)
{
    return wd_dtype_size(p->tensor[tensor].dtype) > 2;
}

/* f16 numbers that the engine takes for one of this type: MMA_PARTS of wgmma_split.cl. */
static size_t parts(bool wide, wd_math math)
{
    return wide && math == WD_MATH_F32 ? 2 : 1;
}

/* Why the engine cannot multiply these `n` tensors of 16 bits or, where they may be `wide`, of f32; or NULL. */
static const char *wgmma_refuse(const struct wd_caps *caps, const struct wd_problem *p, bool wide,
                                const size_t *operands, size_t n)
{
    if (!caps->wgmma)
        return "needs Hopper's matrix engine: NVIDIA sm_90";
    const char *why = wd_mma_refuse(caps, p, operands, n);
    if (why)
        return why;
    if (is_wide(p, operands[0]) != wide)
        return wide ? "needs f32" : "needs 16-bit data";
    return p->dim[GDN_K] != 64 && p->dim[GDN_K] != 128 ? "K must be 64 or 128" : NULL;
}

enum { STAGES };
static const struct wd_param params[] = {
    [STAGES] = {"stages", (const int[]){2, 3, 4, 0}},
    {NULL, NULL},
};

/* ---- The walk, which two operations take ---- */

/* The walk of a problem: whose, of how wide data, and how it multiplies. */
struct walk {
    bool forward, wide;
    wd_math math;
};

/* Bytes of local memory: of k and of q or w 64 rows, of v or u 64 columns, T' and P or gates. Panels are aligned. */
static size_t walk_local(const struct wd_problem *p, struct walk walk, int stages)
{
    const size_t panels = parts(walk.wide, walk.math) * PANEL_BYTES, rows = p->dim[GDN_K] / 64 * panels;
    const size_t v = PANEL_BYTES * (walk.wide ? 2 : 1);
    const size_t others = walk.forward ? 2 * panels + SCALES * sizeof(float) : WD_GDN_CHUNK * 2 * sizeof(float);
    return (size_t)stages * (2 * rows + v + others + 2 * sizeof(cl_ulong)) + 1024;
}

static bool walk_valid(const struct wd_caps *caps, const struct wd_problem *p, struct walk walk, const int *param)
{
    return walk_local(p, walk, param[STAGES]) <= caps->local_bytes;
}

/* As many as fit: what comes from memory takes about as long as a chunk. */
static void walk_model(const struct wd_caps *caps, const struct wd_problem *p, struct walk walk, int *param)
{
    for (param[STAGES] = 4; param[STAGES] > 2 && !walk_valid(caps, p, walk, param);)
        param[STAGES]--;
}

static void slices_grid(const struct wd_caps *caps, const struct wd_problem *p, size_t fetchers, struct wd_grid *g)
{
    wd_gdn_grid(g, ITEMS + (caps->wgmma ? fetchers : 0), p->dim[GDN_SEQ] * p->dim[GDN_HV] * (p->dim[GDN_V] / SLICE));
}

/* `bytes` of local memory are what two chunks take. */
static const char *slices_refuse(const struct wd_caps *caps, const struct wd_problem *p, bool wide, size_t bytes,
                                 const size_t *operands, size_t n)
{
    const char *why = wgmma_refuse(caps, p, wide, operands, n);
    if (why)
        return why;
    if (p->dim[GDN_V] % SLICE)
        return "V must be a multiple of 64";
    return bytes > caps->local_bytes ? "needs local memory for two chunks" : NULL;
}

static const char *walk_refuse(const struct wd_caps *caps, const struct wd_problem *p, struct walk walk,
                               const size_t *operands, size_t n)
{
    return slices_refuse(caps, p, walk.wide, walk_local(p, walk, 2), operands, n);
}

/* ---- chunk_fwd_h ---- */

static const struct walk walk_of_h = {.forward = false, .wide = false};

static const size_t h_operands[] = {FWDH_k, FWDH_w, FWDH_u, FWDH_h, FWDH_v_new};

static const char *h_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    return walk_refuse(caps, p, walk_of_h, h_operands, WD_COUNT(h_operands));
}

static void h_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    walk_model(caps, p, walk_of_h, param);
}

static bool h_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    return walk_valid(caps, p, walk_of_h, param);
}

static void h_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    slices_grid(caps, p, FETCHERS, g);
}

const struct wd_variant wd_variant_chunk_fwd_h_wgmma = {
    .name = "wgmma",
    .file = "gdn_walk_wgmma.cl",
    .kernel = "chunk_fwd_h_wgmma",
    .params = params,
    .refuse = h_refuse,
    .model = h_model,
    .valid = h_valid,
    .grid = h_grid,
};

/* f32: six or five times 64 rows of K, two or three of u, gates and places; panels are aligned. */
static const char *h_tf32_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const bool split = p->choice[FWDH_math] == WD_MATH_F32;
    const size_t columns = (split ? 6u : 5u) * p->dim[GDN_K] + (split ? 2 : 3) * (size_t)SLICE;
    const size_t bytes = columns * WD_GDN_CHUNK * sizeof(float) + 3072;
    if (caps->wgmma && p->dim[GDN_K] != 128)
        return "K must be 128"; /* with fewer, registers would not be moved */
    return slices_refuse(caps, p, true, bytes, h_operands, WD_COUNT(h_operands));
}

/* Chunks follow one another, so that a unit without a group is lost. mma.sync, whose groups may have as few as 16
 * columns, takes 0.7 times as long for a chunk while all of those have a unit of their own, and longer when they do
 * not: on an H200 55 to 78 us for 16 groups of 64 columns, 457 to 403 for 64. Between them nothing was measured. */
static bool h_tf32_yields(const struct wd_caps *caps, const struct wd_problem *p)
{
    return p->dim[GDN_SEQ] * p->dim[GDN_HV] * (p->dim[GDN_V] / 16) <= caps->compute_units;
}

/* Four warps copy w, four k, four the others. */
static void h_tf32_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    slices_grid(caps, p, 3 * FETCHERS, g);
}

const struct wd_variant wd_variant_chunk_fwd_h_tf32 = {
    .name = "wgmma_tf32",
    .file = "chunk_fwd_h_tf32.cl",
    .kernel = "chunk_fwd_h_tf32",
    .refuse = h_tf32_refuse,
    .yields = h_tf32_yields,
    .grid = h_tf32_grid,
};

/* ---- chunk_fwd_o ---- */

/* Rows are taken as they lie. */
static const char *o_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = wgmma_refuse(caps, p, false, (const size_t[]){FWDO_q, FWDO_k, FWDO_v_new, FWDO_h, FWDO_o}, 5);
    if (why)
        return why;
    if (p->dim[GDN_V] != 64 && p->dim[GDN_V] != 128)
        return "V must be 64 or 128";
    const size_t panels = 2 * p->dim[GDN_K] / 64 + (p->dim[GDN_K] / 64 + 1) * p->dim[GDN_V] / 64;
    return panels * PANEL_BYTES + 4096 > caps->local_bytes ? "needs local memory for a chunk" : NULL;
}

/* A chunk and head a group. */
static void chunk_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    (void)param;
    wd_gdn_grid(g, ITEMS, p->dim[GDN_B] * p->dim[GDN_NT] * p->dim[GDN_HV]);
}

const struct wd_variant wd_variant_chunk_fwd_o_wgmma = {
    .name = "wgmma",
    .file = "chunk_fwd_o_wgmma.cl",
    .kernel = "chunk_fwd_o_wgmma",
    .refuse = o_refuse,
    .grid = chunk_grid,
};

/* ---- gdn_intra ---- */

/* Sizes of what gdn_intra leaves for a chunk and head, in elements: scales, T' or P, and tiles of q and k. */
enum { HALF_SC = GDN_N1 + 1, HALF_PANEL, HALF_TILE };

#define HALF_DIMS(args)                                                                                                \
    WD_GDN_DIMS(args), [HALF_SC] = {"SC", WD_DERIVED, WD_DIM_HOST}, [HALF_PANEL] = {"PANEL", WD_DERIVED, WD_DIM_HOST}, \
                       [HALF_TILE] = {"TILE", WD_DERIVED, WD_DIM_HOST}

/* Only f32 needs tiles of q and k: in parts. */
#define HALF_TENSOR(args, member, kind, may_lack, ...)                                                                 \
    {                                                                                                                  \
        .name = #member, .offset = offsetof(args, member), .access = kind, .optional = may_lack, .vector = true,       \
        .dtypes = WD_TYPE(WD_F16) | WD_TYPE(WD_BF16), .dtype = WD_F16, .fill = WD_FILL_NORMAL,                         \
        .shape = WD_GDN_SHAPE(__VA_ARGS__)                                                                             \
    }

static void half_sizes(size_t *dim, size_t parts_of_each)
{
    dim[HALF_SC] = SCALES;
    dim[HALF_PANEL] = parts_of_each * WD_GDN_CHUNK * WD_GDN_CHUNK;
    dim[HALF_TILE] = parts_of_each * WD_GDN_CHUNK * dim[GDN_K];
}

static wd_status half_check(struct wd_problem *p, size_t cu, size_t data, int math)
{
    half_sizes(p->dim, parts(is_wide(p, data), (wd_math)math));
    return wd_gdn_check(p, cu);
}

struct intra_args {
    size_t struct_size;
    size_t B, T, H, HV, K, V, N;
    wd_tensor q, k, gate, beta, A_log, dt_bias, cu_seqlens, inverse, P, scales, q_tile, k_tile;
    wd_beta_mode beta_mode;
    bool l2norm;
    float l2norm_eps, scale;
    wd_math math;
    const int32_t *cu_seqlens_host;
};

enum { INTRA_q, INTRA_k, INTRA_gate, INTRA_beta, INTRA_A_log, INTRA_dt_bias, INTRA_cu_seqlens };

static const struct wd_dim_desc intra_dims[] = {HALF_DIMS(struct intra_args)};

static const struct wd_tensor_desc intra_tensors[] = {
    [INTRA_q] = WD_GDN_DATA(struct intra_args, q, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [INTRA_k] = WD_GDN_DATA(struct intra_args, k, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [INTRA_gate] = WD_GDN_GATE(struct intra_args, gate, WD_FILL_GATE, GDN_B, GDN_T, GDN_HV),
    [INTRA_beta] = WD_GDN_GATE(struct intra_args, beta, WD_FILL_BETA, GDN_B, GDN_T, GDN_HV),
    [INTRA_A_log] = WD_GDN_PER_HEAD(struct intra_args, A_log),
    [INTRA_dt_bias] = WD_GDN_PER_HEAD(struct intra_args, dt_bias),
    [INTRA_cu_seqlens] = WD_GDN_CU_SEQLENS(struct intra_args, GDN_N1),
    HALF_TENSOR(struct intra_args, inverse, WD_OUT, false, GDN_B, GDN_NT, GDN_HV, HALF_PANEL),
    HALF_TENSOR(struct intra_args, P, WD_OUT, false, GDN_B, GDN_NT, GDN_HV, HALF_PANEL),
    WD_GDN_F32(struct intra_args, scales, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, HALF_SC),
    HALF_TENSOR(struct intra_args, q_tile, WD_OUT, true, GDN_B, GDN_NT, GDN_H, HALF_TILE),
    HALF_TENSOR(struct intra_args, k_tile, WD_OUT, true, GDN_B, GDN_NT, GDN_H, HALF_TILE),
};

enum { INTRA_math = 4 };
static const struct wd_scalar_desc intra_scalars[] = {
    WD_GDN_BETA_MODE(struct intra_args),
    WD_GDN_L2NORM(struct intra_args),
    WD_GDN_L2NORM_EPS(struct intra_args),
    {.name = "scale", .offset = offsetof(struct intra_args, scale), .kind = WD_REAL},
    [INTRA_math] = WD_GDN_MATH(struct intra_args),
};

static wd_status intra_check(struct wd_problem *p)
{
    return half_check(p, INTRA_cu_seqlens, INTRA_k, p->choice[INTRA_math]);
}

/* Two heads a group. */
static void intra_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    (void)param;
    wd_gdn_grid(g, ITEMS, p->dim[GDN_B] * p->dim[GDN_NT] * wd_mma_pairs(p->dim[GDN_H], p->dim[GDN_HV]));
}

static const struct wd_variant intra = {
    .name = "wgmma",
    .file = "gdn_intra_wgmma.cl",
    .kernel = "gdn_intra_wgmma",
    .grid = intra_grid,
};

static const struct wd_variant *const intra_variants[] = {&intra, NULL};

static const struct wd_op gdn_intra = WD_GDN_HALF(WD_OP_GDN_INTRA, "gdn_intra", intra);

/* ---- gdn_walk ---- */

struct walk_args {
    size_t struct_size;
    size_t B, T, H, HV, K, V, N;
    wd_tensor q, k, v, inverse, P, scales, q_tile, k_tile, initial_state, cu_seqlens, o, final_state;
    wd_math math;
    int stages; /* which is gdn_forward's to choose */
    const int32_t *cu_seqlens_host;
};

enum {
    WALK_q,
    WALK_k,
    WALK_v,
    WALK_inverse,
    WALK_P,
    WALK_scales,
    WALK_q_tile,
    WALK_k_tile,
    WALK_initial_state,
    WALK_cu_seqlens,
    WALK_o,
};

static const struct wd_dim_desc walk_dims[] = {HALF_DIMS(struct walk_args)};

static const struct wd_tensor_desc walk_tensors[] = {
    [WALK_q] = WD_GDN_DATA(struct walk_args, q, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [WALK_k] = WD_GDN_DATA(struct walk_args, k, WD_IN, WD_FILL_UNIT_ROW, GDN_B, GDN_T, GDN_H, GDN_K),
    [WALK_v] = WD_GDN_DATA(struct walk_args, v, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    [WALK_inverse] = HALF_TENSOR(struct walk_args, inverse, WD_IN, false, GDN_B, GDN_NT, GDN_HV, HALF_PANEL),
    [WALK_P] = HALF_TENSOR(struct walk_args, P, WD_IN, false, GDN_B, GDN_NT, GDN_HV, HALF_PANEL),
    [WALK_scales] = WD_GDN_F32(struct walk_args, scales, WD_IN, WD_FILL_NORMAL, GDN_B, GDN_NT, GDN_HV, HALF_SC),
    [WALK_q_tile] = HALF_TENSOR(struct walk_args, q_tile, WD_IN, true, GDN_B, GDN_NT, GDN_H, HALF_TILE),
    [WALK_k_tile] = HALF_TENSOR(struct walk_args, k_tile, WD_IN, true, GDN_B, GDN_NT, GDN_H, HALF_TILE),
    [WALK_initial_state] = WD_GDN_STATE(struct walk_args, initial_state, WD_IN, GDN_SEQ, GDN_HV, GDN_K, GDN_V),
    [WALK_cu_seqlens] = WD_GDN_CU_SEQLENS(struct walk_args, GDN_N1),
    [WALK_o] = WD_GDN_DATA(struct walk_args, o, WD_OUT, WD_FILL_NORMAL, GDN_B, GDN_T, GDN_HV, GDN_V),
    WD_GDN_STATE(struct walk_args, final_state, WD_OUT, GDN_SEQ, GDN_HV, GDN_K, GDN_V),
};

static const char *const numbers[] = {"0", "1", "2", "3", "4", NULL};

enum { WALK_math };
static const struct wd_scalar_desc walk_scalars[] = {
    [WALK_math] = WD_GDN_MATH(struct walk_args),
    {.name = "stages", .offset = offsetof(struct walk_args, stages), .kind = WD_CHOICE, .choices = numbers},
};

static wd_status walk_check(struct wd_problem *p)
{
    return half_check(p, WALK_cu_seqlens, WALK_k, p->choice[WALK_math]);
}

static void o_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    slices_grid(caps, p, FETCHERS, g);
}

static const char *narrow_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    (void)caps;
    return is_wide(p, WALK_k) ? "needs 16-bit data" : NULL;
}

static const struct wd_variant walk_wgmma = {
    .name = "wgmma",
    .file = "gdn_walk_wgmma.cl",
    .kernel = "gdn_walk_wgmma",
    .refuse = narrow_refuse,
    .grid = o_grid,
};

static const struct wd_variant walk_split = {
    .name = "wgmma_split",
    .file = "gdn_walk_split.cl",
    .kernel = "gdn_walk_split",
    .grid = o_grid,
};

static const struct wd_variant *const walk_variants[] = {&walk_wgmma, &walk_split, NULL};

static const struct wd_op gdn_walk = WD_GDN_HALF(WD_OP_GDN_WALK_WGMMA, "gdn_walk_wgmma", walk);

/* ---- The two as a variant of gdn_forward ---- */

struct between {
    wd_tensor inverse, P, scales, q_tile, k_tile;
};

static struct walk walk_of(const struct wd_problem *p)
{
    const struct walk walk = {true, is_wide(p, FWD_k), (wd_math)p->choice[FWD_math]};
    return walk;
}

static void deal(const struct wd_problem *p, struct wd_chain *c, size_t *bytes, struct between *m)
{
    const struct walk walk = walk_of(p);
    const wd_dtype data = walk.wide ? WD_F16 : p->tensor[FWD_k].dtype;
    size_t dim[WD_MAX_DIMS] = {0};
    memcpy(dim, p->dim, sizeof dim);
    half_sizes(dim, parts(walk.wide, walk.math));
    const size_t chunks = dim[GDN_B] * dim[GDN_NT], all = chunks * dim[GDN_HV], keys = chunks * dim[GDN_H];
    const struct wd_chain_piece piece[] = {
        {&m->inverse, all * dim[HALF_PANEL], data}, {&m->P, all * dim[HALF_PANEL], data},
        {&m->scales, all * dim[HALF_SC], WD_F32},   {&m->q_tile, keys * dim[HALF_TILE], data},
        {&m->k_tile, keys * dim[HALF_TILE], data},
    };
    wd_chain_deal(c, bytes, piece, walk.wide ? WD_COUNT(piece) : WD_COUNT(piece) - 2);
}

static size_t workspace(const struct wd_problem *p)
{
    struct between unused;
    size_t bytes = 0;
    deal(p, NULL, &bytes, &unused);
    return bytes;
}

static void model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    walk_model(caps, p, walk_of(p), param);
}

static bool valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    return walk_valid(caps, p, walk_of(p), param);
}

static const char *refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = walk_refuse(caps, p, walk_of(p), (const size_t[]){FWD_q, FWD_k, FWD_v, FWD_o}, 4);
    if (why)
        return why;
    if (wd_mma_f16_keys(p, FWD_k, FWD_l2norm))
        return WD_MMA_F16_KEYS;
    return workspace(p) > caps->max_alloc_bytes ? "its scratch is more than this device allows in one buffer" : NULL;
}

static wd_status run(struct wd_context *ctx, const struct wd_problem *p, const int *param, const wd_launch *launch)
{
    struct wd_chain chain, *c = &chain;
    struct between m = {0};
    const size_t *d = p->dim;
    wd_chain_begin(c, ctx, p, launch, workspace(p));
    deal(p, c, NULL, &m);
#define COMMON(type)                                                                                                   \
    .struct_size = sizeof(type), .B = d[GDN_B], .T = d[GDN_T], .H = d[GDN_H], .HV = d[GDN_HV], .K = d[GDN_K],          \
    .V = d[GDN_V], .N = d[GDN_N], .cu_seqlens_host = p->cu_seqlens_host,                                               \
    .cu_seqlens = wd_chain_pass(c, FWD_cu_seqlens), .q = wd_chain_pass(c, FWD_q), .k = wd_chain_pass(c, FWD_k),        \
    .inverse = m.inverse, .P = m.P, .scales = m.scales, .q_tile = m.q_tile, .k_tile = m.k_tile,                        \
    .math = (wd_math)p->choice[FWD_math]
    const struct intra_args first = {
        COMMON(struct intra_args),
        .gate = wd_chain_pass(c, FWD_g),
        .beta = wd_chain_pass(c, FWD_beta),
        .A_log = wd_chain_pass(c, FWD_A_log),
        .dt_bias = wd_chain_pass(c, FWD_dt_bias),
        .beta_mode = (wd_beta_mode)p->choice[FWD_beta_mode],
        .l2norm = p->choice[FWD_l2norm],
        .l2norm_eps = p->real[FWD_l2norm_eps],
        .scale = p->real[FWD_scale],
    };
    const struct walk_args second = {
        COMMON(struct walk_args),
        .v = wd_chain_pass(c, FWD_v),
        .initial_state = wd_chain_pass(c, FWD_initial_state),
        .o = wd_chain_pass(c, FWD_o),
        .final_state = wd_chain_pass(c, FWD_final_state),
        .stages = param[STAGES],
    };
#undef COMMON
    wd_chain_call(c, &gdn_intra, &first, false);
    wd_chain_call(c, &gdn_walk, &second, true);
    return wd_chain_end(c);
}

const struct wd_variant wd_variant_gdn_forward_wgmma = {
    .name = "wgmma",
    .params = params,
    .refuse = refuse,
    .model = model,
    .valid = valid,
    .chain = run,
    .workspace = workspace,
};
