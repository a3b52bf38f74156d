/* SPDX-License-Identifier: MIT */
/* gdn_prepare, gdn_forward and gdn_decode on a device, called as users do: against each other, on queues, and against
 * vectors made elsewhere. */
#include "gdn_shapes.h"

#include "npy.h"

/* ---- A call against other calls ---- */

/* (I + L) A = I, with L from what the device was given. */
static void gdn_prepare__f32__residual_of_the_inverse_is_small(void **unused)
{
    enum { T = 64, K = 128 };
    const struct shape s = {"residual", .n = {1, T, 1, 1, K, 0, 0}};
    const wd_gdn_prepare_args args = prepare_args(&s);
    (void)unused;
    struct wd_trial *t = run(&wd_op_gdn_prepare, &args, NULL, NULL);
    double *A = output(t, PREP_A), sum[T], worst = 0;
    const double *k = t->tensor[PREP_k].value, *beta = t->tensor[PREP_beta].value;
    for (size_t i = 0; i < T; i++)
        sum[i] = t->tensor[PREP_gate].value[i] + (i ? sum[i - 1] : 0);
    for (size_t i = 0; i < T; i++)
        for (size_t j = 0; j < T; j++) {
            double r = A[i * T + j] - (i == j);
            for (size_t m = 0; m < i; m++) {
                double dot = 0;
                for (size_t d = 0; d < K; d++)
                    dot += k[i * K + d] * k[m * K + d];
                r += beta[i] * dot * exp(sum[i] - sum[m]) * A[m * T + j];
            }
            worst = fabs(r) <= worst ? worst : fabs(r);
        }
    if (!(worst <= 1e-6))
        fail_msg("residual %g", worst);
    free(A);
    wd_trial_destroy(t);
}

static void gdn_forward__cut_in_two__equals_the_whole(void **unused)
{
    enum { T = 150, CUT = 70, HV = 2, K = 40, V = 48 };
    struct shape s = {"cut", .n = {1, T, 1, HV, K, V, 0}, .initial = true, .final = true, .options = true};
    wd_gdn_forward_args args = forward_args(&s);
    (void)unused;
    struct wd_trial *whole = run(&wd_op_gdn_forward, &args, NULL, NULL);
    struct part part = {whole, 0, INPUTS, FWD_initial_state, whole->tensor[FWD_initial_state].value};
    args.T = CUT;
    struct wd_trial *first = run(&wd_op_gdn_forward, &args, take_part, &part);
    double *between = output(first, FWD_final_state);
    part.first = CUT;
    part.values = between;
    args.T = T - CUT;
    struct wd_trial *second = run(&wd_op_gdn_forward, &args, take_part, &part);
    double *o = output(whole, FWD_o), *o1 = output(first, FWD_o), *o2 = output(second, FWD_o);
    double *end = output(whole, FWD_final_state), *end2 = output(second, FWD_final_state);
    assert_near(o1, o, CUT * HV * V, 1e-5);
    assert_near(o2, o + CUT * HV * V, (T - CUT) * HV * V, 1e-5);
    assert_near(end2, end, HV * K * V, 1e-5);
    for (size_t i = 0; i < 6; i++)
        free((double *[]){between, o, o1, o2, end, end2}[i]);
    wd_trial_destroy(whole);
    wd_trial_destroy(first);
    wd_trial_destroy(second);
}

static void gdn_decode__token_by_token__equals_one_forward(void **unused)
{
    enum { T = 7, H = 2, HV = 4, K = 40, V = 48 };
    struct shape s = {"steps", .n = {1, T, H, HV, K, V, 0}, .initial = true, .final = true, .options = true};
    const wd_gdn_forward_args forward = forward_args(&s);
    (void)unused;
    struct wd_trial *whole = run(&wd_op_gdn_forward, &forward, NULL, NULL);
    double *o = output(whole, FWD_o), *end = output(whole, FWD_final_state);
    struct part part = {whole, 0, INPUTS, DEC_state, whole->tensor[FWD_initial_state].value};
    double *state = NULL;
    for (size_t step = 1; part.first < T; step++) { /* one token, then two, three, and one again */
        s.n.T = step < T - part.first ? step : T - part.first;
        const wd_gdn_decode_args decode = decode_args(&s);
        struct wd_trial *t = run(&wd_op_gdn_decode, &decode, take_part, &part);
        double *o_step = output(t, DEC_o), *previous = state;
        assert_near(o_step, o + part.first * HV * V, s.n.T * HV * V, 1e-5);
        part.values = state = output(t, DEC_state);
        part.first += s.n.T;
        free(o_step);
        free(previous);
        wd_trial_destroy(t);
    }
    assert_near(state, end, HV * K * V, 1e-5);
    free(state);
    free(o);
    free(end);
    wd_trial_destroy(whole);
}

