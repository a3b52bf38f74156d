/* SPDX-License-Identifier: MIT */
/* warpdrive demo: the operations and their chain on published and model-sized data, checked and timed. `make run`. */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "demo_chain.h"
#include "compare.h"
#include "context.h"
#include "convert.h"
#include "dims.h"
#include "trial.h"
#include "vectors.h"

enum { BUDGET_NS = 200000000 };

static const char chain_name[] = "chain of three";
static const double published_tolerance = 1e-3; /* absolute and relative, for one element */

/* ---- The table ---- */

enum { COL_OP, COL_SHAPE, COL_VARIANT, COL_GROUP, COL_COLD, COL_CACHED, COL_TIME, COL_RATE, COL_ERROR, COL_RESULT };

static const struct cli_column columns[] = {
    [COL_OP] = {"operation", false, 0},
    [COL_SHAPE] = {"shape", false, 60},
    [COL_VARIANT] = {"variant", false, 12},
    [COL_GROUP] = {"group", true, 0},
    [COL_COLD] = {"cold ms", true, 0},
    [COL_CACHED] = {"cached ms", true, 0},
    [COL_TIME] = {"time", true, 8},
    [COL_RATE] = {"rate", true, 14},
    [COL_ERROR] = {"error", true, 7},
    [COL_RESULT] = {"result", false, 0},
    {NULL, false, 0},
};

struct demo {
    wd_context *ctx;
    wd_context *second; /* on the same OpenCL context, with nothing in memory: what the disk cache gives */
    struct wd_meter meter;
    struct cli_table table;
    size_t ok, failed;
};

/* One line of the table. */
struct line {
    const char *op, *shape, *variant;
    char group[32];
    double cold_ns, cached_ns; /* first call, less the time of the work itself; 0: was not one */
    struct wd_timing time;
    double bytes, flops, error;
    const char *fault; /* NULL: ok */
};

static void print_line(struct demo *d, const struct line *l)
{
    char number[CLI_NUMBER];
    const double ns = l->time.median_ns;
    cli_table_cell(&d->table, COL_OP, CLI_PLAIN, "%s", l->op);
    cli_table_cell(&d->table, COL_SHAPE, CLI_PLAIN, "%s", l->shape);
    cli_table_cell(&d->table, COL_VARIANT, CLI_PLAIN, "%s", l->variant);
    cli_table_cell(&d->table, COL_GROUP, CLI_PLAIN, "%s", l->group);
    cli_table_cell(&d->table, COL_COLD, CLI_PLAIN, l->cold_ns > 0 ? "%.0f" : "-", l->cold_ns * 1e-6);
    cli_table_cell(&d->table, COL_CACHED, CLI_PLAIN, l->cached_ns > 0 ? "%.1f" : "-", l->cached_ns * 1e-6);
    if (ns > 0) {
        const bool arithmetic = l->flops > 8.0 * l->bytes;
        cli_table_cell(&d->table, COL_TIME, CLI_PLAIN, "%s", cli_time(ns, number));
        cli_table_cell(&d->table, COL_RATE, CLI_PLAIN, "%.1f %s", (arithmetic ? l->flops : l->bytes) / ns,
                       arithmetic ? "GFLOP/s" : "GB/s");
    }
    cli_table_cell(&d->table, COL_ERROR, CLI_PLAIN, "%.1e", l->error);
    if (l->fault)
        cli_table_cell(&d->table, COL_RESULT, CLI_RED, "FAIL: %s", l->fault);
    else
        cli_table_cell(&d->table, COL_RESULT, CLI_GREEN, "ok");
    cli_table_row(&d->table);
    *(l->fault ? &d->failed : &d->ok) += 1;
}

/* The line of a call that ended with `st`. What the driver refuses is that call's fault; the next one may do. */
static wd_status finish_line(struct demo *d, struct line *l, wd_status st)
{
    const bool fault = st == WD_EBUILD || st == WD_EOPENCL || st == WD_ENOTSUP;
    if (fault)
        l->fault = wd_last_error();
    if (st && !fault)
        return st;
    print_line(d, l);
    return WD_OK;
}

/* ---- Single operations ---- */

static uint64_t compiles(const wd_context *ctx)
{
    wd_counters c = {.struct_size = sizeof c};
    return wd_context_counters(ctx, &c) ? 0 : c.compiles;
}

