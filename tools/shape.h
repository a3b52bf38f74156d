/* SPDX-License-Identifier: MIT */
/*
 * A call's arguments from words: `tokens=4096,hidden=7168,group=128,q_dtype=e4m3` into an args struct, through the
 * operation's tables. The same names are the options of `warpdrive run`.
 *
 *   <size>=N              B=1, tokens=256
 *   <scalar>=VALUE        act=silu, scale=0.125; flags also bare: l2norm
 *   dtype=TYPE            for every tensor that allows it and has no type of its own
 *   <tensor>_dtype=TYPE   for one tensor; makes an optional one present
 *   <tensor>              an optional tensor is present: bias, initial_state
 */
#ifndef SHAPE_H
#define SHAPE_H

#include "op.h"
#include "status.h"

enum { SHAPE_ARGS = WD_MAX_ARGS, SHAPE_TEXT = 256 };

struct shape {
    const struct wd_op *op;
    union {
        size_t struct_size; /* every args struct begins with it */
        void *align;
        unsigned char byte[SHAPE_ARGS];
    } args;                       /* the operation's args struct; after shape_finish() ready for a call or a question */
    wd_dtype dtype;               /* `dtype=` */
    bool given[WD_MAX_DIMS];      /* sizes set by name */
    bool present[WD_MAX_TENSORS]; /* optional tensors named */
};

void shape_init(struct shape *shape, const struct wd_op *op);

/** Sets one name. WD_EINVAL: unknown name or bad value; wd_last_error() says which are known. */
wd_status shape_set(struct shape *shape, const char *name, const char *value);

/** Sets every name of a SHAPE and finishes. */
wd_status shape_parse(struct shape *shape, const char *text);

/** Gives tensors without a type of their own the common one. */
void shape_finish(struct shape *shape);

/** The tensor argument inside the args struct. */
wd_tensor *shape_tensor(struct shape *shape, size_t tensor);
size_t *shape_dim(struct shape *shape, size_t dim);

/** The shortest SHAPE that gives `p` again. Returns `text`. */
const char *shape_text(const struct wd_problem *p, char text[SHAPE_TEXT]);

#endif
