/* SPDX-License-Identifier: MIT */
/*
 * How many programs a sweep of 200 shapes compiles. Sizes that change from call to call are kernel arguments, so shapes
 * share a program when they agree in
 *
 *   - element types, which optional tensors there are, options, and compiled-in sizes (group, W, K, V);
 *   - the alignment of their rows, as a power of two up to 16 elements;
 *   - the variant and its numbers, which the model (or a record) may choose by size class.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "device.h"
#include "op.h"
#include "status.h"

static wd_context *ctx;
static struct wd_caps caps;

static int open_device(void **state)
{
    cl_int err;
    wd_context_desc desc = {.struct_size = sizeof desc, .cache_dir = "", .tuning_file = ""};
    (void)state;
    if (wd_device_find(NULL, &desc.device) || wd_caps_query(desc.device, &caps))
        return -1;
    desc.context = clCreateContext(NULL, 1, &desc.device, NULL, NULL, &err);
    const int st = err ? -1 : (int)wd_context_create(&desc, &ctx);
    if (!err)
        clReleaseContext(desc.context);
    return st;
}

static int close_device(void **state)
{
    (void)state;
    wd_context_destroy(ctx);
    return 0;
}

static size_t shapes; /* prepared so far */

static void prepare(wd_op_id op, const void *args)
{
    if (wd_prepare(ctx, op, args))
        fail_msg("%s", wd_last_error());
    shapes++;
}

static wd_counters count(void)
{
    wd_counters c = {.struct_size = sizeof c};
    assert_int_equal(wd_context_counters(ctx, &c), WD_OK);
    return c;
}

/* 48 shapes. They share: any number of tokens, any hidden that is a multiple of 16. Streaming stores are compiled in,
 * so that calls past the cache's size have a program of their own. */
static void sweep_fp8_quant(void)
{
    static const size_t tokens[] = {1, 2, 7, 16, 100, 256, 1000, 4096}, hidden[] = {128, 1024, 2048, 4096, 5120, 7168};
    for (size_t i = 0; i < WD_COUNT(tokens); i++)
        for (size_t k = 0; k < WD_COUNT(hidden); k++)
            prepare(WD_OP_FP8_QUANT, &(wd_fp8_quant_args){.struct_size = sizeof(wd_fp8_quant_args),
                                                          .tokens = tokens[i],
                                                          .hidden = hidden[k]});
}

/* 40 shapes. They share: any B, any D, any S that is a multiple of 16; S of 100 and 1000 are aligned to 4 and 8 only.
 */
static void sweep_causal_conv1d(void)
{
    static const size_t B[] = {1, 4}, D[] = {64, 512, 1536, 2560}, S[] = {64, 100, 512, 1000, 2048};
    for (size_t i = 0; i < WD_COUNT(B) * WD_COUNT(D) * WD_COUNT(S); i++) {
        const wd_causal_conv1d_args a = {.struct_size = sizeof a,
                                         .B = B[i / WD_COUNT(D) / WD_COUNT(S)],
                                         .D = D[i / WD_COUNT(S) % WD_COUNT(D)],
                                         .S = S[i % WD_COUNT(S)],
                                         .W = 4};
        prepare(WD_OP_CAUSAL_CONV1D, &a);
    }
}

/* 16 shapes of the update step. They share: any B, any D that is a multiple of 16. */
static void sweep_update(void)
{
    static const size_t B[] = {1, 8, 64, 100}, D[] = {512, 1536, 4096, 8192};
    for (size_t i = 0; i < WD_COUNT(B) * WD_COUNT(D); i++) {
        const wd_causal_conv1d_update_args a = {
            .struct_size = sizeof a, .B = B[i / WD_COUNT(D)], .D = D[i % WD_COUNT(D)], .W = 4};
        prepare(WD_OP_CAUSAL_CONV1D_UPDATE, &a);
    }
}

