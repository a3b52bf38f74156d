/* SPDX-License-Identifier: MIT */
/* What every operation has in common, read off its tables: shapes, and the check of a call. */
#include "op.h"
#include "status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct wd_op *const wd_ops[] = {
    &wd_op_fp8_quant,     &wd_op_causal_conv1d,
    &wd_op_recompute_w_u, &wd_op_chunk_fwd_h,
    &wd_op_chunk_fwd_o,   &wd_op_causal_conv1d_update,
    &wd_op_gdn_prepare,   &wd_op_gdn_forward,
    &wd_op_gdn_decode,    NULL,
};

const struct wd_op *wd_op_by_id(wd_op_id id)
{
    for (const struct wd_op *const *op = wd_ops; *op; op++)
        if ((*op)->id == id)
            return *op;
    return NULL;
}

const struct wd_op *wd_op_by_name(const char *name)
{
    for (const struct wd_op *const *op = wd_ops; *op; op++)
        if (strcmp((*op)->name, name) == 0)
            return *op;
    return NULL;
}

size_t wd_dtype_size(wd_dtype dtype)
{
    switch (dtype) {
    case WD_F32:
    case WD_I32: return 4;
    case WD_F32X2: return 8;
    case WD_F16:
    case WD_BF16: return 2;
    case WD_E4M3:
    case WD_E5M2:
    case WD_UE8M0: return 1;
    case WD_DTYPE_DEFAULT: break;
    }
    return 0;
}

const char *wd_dtype_name(wd_dtype dtype)
{
    static const char *const names[] = {"default", "f32", "f16", "bf16", "e4m3", "e5m2", "ue8m0", "i32", "f32x2"};
    return (size_t)dtype < WD_COUNT(names) ? names[dtype] : "?";
}

size_t wd_gdn_chunks(size_t T, size_t N)
{
    return N ? T / WD_GDN_CHUNK + N : T / WD_GDN_CHUNK + (T % WD_GDN_CHUNK != 0);
}

/* ---- Shapes ---- */

size_t wd_tensor_extents(const struct wd_problem *p, size_t i, size_t ext[WD_MAX_RANK])
{
    const struct wd_op *op = p->op;
    const struct wd_tensor_desc *d = &op->tensors[i];
    const int layout = op->layout >= 0 && p->choice[op->layout] == 1 && d->shape[1].rank ? 1 : 0;
    for (size_t r = 0; r < d->shape[layout].rank; r++)
        ext[r] = p->dim[d->shape[layout].dim[r]];
    return d->shape[layout].rank;
}

size_t wd_tensor_elements(const struct wd_problem *p, size_t i)
{
    size_t ext[WD_MAX_RANK], n = 1;
    for (size_t r = wd_tensor_extents(p, i, ext); r-- > 0;)
        n *= ext[r];
    return n;
}

/* ---- Reading the args struct through the tables ---- */

union args {
    unsigned char byte[WD_MAX_ARGS];
    size_t align;
    void *align_pointer;
};

#define FAIL(op, arg, fmt, ...) wd_fail(WD_EINVAL, "wd_%s: %s: " fmt, (op)->name, arg, __VA_ARGS__)

/* A struct of an older, shorter header is read with zeros behind its end. */
static wd_status read_struct(const struct wd_op *op, const void *args, union args *copy)
{
    size_t size;
    if (!args)
        return FAIL(op, "args", "%s", "NULL");
    memcpy(&size, args, sizeof size);
    if (size < sizeof size || size > op->args_size)
        return FAIL(op, "struct_size", "%zu, not sizeof(wd_%s_args) = %zu", size, op->name, op->args_size);
    memset(copy->byte + size, 0, op->args_size - size);
    memcpy(copy->byte, args, size);
    return WD_OK;
}

