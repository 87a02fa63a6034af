/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters: their names, current, peak and total values, ratios, and resets of peaks.
 */
#include "counters.h"
#include "testing.h"

enum { MOST = 256 };

static struct counters counters;
static struct counter_view view;
static trz_stat_value values[MOST];
static size_t count;

static void reset(void)
{
	memset(&counters, 0, sizeof counters);
	view = (struct counter_view){0};
}

static void read_all(void)
{
	counters_read(&counters, &view, values, MOST, &count);
	assert_in_range(count, 1, MOST);
}

static const trz_stat_value *named(const char *name)
{
	read_all();
	for (size_t i = 0; i < count; i++)
		if (strcmp(values[i].name, name) == 0)
			return &values[i];
	fail_msg("there is no statistic %s", name);
	return NULL;
}

static uint64_t value_of(const char *name)
{
	return named(name)->value;
}

static void test_names_are_unique_and_described(void **state)
{
	(void)state;
	reset();
	read_all();
	for (size_t i = 0; i < count; i++) {
		const char *unit = values[i].unit;
		assert_true(!strcmp(unit, "bytes") || !strcmp(unit, "count") || !strcmp(unit, "ns") ||
		            !strcmp(unit, "ratio"));
		assert_true(values[i].help[0]);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(values[i].name, values[j].name);
	}
}

