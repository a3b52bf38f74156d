/* SPDX-License-Identifier: MIT */
/*
 * What the operations of the gated delta net share: rows of their tables, the rules for heads, widths and sequences,
 * how work is dealt to groups, and the parameters of their CPU forms.
 *
 * The order of dims.h is relied on: B, T, H, HV, K are dims 0 to 4 of each of these operations, and N is followed by
 * the four that are derived from it (NT, SEQ, C, N1).
 */
#ifndef WD_OP_GDN_H
#define WD_OP_GDN_H

#include "op.h"

/* ---- Rows of tables ---- */

#define WD_GDN_DIM(args, name, kind)                                                                                   \
    {                                                                                                                  \
#name, offsetof(args, name), kind                                                                              \
    }

/* The dims of an operation on [B][T] tokens with K and V: `.dims = (const struct wd_dim_desc[]){WD_GDN_DIMS(args)}`. */
#define WD_GDN_DIMS(args)                                                                                              \
    [GDN_B] = WD_GDN_DIM(args, B, WD_DIM_ARG), [GDN_T] = WD_GDN_DIM(args, T, WD_DIM_ARG),                              \
    [GDN_H] = WD_GDN_DIM(args, H, WD_DIM_ARG), [GDN_HV] = WD_GDN_DIM(args, HV, WD_DIM_ARG),                            \
    [GDN_K] = WD_GDN_DIM(args, K, WD_DIM_FIXED), [GDN_V] = WD_GDN_DIM(args, V, WD_DIM_FIXED),                          \
    [GDN_N] = WD_GDN_DIM(args, N, WD_DIM_ARG), [GDN_NT] = {"NT", WD_DERIVED, WD_DIM_ARG},                              \
    [GDN_SEQ] = {"SEQ", WD_DERIVED, WD_DIM_HOST}, [GDN_C] = {"C", WD_DERIVED, WD_DIM_HOST},                            \
    [GDN_N1] = {"N1", WD_DERIVED, WD_DIM_HOST}

/* A shape of the given dims, outermost first. */
#define WD_GDN_SHAPE(...)                                                                                              \
    {                                                                                                                  \
        {                                                                                                              \
            sizeof((unsigned char[]){__VA_ARGS__}),                                                                    \
            {                                                                                                          \
                __VA_ARGS__                                                                                            \
            }                                                                                                          \
        }                                                                                                              \
    }

/* Data of f32, f16 or bf16 whose rows kernels move as vectors; gates and betas; states; where packed sequences start.
 * The last arguments are the shape's dims. */
#define WD_GDN_DATA(args, member, kind, filled, ...)                                                                   \
    {                                                                                                                  \
        .name = #member, .offset = offsetof(args, member), .access = kind, .vector = true, .dtypes = WD_TYPES_DATA,    \
        .dtype = WD_F32, .fill = filled, .shape = WD_GDN_SHAPE(__VA_ARGS__)                                            \
    }
#define WD_GDN_F32(args, member, kind, filled, ...)                                                                    \
    {                                                                                                                  \
        .name = #member, .offset = offsetof(args, member), .access = kind, .dtypes = WD_TYPE(WD_F32), .dtype = WD_F32, \
        .fill = filled, .shape = WD_GDN_SHAPE(__VA_ARGS__)                                                             \
    }
/* Running sums of gates. */
#define WD_GDN_SUM(args, kind, filled, ...)                                                                            \
    {                                                                                                                  \
        .name = "g", .offset = offsetof(args, g), .access = kind, .dtypes = WD_TYPE(WD_F32) | WD_TYPE(WD_F32X2),       \
        .dtype = WD_F32, .fill = filled, .shape = WD_GDN_SHAPE(__VA_ARGS__)                                            \
    }
