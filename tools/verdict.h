/* SPDX-License-Identifier: MIT */
/* Did something get slower? Two samples of times, each of a run of its own, and what the device itself did between. */
#ifndef VERDICT_H
#define VERDICT_H

#include <stdbool.h>
#include <stddef.h>

enum { VERDICT_SAMPLES = 25 }; /* at most in each sample */

/* How many times as long something takes now, and the interval in which that lies with 99 %. */
struct verdict_ratio {
    double ratio, low, high;
};

/** now / before. The estimate is the median of the ratios of all pairs (Hodges and Lehmann), the interval is Moses's,
 *  from the distribution of Mann and Whitney's statistic: no assumption on how times are distributed, only that the two
 *  samples differ by a factor. M. Hollander, D. A. Wolfe, E. Chicken: "Nonparametric Statistical Methods", 3rd edition,
 *  2014, sections 4.2 and 4.3. False: too few samples for 99 % (five in each are enough). */
bool verdict_ratio(const double *before, size_t num_before, const double *now, size_t num_now, struct verdict_ratio *r);

enum verdict { VERDICT_SAME, VERDICT_FASTER, VERDICT_SLOWER, VERDICT_UNKNOWN };

/** "same", "faster", "slower", "unknown" */
const char *verdict_name(enum verdict v);

/** Slower, if the whole interval is above 1 by more than runs of the same code differ from each other, and above what
 *  the device's own rate changed by; faster likewise. `drift`: how many times as long the device takes now for what
 *  bounds the operation (a copy, multiply-adds); 1: not known. */
enum verdict verdict_of(const struct verdict_ratio *r, double drift);

#endif
