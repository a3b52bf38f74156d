/* SPDX-License-Identifier: MIT */
/* What drivers tell of a kernel beyond OpenCL's queries, and what they tell wrongly. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

/* Mesa's rusticl calls a sub-group the largest group, 32 items on llvmpipe, where groups of 1024 run as well; NVIDIA's
 * driver says 256 where 512 run (580.159, seen on an H200): what a kernel was compiled for is right. rusticl's version
 * 22 counts every byte of local memory twice. */
void wd_device_correct_limits(const struct wd_caps *caps, const size_t required[3], size_t *group, cl_ulong *local)
{
    const size_t items = required[0] * required[1] * required[2];
    const bool rusticl = strstr(caps->platform_name, "rusticl");
    if ((rusticl || caps->sm) && *group < items && items <= caps->max_group)
        *group = items;
    if (rusticl && atoi(caps->driver) == 22)
        *local /= 2;
}

/* The number that stands before `words` in a build log; -1 if they are not there. */
static int number_before(const char *log, const char *words)
{
    const char *at = strstr(log, words);
    if (!at)
        return -1;
    while (at > log && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return atoi(at);
}

/* NVIDIA's assembler writes "Used 40 registers" and "8 bytes spill stores" into the build log; Intel answers a query of
 * cl_intel_required_subgroup_size, which others refuse. */
void wd_device_kernel_facts(const struct wd_caps *caps, cl_program program, cl_kernel kernel,
                            struct wd_kernel_facts *facts)
{
    enum { CL_KERNEL_SPILL_MEM_SIZE_INTEL_ = 0x4109 };
    cl_ulong spill = 0;
    size_t bytes = 0;
    *facts = (struct wd_kernel_facts){-1, -1};
    if (strcmp(caps->kind, "intel") == 0 && clGetKernelWorkGroupInfo(kernel, caps->id, CL_KERNEL_SPILL_MEM_SIZE_INTEL_,
                                                                     sizeof spill, &spill, NULL) == CL_SUCCESS)
        facts->spill_bytes = (int)spill;
    if (!caps->sm || clGetProgramBuildInfo(program, caps->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) != CL_SUCCESS)
        return;
    char *log = calloc(1, bytes + 1);
    if (log && clGetProgramBuildInfo(program, caps->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL) == CL_SUCCESS) {
        facts->registers = number_before(log, " registers");
        facts->spill_bytes = number_before(log, " bytes spill stores");
    }
    free(log);
}
