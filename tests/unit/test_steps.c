/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that a program tells its heap: which call sites leak, when memory will run out, and warnings.
 */
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "rig.h"
#include "testing.h"

enum { GROWN_MAX = 8, SEEN_MAX = 32 };

struct seen {
	trz_warning_info list[SEEN_MAX];
	unsigned count;
	trz_heap *heap;
};

static void note(void *user, const trz_warning_info *info)
{
	struct seen *s = user;
	assert_true(s->count < SEEN_MAX);
	s->list[s->count++] = *info;
	void *p;
	assert_ok(trz_alloc(s->heap, KIB(4), 0, NULL, &p));  /* no lock is held */
	assert_ok(trz_free(s->heap, p));
}

static unsigned times(const struct seen *s, trz_warning warning)
{
	unsigned n = 0;
	for (unsigned i = 0; i < s->count; i++)
		n += s->list[i].warning == warning;
	return n;
}

/* One step of training: activations come and go, and `leak` bytes stay. */
static void *train(struct rig *r, size_t leak)
{
	void *activations[4], *kept = NULL;
	for (int i = 0; i < 4; i++)
		activations[i] = rig_alloc(r, MIB(64), NULL);
	if (leak) {
		trz_set_tag("leak");
		kept = rig_alloc(r, leak, NULL);
		trz_set_tag(NULL);
	}
	for (int i = 0; i < 4; i++)
		rig_free(r, activations[i]);
	assert_ok(trz_step(r->heap));
	return kept;
}

static void test_a_leak_is_named_with_its_tag_and_site(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(8), NULL);
	struct seen seen = {.heap = r.heap};
	void *weights = rig_alloc(&r, GIB(1), NULL), *kept[201];
	trz_growth_info g[GROWN_MAX];
	trz_frame frame;
	size_t count, levels;
	assert_ok(trz_set_warning_callback(r.heap, note, &seen));
	for (int i = 0; i < 201; i++)
		kept[i] = train(&r, MIB(5));
	assert_ok(trz_growth(r.heap, g, GROWN_MAX, &count));
	assert_int_equal(count, 1);
	assert_true(g[0].suspect);
	assert_string_equal(g[0].tag, "leak");
	assert_true(g[0].bytes_per_step > 0.99 * MIB(5) && g[0].bytes_per_step < 1.01 * MIB(5));
	assert_int_equal(g[0].live, 201 * MIB(5));
	assert_true(g[0].since_step <= 10);
	assert_ok(trz_site_frames(r.heap, g[0].stack, &frame, 1, &levels));
	assert_int_equal(levels, 1);
	assert_int_equal(times(&seen, TRZ_WARNING_GROWTH), 1);
	assert_int_equal(seen.list[0].growth.site, g[0].site);
	rig_free(&r, weights);
	for (int i = 0; i < 201; i++)
		rig_free(&r, kept[i]);
	rig_sync(&r);
	rig_close(&r);
}

static uint64_t stack_of_leak(void *number)
{
	return *(uint64_t *)number;
}

/* A step in which the sites from `first` up to `last` leak. */
static void leak_at(struct rig *r, uint64_t *site, uint64_t first, uint64_t last, void **kept)
{
	size_t count = 0;
	for (*site = first; *site <= last; ++*site)
		kept[count++] = rig_alloc(r, MIB(2), NULL);
	*site = 100;
	rig_free(r, rig_alloc(r, MIB(64), NULL));
	assert_ok(trz_step(r->heap));
}

/* A program may fix, or end, more leaks than the heap remembers at a time. */
static void test_each_of_many_leaks_is_named_once(void **state)
{
	(void)state;
	enum { STEPS = 201, AT_ONCE = 8, THEN = 3 };
	struct rig r = rig_open(GIB(8), NULL);
	struct seen seen = {.heap = r.heap};
	uint64_t site = 100;
	static void *kept[STEPS][AT_ONCE], *then[STEPS][THEN];
	assert_ok(trz_set_site_callback(r.heap, stack_of_leak, NULL, &site));
	assert_ok(trz_set_warning_callback(r.heap, note, &seen));
	for (int i = 0; i < STEPS; i++)
		leak_at(&r, &site, 1, AT_ONCE, kept[i]);
	assert_int_equal(times(&seen, TRZ_WARNING_GROWTH), AT_ONCE);
	for (int i = 0; i < STEPS; i++)
		for (int k = 0; k < AT_ONCE; k++)
			rig_free(&r, kept[i][k]);
	for (int i = 0; i < STEPS; i++)
		leak_at(&r, &site, AT_ONCE + 1, AT_ONCE + THEN, then[i]);
	assert_int_equal(times(&seen, TRZ_WARNING_GROWTH), AT_ONCE + THEN);
	rig_close(&r);
}

