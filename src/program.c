/* SPDX-License-Identifier: MIT */
#include "program.h"
#include "ptx.h"
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S  1000000000u
#define NS_PER_MS 1000000u

enum {
    FORMAT_VERSION = 1, /* of keys and payloads: entries of another are never found */
    LAUNCH_WAIT_S = 10, /* at most this long for a driver to compile at a launch */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void count(atomic_uint_fast64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ---- Keys ---- */

static void add_string(struct wd_sha256 *h, const char *s)
{
    wd_sha256_field(h, s, strlen(s));
}

/* The host CPU's model and features, as Linux tells them: CPU drivers compile for exactly that. */
static void add_host_cpu(struct wd_sha256 *h)
{
    static const char *const fields[] = {"vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU "};
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (!f)
        return;
    char line[8192];
    while (fgets(line, sizeof line, f) && line[0] != '\n') /* the first processor speaks for all */
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
            if (strncmp(line, fields[i], strlen(fields[i])) == 0) {
                add_string(h, line);
                break;
            }
    fclose(f);
}

static void begin_key(struct wd_sha256 *h, const struct wd_caps *caps)
{
    const unsigned char version = FORMAT_VERSION;
    wd_sha256_init(h);
    wd_sha256_field(h, &version, 1);
    add_string(h, caps->platform_name);
    add_string(h, caps->platform_version);
    add_string(h, caps->name);
    add_string(h, caps->vendor);
    add_string(h, caps->driver);
    add_string(h, caps->build_options);
    if (caps->cpu)
        add_host_cpu(h);
}

static void end_key(struct wd_sha256 h, const struct wd_text *text, const char *kernel,
                    unsigned char key[WD_SHA256_BYTES])
{
    add_string(&h, kernel);
    wd_sha256_field(&h, text->data, text->size);
    wd_sha256_end(&h, key);
}

/* ---- The memory table ---- */

static struct wd_kernel **bucket_of(struct wd_programs *programs, const unsigned char *key)
{
    return &programs->bucket[key[0]];
}

/* The caller holds the table's lock. */
static struct wd_kernel *look_up(struct wd_programs *programs, const unsigned char *key)
{
    struct wd_kernel *k = *bucket_of(programs, key);
    while (k && memcmp(k->key, key, sizeof k->key) != 0)
        k = k->next;
    return k;
}

static struct wd_kernel *find(struct wd_programs *programs, const unsigned char *key)
{
    pthread_mutex_lock(&programs->lock);
    struct wd_kernel *k = look_up(programs, key);
    pthread_mutex_unlock(&programs->lock);
    return k;
}

static void release_program(struct wd_kernel *k)
{
    if (k->kernel)
        clReleaseKernel(k->kernel);
    if (k->program)
        clReleaseProgram(k->program);
    k->kernel = NULL;
    k->program = NULL;
}

static void destroy_kernel(struct wd_kernel *k)
{
    if (k->awaited)
        clReleaseEvent(k->awaited);
    release_program(k);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

/* Adds a kernel; if another thread was quicker, its kernel stays and this one goes. */
static struct wd_kernel *insert(struct wd_programs *programs, struct wd_kernel *k)
{
    pthread_mutex_lock(&programs->lock);
    struct wd_kernel *first = look_up(programs, k->key);
    if (!first) {
        struct wd_kernel **bucket = bucket_of(programs, k->key);
        k->next = *bucket;
        *bucket = k;
    }
    pthread_mutex_unlock(&programs->lock);
    if (first)
        destroy_kernel(k);
    return first ? first : k;
}

/* ---- Storing binaries ---- */

enum { MAX_DEVICES = 64 }; /* of an OpenCL context; in a larger one nothing is stored */

/* The device's binary (free() it), or NULL. The context may have other devices, whose binaries are left alone. */
static unsigned char *fetch_binary(cl_program program, cl_device_id device, size_t *bytes)
{
    cl_device_id devices[MAX_DEVICES];
    size_t sizes[MAX_DEVICES], size = 0, i = 0;
    unsigned char *binaries[MAX_DEVICES] = {NULL};
    if (clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof devices, devices, &size) != CL_SUCCESS)
        return NULL;
    const size_t n = size / sizeof devices[0];
    while (i < n && devices[i] != device)
        i++;
    if (i == n || clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, n * sizeof sizes[0], sizes, NULL) != CL_SUCCESS ||
        sizes[i] == 0)
        return NULL;
    unsigned char *binary = malloc(sizes[i]);
    binaries[i] = binary;
    if (binary &&
        clGetProgramInfo(program, CL_PROGRAM_BINARIES, n * sizeof binaries[0], binaries, NULL) == CL_SUCCESS) {
        *bytes = sizes[i];
        return binary;
    }
    free(binary);
    return NULL;
}

/* Once for each kernel that was compiled. PoCL would return the first binary again whatever it compiled since. */
static void store(struct wd_programs *programs, const struct wd_kernel *k)
{
    size_t bytes = 0;
    unsigned char *binary = programs->cache ? fetch_binary(k->program, programs->caps->id, &bytes) : NULL;
    if (binary)
        wd_cache_put(programs->cache, k->key, k->label, binary, bytes);
    free(binary);
}

static cl_int event_status(cl_event event)
{
    cl_int status = CL_QUEUED;
    const cl_int err = clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    return err == CL_SUCCESS ? status : err;
}

/* Waits while the driver compiles for a command that it has taken up (it is CL_SUBMITTED then). One that is still
 * CL_QUEUED waits for others, perhaps for something that this very thread will do next. */
static void wait_for_compiler(cl_event event)
{
    const uint64_t deadline = now_ns() + LAUNCH_WAIT_S * (uint64_t)NS_PER_S;
    while (event_status(event) == CL_SUBMITTED && now_ns() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS / 2}, NULL);
}

