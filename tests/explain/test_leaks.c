/* SPDX-License-Identifier: Apache-2.0
 *
 * The detector names leaks and nothing else, its forecasts hold, and its memory is bounded. TRZ_SEEDS sets how many
 * runs of each rate to try, TRZ_FIRST_SEED the first seed.
 */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>

#include "bits.h"
#include "leaks.h"
#include "leak_runs.h"

enum { STEPS = 700, WITHIN = 200, RUN_ON = 20000, FINDINGS = 8 };

static struct leaks *begin(void)
{
	static void *memory;
	if (!memory)
		memory = malloc(leaks_bytes());
	assert_non_null(memory);
	return leaks_start(memory);
}

/* ---- runs by seed ----------------------------------------------------------------------------------- */

/* What came of one run. */
struct outcome {
	bool false_alarm;          /* another site was named while memory lasted */
	bool expected, named;      /* the leak had to be named; was, in time */
	bool wrong_at_failure;     /* memory ran out, and another site came first */
	bool forecast, held;       /* made when the leak was named; the true step lies within */
};

static void feed(struct leaks *g, const struct run *r)
{
	for (int i = 0; i < r->sites; i++)
		leaks_site(g, (uint64_t)i, (uint64_t)r->site[i].live);
	leaks_all(g, (uint64_t)r->low, (uint64_t)r->high);
	leaks_step(g, 0);
}

/* The step in which memory runs out; -1: none. */
static int true_failure(struct run r, int from)
{
	for (int step = from; step < RUN_ON; step++) {
		run_step(&r, step);
		if (r.high > r.capacity)
			return step;
	}
	return -1;
}

static void look(struct leaks *g, const struct run *r, int step, bool failed, struct outcome *out)
{
	struct leaks_finding found[FINDINGS];
	size_t count = leaks_findings(g, found, FINDINGS);
	int begin_step = r->leak >= 0 ? r->site[r->leak].begin : 0;
	for (size_t i = 0; i < count && found[i].suspect; i++) {
		if (r->leak < 0 || found[i].site != (uint64_t)r->leak) {
			out->false_alarm |= !failed;
			out->wrong_at_failure |= failed && i == 0;
			continue;
		}
		struct leaks_forecast f;
		if (!out->named && !out->forecast && !failed && leaks_forecast(g, &f)) {
			int truth = true_failure(*r, step + 1);
			out->forecast = truth >= 0;
			out->held = truth >= step + f.steps_low && truth <= step + f.steps_high;
		}
		out->named |= step <= begin_step + WITHIN;
	}
}

static struct outcome play(uint64_t seed, double rate)
{
	struct outcome out = {0};
	struct run r = run_make(seed, rate, STEPS);
	struct leaks *g = begin();
	leaks_room(g, (uint64_t)r.capacity);
	for (int step = 0; step < STEPS; step++) {
		run_step(&r, step);
		bool failed = r.high > r.capacity;
		leaks_failed(g, failed);
		feed(g, &r);
		if (failed || step % 4 == 3)
			look(g, &r, step, failed, &out);
		if (failed) {
			out.expected = r.leak >= 0 && step >= r.site[r.leak].begin + 16;
			return out;
		}
	}
	out.expected = r.leak >= 0 && r.site[r.leak].begin + WITHIN < STEPS;
	return out;
}

static unsigned setting(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);
	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

struct counts {
	unsigned runs, alarms, expected, named, wrong, forecasts, held;
};

static struct counts play_many(double rate)
{
	struct counts c = {.runs = setting("TRZ_SEEDS", 60)};
	unsigned first = setting("TRZ_FIRST_SEED", 1);
	for (unsigned i = 0; i < c.runs; i++) {
		struct outcome out = play(first + i, rate);
		c.alarms += out.false_alarm;
		c.expected += out.expected;
		c.named += out.expected && out.named;
		c.wrong += out.wrong_at_failure;
		c.forecasts += out.forecast;
		c.held += out.held;
	}
	print_message("%.1f %%: %u runs, %u false alarms, %u of %u leaks named in time, %u wrong at failure, %u of %u "
	              "forecasts held\n", rate * 100, c.runs, c.alarms, c.named, c.expected, c.wrong, c.held, c.forecasts);
	return c;
}

static void test_no_leak_no_alarm(void **state)
{
	(void)state;
	struct counts c = play_many(0);
	assert_int_equal(c.alarms, 0);
	assert_int_equal(c.forecasts, 0);
}

static void test_slow_leaks_raise_no_false_alarm(void **state)
{
	(void)state;
	assert_true(play_many(0.001).alarms * 50 <= setting("TRZ_SEEDS", 60));
	assert_true(play_many(0.002).alarms * 50 <= setting("TRZ_SEEDS", 60));
}

