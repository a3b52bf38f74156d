/* SPDX-License-Identifier: MIT */
#include "shape.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char dtype_suffix[] = "_dtype";

void shape_init(struct shape *shape, const struct wd_op *op)
{
    memset(shape, 0, sizeof *shape);
    shape->op = op;
    shape->args.struct_size = op->args_size;
}

wd_tensor *shape_tensor(struct shape *shape, size_t tensor)
{
    return (wd_tensor *)(void *)(shape->args.byte + shape->op->tensors[tensor].offset);
}

size_t *shape_dim(struct shape *shape, size_t dim)
{
    return (size_t *)(void *)(shape->args.byte + shape->op->dims[dim].offset);
}

static wd_dtype dtype_by_name(const char *name)
{
    for (wd_dtype t = WD_F32; t <= WD_DTYPE_LAST; t++)
        if (!strcmp(wd_dtype_name(t), name))
            return t;
    return WD_DTYPE_DEFAULT;
}

/* ---- Setting by name ---- */

/* Appends ", name" to a list that may be cut. */
static void add_name(char *list, size_t size, const char *name)
{
    const size_t n = strlen(list);
    snprintf(list + n, size - n, "%s%s", n ? ", " : "", name);
}

static wd_status set_dim(struct shape *shape, size_t i, const char *value)
{
    uint64_t n;
    if (!cli_number(value, &n) || n > SIZE_MAX)
        return wd_fail(WD_EINVAL, "%s: %s: '%s' is not a size", shape->op->name, shape->op->dims[i].name, value);
    *shape_dim(shape, i) = (size_t)n;
    shape->given[i] = true;
    return WD_OK;
}

static wd_status set_real(struct shape *shape, const struct wd_scalar_desc *s, const char *value)
{
    char *end;
    const float number = strtof(value, &end);
    if (!*value || *end || !isfinite(number))
        return wd_fail(WD_EINVAL, "%s: %s: '%s' is not a number", shape->op->name, s->name, value);
    memcpy(shape->args.byte + s->offset, &number, sizeof number);
    return WD_OK;
}

static wd_status set_choice(struct shape *shape, const struct wd_scalar_desc *s, const char *value)
{
    char known[128] = "";
    for (int i = 0; s->choices[i]; i++) {
        if (!strcmp(s->choices[i], value)) {
            memcpy(shape->args.byte + s->offset, &i, sizeof i);
            return WD_OK;
        }
        add_name(known, sizeof known, s->choices[i]);
    }
    return wd_fail(WD_EINVAL, "%s: %s: '%s' is none of: %s", shape->op->name, s->name, value, known);
}

static wd_status set_flag(struct shape *shape, const struct wd_scalar_desc *s, const char *value)
{
    const bool on = !*value || !strcmp(value, "1") || !strcmp(value, "true");
    if (!on && strcmp(value, "0") != 0 && strcmp(value, "false") != 0)
        return wd_fail(WD_EINVAL, "%s: %s: '%s' is neither 0 nor 1", shape->op->name, s->name, value);
    memcpy(shape->args.byte + s->offset, &on, sizeof on);
    return WD_OK;
}

static wd_status set_scalar(struct shape *shape, size_t i, const char *value)
{
    const struct wd_scalar_desc *s = &shape->op->scalars[i];
    switch (s->kind) {
    case WD_REAL: return set_real(shape, s, value);
    case WD_CHOICE: return set_choice(shape, s, value);
    case WD_FLAG: return set_flag(shape, s, value);
    }
    return WD_EINVAL;
}

static wd_status set_dtype(struct shape *shape, size_t i, const char *value)
{
    const struct wd_tensor_desc *t = &shape->op->tensors[i];
    const wd_dtype dtype = dtype_by_name(value);
    if (!dtype || !(t->dtypes & WD_TYPE(dtype))) {
        char known[64] = "";
        for (wd_dtype k = WD_F32; k <= WD_DTYPE_LAST; k++)
            if (t->dtypes & WD_TYPE(k))
                add_name(known, sizeof known, wd_dtype_name(k));
        return wd_fail(WD_EINVAL, "%s: %s%s: '%s' is none of: %s", shape->op->name, t->name, dtype_suffix, value,
                       known);
    }
    shape_tensor(shape, i)->dtype = dtype;
    shape->present[i] = true;
    return WD_OK;
}

static wd_status set_common_dtype(struct shape *shape, const char *value)
{
    shape->dtype = dtype_by_name(value);
    if (!(WD_TYPES_DATA & WD_TYPE(shape->dtype)))
        return wd_fail(WD_EINVAL, "%s: dtype: '%s' is none of: f32, f16, bf16", shape->op->name, value);
    return WD_OK;
}

/* "x" or "x_dtype"? `suffix` is what must follow the tensor's name. */
static bool names_tensor(const char *name, const struct wd_tensor_desc *t, const char *suffix)
{
    const size_t n = strlen(t->name);
    return !strncmp(name, t->name, n) && !strcmp(name + n, suffix);
}

