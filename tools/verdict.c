/* SPDX-License-Identifier: MIT */
#include "verdict.h"

#include <math.h>
#include <stdlib.h>

#include "measure.h"

/* The interval misses in one of a hundred comparisons: a run compares some dozens. */
static const double error_rate = 0.01;

/* Runs of the same code differ by this much where nothing is wrong: pages and buffers lie elsewhere. */
static const double margin = 0.05;

enum { MAX_PAIRS = VERDICT_SAMPLES * VERDICT_SAMPLES };

/* How many of the smallest and how many of the largest of the m n ratios lie outside the interval, plus one: the
 * largest k for which the statistic is below k in at most half of the errors allowed. 0: there is none.
 *
 * Of the C(m+n, n) orders of both samples, as many have u pairs the one way round as x^u has in
 * prod (1 - x^(n+i)) / (1 - x^i), i = 1 .. m. Up to 25 of each, these are integers that a double holds. */
static size_t pairs_outside(size_t m, size_t n)
{
    double ways[MAX_PAIRS + 1] = {1}, all = 0, below = 0;
    const size_t last = m * n;
    for (size_t i = 1; i <= m; i++) {
        for (size_t u = last; u >= n + i; u--)
            ways[u] -= ways[u - n - i];
        for (size_t u = i; u <= last; u++)
            ways[u] += ways[u - i];
    }
    for (size_t u = 0; u <= last; u++)
        all += ways[u];
    size_t k = 0;
    while (2 * (below + ways[k]) <= error_rate * all)
        below += ways[k++];
    return k;
}

bool verdict_ratio(const double *before, size_t num_before, const double *now, size_t num_now, struct verdict_ratio *r)
{
    double ratio[MAX_PAIRS];
    size_t pairs = 0;
    if (num_before == 0 || num_now == 0 || num_before > VERDICT_SAMPLES || num_now > VERDICT_SAMPLES)
        return false;
    for (size_t i = 0; i < num_before; i++)
        for (size_t j = 0; j < num_now; j++)
            ratio[pairs++] = fmax(now[j], 1) / fmax(before[i], 1); /* no clock shows less than a nanosecond */
    const size_t k = pairs_outside(num_before, num_now);
    if (k == 0)
        return false;
    qsort(ratio, pairs, sizeof ratio[0], wd_by_value);
    *r = (struct verdict_ratio){
        .ratio = sqrt(ratio[(pairs - 1) / 2] * ratio[pairs / 2]), .low = ratio[k - 1], .high = ratio[pairs - k]};
    return true;
}

const char *verdict_name(enum verdict v)
{
    static const char *const name[] = {"same", "faster", "slower", "unknown"};
    return name[v];
}

enum verdict verdict_of(const struct verdict_ratio *r, double drift)
{
    if (r->low > fmax(1 + margin, drift))
        return VERDICT_SLOWER;
    return r->high < fmin(1 / (1 + margin), drift) ? VERDICT_FASTER : VERDICT_SAME;
}
