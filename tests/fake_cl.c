/* SPDX-License-Identifier: MIT */
#include "fake_cl.h"
#include "ptx.h"

#include <CL/cl_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PLATFORMS = 4, MAX_DEVICES = 4 };

struct _cl_platform_id {
    unsigned index;
};

struct _cl_device_id {
    struct _cl_platform_id *platform;
    unsigned index;
};

struct _cl_context {
    int refs;
    cl_device_id device;
};

struct _cl_command_queue {
    int refs;
    cl_command_queue_properties properties;
};

struct _cl_mem {
    int refs;
    size_t bytes;
    char data[];
};

struct _cl_program {
    int refs;
    cl_context context;
    bool from_source;
    char text[]; /* a binary is its maker's version, a newline and this */
};

struct _cl_kernel {
    int refs;
};

struct _cl_event {
    int refs;
};

struct fake fake;

static struct _cl_platform_id platforms[MAX_PLATFORMS];
static struct _cl_device_id devices[MAX_PLATFORMS][MAX_DEVICES];

void fake_reset(void)
{
    fake = (struct fake){
        .platforms = 1,
        .devices = 1,
        .driver = "1.0",
        .binary_version = "A",
        .group_max = 1024,
        .fail_with = CL_OUT_OF_RESOURCES,
    };
}

/* ---- Common to all calls ---- */

static bool fails(const char *name)
{
    if (++fake.calls != fake.fail_at)
        return false;
    fake.failed = name;
    return true;
}

/* Whether the call in whose body this stands is the one to fail. */
#define FAILS fails(__func__)

static void *create(size_t bytes, cl_int *err)
{
    int *object = calloc(1, bytes); /* every object begins with its references */
    if (object) {
        *object = 1;
        fake.alive++;
    }
    if (err)
        *err = object ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    return object;
}

static void *refuse(cl_int code, cl_int *err)
{
    if (err)
        *err = code;
    return NULL;
}

static cl_int retain(int *refs)
{
    ++*refs;
    fake.alive++;
    return CL_SUCCESS;
}

/* True if that was the last reference, and the object's own memory is to be freed. */
static bool release(int *refs)
{
    fake.alive--;
    return --*refs == 0;
}

static cl_int answer(const void *value, size_t bytes, size_t room, void *out, size_t *size)
{
    if (out && room < bytes)
        return CL_INVALID_VALUE;
    if (out)
        memcpy(out, value, bytes);
    if (size)
        *size = bytes;
    return CL_SUCCESS;
}

static cl_int answer_text(const char *text, size_t room, void *out, size_t *size)
{
    return answer(text, strlen(text) + 1, room, out, size);
}

/* ---- Platforms and devices ---- */

cl_int clGetPlatformIDs(cl_uint n, cl_platform_id *ids, cl_uint *count)
{
    if (FAILS)
        return fake.fail_with;
    if (fake.platforms == 0)
        return CL_PLATFORM_NOT_FOUND_KHR;
    for (cl_uint i = 0; ids && i < n && i < fake.platforms; i++) {
        platforms[i].index = i;
        ids[i] = &platforms[i];
    }
    if (count)
        *count = fake.platforms;
    return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info what, size_t room, void *out, size_t *size)
{
    (void)platform;
    if (FAILS)
        return fake.fail_with;
    if (what == CL_PLATFORM_NAME)
        return answer_text(fake.platform ? fake.platform
                           : fake.late   ? "Portable Computing Language"
                                         : "Fake",
                           room, out, size);
    return what == CL_PLATFORM_VERSION ? answer_text("OpenCL 1.2 fake", room, out, size) : CL_INVALID_VALUE;
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint n, cl_device_id *ids, cl_uint *count)
{
    (void)type;
    if (FAILS)
        return fake.fail_with;
    if (platform->index < fake.broken)
        return CL_DEVICE_NOT_AVAILABLE;
    if (fake.devices == 0)
        return CL_DEVICE_NOT_FOUND;
    for (cl_uint i = 0; ids && i < n && i < fake.devices; i++) {
        devices[platform->index][i] = (struct _cl_device_id){platform, i};
        ids[i] = &devices[platform->index][i];
    }
    if (count)
        *count = fake.devices;
    return CL_SUCCESS;
}

static cl_int device_text(cl_device_id device, cl_device_info what, size_t room, void *out, size_t *size)
{
    char name[32];
    switch (what) {
    case CL_DEVICE_NAME:
        snprintf(name, sizeof name, "  Fake device %u:%u ", device->platform->index, device->index);
        return answer_text(fake.name ? fake.name : name, room, out, size);
    case CL_DEVICE_VENDOR: return answer_text("Nobody", room, out, size);
    case CL_DRIVER_VERSION: return answer_text(fake.driver, room, out, size);
    case CL_DEVICE_VERSION: return answer_text("OpenCL 1.2 fake", room, out, size);
    case CL_DEVICE_EXTENSIONS: return answer_text("cl_khr_fp16_not cl_khr_int64_base_atomics", room, out, size);
    default: return CL_INVALID_VALUE;
    }
}

