/* SPDX-License-Identifier: MIT */
#include "device.h"
#include "status.h"
#include "text.h"

#ifdef __APPLE__
#include <OpenCL/cl_ext.h>
#else
#include <CL/cl_ext.h>
#endif
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* OpenCL 3.0's query for what 1.2 tells per kernel only. */
#ifndef CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE
#define CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE 0x1067
#endif

#define KIB ((size_t)1024)

enum { TEXT_BYTES = 8192 }; /* more than any driver's list of extensions */

/* ---- Queries ---- */

/* True if the device answered with exactly `bytes`; else *value is as before. */
static bool ask(cl_device_id id, cl_device_info what, size_t bytes, void *value)
{
    char answer[16];
    size_t size = 0;
    if (bytes > sizeof answer || clGetDeviceInfo(id, what, sizeof answer, answer, &size) != CL_SUCCESS || size != bytes)
        return false;
    memcpy(value, answer, bytes);
    return true;
}

static bool ask_uint(cl_device_id id, cl_device_info what, unsigned *value)
{
    return ask(id, what, sizeof(cl_uint), value);
}

static bool ask_ulong(cl_device_id id, cl_device_info what, size_t *value)
{
    cl_ulong answer;
    if (!ask(id, what, sizeof answer, &answer))
        return false;
    *value = answer > SIZE_MAX ? SIZE_MAX : (size_t)answer;
    return true;
}

/* Copies a driver's answer without the blanks that some put round it; what is too long is cut. */
static void copy_trimmed(char *out, size_t out_bytes, const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    n = n < out_bytes ? n : out_bytes - 1;
    memcpy(out, text, n);
    out[n] = '\0';
}

/* "" if the device does not say. */
static void ask_text(cl_device_id id, cl_device_info what, char *out, size_t out_bytes)
{
    char text[TEXT_BYTES] = "";
    if (clGetDeviceInfo(id, what, sizeof text - 1, text, NULL) != CL_SUCCESS)
        *text = '\0';
    copy_trimmed(out, out_bytes, text);
}

static void ask_platform(cl_platform_id platform, cl_platform_info what, char *out, size_t out_bytes)
{
    char text[TEXT_BYTES] = "";
    if (clGetPlatformInfo(platform, what, sizeof text - 1, text, NULL) != CL_SUCCESS)
        *text = '\0';
    copy_trimmed(out, out_bytes, text);
}

/* Is `word` one of the blank-separated words of `list`? */
static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

/* ---- Quirks: what drivers do not tell by OpenCL's common queries ---- */

/* What a kernel's __local arrays may take on NVIDIA, where the query says 48 KiB everywhere: "maximum amount of shared
 * memory per thread block" in the CUDA C Programming Guide's table of compute capabilities. 0: not in the table. */
static size_t nvidia_local_bytes(unsigned sm)
{
    static const struct {
        unsigned sm, kib;
    } table[] = {{70, 96}, {72, 96},  {75, 64},   {80, 163},  {86, 99},  {87, 163},
                 {89, 99}, {90, 227}, {100, 227}, {103, 227}, {120, 99}, {121, 99}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].sm == sm)
            return table[i].kib * KIB;
    return 0;
}

static void nvidia_quirks(struct wd_caps *caps)
{
    unsigned major = 0, minor = 0;
    caps->simd = 32;
    ask_uint(caps->id, CL_DEVICE_WARP_SIZE_NV, &caps->simd);
    if (!ask_uint(caps->id, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, &major) ||
        !ask_uint(caps->id, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV, &minor))
        return;
    caps->sm = 10 * major + minor;
    caps->wgmma = caps->sm == 90;
    snprintf(caps->arch, sizeof caps->arch, "sm_%u", caps->sm);
    const size_t bytes = nvidia_local_bytes(caps->sm);
    caps->local_bytes = bytes > caps->local_bytes ? bytes : caps->local_bytes;
}

