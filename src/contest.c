/* SPDX-License-Identifier: MIT */
#include "contest.h"
#include "context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What making data and the reference cost on a host of today, roughly. */
#define NS_PER_FLOP    2.5
#define NS_PER_ELEMENT 150

enum {
    MAX_PAIRS = 15,
    MIN_PAIRS = 7,
};

/* ---- The trials ---- */

static double check_cost_ns(const struct wd_problem *p)
{
    double elements = 0;
    for (size_t i = 0; i < p->op->num_tensors; i++)
        if (p->tensor[i].present)
            elements += (double)wd_tensor_elements(p, i);
    return NS_PER_FLOP * p->op->flops(p) + NS_PER_ELEMENT * elements;
}

/* Halves dim i, if that leaves a problem with the same kernels: nothing that is compiled in may change. */
static bool halve(const struct wd_problem *p, size_t i, unsigned vec, struct wd_problem *out)
{
    union {
        size_t align;
        unsigned char byte[WD_MAX_ARGS];
    } args;
    struct wd_problem half = *p;
    half.dim[i] /= 2;
    wd_op_args(&half, &args);
    return !wd_op_check(p->op, &args, false, out) && !out->empty && out->vec >= vec;
}

/* A problem of the same kernels that costs at most `ns` to check, if there is one: the largest size that is not
 * compiled in is halved, again and again. */
static void shrink(struct wd_problem *p, double ns)
{
    bool stuck[WD_MAX_DIMS] = {false};
    const unsigned vec = p->vec;
    while (check_cost_ns(p) > ns) {
        size_t largest = WD_MAX_DIMS;
        for (size_t i = 0; i < p->op->num_dims; i++)
            if (p->op->dims[i].kind != WD_DIM_FIXED && p->op->dims[i].offset != WD_DERIVED && !stuck[i] &&
                p->dim[i] > 1 && (largest == WD_MAX_DIMS || p->dim[i] > p->dim[largest]))
                largest = i;
        if (largest == WD_MAX_DIMS)
            return;
        struct wd_problem half;
        stuck[largest] = !halve(p, largest, vec, &half);
        if (!stuck[largest])
            *p = half;
    }
}

wd_status wd_contest_init(struct wd_contest *c, struct wd_meter *meter, const struct wd_problem *p, double check_ns)
{
    struct wd_problem whole = *p;
    *c = (struct wd_contest){.meter = meter};
    whole.cu_seqlens_host = NULL;
    struct wd_problem small = whole;
    shrink(&small, check_ns);
    /* The caller's rows may be aligned to fewer elements than packed ones: an offset of as many makes ours so. */
    struct wd_trial_options options = {.seed = 1, .gates = WD_GATES_MILD, .queue = meter->queue, .shift = p->vec % 16};
    wd_status st = wd_trial_create(meter->ctx, &small, &options, &c->checked);
    c->timed = c->checked;
    if (st || memcmp(small.dim, whole.dim, sizeof small.dim) == 0)
        return st;
    options.like = c->checked;
    st = wd_trial_create(meter->ctx, &whole, &options, &c->timed);
    if (st)
        wd_contest_fini(c);
    return st;
}

void wd_contest_fini(struct wd_contest *c)
{
    if (c->timed != c->checked)
        wd_trial_destroy(c->timed);
    wd_trial_destroy(c->checked);
    *c = (struct wd_contest){0};
}

/* ---- One choice ---- */

/* A choice, ready to run on a trial. */
struct entrant {
    const struct wd_choice *choice;
    struct wd_kernel *kernel; /* NULL for chains */
    struct wd_trial *trial;
};

static wd_status prepare(struct wd_trial *trial, const struct wd_choice *choice, struct entrant *e)
{
    *e = (struct entrant){.choice = choice, .trial = trial};
    return choice->variant->chain ? WD_OK : wd_plan_compile(trial->ctx, &trial->p, choice, &e->kernel);
}

static wd_status run(void *user, struct wd_trial *trial, const wd_launch *launch)
{
    const struct entrant *e = user;
    return wd_plan_launch(trial->ctx, &trial->p, e->choice, e->kernel, launch);
}

/* Without waiting. */
static wd_status enqueue(void *user)
{
    struct entrant *e = user;
    const wd_launch launch = {.queue = e->trial->queue};
    return run(e, e->trial, &launch);
}

/* Runs on poisoned outputs and compares. False: it is wrong, and `why` says what is. */
static wd_status check(struct entrant *e, bool *right, char why[WD_CONTEST_TEXT])
{
    struct wd_trial_result result;
    wd_status st = wd_trial_reset(e->trial);
    *right = false;
    if (st)
        return st;
    st = wd_trial_run(e->trial, run, e);
    if (!st)
        st = wd_trial_check(e->trial, &result);
    *right = !st && result.ok;
    if (!*right)
        snprintf(why, WD_CONTEST_TEXT, "%s", st ? wd_last_error() : result.text);
    return st == WD_ENOMEM ? st : WD_OK;
}

/* From enqueue to completion; the first run of a kernel may include compiling. */
static wd_status run_once(struct entrant *e, double *ns)
{
    const uint64_t start = wd_now_ns();
    const wd_status st = enqueue(e);
    const cl_int err = st ? CL_SUCCESS : clFinish(e->trial->queue);
    *ns = (double)(wd_now_ns() - start);
    return err ? wd_fail_cl(err, "contest", "clFinish") : st;
}

