/* SPDX-License-Identifier: MIT */
#include "op_gdn.h"
#include "dims.h"
#include "status.h"

#include <math.h>

const char *const wd_gdn_math[] = {"f32", "tf32", NULL};

/* ---- Rules ---- */

wd_status wd_gdn_check_heads(struct wd_problem *p, size_t V)
{
    const char *op = p->op->name;
    size_t *dim = p->dim;
    if (dim[GDN_HV] == 0)
        dim[GDN_HV] = dim[GDN_H];
    if (dim[GDN_HV] && (dim[GDN_H] == 0 || dim[GDN_HV] % dim[GDN_H]))
        return wd_fail(WD_EINVAL, "wd_%s: HV: %zu is not a multiple of H (%zu)", op, dim[GDN_HV], dim[GDN_H]);
    if (dim[GDN_K] > WD_GDN_HEAD_MAX)
        return wd_fail(WD_EINVAL, "wd_%s: K: %zu is more than %d", op, dim[GDN_K], WD_GDN_HEAD_MAX);
    if (V && dim[V] > WD_GDN_HEAD_MAX)
        return wd_fail(WD_EINVAL, "wd_%s: V: %zu is more than %d", op, dim[V], WD_GDN_HEAD_MAX);
    return WD_OK;
}

wd_status wd_gdn_check_sequences(struct wd_problem *p, size_t cu, size_t N)
{
    size_t *dim = p->dim, *derived = p->dim + N;
    wd_status st = wd_check_packed(p, cu, dim[N], dim[GDN_B], dim[GDN_T]);
    if (st)
        return st;
    for (size_t i = GDN_H; i < N; i++) /* H, HV, K and, where there is one, V */
        if (dim[i] == 0)
            dim[GDN_B] = 0;
    derived[GDN_NT - GDN_N] = wd_gdn_chunks(dim[GDN_T], dim[N]);
    if (dim[GDN_B] && derived[GDN_NT - GDN_N] > UINT32_MAX / dim[GDN_B]) /* gdn.cl counts chunks in 32 bits */
        return wd_fail(WD_EINVAL, "wd_%s: T: more than 2^32 chunks", p->op->name);
    derived[GDN_SEQ - GDN_N] = dim[N] && dim[GDN_B] ? dim[N] : dim[GDN_B];
    derived[GDN_C - GDN_N] = WD_GDN_CHUNK;
    derived[GDN_N1 - GDN_N] = dim[N] + 1;
    return WD_OK;
}

void wd_gdn_default_scale(struct wd_problem *p, size_t scale)
{
    if (p->real[scale] == 0 && p->dim[GDN_K])
        p->real[scale] = (float)(1 / sqrt((double)p->dim[GDN_K]));
}

wd_status wd_gdn_check(struct wd_problem *p, size_t cu)
{
    const wd_status st = wd_gdn_check_heads(p, GDN_V);
    return st ? st : wd_gdn_check_sequences(p, cu, GDN_N);
}

/* ---- Grids ---- */

size_t wd_gdn_slices(const struct wd_caps *caps, size_t items, size_t most, size_t rounds)
{
    const size_t units = caps->compute_units ? caps->compute_units : 1;
    size_t slices = 1;
    while (slices < most && items * slices < rounds * units && items * slices % units)
        slices++;
    return slices;
}

void wd_gdn_grid(struct wd_grid *g, size_t local, size_t groups)
{
    *g = (struct wd_grid){.dims = 1, .local = {local}, .groups = {groups}};
}

void wd_gdn_grid_plain(const struct wd_caps *caps, size_t items, struct wd_grid *g)
{
    const size_t local = caps->max_group < 64 ? caps->max_group : 64;
    wd_gdn_grid(g, local, (items + local - 1) / local);
}

/* ---- CPU forms ---- */

const struct wd_param wd_gdn_cpu_params[] = {
    [WD_CPU_VL] = {"vl", (const int[]){4, 8, 16, 0}},
    [WD_CPU_RB] = {"rb", (const int[]){2, 4, 8, 0}},
    [WD_CPU_NC] = {"nc", (const int[]){1, 2, 4, 0}},
    {NULL, NULL},
};

const char *wd_gdn_cpu_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    (void)p;
    return caps->cpu ? NULL : "made for CPUs: a work-item keeps whole tiles in private memory";
}

/* RB*NC accumulators, NC vectors of the panel and a broadcast element have to be in registers: AVX2 has 16, AVX-512
 * and NEON 32. */
void wd_gdn_cpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param)
{
    (void)p;
    param[WD_CPU_VL] = caps->simd >= 16 ? 16 : caps->simd >= 8 ? 8 : 4;
    param[WD_CPU_RB] = param[WD_CPU_VL] == 8 ? 4 : 8;
    param[WD_CPU_NC] = 2;
}

/* Blocks must not cross panels, and more than 32 accumulators of the hardware's width stay in registers nowhere. */
bool wd_gdn_cpu_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param)
{
    (void)p;
    const int wide = param[WD_CPU_VL] > (int)caps->simd && caps->simd ? param[WD_CPU_VL] / (int)caps->simd : 1;
    return param[WD_CPU_VL] * param[WD_CPU_NC] % param[WD_CPU_RB] == 0 &&
           param[WD_CPU_RB] * param[WD_CPU_NC] * wide <= 32;
}

size_t wd_gdn_cpu_panels(const int *param, size_t columns)
{
    const size_t panel = (size_t)param[WD_CPU_VL] * (size_t)param[WD_CPU_NC];
    return (columns + panel - 1) / panel;
}

/* ---- GPU forms with local memory ---- */

const int wd_tile_tx[] = {4, 8, 16, 32, 0};
const int wd_tile_mr[] = {4, 8, 0};

int wd_tile_model_mr(const struct wd_caps *caps, int tx)
{
    return (size_t)tx * WD_GDN_CHUNK / 4 <= caps->max_group ? 4 : 8;
}

bool wd_tile_fits(const struct wd_caps *caps, int tx, int mr, size_t floats)
{
    return (size_t)(tx * WD_GDN_CHUNK / mr) <= caps->max_group && floats * sizeof(float) <= caps->local_bytes;
}
