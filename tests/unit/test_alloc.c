/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation: arguments, sizes, alignments, where the bytes lie, reuse, and when no driver call is made.
 */
#include "rig.h"

static void test_null_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p;
	assert_error(trz_alloc(NULL, 1, 0, NULL, &p), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_alloc(r.heap, 1, 0, NULL, NULL), TRZ_ERROR_INVALID_ARGUMENT, "out is NULL");
	rig_close(&r);
}

static void test_size_zero_gives_null(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = &r;
	assert_ok(trz_alloc(r.heap, 0, 0, NULL, &p));
	assert_null(p);
	assert_ok(trz_free(r.heap, p));
	assert_int_equal(rig_stat(&r, "allocation.all.current"), 0);
	rig_close(&r);
}

static void test_sizes_that_no_device_has(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	static const size_t sizes[] = {(size_t)1 << 47, ((size_t)1 << 47) + 1, SIZE_MAX / 2, SIZE_MAX - 511, SIZE_MAX - 1,
	                               SIZE_MAX};
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		void *p = &r;
		assert_error(trz_alloc(r.heap, sizes[i], 0, NULL, &p), TRZ_ERROR_SIZE, "bytes requested");
		assert_null(p);
	}
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.peak"), 0);
	rig_close(&r);
}

static void test_sizes_that_this_device_has_not(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	static const size_t sizes[] = {((size_t)1 << 47) - 1, (size_t)1 << 46, (size_t)1 << 40, GIB(1) + 1};
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		void *p = &r;
		trz_status status = trz_alloc(r.heap, sizes[i], MIB(2), NULL, &p);
		assert_true(status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_ADDRESS_SPACE);
		assert_null(p);
		rig_check(&r);
	}
	rig_free(&r, rig_alloc(&r, MIB(100), NULL));
	rig_close(&r);
}

static void test_bad_alignments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	static const size_t alignments[] = {3, 513, 768, MIB(2) + 1, MIB(4), (size_t)1 << 63, SIZE_MAX};
	for (size_t i = 0; i < LENGTH(alignments); i++) {
		void *p = &r;
		assert_error(trz_alloc(r.heap, 1000, alignments[i], NULL, &p), TRZ_ERROR_ALIGNMENT, "power of two");
		assert_null(p);
	}
	rig_close(&r);
}

static void test_every_alignment_with_every_kind_of_size(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	static const size_t sizes[] = {1, 511, 512, 513, 4096, 5000, 20480, KIB(32), KIB(32) + 1, KIB(100), MIB(1),
	                               MIB(2), MIB(2) + 1, MIB(17), MIB(63)};
	for (size_t alignment = 1; alignment <= MIB(2); alignment *= 2)
		for (size_t i = 0; i < LENGTH(sizes); i++) {
			void *p;
			trz_pointer_info info;
			assert_ok(trz_alloc(r.heap, sizes[i], alignment, NULL, &p));
			assert_int_equal((uintptr_t)p % (alignment < 512 ? 512 : alignment), 0);
			assert_ok(trz_query(r.heap, p, &info));
			assert_ptr_equal(info.base, p);
			assert_int_equal(info.requested, sizes[i]);
			assert_true(info.size >= sizes[i]);
			if (i % 2)
				rig_free(&r, p);
		}
	rig_check(&r);
	rig_close(&r);
}

/* The whole of what query calls reserved can be written. */
static void test_all_of_it_is_memory(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	for (size_t size = 1; size < MIB(40); size = size * 5 / 2 + 1) {
		void *p = rig_alloc(&r, size, NULL);
		trz_pointer_info info;
		assert_ok(trz_query(r.heap, p, &info));
		assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p, info.size, size));
		assert_ok(sim_verify(r.s, r.c, NULL, (trz_addr)p, info.size, size));
	}
	rig_sync(&r);
	rig_close(&r);
}

static void test_reuse_on_the_stream_is_at_the_same_address(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	static const size_t sizes[] = {100, KIB(20), KIB(40), MIB(1), MIB(50)};
	trz_stream stream = rig_stream(&r);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		void *p = rig_alloc(&r, sizes[i], stream);
		assert_ok(sim_stamp(r.s, r.c, stream, (trz_addr)p, sizes[i], i + 1));
		rig_free(&r, p);  /* while the work is still queued */
		assert_ptr_equal(rig_alloc(&r, sizes[i], stream), p);
	}
	rig_close(&r);
}

static void test_no_reuse_on_another_stream_while_work_is_queued(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	static const size_t sizes[] = {100, KIB(20), KIB(40), MIB(1), MIB(50)};
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		char *p = rig_alloc(&r, sizes[i], a);
		assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, sizes[i], i + 1));
		rig_free(&r, p);
		char *q = rig_alloc(&r, sizes[i], b);
		assert_true(q + sizes[i] <= p || p + sizes[i] <= q);
	}
	rig_sync(&r);
	rig_close(&r);
}

/* What a training step does again and again costs no driver call once it has been done. */
static void run_step(struct rig *r, trz_stream stream)
{
	void *p[40];
	for (size_t i = 0; i < LENGTH(p); i++) {
		p[i] = rig_alloc(r, 300 + i * i * 7000, stream);
		assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)p[i], 300 + i * i * 7000, i + 1));
	}
	for (size_t i = 0; i < LENGTH(p); i++)
		rig_free(r, p[i * 17 % LENGTH(p)]);
}