static wd_status read_scalars(const union args *a, struct wd_problem *p)
{
    const struct wd_op *op = p->op;
    for (size_t i = 0; i < op->num_scalars; i++) {
        const struct wd_scalar_desc *s = &op->scalars[i];
        const unsigned char *at = a->byte + s->offset;
        int value;
        switch (s->kind) {
        case WD_REAL:
            memcpy(&p->real[i], at, sizeof(float));
            if (!isfinite(p->real[i]))
                return FAIL(op, s->name, "%g is not finite", (double)p->real[i]);
            if (p->real[i] == 0)
                p->real[i] = s->standard;
            break;
        case WD_CHOICE:
            memcpy(&value, at, sizeof value);
            for (p->choice[i] = 0; s->choices[p->choice[i]] && p->choice[i] != value;)
                p->choice[i]++;
            if (!s->choices[p->choice[i]])
                return FAIL(op, s->name, "%d is none of its values", value);
            break;
        case WD_FLAG: p->choice[i] = *at != 0; break;
        }
    }
    return WD_OK;
}

static wd_status read_tensors(const union args *a, struct wd_problem *p)
{
    const struct wd_op *op = p->op;
    for (size_t i = 0; i < op->num_tensors; i++) {
        const struct wd_tensor_desc *d = &op->tensors[i];
        wd_tensor t;
        memcpy(&t, a->byte + d->offset, sizeof t);
        struct wd_view *v = &p->tensor[i];
        v->mem = t.mem;
        v->dtype = t.dtype == WD_DTYPE_DEFAULT ? d->dtype : t.dtype;
        v->present = !d->optional || t.mem || t.dtype != WD_DTYPE_DEFAULT;
        v->at[0] = t.offset;
        for (size_t r = 0; r < 3; r++)
            v->at[1 + r] = t.stride[r];
        if (!v->present)
            continue;
        if ((unsigned)v->dtype > WD_DTYPE_LAST || !(d->dtypes & WD_TYPE(v->dtype)))
            return FAIL(op, d->name, "dtype %s is not among its types", wd_dtype_name(v->dtype));
    }
    return WD_OK;
}

/* ---- Checking a view against its shape ---- */

/* False if it overflows. Factors below the root of the range do not, and spare the division. */
static bool mul(size_t a, size_t b, size_t *out)
{
    *out = a * b;
    return (a | b) >> (4 * sizeof a) == 0 || a == 0 || *out / a == b;
}

/* "4 x 512 f32" for messages. */
static const char *shape_text(const struct wd_problem *p, size_t i, char *buf, size_t size)
{
    size_t ext[WD_MAX_RANK], n = 0;
    const size_t rank = wd_tensor_extents(p, i, ext);
    buf[0] = '\0';
    for (size_t r = 0; r < rank && n < size; r++)
        n += (size_t)snprintf(buf + n, size - n, r ? " x %zu" : "%zu", ext[r]);
    if (n < size)
        snprintf(buf + n, size - n, " %s", wd_dtype_name(p->tensor[i].dtype));
    return buf;
}

/* Are the elements of an output distinct? Sorted by stride, each dimension must step over all smaller ones. */
static bool overlaps(size_t rank, const size_t *ext, const size_t *stride)
{
    bool done[WD_MAX_RANK] = {false};
    size_t span = 1;
    for (size_t n = 0; n < rank; n++) {
        size_t best = rank;
        for (size_t r = 0; r < rank; r++)
            if (!done[r] && (best == rank || stride[r] < stride[best]))
                best = r;
        if (ext[best] > 1 && stride[best] < span)
            return true;
        if (ext[best] > 1)
            span = stride[best] * ext[best];
        done[best] = true;
    }
    return false;
}

/* The largest power of two that divides `a`, at most `limit`, a power of two itself: the lowest bit of both. */
static unsigned common_power(unsigned limit, size_t a)
{
    const size_t bits = a | limit;
    return (unsigned)(bits & (~bits + 1));
}

/* What a vector tensor leaves of the problem's common alignment. */
static unsigned alignment(unsigned vec, const struct wd_view *v, size_t rank, const size_t *ext)
{
    vec = common_power(vec, ext[rank - 1]);
    vec = common_power(vec, (size_t)v->at[0]);
    for (size_t r = 0; r < 3 && r + 1 < rank; r++)
        if (ext[r] > 1)
            vec = common_power(vec, (size_t)v->at[1 + r]);
    return vec;
}

