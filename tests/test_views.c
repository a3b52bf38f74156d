/* SPDX-License-Identifier: MIT */
/*
 * Tensors that are slices of one buffer, as a model's fused projections are: q, k and v of a row of qkv, g and beta of
 * a row of ba, inputs and outputs side by side. Every variant must agree with the reference, and touch nothing but the
 * elements of its outputs.
 */
#include "gdn_shapes.h"

enum { MAX_SLICES = 12, FENCE = 24 };

/* Tensor `tensor` is a slice of the rows of buffer `buffer`, which is made of the `outer` outermost dims that its
 * slices have in common. */
struct slice {
    size_t tensor, buffer, outer;
};

struct view_case {
    const char *name;
    const struct wd_op *op;
    struct slice slice[MAX_SLICES]; /* of one type in a buffer; ended by `outer` 0 */
};

/* One buffer of slices. */
struct fused {
    cl_mem mem;
    size_t bytes;
    unsigned char *image; /* before a run: NaN wherever no input stands */
};

struct views {
    const struct view_case *c;
    struct wd_trial *t; /* the same call on packed tensors: inputs, and the reference */
    size_t gap;         /* elements between slices */
    struct fused fused[MAX_SLICES];
    struct wd_trial_tensor place[MAX_SLICES]; /* where slice i stands in its buffer */
    union {
        size_t struct_size;
        void *align;
        unsigned char byte[WD_MAX_ARGS];
    } args;
};

static size_t element(const struct views *v, size_t i)
{
    return wd_dtype_size(v->t->p.tensor[v->c->slice[i].tensor].dtype);
}

/* Elements of slice i in a row. */
static size_t width(const struct views *v, size_t i)
{
    const struct slice *s = &v->c->slice[i];
    size_t ext[WD_MAX_RANK], n = 1;
    const size_t rank = wd_tensor_extents(&v->t->p, s->tensor, ext);
    for (size_t r = s->outer; r < rank; r++)
        n *= ext[r];
    return n;
}

/* A row of `buffer`, and where slice `before` begins in it. */
static size_t row_length(const struct views *v, size_t buffer, size_t before)
{
    size_t n = v->gap;
    for (size_t i = 0; i < before && v->c->slice[i].outer; i++)
        if (v->c->slice[i].buffer == buffer)
            n += width(v, i) + v->gap;
    return n;
}

/* Puts slice i into its place and into the args. */
static void place_slice(struct views *v, size_t i)
{
    const struct slice *s = &v->c->slice[i];
    struct wd_trial_tensor *x = &v->place[i];
    size_t ext[WD_MAX_RANK], step = row_length(v, s->buffer, MAX_SLICES);
    const size_t rank = wd_tensor_extents(&v->t->p, s->tensor, ext);
    wd_tensor arg = {.mem = v->fused[s->buffer].mem, .dtype = v->t->p.tensor[s->tensor].dtype};
    arg.offset = x->offset = FENCE + row_length(v, s->buffer, i);
    x->inner = width(v, i);
    for (size_t r = 3; r-- > 0;) {
        x->extent[r] = r < s->outer ? ext[r] : 1;
        x->stride[r] = step;
        arg.stride[r] = r < s->outer ? step : 0;
        step *= x->extent[r];
    }
    for (size_t r = s->outer; r < 3 && r + 1 < rank; r++) { /* inside of a row: packed, and said so */
        arg.stride[r] = 1;
        for (size_t k = r + 1; k < rank; k++)
            arg.stride[r] *= ext[k];
    }
    memcpy(v->args.byte + v->c->op->tensors[s->tensor].offset, &arg, sizeof arg);
}

/* The buffer that slice i is the first of. */
static void make_fused(struct views *v, size_t i)
{
    struct fused *f = &v->fused[v->c->slice[i].buffer];
    size_t ext[WD_MAX_RANK], rows = 1;
    wd_tensor_extents(&v->t->p, v->c->slice[i].tensor, ext);
    for (size_t r = 0; r < v->c->slice[i].outer; r++)
        rows *= ext[r];
    f->bytes = (2 * FENCE + rows * row_length(v, v->c->slice[i].buffer, MAX_SLICES)) * element(v, i);
    f->image = malloc(f->bytes);
    assert_non_null(f->image);
    for (size_t b = 0; b < f->bytes; b++)
        f->image[b] = b % 2 ? 0xFF : 0xFE;
    assert_int_equal(wd_buffer_create(ctx, f->bytes, NULL, &f->mem), WD_OK);
}

