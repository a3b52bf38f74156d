/* SPDX-License-Identifier: MIT */
/*
 * gdn_prepare, gdn_forward and gdn_decode on a device: every variant against the references.
 *
 * A kernel is compiled for each K, V, type and set of options, which takes most of the time; lengths, heads and gates
 * are free. So the everyday grid gives each pair of widths one set of options, dealt out so that each meets each.
 * WARPDRIVE_TEST_ALL=1 runs the whole grid, which takes an hour.
 */
#include "gdn_shapes.h"

/* ---- Every variant against the reference ---- */

static void check(const struct wd_op *op, const struct shape *s, const void *args, enum wd_gates gates, edit_fn edit)
{
    static const char *const names[] = {"mild", "steep", "zero"};
    const struct wd_trial_options options = {
        .seed = 1, .gates = gates, .shift = s->shift, .pad = s->pad, .edit = edit};
    char label[128];
    snprintf(label, sizeof label, "%s %s: T=%zu K=%zu V=%zu, %s gates", op->name, s->name, s->n.T, s->n.K, s->n.V,
             names[gates]);
    assert_true(variants_check(label, op, args, NULL, &options) > 0);
}

static void check_prepare(const struct shape *s, enum wd_gates gates, edit_fn edit)
{
    const wd_gdn_prepare_args a = prepare_args(s);
    check(&wd_op_gdn_prepare, s, &a, gates, edit);
}

static void check_forward(const struct shape *s, enum wd_gates gates, edit_fn edit)
{
    const wd_gdn_forward_args a = forward_args(s);
    check(&wd_op_gdn_forward, s, &a, gates, edit);
}

static void check_decode(const struct shape *s, enum wd_gates gates, edit_fn edit)
{
    const wd_gdn_decode_args a = decode_args(s);
    check(&wd_op_gdn_decode, s, &a, gates, edit);
}

static const struct shape prepare_shapes[] = {
    {"one token", .n = {1, 1, 1, 1, 64, 0, 0}, .options = true},
    {"odd width", .n = {2, 65, 1, 2, 9, 0, 0}},
    {"a quarter of heads", .n = {1, 200, 1, 4, 128, 0, 0}, .options = true},
    {"width one", .n = {1, 63, 2, 2, 1, 0, 0}},
    {"widest", .n = {1, 100, 1, 1, 256, 0, 0}},
    {"f16", .n = {1, 127, 2, 4, 100, 0, 0}, .data = WD_F16, .gates = WD_F16, .options = true},
    {"bf16", .n = {2, 64, 2, 2, 60, 0, 0}, .data = WD_BF16, .gates = WD_BF16},
    {"packed", .n = {1, 300, 2, 4, 40, 0, 5}, .options = true},
    {"padded rows", .n = {2, 70, 2, 4, 64, 0, 0}, .options = true, .shift = 3, .pad = 5},
};

static void gdn_prepare__shapes_types_options__match_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(prepare_shapes); i++)
        for (int gates = WD_GATES_MILD; gates <= WD_GATES_ZERO; gates++)
            check_prepare(&prepare_shapes[i], (enum wd_gates)gates, NULL);
}

static const struct shape forward_shapes[] = {
    {"no states", .n = {1, 70, 1, 1, 32, 32, 0}},
    {"no final state", .n = {1, 70, 1, 1, 32, 32, 0}, .initial = true},
    {"no initial state", .n = {1, 70, 1, 1, 32, 32, 0}, .final = true},
    {"many heads", .n = {2, 40, 6, 12, 16, 16, 0}, .initial = true, .final = true},
    {"padded rows", .n = {2, 70, 2, 4, 40, 48, 0}, .initial = true, .final = true, .shift = 3, .pad = 5},
    {"scale", .n = {1, 20, 1, 1, 16, 16, 0}, .scale = 2},
    {"f16 gates alone", .n = {1, 70, 1, 2, 16, 16, 0}, .gates = WD_F16},
    {"packed with options", .n = {1, 200, 1, 2, 40, 48, 4}, .initial = true, .final = true, .options = true},
};

static void gdn_forward__states_strides_options__match_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(forward_shapes); i++)
        for (int gates = WD_GATES_MILD; gates <= WD_GATES_STEEP; gates++)
            check_forward(&forward_shapes[i], (enum wd_gates)gates, NULL);
}

static const struct shape decode_shapes[] = {
    {"one token", .n = {3, 1, 2, 4, 64, 128, 0}},
    {"three tokens", .n = {2, 3, 1, 1, 100, 60, 0}, .options = true},
    {"odd widths", .n = {2, 2, 1, 2, 9, 61, 0}},
    {"width one", .n = {2, 1, 1, 1, 1, 1, 0}},
    {"widest", .n = {1, 2, 1, 1, 256, 256, 0}},
    {"slots", .n = {5, 2, 1, 2, 40, 48, 0}, .slots = 7, .options = true},
    {"f16", .n = {2, 2, 1, 4, 96, 64, 0}, .data = WD_F16, .gates = WD_F16},
    {"bf16", .n = {2, 2, 2, 2, 128, 128, 0}, .data = WD_BF16, .gates = WD_BF16, .options = true},
    {"padded rows", .n = {3, 2, 2, 4, 64, 64, 0}, .shift = 4, .pad = 4, .slots = 4},
    {"padded rows, odd", .n = {3, 2, 2, 4, 64, 64, 0}, .shift = 3, .pad = 5},
    {"scale", .n = {1, 1, 1, 1, 16, 16, 0}, .scale = 2},
};

