/* SPDX-License-Identifier: MIT */
/* The tuner on a real device: with an operation of the tests' own, some of whose variants are planted, and through the
 * API. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "dims.h"
#include "file.h"
#include "status.h"
#include "tuner.h"

static char place[256]; /* kernels and files of the tests' own, as long as the program lives */

static const char *path_of(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", place, name);
    return path;
}

/* ---- The operation: y = 2 x ---- */

struct args {
    size_t struct_size, n;
    wd_tensor x, y;
};

static const struct wd_dim_desc dims[] = {{"n", offsetof(struct args, n), WD_DIM_ARG}};
static const struct wd_tensor_desc tensors[] = {
    {"x", offsetof(struct args, x), WD_IN, false, true, WD_TYPES_DATA, WD_F32, WD_FILL_NORMAL, {{1, {0}}}},
    {"y", offsetof(struct args, y), WD_OUT, false, true, WD_TYPES_DATA, WD_F32, WD_FILL_NORMAL, {{1, {0}}}},
};

static const char kernels[] =
    "#include \"common.cl\"\n"
    "#define BEGIN(name) __kernel void name(IN(T_X, x), OUT(T_Y, y), const ulong n) { const ulong i = "
    "get_global_id(0)\n"
    "#define WRITE ST(T_Y, y + y_at.x, i, 2.0f * LD(T_X, x + x_at.x, i)) \n"
    "#ifdef KERNEL_honest\n" /* right, and the slower the larger WORK is */
    "BEGIN(honest); uint h = (uint)i; for (int k = 0; k < WORK; k++) h = h * 1664525u + 1013904223u;\n"
    "if (i < n && h != 7u) WRITE; }\n"
    "#endif\n#ifdef KERNEL_lazy\n" /* leaves the second half out */
    "BEGIN(lazy); if (i < n / 2) WRITE; }\n"
    "#endif\n#ifdef KERNEL_late\n" /* the same, of large problems only */
    "BEGIN(late); if (i < n && (n < 20000 || i < n / 2)) WRITE; }\n"
    "#endif\n#ifdef KERNEL_stray\n" /* one element too many */
    "BEGIN(stray); if (i <= n) ST(T_Y, y + y_at.x, i, i < n ? 2.0f * LD(T_X, x + x_at.x, i) : 0.0f); }\n"
    "#endif\n#ifdef KERNEL_broken\n"
    "BEGIN(broken); no such thing; }\n"
    "#endif\n";

static const struct wd_param work[] = {{"work", (const int[]){10, 100, 2000, 0}}, {NULL, NULL}};

static void model(const struct wd_caps *c, const struct wd_problem *p, int *param)
{
    (void)c;
    (void)p;
    param[0] = 2000;
}

static void grid(const struct wd_caps *c, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)c;
    (void)param;
    *g = (struct wd_grid){.dims = 1, .local = {1}, .groups = {p->dim[0] + 1}};
}

static wd_status check(struct wd_problem *p)
{
    (void)p;
    return WD_OK;
}

static double flops(const struct wd_problem *p)
{
    return (double)p->dim[0];
}

static void reference(const struct wd_problem *p, double *const *t)
{
    for (size_t i = 0; i < p->dim[0]; i++)
        t[1][i] = 2 * t[0][i];
}

static const struct wd_variant honest = {
    .name = "honest", .file = "twice.cl", .kernel = "honest", .params = work, .model = model, .grid = grid};
