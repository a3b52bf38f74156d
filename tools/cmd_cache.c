/* SPDX-License-Identifier: MIT */
/* warpdrive cache: the compiled programs on disk. */
#include "commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache.h"

enum { DEFAULT_LIMIT_MIB = 256 };

enum { COL_USED, COL_SIZE, COL_KEY, COL_LABEL };

static const struct cli_column columns[] = {
    [COL_USED] = {"last used", false, 16},
    [COL_SIZE] = {"size", true, 10},
    [COL_KEY] = {"key", false, 12},
    [COL_LABEL] = {"program", false, 0},
    {NULL, false, 0},
};

static wd_status list_entries(struct wd_cache *cache)
{
    struct wd_cache_entry *list;
    size_t count;
    uint64_t total = 0;
    char number[CLI_NUMBER], when[32];
    const wd_status st = wd_cache_list(cache, &list, &count);
    if (st)
        return st;

    struct cli_table table;
    cli_table_init(&table, columns);
    for (size_t i = 0; i < count; i++) {
        const time_t used = (time_t)(list[i].used_ns / 1000000000);
        struct tm local;
        const bool known = localtime_r(&used, &local) && strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local) > 0;
        cli_table_cell(&table, COL_USED, CLI_PLAIN, "%s", known ? when : "?");
        cli_table_cell(&table, COL_SIZE, CLI_PLAIN, "%s", cli_size(list[i].bytes, number));
        cli_table_cell(&table, COL_KEY, CLI_PLAIN, "%.12s", list[i].name);
        cli_table_cell(&table, COL_LABEL, CLI_PLAIN, "%s", list[i].label);
        cli_table_row(&table);
        total += list[i].bytes;
    }
    printf("%zu program%s, %s, in %s\n", count, count == 1 ? "" : "s", cli_size(total, number), wd_cache_path(cache));
    free(list);
    return WD_OK;
}

static int print_path(const struct cli *cli)
{
    char *path = wd_cache_place(NULL);
    if (!path)
        return cli_fail(cli, wd_fail(WD_EIO, "cache: none of WARPDRIVE_CACHE_DIR, XDG_CACHE_HOME and HOME is set"));
    puts(path);
    free(path);
    return CLI_OK;
}

static void print_warning(void *user, wd_log_level level, const char *line)
{
    (void)user;
    (void)level;
    cli_error("%s", line);
}

/* Everything but `path`: needs the directory itself. */
static int act(const struct cli *cli, const char *action, uint64_t limit_bytes)
{
    const struct wd_log log = {.fn = print_warning};
    /* Opened without a limit, so that opening prunes nothing. */
    struct wd_cache *cache = wd_cache_open(NULL, UINT64_MAX, &log);
    wd_status st = WD_OK;
    if (!cache)
        return cli_fail(cli, wd_fail(WD_EIO, "cache: there is no usable directory"));

    if (!strcmp(action, "list"))
        st = list_entries(cache);
    else if (!strcmp(action, "prune"))
        printf("removed %zu\n", wd_cache_prune(cache, limit_bytes));
    else
        printf("removed %zu\n", wd_cache_clear(cache));
    wd_cache_close(cache);
    return st ? cli_fail(cli, st) : CLI_OK;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    static const char *const actions[] = {"list", "prune", "clear"};
    struct cli cli;
    uint64_t limit_mib = DEFAULT_LIMIT_MIB;
    const int done = cli_parse(&cli, self, NULL, argc, argv);
    if (done >= 0)
        return done;
    if (cli.num_operands != 1)
        return cli_usage(&cli, "cache: needs one of path, list, prune and clear");
    if (cli_get(&cli, "limit") && (!cli_number(cli_get(&cli, "limit"), &limit_mib) || limit_mib > UINT64_MAX >> 20))
        return cli_usage(&cli, "--limit: '%s' is not a number of MiB", cli_get(&cli, "limit"));

    if (!strcmp(cli.operands[0], "path"))
        return print_path(&cli);
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (!strcmp(cli.operands[0], actions[i]))
            return act(&cli, actions[i], limit_mib << 20);
    return cli_usage(&cli, "cache: '%s' is none of path, list, prune and clear", cli.operands[0]);
}

static const struct cli_option options[] = {
    {"limit", 0, "MIB", "what prune leaves at most (default 256)"},
    {0},
};

const struct cli_command cmd_cache = {
    .name = "cache",
    .operands = "path|list|prune|clear",
    .summary = "Look at or tidy the compiled programs on disk",
    .details = "path   print the directory: $WARPDRIVE_CACHE_DIR, $XDG_CACHE_HOME/warpdrive or ~/.cache/warpdrive\n"
               "list   print the programs, oldest used first\n"
               "prune  remove the oldest used until the rest fits into --limit\n"
               "clear  remove all of them",
    .options = options,
    .run = run,
};
