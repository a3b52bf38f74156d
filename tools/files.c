/* SPDX-License-Identifier: MIT */
#include "files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

/* NumPy's integers are 64-bit by default; cu_seqlens and slots are i32. */
static wd_status narrow(struct tensor_file *file)
{
    const size_t n = npy_count(&file->npy);
    int32_t *narrowed = malloc((n + 1) * sizeof *narrowed);
    if (!narrowed)
        return wd_fail(WD_ENOMEM, "%s: memory is exhausted", file->path);
    for (size_t i = 0; i < n; i++) {
        const double value = npy_value(&file->npy, i);
        if (value < INT32_MIN || value > INT32_MAX) {
            free(narrowed);
            return wd_fail(WD_EINVAL, "%s: %.0f does not fit 32 bits", file->path, value);
        }
        narrowed[i] = (int32_t)value;
    }
    free(file->npy.data);
    file->npy.data = narrowed;
    file->npy.type = NPY_I4;
    return WD_OK;
}

wd_status files_read(struct tensor_file file[WD_MAX_TENSORS])
{
    wd_status st = WD_OK;
    for (size_t i = 0; i < WD_MAX_TENSORS && !st; i++) {
        if (file[i].path)
            st = npy_read(file[i].path, &file[i].npy);
        if (!st && file[i].path && file[i].npy.type == NPY_I8)
            st = narrow(&file[i]);
    }
    return st;
}

void files_free(struct tensor_file file[WD_MAX_TENSORS])
{
    for (size_t i = 0; i < WD_MAX_TENSORS; i++)
        npy_free(&file[i].npy);
}

/* ---- Element types ---- */

/* What the file's type can mean, as WD_TYPE bits. */
static unsigned meanings(enum npy_type type)
{
    switch (type) {
    case NPY_F4: return WD_TYPE(WD_F32);
    case NPY_F2: return WD_TYPE(WD_F16);
    case NPY_U2: return WD_TYPE(WD_BF16);
    case NPY_U1: return WD_TYPE(WD_E4M3) | WD_TYPE(WD_E5M2) | WD_TYPE(WD_UE8M0);
    case NPY_I4: return WD_TYPE(WD_I32);
    case NPY_F8: return WD_TYPE(WD_F32X2);
    case NPY_I8: break;
    }
    return 0;
}

/* Sets the type of a tensor with a file. bf16 must be said once, since u2 is only its bits. */
static wd_status take_type(struct shape *shape, size_t i, const struct tensor_file *file)
{
    const struct wd_tensor_desc *d = &shape->op->tensors[i];
    const char *type = npy_type_name(file->npy.type);
    wd_tensor *t = shape_tensor(shape, i);
    const wd_dtype asked = t->dtype ? t->dtype : shape->dtype == WD_BF16 ? WD_BF16 : WD_DTYPE_DEFAULT;
    const unsigned possible = meanings(file->npy.type) & d->dtypes;
    if (!possible && file->npy.type == NPY_F8)
        return wd_fail(WD_EINVAL, "%s: %s holds f8; save it as float32", shape->op->name, file->path);
    if (!possible)
        return wd_fail(WD_EINVAL, "%s: %s holds %s, which is no type of %s", shape->op->name, file->path, type,
                       d->name);
    if (t->dtype && !(possible & WD_TYPE(t->dtype)))
        return wd_fail(WD_EINVAL, "%s: %s holds %s, but %s is to be %s", shape->op->name, file->path, type, d->name,
                       wd_dtype_name(t->dtype));
    if (possible & WD_TYPE(asked) & ~WD_TYPE(WD_DTYPE_DEFAULT))
        t->dtype = asked;
    for (wd_dtype k = WD_F32; k <= WD_DTYPE_LAST && !t->dtype; k++)
        if (possible == WD_TYPE(k) && k != WD_BF16)
            t->dtype = k;
    if (!t->dtype)
        return wd_fail(WD_EINVAL, "%s: %s holds %s; say what it means: --%s_dtype, or --dtype bf16", shape->op->name,
                       file->path, type, d->name);
    return WD_OK;
}

static wd_status take_types(struct shape *shape, const struct tensor_file file[WD_MAX_TENSORS])
{
    wd_dtype first = WD_DTYPE_DEFAULT;
    for (size_t i = 0; i < shape->op->num_tensors; i++) {
        if (!file[i].path)
            continue;
        const wd_status st = take_type(shape, i, &file[i]);
        if (st)
            return st;
        shape->present[i] = true;
        if (!first && (shape->op->tensors[i].dtypes & WD_TYPES_DATA) == WD_TYPES_DATA)
            first = shape_tensor(shape, i)->dtype;
    }
    if (!shape->dtype)
        shape->dtype = first;
    return WD_OK;
}

/* ---- Sizes ---- */

/* The row of a tensor's shapes that `layout`, the value of the operation's layout choice, picks. */
static size_t tensor_dims(const struct wd_op *op, size_t tensor, int layout, const unsigned char **dim)
{
    const struct wd_tensor_desc *t = &op->tensors[tensor];
    const int pick = layout == 1 && t->shape[1].rank ? 1 : 0;
    *dim = t->shape[pick].dim;
    return t->shape[pick].rank;
}

static int layout_of(const struct shape *shape)
{
    int layout = 0;
    if (shape->op->layout >= 0)
        memcpy(&layout, shape->args.byte + shape->op->scalars[shape->op->layout].offset, sizeof layout);
    return layout;
}