/* 8 GiB, 1 for weights and a quarter for activations: 5 MiB a step last for 1,382 steps. */
static void test_the_forecast_holds(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(8), NULL);
	trz_forecast_info f;
	int steps = 0;
	void *p = rig_alloc(&r, GIB(1), NULL);
	assert_error(trz_forecast(r.heap, &f), TRZ_ERROR_NOT_FOUND, "call trz_step");
	for (; steps < 200; steps++)
		train(&r, MIB(5));
	assert_ok(trz_forecast(r.heap, &f));
	assert_true(f.seconds > 0 && f.seconds_low <= f.seconds && f.seconds <= f.seconds_high);
	trz_status status = TRZ_OK;
	int from = steps;
	for (; status == TRZ_OK; steps++) {
		void *activations = NULL;
		status = trz_alloc(r.heap, MIB(256), 0, NULL, &activations);
		assert_ok(trz_free(r.heap, activations));
		if (status == TRZ_OK)
			status = trz_alloc(r.heap, MIB(5), 0, NULL, &p);
		assert_ok(trz_step(r.heap));
	}
	assert_true(f.steps_low <= steps - from && steps - from <= f.steps_high);
	assert_true(f.steps_high - f.steps_low < (steps - from) / 2.0);
	rig_sync(&r);
	rig_close(&r);
}

static void test_a_program_that_repeats_does_not_grow(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(8), NULL);
	struct seen seen = {.heap = r.heap};
	trz_growth_info g;
	size_t count = 1;
	assert_ok(trz_growth(r.heap, &g, 1, &count));
	assert_int_equal(count, 0);
	assert_ok(trz_set_warning_callback(r.heap, note, &seen));
	for (int i = 0; i < 300; i++)
		train(&r, 0);
	assert_ok(trz_growth(r.heap, &g, 1, &count));
	assert_int_equal(count, 0);
	assert_int_equal(seen.count, 0);
	rig_sync(&r);
	rig_close(&r);
}

static void test_nine_tenths_of_the_limit_are_worth_a_warning(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(8), NULL);
	struct seen seen = {.heap = r.heap};
	assert_ok(trz_set_limit(r.heap, GIB(2)));
	assert_ok(trz_set_warning_callback(r.heap, note, &seen));
	void *most = rig_alloc(&r, GIB(1), NULL), *last = rig_alloc(&r, MIB(800), NULL);
	assert_int_equal(seen.count, 0);
	void *more = rig_alloc(&r, MIB(64), NULL);
	assert_int_equal(times(&seen, TRZ_WARNING_FULL), 1);
	assert_true(seen.list[0].share > 0.9 && seen.list[0].room == GIB(2));
	void *again = rig_alloc(&r, MIB(64), NULL);
	assert_int_equal(seen.count, 1);  /* once, until it has been lower */
	rig_free(&r, last);
	assert_ok(trz_poll(r.heap));
	last = rig_alloc(&r, MIB(800), NULL);
	assert_ok(trz_poll(r.heap));
	assert_int_equal(times(&seen, TRZ_WARNING_FULL), 2);
	assert_ok(trz_set_warning_callback(r.heap, NULL, NULL));
	rig_free(&r, last);
	assert_ok(trz_poll(r.heap));
	rig_free(&r, most);
	rig_free(&r, more);
	rig_free(&r, again);
	assert_int_equal(seen.count, 2);
	rig_sync(&r);
	rig_close(&r);
}

/* Two streams that never give each other anything: what one has freed is lost to the other, until it needs it. */
static void test_fragmentation_is_worth_two_warnings(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(8), "vmm:off");
	struct seen seen = {.heap = r.heap};
	void *kept[16], *freed[16];
	for (int i = 0; i < 16; i++) {
		kept[i] = rig_alloc(&r, MIB(192), NULL);
		freed[i] = rig_alloc(&r, MIB(64), NULL);
	}
	assert_ok(trz_set_warning_callback(r.heap, note, &seen));
	assert_ok(trz_step(r.heap));
	assert_int_equal(seen.count, 0);
	for (int i = 0; i < 16; i++)
		rig_free(&r, freed[i]);
	assert_ok(trz_poll(r.heap));
	assert_int_equal(times(&seen, TRZ_WARNING_FRAGMENTED), 0);  /* the newest step had all of it */
	assert_ok(trz_step(r.heap));
	assert_int_equal(times(&seen, TRZ_WARNING_FRAGMENTED), 1);
	assert_int_equal(times(&seen, TRZ_WARNING_VERY_FRAGMENTED), 0);
	rig_free(&r, kept[0]);
	rig_free(&r, kept[1]);
	assert_ok(trz_step(r.heap));
	assert_int_equal(times(&seen, TRZ_WARNING_FRAGMENTED), 1);
	assert_int_equal(times(&seen, TRZ_WARNING_VERY_FRAGMENTED), 1);
	assert_true(seen.list[1].share > 0.3 && seen.list[1].share < 0.4);
	for (int i = 2; i < 16; i++)
		rig_free(&r, kept[i]);
	rig_sync(&r);
	rig_close(&r);
}

