/* SPDX-License-Identifier: MIT */
/* The library on a driver that fails: no device, broken platforms, upgrades, and every OpenCL call in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "context.h"
#include "device.h"
#include "fake_cl.h"
#include "status.h"

enum { TOKENS = 3, HIDDEN = 256 };

/* ---- Host memory: an allocator that counts, and fails once where it is told to (glibc) ---- */

static struct {
    unsigned calls, fail_at; /* as in struct fake */
    bool failed;
    long alive; /* allocations */
} heap;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_ALLOCATOR 0
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_ALLOCATOR 0
#endif

#if !defined(OWN_ALLOCATOR) && !defined(__GLIBC__)
#define OWN_ALLOCATOR 0
#endif

#ifndef OWN_ALLOCATOR
#define OWN_ALLOCATOR 1

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void __libc_free(void *p);

static bool refused(void)
{
    heap.failed |= ++heap.calls == heap.fail_at;
    errno = heap.calls == heap.fail_at ? ENOMEM : errno;
    return heap.calls == heap.fail_at;
}

static void *counted(void *p)
{
    heap.alive += p != NULL;
    return p;
}

void *malloc(size_t bytes)
{
    return refused() ? NULL : counted(__libc_malloc(bytes));
}

void *calloc(size_t n, size_t bytes)
{
    return refused() ? NULL : counted(__libc_calloc(n, bytes));
}

void *realloc(void *old, size_t bytes)
{
    if (refused())
        return NULL;
    void *p = __libc_realloc(old, bytes);
    return old ? p : counted(p);
}

void free(void *p)
{
    heap.alive -= p != NULL;
    __libc_free(p);
}
#endif

/* ---- The cache that all tests use ---- */

static char cache_dir[512];

static int make_cache(void **state)
{
    (void)state;
    snprintf(cache_dir, sizeof cache_dir, "%s/wd-fake-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    setenv("WARPDRIVE_TUNING_FILE", "", 1);
    return !mkdtemp(cache_dir) || setenv("WARPDRIVE_CACHE_DIR", cache_dir, 1);
}

static void empty_cache(void)
{
    struct wd_cache *cache = wd_cache_open(cache_dir, 0, NULL);
    wd_cache_clear(cache);
    wd_cache_close(cache);
}

static int remove_cache(void **state)
{
    (void)state;
    empty_cache();
    return rmdir(cache_dir);
}

static int reset(void **state)
{
    (void)state;
    empty_cache();
    fake_reset();
    return 0;
}

/* ---- What an application does, from first to last ---- */

/* One fp8_quant on buffers of its own. */
static wd_status quantize(wd_context *ctx, size_t tokens)
{
    float x[TOKENS * HIDDEN] = {0};
    wd_fp8_quant_args args = {.struct_size = sizeof args, .tokens = tokens, .hidden = HIDDEN, .group = 128};
    cl_event done = NULL;
    wd_status st = wd_buffer_create(ctx, sizeof x, x, &args.x.mem);
    if (!st)
        st = wd_buffer_create(ctx, sizeof x, NULL, &args.q.mem);
    if (!st)
        st = wd_buffer_create(ctx, sizeof x, NULL, &args.s.mem);
    if (!st)
        st = wd_buffer_write(ctx, args.x.mem, 0, sizeof x, x);
    if (!st)
        st = wd_fp8_quant(ctx, &args, &(wd_launch){.queue = wd_context_queue(ctx), .done = &done});
    if (!st)
        st = wd_fp8_quant(ctx, &args, NULL);
    if (!st)
        st = wd_buffer_read(ctx, args.q.mem, 0, sizeof x, x);
    if (done)
        clReleaseEvent(done);
    wd_buffer_destroy(args.x.mem);
    wd_buffer_destroy(args.q.mem);
    wd_buffer_destroy(args.s.mem);
    return st;
}

static wd_status run(wd_counters *counters)
{
    wd_context *ctx;
    wd_status st = wd_open(NULL, &ctx);
    if (st) {
        assert_null(ctx);
        return st;
    }
    st = quantize(ctx, TOKENS);
    if (counters) {
        counters->struct_size = sizeof *counters;
        assert_int_equal(wd_context_counters(ctx, counters), WD_OK);
    }
    wd_context_destroy(ctx);
    return st;
}

static void assert_counts(const wd_counters *c, uint64_t compiles, uint64_t disk_hits, uint64_t disk_rejects)
{
    assert_int_equal(c->compiles, compiles);
    assert_int_equal(c->disk_hits, disk_hits);
    assert_int_equal(c->disk_rejects, disk_rejects);
}

/* ---- What there is ---- */

static void wd_open__no_platform__enodevice(void **state)
{
    (void)state;
    fake.platforms = 0;
    assert_int_equal(run(NULL), WD_ENODEVICE);
    assert_non_null(strstr(wd_last_error(), "no OpenCL device"));
}

static void wd_open__platform_without_devices__enodevice(void **state)
{
    (void)state;
    fake.devices = 0;
    assert_int_equal(run(NULL), WD_ENODEVICE);
}

static void wd_open__all_platforms_broken__enodevice_says_why(void **state)
{
    (void)state;
    fake.broken = fake.platforms = 2;
    assert_int_equal(run(NULL), WD_ENODEVICE);
    assert_non_null(strstr(wd_last_error(), "CL_DEVICE_NOT_AVAILABLE"));
}

static void wd_open__one_platform_broken__the_other_serves(void **state)
{
    (void)state;
    fake.platforms = 2;
    fake.broken = 1;
    assert_int_equal(run(NULL), WD_OK);
}

static void wd_device_list__broken_and_sound_platforms__an_entry_each(void **state)
{
    static const struct {
        unsigned platform, device, index;
        bool broken;
    } expected[] = {{0, 0, 0, true}, {1, 0, 0, false}, {1, 1, 1, false}, {2, 0, 2, false}, {2, 1, 3, false}};
    struct wd_device_entry *list;
    size_t count;
    (void)state;
    fake.platforms = 3;
    fake.broken = 1;
    fake.devices = 2;
    assert_int_equal(wd_device_list(&list, &count), WD_OK);
    assert_int_equal(count, sizeof expected / sizeof expected[0]);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list[i].platform, expected[i].platform);
        assert_int_equal(list[i].device, expected[i].device);
        assert_int_equal(list[i].broken, expected[i].broken);
        if (!list[i].broken)
            assert_int_equal(list[i].index, expected[i].index);
        assert_int_equal(*list[i].error != '\0', expected[i].broken);
    }
    assert_string_equal(list[1].caps.name, "Fake device 1:0"); /* without the driver's blanks */
    assert_false(list[1].caps.fp16);                           /* cl_khr_fp16_not is another word */
    assert_true(list[1].caps.int64_atomics);
    free(list);
}