const char *files_shape_names(const struct wd_op *op, size_t tensor, int layout, char text[SHAPE_TEXT])
{
    const unsigned char *dim;
    const size_t rank = tensor_dims(op, tensor, layout, &dim);
    size_t n = 0;
    *text = '\0';
    for (size_t r = 0; r < rank && n < SHAPE_TEXT; r++)
        n += (size_t)snprintf(text + n, SHAPE_TEXT - n, "[%s]", op->dims[dim[r]].name);
    return text;
}

/* Where packed sequences start, N + 1 numbers, is the one derived size that gives its own back. Returns the index of
 * N, or num_dims. */
static size_t packed_sequences(const struct wd_op *op, size_t tensor)
{
    size_t i = op->tensors[tensor].fill == WD_FILL_OFFSETS ? 0 : op->num_dims;
    while (i < op->num_dims && strcmp(op->dims[i].name, "N") != 0)
        i++;
    return i;
}

/* Where each size came from: a tensor's index, or one of these. */
enum { FROM_OPTION = WD_MAX_TENSORS, FROM_NOWHERE };

/* "x.npy (2 x 128 x 64; x is [B][D][S])" */
static const char *file_text(const struct shape *shape, const struct tensor_file *file, size_t tensor,
                             char text[SHAPE_TEXT])
{
    char have[NPY_SHAPE_TEXT], names[SHAPE_TEXT];
    snprintf(text, SHAPE_TEXT, "%.96s (%s; %s is %.64s)", file[tensor].path, npy_shape_text(&file[tensor].npy, have),
             shape->op->tensors[tensor].name, files_shape_names(shape->op, tensor, layout_of(shape), names));
    return text;
}

/* The tensor's file says `value` of a size that has another one, from `source`. */
static wd_status disagree(struct shape *shape, const struct tensor_file *file, size_t dim, size_t source, size_t tensor,
                          size_t value)
{
    const char *op = shape->op->name, *name = shape->op->dims[dim].name;
    const size_t size = *shape_dim(shape, dim);
    char text[2][SHAPE_TEXT];
    file_text(shape, file, tensor, text[0]);
    if (source == FROM_OPTION)
        return wd_fail(WD_EINVAL, "%s: %s is given as %zu, but is %zu in %s", op, name, size, value, text[0]);
    return wd_fail(WD_EINVAL, "%s: %s is %zu in %s, but %zu in %s", op, name, size,
                   file_text(shape, file, source, text[1]), value, text[0]);
}

/* Takes the sizes of one file. */
static wd_status take_sizes(struct shape *shape, const struct tensor_file *file, size_t tensor,
                            size_t source[WD_MAX_DIMS])
{
    const struct wd_op *op = shape->op;
    const unsigned char *dims;
    const size_t rank = tensor_dims(op, tensor, layout_of(shape), &dims);
    for (size_t r = 0; r < rank; r++) {
        size_t dim = dims[r], value = file[tensor].npy.shape[r];
        if (op->dims[dim].offset == WD_DERIVED) {
            dim = packed_sequences(op, tensor);
            if (dim == op->num_dims || value-- == 0)
                continue;
        }
        if (source[dim] == FROM_NOWHERE) {
            *shape_dim(shape, dim) = value;
            source[dim] = tensor;
        } else if (*shape_dim(shape, dim) != value) {
            return disagree(shape, file, dim, source[dim], tensor, value);
        }
    }
    return WD_OK;
}

static wd_status infer_sizes(struct shape *shape, const struct tensor_file *file)
{
    const struct wd_op *op = shape->op;
    size_t source[WD_MAX_DIMS];
    for (size_t i = 0; i < op->num_dims; i++)
        source[i] = shape->given[i] ? FROM_OPTION : FROM_NOWHERE;

    for (size_t i = 0; i < op->num_tensors; i++) {
        const unsigned char *dims;
        char text[SHAPE_TEXT];
        if (file[i].path && file[i].npy.rank != tensor_dims(op, i, layout_of(shape), &dims))
            return wd_fail(WD_EINVAL, "%s: wrong number of dimensions in %s", op->name,
                           file_text(shape, file, i, text));
    }
    for (size_t i = 0; i < op->num_tensors; i++) {
        const wd_status st = file[i].path ? take_sizes(shape, file, i, source) : WD_OK;
        if (st)
            return st;
    }
    return WD_OK;
}

/* Compares the files with the shapes of the checked problem, all derived sizes included. */
static wd_status check_shapes(const struct shape *shape, const struct tensor_file *file, const struct wd_problem *p)
{
    size_t first = 0; /* the file that the others are measured by */
    while (first < p->op->num_tensors && !file[first].path)
        first++;
    for (size_t i = first; i < p->op->num_tensors; i++) {
        struct npy want = {0};
        char text[2][SHAPE_TEXT], extents[NPY_SHAPE_TEXT];
        want.rank = wd_tensor_extents(p, i, want.shape);
        if (file[i].path && memcmp(file[i].npy.shape, want.shape, want.rank * sizeof want.shape[0]) != 0)
            return wd_fail(WD_EINVAL, "%s: %s does not go with %s: it must be %s", p->op->name,
                           file_text(shape, file, i, text[0]), file_text(shape, file, first, text[1]),
                           npy_shape_text(&want, extents));
    }
    return WD_OK;
}

wd_status files_problem(struct shape *shape, const struct tensor_file file[WD_MAX_TENSORS], struct wd_problem *p)
{
    wd_status st = take_types(shape, file);
    if (st || (st = infer_sizes(shape, file)))
        return st;
    shape_finish(shape);
    st = wd_op_check(shape->op, &shape->args, false, p);
    return st ? st : check_shapes(shape, file, p);
}