/* A vendor's own query; without an answer, what other vendors say. */
static cl_int answer_own(unsigned value, size_t room, void *out, size_t *size)
{
    return value ? answer(&value, sizeof value, room, out, size) : CL_INVALID_VALUE;
}

static cl_int answer_minor(size_t room, void *out, size_t *size)
{
    const cl_uint minor = fake.sm % 10;
    return fake.sm ? answer(&minor, sizeof minor, room, out, size) : CL_INVALID_VALUE;
}

static cl_int device_number(cl_device_id device, cl_device_info what, size_t room, void *out, size_t *size)
{
    static const size_t items[3] = {1024, 1024, 64}, group = 1024;
    static const cl_ulong local = 48 << 10, memory = (cl_ulong)8 << 30, alloc = (cl_ulong)2 << 30, cache = 4 << 20;
    static const cl_uint dims = 3;
    static const cl_device_fp_config config = CL_FP_INF_NAN | CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
    const cl_uint units = 4 * (device->index + 1);
    const cl_device_type type = fake.late ? CL_DEVICE_TYPE_CPU : CL_DEVICE_TYPE_GPU;
    switch (what) {
    case CL_DEVICE_TYPE: return answer(&type, sizeof type, room, out, size);
    case CL_DEVICE_PLATFORM: return answer(&device->platform, sizeof device->platform, room, out, size);
    case CL_DEVICE_MAX_COMPUTE_UNITS: return answer(&units, sizeof units, room, out, size);
    case CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS: return answer(&dims, sizeof dims, room, out, size);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES: return answer(items, sizeof items, room, out, size);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return answer(&group, sizeof group, room, out, size);
    case CL_DEVICE_LOCAL_MEM_SIZE: return answer(&local, sizeof local, room, out, size);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return answer(&alloc, sizeof alloc, room, out, size);
    case CL_DEVICE_GLOBAL_MEM_SIZE: return answer(&memory, sizeof memory, room, out, size);
    case CL_DEVICE_GLOBAL_MEM_CACHE_SIZE: return answer(&cache, sizeof cache, room, out, size);
    case CL_DEVICE_SINGLE_FP_CONFIG: return answer(&config, sizeof config, room, out, size);
    case CL_DEVICE_IP_VERSION_INTEL: return answer_own(fake.ip, room, out, size);
    case CL_DEVICE_NUM_EUS_PER_SUB_SLICE_INTEL: return answer_own(fake.cores, room, out, size);
    case CL_DEVICE_WAVEFRONT_WIDTH_AMD: return answer_own(fake.wave, room, out, size);
    case CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV: return answer_own(fake.sm / 10, room, out, size);
    case CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV: return answer_minor(room, out, size);
    default: return device_text(device, what, room, out, size);
    }
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void *out, size_t *size)
{
    return FAILS ? fake.fail_with : device_number(device, what, room, out, size);
}

/* ---- Contexts, queues, buffers, events ---- */

cl_context clCreateContext(const cl_context_properties *properties, cl_uint n, const cl_device_id *ids,
                           void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
                           cl_int *err)
{
    (void)properties, (void)n, (void)notify, (void)user;
    if (FAILS)
        return refuse(fake.fail_with, err);
    cl_context context = create(sizeof *context, err);
    if (context)
        context->device = ids[0];
    return context;
}

cl_int clRetainContext(cl_context context)
{
    return FAILS ? fake.fail_with : retain(&context->refs);
}

cl_int clReleaseContext(cl_context context)
{
    if (release(&context->refs))
        free(context);
    return CL_SUCCESS;
}

cl_int clGetContextInfo(cl_context context, cl_context_info what, size_t room, void *out, size_t *size)
{
    if (FAILS)
        return fake.fail_with;
    return what == CL_CONTEXT_DEVICES ? answer(&context->device, sizeof context->device, room, out, size)
                                      : CL_INVALID_VALUE;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device, cl_command_queue_properties properties,
                                      cl_int *err)
{
    (void)context, (void)device;
    if (FAILS)
        return refuse(fake.fail_with, err);
    cl_command_queue queue = create(sizeof *queue, err);
    if (queue)
        queue->properties = properties;
    return queue;
}

cl_int clRetainCommandQueue(cl_command_queue queue)
{
    return FAILS ? fake.fail_with : retain(&queue->refs);
}