/* Fills in packed strides, zeroes those that mean nothing, and returns the elements spanned from the offset. */
static wd_status check_view(struct wd_problem *p, size_t i, size_t *span)
{
    const struct wd_tensor_desc *d = &p->op->tensors[i];
    struct wd_view *v = &p->tensor[i];
    size_t ext[WD_MAX_RANK], stride[WD_MAX_RANK], packed = 1, n = 1;
    const size_t rank = wd_tensor_extents(p, i, ext);
    bool gaps = false;
    for (size_t r = rank; r-- > 0;) {
        const bool free_stride = r < 3 && r + 1 < rank;
        stride[r] = free_stride && v->at[1 + r] ? (size_t)v->at[1 + r] : packed;
        gaps |= stride[r] != packed;
        if (r < 3 && !free_stride && v->at[1 + r] > 1)
            return FAIL(p->op, d->name, "stride[%zu] is given, but that dimension is contiguous", r);
        if (!mul(stride[r], ext[r] ? ext[r] : 1, &packed) || !mul(n, ext[r], &n))
            return FAIL(p->op, d->name, "%s", "more elements than memory has addresses");
    }
    if (gaps && d->access != WD_IN && n && overlaps(rank, ext, stride))
        return FAIL(p->op, d->name, "strides %zu, %zu, %zu make elements of an output overlap", stride[0],
                    rank > 1 ? stride[1] : 0, rank > 2 ? stride[2] : 0);
    *span = n ? 1 : 0;
    for (size_t r = 0; n && r < rank; r++)
        *span += (ext[r] - 1) * stride[r];
    for (size_t r = rank; r < 3; r++)
        if (v->at[1 + r])
            return FAIL(p->op, d->name, "stride[%zu] is given, but it has %zu dimensions", r, rank);
    for (size_t r = 0; r < 3 && r < rank; r++)
        v->at[1 + r] = stride[r];
    if (d->vector)
        p->vec = alignment(p->vec, v, rank, ext);
    p->bytes += (double)n * (double)wd_dtype_size(v->dtype) * (d->access == WD_INOUT ? 2 : 1);
    return WD_OK;
}

