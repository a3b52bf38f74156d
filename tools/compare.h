/* SPDX-License-Identifier: MIT */
/* Two arrays of numbers: how far apart? NaN equals NaN only. */
#ifndef COMPARE_H
#define COMPARE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

struct difference {
    double relative; /* Frobenius norm of the difference over that of `want`; infinite where only one is NaN */
    double max_abs;
    size_t bad;   /* elements past the tolerance */
    size_t first; /* the first of them */
};

/* Adds element i to the sums: off += |got - want|^2, norm += |want|^2. */
static inline void compare_element(struct difference *d, size_t i, double want, double got, double atol, double rtol,
                                   double *off, double *norm)
{
    const bool same = got == want || (isnan(got) && isnan(want));
    const double gap = same ? 0 : isnan(got - want) ? INFINITY : fabs(got - want);
    *off += gap * gap;
    *norm += isfinite(want) ? want * want : 0;
    d->max_abs = fmax(d->max_abs, gap);
    if (gap > atol + rtol * fabs(want)) {
        d->first = d->bad == 0 ? i : d->first;
        d->bad++;
    }
}

/* An element may be off by atol + rtol * |want|. */
static inline struct difference compare_arrays(const double *want, const double *got, size_t n, double atol,
                                               double rtol)
{
    struct difference d = {0};
    double off = 0, norm = 0;
    for (size_t i = 0; i < n; i++)
        compare_element(&d, i, want[i], got[i], atol, rtol, &off, &norm);
    d.relative = off > 0 ? sqrt(off) / fmax(sqrt(norm), 1e-30) : 0;
    return d;
}

#endif
