/* SPDX-License-Identifier: MIT */
/*
 * The contract all operations share.
 *
 * An operation is a description: its sizes, tensors and scalars as tables, its own rules, its arithmetic, its
 * variants and its reference. Everything else is generic and reads the tables: checking a call, the macros and
 * arguments of its kernels, the command line, tests, verification, tuning and benchmarks.
 *
 * What a kernel sees of a call
 *   macros     T_<TENSOR> the element type (f32 f16 bf16 e4m3 e5m2 ue8m0 i32 f32x2), HAS_<TENSOR> 0/1 for optional
 *              tensors, <DIM> for fixed dims, <SCALAR> for choices and flags (their number), VEC, and <PARAM>
 *              for the variant's parameters; names in capitals, '_' kept. Device: WD_CPU, WD_SM, WD_WGMMA, WD_SIMD.
 *   arguments  every tensor in table order as (pointer, ulong4 at): at.x the offset, at.y .. at.w the strides of
 *              its three outermost dims, in elements (absent tensors: NULL, 0); then every WD_DIM_ARG dim
 *              (derived ones too) as ulong, in table order; then every real scalar as float.
 */
#ifndef WD_OP_H
#define WD_OP_H

#include "device.h"

enum {
    WD_MAX_DIMS = 16,
    WD_MAX_TENSORS = 20,
    WD_MAX_SCALARS = 8,
    WD_MAX_RANK = 5,
    WD_MAX_PARAMS = 6,
    WD_MAX_ARGS = 1536, /* bytes of an args struct */
};

#define WD_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- Tables ---- */

enum wd_dim_kind {
    WD_DIM_ARG,   /* changes from call to call: a kernel argument, never a recompile */
    WD_DIM_FIXED, /* compiled in */
    WD_DIM_HOST,  /* only shapes are made of it */
};

#define WD_DERIVED SIZE_MAX /* not in the args struct: wd_op.check computes it */

struct wd_dim_desc {
    const char *name;
    size_t offset;
    enum wd_dim_kind kind;
};

enum wd_access { WD_IN, WD_OUT, WD_INOUT };

/* What random test data looks like (trial.c). */
enum wd_fill {
    WD_FILL_NORMAL,   /* N(0,1) */
    WD_FILL_UNIT_ROW, /* N(0,1) rows divided by their L2 norm */
    WD_FILL_SMALL,    /* N(0,1) / 8 */
    WD_FILL_BETA,     /* uniform in (0,1) */
    WD_FILL_GATE,     /* log gates, by regime */
    WD_FILL_GATE_SUM, /* running sums of log gates per chunk, by regime */
    WD_FILL_LOWER,    /* unit lower triangle per chunk, small below the diagonal, zero above and past the end */
    WD_FILL_OFFSETS,  /* cu_seqlens */
    WD_FILL_SLOTS,    /* distinct slots */
    WD_FILL_OWN,      /* the operation's own fill function */
};

struct wd_tensor_desc {
    const char *name;
    size_t offset; /* of the wd_tensor in the args struct */
    enum wd_access access;
    bool optional;
    bool vector;     /* kernels read or write its rows as vectors: it counts for wd_problem.vec */
    unsigned dtypes; /* WD_TYPES(...) allowed */
    wd_dtype dtype;  /* the default */
    enum wd_fill fill;
    struct {
        unsigned char rank;
        unsigned char dim[WD_MAX_RANK]; /* indices into the dims, outermost first */
    } shape[2];                         /* [1]: where wd_op.layout's choice is 1; rank 0: as [0] */
};

#define WD_DTYPE_LAST WD_F32X2
#define WD_TYPE(t)    (1u << (t))
#define WD_TYPES_DATA (WD_TYPE(WD_F32) | WD_TYPE(WD_F16) | WD_TYPE(WD_BF16))

enum wd_scalar_kind {
    WD_REAL,   /* float; a kernel argument; 0 means `standard` (or what wd_op.check puts there) */
    WD_CHOICE, /* an enum; compiled in */
    WD_FLAG,   /* a bool; compiled in */
};

struct wd_scalar_desc {
    const char *name;
    size_t offset;
    enum wd_scalar_kind kind;
    float standard;
    const char *const *choices; /* names by value, NULL-terminated */
};

/* ---- A checked call ---- */

struct wd_view {
    cl_mem mem;
    cl_ulong at[4]; /* offset and strides, as kernels get them */
    wd_dtype dtype;
    bool present;
};

struct wd_problem {
    const struct wd_op *op;
    size_t dim[WD_MAX_DIMS];
    struct wd_view tensor[WD_MAX_TENSORS];
    int choice[WD_MAX_SCALARS]; /* choices and flags */
    float real[WD_MAX_SCALARS]; /* reals */
    bool empty;                 /* no output element at all: nothing to launch */
    unsigned vec;               /* largest power of two <= 16 that divides row lengths, offsets and strides of all
                                   vector tensors (elements) */
    double bytes;               /* that must move: every present tensor once (twice for in-out) */
    cl_mem workspace;
    const int32_t *cu_seqlens_host;
};

/* ---- Variants ---- */

struct wd_grid {
    cl_uint dims;
    size_t local[3], groups[3]; /* global size = groups * local */
};