static wd_status unknown_name(const struct wd_op *op, const char *name)
{
    char known[512] = "";
    for (size_t i = 0; i < op->num_dims; i++)
        if (op->dims[i].offset != WD_DERIVED)
            add_name(known, sizeof known, op->dims[i].name);
    for (size_t i = 0; i < op->num_scalars; i++)
        add_name(known, sizeof known, op->scalars[i].name);
    add_name(known, sizeof known, "dtype, <tensor>_dtype");
    for (size_t i = 0; i < op->num_tensors; i++)
        if (op->tensors[i].optional)
            add_name(known, sizeof known, op->tensors[i].name);
    return wd_fail(WD_EINVAL, "%s: no size, option or optional tensor is called '%s'; there are: %s", op->name, name,
                   known);
}

wd_status shape_set(struct shape *shape, const char *name, const char *value)
{
    const struct wd_op *op = shape->op;
    if (!strcmp(name, "dtype"))
        return set_common_dtype(shape, value);
    for (size_t i = 0; i < op->num_dims; i++)
        if (op->dims[i].offset != WD_DERIVED && !strcmp(op->dims[i].name, name))
            return set_dim(shape, i, value);
    for (size_t i = 0; i < op->num_scalars; i++)
        if (!strcmp(op->scalars[i].name, name))
            return set_scalar(shape, i, value);
    for (size_t i = 0; i < op->num_tensors; i++) {
        if (names_tensor(name, &op->tensors[i], dtype_suffix))
            return set_dtype(shape, i, value);
        if (op->tensors[i].optional && names_tensor(name, &op->tensors[i], "") && !*value) {
            shape->present[i] = true;
            return WD_OK;
        }
    }
    return unknown_name(op, name);
}

wd_status shape_parse(struct shape *shape, const char *text)
{
    while (*text) {
        char word[SHAPE_TEXT];
        const size_t n = strcspn(text, ",");
        if (n == 0 || n >= sizeof word)
            return wd_fail(WD_EINVAL, "%s: a SHAPE is name=value,...: '%s'", shape->op->name, text);
        memcpy(word, text, n);
        word[n] = '\0';
        char *equals = strchr(word, '=');
        if (equals)
            *equals = '\0';
        const wd_status st = shape_set(shape, word, equals ? equals + 1 : "");
        if (st)
            return st;
        text += n + (text[n] == ',');
    }
    shape_finish(shape);
    return WD_OK;
}

void shape_finish(struct shape *shape)
{
    for (size_t i = 0; i < shape->op->num_tensors; i++) {
        const struct wd_tensor_desc *d = &shape->op->tensors[i];
        wd_tensor *t = shape_tensor(shape, i);
        if (t->dtype || (d->optional && !shape->present[i]))
            continue;
        t->dtype = shape->dtype && (d->dtypes & WD_TYPE(shape->dtype)) ? shape->dtype : d->dtype;
    }
}

/* ---- Printing ---- */

/* The type most of the problem's data has. */
static wd_dtype common_dtype(const struct wd_problem *p)
{
    size_t votes[WD_DTYPE_LAST + 1] = {0};
    wd_dtype most = WD_F32;
    for (size_t i = 0; i < p->op->num_tensors; i++)
        if (p->tensor[i].present && (p->op->tensors[i].dtypes & WD_TYPES_DATA) == WD_TYPES_DATA)
            votes[p->tensor[i].dtype]++;
    for (wd_dtype t = WD_F32; t <= WD_BF16; t++)
        if (votes[t] > votes[most])
            most = t;
    return most;
}

/* Appends ",name=value"; cut where the text is full. */
static void add_word(char text[SHAPE_TEXT], const char *fmt, ...) WD_PRINTF(2, 3);
static void add_word(char text[SHAPE_TEXT], const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list args;
    if (n > 0 && n + 1 < SHAPE_TEXT)
        text[n++] = ',';
    va_start(args, fmt);
    vsnprintf(text + n, SHAPE_TEXT - n, fmt, args);
    va_end(args);
}

static void add_scalars(const struct wd_problem *p, char text[SHAPE_TEXT])
{
    for (size_t i = 0; i < p->op->num_scalars; i++) {
        const struct wd_scalar_desc *s = &p->op->scalars[i];
        if (s->kind == WD_CHOICE && p->choice[i] != 0)
            add_word(text, "%s=%s", s->name, s->choices[p->choice[i]]);
        if (s->kind == WD_FLAG && p->choice[i] != 0)
            add_word(text, "%s", s->name);
    }
}

const char *shape_text(const struct wd_problem *p, char text[SHAPE_TEXT])
{
    const wd_dtype common = common_dtype(p);
    *text = '\0';
    for (size_t i = 0; i < p->op->num_dims; i++)
        if (p->op->dims[i].offset != WD_DERIVED && p->dim[i] != 0)
            add_word(text, "%s=%zu", p->op->dims[i].name, p->dim[i]);
    add_scalars(p, text);
    if (common != WD_F32)
        add_word(text, "dtype=%s", wd_dtype_name(common));
    for (size_t i = 0; i < p->op->num_tensors; i++) {
        const struct wd_tensor_desc *d = &p->op->tensors[i];
        const wd_dtype usual = d->dtypes & WD_TYPE(common) ? common : d->dtype;
        if (!p->tensor[i].present)
            continue;
        if (p->tensor[i].dtype != usual)
            add_word(text, "%s%s=%s", d->name, dtype_suffix, wd_dtype_name(p->tensor[i].dtype));
        else if (d->optional)
            add_word(text, "%s", d->name);
    }
    return text;
}
