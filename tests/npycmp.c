/* SPDX-License-Identifier: MIT */
/*
 * Compares two .npy files: npycmp WANT GOT [BAR]
 *
 * Shapes and types must be the same. Floats: relative Frobenius error at most BAR (default 1e-5), and every element
 * within the published tolerance, 1e-3 + 1e-3 * |want|. Integers, FP8 bytes among them: equal. Exit code 0: alike;
 * 1: not; 2: could not be read.
 */
#include <stdio.h>
#include <stdlib.h>

#include "compare.h"
#include "npy.h"

static bool same_form(const struct npy *a, const struct npy *b)
{
    bool same = a->type == b->type && a->rank == b->rank;
    for (size_t r = 0; same && r < a->rank; r++)
        same = a->shape[r] == b->shape[r];
    return same;
}

static double *values(const struct npy *a)
{
    const size_t n = npy_count(a);
    double *value = malloc((n + 1) * sizeof *value);
    for (size_t i = 0; value && i < n; i++)
        value[i] = npy_value(a, i);
    return value;
}

static int compare(const struct npy *want, const struct npy *got, double bar, const char *name)
{
    const bool floats = want->type == NPY_F4 || want->type == NPY_F8 || want->type == NPY_F2;
    const double tolerance = floats ? 1e-3 : 0;
    char shape[2][NPY_SHAPE_TEXT];
    if (!same_form(want, got)) {
        printf("%s: %s of %s, not %s of %s\n", name, npy_shape_text(got, shape[0]), npy_type_name(got->type),
               npy_shape_text(want, shape[1]), npy_type_name(want->type));
        return 1;
    }
    double *a = values(want), *b = values(got);
    int code = 2;
    if (a && b) {
        const struct difference d = compare_arrays(a, b, npy_count(want), tolerance, tolerance);
        code = d.bad > 0 || d.relative > (floats ? bar : 0);
        printf("%s: relative error %.2g, largest %.2g, %zu elements off\n", name, d.relative, d.max_abs, d.bad);
    }
    free(a);
    free(b);
    return code;
}

int main(int argc, char **argv)
{
    struct npy want = {0}, got = {0};
    int code = 2;
    if (argc < 3)
        fprintf(stderr, "usage: npycmp WANT GOT [BAR]\n");
    else if (npy_read(argv[1], &want) || npy_read(argv[2], &got))
        fprintf(stderr, "%s\n", wd_last_error());
    else
        code = compare(&want, &got, argc > 3 ? strtod(argv[3], NULL) : 1e-5, argv[2]);
    npy_free(&want);
    npy_free(&got);
    return code;
}