static void write_input(struct views *v, size_t i)
{
    const struct wd_trial_tensor *x = &v->place[i];
    const double *value = v->t->tensor[v->c->slice[i].tensor].value;
    for (size_t r = 0; value && r < wd_trial_runs(x); r++)
        wd_from_double(v->t->p.tensor[v->c->slice[i].tensor].dtype, value + r * x->inner, x->inner,
                       v->fused[v->c->slice[i].buffer].image + wd_trial_run_start(x, r) * element(v, i));
}

static void views_create(struct views *v, const struct view_case *c, const void *args, size_t gap)
{
    const struct wd_trial_options options = {.seed = 5};
    struct wd_trial_result unused; /* only the reference is wanted */
    struct wd_problem p;
    *v = (struct views){.c = c, .gap = gap};
    if (wd_op_check(c->op, args, false, &p) || wd_trial_create(ctx, &p, &options, &v->t) ||
        wd_trial_check(v->t, &unused))
        fail_msg("%s: %s", c->name, wd_last_error());
    memcpy(v->args.byte, v->t->args.byte, sizeof v->args);
    for (size_t i = 0; i < MAX_SLICES && c->slice[i].outer; i++) {
        if (!v->fused[c->slice[i].buffer].image)
            make_fused(v, i);
        place_slice(v, i);
        write_input(v, i);
    }
}

static void views_destroy(struct views *v)
{
    for (size_t i = 0; i < MAX_SLICES; i++) {
        wd_buffer_destroy(v->fused[i].mem);
        free(v->fused[i].image);
    }
    wd_trial_destroy(v->t);
}

static void upload(struct views *v)
{
    assert_int_equal(wd_trial_reset(v->t), WD_OK);
    for (size_t i = 0; i < MAX_SLICES; i++)
        if (v->fused[i].mem)
            assert_int_equal(wd_buffer_write(ctx, v->fused[i].mem, 0, v->fused[i].bytes, v->fused[i].image), WD_OK);
}

/* Compares output slice i in `buffer`, and puts back what was there before. */
static void check_slice(const struct views *v, size_t i, unsigned char *buffer, const char *variant)
{
    const struct wd_trial_tensor *x = &v->place[i];
    const size_t tensor = v->c->slice[i].tensor, n = wd_tensor_elements(&v->t->p, tensor);
    double *got = malloc(n * sizeof *got);
    assert_non_null(got);
    for (size_t r = 0; r < wd_trial_runs(x); r++) {
        const size_t at = wd_trial_run_start(x, r) * element(v, i);
        wd_to_double(v->t->p.tensor[tensor].dtype, buffer + at, x->inner, got + r * x->inner);
        memcpy(buffer + at, v->fused[v->c->slice[i].buffer].image + at, x->inner * element(v, i));
    }
    const double d = distance(got, v->t->tensor[tensor].want, n), bar = wd_trial_bar(&v->t->p, tensor);
    if (!(d <= bar))
        fail_msg("%s, gap %zu: %s: %s is %g off", v->c->name, v->gap, variant, v->c->op->tensors[tensor].name, d);
    free(got);
}

static void check_buffers(const struct views *v, const char *variant)
{
    for (size_t b = 0; b < MAX_SLICES; b++) {
        const struct fused *f = &v->fused[b];
        unsigned char *buffer = f->mem ? malloc(f->bytes) : NULL;
        if (!f->mem)
            continue;
        assert_non_null(buffer);
        assert_int_equal(clEnqueueReadBuffer(v->t->queue, f->mem, CL_TRUE, 0, f->bytes, buffer, 0, NULL, NULL),
                         CL_SUCCESS);
        for (size_t i = 0; i < MAX_SLICES && v->c->slice[i].outer; i++)
            if (v->c->slice[i].buffer == b && v->c->op->tensors[v->c->slice[i].tensor].access != WD_IN)
                check_slice(v, i, buffer, variant);
        for (size_t k = 0; k < f->bytes; k++)
            if (buffer[k] != f->image[k])
                fail_msg("%s, gap %zu: %s: byte %zu of buffer %zu is written", v->c->name, v->gap, variant, k, b);
        free(buffer);
    }
}

