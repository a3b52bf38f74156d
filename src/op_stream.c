/* SPDX-License-Identifier: MIT */
#include "op_stream.h"

/* ---- CPU ---- */

const int wd_stream_vl_values[] = {4, 8, 16, 0};
const int wd_stream_stores_values[] = {1, 2, 0};

const char *wd_stream_cpu_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    (void)p;
    return caps->cpu ? NULL : "the device is not a CPU";
}

/* On AVX2 two registers a vector hide latencies better than one. */
int wd_stream_vl(const struct wd_caps *caps)
{
    return caps->simd >= 8 ? 16 : 8;
}

/* What a call may take for its own of the last cache: a virtual machine shows that of the whole host, and two of its
 * cores are not alone with it. */
static double cache_share(const struct wd_caps *caps)
{
    const double each = 8.0 * (1 << 20), cores = caps->compute_units ? caps->compute_units : 1;
    return caps->cache_bytes && (double)caps->cache_bytes < each * cores ? (double)caps->cache_bytes : each * cores;
}

/* Past the caches once a call moves more than half of that. With 32 MiB, inputs in the cache and outputs read at once,
 * plain stores were 1.4 times as fast at 8 MB, level at 16, and 1.2 times as slow from 32 on; with cold inputs they
 * never won. Eight cores of a large host with AVX-512 were level at 42 MB; at 84 plain stores took 1.5 times as long.
 */
int wd_stream_stores(const struct wd_caps *caps, const struct wd_problem *p)
{
    return 2 * p->bytes > cache_share(caps) ? 2 : 1;
}

/* Eight items a core even out what runs beside, and a work-group costs next to nothing. */
void wd_stream_cpu_grid(const struct wd_caps *caps, size_t pieces, struct wd_grid *g)
{
    const size_t items = 8 * (size_t)(caps->compute_units ? caps->compute_units : 1);
    wd_stream_grid(g, 1, pieces < items ? pieces : items);
}

/* ---- GPU ---- */

const int wd_stream_local_values[] = {32, 64, 128, 256, 512, 1024, 0};
const int wd_stream_width_values[] = {2, 4, 8, 16, 0};
const int wd_stream_inflight_values[] = {1, 2, 4, 8, 0};

const char *wd_stream_gpu_refuse(const struct wd_caps *caps, const struct wd_problem *p)
{
    (void)p;
    if (caps->cpu)
        return "the device is a CPU";
    return caps->max_group < 32 ? "it needs work-groups of 32" : NULL;
}

int wd_stream_width(wd_dtype dtype)
{
    return (int)(16 / wd_dtype_size(dtype));
}

int wd_stream_local(const struct wd_caps *caps, size_t most)
{
    size_t local = 1;
    while (local * 2 <= most && local * 2 <= caps->max_group && local * 2 <= caps->max_local[0])
        local *= 2;
    return (int)local;
}

size_t wd_stream_held(const struct wd_caps *caps, size_t most)
{
    const size_t half = caps->registers / 2;
    return caps->registers && half < most ? half : most;
}

int wd_stream_inflight(const struct wd_caps *caps, size_t pieces, int most)
{
    const size_t full = 2048 * (size_t)(caps->compute_units ? caps->compute_units : 1);
    int n = 1;
    while (n * 2 <= most && pieces / (size_t)(n * 2) >= full)
        n *= 2;
    return n;
}

void wd_stream_grid(struct wd_grid *g, size_t local, size_t groups)
{
    g->dims = 1;
    g->local[0] = local;
    g->groups[0] = groups;
}
