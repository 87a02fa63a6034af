/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of a heap: the functions that read them, the meaning of the figures, and their balance.
 */
#include "accounts.h"
#include "rig.h"

enum { MOST = 256 };

static void test_null_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	uint64_t value;
	size_t count;
	assert_error(trz_stats(NULL, NULL, 0, &count), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_stat(NULL, "segment.all.current", &value), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_stat(r.heap, NULL, &value), TRZ_ERROR_INVALID_ARGUMENT, "name is NULL");
	assert_error(trz_stat(r.heap, "segment.all.current", NULL), TRZ_ERROR_INVALID_ARGUMENT, "value is NULL");
	assert_error(trz_reset_peaks(NULL), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_check(NULL), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_ok(trz_stats(r.heap, NULL, 0, NULL));
	rig_close(&r);
}

static void test_no_such_statistic(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	uint64_t value = 77;
	assert_error(trz_stat(r.heap, "segments", &value), TRZ_ERROR_NOT_FOUND, "\"segments\"");
	assert_error(trz_stat(r.heap, "fragmentation", &value), TRZ_ERROR_INVALID_ARGUMENT, "ratio");
	assert_int_equal(value, 77);
	rig_close(&r);
}

static void test_one_and_all_agree(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_alloc(&r, MIB(3), NULL);
	rig_free(&r, rig_alloc(&r, 1000, NULL));
	trz_stat_value values[MOST];
	size_t count = 0, only = 0;
	assert_ok(trz_stats(r.heap, NULL, 0, &only));
	assert_ok(trz_stats(r.heap, values, MOST, &count));
	assert_int_equal(count, only);
	assert_in_range(count, 50, MOST);
	for (size_t i = 0; i < count; i++)
		if (strcmp(values[i].unit, "ratio") != 0)
			assert_int_equal(rig_stat(&r, values[i].name), values[i].value);
	rig_close(&r);
}

static void test_reading_calls_no_driver(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_alloc(&r, MIB(3), NULL);
	uint64_t calls = rig_calls(&r);
	rig_stat(&r, "reserved_bytes.all.current");
	assert_ok(trz_reset_peaks(r.heap));
	assert_ok(trz_check(r.heap));
	assert_int_equal(rig_calls(&r), calls);
	rig_close(&r);
}

static void test_what_callers_hold(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *small = rig_alloc(&r, 700, NULL), *large = rig_alloc(&r, MIB(3) + 1, NULL);
	assert_int_equal(rig_stat(&r, "allocation.small_pool.current"), 1);
	assert_int_equal(rig_stat(&r, "allocation.large_pool.current"), 1);
	assert_int_equal(rig_stat(&r, "allocated_bytes.small_pool.current"), 1024);
	assert_int_equal(rig_stat(&r, "allocated_bytes.large_pool.current"), MIB(3) + 512);
	assert_int_equal(rig_stat(&r, "requested_bytes.all.current"), 700 + MIB(3) + 1);
	rig_free(&r, small);
	rig_free(&r, large);
	assert_int_equal(rig_stat(&r, "allocation.all.current"), 0);
	assert_int_equal(rig_stat(&r, "allocated_bytes.all.current"), 0);
	assert_int_equal(rig_stat(&r, "requested_bytes.all.current"), 0);
	assert_int_equal(rig_stat(&r, "allocation.all.allocated"), 2);
	assert_int_equal(rig_stat(&r, "allocation.all.freed"), 2);
	assert_int_equal(rig_stat(&r, "allocation.all.peak"), 2);
	rig_close(&r);
}

static void test_reserved_is_what_the_device_gave(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	for (size_t size = 1; size < MIB(60); size = size * 3 + 1) {
		rig_alloc(&r, size, NULL);
		assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), sim_device_used(r.s, 0));
	}
	assert_int_equal(rig_stat(&r, "segment.all.current"), sim_calls(r.s, SIM_SLOT_create));
	rig_close(&r);
}

static void test_driver_calls_are_counted(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(30), a);
	rig_alloc(&r, 100, b);
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	static const struct {
		sim_slot slot;
		const char *name;
	} slots[] = {
#define ROW(slot) {SIM_SLOT_##slot, "driver_calls." #slot},
		TRZ_DRIVER_SLOTS(ROW)
#undef ROW
	};
	for (size_t i = 0; i < LENGTH(slots); i++)
		assert_int_equal(rig_stat(&r, slots[i].name), sim_calls(r.s, slots[i].slot));
	rig_close(&r);
}

