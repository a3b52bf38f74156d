/* SPDX-License-Identifier: MIT */
#include "launch.h"
#include "context.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plans by class ---- */

wd_status wd_plans_init(struct wd_plans *plans)
{
    pthread_mutexattr_t recursive;
    memset(plans->bucket, 0, sizeof plans->bucket);
    if (pthread_mutexattr_init(&recursive))
        goto undo_nothing;
    if (pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE) || pthread_mutex_init(&plans->lock, NULL))
        goto undo_attributes;
    if (pthread_mutex_init(&plans->measuring, &recursive))
        goto undo_lock;
    pthread_mutexattr_destroy(&recursive);
    return WD_OK;

undo_lock:
    pthread_mutex_destroy(&plans->lock);
undo_attributes:
    pthread_mutexattr_destroy(&recursive);
undo_nothing:
    return wd_fail(WD_ENOMEM, "wd_context_create: no mutex");
}

void wd_plans_fini(struct wd_plans *plans)
{
    for (size_t i = 0; i < WD_COUNT(plans->bucket); i++)
        for (struct wd_plan *plan = plans->bucket[i], *next; plan; plan = next) {
            next = plan->next;
            free(plan);
        }
    pthread_mutex_destroy(&plans->measuring);
    pthread_mutex_destroy(&plans->lock);
}

/* Packs what macros and tuning depend on: types and presence, choices, fixed dims, vec, size class. Calls of one
 * key share plan and kernel; everything else about them is a kernel argument. */
static void class_key(const struct wd_problem *p, uint64_t key[16])
{
    const struct wd_op *op = p->op;
    size_t n = 4;
    memset(key, 0, 16 * sizeof key[0]);
    key[0] = (uint64_t)op->id | (uint64_t)p->vec << 8 | (uint64_t)wd_size_class(p) << 16;
    for (size_t i = 0; i < op->num_tensors; i++)
        if (p->tensor[i].present)
            key[1 + i / 16] |= (uint64_t)p->tensor[i].dtype << 4 * (i % 16);
    for (size_t i = 0; i < op->num_scalars; i++)
        key[3] |= (uint64_t)(unsigned char)p->choice[i] << 8 * i;
    for (size_t i = 0; i < op->num_dims; i++)
        if (op->dims[i].kind == WD_DIM_FIXED)
            key[n++] = p->dim[i];
}

