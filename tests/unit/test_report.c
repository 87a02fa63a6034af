/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of failed requests: when they are printed, what they say, and that a program's failure stays what it was.
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "rig.h"

enum { TEXT_MOST = 1 << 20, FAILURES = 100 };

/* ---- what goes to standard error ---- */

static int kept = -1;
static FILE *caught;

static void catch_errors(void)
{
	fflush(stderr);
	caught = tmpfile();
	assert_non_null(caught);
	kept = dup(STDERR_FILENO);
	assert_true(dup2(fileno(caught), STDERR_FILENO) >= 0);
}

/* What has been printed since. */
static const char *end_catch(void)
{
	static char text[TEXT_MOST];
	dup2(kept, STDERR_FILENO);
	close(kept);
	rewind(caught);
	size_t size = fread(text, 1, sizeof text - 1, caught);
	text[size] = '\0';
	fclose(caught);
	return text;
}

static unsigned count(const char *text, const char *word)
{
	unsigned found = 0;
	for (const char *at = text; (at = strstr(at, word)); at++)
		found++;
	return found;
}

static NOINLINE trz_status run_out(struct rig *r, size_t size)
{
	void *p;
	trz_status status = trz_alloc(r->heap, size, 0, NULL, &p);
	assert_true(status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT);
	return status;
}

static void test_nobody_reads_it(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	int ends[2], error = dup(STDERR_FILENO);
	assert_int_equal(pipe(ends), 0);
	assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
	close(ends[0]);
	close(ends[1]);
	run_out(&r, GIB(2));  /* no signal ends us */
	dup2(error, STDERR_FILENO);
	close(error);
	rig_close(&r);
}

static void test_a_failure_is_reported_once(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_set_tag("kv");
	void *p = rig_alloc(&r, MIB(700), NULL);
	trz_set_tag(NULL);
	catch_errors();
	for (int i = 0; i < FAILURES; i++)
		run_out(&r, MIB(600) + (size_t)i);
	const char *text = end_catch();
	assert_int_equal(count(text, "terrazzo: out of memory, device 0"), 1);
	assert_ptr_equal(strstr(text, "terrazzo: out of memory"), text);
	assert_non_null(strstr(text, "\nverdict: full: "));
	assert_non_null(strstr(text, "\nremedy: "));
	assert_non_null(strstr(text, "tag kv"));
	assert_in_range(count(text, "\n"), 10, 59);
	catch_errors();
	volatile size_t more[] = {MIB(1200), MIB(600)};
	for (int i = 0; i < 2; i++)
		run_out(&r, more[i]);  /* another size, and the first one again */
	assert_int_equal(count(end_catch(), "terrazzo: out of memory"), 1);
	rig_free(&r, p);
	rig_close(&r);
}

static void test_the_error_is_as_without_a_report(void **state)
{
	(void)state;
	char texts[2][1024];
	for (int off = 0; off < 2; off++) {
		struct rig r = rig_open(GIB(1), off ? "oom_report:off" : NULL);
		catch_errors();
		assert_status(run_out(&r, MIB(1500)), TRZ_ERROR_OUT_OF_MEMORY);
		snprintf(texts[off], sizeof texts[off], "%s", trz_last_error());
		assert_int_equal(count(end_catch(), "verdict: too_large"), !off);
		rig_close(&r);
	}
	assert_string_equal(texts[0], texts[1]);
}

struct helper {
	struct rig *rig;
	void *held;
};

static bool free_held(void *user, const trz_oom_info *info)
{
	struct helper *helper = user;
	(void)info;
	rig_free(helper->rig, helper->held);
	return true;
}

static void test_a_recovered_failure_is_not_reported(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct helper helper = {&r, rig_alloc(&r, MIB(700), NULL)};
	assert_ok(trz_set_oom_callback(r.heap, free_held, &helper));
	catch_errors();
	void *p = rig_alloc(&r, MIB(600), NULL);
	assert_string_equal(end_catch(), "");
	rig_free(&r, p);
	rig_close(&r);
}

static void test_a_thread_holds_reports_back(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	catch_errors();
	trz_hold_reports(true);
	run_out(&r, MIB(1500));
	trz_hold_reports(false);
	assert_string_equal(end_catch(), "");
	catch_errors();
	trz_print_failure(r.heap);
	trz_print_failure(r.heap);
	trz_print_failure(NULL);
	assert_int_equal(count(end_catch(), "terrazzo: out of memory"), 1);
	rig_close(&r);
}

