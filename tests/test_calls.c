/* SPDX-License-Identifier: MIT */
/* Calls at the edges of what is allowed, across operations: odd but right, or refused by the name of an argument. */
#include "gdn_shapes.h"

#include <limits.h>

/* ---- Odd, but right ---- */

/* Slots that are none: negative or past the last state. Their sequences are skipped. */
static void stray_slots(void *user, const struct wd_problem *p, double *const *t)
{
    const size_t slot = *(const size_t *)user;
    static const double none[] = {INT32_MIN, -1, 3, INT32_MAX, 7};
    for (size_t b = 0; b < wd_tensor_elements(p, slot); b++)
        t[slot][b] = b < WD_COUNT(none) ? none[b] : 2;
}

/* Offsets that only the device has, neither rising nor inside, and what they count as for 90 tokens. */
static const double stray[] = {-7, 70, 20, 500}, clamped[] = {0, 70, 70, 90};

static void stray_offsets(void *user, const struct wd_problem *p, double *const *t)
{
    (void)p;
    memcpy(t[*(const size_t *)user], stray, sizeof stray);
}

static void check_stray_offsets(const struct wd_op *op, const void *args, size_t cu)
{
    struct wd_trial_result result;
    struct wd_trial *t = run(op, args, stray_offsets, &cu);
    memcpy(t->tensor[cu].value, clamped, sizeof clamped); /* for the reference, which trusts them */
    if (wd_trial_check(t, &result) || !result.ok)
        fail_msg("%s: %s", op->name, result.text);
    wd_trial_destroy(t);
}

/* All tokens in the last sequence. */
static void empty_sequences(void *user, const struct wd_problem *p, double *const *t)
{
    const size_t cu = *(const size_t *)user, n = wd_tensor_elements(p, cu);
    for (size_t i = 0; i + 1 < n; i++)
        t[cu][i] = 0;
}

static void check_call(const char *name, const struct wd_op *op, const void *args, edit_fn edit, size_t tensor)
{
    const struct wd_trial_options options = {.seed = 6, .edit = edit, .user = &tensor};
    assert_true(wd_supported(ctx, op->id, args));
    sweep_public_call(name, op, args, &options);
}

static const wd_tensor f32 = {.dtype = WD_F32}, i32 = {.dtype = WD_I32};

static void causal_conv1d__odd_calls__match_reference(void **unused)
{
    wd_causal_conv1d_args conv = {sizeof conv,
                                  .B = 1,
                                  .D = 8,
                                  .S = 0,
                                  .W = 4,
                                  .N = 2,
                                  .initial_state = f32,
                                  .cu_seqlens = i32,
                                  .final_state = f32,
                                  .layout = WD_LAYOUT_BSD};
    wd_causal_conv1d_update_args update = {sizeof update, .B = 6, .D = 8, .W = 4, .slots = 3, .slot = i32};
    (void)unused;
    check_call("no tokens, packed", &wd_op_causal_conv1d, &conv, NULL, 0);
    conv.S = 20;
    check_call("empty sequences", &wd_op_causal_conv1d, &conv, empty_sequences, CONV_cu_seqlens);
    check_call("stray slots", &wd_op_causal_conv1d_update, &update, stray_slots, UPD_slot);
    update.B = 0;
    check_call("no sequences", &wd_op_causal_conv1d_update, &update, NULL, 0);
    update.slot = (wd_tensor){0};
    check_call("no sequences, no slots named", &wd_op_causal_conv1d_update, &update, NULL, 0);
}

