/* SPDX-License-Identifier: MIT */
/*
 * From the start of a process to the first result of each operation, with nothing cached and with the library's cache.
 *
 * Each time is that of a process of its own, from the fork to the end of its first call: the loader, the device, a
 * context, buffers, the program, the kernel. Caches are made in a temporary directory. PoCL keeps one too; it is empty
 * in the second column, so what that says holds on any machine that got our cache, and kept in the third.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include "cold.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "context.h"
#include "json.h"
#include "measure.h"
#include "shape.h"
#include "trial.h"

/* The compiled-in sizes are those of models, the rest is small. */
static const struct {
    const char *op, *shape;
} calls[] = {
    {"fp8_quant", "tokens=16,hidden=1024,group=128"},
    {"causal_conv1d", "B=1,D=64,S=256,W=4,bias,act=silu"},
    {"causal_conv1d_update", "B=1,D=256,W=4,bias,act=silu"},
    {"recompute_w_u", "B=1,T=64,H=1,HV=1,K=128,V=128"},
    {"chunk_fwd_h", "B=1,T=64,H=1,HV=1,K=128,V=128"},
    {"chunk_fwd_o", "B=1,T=64,H=1,HV=1,K=128,V=128"},
    {"gdn_prepare", "B=1,T=64,H=1,HV=1,K=128"},
    {"gdn_forward", "B=1,T=64,H=1,HV=1,K=128,V=128,final_state"},
    {"gdn_decode", "B=1,H=1,HV=1,K=128,V=128"},
};

/* What a child tells its parent. */
struct first {
    wd_status status;
    double open_ns, total_ns; /* from the fork until the context was there, and until the result was */
    double processor_ns;      /* spent meanwhile, by the driver's own child processes too */
    uint64_t compiles, loads;
};

enum { NOTHING, OURS, BOTH, NUM_STATES, WARM_RUNS = 3 };
enum { ROOT_MAX = 512, PATH_SIZE = ROOT_MAX + 8 };

/* ---- The child ---- */

static wd_status call_once(wd_context *ctx, const char *op_name, const char *words)
{
    struct shape shape;
    struct wd_problem p;
    struct wd_trial *trial = NULL;
    const struct wd_trial_options options = {.queue = wd_context_queue(ctx)};
    shape_init(&shape, wd_op_by_name(op_name));
    wd_status st = shape_parse(&shape, words);
    if (!st && !(st = wd_op_check(shape.op, &shape.args, false, &p)) &&
        !(st = wd_trial_create(ctx, &p, &options, &trial)))
        st = wd_trial_run(trial, NULL, NULL);
    wd_trial_destroy(trial);
    return st;
}

static double processor_ns(void)
{
    struct timespec own;
    struct rusage of_children;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    getrusage(RUSAGE_CHILDREN, &of_children);
    const struct timeval user = of_children.ru_utime, system = of_children.ru_stime;
    return 1e9 * (double)(own.tv_sec + user.tv_sec + system.tv_sec) + (double)own.tv_nsec +
           1e3 * (double)(user.tv_usec + system.tv_usec);
}

static struct first first_result(const char *device, const char *op, const char *shape, uint64_t start)
{
    struct first f = {0};
    wd_context *ctx = NULL;
    wd_counters counters = {.struct_size = sizeof counters};
    f.status = wd_open(device, &ctx);
    f.open_ns = (double)(wd_now_ns() - start);
    if (!f.status)
        f.status = call_once(ctx, op, shape);
    f.total_ns = (double)(wd_now_ns() - start);
    f.processor_ns = processor_ns();
    if (!f.status && !(f.status = wd_context_counters(ctx, &counters))) {
        f.compiles = counters.compiles;
        f.loads = counters.disk_hits;
    }
    if (f.status)
        cli_error("%s: %s", op, wd_last_error());
    wd_context_destroy(ctx);
    return f;
}

/* ---- The parent ---- */

