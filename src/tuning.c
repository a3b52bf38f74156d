/* SPDX-License-Identifier: MIT */
#include "tuning.h"
#include "cache.h"
#include "embedded.h"
#include "file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t wd_num_params(const struct wd_variant *variant)
{
    size_t n = 0;
    while (variant->params && n < WD_MAX_PARAMS && variant->params[n].name)
        n++;
    return n;
}

unsigned wd_size_class(const struct wd_problem *p)
{
    if (p->op->size_class)
        return p->op->size_class(p);
    int exponent; /* bytes = m * 2^exponent, m in [1/2, 1) */
    frexp(p->bytes, &exponent);
    return exponent > 0 ? (unsigned)(exponent - 1) / 2 : 0;
}

/* ---- Text ---- */

void wd_class_text(const struct wd_problem *p, struct wd_text *text)
{
    const struct wd_op *op = p->op;
    for (size_t i = 0; i < op->num_tensors; i++)
        if (p->tensor[i].present && p->tensor[i].dtype == WD_F32X2) /* few bytes more, and the same work */
            wd_text_add(text, "%s=%s ", op->tensors[i].name, wd_dtype_name(WD_F32));
        else if (p->tensor[i].present && p->tensor[i].dtype != WD_I32)
            wd_text_add(text, "%s=%s ", op->tensors[i].name, wd_dtype_name(p->tensor[i].dtype));
        else if (p->tensor[i].present)
            wd_text_add(text, "%s=yes ", op->tensors[i].name);
    for (size_t i = 0; i < op->num_scalars; i++)
        if (op->scalars[i].kind == WD_CHOICE)
            wd_text_add(text, "%s=%s ", op->scalars[i].name, op->scalars[i].choices[p->choice[i]]);
        else if (op->scalars[i].kind == WD_FLAG)
            wd_text_add(text, "%s=%s ", op->scalars[i].name, p->choice[i] ? "yes" : "no");
    for (size_t i = 0; i < op->num_dims; i++)
        if (op->dims[i].kind == WD_DIM_FIXED)
            wd_text_add(text, "%s=%zu ", op->dims[i].name, p->dim[i]);
    wd_text_add(text, "vec=%u size=%u", p->vec, wd_size_class(p));
}

/* Names as they are: a quotation mark in one would end it, and no device has one. */
void wd_device_text(const struct wd_caps *caps, struct wd_text *text)
{
    wd_text_add(text, "device=\"%s\" driver=\"%s\"", caps->name, caps->driver);
}

void wd_choice_text(const struct wd_choice *choice, struct wd_text *text)
{
    wd_text_add(text, "%s", choice->variant->name);
    for (size_t i = 0; i < wd_num_params(choice->variant); i++)
        wd_text_add(text, " %s=%d", choice->variant->params[i].name, choice->param[i]);
}

/* ---- Matching ---- */

/* What the words of a device field are about, the vaguest first. */
struct fact {
    const char *name, *value;
    int rank;
};

static bool says(const char *field, const struct fact *fact, bool *truly)
{
    const char *value;
    const int length = wd_words_find(field, fact->name, &value);
    *truly = length >= 0 && strlen(fact->value) == (size_t)length && memcmp(fact->value, value, (size_t)length) == 0;
    return length >= 0;
}

/* How exactly a record's device field names this device: 0 not at all, 1 `*` ... 5 device and driver; STALE: it was
 * measured on this device with another driver. */
enum { STALE = -1 };

static int device_rank(const struct wd_caps *caps, const char *field)
{
    const struct fact facts[] = {
        {"type", caps->cpu ? "cpu" : "gpu", 2},
        {"kind", caps->kind, 2},
        {"arch", caps->arch, 3},
        {"device", caps->name, 4},
        {"driver", caps->driver, 5},
    };
    int rank = strcmp(field, "*") == 0 ? 1 : 0;
    for (size_t i = 0; i < WD_COUNT(facts); i++) {
        bool truly;
        if (!says(field, &facts[i], &truly))
            continue;
        if (!truly)
            return facts[i].rank == 5 && rank == 4 ? STALE : 0;
        rank = facts[i].rank;
    }
    return rank;
}

/* How many words a record says about the class: -1 if one is untrue of it. */
static int class_rank(const char *class_text, const char *field)
{
    if (strcmp(field, "*") == 0)
        return 0;
    int rank = 0;
    for (const char *w = field; *w; rank++) {
        const size_t len = strcspn(w, " ");
        if (!wd_words_have(class_text, w, len))
            return -1;
        w += len;
        w += strspn(w, " ");
    }
    return rank;
}