/* ROCm names its devices "gfx90a:sramecc+:xnack-", by instruction set; a marketing name says no architecture. */
static void amd_quirks(struct wd_caps *caps)
{
    caps->simd = 64; /* CDNA and GCN; RDNA tells 32 */
    ask_uint(caps->id, CL_DEVICE_WAVEFRONT_WIDTH_AMD, &caps->simd);
    if (strncmp(caps->name, "gfx", 3) == 0)
        snprintf(caps->arch, sizeof caps->arch, "%.*s", (int)strcspn(caps->name, ":"), caps->name);
}

/* Sub-groups may be 8, 16 or 32 wide there; 16 is the one that every generation since Gen8 has. A hardware thread,
 * which runs one sub-group, has 128 registers of 32 bytes, and of 64 bytes since Xe-HPC (IP version 12.60), for which
 * the compiler prefers 32 items and then has no more registers for each than before.
 *
 * OpenCL's compute units are its execution units, while a work-group is dealt to a Xe core (a sub-slice): 16 of them,
 * or as many as the driver says. */
static void intel_gpu_quirks(struct wd_caps *caps)
{
    unsigned ip = 0, units = 16;
    caps->simd = 16;
    if (ask_uint(caps->id, CL_DEVICE_IP_VERSION_INTEL, &ip))
        snprintf(caps->arch, sizeof caps->arch, "xe_%u.%u", ip >> 22, (ip >> 12) & 0x3ff);
    caps->fix_width = ip >> 12 >= (12u << 10 | 60);
    caps->registers = 128 * (caps->fix_width ? 64u : 32u) / (unsigned)sizeof(cl_float) / caps->simd;
    ask_uint(caps->id, CL_DEVICE_NUM_EUS_PER_SUB_SLICE_INTEL, &units);
    caps->compute_units = units > 1 ? (caps->compute_units + units - 1) / units : caps->compute_units;
}

/* Warps of 16 since Valhall, fewer before: what the driver calls the preferred multiple. "Arm GPU Best Practices": 64
 * registers a thread at most, and with more than 32 only half the threads. */
static void arm_quirks(struct wd_caps *caps)
{
    caps->registers = 64;
    for (size_t i = 0; caps->name[i] && i + 1 < sizeof caps->arch; i++) /* "Mali-G710" */
        caps->arch[i] = caps->name[i] == ' ' ? '-' : (char)tolower((unsigned char)caps->name[i]);
}

/* CPU drivers compile for the CPU that they, and so this program, run on. */
static void cpu_quirks(struct wd_caps *caps)
{
    const char *arch = "";
    caps->simd = 4;
#if defined(__x86_64__) || defined(__i386__)
    arch = "sse";
    if (__builtin_cpu_supports("avx512f")) {
        arch = "avx512";
        caps->simd = 16;
    } else if (__builtin_cpu_supports("avx2")) {
        arch = "avx2";
        caps->simd = 8;
    }
#elif defined(__aarch64__)
    arch = "neon";
#endif
    snprintf(caps->arch, sizeof caps->arch, "%s", arch);
}

