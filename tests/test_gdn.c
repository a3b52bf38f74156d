/* SPDX-License-Identifier: MIT */
/* gdn_prepare, gdn_forward and gdn_decode on a device: every variant against the references. */
#include "gdn_shapes.h"

static const struct shape prepare_shapes[] = {
    {"odd width", .n = {2, 65, 1, 2, 9, 0, 0}},
    {"one token, width one", .n = {1, 1, 2, 2, 1, 0, 0}},
    {"widest", .n = {1, 127, 1, 1, 256, 0, 0}},
    {"f16", .n = {1, 200, 1, 4, 128, 0, 0}, .data = WD_F16, .gates = WD_F16, .options = true},
    {"bf16, padded rows", .n = {2, 63, 2, 2, 60, 0, 0}, .data = WD_BF16, .gates = WD_BF16, .shift = 3, .pad = 5},
    {"packed", .n = {1, 300, 2, 4, 40, 0, 5}, .options = true},
    {"sums in two floats", .n = {2, 100, 1, 2, 9, 0, 0}, .sums = WD_F32X2, .pad = 3},
};

static void gdn_prepare__shapes_types_options__match_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(prepare_shapes); i++)
        for (int gates = WD_GATES_MILD; gates <= WD_GATES_ZERO; gates++)
            check_prepare(&prepare_shapes[i], (enum wd_gates)gates);
}

static const struct shape forward_shapes[] = {
    {"no states", .n = {1, 70, 1, 1, 16, 16, 0}, .scale = 2},
    {"no final state", .n = {2, 40, 6, 12, 16, 16, 0}, .initial = true},
    {"padded rows", .n = {2, 70, 2, 4, 40, 48, 0}, .initial = true, .final = true, .shift = 3, .pad = 5},
    {"packed with options", .n = {1, 200, 1, 2, 40, 48, 4}, .gates = WD_F16, .initial = true, .final = true,
     .options = true},
};

static void gdn_forward__states_strides_options__match_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(forward_shapes); i++)
        for (int gates = WD_GATES_MILD; gates <= WD_GATES_STEEP; gates++)
            check_forward(&forward_shapes[i], NULL, (enum wd_gates)gates, NULL);
}

/* Padding: keys of zero, and one so short that what normalises it is large, beside large values. */
static void pad_keys(void *user, const struct wd_problem *p, double *const *t)
{
    const size_t K = p->dim[GDN_K], V = p->dim[GDN_V];
    (void)user;
    for (size_t token = 3; token < 6; token++) {
        for (size_t i = 0; i < K; i++)
            t[FWD_k][token * K + i] *= token == 5 ? 1.0 / 1024 : 0;
        for (size_t i = 0; i < V; i++)
            t[FWD_v][token * V + i] = token == 5 ? 4 : 100;
    }
}

static void gdn_forward__padding_among_keys__matches_reference(void **unused)
{
    static const wd_dtype types[] = {WD_F32, WD_F16, WD_BF16};
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(types); i++) {
        const struct shape s = {"padding",        .n = {1, 70, 1, 1, 64, 64, 0},
                                .data = types[i], .initial = true,
                                .final = true,    .options = true};
        check_forward(&s, NULL, WD_GATES_MILD, pad_keys);
    }
}

static const struct shape decode_shapes[] = {
    {"one token", .n = {3, 1, 2, 4, 64, 128, 0}, .scale = 2},
    {"three tokens", .n = {2, 3, 1, 1, 100, 60, 0}, .options = true},
    {"odd widths", .n = {2, 2, 1, 2, 9, 61, 0}},
    {"width one", .n = {2, 1, 1, 1, 1, 1, 0}},
    {"widest", .n = {1, 2, 1, 1, 256, 256, 0}},
    {"f16, slots", .n = {5, 2, 1, 2, 40, 48, 0}, .data = WD_F16, .gates = WD_F16, .slots = 7, .options = true},
    {"bf16, padded rows", .n = {3, 2, 2, 4, 64, 64, 0}, .data = WD_BF16, .shift = 4, .pad = 4, .slots = 4},
    {"padded rows, odd", .n = {3, 2, 2, 4, 64, 64, 0}, .shift = 3, .pad = 5},
};

static void gdn_decode__shapes_types_options__match_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(decode_shapes); i++)
        for (int gates = WD_GATES_MILD; gates <= WD_GATES_STEEP; gates++)
            check_decode(&decode_shapes[i], (enum wd_gates)gates);
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
        cmocka_unit_test(gdn_forward__padding_among_keys__matches_reference),
        cmocka_unit_test(gdn__zero_sizes__succeed),
        cmocka_unit_test(gdn__calls_that_make_no_sense__are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
