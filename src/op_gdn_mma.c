/* SPDX-License-Identifier: MIT */
/*
 * What the kernels on matrix engines need of a device and a call, and how they are launched. Sizes of local memory
 * follow mma.cl: lines of 128 bytes, chunks of 16.
 */
#include "op_gdn_mma.h"
#include "dims.h"
#include "op_gdn.h"

#include <assert.h>

enum { LINE_BYTES = 128, CHUNK_BYTES = 16, WARP = 32, ITEMS = 128 };

/* With more in a group, each would have fewer registers than these kernels need. */
enum { MOST_ITEMS = 256 };

/* ---- Tiles ---- */

size_t wd_mma_lines(size_t width, size_t size)
{
    return (width * size + LINE_BYTES - 1) / LINE_BYTES;
}

size_t wd_mma_tile(size_t rows, size_t width, size_t size)
{
    return rows * wd_mma_lines(width, size) * LINE_BYTES;
}

static size_t size_of(const struct wd_problem *p, size_t tensor)
{
    return wd_dtype_size(p->tensor[tensor].dtype);
}

/* ---- Refusals ---- */

static_assert((int)PREP_HV == (int)GDN_HV && (int)PREP_K == (int)GDN_K, "refuse_rows() reads the dims of both");

/* Why the engine cannot serve rows of K elements, and of `V`, in so many chunks, or NULL. Rows of every tensor have to
 * begin at 16 bytes, and p->vec counts elements. */
static const char *refuse_rows(const struct wd_caps *caps, const struct wd_problem *p, size_t V, size_t chunks)
{
    if (caps->sm < 80)
        return "needs a matrix engine: NVIDIA sm_80 or later";
    if (p->dim[GDN_K] == 0 || p->dim[GDN_K] % 16 || V % 16)
        return V ? "K and V must be multiples of 16" : "K must be a multiple of 16";
    unsigned vec = 4;
    for (size_t i = 0; i < p->op->num_tensors; i++)
        if (p->op->tensors[i].vector && p->tensor[i].present && size_of(p, i) < sizeof(float))
            vec = 8;
    if (p->vec < vec)
        return "rows must be aligned to 16 bytes";
    return chunks * p->dim[GDN_HV] > INT32_MAX / 4 ? "too many chunks to number" : NULL; /* each below 2^32 */
}

const char *wd_mma_refuse(const struct wd_caps *caps, const struct wd_problem *p, const size_t *operands, size_t n)
{
    const char *why = refuse_rows(caps, p, p->dim[GDN_V], p->dim[GDN_B] * p->dim[GDN_NT]);
    for (size_t i = 1; !why && i < n; i++)
        if (p->tensor[operands[i]].dtype != p->tensor[operands[0]].dtype)
            why = "the factors of a product must have one type";
    return why;
}

static size_t pieces(const struct wd_problem *p)
{
    return p->dim[GDN_B] * p->dim[GDN_NT] * p->dim[GDN_HV];
}

double wd_gdn_half_flops(const struct wd_problem *p)
{
    (void)p;
    return 0;
}

/* ---- gdn_prepare ---- */

static const char *prepare_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = refuse_rows(caps, p, 0, p->dim[PREP_B] * p->dim[PREP_NT]);
    if (why)
        return why;
    const size_t tokens = WD_GDN_CHUNK, size = size_of(p, PREP_k);
    const size_t keys = wd_mma_tile(tokens, p->dim[PREP_K], size);
    const size_t heads = 2 * (tokens * (tokens + 16) * size + WD_MMA_DIAGONAL);       /* L of two heads */
    const size_t local = (keys > heads ? keys : heads) + tokens * 21 * sizeof(float); /* sums, weights, squares */
    return local > caps->local_bytes ? "needs local memory for a chunk of k" : NULL;
}

/* Two heads a group. */
static void prepare_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    (void)param;
    wd_gdn_grid(g, ITEMS, p->dim[PREP_B] * p->dim[PREP_NT] * wd_mma_pairs(p->dim[PREP_H], p->dim[PREP_HV]));
}

const struct wd_variant wd_variant_gdn_prepare_mma = {
    .name = "mma",
    .file = "gdn_prepare_mma.cl",
    .kernel = "gdn_prepare_mma",
    .refuse = prepare_refuse,
    .grid = prepare_grid,
};