static const char *driver_kind(const struct wd_caps *caps)
{
    static const struct {
        const char *platform, *kind;
    } table[] = {{"Portable Computing Language", "pocl"},
                 {"Oclgrind", "oclgrind"},
                 {"rusticl", "mesa"},
                 {"Clover", "mesa"},
                 {"NVIDIA", "nvidia"},
                 {"AMD", "amd"},
                 {"Intel", "intel"},
                 {"ARM", "arm"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strstr(caps->platform_name, table[i].platform))
            return table[i].kind;
    return "other";
}

static void apply_quirks(struct wd_caps *caps)
{
    size_t multiple = 32;
    ask(caps->id, CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof multiple, &multiple);
    caps->simd = multiple > 0 && multiple <= 128 ? (unsigned)multiple : 1;
    caps->registers = 256; /* of NVIDIA's and AMD's: their instructions have 8 bits for one */
    snprintf(caps->kind, sizeof caps->kind, "%s", driver_kind(caps));
    if (strcmp(caps->kind, "mesa") == 0) /* llvmpipe: items are lanes; CPU forms take minutes to compile, one wrongly */
        caps->cpu = false;
    if (caps->cpu)
        cpu_quirks(caps);
    else if (strcmp(caps->kind, "nvidia") == 0)
        nvidia_quirks(caps);
    else if (strcmp(caps->kind, "amd") == 0)
        amd_quirks(caps);
    else if (strcmp(caps->kind, "intel") == 0)
        intel_gpu_quirks(caps);
    else if (strcmp(caps->kind, "arm") == 0)
        arm_quirks(caps);
    caps->compiles_late = caps->cpu && strcmp(caps->kind, "pocl") == 0;
}

/* For tests: $WARPDRIVE_CPU_FORMS says whether kernels take their CPU form (1) or their GPU form (0), whatever the
 * device is. So a simulator can check the first for races, and PoCL can run the second. */
static void choose_forms(struct wd_caps *caps)
{
    const char *wish = getenv("WARPDRIVE_CPU_FORMS");
    if (!wish || (strcmp(wish, "0") != 0 && strcmp(wish, "1") != 0))
        return;
    caps->cpu = wish[0] == '1';
    caps->simd = caps->cpu ? 8 : 32;
}

/* ---- One device ---- */

static void ask_extensions(struct wd_caps *caps)
{
    char list[TEXT_BYTES];
    ask_text(caps->id, CL_DEVICE_EXTENSIONS, list, sizeof list);
    caps->fp16 = has_word(list, "cl_khr_fp16");
    caps->subgroups = has_word(list, "cl_khr_subgroups") || has_word(list, "cl_intel_subgroups");
    caps->int64_atomics = has_word(list, "cl_khr_int64_base_atomics");
}

/* Results must not depend on the device's idea of a quotient, so division is rounded correctly where that is a
 * choice. Nothing here may ever relax arithmetic. -w: some drivers print their warnings' number on stderr.
 *
 * PoCL 3.1 aborts if a binary is fetched while a kernel with a required group size runs: its table of loaded kernels
 * takes the general build, made for the binary, for the one that runs. Without the attribute they differ in size; and
 * it compiles for the size of each launch anyway. The same attribute takes Intel's along, which says how wide. */
static void set_build_options(struct wd_caps *caps)
{
    static const char required[] = " -Dreqd_work_group_size(x,y,z)=";
    char width[96] = "";
    cl_device_fp_config config = 0;
    if (caps->fix_width)
        snprintf(width, sizeof width, "%sreqd_work_group_size(x,y,z),intel_reqd_sub_group_size(%u)", required,
                 caps->simd);
    ask(caps->id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof config, &config);
    /* NVIDIA's log says nothing unless asked, and then wd_device_kernel_facts() reads it; others are told to be quiet.
     */
    snprintf(caps->build_options, sizeof caps->build_options, "-cl-std=CL1.2%s%s%s%s",
             caps->sm ? " -cl-nv-verbose" : " -w",
             config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT ? " -cl-fp32-correctly-rounded-divide-sqrt" : "",
             caps->compiles_late ? required : "", width);
}

static bool ask_limits(struct wd_caps *caps)
{
    size_t items[16] = {0};
    cl_uint dims = 0;
    if (!ask_uint(caps->id, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, &dims) || dims < 3 || dims > 16 ||
        clGetDeviceInfo(caps->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, dims * sizeof items[0], items, NULL) != CL_SUCCESS)
        return false;
    memcpy(caps->max_local, items, sizeof caps->max_local);
    ask_ulong(caps->id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, &caps->cache_bytes);
    return ask_uint(caps->id, CL_DEVICE_MAX_COMPUTE_UNITS, &caps->compute_units) &&
           ask(caps->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t), &caps->max_group) &&
           ask_ulong(caps->id, CL_DEVICE_LOCAL_MEM_SIZE, &caps->local_bytes) &&
           ask_ulong(caps->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, &caps->max_alloc_bytes) &&
           ask_ulong(caps->id, CL_DEVICE_GLOBAL_MEM_SIZE, &caps->global_bytes);
}