static struct wd_plan **bucket_of(struct wd_plans *plans, const uint64_t key[16])
{
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < 16; i++) {
        h = (h ^ key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return &plans->bucket[h % WD_COUNT(plans->bucket)];
}

static struct wd_plan *find_plan(struct wd_plan *const *bucket, const uint64_t key[16])
{
    struct wd_plan *plan = *bucket;
    while (plan && memcmp(plan->key, key, sizeof plan->key) != 0)
        plan = plan->next;
    return plan;
}

/* ---- Compiling a choice ---- */

static void add_macro(struct wd_text *text, const char *prefix, const char *name)
{
    wd_text_add(text, "#define %s", prefix);
    for (; *name; name++)
        wd_text_add(text, "%c", toupper((unsigned char)*name));
}

/* The macros of op.h's header comment. */
void wd_plan_prelude(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_choice *choice,
                     const struct wd_grid *grid, struct wd_text *text)
{
    const struct wd_op *op = p->op;
    wd_text_add(text, "#define WD_CPU %d\n#define WD_SM %u\n#define WD_WGMMA %d\n#define WD_SIMD %u\n", caps->cpu,
                caps->sm, caps->wgmma, caps->simd);
    for (size_t i = 0; i < op->num_tensors; i++) {
        add_macro(text, "T_", op->tensors[i].name);
        wd_text_add(text, " %s\n", wd_dtype_name(p->tensor[i].dtype));
        if (!op->tensors[i].optional)
            continue;
        add_macro(text, "HAS_", op->tensors[i].name);
        wd_text_add(text, " %d\n", p->tensor[i].present);
    }
    for (size_t i = 0; i < op->num_dims; i++)
        if (op->dims[i].kind == WD_DIM_FIXED) {
            add_macro(text, "", op->dims[i].name);
            wd_text_add(text, " %zu\n", p->dim[i]);
        }
    for (size_t i = 0; i < op->num_scalars; i++)
        if (op->scalars[i].kind != WD_REAL) {
            add_macro(text, "", op->scalars[i].name);
            wd_text_add(text, " %d\n", p->choice[i]);
        }
    wd_text_add(text, "#define VEC %u\n", caps->cpu ? 1 : p->vec); /* CPUs take any address alike: one program */
    for (size_t i = 0; i < wd_num_params(choice->variant); i++) {
        add_macro(text, "", choice->variant->params[i].name);
        wd_text_add(text, " %d\n", choice->param[i]);
    }
    for (cl_uint d = 0; d < 3; d++)
        wd_text_add(text, "#define LOCAL%u %zu\n", d, d < grid->dims ? grid->local[d] : (size_t)1);
}

static size_t group_items(const struct wd_grid *g)
{
    size_t items = 1;
    for (cl_uint d = 0; d < g->dims; d++)
        items *= g->local[d];
    return items;
}

/* Nothing of a group's size is compiled into a variant without parameters: where the kernel allows smaller groups only,
 * it gets those. */
static void fit_grid(const struct wd_context *ctx, const struct wd_problem *p, const struct wd_choice *choice,
                     const struct wd_kernel *kernel, struct wd_grid *grid)
{
    if (group_items(grid) <= kernel->group_max || wd_num_params(choice->variant) > 0)
        return;
    struct wd_caps narrow = ctx->caps;
    narrow.max_group = kernel->group_max;
    choice->variant->grid(&narrow, p, choice->param, grid);
}

wd_status wd_plan_compile(struct wd_context *ctx, const struct wd_problem *p, const struct wd_choice *choice,
                          struct wd_kernel **out)
{
    struct wd_text prelude = {0};
    struct wd_grid grid = {0};
    *out = NULL;
    choice->variant->grid(&ctx->caps, p, choice->param, &grid);
    wd_plan_prelude(&ctx->caps, p, choice, &grid, &prelude);
    const struct wd_source source = {prelude.data, choice->variant->file, choice->variant->kernel};
    wd_status st = prelude.failed ? wd_fail(WD_ENOMEM, "wd_%s: out of memory", p->op->name)
                                  : wd_program_kernel(&ctx->programs, &source, out);
    wd_text_free(&prelude);
    if (!st)
        fit_grid(ctx, p, choice, *out, &grid);
    if (!st && group_items(&grid) > (*out)->group_max)
        st = wd_fail(WD_ENOTSUP, "wd_%s: %s needs work-groups of %zu, this kernel allows %zu here", p->op->name,
                     choice->variant->name, group_items(&grid), (*out)->group_max);
    if (!st && (*out)->local_bytes > ctx->caps.local_bytes)
        st = wd_fail(WD_ENOTSUP, "wd_%s: %s needs %zu bytes of local memory, the device has %zu", p->op->name,
                     choice->variant->name, (*out)->local_bytes, ctx->caps.local_bytes);
    return st;
}

/* Compiles a choice. Where the compiler allows only smaller groups than the device does in general, the model
 * chooses once more within that limit. */
static wd_status compile_within_limits(struct wd_context *ctx, const struct wd_problem *p, struct wd_choice *choice,
                                       struct wd_kernel **out)
{
    wd_status st = wd_plan_compile(ctx, p, choice, out);
    if (st != WD_ENOTSUP || choice->source != WD_FROM_MODEL || !*out)
        return st;
    struct wd_caps narrow = ctx->caps;
    narrow.max_group = (*out)->group_max;
    struct wd_choice again;
    if (!wd_tuning_model(&narrow, p, choice->variant, &again) ||
        memcmp(again.param, choice->param, sizeof again.param) == 0)
        return st;
    *choice = again;
    return wd_plan_compile(ctx, p, choice, out);
}

/* ---- Making a plan ---- */

static wd_status make_plan(struct wd_context *ctx, const struct wd_problem *p, struct wd_plan *plan)
{
    struct wd_text refusals = {0};
    struct wd_choice choice[WD_MAX_CHOICES];
    wd_status st = WD_ENOTSUP;
    const size_t n = wd_tuning_choices(&ctx->tuning, p, choice, &refusals);
    struct wd_choice measured;
    if (ctx->measure && n && choice[0].source == WD_FROM_MODEL && p->op->reference) {
        if (!ctx->measure(ctx, p, &measured))
            choice[0] = measured;
        else
            wd_log(&ctx->log, WD_LOG_WARNING, "tuning: not measured: %s", wd_last_error());
    }
    for (size_t i = 0; i < n; i++) {
        plan->kernel = NULL;
        st = choice[i].variant->chain ? choice[i].variant->chain(ctx, p, choice[i].param, NULL)
                                      : compile_within_limits(ctx, p, &choice[i], &plan->kernel);
        plan->choice = choice[i];
        if (st != WD_ENOTSUP && st != WD_EBUILD)
            break;
        wd_log(&ctx->log, WD_LOG_WARNING, "%s", wd_last_error());
        wd_text_add(&refusals, "%s\n", wd_last_error());
    }
    if (st == WD_ENOTSUP || (st == WD_EBUILD && n > 1))
        st = wd_fail(st, "wd_%s: no variant serves this call on %s:\n%s", p->op->name, ctx->caps.name,
                     refusals.data ? refusals.data : "");
    wd_text_free(&refusals);
    return st;
}

/* Makes a plan and puts it into its bucket. */
static wd_status add_plan(struct wd_context *ctx, const struct wd_problem *p, const uint64_t key[16],
                          const struct wd_plan **out)
{
    struct wd_plan **bucket = bucket_of(&ctx->plans, key);
    struct wd_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return wd_fail(WD_ENOMEM, "wd_%s: out of memory", p->op->name);
    memcpy(plan->key, key, sizeof plan->key);
    wd_status st = make_plan(ctx, p, plan);
    if (st) {
        free(plan);
        return st;
    }
    pthread_mutex_lock(&ctx->plans.lock);
    struct wd_plan *first = find_plan(bucket, key); /* another thread may have been quicker: keep one */
    if (first) {
        free(plan);
        plan = first;
    } else {
        plan->next = *bucket;
        *bucket = plan;
        atomic_fetch_add_explicit(&ctx->tuned[plan->choice.source], 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&ctx->plans.lock);
    *out = plan;
    return WD_OK;
}

static const struct wd_plan *look_up(struct wd_plans *plans, const uint64_t key[16])
{
    struct wd_plan *const *bucket = bucket_of(plans, key);
    pthread_mutex_lock(&plans->lock);
    const struct wd_plan *plan = find_plan(bucket, key);
    pthread_mutex_unlock(&plans->lock);
    return plan;
}

wd_status wd_plan_get(struct wd_context *ctx, const struct wd_problem *p, const struct wd_plan **out)
{
    uint64_t key[16];
    class_key(p, key);
    *out = look_up(&ctx->plans, key);
    if (*out) {
        atomic_fetch_add_explicit(&ctx->memory_hits, 1, memory_order_relaxed);
        return WD_OK;
    }
    if (!ctx->measure)
        return add_plan(ctx, p, key, out);
    pthread_mutex_lock(&ctx->plans.measuring);
    *out = look_up(&ctx->plans, key); /* another thread may have measured it while this one waited */
    const wd_status st = *out ? WD_OK : add_plan(ctx, p, key, out);
    pthread_mutex_unlock(&ctx->plans.measuring);
    return st;
}

/* ---- Launching ---- */

cl_int wd_plan_arguments(const struct wd_problem *p, cl_kernel kernel)
{
    const struct wd_op *op = p->op;
    cl_uint n = 0;
    cl_int err = CL_SUCCESS;
    for (size_t i = 0; i < op->num_tensors && !err; i++) {
        const struct wd_view *v = &p->tensor[i];
        err = clSetKernelArg(kernel, n++, sizeof(cl_mem), v->mem ? &v->mem : NULL);
        if (!err)
            err = clSetKernelArg(kernel, n++, sizeof v->at, v->at);
    }
    for (size_t i = 0; i < op->num_dims && !err; i++)
        if (op->dims[i].kind == WD_DIM_ARG) {
            const cl_ulong size = p->dim[i];
            err = clSetKernelArg(kernel, n++, sizeof size, &size);
        }
    for (size_t i = 0; i < op->num_scalars && !err; i++)
        if (op->scalars[i].kind == WD_REAL)
            err = clSetKernelArg(kernel, n++, sizeof(cl_float), &p->real[i]);
    return err;
}

/* Nothing to compute: the event still has to complete after the wait list. */
static wd_status launch_nothing(const struct wd_problem *p, cl_command_queue queue, const wd_launch *launch)
{
    if (!launch || !launch->done)
        return WD_OK;
    cl_int err = clEnqueueMarkerWithWaitList(queue, launch->num_wait, launch->wait_list, launch->done);
    return err ? wd_fail_cl(err, p->op->name, "clEnqueueMarkerWithWaitList") : WD_OK;
}

wd_status wd_plan_launch(struct wd_context *ctx, const struct wd_problem *p, const struct wd_choice *choice,
                         struct wd_kernel *kernel, const wd_launch *launch)
{
    cl_command_queue queue;
    wd_status st = wd_context_launch_queue(ctx, launch, &queue);
    if (st)
        return st;
    static const wd_launch none = {0};
    wd_launch l = launch ? *launch : none;
    l.queue = queue;
    if (choice->variant->chain)
        return choice->variant->chain(ctx, p, choice->param, &l);

    struct wd_grid grid = {0};
    size_t global[3];
    choice->variant->grid(&ctx->caps, p, choice->param, &grid);
    fit_grid(ctx, p, choice, kernel, &grid);
    for (cl_uint d = 0; d < grid.dims; d++)
        global[d] = grid.groups[d] * grid.local[d];

    const bool unsaved = wd_kernel_unsaved(kernel);
    cl_event event = NULL;
    pthread_mutex_lock(&kernel->lock);
    const char *call = "clSetKernelArg";
    cl_int err = wd_plan_arguments(p, kernel->kernel);
    if (!err) {
        call = "clEnqueueNDRangeKernel";
        err = clEnqueueNDRangeKernel(queue, kernel->kernel, grid.dims, NULL, global, grid.local, l.num_wait,
                                     l.wait_list, unsaved || l.done ? &event : NULL);
    }
    pthread_mutex_unlock(&kernel->lock);
    if (err)
        return wd_fail_cl(err, p->op->name, call);
    if (unsaved)
        wd_kernel_launched(&ctx->programs, kernel, event);
    if (l.done)
        *l.done = event;
    else if (event)
        clReleaseEvent(event);
    return WD_OK;
}

wd_status wd_op_call(struct wd_context *ctx, const struct wd_op *op, const void *args, const wd_launch *launch)
{
    struct wd_problem p;
    const struct wd_plan *plan;
    cl_command_queue queue;
    if (launch && launch->done)
        *launch->done = NULL;
    if (!ctx)
        return wd_fail(WD_EINVAL, "wd_%s: ctx: NULL", op->name);
    wd_status st = wd_op_check(op, args, true, &p);
    if (st || (st = wd_context_launch_queue(ctx, launch, &queue)))
        return st;
    if (p.empty)
        return launch_nothing(&p, queue, launch);
    if ((st = wd_plan_get(ctx, &p, &plan)))
        return st;
    return wd_plan_launch(ctx, &p, &plan->choice, plan->kernel, launch);
}

wd_status wd_op_prepare(struct wd_context *ctx, const struct wd_op *op, const void *args)
{
    struct wd_problem p;
    const struct wd_plan *plan;
    if (!ctx)
        return wd_fail(WD_EINVAL, "wd_prepare: ctx: NULL");
    wd_status st = wd_op_check(op, args, false, &p);
    if (st || p.empty || (st = wd_plan_get(ctx, &p, &plan)))
        return st;
    return plan->choice.variant->chain ? plan->choice.variant->chain(ctx, &p, plan->choice.param, NULL) : WD_OK;
}
