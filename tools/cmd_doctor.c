/* SPDX-License-Identifier: MIT */
/* warpdrive doctor: why is there no device, or a slow one? Loader, drivers, cache, limits, hints. */
#include "commands.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache.h"
#include "device.h"

static const char vendors_dir[] = "/etc/OpenCL/vendors";

enum { PROBE_TIMEOUT_MS = 30000 };

enum verdict { GOOD, NOTE, HINT, BAD };

static void say(enum verdict verdict, const char *subject, const char *fmt, ...) WD_PRINTF(3, 4);

static void say(enum verdict verdict, const char *subject, const char *fmt, ...)
{
    static const struct {
        const char *word;
        enum cli_colour colour;
    } style[] = {{"ok", CLI_GREEN}, {"", CLI_PLAIN}, {"hint", CLI_YELLOW}, {"FAIL", CLI_RED}};
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    printf("%s%-4s%s  %-10s %s\n", cli_colour(style[verdict].colour), style[verdict].word, cli_colour(CLI_PLAIN),
           subject, text);
    fflush(stdout);
}

/* ---- Loader ---- */

/* Which file clGetPlatformIDs comes from, off the process's own map; calls nothing of OpenCL. */
static void check_loader(void)
{
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    const char *path = NULL;
    while (maps && !path && fgets(line, sizeof line, maps)) {
        line[strcspn(line, "\n")] = '\0';
        path = strstr(line, "libOpenCL") ? strchr(line, '/') : NULL;
    }
    say(path ? GOOD : NOTE, "loader", "%s", path ? path : "linked into this program");
    if (maps)
        fclose(maps);

    static const char *const variables[] = {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        if (getenv(variables[i]))
            say(NOTE, "loader", "%s=%s", variables[i], getenv(variables[i]));
}

/* ---- Drivers, each in a child ---- */

/* First line of an .icd file: the library's name. */
static bool read_icd(const char *path, char library[256])
{
    FILE *file = fopen(path, "r");
    const bool ok = file && fgets(library, 256, file);
    if (file)
        fclose(file);
    if (ok)
        library[strcspn(library, "\r\n")] = '\0';
    return ok && *library;
}

/* What a probe exits with. NO_DEVICE: a driver for hardware that is not there. */
enum { HAS_DEVICE, BROKEN, NO_DEVICE };

/* In the child: load the library, then let the loader see this driver alone. One line to `out`. */
static void probe(const char *library, const char *only_dir, int out)
{
    char text[512];
    struct wd_device_entry *list = NULL;
    size_t count = 0, devices = 0;
    int found = BROKEN;

    if (!dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
        snprintf(text, sizeof text, "%s", dlerror());
    } else {
        setenv("OCL_ICD_VENDORS", only_dir, 1);
        setenv("OPENCL_VENDOR_PATH", only_dir, 1);
        unsetenv("OCL_ICD_FILENAMES");
        const wd_status st = wd_device_list(&list, &count);
        snprintf(text, sizeof text, "%s", st ? wd_last_error() : "loads, but shows no device");
        found = st || count ? BROKEN : NO_DEVICE;
        for (size_t i = 0; i < count; i++) {
            if (list[i].broken)
                snprintf(text, sizeof text, "%s", list[i].error);
            else if (devices++ == 0)
                snprintf(text, sizeof text, "%s, driver %s", list[i].caps.name, list[i].caps.driver);
        }
        found = devices ? HAS_DEVICE : found;
    }
    const ssize_t written = write(out, text, strlen(text));
    _exit(written > 0 ? found : BROKEN);
}

/* What the child says, within the time; it is killed after that. */
static size_t read_child(int in, char *text, size_t size)
{
    struct pollfd ready = {.fd = in, .events = POLLIN};
    size_t n = 0;
    while (n + 1 < size && poll(&ready, 1, PROBE_TIMEOUT_MS) > 0) {
        const ssize_t got = read(in, text + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    text[n] = '\0';
    return n;
}

static bool run_probe(const char *name, const char *library, const char *only_dir)
{
    int ends[2], status = 0;
    char text[512];
    if (pipe(ends)) {
        say(BAD, "driver", "%s: pipe: %s", name, strerror(errno));
        return false;
    }
    const pid_t child = fork();
    if (child == 0)
        probe(library, only_dir, ends[1]);
    close(ends[1]);
    const bool spoke = child > 0 && read_child(ends[0], text, sizeof text) > 0;
    close(ends[0]);
    if (child > 0) {
        if (!spoke)
            kill(child, SIGKILL);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    }

    const int found = spoke && WIFEXITED(status) ? WEXITSTATUS(status) : BROKEN;
    if (child < 0)
        say(BAD, "driver", "%s: fork: %s", name, strerror(errno));
    else if (spoke)
        say(found == HAS_DEVICE ? GOOD : found == NO_DEVICE ? NOTE : BAD, "driver", "%s: %s", name, text);
    else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        say(BAD, "driver", "%s: %s dies of signal %d while it is asked", name, library, WTERMSIG(status));
    else
        say(BAD, "driver", "%s: %s gives no answer", name, library);
    return found != BROKEN;
}

/* A directory with one driver in it is the one selection that every loader knows. */
static bool check_icd(const char *name)
{
    char path[512], library[256], dir[] = "/tmp/warpdrive-doctor-XXXXXX", only[128];
    bool good = false;
    snprintf(path, sizeof path, "%s/%s", vendors_dir, name);
    if (!read_icd(path, library)) {
        say(BAD, "driver", "%s: cannot be read, or is empty", path);
        return false;
    }
    if (!mkdtemp(dir)) {
        say(BAD, "driver", "%s: %s", dir, strerror(errno));
        return false;
    }
    snprintf(only, sizeof only, "%s/one.icd", dir);
    if (symlink(path, only))
        say(BAD, "driver", "%s: %s", only, strerror(errno));
    else
        good = run_probe(name, library, dir);
    unlink(only);
    rmdir(dir);
    return good;
}

static bool is_icd(const char *name)
{
    const size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".icd");
}

/* Returns the number of drivers that failed. */
static size_t check_drivers(void)
{
    size_t seen = 0, bad = 0;
    DIR *dir = opendir(vendors_dir);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (is_icd(entry->d_name)) {
            seen++;
            bad += !check_icd(entry->d_name);
        }
    if (dir)
        closedir(dir);
    if (seen == 0)
        say(BAD, "driver", "%s holds no .icd file; on Debian, 'apt install pocl-opencl-icd' adds a CPU driver",
            vendors_dir);
    return bad + (seen == 0);
}

/* ---- Cache ---- */

static bool check_cache(void)
{
    char number[CLI_NUMBER];
    char *path = wd_cache_place(NULL);
    struct wd_cache *cache = path ? wd_cache_open(NULL, UINT64_MAX, NULL) : NULL;
    struct wd_cache_entry *list = NULL;
    size_t count = 0;
    uint64_t bytes = 0;

    const bool good = cache && !wd_cache_list(cache, &list, &count);
    for (size_t i = 0; i < count; i++)
        bytes += list[i].bytes;
    if (good)
        say(GOOD, "cache", "%s: %zu programs, %s", path, count, cli_size(bytes, number));
    else
        say(BAD, "cache", "%s cannot be used; every run compiles anew (set WARPDRIVE_CACHE_DIR)",
            path ? path : "no directory: HOME is not set, and");
    free(list);
    wd_cache_close(cache);
    free(path);
    return good;
}

/* ---- Devices and hints ---- */

static void check_limits(const struct wd_caps *caps)
{
    char local[CLI_NUMBER], alloc[CLI_NUMBER];
    say(GOOD, "device", "%s: work-groups to %zu, local memory %s, buffers to %s", caps->name, caps->max_group,
        cli_size(caps->local_bytes, local), cli_size(caps->max_alloc_bytes, alloc));
    if (caps->max_group < 64)
        say(HINT, "limits", "%s allows work-groups of %zu only: slow forms are used", caps->name, caps->max_group);
    if (caps->max_alloc_bytes < (size_t)1 << 28)
        say(HINT, "limits", "%s allows buffers of %s only", caps->name, cli_size(caps->max_alloc_bytes, alloc));
    if (!strcmp(caps->kind, "pocl") && caps->cpu) {
        const char *affinity = getenv("POCL_AFFINITY");
        if (!affinity || strcmp(affinity, "1") != 0)
            say(HINT, "pocl", "set POCL_AFFINITY=1: without it worker threads may share a core, at half the speed");
    }
}

static void check_variables(void)
{
    static const char *const limiting[] = {
        "POCL_MAX_WORK_GROUP_SIZE", "POCL_MEMORY_LIMIT", "POCL_MAX_PTHREAD_COUNT", "POCL_DEVICES",
        "POCL_EXTRA_BUILD_FLAGS",   "RUSTICL_ENABLE",    "CUDA_VISIBLE_DEVICES",   "WARPDRIVE_KERNEL_DIR",
        "WARPDRIVE_TUNING_FILE"};
    for (size_t i = 0; i < sizeof limiting / sizeof limiting[0]; i++)
        if (getenv(limiting[i]))
            say(NOTE, "variable", "%s=%s", limiting[i], getenv(limiting[i]));
}

/* Hardware without its driver, or without permission. */
static void check_hardware(void)
{
    static const struct {
        const char *node, *icd, *missing;
    } hardware[] = {
        {"/dev/nvidia0", "nvidia.icd", "its OpenCL driver is not registered (package nvidia-opencl-icd)"},
        {"/dev/kfd", "amdocl64.icd", "ROCm's OpenCL driver is not registered (package rocm-opencl-icd)"},
    };
    for (size_t i = 0; i < sizeof hardware / sizeof hardware[0]; i++) {
        char icd[128];
        snprintf(icd, sizeof icd, "%s/%s", vendors_dir, hardware[i].icd);
        if (access(hardware[i].node, F_OK) != 0)
            continue;
        if (access(hardware[i].node, R_OK | W_OK) != 0)
            say(HINT, "hardware", "%s is there, but this user may not use it (groups video, render)", hardware[i].node);
        else if (access(icd, F_OK) != 0)
            say(HINT, "hardware", "%s is there, but %s", hardware[i].node, hardware[i].missing);
    }
    if (access("/dev/dri/renderD128", F_OK) == 0 && access("/dev/dri/renderD128", R_OK | W_OK) != 0)
        say(HINT, "hardware", "/dev/dri/renderD128 is there, but this user may not use it (group render)");
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli cli;
    struct wd_device_entry *list = NULL;
    size_t count = 0, devices = 0, bad;
    const int done = cli_parse(&cli, self, NULL, argc, argv);
    if (done >= 0)
        return done;

    say(NOTE, "warpdrive", "version %s", wd_version());
    check_loader();
    bad = check_drivers(); /* before anything here loads a driver */
    bad += !check_cache();
    if (wd_device_list(&list, &count))
        say(BAD, "device", "%s", wd_last_error());
    for (size_t i = 0; i < count; i++)
        if (!list[i].broken) {
            check_limits(&list[i].caps);
            devices++;
        }
    if (devices == 0)
        say(BAD, "device", "none");
    free(list);
    check_variables();
    check_hardware();
    return devices == 0 ? CLI_NO_DEVICE : bad ? CLI_FAILED : CLI_OK;
}

static const struct cli_option options[] = {{0}};

const struct cli_command cmd_doctor = {
    .name = "doctor",
    .operands = "",
    .summary = "Look for what is wrong or slow: loader, drivers, cache, limits",
    .details = "Each driver is loaded in a process of its own, so that one that crashes is a line like the others.\n"
               "Exit code 3: there is no device; 1: something else is wrong.",
    .options = options,
    .run = run,
};