wd_status wd_caps_query(cl_device_id id, struct wd_caps *caps)
{
    *caps = (struct wd_caps){.id = id};
    ask_text(id, CL_DEVICE_NAME, caps->name, sizeof caps->name);
    if (!*caps->name || !ask(id, CL_DEVICE_TYPE, sizeof caps->type, &caps->type) || !ask_limits(caps))
        return wd_fail(WD_EOPENCL, "device: clGetDeviceInfo: '%s' does not tell its type and limits", caps->name);
    /* A simulator (Oclgrind) calls itself everything at once, and wants kernels in the form of work-groups. */
    caps->cpu = (caps->type & CL_DEVICE_TYPE_CPU) && !(caps->type & CL_DEVICE_TYPE_GPU);

    ask_text(id, CL_DEVICE_VENDOR, caps->vendor, sizeof caps->vendor);
    ask_text(id, CL_DRIVER_VERSION, caps->driver, sizeof caps->driver);
    ask_text(id, CL_DEVICE_VERSION, caps->version, sizeof caps->version);
    if (ask(id, CL_DEVICE_PLATFORM, sizeof caps->platform, &caps->platform)) {
        ask_platform(caps->platform, CL_PLATFORM_NAME, caps->platform_name, sizeof caps->platform_name);
        ask_platform(caps->platform, CL_PLATFORM_VERSION, caps->platform_version, sizeof caps->platform_version);
    }
    ask_extensions(caps);
    apply_quirks(caps);
    choose_forms(caps);
    set_build_options(caps);
    return WD_OK;
}

/* ---- All devices ---- */

struct listing {
    struct wd_device_entry *entries;
    size_t count;
    unsigned next_index;
};

static struct wd_device_entry *add_entry(struct listing *l, unsigned platform, unsigned device)
{
    struct wd_device_entry *entries = realloc(l->entries, (l->count + 1) * sizeof *entries);
    if (!entries)
        return NULL;
    l->entries = entries;
    struct wd_device_entry *e = &entries[l->count++];
    *e = (struct wd_device_entry){.platform = platform, .device = device};
    return e;
}

static bool add_broken(struct listing *l, unsigned platform, cl_platform_id id, cl_int err)
{
    struct wd_device_entry *e = add_entry(l, platform, 0);
    if (!e)
        return false;
    e->broken = true;
    e->caps.platform = id;
    ask_platform(id, CL_PLATFORM_NAME, e->caps.platform_name, sizeof e->caps.platform_name);
    snprintf(e->error, sizeof e->error, "clGetDeviceIDs: %s (%d)", wd_cl_error_name(err), (int)err);
    return true;
}

static bool add_device(struct listing *l, unsigned platform, unsigned device, cl_device_id id)
{
    struct wd_device_entry *e = add_entry(l, platform, device);
    if (!e)
        return false;
    e->broken = wd_caps_query(id, &e->caps) != WD_OK;
    if (e->broken)
        snprintf(e->error, sizeof e->error, "%.*s", (int)sizeof e->error - 1, wd_last_error());
    else
        e->index = l->next_index++;
    return true;
}

/* False: out of memory. A platform that has no devices is none of our business. */
static bool add_platform(struct listing *l, unsigned platform, cl_platform_id id)
{
    cl_uint n = 0;
    cl_int err = clGetDeviceIDs(id, CL_DEVICE_TYPE_ALL, 0, NULL, &n);
    if (err == CL_DEVICE_NOT_FOUND || (!err && n == 0))
        return true;
    if (err)
        return add_broken(l, platform, id, err);
    cl_device_id *ids = calloc(n, sizeof *ids);
    if (!ids)
        return false;
    err = clGetDeviceIDs(id, CL_DEVICE_TYPE_ALL, n, ids, NULL);
    bool ok = err ? add_broken(l, platform, id, err) : true;
    for (cl_uint i = 0; ok && !err && i < n; i++)
        ok = add_device(l, platform, i, ids[i]);
    free(ids);
    return ok;
}