#define WD_GDN_STATE(args, member, kind, ...)                                                                          \
    {                                                                                                                  \
        .name = #member, .offset = offsetof(args, member), .access = kind, .optional = true, .vector = true,           \
        .dtypes = WD_TYPE(WD_F32), .dtype = WD_F32, .fill = WD_FILL_NORMAL, .shape = WD_GDN_SHAPE(__VA_ARGS__)         \
    }
#define WD_GDN_CU_SEQLENS(args, n1)                                                                                    \
    {                                                                                                                  \
        .name = "cu_seqlens", .offset = offsetof(args, cu_seqlens), .access = WD_IN, .optional = true,                 \
        .dtypes = WD_TYPE(WD_I32), .dtype = WD_I32, .fill = WD_FILL_OFFSETS, .shape = WD_GDN_SHAPE(n1)                 \
    }

#define WD_GDN_MATH(args)                                                                                              \
    {                                                                                                                  \
        .name = "math", .offset = offsetof(args, math), .kind = WD_CHOICE, .choices = wd_gdn_math                      \
    }
extern const char *const wd_gdn_math[]; /* names of wd_math */

/* ---- Rules, for wd_op.check ---- */

/** HV defaults to H and must be a multiple of it; K is at most 256, and so is dim `V` if that is not 0. */
wd_status wd_gdn_check_heads(struct wd_problem *p, size_t V);

/** The rules of packed sequences; then fills in the four dims behind dim `N`. `cu` is the tensor's index. Call it last:
 *  where a dimension other than T is zero, no output has an element. */
wd_status wd_gdn_check_sequences(struct wd_problem *p, size_t cu, size_t N);

/** A scale of 0 means K^-0.5. */
void wd_gdn_default_scale(struct wd_problem *p, size_t scale);

/** Both, for an operation with WD_GDN_DIMS. */
wd_status wd_gdn_check(struct wd_problem *p, size_t cu);

/* ---- Grids ---- */

/** How many slices, at most `most`, each of `items` equal pieces of work is best cut into, one slice a group: as few
 *  as leave no compute unit without work at the end. `rounds`: groups for each compute unit that even out the rest. */
size_t wd_gdn_slices(const struct wd_caps *caps, size_t items, size_t most, size_t rounds);

/** A one-dimensional grid. */
void wd_gdn_grid(struct wd_grid *g, size_t local, size_t groups);

/** Enough groups for `items` work-items of a kernel that allows any group size. */
void wd_gdn_grid_plain(const struct wd_caps *caps, size_t items, struct wd_grid *g);

/* ---- CPU forms (cpu_panel.cl) ---- */

enum { WD_CPU_VL, WD_CPU_RB, WD_CPU_NC };
extern const struct wd_param wd_gdn_cpu_params[];

const char *wd_gdn_cpu_refuse(const struct wd_caps *caps, const struct wd_problem *p);
void wd_gdn_cpu_model(const struct wd_caps *caps, const struct wd_problem *p, int *param);
bool wd_gdn_cpu_valid(const struct wd_caps *caps, const struct wd_problem *p, const int *param);

/** Panels of NC*VL columns that `columns` take. */
size_t wd_gdn_cpu_panels(const int *param, size_t columns);

/* ---- GPU forms with local memory (tile.cl) ---- */

/** Values of its parameters: TX items side by side, MR rows an item. */
extern const int wd_tile_tx[], wd_tile_mr[];

/** Rows an item: 4, that is 16 sums and 8 factors in registers, which every GPU has, and 16 bytes of each load; 8 where
 *  that makes the group too large for the device (64/4 * tx items). */
int wd_tile_model_mr(const struct wd_caps *caps, int tx);

/** Do a group of tx * 64/mr items and so many floats of local memory fit the device? */
bool wd_tile_fits(const struct wd_caps *caps, int tx, int mr, size_t floats);

enum { WD_TILE_DEPTH = 32, WD_TILE_STAGE = WD_GDN_CHUNK * (WD_TILE_DEPTH + 4) }; /* floats of a staged left factor */

#endif
