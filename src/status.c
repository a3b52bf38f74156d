/* SPDX-License-Identifier: MIT */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_LIST(X)                                                                                                 \
    X(WD_OK, "success")                                                                                                \
    X(WD_EINVAL, "an argument is wrong")                                                                               \
    X(WD_ENOMEM, "host or device memory is exhausted")                                                                 \
    X(WD_ENODEVICE, "no OpenCL platform or device, or none that matches")                                              \
    X(WD_EBUILD, "the driver refused a kernel")                                                                        \
    X(WD_EOPENCL, "an OpenCL call failed")                                                                             \
    X(WD_ENOTSUP, "no variant serves this call on this device")                                                        \
    X(WD_EIO, "a file could not be read or written")

/* OpenCL 1.2's codes, and the loader's -1001. */
#define CL_ERROR_LIST(X)                                                                                               \
    X(0, CL_SUCCESS)                                                                                                   \
    X(-1, CL_DEVICE_NOT_FOUND)                                                                                         \
    X(-2, CL_DEVICE_NOT_AVAILABLE)                                                                                     \
    X(-3, CL_COMPILER_NOT_AVAILABLE)                                                                                   \
    X(-4, CL_MEM_OBJECT_ALLOCATION_FAILURE)                                                                            \
    X(-5, CL_OUT_OF_RESOURCES)                                                                                         \
    X(-6, CL_OUT_OF_HOST_MEMORY)                                                                                       \
    X(-7, CL_PROFILING_INFO_NOT_AVAILABLE)                                                                             \
    X(-8, CL_MEM_COPY_OVERLAP)                                                                                         \
    X(-9, CL_IMAGE_FORMAT_MISMATCH)                                                                                    \
    X(-10, CL_IMAGE_FORMAT_NOT_SUPPORTED)                                                                              \
    X(-11, CL_BUILD_PROGRAM_FAILURE)                                                                                   \
    X(-12, CL_MAP_FAILURE)                                                                                             \
    X(-13, CL_MISALIGNED_SUB_BUFFER_OFFSET)                                                                            \
    X(-14, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)                                                               \
    X(-15, CL_COMPILE_PROGRAM_FAILURE)                                                                                 \
    X(-16, CL_LINKER_NOT_AVAILABLE)                                                                                    \
    X(-17, CL_LINK_PROGRAM_FAILURE)                                                                                    \
    X(-18, CL_DEVICE_PARTITION_FAILED)                                                                                 \
    X(-19, CL_KERNEL_ARG_INFO_NOT_AVAILABLE)                                                                           \
    X(-30, CL_INVALID_VALUE)                                                                                           \
    X(-31, CL_INVALID_DEVICE_TYPE)                                                                                     \
    X(-32, CL_INVALID_PLATFORM)                                                                                        \
    X(-33, CL_INVALID_DEVICE)                                                                                          \
    X(-34, CL_INVALID_CONTEXT)                                                                                         \
    X(-35, CL_INVALID_QUEUE_PROPERTIES)                                                                                \
    X(-36, CL_INVALID_COMMAND_QUEUE)                                                                                   \
    X(-37, CL_INVALID_HOST_PTR)                                                                                        \
    X(-38, CL_INVALID_MEM_OBJECT)                                                                                      \
    X(-39, CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)                                                                         \
    X(-40, CL_INVALID_IMAGE_SIZE)                                                                                      \
    X(-41, CL_INVALID_SAMPLER)                                                                                         \
    X(-42, CL_INVALID_BINARY)                                                                                          \
    X(-43, CL_INVALID_BUILD_OPTIONS)                                                                                   \
    X(-44, CL_INVALID_PROGRAM)                                                                                         \
    X(-45, CL_INVALID_PROGRAM_EXECUTABLE)                                                                              \
    X(-46, CL_INVALID_KERNEL_NAME)                                                                                     \
    X(-47, CL_INVALID_KERNEL_DEFINITION)                                                                               \
    X(-48, CL_INVALID_KERNEL)                                                                                          \
    X(-49, CL_INVALID_ARG_INDEX)                                                                                       \
    X(-50, CL_INVALID_ARG_VALUE)                                                                                       \
    X(-51, CL_INVALID_ARG_SIZE)                                                                                        \
    X(-52, CL_INVALID_KERNEL_ARGS)                                                                                     \
    X(-53, CL_INVALID_WORK_DIMENSION)                                                                                  \
    X(-54, CL_INVALID_WORK_GROUP_SIZE)                                                                                 \
    X(-55, CL_INVALID_WORK_ITEM_SIZE)                                                                                  \
    X(-56, CL_INVALID_GLOBAL_OFFSET)                                                                                   \
    X(-57, CL_INVALID_EVENT_WAIT_LIST)                                                                                 \
    X(-58, CL_INVALID_EVENT)                                                                                           \
    X(-59, CL_INVALID_OPERATION)                                                                                       \
    X(-60, CL_INVALID_GL_OBJECT)                                                                                       \
    X(-61, CL_INVALID_BUFFER_SIZE)                                                                                     \
    X(-62, CL_INVALID_MIP_LEVEL)                                                                                       \
    X(-63, CL_INVALID_GLOBAL_WORK_SIZE)                                                                                \
    X(-64, CL_INVALID_PROPERTY)                                                                                        \
    X(-65, CL_INVALID_IMAGE_DESCRIPTOR)                                                                                \
    X(-66, CL_INVALID_COMPILER_OPTIONS)                                                                                \
    X(-67, CL_INVALID_LINKER_OPTIONS)                                                                                  \
    X(-68, CL_INVALID_DEVICE_PARTITION_COUNT)                                                                          \
    X(-1001, CL_PLATFORM_NOT_FOUND_KHR)

