/* SPDX-License-Identifier: MIT */
/*
 * Writes the programs that the model chooses on devices which are not here, for offline compilers (offline.sh).
 *
 *     offline                  a line a device of gpus.h: its name, its compiler and the compiler's name for it
 *     offline DEVICE FOLDER    writes FOLDER/N.cl for every operation, element type and shape of `warpdrive bench`, and
 *                              prints "N kernel group local operation shape: choice" for each
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "gpus.h"
#include "launch.h"
#include "shape.h"
#include "source.h"

static int fail(const char *what)
{
    fprintf(stderr, "offline: %s: %s\n", what, wd_last_error());
    return EXIT_FAILURE;
}

static wd_status write_program(const char *folder, unsigned number, const struct wd_caps *caps,
                               const struct wd_problem *p, const struct wd_choice *choice)
{
    struct wd_text prelude = {0}, text = {0}, words = {0};
    struct wd_grid grid = {0};
    char path[4096], shape[SHAPE_TEXT];
    size_t items = 1;
    choice->variant->grid(caps, p, choice->param, &grid);
    for (cl_uint d = 0; d < grid.dims; d++)
        items *= grid.local[d];
    wd_plan_prelude(caps, p, choice, &grid, &prelude);
    wd_status st = wd_source_add(&text, prelude.data, choice->variant->file, choice->variant->kernel);
    snprintf(path, sizeof path, "%s/%u.cl", folder, number);
    FILE *out = st ? NULL : fopen(path, "w");
    if (!st && (!out || fwrite(text.data, 1, text.size, out) != text.size))
        st = wd_fail(WD_EIO, "%s: cannot be written", path);
    if (out)
        fclose(out);
    wd_choice_text(choice, &words);
    printf("%u %s %zu %zu %s %s: %s\n", number, choice->variant->kernel, items, caps->local_bytes, p->op->name,
           shape_text(p, shape), words.data);
    wd_text_free(&prelude);
    wd_text_free(&text);
    wd_text_free(&words);
    return st;
}

static wd_status write_all(const struct wd_caps *caps, const char *folder)
{
    static const char *const dtypes[] = {"f32", "bf16"};
    unsigned number = 0;
    wd_status st = WD_OK;
    for (const struct op_case *c = op_cases; c->op && !st; c++)
        for (size_t t = 0; t < WD_COUNT(dtypes) && c->use & CASE_BENCH_GPU && !st; t++) {
            struct shape shape;
            struct wd_problem p;
            struct wd_choice choice;
            shape_init(&shape, wd_op_by_name(c->op));
            if ((st = shape_set(&shape, "dtype", dtypes[t])) || (st = shape_parse(&shape, c->shape)) ||
                (st = wd_op_check(shape.op, &shape.args, false, &p)))
                break;
            if (gpu_choice(caps, &p, &choice) && !choice.variant->chain)
                st = write_program(folder, number++, caps, &p, &choice);
        }
    return st;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < WD_COUNT(gpus); i++) {
        if (argc < 3)
            printf("%s %s %s\n", gpus[i].name, gpus[i].compiler, gpus[i].target);
        else if (strcmp(argv[1], gpus[i].name) == 0)
            return write_all(&gpus[i].caps, argv[2]) ? fail(argv[1]) : EXIT_SUCCESS;
    }
    return argc < 3 ? EXIT_SUCCESS : EXIT_FAILURE;
}
