/* SPDX-License-Identifier: MIT */
/*
 * Choices for one problem against each other: each compiled as any call would be, run on poisoned outputs between
 * guards, compared with the reference, and only then timed.
 *
 * Where the reference of the problem itself would take too long, the check is on a smaller problem with the same
 * compiled-in sizes, and inputs of the problem itself repeat those of the smaller one. wd_contest_turns() then
 * compares the two choices' outputs on the problem itself, too.
 *
 * Buffers are the contest's own. Not thread-safe.
 */
#ifndef WD_CONTEST_H
#define WD_CONTEST_H

#include "measure.h"
#include "trial.h"

struct wd_contest {
    struct wd_meter *meter;
    struct wd_trial *checked; /* whose outputs are compared with the reference */
    struct wd_trial *timed;   /* the problem itself: the same trial where its reference is affordable */
};

/** `p` is checked; its buffers are not looked at. `check_ns`: about how long a reference may take. */
wd_status wd_contest_init(struct wd_contest *c, struct wd_meter *meter, const struct wd_problem *p, double check_ns);
void wd_contest_fini(struct wd_contest *c);

enum { WD_CONTEST_TEXT = 256 };

/** Compiles, checks and times one choice for about budget_ns, less if it is hopeless against best_ns (0: unknown).
 *  *ns is INFINITY, and `why` says why, if it is of no use. A status is a failure of what surrounds the choice, such as
 * a context that no longer works. */
wd_status wd_contest_try(struct wd_contest *c, const struct wd_choice *choice, double best_ns, double budget_ns,
                         double *ns, char why[WD_CONTEST_TEXT]);

struct wd_turns {
    double a_ns, b_ns;       /* medians */
    double ratio, low, high; /* a/b: median of the pairs, and where it lies with 95 % */
    unsigned pairs;          /* 0: b's outputs were not those of a */
};

/** A B B A ...: what disturbs one disturbs the other. Some pairs, for about limit_ns. */
wd_status wd_contest_turns(struct wd_contest *c, const struct wd_choice *a, const struct wd_choice *b, double limit_ns,
                           struct wd_turns *turns);

#endif
