/* SPDX-License-Identifier: MIT */
/* One call of an operation's reference, for tests: the problem, and every tensor in host memory as doubles. */
#ifndef CALL_H
#define CALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dims.h"
#include "fill.h"
#include "status.h"

struct call {
    struct wd_problem p;
    double *t[WD_MAX_TENSORS];
};

/* Checks the args struct (tensors without buffers, as for wd_prepare) and gives every present tensor its memory:
 * inputs random, outputs NaN. */
static inline void call_make(struct call *c, const struct wd_op *op, const void *args, enum wd_gates gates)
{
    memset(c, 0, sizeof *c);
    if (wd_op_check(op, args, false, &c->p))
        fail_msg("%s", wd_last_error());
    for (size_t i = 0; i < op->num_tensors; i++) {
        const size_t n = wd_tensor_elements(&c->p, i);
        if (!c->p.tensor[i].present)
            continue;
        c->t[i] = malloc((n + 1) * sizeof(double));
        assert_non_null(c->t[i]);
        for (size_t k = 0; k < n; k++)
            c->t[i][k] = (double)NAN;
    }
    for (int offsets = 1; offsets >= 0; offsets--)
        for (size_t i = 0; i < op->num_tensors; i++)
            if (c->t[i] && op->tensors[i].access != WD_OUT &&
                (op->tensors[i].fill == WD_FILL_OFFSETS) == (offsets == 1))
                wd_fill(&c->p, i, gates, 1, c->t);
}

static inline void call_run(struct call *c)
{
    c->p.op->reference(&c->p, c->t);
}

static inline void call_free(struct call *c)
{
    for (size_t i = 0; i < WD_MAX_TENSORS; i++)
        free(c->t[i]);
}

static inline void copy(struct call *to, size_t i, const struct call *from, size_t k)
{
    const size_t n = wd_tensor_elements(&from->p, k);
    if (!to->t[i] && !from->t[k])
        return;
    assert_non_null(to->t[i]);
    assert_non_null(from->t[k]);
    assert_int_equal(wd_tensor_elements(&to->p, i), n);
    memcpy(to->t[i], from->t[k], n * sizeof(double));
}

/* Relative Frobenius distance; NaN if one is anywhere. */
static inline double distance(const double *a, const double *b, size_t n)
{
    double off = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        off += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return off == 0 ? 0 : sqrt(off / norm);
}

static inline void assert_close(const struct call *a, size_t i, const struct call *b, size_t k, double bar)
{
    assert_int_equal(wd_tensor_elements(&a->p, i), wd_tensor_elements(&b->p, k));
    const double d = distance(a->t[i], b->t[k], wd_tensor_elements(&a->p, i));
    if (!(d <= bar))
        fail_msg("%s of %s and %s of %s are %g apart", a->p.op->tensors[i].name, a->p.op->name,
                 b->p.op->tensors[k].name, b->p.op->name, d);
}

#endif
