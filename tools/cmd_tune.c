/* SPDX-License-Identifier: MIT */
/*
 * warpdrive tune: measures which variants and sizes are best on this device, and writes them down.
 *
 * A child process measures (tune.c), since a candidate may crash the driver and its process with it. This one never
 * touches OpenCL before its last child has ended, so that it can fork: it waits, blames the candidate that a child
 * died of in the journal, and starts another child, which passes that one over.
 */
#include "commands.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"
#include "file.h"
#include "journal.h"
#include "measure.h"
#include "tune.h"
#include "tuner.h"
#include "tuning.h"

enum { BUDGET_S = 300, MAX_BUDGET_S = 7 * 24 * 3600 };

/* ---- The child ---- */

static volatile sig_atomic_t child = 0, interrupts = 0;

/* The first interrupt lets the child keep what it knows; the second does not wait for that. */
static void on_interrupt(int number)
{
    (void)number;
    interrupts++;
    if (child > 0)
        kill((pid_t)child, interrupts == 1 ? SIGINT : SIGKILL);
}

static void catch_interrupts(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* In a process group of its own: an interrupt from the terminal reaches it through its parent, and once. */
static int run_child(const struct tune_plan *plan)
{
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN);
    catch_interrupts(SIG_DFL);
    return tune_work(plan);
}

/* Forks, and waits for the end. False: there is no child. */
static bool wait_for_child(const struct tune_plan *plan, int *status)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        exit(run_child(plan));
    if (pid < 0) {
        cli_error("fork: %s", strerror(errno));
        return false;
    }
    child = (sig_atomic_t)pid;
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    child = 0;
    return true;
}

/* The child died: which candidate was it? False: of none. */
static bool blame(const char *tuning_file, int number)
{
    char why[64];
    char *path = wd_tuner_journal_path(tuning_file);
    struct wd_journal *journal = path ? wd_journal_open(path, true, NULL) : NULL;
    if (number == SIGALRM)
        snprintf(why, sizeof why, "no end within %d s", TUNE_TRIAL_S);
    else
        snprintf(why, sizeof why, "the driver died of signal %d", number);
    const char *choice = wd_journal_blame(journal, why);
    const bool found = *choice != '\0';
    if (found)
        cli_error("%s: %s; it is passed over from now on", choice, why);
    else
        cli_error("%s, but not in a trial", why);
    wd_journal_close(journal);
    free(path);
    return found;
}

static off_t journal_bytes(const char *tuning_file)
{
    struct stat st;
    char *path = wd_tuner_journal_path(tuning_file);
    const bool known = path && stat(path, &st) == 0;
    free(path);
    return known ? st.st_size : 0;
}

/* Is another child of use after this one's end? One that fails after some trials may have been failed by the driver,
 * whose contexts do not outlive every mistake of a kernel. */
static bool again(const struct tune_plan *plan, int status, off_t bytes, int *code)
{
    *code = CLI_RUNTIME;
    if (interrupts) {
        *code = WIFEXITED(status) ? WEXITSTATUS(status) : TUNE_INTERRUPTED;
        return false;
    }
    if (!WIFEXITED(status))
        return blame(plan->tuning_file, WTERMSIG(status));
    *code = WEXITSTATUS(status);
    return *code == CLI_RUNTIME && journal_bytes(plan->tuning_file) > bytes;
}

/* Children, until one comes to its end. */
static int supervise(struct tune_plan *plan)
{
    const uint64_t start = wd_now_ns();
    const double budget_s = plan->budget_s;
    int status = 0, code = CLI_OK;
    plan->parent = getpid();
    catch_interrupts(on_interrupt);
    for (;;) {
        const off_t bytes = journal_bytes(plan->tuning_file);
        plan->budget_s = budget_s - (double)(wd_now_ns() - start) * 1e-9;
        if (plan->budget_s <= 0)
            return CLI_OK;
        if (!wait_for_child(plan, &status))
            return CLI_RUNTIME;
        cli_progress("%s", "");
        if (!again(plan, status, bytes, &code))
            return code;
    }
}

/* ---- Export ---- */

/* Is it of this very device and driver, and does it say more than the model does? A shipped record that only repeats
 * the model would outlive it. */
static bool is_worth_shipping(const struct wd_record *r, const char *own_device)
{
    return strcmp(r->device, own_device) == 0 && !strstr(r->note, wd_note_model);
}

/* As the shipped file names devices: by architecture, where there is a name for that. */
static void family(const struct wd_caps *caps, struct wd_text *text)
{
    if (*caps->arch)
        wd_text_add(text, "kind=%s arch=%s", caps->kind, caps->arch);
    else
        wd_text_add(text, "device=\"%s\"", caps->name);
}

/* Puts the device's own records into a file as they could be shipped: each in the place of one of the same operation,
 * device and class, or at the end. */
