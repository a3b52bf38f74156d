/* SPDX-License-Identifier: MIT */
/* Tuning records without a device: text, files, and which of them speaks for a call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file.h"
#include "tuning.h"

/* ---- A device and an operation of the tests' own ---- */

static const struct wd_caps caps = {
    .name = "Test Device 9",
    .driver = "1.2",
    .kind = "other",
    .arch = "t9",
    .max_group = 256,
    .max_local = {256, 128, 64},
    .local_bytes = 32768,
};

static const struct wd_dim_desc dims[] = {{"n", WD_DERIVED, WD_DIM_FIXED}};
static const struct wd_tensor_desc tensors[] = {
    {"x", 0, WD_IN, false, true, WD_TYPES_DATA, WD_F32, WD_FILL_NORMAL, {{1, {0}}}}};

enum { LOCAL, TALL };
static const struct wd_param params[] = {
    {"local", (const int[]){32, 64, 128, 0}}, {"tall", (const int[]){1, 2, 0}}, {NULL, NULL}};

static void model(const struct wd_caps *c, const struct wd_problem *p, int *param)
{
    (void)p;
    param[LOCAL] = (int)c->max_group;
    param[TALL] = 1;
}

static bool valid(const struct wd_caps *c, const struct wd_problem *p, const int *param)
{
    (void)c;
    (void)p;
    return param[LOCAL] % 32 == 0;
}

static void grid(const struct wd_caps *c, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)c;
    (void)p;
    *g = (struct wd_grid){2, {(size_t)param[LOCAL], (size_t)param[TALL], 1}, {1, 1, 1}};
}

static void plain_grid(const struct wd_caps *c, const struct wd_problem *p, const int *param, struct wd_grid *g)
{
    (void)c;
    (void)p;
    (void)param;
    *g = (struct wd_grid){1, {1, 1, 1}, {1, 1, 1}};
}

static const char *odd_refuse(const struct wd_caps *c, const struct wd_problem *p)
{
    (void)c;
    return p->dim[0] % 2 ? NULL : "n is even";
}

static const struct wd_variant odd = {.name = "odd", .refuse = odd_refuse, .grid = plain_grid};
static const struct wd_variant wide = {.name = "wide", .params = params, .model = model, .valid = valid, .grid = grid};
static const struct wd_variant plain = {.name = "plain", .grid = plain_grid};
static const struct wd_variant *const variants[] = {&odd, &wide, &plain, NULL};

static unsigned one_size(const struct wd_problem *p)
{
    (void)p;
    return 7;
}

/* Records name known operations only, so it goes by the name of one. */
static const struct wd_op op = {.name = "fp8_quant",
                                .dims = dims,
                                .num_dims = 1,
                                .tensors = tensors,
                                .num_tensors = 1,
                                .layout = -1,
                                .variants = variants,
                                .size_class = one_size};

static const struct wd_problem problem = {
    .op = &op, .dim = {64}, .tensor = {{.dtype = WD_F32, .present = true}}, .vec = 16};

/* ---- Log ---- */

static char told[4096];

static void keep(void *user, wd_log_level level, const char *line)
{
    (void)user;
    (void)level;
    const size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, "%s\n", line);
}

static const struct wd_log log_all = {.fn = keep};

static int forget_log(void **state)
{
    (void)state;
    told[0] = '\0';
    return 0;
}

static void assert_told(const char *text)
{
    if (!strstr(told, text))
        fail_msg("'%s' is not in the log:\n%s", text, told);
}

/* ---- Text ---- */

static void words_find__quoted_values__keep_their_blanks(void **state)
{
    const char *v;
    (void)state;
    const char *words = "kind=pocl device=\"An Odd = Name\" driver=\"3.1\" x=";
    assert_int_equal(wd_words_find(words, "device", &v), 13);
    assert_memory_equal(v, "An Odd = Name", 13);
    assert_int_equal(wd_words_find(words, "driver", &v), 3);
    assert_int_equal(wd_words_find(words, "kind", &v), 4);
    assert_int_equal(wd_words_find(words, "x", &v), 0);
    assert_int_equal(wd_words_find(words, "Odd", &v), -1);
    assert_int_equal(wd_words_find(words, "ind", &v), -1);
    assert_int_equal(wd_words_find("", "x", &v), -1);
}

