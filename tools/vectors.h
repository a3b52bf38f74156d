/* SPDX-License-Identifier: MIT */
/*
 * The published test cases of tests/data: DATA/<set>/<case>/<tensor>.npy and params.txt, inputs and the outputs of
 * public reference implementations.
 */
#ifndef VECTORS_H
#define VECTORS_H

#include "files.h"

/* A folder of cases, and what it means. */
struct vector_set {
    const char *folder;
    const char *op;    /* the operation whose tensors the files are */
    const char *words; /* a SHAPE to begin with */
    struct {
        const char *tensor, *file;
    } name[2]; /* files that are not called as their tensor */
};

extern const struct vector_set vector_sets[]; /* ended by a NULL folder */

/** The names of a set's cases, sorted. Allocates *list and its strings: vectors_free_cases(). */
wd_status vectors_cases(const char *data, const struct vector_set *set, char ***list, size_t *count);
void vectors_free_cases(char **list, size_t count);

/* One case: files of inputs and of outputs alike, and the call they make. */
struct vector_case {
    char path[WD_MAX_TENSORS][512];
    struct tensor_file file[WD_MAX_TENSORS];
    struct shape shape;
    struct wd_problem p;
};

/** Reads a case. vectors_free() afterwards, also on failure. */
wd_status vectors_read(const char *data, const struct vector_set *set, const char *name, struct vector_case *out);
void vectors_free(struct vector_case *vectors);

/** The values of a file's elements: FP8 bytes decoded. The caller frees them; NULL: memory is exhausted. */
double *vectors_values(const struct vector_case *vectors, size_t tensor);

#endif
