/* SPDX-License-Identifier: MIT */
/* Programs on a real driver: expansion, the three places a kernel comes from, and what goes wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"
#include "source.h"

enum { PATH_BYTES = 512, ITEMS = 256 };

/* Kernel files of the tests' own, and a cache, in a directory that lives as long as the program. */
static char place[PATH_BYTES];

static struct wd_caps caps;
static cl_context context;
static cl_command_queue queue;

static void write_kernel(const char *name, const char *text)
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", place, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int open_device(void **state)
{
    cl_device_id device;
    cl_int err;
    (void)state;
    snprintf(place, sizeof place, "%s/wd-program-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(place) || wd_device_find(NULL, &device) || wd_caps_query(device, &caps))
        return -1;
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    queue = err ? NULL : clCreateCommandQueue(context, device, 0, &err);
    setenv("WARPDRIVE_KERNEL_DIR", place, 1);
    write_kernel("inner.cl", "#define TWICE(x) (2 * (x))\n");
    write_kernel("outer.cl",
                 "// first\n#include \"inner.cl\"\n  #  include \"inner.cl\"\n#include \"inner.cl\" // last\n"
                 "__kernel void twice(__global int *x) { x[get_global_id(0)] = TWICE(ADD); }\n");
    write_kernel("broken.cl", "#include \"inner.cl\"\n\n__kernel void broken(__global int *x) { *x = nonsense; }\n");
    write_kernel("slow.cl", "__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void slow(__global int *x)\n"
                            "{\n"
                            "    int sum = 0;\n"
                            "    for (int i = 0; i < STEPS; i++)\n"
                            "        sum = 3 * (sum ^ x[0]);\n"
                            "    x[get_global_id(0)] = sum; /* 0 */\n"
                            "}\n");
    write_kernel("other.cl", "__kernel void misnamed(__global int *x) { *x = 0; }\n");
    return err;
}

static int close_device(void **state)
{
    char command[PATH_BYTES + 16];
    (void)state;
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    snprintf(command, sizeof command, "rm -rf '%s'", place);
    return system(command);
}

/* A table with the cache that all of them share; finish() is what a process does at its end. */
struct run {
    struct wd_cache *cache;
    struct wd_programs programs;
};

static void start(struct run *s)
{
    char dir[PATH_BYTES + 8];
    snprintf(dir, sizeof dir, "%s/cache", place);
    s->cache = wd_cache_open(dir, 0, NULL);
    assert_non_null(s->cache);
    assert_int_equal(wd_programs_init(&s->programs, &caps, context, s->cache, NULL), WD_OK);
}

static void finish(struct run *s)
{
    wd_programs_fini(&s->programs);
    wd_cache_close(s->cache);
}

static void assert_counts(struct run *s, unsigned compiles, unsigned memory_hits, unsigned disk_hits,
                          unsigned disk_rejects)
{
    assert_int_equal(atomic_load(&s->programs.counts.compiles), compiles);
    assert_int_equal(atomic_load(&s->programs.counts.memory_hits), memory_hits);
    assert_int_equal(atomic_load(&s->programs.counts.disk_hits), disk_hits);
    assert_int_equal(atomic_load(&s->programs.counts.disk_rejects), disk_rejects);
}

static struct wd_kernel *get_from(struct run *s, const char *prelude, const char *file, const char *name)
{
    struct wd_kernel *k;
    if (wd_program_kernel(&s->programs, &(struct wd_source){prelude, file, name}, &k))
        fail_msg("%s", wd_last_error());
    assert_non_null(k);
    assert_true(k->group_max > 0);
    return k;
}

static struct wd_kernel *get(struct run *s, const char *prelude)
{
    return get_from(s, prelude, "outer.cl", "twice");
}

/* Launches on ITEMS ints and checks them, after `gate` if there is one. */
static void launch(struct run *s, struct wd_kernel *k, int expected, cl_event gate)
{
    const size_t global = ITEMS, local = 1;
    int result[ITEMS] = {0};
    cl_int err;
    cl_event event;
    cl_mem mem = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof result, result, &err);
    assert_int_equal(err, CL_SUCCESS);
    pthread_mutex_lock(&k->lock);
    assert_int_equal(clSetKernelArg(k->kernel, 0, sizeof mem, &mem), CL_SUCCESS);
    assert_int_equal(
        clEnqueueNDRangeKernel(queue, k->kernel, 1, NULL, &global, &local, gate ? 1 : 0, gate ? &gate : NULL, &event),
        CL_SUCCESS);
    pthread_mutex_unlock(&k->lock);
    wd_kernel_launched(&s->programs, k, event);
    if (gate)
        assert_int_equal(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    assert_int_equal(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL), CL_SUCCESS);
    for (size_t i = 0; i < ITEMS; i++)
        assert_int_equal(result[i], expected);
    clReleaseEvent(event);
    clReleaseMemObject(mem);
}

static size_t list_entries(struct run *s, struct wd_cache_entry **list)
{
    size_t count;
    assert_int_equal(wd_cache_list(s->cache, list, &count), WD_OK);
    return count;
}

