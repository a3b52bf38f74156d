/* SPDX-License-Identifier: MIT */
/* recompute_w_u, chunk_fwd_h and chunk_fwd_o on a device against the references. Each shape runs the variant that the
 * library chooses; some run all, as each is a kernel to compile. */
#include "sweep.h"

#include <math.h>
#include <stdio.h>

#include "convert.h"
#include "npy.h"

struct sizes {
    size_t B, T, H, HV, K, V, N;
};

/* Of chunk_fwd_o: q is k, and k is w. Inputs v, u, v_new are v; outputs u, v_new, o are o. Zero: f32. */
struct types {
    wd_dtype k, w, v, A, h, o;
};
#define ALL(t)                                                                                                         \
    {                                                                                                                  \
        t, t, t, t, t, t                                                                                               \
    }

/* One shape for all three operations. */
struct shape {
    const char *name;
    struct sizes n;
    struct types t;
    bool initial, final;
    bool A_is_lower;
    bool all; /* variants, not only the chosen one */
    enum wd_gates gates;
    size_t shift, pad;
    wd_math math;
    wd_dtype g;
};

/* ---- From a shape to a call ---- */

/* A state is present where its dtype is given. */
static wd_tensor state(bool present)
{
    return (wd_tensor){.dtype = present ? WD_F32 : WD_DTYPE_DEFAULT};
}

union args {
    wd_recompute_w_u_args wu;
    wd_chunk_fwd_h_args h;
    wd_chunk_fwd_o_args o;
};

static const struct wd_op *const ops[] = {&wd_op_recompute_w_u, &wd_op_chunk_fwd_h, &wd_op_chunk_fwd_o};

#define SIZES(s)   s.B, s.T, s.H, s.HV, s.K, s.V, s.N
#define OFFSETS(s) .cu_seqlens = {.dtype = (s)->n.N ? WD_I32 : WD_DTYPE_DEFAULT}

static union args args_of(const struct wd_op *op, const struct shape *s)
{
    if (op == &wd_op_recompute_w_u)
        return (union args){.wu = {sizeof(wd_recompute_w_u_args), SIZES(s->n), .k.dtype = s->t.k, .v.dtype = s->t.v,
                                   .A.dtype = s->t.A, .g.dtype = s->g, .w.dtype = s->t.w, .u.dtype = s->t.o,
                                   .math = s->math, .A_is_lower = s->A_is_lower, OFFSETS(s)}};
    if (op == &wd_op_chunk_fwd_h)
        return (union args){.h = {sizeof(wd_chunk_fwd_h_args), SIZES(s->n), .k.dtype = s->t.k, .w.dtype = s->t.w,
                                  .u.dtype = s->t.v, .g.dtype = s->g, .h.dtype = s->t.h, .v_new.dtype = s->t.o,
                                  .math = s->math, .initial_state = state(s->initial), .final_state = state(s->final),
                                  OFFSETS(s)}};
    return (union args){.o = {sizeof(wd_chunk_fwd_o_args), SIZES(s->n), .q.dtype = s->t.k, .k.dtype = s->t.w,
                              .v_new.dtype = s->t.v, .h.dtype = s->t.h, .g.dtype = s->g, .o.dtype = s->t.o,
                              .math = s->math, OFFSETS(s)}};
}

typedef void (*edit_fn)(void *user, const struct wd_problem *p, double *const *t);

static struct wd_trial_options options_of(const struct shape *s, edit_fn edit, void *user)
{
    return (struct wd_trial_options){
        .seed = 1, .gates = s->gates, .shift = s->shift, .pad = s->pad, .edit = edit, .user = user};
}

static void check_op(const struct wd_op *op, const struct shape *s, edit_fn edit, void *user)
{
    const union args args = args_of(op, s);
    const struct wd_trial_options options = options_of(s, edit, user);
    struct wd_problem p;
    struct wd_trial_result result;
    char label[96];
    snprintf(label, sizeof label, "%s: %s T=%zu", op->name, s->name, s->n.T);
    if (wd_op_check(op, &args, false, &p) || wd_trial(ctx, &p, &options, &result))
        fail_msg("%s: %s", label, wd_last_error());
    if (!result.ok)
        fail_msg("%s: %s", label, result.text);
    if (s->all)
        assert_true(variants_check(label, op, &args, NULL, &options) > 0);
}

