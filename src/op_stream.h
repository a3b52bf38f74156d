/* SPDX-License-Identifier: MIT */
/* What the operations that are bound by memory share: parameters and grids of their CPU and GPU forms. */
#ifndef WD_OP_STREAM_H
#define WD_OP_STREAM_H

#include "op.h"

/* ---- CPU forms (cpu.cl): items share the pieces of work evenly ---- */

/* Values of the parameters `vl` (floats of a vector) and `stream` (1: plain stores, 2: non-temporal ones). */
extern const int wd_stream_vl_values[], wd_stream_stores_values[];

/** A wd_variant.refuse: only CPUs. */
const char *wd_stream_cpu_refuse(const struct wd_caps *caps, const struct wd_problem *p);

int wd_stream_vl(const struct wd_caps *caps);
int wd_stream_stores(const struct wd_caps *caps, const struct wd_problem *p);

/** Single work-items, at most one for each of `pieces`. */
void wd_stream_cpu_grid(const struct wd_caps *caps, size_t pieces, struct wd_grid *g);

/* ---- GPU forms: items move vectors of `width` elements, several in flight ---- */

extern const int wd_stream_local_values[], wd_stream_width_values[], wd_stream_inflight_values[];

/** A wd_variant.refuse: only devices that want many items (no CPUs), and groups of 16 at least. */
const char *wd_stream_gpu_refuse(const struct wd_caps *caps, const struct wd_problem *p);

/** 16 bytes of `dtype`, in elements. */
int wd_stream_width(wd_dtype dtype);

/** The largest power of two up to `most` that the device allows as a group's size. */
int wd_stream_local(const struct wd_caps *caps, size_t most);

/** How many of `pieces` an item should take: a power of two up to `most` that leaves every compute unit 2048 items. */
int wd_stream_inflight(const struct wd_caps *caps, size_t pieces, int most);

/** A one-dimensional grid. */
void wd_stream_grid(struct wd_grid *g, size_t local, size_t groups);

static inline size_t wd_ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

#endif
