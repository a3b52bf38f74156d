/* SPDX-License-Identifier: MIT */
/* The references against published inputs and outputs. Nothing here touches a device. */
#include "call.h"

#include <stdio.h>
#include <sys/stat.h>

#include "convert.h"
#include "npy.h"

struct vector_case {
    const char *folder;
    const struct wd_op *op;
    const char *q; /* fp8_quant: the file that holds q; s is in x_s */
    size_t group;
    wd_act act; /* causal_conv1d */
};

static struct vector_case vectors[] = {
    {.folder = "fp8_quant/num_tokens1_hidden_dim256_group_size64", .op = &wd_op_fp8_quant, .q = "x_q", .group = 64},
    {.folder = "fp8_quant/num_tokens1_hidden_dim4096_group_size128", .op = &wd_op_fp8_quant, .q = "x_q", .group = 128},
    {.folder = "fp8_quant/num_tokens4_hidden_dim512_group_size128", .op = &wd_op_fp8_quant, .q = "x_q", .group = 128},
    {.folder = "fp8_quant/num_tokens8_hidden_dim4096_group_size128", .op = &wd_op_fp8_quant, .q = "x_q", .group = 128},
    {.folder = "fp8_quant/num_tokens16_hidden_dim1024_group_size64", .op = &wd_op_fp8_quant, .q = "x_q", .group = 64},
    {.folder = "fp8_bytes/T16_D512_G128", .op = &wd_op_fp8_quant, .q = "x_e4m3", .group = 128},
    {.folder = "causal_conv1d/B1_D64_S64_W4", .op = &wd_op_causal_conv1d},
    {.folder = "causal_conv1d/B1_D128_S64_W8", .op = &wd_op_causal_conv1d},
    {.folder = "causal_conv1d/B1_D256_S256_W3", .op = &wd_op_causal_conv1d},
    {.folder = "causal_conv1d/B2_D128_S128_W4", .op = &wd_op_causal_conv1d},
    {.folder = "causal_conv1d/B4_D64_S128_W4", .op = &wd_op_causal_conv1d},
    {.folder = "causal_conv1d_ext/B1_D16_S3_W4_none_init", .op = &wd_op_causal_conv1d},
    {.folder = "causal_conv1d_ext/B2_D24_S50_W4_silu_init", .op = &wd_op_causal_conv1d, .act = WD_ACT_SILU},
    {.folder = "causal_conv1d_ext/B2_D8_S70_W2_silu_zero", .op = &wd_op_causal_conv1d, .act = WD_ACT_SILU},
    {.folder = "gated_deltanet_recompute_w_u/B1_T64_H2_K64_V64", .op = &wd_op_recompute_w_u},
    {.folder = "gated_deltanet_recompute_w_u/B2_T128_H4_K64_V64", .op = &wd_op_recompute_w_u},
    {.folder = "gated_deltanet_recompute_w_u/B1_T256_H4_K64_V128", .op = &wd_op_recompute_w_u},
    {.folder = "gated_deltanet_chunk_fwd_h/B1_T64_H2_K64_V64", .op = &wd_op_chunk_fwd_h},
    {.folder = "gated_deltanet_chunk_fwd_h/B2_T128_H4_K64_V64", .op = &wd_op_chunk_fwd_h},
    {.folder = "gated_deltanet_chunk_fwd_h/B1_T256_H4_K64_V128", .op = &wd_op_chunk_fwd_h},
    {.folder = "gated_deltanet_chunk_fwd_o/B1_T64_H2_K64_V64", .op = &wd_op_chunk_fwd_o},
    {.folder = "gated_deltanet_chunk_fwd_o/B2_T128_H4_K64_V64", .op = &wd_op_chunk_fwd_o},
    {.folder = "gated_deltanet_chunk_fwd_o/B1_T256_H4_K64_V128", .op = &wd_op_chunk_fwd_o},
    {.folder = "gated_delta_rule/B1_T37_H2_HV2_K100_V60", .op = &wd_op_gdn_forward},
    {.folder = "gated_delta_rule/B1_T65_H1_HV2_K128_V128", .op = &wd_op_gdn_forward},
    {.folder = "gated_delta_rule/B1_T128_H2_HV2_K64_V64", .op = &wd_op_gdn_forward},
    {.folder = "gated_delta_rule/B2_T100_H2_HV4_K64_V128", .op = &wd_op_gdn_forward},
};
enum { VECTORS = sizeof vectors / sizeof vectors[0] };

