/* SPDX-License-Identifier: MIT */
/*
 * What gdn_prepare, gdn_forward and gdn_decode share beyond op_gdn.h: gates, beta, q and k as a model hands them over
 * (cl/gdn_gates.cl computes it).
 */
#ifndef WD_OP_GDN_GATES_H
#define WD_OP_GDN_GATES_H

#include "op_gdn.h"

/* Gates or betas of any data type; A_log or dt_bias. */
#define WD_GDN_GATE(args, member, filled, ...)                                                                         \
    {                                                                                                                  \
        .name = #member, .offset = offsetof(args, member), .access = WD_IN, .dtypes = WD_TYPES_DATA, .dtype = WD_F32,  \
        .fill = filled, .shape = WD_GDN_SHAPE(__VA_ARGS__)                                                             \
    }
#define WD_GDN_PER_HEAD(args, member)                                                                                  \
    {                                                                                                                  \
        .name = #member, .offset = offsetof(args, member), .access = WD_IN, .optional = true,                          \
        .dtypes = WD_TYPE(WD_F32), .dtype = WD_F32, .fill = WD_FILL_SMALL, .shape = WD_GDN_SHAPE(GDN_HV)               \
    }

#define WD_GDN_BETA_MODE(args)                                                                                         \
    {                                                                                                                  \
        .name = "beta_mode", .offset = offsetof(args, beta_mode), .kind = WD_CHOICE, .choices = wd_gdn_beta_modes      \
    }
#define WD_GDN_L2NORM(args)                                                                                            \
    {                                                                                                                  \
        .name = "l2norm", .offset = offsetof(args, l2norm), .kind = WD_FLAG                                            \
    }
#define WD_GDN_L2NORM_EPS(args)                                                                                        \
    {                                                                                                                  \
        .name = "l2norm_eps", .offset = offsetof(args, l2norm_eps), .kind = WD_REAL, .standard = 1e-6f                 \
    }
extern const char *const wd_gdn_beta_modes[]; /* names of wd_beta_mode */

/** A_log and dt_bias (tensors' indices) come together, and l2norm_eps (a scalar's) is not negative. */
wd_status wd_gdn_check_gates(const struct wd_problem *p, size_t A_log, size_t dt_bias, size_t l2norm_eps);

#endif
