/* SPDX-License-Identifier: Apache-2.0
 *
 * Trim, limits and running out of memory: which memory stays or goes, the error's text, and a heap that still works.
 */
#include "rig.h"

static uint64_t reserved(const struct rig *r)
{
	return rig_stat(r, "reserved_bytes.all.current");
}

static void test_null_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	size_t n;
	assert_error(trz_trim(NULL, 0, &n), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_set_limit(NULL, 0), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_get_limit(NULL, &n), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_get_limit(r.heap, NULL), TRZ_ERROR_INVALID_ARGUMENT, "limit is NULL");
	assert_ok(trz_trim(r.heap, 0, NULL));
	rig_close(&r);
}

static void test_trim_returns_everything_that_is_free(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	for (size_t size = 1; size < MIB(50); size = size * 3 + 1)
		rig_free(&r, rig_alloc(&r, size, NULL));
	uint64_t before = reserved(&r);
	size_t released = 0;
	assert_true(before > 0);
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_int_equal(released, before);
	assert_int_equal(reserved(&r), 0);
	assert_int_equal(sim_device_used(r.s, 0), 0);
	rig_check(&r);
	rig_free(&r, rig_alloc(&r, MIB(20), NULL));
	rig_close(&r);
}

static void test_trim_keeps_what_it_is_told_to(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p[20];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(&r, MIB(16), NULL);
	for (size_t i = 0; i < LENGTH(p); i++)
		rig_free(&r, p[i]);
	uint64_t before = reserved(&r);
	size_t released;
	assert_ok(trz_trim(r.heap, SIZE_MAX, &released));
	assert_int_equal(released, 0);
	assert_ok(trz_trim(r.heap, MIB(100), &released));
	assert_int_equal(released, before - reserved(&r));
	assert_true(reserved(&r) <= MIB(100));
	assert_true(reserved(&r) + MIB(64) > MIB(100));  /* no more than one tile too much */
	assert_ok(trz_trim(r.heap, MIB(100), &released));
	assert_int_equal(released, 0);
	rig_check(&r);
	rig_close(&r);
}

static void test_trim_leaves_what_work_still_uses(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(100), NULL);
	assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p, MIB(100), 1));
	rig_free(&r, p);
	uint64_t before = reserved(&r);
	size_t released;
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_true(reserved(&r) >= MIB(100));
	assert_int_equal(before - reserved(&r), released);
	assert_int_equal(sim_unfinished(r.s), 1);  /* nothing has waited */
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_int_equal(reserved(&r), 0);
	rig_close(&r);
}

static void test_trim_leaves_live_memory(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	static const size_t sizes[] = {300, KIB(40), MIB(33)};
	void *p[LENGTH(sizes)];
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		p[i] = rig_alloc(&r, sizes[i], NULL);
		rig_free(&r, rig_alloc(&r, MIB(64), NULL));
		assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p[i], sizes[i], i + 1));
	}
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		assert_ok(sim_verify(r.s, r.c, NULL, (trz_addr)p[i], sizes[i], i + 1));
		rig_free(&r, p[i]);
	}
	rig_sync(&r);
	rig_close(&r);
}

/* A tile goes alone: the few bytes beside it, too few for any request, are not its own. */
static void test_the_scrap_beside_a_trimmed_tile_stays(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "tile_size:2MiB,tile_size_max:2MiB");
	void *p = rig_alloc(&r, MIB(2) + KIB(16), NULL);
	rig_alloc(&r, MIB(2), NULL);
	rig_free(&r, p);
	rig_sync(&r);
	size_t released;
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_int_equal(released, MIB(2));
	rig_check(&r);
	rig_close(&r);
}

static void test_limit_by_call_and_by_configuration(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "limit:128MiB");
	size_t limit;
	assert_ok(trz_get_limit(r.heap, &limit));
	assert_int_equal(limit, MIB(128));
	assert_ok(trz_set_limit(r.heap, MIB(256)));
	assert_ok(trz_get_limit(r.heap, &limit));
	assert_int_equal(limit, MIB(256));
	rig_alloc(&r, MIB(200), NULL);
	assert_true(reserved(&r) <= MIB(256));
	rig_close(&r);
}

static void test_the_limit_refuses_by_name(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *held = rig_alloc(&r, MIB(100), NULL), *p = &r;
	assert_ok(trz_set_limit(r.heap, MIB(128)));
	assert_error(trz_alloc(r.heap, MIB(100), 0, NULL, &p), TRZ_ERROR_LIMIT, "limit of 128.00 MiB");
	assert_text(trz_last_error(), "100.00 MiB requested on device 0");
	assert_null(p);
	assert_int_equal(rig_stat(&r, "num_ooms"), 1);
	assert_true(reserved(&r) <= MIB(128));
	rig_check(&r);
	assert_ok(trz_set_limit(r.heap, 0));
	rig_free(&r, rig_alloc(&r, MIB(100), NULL));
	rig_free(&r, held);
	rig_close(&r);
}