cl_int clReleaseCommandQueue(cl_command_queue queue)
{
    if (release(&queue->refs))
        free(queue);
    return CL_SUCCESS;
}

cl_int clGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info what, size_t room, void *out, size_t *size)
{
    if (FAILS)
        return fake.fail_with;
    return what == CL_QUEUE_PROPERTIES ? answer(&queue->properties, sizeof queue->properties, room, out, size)
                                       : CL_INVALID_VALUE;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void *data, cl_int *err)
{
    (void)context;
    if (FAILS)
        return refuse(fake.fail_with, err);
    if (bytes == 0)
        return refuse(CL_INVALID_BUFFER_SIZE, err);
    cl_mem mem = create(sizeof *mem + bytes, err);
    if (!mem)
        return NULL;
    mem->bytes = bytes;
    if (flags & CL_MEM_COPY_HOST_PTR)
        memcpy(mem->data, data, bytes);
    return mem;
}

cl_int clReleaseMemObject(cl_mem mem)
{
    if (release(&mem->refs))
        free(mem);
    return CL_SUCCESS;
}

cl_int clGetMemObjectInfo(cl_mem mem, cl_mem_info what, size_t room, void *out, size_t *size)
{
    if (FAILS)
        return fake.fail_with;
    return what == CL_MEM_SIZE ? answer(&mem->bytes, sizeof mem->bytes, room, out, size) : CL_INVALID_VALUE;
}

cl_int clRetainEvent(cl_event event)
{
    return FAILS ? fake.fail_with : retain(&event->refs);
}

cl_int clReleaseEvent(cl_event event)
{
    if (release(&event->refs))
        free(event);
    return CL_SUCCESS;
}

cl_int clGetEventInfo(cl_event event, cl_event_info what, size_t room, void *out, size_t *size)
{
    static const cl_int complete = CL_COMPLETE;
    (void)event;
    if (FAILS)
        return fake.fail_with;
    return what == CL_EVENT_COMMAND_EXECUTION_STATUS ? answer(&complete, sizeof complete, room, out, size)
                                                     : CL_INVALID_VALUE;
}

cl_int clWaitForEvents(cl_uint n, const cl_event *events)
{
    (void)n, (void)events;
    return FAILS ? fake.fail_with : CL_SUCCESS;
}

/* ---- Programs and kernels ---- */

static cl_program create_program(cl_context context, const char *text, size_t bytes, bool from_source, cl_int *err)
{
    cl_program program = create(sizeof *program + bytes + 1, err);
    if (!program)
        return NULL;
    program->context = context;
    program->from_source = from_source;
    memcpy(program->text, text, bytes);
    return program;
}

cl_program clCreateProgramWithSource(cl_context context, cl_uint n, const char **texts, const size_t *sizes,
                                     cl_int *err)
{
    (void)n;
    if (FAILS)
        return refuse(fake.fail_with, err);
    return create_program(context, texts[0], sizes[0], true, err);
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint n, const cl_device_id *ids, const size_t *sizes,
                                     const unsigned char **binaries, cl_int *taken, cl_int *err)
{
    (void)n, (void)ids;
    if (FAILS)
        return refuse(fake.fail_with, err);
    const char *binary = (const char *)binaries[0];
    const size_t head = strlen(fake.binary_version) + 1;
    *taken = sizes[0] > head && memcmp(binary, fake.binary_version, head - 1) == 0 && binary[head - 1] == '\n'
                 ? CL_SUCCESS
                 : CL_INVALID_BINARY;
    if (*taken)
        return refuse(CL_INVALID_BINARY, err);
    return create_program(context, binary + head, sizes[0] - head, false, err);
}

cl_int clReleaseProgram(cl_program program)
{
    if (release(&program->refs))
        free(program);
    return CL_SUCCESS;
}

cl_int clBuildProgram(cl_program program, cl_uint n, const cl_device_id *ids, const char *options,
                      void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    (void)n, (void)ids, (void)options, (void)notify, (void)user;
    if (FAILS)
        return fake.fail_with;
    if (!program->from_source) {
        fake.binary_builds++;
        fake.sm_90a += strstr(program->text, ".target sm_90a") && !strstr(program->text, WD_PTX_MARK);
        return CL_SUCCESS;
    }
    if (fake.build_log)
        return CL_BUILD_PROGRAM_FAILURE;
    fake.source_builds++;
    return CL_SUCCESS;
}

cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_program_build_info what, size_t room,
                             void *out, size_t *size)
{
    (void)program, (void)device;
    if (FAILS)
        return fake.fail_with;
    return what == CL_PROGRAM_BUILD_LOG ? answer_text(fake.build_log ? fake.build_log : "", room, out, size)
                                        : CL_INVALID_VALUE;
}

