/* SPDX-License-Identifier: Apache-2.0
 *
 * The bisection finds the size in few tries, and says when the result is uncertain.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bisect.h"
#include "error.h"

enum { STEP = 10 };

struct machine {
	uint64_t needs;       /* the smallest size that is enough */
	uint64_t gap;         /* a larger one that is not */
	unsigned fails_after; /* tries; 0: never */
	unsigned unsteady_after;  /* tries, after which nothing is enough */
	unsigned tries;
	uint64_t largest;
	uint64_t last;
};

static trz_status enough(void *arg, uint64_t size, bool *is_enough)
{
	struct machine *m = arg;
	assert_int_equal(size % STEP, 0);
	m->tries++;
	m->last = size;
	m->largest = size > m->largest ? size : m->largest;
	if (m->fails_after && m->tries > m->fails_after)
		return trz_fail(TRZ_ERROR_DRIVER, "the machine is broken");
	bool worn = m->unsteady_after && m->tries > m->unsteady_after;
	*is_enough = size >= m->needs && size != m->gap && !worn;
	return TRZ_OK;
}

static struct bisect_result search(struct machine *m, uint64_t low, uint64_t high)
{
	struct bisect b = { .low = low, .high = high, .step = STEP, .enough = enough, .arg = m };
	struct bisect_result result;
	assert_int_equal(bisect_run(&b, &result), TRZ_OK);
	assert_int_equal(result.runs, m->tries);
	assert_true(m->largest <= high);
	return result;
}

static void finds_the_smallest(void **state)
{
	(void)state;
	for (uint64_t needs = 0; needs <= 500; needs++) {
		for (uint64_t low = 0; low <= needs; low += 7) {
			struct machine m = { .needs = needs };
			struct bisect_result r = search(&m, low, 500);
			uint64_t expected = needs <= STEP ? STEP : (needs + STEP - 1) / STEP * STEP;
			assert_int_equal(r.size, expected);
			assert_true(r.verified);
			assert_int_equal(m.last, r.size);
			assert_true(r.runs <= 14);
		}
	}
}

static void finds_what_is_near_quickly(void **state)
{
	(void)state;
	struct machine m = { .needs = 1000020 };
	struct bisect_result r = search(&m, 1000000, 100000000);
	assert_int_equal(r.size, 1000020);
	assert_true(r.runs <= 6);
}

static void says_when_nothing_is_enough(void **state)
{
	(void)state;
	struct machine m = { .needs = 501 };
	assert_int_equal(search(&m, 0, 509).size, 0);
	assert_int_equal(m.largest, 500);
	struct machine none = { .needs = 1 };
	assert_int_equal(search(&none, 100, 50).size, 0);
	assert_int_equal(none.tries, 0);
	assert_int_equal(search(&none, 0, STEP - 1).size, 0);
}

static void doubts_what_is_not_monotone(void **state)
{
	(void)state;
	/* Less than the lower bound is enough. */
	struct machine below = { .needs = 100 };
	struct bisect_result r = search(&below, 200, 500);
	assert_int_equal(r.size, 200);
	assert_false(r.verified);
	/* What was enough is not any more. */
	struct machine unsteady = { .needs = 100, .unsteady_after = 1 };
	r = search(&unsteady, 100, 500);
	assert_int_equal(r.size, 100);
	assert_false(r.verified);
	/* A larger size that is not enough goes unseen where it is not tried; what is found is right in itself.
	 * */
	struct machine gap = { .needs = 100, .gap = 300 };
	r = search(&gap, 50, 500);
	assert_int_equal(r.size, 100);
	assert_true(r.verified);
}

static void passes_errors_on(void **state)
{
	(void)state;
	for (unsigned fails_after = 1; fails_after < 6; fails_after++) {
		struct machine m = { .needs = 400, .fails_after = fails_after };
		struct bisect b = { .high = 500, .step = STEP, .enough = enough, .arg = &m };
		struct bisect_result result;
		assert_int_equal(bisect_run(&b, &result), TRZ_ERROR_DRIVER);
		assert_int_equal(m.tries, fails_after + 1);
	}
}

static void works_at_the_top_of_the_range(void **state)
{
	(void)state;
	uint64_t top = UINT64_MAX / STEP * STEP;
	struct machine m = { .needs = top };
	assert_int_equal(search(&m, 0, UINT64_MAX).size, top);
	struct machine none = { .needs = UINT64_MAX };
	assert_int_equal(search(&none, UINT64_MAX - 100, UINT64_MAX).size, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_the_smallest),
		cmocka_unit_test(finds_what_is_near_quickly),
		cmocka_unit_test(says_when_nothing_is_enough),
		cmocka_unit_test(doubts_what_is_not_monotone),
		cmocka_unit_test(passes_errors_on),
		cmocka_unit_test(works_at_the_top_of_the_range),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