static void gdn_decode__shapes_types_options__match_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(decode_shapes); i++)
        for (int gates = WD_GATES_MILD; gates <= WD_GATES_STEEP; gates++)
            check_decode(&decode_shapes[i], (enum wd_gates)gates, NULL);
}

/* ---- The grid ---- */

static const size_t lengths[] = {1, 37, 63, 64, 65, 100, 127, 200, 1000};
static const size_t widths[] = {1, 9, 60, 64, 96, 100, 128, 160, 192, 256};

static void check_lengths(struct shape *s)
{
    for (size_t i = 0; i < WD_COUNT(lengths); i++)
        for (int gates = WD_GATES_MILD; gates <= WD_GATES_ZERO; gates++) {
            if (lengths[i] == 1000 && s->n.K * s->n.V > 64 * 64 && gates != WD_GATES_MILD)
                continue; /* the reference would take too long */
            s->n.T = lengths[i];
            check_forward(s, (enum wd_gates)gates, NULL);
        }
}

static void check_everything(void)
{
    static const wd_dtype types[] = {WD_F32, WD_F16, WD_BF16};
    for (size_t i = 0; i < 100 * 3 * 3 * 4; i++) {
        struct shape s = {"grid", .n = {1, 0, 1, (size_t)1 << i / 100 % 3, widths[i % 10], widths[i / 10 % 10], 0}};
        s.data = types[i / 300 % 3];
        s.initial = s.final = i / 900 % 2;
        s.n.N = i / 1800 ? 3 : 0;
        check_lengths(&s);
    }
}

static void gdn_forward__grid__matches_recurrence(void **unused)
{
    static const wd_dtype types[] = {WD_F32, WD_BF16, WD_F32, WD_F16, WD_F32};
    (void)unused;
    if (getenv("WARPDRIVE_TEST_ALL"))
        check_everything();
    for (size_t i = 0; i < WD_COUNT(widths); i++) {
        struct shape s = {"grid", .n = {1, 0, 1, (size_t)1 << i % 3, widths[i], widths[i * 7 % 10], 0}};
        s.data = types[i % 5];
        s.initial = s.final = i % 2;
        s.n.N = i % 4 > 1 ? 3 : 0;
        check_lengths(&s);
    }
}

/* Other numbers of lanes, rows and tokens at a time than this device's model picks, and the GPU forms. */
static void gdn__other_parameters__match_reference(void **unused)
{
    const struct shape s = {"sweep", .n = {1, 75, 1, 2, 24, 40, 0}, .initial = true, .final = true, .options = true};
    const struct shape token = {"sweep", .n = {2, 2, 1, 2, 36, 40, 0}, .slots = 3};
    const wd_gdn_prepare_args prepare = prepare_args(&s);
    const wd_gdn_forward_args forward = forward_args(&s);
    const wd_gdn_decode_args decode = decode_args(&token);
    const struct wd_trial_options options = {.seed = 2};
    (void)unused;
    assert_true(sweep_check("sweep", &wd_op_gdn_prepare, &prepare, 5, &options) > 0);
    assert_true(sweep_check("sweep", &wd_op_gdn_forward, &forward, 9, &options) + ctx->caps.cpu > 0);
    assert_true(sweep_check("sweep", &wd_op_gdn_decode, &decode, 5, &options) > 0);
}

/* ---- Gates at their worst ---- */

/* -800 in one token of eight. Sums of such gates have no low bits left for their mild neighbours. */
static void cliffs(void *user, const struct wd_problem *p, double *const *t)
{
    size_t ext[WD_MAX_RANK];
    (void)user;
    wd_tensor_extents(p, FWD_g, ext);
    for (size_t i = 0; i < ext[0] * ext[1] * ext[2]; i++)
        if (i / ext[2] % 8 == 3)
            t[FWD_g][i] = -800;
}

static void gdn_forward__gates_of_minus_800__match_recurrence(void **unused)
{
    const struct shape s = {"cliffs", .n = {1, 150, 1, 1, 32, 32, 0}, .initial = true, .final = true};
    (void)unused;
    check_forward(&s, WD_GATES_MILD, cliffs);
}

/* ---- Sizes without elements ---- */

static const struct shape empty_shapes[] = {
    {"no tokens", .n = {2, 0, 1, 2, 16, 16, 0}, .initial = true, .final = true},
    {"no tokens, no initial state", .n = {2, 0, 1, 2, 16, 16, 0}, .final = true},
    {"no tokens, packed", .n = {1, 0, 1, 2, 16, 16, 3}, .initial = true, .final = true},
    {"no batch", .n = {0, 5, 1, 2, 16, 16, 0}, .initial = true, .final = true},
    {"no heads", .n = {2, 5, 0, 0, 16, 16, 0}, .final = true},
    {"no keys", .n = {2, 5, 1, 2, 0, 16, 0}, .final = true},
    {"no values", .n = {2, 5, 1, 2, 16, 0, 0}, .final = true},
};