static void check(const struct shape *s, edit_fn edit, void *user)
{
    for (size_t i = 0; i < WD_COUNT(ops); i++)
        check_op(ops[i], s, edit, user);
}

/* ---- Shapes ---- */

/* Lengths share kernels, so each runs with each kind of gates. */
static void chunk__any_length_and_gates__matches_reference(void **unused)
{
    (void)unused;
    static const size_t lengths[] = {1, 37, 63, 64, 65, 100, 127, 200};
    for (size_t i = 0; i < WD_COUNT(lengths); i++)
        for (int gates = WD_GATES_MILD; gates <= WD_GATES_ZERO; gates++) {
            const struct shape s = {.name = "lengths",
                                    .n = {2, lengths[i], 2, 4, 64, 100, 0},
                                    .initial = true,
                                    .final = true,
                                    .all = true,
                                    .gates = (enum wd_gates)gates};
            check(&s, NULL, NULL);
        }
}

static void chunk__any_width_and_heads__matches_reference(void **unused)
{
    (void)unused;
    static const size_t widths[][2] = {{1, 1},     {9, 60},    {60, 9},    {64, 128},  {128, 64}, {96, 100}, {100, 96},
                                       {128, 128}, {160, 192}, {192, 160}, {256, 256}, {256, 1},  {1, 256}};
    for (size_t i = 0; i < WD_COUNT(widths); i++) {
        const struct shape s = {.name = "widths",
                                .final = true,
                                .A_is_lower = i % 2,
                                .all = i % 6 == 1,
                                .n = {1, 100, 1, (size_t)1 << i % 3, widths[i][0], widths[i][1], 0}};
        check(&s, NULL, NULL);
    }
}

static const struct shape shapes[] = {
    {"no states", {2, 130, 3, 0, 32, 32, 0}, .A_is_lower = true, .all = true},
    {"initial state only", {2, 130, 2, 2, 32, 32, 0}, .initial = true},
    {"offsets", {2, 70, 2, 4, 40, 48, 0}, .initial = true, .final = true, .all = true, .shift = 3},
    {"padded rows", {2, 70, 2, 4, 40, 48, 0}, .initial = true, .final = true, .pad = 5},
    {"padded rows, aligned", {2, 70, 2, 4, 64, 64, 0}, .initial = true, .final = true, .shift = 16, .pad = 32},
    {"bf16", {1, 100, 2, 4, 64, 64, 0}, ALL(WD_BF16), .all = true, .initial = true, .final = true},
    {"f16", {1, 100, 2, 4, 64, 64, 0}, ALL(WD_F16), .initial = true, .final = true, .A_is_lower = true},
    {"f16, odd", {1, 100, 2, 4, 60, 9, 0}, ALL(WD_F16), .all = true, .shift = 1},
    {"bf16, odd", {1, 100, 2, 4, 9, 61, 0}, ALL(WD_BF16), .pad = 3},
    {"types apart", {1, 100, 1, 1, 48, 32, 0}, {WD_BF16, WD_F16, WD_F32, WD_BF16, WD_F16, WD_BF16}, .all = true},
    {"types otherwise", {1, 100, 1, 1, 48, 32, 0}, {WD_F32, WD_BF16, WD_F16, WD_F32, WD_BF16, WD_F16}, .final = true},
    {"only k in f16", {1, 70, 1, 1, 32, 32, 0}, .t.k = WD_F16},
    {"only o in bf16", {1, 70, 1, 1, 32, 32, 0}, .t.o = WD_BF16},
    {"packed", {1, 300, 2, 4, 40, 48, 5}, .all = true, .initial = true, .final = true},
    {"packed, steep", {1, 300, 2, 2, 64, 64, 4}, .initial = true, .final = true, .gates = WD_GATES_STEEP},
    {"packed, padded bf16", {1, 200, 1, 2, 64, 32, 3}, ALL(WD_BF16), .initial = true, .final = true, .pad = 8},
    {"one packed sequence", {1, 129, 1, 1, 32, 32, 1}, .final = true},
    {"sums in two floats",
     {2, 100, 1, 2, 40, 48, 0},
     .g = WD_F32X2,
     .all = true,
     .final = true,
     .pad = 3,
     .gates = WD_GATES_STEEP},
    {"tf32", {1, 100, 1, 1, 64, 64, 0}, .math = WD_MATH_TF32},
    {"many heads", {1, 64, 12, 24, 16, 16, 0}, .A_is_lower = true},
    {"long", {1, 1000, 1, 1, 64, 64, 0}, .initial = true, .final = true},
};