static void test_paths(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_alloc(&r, 100, NULL);
	assert_int_equal(rig_stat(&r, "path_slot"), 1);
	rig_free(&r, rig_alloc(&r, KIB(100), NULL));  /* a block, though it counts in the small pool */
	assert_int_equal(rig_stat(&r, "path_slot"), 1);
	uint64_t extended = rig_stat(&r, "path_extend");
	rig_free(&r, rig_alloc(&r, MIB(20), NULL));
	assert_int_equal(rig_stat(&r, "path_extend"), extended + 1);
	uint64_t fitted = rig_stat(&r, "path_best_fit");
	rig_alloc(&r, MIB(5), NULL);
	assert_int_equal(rig_stat(&r, "path_best_fit"), fitted + 1);
	assert_int_equal(rig_stat(&r, "path_gather"), 0);
	rig_close(&r);
}

static void test_peaks_are_reset(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *keep = rig_alloc(&r, MIB(3), NULL);
	rig_free(&r, rig_alloc(&r, MIB(100), NULL));
	assert_int_equal(rig_stat(&r, "allocated_bytes.all.peak"), MIB(103));
	assert_int_equal(rig_stat(&r, "active_bytes.all.peak"), MIB(103));
	assert_ok(trz_reset_peaks(r.heap));
	assert_int_equal(rig_stat(&r, "allocated_bytes.all.peak"), MIB(3));
	assert_int_equal(rig_stat(&r, "active_bytes.all.peak"), MIB(3));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.peak"), rig_stat(&r, "reserved_bytes.all.current"));
	rig_free(&r, keep);
	rig_close(&r);
}

static double ratio_of(struct rig *r, const char *name)
{
	trz_stat_value values[MOST];
	size_t count;
	assert_ok(trz_stats(r->heap, values, MOST, &count));
	for (size_t i = 0; i < count; i++)
		if (strcmp(values[i].name, name) == 0)
			return values[i].ratio;
	fail_msg("there is no ratio %s", name);
	return 0;
}

static void test_fragmentation(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p[4];
	assert_true(ratio_of(&r, "fragmentation") == 0);
	for (size_t i = 0; i < 4; i++)
		p[i] = rig_alloc(&r, MIB(16), NULL);
	double reserved = (double)rig_stat(&r, "reserved_bytes.all.current");
	assert_true(ratio_of(&r, "fragmentation") == 1 - (double)MIB(64) / reserved);
	rig_free(&r, p[0]);
	rig_free(&r, p[2]);
	assert_true(ratio_of(&r, "fragmentation") == 1 - (double)MIB(32) / reserved);
	double largest = (double)rig_stat(&r, "largest_free_bytes");
	assert_true(ratio_of(&r, "external_fragmentation") ==
	            1 - largest / (double)rig_stat(&r, "cached_bytes.current"));
	rig_close(&r);
}

static void test_the_balance_holds(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream b = rig_stream(&r);
	void *p[60];
	for (size_t i = 0; i < LENGTH(p); i++) {
		p[i] = rig_alloc(&r, 1 + i * i * 5000, NULL);
		if (i % 3 == 2)
			assert_ok(trz_free_on(r.heap, p[i / 3], b));
		struct accounts a = accounts_read(r.heap);
		assert_true(accounts_balance(&a));
		assert_int_equal(a.idle, 0);
		assert_int_equal(a.zombie, 0);
	}
	rig_close(&r);
}

static void test_the_check_finds_nothing_wrong(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	assert_ok(trz_check(r.heap));
	rig_alloc(&r, 100, NULL);
	assert_ok(trz_check(r.heap));
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_null_arguments),
		cmocka_unit_test(test_no_such_statistic),
		cmocka_unit_test(test_one_and_all_agree),
		cmocka_unit_test(test_reading_calls_no_driver),
		cmocka_unit_test(test_what_callers_hold),
		cmocka_unit_test(test_reserved_is_what_the_device_gave),
		cmocka_unit_test(test_driver_calls_are_counted),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_peaks_are_reset),
		cmocka_unit_test(test_fragmentation),
		cmocka_unit_test(test_the_balance_holds),
		cmocka_unit_test(test_the_check_finds_nothing_wrong),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
