/* SPDX-License-Identifier: MIT */
/* Shapes of the gated delta net's operations, the calls they stand for, checks of every variant, and outputs as
 * numbers. */
#ifndef GDN_SHAPES_H
#define GDN_SHAPES_H

#include "sweep.h"

#include <math.h>
#include <stdio.h>

#include "convert.h"

typedef void (*edit_fn)(void *user, const struct wd_problem *p, double *const *t);

struct shape {
    const char *name;
    struct {
        size_t B, T, H, HV, K, V, N;
    } n;
    wd_dtype data, gates; /* of q, k, v, o, and of log gates and beta; zero: f32 */
    wd_dtype sums;        /* gdn_prepare: of g */
    bool initial, final;
    bool options; /* l2norm, raw gates, beta by sigmoid, and what gdn_prepare can write besides */
    size_t slots; /* gdn_decode: with `slot` */
    size_t shift, pad;
    float scale;
};

static inline wd_tensor of(wd_dtype dtype, bool present)
{
    return (wd_tensor){.dtype = present ? dtype ? dtype : WD_F32 : WD_DTYPE_DEFAULT};
}

static inline wd_gdn_prepare_args prepare_args(const struct shape *s)
{
    return (wd_gdn_prepare_args){
        .struct_size = sizeof(wd_gdn_prepare_args),
        .B = s->n.B,
        .T = s->n.T,
        .H = s->n.H,
        .HV = s->n.HV,
        .K = s->n.K,
        .N = s->n.N,
        .k = of(s->data, true),
        .gate = of(s->gates, true),
        .beta = of(s->gates, true),
        .A_log = of(WD_F32, s->options),
        .dt_bias = of(WD_F32, s->options),
        .q = of(s->data, s->options),
        .cu_seqlens = of(WD_I32, s->n.N > 0),
        .g = of(s->sums, true),
        .A = of(s->data, true),
        .beta_out = of(WD_F32, s->options),
        .q_out = of(s->data, s->options),
        .k_out = of(s->data, s->options),
        .beta_mode = s->options ? WD_BETA_SIGMOID : WD_BETA_VALUE,
        .l2norm = s->options,
    };
}

static inline wd_gdn_forward_args forward_args(const struct shape *s)
{
    return (wd_gdn_forward_args){
        .struct_size = sizeof(wd_gdn_forward_args),
        .B = s->n.B,
        .T = s->n.T,
        .H = s->n.H,
        .HV = s->n.HV,
        .K = s->n.K,
        .V = s->n.V,
        .N = s->n.N,
        .q = of(s->data, true),
        .k = of(s->data, true),
        .v = of(s->data, true),
        .g = of(s->gates, true),
        .beta = of(s->gates, true),
        .A_log = of(WD_F32, s->options),
        .dt_bias = of(WD_F32, s->options),
        .initial_state = of(WD_F32, s->initial),
        .cu_seqlens = of(WD_I32, s->n.N > 0),
        .o = of(s->data, true),
        .final_state = of(WD_F32, s->final),
        .beta_mode = s->options ? WD_BETA_SIGMOID : WD_BETA_VALUE,
        .l2norm = s->options,
        .scale = s->scale,
    };
}

static inline wd_gdn_decode_args decode_args(const struct shape *s)
{
    return (wd_gdn_decode_args){
        .struct_size = sizeof(wd_gdn_decode_args),
        .B = s->n.B,
        .T = s->n.T,
        .H = s->n.H,
        .HV = s->n.HV,
        .K = s->n.K,
        .V = s->n.V,
        .slots = s->slots,
        .q = of(s->data, true),
        .k = of(s->data, true),
        .v = of(s->data, true),
        .g = of(s->gates, true),
        .beta = of(s->gates, true),
        .A_log = of(WD_F32, s->options),
        .dt_bias = of(WD_F32, s->options),
        .slot = of(WD_I32, s->slots > 0),
        .o = of(s->data, true),
        .beta_mode = s->options ? WD_BETA_SIGMOID : WD_BETA_VALUE,
        .l2norm = s->options,
        .scale = s->scale,
    };
}

/* ---- Every variant against the reference ---- */

static inline void check(const struct wd_op *op, const struct shape *s, const void *args, const char *only,
                         enum wd_gates gates, edit_fn edit)
{
    static const char *const names[] = {"mild", "steep", "zero"};
    const struct wd_trial_options options = {.seed = 1, .gates = gates, .shift = s->shift, .pad = s->pad, .edit = edit};
    char label[128];
    snprintf(label, sizeof label, "%s %s: T=%zu K=%zu V=%zu, %s gates", op->name, s->name, s->n.T, s->n.K, s->n.V,
             names[gates]);
    assert_true(variants_check(label, op, args, only, &options) > 0);
}