static void test_without_sites_the_heap_as_a_whole_is_seen_to_grow(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(8), "sites:off");
	trz_growth_info g;
	size_t count;
	rig_alloc(&r, GIB(1), NULL);
	for (int i = 0; i < 201; i++)
		train(&r, MIB(5));
	assert_ok(trz_growth(r.heap, &g, 1, &count));
	assert_int_equal(count, 1);
	assert_true(g.suspect && g.site == 0 && g.stack == 0);
	rig_sync(&r);
	rig_close(&r);
}

/* Steps are part of the history, for who reads a snapshot. */
static void test_steps_are_in_snapshots(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "history:100");
	char path[] = "/tmp/terrazzo_steps_XXXXXX";
	int file = mkstemp(path);
	assert_true(file >= 0);
	close(file);
	assert_ok(trz_step(r.heap));
	assert_ok(trz_step(r.heap));
	assert_ok(trz_snapshot(r.heap, path));
	json_error_t error;
	json_t *root = json_load_file(path, 0, &error);
	json_t *events = json_object_get(json_object_get(root, "terrazzo"), "events");
	assert_non_null(root);
	unsigned steps = 0;
	for (size_t i = 0; i < json_array_size(events); i++) {
		const char *action = json_string_value(json_object_get(json_array_get(events, i), "action"));
		steps += action && strcmp(action, "step") == 0;
	}
	assert_int_equal(steps, 2);
	json_decref(root);
	unlink(path);
	rig_close(&r);
}

static bool find_leak(void *user, const char *text, size_t size)
{
	(void)size;
	*(bool *)user |= strstr(text, "\"verdict\":\"leak\"") || strstr(text, "\"verdict\": \"leak\"");
	return true;
}

/* What grows is part of the report on a failure. */
static void test_a_report_names_the_leak(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), "oom_report:off");
	void *p = rig_alloc(&r, GIB(1), NULL);
	bool found = false;
	for (int i = 0; i < 30; i++)
		train(&r, MIB(25));
	assert_status(trz_alloc(r.heap, MIB(300), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY);
	assert_ok(trz_report(r.heap, TRZ_REPORT_FAILURE | TRZ_REPORT_JSON, find_leak, &found));
	assert_true(found);
	rig_sync(&r);
	rig_close(&r);
}

static void test_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_growth_info g;
	trz_forecast_info f;
	size_t count;
	assert_error(trz_step(NULL), TRZ_ERROR_INVALID_ARGUMENT, "heap");
	assert_error(trz_growth(NULL, &g, 1, &count), TRZ_ERROR_INVALID_ARGUMENT, "heap");
	assert_error(trz_growth(r.heap, &g, 1, NULL), TRZ_ERROR_INVALID_ARGUMENT, "count");
	assert_error(trz_growth(r.heap, NULL, 1, &count), TRZ_ERROR_INVALID_ARGUMENT, "list");
	assert_error(trz_forecast(r.heap, NULL), TRZ_ERROR_INVALID_ARGUMENT, "out");
	assert_error(trz_forecast(NULL, &f), TRZ_ERROR_INVALID_ARGUMENT, "heap");
	assert_error(trz_set_warning_callback(NULL, note, NULL), TRZ_ERROR_INVALID_ARGUMENT, "heap");
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_leak_is_named_with_its_tag_and_site),
		cmocka_unit_test(test_each_of_many_leaks_is_named_once),
		cmocka_unit_test(test_the_forecast_holds),
		cmocka_unit_test(test_a_program_that_repeats_does_not_grow),
		cmocka_unit_test(test_nine_tenths_of_the_limit_are_worth_a_warning),
		cmocka_unit_test(test_fragmentation_is_worth_two_warnings),
		cmocka_unit_test(test_without_sites_the_heap_as_a_whole_is_seen_to_grow),
		cmocka_unit_test(test_steps_are_in_snapshots),
		cmocka_unit_test(test_a_report_names_the_leak),
		cmocka_unit_test(test_arguments),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
