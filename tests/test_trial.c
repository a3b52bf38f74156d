/* SPDX-License-Identifier: MIT */
/* Trials, with the host playing the device: it computes the reference and then does one thing wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "convert.h"
#include "dims.h"
#include "status.h"
#include "trial.h"

static wd_context *ctx;

static int open_device(void **state)
{
    (void)state;
    if (wd_open(NULL, &ctx))
        fail_msg("%s", wd_last_error());
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    wd_context_destroy(ctx);
    return 0;
}

/* ---- The host as a device ---- */

enum fault {
    NONE,
    LEFT_OUT,     /* one element is not written */
    OFF,          /* one element is wrong */
    SCALED,       /* all are off by a little */
    BEFORE_VIEW,  /* an element before the view is written */
    BETWEEN_ROWS, /* ... one in the gap between two rows */
    INPUT,        /* ... one of an input */
    ONE_CODE,     /* one FP8 code is the next one */
};

struct device {
    enum fault fault;
    size_t tensor, element; /* where */
};

static void transfer(struct wd_trial *t, size_t i, unsigned char *bytes, bool write)
{
    const struct wd_trial_tensor *x = &t->tensor[i];
    assert_int_equal(write ? clEnqueueWriteBuffer(t->queue, x->mem, CL_TRUE, 0, x->bytes, bytes, 0, NULL, NULL)
                           : clEnqueueReadBuffer(t->queue, x->mem, CL_TRUE, 0, x->bytes, bytes, 0, NULL, NULL),
                     CL_SUCCESS);
}

/* Between a buffer's bytes and packed doubles. */
static void unpack(const struct wd_trial *t, size_t i, unsigned char *bytes, double *values, bool pack)
{
    const struct wd_trial_tensor *x = &t->tensor[i];
    const wd_dtype dtype = t->p.tensor[i].dtype;
    for (size_t r = 0; r < wd_trial_runs(x); r++) {
        unsigned char *at = bytes + wd_trial_run_start(x, r) * wd_dtype_size(dtype);
        if (pack)
            wd_from_double(dtype, values + r * x->inner, x->inner, at);
        else
            wd_to_double(dtype, at, x->inner, values + r * x->inner);
    }
}

static void spoil_values(const struct wd_trial *t, const struct device *d, double *values)
{
    double *x = &values[d->element];
    if (d->fault == LEFT_OUT)
        *x = (double)NAN;
    if (d->fault == OFF)
        *x += 0.3 + fabs(*x);
    if (d->fault == ONE_CODE)
        *x = wd_decode(WD_E4M3, wd_encode(WD_E4M3, *x) ^ 1);
    for (size_t k = 0; d->fault == SCALED && k < wd_tensor_elements(&t->p, d->tensor); k++)
        values[k] *= 1 + 1e-4;
}

static void spoil_bytes(const struct wd_trial *t, const struct device *d, unsigned char *bytes)
{
    const struct wd_trial_tensor *x = &t->tensor[d->tensor];
    const size_t size = wd_dtype_size(t->p.tensor[d->tensor].dtype);
    if (d->fault == BEFORE_VIEW)
        memset(bytes + (x->offset - 1) * size, 0, size);
    if (d->fault == BETWEEN_ROWS)
        memset(bytes + (x->offset + x->inner) * size, 0, size);
    if (d->fault == INPUT)
        bytes[x->offset * size] ^= 1;
}

static wd_status run_on_host(void *user, struct wd_trial *t, const wd_launch *launch)
{
    const struct device *d = user;
    double *values[WD_MAX_TENSORS] = {NULL};
    unsigned char *bytes[WD_MAX_TENSORS] = {NULL};
    (void)launch;
    for (size_t i = 0; i < t->p.op->num_tensors; i++) {
        if (!t->p.tensor[i].present)
            continue;
        bytes[i] = malloc(t->tensor[i].bytes);
        values[i] = malloc((wd_tensor_elements(&t->p, i) + 1) * sizeof(double));
        assert_non_null(bytes[i]);
        assert_non_null(values[i]);
        transfer(t, i, bytes[i], false);
        unpack(t, i, bytes[i], values[i], false);
    }
    t->p.op->reference(&t->p, values);
    for (size_t i = 0; i < t->p.op->num_tensors; i++) {
        if (values[i] && i == d->tensor)
            spoil_values(t, d, values[i]);
        if (values[i] && t->p.op->tensors[i].access != WD_IN)
            unpack(t, i, bytes[i], values[i], true);
        if (values[i] && i == d->tensor)
            spoil_bytes(t, d, bytes[i]);
        if (values[i])
            transfer(t, i, bytes[i], true);
        free(values[i]);
        free(bytes[i]);
    }
    return WD_OK;
}