/* ---- recompute_w_u ---- */

static size_t widest(const struct wd_problem *p)
{
    return p->dim[GDN_K] > p->dim[GDN_V] ? p->dim[GDN_K] : p->dim[GDN_V];
}

static const char *wu_refuse_any(const struct wd_caps *caps, const struct wd_problem *p)
{
    return wd_mma_refuse(caps, p, (const size_t[]){WU_k, WU_v}, 2);
}

static const char *wu_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = wu_refuse_any(caps, p);
    const size_t size = size_of(p, WU_k);
    if (why)
        return why;
    const size_t local = wd_mma_tile(WD_GDN_CHUNK, widest(p), size) + WD_GDN_CHUNK * sizeof(float);
    return local > caps->local_bytes ? "needs local memory for 64 rows of k or v" : NULL;
}

/* Where there are many chunks of 16-bit data, steps that fetch the next one wait less. */
static bool wu_yields(const struct wd_caps *caps, const struct wd_problem *p)
{
    return size_of(p, WU_k) < sizeof(float) && pieces(p) >= 4 * (size_t)caps->compute_units;
}

static void wu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    (void)param;
    wd_gdn_grid(g, ITEMS, 2 * pieces(p));
}

const struct wd_variant wd_variant_recompute_w_u_mma = {
    .name = "mma",
    .file = "recompute_w_u_mma.cl",
    .kernel = "recompute_w_u_mma",
    .refuse = wu_refuse,
    .yields = wu_yields,
    .grid = wu_grid,
};

static const struct wd_param steps_params[] = {
    {"per_unit", (const int[]){1, 2, 3, 4, 6, 0}},
    {NULL, NULL},
};

static const char *steps_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = wu_refuse_any(caps, p);
    const size_t size = size_of(p, WU_k);
    if (why)
        return why;
    const size_t stage =
        wd_mma_tile(WD_GDN_CHUNK, widest(p), size) + WD_GDN_CHUNK * (WD_GDN_CHUNK * size_of(p, WU_A) + 4 * CHUNK_BYTES);
    return 2 * (stage + WD_GDN_CHUNK * sizeof(float)) > caps->local_bytes ? "needs local memory for two steps" : NULL;
}

/* Two groups hide each other's waits; more found no more to hide on an H200. */
static void steps_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    (void)caps;
    (void)p;
    param[0] = 2;
}

static void steps_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    const size_t steps = 2 * pieces(p), most = (size_t)param[0] * caps->compute_units;
    wd_gdn_grid(g, ITEMS, steps < most ? steps : most);
}

const struct wd_variant wd_variant_recompute_w_u_mma_steps = {
    .name = "mma_steps",
    .file = "recompute_w_u_mma.cl",
    .kernel = "recompute_w_u_mma_steps",
    .params = steps_params,
    .refuse = steps_refuse,
    .model = steps_model,
    .grid = steps_grid,
};

/* ---- chunk_fwd_o ---- */

enum { O_STAGES, O_SPLIT };
static const struct wd_param o_params[] = {
    [O_STAGES] = {"stages", (const int[]){2, 3, 4, 0}},
    [O_SPLIT] = {"split", (const int[]){1, 2, 4, 0}},
    {NULL, NULL},
};

static const char *o_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    return wd_mma_refuse(caps, p, (const size_t[]){FWDO_q, FWDO_k, FWDO_v_new, FWDO_h}, 4);
}

static bool o_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    const size_t size = size_of(p, FWDO_k), line = LINE_BYTES / size, split = (size_t)param[O_SPLIT];
    const size_t stage = wd_mma_tile(line, p->dim[GDN_V] / split, size) + wd_mma_tile(WD_GDN_CHUNK, line, size);
    return p->dim[GDN_V] % (16 * split) == 0 &&
           (size_t)param[O_STAGES] * stage + WD_GDN_CHUNK * wd_dtype_size(p->tensor[FWDO_g].dtype) <= caps->local_bytes;
}

/* Each item sums a 64th of the columns in registers: more than 128 of them are too many. */
static void o_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    param[O_SPLIT] = p->dim[GDN_V] > 128 && p->dim[GDN_V] % 32 == 0 ? 2 : 1;
    param[O_STAGES] = pieces(p) < caps->compute_units ? 3 : 2;
}

