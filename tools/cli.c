/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "json.h"
#include "op.h"

static bool progress_shown; /* a progress line stands on the terminal */

/* ---- Options ---- */

enum { CODE_HELP = 1000, CODE_OPTION }; /* getopt_long()'s codes: CODE_OPTION + index */

/* The two tables getopt_long() wants. `letters` begins with ':' so that a missing value is told apart. */
static size_t getopt_tables(const struct cli_option *options, struct option *out, char *letters)
{
    size_t n = 0;
    *letters++ = ':';
    for (; options[n].name && n < CLI_MAX_OPTIONS; n++) {
        const int has_value = options[n].value ? required_argument : no_argument;
        out[n] = (struct option){options[n].name, has_value, NULL, CODE_OPTION + (int)n};
        if (options[n].letter) {
            *letters++ = options[n].letter;
            if (has_value == required_argument)
                *letters++ = ':';
        }
    }
    out[n] = (struct option){"help", no_argument, NULL, CODE_HELP};
    out[n + 1] = (struct option){NULL, 0, NULL, 0};
    memcpy(letters, "h", 2);
    return n;
}

static size_t option_by_letter(const struct cli_option *options, int letter)
{
    size_t i = 0;
    while (options[i].name && options[i].letter != letter)
        i++;
    return i;
}

int cli_parse(struct cli *cli, const struct cli_command *command, const struct cli_option *options, int argc,
              char **argv)
{
    struct option longs[CLI_MAX_OPTIONS + 2];
    char letters[2 * CLI_MAX_OPTIONS + 3];

    memset(cli, 0, sizeof *cli);
    cli->command = command;
    cli->options = options ? options : command->options;
    getopt_tables(cli->options, longs, letters);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) /* so that a mistake is reported as JSON as well */
        if (!strcmp(argv[i], "--json"))
            cli->json = true;

    opterr = 0;
    optind = 1;
    for (int code; (code = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        size_t index = SIZE_MAX;
        if (code == 'h' || code == CODE_HELP) {
            cli_help(command, cli->options);
            return CLI_OK;
        }
        if (code == '?' || code == ':') {
            const char *problem = code == ':' ? "needs a value" : "unknown or ambiguous option";
            if (optopt > 0 && optopt < CODE_HELP)
                return cli_usage(cli, "-%c: %s", optopt, problem);
            return cli_usage(cli, "%s: %s", argv[optind - 1], problem);
        }
        index = code >= CODE_OPTION ? (size_t)(code - CODE_OPTION) : option_by_letter(cli->options, code);
        cli->value[index] = optarg ? optarg : "";
    }
    cli->operands = argv + optind;
    cli->num_operands = argc - optind;
    cli->json = cli_get(cli, "json") != NULL;
    if (cli->num_operands > 0 && !*command->operands)
        return cli_usage(cli, "%s: takes no operand", cli->operands[0]);
    return -1;
}

const char *cli_get(const struct cli *cli, const char *name)
{
    for (size_t i = 0; cli->options[i].name; i++)
        if (!strcmp(cli->options[i].name, name))
            return cli->value[i];
    return NULL;
}

int cli_check_ops(const struct cli *cli)
{
    for (int i = 0; i < cli->num_operands; i++)
        if (!wd_op_by_name(cli->operands[i]))
            return cli_usage(cli, "'%s' is no operation; 'warpdrive --help' lists them", cli->operands[i]);
    return 0;
}

bool cli_wants_op(const struct cli *cli, const char *name)
{
    for (int i = 0; i < cli->num_operands; i++)
        if (!strcmp(cli->operands[i], name))
            return true;
    return cli->num_operands == 0;
}

void cli_help(const struct cli_command *command, const struct cli_option *options)
{
    printf("Usage: warpdrive %s [options]%s%s\n\n%s.\n", command->name, *command->operands ? " " : "",
           command->operands, command->summary);
    if (command->details)
        printf("\n%s\n", command->details);

    printf("\nOptions:\n");
    for (; options->name; options++) {
        char spelling[64], letter[8] = "    ";
        if (options->letter)
            snprintf(letter, sizeof letter, "-%c, ", options->letter);
        snprintf(spelling, sizeof spelling, "%s--%s%s%s", letter, options->name, options->value ? " " : "",
                 options->value ? options->value : "");
        printf("  %-28s %s\n", spelling, options->help);
    }
    printf("  %-28s %s\n", "-h, --help", "print this");
}

/* ---- Messages ---- */

static void print_error(const char *text)
{
    const bool colour = isatty(STDERR_FILENO) && !getenv("NO_COLOR");
    cli_progress("%s", "");
    fflush(stdout);
    fprintf(stderr, "%swarpdrive:%s %s\n", colour ? "\033[31m" : "", colour ? "\033[0m" : "", text);
}