static void test_the_steady_state_calls_no_driver(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	for (int i = 0; i < 10; i++)
		run_step(&r, NULL);
	uint64_t calls = rig_calls(&r);
	for (int i = 0; i < 10; i++)
		run_step(&r, NULL);
	assert_int_equal(rig_calls(&r), calls);
	rig_check(&r);
	rig_close(&r);
}

static void test_a_heap_of_one_stream_records_no_event(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream stream = rig_stream(&r);
	for (int i = 0; i < 10; i++)
		run_step(&r, stream);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_record), 0);
	rig_close(&r);
}

static void test_neighbours_are_joined(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p[8];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(&r, MIB(4), NULL);
	void *guard = rig_alloc(&r, MIB(1), NULL);
	uint64_t reserved = rig_stat(&r, "reserved_bytes.all.current");
	for (size_t i = 0; i < LENGTH(p); i++)
		rig_free(&r, p[i * 3 % LENGTH(p)]);
	assert_ptr_equal(rig_alloc(&r, MIB(32), NULL), p[0]);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), reserved);
	rig_free(&r, guard);
	rig_close(&r);
}

/* Free memory that lies scattered serves a request that none of its pieces could. */
static void test_scattered_memory_serves_a_large_request(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(512), NULL);
	void *p[30];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(&r, MIB(16), NULL);
	for (size_t i = 0; i < LENGTH(p); i += 2)
		rig_free(&r, p[i]);
	rig_sync(&r);
	void *large = rig_alloc(&r, MIB(200), NULL);
	assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)large, MIB(200), 1));
	assert_ok(sim_verify(r.s, r.c, NULL, (trz_addr)large, MIB(200), 1));
	assert_true(rig_stat(&r, "path_gather") > 0);
	rig_sync(&r);
	rig_check(&r);
	rig_close(&r);
}

/* What is cut off before it is free again, and it is itself the window's last block. */
static void test_an_aligned_block_at_the_very_end_of_the_memory(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "tile_size:2MiB,tile_size_max:2MiB");
	void *p[3];
	rig_alloc(&r, MIB(2) + 512, NULL);
	assert_ok(trz_alloc(r.heap, MIB(2), MIB(2), NULL, &p[0]));
	rig_check(&r);
	p[1] = rig_alloc(&r, MIB(4), NULL);
	p[2] = rig_alloc(&r, MIB(4), NULL);
	for (size_t i = 0; i < 3; i++)
		assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p[i], MIB(2), i + 1));
	for (size_t i = 0; i < 3; i++)
		assert_ok(sim_verify(r.s, r.c, NULL, (trz_addr)p[i], MIB(2), i + 1));
	rig_sync(&r);
	rig_check(&r);
	rig_close(&r);
}

static void test_small_limit_zero_makes_everything_a_block(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "small_limit:0,medium_limit:0");
	void *p = rig_alloc(&r, 1, NULL);
	trz_pointer_info info;
	assert_ok(trz_query(r.heap, p, &info));
	assert_false(info.small);
	assert_int_equal(rig_stat(&r, "path_slot"), 0);
	rig_check(&r);
	rig_close(&r);
}

/* Of each size between a slot's and a large block's. Slabs find their places between them, too. */
static void test_medium_blocks_are_hardly_rounded(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {KIB(32) + 1, KIB(33), KIB(49) + 512, KIB(65), KIB(129), KIB(700) + 7, MIB(1)};
	enum { ROUNDS = 60, SIZES = sizeof sizes / sizeof *sizes };
	struct rig r = rig_open(GIB(1), NULL);
	static void *p[ROUNDS][SIZES], *slots[ROUNDS];
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < SIZES; i++) {
			trz_pointer_info info;
			p[round][i] = rig_alloc(&r, sizes[i], NULL);
			assert_ok(trz_query(r.heap, p[round][i], &info));
			assert_true(info.small);
			assert_in_range(info.size, sizes[i], sizes[i] + sizes[i] / 16);
		}
		slots[round] = rig_alloc(&r, KIB(28), NULL);
	}
	rig_check(&r);
	assert_in_range(rig_stat(&r, "reserved_bytes.all.current"), 0,
	                rig_stat(&r, "requested_bytes.all.current") / 100 * 107);
	for (unsigned round = 0; round < ROUNDS; round += 2)
		for (unsigned i = 0; i < SIZES; i++)
			rig_free(&r, p[round][i]);
	for (unsigned round = 0; round < ROUNDS; round++)
		rig_free(&r, slots[round]);
	rig_check(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_null_arguments),
		cmocka_unit_test(test_size_zero_gives_null),
		cmocka_unit_test(test_sizes_that_no_device_has),
		cmocka_unit_test(test_sizes_that_this_device_has_not),
		cmocka_unit_test(test_bad_alignments),
		cmocka_unit_test(test_every_alignment_with_every_kind_of_size),
		cmocka_unit_test(test_all_of_it_is_memory),
		cmocka_unit_test(test_reuse_on_the_stream_is_at_the_same_address),
		cmocka_unit_test(test_no_reuse_on_another_stream_while_work_is_queued),
		cmocka_unit_test(test_the_steady_state_calls_no_driver),
		cmocka_unit_test(test_a_heap_of_one_stream_records_no_event),
		cmocka_unit_test(test_neighbours_are_joined),
		cmocka_unit_test(test_scattered_memory_serves_a_large_request),
		cmocka_unit_test(test_an_aligned_block_at_the_very_end_of_the_memory),
		cmocka_unit_test(test_small_limit_zero_makes_everything_a_block),
		cmocka_unit_test(test_medium_blocks_are_hardly_rounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
