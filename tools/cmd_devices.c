/* SPDX-License-Identifier: MIT */
/* warpdrive devices: what is there, with capabilities. */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>

#include "device.h"
#include "json.h"

static const char *device_type(const struct wd_caps *caps)
{
    return caps->type & CL_DEVICE_TYPE_GPU ? "gpu" : caps->type & CL_DEVICE_TYPE_CPU ? "cpu" : "other";
}

/* ---- JSON ---- */

static void print_caps_json(struct json *json, const struct wd_caps *caps)
{
    emit_string(json, "name", caps->name);
    emit_string(json, "vendor", caps->vendor);
    emit_string(json, "platform_name", caps->platform_name);
    emit_string(json, "platform_version", caps->platform_version);
    emit_string(json, "driver", caps->driver);
    emit_string(json, "version", caps->version);
    emit_string(json, "kind", caps->kind);
    emit_string(json, "arch", caps->arch);
    emit_string(json, "type", device_type(caps));
    emit_integer(json, "compute_units", caps->compute_units);
    emit_integer(json, "max_group", caps->max_group);
    emit_open(json, "max_local", '[');
    for (int i = 0; i < 3; i++)
        emit_integer(json, NULL, caps->max_local[i]);
    emit_close(json, ']');
    emit_integer(json, "local_bytes", caps->local_bytes);
    emit_integer(json, "max_alloc_bytes", caps->max_alloc_bytes);
    emit_integer(json, "global_bytes", caps->global_bytes);
    emit_integer(json, "cache_bytes", caps->cache_bytes);
    emit_integer(json, "simd", caps->simd);
    emit_integer(json, "sm", caps->sm);
    emit_bool(json, "fp16", caps->fp16);
    emit_bool(json, "subgroups", caps->subgroups);
    emit_bool(json, "int64_atomics", caps->int64_atomics);
    emit_string(json, "build_options", caps->build_options);
}

static void print_json(const struct wd_device_entry *list, size_t count)
{
    struct json json = {0};
    emit_open(&json, NULL, '{');
    emit_open(&json, "devices", '[');
    for (size_t i = 0; i < count; i++) {
        emit_open(&json, NULL, '{');
        emit_integer(&json, "platform", list[i].platform);
        if (list[i].broken) {
            emit_string(&json, "error", list[i].error);
        } else {
            emit_integer(&json, "device", list[i].device);
            emit_integer(&json, "index", list[i].index);
            print_caps_json(&json, &list[i].caps);
        }
        emit_close(&json, '}');
    }
    emit_close(&json, ']');
    emit_close(&json, '}');
    emit_print(&json);
}

/* ---- Text ---- */

enum {
    COL_INDEX,
    COL_ID,
    COL_TYPE,
    COL_KIND,
    COL_ARCH,
    COL_UNITS,
    COL_SIMD,
    COL_GROUP,
    COL_LOCAL,
    COL_MEMORY,
    COL_NAME
};

static const struct cli_column columns[] = {
    [COL_INDEX] = {"index", true, 0},         [COL_ID] = {"id", false, 0},
    [COL_TYPE] = {"type", false, 0},          [COL_KIND] = {"kind", false, 8},
    [COL_ARCH] = {"arch", false, 8},          [COL_UNITS] = {"units", true, 0},
    [COL_SIMD] = {"simd", true, 0},           [COL_GROUP] = {"group", true, 0},
    [COL_LOCAL] = {"local", true, 10},        [COL_MEMORY] = {"memory", true, 10},
    [COL_NAME] = {"name (driver)", false, 0}, {NULL, false, 0},
};

static void print_device(struct cli_table *table, const struct wd_device_entry *entry)
{
    const struct wd_caps *caps = &entry->caps;
    char number[CLI_NUMBER];

    if (entry->broken) {
        cli_table_cell(table, COL_ID, CLI_RED, "%u:-", entry->platform);
        cli_table_cell(table, COL_TYPE, CLI_RED, "broken");
        cli_table_cell(table, COL_NAME, CLI_PLAIN, "%s", entry->error);
        cli_table_row(table);
        return;
    }
    cli_table_cell(table, COL_INDEX, CLI_PLAIN, "%u", entry->index);
    cli_table_cell(table, COL_ID, CLI_PLAIN, "%u:%u", entry->platform, entry->device);
    cli_table_cell(table, COL_TYPE, CLI_PLAIN, "%s", device_type(caps));
    cli_table_cell(table, COL_KIND, CLI_PLAIN, "%s", caps->kind);
    cli_table_cell(table, COL_ARCH, CLI_PLAIN, "%s", *caps->arch ? caps->arch : "-");
    cli_table_cell(table, COL_UNITS, CLI_PLAIN, "%u", caps->compute_units);
    cli_table_cell(table, COL_SIMD, CLI_PLAIN, "%u", caps->simd);
    cli_table_cell(table, COL_GROUP, CLI_PLAIN, "%zu", caps->max_group);
    cli_table_cell(table, COL_LOCAL, CLI_PLAIN, "%s", cli_size(caps->local_bytes, number));
    cli_table_cell(table, COL_MEMORY, CLI_PLAIN, "%s", cli_size(caps->global_bytes, number));
    cli_table_cell(table, COL_NAME, CLI_BOLD, "%s (%s)", caps->name, caps->driver);
    cli_table_row(table);
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli cli;
    const int done = cli_parse(&cli, self, NULL, argc, argv);
    if (done >= 0)
        return done;

    struct wd_device_entry *list;
    size_t count, devices = 0;
    const wd_status st = wd_device_list(&list, &count);
    if (st)
        return cli_fail(&cli, st);

    struct cli_table table;
    cli_table_init(&table, columns);
    for (size_t i = 0; i < count; i++) {
        devices += !list[i].broken;
        if (!cli.json)
            print_device(&table, &list[i]);
    }
    if (cli.json)
        print_json(list, count);
    free(list);
    if (devices == 0)
        cli_error("no OpenCL device; 'warpdrive doctor' looks for the reason");
    return devices ? CLI_OK : CLI_NO_DEVICE;
}

static const struct cli_option options[] = {CLI_JSON, {0}};

const struct cli_command cmd_devices = {
    .name = "devices",
    .operands = "",
    .summary = "List OpenCL devices and their capabilities",
    .details = "A platform that cannot be asked is one line with the reason. -d of other commands takes the index,\n"
               "the id, or part of the name that stand here. Exit code 3: there is no device.",
    .options = options,
    .run = run,
};