static uint64_t loads(const wd_context *ctx)
{
    wd_counters c = {.struct_size = sizeof c};
    return wd_context_counters(ctx, &c) ? 0 : c.disk_hits;
}

static wd_status run_with(void *user, struct wd_trial *t, const wd_launch *launch)
{
    return wd_op_call(user, t->p.op, &t->args, launch);
}

static wd_status run_again(void *user)
{
    struct wd_trial *t = user;
    const wd_launch launch = {.queue = t->queue};
    return wd_op_call(t->ctx, t->p.op, &t->args, &launch);
}

/* Host time of a first call: whatever there was to compile or load, and the work. */
static wd_status first_call(wd_context *ctx, struct wd_trial *t, double *ns, bool *compiled, bool *loaded)
{
    const uint64_t built = compiles(ctx), read = loads(ctx), start = wd_now_ns();
    const wd_status st = wd_trial_run(t, run_with, ctx);
    *ns = (double)(wd_now_ns() - start);
    *compiled = compiles(ctx) > built;
    *loaded = loads(ctx) > read;
    return st;
}

/* Times first calls in this context and, after a compilation, in the second; then the work itself. */
static wd_status time_trial(struct demo *d, struct wd_trial *t, struct line *l)
{
    bool compiled, loaded, ignored;
    double first, again = 0;
    wd_status st = first_call(d->ctx, t, &first, &compiled, &loaded);
    if (!st && compiled)
        st = first_call(d->second, t, &again, &ignored, &loaded);
    if (!st)
        st = wd_meter_time(&d->meter, run_again, t, BUDGET_NS, 0, &l->time);
    const double cached = compiled ? again : first;
    l->cold_ns = compiled ? fmax(first - l->time.min_ns, 1.0) : 0;
    l->cached_ns = loaded ? fmax(cached - l->time.min_ns, 1.0) : 0;
    return st;
}

/* What the call runs with. */
static wd_status describe(struct demo *d, const struct wd_trial *t, struct line *l)
{
    const struct wd_plan *plan;
    const wd_status st = wd_plan_get(d->ctx, &t->p, &plan);
    if (st)
        return st;
    struct wd_grid g = {0};
    size_t n = 0;
    l->variant = plan->choice.variant->name;
    if (plan->kernel)
        plan->choice.variant->grid(&d->ctx->caps, &t->p, plan->choice.param, &g);
    for (cl_uint i = 0; i < g.dims && n < sizeof l->group; i++)
        n += (size_t)snprintf(l->group + n, sizeof l->group - n, i ? "x%zu" : "%zu", g.local[i]);
    l->bytes = t->p.bytes;
    l->flops = t->p.op->flops(&t->p);
    return WD_OK;
}

/* An output of the device, packed, as values. The caller frees it. */
static wd_status read_output(const struct wd_trial *t, size_t i, double **out)
{
    const struct wd_trial_tensor *x = &t->tensor[i];
    const wd_dtype dtype = t->p.tensor[i].dtype;
    const size_t n = wd_tensor_elements(&t->p, i), size = wd_dtype_size(dtype);
    void *host = malloc(n * size + 1);
    *out = malloc((n + 1) * sizeof **out);
    wd_status st = host && *out ? WD_OK : wd_fail(WD_ENOMEM, "demo: memory is exhausted");
    const cl_int err =
        st || n == 0 ? 0
                     : clEnqueueReadBuffer(t->queue, x->mem, CL_TRUE, x->offset * size, n * size, host, 0, NULL, NULL);
    if (err)
        st = wd_fail_cl(err, "demo", "clEnqueueReadBuffer");
    if (!st)
        wd_to_double(dtype, host, n, *out);
    free(host);
    return st;
}