static void wd_device_find__selections__the_device_meant(void **state)
{
    static const struct {
        const char *select, *name; /* NULL: no match */
    } cases[] = {
        {NULL, "Fake device 0:1"}, /* most compute units */
        {"", "Fake device 0:1"},
        {"GPU", "Fake device 0:1"},
        {"cpu", NULL},
        {"2", "Fake device 1:0"},
        {"4", NULL},
        {"1:1", "Fake device 1:1"},
        {"2:0", NULL},
        {"device 1:", "Fake device 1:1"},
        {"nonsense", NULL},
    };
    (void)state;
    fake.platforms = 2;
    fake.devices = 2;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cl_device_id device;
        struct wd_caps caps;
        if (!cases[i].name) {
            assert_int_equal(wd_device_find(cases[i].select, &device), WD_ENODEVICE);
            assert_null(device);
            assert_non_null(strstr(wd_last_error(), "3  1:1  Fake device 1:1"));
            continue;
        }
        assert_int_equal(wd_device_find(cases[i].select, &device), WD_OK);
        assert_int_equal(wd_caps_query(device, &caps), WD_OK);
        assert_string_equal(caps.name, cases[i].name);
    }
}

static void wd_context_create__device_of_another_context__einval(void **state)
{
    wd_context *ctx;
    cl_platform_id platform;
    cl_device_id ids[2];
    (void)state;
    fake.devices = 2;
    clGetPlatformIDs(1, &platform, NULL);
    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 2, ids, NULL);
    wd_context_desc desc = {.struct_size = sizeof desc, .device = ids[1]};
    desc.context = clCreateContext(NULL, 1, ids, NULL, NULL, NULL);
    assert_int_equal(wd_context_create(&desc, &ctx), WD_EINVAL);
    assert_null(ctx);
    clReleaseContext(desc.context);
    assert_int_equal(fake.alive, 0);
}

/* ---- Drivers change ---- */

