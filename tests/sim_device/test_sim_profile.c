/* SPDX-License-Identifier: Apache-2.0
 *
 * Device profiles: the shipped file is complete, its figures are plausible, and names are found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bits.h"
#include "sim_profile.h"

static void test_profiles_are_whole_and_sorted(void **state)
{
	(void)state;
	const struct sim_profile *p, *before = NULL;
	size_t count = 0;
	for (; (p = sim_profile_at(count)); count++) {
		assert_true(p->title[0] != '\0');
		assert_in_range(p->memory_bytes, GIB(8), GIB(512));
		assert_in_range(p->overhead_bytes, MIB(50), GIB(2));
		assert_in_range(p->compute_major, 7, 20);
		assert_in_range(p->compute_minor, 0, 9);
		assert_in_range(p->sms, 16, 512);
		assert_int_equal(p->threads % 512, 0);
		assert_in_range(p->blocks, 16, 32);
		assert_in_range(p->shared_bytes, KIB(64), KIB(512));
		assert_in_range(p->l2_bytes, MIB(1), MIB(512));
		assert_in_range(p->bus_bits, 64, 16384);
		assert_in_range(p->memory_mhz, 500, 20000);
		assert_in_range(p->clock_mhz, 500, 5000);
		assert_in_range(p->pcie, 3, 6);
		assert_in_range(sim_profile_memory_rate(p), 100000, 20000000);
		assert_true(sim_profile_link_rate(p) < sim_profile_memory_rate(p));
		assert_ptr_equal(sim_profile_find(p->name), p);
		assert_true(!before || before->memory_bytes <= p->memory_bytes);
		before = p;
	}
	assert_in_range(count, 10, 32);
}

static void test_names_are_found_in_any_case(void **state)
{
	(void)state;
	const struct sim_profile *p = sim_profile_find("H100");
	assert_non_null(p);
	assert_string_equal(p->name, "h100");
	assert_int_equal(p->compute_major, 9);
	assert_int_equal(p->sms, 132);
	assert_in_range(sim_profile_memory_rate(p), 3300000, 3400000);
	assert_in_range(sim_profile_link_rate(p), 62900, 63100);
	assert_null(sim_profile_find("h1"));
	assert_null(sim_profile_find(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_profiles_are_whole_and_sorted),
		cmocka_unit_test(test_names_are_found_in_any_case),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
