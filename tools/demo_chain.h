/* SPDX-License-Identifier: MIT */
/*
 * The chain recompute_w_u -> chunk_fwd_h -> chunk_fwd_o on one device, through the public API only, against the
 * token-by-token recurrence in double. What goes in and comes out is what gdn_forward's tensors are.
 */
#ifndef DEMO_CHAIN_H
#define DEMO_CHAIN_H

#include "measure.h"

struct chain_result {
    double error;    /* relative Frobenius error of o or final_state, the larger */
    bool ok;         /* within the bar of chained operations, and every element within the published tolerance */
    double first_ns; /* host time of the first call, compilation included */
    struct wd_timing time;
    double bytes, flops; /* of the three calls together */
    char text[128];      /* not ok: why */
};

/** `p`: a checked problem of gdn_forward in f32, not packed. value[i]: its inputs as wd_op.reference takes them.
 *  `meter` may be NULL: then nothing is timed. */
wd_status chain_run(wd_context *ctx, const struct wd_problem *p, double *const *value, struct wd_meter *meter,
                    struct chain_result *result);

#endif
