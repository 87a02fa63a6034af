/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that several streams use, streams that end, and the largest request that would be served.
 */
#include "rig.h"

static const size_t kinds[] = {300, MIB(3)};

static void test_null_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	size_t size;
	void *p = rig_alloc(&r, 300, NULL);
	assert_error(trz_record_stream(NULL, p, NULL), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_stream_retire(NULL, NULL), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_largest_block(NULL, NULL, &size), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_largest_block(r.heap, NULL, NULL), TRZ_ERROR_INVALID_ARGUMENT, "size is NULL");
	rig_close(&r);
}

static void test_recording_what_is_not_ours(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream b = rig_stream(&r);
	assert_ok(trz_record_stream(r.heap, NULL, b));
	assert_ok(trz_record_stream(r.heap, &r, b));
	rig_check(&r);
	rig_close(&r);
}

/* Freed on its own stream while another still reads it: pending, then free for all. */
static void test_a_free_waits_for_the_other_users(void **state)
{
	(void)state;
	for (size_t i = 0; i < LENGTH(kinds); i++) {
		struct rig r = rig_open(GIB(1), NULL);
		trz_stream a = rig_stream(&r), b = rig_stream(&r);
		char *p = rig_alloc(&r, kinds[i], a);
		assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, kinds[i], 1));
		rig_order(&r, a, b);
		assert_ok(sim_verify(r.s, r.c, b, (trz_addr)p, kinds[i], 1));
		assert_ok(trz_record_stream(r.heap, p, b));
		assert_ok(trz_record_stream(r.heap, p, b));
		assert_ok(sim_stream_sync(r.s, r.c, a));
		rig_free(&r, p);
		assert_int_equal(rig_stat(&r, "pending.current"), 1);
		assert_true(rig_stat(&r, "pending_bytes.current") >= kinds[i]);
		assert_status(trz_free(r.heap, p), TRZ_ERROR_DOUBLE_FREE);
		for (int j = 0; j < 100; j++) {
			char *q = rig_alloc(&r, kinds[i], a);
			assert_true(q + kinds[i] <= p || p + kinds[i] <= q);
			assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)q, kinds[i], 2));
		}
		rig_sync(&r);
		assert_ok(trz_trim(r.heap, SIZE_MAX, NULL));
		assert_int_equal(rig_stat(&r, "pending.current"), 0);
		rig_check(&r);
		rig_close(&r);
	}
}

/* Once the other users are done, the stream's next request gets the memory: the heap asks how far they are before it
 * creates what the slack would allow. */
static void test_a_request_finds_what_the_other_users_are_done_with(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	rig_alloc(&r, GIB(1), a);
	char *first = rig_alloc(&r, MIB(4), a), *p = first;
	uint64_t creates = sim_calls(r.s, SIM_SLOT_create);
	for (int i = 0; i < 4; i++) {
		rig_order(&r, a, b);
		assert_ok(trz_record_stream(r.heap, p, b));
		rig_free(&r, p);
		assert_int_equal(rig_stat(&r, "pending.current"), 1);
		rig_sync(&r);
		p = rig_alloc(&r, MIB(4), a);
		assert_ptr_equal(p, first);
	}
	assert_int_equal(sim_calls(r.s, SIM_SLOT_create), creates);
	rig_check(&r);
	rig_close(&r);
}

/* Pending memory is active, in the pool of its size: a slot, a small block, a large block. */
static void test_pending_memory_is_active_in_its_pool(void **state)
{
	(void)state;
	static const size_t sizes[] = {512, KIB(608), MIB(20)};
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p[LENGTH(sizes)];
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		p[i] = rig_alloc(&r, sizes[i], a);
		assert_ok(trz_record_stream(r.heap, p[i], b));
	}
	for (size_t i = 0; i < LENGTH(sizes); i++)
		rig_free(&r, p[i]);
	assert_int_equal(rig_stat(&r, "allocation.all.current"), 0);
	assert_int_equal(rig_stat(&r, "active.small_pool.current"), 2);
	assert_int_equal(rig_stat(&r, "active.large_pool.current"), 1);
	assert_int_equal(rig_stat(&r, "active_bytes.small_pool.current"), 512 + KIB(608));
	assert_int_equal(rig_stat(&r, "active_bytes.large_pool.current"), MIB(20));
	trz_reset_peaks(r.heap);
	rig_alloc(&r, 512, a);
	assert_int_equal(rig_stat(&r, "active.small_pool.peak"), 3);
	assert_int_equal(rig_stat(&r, "active_bytes.large_pool.peak"), MIB(20));
	rig_check(&r);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));  /* asks how far the streams are */
	assert_int_equal(rig_stat(&r, "active_bytes.all.current"), 512);
	trz_reset_peaks(r.heap);
	assert_int_equal(rig_stat(&r, "active.small_pool.peak"), 1);
	assert_int_equal(rig_stat(&r, "active_bytes.large_pool.peak"), 0);
	rig_check(&r);
	rig_close(&r);
}

