/* SPDX-License-Identifier: MIT */
/* What `warpdrive bench` makes of times: verdicts, and the files that earlier runs left. No device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

/* ---- Samples ---- */

static uint64_t state = 1;

/* Knuth's MMIX generator: uniform in (0,1). */
static double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state >> 11) + 0.5) / 9007199254740992.0;
}

/* Times as a shared machine gives them: some spread, and now and then twice as long. */
static void make_samples(double *ns, size_t n, double typical, double spread)
{
    for (size_t i = 0; i < n; i++)
        ns[i] = typical * exp(spread * (uniform() + uniform() + uniform() - 1.5)) * (uniform() < 0.05 ? 2 : 1);
}

static enum verdict judge(const double *before, const double *now, size_t n, double drift)
{
    struct verdict_ratio r;
    return verdict_ratio(before, n, now, n, &r) ? verdict_of(&r, drift) : VERDICT_UNKNOWN;
}

static void verdict__identical_samples__same(void **unused)
{
    double a[VERDICT_SAMPLES];
    struct verdict_ratio r;
    (void)unused;
    make_samples(a, VERDICT_SAMPLES, 1e6, 0.1);
    assert_true(verdict_ratio(a, VERDICT_SAMPLES, a, VERDICT_SAMPLES, &r));
    assert_float_equal(r.ratio, 1, 1e-12);
    assert_true(r.low <= 1 && r.high >= 1);
    assert_int_equal(judge(a, a, VERDICT_SAMPLES, 1), VERDICT_SAME);
}

static void verdict__a_fifth_slower__slower_and_back_faster(void **unused)
{
    (void)unused;
    for (int trial = 0; trial < 200; trial++) {
        double a[VERDICT_SAMPLES], b[VERDICT_SAMPLES];
        make_samples(a, VERDICT_SAMPLES, 1e6, 0.05);
        make_samples(b, VERDICT_SAMPLES, 1.2e6, 0.05);
        assert_int_equal(judge(a, b, VERDICT_SAMPLES, 1), VERDICT_SLOWER);
        assert_int_equal(judge(b, a, VERDICT_SAMPLES, 1), VERDICT_FASTER);
        assert_int_equal(judge(a, b, VERDICT_SAMPLES, 1.3), VERDICT_SAME); /* the device itself became slower */
        assert_int_equal(judge(b, a, VERDICT_SAMPLES, 0.7), VERDICT_SAME);
    }
}

static void verdict__noise__same(void **unused)
{
    int wrong = 0;
    (void)unused;
    for (int trial = 0; trial < 2000; trial++) {
        double a[VERDICT_SAMPLES], b[VERDICT_SAMPLES];
        make_samples(a, VERDICT_SAMPLES, 1e6, 0.3);
        make_samples(b, VERDICT_SAMPLES, 1e6, 0.3);
        wrong += judge(a, b, VERDICT_SAMPLES, 1) != VERDICT_SAME;
    }
    assert_true(wrong <= 5); /* the interval alone would err in 20 */
}

/* The interval is what it says: of samples that differ by a factor it holds the factor in 99 of 100. */
static void verdict__interval__covers_99_percent(void **unused)
{
    static const size_t sizes[][2] = {{5, 5}, {7, 25}, {12, 9}, {25, 25}};
    (void)unused;
    for (size_t s = 0; s < WD_COUNT(sizes); s++) {
        int missed = 0;
        for (int trial = 0; trial < 4000; trial++) {
            double a[VERDICT_SAMPLES], b[VERDICT_SAMPLES];
            struct verdict_ratio r;
            make_samples(a, sizes[s][0], 1e6, 0.3);
            make_samples(b, sizes[s][1], 1.5e6, 0.3);
            assert_true(verdict_ratio(a, sizes[s][0], b, sizes[s][1], &r));
            missed += r.low > 1.5 || r.high < 1.5;
        }
        assert_true(missed <= 60); /* 40 expected at most, deviation 6.3 */
    }
}

/* The ranks are those of the printed tables of Mann and Whitney's statistic, two-sided 1 %: critical values 0 for 5 and
 * 5 samples, 7 for 8 and 8, 16 for 10 and 10, 105 for 20 and 20. */