struct wd_param {
    const char *name;
    const int *values; /* candidates for the tuner, ascending, ended by 0 */
};

struct wd_context;

/* One way to compute an operation. Listed best first: the first that refuses nothing is the model's choice. */
struct wd_variant {
    const char *name;
    const char *file, *kernel;     /* "fp8_quant.cl", "fp8_quant_rows" */
    const struct wd_param *params; /* ended by a NULL name; NULL: none */
    /** Why it cannot serve this problem on this device (static text), or NULL. */
    const char *(*refuse)(const struct wd_caps *caps, const struct wd_problem *p);
    /** Is the next in its operation's list that serves, and does not yield itself, likely to be faster here? Then it
     * goes behind that. NULL: no. */
    bool (*yields)(const struct wd_caps *caps, const struct wd_problem *p);
    /** Parameters from the device's limits. NULL with no params. */
    void (*model)(const struct wd_caps *caps, const struct wd_problem *p, int *param);
    /** Do these numbers fit device and problem? NULL: always. The group size is checked against caps anyway. */
    bool (*valid)(const struct wd_caps *caps, const struct wd_problem *p, const int *param);
    void (*grid)(const struct wd_caps *caps, const struct wd_problem *p, const int *param, struct wd_grid *g);
    /** Instead of a kernel: a composition of other operations' calls (chain.h). `launch` NULL: only prepare them,
     *  where the tensors' cl_mem may be NULL too. NULL for kernels. */
    wd_status (*chain)(struct wd_context *ctx, const struct wd_problem *p, const int *param, const wd_launch *launch);
    /** Scratch bytes; NULL: none. */
    size_t (*workspace)(const struct wd_problem *p);
};

/* ---- Operations ---- */

struct wd_op {
    wd_op_id id;
    const char *name;
    const char *summary; /* one line for --help */
    size_t args_size;
    const struct wd_dim_desc *dims;
    size_t num_dims;
    const struct wd_tensor_desc *tensors;
    size_t num_tensors;
    const struct wd_scalar_desc *scalars;
    size_t num_scalars;
    int layout;                               /* index of the scalar that picks shape[1], or -1 */
    size_t workspace_offset;                  /* of `cl_mem workspace` in the args struct, or WD_DERIVED */
    size_t cu_seqlens_offset;                 /* of `cu_seqlens_host` in the args struct, or WD_DERIVED */
    const struct wd_variant *const *variants; /* NULL-terminated, best first */
    /** The operation's own rules, after dims, choices, dtypes and presence are read and before shapes are used:
     *  fills defaults and derived dims. Errors through wd_fail(WD_EINVAL, "wd_<op>: <argument>: ..."). */
    wd_status (*check)(struct wd_problem *p);
    /** Multiply-adds count two. */
    double (*flops)(const struct wd_problem *p);
    /** Which tuning class the size falls in; NULL: by bytes, a class for each power of four. */
    unsigned (*size_class)(const struct wd_problem *p);
    /** The operation in double: t[i] is tensor i, packed in its shape, as values (NULL: absent); writes outputs. NULL:
     *  a part of another operation, neither tested nor tuned by itself. */
    void (*reference)(const struct wd_problem *p, double *const *t);
};

/* op_<op>.c */
extern const struct wd_op wd_op_fp8_quant, wd_op_causal_conv1d, wd_op_causal_conv1d_update, wd_op_recompute_w_u,
    wd_op_chunk_fwd_h, wd_op_chunk_fwd_o, wd_op_gdn_prepare, wd_op_gdn_forward, wd_op_gdn_decode;

/* op.c */
const char *wd_dtype_name(wd_dtype dtype); /* "bf16" */
extern const struct wd_op *const wd_ops[]; /* all, NULL-terminated, in order of id */
const struct wd_op *wd_op_by_id(wd_op_id id);
const struct wd_op *wd_op_by_name(const char *name);

/** Reads and checks `args` into `p`. Buffers' sizes are checked where mem is not NULL; `launching`: it must not
 *  be. */
wd_status wd_op_check(const struct wd_op *op, const void *args, bool launching, struct wd_problem *p);

/** The way back: the args struct of a checked problem, with its tensors' types and no buffers. `args` has room for
 *  p->op->args_size bytes. */
void wd_op_args(const struct wd_problem *p, void *args);

/** Elements of tensor i; its shape's extents in ext[] (rank returned). */
size_t wd_tensor_extents(const struct wd_problem *p, size_t i, size_t ext[WD_MAX_RANK]);
size_t wd_tensor_elements(const struct wd_problem *p, size_t i);

/** The rules of packed sequences that every operation shares, for wd_op.check: N > 0 needs B = 1 and cu_seqlens,
 *  cu_seqlens needs N, and a host copy must rise from 0 to `total`. `cu` is the tensor's index. */
wd_status wd_check_packed(const struct wd_problem *p, size_t cu, size_t N, size_t B, size_t total);

/** The public functions' common body: check, choose, compile, enqueue (launch.c). */
wd_status wd_op_call(struct wd_context *ctx, const struct wd_op *op, const void *args, const wd_launch *launch);

#endif
