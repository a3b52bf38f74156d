/* SPDX-License-Identifier: MIT */
/*
 * The trials of searches that have not ended, on disk: what a killed run knew, and which candidate crashed the driver.
 *
 * One line a trial, four fields separated by tabs, appended before it starts and when it has ended:
 *
 *     started    key    variant parameters
 *     timed      key    variant parameters    12345
 *     unusable   key    variant parameters    why
 *
 * The key is all that the time depends on: version, kernels, device, driver, operation, class, sizes. A line "ended
 * key" says that a search came to its end. A trial that was started once without an end is tried again, since the run
 * may have been killed for another reason; twice, or once with a process that died of it (wd_journal_blame), is a
 * crash.
 *
 * Knows no OpenCL. One holder at a time: the file is locked while it is open.
 */
#ifndef WD_JOURNAL_H
#define WD_JOURNAL_H

#include "log.h"

struct wd_journal;

/** Opens the journal, made if it is missing, and reads it. `wait`: until another holder closes it. NULL, with a line in
 *  the log, if that cannot be or another holds it: everything below takes NULL for "nothing is kept". */
struct wd_journal *wd_journal_open(const char *path, bool wait, const struct wd_log *log);
/** Removes the file if nothing is left in it. */
void wd_journal_close(struct wd_journal *j);

/** What is known of a trial: its time, INFINITY for one that is of no use, 0 for nothing. */
double wd_journal_find(const struct wd_journal *j, const char *key, const char *choice);
/** Did the search of this key end? */
bool wd_journal_ended(const struct wd_journal *j, const char *key);

/** Lines are on disk when these return; a failure to write is told in the log once. */
void wd_journal_start(struct wd_journal *j, const char *key, const char *choice);
/** `ns`: INFINITY with the reason in `why`, else `why` is NULL. */
void wd_journal_finish(struct wd_journal *j, const char *key, const char *choice, double ns, const char *why);
void wd_journal_end(struct wd_journal *j, const char *key);

/** The process that wrote the journal died: blames the trial that it had started last, if that has no end. Returns
 *  its choice ("" if there is none), which lives as long as the journal. */
const char *wd_journal_blame(struct wd_journal *j, const char *why);

/** Removes all that is known of a key, or of keys that do not begin so. */
void wd_journal_forget(struct wd_journal *j, const char *key);
void wd_journal_keep(struct wd_journal *j, const char *beginning);

#endif
