/* SPDX-License-Identifier: MIT */
/*
 * GPUs that are not here, as src/device.c would describe them: what the models choose for them is checked by
 * test_models.c, and compiled by offline.sh where there is a compiler. Limits as the drivers report them (ROCm gives
 * groups of 256 to kernels that require no size), the rest from the vendors' tables of these products.
 */
#ifndef GPUS_H
#define GPUS_H

#include "tuning.h"

#define KIB ((size_t)1024)

static const struct gpu {
    const char *name, *compiler, *target; /* "none": there is no offline compiler */
    struct wd_caps caps;
} gpus[] = {
    {"mi210",
     "amd",
     "gfx90a",
     {.name = "gfx90a:sramecc+:xnack-",
      .kind = "amd",
      .arch = "gfx90a",
      .compute_units = 104,
      .simd = 64,
      .registers = 256,
      .max_group = 256,
      .max_local = {1024, 1024, 1024},
      .local_bytes = 64 * KIB,
      .cache_bytes = 8192 * KIB,
      .max_alloc_bytes = 4096 * 1024 * KIB,
      .global_bytes = 8192 * 1024 * KIB}},
    {"rx7900",
     "amd",
     "gfx1100",
     {.name = "gfx1100",
      .kind = "amd",
      .arch = "gfx1100",
      .compute_units = 48,
      .simd = 32,
      .registers = 256,
      .max_group = 256,
      .max_local = {1024, 1024, 1024},
      .local_bytes = 64 * KIB,
      .cache_bytes = 6144 * KIB,
      .max_alloc_bytes = 4096 * 1024 * KIB,
      .global_bytes = 8192 * 1024 * KIB}},
    {"arc-a770",
     "intel",
     "acm-g10",
     {.name = "Intel(R) Arc(TM) A770 Graphics",
      .kind = "intel",
      .arch = "xe_12.55",
      .compute_units = 32,
      .simd = 16,
      .registers = 64,
      .max_group = 1024,
      .max_local = {1024, 1024, 1024},
      .local_bytes = 64 * KIB,
      .cache_bytes = 16384 * KIB,
      .max_alloc_bytes = 4096 * 1024 * KIB,
      .global_bytes = 8192 * 1024 * KIB}},
    {"max-1550",
     "intel",
     "pvc",
     {.name = "Intel(R) Data Center GPU Max 1550",
      .kind = "intel",
      .arch = "xe_12.60",
      .compute_units = 64,
      .simd = 16,
      .registers = 128,
      .max_group = 1024,
      .max_local = {1024, 1024, 1024},
      .local_bytes = 128 * KIB,
      .cache_bytes = 208896 * KIB,
      .max_alloc_bytes = 4096 * 1024 * KIB,
      .global_bytes = 8192 * 1024 * KIB}},
    {"iris-xe",
     "intel",
     "tgllp",
     {.name = "Intel(R) Iris(R) Xe Graphics",
      .kind = "intel",
      .arch = "xe_12.0",
      .compute_units = 6,
      .simd = 16,
      .registers = 64,
      .max_group = 512,
      .max_local = {512, 512, 512},
      .local_bytes = 64 * KIB,
      .cache_bytes = 1920 * KIB,
      .max_alloc_bytes = 4096 * 1024 * KIB,
      .global_bytes = 8192 * 1024 * KIB}},
    {"mali-g710",
     "none",
     "none",
     {.name = "Mali-G710",
      .kind = "arm",
      .arch = "mali-g710",
      .compute_units = 10,
      .simd = 16,
      .registers = 64,
      .max_group = 512,
      .max_local = {512, 512, 512},
      .local_bytes = 32 * KIB,
      .cache_bytes = 1024 * KIB,
      .max_alloc_bytes = 4096 * 1024 * KIB,
      .global_bytes = 8192 * 1024 * KIB}},
    {"h200",
     "none",
     "none",
     {.name = "NVIDIA H200",
      .kind = "nvidia",
      .arch = "sm_90",
      .compute_units = 132,
      .simd = 32,
      .registers = 256,
      .sm = 90,
      .max_group = 1024,
      .max_local = {1024, 1024, 64},
      .local_bytes = 227 * KIB,
      .cache_bytes = 51200 * KIB,
      .max_alloc_bytes = 4096 * 1024 * KIB,
      .global_bytes = 8192 * 1024 * KIB}},
};

/* The first variant that fits, as wd_tuning_choices() has it without records. */
static inline bool gpu_choice(const struct wd_caps *caps, const struct wd_problem *p, struct wd_choice *choice)
{
    struct wd_choice all[WD_MAX_CHOICES];
    if (!wd_tuning_models(caps, p, all, WD_MAX_CHOICES, NULL))
        return false;
    *choice = all[0];
    return true;
}

#endif
