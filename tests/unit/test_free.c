/* SPDX-License-Identifier: Apache-2.0
 *
 * Freeing and querying: refusals by name, and the order of streams.
 */
#include "rig.h"

/* One size that a slab serves and one that a block of its own does. */
static const size_t kinds[] = {300, MIB(3)};

static void test_null_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_pointer_info info;
	assert_error(trz_free(NULL, &r), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_free_on(NULL, &r, NULL), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_query(NULL, &r, &info), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_query(r.heap, &r, NULL), TRZ_ERROR_INVALID_ARGUMENT, "out is NULL");
	assert_ok(trz_free(r.heap, NULL));
	assert_ok(trz_free_on(r.heap, NULL, NULL));
	assert_status(trz_query(r.heap, NULL, &info), TRZ_ERROR_UNKNOWN_POINTER);
	rig_close(&r);
}

static void test_unknown_pointers(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	char *p = rig_alloc(&r, MIB(3), NULL);
	void *const bad[] = {&r, (void *)8, (void *)UINTPTR_MAX, p + GIB(500), p - GIB(500), (void *)(1ull << 48)};
	for (size_t i = 0; i < LENGTH(bad); i++) {
		trz_pointer_info info;
		assert_error(trz_free(r.heap, bad[i]), TRZ_ERROR_UNKNOWN_POINTER, "was not allocated");
		assert_error(trz_free_on(r.heap, bad[i], NULL), TRZ_ERROR_UNKNOWN_POINTER, "was not allocated");
		assert_status(trz_query(r.heap, bad[i], &info), TRZ_ERROR_UNKNOWN_POINTER);
	}
	rig_free(&r, p);
	rig_check(&r);
	rig_close(&r);
}

static void test_interior_pointers_cannot_be_freed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	for (size_t i = 0; i < LENGTH(kinds); i++) {
		char *p = rig_alloc(&r, kinds[i], NULL);
		const size_t inside[] = {1, 8, kinds[i] / 2, kinds[i] - 1};
		for (size_t j = 0; j < LENGTH(inside); j++) {
			assert_error(trz_free(r.heap, p + inside[j]), TRZ_ERROR_UNKNOWN_POINTER, "not the first byte");
			assert_status(trz_free_on(r.heap, p + inside[j], NULL), TRZ_ERROR_UNKNOWN_POINTER);
		}
		rig_free(&r, p);
	}
	rig_check(&r);
	rig_close(&r);
}

static void test_double_free(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	for (size_t i = 0; i < LENGTH(kinds); i++) {
		void *keep = rig_alloc(&r, kinds[i], NULL), *p = rig_alloc(&r, kinds[i], NULL);
		rig_free(&r, p);
		assert_error(trz_free(r.heap, p), TRZ_ERROR_DOUBLE_FREE, "already");
		assert_error(trz_free_on(r.heap, p, NULL), TRZ_ERROR_DOUBLE_FREE, "already");
		rig_free(&r, keep);
		assert_error(trz_free(r.heap, p), TRZ_ERROR_DOUBLE_FREE, "already");
		assert_int_equal(rig_stat(&r, "allocation.all.current"), 0);
	}
	rig_check(&r);
	rig_close(&r);
}

static void test_double_free_of_what_is_pending(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	for (size_t i = 0; i < LENGTH(kinds); i++) {
		void *p = rig_alloc(&r, kinds[i], a);
		assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)p, kinds[i], 1));
		assert_ok(trz_free_on(r.heap, p, b));
		assert_status(trz_free(r.heap, p), TRZ_ERROR_DOUBLE_FREE);
		assert_status(trz_free_on(r.heap, p, a), TRZ_ERROR_DOUBLE_FREE);
		trz_pointer_info info;
		assert_status(trz_query(r.heap, p, &info), TRZ_ERROR_UNKNOWN_POINTER);
	}
	rig_check(&r);
	rig_close(&r);
}