/* Loads tensor i of a case, if the folder has it. */
static bool load(const struct vector_case *v, size_t i, struct npy *a)
{
    const char *name = v->op->tensors[i].name;
    char path[512];
    struct stat info;
    if (v->q && strcmp(name, "q") == 0)
        name = v->q;
    if (v->q && strcmp(name, "s") == 0)
        name = "x_s";
    snprintf(path, sizeof path, "%s/%s/%s.npy", TEST_DATA, v->folder, name);
    if (stat(path, &info) != 0) {
        assert_true(v->op->tensors[i].optional);
        return false;
    }
    if (npy_read(path, a))
        fail_msg("%s", wd_last_error());
    return true;
}

/* The call that a folder's files describe: sizes from shapes, types from dtypes. */
static void args_from_files(const struct vector_case *v, const struct npy *files, unsigned char *args)
{
    const struct wd_op *op = v->op;
    memcpy(args, &op->args_size, sizeof op->args_size);
    for (size_t i = 0; i < op->num_tensors; i++) {
        const wd_tensor t = {.dtype = files[i].type == NPY_U1 ? WD_E4M3 : WD_F32};
        if (!files[i].data)
            continue;
        memcpy(args + op->tensors[i].offset, &t, sizeof t);
        assert_int_equal(files[i].rank, op->tensors[i].shape[0].rank);
        for (size_t r = 0; r < files[i].rank; r++) {
            const struct wd_dim_desc *d = &op->dims[op->tensors[i].shape[0].dim[r]];
            if (d->offset != WD_DERIVED)
                memcpy(args + d->offset, &files[i].shape[r], sizeof(size_t));
        }
    }
    if (op == &wd_op_fp8_quant)
        memcpy(args + op->dims[FP8_GROUP].offset, &v->group, sizeof v->group);
    if (op == &wd_op_causal_conv1d)
        memcpy(args + op->scalars[CONV_act].offset, &v->act, sizeof v->act);
}

static void compare_to_file(const struct vector_case *v, const struct call *c, size_t i, const struct npy *file)
{
    const size_t n = wd_tensor_elements(&c->p, i);
    const wd_dtype dtype = c->p.tensor[i].dtype;
    double *want = malloc(n * sizeof *want);
    assert_non_null(want);
    wd_to_double(dtype, file->data, n, want);
    for (size_t k = 0; dtype == WD_E4M3 && k < n; k++)
        if (wd_encode(dtype, c->t[i][k]) != wd_encode(dtype, want[k]))
            fail_msg("%s: element %zu is %.9g, not %.9g", v->op->tensors[i].name, k, c->t[i][k], want[k]);
    const double d = distance(c->t[i], want, n);
    if (!(d <= 1e-6)) /* the files are f32, and most of them were computed in f32 */
        fail_msg("%s: relative error %g", v->op->tensors[i].name, d);
    free(want);
}

static void reference__published_vectors__same(void **state)
{
    const struct vector_case *v = *state;
    struct npy files[WD_MAX_TENSORS] = {0};
    _Alignas(max_align_t) unsigned char args[WD_MAX_ARGS] = {0};
    struct call c;
    for (size_t i = 0; i < v->op->num_tensors; i++)
        load(v, i, &files[i]);
    args_from_files(v, files, args);
    call_make(&c, v->op, args, WD_GATES_MILD);
    for (size_t i = 0; i < v->op->num_tensors; i++) {
        if (!files[i].data)
            continue;
        assert_int_equal(npy_count(&files[i]), wd_tensor_elements(&c.p, i));
        if (v->op->tensors[i].access == WD_IN)
            wd_to_double(WD_F32, files[i].data, npy_count(&files[i]), c.t[i]);
    }
    call_run(&c);
    for (size_t i = 0; i < v->op->num_tensors; i++)
        if (files[i].data && v->op->tensors[i].access == WD_OUT)
            compare_to_file(v, &c, i, &files[i]);
    for (size_t i = 0; i < v->op->num_tensors; i++)
        npy_free(&files[i]);
    call_free(&c);
}

int main(void)
{
    struct CMUnitTest tests[VECTORS] = {{0}};
    for (size_t i = 0; i < VECTORS; i++) {
        tests[i].name = vectors[i].folder;
        tests[i].test_func = reference__published_vectors__same;
        tests[i].initial_state = &vectors[i];
    }
    return cmocka_run_group_tests_name("published vectors", tests, NULL, NULL);
}