/* Reads "variant name=number ..." for this operation. What is wrong with it, or NULL. */
static const char *read_choice(const struct wd_op *op, const char *text, struct wd_choice *choice)
{
    const size_t len = strcspn(text, " ");
    choice->variant = NULL;
    for (size_t i = 0; op->variants[i]; i++)
        if (strlen(op->variants[i]->name) == len && strncmp(op->variants[i]->name, text, len) == 0)
            choice->variant = op->variants[i];
    if (!choice->variant)
        return "it names an unknown variant";
    for (size_t i = 0; i < wd_num_params(choice->variant); i++) {
        const char *value;
        if (wd_words_find(text, choice->variant->params[i].name, &value) < 0)
            return "it lacks a parameter of its variant";
        const long number = strtol(value, NULL, 10);
        if (number <= 0 || number > 1 << 24)
            return "a parameter is not a positive number";
        choice->param[i] = (int)number;
    }
    return NULL;
}

/* ---- Choosing ---- */

const char *wd_choice_fault(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_choice *choice)
{
    const struct wd_variant *v = choice->variant;
    const char *why = v->refuse ? v->refuse(caps, p) : NULL;
    if (why)
        return why;
    if (v->valid && !v->valid(caps, p, choice->param))
        return "its numbers do not fit this device or shape";
    if (v->chain)
        return NULL;
    struct wd_grid g = {0};
    v->grid(caps, p, choice->param, &g);
    size_t items = 1;
    for (cl_uint d = 0; d < g.dims; d++) {
        items *= g.local[d];
        if (g.local[d] > caps->max_local[d])
            return "its work-group is longer in one dimension than the device allows";
    }
    return items > caps->max_group ? "its work-group is larger than the device allows" : NULL;
}

bool wd_tuning_model(const struct wd_caps *caps, const struct wd_problem *p, const struct wd_variant *variant,
                     struct wd_choice *choice)
{
    *choice = (struct wd_choice){.variant = variant, .source = WD_FROM_MODEL};
    const char *why = variant->refuse ? variant->refuse(caps, p) : NULL;
    if (!why && variant->model)
        variant->model(caps, p, choice->param);
    if (!why)
        why = wd_choice_fault(caps, p, choice);
    snprintf(choice->reason, sizeof choice->reason, "%s", why ? why : "model: first variant that fits");
    return !why;
}

/* A record that speaks for the problem, and how loudly. */
struct candidate {
    const struct wd_record *record;
    int device, words;
};

static bool louder(const struct candidate *a, const struct candidate *b)
{
    if (a->device != b->device)
        return a->device > b->device;
    if (a->words != b->words)
        return a->words > b->words;
    return a->record->number > b->record->number;
}

/* A record that would speak, but does not: into the log, and to whoever asked. */
static void pass_over(const struct wd_tuning *tuning, const struct wd_records *records, const struct wd_record *r,
                      const char *fault, struct wd_text *refusals)
{
    wd_log(tuning->log, WD_LOG_WARNING, "tuning: %s line %d is passed over: %s", records->name, r->number, fault);
    if (refusals)
        wd_text_add(refusals, "%s line %d (%s): %s\n", records->name, r->number, r->choice, fault);
}

/* The records of one file that speak for the problem, loudest first, at most `room`. */
static size_t find_records(const struct wd_tuning *tuning, const struct wd_records *records, const struct wd_problem *p,
                           const char *class_text, struct candidate *best, size_t room, struct wd_text *refusals)
{
    size_t n = 0;
    for (size_t i = 0; i < records->count; i++) {
        const struct wd_record *r = &records->record[i];
        struct candidate c = {.record = r, .device = device_rank(tuning->caps, r->device)};
        if (strcmp(r->op, p->op->name) != 0 || !c.device || (c.words = class_rank(class_text, r->class_)) < 0)
            continue;
        if (c.device == STALE) {
            pass_over(tuning, records, r, "it was measured with another driver", refusals);
            continue;
        }
        size_t at = n < room ? n++ : room;
        while (at > 0 && louder(&c, &best[at - 1])) {
            if (at < room)
                best[at] = best[at - 1];
            at--;
        }
        if (at < room)
            best[at] = c;
    }
    return n;
}

enum { MAX_RECORDS = 3 }; /* choices that one file may add: the loudest is taken unless it does not compile */