static void test_sixteen_reports_at_most(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(700), NULL);
	catch_errors();
	for (int bit = 29; bit < 47; bit++) {
		run_out(&r, (size_t)1 << bit);
		trz_set_tag("a tag makes no difference");
		run_out(&r, ((size_t)1 << bit) + 1);
		trz_set_tag(NULL);
	}
	assert_int_equal(count(end_catch(), "terrazzo: out of memory"), 16);
	rig_free(&r, p);
	rig_close(&r);
}

/* ---- by call ---- */

struct output {
	size_t size, most;
	char text[1 << 16];
};

static bool take(void *user, const char *text, size_t size)
{
	struct output *o = user;
	if (o->size + size > o->most)
		return false;
	memcpy(o->text + o->size, text, size);
	o->size += size;
	o->text[o->size] = '\0';
	return true;
}

static void test_by_call(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "oom_report:off");
	static struct output o;
	o = (struct output){.most = sizeof o.text - 1};
	assert_status(trz_report(r.heap, TRZ_REPORT_FAILURE, take, &o), TRZ_ERROR_NOT_FOUND);
	assert_ok(trz_report(r.heap, 0, take, &o));  /* a heap that nothing has been asked of */
	assert_non_null(strstr(o.text, "\n    left "));
	assert_null(strstr(o.text, "left                                        0 bytes"));
	assert_null(strstr(o.text, "would have done          0 bytes"));
	void *p = rig_alloc(&r, MIB(300), NULL);
	o.size = 0;
	assert_ok(trz_report(r.heap, 0, take, &o));
	assert_ptr_equal(strstr(o.text, "memory of device 0"), o.text);
	assert_non_null(strstr(o.text, "300.00 MiB allocated"));
	assert_in_range(count(o.text, "\n"), 5, 59);
	o.size = 0;
	run_out(&r, MIB(900));
	assert_ok(trz_report(r.heap, TRZ_REPORT_FAILURE | TRZ_REPORT_JSON, take, &o));
	assert_ptr_equal(strstr(o.text, "{\"verdict\":\"full\""), o.text);
	assert_non_null(strstr(o.text, "\"short_bytes\":"));
	o = (struct output){.most = 100};
	assert_status(trz_report(r.heap, TRZ_REPORT_FAILURE, take, &o), TRZ_ERROR_IO);
	assert_status(trz_report(r.heap, 4, take, &o), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_report(NULL, 0, take, &o), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_report(r.heap, 0, NULL, &o), TRZ_ERROR_INVALID_ARGUMENT);
	rig_free(&r, p);
	rig_close(&r);
}

static uint64_t name_stack(void *user)
{
	return *(const uint64_t *)user;
}

/* Stacks up to 30 are of activations, later ones of weights. */
static size_t tell_stack(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	(void)user;
	if (capacity)
		frames[0] = id <= 30 ? (trz_frame){.filename = "torch/nn/modules/module.py", .name = "_call_impl"}
		                     : (trz_frame){.filename = "torch/nn/parameter.py", .name = "__new__"};
	return capacity > 0;
}

/* Not of the largest sites alone: a model's weights come from many. */
static void test_categories_are_of_all_sites(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	static struct output o;
	void *held[70];
	uint64_t stack;
	o = (struct output){.most = sizeof o.text - 1};
	assert_ok(trz_set_site_callback(r.heap, name_stack, tell_stack, &stack));
	for (stack = 1; stack <= LENGTH(held); stack++)
		held[stack - 1] = rig_alloc(&r, stack <= 30 ? MIB(6) : MIB(4), NULL);
	assert_ok(trz_report(r.heap, 0, take, &o));
	assert_non_null(strstr(o.text, "180.00 MiB  52.9 %  activations\n"));
	assert_non_null(strstr(o.text, "160.00 MiB  47.1 %  weights\n"));
	assert_null(strstr(o.text, "unknown\n"));
	for (size_t i = 0; i < LENGTH(held); i++)
		rig_free(&r, held[i]);
	rig_close(&r);
}

static void test_another_heaps_failure_is_not_this_ones(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "oom_report:off");
	static struct output o;
	trz_heap *second = rig_second_heap(&r);
	run_out(&r, MIB(1500));
	assert_status(trz_report(second, TRZ_REPORT_FAILURE, take, &o), TRZ_ERROR_NOT_FOUND);
	assert_ok(trz_close(second));
	rig_close(&r);
}

/* A report that asks for another one, and fails inside. */
static bool report_again(void *user, const char *text, size_t size)
{
	struct rig *r = user;
	static struct output o;
	(void)text;
	(void)size;
	assert_status(trz_report(r->heap, 0, take, &o), TRZ_NOT_READY);
	run_out(r, MIB(1500));
	return true;
}

static void test_a_report_inside_a_report(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	catch_errors();
	assert_ok(trz_report(r.heap, 0, report_again, &r));
	assert_string_equal(end_catch(), "");
	rig_close(&r);
}

