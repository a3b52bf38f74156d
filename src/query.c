/* SPDX-License-Identifier: MIT */
/* Questions about a call: is it supported, how would it run, what does it need. */
#include "context.h"
#include "status.h"

#include <stdio.h>
#include <string.h>

static wd_status find_op(const char *function, const wd_context *ctx, wd_op_id id, const struct wd_op **op)
{
    if (!ctx)
        return wd_fail(WD_EINVAL, "%s: ctx: NULL", function);
    *op = wd_op_by_id(id);
    return *op ? WD_OK : wd_fail(WD_EINVAL, "%s: op: %d is no operation", function, (int)id);
}

bool wd_supported(wd_context *ctx, wd_op_id id, const void *args)
{
    const struct wd_op *op;
    return !find_op("wd_supported", ctx, id, &op) && !wd_op_prepare(ctx, op, args);
}

wd_status wd_prepare(wd_context *ctx, wd_op_id id, const void *args)
{
    const struct wd_op *op;
    const wd_status st = find_op("wd_prepare", ctx, id, &op);
    return st ? st : wd_op_prepare(ctx, op, args);
}

wd_status wd_workspace_bytes(wd_context *ctx, wd_op_id id, const void *args, size_t *bytes)
{
    const struct wd_op *op;
    struct wd_problem p;
    if (!bytes)
        return wd_fail(WD_EINVAL, "wd_workspace_bytes: bytes: NULL");
    *bytes = 0;
    wd_status st = find_op("wd_workspace_bytes", ctx, id, &op);
    if (st || (st = wd_op_check(op, args, false, &p)))
        return st;
    const struct wd_plan *plan;
    if (p.empty || (st = wd_plan_get(ctx, &p, &plan)))
        return st;
    if (plan->choice.variant->workspace)
        *bytes = plan->choice.variant->workspace(&p);
    return WD_OK;
}

/* ---- wd_query ---- */

/* All that there is to say about a plan. */
struct answer {
    const struct wd_context *ctx;
    const struct wd_problem *p;
    const struct wd_plan *plan; /* NULL: `why` says why nothing serves it */
    struct wd_text refusals;    /* a line each */
    struct wd_text class_text, choice;
};

static const char *source_name(enum wd_origin source)
{
    static const char *const names[] = {"user file", "shipped defaults", "model", "measured"};
    return names[source];
}

/* What a call's time will be made of, before anything is measured. */
struct bound {
    const char *name; /* "memory" or "arithmetic" */
    double intensity,
        turn; /* operations a byte: of the call, and where the device needs as long for one as for the other */
};

/* Where devices turn, from vendors' peaks of f32 multiply-adds over their memory's: about 10 for desktop and server
 * CPUs (a core's 2 x 8 x 2 to 2 x 16 x 2 operations a cycle at 3 GHz over 10 to 20 GB/s), 14 to 20 for GPUs (H200 14,
 * MI300X 15 with its vector units, Arc A770 35); matrix engines do ten times as many. `bench` measures it. */
static struct bound predict(const struct answer *a)
{
    const double bytes = a->p->bytes;
    struct bound b = {.intensity = bytes > 0 ? a->p->op->flops(a->p) / bytes : 0, .turn = a->ctx->caps.cpu ? 10 : 16};
    if (a->plan && a->plan->choice.variant->file && strstr(a->plan->choice.variant->file, "_mma"))
        b.turn *= 10;
    b.name = b.intensity < b.turn ? "memory" : "arithmetic";
    return b;
}

static void write_facts(const struct answer *a, struct wd_text *out)
{
    struct wd_kernel_facts facts;
    const struct wd_kernel *k = a->plan->kernel;
    wd_device_kernel_facts(&a->ctx->caps, k->program, k->kernel, &facts);
    if (facts.registers >= 0)
        wd_text_add(out, "registers   %d an item\n", facts.registers);
    if (facts.spill_bytes >= 0)
        wd_text_add(out, "spills      %d bytes an item\n", facts.spill_bytes);
}

static void write_lines(const struct answer *a, struct wd_text *out)
{
    const struct wd_problem *p = a->p;
    wd_text_add(out, "operation   %s\ndevice      %s\nclass       %s\n", p->op->name, a->ctx->caps.name,
                a->class_text.data);
    if (p->empty)
        wd_text_add(out, "nothing to compute: a dimension is zero\n");
    else if (!a->plan)
        wd_text_add(out, "not supported\n%s\n", wd_last_error());
    else {
        const struct wd_choice *c = &a->plan->choice;
        wd_text_add(out, "variant     %s\nfrom        %s (%s)\n", a->choice.data, source_name(c->source), c->reason);
        if (a->plan->kernel) {
            struct wd_grid g = {0};
            c->variant->grid(&a->ctx->caps, p, c->param, &g);
            wd_text_add(out, "work-group  ");
            for (cl_uint d = 0; d < g.dims; d++)
                wd_text_add(out, d ? " x %zu" : "%zu", g.local[d]);
            wd_text_add(out, ", ");
            for (cl_uint d = 0; d < g.dims; d++)
                wd_text_add(out, d ? " x %zu" : "%zu", g.groups[d]);
            wd_text_add(out, " groups\nkernel      %s in %s; %zu bytes local, %zu private; at most %zu items a group\n",
                        c->variant->kernel, c->variant->file, a->plan->kernel->local_bytes,
                        a->plan->kernel->private_bytes, a->plan->kernel->group_max);
            write_facts(a, out);
        }
    }
    const struct bound b = predict(a);
    wd_text_add(out, "moves       %.0f bytes, %.0f operations\n", p->bytes, p->op->flops(p));
    wd_text_add(out, "bound       %s, at %.2f operations a byte: this device turns at about %.0f\n", b.name,
                b.intensity, b.turn);
    for (const char *at = a->refusals.data; at && *at;) {
        const size_t len = strcspn(at, "\n");
        wd_text_add(out, "passed over %.*s\n", (int)len, at);
        at += len + (at[len] == '\n');
    }
}