/* Against the published outputs; bytes must be the same ones. */
static wd_status check_published(const struct wd_trial *t, const struct vector_case *vectors, struct line *l,
                                 char *text, size_t size)
{
    wd_status st = WD_OK;
    for (size_t i = 0; i < t->p.op->num_tensors && !st; i++) {
        if (!vectors->file[i].path || t->p.op->tensors[i].access == WD_IN)
            continue;
        const double allowed = wd_dtype_size(t->p.tensor[i].dtype) == 1 ? 0 : published_tolerance;
        double *got = NULL, *want = vectors_values(vectors, i);
        st = want ? read_output(t, i, &got) : wd_fail(WD_ENOMEM, "demo: memory is exhausted");
        if (!st) {
            const struct difference x = compare_arrays(want, got, wd_tensor_elements(&t->p, i), allowed, allowed);
            if (x.bad > 0 && !l->fault) {
                snprintf(text, size, "%s: %zu elements differ from the published ones, the first is %zu",
                         t->p.op->tensors[i].name, x.bad, x.first);
                l->fault = text;
            }
        }
        free(got);
        free(want);
    }
    return st;
}

/* A trial's inputs from files. */
static void use_files(void *user, const struct wd_problem *p, double *const *t)
{
    const struct vector_case *vectors = user;
    for (size_t i = 0; i < p->op->num_tensors; i++)
        if (t[i] && vectors->file[i].path)
            wd_to_double(p->tensor[i].dtype, vectors->file[i].npy.data, wd_tensor_elements(p, i), t[i]);
}

/* `vectors`: NULL for random inputs. */
static wd_status run_operation(struct demo *d, const struct wd_problem *p, struct vector_case *vectors)
{
    const struct wd_trial_options options = {
        .seed = 1,
        .queue = wd_context_queue(d->ctx),
        .edit = vectors ? use_files : NULL,
        .user = vectors,
    };
    char shape[SHAPE_TEXT], text[192];
    struct line line = {.op = p->op->name, .shape = shape_text(p, shape), .variant = "-"};
    struct wd_trial_result result;
    struct wd_trial *trial = NULL;
    cli_progress("%s %s", p->op->name, shape);
    wd_status st = wd_trial_create(d->ctx, p, &options, &trial);
    if (!st && !(st = time_trial(d, trial, &line)) && !(st = describe(d, trial, &line)) &&
        !(st = wd_trial_reset(trial)) && !(st = wd_trial_run(trial, NULL, NULL)) &&
        !(st = wd_trial_check(trial, &result))) {
        line.error = result.error;
        line.fault = result.ok ? NULL : result.text;
        st = vectors ? check_published(trial, vectors, &line, text, sizeof text) : WD_OK;
    }
    wd_trial_destroy(trial);
    return finish_line(d, &line, st);
}

/* ---- The chain ---- */

static wd_status run_chain(struct demo *d, const struct wd_problem *p, double *const *value)
{
    char shape[SHAPE_TEXT];
    struct line line = {.op = chain_name, .shape = shape_text(p, shape), .variant = "w_u, h, o"};
    struct chain_result result;
    cli_progress("%s %s", line.op, shape);
    const uint64_t before = compiles(d->ctx);
    const wd_status st = chain_run(d->ctx, p, value, &d->meter, &result);
    line.cold_ns = compiles(d->ctx) > before ? fmax(result.first_ns - result.time.min_ns, 1.0) : 0;
    line.time = result.time;
    line.bytes = result.bytes;
    line.flops = result.flops;
    line.error = result.error;
    line.fault = result.ok ? NULL : result.text;
    return finish_line(d, &line, st);
}

/* Inputs from files or, where there are none, random with mild gates, rounded to f32. */
static wd_status chain_on(struct demo *d, const struct wd_problem *p, const struct vector_case *vectors)
{
    double *value[WD_MAX_TENSORS] = {NULL};
    wd_status st = WD_OK;
    for (size_t i = 0; i < p->op->num_tensors && !st; i++) {
        if (!p->tensor[i].present || p->op->tensors[i].access == WD_OUT)
            continue;
        const size_t n = wd_tensor_elements(p, i);
        value[i] = vectors ? vectors_values(vectors, i) : calloc(n + 1, sizeof *value[i]);
        if (!value[i])
            st = wd_fail(WD_ENOMEM, "demo: memory is exhausted");
        else if (!vectors)
            wd_fill(p, i, WD_GATES_MILD, 1, value);
        for (size_t k = 0; k < n && !st; k++)
            value[i][k] = wd_round(WD_F32, value[i][k]);
    }
    if (!st)
        st = run_chain(d, p, value);
    for (size_t i = 0; i < WD_MAX_TENSORS; i++)
        free(value[i]);
    return st;
}

/* ---- What is run ---- */