/* Every variant that does not refuse, and the public call. */
static void check_views(const struct view_case *c, const void *args, size_t gap)
{
    struct views v;
    struct wd_problem p;
    size_t ran = 0;
    views_create(&v, c, args, gap);
    if (wd_op_check(c->op, v.args.byte, true, &p))
        fail_msg("%s: %s", c->name, wd_last_error());
    for (const struct wd_variant *const *variant = c->op->variants; *variant; variant++) {
        struct variants_choice chosen = {.kernel = NULL};
        const wd_launch launch = {.queue = v.t->queue};
        if (!wd_tuning_model(&ctx->caps, &p, *variant, &chosen.choice))
            continue;
        upload(&v);
        if ((!(*variant)->chain && wd_plan_compile(ctx, &p, &chosen.choice, &chosen.kernel)) ||
            wd_plan_launch(ctx, &p, &chosen.choice, chosen.kernel, &launch))
            fail_msg("%s: %s: %s", c->name, (*variant)->name, wd_last_error());
        check_buffers(&v, (*variant)->name);
        ran++;
    }
    assert_true(ran > 0);
    upload(&v);
    if (wd_op_call(ctx, c->op, v.args.byte, &(wd_launch){.queue = v.t->queue}))
        fail_msg("%s: %s", c->name, wd_last_error());
    check_buffers(&v, "the public call");
    views_destroy(&v);
}

/* Without gaps rows are aligned for vectors, with this one they are not. */
enum { GAP = 3 };

/* ---- Gated delta net ---- */

/* Slices by token: a row of qkv holds all heads of q, of k and of v. By head: a row of qkv is one head's. */
enum { BY_TOKEN = 2, BY_HEAD = 3 };

static const struct view_case forward_by_token = {
    "gdn_forward, by token",
    &wd_op_gdn_forward,
    {{FWD_q, 0, BY_TOKEN},
     {FWD_k, 0, BY_TOKEN},
     {FWD_v, 0, BY_TOKEN},
     {FWD_g, 1, BY_TOKEN},
     {FWD_beta, 1, BY_TOKEN},
     {FWD_o, 2, BY_TOKEN},
     {FWD_initial_state, 3, 2},
     {FWD_final_state, 3, 2}},
};
static const struct view_case forward_by_head = {
    "gdn_forward, by head",
    &wd_op_gdn_forward,
    {{FWD_q, 0, BY_HEAD},
     {FWD_k, 0, BY_HEAD},
     {FWD_v, 0, BY_HEAD},
     {FWD_o, 0, BY_HEAD},
     {FWD_initial_state, 1, 3},
     {FWD_final_state, 2, 3}},
};
static const struct view_case prepare_by_token = {
    "gdn_prepare, by token",
    &wd_op_gdn_prepare,
    {{PREP_q, 0, BY_TOKEN},
     {PREP_k, 0, BY_TOKEN},
     {PREP_q_out, 0, BY_TOKEN},
     {PREP_k_out, 0, BY_TOKEN},
     {PREP_gate, 1, BY_TOKEN},
     {PREP_beta, 1, BY_TOKEN},
     {PREP_g, 2, BY_TOKEN},
     {PREP_beta_out, 2, BY_TOKEN},
     {PREP_A, 3, BY_TOKEN}},
};
static const struct view_case prepare_by_head = {
    "gdn_prepare, by head",
    &wd_op_gdn_prepare,
    {{PREP_q, 0, BY_HEAD},
     {PREP_k, 0, BY_HEAD},
     {PREP_q_out, 1, BY_HEAD},
     {PREP_k_out, 1, BY_HEAD},
     {PREP_A, 2, BY_HEAD}},
};
static const struct view_case decode_by_token = {
    "gdn_decode, by token",
    &wd_op_gdn_decode,
    {{DEC_q, 0, BY_TOKEN},
     {DEC_k, 0, BY_TOKEN},
     {DEC_v, 0, BY_TOKEN},
     {DEC_o, 0, BY_TOKEN},
     {DEC_g, 1, BY_TOKEN},
     {DEC_beta, 1, BY_TOKEN},
     {DEC_state, 2, 1}},
};
static const struct view_case decode_by_head = {
    "gdn_decode, by head",
    &wd_op_gdn_decode,
    {{DEC_q, 0, BY_HEAD}, {DEC_k, 0, BY_HEAD}, {DEC_v, 0, BY_HEAD}, {DEC_o, 1, BY_HEAD}, {DEC_state, 2, 3}},
};
static const struct view_case w_u_by_token = {
    "recompute_w_u, by token",
    &wd_op_recompute_w_u,
    {{WU_k, 0, BY_TOKEN},
     {WU_v, 0, BY_TOKEN},
     {WU_w, 1, BY_TOKEN},
     {WU_u, 1, BY_TOKEN},
     {WU_beta, 2, BY_TOKEN},
     {WU_g, 2, BY_TOKEN},
     {WU_A, 3, BY_TOKEN}},
};
static const struct view_case w_u_by_head = {
    "recompute_w_u, by head",
    &wd_op_recompute_w_u,
    {{WU_k, 0, BY_HEAD}, {WU_v, 0, BY_HEAD}, {WU_w, 0, BY_HEAD}, {WU_u, 0, BY_HEAD}, {WU_A, 1, BY_HEAD}},
};
static const struct view_case fwd_h_by_token = {
    "chunk_fwd_h, by token",
    &wd_op_chunk_fwd_h,
    {{FWDH_k, 0, BY_TOKEN},
     {FWDH_v_new, 0, BY_TOKEN},
     {FWDH_w, 1, BY_TOKEN},
     {FWDH_u, 1, BY_TOKEN},
     {FWDH_g, 2, BY_TOKEN},
     {FWDH_h, 3, 2},
     {FWDH_initial_state, 4, 2},
     {FWDH_final_state, 4, 2}},
};
static const struct view_case fwd_h_by_head = {
    "chunk_fwd_h, by head",
    &wd_op_chunk_fwd_h,
    {{FWDH_k, 0, BY_HEAD},
     {FWDH_w, 0, BY_HEAD},
     {FWDH_u, 0, BY_HEAD},
     {FWDH_v_new, 0, BY_HEAD},
     {FWDH_h, 1, 3},
     {FWDH_initial_state, 2, 3},
     {FWDH_final_state, 3, 3}},
};
static const struct view_case fwd_o_by_token = {
    "chunk_fwd_o, by token",
    &wd_op_chunk_fwd_o,
    {{FWDO_q, 0, BY_TOKEN},
     {FWDO_k, 0, BY_TOKEN},
     {FWDO_v_new, 0, BY_TOKEN},
     {FWDO_o, 0, BY_TOKEN},
     {FWDO_g, 1, BY_TOKEN},
     {FWDO_h, 2, 2}},
};
static const struct view_case fwd_o_by_head = {
    "chunk_fwd_o, by head",
    &wd_op_chunk_fwd_o,
    {{FWDO_q, 0, BY_HEAD}, {FWDO_k, 0, BY_HEAD}, {FWDO_v_new, 1, BY_HEAD}, {FWDO_o, 1, BY_HEAD}, {FWDO_h, 2, 3}},
};