wd_status wd_device_list(struct wd_device_entry **list, size_t *count)
{
    *list = NULL;
    *count = 0;
    cl_uint n = 0;
    cl_int err = clGetPlatformIDs(0, NULL, &n);
    if (err == CL_PLATFORM_NOT_FOUND_KHR || (!err && n == 0))
        return WD_OK;
    if (err)
        return wd_fail_cl(err, "devices", "clGetPlatformIDs");
    cl_platform_id *ids = calloc(n, sizeof *ids);
    if (!ids)
        return wd_fail(WD_ENOMEM, "devices: out of memory");
    struct listing l = {0};
    wd_status st = WD_OK;
    err = clGetPlatformIDs(n, ids, NULL);
    if (err)
        st = wd_fail_cl(err, "devices", "clGetPlatformIDs");
    for (cl_uint i = 0; st == WD_OK && i < n; i++)
        if (!add_platform(&l, i, ids[i]))
            st = wd_fail(WD_ENOMEM, "devices: out of memory");
    free(ids);
    if (st != WD_OK) {
        free(l.entries);
        return st;
    }
    *list = l.entries;
    *count = l.count;
    return WD_OK;
}

/* ---- Choosing one ---- */

/* Smaller is better. A simulator is nobody's first choice. */
static int rank(const struct wd_caps *caps)
{
    if (strcmp(caps->kind, "oclgrind") == 0)
        return 4;
    if (caps->type & CL_DEVICE_TYPE_GPU)
        return 0;
    return caps->type & CL_DEVICE_TYPE_CPU ? caps->cpu ? 1 : 2 : 3;
}

static bool better(const struct wd_caps *a, const struct wd_caps *b)
{
    const int x = rank(a), y = rank(b);
    return x != y ? x < y : a->compute_units > b->compute_units;
}

static bool contains(const char *text, const char *part)
{
    const size_t n = strlen(part);
    for (; *text; text++)
        if (strncasecmp(text, part, n) == 0)
            return true;
    return false;
}

static bool matches(const struct wd_device_entry *e, const char *select)
{
    unsigned a, b;
    char end;
    if (!select || !*select)
        return true;
    if (strcasecmp(select, "gpu") == 0)
        return (e->caps.type & CL_DEVICE_TYPE_GPU) != 0;
    if (strcasecmp(select, "cpu") == 0)
        return (e->caps.type & CL_DEVICE_TYPE_CPU) != 0;
    if (sscanf(select, "%u:%u%c", &a, &b, &end) == 2)
        return e->platform == a && e->device == b;
    if (sscanf(select, "%u%c", &a, &end) == 1)
        return e->index == a;
    return contains(e->caps.name, select);
}

static wd_status no_match(const char *select, const struct wd_device_entry *list, size_t count)
{
    struct wd_text choices = {0};
    for (size_t i = 0; i < count; i++) {
        const struct wd_device_entry *e = &list[i];
        if (e->broken)
            wd_text_add(&choices, "\n  -  %u:%u  %s: %s", e->platform, e->device, e->caps.platform_name, e->error);
        else
            wd_text_add(&choices, "\n  %u  %u:%u  %s (%s)", e->index, e->platform, e->device, e->caps.name,
                        e->caps.platform_name);
    }
    if (count == 0)
        wd_fail(WD_ENODEVICE, "no OpenCL device: no platform has one; is a driver installed?");
    else if (!select || !*select)
        wd_fail(WD_ENODEVICE, "no OpenCL device works:%s", choices.data ? choices.data : "");
    else
        wd_fail(WD_ENODEVICE, "no OpenCL device matches '%s'; there are:%s", select, choices.data ? choices.data : "");
    wd_text_free(&choices);
    return WD_ENODEVICE;
}

wd_status wd_device_find(const char *select, cl_device_id *out)
{
    struct wd_device_entry *list;
    size_t count;
    *out = NULL;
    wd_status st = wd_device_list(&list, &count);
    if (st != WD_OK)
        return st;
    const struct wd_caps *best = NULL;
    for (size_t i = 0; i < count; i++)
        if (!list[i].broken && matches(&list[i], select) && (!best || better(&list[i].caps, best)))
            best = &list[i].caps;
    if (best)
        *out = best->id;
    else
        st = no_match(select, list, count);
    free(list);
    return st;
}