/* Runs the child with these caches. Its status is WD_ENODEVICE if it died. */
static struct first in_child(const char *device, size_t call, const char *ours, const char *pocl)
{
    struct first f = {.status = WD_ENODEVICE};
    int ends[2];
    if (pipe(ends))
        return f;
    fflush(NULL);
    const uint64_t start = wd_now_ns();
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("WARPDRIVE_CACHE_DIR", ours, 1);
        setenv("POCL_CACHE_DIR", pocl, 1);
        f = first_result(device, calls[call].op, calls[call].shape, start);
        const bool told = write(ends[1], &f, sizeof f) == (ssize_t)sizeof f;
        exit(told ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &f, sizeof f) != (ssize_t)sizeof f)
        f.status = WD_ENODEVICE;
    close(ends[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return f;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* An empty directory root/name. */
static void empty_dir(char path[PATH_SIZE], const char root[ROOT_MAX], const char *name)
{
    snprintf(path, PATH_SIZE, "%s/%s", root, name);
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    mkdir(path, 0700);
}

static wd_status measure(const char *device, size_t call, const char root[ROOT_MAX], struct first f[NUM_STATES])
{
    char ours[PATH_SIZE], pocl[PATH_SIZE];
    empty_dir(ours, root, "ours");
    empty_dir(pocl, root, "pocl");
    f[NOTHING] = in_child(device, call, ours, pocl);
    for (int state = OURS; state < NUM_STATES; state++)
        for (int run = 0; run < WARM_RUNS && !f[NOTHING].status; run++) { /* the fastest */
            if (state == OURS)
                empty_dir(pocl, root, "pocl");
            const struct first next = in_child(device, call, ours, pocl);
            if (run == 0 || next.status || next.total_ns < f[state].total_ns)
                f[state] = next;
            if (next.status)
                return next.status;
        }
    return f[NOTHING].status;
}

static void print_text(size_t call, const struct first f[NUM_STATES])
{
    printf("%-21s", calls[call].op);
    for (int state = NOTHING; state < NUM_STATES; state++)
        printf(" %9.1f %9.1f", f[state].total_ns * 1e-6, f[state].processor_ns * 1e-6);
    printf(" %9.1f %4llu %4llu  %s\n", f[BOTH].open_ns * 1e-6, (unsigned long long)f[NOTHING].compiles,
           (unsigned long long)f[OURS].compiles, calls[call].shape);
    fflush(stdout);
}

static void print_json(struct json *json, size_t call, const struct first f[NUM_STATES])
{
    emit_open(json, NULL, '{');
    emit_string(json, "operation", calls[call].op);
    emit_string(json, "shape", calls[call].shape);
    emit_number(json, "cold_ns", f[NOTHING].total_ns);
    emit_integer(json, "compiles", f[NOTHING].compiles);
    emit_number(json, "cold_processor_ns", f[NOTHING].processor_ns);
    emit_number(json, "our_cache_ns", f[OURS].total_ns);
    emit_number(json, "our_cache_processor_ns", f[OURS].processor_ns);
    emit_integer(json, "our_cache_compiles", f[OURS].compiles);
    emit_number(json, "all_caches_ns", f[BOTH].total_ns);
    emit_number(json, "open_ns", f[BOTH].open_ns);
    emit_close(json, '}');
}

int bench_cold(const struct cli *cli)
{
    struct json json = {0};
    char root[ROOT_MAX];
    const char *place = getenv("TMPDIR");
    wd_status st = WD_OK;
    snprintf(root, sizeof root, "%s/warpdrive-cold-XXXXXX", place && *place ? place : "/tmp");
    if (!mkdtemp(root)) {
        cli_error("%s: %s", root, strerror(errno));
        return CLI_FAILED;
    }
    if (cli->json)
        emit_open(&json, NULL, '[');
    else
        printf("ms, of them processor %-19s %-19s %-19s %-9s compiles\n", "    nothing cached", "         our cache",
               "   ours and PoCL's", "  context");
    for (size_t i = 0; i < WD_COUNT(calls); i++) {
        struct first f[NUM_STATES] = {{0}};
        const wd_status one = cli_wants_op(cli, calls[i].op) ? measure(cli_get(cli, "device"), i, root, f) : WD_OK;
        st = one ? one : st;
        if (!one && f[NOTHING].total_ns > 0)
            cli->json ? print_json(&json, i, f) : print_text(i, f);
    }
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (cli->json) {
        emit_close(&json, ']');
        emit_print(&json);
    }
    emit_drop(&json);
    return st ? CLI_FAILED : CLI_OK;
}