static void test_free_of_another_heaps_pointer(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_open_params params = {.driver = r.d};
	trz_heap *other;
	assert_ok(trz_open(&params, &other));
	for (size_t i = 0; i < LENGTH(kinds); i++) {
		void *p;
		assert_ok(trz_alloc(other, kinds[i], 0, NULL, &p));
		assert_error(trz_free(r.heap, p), TRZ_ERROR_WRONG_DEVICE, "another heap");
		assert_ok(trz_free(other, p));
	}
	assert_ok(trz_close(other));
	rig_close(&r);
}

static void test_query_of_every_place_inside(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream stream = rig_stream(&r);
	static const size_t sizes[] = {300, KIB(20), KIB(33), MIB(3), MIB(70)};
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		char *p = rig_alloc(&r, sizes[i], stream);
		trz_pointer_info info;
		for (size_t at = 0; at < sizes[i]; at = at * 2 + 1) {
			assert_ok(trz_query(r.heap, p + at, &info));
			assert_ptr_equal(info.base, p);
			assert_int_equal(info.requested, sizes[i]);
			assert_in_range(info.size, sizes[i], sizes[i] * 5 / 4 + KIB(32));
			assert_ptr_equal(info.stream, stream);
			assert_int_equal(info.device, 0);
			assert_int_equal(info.small, sizes[i] <= MIB(1));
		}
		assert_ok(trz_query(r.heap, p + info.size - 1, &info));
		rig_free(&r, p);
		assert_error(trz_query(r.heap, p, &info), TRZ_ERROR_UNKNOWN_POINTER, "a live allocation");
	}
	rig_close(&r);
}

static void test_query_makes_no_driver_call(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(3), NULL);
	uint64_t calls = rig_calls(&r);
	trz_pointer_info info;
	assert_ok(trz_query(r.heap, p, &info));
	assert_int_equal(rig_calls(&r), calls);
	rig_close(&r);
}

static void test_free_calls_the_driver_for_one_record_at_most(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "event_bytes:0");
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(3), a), *q = rig_alloc(&r, 300, a);
	uint64_t calls = rig_calls(&r);
	rig_free(&r, p);
	rig_free(&r, q);
	assert_int_equal(rig_calls(&r), calls);  /* one stream: none at all */
	rig_alloc(&r, 300, b);
	p = rig_alloc(&r, MIB(3), a);
	q = rig_alloc(&r, 300, a);
	calls = rig_calls(&r);
	rig_free(&r, q);
	assert_int_equal(rig_calls(&r), calls);  /* small ones are lazy */
	sim_reset_calls(r.s);
	rig_free(&r, p);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_record), 1);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_query), 0);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_sync), 0);
	rig_close(&r);
}

/* Several streams: a free records once more than 64 MiB, or 64 frees, of its stream are without an event. */
static void test_frees_record_in_batches(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p[130];
	rig_alloc(&r, 300, b);
	for (int i = 0; i < 130; i++)
		p[i] = rig_alloc(&r, i < 10 ? MIB(16) : KIB(40), a);
	sim_reset_calls(r.s);
	for (int i = 0; i < 4; i++)
		rig_free(&r, p[i]);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_record), 0);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_stream_capture), 0);
	for (int i = 4; i < 10; i++)
		rig_free(&r, p[i]);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_record), 2);
	for (int i = 10; i < 130; i++)
		rig_free(&r, p[i]);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_record), 3);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_stream_capture), 3);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_query), 0);
	p[0] = rig_alloc(&r, MIB(700), a);
	p[1] = rig_alloc(&r, KIB(40), a);
	assert_status(trz_alloc(r.heap, MIB(700), 0, a, &p[2]), TRZ_ERROR_OUT_OF_MEMORY);
	sim_reset_calls(r.s);
	rig_free(&r, p[1]);  /* memory has run short: somebody may have to wait for any */
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_record), 1);
	rig_close(&r);
}