static inline void check_prepare(const struct shape *s, enum wd_gates gates)
{
    const wd_gdn_prepare_args a = prepare_args(s);
    check(&wd_op_gdn_prepare, s, &a, NULL, gates, NULL);
}

static inline void check_forward(const struct shape *s, const char *only, enum wd_gates gates, edit_fn edit)
{
    const wd_gdn_forward_args a = forward_args(s);
    check(&wd_op_gdn_forward, s, &a, only, gates, edit);
}

static inline void check_decode(const struct shape *s, enum wd_gates gates)
{
    const wd_gdn_decode_args a = decode_args(s);
    check(&wd_op_gdn_decode, s, &a, NULL, gates, NULL);
}

/* ---- Outputs as numbers ---- */

/* Runs one variant and keeps its trial, buffers and all; NULL if it refuses. */
static inline struct wd_trial *run_variant(const struct wd_op *op, const void *args, const struct wd_variant *variant,
                                           edit_fn edit, void *user)
{
    const struct wd_trial_options options = {.seed = 3, .edit = edit, .user = user};
    struct variants_choice chosen = {.kernel = NULL};
    struct wd_problem p;
    struct wd_trial *t;
    if (wd_op_check(op, args, false, &p) || wd_trial_create(ctx, &p, &options, &t))
        fail_msg("%s", wd_last_error());
    if (variant && !wd_tuning_model(&ctx->caps, &t->p, variant, &chosen.choice)) {
        wd_trial_destroy(t);
        return NULL;
    }
    if ((variant && !variant->chain && wd_plan_compile(ctx, &t->p, &chosen.choice, &chosen.kernel)) ||
        wd_trial_run(t, variant ? variants_launch : NULL, &chosen))
        fail_msg("%s", wd_last_error());
    return t;
}

/* The same with whatever the library picks, as users run it. */
static inline struct wd_trial *run(const struct wd_op *op, const void *args, edit_fn edit, void *user)
{
    return run_variant(op, args, NULL, edit, user);
}

/* Tensor i of a trial after its run, packed. The caller frees it. */
static inline double *output(const struct wd_trial *t, size_t i)
{
    const struct wd_trial_tensor *x = &t->tensor[i];
    const wd_dtype dtype = t->p.tensor[i].dtype;
    unsigned char *bytes = malloc(x->bytes);
    double *values = malloc((wd_tensor_elements(&t->p, i) + 1) * sizeof *values);
    assert_non_null(bytes);
    assert_non_null(values);
    assert_int_equal(clEnqueueReadBuffer(t->queue, x->mem, CL_TRUE, 0, x->bytes, bytes, 0, NULL, NULL), CL_SUCCESS);
    for (size_t r = 0; r < wd_trial_runs(x); r++)
        wd_to_double(dtype, bytes + wd_trial_run_start(x, r) * wd_dtype_size(dtype), x->inner, values + r * x->inner);
    free(bytes);
    return values;
}

/* Relative Frobenius distance; not a number if one is. */
static inline double distance(const double *a, const double *b, size_t n)
{
    double off = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        off += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(off / (norm > 0 ? norm : 1));
}

static inline void assert_near(const double *a, const double *b, size_t n, double bar)
{
    const double d = distance(a, b, n);
    if (!(d <= bar))
        fail_msg("%g apart, more than %g", d, bar);
}

/* An edit: the inputs of tokens first.. of another call whose tensors have the same order, and a state. */
struct part {
    const struct wd_trial *whole;
    size_t first, tensors; /* tensors: how many to copy, from the first on */
    size_t state;          /* the index of the state here */
    const double *values;  /* its contents, or NULL */
};

static inline void take_part(void *user, const struct wd_problem *p, double *const *t)
{
    const struct part *part = user;
    for (size_t i = 0; i < part->tensors; i++) {
        size_t ext[WD_MAX_RANK];
        const size_t n = wd_tensor_elements(p, i);
        if (!t[i])
            continue;
        const bool per_token = wd_tensor_extents(p, i, ext) >= 3 && n > 0;
        memcpy(t[i], part->whole->tensor[i].value + (per_token ? part->first * (n / ext[1]) : 0), n * sizeof **t);
    }
    if (part->values)
        memcpy(t[part->state], part->values, wd_tensor_elements(p, part->state) * sizeof **t);
}

enum { INPUTS = FWD_dt_bias + 1 };

#endif