/* Stores the binary if the awaited launch has begun. */
static void store_if_ready(struct wd_programs *programs, struct wd_kernel *k)
{
    pthread_mutex_lock(&k->lock);
    cl_event event = k->awaited;
    const cl_int status = event ? event_status(event) : CL_QUEUED;
    const bool begun = status <= CL_RUNNING;
    if (begun) {
        k->awaited = NULL;
        if (status >= 0) /* else the launch failed, and the next one counts */
            atomic_store(&k->unsaved, false);
    }
    pthread_mutex_unlock(&k->lock);
    if (!begun)
        return;
    clReleaseEvent(event);
    if (status >= 0)
        store(programs, k);
}

void wd_kernel_launched(struct wd_programs *programs, struct wd_kernel *k, cl_event event)
{
    pthread_mutex_lock(&k->lock);
    const bool first = wd_kernel_unsaved(k) && !k->awaited && clRetainEvent(event) == CL_SUCCESS;
    if (first)
        k->awaited = event;
    pthread_mutex_unlock(&k->lock);
    if (first)
        wait_for_compiler(event);
    store_if_ready(programs, k);
}

/* ---- Making a kernel ---- */

static struct wd_kernel *new_kernel(const struct wd_programs *programs, const char *name, const unsigned char *key)
{
    struct wd_kernel *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    if (pthread_mutex_init(&k->lock, NULL)) {
        free(k);
        return NULL;
    }
    memcpy(k->key, key, sizeof k->key);
    snprintf(k->label, sizeof k->label, "%.48s on %.40s", name, programs->caps->name);
    return k;
}