static void o_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    wd_gdn_grid(g, ITEMS, pieces(p) * (size_t)param[O_SPLIT]);
}

const struct wd_variant wd_variant_chunk_fwd_o_mma = {
    .name = "mma",
    .file = "chunk_fwd_o_mma.cl",
    .kernel = "chunk_fwd_o_mma",
    .params = o_params,
    .refuse = o_refuse,
    .model = o_model,
    .valid = o_valid,
    .grid = o_grid,
};

/* ---- The walk of chunk_fwd_h and gdn_forward ---- */

const struct wd_param wd_walk_params[] = {
    [WD_WALK_WV] = {"wv", (const int[]){1, 2, 4, 0}},
    [WD_WALK_WK] = {"wk", (const int[]){1, 2, 4, 0}},
    [WD_WALK_STAGES] = {"stages", (const int[]){1, 2, 3, 0}},
    {NULL, NULL},
};

static size_t walk_local(const struct wd_problem *p, const struct wd_walk *walk, const int *param)
{
    const size_t size = size_of(p, walk->k), stages = (size_t)param[WD_WALK_STAGES];
    const size_t row_lines = wd_mma_lines(p->dim[GDN_K], size), tokens = wd_mma_lines(WD_GDN_CHUNK, size);
    const size_t rows = wd_mma_tile(WD_GDN_CHUNK, p->dim[GDN_K], size);
    const size_t left = (param[WD_WALK_WK] > 1 ? (size_t)param[WD_WALK_WV] : 1) * 4 * WARP * CHUNK_BYTES;
    const size_t u = (size_t)param[WD_WALK_WV] * WD_GDN_CHUNK * CHUNK_BYTES * size_of(p, walk->u);
    const size_t both = stages * (2 * (rows + 2 * sizeof(cl_ulong)) + u) + left * (row_lines + tokens);
    if (!walk->forward)
        return both + stages * WD_GDN_CHUNK * 2 * sizeof(float); /* gates of either type */
    return both + stages * (rows + wd_mma_tile(WD_GDN_CHUNK, WD_GDN_CHUNK, size) + WD_WALK_SCALES * sizeof(float)) +
           left * tokens;
}

/* The warps that multiply, and from sm_90 on those that fetch (gdn_walk_mma.cl). */
static size_t walk_items(const struct wd_caps *caps, const struct wd_walk *walk, const int *param)
{
    const int fetching = caps->sm < 90 ? 0 : walk->forward ? 1 : 4;
    return (size_t)(WARP * (param[WD_WALK_WV] * param[WD_WALK_WK] + fetching));
}

/* A warp keeps half a line of K or a whole number of lines. */
bool wd_walk_valid(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_walk *walk, const int *param)
{
    const size_t wv = (size_t)param[WD_WALK_WV], wk = (size_t)param[WD_WALK_WK];
    const size_t halves = 2 * wd_mma_lines(p->dim[GDN_K], size_of(p, walk->k));
    return p->dim[GDN_V] % (16 * wv) == 0 && halves % wk == 0 && (halves == wk || halves / wk % 2 == 0) &&
           walk_items(caps, walk, param) <= MOST_ITEMS && walk_local(p, walk, param) <= caps->local_bytes;
}

/* The chunks of a state come one after the other, so what counts is that each is quick: many warps for few columns.
 * Wider groups read w and k less often, which pays while they leave half of the units with work. Two chunks in flight
 * hide what a chunk waits for, where they fit. */
void wd_walk_model(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_walk *walk, int *param)
{
    const size_t states = p->dim[GDN_SEQ] * p->dim[GDN_HV];
    param[WD_WALK_WV] = p->dim[GDN_V] % 32 == 0 && states * (p->dim[GDN_V] / 32) * 2 > caps->compute_units ? 2 : 1;
    for (param[WD_WALK_STAGES] = 2; param[WD_WALK_STAGES] > 0; param[WD_WALK_STAGES]--)
        for (param[WD_WALK_WK] = 4; param[WD_WALK_WK] > 0; param[WD_WALK_WK] /= 2)
            if (wd_walk_valid(caps, p, walk, param))
                return;
    param[WD_WALK_WV] = param[WD_WALK_WK] = param[WD_WALK_STAGES] = 1;
}

