/* SPDX-License-Identifier: Apache-2.0
 *
 * The diary: periods are found, through small stretches that repeat inside them, and again after a departure; places go
 * from entry to entry, but not from what lived on.
 */
#include <stdlib.h>

#include "memory/diary.h"
#include "testing.h"

enum { LAYERS = 20, STEP = 10 + 5 * LAYERS };

static struct diary *open_diary(void)
{
	struct diary *d = calloc(1, sizeof *d);
	assert_non_null(d);
	diary_open(d);
	return d;
}

/* A request that is freed at once. */
static uint32_t note(struct diary *d, uint64_t size, uint32_t ticks)
{
	uint32_t number = diary_begin(d, size, 1, 0, ticks);
	diary_end(d, number);
	return number;
}

/* Ten requests of their own, then layers that are all alike. */
static void step(struct diary *d, uint32_t ticks)
{
	for (uint64_t i = 0; i < 10; i++)
		note(d, (100 + i) << 20, ticks);
	for (int layer = 0; layer < LAYERS; layer++)
		for (uint64_t i = 0; i < 5; i++)
			note(d, (2 + i) << 20, ticks);
}

static void test_nothing_repeats(void **state)
{
	(void)state;
	struct diary *d = open_diary();
	for (uint64_t i = 0; i < 1000; i++)
		note(d, (i + 1) << 20, 0);
	assert_int_equal(diary_period(d), 0);
	free(d);
}

static void test_the_period_is_the_step_not_the_layer(void **state)
{
	(void)state;
	struct diary *d = open_diary();
	for (int i = 0; i < 4; i++)
		step(d, 0);
	assert_int_equal(diary_period(d), STEP);
	note(d, 777 << 20, 0);  /* a departure */
	step(d, 0);
	step(d, 0);
	assert_true(diary_period(d) >= STEP && diary_period(d) % STEP <= 1);  /* the departure may lie in between */
	free(d);
}

static void test_places_go_from_entry_to_entry(void **state)
{
	(void)state;
	struct diary *d = open_diary();
	for (int i = 0; i < 3; i++)
		step(d, 0);
	uint32_t number = d->next;
	for (uint32_t i = 1; i <= STEP; i++)
		diary_entry(d, number - i)->place = i;
	step(d, 1000);
	step(d, 1000);
	for (uint32_t i = 1; i <= STEP; i++)
		assert_int_equal(diary_entry(d, d->next - i)->place, i);
	free(d);
}

static void test_what_lives_on_gives_no_place(void **state)
{
	(void)state;
	struct diary *d = open_diary();
	for (int i = 0; i < 3; i++)
		step(d, 0);
	uint32_t number = d->next;
	for (uint32_t i = 1; i <= STEP; i++)
		diary_entry(d, number - i)->place = i;
	diary_entry(d, number - STEP)->life = 0;         /* has not been freed */
	diary_entry(d, number - STEP + 1)->life = 2000;  /* lived for longer than a period */
	step(d, 1000);
	assert_int_equal(diary_entry(d, d->next - STEP)->place, 0);
	assert_int_equal(diary_entry(d, d->next - STEP + 1)->place, 0);
	assert_int_equal(diary_entry(d, d->next - STEP + 2)->place, STEP - 2);
	free(d);
}

static void test_a_life_is_told_by_the_match(void **state)
{
	(void)state;
	struct diary *d = open_diary();
	for (int i = 0; i < 3; i++)
		step(d, 0);
	uint32_t number = diary_begin(d, 100 << 20, 1, 0, 0);
	assert_true(diary_has_match(d, number));
	assert_int_equal(diary_life(d, number), 1);
	free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_repeats),
		cmocka_unit_test(test_the_period_is_the_step_not_the_layer),
		cmocka_unit_test(test_places_go_from_entry_to_entry),
		cmocka_unit_test(test_what_lives_on_gives_no_place),
		cmocka_unit_test(test_a_life_is_told_by_the_match),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