static const int32_t starts[] = {0, 70, 70, 75, 200}; /* the second sequence is empty */
enum { SEQUENCES = WD_COUNT(starts) - 1, PACKED = 200 };

static void gdn_forward__packed__equals_each_sequence_alone(void **unused)
{
    enum { HV = 2, K = 40, V = 48, STATE = HV * K * V };
    struct shape s = {"packed", .n = {1, PACKED, 1, HV, K, V, SEQUENCES}, .initial = true, .final = true,
                      .options = true};
    wd_gdn_forward_args args = forward_args(&s);
    (void)unused;
    args.cu_seqlens_host = starts;
    struct wd_trial *packed = run(&wd_op_gdn_forward, &args, NULL, NULL);
    double *o = output(packed, FWD_o), *end = output(packed, FWD_final_state);
    args.N = 0;
    args.cu_seqlens = (wd_tensor){0};
    args.cu_seqlens_host = NULL;
    for (size_t i = 0; i < SEQUENCES; i++) {
        const size_t first = (size_t)starts[i];
        args.T = (size_t)starts[i + 1] - first;
        struct part part = {packed, first, INPUTS, FWD_initial_state,
                            packed->tensor[FWD_initial_state].value + i * STATE};
        struct wd_trial *alone = run(&wd_op_gdn_forward, &args, take_part, &part);
        double *o1 = output(alone, FWD_o), *end1 = output(alone, FWD_final_state);
        assert_near(o + first * HV * V, o1, args.T * HV * V, 1e-6);
        assert_near(end + i * STATE, end1, STATE, 1e-6);
        free(o1);
        free(end1);
        wd_trial_destroy(alone);
    }
    free(o);
    free(end);
    wd_trial_destroy(packed);
}

/* NaN in everything that the third sequence has. */
static void poison(void *user, const struct wd_problem *p, double *const *t)
{
    (void)user;
    for (size_t i = 0; i <= FWD_beta; i++) {
        const size_t row = wd_tensor_elements(p, i) / PACKED;
        for (size_t n = (size_t)starts[2] * row; n < (size_t)starts[3] * row; n++)
            t[i][n] = (double)NAN;
    }
}

static void gdn_forward__nan_in_one_sequence__reaches_no_other(void **unused)
{
    enum { HV = 2, K = 40, V = 48, STATE = HV * K * V };
    const struct shape s = {"nan", .n = {1, PACKED, 1, HV, K, V, SEQUENCES}, .initial = true, .final = true,
                            .options = true};
    wd_gdn_forward_args args = forward_args(&s);
    (void)unused;
    args.cu_seqlens_host = starts;
    struct wd_trial *clean = run(&wd_op_gdn_forward, &args, NULL, NULL);
    struct wd_trial *dirty = run(&wd_op_gdn_forward, &args, poison, NULL);
    double *o = output(clean, FWD_o), *o1 = output(dirty, FWD_o);
    double *end = output(clean, FWD_final_state), *end1 = output(dirty, FWD_final_state);
    for (size_t i = 0; i < SEQUENCES; i++) {
        const size_t first = (size_t)starts[i] * HV * V, n = (size_t)(starts[i + 1] - starts[i]) * HV * V;
        if (i == 2) {
            assert_true(isnan(o1[first]) && isnan(end1[i * STATE]));
            continue;
        }
        assert_memory_equal(o1 + first, o + first, n * sizeof *o);
        assert_memory_equal(end1 + i * STATE, end + i * STATE, STATE * sizeof *end);
    }
    for (size_t i = 0; i < 4; i++)
        free((double *[]){o, o1, end, end1}[i]);
    wd_trial_destroy(clean);
    wd_trial_destroy(dirty);
}