/* ---- verdicts ---- */

static const char *verdict_of(struct rig *r, size_t size, trz_stream stream)
{
	static struct output o;
	void *p;
	o = (struct output){.most = sizeof o.text - 1};
	assert_int_not_equal(trz_alloc(r->heap, size, 0, stream, &p), TRZ_OK);
	assert_ok(trz_report(r->heap, TRZ_REPORT_FAILURE | TRZ_REPORT_JSON, take, &o));
	return o.text;
}

static void test_the_limit(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), "oom_report:off,limit:1GiB");
	void *p = rig_alloc(&r, MIB(600), NULL);
	const char *text = verdict_of(&r, MIB(600), NULL);
	assert_non_null(strstr(text, "{\"verdict\":\"limit\""));
	assert_non_null(strstr(text, "\"short_bytes\":184549376"));  /* 600 + 600 - 1024 MiB */
	rig_free(&r, p);
	rig_close(&r);
}

static void test_another_process(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(8), "oom_report:off");
	trz_heap *other = rig_second_heap(&r);
	void *p, *q = rig_alloc(&r, GIB(2), NULL);
	assert_ok(trz_alloc(other, GIB(4), 0, NULL, &p));
	assert_non_null(strstr(verdict_of(&r, GIB(3), NULL), "{\"verdict\":\"other_process\""));
	assert_ok(trz_free(other, p));
	assert_ok(trz_close(other));
	rig_free(&r, q);
	rig_close(&r);
}

/* Live blocks hold every tile, and half of the memory is free. */
static void test_fragments(void **state)
{
	(void)state;
	enum { BLOCKS = 320 };
	struct rig r = rig_open(MIB(480), "oom_report:off");
	void *held[BLOCKS];
	for (int i = 0; i < BLOCKS; i++)
		held[i] = rig_alloc(&r, KIB(1536), NULL);
	for (int i = 0; i < BLOCKS; i += 2)
		rig_free(&r, held[i]);
	const char *text = verdict_of(&r, MIB(64), NULL);
	assert_non_null(strstr(text, "{\"verdict\":\"fragmented\""));
	assert_non_null(strstr(text, "\"free_partly\":251658240"));  /* half of it */
	for (int i = 1; i < BLOCKS; i += 2)
		rig_free(&r, held[i]);
	rig_close(&r);
}

/* A stream's unfinished work keeps what it has freed; the heap may not wait. */
static void test_another_stream(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "oom_report:off,wait:off");
	trz_stream other = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(700), other);
	assert_ok(sim_stamp(r.s, r.c, other, (trz_addr)p, MIB(700), 1));
	rig_free(&r, p);
	assert_non_null(strstr(verdict_of(&r, MIB(600), NULL), "{\"verdict\":\"other_stream\""));
	rig_sync(&r);
	rig_close(&r);
}

/* ---- threads ---- */

static void *fail_often(void *arg)
{
	struct rig *r = arg;
	for (size_t i = 0; i < FAILURES; i++)
		run_out(r, MIB(1500) << i % 8);
	return NULL;
}

/* No report is cut off by another. */
static void test_threads_that_fail_at_once(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	pthread_t threads[4];
	catch_errors();
	for (size_t i = 0; i < LENGTH(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, fail_often, &r), 0);
	for (size_t i = 0; i < LENGTH(threads); i++)
		pthread_join(threads[i], NULL);
	const char *text = end_catch();
	unsigned reports = 0;
	for (const char *at = text; *at; reports++) {
		assert_ptr_equal(strstr(at, "terrazzo: out of memory"), at);
		at = strstr(at, "\nsource: process ");
		assert_non_null(at);
		at = strchr(at + 1, '\n') + 1;
	}
	assert_in_range(reports, 1, 8);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_failure_is_reported_once),
		cmocka_unit_test(test_nobody_reads_it),
		cmocka_unit_test(test_the_error_is_as_without_a_report),
		cmocka_unit_test(test_a_recovered_failure_is_not_reported),
		cmocka_unit_test(test_a_thread_holds_reports_back),
		cmocka_unit_test(test_sixteen_reports_at_most),
		cmocka_unit_test(test_by_call),
		cmocka_unit_test(test_categories_are_of_all_sites),
		cmocka_unit_test(test_another_heaps_failure_is_not_this_ones),
		cmocka_unit_test(test_a_report_inside_a_report),
		cmocka_unit_test(test_the_limit),
		cmocka_unit_test(test_another_process),
		cmocka_unit_test(test_fragments),
		cmocka_unit_test(test_another_stream),
		cmocka_unit_test(test_threads_that_fail_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