/* The device is full of memory that another stream still reads: the next user waits for that, not for more. */
static void test_a_full_device_waits_for_the_other_users(void **state)
{
	(void)state;
	enum { BLOCKS = 4 };
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r), c = rig_stream(&r);
	char *p[BLOCKS], *q = NULL;
	uint32_t flag = 0;
	for (int i = 0; i < BLOCKS; i++) {
		p[i] = rig_alloc(&r, MIB(240), a);
		assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p[i], MIB(240), 1));
	}
	rig_order(&r, a, b);
	rig_order(&r, a, c);
	for (int i = 0; i < BLOCKS; i++) {
		assert_ok(sim_verify(r.s, r.c, b, (trz_addr)p[i], MIB(240), 1));
		assert_ok(sim_verify(r.s, r.c, c, (trz_addr)p[i], MIB(240), 1));
		assert_ok(trz_record_stream(r.heap, p[i], b));
		assert_ok(trz_record_stream(r.heap, p[i], c));
		rig_free(&r, p[i]);
	}
	assert_ok(sim_spin(r.s, r.c, b, &flag));  /* what came after the frees is nobody's business */
	assert_int_equal(rig_stat(&r, "pending.current"), BLOCKS);
	assert_ok(trz_alloc(r.heap, MIB(500), 0, a, (void **)&q));
	assert_true(rig_stat(&r, "waits_inserted") > 0);
	assert_true(rig_stat(&r, "pending.current") >= 1);  /* no more than was needed */
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)q, MIB(500), 2));
	assert_ok(sim_verify(r.s, r.c, a, (trz_addr)q, MIB(500), 2));
	assert_ok(sim_stream_sync(r.s, r.c, a));
	rig_check(&r);
	flag = 1;
	rig_free(&r, q);
	rig_close(&r);
}

static void test_recording_the_own_stream_changes_nothing(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r);
	for (size_t i = 0; i < LENGTH(kinds); i++) {
		void *p = rig_alloc(&r, kinds[i], a);
		assert_ok(trz_record_stream(r.heap, p, a));
		rig_free(&r, p);
		assert_ptr_equal(rig_alloc(&r, kinds[i], a), p);
	}
	assert_int_equal(rig_stat(&r, "pending.peak"), 0);
	rig_close(&r);
}

static void test_a_stream_that_goes(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(200), b), *q = rig_alloc(&r, 300, b);
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)p, MIB(200), 1));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)q, 300, 2));
	rig_free(&r, p);
	rig_free(&r, q);
	assert_ok(trz_stream_retire(r.heap, b));
	assert_ok(sim_stream_destroy(r.s, r.c, b));  /* its work goes on */
	rig_sync(&r);
	assert_non_null(rig_alloc(&r, MIB(200), a));
	rig_check(&r);
	rig_close(&r);
}

static void test_retiring_an_unknown_stream(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	assert_ok(trz_stream_retire(r.heap, rig_stream(&r)));
	assert_int_equal(rig_stat(&r, "stream.current"), 0);
	rig_close(&r);
}

/* What is promised can be had, and a granule more cannot. */
static void expect_largest(struct rig *r, trz_stream stream)
{
	size_t size;
	void *p;
	assert_ok(trz_largest_block(r->heap, stream, &size));
	assert_ok(trz_alloc(r->heap, size, 0, stream, &p));
	rig_free(r, p);
	rig_sync(r);
	trz_status more = trz_alloc(r->heap, size + MIB(2), 0, stream, &p);
	assert_true(more == TRZ_ERROR_OUT_OF_MEMORY || more == TRZ_ERROR_LIMIT);
}

static void test_the_largest_request(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	trz_stream a = rig_stream(&r);
	void *p[10];
	expect_largest(&r, a);
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(&r, MIB(16), a);
	expect_largest(&r, a);
	for (size_t i = 0; i < LENGTH(p); i += 2)
		rig_free(&r, p[i]);
	rig_sync(&r);
	expect_largest(&r, a);
	assert_ok(trz_set_limit(r.heap, MIB(200)));
	expect_largest(&r, a);
	rig_check(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_null_arguments),
		cmocka_unit_test(test_recording_what_is_not_ours),
		cmocka_unit_test(test_a_free_waits_for_the_other_users),
		cmocka_unit_test(test_a_request_finds_what_the_other_users_are_done_with),
		cmocka_unit_test(test_pending_memory_is_active_in_its_pool),
		cmocka_unit_test(test_a_full_device_waits_for_the_other_users),
		cmocka_unit_test(test_recording_the_own_stream_changes_nothing),
		cmocka_unit_test(test_a_stream_that_goes),
		cmocka_unit_test(test_retiring_an_unknown_stream),
		cmocka_unit_test(test_the_largest_request),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