static void class_text__a_problem__says_what_macros_depend_on(void **state)
{
    struct wd_text text = {0};
    (void)state;
    wd_class_text(&problem, &text);
    assert_string_equal(text.data, "x=f32 n=64 vec=16 size=7");
    wd_text_free(&text);
}

static void parse__five_fields__are_read(void **state)
{
    struct wd_records r;
    (void)state;
    assert_int_equal(wd_records_parse(&r, "t",
                                      "# comment\n\nfp8_quant\tarch=t9\tn=64\twide local=32 tall=1\t# fast\r\n  \n"
                                      "fp8_quant\t*\t*\tplain",
                                      &log_all),
                     WD_OK);
    assert_int_equal(r.count, 2);
    assert_string_equal(r.record[0].op, "fp8_quant");
    assert_string_equal(r.record[0].device, "arch=t9");
    assert_string_equal(r.record[0].class_, "n=64");
    assert_string_equal(r.record[0].choice, "wide local=32 tall=1");
    assert_string_equal(r.record[0].note, "# fast");
    assert_int_equal(r.record[0].number, 3);
    assert_string_equal(r.record[1].note, "");
    assert_int_equal(r.record[1].number, 5);
    assert_string_equal(told, "");
    wd_records_free(&r);
}

static void parse__broken_lines__are_skipped_with_their_numbers(void **state)
{
    static const char *const broken[][2] = {
        {"fp8_quant", "fewer than four fields"},
        {"fp8_quant\t*\t*", "fewer than four fields"},
        {"fp8_quant\t\t*\tplain", "fewer than four fields"},
        {"fp8_quant *  * plain", "fewer than four fields"},
        {"fp9_quant\t*\t*\tplain", "an unknown operation"},
        {"fp8_quant\tcolour=red\t*\tplain", "an unknown word for a device"},
        {"fp8_quant\tt9\t*\tplain", "an unknown word for a device"},
        {"\x01\xff\t\t\t\t\t", "fewer than four fields"},
    };
    (void)state;
    for (size_t i = 0; i < WD_COUNT(broken); i++) {
        struct wd_records r;
        char text[256];
        snprintf(text, sizeof text, "# one\n%s\nfp8_quant\t*\t*\tplain\n", broken[i][0]);
        told[0] = '\0';
        assert_int_equal(wd_records_parse(&r, "the file", text, &log_all), WD_OK);
        assert_int_equal(r.count, 1);
        assert_told("the file line 2 is skipped");
        assert_told(broken[i][1]);
        wd_records_free(&r);
    }
}

/* ---- Files ---- */

static char place[256];

