/* SPDX-License-Identifier: MIT */
/* warpdrive run: any operation on .npy files. Its options are the operation's tables. */
#include "commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert.h"
#include "files.h"

/* ---- Options from the tables ---- */

struct run_options {
    struct cli_option option[CLI_MAX_OPTIONS];
    size_t count;
    char name[CLI_MAX_OPTIONS][48], help[CLI_MAX_OPTIONS][224];
};

static void add_option(struct run_options *o, const char *name, const char *suffix, const char *value, const char *help,
                       const char *more)
{
    if (o->count + 1 >= CLI_MAX_OPTIONS)
        return;
    const size_t n = o->count++;
    snprintf(o->name[n], sizeof o->name[n], "%s%s", name, suffix);
    snprintf(o->help[n], sizeof o->help[n], "%s%s", help, more);
    o->option[n] = (struct cli_option){o->name[n], 0, value, o->help[n]};
}

/* " f32 f16 bf16" */
static const char *types_text(unsigned types, char text[64])
{
    size_t n = 0;
    for (wd_dtype t = WD_F32; t <= WD_DTYPE_LAST; t++)
        if (types & WD_TYPE(t))
            n += (size_t)snprintf(text + n, 64 - n, " %s", wd_dtype_name(t));
    return text;
}

static void add_tensor(struct run_options *o, const struct wd_op *op, size_t i)
{
    const struct wd_tensor_desc *t = &op->tensors[i];
    char names[2][SHAPE_TEXT], types[64], more[192];
    const bool two = op->layout >= 0 && t->shape[1].rank;
    snprintf(more, sizeof more, "%.64s%s%.64s%s%s", files_shape_names(op, i, 0, names[0]), two ? " or " : "",
             two ? files_shape_names(op, i, 1, names[1]) : "", types_text(t->dtypes, types),
             t->optional ? ", optional" : "");
    add_option(o, t->name, "", "FILE", t->access == WD_OUT ? "write  " : "read   ", more);
    if (t->access == WD_INOUT)
        add_option(o, t->name, "_out", "FILE", "write  ", "what became of it");
}

static void add_scalar(struct run_options *o, const struct wd_scalar_desc *s)
{
    char more[96] = "";
    for (size_t i = 0, n = 0; s->kind == WD_CHOICE && s->choices[i] && n < sizeof more; i++)
        n += (size_t)snprintf(more + n, sizeof more - n, "%s%s", i ? ", " : "", s->choices[i]);
    if (s->kind == WD_REAL && s->standard != 0)
        snprintf(more, sizeof more, "; standard %g", (double)s->standard);
    add_option(o, s->name, "",
               s->kind == WD_FLAG   ? NULL
               : s->kind == WD_REAL ? "X"
                                    : "NAME",
               s->kind == WD_FLAG   ? "flag"
               : s->kind == WD_REAL ? "a number"
                                    : "one of ",
               more);
}

static void make_options(struct run_options *o, const struct wd_op *op)
{
    char types[64];
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < op->num_tensors; i++)
        add_tensor(o, op, i);
    for (size_t i = 0; i < op->num_dims; i++)
        if (op->dims[i].offset != WD_DERIVED)
            add_option(o, op->dims[i].name, "", "N", "size", ", unless the files give it");
    for (size_t i = 0; i < op->num_scalars; i++)
        add_scalar(o, &op->scalars[i]);
    add_option(o, "dtype", "", "TYPE", "type of outputs, and of u2 files (bf16): f32, f16, bf16", "");
    for (size_t i = 0; i < op->num_tensors; i++)
        if (op->tensors[i].dtypes & (op->tensors[i].dtypes - 1))
            add_option(o, op->tensors[i].name, "_dtype", "TYPE",
                       "type of one tensor:", types_text(op->tensors[i].dtypes, types));
    o->option[o->count++] = (struct cli_option)CLI_DEVICE;
}

/* ---- A call by files ---- */

struct file_call {
    struct shape shape;
    struct tensor_file in[WD_MAX_TENSORS];
    const char *out[WD_MAX_TENSORS]; /* NULL: not asked for */
    struct wd_problem p;
    void *host[WD_MAX_TENSORS]; /* outputs and in-out tensors */
    cl_mem mem[WD_MAX_TENSORS];
};

