/* SPDX-License-Identifier: MIT */
#include "fill.h"

#include "parallel.h"
#include "reference.h"

#include <math.h>
#include <string.h>

/* ---- Random numbers ---- */

/* SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* In (0, 1): never 0, so that log() is safe. */
static double uniform(uint64_t *state)
{
    return ((double)(next(state) >> 11) + 0.5) * 0x1p-53;
}

/* In [0, n). */
static size_t below(uint64_t *state, size_t n)
{
    return n ? (size_t)(next(state) % n) : 0;
}

/* n samples of N(0, 1) times `scale`, two at a time (Box and Muller 1958). */
static void row_of_normals(uint64_t *state, double scale, double *x, size_t n)
{
    const double turn = 6.283185307179586;
    for (size_t i = 0; i < n; i += 2) {
        const double radius = scale * sqrt(-2 * log(uniform(state))), angle = turn * uniform(state);
        x[i] = radius * cos(angle);
        if (i + 1 < n)
            x[i + 1] = radius * sin(angle);
    }
}

struct normals {
    uint64_t state;
    double scale, *x;
    size_t n;
};

/* Each block's numbers begin somewhere else. */
static void block_of_normals(void *user, size_t i)
{
    const struct normals *all = user;
    const struct wd_range r = wd_block(all->n, WD_BLOCK, i);
    uint64_t state = all->state, place = i;
    state ^= i ? next(&place) : 0;
    row_of_normals(&state, all->scale, all->x + r.first, r.end - r.first);
}

/* The same, many of them; the same numbers whatever the number of threads. */
static void normals(const uint64_t *state, double scale, double *x, size_t n)
{
    struct normals all = {*state, scale, x, n};
    wd_parallel(wd_blocks(n, WD_BLOCK), block_of_normals, &all);
}

/* ---- What the shapes say ---- */

/* A tensor to fill: its shape, and the sequences that its tokens belong to. */
struct target {
    size_t ext[WD_MAX_RANK], rank, n;
    const double *cu_seqlens; /* NULL: not packed */
    size_t sequences;
    enum wd_gates gates;
};

static struct target describe(const struct wd_problem *p, size_t tensor, enum wd_gates gates, double *const *value)
{
    struct target t = {.n = wd_tensor_elements(p, tensor), .gates = gates};
    t.rank = wd_tensor_extents(p, tensor, t.ext);
    t.sequences = t.ext[0];
    for (size_t i = 0; i < p->op->num_tensors; i++)
        if (p->op->tensors[i].fill == WD_FILL_OFFSETS && p->tensor[i].present && i != tensor) {
            t.cu_seqlens = value[i];
            t.sequences = wd_tensor_elements(p, i) - 1;
        }
    return t;
}

/* ---- Fills ---- */

static void fill_unit_rows(const uint64_t *rng, const struct target *t, double *x)
{
    const size_t width = t->ext[t->rank - 1];
    normals(rng, 1, x, t->n);
    for (size_t row = 0; row < t->n; row += width) {
        double squares = 0;
        for (size_t i = 0; i < width; i++)
            squares += x[row + i] * x[row + i];
        const double norm = sqrt(squares);
        for (size_t i = 0; i < width; i++)
            x[row + i] /= norm;
    }
}

/* The log gate of a token at place `i` of its chunk. Published inputs are sums of sums of log(sigmoid(N(0,1))), so a
 * token's gate grows with its place. */
static double random_gate(uint64_t *rng, enum wd_gates gates, size_t i)
{
    double x;
    switch (gates) {
    case WD_GATES_MILD: return -0.1 * uniform(rng);
    case WD_GATES_STEEP: row_of_normals(rng, 1, &x, 1); return -log1p(exp(-x)) * (double)(i + 1);
    case WD_GATES_ZERO: break;
    }
    return 0;
}

/* [B][T][HV] */
static void fill_gates(uint64_t *rng, const struct target *t, double *x)
{
    const size_t T = t->ext[1], HV = t->ext[2];
    for (size_t i = 0; i < t->n; i++)
        x[i] = random_gate(rng, t->gates, i / HV % T % WD_GDN_CHUNK);
}