#define PLANTED(variant)                                                                                               \
    static const struct wd_variant variant = {.name = #variant, .file = "twice.cl", .kernel = #variant, .grid = grid}
PLANTED(lazy);
PLANTED(late);
PLANTED(stray);
PLANTED(broken);
static const struct wd_param as_much_work[] = {{"work", (const int[]){2000, 2001, 0}}, {NULL, NULL}};
static const struct wd_variant alike = {
    .name = "alike", .file = "twice.cl", .kernel = "honest", .params = as_much_work, .model = model, .grid = grid};
static const struct wd_variant *const even_variants[] = {&alike, NULL};
static const struct wd_variant *const variants[] = {&honest, &lazy, &stray, &broken, &late, NULL};
static const struct wd_variant *const wrong_variants[] = {&lazy, &stray, &broken, NULL};

enum { CANDIDATES = 7 };

#define OPERATION(list)                                                                                                \
    {                                                                                                                  \
        .id = (wd_op_id)99, .name = "fp8_quant", .args_size = sizeof(struct args), .dims = dims, .num_dims = 1,        \
        .tensors = tensors, .num_tensors = 2, .layout = -1, .workspace_offset = WD_DERIVED,                            \
        .cu_seqlens_offset = WD_DERIVED, .variants = list, .check = check, .flops = flops, .reference = reference      \
    }
static const struct wd_op twice = OPERATION(variants), wrong = OPERATION(wrong_variants),
                          even = OPERATION(even_variants);

static struct wd_problem problem_of(const struct wd_op *op, size_t n)
{
    const struct args a = {.struct_size = sizeof a, .n = n};
    struct wd_problem p;
    assert_int_equal(wd_op_check(op, &a, false, &p), WD_OK);
    return p;
}

/* ---- Contexts ---- */

static cl_device_id device;
static cl_context context;

static int open_device(void **state)
{
    cl_int err;
    char cl_dir[512];
    (void)state;
    snprintf(place, sizeof place, "%s/wd-tuner-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    /* The tests plant kernels of known speed: on a GPU what they do is short beside a launch. */
    if (!mkdtemp(place) || (wd_device_find("cpu", &device) && wd_device_find(NULL, &device)))
        return -1;
    snprintf(cl_dir, sizeof cl_dir, "%s/../../cl", TEST_DATA);
    DIR *dir = opendir(cl_dir);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (strstr(d->d_name, ".cl")) {
            char target[800];
            snprintf(target, sizeof target, "%s/%s", cl_dir, d->d_name);
            if (symlink(target, path_of(d->d_name)))
                return -1;
        }
    FILE *f = dir ? fopen(path_of("twice.cl"), "w") : NULL;
    if (!f)
        return -1;
    closedir(dir);
    fputs(kernels, f);
    fclose(f);
    setenv("WARPDRIVE_KERNEL_DIR", place, 1);
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    return err;
}

static int close_device(void **state)
{
    char command[300];
    (void)state;
    clReleaseContext(context);
    snprintf(command, sizeof command, "rm -rf '%s'", place);
    return system(command);
}

static wd_context *open_context(wd_tune_mode tune, unsigned limit_ms)
{
    wd_context *ctx;
    const wd_context_desc desc = {.struct_size = sizeof desc,
                                  .context = context,
                                  .device = device,
                                  .tuning_file = path_of("tuning.tune"),
                                  .tune = tune,
                                  .tune_limit_ms = limit_ms};
    if (wd_context_create(&desc, &ctx))
        fail_msg("%s", wd_last_error());
    wd_records_free(&ctx->tuning.shipped); /* every class is unknown, whatever is shipped */
    return ctx;
}

static int forget_files(void **state)
{
    (void)state;
    unlink(path_of("tuning.tune"));
    unlink(path_of("tuning.tune.journal"));
    return 0;
}

/* ---- A run of the tuner ---- */

struct watcher {
    size_t stop_after; /* trials; 0: never */
    size_t begun, ended, unusable;
    char why[8][160];
};

static bool watch(void *user, const struct wd_tune_event *e)
{
    struct watcher *w = user;
    if (!e->choice)
        return true;
    if (e->ns == 0) {
        w->begun++;
        return true;
    }
    if (isinf(e->ns) && w->unusable < WD_COUNT(w->why))
        snprintf(w->why[w->unusable++], sizeof w->why[0], "%s: %s", e->choice, e->why);
    return ++w->ended != w->stop_after;
}

static wd_status run(const struct wd_op *op, size_t n, struct wd_tune_options options, struct watcher *w,
                     struct wd_tune_result *r)
{
    wd_context *ctx = open_context(WD_TUNE_NEVER, 0);
    const struct wd_problem p = problem_of(op, n);
    struct wd_tuner t;
    options.watch = watch;
    options.user = w;
    if (wd_tuner_init(&t, ctx, false))
        fail_msg("%s", wd_last_error());
    wd_status st = wd_tuner_run(&t, &p, &options, r);
    if (!st && r->tried)
        st = wd_tuner_save(&t, &p, r);
    wd_tuner_fini(&t);
    wd_context_destroy(ctx);
    return st;
}

static const struct wd_tune_options thorough = {.budget_ns = 300e9, .trial_ns = 1e6, .check_ns = 1e9, .confirm = true};
static const struct wd_tune_options brief = {.budget_ns = 300e9, .trial_ns = 1e6, .check_ns = 1e9};

static void assert_saved(const char *text)
{
    char *got;
    assert_int_equal(wd_file_read(path_of("tuning.tune"), &got), WD_OK);
    if (!got || !strstr(got, text))
        fail_msg("'%s' is not in the tuning file:\n%s", text, got ? got : "(none)");
    free(got);
}

static void run__planted_variants__never_win(void **state)
{
    struct watcher w = {0};
    struct wd_tune_result r;
    (void)state;
    assert_int_equal(run(&twice, 5000, thorough, &w, &r), WD_OK);
    assert_true(r.ended);
    assert_int_equal(w.begun, CANDIDATES);
    assert_int_equal(w.unusable, 3);
    assert_true(strstr(w.why[0], "y[2500] is") || strstr(w.why[1], "y[2500] is") || strstr(w.why[2], "y[2500] is"));
    assert_true(strstr(w.why[0], "outside its view") || strstr(w.why[1], "outside its view") ||
                strstr(w.why[2], "outside its view"));
    assert_ptr_not_equal(r.best.variant, &lazy);
    assert_ptr_not_equal(r.best.variant, &stray);
    assert_false(r.best.variant == &honest && r.best.param[0] == 2000); /* it is right, but a hundred times slower */
    assert_true(r.turns.pairs > 0 && r.turns.ratio > 1);
    assert_saved("x model (");
    assert_saved("\tx=f32 y=f32 vec=");
}

/* Two kernels of one speed: whichever has the luck, only a comparison that says so for sure may change the choice. */
static void run__another_choice__only_if_surely_faster(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct watcher w = {0};
        struct wd_tune_result r;
        forget_files(NULL);
        assert_int_equal(run(&even, 5000, thorough, &w, &r), WD_OK);
        assert_true(r.ended);
        const bool changed = r.best.param[0] != r.model.param[0];
        assert_int_equal(changed, r.turns.pairs > 0 && r.turns.low > 1);
        assert_int_equal(r.lost, r.turns.pairs > 0 && r.turns.low <= 1);
    }
}

/* Right on what is small enough for the reference, wrong on the problem itself. */
static void run__wrong_on_large_problems_only__does_not_win(void **state)
{
    struct wd_tune_options quick = thorough;
    struct watcher w = {0};
    struct wd_tune_result r;
    (void)state;
    quick.check_ns = 1e6;
    assert_int_equal(run(&twice, 40000, quick, &w, &r), WD_OK);
    assert_int_equal(w.unusable, 3); /* `late` passed the check */
    assert_ptr_equal(r.best.variant, &honest);
    assert_int_not_equal(r.best.param[0], 2000);
}

static void run__nothing_is_right__is_an_error_and_no_record(void **state)
{
    struct watcher w = {0};
    struct wd_tune_result r;
    (void)state;
    assert_int_equal(run(&wrong, 5000, brief, &w, &r), WD_ENOTSUP);
    assert_int_equal(access(path_of("tuning.tune"), F_OK), -1);
}

static void run__stopped_and_resumed__repeats_no_trial(void **state)
{
    struct watcher first = {.stop_after = 3}, second = {0}, third = {0};
    struct wd_tune_result r;
    (void)state;
    assert_int_equal(run(&twice, 5000, brief, &first, &r), WD_OK);
    assert_false(r.ended);
    assert_int_equal(first.begun, 3);
    assert_int_equal(run(&twice, 5000, brief, &second, &r), WD_OK);
    assert_true(r.ended);
    assert_int_equal(r.tried, CANDIDATES);
    assert_int_equal(second.begun, CANDIDATES - 3);
    assert_int_equal(run(&twice, 5000, brief, &third, &r), WD_OK);
    assert_int_equal(third.begun, 0);
    third = (struct watcher){.stop_after = 1};
    assert_int_equal(run(&twice, 6000, brief, &third, &r), WD_OK); /* another size: nothing is known of it */
    assert_int_equal(third.begun, 1);
}

/* What a kill in the middle of a trial leaves is the start of that trial. */
static void run__killed_in_a_trial__repeats_that_one(void **state)
{
    struct watcher first = {.stop_after = 3}, second = {0};
    struct wd_tune_result r;
    char *text;
    (void)state;
    assert_int_equal(run(&twice, 5000, brief, &first, &r), WD_OK);
    assert_int_equal(wd_file_read(path_of("tuning.tune.journal"), &text), WD_OK);
    char *end = strrchr(text, '\n');
    assert_non_null(end);
    *end = '\0';
    assert_non_null(strrchr(text, '\n'));
    assert_int_equal(truncate(path_of("tuning.tune.journal"), strrchr(text, '\n') + 1 - text), 0);
    free(text);
    assert_int_equal(run(&twice, 5000, brief, &second, &r), WD_OK);
    assert_int_equal(r.tried, CANDIDATES);
    assert_int_equal(second.begun, CANDIDATES - 2);
}

static void run__no_budget__tries_one_candidate(void **state)
{
    struct wd_tune_options none = brief;
    struct watcher w = {0};
    struct wd_tune_result r;
    (void)state;
    none.budget_ns = 0;
    assert_int_equal(run(&twice, 5000, none, &w, &r), WD_OK);
    assert_int_equal(w.begun, 1);
    assert_false(r.ended);
    assert_ptr_equal(r.best.variant, &honest);
    assert_int_equal(r.best.param[0], 2000);
}

/* ---- WD_TUNE_MISSING ---- */

static wd_counters counters_of(const wd_context *ctx)
{
    wd_counters c = {.struct_size = sizeof c};
    assert_int_equal(wd_context_counters(ctx, &c), WD_OK);
    return c;
}

enum { TOKENS = 3, HIDDEN = 256 };

static const wd_fp8_quant_args fp8 = {.struct_size = sizeof fp8, .tokens = TOKENS, .hidden = HIDDEN};

static void never__an_unknown_class__is_the_models(void **state)
{
    (void)state;
    wd_context *ctx = open_context(WD_TUNE_NEVER, 0);
    assert_int_equal(wd_prepare(ctx, WD_OP_FP8_QUANT, &fp8), WD_OK);
    const wd_counters c = counters_of(ctx);
    assert_int_equal(c.tuning_measured, 0);
    assert_int_equal(c.tuning_model, 1);
    assert_int_equal(access(path_of("tuning.tune"), F_OK), -1);
    wd_context_destroy(ctx);
}

static void missing__an_unknown_class__is_measured_once_and_kept(void **state)
{
    char text[4096];
    (void)state;
    wd_context *ctx = open_context(WD_TUNE_MISSING, 1);
    assert_int_equal(wd_prepare(ctx, WD_OP_FP8_QUANT, &fp8), WD_OK);
    assert_int_equal(wd_prepare(ctx, WD_OP_FP8_QUANT, &fp8), WD_OK);
    assert_int_equal(counters_of(ctx).tuning_measured, 1);
    assert_int_equal(wd_query(ctx, WD_OP_FP8_QUANT, &fp8, false, text, sizeof text), WD_OK);
    assert_non_null(strstr(text, "measured"));
    wd_context_destroy(ctx);
    assert_saved("fp8_quant\tdevice=\"");
    assert_int_equal(access(path_of("tuning.tune.journal"), F_OK), -1);

    ctx = open_context(WD_TUNE_MISSING, 1); /* the next process: known */
    assert_int_equal(wd_prepare(ctx, WD_OP_FP8_QUANT, &fp8), WD_OK);
    const wd_counters c = counters_of(ctx);
    assert_int_equal(c.tuning_measured, 0);
    assert_int_equal(c.tuning_user, 1);
    wd_context_destroy(ctx);
}

static void *prepare(void *user)
{
    return (void *)(intptr_t)wd_prepare(user, WD_OP_FP8_QUANT, &fp8);
}

static void missing__many_threads__measure_once(void **state)
{
    pthread_t thread[4];
    (void)state;
    wd_context *ctx = open_context(WD_TUNE_MISSING, 1);
    for (size_t i = 0; i < WD_COUNT(thread); i++)
        assert_int_equal(pthread_create(&thread[i], NULL, prepare, ctx), 0);
    for (size_t i = 0; i < WD_COUNT(thread); i++) {
        void *status;
        pthread_join(thread[i], &status);
        assert_null(status);
    }
    assert_int_equal(counters_of(ctx).tuning_measured, 1);
    wd_context_destroy(ctx);
}

/* An operation in place, called once, happens once: tuning runs on buffers of its own. */
static void missing__the_callers_state__is_updated_once(void **state)
{
    enum { D = 8, W = 3 };
    float x[D], weight[D * W], conv_state[D * (W - 1)], got[D * (W - 1)];
    cl_mem x_mem, weight_mem, state_mem, out_mem;
    cl_int err;
    (void)state;
    for (int i = 0; i < D; i++)
        x[i] = (float)i + 100;
    for (int i = 0; i < D * W; i++)
        weight[i] = 1;
    for (int i = 0; i < D * (W - 1); i++)
        conv_state[i] = (float)i;
    wd_context *ctx = open_context(WD_TUNE_MISSING, 1);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &err);
    assert_int_equal(err, CL_SUCCESS);
    assert_int_equal(wd_buffer_create(ctx, sizeof x, x, &x_mem), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof weight, weight, &weight_mem), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof conv_state, conv_state, &state_mem), WD_OK);
    assert_int_equal(wd_buffer_create(ctx, sizeof x, NULL, &out_mem), WD_OK);
    const wd_causal_conv1d_update_args a = {.struct_size = sizeof a,
                                            .B = 1,
                                            .D = D,
                                            .W = W,
                                            .x = {.mem = x_mem},
                                            .weight = {.mem = weight_mem},
                                            .state = {.mem = state_mem},
                                            .out = {.mem = out_mem}};
    const wd_launch launch = {.queue = queue};
    if (wd_causal_conv1d_update(ctx, &a, &launch))
        fail_msg("%s", wd_last_error());
    assert_int_equal(clEnqueueReadBuffer(queue, state_mem, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL), CL_SUCCESS);
    for (int d = 0; d < D; d++) {
        assert_true(got[d * (W - 1)] == conv_state[d * (W - 1) + 1]);
        assert_true(got[d * (W - 1) + 1] == x[d]);
    }
    const wd_counters c = counters_of(ctx);
    assert_int_equal(c.tuning_measured, 1);
    wd_buffer_destroy(x_mem);
    wd_buffer_destroy(weight_mem);
    wd_buffer_destroy(state_mem);
    wd_buffer_destroy(out_mem);
    clReleaseCommandQueue(queue);
    wd_context_destroy(ctx);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, forget_files)
    const struct CMUnitTest tests[] = {
        TEST(run__planted_variants__never_win),
        TEST(run__another_choice__only_if_surely_faster),
        TEST(run__wrong_on_large_problems_only__does_not_win),
        TEST(run__nothing_is_right__is_an_error_and_no_record),
        TEST(run__stopped_and_resumed__repeats_no_trial),
        TEST(run__killed_in_a_trial__repeats_that_one),
        TEST(run__no_budget__tries_one_candidate),
        TEST(never__an_unknown_class__is_the_models),
        TEST(missing__an_unknown_class__is_measured_once_and_kept),
        TEST(missing__many_threads__measure_once),
        TEST(missing__the_callers_state__is_updated_once),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