/* Without tokens the final state is the initial one, or zero; without anything else there is nothing to write. */
static void gdn__zero_sizes__succeed(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(empty_shapes); i++) {
        const wd_gdn_prepare_args prepare = prepare_args(&empty_shapes[i]);
        const wd_gdn_forward_args forward = forward_args(&empty_shapes[i]);
        const wd_gdn_decode_args decode = decode_args(&empty_shapes[i]);
        const struct wd_op *ops[] = {&wd_op_gdn_prepare, &wd_op_gdn_forward, &wd_op_gdn_decode};
        const void *args[] = {&prepare, &forward, &decode};
        for (size_t k = 0; k < WD_COUNT(ops); k++) {
            struct wd_trial_result result;
            struct wd_trial *t = run(ops[k], args[k], NULL, NULL);
            if (wd_trial_check(t, &result) || !result.ok)
                fail_msg("%s of %s: %s", ops[k]->name, empty_shapes[i].name, result.text);
            wd_trial_destroy(t);
        }
    }
}

/* ---- Refusals ---- */

static void refused(const struct wd_op *op, const void *args, const char *why)
{
    struct wd_problem p;
    if (!wd_op_check(op, args, false, &p))
        fail_msg("%s accepts what should read \"%s\"", op->name, why);
    if (!strstr(wd_last_error(), why))
        fail_msg("%s says \"%s\", not \"%s\"", op->name, wd_last_error(), why);
}

static void gdn__calls_that_make_no_sense__are_refused_by_name(void **unused)
{
    static const int32_t falling[] = {0, 30, 20};
    const struct shape good = {"good", .n = {1, 20, 2, 4, 16, 16, 0}, .options = true};
    const wd_gdn_prepare_args prepare = prepare_args(&good);
    const wd_gdn_forward_args forward = forward_args(&good);
    const wd_gdn_decode_args decode = decode_args(&good);
    (void)unused;
    wd_gdn_prepare_args p = prepare;
    p.HV = 3;
    refused(&wd_op_gdn_prepare, &p, "HV: 3 is not a multiple of H (2)");
    p = prepare;
    p.K = 257;
    refused(&wd_op_gdn_prepare, &p, "K: 257");
    p = prepare;
    p.A_log = (wd_tensor){0};
    refused(&wd_op_gdn_prepare, &p, "A_log: missing");
    p = prepare;
    p.l2norm = false;
    refused(&wd_op_gdn_prepare, &p, "q_out: given, but l2norm is off");
    p = prepare;
    p.q = (wd_tensor){0};
    refused(&wd_op_gdn_prepare, &p, "q: missing, but q_out is given");
    p = prepare;
    p.l2norm_eps = -1;
    refused(&wd_op_gdn_prepare, &p, "l2norm_eps");
    p = prepare;
    p.g.dtype = WD_BF16;
    refused(&wd_op_gdn_prepare, &p, "g: dtype bf16");

    wd_gdn_forward_args f = forward;
    f.V = 257;
    refused(&wd_op_gdn_forward, &f, "V: 257");
    f = forward;
    f.dt_bias = (wd_tensor){0};
    refused(&wd_op_gdn_forward, &f, "dt_bias: missing");
    f = forward;
    f.N = 2;
    refused(&wd_op_gdn_forward, &f, "cu_seqlens: missing");
    f.cu_seqlens.dtype = WD_I32;
    f.cu_seqlens_host = falling;
    refused(&wd_op_gdn_forward, &f, "cu_seqlens_host: falls");
    f = forward;
    f.beta_mode = (wd_beta_mode)7;
    refused(&wd_op_gdn_forward, &f, "beta_mode: 7");
    f = forward;
    f.o.dtype = WD_E4M3;
    refused(&wd_op_gdn_forward, &f, "o: dtype e4m3");

    wd_gdn_decode_args d = decode;
    d.B = 3;
    d.slots = 2;
    refused(&wd_op_gdn_decode, &d, "slots: 2, fewer than the 3 sequences");
    d = decode;
    d.state.dtype = WD_F16;
    refused(&wd_op_gdn_decode, &d, "state: dtype f16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gdn_prepare__shapes_types_options__match_reference),
        cmocka_unit_test(gdn_forward__states_strides_options__match_reference),
        cmocka_unit_test(gdn_decode__shapes_types_options__match_reference),
        cmocka_unit_test(gdn_forward__grid__matches_recurrence),
        cmocka_unit_test(gdn__other_parameters__match_reference),
        cmocka_unit_test(gdn_forward__gates_of_minus_800__match_recurrence),
        cmocka_unit_test(gdn__zero_sizes__succeed),
        cmocka_unit_test(gdn__calls_that_make_no_sense__are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
