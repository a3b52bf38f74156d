/* SPDX-License-Identifier: MIT */
/*
 * Tuning records as text: one a line, five fields separated by tabs.
 *
 *     op  device  class  variant parameters  # provenance
 *     fp8_quant  arch=sm_90  q=f32 group=128 size=13  gpu local=256 inflight=4  # 57.1 us 1.03x 0.1.0 2026-11-30
 *
 * What the fields mean to a call is tuning.h's business.
 */
#ifndef WD_RECORDS_H
#define WD_RECORDS_H

#include "log.h"

struct wd_record {
    char *line; /* the whole, cut into the fields below by NULs */
    const char *op, *device, *class_, *choice, *note;
    int number; /* of the line in its file */
};

/* The records of one file, in its order. */
struct wd_records {
    struct wd_record *record;
    size_t count;
    char name[64]; /* for reasons: "user file", "shipped defaults" */
};

/** Parses tuning text. A broken line is reported in the log with its number and skipped. */
wd_status wd_records_parse(struct wd_records *records, const char *name, const char *text, const struct wd_log *log);
void wd_records_free(struct wd_records *records);

/** Puts a record into a file that other processes may be changing, too: in the place of the one with the same op,
 * device and class, or at the end. Everything else in the file stays as it is, comments and broken lines too. */
wd_status wd_records_save(const char *path, const struct wd_record *record);

/** Finds "name=" among blank-separated words; values may be quoted. Returns the value's length, or -1. */
int wd_words_find(const char *words, const char *name, const char **value);

/** Is w[length] one of the blank-separated words? */
bool wd_words_have(const char *words, const char *w, size_t length);

#endif
