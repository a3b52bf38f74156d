/* SPDX-License-Identifier: MIT */
/*
 * What the commands of `warpdrive` share: options described once (parsed and printed from the same table), exit
 * codes, messages, tables whose columns line up, and a progress line. Not thread-safe: a command is one thread.
 */
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

/* Exit codes; `warpdrive --help` lists them. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,      /* a check failed */
    CLI_USAGE = 2,       /* wrong options, values or shapes */
    CLI_NO_DEVICE = 3,   /* no OpenCL device, or none that matches */
    CLI_UNSUPPORTED = 4, /* the call is well-formed, but nothing serves it on this device */
    CLI_RUNTIME = 5,     /* the driver failed, or memory is exhausted */
    CLI_IO = 6,          /* a file could not be read or written */
};

/* ---- Options ---- */

enum { CLI_MAX_OPTIONS = 80 };

struct cli_option {
    const char *name;  /* "device" */
    char letter;       /* 'd'; 0: none */
    const char *value; /* what stands for the value in --help; NULL: a flag */
    const char *help;
};

/* The options several commands have, for their tables. */
#define CLI_DEVICE                                                                                                     \
    {                                                                                                                  \
        "device", 'd', "DEVICE", "an index, platform:device, gpu, cpu, or part of a device's name"                     \
    }
#define CLI_JSON                                                                                                       \
    {                                                                                                                  \
        "json", 0, NULL, "print JSON instead of text"                                                                  \
    }

struct cli_command {
    const char *name;
    const char *operands;             /* "[OP...]"; "": none */
    const char *summary;              /* one line */
    const char *details;              /* what --help says beyond summary and options; NULL: nothing */
    const struct cli_option *options; /* ended by a NULL name; --help is added */
    int (*run)(const struct cli_command *self, int argc, char **argv);
};

/** A command line after cli_parse(). Points into argv and the tables. */
struct cli {
    const struct cli_command *command;
    const struct cli_option *options;
    const char *value[CLI_MAX_OPTIONS]; /* by index into options; NULL: not given; flags: "" */
    char **operands;
    int num_operands;
    bool json;
};

/** Reads the options of argv[1..] by the command's table, or by `options` if that is not NULL. Returns -1 when the
 *  command is to go on, else an exit code: --help was printed, or a mistake was. */
int cli_parse(struct cli *cli, const struct cli_command *command, const struct cli_option *options, int argc,
              char **argv);

/** The value of an option, or NULL. */
const char *cli_get(const struct cli *cli, const char *name);

/** For commands whose operands are operations: 0, or an exit code if one is unknown. */
int cli_check_ops(const struct cli *cli);
/** Is this operation among the operands? With no operands, every one is. */
bool cli_wants_op(const struct cli *cli, const char *name);

/** --help's text. */
void cli_help(const struct cli_command *command, const struct cli_option *options);

/* ---- Messages ---- */

/** "warpdrive: ..." on stderr. */
void cli_error(const char *fmt, ...) WD_PRINTF(1, 2);

/** cli_error() and where to find help; also as JSON if --json was given. Returns CLI_USAGE. */
int cli_usage(const struct cli *cli, const char *fmt, ...) WD_PRINTF(2, 3);

/** Reports this thread's wd_last_error(), as JSON too if --json was given. Returns the exit code for `status`. */
int cli_fail(const struct cli *cli, wd_status status);

int cli_exit_code(wd_status status);

/* ---- Terminal ---- */

enum cli_colour { CLI_PLAIN, CLI_RED, CLI_GREEN, CLI_YELLOW, CLI_BOLD };

/** Escape sequences, or "" where stdout is no terminal or NO_COLOR is set. */
const char *cli_colour(enum cli_colour colour);

/** A line on stderr that the next one overwrites; nothing where stderr is no terminal. "" removes it. */
void cli_progress(const char *fmt, ...) WD_PRINTF(1, 2);

/* ---- Tables ---- */

enum { CLI_MAX_COLUMNS = 14, CLI_CELL = 160 };

struct cli_column {
    const char *title; /* NULL ends the list */
    bool right;        /* numbers */
    size_t width;      /* at least; cli_table_fit() widens it */
};

struct cli_table {
    struct cli_column column[CLI_MAX_COLUMNS];
    size_t count;
    bool started;
    char cell[CLI_MAX_COLUMNS][CLI_CELL]; /* the row being made */
    enum cli_colour colour[CLI_MAX_COLUMNS];
};

void cli_table_init(struct cli_table *table, const struct cli_column *columns);
/** Widens a column to hold `text`. Before the first row, so that rows can be printed as they come. */
void cli_table_fit(struct cli_table *table, size_t column, const char *text);
/** Sets a cell of the next row. */
void cli_table_cell(struct cli_table *table, size_t column, enum cli_colour colour, const char *fmt, ...)
    WD_PRINTF(4, 5);
/** Prints the row (the titles first, once) and empties it. */
void cli_table_row(struct cli_table *table);

/* ---- Numbers ---- */

enum { CLI_NUMBER = 24 };

/** "57.7 us", "1.20 ms"; returns `text`. */
const char *cli_time(double ns, char text[CLI_NUMBER]);
/** "256.0 MiB"; returns `text`. */
const char *cli_size(uint64_t bytes, char text[CLI_NUMBER]);
/** A whole number of decimal digits, nothing else. */
bool cli_number(const char *text, uint64_t *value);

#endif