static int make_place(void **state)
{
    (void)state;
    snprintf(place, sizeof place, "%s/wd-tuning-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(place) ? 0 : -1;
}

static int remove_place(void **state)
{
    char command[300];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", place);
    return system(command);
}

static const char *path_of(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", place, name);
    return path;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void assert_contents(const char *path, const char *text)
{
    char *got;
    assert_int_equal(wd_file_read(path, &got), WD_OK);
    assert_non_null(got);
    assert_string_equal(got, text);
    free(got);
}

static const struct wd_record record = {
    .op = "fp8_quant", .device = "device=\"D 1\" driver=\"2\"", .class_ = "n=64", .choice = "plain", .note = "# 1 us"};

static void save__no_file__makes_one_that_reads_back(void **state)
{
    char *text;
    struct wd_records r;
    (void)state;
    assert_int_equal(wd_records_save(path_of("new.tune"), &record), WD_OK);
    assert_int_equal(wd_file_read(path_of("new.tune"), &text), WD_OK);
    assert_int_equal(wd_records_parse(&r, "t", text, &log_all), WD_OK);
    assert_int_equal(r.count, 1);
    assert_string_equal(r.record[0].op, record.op);
    assert_string_equal(r.record[0].device, record.device);
    assert_string_equal(r.record[0].class_, record.class_);
    assert_string_equal(r.record[0].choice, record.choice);
    assert_string_equal(r.record[0].note, record.note);
    assert_string_equal(told, "");
    wd_records_free(&r);
    free(text);
}

static void save__other_lines__stay_as_they_are(void **state)
{
    (void)state;
    const char *path = path_of("mixed.tune");
    write_text(path, "# mine\r\n\nnonsense\nfp8_quant\tdevice=\"D 1\" driver=\"2\"\tn=64\twide local=32 tall=1\t# old\n"
                     "fp8_quant\tdevice=\"D 1\" driver=\"2\"\tn=640\tplain\nfp8_quant\t*\tn=64\tplain # no end");
    assert_int_equal(wd_records_save(path, &record), WD_OK);
    assert_contents(path, "# mine\r\n\nnonsense\nfp8_quant\tdevice=\"D 1\" driver=\"2\"\tn=64\tplain\t# 1 us\n"
                          "fp8_quant\tdevice=\"D 1\" driver=\"2\"\tn=640\tplain\nfp8_quant\t*\tn=64\tplain # no end\n");
}

static void save__a_link__replaces_the_file_behind_it(void **state)
{
    char target[300];
    (void)state;
    snprintf(target, sizeof target, "%s", path_of("target.tune"));
    write_text(target, "# kept\n");
    assert_int_equal(symlink(target, path_of("link.tune")), 0);
    assert_int_equal(wd_records_save(path_of("link.tune"), &record), WD_OK);
    assert_contents(target, "# kept\nfp8_quant\tdevice=\"D 1\" driver=\"2\"\tn=64\tplain\t# 1 us\n");
    assert_int_equal(readlink(path_of("link.tune"), target, sizeof target) > 0, 1);
}

static void save__no_directory__is_an_error(void **state)
{
    (void)state;
    assert_int_equal(wd_records_save(path_of("none/such.tune"), &record), WD_EIO);
}

/* Many processes at once, as the ranks of a parallel program: no record is lost. */
static void save__many_processes__lose_nothing(void **state)
{
    enum { PROCESSES = 8, RECORDS = 12 };
    char *text;
    struct wd_records r;
    (void)state;
    const char *path = path_of("shared.tune");
    for (int i = 0; i < PROCESSES; i++)
        if (fork() == 0) {
            int bad = 0;
            for (int k = 0; k < RECORDS; k++) {
                char class_text[32];
                struct wd_record mine = record;
                snprintf(class_text, sizeof class_text, "n=%d", i * 100 + k);
                mine.class_ = class_text;
                bad |= wd_records_save(path, &mine) != WD_OK;
            }
            _exit(bad);
        }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 1;
        wait(&status);
        assert_int_equal(status, 0);
    }
    assert_int_equal(wd_file_read(path, &text), WD_OK);
    assert_int_equal(wd_records_parse(&r, "t", text, &log_all), WD_OK);
    assert_int_equal(r.count, PROCESSES * RECORDS);
    wd_records_free(&r);
    free(text);
    assert_int_equal(access(path_of("shared.tune.new"), F_OK), -1);
}

/* ---- Who speaks ---- */

struct question {
    const char *user, *shipped; /* a record a line, without "fp8_quant\t" */
    const char *choice;         /* the first one */
    enum wd_origin source;
    const char *log; /* what the log must hold; NULL: nothing at all */
};

static void parse_records(struct wd_records *r, const char *name, const char *lines)
{
    struct wd_text text = {0};
    wd_text_add(&text, "%s", "");
    while (lines && *lines) {
        const size_t n = strcspn(lines, "\n");
        wd_text_add(&text, "fp8_quant\t%.*s\n", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
    assert_int_equal(wd_records_parse(r, name, text.data, &log_all), WD_OK);
    wd_text_free(&text);
}

static void ask(const struct question *q)
{
    struct wd_tuning tuning = {.caps = &caps, .log = &log_all};
    struct wd_choice choice[WD_MAX_CHOICES];
    struct wd_text text = {0}, refusals = {0};
    told[0] = '\0';
    parse_records(&tuning.user, "user file", q->user);
    parse_records(&tuning.shipped, "shipped", q->shipped);
    const size_t n = wd_tuning_choices(&tuning, &problem, choice, &refusals);
    assert_true(n > 0);
    wd_choice_text(&choice[0], &text);
    assert_string_equal(text.data, q->choice);
    assert_int_equal(choice[0].source, q->source);
    if (q->log)
        assert_told(q->log);
    else
        assert_string_equal(told, "");
    if (q->log)
        assert_non_null(refusals.data);
    assert_string_equal(choice[n - 1].variant->name, "plain"); /* what is always there in the end */
    wd_text_free(&text);
    wd_text_free(&refusals);
    wd_tuning_fini(&tuning);
}

#define WIDE(local) "wide local=" #local " tall=1"

static void choices__by_precedence(void **state)
{
    static const struct question questions[] = {
        {NULL, NULL, WIDE(256), WD_FROM_MODEL, NULL},
        {"*\t*\t" WIDE(32), NULL, WIDE(32), WD_FROM_USER, NULL},
        {NULL, "*\t*\t" WIDE(32), WIDE(32), WD_FROM_SHIPPED, NULL},
        {"*\t*\t" WIDE(32), "device=\"Test Device 9\" driver=\"1.2\"\tn=64\t" WIDE(64), WIDE(32), WD_FROM_USER, NULL},
        /* the more exact device, wherever it stands */
        {"type=gpu\t*\t" WIDE(32) "\n*\t*\t" WIDE(64), NULL, WIDE(32), WD_FROM_USER, NULL},
        {"*\t*\t" WIDE(64) "\nkind=other\t*\t" WIDE(32), NULL, WIDE(32), WD_FROM_USER, NULL},
        {"arch=t9\t*\t" WIDE(32) "\nkind=other\tn=64\t" WIDE(64), NULL, WIDE(32), WD_FROM_USER, NULL},
        {"device=\"Test Device 9\"\t*\t" WIDE(32) "\nkind=other arch=t9\tn=64\t" WIDE(64), NULL, WIDE(32), WD_FROM_USER,
         NULL},
        {"device=\"Test Device 9\" driver=\"1.2\"\t*\t" WIDE(32) "\ndevice=\"Test Device 9\"\tn=64\t" WIDE(64), NULL,
         WIDE(32), WD_FROM_USER, NULL},
        /* then the one that says more of the class, then the later line */
        {"arch=t9\tn=64 x=f32\t" WIDE(32) "\narch=t9\tn=64\t" WIDE(64), NULL, WIDE(32), WD_FROM_USER, NULL},
        {"arch=t9\tn=64\t" WIDE(64) "\narch=t9\tn=64\t" WIDE(32), NULL, WIDE(32), WD_FROM_USER, NULL},
        /* others' records */
        {"arch=t8\t*\t" WIDE(32), NULL, WIDE(256), WD_FROM_MODEL, NULL},
        {"arch=t9 kind=amd\t*\t" WIDE(32), NULL, WIDE(256), WD_FROM_MODEL, NULL},
        {"type=cpu\t*\t" WIDE(32), NULL, WIDE(256), WD_FROM_MODEL, NULL},
        {"device=\"Test Device\"\t*\t" WIDE(32), NULL, WIDE(256), WD_FROM_MODEL, NULL},
        {"device=\"Other\" driver=\"1.2\"\t*\t" WIDE(32), NULL, WIDE(256), WD_FROM_MODEL, NULL},
        {"*\tn=65\t" WIDE(32), NULL, WIDE(256), WD_FROM_MODEL, NULL},
        {"*\tn=64 size=8\t" WIDE(32), NULL, WIDE(256), WD_FROM_MODEL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < WD_COUNT(questions); i++)
        ask(&questions[i]);
}

static void choices__records_that_do_not_fit__are_passed_over(void **state)
{
    static const struct question questions[] = {
        {"device=\"Test Device 9\" driver=\"1.1\"\t*\t" WIDE(32), NULL, WIDE(256), WD_FROM_MODEL,
         "user file line 1 is passed over: it was measured with another driver"},
        {"device=\"Test Device 9\" driver=\"1.1\"\t*\t" WIDE(32), "*\t*\t" WIDE(64), WIDE(64), WD_FROM_SHIPPED,
         "another driver"},
        {"*\t*\t" WIDE(64) "\narch=t9\t*\t" WIDE(512), NULL, WIDE(64), WD_FROM_USER,
         "user file line 2 is passed over: its work-group is longer in one dimension"},
        {NULL, "*\t*\twide local=256 tall=2", WIDE(256), WD_FROM_MODEL,
         "shipped line 1 is passed over: its work-group is larger than the device allows"},
        {"*\t*\twide local=32 tall=129", NULL, WIDE(256), WD_FROM_MODEL, "longer in one dimension"},
        {"*\t*\t" WIDE(33), NULL, WIDE(256), WD_FROM_MODEL, "its numbers do not fit"},
        {"*\t*\todd", NULL, WIDE(256), WD_FROM_MODEL, "n is even"},
        {"*\t*\tvast", NULL, WIDE(256), WD_FROM_MODEL, "an unknown variant"},
        {"*\t*\twide local=32", NULL, WIDE(256), WD_FROM_MODEL, "lacks a parameter"},
        {"*\t*\twide local=-32 tall=1", NULL, WIDE(256), WD_FROM_MODEL, "not a positive number"},
        {"*\t*\twide local=99999999999999999999 tall=1", NULL, WIDE(256), WD_FROM_MODEL, "not a positive number"},
        {"*\t*\twide local=x tall=1", NULL, WIDE(256), WD_FROM_MODEL, "not a positive number"},
    };
    (void)state;
    for (size_t i = 0; i < WD_COUNT(questions); i++)
        ask(&questions[i]);
}

static void choices__every_variant_refuses__there_is_none(void **state)
{
    static const struct wd_variant *const only_odd[] = {&odd, NULL};
    struct wd_op refusing = op;
    struct wd_problem p = problem;
    struct wd_tuning tuning = {.caps = &caps, .log = &log_all};
    struct wd_choice choice[WD_MAX_CHOICES];
    struct wd_text refusals = {0};
    (void)state;
    refusing.variants = only_odd;
    p.op = &refusing;
    assert_int_equal(wd_tuning_choices(&tuning, &p, choice, &refusals), 0);
    assert_string_equal(refusals.data, "odd: n is even\n");
    wd_text_free(&refusals);
}

static void choice_fault__limits__are_exact(void **state)
{
    static const struct {
        int local, tall;
        bool fits;
    } cases[] = {{32, 1, true},   {256, 1, true},  {128, 2, true}, {2, 1, false},
                 {288, 1, false}, {128, 3, false}, {32, 8, true},  {32, 9, false}};
    (void)state;
    for (size_t i = 0; i < WD_COUNT(cases); i++) {
        const struct wd_choice c = {.variant = &wide, .param = {cases[i].local, cases[i].tall}};
        assert_int_equal(wd_choice_fault(&caps, &problem, &c) == NULL, cases[i].fits);
    }
}

static void init__a_file_that_cannot_be_read__is_told_and_no_more(void **state)
{
    struct wd_tuning tuning;
    (void)state;
    assert_int_equal(wd_tuning_init(&tuning, &caps, path_of(""), &log_all), WD_OK); /* a directory */
    assert_int_equal(tuning.user.count, 0);
    assert_told("tuning: ");
    wd_tuning_fini(&tuning);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, forget_log)
    const struct CMUnitTest tests[] = {
        TEST(words_find__quoted_values__keep_their_blanks),
        TEST(class_text__a_problem__says_what_macros_depend_on),
        TEST(parse__five_fields__are_read),
        TEST(parse__broken_lines__are_skipped_with_their_numbers),
        TEST(save__no_file__makes_one_that_reads_back),
        TEST(save__other_lines__stay_as_they_are),
        TEST(save__a_link__replaces_the_file_behind_it),
        TEST(save__no_directory__is_an_error),
        TEST(save__many_processes__lose_nothing),
        TEST(choices__by_precedence),
        TEST(choices__records_that_do_not_fit__are_passed_over),
        TEST(choices__every_variant_refuses__there_is_none),
        TEST(choice_fault__limits__are_exact),
        TEST(init__a_file_that_cannot_be_read__is_told_and_no_more),
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