static void gdn__odd_calls__match_reference(void **unused)
{
    struct shape s = {"odd", .n = {1, 90, 1, 2, 16, 16, 3}, .initial = true, .final = true};
    struct shape token = {"odd", .n = {6, 1, 1, 2, 16, 16, 0}, .slots = 3};
    wd_gdn_prepare_args prepare = prepare_args(&s);
    wd_gdn_forward_args forward = forward_args(&s);
    wd_gdn_decode_args decode = decode_args(&token);
    (void)unused;
    check_stray_offsets(&wd_op_gdn_prepare, &prepare, PREP_cu_seqlens);
    check_call("empty sequences", &wd_op_gdn_prepare, &prepare, empty_sequences, PREP_cu_seqlens);
    check_stray_offsets(&wd_op_gdn_forward, &forward, FWD_cu_seqlens);
    check_call("empty sequences", &wd_op_gdn_forward, &forward, empty_sequences, FWD_cu_seqlens);
    check_call("stray slots", &wd_op_gdn_decode, &decode, stray_slots, DEC_slot);
    decode.B = 0;
    check_call("no sequences", &wd_op_gdn_decode, &decode, NULL, 0);
}

/* ---- NaN in one sequence ---- */

struct poisoned {
    size_t tensor, batch; /* the whole of batch entry `batch` of it */
};

static void poison(void *user, const struct wd_problem *p, double *const *t)
{
    const struct poisoned *at = user;
    size_t ext[WD_MAX_RANK];
    wd_tensor_extents(p, at->tensor, ext);
    const size_t n = wd_tensor_elements(p, at->tensor) / ext[0];
    for (size_t i = 0; i < n; i++)
        t[at->tensor][at->batch * n + i] = (double)NAN;
}

/* NaN in batch entry 1 of 3 of input `tensor`: the others' part of `out` is what it is without, to the bit. */
static void check_nan(const struct wd_op *op, const void *args, size_t tensor, size_t out)
{
    struct poisoned at = {tensor, 1};
    struct wd_trial *clean = run(op, args, NULL, NULL), *dirty = run(op, args, poison, &at);
    double *a = output(clean, out), *b = output(dirty, out);
    const size_t n = wd_tensor_elements(&clean->p, out) / 3;
    size_t nan = 0;
    for (size_t i = n; i < 2 * n; i++)
        nan += isnan(b[i]) != 0;
    if (nan == 0 || memcmp(a, b, n * sizeof *a) != 0 || memcmp(a + 2 * n, b + 2 * n, n * sizeof *a) != 0)
        fail_msg("%s: NaN in %s is not where it belongs in %s", op->name, op->tensors[tensor].name,
                 op->tensors[out].name);
    free(a);
    free(b);
    wd_trial_destroy(clean);
    wd_trial_destroy(dirty);
}

static void gdn__nan_in_one_sequence__stays_there(void **unused)
{
    const struct shape s = {"nan", .n = {3, 70, 1, 2, 16, 16, 0}, .initial = true, .final = true};
    const struct shape token = {"nan", .n = {3, 2, 1, 2, 16, 16, 0}};
    const wd_gdn_prepare_args prepare = prepare_args(&s);
    const wd_gdn_forward_args forward = forward_args(&s);
    const wd_gdn_decode_args decode = decode_args(&token);
    (void)unused;
    check_nan(&wd_op_gdn_prepare, &prepare, PREP_gate, PREP_g);
    check_nan(&wd_op_gdn_prepare, &prepare, PREP_k, PREP_A);
    check_nan(&wd_op_gdn_forward, &forward, FWD_g, FWD_o);
    check_nan(&wd_op_gdn_forward, &forward, FWD_beta, FWD_final_state);
    check_nan(&wd_op_gdn_forward, &forward, FWD_initial_state, FWD_o);
    check_nan(&wd_op_gdn_decode, &decode, DEC_g, DEC_o);
    check_nan(&wd_op_gdn_decode, &decode, DEC_v, DEC_state);
    check_nan(&wd_op_gdn_decode, &decode, DEC_state, DEC_o);
}

/* ---- Refused ---- */

