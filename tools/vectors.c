/* SPDX-License-Identifier: MIT */
#include "vectors.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert.h"

const struct vector_set vector_sets[] = {
    {"fp8_quant", "fp8_quant", "", {{"q", "x_q"}, {"s", "x_s"}}},
    {"fp8_bytes", "fp8_quant", "q_dtype=e4m3", {{"q", "x_e4m3"}, {"s", "x_s"}}},
    {"causal_conv1d", "causal_conv1d", "", {{0}}},
    {"causal_conv1d_ext", "causal_conv1d", "", {{0}}},
    {"gated_deltanet_recompute_w_u", "recompute_w_u", "", {{0}}},
    {"gated_deltanet_chunk_fwd_h", "chunk_fwd_h", "", {{0}}},
    {"gated_deltanet_chunk_fwd_o", "chunk_fwd_o", "", {{0}}},
    {"gated_delta_rule", "gdn_forward", "", {{0}}},
    {0},
};

/* ---- The cases of a set ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A case has an input: every operation reads x or k. */
static bool is_case(const char *data, const char *folder, const char *name)
{
    char path[512];
    if (*name == '.')
        return false;
    snprintf(path, sizeof path, "%s/%s/%s/x.npy", data, folder, name);
    if (access(path, R_OK) == 0)
        return true;
    snprintf(path, sizeof path, "%s/%s/%s/k.npy", data, folder, name);
    return access(path, R_OK) == 0;
}

wd_status vectors_cases(const char *data, const struct vector_set *set, char ***list, size_t *count)
{
    char path[512];
    wd_status st = WD_OK;
    *list = NULL;
    *count = 0;
    snprintf(path, sizeof path, "%s/%s", data, set->folder);
    DIR *dir = opendir(path);
    if (!dir)
        return wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    for (struct dirent *entry; !st && (entry = readdir(dir));) {
        if (!is_case(data, set->folder, entry->d_name))
            continue;
        char **longer = realloc(*list, (*count + 1) * sizeof **list);
        if (longer) {
            *list = longer;
            longer[*count] = strdup(entry->d_name);
        }
        if (!longer || !longer[*count])
            st = wd_fail(WD_ENOMEM, "%s: memory is exhausted", path);
        else
            ++*count;
    }
    closedir(dir);
    if (st) {
        vectors_free_cases(*list, *count);
        *list = NULL;
        *count = 0;
    } else if (*count > 0) {
        qsort(*list, *count, sizeof **list, by_name);
    }
    return st;
}

void vectors_free_cases(char **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i]);
    free(list);
}

/* ---- One case ---- */

/* Sizes come from the files; what they cannot say is in params.txt under the publishers' names. */
static wd_status read_params(const char *path, struct shape *shape)
{
    static const struct {
        const char *published, *name;
    } names[] = {{"group_size", "group"}, {"activation", "act"}, {"scale", "scale"}};
    char line[128];
    wd_status st = WD_OK;
    FILE *file = fopen(path, "r");
    if (!file)
        return wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    while (!st && fgets(line, sizeof line, file)) {
        const char *name = strtok(line, "=\n"), *value = strtok(NULL, "=\n");
        for (size_t i = 0; name && value && !st && i < WD_COUNT(names); i++)
            if (!strcmp(names[i].published, name))
                st = shape_set(shape, names[i].name, value);
    }
    fclose(file);
    return st;
}

static const char *file_name(const struct vector_set *set, const char *tensor)
{
    for (size_t i = 0; i < WD_COUNT(set->name); i++)
        if (set->name[i].tensor && !strcmp(set->name[i].tensor, tensor))
            return set->name[i].file;
    return tensor;
}

wd_status vectors_read(const char *data, const struct vector_set *set, const char *name, struct vector_case *out)
{
    const struct wd_op *op = wd_op_by_name(set->op);
    char params[512];
    memset(out, 0, sizeof *out);
    if (!op)
        return wd_fail(WD_ENOTSUP, "%s is not in this library", set->op);
    shape_init(&out->shape, op);
    snprintf(params, sizeof params, "%s/%s/%s/params.txt", data, set->folder, name);
    for (size_t i = 0; i < op->num_tensors; i++) {
        snprintf(out->path[i], sizeof out->path[i], "%s/%s/%s/%s.npy", data, set->folder, name,
                 file_name(set, op->tensors[i].name));
        if (access(out->path[i], R_OK) == 0)
            out->file[i].path = out->path[i];
    }
    wd_status st = *set->words ? shape_parse(&out->shape, set->words) : WD_OK;
    if (!st && !(st = read_params(params, &out->shape)) && !(st = files_read(out->file)))
        st = files_problem(&out->shape, out->file, &out->p);
    return st;
}

void vectors_free(struct vector_case *vectors)
{
    files_free(vectors->file);
}

double *vectors_values(const struct vector_case *vectors, size_t tensor)
{
    const struct npy *npy = &vectors->file[tensor].npy;
    const size_t n = npy_count(npy);
    double *value = malloc((n + 1) * sizeof *value);
    if (value)
        wd_to_double(vectors->p.tensor[tensor].dtype, npy->data, n, value);
    return value;
}