/* Of mixtures worse than programs are: 49 of 50 in time, 18 of 20 forecasts. */
static void test_leaks_are_named_in_time(void **state)
{
	(void)state;
	static const double rates[] = {0.005, 0.01, 0.02, 0.05};
	for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
		struct counts c = play_many(rates[i]);
		assert_true(c.expected > 0 && c.forecasts > 0);
		assert_true((c.expected - c.named) * 50 <= c.expected);
		assert_true(c.alarms <= 1 + c.runs / 400);
		assert_true((c.forecasts - c.held) * 10 <= c.forecasts);
	}
}

/* ---- runs that one can draw ------------------------------------------------------------------------- */

enum { MB = 1000000 };

static const double base = 10000.0 * MB;

/* What one site holds in a step, in bytes. */
typedef double shape(int step);

#define SHAPE(name, bytes) \
	static double name(int step) \
	{ \
		return bytes; \
	}

static double leak_of(int step, double rate)
{
	return base * rate * step;
}

SHAPE(leak_01, leak_of(step, 0.001))
SHAPE(leak_05, leak_of(step, 0.005))
SHAPE(leak_1, leak_of(step, 0.01))
SHAPE(leak_2, leak_of(step, 0.02))
SHAPE(leak_5, leak_of(step, 0.05))
SHAPE(leak_late, step < 5000 ? 0 : leak_of(step - 5000, 0.005))
static double compound(int step)
{
	double x = base / 2;
	for (int i = 0; i < step; i++)
		x *= 1.005;
	return x;
}

SHAPE(flat, base + 0 * step)
SHAPE(two_steps, step < 2 ? base / 4 : base)
SHAPE(slow_start, step < 60 ? base * step / 60 : base)
SHAPE(fills, base * step / (step + 40.0))
SHAPE(full_cache, step < 130 ? base / 130 * step : base)
SHAPE(stops, step < 100 ? leak_of(step, 0.01) : base)
SHAPE(every_50, step % 50 < 5 ? base : 0)
SHAPE(every_200, step % 200 < 40 ? base / 2 : 0)
SHAPE(epochs, base / 100 * (step % 100))
SHAPE(lengths, base * (0.5 + (double)(step * 7919 % 101) / 101))
SHAPE(stairs, base / 5 * (step / 150 < 5 ? step / 150 : 5))
SHAPE(sorted_lengths, base * (0.5 + (double)(step % 120) / 240))

/* Where the first suspect is named; -1: nowhere. The heap holds weights, what varies, and the site. */
static int named_at(shape *site, shape *beside, int steps, uint64_t *site_named)
{
	struct leaks *g = begin();
	for (int step = 0; step < steps; step++) {
		leaks_site(g, 1, (uint64_t)base);
		leaks_site(g, 2, (uint64_t)site(step));
		leaks_site(g, 3, (uint64_t)beside(step));
		uint64_t low = (uint64_t)(base + site(step) + beside(step));
		leaks_all(g, low, low + (uint64_t)base);
		leaks_step(g, 0);
		struct leaks_finding f;
		if (leaks_findings(g, &f, 1) && f.suspect) {
			*site_named = f.site;
			return step;
		}
	}
	return -1;
}

static void test_each_leak_is_named_within_200_steps(void **state)
{
	(void)state;
	static shape *const leaks[] = {leak_05, leak_1, leak_2, leak_5, compound};
	static shape *const besides[] = {flat, two_steps, every_50, lengths, fills};
	for (size_t i = 0; i < sizeof leaks / sizeof *leaks; i++) {
		for (size_t k = 0; k < sizeof besides / sizeof *besides; k++) {
			uint64_t site = 0;
			assert_in_range(named_at(leaks[i], besides[k], 201, &site), 8, WITHIN);
			assert_int_equal(site, 2);
		}
	}
	uint64_t site = 0;
	assert_in_range(named_at(leak_01, flat, 2000, &site), 150, 1999);
	assert_int_equal(site, 2);
	assert_in_range(named_at(leak_late, flat, 5201, &site), 5150, 5200);
	assert_int_equal(site, 2);
}

static void test_what_is_no_leak_is_not_named(void **state)
{
	(void)state;
	static shape *const shapes[] = {flat, two_steps, slow_start, fills, full_cache, stops, every_50, every_200,
	                                epochs, lengths, stairs, sorted_lengths};
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
			uint64_t site;
			assert_int_equal(named_at(shapes[i], shapes[k], 3000, &site), -1);
		}
	}
}