static void cache__second_run__builds_from_binaries(void **state)
{
    wd_counters c;
    (void)state;
    assert_int_equal(run(&c), WD_OK);
    assert_counts(&c, 1, 0, 0);
    assert_int_equal(run(&c), WD_OK);
    assert_counts(&c, 0, 1, 0);
    assert_int_equal(fake.source_builds, 1);
    assert_int_equal(fake.binary_builds, 1);
}

static void cache__driver_upgrade__old_entry_not_looked_at(void **state)
{
    wd_counters c;
    (void)state;
    assert_int_equal(run(&c), WD_OK);
    fake.driver = "1.1";
    fake.binary_version = "B";
    assert_int_equal(run(&c), WD_OK);
    assert_counts(&c, 1, 0, 0);
    assert_int_equal(run(&c), WD_OK);
    assert_counts(&c, 0, 1, 0);
}

static void cache__driver_upgrade_of_the_same_version__entry_replaced(void **state)
{
    wd_counters c;
    (void)state;
    assert_int_equal(run(&c), WD_OK);
    fake.binary_version = "B";
    assert_int_equal(run(&c), WD_OK);
    assert_counts(&c, 1, 0, 1);
    assert_int_equal(run(&c), WD_OK);
    assert_counts(&c, 0, 1, 0);
}

/* ---- Instructions of sm_90a ---- */

/* One kernel that has them, prepared in a context of its own. */
static void prepare_hopper(wd_counters *c)
{
    const wd_chunk_fwd_h_args args = {.struct_size = sizeof args,
                                      .B = 1,
                                      .T = 64,
                                      .H = 1,
                                      .HV = 1,
                                      .K = 64,
                                      .V = 64,
                                      .k.dtype = WD_BF16,
                                      .w.dtype = WD_BF16,
                                      .u.dtype = WD_BF16,
                                      .h.dtype = WD_BF16,
                                      .v_new.dtype = WD_BF16};
    wd_context *ctx;
    assert_int_equal(wd_open(NULL, &ctx), WD_OK);
    if (wd_prepare(ctx, WD_OP_CHUNK_FWD_H, &args))
        fail_msg("%s", wd_last_error());
    *c = (wd_counters){.struct_size = sizeof *c};
    assert_int_equal(wd_context_counters(ctx, c), WD_OK);
    wd_context_destroy(ctx);
}

static void hopper__its_instructions__are_built_once_more_and_kept(void **state)
{
    wd_counters c;
    (void)state;
    fake.platform = "NVIDIA CUDA";
    fake.sm = 90;
    fake.target = ".target sm_90\n";
    prepare_hopper(&c);
    assert_counts(&c, 1, 0, 0);
    assert_int_equal(fake.source_builds, 1);
    assert_int_equal(fake.binary_builds, 1);
    assert_int_equal(fake.sm_90a, 1);
    prepare_hopper(&c);
    assert_counts(&c, 0, 1, 0);
    assert_int_equal(fake.binary_builds, 2);
    assert_int_equal(fake.sm_90a, 2);
    assert_int_equal(fake.alive, 0);
}