static int clear_cache(void **state)
{
    struct run s;
    (void)state;
    start(&s);
    wd_cache_clear(s.cache);
    finish(&s);
    return 0;
}

/* ---- Text ---- */

static void wd_source_add__includes__each_once_with_line_numbers(void **state)
{
    struct wd_text text = {0};
    (void)state;
    assert_int_equal(wd_source_add(&text, "#define ADD 1\n", "outer.cl", "twice"), WD_OK);
    assert_string_equal(text.data, "#define WD_ONE 1\n#define KERNEL_twice 1\n"
                                   "#line 1 \"prelude\"\n#define ADD 1\n\n"
                                   "#line 1 \"outer.cl\"\n// first\n"
                                   "#line 1 \"inner.cl\"\n#define TWICE(x) (2 * (x))\n"
                                   "#line 3 \"outer.cl\"\n"
                                   "#line 4 \"outer.cl\"\n"
                                   "#line 5 \"outer.cl\"\n"
                                   "__kernel void twice(__global int *x) { x[get_global_id(0)] = TWICE(ADD); }\n");
    wd_text_free(&text);
}

static void wd_source_add__no_such_file__eio_names_it(void **state)
{
    struct wd_text text = {0};
    (void)state;
    assert_int_equal(wd_source_add(&text, "", "absent.cl", "k"), WD_EIO);
    assert_non_null(strstr(wd_last_error(), "absent.cl"));
    wd_text_free(&text);
}

static void wd_source_add__embedded__every_kernel_file(void **state)
{
    struct wd_text text = {0};
    (void)state;
    unsetenv("WARPDRIVE_KERNEL_DIR");
    assert_int_equal(wd_source_add(&text, "", "fp8_quant.cl", "k"), WD_OK);
    assert_non_null(strstr(text.data, "#line 1 \"common.cl\"\n"));
    assert_null(strstr(text.data, "\n#include"));
    assert_int_equal(wd_source_add(&text, "", "absent.cl", "k"), WD_EBUILD);
    setenv("WARPDRIVE_KERNEL_DIR", place, 1);
    wd_text_free(&text);
}

/* ---- Where kernels come from ---- */

static void wd_program_kernel__second_run__compiles_nothing(void **state)
{
    struct run s;
    (void)state;
    start(&s);
    struct wd_kernel *k = get(&s, "#define ADD 21\n");
    assert_false(k->from_disk);
    launch(&s, k, 42, NULL);
    assert_ptr_equal(get(&s, "#define ADD 21\n"), k);
    assert_counts(&s, 1, 1, 0, 0);
    struct wd_kernel *other = get(&s, "#define ADD 4\n");
    assert_ptr_not_equal(other, k);
    launch(&s, other, 8, NULL);
    assert_counts(&s, 2, 1, 0, 0);
    finish(&s);

    start(&s);
    k = get(&s, "#define ADD 21\n");
    assert_true(k->from_disk);
    launch(&s, k, 42, NULL);
    launch(&s, get(&s, "#define ADD 4\n"), 8, NULL);
    assert_counts(&s, 0, 0, 2, 0);
    finish(&s);
}

static void wd_program_kernel__another_driver_version__compiles(void **state)
{
    struct run s;
    char driver[sizeof caps.driver];
    (void)state;
    start(&s);
    get(&s, "#define ADD 1\n");
    finish(&s);
    memcpy(driver, caps.driver, sizeof driver);
    strcpy(caps.driver, "a newer one");
    start(&s);
    get(&s, "#define ADD 1\n");
    assert_counts(&s, 1, 0, 0, 0);
    finish(&s);
    memcpy(caps.driver, driver, sizeof driver);
    start(&s);
    get(&s, "#define ADD 1\n");
    assert_counts(&s, 0, 0, 1, 0);
    finish(&s);
}

/* Sound to the cache, senseless to the driver. */
static void wd_program_kernel__binary_refused__rebuilt_and_replaced(void **state)
{
    struct run s;
    struct wd_cache_entry *list;
    unsigned char key[WD_CACHE_KEY_BYTES];
    char junk[1000];
    (void)state;
    start(&s);
    launch(&s, get(&s, "#define ADD 5\n"), 10, NULL);
    finish(&s);
    start(&s);
    assert_int_equal(list_entries(&s, &list), 1);
    for (size_t i = 0; i < sizeof key; i++)
        assert_int_equal(sscanf(list[0].name + 2 * i, "%2hhx", &key[i]), 1);
    free(list);
    memset(junk, 'j', sizeof junk);
    assert_true(wd_cache_put(s.cache, key, "junk", junk, sizeof junk));
    launch(&s, get(&s, "#define ADD 5\n"), 10, NULL);
    assert_counts(&s, 1, 0, 0, 1);
    finish(&s);
    start(&s);
    launch(&s, get(&s, "#define ADD 5\n"), 10, NULL);
    assert_counts(&s, 0, 0, 1, 0);
    finish(&s);
}