/* Adds the choices of one file's records. */
static size_t choose_records(const struct wd_tuning *tuning, const struct wd_records *records,
                             const struct wd_problem *p, const char *class_text, struct wd_choice *choice,
                             struct wd_text *refusals)
{
    struct candidate best[MAX_RECORDS];
    const size_t n = find_records(tuning, records, p, class_text, best, MAX_RECORDS, refusals);
    size_t chosen = 0;
    for (size_t i = 0; i < n; i++) {
        const struct wd_record *r = best[i].record;
        struct wd_choice *c = &choice[chosen];
        *c = (struct wd_choice){.source = records == &tuning->user ? WD_FROM_USER : WD_FROM_SHIPPED};
        const char *fault = read_choice(p->op, r->choice, c);
        if (!fault)
            fault = wd_choice_fault(tuning->caps, p, c);
        if (fault) {
            pass_over(tuning, records, r, fault, refusals);
            continue;
        }
        snprintf(c->reason, sizeof c->reason, "%s line %d: %s, %s", records->name, r->number, r->device, r->class_);
        chosen++;
    }
    return chosen;
}

size_t wd_tuning_models(const struct wd_caps *caps, const struct wd_problem *p, struct wd_choice *choice, size_t room,
                        struct wd_text *refusals)
{
    struct wd_choice next;
    size_t n = 0, held = 0; /* the last `held` yield to the next that serves */
    for (const struct wd_variant *const *v = p->op->variants; *v && n < room; v++) {
        if (!wd_tuning_model(caps, p, *v, &next)) {
            if (refusals)
                wd_text_add(refusals, "%s: %s\n", (*v)->name, next.reason);
            continue;
        }
        const bool yields = (*v)->yields && (*v)->yields(caps, p);
        if (yields && refusals)
            wd_text_add(refusals, "%s: the next is likely to be faster here\n", (*v)->name);
        const size_t place = yields ? n : n - held;
        memmove(choice + place + 1, choice + place, (n - place) * sizeof *choice);
        choice[place] = next;
        held = yields ? held + 1 : 0;
        n++;
    }
    return n;
}

size_t wd_tuning_choices(const struct wd_tuning *tuning, const struct wd_problem *p,
                         struct wd_choice choice[WD_MAX_CHOICES], struct wd_text *refusals)
{
    struct wd_text class_text = {0};
    wd_class_text(p, &class_text);
    size_t n = 0;
    if (!class_text.failed) {
        n = choose_records(tuning, &tuning->user, p, class_text.data, choice, refusals);
        n += choose_records(tuning, &tuning->shipped, p, class_text.data, choice + n, refusals);
    }
    wd_text_free(&class_text);
    return n + wd_tuning_models(tuning->caps, p, choice + n, WD_MAX_CHOICES - n, refusals);
}

/* ---- Loading ---- */

static const char *shipped_text(void)
{
    for (const struct wd_embedded *e = wd_embedded; e->name; e++)
        if (strcmp(e->name, "defaults.tune") == 0)
            return e->text;
    return "";
}

char *wd_tuning_place(const char *tuning_file, const char *cache_dir)
{
    static const char name[] = "/tuning.tune";
    const char *file = tuning_file ? tuning_file : getenv("WARPDRIVE_TUNING_FILE");
    if (file)
        return *file ? strdup(file) : NULL;
    char *dir = wd_cache_place(cache_dir);
    const size_t n = dir ? strlen(dir) + sizeof name : 0;
    char *path = dir ? malloc(n) : NULL;
    if (path)
        snprintf(path, n, "%s%s", dir, name);
    free(dir);
    return path;
}

wd_status wd_tuning_init(struct wd_tuning *tuning, const struct wd_caps *caps, const char *user_file,
                         const struct wd_log *log)
{
    char *text = NULL;
    *tuning = (struct wd_tuning){.caps = caps, .log = log};
    wd_status st = wd_records_parse(&tuning->shipped, "shipped defaults", shipped_text(), log);
    if (st || !user_file)
        return st;
    tuning->user_file = strdup(user_file);
    if (!tuning->user_file)
        return wd_fail(WD_ENOMEM, "tuning: %s: out of memory", user_file);
    st = wd_file_read(user_file, &text);
    if (st == WD_EIO) { /* as good as none */
        wd_log(log, WD_LOG_WARNING, "tuning: %s", wd_last_error());
        return WD_OK;
    }
    if (st || !text)
        return st;
    st = wd_records_parse(&tuning->user, user_file, text, log);
    free(text);
    return st;
}

void wd_tuning_fini(struct wd_tuning *tuning)
{
    wd_records_free(&tuning->user);
    wd_records_free(&tuning->shipped);
    free(tuning->user_file);
}