/* PTX of another form, and a device that is no Hopper. */
static void hopper__where_they_cannot_be_built__the_next_variant_serves(void **state)
{
    static const struct {
        unsigned sm, source_builds;
    } rows[] = {{90, 2}, {80, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        wd_counters c;
        empty_cache();
        fake_reset();
        fake.platform = "NVIDIA CUDA";
        fake.sm = rows[i].sm;
        fake.target = "another form\n";
        prepare_hopper(&c);
        assert_int_equal(fake.source_builds, rows[i].source_builds);
        assert_int_equal(fake.binary_builds, 0);
        assert_int_equal(fake.alive, 0);
    }
}

/* ---- Failures ---- */

static void wd_fp8_quant__build_fails__ebuild_keeps_the_end_of_the_log(void **state)
{
    char log[20000];
    (void)state;
    memset(log, '.', sizeof log);
    strcpy(log + sizeof log - 32, "fp8_quant.cl:7: the reason");
    fake.build_log = log;
    assert_int_equal(run(NULL), WD_EBUILD);
    assert_non_null(strstr(wd_last_error(), "fp8_quant.cl:7: the reason"));
    assert_int_equal(fake.alive, 0);
    fake.build_log = NULL;
    wd_counters c;
    assert_int_equal(run(&c), WD_OK); /* nothing was kept of it */
    assert_counts(&c, 1, 0, 0);
}

/* A kernel compiled for groups of 128, of which the driver says that it allows fewer, or that it takes more local
 * memory than the device's 48 KiB: others mean it. */
static void wd_fp8_quant__kernel_over_the_limits__refused_but_drivers_corrected(void **state)
{
    static const struct {
        const char *platform, *driver;
        size_t answer;
        cl_ulong local;
        size_t group; /* expected; 0: no launch */
        unsigned sm;
    } rows[] = {
        {"Somebody", "1.0", 1024, 0, 128, 0},     {"Somebody", "1.0", 32, 0, 32, 0},
        {"Intel", "22.3", 16, 0, 16, 0},          {"rusticl", "22.3.6", 1024, 0, 128, 0},
        {"rusticl", "22.3.6", 32, 0, 128, 0},     {"rusticl", "24.0.1", 32, 0, 128, 0},
        {"rusticl", "22.3.6", 32, 64000, 128, 0}, {"rusticl", "24.0.1", 32, 64000, 0, 0},
        {"Somebody", "22.3", 1024, 64000, 0, 0},  {"NVIDIA CUDA", "22.3", 32, 0, 128, 90},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        empty_cache();
        fake_reset();
        fake.platform = rows[i].platform;
        fake.driver = rows[i].driver;
        fake.sm = rows[i].sm;
        fake.group_max = rows[i].answer;
        fake.group_required = 128;
        fake.local_bytes = rows[i].local;
        assert_int_equal(run(NULL), rows[i].group ? WD_OK : WD_ENOTSUP);
        assert_int_equal(fake.group, rows[i].group);
    }
}

/* A CPU's kernels do a block an item, but where the driver makes items lanes of a vector. */
static void caps__cpu__takes_the_forms_its_driver_is_made_for(void **state)
{
    static const struct {
        const char *platform;
        bool cpu;
    } rows[] = {{"Portable Computing Language", true}, {"Intel(R) OpenCL", true}, {"rusticl", false}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        wd_context *ctx;
        fake_reset();
        fake.late = true; /* and a CPU */
        fake.platform = rows[i].platform;
        assert_int_equal(wd_open("cpu", &ctx), WD_OK);
        assert_int_equal(ctx->caps.type, CL_DEVICE_TYPE_CPU);
        assert_int_equal(ctx->caps.cpu, rows[i].cpu);
        wd_context_destroy(ctx);
    }
}

static void wd_fp8_quant__no_tokens__launches_nothing(void **state)
{
    wd_context *ctx;
    (void)state;
    assert_int_equal(wd_open(NULL, &ctx), WD_OK);
    assert_int_equal(quantize(ctx, 0), WD_OK);
    wd_context_destroy(ctx);
    assert_int_equal(fake.launches, 0);
    assert_int_equal(fake.alive, 0);
}

/* Makes call after call, or allocation after allocation, fail, on a cold or a warm cache. The run then succeeds (a
 * query that is not needed, a binary that could not be loaded or stored) or fails with a text, and either way
 * everything is released. */
static void fail_in_turn(bool late, bool warm, bool memory, cl_int code)
{
    unsigned failed = 0;
    for (unsigned k = 1;; k++) {
        reset(NULL);
        fake.late = late;
        if (warm)
            assert_int_equal(run(NULL), WD_OK);
        wd_fail(WD_OK, "%s", "");
        const long before = heap.alive;
        fake.calls = heap.calls = 0;
        fake.fail_at = memory ? 0 : k;
        heap.fail_at = memory ? k : 0;
        fake.fail_with = code;
        heap.failed = false;
        const wd_status st = run(NULL);
        heap.fail_at = 0;
        const char *what = memory ? "allocation" : fake.failed;
        if (fake.alive || heap.alive != before)
            fail_msg("%d references and %ld allocations are left after number %u failed (%s)", fake.alive,
                     heap.alive - before, k, what);
        if (memory ? !heap.failed : !fake.failed) {
            assert_int_equal(st, WD_OK);
            assert_true(k > 20 && failed > 10);
            return;
        }
        failed += st != WD_OK;
        if (st && !*wd_last_error())
            fail_msg("no text after number %u failed (%s)", k, what);
        if (st && memory)
            assert_int_equal(st, WD_ENOMEM);
    }
}

static void every_call__fails_in_turn__status_text_and_nothing_left(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++)
        fail_in_turn(which & 1, which & 2, false, CL_OUT_OF_RESOURCES);
}

static void every_call__no_memory_in_turn__status_text_and_nothing_left(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++)
        fail_in_turn(which & 1, which & 2, false, CL_OUT_OF_HOST_MEMORY);
}