/* By token heads are grouped; by head they cannot be, since all slices of a row are of one head. Two types and two
 * alignments take turns: each is a kernel to compile. */
static const struct shape grouped = {"by token", .n = {2, 70, 2, 4, 40, 24, 0}, .initial = true, .final = true,
                                     .options = true};
static const struct shape single = {
    "by head", .n = {2, 70, 2, 2, 40, 24, 0}, .data = WD_BF16, .initial = true, .final = true, .options = true};

static void gdn_forward__slices_of_fused_buffers__match_reference(void **unused)
{
    const wd_gdn_forward_args a = forward_args(&grouped), b = forward_args(&single);
    (void)unused;
    check_views(&forward_by_token, &a, 0);
    check_views(&forward_by_head, &b, GAP);
}

static void gdn_forward__slices_of_packed_sequences__match_reference(void **unused)
{
    struct shape packed = grouped;
    packed.n.B = 1;
    packed.n.N = 3;
    const wd_gdn_forward_args a = forward_args(&packed);
    (void)unused;
    check_views(&forward_by_token, &a, GAP);
}

static void gdn_prepare__slices_of_fused_buffers__match_reference(void **unused)
{
    const wd_gdn_prepare_args a = prepare_args(&grouped), b = prepare_args(&single);
    (void)unused;
    check_views(&prepare_by_token, &a, 0);
    check_views(&prepare_by_head, &b, GAP);
}

static void gdn_decode__slices_of_fused_buffers__match_reference(void **unused)
{
    struct shape by_token = grouped, by_head = single;
    by_token.n.T = by_head.n.T = 2;
    by_token.slots = 3;
    const wd_gdn_decode_args a = decode_args(&by_token), b = decode_args(&by_head);
    (void)unused;
    check_views(&decode_by_token, &a, 0);
    check_views(&decode_by_head, &b, GAP);
}

/* A call's sizes, for designated initialisers. */
#define SIZES .B = 2, .T = 70, .H = 2, .HV = 4, .K = 40, .V = 24

static const wd_tensor f32 = {.dtype = WD_F32}, bf16 = {.dtype = WD_BF16};

static void recompute_w_u__slices_of_fused_buffers__match_reference(void **unused)
{
    const wd_recompute_w_u_args a = {sizeof a, SIZES};
    wd_recompute_w_u_args b = {sizeof b, SIZES, .k = bf16, .v = bf16, .A = bf16, .w = bf16, .u = bf16};
    (void)unused;
    b.HV = b.H;
    b.A_is_lower = true;
    check_views(&w_u_by_token, &a, 0);
    check_views(&w_u_by_head, &b, GAP);
}