static void print_json_error(const char *status, const char *text)
{
    struct json json = {0};
    emit_open(&json, NULL, '{');
    emit_string(&json, "status", status);
    emit_string(&json, "error", text);
    emit_close(&json, '}');
    emit_print(&json);
}

void cli_error(const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    print_error(text);
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    print_error(text);
    fprintf(stderr, "Try 'warpdrive %s --help'.\n", cli->command->name);
    if (cli->json)
        print_json_error("usage", text);
    return CLI_USAGE;
}

int cli_fail(const struct cli *cli, wd_status status)
{
    const char *text = *wd_last_error() ? wd_last_error() : wd_status_string(status);
    print_error(text);
    if (cli->json)
        print_json_error(wd_status_string(status), text);
    return cli_exit_code(status);
}

int cli_exit_code(wd_status status)
{
    switch (status) {
    case WD_OK: return CLI_OK;
    case WD_EINVAL: return CLI_USAGE;
    case WD_ENODEVICE: return CLI_NO_DEVICE;
    case WD_ENOTSUP: return CLI_UNSUPPORTED;
    case WD_EIO: return CLI_IO;
    case WD_ENOMEM:
    case WD_EBUILD:
    case WD_EOPENCL: return CLI_RUNTIME;
    }
    return CLI_RUNTIME;
}

/* ---- Terminal ---- */

const char *cli_colour(enum cli_colour colour)
{
    static const char *const escape[] = {
        [CLI_PLAIN] = "\033[0m",   [CLI_RED] = "\033[31m", [CLI_GREEN] = "\033[32m",
        [CLI_YELLOW] = "\033[33m", [CLI_BOLD] = "\033[1m",
    };
    return isatty(STDOUT_FILENO) && !getenv("NO_COLOR") ? escape[colour] : "";
}

/* Of stderr; a longer line would wrap, and could not be overwritten. */
static int terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

void cli_progress(const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!isatty(STDERR_FILENO) || (!*text && !progress_shown))
        return;
    fprintf(stderr, "\r\033[K%.*s", terminal_width() - 1, text);
    fflush(stderr);
    progress_shown = *text != '\0';
}

/* ---- Tables ---- */

void cli_table_init(struct cli_table *table, const struct cli_column *columns)
{
    memset(table, 0, sizeof *table);
    for (; columns[table->count].title && table->count < CLI_MAX_COLUMNS; table->count++) {
        table->column[table->count] = columns[table->count];
        cli_table_fit(table, table->count, columns[table->count].title);
    }
}

void cli_table_fit(struct cli_table *table, size_t column, const char *text)
{
    const size_t width = strlen(text);
    if (table->column[column].width < width)
        table->column[column].width = width;
}

void cli_table_cell(struct cli_table *table, size_t column, enum cli_colour colour, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(table->cell[column], CLI_CELL, fmt, args);
    va_end(args);
    table->colour[column] = colour;
}

/* Pads outside the colour, and not at a line's end. */
static void print_row(const struct cli_table *table, bool titles)
{
    size_t pending = 0; /* spaces owed to the columns before */
    for (size_t i = 0; i < table->count; i++) {
        const char *text = titles ? table->column[i].title : table->cell[i];
        const enum cli_colour colour = titles ? CLI_BOLD : table->colour[i];
        const size_t length = strlen(text), width = table->column[i].width;
        const size_t padding = width > length ? width - length : 0;
        const size_t before = pending + (table->column[i].right ? padding : 0);

        if (length > 0) {
            printf("%*s%s%s%s", (int)before, "", colour ? cli_colour(colour) : "", text,
                   colour ? cli_colour(CLI_PLAIN) : "");
            pending = table->column[i].right ? 2 : padding + 2;
        } else {
            pending += width + 2;
        }
    }
    printf("\n");
}

void cli_table_row(struct cli_table *table)
{
    cli_progress("%s", "");
    if (!table->started)
        print_row(table, true);
    print_row(table, false);
    fflush(stdout);
    table->started = true;
    memset(table->cell, 0, sizeof table->cell);
    memset(table->colour, 0, sizeof table->colour);
}

/* ---- Numbers ---- */

const char *cli_time(double ns, char text[CLI_NUMBER])
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {0.0, "ns"}};
    size_t i = 0;
    while (ns < units[i].unit)
        i++;
    const double value = units[i].unit > 0.0 ? ns / units[i].unit : ns;
    snprintf(text, CLI_NUMBER, "%.*f %s", value < 10.0 ? 2 : value < 100.0 ? 1 : 0, value, units[i].name);
    return text;
}

const char *cli_size(uint64_t bytes, char text[CLI_NUMBER])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t i = 0;
    for (; value >= 1024.0 && i + 1 < sizeof units / sizeof units[0]; i++)
        value /= 1024.0;
    snprintf(text, CLI_NUMBER, "%.*f %s", i == 0 ? 0 : 1, value, units[i]);
    return text;
}

bool cli_number(const char *text, uint64_t *value)
{
    char *end;
    if (!*text || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0;
}