/* [B][T][HV] */
static void fill_gate_sums(uint64_t *rng, const struct target *t, double *x)
{
    const size_t T = t->ext[1], HV = t->ext[2];
    for (size_t s = 0; s < t->sequences; s++) {
        const struct wd_span span = wd_sequence_span(t->cu_seqlens, T, s);
        for (size_t row = span.begin; row < span.end; row++)
            for (size_t hv = 0; hv < HV; hv++) {
                const size_t i = (row - span.begin) % WD_GDN_CHUNK;
                x[row * HV + hv] = random_gate(rng, t->gates, i) + (i ? x[(row - 1) * HV + hv] : 0);
            }
    }
}

/* [B][T][HV][64] */
static void fill_lower(uint64_t *rng, const struct target *t, double *x)
{
    const size_t T = t->ext[1], HV = t->ext[2], width = t->ext[3];
    memset(x, 0, t->n * sizeof *x);
    for (size_t s = 0; s < t->sequences; s++) {
        const struct wd_span span = wd_sequence_span(t->cu_seqlens, T, s);
        for (size_t row = span.begin; row < span.end; row++)
            for (size_t hv = 0; hv < HV; hv++) {
                const size_t i = (row - span.begin) % WD_GDN_CHUNK;
                double *A = x + (row * HV + hv) * width;
                row_of_normals(rng, 1.0 / 16, A, i);
                A[i] = 1;
            }
    }
}

/* Rising from 0 to the tokens there are; of three sequences or more one is empty. Packed tensors are token-major:
 * the tokens are the second extent of the first tensor. */
static void fill_offsets(uint64_t *rng, const struct wd_problem *p, size_t sequences, double *x)
{
    size_t ext[WD_MAX_RANK];
    wd_tensor_extents(p, 0, ext);
    const size_t tokens = ext[1];
    x[0] = 0;
    x[sequences] = (double)tokens;
    for (size_t s = 1; s < sequences; s++) {
        const double cut = (double)below(rng, tokens + 1);
        size_t i = s;
        for (; i > 1 && x[i - 1] > cut; i--)
            x[i] = x[i - 1];
        x[i] = cut;
    }
    if (sequences >= 3)
        x[2] = x[1];
    for (size_t s = 0; p->cu_seqlens_host && s <= sequences; s++)
        x[s] = p->cu_seqlens_host[s];
}

/* Distinct slots in random order; of four sequences or more, and where slots run out, some are skipped. */
static void fill_slots(uint64_t *rng, const struct wd_problem *p, size_t n, double *x)
{
    size_t slots = n;
    for (size_t i = 0; i < p->op->num_dims; i++)
        if (strcmp(p->op->dims[i].name, "slots") == 0)
            slots = p->dim[i];
    for (size_t b = 0; b < n; b++) {
        bool taken = true;
        while (taken && b < slots) {
            x[b] = (double)below(rng, slots);
            taken = false;
            for (size_t i = 0; i < b; i++)
                taken |= x[i] == x[b];
        }
        if (b >= slots)
            x[b] = -1;
    }
    if (n >= 4)
        x[n / 2] = -1;
}

void wd_fill(const struct wd_problem *p, size_t tensor, enum wd_gates gates, uint64_t seed, double *const *value)
{
    const struct target t = describe(p, tensor, gates, value);
    uint64_t state = seed ^ (tensor + 1) * UINT64_C(0xD1342543DE82EF95), *rng = &state;
    double *x = value[tensor];
    if (t.n == 0)
        return;
    switch (p->op->tensors[tensor].fill) {
    case WD_FILL_NORMAL:
    case WD_FILL_OWN: normals(rng, 1, x, t.n); break;
    case WD_FILL_UNIT_ROW: fill_unit_rows(rng, &t, x); break;
    case WD_FILL_SMALL: normals(rng, 1.0 / 8, x, t.n); break;
    case WD_FILL_BETA:
        for (size_t i = 0; i < t.n; i++)
            x[i] = uniform(rng);
        break;
    case WD_FILL_GATE: fill_gates(rng, &t, x); break;
    case WD_FILL_GATE_SUM: fill_gate_sums(rng, &t, x); break;
    case WD_FILL_LOWER: fill_lower(rng, &t, x); break;
    case WD_FILL_OFFSETS: fill_offsets(rng, p, t.n - 1, x); break;
    case WD_FILL_SLOTS: fill_slots(rng, p, t.n, x); break;
    }
}