static void chunk__states_types_strides_packing__match_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(shapes); i++)
        check(&shapes[i], NULL, NULL);
}

static void chunk__all_parameters__match_reference(void **unused)
{
    (void)unused;
    static const struct shape swept = {"sweep", {1, 100, 1, 2, 60, 100, 0}, .final = true};
    const struct wd_trial_options options = options_of(&swept, NULL, NULL);
    for (size_t i = 0; i < WD_COUNT(ops); i++) {
        const union args args = args_of(ops[i], &swept);
        assert_true(sweep_check(ops[i]->name, ops[i], &args, 4, &options) > 0);
    }
}

/* ---- Inputs that random numbers do not hit ---- */

static size_t index_of(const struct wd_problem *p, const char *name)
{
    for (size_t i = 0; i < p->op->num_tensors; i++)
        if (strcmp(p->op->tensors[i].name, name) == 0)
            return i;
    return WD_MAX_TENSORS;
}

/* Packed sequences of the lengths that matter: none, one token, one under, at and over a chunk. */
static const double lengths_apart[] = {0, 0, 1, 64, 64, 127, 192, 192};
enum { APART = 7, APART_TOKENS = 192 };

static const struct shape apart = {
    "apart", {1, APART_TOKENS, 1, 2, 40, 24, APART}, .all = true, .initial = true, .final = true};

static void set_offsets(void *user, const struct wd_problem *p, double *const *t)
{
    memcpy(t[index_of(p, "cu_seqlens")], user, (APART + 1) * sizeof(double));
}

static void chunk__empty_and_short_sequences__match_reference(void **unused)
{
    (void)unused;
    double offsets[APART + 1];
    memcpy(offsets, lengths_apart, sizeof offsets);
    check(&apart, set_offsets, offsets);
}

/* Everything that belongs to the third sequence, tokens 1 .. 63, is NaN: its first chunk's state too. */
static void poison_third(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    memcpy(t[index_of(p, "cu_seqlens")], lengths_apart, sizeof lengths_apart);
    for (size_t i = 0; i < p->op->num_tensors; i++) {
        size_t ext[WD_MAX_RANK], begin = 1, end = 64;
        if (p->op->tensors[i].access != WD_IN || !t[i] || p->tensor[i].dtype == WD_I32)
            continue;
        const size_t rank = wd_tensor_extents(p, i, ext);
        const size_t row = wd_tensor_elements(p, i) / (ext[0] * (ext[1] == p->dim[GDN_HV] ? 1 : ext[1]));
        if (ext[0] == APART) /* states: one a sequence */
            begin = 2, end = 3;
        else if (rank == WD_MAX_RANK) /* h: one a chunk; the sequences before have one */
            begin = 1, end = 2;
        for (size_t k = begin * row; k < end * row; k++)
            t[i][k] = (double)NAN;
    }
}

static void chunk__nan_in_one_sequence__stays_there(void **unused)
{
    (void)unused;
    check(&apart, poison_third, NULL);
}

/* What stands past a short chunk's end of A's rows, and, by promise, above the diagonal, is not read. */
static void poison_A(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    for (size_t i = 0; p->op == &wd_op_recompute_w_u && i < p->dim[GDN_T] * p->dim[GDN_HV]; i++) {
        const size_t token = i / p->dim[GDN_HV], first = token / 64 * 64;
        for (size_t j = p->dim[GDN_T] - first; j < 64; j++)
            t[WU_A][i * 64 + j] = (double)NAN;
    }
}

