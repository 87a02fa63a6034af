/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing: what lives at the same time never overlaps, what does not shares memory, obstacles and wishes are respected.
 */
#include "bits.h"
#include "memory/pack.h"
#include "prng.h"
#include "testing.h"

enum { PERIOD = 1000, MANY = 600 };

static bool meet(const struct piece *a, const struct piece *b)
{
	for (uint32_t t = 0; t < PERIOD; t++)
		if ((t + PERIOD - a->begin) % PERIOD < a->life && (t + PERIOD - b->begin) % PERIOD < b->life)
			return true;
	return false;
}

static void assert_apart(const struct piece *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			if (p[i].place != PACK_NOWHERE && p[j].place != PACK_NOWHERE && meet(&p[i], &p[j]))
				assert_true(p[i].place + p[i].size <= p[j].place || p[j].place + p[j].size <= p[i].place);
}

static void test_those_that_never_meet_share(void **state)
{
	(void)state;
	struct piece scratch[3], p[] = {{.size = 64, .place = PACK_NOWHERE, .begin = 0, .life = 500},
	                                {.size = 64, .place = PACK_NOWHERE, .begin = 500, .life = 500},
	                                {.size = 32, .place = PACK_NOWHERE, .begin = 900, .life = 200}};
	pack(p, 0, 3, PERIOD, 1000, scratch);
	assert_int_equal(p[0].place, 0);
	assert_int_equal(p[1].place, 0);
	assert_int_equal(p[2].place, 64);  /* it lives across the end of the period */
}

static void test_obstacles_stay_and_wishes_are_kept_where_they_can_be(void **state)
{
	(void)state;
	struct piece scratch[4], p[] = {{.size = 100, .place = 50, .begin = 0, .life = PERIOD, .name = 1},
	                                {.size = 60, .place = 200, .begin = 10, .life = 5, .name = 2},
	                                {.size = 40, .place = 120, .begin = 10, .life = 5, .name = 3},
	                                {.size = 50, .place = PACK_NOWHERE, .begin = 10, .life = 5, .name = 4}};
	pack(p, 1, 4, PERIOD, 1000, scratch);
	for (int i = 0; i < 4; i++) {
		static const uint64_t place[] = {0, 50, 200, 150, 0};
		assert_int_equal(p[i].place, place[p[i].name]);
	}
}

static void test_no_place_above_the_limit(void **state)
{
	(void)state;
	struct piece scratch[2], p[] = {{.size = 64, .place = PACK_NOWHERE, .life = 10},
	                                {.size = 64, .place = PACK_NOWHERE, .life = 9}};
	pack(p, 0, 2, PERIOD, 127, scratch);
	assert_int_equal(p[0].place, 0);
	assert_true(p[1].place == PACK_NOWHERE);
}

static void test_many_are_apart(void **state)
{
	(void)state;
	static struct piece p[MANY], scratch[MANY];
	uint64_t seed = 1;
	for (int i = 0; i < MANY; i++)
		p[i] = (struct piece){.size = 1 + prng_below(&seed, 50),
		                      .place = i % 3 ? PACK_NOWHERE : prng_below(&seed, 2000),
		                      .begin = (uint32_t)prng_below(&seed, PERIOD),
		                      .life = 1 + (uint32_t)prng_below(&seed, PERIOD / 4),
		                      .name = (uint32_t)i};
	pack(p, 0, MANY, PERIOD, UINT64_MAX / 2, scratch);
	assert_apart(p, MANY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_those_that_never_meet_share),
		cmocka_unit_test(test_obstacles_stay_and_wishes_are_kept_where_they_can_be),
		cmocka_unit_test(test_no_place_above_the_limit),
		cmocka_unit_test(test_many_are_apart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