void wd_walk_grid(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_walk *walk, const int *param,
                  struct wd_grid *g)
{
    wd_gdn_grid(g, walk_items(caps, walk, param),
                p->dim[GDN_SEQ] * p->dim[GDN_HV] * (p->dim[GDN_V] / (16 * (size_t)param[WD_WALK_WV])));
}

const char *wd_walk_refuse(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_walk *walk)
{
    return wd_walk_valid(caps, p, walk, (const int[]){1, 1, 1}) ? NULL : "needs local memory for a chunk";
}

/* ---- chunk_fwd_h ---- */

static const struct wd_walk h_walk = {FWDH_k, FWDH_u, false};

static const char *h_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = wd_mma_refuse(caps, p, (const size_t[]){FWDH_k, FWDH_w}, 2);
    return why ? why : wd_walk_refuse(caps, p, &h_walk);
}

static bool h_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    return wd_walk_valid(caps, p, &h_walk, param);
}

static void h_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    wd_walk_grid(caps, p, &h_walk, param, g);
}

static void h_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    wd_walk_model(caps, p, &h_walk, param);
}

/* Groups of 8 columns, for f32. */
enum { NARROW = 8, NARROW_STAGES = 0 };

static const struct wd_param narrow_params[] = {
    [NARROW_STAGES] = {"stages", (const int[]){1, 2, 3, 4, 0}},
    {NULL, NULL},
};

static bool narrow_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    const size_t size = size_of(p, FWDH_k), stage = wd_mma_tile(WD_GDN_CHUNK, p->dim[GDN_K], size);
    const size_t u = WD_GDN_CHUNK * (NARROW * sizeof(float) + wd_dtype_size(p->tensor[FWDH_g].dtype));
    return (size_t)param[NARROW_STAGES] * (2 * (stage + 2 * sizeof(cl_ulong)) + u) +
               wd_mma_tile(NARROW, p->dim[GDN_K], size) + wd_mma_tile(NARROW, WD_GDN_CHUNK, size) <=
           caps->local_bytes;
}

static const char *narrow_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = wd_mma_refuse(caps, p, (const size_t[]){FWDH_k, FWDH_w}, 2);
    if (why)
        return why;
    if (size_of(p, FWDH_k) != sizeof(float) || p->tensor[FWDH_u].dtype != WD_F32)
        return "k, w and u must be f32";
    if (p->dim[GDN_K] != 64 && p->dim[GDN_K] != 128 && p->dim[GDN_K] != 256)
        return "K must be 64, 128 or 256";
    return narrow_valid(caps, p, (const int[]){1}) ? NULL : "needs local memory for a chunk";
}

static size_t narrow_groups(const struct wd_problem *p)
{
    return p->dim[GDN_SEQ] * p->dim[GDN_HV] * (p->dim[GDN_V] / NARROW);
}

static bool narrow_yields(const struct wd_caps *caps, const struct wd_problem *p)
{
    return narrow_groups(p) > caps->compute_units;
}

static void narrow_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    param[NARROW_STAGES] = p->dim[GDN_K] <= 64 ? 3 : 2; /* one chunk of 64 columns does not cover a fetch */
    while (param[NARROW_STAGES] > 1 && !narrow_valid(caps, p, param))
        param[NARROW_STAGES]--;
}

static void narrow_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)param;
    wd_gdn_grid(g, caps->sm < 90 ? ITEMS : 2 * ITEMS, narrow_groups(p)); /* half of the latter fetch */
}

const struct wd_variant wd_variant_chunk_fwd_h_narrow = {
    .name = "mma_narrow",
    .file = "chunk_fwd_h_narrow.cl",
    .kernel = "chunk_fwd_h_narrow",
    .params = narrow_params,
    .refuse = narrow_refuse,
    .yields = narrow_yields,
    .model = narrow_model,
    .valid = narrow_valid,
    .grid = narrow_grid,
};

const struct wd_variant wd_variant_chunk_fwd_h_mma = {
    .name = "mma",
    .file = "gdn_walk_mma.cl",
    .kernel = "chunk_fwd_h_mma",
    .params = wd_walk_params,
    .refuse = h_refuse,
    .model = h_model,
    .valid = h_valid,
    .grid = h_grid,
};