/* Sorts the options into files and words. */
static wd_status take_options(const struct cli *cli, struct file_call *call)
{
    const struct wd_op *op = call->shape.op;
    size_t outputs = 0;
    for (size_t n = 0; cli->options[n].name; n++) {
        const char *name = cli->options[n].name, *value = cli->value[n];
        if (!value || !strcmp(name, "device"))
            continue;
        size_t i = 0;
        char out_name[48];
        for (; i < op->num_tensors; i++) {
            snprintf(out_name, sizeof out_name, "%s%s", op->tensors[i].name,
                     op->tensors[i].access == WD_INOUT ? "_out" : "");
            if (op->tensors[i].access != WD_IN && !strcmp(name, out_name))
                break;
            if (op->tensors[i].access != WD_OUT && !strcmp(name, op->tensors[i].name))
                break;
        }
        if (i == op->num_tensors) {
            const wd_status st = shape_set(&call->shape, name, value);
            if (st)
                return st;
        } else if (op->tensors[i].access == WD_OUT || strcmp(name, op->tensors[i].name) != 0) {
            call->out[i] = value;
            call->shape.present[i] = true;
            outputs++;
        } else {
            call->in[i].path = value;
        }
    }
    for (size_t i = 0; i < op->num_tensors; i++)
        if (op->tensors[i].access != WD_OUT && !call->in[i].path &&
            (!op->tensors[i].optional || call->shape.present[i]))
            return wd_fail(WD_EINVAL, "%s: --%s is missing", op->name, op->tensors[i].name);
    return outputs ? WD_OK : wd_fail(WD_EINVAL, "%s: no output is asked for", op->name);
}

/* Two outputs in one file would leave the later one. */
static wd_status check_outputs(const struct file_call *call)
{
    const struct wd_op *op = call->shape.op;
    for (size_t i = 0; i < op->num_tensors; i++)
        for (size_t k = 0; k < i; k++)
            if (call->out[i] && call->out[k] && !strcmp(call->out[i], call->out[k]))
                return wd_fail(WD_EINVAL, "%s: --%s and --%s both name %s", op->name, op->tensors[k].name,
                               op->tensors[i].name, call->out[i]);
    return WD_OK;
}

static size_t tensor_bytes(const struct wd_problem *p, size_t i)
{
    return wd_tensor_elements(p, i) * wd_dtype_size(p->tensor[i].dtype);
}

/* Buffers for all tensors, into the args struct. Outputs begin as zero: an operation may leave parts of them alone. */
static wd_status make_buffers(wd_context *ctx, struct file_call *call)
{
    const struct wd_op *op = call->shape.op;
    for (size_t i = 0; i < op->num_tensors; i++) {
        const size_t bytes = tensor_bytes(&call->p, i);
        const void *data = call->in[i].npy.data;
        if (!call->p.tensor[i].present)
            continue;
        if (data && call->p.tensor[i].dtype == WD_F32X2) /* files hold f8; an element is 8 bytes either way */
            wd_from_double(WD_F32X2, data, wd_tensor_elements(&call->p, i), call->in[i].npy.data);
        if (op->tensors[i].access != WD_IN) {
            call->host[i] = calloc(bytes + 1, 1);
            if (!call->host[i])
                return wd_fail(WD_ENOMEM, "%s: memory is exhausted by %s", op->name, op->tensors[i].name);
            if (data)
                memcpy(call->host[i], data, bytes);
            data = call->host[i];
        }
        const wd_status st = wd_buffer_create(ctx, bytes, data, &call->mem[i]);
        if (st)
            return st;
        shape_tensor(&call->shape, i)->mem = call->mem[i];
        if (op->tensors[i].fill == WD_FILL_OFFSETS && op->cu_seqlens_offset != WD_DERIVED)
            memcpy(call->shape.args.byte + op->cu_seqlens_offset, &call->in[i].npy.data, sizeof(void *));
    }
    return WD_OK;
}