static void wd_program_kernel__no_cache__compiles(void **state)
{
    struct run s = {0};
    (void)state;
    assert_int_equal(wd_programs_init(&s.programs, &caps, context, NULL, NULL), WD_OK);
    launch(&s, get(&s, "#define ADD 6\n"), 12, NULL);
    assert_counts(&s, 1, 0, 0, 0);
    wd_programs_fini(&s.programs);
}

/* ---- Failures ---- */

static void wd_program_kernel__broken_source__ebuild_with_log_and_nothing_stored(void **state)
{
    /* Oclgrind and NVIDIA do not know #line. */
    const bool unknown = strcmp(caps.kind, "oclgrind") == 0 || strcmp(caps.kind, "nvidia") == 0;
    const char *line = unknown ? "" : "broken.cl:3";
    const struct {
        const char *file, *kernel, *expected[5];
    } cases[] = {
        {"broken.cl", "broken", {"broken.cl", "nonsense", "clBuildProgram: CL_BUILD_PROGRAM_FAILURE (-11)", line}},
        {"other.cl", "absent", {"other.cl", "absent", "clCreateKernel: CL_INVALID_KERNEL_NAME (-46)"}},
    };
    struct run s;
    (void)state;
    start(&s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wd_kernel *k;
        const struct wd_source source = {"", cases[i].file, cases[i].kernel};
        assert_int_equal(wd_program_kernel(&s.programs, &source, &k), WD_EBUILD);
        assert_null(k);
        for (const char *const *text = cases[i].expected; *text; text++)
            if (!strstr(wd_last_error(), *text))
                fail_msg("'%s' is not in: %s", *text, wd_last_error());
        assert_non_null(strstr(wd_last_error(), caps.name));
        assert_non_null(strstr(wd_last_error(), caps.build_options));
    }
    assert_counts(&s, 0, 0, 0, 0);
    finish(&s);
    struct wd_cache_entry *list;
    start(&s);
    assert_int_equal(list_entries(&s, &list), 0);
    finish(&s);
}

/* ---- Launches ---- */

/* The binary cannot be had before the launch, and waiting for that would wait for ourselves. */
static void wd_kernel_launched__command_waits_for_us__does_not_block(void **state)
{
    struct run s;
    cl_int err;
    (void)state;
    start(&s);
    cl_event gate = clCreateUserEvent(context, &err);
    assert_int_equal(err, CL_SUCCESS);
    launch(&s, get(&s, "#define ADD 7\n"), 14, gate);
    clReleaseEvent(gate);
    finish(&s);
    start(&s);
    launch(&s, get(&s, "#define ADD 7\n"), 14, NULL);
    assert_counts(&s, 0, 0, 1, 0);
    finish(&s);
}

/* PoCL 3.1 would abort here; see device.c. */
static void wd_kernel_launched__kernel_of_required_size_still_runs__binary_stored(void **state)
{
    struct run s;
    (void)state;
    if (strcmp(caps.kind, "oclgrind") == 0)
        skip(); /* it would take minutes */
    start(&s);
    launch(&s, get_from(&s, "#define STEPS 100000\n", "slow.cl", "slow"), 0, NULL);
    finish(&s);
    start(&s);
    launch(&s, get_from(&s, "#define STEPS 100000\n", "slow.cl", "slow"), 0, NULL);
    assert_counts(&s, 0, 0, 1, 0);
    finish(&s);
}

enum { THREADS = 4 };

static void *get_in_thread(void *programs)
{
    struct wd_kernel *k = NULL;
    wd_program_kernel(programs, &(struct wd_source){"#define ADD 8\n", "outer.cl", "twice"}, &k);
    return k;
}

static void wd_program_kernel__many_threads__one_kernel(void **state)
{
    struct run s;
    pthread_t thread[THREADS];
    void *kernel[THREADS];
    (void)state;
    if (strcmp(caps.kind, "oclgrind") == 0)
        skip(); /* Oclgrind's compiler is not for threads */
    start(&s);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, get_in_thread, &s.programs), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(thread[i], &kernel[i]);
    for (size_t i = 0; i < THREADS; i++) {
        assert_non_null(kernel[i]);
        assert_ptr_equal(kernel[i], kernel[0]);
    }
    launch(&s, kernel[0], 16, NULL);
    finish(&s);
}

#define TEST(name) cmocka_unit_test_setup(name, clear_cache)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wd_source_add__includes__each_once_with_line_numbers),
        TEST(wd_source_add__no_such_file__eio_names_it),
        TEST(wd_source_add__embedded__every_kernel_file),
        TEST(wd_program_kernel__second_run__compiles_nothing),
        TEST(wd_program_kernel__another_driver_version__compiles),
        TEST(wd_program_kernel__binary_refused__rebuilt_and_replaced),
        TEST(wd_program_kernel__no_cache__compiles),
        TEST(wd_program_kernel__broken_source__ebuild_with_log_and_nothing_stored),
        TEST(wd_kernel_launched__command_waits_for_us__does_not_block),
        TEST(wd_kernel_launched__kernel_of_required_size_still_runs__binary_stored),
        TEST(wd_program_kernel__many_threads__one_kernel),
    };
    return cmocka_run_group_tests_name("program", tests, open_device, close_device);
}