static void chunk_fwd_h__slices_of_fused_buffers__match_reference(void **unused)
{
    const wd_chunk_fwd_h_args a = {sizeof a, SIZES, .initial_state = f32, .final_state = f32};
    wd_chunk_fwd_h_args b = {sizeof b,          SIZES,     .k = bf16,     .w = bf16,
                             .u = bf16,         .h = bf16, .v_new = bf16, .initial_state = f32,
                             .final_state = f32};
    (void)unused;
    b.HV = b.H;
    check_views(&fwd_h_by_token, &a, 0);
    check_views(&fwd_h_by_head, &b, GAP);
}

static void chunk_fwd_o__slices_of_fused_buffers__match_reference(void **unused)
{
    const wd_chunk_fwd_o_args a = {sizeof a, SIZES};
    wd_chunk_fwd_o_args b = {sizeof b, SIZES, .q = bf16, .k = bf16, .v_new = bf16, .h = bf16, .o = bf16};
    (void)unused;
    b.HV = b.H;
    check_views(&fwd_o_by_token, &a, 0);
    check_views(&fwd_o_by_head, &b, GAP);
}

/* ---- Convolution ---- */

/* x and out side by side: in a row of tokens, in a batch entry (channels of a wider tensor), and in a channel. */
static const struct view_case conv_by_token = {
    "causal_conv1d, bsd", &wd_op_causal_conv1d, {{CONV_x, 0, 2}, {CONV_out, 0, 2}, {CONV_weight, 1, 1}}};
static const struct view_case conv_by_batch = {
    "causal_conv1d, bds, by batch", &wd_op_causal_conv1d, {{CONV_x, 0, 1}, {CONV_out, 0, 1}, {CONV_weight, 1, 1}}};
static const struct view_case conv_by_channel = {
    "causal_conv1d, bds, by channel",
    &wd_op_causal_conv1d,
    {{CONV_x, 0, 2}, {CONV_out, 0, 2}, {CONV_initial_state, 1, 2}, {CONV_final_state, 1, 2}}};
static const struct view_case update_by_token = {
    "causal_conv1d_update", &wd_op_causal_conv1d_update, {{UPD_x, 0, 2}, {UPD_out, 0, 2}, {UPD_state, 1, 2}}};

static void causal_conv1d__slices_of_fused_buffers__match_reference(void **unused)
{
    (void)unused;
    for (size_t gap = 0; gap <= GAP; gap += GAP) {
        const wd_tensor d = gap ? bf16 : f32;
        wd_causal_conv1d_args a = {
            sizeof a,
            .B = 2,
            .D = 40,
            .S = 72,
            .W = 4,
            .x = d,
            .weight = d,
            .bias = d,
            .initial_state = d,
            .out = d,
            .final_state = d,
            .layout = WD_LAYOUT_BSD,
            .act = WD_ACT_SILU,
        };
        check_views(&conv_by_token, &a, gap);
        a.layout = WD_LAYOUT_BDS;
        check_views(&conv_by_batch, &a, gap);
        check_views(&conv_by_channel, &a, gap);
    }
}

static void causal_conv1d_update__slices_of_fused_buffers__match_reference(void **unused)
{
    (void)unused;
    for (size_t gap = 0; gap <= GAP; gap += GAP) {
        const wd_tensor d = gap ? bf16 : f32;
        const wd_causal_conv1d_update_args a = {
            sizeof a,           .B = 3, .D = 40, .T = 2, .W = 4, .x = d, .weight = d, .bias = d, .state = d, .out = d,
            .act = WD_ACT_SILU,
        };
        check_views(&update_by_token, &a, gap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gdn_forward__slices_of_fused_buffers__match_reference),
        cmocka_unit_test(gdn_forward__slices_of_packed_sequences__match_reference),
        cmocka_unit_test(gdn_prepare__slices_of_fused_buffers__match_reference),
        cmocka_unit_test(gdn_decode__slices_of_fused_buffers__match_reference),
        cmocka_unit_test(recompute_w_u__slices_of_fused_buffers__match_reference),
        cmocka_unit_test(chunk_fwd_h__slices_of_fused_buffers__match_reference),
        cmocka_unit_test(chunk_fwd_o__slices_of_fused_buffers__match_reference),
        cmocka_unit_test(causal_conv1d__slices_of_fused_buffers__match_reference),
        cmocka_unit_test(causal_conv1d_update__slices_of_fused_buffers__match_reference),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
