/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that the program does not tell: the heap recognises them by what it allocates, or not at all.
 */
#include "observe/period.h"
#include "observe/steps.h"
#include "prng.h"
#include "rig.h"
#include "testing.h"

enum { GROWN_MAX = 8, KEPT = 4000 };

struct program {
	struct rig rig;
	void *kept[KEPT];
	size_t count;
	unsigned warnings;
	uint64_t random;
};

static void note(void *user, const trz_warning_info *info)
{
	struct program *p = user;
	p->warnings += info->warning == TRZ_WARNING_GROWTH;
	void *q;
	assert_ok(trz_alloc(p->rig.heap, MIB(1), 0, NULL, &q));  /* in the middle of another allocation */
	assert_ok(trz_free(p->rig.heap, q));
}

/* The simulated device takes no time: steps may be short. */
static void begin(struct program *p)
{
	*p = (struct program){.rig = rig_open(GIB(8), NULL), .random = 1};
	p->rig.heap->period.step_ns_least = 0;
	assert_ok(trz_set_warning_callback(p->rig.heap, note, p));
}

static void end(struct program *p)
{
	for (size_t i = 0; i < p->count; i++)
		rig_free(&p->rig, p->kept[i]);
	rig_sync(&p->rig);
	rig_close(&p->rig);
}

static void *take(struct program *p, const char *tag, size_t size)
{
	trz_set_tag(tag);
	void *q = rig_alloc(&p->rig, size, NULL);
	trz_set_tag(NULL);
	return q;
}

static void keep(struct program *p, const char *tag, size_t size)
{
	assert_true(p->count < KEPT);
	p->kept[p->count++] = take(p, tag, size);
}

/* Layers that keep their outputs until the backward pass, with work in each; every layer from the same place. */
static void train(struct program *p, size_t length)
{
	enum { LAYERS = 12 };
	void *outputs[LAYERS], *input = take(p, "input", MIB(1) + 4096 * length), *loss;
	for (int i = 0; i < LAYERS; i++) {
		void *work = take(p, "work", KIB(200) * length);
		outputs[i] = take(p, "output", KIB(300) * length);
		rig_free(&p->rig, work);
	}
	loss = take(p, "loss", KIB(64));
	for (int i = LAYERS - 1; i >= 0; i--) {
		void *gradient = take(p, "gradient", KIB(300) * length);
		rig_free(&p->rig, outputs[i]);
		rig_free(&p->rig, gradient);
	}
	rig_free(&p->rig, loss);
	rig_free(&p->rig, input);
}

static void evaluate(struct program *p)
{
	void *batch = take(p, "evaluation", MIB(40));
	for (int i = 0; i < 10; i++)
		rig_free(&p->rig, take(p, "prediction", MIB(8)));
	rig_free(&p->rig, batch);
}

static uint64_t steps_of(struct program *p)
{
	return steps_told(p->rig.heap);
}

static bool suspects(struct program *p, const char *tag)
{
	trz_growth_info g[GROWN_MAX];
	size_t count;
	assert_ok(trz_growth(p->rig.heap, g, GROWN_MAX, &count));
	for (size_t i = 0; i < count; i++)
		if (g[i].suspect && strcmp(g[i].tag, tag) == 0)
			return true;
	return false;
}

static unsigned suspect_count(struct program *p)
{
	trz_growth_info g[GROWN_MAX];
	size_t count, suspects = 0;
	assert_ok(trz_growth(p->rig.heap, g, GROWN_MAX, &count));
	for (size_t i = 0; i < count; i++)
		suspects += g[i].suspect;
	return (unsigned)suspects;
}

/* ---- what is recognised ---- */

static void test_a_leak_is_named_though_no_step_is_told(void **state)
{
	(void)state;
	struct program p;
	trz_forecast_info f;
	begin(&p);
	keep(&p, "weights", MIB(300));
	for (int step = 0; step < 240; step++) {
		train(&p, 20);
		keep(&p, "losses", MIB(2));
	}
	assert_true(suspects(&p, "losses"));
	assert_int_equal(suspect_count(&p), 1);
	assert_in_range(steps_of(&p), 180, 240);
	assert_int_equal(p.warnings, 1);
	assert_ok(trz_forecast(p.rig.heap, &f));
	assert_in_range((uint64_t)f.steps, (GIB(8) - MIB(960)) / MIB(2) * 9 / 10, (GIB(8) - MIB(840)) / MIB(2) * 11 / 10);
	end(&p);
}

static void test_lengths_and_evaluation_vary(void **state)
{
	(void)state;
	struct program p;
	begin(&p);
	keep(&p, "weights", MIB(300));
	for (int step = 0; step < 400; step++) {
		train(&p, 10 + prng_below(&p.random, 20));
		if (step % 10 == 9)
			evaluate(&p);
		keep(&p, "losses", MIB(2));
	}
	assert_in_range(steps_of(&p), 200, 400);
	assert_true(suspects(&p, "losses"));
	assert_int_equal(suspect_count(&p), 1);
	end(&p);
}

static void test_places_are_sizes_where_there_is_one_site(void **state)
{
	(void)state;
	struct program p;
	begin(&p);
	keep(&p, NULL, MIB(300));
	for (int step = 0; step < 240; step++) {
		void *a = take(&p, NULL, MIB(100)), *b = take(&p, NULL, MIB(30));
		keep(&p, NULL, MIB(2));
		rig_free(&p.rig, b);
		rig_free(&p.rig, a);
	}
	assert_in_range(steps_of(&p), 180, 240);
	assert_int_equal(suspect_count(&p), 1);
	end(&p);
}

