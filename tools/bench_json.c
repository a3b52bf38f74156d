/* SPDX-License-Identifier: MIT */
/* A run of `warpdrive bench` as JSON, there and back. */
#include "bench.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Changes whenever an older reader would misunderstand the file. */
static const char format[] = "warpdrive bench 1";

/* ---- Writing ---- */

static void write_case(struct json *json, const struct bench_case *c, const struct bench_pair *pair)
{
    emit_open(json, NULL, '{');
    emit_string(json, "operation", c->operation);
    emit_string(json, "shape", c->shape);
    emit_bool(json, "ok", !c->fault[0]);
    if (c->fault[0]) {
        emit_string(json, "fault", c->fault);
    } else {
        emit_number(json, "error", c->error);
        emit_string(json, "variant", c->variant);
        emit_string(json, "choice", c->choice);
        emit_string(json, "reason", c->reason);
        emit_number(json, "median_ns", c->median_ns);
        emit_number(json, "min_ns", c->min_ns);
        emit_number(json, "max_ns", c->max_ns);
        emit_number(json, "bytes", c->bytes);
        emit_number(json, "flops", c->flops);
        emit_number(json, "floor_ns", c->floor_ns);
        emit_number(json, "time_over_floor", c->median_ns / c->floor_ns);
        emit_string(json, "bound", c->memory_bound ? "memory" : "math");
        emit_numbers(json, "samples_ns", c->sample_ns, c->samples);
    }
    if (pair && pair->verdict != VERDICT_UNKNOWN) {
        emit_open(json, "compared", '{');
        emit_number(json, "before_median_ns", pair->before->median_ns);
        emit_number(json, "ratio", pair->ratio.ratio);
        emit_number(json, "low", pair->ratio.low);
        emit_number(json, "high", pair->ratio.high);
        emit_string(json, "verdict", verdict_name(pair->verdict));
        emit_close(json, '}');
    }
    emit_close(json, '}');
}

static void write_comparison(struct json *json, const struct bench_comparison *c)
{
    emit_open(json, "compared_with", '{');
    emit_string(json, "file", c->path);
    emit_string(json, "version", c->before->version);
    emit_string(json, "date", c->before->date);
    emit_number(json, "copy_time_ratio", c->copy_drift);
    emit_number(json, "fma_time_ratio", c->fma_drift);
    for (int v = VERDICT_SAME; v <= VERDICT_UNKNOWN; v++)
        emit_integer(json, verdict_name((enum verdict)v), c->number[v]);
    emit_open(json, "only_before", '[');
    for (size_t i = 0; i < c->count; i++)
        if (!c->pair[i].now) {
            emit_open(json, NULL, '{');
            emit_string(json, "operation", c->pair[i].before->operation);
            emit_string(json, "shape", c->pair[i].before->shape);
            emit_close(json, '}');
        }
    emit_close(json, ']');
    emit_close(json, '}');
}

void bench_write(struct json *json, const struct bench_run *run, const struct bench_comparison *comparison)
{
    emit_open(json, NULL, '{');
    emit_string(json, "format", format);
    emit_string(json, "version", run->version);
    emit_string(json, "date", run->date);
    emit_string(json, "device", run->device);
    emit_string(json, "driver", run->driver);
    emit_string(json, "platform", run->platform);
    emit_number(json, "copy_bytes_per_s", run->copy.per_s);
    emit_number(json, "fma_flops_per_s", run->fma.per_s);
    emit_numbers(json, "copy_samples", run->copy.sample, run->copy.samples);
    emit_numbers(json, "fma_samples", run->fma.sample, run->fma.samples);
    if (comparison)
        write_comparison(json, comparison);
    emit_open(json, "results", '[');
    for (size_t i = 0; i < run->count; i++) /* the comparison's first pairs are the run's cases */
        write_case(json, &run->cases[i], comparison ? &comparison->pair[i] : NULL);
    emit_close(json, ']');
    emit_close(json, '}');
}

/* ---- Reading ---- */

/* Where the reader stands, for errors. */
struct place {
    const char *path;
    size_t result; /* from 1; 0: outside the results */
};

static wd_status wrong(const struct place *at, const char *key, const char *what)
{
    if (at->result)
        return wd_fail(WD_EINVAL, "%s: result %zu: \"%s\" is not %s", at->path, at->result, key, what);
    return wd_fail(WD_EINVAL, "%s: \"%s\" is not %s", at->path, key, what);
}

static wd_status read_text(const struct place *at, const json_t *from, const char *key, char *out, size_t bytes)
{
    const json_t *value = json_object_get(from, key);
    if (!json_is_string(value))
        return wrong(at, key, "a text");
    snprintf(out, bytes, "%s", json_string_value(value));
    return WD_OK;
}