static void chunk__nan_past_a_short_chunk_in_A__is_not_read(void **unused)
{
    (void)unused;
    static const struct shape s = {.name = "A's end", .n = {1, 100, 1, 2, 40, 24, 0}, .all = true};
    check_op(&wd_op_recompute_w_u, &s, poison_A, NULL);
}

/* A full, not only its lower triangle. */
static void fill_A(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    for (size_t i = 0; p->op == &wd_op_recompute_w_u && i < wd_tensor_elements(p, WU_A); i++)
        t[WU_A][i] = sin((double)i);
}

static void recompute_w_u__full_A__matches_reference(void **unused)
{
    (void)unused;
    static const struct shape s = {.name = "full A", .n = {1, 100, 1, 2, 40, 24, 0}, .all = true};
    check_op(&wd_op_recompute_w_u, &s, fill_A, NULL);
}

/* -800 a token: sums far past what exp() can take. */
static void steepest_gates(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    double *g = t[index_of(p, "g")];
    for (size_t i = 0; i < p->dim[GDN_T] * p->dim[GDN_HV]; i++)
        g[i] = -800.0 * (double)(i / p->dim[GDN_HV] % 64 + 1);
}

static void chunk__gates_of_minus_800__stay_finite(void **unused)
{
    (void)unused;
    static const struct shape s = {"-800", {1, 200, 1, 2, 40, 24, 0}, .all = true, .initial = true, .final = true};
    check(&s, steepest_gates, NULL);
}

/* Offsets that only the device has are clamped to a rising order within T. */
static void chunk__wrong_offsets_on_the_device__are_clamped(void **unused)
{
    (void)unused;
    static const double wrong[][APART + 1] = {{-5, 40, 20, 500, 100, 90, 192, 192},
                                              {192, 0, 0, 0, 0, 0, 0, 0},
                                              {0, 2147483647, -2147483647, 3, 64, 128, 192, 1 << 30}};
    static const double meant[][APART + 1] = {{0, 40, 40, 192, 192, 192, 192, 192},
                                              {192, 192, 192, 192, 192, 192, 192, 192},
                                              {0, 192, 192, 192, 192, 192, 192, 192}};
    for (size_t i = 0; i < WD_COUNT(wrong) * WD_COUNT(ops); i++) {
        const struct wd_op *op = ops[i % WD_COUNT(ops)];
        double offsets[APART + 1];
        memcpy(offsets, wrong[i / WD_COUNT(ops)], sizeof offsets);
        const union args args = args_of(op, &apart);
        const struct wd_trial_options options = options_of(&apart, set_offsets, offsets);
        struct wd_problem p;
        struct wd_trial *t = NULL;
        struct wd_trial_result result;
        if (wd_op_check(op, &args, false, &p) || wd_trial_create(ctx, &p, &options, &t))
            fail_msg("%s", wd_last_error());
        memcpy(t->tensor[index_of(&p, "cu_seqlens")].value, meant[i / WD_COUNT(ops)], sizeof offsets);
        if (wd_trial_run(t, NULL, NULL) || wd_trial_check(t, &result))
            fail_msg("%s", wd_last_error());
        if (!result.ok)
            fail_msg("offsets %zu: %s", i / WD_COUNT(ops), result.text);
        wd_trial_destroy(t);
    }
}

/* ---- Does the comparison notice? ---- */

/* Runs a call, then compares with a reference that was given zeros for tensor `name`: it must differ from the device
 * if `seen`. */
static void check_mutation(const struct wd_op *op, const struct shape *s, const char *name, bool seen)
{
    const union args args = args_of(op, s);
    const struct wd_trial_options options = options_of(s, NULL, NULL);
    struct wd_problem p;
    struct wd_trial *t = NULL;
    struct wd_trial_result result;
    double *values[WD_MAX_TENSORS] = {NULL};
    if (wd_op_check(op, &args, false, &p) || wd_trial_create(ctx, &p, &options, &t) || wd_trial_run(t, NULL, NULL) ||
        wd_trial_check(t, &result))
        fail_msg("%s", wd_last_error());
    assert_true(result.ok);
    const size_t dropped = index_of(&p, name);
    memset(t->tensor[dropped].value, 0, wd_tensor_elements(&p, dropped) * sizeof(double));
    for (size_t i = 0; i < op->num_tensors; i++)
        values[i] = t->tensor[i].want;
    op->reference(&t->p, values);
    if (wd_trial_check(t, &result))
        fail_msg("%s", wd_last_error());
    if (result.ok == seen)
        fail_msg("%s without %s, %s gates: %s", op->name, name, s->gates == WD_GATES_MILD ? "mild" : "steep",
                 seen ? "passed" : result.text);
    wd_trial_destroy(t);
}