/* 16 shapes of each of the five operations on [B][T] tokens, 80 together. They share: any B, T, H and HV. */
static void sweep_chunks(void)
{
    static const struct {
        size_t B, T, H, HV;
    } s[] = {{1, 1, 1, 1},    {1, 37, 2, 4},    {1, 64, 4, 4},   {1, 65, 16, 32}, {2, 100, 2, 2},  {2, 128, 4, 8},
             {3, 200, 1, 2},  {1, 512, 16, 32}, {1, 1000, 4, 4}, {4, 1024, 3, 3}, {8, 64, 16, 32}, {1, 2048, 4, 8},
             {2, 1536, 4, 4}, {1, 4096, 8, 8},  {1, 8192, 2, 4}, {16, 100, 2, 2}};
#define SIZES(type) .struct_size = sizeof(type), .B = s[i].B, .T = s[i].T, .H = s[i].H, .HV = s[i].HV, .K = 64
    for (size_t i = 0; i < WD_COUNT(s); i++) {
        prepare(WD_OP_GDN_PREPARE, &(wd_gdn_prepare_args){SIZES(wd_gdn_prepare_args)});
        prepare(WD_OP_RECOMPUTE_W_U, &(wd_recompute_w_u_args){SIZES(wd_recompute_w_u_args), .V = 64});
        prepare(WD_OP_CHUNK_FWD_H, &(wd_chunk_fwd_h_args){SIZES(wd_chunk_fwd_h_args), .V = 64});
        prepare(WD_OP_CHUNK_FWD_O, &(wd_chunk_fwd_o_args){SIZES(wd_chunk_fwd_o_args), .V = 64});
        prepare(WD_OP_GDN_FORWARD, &(wd_gdn_forward_args){SIZES(wd_gdn_forward_args), .V = 64});
    }
}

/* 16 shapes. They share: any B, T, H and HV. */
static void sweep_decode(void)
{
    static const size_t B[] = {1, 2, 16, 64}, T[] = {1, 4}, HV[] = {8, 32};
    for (size_t i = 0; i < WD_COUNT(B) * WD_COUNT(T) * WD_COUNT(HV); i++) {
        const wd_gdn_decode_args a = {
            .struct_size = sizeof a, .B = B[i / 4], .T = T[i / 2 % 2], .H = 4, .HV = HV[i % 2], .K = 64, .V = 64};
        prepare(WD_OP_GDN_DECODE, &a);
    }
}

static void sweep__200_shapes__compile_few_programs(void **state)
{
    static const struct {
        const char *name;
        void (*sweep)(void);
        size_t shapes, programs; /* `programs`: at most on a CPU, where alignment makes no difference */
    } parts[] = {
        {"fp8_quant", sweep_fp8_quant, 48, 3},         /* one more where a shipped record has other numbers */
        {"causal_conv1d", sweep_causal_conv1d, 40, 6}, /* three alignments, with and without streaming stores */
        {"causal_conv1d_update", sweep_update, 16, 2},
        {"operations on chunks", sweep_chunks, 80, 6}, /* one each, and where it pays an own one for few tokens */
        {"gdn_decode", sweep_decode, 16, 2},
    };
    wd_counters before = count();
    (void)state;
    for (size_t i = 0; i < WD_COUNT(parts); i++) {
        shapes = 0;
        parts[i].sweep();
        const wd_counters after = count();
        const uint64_t programs = after.compiles - before.compiles;
        print_message("%s: %zu shapes, %u programs\n", parts[i].name, shapes, (unsigned)programs);
        assert_int_equal(shapes, parts[i].shapes);
        assert_in_range(programs, 1, parts[i].programs * (caps.cpu ? 1 : 2));
        before = after;
    }
    const wd_counters c = count();
    print_message("together: %u programs; %u shape classes, which look up tuning records\n", (unsigned)c.compiles,
                  (unsigned)(c.tuning_model + c.tuning_shipped));
    assert_in_range(c.compiles, 1, caps.cpu ? 18 : 36);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sweep__200_shapes__compile_few_programs)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