/* ---- What is tried ---- */

/* One small call of each operation, with every optional tensor. Zero sizes are defaults. */
static void make_problem(struct wd_problem *p, const struct wd_op *op, wd_dtype data, bool packed)
{
    _Alignas(max_align_t) unsigned char args[WD_MAX_ARGS] = {0};
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {{"B", 2}, {"T", 70}, {"S", 37},     {"H", 1},       {"HV", 2},     {"K", 20},   {"V", 9},
                 {"D", 5}, {"W", 4},  {"tokens", 6}, {"hidden", 64}, {"group", 16}, {"slots", 5}};
    memcpy(args, &op->args_size, sizeof op->args_size);
    for (size_t i = 0; i < op->num_dims; i++)
        for (size_t k = 0; k < WD_COUNT(sizes); k++)
            if (strcmp(op->dims[i].name, sizes[k].name) == 0 && op->dims[i].offset != WD_DERIVED)
                memcpy(args + op->dims[i].offset, &sizes[k].size, sizeof(size_t));
    for (size_t i = 0; packed && i < op->num_dims; i++) {
        const size_t one = 1, three = 3;
        if (strcmp(op->dims[i].name, "B") == 0)
            memcpy(args + op->dims[i].offset, &one, sizeof one);
        if (strcmp(op->dims[i].name, "N") == 0)
            memcpy(args + op->dims[i].offset, &three, sizeof three);
    }
    for (size_t i = 0; i < op->num_scalars; i++) {
        const int one = 1;
        if (packed && (int)i == op->layout)
            memcpy(args + op->scalars[i].offset, &one, sizeof one);
        if (strcmp(op->scalars[i].name, "l2norm") == 0)
            args[op->scalars[i].offset] = 1;
    }
    for (size_t i = 0; i < op->num_tensors; i++) {
        const wd_tensor t = {.dtype = op->tensors[i].dtypes & WD_TYPE(data) ? data : op->tensors[i].dtype};
        if (op->tensors[i].fill != WD_FILL_OFFSETS || packed)
            memcpy(args + op->tensors[i].offset, &t, sizeof t);
    }
    if (wd_op_check(op, args, false, p))
        fail_msg("%s", wd_last_error());
}

static struct wd_trial *create(const struct wd_problem *p, size_t shift, size_t pad)
{
    const struct wd_trial_options options = {.seed = 7, .shift = shift, .pad = pad};
    struct wd_trial *t;
    if (wd_trial_create(ctx, p, &options, &t))
        fail_msg("%s", wd_last_error());
    return t;
}

static struct wd_trial_result run_and_check(struct wd_trial *t, struct device *d)
{
    struct wd_trial_result result = {0};
    if (wd_trial_run(t, run_on_host, d) || wd_trial_check(t, &result))
        fail_msg("%s", wd_last_error());
    return result;
}

static void check__a_right_device__ok(void **state)
{
    (void)state;
    const wd_dtype types[] = {WD_F32, WD_F16, WD_BF16};
    struct device right = {NONE, 0, 0};
    struct wd_problem p;
    for (const struct wd_op *const *op = wd_ops; *op; op++)
        for (size_t n = 0; n < WD_COUNT(types) * 4; n++) {
            const bool packed = n & 1 && (*op)->cu_seqlens_offset != WD_DERIVED;
            make_problem(&p, *op, types[n / 4], packed);
            struct wd_trial *t = create(&p, n & 2 ? 3 : 0, n & 2 ? 5 : 0);
            const struct wd_trial_result r = run_and_check(t, &right);
            if (!r.ok)
                fail_msg("%s", r.text);
            assert_true(r.error <= r.bar && isfinite(r.max_abs));
            wd_trial_destroy(t);
        }
}

static void create__more_than_the_device_has__refused_before_it_is_made(void **state)
{
    (void)state;
    struct wd_problem p;
    struct wd_trial *t;
    const struct wd_trial_options options = {.seed = 7};
    wd_fp8_quant_args args = {.struct_size = sizeof args, .hidden = 65536};
    args.tokens = (size_t)(ctx->caps.global_bytes / 65536);
    assert_int_equal(wd_op_check(&wd_op_fp8_quant, &args, false, &p), WD_OK);
    assert_int_equal(wd_trial_create(ctx, &p, &options, &t), WD_ENOMEM);
    assert_null(t);
    assert_non_null(strstr(wd_last_error(), "GB of memory"));
}