static wd_status check_buffer(const struct wd_problem *p, size_t i, size_t span)
{
    const struct wd_view *v = &p->tensor[i];
    const char *name = p->op->tensors[i].name;
    char shape[96];
    size_t bytes = 0, need;
    cl_int err = clGetMemObjectInfo(v->mem, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    if (err)
        return FAIL(p->op, name, "clGetMemObjectInfo: %s", wd_cl_error_name(err));
    if (span > SIZE_MAX - (size_t)v->at[0] || !mul((size_t)v->at[0] + span, wd_dtype_size(v->dtype), &need) ||
        need > bytes)
        return FAIL(p->op, name, "the buffer has %zu bytes; %s from element %zu spans %zu elements", bytes,
                    shape_text(p, i, shape, sizeof shape), (size_t)v->at[0], span);
    return WD_OK;
}

static wd_status check_tensors(bool launching, struct wd_problem *p)
{
    const struct wd_op *op = p->op;
    p->empty = true;
    p->vec = 16;
    for (size_t i = 0; i < op->num_tensors; i++) {
        struct wd_view *v = &p->tensor[i];
        size_t span = 0;
        if (!v->present) {
            memset(v->at, 0, sizeof v->at);
            continue;
        }
        wd_status st = check_view(p, i, &span);
        if (st)
            return st;
        if (op->tensors[i].access != WD_IN && span)
            p->empty = false;
        if (!v->mem && launching && span)
            return FAIL(op, op->tensors[i].name, "%s", "NULL");
        if (v->mem && span && (st = check_buffer(p, i, span)))
            return st;
    }
    return WD_OK;
}

wd_status wd_op_check(const struct wd_op *op, const void *args, bool launching, struct wd_problem *p)
{
    union args a;
    memset(p, 0, sizeof *p);
    p->op = op;
    wd_status st = read_struct(op, args, &a);
    if (st)
        return st;
    for (size_t i = 0; i < op->num_dims; i++)
        if (op->dims[i].offset != WD_DERIVED)
            memcpy(&p->dim[i], a.byte + op->dims[i].offset, sizeof(size_t));
    if (op->workspace_offset != WD_DERIVED)
        memcpy(&p->workspace, a.byte + op->workspace_offset, sizeof p->workspace);
    if (op->cu_seqlens_offset != WD_DERIVED)
        memcpy(&p->cu_seqlens_host, a.byte + op->cu_seqlens_offset, sizeof p->cu_seqlens_host);
    if ((st = read_scalars(&a, p)) || (st = read_tensors(&a, p)) || (st = op->check(p)))
        return st;
    return check_tensors(launching, p);
}

wd_status wd_check_packed(const struct wd_problem *p, size_t cu, size_t N, size_t B, size_t total)
{
    const struct wd_op *op = p->op;
    const int32_t *host = p->cu_seqlens_host;
    if (!N && p->tensor[cu].present)
        return FAIL(op, "cu_seqlens", "%s", "given, but N is 0");
    if (!N && host)
        return FAIL(op, "cu_seqlens_host", "%s", "given, but N is 0");
    if (!N)
        return WD_OK;
    if (!p->tensor[cu].present)
        return FAIL(op, "cu_seqlens", "missing, but N is %zu", N);
    if (N > INT32_MAX)
        return FAIL(op, "N", "%zu packed sequences are more than 2^31 - 1", N);
    if (B != 1)
        return FAIL(op, "B", "%zu, but packed sequences need 1", B);
    if (total > INT32_MAX)
        return FAIL(op, "cu_seqlens", "%zu packed tokens do not fit its 32 bits", total);
    if (!host)
        return WD_OK;
    if (host[0] != 0)
        return FAIL(op, "cu_seqlens_host", "begins with %d, not 0", (int)host[0]);
    for (size_t i = 0; i < N; i++)
        if (host[i + 1] < host[i])
            return FAIL(op, "cu_seqlens_host", "falls from %d to %d at sequence %zu", (int)host[i], (int)host[i + 1],
                        i);
    if ((size_t)host[N] != total)
        return FAIL(op, "cu_seqlens_host", "ends with %d, not with the %zu tokens there are", (int)host[N], total);
    return WD_OK;
}

void wd_op_args(const struct wd_problem *p, void *args)
{
    const struct wd_op *op = p->op;
    unsigned char *byte = args;
    memset(byte, 0, op->args_size);
    memcpy(byte, &op->args_size, sizeof op->args_size);
    for (size_t i = 0; i < op->num_dims; i++)
        if (op->dims[i].offset != WD_DERIVED)
            memcpy(byte + op->dims[i].offset, &p->dim[i], sizeof p->dim[i]);
    for (size_t i = 0; i < op->num_scalars; i++) {
        const bool flag = p->choice[i] != 0;
        unsigned char *at = byte + op->scalars[i].offset;
        switch (op->scalars[i].kind) {
        case WD_REAL: memcpy(at, &p->real[i], sizeof p->real[i]); break;
        case WD_CHOICE: memcpy(at, &p->choice[i], sizeof p->choice[i]); break;
        case WD_FLAG: memcpy(at, &flag, sizeof flag); break;
        }
    }
    for (size_t i = 0; i < op->num_tensors; i++) {
        const wd_tensor t = {.dtype = p->tensor[i].present ? p->tensor[i].dtype : WD_DTYPE_DEFAULT};
        memcpy(byte + op->tensors[i].offset, &t, sizeof t);
    }
    if (op->cu_seqlens_offset != WD_DERIVED)
        memcpy(byte + op->cu_seqlens_offset, &p->cu_seqlens_host, sizeof p->cu_seqlens_host);
}
