/* SPDX-License-Identifier: MIT */
/*
 * What the kernels on matrix engines need of a device and a call, and how they are launched. Sizes of local memory
 * follow mma.cl: lines of 128 bytes, chunks of 16, and a chunk skipped for every block of as many rows as a chunk has
 * elements.
 */
#include "op_gdn_mma.h"
#include "dims.h"
#include "op_gdn.h"

enum { LINE_BYTES = 128, CHUNK_BYTES = 16, WARP = 32, ITEMS = 128 };

/* ---- Tiles ---- */

static size_t lines(size_t elements, size_t size)
{
    return (elements * size + LINE_BYTES - 1) / LINE_BYTES;
}

/* Local memory of `rows` rows of so many lines. */
static size_t tile(size_t rows, size_t row_lines, size_t size)
{
    const size_t block = CHUNK_BYTES / size;
    return (rows + block - 1) / block * (block * row_lines * LINE_BYTES + CHUNK_BYTES);
}

static size_t size_of(const struct wd_problem *p, size_t tensor)
{
    return wd_dtype_size(p->tensor[tensor].dtype);
}

/* ---- Refusals ---- */

/* `operands`: the tensors that the engine multiplies. Rows of every tensor have to begin at 16 bytes, and p->vec
 * counts elements. */
static const char *refuse(const struct wd_caps *caps, const struct wd_problem *p, const size_t *operands, size_t n)
{
    if (caps->sm < 80)
        return "needs a matrix engine: NVIDIA sm_80 or later";
    if (p->dim[GDN_K] % 16 || p->dim[GDN_V] % 16)
        return "K and V must be multiples of 16";
    for (size_t i = 1; i < n; i++)
        if (p->tensor[operands[i]].dtype != p->tensor[operands[0]].dtype)
            return "the factors of a product must have one type";
    unsigned vec = 4;
    for (size_t i = 0; i < p->op->num_tensors; i++)
        if (p->op->tensors[i].vector && p->tensor[i].present && size_of(p, i) < sizeof(float))
            vec = 8;
    if (p->vec < vec)
        return "rows must be aligned to 16 bytes";
    if (p->dim[GDN_B] * p->dim[GDN_NT] > (size_t)INT32_MAX / 4 / p->dim[GDN_HV])
        return "too many chunks to number";
    return NULL;
}

static size_t pieces(const struct wd_problem *p)
{
    return p->dim[GDN_B] * p->dim[GDN_NT] * p->dim[GDN_HV];
}

/* ---- recompute_w_u ---- */

static const char *wu_refuse_any(const struct wd_caps *caps, const struct wd_problem *p)
{
    return refuse(caps, p, (const size_t[]){WU_k, WU_v}, 2);
}

static const char *wu_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    const char *why = wu_refuse_any(caps, p);
    const size_t size = size_of(p, WU_k);
    if (why)
        return why;
    if (size < sizeof(float))
        return "16-bit data: mma_steps waits less";
    const size_t local = tile(WD_GDN_CHUNK, lines(p->dim[GDN_K], size), size) +
                         tile(WD_GDN_CHUNK, lines(p->dim[GDN_V], size), size) + 2 * WD_GDN_CHUNK * sizeof(float);
    return local > caps->local_bytes ? "needs local memory for 64 rows of k and of v" : NULL;
}

static void wu_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    (void)param;
    wd_gdn_grid(g, ITEMS, pieces(p));
}

const struct wd_variant wd_variant_recompute_w_u_mma = {
    .name = "mma",
    .file = "recompute_w_u_mma.cl",
    .kernel = "recompute_w_u_mma",
    .refuse = wu_refuse,
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
    const size_t widest = p->dim[GDN_K] > p->dim[GDN_V] ? p->dim[GDN_K] : p->dim[GDN_V];
    const size_t stage = tile(WD_GDN_CHUNK, lines(widest, size), size) +
                         WD_GDN_CHUNK * (WD_GDN_CHUNK * size_of(p, WU_A) + 4 * CHUNK_BYTES);
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
    return refuse(caps, p, (const size_t[]){FWDO_q, FWDO_k, FWDO_v_new, FWDO_h}, 4);
}

static bool o_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    const size_t size = size_of(p, FWDO_k), line = LINE_BYTES / size, split = (size_t)param[O_SPLIT];
    const size_t stage = tile(line, lines(p->dim[GDN_V] / split, size), size) + tile(WD_GDN_CHUNK, 1, size);
    return p->dim[GDN_V] % (16 * split) == 0 &&
           (size_t)param[O_STAGES] * stage + WD_GDN_CHUNK * sizeof(float) <= caps->local_bytes;
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

/* ---- chunk_fwd_h ---- */

enum { H_WV, H_WK };
static const struct wd_param h_params[] = {
    [H_WV] = {"wv", (const int[]){1, 2, 4, 0}},
    [H_WK] = {"wk", (const int[]){1, 2, 4, 0}},
    {NULL, NULL},
};

static const char *h_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    return refuse(caps, p, (const size_t[]){FWDH_k, FWDH_w}, 2);
}

/* A warp keeps half a line of K or a whole number of lines. */
static bool h_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    const size_t size = size_of(p, FWDH_k), wv = (size_t)param[H_WV], wk = (size_t)param[H_WK];
    const size_t halves = 2 * lines(p->dim[GDN_K], size);
    const size_t parts = size == sizeof(float) && p->choice[FWDH_math] == WD_MATH_F32 ? 2 : 1;
    const size_t steps = 4 * (lines(p->dim[GDN_K], size) + lines(WD_GDN_CHUNK, size));
    const size_t local = 4 * tile(WD_GDN_CHUNK, lines(p->dim[GDN_K], size), size) + 2 * WD_GDN_CHUNK * sizeof(float) +
                         (wk > 1 ? wv * steps * parts * WARP * CHUNK_BYTES : 0);
    return p->dim[GDN_V] % (16 * wv) == 0 && halves % wk == 0 && (halves == wk || halves / wk % 2 == 0) &&
           local <= caps->local_bytes;
}

/* The chunks of a state come one after the other, so what counts is that each is quick: many warps for few columns.
 * Wider groups read w and k less often, which pays while they leave half of the units with work. */
static void h_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    const size_t states = p->dim[GDN_SEQ] * p->dim[GDN_HV];
    param[H_WV] = p->dim[GDN_V] % 32 == 0 && states * (p->dim[GDN_V] / 32) * 2 > caps->compute_units ? 2 : 1;
    for (param[H_WK] = 4; param[H_WK] > 1 && !h_valid(caps, p, param);)
        param[H_WK] /= 2;
}

static void h_grid(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)caps;
    wd_gdn_grid(g, (size_t)(WARP * param[H_WV] * param[H_WK]),
                p->dim[GDN_SEQ] * p->dim[GDN_HV] * (p->dim[GDN_V] / (16 * (size_t)param[H_WV])));
}

const struct wd_variant wd_variant_chunk_fwd_h_mma = {
    .name = "mma",
    .file = "chunk_fwd_h_mma.cl",
    .kernel = "chunk_fwd_h_mma",
    .params = h_params,
    .refuse = h_refuse,
    .model = h_model,
    .valid = h_valid,
    .grid = h_grid,
};
