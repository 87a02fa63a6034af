/* SPDX-License-Identifier: Apache-2.0
 *
 * The cheap clock, of either kind, agrees with the system's.
 */
#include "ticks.h"

#include <unistd.h>

#include "testing.h"

/* A span of it lies between two of the system's, one read inside it and one around it. */
static void check_agreement(struct ticks *t)
{
	ticks_calibrate(t);
	for (int i = 0; i < 20; i++) {
		uint64_t around = monotonic_ns(), from = ticks_read(t), inside = monotonic_ns();
		usleep(500);
		inside = monotonic_ns() - inside;
		uint64_t span = ticks_to_ns(t, ticks_read_in_order(t) - from);
		around = monotonic_ns() - around;
		assert_true(span + 1000 > inside - inside / 100);
		assert_true(span < around + around / 100 + 1000);
	}
}

static void test_the_chosen_clock(void **state)
{
	(void)state;
	struct ticks t;
	ticks_init(&t);
	assert_true(ticks_microsecond(&t) > 0);
	check_agreement(&t);
}

static void test_without_a_counter(void **state)
{
	(void)state;
	struct ticks t = {.counter = false};
	check_agreement(&t);
	assert_int_equal(ticks_microsecond(&t), 1000);
	assert_true(t.ns > 0.99 && t.ns < 1.01);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_chosen_clock),
		cmocka_unit_test(test_without_a_counter),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
