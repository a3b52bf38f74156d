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

/** The largest power of two up to `most` that the device allows as a group's size. At 128 it is whole waves of every
 *  width that there is (8 to 64), and of any size up to a compute unit's limit several groups share one. */
int wd_stream_local(const struct wd_caps *caps, size_t most);

/** Elements that an item may hold in registers, at most `most`: half of those it has. The other half is for what the
 *  compiler makes of an element on its way (an address, a conversion, a load that is under way). */
size_t wd_stream_held(const struct wd_caps *caps, size_t most);

/** How many of `pieces` an item should take: a power of two up to `most` that leaves every compute unit 2048 items,
 * which is what one holds at once: NVIDIA's SM 64 warps of 32, a CU of CDNA 4 x 8 waves of 64, a WGP of RDNA 4 x 16
 * waves of 32, a Xe core 16 x 8 threads of 16 lanes; a Mali shader core 1024 to 2048. */
int wd_stream_inflight(const struct wd_caps *caps, size_t pieces, int most);

/** A one-dimensional grid. */
void wd_stream_grid(struct wd_grid *g, size_t local, size_t groups);

static inline size_t wd_ceil_div(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

#endif