static void test_a_limit_below_what_is_reserved_stops_growth_only(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(200), NULL), *q;
	assert_ok(trz_set_limit(r.heap, MIB(50)));
	assert_int_equal(reserved(&r) >= MIB(200), 1);
	assert_status(trz_alloc(r.heap, MIB(200), 0, NULL, &q), TRZ_ERROR_LIMIT);
	rig_free(&r, p);
	p = rig_alloc(&r, MIB(180), NULL);  /* out of the cache */
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, MIB(50), NULL));
	assert_true(reserved(&r) <= MIB(50));
	rig_close(&r);
}

/* Up to the last granule, in pieces and in one. */
static void test_the_whole_device_can_be_had(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	void *p = rig_alloc(&r, MIB(256), NULL);
	rig_free(&r, p);
	rig_sync(&r);
	for (int i = 0; i < 128; i++)
		assert_non_null(rig_alloc(&r, MIB(2), NULL));
	assert_int_equal(sim_device_used(r.s, 0), MIB(256));
	rig_check(&r);
	rig_close(&r);
}

static void test_out_of_memory_says_what_is_the_matter(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	void *held = rig_alloc(&r, MIB(200), NULL), *p = &r;
	assert_error(trz_alloc(r.heap, MIB(100), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY, "100.00 MiB requested");
	assert_text(trz_last_error(), "of 256.00 MiB");
	assert_text(trz_last_error(), "callers hold 200.00 MiB");
	assert_null(p);
	assert_int_equal(rig_stat(&r, "num_ooms"), 1);
	assert_int_equal(rig_stat(&r, "num_alloc_retries"), 1);
	assert_int_equal(rig_stat(&r, "allocation.all.current"), 1);
	rig_check(&r);
	rig_free(&r, rig_alloc(&r, MIB(40), NULL));
	rig_free(&r, held);
	rig_sync(&r);
	rig_free(&r, rig_alloc(&r, MIB(250), NULL));
	rig_close(&r);
}

/* The memory of small allocations that have gone serves a large one. */
static void test_slabs_are_given_up_for_a_large_request(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(128), NULL);
	static void *p[90 * 64];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(&r, KIB(16), NULL);
	for (size_t i = 0; i < LENGTH(p); i++)
		rig_free(&r, p[i]);
	rig_sync(&r);
	assert_non_null(rig_alloc(&r, MIB(120), NULL));
	rig_check(&r);
	rig_close(&r);
}

static void test_small_requests_fit_beside_a_full_device(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), NULL);
	void *big = rig_alloc(&r, MIB(62), NULL), *p;
	for (int i = 0; i < 100; i++)
		assert_non_null(rig_alloc(&r, KIB(16), NULL));
	while (trz_alloc(r.heap, KIB(16), 0, NULL, &p) == TRZ_OK)
		;
	assert_text(trz_last_error(), "requested on device 0");
	rig_check(&r);
	rig_free(&r, big);
	rig_sync(&r);
	rig_alloc(&r, KIB(16), NULL);
	rig_close(&r);
}

/* Memory that another stream has done with is not lost to this one. */
static void test_other_streams_memory_before_out_of_memory(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	rig_free(&r, rig_alloc(&r, 100, b));
	void *p = rig_alloc(&r, MIB(200), a), *q;
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, MIB(200), 1));
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(trz_alloc(r.heap, MIB(200), 0, b, &q));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)q, MIB(200), 2));
	rig_sync(&r);
	rig_check(&r);
	rig_close(&r);
}

/* The slabs' memory moves and what is missing is created with all effort. */
static void test_a_tile_size_that_is_no_multiple_of_the_granule(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), "tile_size:3000000,tile_size_max:7000000");
	static void *p[60 * 64];
	rig_alloc(&r, MIB(100), NULL);
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(&r, KIB(16), NULL);
	for (size_t i = 0; i < LENGTH(p); i++)
		rig_free(&r, p[i]);
	rig_sync(&r);
	assert_non_null(rig_alloc(&r, MIB(120), NULL));
	rig_check(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_null_arguments),
		cmocka_unit_test(test_trim_returns_everything_that_is_free),
		cmocka_unit_test(test_trim_keeps_what_it_is_told_to),
		cmocka_unit_test(test_trim_leaves_what_work_still_uses),
		cmocka_unit_test(test_trim_leaves_live_memory),
		cmocka_unit_test(test_the_scrap_beside_a_trimmed_tile_stays),
		cmocka_unit_test(test_limit_by_call_and_by_configuration),
		cmocka_unit_test(test_the_limit_refuses_by_name),
		cmocka_unit_test(test_a_limit_below_what_is_reserved_stops_growth_only),
		cmocka_unit_test(test_the_whole_device_can_be_had),
		cmocka_unit_test(test_out_of_memory_says_what_is_the_matter),
		cmocka_unit_test(test_slabs_are_given_up_for_a_large_request),
		cmocka_unit_test(test_small_requests_fit_beside_a_full_device),
		cmocka_unit_test(test_other_streams_memory_before_out_of_memory),
		cmocka_unit_test(test_a_tile_size_that_is_no_multiple_of_the_granule),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