/* What a kernel that drops the state computes is each chunk as a sequence of its own. The bars have to tell. */
static void gdn_forward__state_left_out__is_far_from_the_reference(void **unused)
{
    enum { T = 128 };
    static const int32_t chunks[] = {0, 64, 128};
    struct shape s = {"dropped", .n = {1, T, 1, 1, 64, 64, 0}};
    wd_gdn_forward_args args = forward_args(&s);
    (void)unused;
    struct wd_trial *whole = run(&wd_op_gdn_forward, &args, NULL, NULL);
    struct part part = {whole, 0, INPUTS, 0, NULL};
    args.N = 2;
    args.cu_seqlens.dtype = WD_I32;
    args.cu_seqlens_host = chunks;
    struct wd_trial *dropped = run(&wd_op_gdn_forward, &args, take_part, &part);
    double *o = output(whole, FWD_o), *o1 = output(dropped, FWD_o);
    assert_near(o1, o, T / 2 * 64, 1e-6);
    assert_true(distance(o1, o, T * 64) > 0.1);
    free(o);
    free(o1);
    wd_trial_destroy(whole);
    wd_trial_destroy(dropped);
}

/* ---- Queues and workspaces ---- */

/* The chain's calls must wait for each other where the queue does not see to it. */
static void gdn_forward__chain_on_a_queue_out_of_order__matches_reference(void **unused)
{
    const struct shape s = {"out of order", .n = {1, 200, 1, 2, 40, 48, 0}, .initial = true, .final = true,
                            .options = true};
    const wd_gdn_forward_args args = forward_args(&s);
    cl_int err;
    (void)unused;
    cl_command_queue queue = clCreateCommandQueue(ctx->cl, ctx->caps.id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &err);
    if (err)
        skip(); /* the device has no such queues */
    const struct wd_trial_options options = {.seed = 4, .queue = queue};
    assert_int_equal(variants_check("out of order", &wd_op_gdn_forward, &args, "chain", &options), 1);
    clReleaseCommandQueue(queue);
}

/* The first variant made of other operations' calls that serves the problem here. */
static struct wd_choice chain_choice(const struct wd_problem *p)
{
    struct wd_choice choice;
    for (const struct wd_variant *const *v = wd_op_gdn_forward.variants; *v; v++)
        if ((*v)->chain && wd_tuning_model(&ctx->caps, p, *v, &choice) &&
            (*v)->chain(ctx, p, choice.param, NULL) == WD_OK)
            return choice;
    fail_msg("gdn_forward has no chain: %s", wd_last_error());
    return choice;
}

static void gdn_forward__workspace__used_if_large_enough(void **unused)
{
    const struct shape s = {"workspace", .n = {1, 100, 1, 2, 40, 48, 0}, .final = true};
    const wd_gdn_forward_args args = forward_args(&s);
    struct wd_trial_result result;
    cl_event done = NULL;
    cl_int err;
    (void)unused;
    struct wd_trial *t = run(&wd_op_gdn_forward, &args, NULL, NULL);
    const struct wd_choice choice = chain_choice(&t->p);
    const struct wd_variant *chain = choice.variant;
    const wd_launch launch = {.queue = t->queue, .done = &done};
    const size_t bytes = chain->workspace(&t->p);
    cl_mem enough = clCreateBuffer(ctx->cl, CL_MEM_READ_WRITE, bytes, NULL, &err);
    assert_int_equal(err, CL_SUCCESS);
    cl_mem small = clCreateBuffer(ctx->cl, CL_MEM_READ_WRITE, bytes - 1, NULL, &err);
    assert_int_equal(err, CL_SUCCESS);

    t->p.workspace = small;
    assert_int_equal(chain->chain(ctx, &t->p, choice.param, &launch), WD_EINVAL);
    assert_non_null(strstr(wd_last_error(), "workspace"));
    assert_null(done);
    t->p.workspace = enough;
    assert_int_equal(wd_trial_reset(t), WD_OK);
    assert_int_equal(chain->chain(ctx, &t->p, choice.param, &launch), WD_OK);
    assert_int_equal(clWaitForEvents(1, &done), CL_SUCCESS);
    clReleaseEvent(done);
    assert_int_equal(wd_trial_check(t, &result), WD_OK);
    if (!result.ok)
        fail_msg("%s", result.text);
    clReleaseMemObject(enough);
    clReleaseMemObject(small);
    wd_trial_destroy(t);
}