static void verdict__ranks__are_those_of_the_tables(void **unused)
{
    static const struct {
        size_t n, critical;
    } rows[] = {{5, 0}, {8, 7}, {10, 16}, {20, 105}};
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(rows); i++) {
        const size_t n = rows[i].n, k = rows[i].critical + 1;
        double a[VERDICT_SAMPLES], b[VERDICT_SAMPLES];
        struct verdict_ratio r;
        for (size_t j = 0; j < n; j++) { /* the ratios are exp(0.001 i), i = 0 .. n n - 1, each once */
            a[j] = 1e6 * exp(-0.001 * (double)j);
            b[j] = 1e6 * exp(0.001 * (double)(n * j));
        }
        assert_true(verdict_ratio(a, n, b, n, &r));
        assert_float_equal(log(r.low) * 1000, (double)(k - 1), 1e-6);
        assert_float_equal(log(r.high) * 1000, (double)(n * n - k), 1e-6);
    }
}

static void verdict__few_samples__unknown(void **unused)
{
    const double a[4] = {1, 2, 3, 4}, b[4] = {100, 200, 300, 400};
    (void)unused;
    assert_int_equal(judge(a, b, 4, 1), VERDICT_UNKNOWN);
    assert_int_equal(judge(a, b, 0, 1), VERDICT_UNKNOWN);
}

/* ---- Files ---- */

static char path[] = "/tmp/test_bench_XXXXXX";

static void write_file(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

#define HEAD                                                                                                           \
    "{\"format\": \"warpdrive bench 1\", \"version\": \"0\", \"date\": \"\", \"device\": \"d\", \"driver\": \"1\",\n"  \
    "\"platform\": \"p\", \"copy_bytes_per_s\": 1e9, \"fma_flops_per_s\": 1e9, \"copy_samples\": [], "                 \
    "\"fma_samples\": [],\n"
#define CASE                                                                                                           \
    "{\"operation\": \"o\", \"shape\": \"s\", \"ok\": true, \"variant\": \"v\", \"choice\": \"v\", \"reason\": "       \
    "\"r\", "                                                                                                          \
    "\"bound\": \"math\",\n\"error\": 0, \"bytes\": 1, \"flops\": 1, \"floor_ns\": "

static void bench_read__broken_files__say_what_and_where(void **unused)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "line 1, column 0 (byte 0)"},
        {"not JSON\n", "line 1"},
        {"{\"format\": \"warpdrive bench 1\",\n \"version\" 3}\n", "line 2, column 12"},
        {HEAD "\"results\": [", "line 3"},
        {"[]", "\"format\" is missing"},
        {"{\"device\": \"d\"}", "\"format\" is missing"},
        {"{\"format\": \"warpdrive bench 99\"}", "\"format\" is \"warpdrive bench 99\""},
        {"{\"format\": 1}", "\"format\" is missing"},
        {"{\"format\": \"warpdrive bench 1\"}", "\"version\" is not a text"},
        {HEAD "\"results\": 3}", "\"results\" is not an array"},
        {HEAD "\"results\": [7]}", "result 1 is not an object"},
        {HEAD "\"results\": [" CASE "1, \"samples_ns\": [1]}, {}]}", "result 2: \"operation\" is not a text"},
        {HEAD "\"results\": [" CASE "0, \"samples_ns\": [1]}]}", "\"floor_ns\" is not a positive number"},
        {HEAD "\"results\": [" CASE "null, \"samples_ns\": [1]}]}", "\"floor_ns\" is not a number"},
        {HEAD "\"results\": [" CASE "1, \"samples_ns\": []}]}", "\"samples_ns\" is not an array with a number"},
        {HEAD "\"results\": [" CASE "1, \"samples_ns\": [1, \"x\"]}]}", "\"samples_ns\" is not an array of numbers"},
        {HEAD "\"results\": [" CASE "1, \"samples_ns\": [-1]}]}", "none negative"},
        {HEAD "\"results\": [" CASE "1, \"samples_ns\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}]}",
         "at most 25"},
    };
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(rows); i++) {
        struct bench_run run;
        write_file(rows[i].text, strlen(rows[i].text));
        assert_int_equal(bench_read(path, &run), WD_EINVAL);
        bench_free(&run);
        assert_non_null(strstr(wd_last_error(), path));
        if (!strstr(wd_last_error(), rows[i].says))
            fail_msg("'%s' says '%s', not '%s'", rows[i].text, wd_last_error(), rows[i].says);
    }
}

