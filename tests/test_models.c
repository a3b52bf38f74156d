/* SPDX-License-Identifier: MIT */
/* What the models choose on GPUs that are not here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "cases.h"
#include "gpus.h"
#include "shape.h"

/* Calls visit(gpu, problem, choice) for every GPU, shape of `bench` and `verify`, and element type. */
static void for_each_choice(void (*visit)(const struct gpu *, const struct wd_problem *, const struct wd_choice *))
{
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    for (size_t i = 0; i < WD_COUNT(gpus); i++)
        for (const struct op_case *c = op_cases; c->op; c++)
            for (size_t t = 0; t < WD_COUNT(dtypes); t++) {
                struct shape shape;
                struct wd_problem p;
                struct wd_choice choice;
                shape_init(&shape, wd_op_by_name(c->op));
                assert_int_equal(shape_set(&shape, "dtype", dtypes[t]), WD_OK);
                assert_int_equal(shape_parse(&shape, c->shape), WD_OK);
                assert_int_equal(wd_op_check(shape.op, &shape.args, false, &p), WD_OK);
                if (!gpu_choice(&gpus[i].caps, &p, &choice))
                    fail_msg("%s: nothing for %s %s", gpus[i].name, c->op, c->shape);
                visit(&gpus[i], &p, &choice);
            }
}

/* The shapes of models get the forms made for GPUs. */
static void is_no_last_resort(const struct gpu *gpu, const struct wd_problem *p, const struct wd_choice *choice)
{
    if (p->bytes > 1e6 && p->vec >= 4 && strcmp(choice->variant->name, "plain") == 0)
        fail_msg("%s: %s gets the plain form", gpu->name, p->op->name);
}

static void wd_tuning_model__large_shapes__not_plain(void **state)
{
    (void)state;
    for_each_choice(is_no_last_resort);
}

/* A group that is no multiple of the wave leaves lanes idle. */
static void is_whole_waves(const struct gpu *gpu, const struct wd_problem *p, const struct wd_choice *choice)
{
    struct wd_grid g = {0};
    size_t items = 1;
    if (choice->variant->chain || p->bytes < 1e6)
        return;
    choice->variant->grid(&gpu->caps, p, choice->param, &g);
    for (cl_uint d = 0; d < g.dims; d++)
        items *= g.local[d];
    if (items % gpu->caps.simd)
        fail_msg("%s: %s %s has groups of %zu", gpu->name, p->op->name, choice->variant->name, items);
}

static void wd_tuning_model__groups__whole_waves(void **state)
{
    (void)state;
    for_each_choice(is_whole_waves);
}

static int param(const struct wd_choice *choice, const char *name)
{
    for (size_t i = 0; i < wd_num_params(choice->variant); i++)
        if (strcmp(choice->variant->params[i].name, name) == 0)
            return choice->param[i];
    return 0;
}

/* Elements that an item keeps, reckoned apart from the models, against the registers it has. */
static void is_held_in_registers(const struct gpu *gpu, const struct wd_problem *p, const struct wd_choice *choice)
{
    const char *op = p->op->name, *variant = choice->variant->name;
    const bool gpu_form = strcmp(variant, "gpu") == 0;
    int held = 0;
    if (strcmp(op, "fp8_quant") == 0 && gpu_form)
        held = (int)p->dim[2] / param(choice, "lanes") * param(choice, "inflight");
    else if (strcmp(op, "causal_conv1d_update") == 0 && gpu_form)
        held = param(choice, "width") * 9; /* W 4 */
    else if (strcmp(op, "gdn_decode") == 0 && strcmp(variant, "rows") == 0)
        held = 128 / param(choice, "TY") * 6; /* K 128 */
    else if (strcmp(op, "chunk_fwd_o") == 0 && strcmp(variant, "tile") == 0)
        held = param(choice, "mr") * (8 * param(choice, "nb") / 2 + 4);
    if (p->bytes > 1e6 && held > (int)gpu->caps.registers * 3 / 4)
        fail_msg("%s: %s %s holds %d elements", gpu->name, op, variant, held);
}

static void wd_tuning_model__elements_held__fit_the_registers(void **state)
{
    (void)state;
    for_each_choice(is_held_in_registers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wd_tuning_model__large_shapes__not_plain),
        cmocka_unit_test(wd_tuning_model__groups__whole_waves),
        cmocka_unit_test(wd_tuning_model__elements_held__fit_the_registers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