static wd_status run_set(struct demo *d, const char *data, const struct vector_set *set)
{
    const bool chained = !strcmp(set->op, wd_op_gdn_forward.name);
    char **names;
    size_t count;
    wd_status st = vectors_cases(data, set, &names, &count);
    for (size_t i = 0; i < count && !st; i++) {
        struct vector_case vectors;
        st = vectors_read(data, set, names[i], &vectors);
        if (!st)
            st = chained ? chain_on(d, &vectors.p, &vectors) : run_operation(d, &vectors.p, &vectors);
        vectors_free(&vectors);
    }
    vectors_free_cases(names, count);
    return st;
}

static wd_status problem_of(const struct wd_op *op, const char *words, struct wd_problem *p)
{
    struct shape shape;
    shape_init(&shape, op);
    const wd_status st = shape_parse(&shape, words);
    return st ? st : wd_op_check(op, &shape.args, false, p);
}

static wd_status run_models(struct demo *d)
{
    struct wd_problem p;
    wd_status st = WD_OK;
    for (const struct op_case *c = op_cases; c->op && !st; c++)
        if (c->use & CASE_DEMO && !(st = problem_of(wd_op_by_name(c->op), c->shape, &p)))
            st = run_operation(d, &p, NULL);
    if (!st)
        st = problem_of(&wd_op_gdn_forward, "B=1,T=1024,H=2,HV=4,K=128,V=128,initial_state,final_state", &p);
    return st ? st : chain_on(d, &p, NULL);
}

static wd_status open_demo(struct demo *d, const char *device)
{
    wd_status st = wd_open(device, &d->ctx);
    if (st)
        return st;
    const wd_context_desc desc = {
        .struct_size = sizeof desc, .context = wd_context_cl(d->ctx), .device = wd_context_device(d->ctx)};
    st = wd_context_create(&desc, &d->second);
    return st ? st : wd_meter_init(&d->meter, d->ctx, wd_context_queue(d->ctx));
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli cli;
    struct demo d = {0};
    const int done = cli_parse(&cli, self, NULL, argc, argv);
    if (done >= 0)
        return done;
    const char *data = cli_get(&cli, "data") ? cli_get(&cli, "data") : "tests/data";

    cli_table_init(&d.table, columns);
    for (const struct op_case *c = op_cases; c->op; c++)
        if (c->use & CASE_DEMO)
            cli_table_fit(&d.table, COL_OP, c->op);
    cli_table_fit(&d.table, COL_OP, chain_name);
    wd_status st = open_demo(&d, cli_get(&cli, "device"));
    if (!st) {
        printf("WarpDrive %s on %s (%s, driver %s)\n\n", wd_version(), d.ctx->caps.name, d.ctx->caps.platform_version,
               d.ctx->caps.driver);
        for (const struct vector_set *set = vector_sets; set->folder && !st && !cli_get(&cli, "no-data"); set++)
            st = run_set(&d, data, set);
    }
    if (!st)
        st = run_models(&d);
    cli_progress("%s", "");
    if (!st)
        printf("\n%zu ok, %zu failed; %llu kernels compiled, %llu loaded from the cache\n", d.ok, d.failed,
               (unsigned long long)(compiles(d.ctx) + compiles(d.second)), (unsigned long long)loads(d.ctx));
    wd_meter_fini(&d.meter);
    wd_context_destroy(d.second);
    wd_context_destroy(d.ctx);
    return st ? cli_fail(&cli, st) : d.failed ? CLI_FAILED : CLI_OK;
}

static const struct cli_option options[] = {
    {"data", 0, "DIR", "where the published test cases lie (default tests/data)"},
    {"no-data", 0, NULL, "model-sized shapes only"},
    CLI_DEVICE,
    {0},
};

const struct cli_command cmd_demo = {
    .name = "demo",
    .operands = "",
    .summary = "Run, check and time the operations on published test cases and model-sized shapes",
    .details =
        "Every result is checked against the double reference, published cases against the published outputs,\n"
        "too, and the chain recompute_w_u, chunk_fwd_h, chunk_fwd_o against the token-by-token recurrence.\n"
        "'cold ms' is what the first call cost beyond its work when the kernel was compiled, 'cached ms' when it\n"
        "came from the disk cache, '-' that it was neither. Exit code 1: a result was wrong.",
    .options = options,
    .run = run,
};
