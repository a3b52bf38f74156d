/* SPDX-License-Identifier: MIT */
/* A run of `warpdrive bench` beside an earlier one. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wd_status bench_same_device(const struct bench_run *before, const char *path, const char *device)
{
    if (strcmp(before->device, device) == 0)
        return WD_OK;
    return wd_fail(WD_EINVAL, "%s is of another device, '%s', not '%s': times of two devices do not tell what changed",
                   path, before->device, device);
}

/* ---- Comparing ---- */

static const struct bench_case *find(const struct bench_run *run, const struct bench_case *like)
{
    for (size_t i = 0; i < run->count; i++)
        if (!strcmp(run->cases[i].operation, like->operation) && !strcmp(run->cases[i].shape, like->shape))
            return &run->cases[i];
    return NULL;
}

/* How many times as long the device takes now for the same work: rates turn round. 1 where that is not known. */
static double drift(const struct bench_rate *before, const struct bench_rate *now)
{
    struct verdict_ratio r;
    if (!verdict_ratio(now->sample, now->samples, before->sample, before->samples, &r))
        return before->per_s > 0 && now->per_s > 0 ? before->per_s / now->per_s : 1;
    return r.ratio;
}

static void judge(struct bench_comparison *c, struct bench_pair *pair)
{
    const struct bench_case *a = pair->before, *b = pair->now;
    pair->verdict = VERDICT_UNKNOWN;
    if (a && b && verdict_ratio(a->sample_ns, a->samples, b->sample_ns, b->samples, &pair->ratio))
        pair->verdict = verdict_of(&pair->ratio, b->memory_bound ? c->copy_drift : c->fma_drift);
    if (a && b)
        c->number[pair->verdict]++;
}

wd_status bench_compare(const struct bench_run *before, const char *path, const struct bench_run *now,
                        struct bench_comparison *c)
{
    *c = (struct bench_comparison){.path = path,
                                   .before = before,
                                   .copy_drift = drift(&before->copy, &now->copy),
                                   .fma_drift = drift(&before->fma, &now->fma)};
    wd_status st = bench_same_device(before, path, now->device);
    if (st)
        return st;
    c->pair = calloc(now->count + before->count + 1, sizeof *c->pair);
    if (!c->pair)
        return wd_fail(WD_ENOMEM, "bench: out of memory");
    for (size_t i = 0; i < now->count; i++)
        c->pair[c->count++] = (struct bench_pair){.before = find(before, &now->cases[i]), .now = &now->cases[i]};
    for (size_t i = 0; i < before->count; i++)
        if (!find(now, &before->cases[i]))
            c->pair[c->count++] = (struct bench_pair){.before = &before->cases[i]};
    for (size_t i = 0; i < c->count; i++)
        judge(c, &c->pair[i]);
    return WD_OK;
}

void bench_uncompare(struct bench_comparison *c)
{
    free(c->pair);
    *c = (struct bench_comparison){0};
}

/* ---- Showing ---- */

enum { COL_VERDICT, COL_RATIO, COL_RANGE, COL_BEFORE, COL_NOW, COL_OP, COL_SHAPE };

static const struct cli_column columns[] = {
    [COL_VERDICT] = {"verdict", false, 7},
    [COL_RATIO] = {"now/before", true, 0},
    [COL_RANGE] = {"99 % interval", false, 0},
    [COL_BEFORE] = {"before", true, 8},
    [COL_NOW] = {"now", true, 8},
    [COL_OP] = {"operation", false, 0},
    [COL_SHAPE] = {"shape", false, 0},
    {NULL, false, 0},
};

static void print_pair(struct cli_table *table, const struct bench_pair *p)
{
    static const enum cli_colour colour[] = {CLI_PLAIN, CLI_GREEN, CLI_RED, CLI_YELLOW};
    char number[CLI_NUMBER];
    cli_table_cell(table, COL_VERDICT, colour[p->verdict], "%s", verdict_name(p->verdict));
    if (p->verdict != VERDICT_UNKNOWN) {
        cli_table_cell(table, COL_RATIO, CLI_BOLD, "%.2f", p->ratio.ratio);
        cli_table_cell(table, COL_RANGE, CLI_PLAIN, "%.2f to %.2f", p->ratio.low, p->ratio.high);
    }
    cli_table_cell(table, COL_BEFORE, CLI_PLAIN, "%s",
                   p->before->samples ? cli_time(p->before->median_ns, number) : "-");
    cli_table_cell(table, COL_NOW, CLI_PLAIN, "%s", p->now->samples ? cli_time(p->now->median_ns, number) : "-");
    cli_table_cell(table, COL_OP, CLI_PLAIN, "%s", p->now->operation);
    cli_table_cell(table, COL_SHAPE, CLI_PLAIN, "%s", p->now->shape);
    cli_table_row(table);
}

static void print_lonely(const struct bench_comparison *c, bool old)
{
    const char *lead = old ? "only there:" : "only in this run:";
    for (size_t i = 0; i < c->count; i++) {
        const struct bench_pair *p = &c->pair[i];
        const struct bench_case *one = old ? p->before : p->now, *other = old ? p->now : p->before;
        if (one && !other)
            printf("%s %s %s\n", lead, one->operation, one->shape);
    }
}

void bench_print_comparison(const struct bench_comparison *c)
{
    struct cli_table table;
    cli_table_init(&table, columns);
    for (size_t i = 0; i < c->count; i++)
        if (c->pair[i].before && c->pair[i].now)
            cli_table_fit(&table, COL_OP, c->pair[i].now->operation);
    printf(
        "\nBeside %s (version %s, driver %s, %s):\nthe device itself takes %.2f times as long for copies, %.2f times "
        "for multiply-adds\n\n",
        c->path, c->before->version, c->before->driver, c->before->date, c->copy_drift, c->fma_drift);
    for (size_t i = 0; i < c->count; i++)
        if (c->pair[i].before && c->pair[i].now)
            print_pair(&table, &c->pair[i]);
    printf("%s%zu slower, %zu faster, %zu the same", table.started ? "\n" : "", c->number[VERDICT_SLOWER],
           c->number[VERDICT_FASTER], c->number[VERDICT_SAME]);
    if (c->number[VERDICT_UNKNOWN])
        printf(", %zu unknown: a fault, or too few rounds", c->number[VERDICT_UNKNOWN]);
    printf("\n");
    print_lonely(c, true);
    print_lonely(c, false);
}