/* A poll finds how far a stream is, and records for what no event covers: not while older events are open. */
static void test_polls_record_behind_what_has_passed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream stream = rig_stream(&r);
	void *p[4];
	for (int i = 0; i < 4; i++)
		p[i] = rig_alloc(&r, MIB(3), i == 3 ? NULL : stream);
	for (uint64_t i = 0; i < 3; i++) {
		assert_ok(sim_stamp(r.s, r.c, stream, (trz_addr)p[i], MIB(3), i));
		rig_free(&r, p[i]);
		sim_reset_calls(r.s);
		assert_ok(trz_poll(r.heap));
		assert_int_equal(sim_calls(r.s, SIM_SLOT_event_record), i == 0);
		assert_int_equal(sim_calls(r.s, SIM_SLOT_event_query), 1);
	}
	rig_sync(&r);
	sim_reset_calls(r.s);
	assert_ok(trz_poll(r.heap));
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_record), 1);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_query), 2);
	rig_close(&r);
}

static void test_free_on_gives_to_that_stream(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(3), a);
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, MIB(3), 1));
	rig_order(&r, a, b);
	assert_ok(sim_verify(r.s, r.c, b, (trz_addr)p, MIB(3), 1));
	assert_ok(trz_free_on(r.heap, p, b));
	assert_ptr_not_equal(rig_alloc(&r, MIB(3), a), p);
	assert_ptr_equal(rig_alloc(&r, MIB(3), b), p);
	rig_check(&r);
	rig_close(&r);
}

/* A slot stays its slab's: freed on another stream it waits for that stream. */
static void test_a_slot_freed_on_another_stream_is_pending(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, 512, a);
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, 512, 1));
	rig_order(&r, a, b);
	assert_ok(sim_verify(r.s, r.c, b, (trz_addr)p, 512, 1));
	assert_ok(trz_free_on(r.heap, p, b));
	assert_int_equal(rig_stat(&r, "pending_bytes.current"), 512);
	assert_int_equal(rig_stat(&r, "pending.current"), 1);
	assert_int_equal(rig_stat(&r, "allocation.all.current"), 0);
	assert_int_equal(rig_stat(&r, "active.all.current"), 1);
	for (int i = 0; i < 200; i++) {
		void *q = rig_alloc(&r, 512, a);
		assert_ptr_not_equal(q, p);
		assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)q, 512, 2));
	}
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));  /* asks how far the streams are */
	assert_int_equal(rig_stat(&r, "pending_bytes.current"), 0);
	rig_check(&r);
	rig_close(&r);
}

static void test_free_on_the_same_stream_is_free(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r);
	for (size_t i = 0; i < LENGTH(kinds); i++) {
		void *p = rig_alloc(&r, kinds[i], a);
		assert_ok(trz_free_on(r.heap, p, a));
		assert_ptr_equal(rig_alloc(&r, kinds[i], a), p);
	}
	assert_int_equal(rig_stat(&r, "pending_bytes.peak"), 0);
	rig_close(&r);
}

static void test_legacy_streams_by_both_names(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream one = (trz_stream)1;
	void *p = rig_alloc(&r, MIB(3), NULL);
	trz_pointer_info info;
	rig_free(&r, p);
	assert_ptr_equal(rig_alloc(&r, MIB(3), one), p);
	assert_ok(trz_query(r.heap, p, &info));
	assert_null(info.stream);
	assert_int_equal(rig_stat(&r, "stream.current"), 1);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_null_arguments),
		cmocka_unit_test(test_unknown_pointers),
		cmocka_unit_test(test_interior_pointers_cannot_be_freed),
		cmocka_unit_test(test_double_free),
		cmocka_unit_test(test_double_free_of_what_is_pending),
		cmocka_unit_test(test_free_of_another_heaps_pointer),
		cmocka_unit_test(test_query_of_every_place_inside),
		cmocka_unit_test(test_query_makes_no_driver_call),
		cmocka_unit_test(test_free_calls_the_driver_for_one_record_at_most),
		cmocka_unit_test(test_frees_record_in_batches),
		cmocka_unit_test(test_polls_record_behind_what_has_passed),
		cmocka_unit_test(test_free_on_gives_to_that_stream),
		cmocka_unit_test(test_a_slot_freed_on_another_stream_is_pending),
		cmocka_unit_test(test_free_on_the_same_stream_is_free),
		cmocka_unit_test(test_legacy_streams_by_both_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
