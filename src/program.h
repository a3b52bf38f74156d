/* SPDX-License-Identifier: MIT */
/*
 * From kernel source to a cl_kernel: memory table, then disk cache, then compiler.
 *
 * A program holds one kernel. Its text is a prelude (the caller's macros) and a kernel file with its includes
 * expanded. Kernels stay until wd_programs_fini(), so their addresses may be kept.
 */
#ifndef WD_PROGRAM_H
#define WD_PROGRAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache.h"
#include "device.h"

struct wd_kernel {
    cl_kernel kernel;
    pthread_mutex_t lock;  /* hold it from the first clSetKernelArg to the enqueue: a cl_kernel carries its arguments */
    size_t group_max;      /* CL_KERNEL_WORK_GROUP_SIZE */
    size_t group_multiple; /* CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE */
    size_t required[3];    /* reqd_work_group_size, or zeros: none, or left out by wd_caps.build_options */
    size_t local_bytes, private_bytes;
    bool from_disk;
    uint64_t build_ns; /* how long it took to get it, wherever from */

    /* program.c's own */
    struct wd_kernel *next;
    cl_program program;
    unsigned char key[WD_SHA256_BYTES];
    char label[WD_CACHE_LABEL_BYTES];
    atomic_bool unsaved; /* its binary is to be stored after a first launch */
    cl_event awaited;    /* that launch, while the driver has not begun it; guarded by `lock` */
};

/** What happened so far; see wd_counters. */
struct wd_program_counts {
    atomic_uint_fast64_t compiles, memory_hits, disk_hits, disk_rejects;
};

/** All programs of one device in one OpenCL context. Thread-safe. */
struct wd_programs {
    const struct wd_caps *caps; /* these four outlive the table */
    cl_context context;
    struct wd_cache *cache; /* NULL: none */
    const struct wd_log *log;
    struct wd_program_counts counts;

    /* program.c's own */
    pthread_mutex_t lock;
    struct wd_kernel *bucket[256];
    struct wd_sha256 key; /* begun with all that is the same for every program */
};

/** Remembers caps, context, cache and log (not copied, not retained). */
wd_status wd_programs_init(struct wd_programs *programs, const struct wd_caps *caps, cl_context context,
                           struct wd_cache *cache, const struct wd_log *log);
/** Releases every kernel, and stores what is not stored yet. */
void wd_programs_fini(struct wd_programs *programs);

struct wd_source {
    const char *prelude; /* "#define K 128\n..." */
    const char *file;    /* "fp8_quant.cl" */
    const char *kernel;  /* "fp8_quant_rows" */
};

/** Finds or makes a kernel. *out is NULL on failure; WD_EBUILD leaves device, options and the end of the build
 *  log in wd_last_error(). Blocks while compiling, without a lock. Expands and hashes the text each time: callers
 *  on the warm path keep the pointer (and count a memory hit themselves). */
wd_status wd_program_kernel(struct wd_programs *programs, const struct wd_source *source, struct wd_kernel **out);

/** Does wd_kernel_launched() want the event of the next launch? One atomic read. */
static inline bool wd_kernel_unsaved(struct wd_kernel *kernel)
{
    return atomic_load_explicit(&kernel->unsaved, memory_order_relaxed);
}

/**
 * To be called with the event of a launch, without the kernel's lock; does nothing unless wd_kernel_unsaved().
 *
 * Drivers with wd_caps.compiles_late compile when a kernel's first launch begins, and a binary fetched before that
 * lacks what they make then. So this waits until the launch has begun, unless the command waits for others itself, and
 * stores the binary. A launch that was not waited for is looked at again at the next one, and at last in
 * wd_programs_fini().
 */
void wd_kernel_launched(struct wd_programs *programs, struct wd_kernel *kernel, cl_event event);

#endif