static void bench_read__no_such_file__eio(void **unused)
{
    struct bench_run run;
    (void)unused;
    assert_int_equal(bench_read("/nosuchfolder/file", &run), WD_EIO);
    assert_non_null(strstr(wd_last_error(), "/nosuchfolder/file"));
    bench_free(&run);
}

/* A run of `count` cases, `factor` as slow as written. */
static void make_run(struct bench_run *run, size_t count, double factor)
{
    *run = (struct bench_run){.version = "0.1", .date = "today", .device = "a \"device\" \xae", .driver = "1"};
    run->copy.per_s = 2e10;
    run->fma.per_s = 1e11;
    run->copy.samples = run->fma.samples = BENCH_SAMPLES;
    make_samples(run->copy.sample, BENCH_SAMPLES, 2e10, 0.01);
    make_samples(run->fma.sample, BENCH_SAMPLES, 1e11, 0.01);
    for (size_t i = 0; i < count; i++) {
        struct bench_case *c = bench_add(run);
        assert_non_null(c);
        snprintf(c->operation, sizeof c->operation, "operation_%zu", i / 3);
        snprintf(c->shape, sizeof c->shape, "n=%zu%s", i, i % 2 ? ",dtype=bf16" : "");
        snprintf(c->variant, sizeof c->variant, "plain");
        snprintf(c->choice, sizeof c->choice, "plain local=1");
        c->bytes = 1e6;
        c->flops = 1e6;
        c->samples = BENCH_SAMPLES;
        make_samples(c->sample_ns, BENCH_SAMPLES, 1e6 * factor, 0.05);
        bench_set_floor(c, run);
        bench_summarise(c);
    }
}

static void bench_write__read_again__the_same(void **unused)
{
    struct bench_run run, again;
    struct json json = {0};
    (void)unused;
    make_run(&run, 3, 1);
    run.cases[1].samples = 0;
    snprintf(run.cases[1].fault, BENCH_TEXT, "wrong \"here\"\n");
    bench_write(&json, &run, NULL);
    assert_false(json.text.failed);
    write_file(json.text.data, json.text.size);
    emit_drop(&json);
    assert_int_equal(bench_read(path, &again), WD_OK);
    assert_int_equal(again.count, 3);
    assert_string_equal(again.device, "a \"device\" \xef\xbf\xbd");
    assert_string_equal(again.cases[1].fault, run.cases[1].fault);
    assert_int_equal(again.cases[2].samples, BENCH_SAMPLES);
    for (size_t i = 0; i < BENCH_SAMPLES; i++)
        assert_float_equal(again.cases[2].sample_ns[i], run.cases[2].sample_ns[i], 0.01);
    assert_float_equal(again.cases[2].median_ns, run.cases[2].median_ns, 0.01);
    bench_free(&again);
    bench_free(&run);
}

/* ---- Comparing ---- */

static void bench_compare__some_slower_some_alone__each_in_its_place(void **unused)
{
    struct bench_run before, now;
    struct bench_comparison c;
    (void)unused;
    make_run(&before, 4, 1);
    make_run(&now, 4, 1);
    snprintf(now.cases[0].shape, SHAPE_TEXT, "n=new");
    memcpy(now.cases[1].sample_ns, before.cases[1].sample_ns, sizeof now.cases[1].sample_ns);
    for (size_t i = 0; i < BENCH_SAMPLES; i++) /* planted */
        now.cases[2].sample_ns[i] *= 1.2;
    now.cases[3].samples = 0;
    assert_int_equal(bench_compare(&before, "old.json", &now, &c), WD_OK);
    assert_int_equal(c.count, 5);
    assert_null(c.pair[0].before);
    assert_int_equal(c.pair[1].verdict, VERDICT_SAME);
    assert_int_equal(c.pair[2].verdict, VERDICT_SLOWER);
    assert_int_equal(c.pair[3].verdict, VERDICT_UNKNOWN);
    assert_ptr_equal(c.pair[4].before, &before.cases[0]);
    assert_null(c.pair[4].now);
    assert_int_equal(c.number[VERDICT_SLOWER], 1);
    assert_int_equal(c.number[VERDICT_SAME], 1);
    assert_int_equal(c.number[VERDICT_FASTER], 0);
    assert_int_equal(c.number[VERDICT_UNKNOWN], 1);
    bench_uncompare(&c);
    bench_free(&before);
    bench_free(&now);
}