/* Takes the kernel out of the built program. */
static cl_int create_kernel(struct wd_kernel *k, const struct wd_caps *caps, const char *name)
{
    const cl_device_id device = caps->id;
    cl_ulong local_mem = 0, private_mem = 0;
    cl_int err;
    k->kernel = clCreateKernel(k->program, name, &err);
    if (!k->kernel)
        return err;
    err = clGetKernelWorkGroupInfo(k->kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof k->group_max, &k->group_max,
                                   NULL);
    clGetKernelWorkGroupInfo(k->kernel, device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof k->group_multiple,
                             &k->group_multiple, NULL);
    clGetKernelWorkGroupInfo(k->kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof k->required, k->required,
                             NULL);
    clGetKernelWorkGroupInfo(k->kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_mem, &local_mem, NULL);
    clGetKernelWorkGroupInfo(k->kernel, device, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof private_mem, &private_mem, NULL);
    wd_device_correct_limits(caps, k->required, &k->group_max, &local_mem);
    k->local_bytes = (size_t)local_mem;
    k->private_bytes = (size_t)private_mem;
    return err;
}

static cl_int build_binary(const struct wd_programs *programs, struct wd_kernel *k, const char *name,
                           const unsigned char *binary, size_t bytes)
{
    const struct wd_caps *caps = programs->caps;
    cl_int taken = CL_SUCCESS, err;
    k->program = clCreateProgramWithBinary(programs->context, 1, &caps->id, &bytes, &binary, &taken, &err);
    if (!err)
        err = taken;
    if (!err)
        err = clBuildProgram(k->program, 1, &caps->id, caps->build_options, NULL, NULL);
    return err ? err : create_kernel(k, caps, name);
}

/* From the disk cache. An entry that the driver does not like is as good as damaged. */
static bool load(struct wd_programs *programs, struct wd_kernel *k, const char *name)
{
    void *binary;
    size_t bytes;
    const enum wd_cache_find found = wd_cache_get(programs->cache, k->key, &binary, &bytes);
    if (found == WD_CACHE_MISS)
        return false;
    cl_int err = CL_INVALID_BINARY;
    if (found == WD_CACHE_HIT && bytes > 0)
        err = build_binary(programs, k, name, binary, bytes);
    if (err) {
        release_program(k);
        wd_cache_remove(programs->cache, k->key);
        count(&programs->counts.disk_rejects);
        wd_log(programs->log, WD_LOG_WARNING, "%s: the cached binary is %s and is replaced", name,
               found == WD_CACHE_DAMAGED ? "damaged" : "refused by the driver");
    } else {
        k->from_disk = true;
        count(&programs->counts.disk_hits);
    }
    free(binary);
    return !err;
}

