/* SPDX-License-Identifier: MIT */
/* The shapes that `verify`, `bench` and `demo` try when none are given. Tables; adding an operation adds rows. */
#ifndef CASES_H
#define CASES_H

#include "op.h"

enum case_use {
    CASE_VERIFY = 1,     /* odd sizes and options in every data type, small enough for the reference on any host */
    CASE_VERIFY_F32 = 2, /* the same for f32 data only */
    CASE_DEMO = 4,       /* one model-sized shape an operation */
    CASE_BENCH_GPU = 8,  /* shapes of models and of published timings */
    CASE_BENCH_CPU = 16, /* the same kinds, with fewer tokens */
    CASE_TINY = 32,      /* f32, a few thousand operations: for simulators that watch every access */
};

struct op_case {
    const char *op, *shape; /* shape.h's SHAPE, without dtype */
    unsigned use;           /* CASE_... or-ed */
};

extern const struct op_case op_cases[]; /* ended by a NULL op */

#endif
