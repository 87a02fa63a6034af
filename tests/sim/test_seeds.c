/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated worlds by seed. TRZ_SEEDS says how many (100), TRZ_SEED runs one alone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "testing.h"
#include "world.h"

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);
	return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static const char *run_seed(uint64_t seed, uint64_t *ooms)
{
	static struct world w;
	const char *wrong = world_open(&w, seed);
	for (int i = 0; !wrong && i < WORLD_EVENTS; i++)
		wrong = world_step(&w);
	if (!wrong)
		wrong = world_end(&w);
	*ooms += w.oom_count;
	world_close(&w);
	return wrong;
}

static void test_seeds(void **state)
{
	(void)state;
	uint64_t only = number_in("TRZ_SEED", 0), last = only ? only : number_in("TRZ_SEEDS", 100), ooms = 0, failed = 0;
	for (uint64_t seed = only ? only : 1; seed <= last; seed++) {
		const char *wrong = run_seed(seed, &ooms);
		if (!wrong)
			continue;
		print_error("%s\nagain: TRZ_SEED=%llu\n", wrong, (unsigned long long)seed);
		if (++failed == 5)
			break;
	}
	print_message("%llu seeds of %d events, %llu refused allocations\n", (unsigned long long)(only ? 1 : last),
	              WORLD_EVENTS, (unsigned long long)ooms);
	assert_int_equal(failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
