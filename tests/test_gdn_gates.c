/* SPDX-License-Identifier: MIT */
/* Gates at their worst: steep ones among mild ones, and those that forget everything. */
#include "gdn_shapes.h"

/* Of eight tokens one, or all but one, has the gate `value`; the others are mild. */
struct gate_case {
    const char *name;
    double value;
    bool but_one;
};

static const struct gate_case cases[] = {
    {"one of eight -800", -800, false},
    {"all but one of eight -800", -800, true},
    {"all but one of eight -50", -50, true},
    {"one of eight -inf", -INFINITY, false},
    {"all but one of eight -inf", -INFINITY, true},
};

/* The same of an operation's gates. */
struct gate_edit {
    const struct gate_case *c;
    size_t tensor;
    double sign; /* -1: raw gates, which fall as their logarithm rises */
};

static void set_gates(void *user, const struct wd_problem *p, double *const *t)
{
    const struct gate_edit *e = user;
    size_t ext[WD_MAX_RANK];
    wd_tensor_extents(p, e->tensor, ext);
    for (size_t i = 0; i < ext[0] * ext[1] * ext[2]; i++)
        if ((i / ext[2] % 8 == 3) != e->c->but_one)
            t[e->tensor][i] = e->sign * e->c->value;
}

/* Every variant with every case's gates. */
static void check_gates(const struct wd_op *op, const void *args, size_t tensor, double sign)
{
    for (size_t i = 0; i < WD_COUNT(cases); i++)
        for (const struct wd_variant *const *v = op->variants; *v; v++) {
            struct gate_edit edit = {&cases[i], tensor, sign};
            struct wd_trial_result result;
            struct wd_trial *t = run_variant(op, args, *v, set_gates, &edit);
            if (!t)
                continue;
            assert_int_equal(wd_trial_check(t, &result), WD_OK);
            if (!result.ok)
                fail_msg("%s, %s: %s", (*v)->name, cases[i].name, result.text);
            wd_trial_destroy(t);
        }
}

static const struct shape tokens = {"gates", .n = {1, 150, 1, 2, 40, 48, 0}, .initial = true, .final = true};
static const struct shape raw = {"raw gates", .n = {1, 150, 1, 2, 40, 48, 0}, .initial = true, .final = true,
                                 .options = true};

static void gdn_prepare__steep_and_infinite_gates__match_reference(void **unused)
{
    const wd_gdn_prepare_args args = prepare_args(&tokens), raw_args = prepare_args(&raw);
    (void)unused;
    check_gates(&wd_op_gdn_prepare, &args, PREP_gate, 1);
    check_gates(&wd_op_gdn_prepare, &raw_args, PREP_gate, -1);
}

static void gdn_forward__steep_and_infinite_gates__match_reference(void **unused)
{
    const wd_gdn_forward_args args = forward_args(&tokens), raw_args = forward_args(&raw);
    (void)unused;
    check_gates(&wd_op_gdn_forward, &args, FWD_g, 1);
    check_gates(&wd_op_gdn_forward, &raw_args, FWD_g, -1);
}

static void gdn_decode__steep_and_infinite_gates__match_reference(void **unused)
{
    const struct shape few = {"gates", .n = {2, 12, 1, 2, 40, 48, 0}};
    const struct shape few_raw = {"raw gates", .n = {2, 12, 1, 2, 40, 48, 0}, .options = true};
    const wd_gdn_decode_args args = decode_args(&few), raw_args = decode_args(&few_raw);
    (void)unused;
    check_gates(&wd_op_gdn_decode, &args, DEC_g, 1);
    check_gates(&wd_op_gdn_decode, &raw_args, DEC_g, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gdn_prepare__steep_and_infinite_gates__match_reference),
        cmocka_unit_test(gdn_forward__steep_and_infinite_gates__match_reference),
        cmocka_unit_test(gdn_decode__steep_and_infinite_gates__match_reference),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