static void gdn_forward__prepared__first_call_compiles_nothing(void **unused)
{
    const struct shape s = {"prepared", .n = {1, 30, 1, 1, 24, 24, 0}};
    const wd_gdn_forward_args args = forward_args(&s);
    wd_counters before = {.struct_size = sizeof before}, after = before;
    (void)unused;
    assert_true(wd_supported(ctx, WD_OP_GDN_FORWARD, &args));
    assert_int_equal(wd_prepare(ctx, WD_OP_GDN_FORWARD, &args), WD_OK);
    assert_int_equal(wd_context_counters(ctx, &before), WD_OK);
    wd_trial_destroy(run(&wd_op_gdn_forward, &args, NULL, NULL));
    assert_int_equal(wd_context_counters(ctx, &after), WD_OK);
    assert_int_equal(after.compiles + after.disk_hits, before.compiles + before.disk_hits);
}

/* ---- Vectors made elsewhere ---- */

static const char *const folders[] = {"B1_T37_H2_HV2_K100_V60", "B1_T65_H1_HV2_K128_V128", "B1_T128_H2_HV2_K64_V64",
                                      "B2_T100_H2_HV4_K64_V128"};

struct vectors {
    struct npy file[FWD_final_state + 1]; /* empty where the folder has none */
};

static void load_vectors(const char *folder, struct vectors *v)
{
    for (size_t i = 0; i < WD_COUNT(v->file); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/gated_delta_rule/%s/%s.npy", TEST_DATA, folder,
                 wd_op_gdn_forward.tensors[i].name);
        v->file[i] = (struct npy){0};
        if (npy_read(path, &v->file[i]) && !wd_op_gdn_forward.tensors[i].optional)
            fail_msg("%s", wd_last_error());
    }
}

static void take_vectors(void *user, const struct wd_problem *p, double *const *t)
{
    const struct vectors *v = user;
    for (size_t i = 0; i < FWD_o; i++)
        for (size_t n = 0; t[i] && n < wd_tensor_elements(p, i); n++)
            t[i][n] = npy_value(&v->file[i], n);
}

static void compare_vectors(const struct wd_trial *t, size_t i, const struct npy *file)
{
    const size_t n = wd_tensor_elements(&t->p, i);
    double *got = output(t, i), *want = malloc(n * sizeof *want);
    assert_non_null(want);
    assert_int_equal(npy_count(file), n);
    for (size_t k = 0; k < n; k++)
        want[k] = npy_value(file, k);
    assert_near(got, want, n, 1e-5);
    free(got);
    free(want);
}

static void gdn_forward__recurrence_in_double_made_elsewhere__same(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(folders); i++) {
        struct vectors v;
        load_vectors(folders[i], &v);
        const size_t *q = v.file[FWD_q].shape, *vs = v.file[FWD_v].shape;
        const struct shape s = {folders[i], .n = {q[0], q[1], q[2], vs[2], q[3], vs[3], 0},
                                .initial = v.file[FWD_initial_state].data, .final = true};
        const wd_gdn_forward_args args = forward_args(&s);
        struct wd_trial *t = run(&wd_op_gdn_forward, &args, take_vectors, &v);
        compare_vectors(t, FWD_o, &v.file[FWD_o]);
        compare_vectors(t, FWD_final_state, &v.file[FWD_final_state]);
        wd_trial_destroy(t);
        for (size_t k = 0; k < WD_COUNT(v.file); k++)
            npy_free(&v.file[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gdn_prepare__f32__residual_of_the_inverse_is_small),
        cmocka_unit_test(gdn_forward__cut_in_two__equals_the_whole),
        cmocka_unit_test(gdn_decode__token_by_token__equals_one_forward),
        cmocka_unit_test(gdn_forward__packed__equals_each_sequence_alone),
        cmocka_unit_test(gdn_forward__nan_in_one_sequence__reaches_no_other),
        cmocka_unit_test(gdn_forward__state_left_out__is_far_from_the_reference),
        cmocka_unit_test(gdn_forward__chain_on_a_queue_out_of_order__matches_reference),
        cmocka_unit_test(gdn_forward__workspace__used_if_large_enough),
        cmocka_unit_test(gdn_forward__prepared__first_call_compiles_nothing),
        cmocka_unit_test(gdn_forward__recurrence_in_double_made_elsewhere__same),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