cl_int clGetProgramInfo(cl_program program, cl_program_info what, size_t room, void *out, size_t *size)
{
    if (FAILS)
        return fake.fail_with;
    const char *target = fake.target && program->from_source ? fake.target : "";
    const size_t head = strlen(fake.binary_version), bytes = head + 1 + strlen(target) + strlen(program->text);
    if (what == CL_PROGRAM_DEVICES)
        return answer(&program->context->device, sizeof(cl_device_id), room, out, size);
    if (what == CL_PROGRAM_BINARY_SIZES)
        return answer(&bytes, sizeof bytes, room, out, size);
    if (what != CL_PROGRAM_BINARIES || room < sizeof(char *))
        return CL_INVALID_VALUE;
    char *binary = *(char **)out;
    memcpy(binary, fake.binary_version, head);
    binary[head] = '\n';
    memcpy(binary + head + 1, target, strlen(target));
    memcpy(binary + head + 1 + strlen(target), program->text, strlen(program->text));
    return CL_SUCCESS;
}

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *err)
{
    if (FAILS)
        return refuse(fake.fail_with, err);
    return strstr(program->text, name) ? create(sizeof(struct _cl_kernel), err) : refuse(CL_INVALID_KERNEL_NAME, err);
}

cl_int clReleaseKernel(cl_kernel kernel)
{
    if (release(&kernel->refs))
        free(kernel);
    return CL_SUCCESS;
}

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info what, size_t room,
                                void *out, size_t *size)
{
    static const size_t multiple = 32;
    static const cl_ulong zero = 0;
    const size_t required[3] = {fake.group_required, fake.group_required > 0, fake.group_required > 0};
    (void)kernel, (void)device;
    if (FAILS)
        return fake.fail_with;
    switch (what) {
    case CL_KERNEL_WORK_GROUP_SIZE: return answer(&fake.group_max, sizeof fake.group_max, room, out, size);
    case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE: return answer(&multiple, sizeof multiple, room, out, size);
    case CL_KERNEL_COMPILE_WORK_GROUP_SIZE: return answer(required, sizeof required, room, out, size);
    case CL_KERNEL_LOCAL_MEM_SIZE: return answer(&fake.local_bytes, sizeof fake.local_bytes, room, out, size);
    case CL_KERNEL_PRIVATE_MEM_SIZE: return answer(&zero, sizeof zero, room, out, size);
    default: return CL_INVALID_VALUE;
    }
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void *value)
{
    (void)kernel, (void)index, (void)bytes, (void)value;
    return FAILS ? fake.fail_with : CL_SUCCESS;
}

/* ---- Commands: all complete at once ---- */

static cl_int complete(cl_event *event)
{
    cl_int err = CL_SUCCESS;
    if (event)
        *event = create(sizeof(struct _cl_event), &err);
    return err;
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                              const size_t *global, const size_t *local, cl_uint n, const cl_event *wait,
                              cl_event *event)
{
    size_t items = 1;
    (void)queue, (void)kernel, (void)offset, (void)n, (void)wait;
    if (FAILS)
        return fake.fail_with;
    if (dims < 1 || dims > 3)
        return CL_INVALID_WORK_DIMENSION;
    for (cl_uint d = 0; d < dims; d++) {
        items *= local[d];
        if (global[d] == 0)
            return CL_INVALID_GLOBAL_WORK_SIZE;
        if (local[d] == 0 || global[d] % local[d])
            return CL_INVALID_WORK_GROUP_SIZE;
    }
    if (items > fake.group_max && items != fake.group_required)
        return CL_INVALID_WORK_GROUP_SIZE;
    fake.launches++;
    fake.group = items;
    return complete(event);
}

cl_int clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint n, const cl_event *wait, cl_event *event)
{
    (void)queue, (void)n, (void)wait;
    return FAILS ? fake.fail_with : complete(event);
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset, size_t bytes,
                           void *data, cl_uint n, const cl_event *wait, cl_event *event)
{
    (void)queue, (void)blocking, (void)n, (void)wait;
    if (FAILS)
        return fake.fail_with;
    if (offset + bytes > mem->bytes)
        return CL_INVALID_VALUE;
    memcpy(data, mem->data + offset, bytes);
    return complete(event);
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset, size_t bytes,
                            const void *data, cl_uint n, const cl_event *wait, cl_event *event)
{
    (void)queue, (void)blocking, (void)n, (void)wait;
    if (FAILS)
        return fake.fail_with;
    if (offset + bytes > mem->bytes)
        return CL_INVALID_VALUE;
    memcpy(mem->data + offset, data, bytes);
    return complete(event);
}

cl_int clFinish(cl_command_queue queue)
{
    (void)queue;
    return FAILS ? fake.fail_with : CL_SUCCESS;
}