static void packed__more_sequences_than_32_bits__refused(void **unused)
{
    static const size_t many[] = {(size_t)INT32_MAX + 1, SIZE_MAX / 2, SIZE_MAX};
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(many); i++) {
        const struct shape s = {"many", .n = {1, 64, 1, 1, 16, 16, many[i]}};
        wd_gdn_prepare_args prepare = prepare_args(&s);
        wd_gdn_forward_args forward = forward_args(&s);
        wd_causal_conv1d_args conv = {
            sizeof conv, .B = 1, .D = 8, .S = 20, .W = 4, .N = many[i], .cu_seqlens = i32, .layout = WD_LAYOUT_BSD};
        sweep_refused(WD_OP_GDN_PREPARE, "wd_gdn_prepare: ", &prepare, "N: ");
        sweep_refused(WD_OP_GDN_FORWARD, "wd_gdn_forward: ", &forward, "N: ");
        sweep_refused(WD_OP_CAUSAL_CONV1D, "wd_causal_conv1d: ", &conv, "N: ");
    }
}

/* What a view can be told that its tensor cannot have. */
static void views__that_no_tensor_has__refused(void **unused)
{
    const struct shape s = {"views", .n = {2, 20, 1, 2, 16, 16, 0}, .initial = true, .final = true};
    const struct {
        const char *says;
        size_t tensor;
        wd_tensor view;
    } wrong[] = {
        {"A_log: stride[0]", FWD_A_log, {.dtype = WD_F32, .stride = {2}}},
        {"o: strides 16, 16, 16 make", FWD_o, {.stride = {16, 16, 16}}},
        {"o: strides", FWD_o, {.stride = {0, 0, 15}}},
        {"final_state: strides", FWD_final_state, {.dtype = WD_F32, .stride = {512, 256, 8}}},
        {"g: stride[2]", FWD_g, {.stride = {0, 0, 2}}},
        {"q: more elements", FWD_q, {.stride = {SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2}}},
    };
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(wrong); i++) {
        wd_gdn_forward_args a = forward_args(&s);
        a.A_log = a.dt_bias = f32;
        memcpy((unsigned char *)&a + wd_op_gdn_forward.tensors[wrong[i].tensor].offset, &wrong[i].view,
               sizeof(wd_tensor));
        sweep_refused(WD_OP_GDN_FORWARD, "wd_gdn_forward: ", &a, wrong[i].says);
    }
}

/* A call is what wd_supported() and wd_prepare() take it for: a tensor with a type is there, so it needs a buffer. */
static void call__type_without_a_buffer__refused(void **unused)
{
    wd_gdn_decode_args a = {sizeof a, .B = 1, .H = 1, .K = 16, .V = 16};
    cl_mem mem;
    (void)unused;
    assert_int_equal(wd_buffer_create(ctx, 4096, NULL, &mem), WD_OK);
    a.q.mem = a.k.mem = a.v.mem = a.g.mem = a.beta.mem = a.state.mem = a.o.mem = mem;
    a.o.offset = 512;
    a.slot.dtype = WD_I32;
    assert_int_equal(wd_gdn_decode(ctx, &a, NULL), WD_EINVAL);
    assert_non_null(strstr(wd_last_error(), "wd_gdn_decode: slot: NULL"));
    a.slot.mem = mem;
    a.slot.offset = 1024;
    assert_int_equal(wd_gdn_decode(ctx, &a, NULL), WD_EINVAL);
    assert_non_null(strstr(wd_last_error(), "wd_gdn_decode: slot: the buffer has 4096 bytes"));
    wd_buffer_destroy(mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_conv1d__odd_calls__match_reference),
        cmocka_unit_test(gdn__odd_calls__match_reference),
        cmocka_unit_test(gdn__nan_in_one_sequence__stays_there),
        cmocka_unit_test(packed__more_sequences_than_32_bits__refused),
        cmocka_unit_test(views__that_no_tensor_has__refused),
        cmocka_unit_test(call__type_without_a_buffer__refused),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