static wd_status compute(wd_context *ctx, struct file_call *call)
{
    wd_status st = make_buffers(ctx, call);
    if (!st)
        st = wd_op_call(ctx, call->shape.op, &call->shape.args, NULL);
    for (size_t i = 0; i < call->shape.op->num_tensors && !st; i++)
        if (call->out[i])
            st = wd_buffer_read(ctx, call->mem[i], 0, tensor_bytes(&call->p, i), call->host[i]);
    return st;
}

static void free_call(struct file_call *call)
{
    files_free(call->in);
    for (size_t i = 0; i < WD_MAX_TENSORS; i++) {
        wd_buffer_destroy(call->mem[i]);
        free(call->host[i]);
    }
}

/* ---- Writing: every output beside its place first, then all into place ---- */

static void temporary_name(const char *path, char *name, size_t size)
{
    snprintf(name, size, "%s.%ld.tmp", path, (long)getpid());
}

static wd_status write_temporary(const struct file_call *call, size_t i)
{
    static const enum npy_type types[] = {
        [WD_F32] = NPY_F4,  [WD_F16] = NPY_F2,   [WD_BF16] = NPY_U2, [WD_E4M3] = NPY_U1,
        [WD_E5M2] = NPY_U1, [WD_UE8M0] = NPY_U1, [WD_I32] = NPY_I4,  [WD_F32X2] = NPY_F8,
    };
    char name[4096];
    struct npy array = {.type = types[call->p.tensor[i].dtype], .data = call->host[i]};
    if (array.type == NPY_F8)
        wd_to_double(WD_F32X2, array.data, wd_tensor_elements(&call->p, i), array.data);
    array.rank = wd_tensor_extents(&call->p, i, array.shape);
    temporary_name(call->out[i], name, sizeof name);
    return npy_write(name, &array);
}

static wd_status write_outputs(const struct file_call *call)
{
    const size_t count = call->shape.op->num_tensors;
    char name[4096];
    wd_status st = WD_OK;
    for (size_t i = 0; i < count && !st; i++)
        if (call->out[i])
            st = write_temporary(call, i);
    for (size_t i = 0; i < count; i++) {
        if (!call->out[i])
            continue;
        temporary_name(call->out[i], name, sizeof name);
        if (!st && rename(name, call->out[i]))
            st = wd_fail(WD_EIO, "%s: %s", call->out[i], strerror(errno));
        if (st)
            unlink(name);
    }
    return st;
}

/* ---- The command ---- */

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct run_options options;
    struct cli cli;
    const struct wd_op *op = argc > 1 ? wd_op_by_name(argv[1]) : NULL;
    if (!op) { /* --help, or a mistake */
        const int done = cli_parse(&cli, self, NULL, argc, argv);
        if (done >= 0)
            return done;
        if (cli.num_operands == 0)
            return cli_usage(&cli, "run: needs an operation");
        return cli_usage(&cli, "run: '%s' is no operation", cli.operands[0]);
    }
    make_options(&options, op);
    char usage[64];
    snprintf(usage, sizeof usage, "run %s", op->name);
    const struct cli_command command = {
        .name = usage, .operands = "", .summary = op->summary, .details = self->details};
    const int done = cli_parse(&cli, &command, options.option, argc - 1, argv + 1);
    if (done >= 0)
        return done;

    struct file_call call = {0};
    wd_context *ctx = NULL;
    shape_init(&call.shape, op);
    wd_status st = take_options(&cli, &call);
    if (!st && !(st = check_outputs(&call)) && !(st = files_read(call.in)) &&
        !(st = files_problem(&call.shape, call.in, &call.p)) && !(st = wd_open(cli_get(&cli, "device"), &ctx)) &&
        !(st = compute(ctx, &call)))
        st = write_outputs(&call);
    free_call(&call);
    wd_context_destroy(ctx);
    return st ? cli_fail(&cli, st) : CLI_OK;
}

static const struct cli_option general_options[] = {{0}};

const struct cli_command cmd_run = {
    .name = "run",
    .operands = "OP",
    .summary = "Run an operation on .npy files; 'run OP --help' lists its tensors, sizes and options",
    .details =
        "Sizes and types are read from the files; outputs are written once all is done. u1 files hold FP8 bytes,\n"
        "u2 files bf16 (say so by --dtype bf16), f8 files f32x2. An output that is not asked for is not written.",
    .options = general_options,
    .run = run,
};