/* ---- forecasts -------------------------------------------------------------------------------------- */

/* 18.2 GB at step 100, 24.2 at step 900: 6 MB a step grow to 9 and, as forecast from step 500 on, further. */
static double accelerating(double step)
{
	double x = step - 100;
	return 18200.0 * MB + 6 * MB * x + 0.001875 * MB * x * x;
}

static void test_leaks_that_gets_faster_is_not_forecast_too_late(void **state)
{
	(void)state;
	struct leaks *g = begin();
	leaks_room(g, (uint64_t)24200 * MB);
	for (int step = 0; step < 500; step++) {
		uint64_t live = (uint64_t)accelerating(step);
		leaks_site(g, 7, live);
		leaks_all(g, live, live);
		leaks_step(g, (uint64_t)step * 2000000000);
	}
	struct leaks_finding f;
	struct leaks_forecast when;
	assert_int_equal(leaks_findings(g, &f, 1), 1);
	assert_true(f.suspect && f.bytes_per_step > 6 * MB && f.bytes_per_step < 13 * MB);
	assert_true(leaks_forecast(g, &when));
	assert_true(when.steps_low <= 401 && when.steps_high >= 401);
	assert_true(when.steps > 360 && when.steps < 440);
	assert_true(when.ns > when.steps * 1.9e9 && when.ns < when.steps * 2.1e9);
}

/* Ever more, and ever larger, allocations; the latter, as a batch that grows with each step, are none that stay. */
static void test_what_grows_by_larger_allocations_alone_is_no_suspect(void **state)
{
	(void)state;
	struct leaks *g = begin();
	for (int step = 0; step < 300; step++) {
		leaks_site(g, 1, (uint64_t)leak_1(step));
		leaks_count(g, 1, 12 + (uint64_t)step % 2);
		leaks_site(g, 2, (uint64_t)leak_1(step));
		leaks_count(g, 2, (uint64_t)step / 3);
		leaks_all(g, 2 * (uint64_t)leak_1(step), 2 * (uint64_t)leak_1(step));
		leaks_step(g, 0);
	}
	struct leaks_finding f[FINDINGS];
	assert_int_equal(leaks_findings(g, f, FINDINGS), 2);
	assert_true(f[0].suspect && f[0].site == 2 && f[0].allocations_per_step > 0.3 && f[0].allocations_per_step < 0.36);
	assert_false(f[1].suspect);
}

static void test_one_pass_adds_at_most_a_part_at_a_time(void **state)
{
	(void)state;
	assert_true(leaks_may_be_one_pass(60, 2, 120));
	assert_true(leaks_may_be_one_pass(60, 3, 60));
	assert_false(leaks_may_be_one_pass(60, 1, 59));
	assert_false(leaks_may_be_one_pass(20, 48, 48));
}

static void test_no_forecast_without_room_or_growth(void **state)
{
	(void)state;
	struct leaks *g = begin();
	struct leaks_forecast f;
	for (int step = 0; step < 300; step++) {
		leaks_site(g, 1, (uint64_t)leak_1(step));
		leaks_all(g, (uint64_t)leak_1(step), (uint64_t)leak_1(step));
		leaks_step(g, 0);
	}
	assert_false(leaks_forecast(g, &f));
	leaks_room(g, (uint64_t)(base * 4));
	assert_true(leaks_forecast(g, &f));
	assert_true(f.steps_low <= 101 && f.steps_high >= 100 && f.steps_high - f.steps_low < 30);
	assert_true(f.ns_high == 0);
	for (int step = 0; step < 300; step++)
		leaks_step(g, 0);
	assert_false(leaks_forecast(g, &f));
}

/* Three sites that began one after another, told in one order or the other: how many steps are left. */
static double forecast_in_order(bool backwards)
{
	enum { SITES = 3, LENGTH = 29 };
	static const struct {
		int begin;
		uint64_t rate;
	} sites[SITES] = {{11, 85 * MB}, {13, 60 * MB}, {2, 41 * MB}};
	struct leaks *g = begin();
	struct leaks_forecast f;
	leaks_room(g, (uint64_t)5620 * MB);
	for (int step = 0; step < LENGTH; step++) {
		uint64_t all = 0;
		for (int i = 0; i < SITES; i++) {
			int k = backwards ? SITES - 1 - i : i, age = step - sites[k].begin;
			uint64_t live = 50 * MB + (age < 0 ? 0 : sites[k].rate * (uint64_t)(age + 1));
			leaks_site(g, (uint64_t)k, live);
			all += live;
		}
		leaks_all(g, all, all);
		leaks_step(g, 0);
	}
	assert_true(leaks_forecast(g, &f));
	return f.steps;
}