static void chunk__dropped_term__is_noticed(void **unused)
{
    (void)unused;
    static const struct shape mild = {"mild", {1, 200, 1, 1, 32, 32, 0}, .initial = true, .final = true};
    check_mutation(&wd_op_chunk_fwd_o, &mild, "h", true);
    check_mutation(&wd_op_chunk_fwd_o, &mild, "k", true);
    check_mutation(&wd_op_chunk_fwd_h, &mild, "w", true);
    check_mutation(&wd_op_chunk_fwd_h, &mild, "initial_state", true);
    check_mutation(&wd_op_recompute_w_u, &mild, "g", true);
}

/* ---- Published inputs ---- */

/* Inputs from a folder's files. */
static void load_files(void *user, const struct wd_problem *p, double *const *t)
{
    const char *folder = user;
    for (size_t i = 0; i < p->op->num_tensors; i++) {
        char path[512];
        struct npy file;
        if (p->op->tensors[i].access != WD_IN || !t[i])
            continue;
        snprintf(path, sizeof path, "%s/gated_deltanet_%s/%s/%s.npy", TEST_DATA, p->op->name, folder,
                 p->op->tensors[i].name);
        if (npy_read(path, &file))
            fail_msg("%s", wd_last_error());
        assert_int_equal(npy_count(&file), wd_tensor_elements(p, i));
        wd_to_double(WD_F32, file.data, npy_count(&file), t[i]);
        npy_free(&file);
    }
}

static void chunk__published_inputs__match_reference(void **unused)
{
    (void)unused;
    char folder[64];
    static const struct shape published[] = {
        {.name = "B1_T64_H2_K64_V64", .n = {1, 64, 2, 2, 64, 64, 0}},
        {.name = "B2_T128_H4_K64_V64", .n = {2, 128, 4, 4, 64, 64, 0}},
        {.name = "B1_T256_H4_K64_V128", .n = {1, 256, 4, 4, 64, 128, 0}},
    };
    for (size_t i = 0; i < WD_COUNT(published); i++) {
        snprintf(folder, sizeof folder, "%s", published[i].name);
        check(&published[i], load_files, folder);
    }
}

/* ---- Nothing to do, and refusals ---- */

static void chunk__zero_dimension__succeeds(void **unused)
{
    (void)unused;
    static const struct shape empty[] = {
        {.name = "B", .n = {0, 64, 2, 2, 8, 8, 0}},
        {.name = "T", .n = {2, 0, 2, 2, 8, 8, 0}},
        {.name = "H", .n = {2, 64, 0, 0, 8, 8, 0}},
        {.name = "K", .n = {2, 64, 2, 2, 0, 8, 0}},
        {.name = "V", .n = {2, 64, 2, 2, 8, 0, 0}},
        {.name = "T, with states", .n = {2, 0, 2, 2, 8, 8, 0}, .initial = true, .final = true},
        {.name = "packed", .n = {1, 0, 2, 2, 8, 8, 3}, .final = true},
    };
    for (size_t i = 0; i < WD_COUNT(empty) * WD_COUNT(ops); i++) {
        const struct shape *s = &empty[i / WD_COUNT(ops)];
        const union args args = args_of(ops[i % WD_COUNT(ops)], s);
        const struct wd_trial_options options = options_of(s, NULL, NULL);
        struct wd_problem p;
        struct wd_trial_result result;
        if (wd_op_check(ops[i % WD_COUNT(ops)], &args, false, &p) || wd_trial(ctx, &p, &options, &result))
            fail_msg("%s: %s", s->name, wd_last_error());
        if (!result.ok)
            fail_msg("%s: %s", s->name, result.text);
        if (!p.empty) /* states without a token, say: in each form */
            assert_true(variants_check(s->name, ops[i % WD_COUNT(ops)], &args, NULL, &options) > 0);
    }
}

