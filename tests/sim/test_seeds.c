/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated worlds by seed. TRZ_SEEDS says how many, from TRZ_FIRST_SEED (1) on; TRZ_SEED runs one alone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "testing.h"
#include "world.h"

enum { SEEDS = 40, FREE_SEEDS = 10 };  /* fewer, since threads that wait for each other take long on few cores */

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);
	return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static const char *run_seed(uint64_t seed, bool freely, uint64_t *ooms)
{
	static struct world w;
	const char *wrong = world_open(&w, seed);
	if (!wrong)
		wrong = world_run(&w, WORLD_EVENTS, freely);
	*ooms += w.ooms;
	world_close(&w);
	return wrong;
}

static void run_seeds(bool freely)
{
	uint64_t only = number_in("TRZ_SEED", 0), first = only ? only : number_in("TRZ_FIRST_SEED", 1);
	uint64_t count = only ? 1 : number_in("TRZ_SEEDS", freely ? FREE_SEEDS : SEEDS), ooms = 0, failed = 0;
	for (uint64_t seed = first; seed < first + count; seed++) {
		const char *wrong = run_seed(seed, freely, &ooms);
		if (!wrong)
			continue;
		print_error("%s\nagain: TRZ_SEED=%llu\n", wrong, (unsigned long long)seed);
		if (++failed == 5)
			break;
	}
	print_message("%llu seeds of %d events, %llu refused allocations\n", (unsigned long long)count, WORLD_EVENTS,
	              (unsigned long long)ooms);
	assert_int_equal(failed, 0);
}

static void test_in_turns(void **state)
{
	(void)state;
	run_seeds(false);
}

static void test_threads_at_once(void **state)
{
	(void)state;
	run_seeds(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_turns),
		cmocka_unit_test(test_threads_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
