/* SPDX-License-Identifier: MIT */
/*
 * An OpenCL driver that computes nothing, linked into a test in libOpenCL's place. It behaves as told, makes any one
 * call fail, counts what is alive, and refuses launches that a real driver would refuse.
 */
#ifndef FAKE_CL_H
#define FAKE_CL_H

#include "warpdrive.h"

struct fake {
    /* what there is */
    unsigned platforms, devices; /* devices on each platform; no platform: as the ICD loader says it */
    unsigned broken;             /* so many platforms, from the first, cannot list their devices */
    bool late;                   /* a CPU driver like PoCL, which compiles at the first launch; else a GPU's */
    const char *platform, *name; /* NULL: of their own */
    unsigned ip, cores;          /* Intel's queries: its IP version, and execution units of a Xe core; 0: no answer */
    unsigned wave;               /* AMD's: items of a wave; 0: no answer */
    unsigned sm;                 /* NVIDIA's: compute capability x 10; 0: no answer */
    const char *target;          /* if not NULL, binaries say so before the text that they are made of */
    const char *driver;          /* its version, as the device tells it */
    const char *binary_version;  /* what its binaries say inside: others are refused */
    const char *build_log;       /* if not NULL, building from source fails with this log */
    size_t group_max;            /* CL_KERNEL_WORK_GROUP_SIZE of every kernel */
    cl_ulong local_bytes;        /* CL_KERNEL_LOCAL_MEM_SIZE of every kernel */
    size_t group_required;       /* its CL_KERNEL_COMPILE_WORK_GROUP_SIZE, granted even above group_max; 0: none */

    /* what goes wrong */
    unsigned fail_at; /* the call with this number fails, counted from 1; 0: none. Releases never fail */
    cl_int fail_with;

    /* what was seen */
    unsigned calls, launches, source_builds, binary_builds;
    unsigned sm_90a;    /* binary_builds for that target, without a mark of ptx.h in their text */
    size_t group;       /* items of a group in the last launch */
    const char *failed; /* the name of the call that was made to fail, or NULL */
    int alive;          /* references to contexts, queues, buffers, programs, kernels and events */
};

extern struct fake fake;

/** One platform with one sound GPU, nothing seen yet. */
void fake_reset(void);

#endif
