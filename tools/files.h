/* SPDX-License-Identifier: MIT */
/*
 * From .npy files to a call: each file gives its tensor's element type, and each tensor's shape in the operation's
 * table names the sizes that it is made of.
 */
#ifndef FILES_H
#define FILES_H

#include "npy.h"
#include "shape.h"

/* A tensor's file; path NULL: none. */
struct tensor_file {
    const char *path; /* borrowed */
    struct npy npy;
};

/** Reads every file that has a path; 64-bit integers become 32-bit ones. */
wd_status files_read(struct tensor_file file[WD_MAX_TENSORS]);
void files_free(struct tensor_file file[WD_MAX_TENSORS]);

/** Completes `shape` from what was read, and checks the call. Tensors without a file get the type of `dtype=`, or
 *  else that of the first data file. Files that disagree with each other or with a size that was given are
 *  WD_EINVAL; wd_last_error() names both and their shapes. */
wd_status files_problem(struct shape *shape, const struct tensor_file file[WD_MAX_TENSORS], struct wd_problem *p);

/** "[B][T][HV][K]": a tensor's shape as the table has it, where the layout choice has the value `layout`. */
const char *files_shape_names(const struct wd_op *op, size_t tensor, int layout, char text[SHAPE_TEXT]);

#endif
