/* SPDX-License-Identifier: MIT */
/*
 * Which candidate to measure next. Knows no OpenCL: the tuner asks for a candidate, and tells how it did.
 *
 * Candidates are the model's numbers for each variant that refuses nothing, and every valid combination of a variant's
 * parameter values. The model's choice goes first, then its neighbours (one parameter, one step) and those of each
 * better one. Where none is left untried the search starts again elsewhere: from the other variants' model numbers,
 * then at random. A small space is tried to its end; in a large one a few fruitless restarts end the search.
 *
 * Not thread-safe.
 */
#ifndef WD_SEARCH_H
#define WD_SEARCH_H

#include "tuning.h"

enum {
    WD_SEARCH_SMALL = 24,   /* candidates that are all tried */
    WD_SEARCH_RESTARTS = 4, /* fruitless ones in a row that end the search of a larger space */
};

struct wd_candidate {
    const struct wd_variant *variant;
    int param[WD_MAX_PARAMS];
    double ns; /* 0: not tried; INFINITY: tried, and of no use */
};

struct wd_search {
    struct wd_candidate *candidate;
    size_t count, capacity;
    size_t models; /* the first so many are the model's, best first: [0] is its choice */
    size_t tried;
    size_t best;   /* SIZE_MAX: none yet */
    size_t centre; /* whose neighbours are being tried; SIZE_MAX: none yet */
    unsigned fruitless;
    uint64_t random;
};

/** Lists the candidates. WD_ENOTSUP if every variant refuses the problem. */
wd_status wd_search_init(struct wd_search *s, const struct wd_caps *caps, const struct wd_problem *p);
void wd_search_fini(struct wd_search *s);

/** The next candidate to try. False: the search is at its end. */
bool wd_search_next(struct wd_search *s, size_t *at);

/** How candidate `at` did: its time, or INFINITY if it is of no use, which may also turn out later. */
void wd_search_tell(struct wd_search *s, size_t at, double ns);

/** A candidate as a choice. */
struct wd_choice wd_search_choice(const struct wd_search *s, size_t at);

#endif