static void test_every_entry_of_the_list_is_readable(void **state)
{
	(void)state;
	reset();
#define FLOW(id, measure, help) \
	counter_set(&counters.id.allocated[1], 5); \
	assert_int_equal(value_of(#id ".all.current"), 5); \
	assert_int_equal(value_of(#id ".large_pool.allocated"), 5); \
	assert_int_equal(value_of(#id ".small_pool.freed"), 0); \
	assert_int_equal(value_of(#id ".small_pool.peak"), 0);
#define LEVEL(id, measure, help) \
	counter_set(&counters.id.current, 6); \
	assert_int_equal(value_of(#id ".current"), 6); \
	assert_int_equal(value_of(#id ".peak"), 0);
#define COUNT(id, help) \
	counter_set(&counters.id, 7); \
	assert_int_equal(value_of(#id), 7);
#define SUM(title, measure, help, expression) assert_string_equal(named(title)->unit, measure);
#include "counters.def"
#undef FLOW
#undef LEVEL
#undef COUNT
#undef SUM
}

static void test_names_that_pytorch_has(void **state)
{
	(void)state;
	static const char *const names[] = {
		"allocation.all.current", "allocated_bytes.all.peak", "allocated_bytes.small_pool.freed",
		"requested_bytes.large_pool.allocated", "reserved_bytes.all.current", "segment.all.current",
		"active_bytes.all.peak", "active.all.current", "num_alloc_retries", "num_ooms", "num_device_alloc",
		"num_device_free",
	};
	reset();
	for (size_t i = 0; i < LENGTH(names); i++)
		assert_non_null(named(names[i]));
}

static void test_flow(void **state)
{
	(void)state;
	reset();
	flow_add(&counters.allocated_bytes, 0, 100);
	flow_add(&counters.allocated_bytes, 1, 1000);
	flow_sub(&counters.allocated_bytes, 0, 40);
	flow_add(&counters.allocated_bytes, 1, 5);
	assert_int_equal(value_of("allocated_bytes.small_pool.current"), 60);
	assert_int_equal(value_of("allocated_bytes.small_pool.peak"), 100);
	assert_int_equal(value_of("allocated_bytes.small_pool.allocated"), 100);
	assert_int_equal(value_of("allocated_bytes.small_pool.freed"), 40);
	assert_int_equal(value_of("allocated_bytes.large_pool.current"), 1005);
	assert_int_equal(value_of("allocated_bytes.all.current"), 1065);
	assert_int_equal(value_of("allocated_bytes.all.peak"), 1100);
	assert_int_equal(value_of("allocated_bytes.all.allocated"), 1105);
	assert_int_equal(value_of("allocated_bytes.all.freed"), 40);
}

static void test_level(void **state)
{
	(void)state;
	reset();
	level_add(&counters.pending_bytes, 30);
	level_sub(&counters.pending_bytes, 30);
	level_add(&counters.pending_bytes, 10);
	assert_int_equal(value_of("pending_bytes.current"), 10);
	assert_int_equal(value_of("pending_bytes.peak"), 30);
}

static void test_active_is_held_and_pending(void **state)
{
	(void)state;
	reset();
	flow_add(&counters.allocated_bytes, 1, 1000);
	assert_int_equal(value_of("active_bytes.all.peak"), 1000);
	counter_add(&counters.active_bytes.pending[0], 24);
	counter_add(&counters.active_bytes.pending[1], 100);
	assert_int_equal(value_of("active_bytes.small_pool.current"), 24);
	assert_int_equal(value_of("active_bytes.large_pool.current"), 1100);
	assert_int_equal(value_of("active_bytes.all.current"), 1124);
	active_raise(&counters.active_bytes, &counters.allocated_bytes);
	counter_set(&counters.active_bytes.pending[1], 0);
	assert_int_equal(value_of("active_bytes.small_pool.peak"), 24);
	assert_int_equal(value_of("active_bytes.large_pool.peak"), 1100);
	assert_int_equal(value_of("active_bytes.all.peak"), 1124);
	counters_reset_peaks(&counters);
	assert_int_equal(value_of("active_bytes.small_pool.peak"), 24);
	assert_int_equal(value_of("active_bytes.large_pool.peak"), 1000);
	assert_int_equal(value_of("active_bytes.all.peak"), 1024);
}

static double ratio_of(const char *name)
{
	assert_string_equal(named(name)->unit, "ratio");
	return named(name)->ratio;
}

static void test_ratios(void **state)
{
	(void)state;
	reset();
	assert_true(ratio_of("fragmentation") == 0.0);
	assert_true(ratio_of("external_fragmentation") == 0.0);
	flow_add(&counters.reserved_bytes, 1, 1000);
	flow_add(&counters.allocated_bytes, 1, 750);
	assert_true(ratio_of("fragmentation") == 0.25);
	level_add(&counters.cached_bytes, 200);
	view.largest_free_bytes = 150;
	assert_true(ratio_of("external_fragmentation") == 0.25);
	view.largest_free_bytes = 999;  /* read at another moment */
	assert_true(ratio_of("external_fragmentation") == 0.0);
}

static void test_reset_peaks(void **state)
{
	(void)state;
	reset();
	flow_add(&counters.reserved_bytes, 0, 50);
	flow_add(&counters.reserved_bytes, 1, 70);
	flow_sub(&counters.reserved_bytes, 1, 60);
	level_add(&counters.alias, 9);
	level_sub(&counters.alias, 8);
	counter_set(&counters.num_ooms, 3);
	counters_reset_peaks(&counters);
	assert_int_equal(value_of("reserved_bytes.all.peak"), 60);
	assert_int_equal(value_of("reserved_bytes.small_pool.peak"), 50);
	assert_int_equal(value_of("reserved_bytes.large_pool.peak"), 10);
	assert_int_equal(value_of("reserved_bytes.all.allocated"), 120);
	assert_int_equal(value_of("alias.peak"), 1);
	assert_int_equal(value_of("num_ooms"), 3);
}

static void test_driver_calls_by_slot(void **state)
{
	(void)state;
	reset();
	counter_set(&counters.driver_calls[DRIVER_SLOT_create], 3);
	counter_set(&counters.driver_calls[DRIVER_SLOT_mem_alloc], 4);
	counter_set(&counters.driver_calls[DRIVER_SLOT_release], 1);
	assert_int_equal(value_of("driver_calls.create"), 3);
	assert_int_equal(value_of("driver_calls.map"), 0);
	assert_int_equal(value_of("num_device_alloc"), 7);
	assert_int_equal(value_of("num_device_free"), 1);
}

static void test_capacity_bounds_what_is_written(void **state)
{
	(void)state;
	reset();
	read_all();
	size_t all = count, again = 0;
	trz_stat_value few[3] = {{0}, {0}, {.name = "untouched"}};
	counters_read(&counters, &view, few, 2, &again);
	assert_int_equal(again, all);
	assert_string_equal(few[1].name, values[1].name);
	assert_string_equal(few[2].name, "untouched");
	counters_read(&counters, &view, NULL, 99, &again);
	assert_int_equal(again, all);
	counters_read(&counters, &view, few, 2, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_are_unique_and_described),
		cmocka_unit_test(test_every_entry_of_the_list_is_readable),
		cmocka_unit_test(test_names_that_pytorch_has),
		cmocka_unit_test(test_flow),
		cmocka_unit_test(test_level),
		cmocka_unit_test(test_active_is_held_and_pending),
		cmocka_unit_test(test_ratios),
		cmocka_unit_test(test_reset_peaks),
		cmocka_unit_test(test_driver_calls_by_slot),
		cmocka_unit_test(test_capacity_bounds_what_is_written),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