static void test_another_loop_has_another_period(void **state)
{
	(void)state;
	struct program p;
	begin(&p);
	for (int step = 0; step < 100; step++) {
		void *page = take(&p, "page", MIB(5));
		rig_free(&p.rig, take(&p, "packed", MIB(2)));
		rig_free(&p.rig, page);
	}
	uint64_t before = steps_of(&p);
	assert_in_range(before, 50, 100);
	for (int step = 0; step < 300; step++)
		train(&p, 20);
	assert_in_range(steps_of(&p) - before, 200, 330);
	end(&p);
}

/* ---- what is none ---- */

static void test_what_only_grows_has_no_steps(void **state)
{
	(void)state;
	struct program p;
	begin(&p);
	for (int i = 0; i < 300; i++) {
		keep(&p, "weights", MIB(8));
		keep(&p, "biases", KIB(64));
	}
	assert_int_equal(steps_of(&p), 0);
	end(&p);
}

/* Caches fill up, weights and states come in the first steps; nothing leaks. */
static void test_warming_up_is_no_leak(void **state)
{
	(void)state;
	struct program p;
	begin(&p);
	for (int i = 0; i < 60; i++)
		keep(&p, "weights", MIB(8));
	for (int step = 0; step < 400; step++) {
		train(&p, 20);
		if (step < 60)
			keep(&p, "cache", MIB(4));
		if (step == 0)
			for (int i = 0; i < 60; i++)
				keep(&p, "state", MIB(16));
		if (step % 20 == 19)
			evaluate(&p);
	}
	assert_in_range(steps_of(&p), 200, 400);
	assert_int_equal(suspect_count(&p), 0);
	assert_int_equal(p.warnings, 0);
	end(&p);
}

static void test_at_random_there_are_no_steps(void **state)
{
	(void)state;
	struct program p;
	void *held[50] = {NULL};
	begin(&p);
	for (int i = 0; i < 5000; i++) {
		void **slot = &held[prng_below(&p.random, 50)];
		if (*slot)
			rig_free(&p.rig, *slot);
		*slot = take(&p, NULL, KIB(40) << prng_below(&p.random, 9));
	}
	for (int i = 0; i < 50; i++)
		if (held[i])
			rig_free(&p.rig, held[i]);
	assert_true(steps_of(&p) < 500);
	end(&p);
}

/* What takes no time is no step; once something has been found the heap's shortest way is open again. */
static void test_small_loops_cost_nothing(void **state)
{
	(void)state;
	struct program p;
	begin(&p);
	p.rig.heap->period.step_ns_least = UINT64_MAX / 100;
	for (int i = 0; i < 200; i++) {
		rig_free(&p.rig, take(&p, NULL, MIB(1)));
		rig_free(&p.rig, take(&p, NULL, MIB(9)));
	}
	assert_int_equal(steps_of(&p), 0);
	assert_int_equal(p.rig.heap->period.state, PERIOD_RESTS);
	assert_true(p.rig.heap->sites.last_stack != SITES_OTHER);
	end(&p);
}

/* A heap that grows all the time does not watch all the time: it rests for as long as it has watched. */
static void test_a_watch_in_vain_is_followed_by_a_rest(void **state)
{
	(void)state;
	enum { WATCHED = 200000, GROWN = 100 };
	struct program p;
	begin(&p);
	struct period *period = &p.rig.heap->period;
	period->seen = WATCHED;
	rig_free(&p.rig, take(&p, NULL, MIB(1)));
	assert_int_equal(period->state, PERIOD_RESTS);
	for (int i = 0; i < GROWN; i++)
		period_grown(p.rig.heap);
	assert_int_equal(period->state, PERIOD_RESTS);
	assert_true(period->rests_until - period->clock >= WATCHED);
	period->rests_until = period->clock;
	for (int i = 0; i < GROWN; i++)
		period_grown(p.rig.heap);
	assert_int_equal(period->state, PERIOD_WATCHES);
	end(&p);
}

static void test_the_program_knows_better(void **state)
{
	(void)state;
	struct program p;
	begin(&p);
	for (int step = 0; step < 100; step++)
		train(&p, 20);
	assert_true(steps_of(&p) > 50);
	assert_ok(trz_step(p.rig.heap));
	assert_int_equal(steps_of(&p), 1);
	for (int step = 0; step < 50; step++)
		train(&p, 20);
	assert_int_equal(steps_of(&p), 1);
	end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_leak_is_named_though_no_step_is_told),
		cmocka_unit_test(test_lengths_and_evaluation_vary),
		cmocka_unit_test(test_places_are_sizes_where_there_is_one_site),
		cmocka_unit_test(test_another_loop_has_another_period),
		cmocka_unit_test(test_what_only_grows_has_no_steps),
		cmocka_unit_test(test_warming_up_is_no_leak),
		cmocka_unit_test(test_at_random_there_are_no_steps),
		cmocka_unit_test(test_small_loops_cost_nothing),
		cmocka_unit_test(test_a_watch_in_vain_is_followed_by_a_rest),
		cmocka_unit_test(test_the_program_knows_better),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