static void bench_compare__slower_device__not_the_operation(void **unused)
{
    struct bench_run before, now;
    struct bench_comparison c;
    (void)unused;
    make_run(&before, 2, 1);
    make_run(&now, 2, 1.2);
    for (size_t i = 0; i < BENCH_SAMPLES; i++)
        now.copy.sample[i] /= 1.35;
    before.cases[1].memory_bound = now.cases[1].memory_bound = false;
    assert_int_equal(bench_compare(&before, "old.json", &now, &c), WD_OK);
    assert_true(c.copy_drift > 1.25 && c.fma_drift < 1.05);
    assert_int_equal(c.pair[0].verdict, VERDICT_SAME);
    assert_int_equal(c.pair[1].verdict, VERDICT_SLOWER);
    bench_uncompare(&c);
    bench_free(&before);
    bench_free(&now);
}

static void bench_compare__another_device__refused(void **unused)
{
    struct bench_run before, now;
    struct bench_comparison c;
    (void)unused;
    make_run(&before, 1, 1);
    make_run(&now, 1, 1);
    snprintf(now.device, BENCH_WORD, "another");
    assert_int_equal(bench_compare(&before, "old.json", &now, &c), WD_EINVAL);
    assert_non_null(strstr(wd_last_error(), "old.json is of another device"));
    bench_uncompare(&c);
    bench_free(&before);
    bench_free(&now);
}

/* ---- Charts ---- */

static void bench_plot__any_number_of_cases__a_whole_picture(void **unused)
{
    static const size_t counts[] = {0, 1, 2, 60};
    static char text[1 << 20];
    (void)unused;
    for (size_t i = 0; i < WD_COUNT(counts); i++) {
        struct bench_run run;
        make_run(&run, counts[i], 3);
        if (counts[i] > 2) {
            snprintf(run.cases[0].fault, BENCH_TEXT, "<wrong> & \xae\n");
            run.cases[0].samples = 0;
            memset(run.cases[1].shape, 'x', SHAPE_TEXT - 1); /* no comma to break it at */
            memset(run.cases[2].sample_ns, 0, sizeof run.cases[2].sample_ns);
            bench_summarise(&run.cases[2]);
        }
        assert_int_equal(bench_plot(&run, path), WD_OK);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        const size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[n] = '\0';
        assert_memory_equal(text, "<svg ", 5);
        assert_string_equal(text + n - 7, "</svg>\n");
        assert_null(strstr(text, "nan"));
        assert_null(strstr(text, "inf"));
        assert_null(strstr(text, "<wrong>"));
        for (size_t k = 1; k < counts[i]; k += 30)
            assert_non_null(strstr(text, run.cases[k].operation));
        assert_int_equal(bench_plot(&run, "/nosuchfolder/chart.svg"), WD_EIO);
        bench_free(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdict__identical_samples__same),
        cmocka_unit_test(verdict__a_fifth_slower__slower_and_back_faster),
        cmocka_unit_test(verdict__noise__same),
        cmocka_unit_test(verdict__interval__covers_99_percent),
        cmocka_unit_test(verdict__ranks__are_those_of_the_tables),
        cmocka_unit_test(verdict__few_samples__unknown),
        cmocka_unit_test(bench_read__broken_files__say_what_and_where),
        cmocka_unit_test(bench_read__no_such_file__eio),
        cmocka_unit_test(bench_write__read_again__the_same),
        cmocka_unit_test(bench_compare__some_slower_some_alone__each_in_its_place),
        cmocka_unit_test(bench_compare__slower_device__not_the_operation),
        cmocka_unit_test(bench_compare__another_device__refused),
        cmocka_unit_test(bench_plot__any_number_of_cases__a_whole_picture),
    };
    const int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
