/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the trace readers' hash map with a plain array, and the histogram of durations with sorted numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "latency.h"
#include "prng.h"
#include "trace_map.h"

static void map_agrees_with_an_array(void **state)
{
	(void)state;
	enum { KEYS = 300, STEPS = 50000 };
	for (uint64_t seed = 0; seed < 4; seed++) {
		struct trace_map map = { 0 };
		uint32_t model[KEYS];
		bool present[KEYS] = { false };
		size_t count = 0;
		uint64_t rng = seed;
		for (int i = 0; i < STEPS; i++) {
			size_t k = prng_below(&rng, KEYS);
			uint64_t key = k << 21;
			uint32_t value;
			assert_int_equal(map_get(&map, key, &value), present[k]);
			if (present[k])
				assert_int_equal(value, model[k]);
			if (prng_below(&rng, 2)) {
				model[k] = (uint32_t)prng_next(&rng);
				assert_int_equal(map_set(&map, key, model[k]), TRZ_OK);
				count += !present[k];
				present[k] = true;
			} else {
				map_remove(&map, key);
				count -= present[k];
				present[k] = false;
			}
			assert_int_equal(map.count, count);
		}
		map_free(&map);
	}
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static void quantiles_are_within_a_bucket(void **state)
{
	(void)state;
	enum { COUNT = 20000 };
	static uint64_t values[COUNT];
	uint64_t rng = 1, sum = 0;
	struct latency latency;
	assert_int_equal(latency_init(&latency, 1), TRZ_OK);
	latency.overhead_ns = 0;
	for (size_t i = 0; i < COUNT; i++) {
		values[i] = prng_next(&rng) >> (24 + prng_below(&rng, 36));
		sum += values[i];
		latency_add(&latency, values[i]);
	}
	qsort(values, COUNT, sizeof values[0], compare);
	static const double quantiles[] = { 0, 0.1, 0.5, 0.9, 0.99, 0.999 };
	for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
		uint64_t exact = values[(size_t)(quantiles[i] * COUNT)];
		uint64_t found = latency_quantile(&latency, quantiles[i]);
		assert_true(found <= exact);
		assert_true(exact - found <= exact / 512);
	}
	assert_true(latency_mean(&latency) == (double)sum / COUNT);
	latency_add(&latency, UINT64_MAX);
	latency_free(&latency);
}

/* Each call counts once, as its least. */
static void rounds_keep_the_least(void **state)
{
	(void)state;
	enum { COUNT = 100000, ROUNDS = 3 };
	struct latency latency;
	assert_int_equal(latency_init(&latency, ROUNDS), TRZ_OK);
	latency.overhead_ns = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		latency_begin_round(&latency);
		for (uint64_t i = 0; i < COUNT; i++)
			latency_add(&latency, i % ROUNDS == round ? 10 : 1000000 + i);
	}
	assert_int_equal(latency_settle(&latency), TRZ_OK);
	assert_int_equal(latency.count, COUNT);
	assert_true(latency_mean(&latency) == 10);
	assert_int_equal(latency_quantile(&latency, 0.9999), 10);
	latency_free(&latency);
}

static void rounds_of_other_calls_are_noticed(void **state)
{
	(void)state;
	for (int more = 0; more < 2; more++) {
		struct latency latency;
		assert_int_equal(latency_init(&latency, 2), TRZ_OK);
		for (int round = 0; round < 2; round++) {
			latency_begin_round(&latency);
			for (int i = 0; i < 5 + (round == more); i++)
				latency_add(&latency, 1000);
		}
		assert_int_equal(latency_settle(&latency), TRZ_ERROR_CORRUPT);
		latency_free(&latency);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_agrees_with_an_array),
		cmocka_unit_test(quantiles_are_within_a_bucket),
		cmocka_unit_test(rounds_keep_the_least),
		cmocka_unit_test(rounds_of_other_calls_are_noticed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
