/* SPDX-License-Identifier: MIT */
/* What a device is and can do. device.c is the only file that names a vendor: everything else asks wd_caps. */
#ifndef WD_DEVICE_H
#define WD_DEVICE_H

#include "warpdrive.h"

struct wd_caps {
    cl_device_id id;
    cl_platform_id platform;
    char platform_name[64], platform_version[128];
    char name[128], vendor[64], driver[128], version[64]; /* CL_DEVICE_* strings */
    char kind[16]; /* as tuning records write it: "nvidia" "amd" "intel" "arm" "pocl" "mesa" "oclgrind" "other" */
    char arch[32]; /* "sm_90", "gfx90a", "avx2", "avx512", "neon", ...: what records of an architecture match; "" */
    cl_device_type type;
    bool cpu; /* kernels take their CPU forms, in which an item does a block; not every CPU's driver is made for that */
    unsigned compute_units; /* what work-groups are dealt to: SMs, CUs or WGPs, Xe cores, shader cores, CPU threads */
    size_t max_group;       /* CL_DEVICE_MAX_WORK_GROUP_SIZE */
    size_t max_local[3];    /* CL_DEVICE_MAX_WORK_ITEM_SIZES */
    size_t local_bytes;     /* what a kernel's __local arrays may take together (on NVIDIA more than the query says) */
    size_t max_alloc_bytes, global_bytes;
    size_t cache_bytes; /* last-level cache as the device reports it; 0 unknown */
    unsigned simd;      /* items that run in lock-step (warp, wave, sub-group); on a CPU floats in a vector register */
    unsigned registers; /* of 32 bits that an item may have before the compiler spills; not meant for CPUs */
    unsigned sm;        /* NVIDIA compute capability x 10 where inline PTX works, else 0 */
    bool wgmma;         /* NVIDIA sm_90: the instructions of sm_90a, by way of ptx.h */
    bool fp16;          /* cl_khr_fp16 */
    bool subgroups;     /* cl_khr_subgroups or cl_intel_subgroups */
    bool int64_atomics;
    bool fix_width;          /* the compiler is to be told `simd`: by itself it takes more items, and spills */
    bool compiles_late;      /* the driver finishes compiling at a kernel's first launch, for its group size */
    char build_options[256]; /* what every program on this device is built with */
};

/** Fills `caps`. Fails with WD_EOPENCL only when the device answers nothing useful. */
wd_status wd_caps_query(cl_device_id id, struct wd_caps *caps);

/** What a driver tells of a compiled kernel beyond OpenCL's own queries; -1: nothing. */
struct wd_kernel_facts {
    int registers;   /* an item */
    int spill_bytes; /* an item: what did not fit into them */
};
void wd_device_kernel_facts(const struct wd_caps *caps, cl_program program, cl_kernel kernel,
                            struct wd_kernel_facts *facts);

/** Corrects what the driver is known to answer wrongly of a kernel: CL_KERNEL_WORK_GROUP_SIZE and _LOCAL_MEM_SIZE.
 *  `required`: its CL_KERNEL_COMPILE_WORK_GROUP_SIZE. */
void wd_device_correct_limits(const struct wd_caps *caps, const size_t required[3], size_t *group, cl_ulong *local);

/** Every device of every platform, in the loader's order; a broken platform is an entry without devices. */
struct wd_device_entry {
    unsigned platform, device, index; /* index: running number over all devices */
    bool broken;                      /* the platform could not be asked; `error` says why */
    char error[128];
    struct wd_caps caps;
};

/** Allocates *list (free() it). WD_OK with *count 0 when there is nothing at all. */
wd_status wd_device_list(struct wd_device_entry **list, size_t *count);

/** Finds one entry by the rules of wd_open(); on no match WD_ENODEVICE with the choices listed. */
wd_status wd_device_find(const char *select, cl_device_id *out);

#endif