static void every_allocation__fails_in_turn__enomem_and_nothing_left(void **state)
{
    (void)state;
    if (!OWN_ALLOCATOR)
        skip(); /* sanitizers have allocators of their own */
    for (int which = 0; which < 4; which++)
        fail_in_turn(which & 1, which & 2, true, CL_SUCCESS);
}

/* ---- What models rest on ---- */

enum { IP_12_55 = 12u << 22 | 55u << 12, IP_12_60 = 12u << 22 | 60u << 12, IP_20_1 = 20u << 22 | 1u << 12 };

static void wd_caps_query__other_vendors__wave_registers_and_units(void **state)
{
    static const struct {
        const char *platform, *name;
        unsigned ip, cores, wave;
        const char *kind, *arch;
        unsigned simd, registers, units; /* expected */
        bool width_in_options;
    } rows[] = {
        {"AMD Accelerated Parallel Processing", "gfx90a:sramecc+:xnack-", 0, 0, 64, "amd", "gfx90a", 64, 256, 4, false},
        {"AMD Accelerated Parallel Processing", "gfx1100", 0, 0, 32, "amd", "gfx1100", 32, 256, 4, false},
        {"Intel(R) OpenCL Graphics", "Arc A770", IP_12_55, 0, 0, "intel", "xe_12.55", 16, 64, 1, false},
        {"Intel(R) OpenCL Graphics", "Max 1550", IP_12_60, 2, 0, "intel", "xe_12.60", 16, 128, 2, true},
        {"Intel(R) OpenCL Graphics", "Arc B580", IP_20_1, 4, 0, "intel", "xe_20.1", 16, 128, 1, true},
        {"Intel(R) OpenCL HD Graphics", "UHD 630", 0, 0, 0, "intel", "", 16, 64, 1, false},
        {"ARM Platform", "Mali-G710 r0p0", 0, 0, 0, "arm", "mali-g710-r0p0", 32, 64, 4, false},
        {"Somebody", "Something", 0, 0, 0, "other", "", 32, 256, 4, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cl_device_id device;
        struct wd_caps caps;
        fake.platform = rows[i].platform;
        fake.name = rows[i].name;
        fake.ip = rows[i].ip;
        fake.cores = rows[i].cores;
        fake.wave = rows[i].wave;
        assert_int_equal(wd_device_find(NULL, &device), WD_OK);
        assert_int_equal(wd_caps_query(device, &caps), WD_OK);
        assert_string_equal(caps.kind, rows[i].kind);
        assert_string_equal(caps.arch, rows[i].arch);
        assert_int_equal(caps.simd, rows[i].simd);
        assert_int_equal(caps.registers, rows[i].registers);
        assert_int_equal(caps.compute_units, rows[i].units);
        assert_int_equal(strstr(caps.build_options, "intel_reqd_sub_group_size(16)") != NULL, rows[i].width_in_options);
    }
}

#define TEST(name) cmocka_unit_test_setup(name, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wd_open__no_platform__enodevice),
        TEST(wd_open__platform_without_devices__enodevice),
        TEST(wd_open__all_platforms_broken__enodevice_says_why),
        TEST(wd_open__one_platform_broken__the_other_serves),
        TEST(wd_device_list__broken_and_sound_platforms__an_entry_each),
        TEST(wd_device_find__selections__the_device_meant),
        TEST(wd_caps_query__other_vendors__wave_registers_and_units),
        TEST(wd_context_create__device_of_another_context__einval),
        TEST(cache__second_run__builds_from_binaries),
        TEST(cache__driver_upgrade__old_entry_not_looked_at),
        TEST(cache__driver_upgrade_of_the_same_version__entry_replaced),
        TEST(hopper__its_instructions__are_built_once_more_and_kept),
        TEST(hopper__where_they_cannot_be_built__the_next_variant_serves),
        TEST(wd_fp8_quant__build_fails__ebuild_keeps_the_end_of_the_log),
        TEST(caps__cpu__takes_the_forms_its_driver_is_made_for),
        TEST(wd_fp8_quant__kernel_over_the_limits__refused_but_drivers_corrected),
        TEST(wd_fp8_quant__no_tokens__launches_nothing),
        TEST(every_call__fails_in_turn__status_text_and_nothing_left),
        TEST(every_call__no_memory_in_turn__status_text_and_nothing_left),
        TEST(every_allocation__fails_in_turn__enomem_and_nothing_left),
    };
    return cmocka_run_group_tests_name("fake", tests, make_cache, remove_cache);
}
