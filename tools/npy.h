/* SPDX-License-Identifier: MIT */
/*
 * NumPy's .npy files: versions 1 and 2, little-endian, C order, the plain types below.
 *
 * Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 * Errors through wd_fail(), naming the file: WD_EIO if it cannot be read or written, WD_EINVAL if it is no .npy file
 * or one that is not understood here. A file is not trusted: every number in its header is checked against its size.
 */
#ifndef NPY_H
#define NPY_H

#include "status.h"

enum { NPY_MAX_RANK = 8 };

enum npy_type { NPY_F4, NPY_F8, NPY_F2, NPY_U1, NPY_U2, NPY_I4, NPY_I8 };

struct npy {
    enum npy_type type;
    size_t rank, shape[NPY_MAX_RANK];
    void *data; /* npy_read(): owned, released by npy_free(); npy_write(): borrowed */
};

/** On failure *out is empty. */
wd_status npy_read(const char *path, struct npy *out);
void npy_free(struct npy *a);

/** Replaces the file. */
wd_status npy_write(const char *path, const struct npy *a);

size_t npy_count(const struct npy *a);         /* elements */
size_t npy_type_size(enum npy_type type);      /* bytes of one */
const char *npy_type_name(enum npy_type type); /* "f4" */

/** Element i as a double: f2 by its value; integers as integers (bytes of FP8, halves of bf16 are not decoded). */
double npy_value(const struct npy *a, size_t i);

/** "2 x 128 x 4", or "scalar"; returns `text`. */
enum { NPY_SHAPE_TEXT = 160 };
const char *npy_shape_text(const struct npy *a, char text[NPY_SHAPE_TEXT]);

#endif
