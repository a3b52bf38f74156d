/* SPDX-License-Identifier: MIT */
/*
 * gdn_forward on a device over the grid of widths, lengths, heads, types and gates, and parameters that the model does
 * not pick.
 *
 * A kernel is compiled for each K, V, type and set of options, which takes most of the time; lengths, heads and gates
 * are free. So the everyday grid gives each width one set of options, dealt out so that each meets each.
 * WARPDRIVE_TEST_ALL=1 runs the whole grid, which takes hours, and WARPDRIVE_TEST_ALL=3/100 the third of 100 slices of
 * it; `make test-grid` runs them all (tests/grid.sh).
 */
#include "gdn_shapes.h"

/* ---- The grid ---- */

static const size_t lengths[] = {1, 37, 63, 64, 65, 100, 127, 200, 1000};
static const size_t widths[] = {1, 9, 60, 64, 96, 100, 128, 160, 192, 256};

static void check_lengths(struct shape *s, const char *only, bool all)
{
    for (size_t i = 0; i < WD_COUNT(lengths); i++)
        for (int gates = WD_GATES_MILD; gates <= WD_GATES_ZERO; gates++) {
            if (!all && lengths[i] == 1000 && s->n.K * s->n.V > 64 * 64 && gates != WD_GATES_MILD)
                continue; /* the reference would take too long */
            s->n.T = lengths[i];
            check_forward(s, only, (enum wd_gates)gates, NULL);
        }
}

/* What a kernel is compiled for: widths, type, states, packed or not. A step that shares no factor with their number
 * mixes them, so that any few slices are a fair sample. */
enum { COMBINATIONS = 10 * 10 * 3 * 2 * 2, STEP = 487 };

static void check_combination(size_t i)
{
    static const wd_dtype types[] = {WD_F32, WD_F16, WD_BF16};
    struct shape s = {"grid", .n = {1, 0, 1, 0, widths[i % 10], widths[i / 10 % 10], i / 600 ? 3 : 0}};
    s.data = types[i / 100 % 3];
    s.initial = s.final = i / 300 % 2;
    for (s.n.HV = 1; s.n.HV <= 4; s.n.HV *= 2)
        check_lengths(&s, NULL, true);
}

/* "1" or "3/100". */
static void check_slice(const char *slice)
{
    char *end;
    const size_t first = strtoul(slice, &end, 10), slices = *end == '/' ? strtoul(end + 1, &end, 10) : 1;
    if (*end || first < 1 || first > slices)
        fail_msg("WARPDRIVE_TEST_ALL: '%s' is neither 1 nor a slice like 3/100", slice);
    for (size_t i = first - 1; i < COMBINATIONS; i += slices)
        check_combination(i * STEP % COMBINATIONS);
}

static void gdn_forward__grid__matches_recurrence(void **unused)
{
    static const wd_dtype types[] = {WD_F32, WD_BF16, WD_F32, WD_F16, WD_F32};
    (void)unused;
    if (getenv("WARPDRIVE_TEST_ALL")) {
        check_slice(getenv("WARPDRIVE_TEST_ALL"));
        return;
    }
    for (size_t i = 0; i < WD_COUNT(widths); i++) {
        struct shape s = {"grid", .n = {1, 0, 1, (size_t)1 << i % 3, widths[i], widths[i * 7 % 10], 0}};
        s.data = types[i % 5];
        s.initial = s.final = i % 2;
        s.n.N = i % 4 > 1 ? 3 : 0;
        check_lengths(&s, ctx->caps.cpu && i % 3 ? "cpu" : NULL, false); /* a chain is four kernels to compile */
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
    if (getenv("WARPDRIVE_TEST_ALL"))
        skip(); /* no part of the grid */
    assert_true(sweep_check("sweep", &wd_op_gdn_prepare, &prepare, 3, &options) > 0);
    assert_true(sweep_check("sweep", &wd_op_gdn_forward, &forward, 5, &options) > 0 || !ctx->caps.cpu);
    assert_true(sweep_check("sweep", &wd_op_gdn_decode, &decode, 3, &options) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gdn_forward__grid__matches_recurrence),
        cmocka_unit_test(gdn__other_parameters__match_reference),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