static wd_status read_number(const struct place *at, const json_t *from, const char *key, double *out)
{
    const json_t *value = json_object_get(from, key);
    if (!json_is_number(value))
        return wrong(at, key, "a number");
    *out = json_number_value(value);
    return WD_OK;
}

static wd_status read_samples(const struct place *at, const json_t *from, const char *key, double out[BENCH_SAMPLES],
                              size_t *count)
{
    const json_t *list = json_object_get(from, key);
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > BENCH_SAMPLES)
        return wrong(at, key, "an array of at most 25 numbers");
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value) || json_number_value(value) < 0)
            return wrong(at, key, "an array of numbers, none negative");
        out[i] = json_number_value(value);
    }
    *count = n;
    return WD_OK;
}

static wd_status read_case(const struct place *at, const json_t *from, struct bench_case *c)
{
    char bound[BENCH_WORD] = "";
    wd_status st;
    if (!json_is_object(from))
        return wd_fail(WD_EINVAL, "%s: result %zu is not an object", at->path, at->result);
    if ((st = read_text(at, from, "operation", c->operation, sizeof c->operation)) ||
        (st = read_text(at, from, "shape", c->shape, sizeof c->shape)))
        return st;
    if (!json_is_true(json_object_get(from, "ok")))
        return read_text(at, from, "fault", c->fault, sizeof c->fault);
    if ((st = read_text(at, from, "variant", c->variant, sizeof c->variant)) ||
        (st = read_text(at, from, "choice", c->choice, sizeof c->choice)) ||
        (st = read_text(at, from, "reason", c->reason, sizeof c->reason)) ||
        (st = read_text(at, from, "bound", bound, sizeof bound)) || (st = read_number(at, from, "error", &c->error)) ||
        (st = read_number(at, from, "bytes", &c->bytes)) || (st = read_number(at, from, "flops", &c->flops)) ||
        (st = read_number(at, from, "floor_ns", &c->floor_ns)) ||
        (st = read_samples(at, from, "samples_ns", c->sample_ns, &c->samples)))
        return st;
    if (!(c->floor_ns > 0))
        return wrong(at, "floor_ns", "a positive number");
    if (c->samples == 0)
        return wrong(at, "samples_ns", "an array with a number in it");
    c->memory_bound = strcmp(bound, "memory") == 0;
    bench_summarise(c);
    return WD_OK;
}

static wd_status read_run(const char *path, const json_t *root, struct bench_run *run)
{
    struct place at = {.path = path};
    const char *is = json_string_value(json_object_get(root, "format"));
    const json_t *results = json_object_get(root, "results");
    wd_status st;
    if (!is || strcmp(is, format) != 0)
        return wd_fail(WD_EINVAL,
                       "%s: not from `warpdrive bench --json` of this format: \"format\" is %s%s%s, not \"%s\"", path,
                       is ? "\"" : "", is ? is : "missing", is ? "\"" : "", format);
    if ((st = read_text(&at, root, "version", run->version, sizeof run->version)) ||
        (st = read_text(&at, root, "date", run->date, sizeof run->date)) ||
        (st = read_text(&at, root, "device", run->device, sizeof run->device)) ||
        (st = read_text(&at, root, "driver", run->driver, sizeof run->driver)) ||
        (st = read_text(&at, root, "platform", run->platform, sizeof run->platform)) ||
        (st = read_number(&at, root, "copy_bytes_per_s", &run->copy.per_s)) ||
        (st = read_number(&at, root, "fma_flops_per_s", &run->fma.per_s)) ||
        (st = read_samples(&at, root, "copy_samples", run->copy.sample, &run->copy.samples)) ||
        (st = read_samples(&at, root, "fma_samples", run->fma.sample, &run->fma.samples)))
        return st;
    if (!json_is_array(results))
        return wrong(&at, "results", "an array");
    for (size_t i = 0; i < json_array_size(results) && !st; i++) {
        struct bench_case *c = bench_add(run);
        at.result = i + 1;
        st = c ? read_case(&at, json_array_get(results, i), c) : wd_fail(WD_ENOMEM, "%s: out of memory", path);
    }
    return st;
}

wd_status bench_read(const char *path, struct bench_run *run)
{
    json_error_t error;
    *run = (struct bench_run){0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return wd_fail(WD_EIO, "%s: %s", path, strerror(errno));
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    const bool unread = ferror(file) != 0;
    fclose(file);
    wd_status st;
    if (unread)
        st = wd_fail(WD_EIO, "%s: cannot be read", path);
    else if (!root)
        st = wd_fail(WD_EINVAL, "%s: line %d, column %d (byte %d): %s", path, error.line, error.column, error.position,
                     error.text);
    else
        st = read_run(path, root, run);
    json_decref(root);
    return st;
}
