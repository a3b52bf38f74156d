/* SPDX-License-Identifier: MIT */
/*
 * Where each operation's sizes, tensors and scalars stand in its tables (op.h): the indices of wd_problem.dim[],
 * .tensor[], .choice[] and .real[]. Tables, checks, grids and the references name them by these enums.
 *
 * One rule gives every order: as in the operation's args struct in warpdrive.h, derived dims last. Sizes are in
 * capitals; tensors and scalars are spelled as in the struct. Tables use designated initialisers, so that a row
 * in the wrong place cannot happen: `[WU_k] = {"k", ...}`.
 */
#ifndef WD_DIMS_H
#define WD_DIMS_H

/* ---- fp8_quant ---- */

enum {
    FP8_TOKENS,
    FP8_HIDDEN,
    FP8_GROUP,
    FP8_GROUPS,  /* derived: hidden / group */
    FP8_TOKENS4, /* derived: tokens rounded up to a multiple of 4 */
};
enum { FP8_x, FP8_q, FP8_s };
enum { FP8_s_layout, FP8_eps };

/* ---- causal_conv1d ---- */

enum {
    CONV_B,
    CONV_D,
    CONV_S,
    CONV_W,
    CONV_N,
    CONV_TAIL, /* derived: W - 1 */
    CONV_SEQ,  /* derived: states: N when packed, else B */
    CONV_N1,   /* derived: N + 1 */
};
enum { CONV_x, CONV_weight, CONV_bias, CONV_initial_state, CONV_cu_seqlens, CONV_out, CONV_final_state };
enum { CONV_layout, CONV_act };

/* ---- causal_conv1d_update ---- */

enum {
    UPD_B,
    UPD_D,
    UPD_T,
    UPD_W,
    UPD_SLOTS,
    UPD_TAIL, /* derived: W - 1 */
};
enum { UPD_x, UPD_weight, UPD_bias, UPD_state, UPD_slot, UPD_out };
enum { UPD_act };

/* ---- Gated delta net: one set of dims for recompute_w_u, chunk_fwd_h, chunk_fwd_o and gdn_forward ---- */

enum {
    GDN_B,
    GDN_T,
    GDN_H,
    GDN_HV,
    GDN_K,
    GDN_V,
    GDN_N,
    GDN_NT,  /* derived: chunks of one batch entry, wd_gdn_chunks(T, N) */
    GDN_SEQ, /* derived: states: N when packed, else B */
    GDN_C,   /* derived: WD_GDN_CHUNK */
    GDN_N1,  /* derived: N + 1 */
};

enum { WD_GDN_HEAD_MAX = 256 }; /* K and V */
#define WD_GDN_FORGET (-110.0)  /* lower log gates count as this one, whose exp() is 0 in f32 (cl/gdn_gates.cl) */

enum { WU_k, WU_v, WU_beta, WU_A, WU_g, WU_cu_seqlens, WU_w, WU_u };
enum { WU_math, WU_A_is_lower };

enum { FWDH_k, FWDH_w, FWDH_u, FWDH_g, FWDH_initial_state, FWDH_cu_seqlens, FWDH_h, FWDH_v_new, FWDH_final_state };
enum { FWDH_math };

enum { FWDO_q, FWDO_k, FWDO_v_new, FWDO_h, FWDO_g, FWDO_cu_seqlens, FWDO_o };
enum { FWDO_scale, FWDO_math };

/* gdn_forward */
enum {
    FWD_q,
    FWD_k,
    FWD_v,
    FWD_g,
    FWD_beta,
    FWD_A_log,
    FWD_dt_bias,
    FWD_initial_state,
    FWD_cu_seqlens,
    FWD_o,
    FWD_final_state,
};
enum { FWD_beta_mode, FWD_l2norm, FWD_l2norm_eps, FWD_scale, FWD_math };

/* ---- gdn_prepare: the same without V ---- */

enum {
    PREP_B,
    PREP_T,
    PREP_H,
    PREP_HV,
    PREP_K,
    PREP_N,
    PREP_NT,  /* derived, as above */
    PREP_SEQ, /* derived */
    PREP_C,   /* derived */
    PREP_N1,  /* derived */
};
enum {
    PREP_k,
    PREP_gate,
    PREP_beta,
    PREP_A_log,
    PREP_dt_bias,
    PREP_q,
    PREP_cu_seqlens,
    PREP_g,
    PREP_A,
    PREP_beta_out,
    PREP_q_out,
    PREP_k_out,
};
enum { PREP_beta_mode, PREP_l2norm, PREP_l2norm_eps, PREP_math };

/* ---- gdn_decode ---- */

enum { DEC_B, DEC_T, DEC_H, DEC_HV, DEC_K, DEC_V, DEC_SLOTS };
enum { DEC_q, DEC_k, DEC_v, DEC_g, DEC_beta, DEC_A_log, DEC_dt_bias, DEC_state, DEC_slot, DEC_o };
enum { DEC_beta_mode, DEC_l2norm, DEC_l2norm_eps, DEC_scale };

#endif