static void chunk__wrong_argument__is_named(void **unused)
{
    (void)unused;
    static const int32_t falls[] = {0, 40, 30, 64}, begins[] = {1, 64}, ends[] = {0, 63};
    static const struct {
        const char *says;
        struct shape s;
        const int32_t *host;
    } refused[] = {
        {"HV: 3 is not a multiple of H (2)", {.n = {1, 64, 2, 3, 8, 8, 0}}, NULL},
        {"HV: 4 is not a multiple of H (0)", {.n = {1, 64, 0, 4, 8, 8, 0}}, NULL},
        {"K: 257 is more than 256", {.n = {1, 64, 1, 1, 257, 8, 0}}, NULL},
        {"V: 300 is more than 256", {.n = {1, 64, 1, 1, 8, 300, 0}}, NULL},
        {"B: 2, but packed sequences need 1", {.n = {2, 64, 1, 1, 8, 8, 3}}, NULL},
        {"cu_seqlens_host: falls from 40 to 30", {.n = {1, 64, 1, 1, 8, 8, 3}}, falls},
        {"cu_seqlens_host: begins with 1", {.n = {1, 64, 1, 1, 8, 8, 1}}, begins},
        {"cu_seqlens_host: ends with 63", {.n = {1, 64, 1, 1, 8, 8, 1}}, ends},
        {"cu_seqlens_host: given, but N is 0", {.n = {1, 64, 1, 1, 8, 8, 0}}, ends},
        {": dtype e4m3 is not among", {.n = {1, 64, 1, 1, 8, 8, 0}, .t.v = WD_E4M3}, NULL},
        {"math: 2 ", {.n = {1, 64, 1, 1, 8, 8, 0}, .math = (wd_math)2}, NULL},
        {"T: more than 2^32 chunks", {.n = {SIZE_MAX / 2, 64, 1, 1, 8, 8, 0}}, NULL},
        {"more elements than memory", {.n = {1, 1, SIZE_MAX / 2, 0, 8, 8, 0}}, NULL},
    };
    for (size_t i = 0; i < WD_COUNT(refused) * WD_COUNT(ops); i++) {
        const struct wd_op *op = ops[i % WD_COUNT(ops)];
        union args args = args_of(op, &refused[i / WD_COUNT(ops)].s);
        memcpy((unsigned char *)&args + op->cu_seqlens_offset, &refused[i / WD_COUNT(ops)].host, sizeof(int32_t *));
        assert_false(wd_supported(ctx, op->id, &args));
        assert_int_equal(wd_prepare(ctx, op->id, &args), WD_EINVAL);
        if (!strstr(wd_last_error(), op->name) || !strstr(wd_last_error(), refused[i / WD_COUNT(ops)].says))
            fail_msg("not \"%s\" but \"%s\"", refused[i / WD_COUNT(ops)].says, wd_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunk__any_length_and_gates__matches_reference),
        cmocka_unit_test(chunk__any_width_and_heads__matches_reference),
        cmocka_unit_test(chunk__states_types_strides_packing__match_reference),
        cmocka_unit_test(chunk__all_parameters__match_reference),
        cmocka_unit_test(chunk__empty_and_short_sequences__match_reference),
        cmocka_unit_test(chunk__nan_in_one_sequence__stays_there),
        cmocka_unit_test(chunk__nan_past_a_short_chunk_in_A__is_not_read),
        cmocka_unit_test(recompute_w_u__full_A__matches_reference),
        cmocka_unit_test(chunk__gates_of_minus_800__stay_finite),
        cmocka_unit_test(chunk__wrong_offsets_on_the_device__are_clamped),
        cmocka_unit_test(chunk__dropped_term__is_noticed),
        cmocka_unit_test(chunk__published_inputs__match_reference),
        cmocka_unit_test(chunk__zero_dimension__succeeds),
        cmocka_unit_test(chunk__wrong_argument__is_named),
    };
    return cmocka_run_group_tests_name("chunk", tests, open_device, close_device);
}
