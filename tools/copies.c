/* SPDX-License-Identifier: MIT */
/* A copy of each power of two of bytes, by the protocol by which operations are timed. */
#include "copies.h"

#include <stdio.h>

#include "context.h"
#include "json.h"
#include "measure.h"

enum { LEAST = 2 << 20 };

static const double budget_ns = 1e8;

static void print_json(struct json *json, size_t bytes, const struct wd_timing *t)
{
    emit_open(json, NULL, '{');
    emit_number(json, "bytes", (double)bytes);
    emit_number(json, "median_ns", t->median_ns);
    emit_number(json, "min_ns", t->min_ns);
    emit_number(json, "max_ns", t->max_ns);
    emit_number(json, "bytes_per_s", (double)bytes / t->median_ns * 1e9);
    emit_close(json, '}');
}

static void print_text(size_t bytes, const struct wd_timing *t, double full_rate)
{
    char time[CLI_NUMBER];
    const double rate = (double)bytes / t->median_ns * 1e9;
    printf("%12zu MiB  %10s  %8.1f GB/s  %15.0f %%\n", bytes >> 20, cli_time(t->median_ns, time), rate * 1e-9,
           100 * rate / full_rate);
}

/* The scratch buffer's size, from which the device's rate comes, is the last. */
static wd_status measure(struct wd_meter *meter, const struct cli *cli, struct json *json)
{
    double full_rate, flops;
    cli_progress("measuring the device");
    wd_status st = wd_meter_rates(meter, &full_rate, &flops);
    if (!st && cli->json)
        emit_open(json, NULL, '[');
    else if (!st)
        printf("read and written      time          rate  of a large copy's\n");
    for (size_t bytes = LEAST; bytes <= meter->scratch_bytes && !st; bytes *= 2) {
        struct wd_timing t;
        cli_progress("copying %zu MiB", bytes >> 20);
        st = wd_meter_time_copy(meter, bytes, budget_ns, &t);
        cli_progress("%s", "");
        if (!st && cli->json)
            print_json(json, bytes, &t);
        else if (!st)
            print_text(bytes, &t, full_rate);
    }
    if (!st && cli->json)
        emit_close(json, ']');
    return st;
}

int bench_copies(const struct cli *cli)
{
    wd_context *ctx;
    struct wd_meter meter;
    struct json json = {0};
    wd_status st = wd_open(cli_get(cli, "device"), &ctx);
    if (st)
        return cli_fail(cli, st);
    if (!(st = wd_meter_init(&meter, ctx, wd_context_queue(ctx)))) {
        st = measure(&meter, cli, &json);
        wd_meter_fini(&meter);
    }
    if (!st && cli->json)
        emit_print(&json);
    emit_drop(&json);
    wd_context_destroy(ctx);
    return st ? cli_fail(cli, st) : CLI_OK;
}