static wd_status build_failed(const struct wd_programs *programs, const struct wd_kernel *k,
                              const struct wd_source *source, const char *call, cl_int err)
{
    const struct wd_caps *caps = programs->caps;
    size_t bytes = 0;
    if (k->program)
        clGetProgramBuildInfo(k->program, caps->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
    char *log = calloc(1, bytes + 1);
    if (log && bytes &&
        clGetProgramBuildInfo(k->program, caps->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL) != CL_SUCCESS)
        *log = '\0';
    const wd_status st =
        wd_fail(err == CL_OUT_OF_HOST_MEMORY ? WD_ENOMEM : WD_EBUILD,
                "%s: %s: %s: %s (%d)\ndevice: %s, driver %s\noptions: %s\nbuild log:\n%s", source->file, source->kernel,
                call, wd_cl_error_name(err), (int)err, caps->name, caps->driver, caps->build_options, log ? log : "");
    free(log);
    return st;
}

/* Builds the program anew, with the instructions of sm_90a that stand in its comments (ptx.h). */
static cl_int retarget(const struct wd_programs *programs, struct wd_kernel *k, const char *name)
{
    size_t bytes = 0, new_bytes = 0;
    char *text = NULL;
    unsigned char *binary = fetch_binary(k->program, programs->caps->id, &bytes);
    const bool memory = binary && !wd_ptx_retarget((const char *)binary, bytes, &text, &new_bytes);
    free(binary);
    release_program(k); /* its build log is no one's concern any more */
    const cl_int err = text     ? build_binary(programs, k, name, (const unsigned char *)text, new_bytes)
                       : memory ? CL_INVALID_BINARY
                                : CL_OUT_OF_HOST_MEMORY;
    free(text);
    return err;
}

static wd_status compile(struct wd_programs *programs, struct wd_kernel *k, const struct wd_source *source,
                         const struct wd_text *text)
{
    const struct wd_caps *caps = programs->caps;
    const char *lines = text->data;
    cl_int err;
    k->program = clCreateProgramWithSource(programs->context, 1, &lines, &text->size, &err);
    if (!k->program)
        return wd_fail_cl(err, source->file, "clCreateProgramWithSource");
    err = clBuildProgram(k->program, 1, &caps->id, caps->build_options, NULL, NULL);
    if (err)
        return build_failed(programs, k, source, "clBuildProgram", err);
    err = create_kernel(k, caps, source->kernel);
    if (err)
        return build_failed(programs, k, source, "clCreateKernel", err);
    if (caps->wgmma && strstr(text->data, WD_PTX_MARK) && (err = retarget(programs, k, source->kernel)))
        return build_failed(programs, k, source, "retargeting to sm_90a", err);
    count(&programs->counts.compiles);
    if (caps->compiles_late && programs->cache)
        atomic_store(&k->unsaved, true);
    else
        store(programs, k);
    return WD_OK;
}

static wd_status make(struct wd_programs *programs, const struct wd_source *source, const struct wd_text *text,
                      const unsigned char *key, struct wd_kernel **out)
{
    const uint64_t start = now_ns();
    struct wd_kernel *k = new_kernel(programs, source->kernel, key);
    if (!k)
        return wd_fail(WD_ENOMEM, "%s: out of memory", source->kernel);
    if (!load(programs, k, source->kernel)) {
        const wd_status st = compile(programs, k, source, text);
        if (st != WD_OK) {
            destroy_kernel(k);
            return st;
        }
    }
    k->build_ns = now_ns() - start;
    wd_log(programs->log, WD_LOG_INFO, "%s: %s in %.1f ms", source->kernel, k->from_disk ? "loaded" : "compiled",
           (double)k->build_ns / NS_PER_MS);
    *out = insert(programs, k);
    return WD_OK;
}

wd_status wd_program_kernel(struct wd_programs *programs, const struct wd_source *source, struct wd_kernel **out)
{
    struct wd_text text = {0};
    unsigned char key[WD_SHA256_BYTES];
    *out = NULL;
    wd_status st = wd_source_add(&text, source->prelude, source->file, source->kernel);
    if (st == WD_OK) {
        end_key(programs->key, &text, source->kernel, key);
        *out = find(programs, key);
        if (*out)
            count(&programs->counts.memory_hits);
        else
            st = make(programs, source, &text, key, out);
    }
    wd_text_free(&text);
    return st;
}

/* ---- The whole ---- */

wd_status wd_programs_init(struct wd_programs *programs, const struct wd_caps *caps, cl_context context,
                           struct wd_cache *cache, const struct wd_log *log)
{
    memset(programs, 0, sizeof *programs);
    programs->caps = caps;
    programs->context = context;
    programs->cache = cache;
    programs->log = log;
    begin_key(&programs->key, caps);
    return pthread_mutex_init(&programs->lock, NULL) ? wd_fail(WD_ENOMEM, "programs: no mutex") : WD_OK;
}

void wd_programs_fini(struct wd_programs *programs)
{
    for (size_t i = 0; i < sizeof programs->bucket / sizeof programs->bucket[0]; i++)
        for (struct wd_kernel *k = programs->bucket[i], *next; k; k = next) {
            next = k->next;
            store_if_ready(programs, k);
            if (wd_kernel_unsaved(k))
                store(programs, k);
            destroy_kernel(k);
        }
    pthread_mutex_destroy(&programs->lock);
}
