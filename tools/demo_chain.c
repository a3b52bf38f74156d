/* SPDX-License-Identifier: MIT */
#include "demo_chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "convert.h"
#include "dims.h"

enum { BUDGET_NS = 200000000 };

static const double bar = 1e-5, tolerance = 1e-3; /* of chained operations; published, per element */

/* The chain's own tensors, besides those of gdn_forward. */
enum { A, G, W, U, H, V_NEW, OWN };

struct chain {
    wd_context *ctx;
    const struct wd_problem *p;
    cl_mem mem[WD_MAX_TENSORS]; /* gdn_forward's tensors; [FWD_g] stays unused: the chain reads running sums */
    cl_mem own[OWN];
    double *prepared[2]; /* A and g in double */
    double *want[WD_MAX_TENSORS];
    wd_recompute_w_u_args w_u;
    wd_chunk_fwd_h_args fwd_h;
    wd_chunk_fwd_o_args fwd_o;
};

static wd_status no_memory(void)
{
    return wd_fail(WD_ENOMEM, "chain: memory is exhausted");
}

/* ---- What the chain starts from, and what must come out ---- */

/* A and g from k, beta and the log gates, by gdn_prepare's reference. */
static wd_status prepare(struct chain *c, double *const *value)
{
    const size_t *dim = c->p->dim;
    const wd_gdn_prepare_args args = {.struct_size = sizeof args,
                                      .B = dim[GDN_B],
                                      .T = dim[GDN_T],
                                      .H = dim[GDN_H],
                                      .HV = dim[GDN_HV],
                                      .K = dim[GDN_K]};
    struct wd_problem p;
    const wd_status st = wd_op_check(&wd_op_gdn_prepare, &args, false, &p);
    if (st)
        return st;
    double *t[WD_MAX_TENSORS] = {[PREP_k] = value[FWD_k], [PREP_gate] = value[FWD_g], [PREP_beta] = value[FWD_beta]};
    t[PREP_A] = c->prepared[A] = calloc(wd_tensor_elements(&p, PREP_A) + 1, sizeof(double));
    t[PREP_g] = c->prepared[G] = calloc(wd_tensor_elements(&p, PREP_g) + 1, sizeof(double));
    if (!t[PREP_A] || !t[PREP_g])
        return no_memory();
    p.op->reference(&p, t);
    return WD_OK;
}

static wd_status recurrence(struct chain *c, double *const *value)
{
    static const size_t outputs[] = {FWD_o, FWD_final_state};
    double *t[WD_MAX_TENSORS];
    memcpy(t, value, c->p->op->num_tensors * sizeof t[0]);
    for (size_t i = 0; i < WD_COUNT(outputs); i++) {
        const size_t out = outputs[i];
        t[out] = NULL;
        if (!c->p->tensor[out].present)
            continue;
        t[out] = c->want[out] = calloc(wd_tensor_elements(c->p, out) + 1, sizeof(double));
        if (!t[out])
            return no_memory();
    }
    c->p->op->reference(c->p, t);
    return WD_OK;
}

/* ---- On the device ---- */

/* An f32 buffer of n elements, filled from `value` unless that is NULL. */
static wd_status make_buffer(wd_context *ctx, size_t n, const double *value, cl_mem *out)
{
    float *host = value ? malloc((n + 1) * sizeof *host) : NULL;
    if (value && !host)
        return no_memory();
    if (value)
        wd_from_double(WD_F32, value, n, host);
    const wd_status st = wd_buffer_create(ctx, n * sizeof *host, host, out);
    free(host);
    return st;
}

static wd_status make_buffers(struct chain *c, double *const *value)
{
    const size_t *d = c->p->dim;
    const size_t rows = d[GDN_B] * d[GDN_T] * d[GDN_HV]; /* tokens of all heads */
    const size_t states = d[GDN_B] * d[GDN_NT] * d[GDN_HV] * d[GDN_K] * d[GDN_V];
    const size_t own[OWN] = {
        [A] = rows * d[GDN_C], [G] = rows,   [W] = rows * d[GDN_K],
        [U] = rows * d[GDN_V], [H] = states, [V_NEW] = rows * d[GDN_V],
    };
    wd_status st = WD_OK;
    for (size_t i = 0; i < OWN && !st; i++)
        st = make_buffer(c->ctx, own[i], i <= G ? c->prepared[i] : NULL, &c->own[i]);
    for (size_t i = 0; i < c->p->op->num_tensors && !st; i++)
        if (c->p->tensor[i].present && i != FWD_g)
            st = make_buffer(c->ctx, wd_tensor_elements(c->p, i), value[i], &c->mem[i]);
    return st;
}

/* The sizes that all three args structs have. */
#define CHAIN_SIZES(dim)                                                                                               \
    .B = (dim)[GDN_B], .T = (dim)[GDN_T], .H = (dim)[GDN_H], .HV = (dim)[GDN_HV], .K = (dim)[GDN_K], .V = (dim)[GDN_V]