/* Times over the best at which a choice is given up: after two runs, whose launches may take this long, and after two
 * rounds. One of anything may have met with an accident. */
static const double hopeless_run = 4, launch_ns = 2e5, hopeless_round = 1.5;

static wd_status time_it(const struct wd_contest *c, struct entrant *e, double best_ns, double budget_ns, double *ns)
{
    struct wd_timing timing;
    double once, again;
    wd_status st = run_once(e, &once); /* warms up */
    if (st || (st = run_once(e, &once)) || (st = run_once(e, &again)))
        return st;
    *ns = fmin(once, again);
    if (best_ns > 0 && *ns > hopeless_run * best_ns + launch_ns)
        return st;
    st = wd_meter_time(c->meter, enqueue, e, budget_ns, hopeless_round * best_ns, &timing);
    *ns = fmax(timing.median_ns, 1);
    return st;
}

wd_status wd_contest_try(struct wd_contest *c, const struct wd_choice *choice, double best_ns, double budget_ns,
                         double *ns, char why[WD_CONTEST_TEXT])
{
    struct entrant small, whole;
    bool right = false;
    *ns = INFINITY;
    const char *fault = wd_choice_fault(&c->meter->ctx->caps, &c->checked->p, choice);
    if (fault) {
        snprintf(why, WD_CONTEST_TEXT, "not at a size that can be checked: %s", fault);
        return WD_OK;
    }
    wd_status st = prepare(c->timed, choice, &whole);
    if (!st)
        st = prepare(c->checked, choice, &small); /* the same kernel, unless its group depends on the size */
    if (!st) {
        st = check(&small, &right, why);
        if (st || !right)
            return st;
        st = time_it(c, &whole, best_ns, budget_ns, ns);
    }
    if (st) {
        snprintf(why, WD_CONTEST_TEXT, "%s", wd_last_error());
        *ns = INFINITY;
    }
    return st == WD_ENOMEM ? st : WD_OK;
}

/* ---- Two choices ---- */

/* The k for which the k-th smallest and the k-th largest of n values (from 0) hold their median between them with 95 %:
 * each is above it or below it like a coin that falls. */
static size_t median_rank(size_t n)
{
    double p = pow(0.5, (double)n), tail = p;
    size_t k = 0;
    for (; k < n / 2; k++) {
        p *= (double)(n - k) / (double)(k + 1);
        if (2 * (tail + p) > 0.05)
            break;
        tail += p;
    }
    return k;
}

/* Where the check was on a smaller problem: do both agree on this one? */
static wd_status agree(struct wd_contest *c, struct entrant *a, struct entrant *b, bool *right)
{
    char why[WD_CONTEST_TEXT];
    wd_status st = wd_trial_reset(c->timed);
    if (st || (st = wd_trial_run(c->timed, run, a)) || (st = wd_trial_adopt(c->timed)) || (st = check(b, right, why)) ||
        *right)
        return st;
    wd_log(&c->meter->ctx->log, WD_LOG_WARNING, "tuning: not what another variant computes: %s", why);
    return WD_OK;
}

wd_status wd_contest_turns(struct wd_contest *c, const struct wd_choice *choice_a, const struct wd_choice *choice_b,
                           double limit_ns, struct wd_turns *turns)
{
    double a_ns[MAX_PAIRS] = {0}, b_ns[MAX_PAIRS] = {0}, ratio[MAX_PAIRS] = {0};
    struct entrant a, b;
    bool right = true;
    unsigned n = 0;
    *turns = (struct wd_turns){0};
    wd_status st = prepare(c->timed, choice_a, &a);
    if (st || (st = prepare(c->timed, choice_b, &b)) || (c->checked != c->timed && (st = agree(c, &a, &b, &right))) ||
        !right)
        return st;
    const uint64_t start = wd_now_ns();
    for (; !st && n < MAX_PAIRS && (n < MIN_PAIRS || (double)(wd_now_ns() - start) < limit_ns); n++) {
        const bool turned = n % 2;
        st = wd_meter_round(c->meter, enqueue, turned ? &b : &a, turned ? &b_ns[n] : &a_ns[n]);
        if (!st)
            st = wd_meter_round(c->meter, enqueue, turned ? &a : &b, turned ? &a_ns[n] : &b_ns[n]);
        ratio[n] = fmax(a_ns[n], 1) / fmax(b_ns[n], 1);
    }
    if (st)
        return st;
    qsort(a_ns, n, sizeof a_ns[0], wd_by_value);
    qsort(b_ns, n, sizeof b_ns[0], wd_by_value);
    qsort(ratio, n, sizeof ratio[0], wd_by_value);
    const size_t k = median_rank(n);
    *turns = (struct wd_turns){.a_ns = fmax(a_ns[n / 2], 1),
                               .b_ns = fmax(b_ns[n / 2], 1),
                               .ratio = ratio[n / 2],
                               .low = ratio[k],
                               .high = ratio[n - 1 - k],
                               .pairs = n};
    return WD_OK;
}