struct fault_case {
    const char *name;
    const struct wd_op *op;
    struct device device;
    const char *text; /* a part of the result's */
};

static struct fault_case faults[] = {
    {"check__an_element_left_out__names_it",
     &wd_op_chunk_fwd_h,
     {LEFT_OUT, FWDH_h, 397},
     "chunk_fwd_h: h[0][1][0][4][1] is nan"},
    {"check__an_element_off__names_it", &wd_op_chunk_fwd_o, {OFF, FWDO_o, 19}, "chunk_fwd_o: o[0][1][0][1] is "},
    {"check__all_off_by_a_little__tells_the_error",
     &wd_op_recompute_w_u,
     {SCALED, WU_u, 0},
     "recompute_w_u: u: relative error 0.0001"},
    {"check__written_before_a_view__told",
     &wd_op_causal_conv1d,
     {BEFORE_VIEW, CONV_final_state, 0},
     "final_state: written outside its view, 1 elements before"},
    {"check__written_between_rows__told",
     &wd_op_fp8_quant,
     {BETWEEN_ROWS, FP8_q, 0},
     "q: written outside its view, 64 elements after"},
    {"check__input_written__told",
     &wd_op_gdn_prepare,
     {INPUT, PREP_k, 0},
     "k: written in or around its view, 0 elements after"},
    {"check__input_surroundings_written__told", &wd_op_gdn_forward, {BEFORE_VIEW, FWD_v, 0}, "v: written in or around"},
    {"check__one_fp8_code_off__told", &wd_op_fp8_quant, {ONE_CODE, FP8_q, 65}, "q[1][1] is "},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

static void check__a_fault__is_found(void **state)
{
    struct fault_case *f = *state;
    struct wd_problem p;
    make_problem(&p, f->op, f->device.fault == ONE_CODE ? WD_E4M3 : WD_F32, false);
    struct wd_trial *t = create(&p, 1, 3);
    const struct wd_trial_result r = run_and_check(t, &f->device);
    assert_false(r.ok);
    if (!strstr(r.text, f->text))
        fail_msg("'%s' does not say '%s'", r.text, f->text);
    wd_trial_destroy(t);
}

static void reset__after_an_in_place_operation__repeats(void **state)
{
    (void)state;
    struct device right = {NONE, 0, 0};
    struct wd_problem p;
    make_problem(&p, &wd_op_gdn_decode, WD_F32, false);
    struct wd_trial *t = create(&p, 0, 0);
    assert_true(run_and_check(t, &right).ok);
    assert_false(run_and_check(t, &right).ok); /* the state has moved on */
    assert_int_equal(wd_trial_reset(t), WD_OK);
    assert_true(run_and_check(t, &right).ok);
    wd_trial_destroy(t);
}

static void edit_x(void *user, const struct wd_problem *p, double *const *t)
{
    (void)p;
    assert_null(t[FP8_q]);
    t[FP8_x][0] = *(double *)user;
}

static void edit__a_special_value__reaches_device_and_reference(void **state)
{
    (void)state;
    double nan = (double)NAN;
    const struct wd_trial_options options = {.edit = edit_x, .user = &nan};
    struct device right = {NONE, 0, 0};
    struct wd_problem p;
    struct wd_trial *t;
    make_problem(&p, &wd_op_fp8_quant, WD_E4M3, false);
    assert_int_equal(wd_trial_create(ctx, &p, &options, &t), WD_OK);
    assert_true(run_and_check(t, &right).ok);
    assert_true(isnan(t->tensor[FP8_s].want[0]) && isfinite(t->tensor[FP8_s].want[1]));
    wd_trial_destroy(t);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(check__a_right_device__ok),
        cmocka_unit_test(reset__after_an_in_place_operation__repeats),
        cmocka_unit_test(create__more_than_the_device_has__refused_before_it_is_made),
        cmocka_unit_test(edit__a_special_value__reaches_device_and_reference),
    };
    struct CMUnitTest wrong[FAULTS] = {{0}};
    for (size_t i = 0; i < FAULTS; i++) {
        wrong[i].name = faults[i].name;
        wrong[i].test_func = check__a_fault__is_found;
        wrong[i].initial_state = &faults[i];
    }
    return cmocka_run_group_tests_name("trials", others, open_device, close_device) +
           cmocka_run_group_tests_name("trials of a wrong device", wrong, open_device, close_device);
}
