/* SPDX-License-Identifier: MIT */
#include "search.h"
#include "status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CANDIDATES = 4096 }; /* of a larger space the first so many, in the order of its values */

/* Times over the best from which a place is not worth exploring. */
static const double hopeless = 3;

/* ---- The candidates ---- */

static bool same(const struct wd_candidate *c, const struct wd_choice *choice)
{
    return c->variant == choice->variant && memcmp(c->param, choice->param, sizeof c->param) == 0;
}

static bool add(struct wd_search *s, const struct wd_choice *choice)
{
    for (size_t i = 0; i < s->count; i++)
        if (same(&s->candidate[i], choice))
            return true;
    if (s->count == s->capacity) {
        const size_t capacity = 2 * s->capacity + 32;
        struct wd_candidate *grown = realloc(s->candidate, capacity * sizeof *grown);
        if (!grown)
            return false;
        s->candidate = grown;
        s->capacity = capacity;
    }
    struct wd_candidate *c = &s->candidate[s->count++];
    *c = (struct wd_candidate){.variant = choice->variant};
    memcpy(c->param, choice->param, sizeof c->param);
    return true;
}

/* Steps `at` to the next combination of the variant's values, the last parameter fastest. False after the last one. */
static bool step(const struct wd_variant *v, size_t num_params, size_t at[WD_MAX_PARAMS])
{
    for (size_t i = num_params; i-- > 0; at[i] = 0)
        if (v->params[i].values[at[i]] && v->params[i].values[++at[i]])
            return true;
    return false;
}

static bool add_grid(struct wd_search *s, const struct wd_caps *caps, const struct wd_problem *p,
                     const struct wd_variant *v)
{
    const size_t n = wd_num_params(v);
    size_t at[WD_MAX_PARAMS] = {0};
    if (n == 0 || (v->refuse && v->refuse(caps, p)))
        return true;
    do {
        struct wd_choice choice = {.variant = v};
        for (size_t i = 0; i < n; i++)
            choice.param[i] = v->params[i].values[at[i]];
        if (!wd_choice_fault(caps, p, &choice) && !add(s, &choice))
            return false;
    } while (step(v, n, at) && s->count < MAX_CANDIDATES);
    return true;
}

wd_status wd_search_init(struct wd_search *s, const struct wd_caps *caps, const struct wd_problem *p)
{
    *s = (struct wd_search){.best = SIZE_MAX, .centre = SIZE_MAX, .random = 88172645463325252u};
    struct wd_choice choice[WD_MAX_CHOICES];
    const size_t models = wd_tuning_models(caps, p, choice, WD_MAX_CHOICES, NULL);
    bool ok = true;
    for (size_t i = 0; i < models && ok; i++)
        ok = add(s, &choice[i]);
    s->models = s->count;
    for (size_t i = 0; p->op->variants[i] && ok; i++)
        ok = add_grid(s, caps, p, p->op->variants[i]);
    if (ok && s->count)
        return WD_OK;
    wd_search_fini(s);
    return ok ? wd_fail(WD_ENOTSUP, "wd_%s: no variant serves this call on %s", p->op->name, caps->name)
              : wd_fail(WD_ENOMEM, "wd_%s: out of memory", p->op->name);
}

void wd_search_fini(struct wd_search *s)
{
    free(s->candidate);
    s->candidate = NULL;
    s->count = 0;
}

struct wd_choice wd_search_choice(const struct wd_search *s, size_t at)
{
    struct wd_choice choice = {.variant = s->candidate[at].variant, .source = WD_FROM_MEASURED};
    memcpy(choice.param, s->candidate[at].param, sizeof choice.param);
    return choice;
}

/* ---- The order ---- */

/* Is no listed value strictly between these two? The model's numbers need not be listed themselves. */
static bool one_step(const int *values, int a, int b)
{
    const int low = a < b ? a : b, high = a < b ? b : a;
    for (; *values; values++)
        if (*values > low && *values < high)
            return false;
    return true;
}

static bool neighbours(const struct wd_candidate *a, const struct wd_candidate *b)
{
    if (a->variant != b->variant)
        return false;
    size_t differ = 0;
    for (size_t i = 0; i < wd_num_params(a->variant); i++)
        if (a->param[i] != b->param[i]) {
            differ++;
            if (!one_step(a->variant->params[i].values, a->param[i], b->param[i]))
                return false;
        }
    return differ == 1;
}

/* Marsaglia: "Xorshift RNGs", 2003. */
static size_t below(struct wd_search *s, size_t n)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (size_t)(s->random % n);
}

/* The n-th untried candidate of those below `end`; SIZE_MAX if there are fewer. */
static size_t untried(const struct wd_search *s, size_t end, size_t n)
{
    for (size_t i = 0; i < end; i++)
        if (s->candidate[i].ns == 0 && n-- == 0)
            return i;
    return SIZE_MAX;
}

static size_t untried_neighbour(const struct wd_search *s)
{
    if (s->centre == SIZE_MAX)
        return SIZE_MAX;
    const struct wd_candidate *centre = &s->candidate[s->centre];
    if (s->best != SIZE_MAX && centre->ns > hopeless * s->candidate[s->best].ns)
        return SIZE_MAX;
    for (size_t i = 0; i < s->count; i++)
        if (s->candidate[i].ns == 0 && neighbours(centre, &s->candidate[i]))
            return i;
    return SIZE_MAX;
}

bool wd_search_next(struct wd_search *s, size_t *at)
{
    *at = untried_neighbour(s);
    if (*at != SIZE_MAX)
        return true;
    if (s->tried == s->count || (s->count > WD_SEARCH_SMALL && s->fruitless >= WD_SEARCH_RESTARTS))
        return false;
    *at = untried(s, s->models, 0);
    if (*at == SIZE_MAX) {
        s->fruitless++;
        *at = untried(s, s->count, below(s, s->count - s->tried));
    }
    s->centre = *at;
    return true;
}

static size_t fastest(const struct wd_search *s)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < s->count; i++)
        if (s->candidate[i].ns > 0 && !isinf(s->candidate[i].ns) &&
            (best == SIZE_MAX || s->candidate[i].ns < s->candidate[best].ns))
            best = i;
    return best;
}

void wd_search_tell(struct wd_search *s, size_t at, double ns)
{
    struct wd_candidate *c = &s->candidate[at];
    s->tried += c->ns == 0;
    c->ns = ns;
    if (isinf(ns)) {
        s->best = at == s->best ? fastest(s) : s->best;
        return;
    }
    if (s->best == SIZE_MAX || ns < s->candidate[s->best].ns) {
        s->best = at;
        s->fruitless = 0;
    }
    if (s->centre == SIZE_MAX || ns < s->candidate[s->centre].ns)
        s->centre = at;
}