static wd_status write_export(const struct wd_caps *caps, const char *tuning_file, const char *out_file)
{
    struct wd_records records = {0};
    struct wd_text own = {0}, shipped = {0};
    char *text = NULL;
    size_t count = 0;
    wd_status st = wd_file_read(tuning_file, &text);
    if (st || (st = wd_records_parse(&records, tuning_file, text ? text : "", NULL)))
        goto undo_text;
    wd_device_text(caps, &own);
    family(caps, &shipped);
    if (own.failed || shipped.failed)
        st = wd_fail(WD_ENOMEM, "tune: out of memory");
    for (size_t i = 0; i < records.count && !st; i++) {
        struct wd_record r = records.record[i];
        if (!is_worth_shipping(&r, own.data))
            continue;
        r.device = shipped.data;
        st = wd_records_save(out_file, &r);
        count++;
    }
    if (!st && count == 0)
        printf("no record of this device says more than the model: %s is as it was\n", out_file);
    else if (!st)
        printf("%zu record%s of this device, as %s, in %s\n", count, count == 1 ? "" : "s", shipped.data, out_file);
    wd_text_free(&own);
    wd_text_free(&shipped);
    wd_records_free(&records);
undo_text:
    free(text);
    return st;
}

static wd_status export(const struct tune_plan *plan, const char *out_file)
{
    cl_device_id id;
    struct wd_caps caps;
    wd_status st = wd_device_find(plan->device, &id);
    if (!st)
        st = wd_caps_query(id, &caps);
    return st ? st : write_export(&caps, plan->tuning_file, out_file);
}

/* ---- The command ---- */

static int check_options(const struct cli *cli, struct tune_plan *plan)
{
    uint64_t budget = BUDGET_S;
    const char *words = cli_get(cli, "budget");
    if (words && (!cli_number(words, &budget) || budget > MAX_BUDGET_S))
        return cli_usage(cli, "--budget: '%s' is not a number of seconds", words);
    if (cli_get(cli, "shape") && cli->num_operands != 1)
        return cli_usage(cli, "--shape: needs one operation");
    *plan = (struct tune_plan){
        .cli = cli,
        .device = cli_get(cli, "device"),
        .shape = cli_get(cli, "shape"),
        .dtype = cli_get(cli, "dtype"),
        .budget_s = (double)budget,
    };
    return cli_check_ops(cli);
}

static void forget_journal(const char *tuning_file)
{
    char *path = wd_tuner_journal_path(tuning_file);
    if (path)
        unlink(path);
    free(path);
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli cli;
    struct tune_plan plan;
    int code = cli_parse(&cli, self, NULL, argc, argv);
    if (code < 0)
        code = check_options(&cli, &plan) ? CLI_USAGE : -1;
    if (code >= 0)
        return code;
    plan.tuning_file = wd_tuning_place(NULL, NULL);
    if (!plan.tuning_file)
        return cli_fail(&cli, wd_fail(WD_EIO, "tune: there is no place to write to; set WARPDRIVE_TUNING_FILE"));

    if (cli_get(&cli, "restart"))
        forget_journal(plan.tuning_file);
    code = plan.budget_s > 0 ? supervise(&plan) : CLI_OK;
    const char *out_file = cli_get(&cli, "export");
    if (out_file && (code == CLI_OK || code == TUNE_INTERRUPTED)) {
        const wd_status st = export(&plan, out_file);
        code = st ? cli_fail(&cli, st) : code;
    }
    free(plan.tuning_file);
    return code;
}

static const struct cli_option options[] = {
    {"shape", 0, "SHAPE", "one shape of one operation"},
    {"dtype", 0, "TYPE,...", "f32, f16 or bf16 where a SHAPE says nothing (default f32)"},
    {"budget", 0, "S", "seconds to spend, dealt out over the shapes (default 300; 0: only --export)"},
    {"export", 0, "FILE", "in the end, put this device's records into FILE as they could be shipped"},
    {"restart", 0, NULL, "forget the trials of an interrupted run"},
    CLI_DEVICE,
    {0},
};

const struct cli_command cmd_tune = {
    .name = "tune",
    .operands = "[OP...]",
    .summary = "Measure which variants and sizes are best on this device, and keep them",
    .details =
        "Each candidate is compiled, checked against the reference, and timed only if it is right. The best one and\n"
        "the model's choice then take turns. 'faster' says by how much, or 'model' where the model's choice is kept;\n"
        "'range' is where the ratio lies with 95 %: all of it must be above 1 for a change. Records go to\n"
        "$WARPDRIVE_TUNING_FILE or tuning.tune beside the cache, where every program of this user finds them. Trials\n"
        "are kept in a journal beside it: a run that was interrupted, killed or out of time goes on where it\n"
        "stopped. Ctrl-C keeps what is known; a second one does not wait.\n"
        "Exit code 130: it was interrupted.",
    .options = options,
    .run = run,
};