static void write_json_choice(const struct answer *a, struct wd_text *out)
{
    const struct wd_choice *c = &a->plan->choice;
    wd_text_add(out, ",\"variant\":\"%s\",\"source\":\"%s\",\"reason\":", c->variant->name, source_name(c->source));
    wd_text_add_json(out, c->reason);
    wd_text_add(out, ",\"parameters\":{");
    for (size_t i = 0; i < wd_num_params(c->variant); i++)
        wd_text_add(out, "%s\"%s\":%d", i ? "," : "", c->variant->params[i].name, c->param[i]);
    wd_text_add(out, "}");
    if (!a->plan->kernel)
        return;
    struct wd_grid g = {0};
    c->variant->grid(&a->ctx->caps, a->p, c->param, &g);
    wd_text_add(out, ",\"kernel\":\"%s\",\"file\":\"%s\",\"local\":[", c->variant->kernel, c->variant->file);
    for (cl_uint d = 0; d < g.dims; d++)
        wd_text_add(out, d ? ",%zu" : "%zu", g.local[d]);
    wd_text_add(out, "],\"groups\":[");
    for (cl_uint d = 0; d < g.dims; d++)
        wd_text_add(out, d ? ",%zu" : "%zu", g.groups[d]);
    wd_text_add(out, "],\"local_bytes\":%zu,\"private_bytes\":%zu,\"group_max\":%zu", a->plan->kernel->local_bytes,
                a->plan->kernel->private_bytes, a->plan->kernel->group_max);
    struct wd_kernel_facts facts;
    wd_device_kernel_facts(&a->ctx->caps, a->plan->kernel->program, a->plan->kernel->kernel, &facts);
    if (facts.registers >= 0)
        wd_text_add(out, ",\"registers\":%d", facts.registers);
    if (facts.spill_bytes >= 0)
        wd_text_add(out, ",\"spill_bytes\":%d", facts.spill_bytes);
}

static void write_json(const struct answer *a, struct wd_text *out)
{
    const struct wd_problem *p = a->p;
    wd_text_add(out, "{\"operation\":\"%s\",\"device\":", p->op->name);
    wd_text_add_json(out, a->ctx->caps.name);
    wd_text_add(out, ",\"class\":");
    wd_text_add_json(out, a->class_text.data ? a->class_text.data : "");
    wd_text_add(out, ",\"supported\":%s,\"bytes\":%.0f,\"flops\":%.0f,\"bound\":\"%s\"",
                a->plan || p->empty ? "true" : "false", p->bytes, p->op->flops(p), predict(a).name);
    if (a->plan)
        write_json_choice(a, out);
    wd_text_add(out, ",\"passed_over\":[");
    for (const char *at = a->refusals.data; at && *at;) {
        char line[256];
        const size_t len = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)len, at);
        wd_text_add(out, at == a->refusals.data ? "" : ",");
        wd_text_add_json(out, line);
        at += len + (at[len] == '\n');
    }
    wd_text_add(out, "]}\n");
}

wd_status wd_query(wd_context *ctx, wd_op_id id, const void *args, bool json, char *text, size_t text_bytes)
{
    const struct wd_op *op;
    struct wd_problem p;
    if (!text || !text_bytes)
        return wd_fail(WD_EINVAL, "wd_query: text: %s", text ? "no room" : "NULL");
    text[0] = '\0';
    wd_status st = find_op("wd_query", ctx, id, &op);
    if (st || (st = wd_op_check(op, args, false, &p)))
        return st;

    struct answer a = {.ctx = ctx, .p = &p};
    struct wd_choice choice[WD_MAX_CHOICES];
    wd_class_text(&p, &a.class_text);
    if (!p.empty) {
        wd_tuning_choices(&ctx->tuning, &p, choice, &a.refusals);
        st = wd_plan_get(ctx, &p, &a.plan);
        if (!st)
            wd_choice_text(&a.plan->choice, &a.choice);
    }
    struct wd_text out = {0};
    if (!st || st == WD_ENOTSUP || st == WD_EBUILD) {
        (json ? write_json : write_lines)(&a, &out);
        st = out.failed || a.class_text.failed || a.choice.failed ? wd_fail(WD_ENOMEM, "wd_query: out of memory") : st;
        if (out.data && !out.failed)
            snprintf(text, text_bytes, "%s", out.data);
    }
    wd_text_free(&out);
    wd_text_free(&a.refusals);
    wd_text_free(&a.class_text);
    wd_text_free(&a.choice);
    return st;
}