static void test_a_forecast_does_not_depend_on_the_order_of_sites(void **state)
{
	(void)state;
	assert_true(forecast_in_order(false) == forecast_in_order(true));
}

/* A site whose first allocation is newer than the series that another is judged by. */
static void test_a_forecast_of_leaks_of_different_ages(void **state)
{
	(void)state;
	for (uint64_t later = 1; later < 8; later++) {
		struct leaks *g = begin();
		struct leaks_forecast f;
		leaks_room(g, (uint64_t)24000 * MB);
		for (uint64_t step = 0; step < 24; step++) {
			uint64_t a = (1000 + 500 * step) * MB, b = step < later ? 0 : (step - later + 1) * 400 * MB;
			leaks_site(g, 1, a);
			leaks_site(g, 2, b);
			leaks_all(g, a + b, a + b);
			leaks_step(g, 0);
			double left = ((double)24000 * MB - (double)(a + b)) / (900.0 * MB);
			if (leaks_forecast(g, &f))
				assert_true(f.steps_low <= left + 1 && f.steps_high >= left);
		}
	}
}

/* ---- a failure, and early warnings ------------------------------------------------------------------ */

static void test_short_leaks_is_the_suspect_once_memory_has_run_out(void **state)
{
	(void)state;
	struct leaks *g = begin();
	struct leaks_finding f;
	for (int step = 0; step < 12; step++) {
		leaks_site(g, 5, (uint64_t)leak_5(step));
		leaks_all(g, (uint64_t)(base + leak_5(step)), (uint64_t)(base + leak_5(step)));
		leaks_step(g, 0);
	}
	assert_int_equal(leaks_findings(g, &f, 1), 1);
	assert_false(f.suspect);
	assert_true(f.confidence < 0.2);
	leaks_failed(g, true);
	assert_int_equal(leaks_findings(g, &f, 1), 1);
	assert_true(f.suspect);
	assert_int_equal(f.site, 5);
}

static void test_leaks_that_takes_what_is_left_is_a_suspect_early(void **state)
{
	(void)state;
	struct leaks *g = begin();
	struct leaks_finding f;
	int at = -1;
	leaks_room(g, (uint64_t)(base * 3));
	for (int step = 0; step < 60 && at < 0; step++) {
		leaks_site(g, 5, (uint64_t)leak_5(step));
		leaks_all(g, (uint64_t)(base + leak_5(step)), (uint64_t)(base + leak_5(step)));
		leaks_step(g, 0);
		at = leaks_findings(g, &f, 1) && f.suspect ? step : -1;
	}
	assert_in_range(at, 16, 36);  /* of 40 */
}

/* ---- the table of sites ----------------------------------------------------------------------------- */

/* Ten times as many sites as are followed: the one that grows outgrows the others, and is followed then. */
static void test_of_many_sites_those_with_most_bytes_are_followed(void **state)
{
	(void)state;
	struct leaks *g = begin();
	struct leaks_finding f = {0};
	for (int step = 0; step < 300; step++) {
		double all = leak_1(step);
		for (uint64_t i = 0; i < 10 * LEAKS_SITES; i++) {
			leaks_site(g, 100 + i, (uint64_t)(base / (100 + (double)i)));
			all += base / (100 + (double)i);
		}
		leaks_site(g, 1, (uint64_t)leak_1(step));
		leaks_all(g, (uint64_t)all, (uint64_t)all);
		leaks_step(g, 0);
	}
	assert_int_equal(leaks_steps(g), 300);
	assert_int_equal(leaks_findings(g, &f, 1), 1);
	assert_true(f.suspect);
	assert_int_equal(f.site, 1);
	assert_true(f.bytes_per_step > base * 0.0099 && f.bytes_per_step < base * 0.0101);
}

static void test_what_has_no_site_is_a_finding_of_its_own(void **state)
{
	(void)state;
	struct leaks *g = begin();
	struct leaks_finding f = {0};
	for (int step = 0; step < 300; step++) {
		leaks_site(g, 1, (uint64_t)base);
		leaks_rest(g, (uint64_t)leak_1(step));
		leaks_all(g, (uint64_t)(base + leak_1(step)), (uint64_t)(2 * base + leak_1(step)));
		leaks_step(g, 0);
	}
	assert_int_equal(leaks_findings(g, &f, 1), 1);
	assert_true(f.suspect && f.site == LEAKS_REST);
}