static void describe_calls(struct chain *c)
{
    const size_t *dim = c->p->dim;
    const wd_tensor k = {.mem = c->mem[FWD_k]}, g = {.mem = c->own[G]}, w = {.mem = c->own[W]}, u = {.mem = c->own[U]},
                    h = {.mem = c->own[H]}, v_new = {.mem = c->own[V_NEW]};
    c->w_u = (wd_recompute_w_u_args){.struct_size = sizeof c->w_u, CHAIN_SIZES(dim)};
    c->w_u.k = k;
    c->w_u.v.mem = c->mem[FWD_v];
    c->w_u.beta.mem = c->mem[FWD_beta];
    c->w_u.A.mem = c->own[A];
    c->w_u.A_is_lower = true;
    c->w_u.g = g;
    c->w_u.w = w;
    c->w_u.u = u;

    c->fwd_h = (wd_chunk_fwd_h_args){.struct_size = sizeof c->fwd_h, CHAIN_SIZES(dim)};
    c->fwd_h.k = k;
    c->fwd_h.w = w;
    c->fwd_h.u = u;
    c->fwd_h.g = g;
    c->fwd_h.initial_state.mem = c->mem[FWD_initial_state];
    c->fwd_h.h = h;
    c->fwd_h.v_new = v_new;
    c->fwd_h.final_state.mem = c->mem[FWD_final_state];

    c->fwd_o = (wd_chunk_fwd_o_args){.struct_size = sizeof c->fwd_o, CHAIN_SIZES(dim)};
    c->fwd_o.q.mem = c->mem[FWD_q];
    c->fwd_o.k = k;
    c->fwd_o.v_new = v_new;
    c->fwd_o.h = h;
    c->fwd_o.g = g;
    c->fwd_o.o.mem = c->mem[FWD_o];
    c->fwd_o.scale = c->p->real[FWD_scale];
}

/* All three on the context's in-order queue. */
static wd_status call(void *user)
{
    struct chain *c = user;
    wd_status st = wd_recompute_w_u(c->ctx, &c->w_u, NULL);
    if (!st)
        st = wd_chunk_fwd_h(c->ctx, &c->fwd_h, NULL);
    if (!st)
        st = wd_chunk_fwd_o(c->ctx, &c->fwd_o, NULL);
    return st;
}

/* ---- Checking ---- */

static wd_status check_output(struct chain *c, size_t i, struct chain_result *r)
{
    const size_t n = wd_tensor_elements(c->p, i);
    const char *name = c->p->op->tensors[i].name;
    float *host = malloc((n + 1) * sizeof *host);
    double *got = malloc((n + 1) * sizeof *got);
    wd_status st = host && got ? wd_buffer_read(c->ctx, c->mem[i], 0, n * sizeof *host, host) : no_memory();
    if (!st) {
        wd_to_double(WD_F32, host, n, got);
        const struct difference d = compare_arrays(c->want[i], got, n, tolerance, tolerance);
        if ((d.bad > 0 || d.relative > bar) && r->ok) {
            r->ok = false;
            snprintf(r->text, sizeof r->text, "%s: relative error %.2g, %zu elements off", name, d.relative, d.bad);
        }
        r->error = fmax(r->error, d.relative);
    }
    free(host);
    free(got);
    return st;
}

/* What the three calls move and compute. */
static wd_status count_work(const struct chain *c, struct chain_result *r)
{
    const struct {
        const struct wd_op *op;
        const void *args;
    } calls[] = {{&wd_op_recompute_w_u, &c->w_u}, {&wd_op_chunk_fwd_h, &c->fwd_h}, {&wd_op_chunk_fwd_o, &c->fwd_o}};
    for (size_t i = 0; i < WD_COUNT(calls); i++) {
        struct wd_problem p;
        const wd_status st = wd_op_check(calls[i].op, calls[i].args, true, &p);
        if (st)
            return st;
        r->bytes += p.bytes;
        r->flops += p.op->flops(&p);
    }
    return WD_OK;
}

static wd_status run_and_check(struct chain *c, struct chain_result *r)
{
    const uint64_t start = wd_now_ns();
    wd_status st = call(c);
    if (!st && clFinish(wd_context_queue(c->ctx)))
        st = wd_fail(WD_EOPENCL, "chain: clFinish");
    r->first_ns = (double)(wd_now_ns() - start);
    if (!st)
        st = check_output(c, FWD_o, r);
    if (!st && c->want[FWD_final_state])
        st = check_output(c, FWD_final_state, r);
    return st;
}

wd_status chain_run(wd_context *ctx, const struct wd_problem *p, double *const *value, struct wd_meter *meter,
                    struct chain_result *result)
{
    struct chain c = {.ctx = ctx, .p = p};
    *result = (struct chain_result){.ok = true};
    wd_status st = prepare(&c, value);
    if (!st && !(st = recurrence(&c, value)) && !(st = make_buffers(&c, value))) {
        describe_calls(&c);
        if (!(st = run_and_check(&c, result)) && !(st = count_work(&c, result)) && meter)
            st = wd_meter_time(meter, call, &c, BUDGET_NS, 0, &result->time);
    }
    for (size_t i = 0; i < WD_MAX_TENSORS; i++) {
        wd_buffer_destroy(c.mem[i]);
        free(c.want[i]);
    }
    for (size_t i = 0; i < OWN; i++)
        wd_buffer_destroy(c.own[i]);
    free(c.prepared[A]);
    free(c.prepared[G]);
    return st;
}
