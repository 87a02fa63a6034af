/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounds the work under one hold of the heap lock: other threads want to allocate and free, so no walk that grows with
 * the heap is done in one piece. Builds that check heaps (TRZ_HEAP_CHECKS) count its steps.
 */
#include "heap/heap.h"
#include "rig.h"

#ifdef TRZ_HEAP_CHECKS

enum { BLOCKS = 6000, MOST = 2 * HOLD_STEPS };

static void *held[BLOCKS];

/* Free blocks of two streams, every second of which is held: small ones, or such as hold tiles. */
static struct rig open_many(size_t count, uint64_t size, trz_stream streams[2], bool syncs)
{
	struct rig r = rig_machine((sim_config){.capacity = GIB(80), .lenient_rules = SIM_RULE_SYNC_MAYBE});
	rig_open_heap(&r, "medium_limit:0,tile_size:2MiB,tile_size_max:2MiB");
	streams[0] = rig_stream(&r);
	streams[1] = rig_stream(&r);
	for (size_t i = 0; i < count; i++)
		held[i] = rig_alloc(&r, size, streams[i / 2 % 2]);
	for (size_t i = 0; i < count; i += 2)
		rig_free(&r, held[i]);
	if (syncs)
		rig_sync(&r);
	return r;
}

static void close_many(struct rig *r, size_t count)
{
	for (size_t i = 1; i < count; i += 2)
		rig_free(r, held[i]);
	rig_sync(r);
	rig_check(r);
	rig_close(r);
}

static unsigned most(void)
{
	return atomic_exchange(&spinlock_most, 0);
}

static void test_a_trim_of_many_small_blocks(void **state)
{
	(void)state;
	trz_stream s[2];
	struct rig r = open_many(BLOCKS, KIB(100), s, true);
	assert_ok(trz_poll(r.heap));
	most();
	assert_ok(trz_trim(r.heap, 0, NULL));
	unsigned steps = most();
	print_message("a trim over %d free blocks: %u steps at most\n", BLOCKS / 2, steps);
	assert_true(steps <= MOST);
	close_many(&r, BLOCKS);
}

static void test_a_trim_of_many_tiles(void **state)
{
	(void)state;
	enum { TILES = 1600 };
	trz_stream s[2];
	struct rig r = open_many(TILES, MIB(6), s, true);
	uint64_t before = rig_stat(&r, "reserved_bytes.all.current");
	most();
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_true(most() <= MOST);
	assert_true(before - rig_stat(&r, "reserved_bytes.all.current") >= TILES / 2 * MIB(4));
	close_many(&r, TILES);
}

/* One block of many tiles. */
static void test_a_trim_of_one_large_block(void **state)
{
	(void)state;
	trz_stream s[2];
	struct rig r = open_many(0, 0, s, false);
	rig_free(&r, rig_alloc(&r, GIB(16), s[0]));
	rig_sync(&r);
	most();
	size_t released;
	assert_ok(trz_trim(r.heap, GIB(1), &released));
	assert_int_equal(released, GIB(15));
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_int_equal(released, GIB(1));
	assert_true(most() <= MOST);
	close_many(&r, 0);
}

/* A stream that needs memory takes the other's, as far as it has passed. */
static void test_borrowing_among_many(void **state)
{
	(void)state;
	for (int passed = 0; passed < 2; passed++) {
		trz_stream s[2];
		struct rig r = open_many(BLOCKS, KIB(100), s, false);
		for (size_t i = 0; i < BLOCKS; i += 64)
			assert_ok(sim_stamp(r.s, r.c, s[0], (trz_addr)held[i + 1], KIB(100), 1));
		if (passed)
			rig_sync(&r);
		uint64_t polls = rig_calls(&r);
		most();
		held[0] = rig_alloc(&r, MIB(300), s[1]);
		assert_true(rig_calls(&r) > polls);
		assert_true(most() <= MOST);
		rig_free(&r, held[0]);
		close_many(&r, BLOCKS);
	}
}

/* The ladder, whose rungs go over all that is free; other streams have freed most of it with events of their own. */
static void test_a_climb_among_many(void **state)
{
	(void)state;
	trz_stream s[2];
	void *p = NULL;
	struct rig r = open_many(BLOCKS, KIB(100), s, true);
	assert_ok(trz_poll(r.heap));
	assert_ok(sim_stamp(r.s, r.c, s[0], (trz_addr)held[1], KIB(100), 1));
	for (size_t i = 1; i < BLOCKS; i += 4) {
		rig_free(&r, held[i]);
		held[i] = NULL;
	}
	assert_ok(trz_set_limit(r.heap, rig_stat(&r, "reserved_bytes.all.current")));
	most();
	assert_status(trz_alloc(r.heap, MIB(400), 0, s[1], &p), TRZ_ERROR_LIMIT);
	assert_true(rig_stat(&r, "waits_inserted") > 0);
	assert_true(most() <= MOST);
	close_many(&r, BLOCKS);
}

/* What waited for another stream is given back a little at a time. */
static void test_a_poll_with_much_pending(void **state)
{
	(void)state;
	enum { PENDING = 3000 };
	trz_stream s[2];
	struct rig r = open_many(0, 0, s, false);
	for (size_t i = 0; i < PENDING; i++) {
		held[i] = rig_alloc(&r, 700, s[0]);
		assert_ok(trz_record_stream(r.heap, held[i], s[1]));
	}
	assert_ok(sim_stamp(r.s, r.c, s[1], (trz_addr)held[0], 512, 1));
	for (size_t i = 0; i < PENDING; i++)
		rig_free(&r, held[i]);
	assert_ok(trz_poll(r.heap));
	assert_int_equal(rig_stat(&r, "pending.current"), PENDING);
	rig_sync(&r);
	most();
	assert_ok(trz_poll(r.heap));
	assert_int_equal(rig_stat(&r, "pending.current"), 0);
	assert_true(most() <= MOST);
	close_many(&r, 0);
}

#else

static void test_nothing_is_counted_in_this_build(void **state)
{
	(void)state;
	skip();
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef TRZ_HEAP_CHECKS
		cmocka_unit_test(test_a_trim_of_many_small_blocks),
		cmocka_unit_test(test_a_trim_of_many_tiles),
		cmocka_unit_test(test_a_trim_of_one_large_block),
		cmocka_unit_test(test_borrowing_among_many),
		cmocka_unit_test(test_a_climb_among_many),
		cmocka_unit_test(test_a_poll_with_much_pending),
#else
		cmocka_unit_test(test_nothing_is_counted_in_this_build),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