/* Memory that changes its site is no leak of the new one. */
static void test_what_moves_between_sites_is_no_leak(void **state)
{
	(void)state;
	struct leaks *g = begin();
	struct leaks_finding f = {0};
	for (int step = 0; step < 400; step++) {
		double part = step / 400.0;
		leaks_site(g, 1, (uint64_t)(base * (1 - part)));
		leaks_site(g, 2, (uint64_t)(base * part));
		leaks_all(g, (uint64_t)base, (uint64_t)base);
		leaks_step(g, 0);
		assert_false(leaks_findings(g, &f, 1) && f.suspect);
	}
}

/* Of a leak in small pieces from more places than are followed, the places that are not show as one. */
static void test_sites_that_are_not_followed_count_together(void **state)
{
	(void)state;
	struct leaks *g = begin();
	struct leaks_finding f = {0};
	for (int step = 0; step < 300; step++) {
		for (uint64_t i = 0; i < LEAKS_SITES; i++)
			leaks_site(g, i, (uint64_t)(base / LEAKS_SITES));
		for (uint64_t i = 0; i < 1000; i++)
			leaks_site(g, 1000 + i, (uint64_t)leak_of(step, 0.00001));
		uint64_t all = (uint64_t)(base + leak_of(step, 0.01));
		leaks_all(g, all, all);
		leaks_step(g, 0);
	}
	assert_true(leaks_findings(g, &f, 1) == 1 && f.suspect && f.site == LEAKS_REST);
}

/* Plays a list that grows by a piece a step, emptied after so many pieces each time. */
static bool is_suspect(const int *lengths, size_t count)
{
	struct leaks *g = begin();
	struct leaks_finding f = {0};
	leaks_failed(g, true);
	for (size_t i = 0; i < count; i++)
		for (int pieces = 1; pieces <= lengths[i]; pieces++) {
			leaks_site(g, 1, (uint64_t)pieces * MIB(16));
			leaks_all(g, GIB(1) + (uint64_t)pieces * MIB(16), GIB(2));
			leaks_step(g, 0);
		}
	return leaks_findings(g, &f, 1) == 1 && f.suspect;
}

/* A loop that has emptied its list several times will do so again, unless it holds far more than ever before. */
static void test_a_list_that_is_emptied_is_no_leak(void **state)
{
	(void)state;
	static const int last_is_longer[] = {21, 31, 26, 41, 190}, first_is_short[] = {3, 3, 190}, never_emptied[] = {190};
	assert_false(is_suspect(last_is_longer, 5));
	assert_true(is_suspect(first_is_short, 3));
	assert_true(is_suspect(never_emptied, 1));
}

/* What a site holds only within a step is none of its growth. */
static void test_the_least_of_a_step_counts(void **state)
{
	(void)state;
	struct leaks *g = begin();
	struct leaks_finding f = {0};
	for (int step = 0; step < 400; step++) {
		leaks_site(g, 1, (uint64_t)(base + leak_1(step)));
		leaks_site(g, 1, (uint64_t)base);
		leaks_all(g, (uint64_t)base, (uint64_t)(base + leak_1(step)));
		leaks_step(g, 0);
	}
	assert_int_equal(leaks_findings(g, &f, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_leak_no_alarm),
		cmocka_unit_test(test_slow_leaks_raise_no_false_alarm),
		cmocka_unit_test(test_leaks_are_named_in_time),
		cmocka_unit_test(test_each_leak_is_named_within_200_steps),
		cmocka_unit_test(test_what_is_no_leak_is_not_named),
		cmocka_unit_test(test_leaks_that_gets_faster_is_not_forecast_too_late),
		cmocka_unit_test(test_what_grows_by_larger_allocations_alone_is_no_suspect),
		cmocka_unit_test(test_one_pass_adds_at_most_a_part_at_a_time),
		cmocka_unit_test(test_no_forecast_without_room_or_growth),
		cmocka_unit_test(test_a_forecast_does_not_depend_on_the_order_of_sites),
		cmocka_unit_test(test_a_forecast_of_leaks_of_different_ages),
		cmocka_unit_test(test_short_leaks_is_the_suspect_once_memory_has_run_out),
		cmocka_unit_test(test_leaks_that_takes_what_is_left_is_a_suspect_early),
		cmocka_unit_test(test_of_many_sites_those_with_most_bytes_are_followed),
		cmocka_unit_test(test_what_has_no_site_is_a_finding_of_its_own),
		cmocka_unit_test(test_what_moves_between_sites_is_no_leak),
		cmocka_unit_test(test_sites_that_are_not_followed_count_together),
		cmocka_unit_test(test_a_list_that_is_emptied_is_no_leak),
		cmocka_unit_test(test_the_least_of_a_step_counts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