/* A long text keeps this much of its head; the rest of the room is for its end, where a build log says why. */
enum { ERROR_BYTES = 4096, HEAD_BYTES = 1024 };

static _Thread_local char last_error[ERROR_BYTES];

const char *wd_status_string(wd_status status)
{
    switch (status) {
#define X(code, text)                                                                                                  \
    case code: return text;
        STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *wd_last_error(void)
{
    return last_error;
}

/* Copies a text of n bytes into out[ERROR_BYTES], leaving out its middle if it must. */
static void keep_ends(char *out, const char *text, size_t n)
{
    static const char gap[] = "\n[...]\n";
    const size_t room = ERROR_BYTES - 1;
    if (n <= room) {
        memcpy(out, text, n + 1);
        return;
    }
    const size_t tail = room - HEAD_BYTES - strlen(gap);
    memcpy(out, text, HEAD_BYTES);
    memcpy(out + HEAD_BYTES, gap, strlen(gap));
    memcpy(out + HEAD_BYTES + strlen(gap), text + n - tail, tail + 1);
}

wd_status wd_fail(wd_status status, const char *fmt, ...)
{
    /* Never formatted in place: an argument may be the last error itself. */
    char text[ERROR_BYTES];
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int length = vsnprintf(text, sizeof text, fmt, args);
    const size_t n = length < 0 ? 0 : (size_t)length;
    char *whole = n < sizeof text ? NULL : malloc(n + 1);
    if (whole) {
        vsnprintf(whole, n + 1, fmt, again);
        keep_ends(last_error, whole, n);
        free(whole);
    } else {
        memcpy(last_error, text, sizeof text); /* short, or its head */
        last_error[length < 0 ? 0 : sizeof text - 1] = '\0';
    }
    va_end(again);
    va_end(args);
    return status;
}

wd_status wd_fail_cl(cl_int err, const char *what, const char *call)
{
    const bool memory = err == CL_MEM_OBJECT_ALLOCATION_FAILURE || err == CL_OUT_OF_HOST_MEMORY;
    return wd_fail(memory ? WD_ENOMEM : WD_EOPENCL, "%s: %s: %s (%d)", what, call, wd_cl_error_name(err), (int)err);
}

const char *wd_cl_error_name(cl_int err)
{
    static _Thread_local char unknown[32];
    switch (err) {
#define X(code, name)                                                                                                  \
    case code: return #name;
        CL_ERROR_LIST(X)
#undef X
    default: snprintf(unknown, sizeof unknown, "CL error %d", (int)err); return unknown;
    }
}
