/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream's slots: when they are out, what calls them in, and what an operation asks the driver.
 */
#include "heap/ledger.h"
#include "rig.h"

static struct stream *stream_of(struct rig *r, trz_stream handle)
{
	heap_lock(r->heap);
	struct stream *s = stream_find_handle(&r->heap->streams, handle);
	heap_unlock(r->heap);
	assert_non_null(s);
	return s;
}

static void test_slots_go_out_with_the_first_and_stay_out(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, 700, NULL), *q = rig_alloc(&r, 700, NULL);
	const struct slots *o = &stream_of(&r, NULL)->slots;
	assert_true(slots_are_out(o));
	rig_free(&r, p);
	assert_true(slots_are_out(o));
	assert_int_equal(slots_held(o, ALLOCATION), 1);
	assert_int_equal(slots_held(o, ALLOCATED_BYTES), 1024);
	assert_int_equal(slots_held(o, REQUESTED_BYTES), 700);
	rig_free(&r, q);
	rig_close(&r);
}

static void test_who_looks_at_slots_calls_them_in(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream other = rig_stream(&r);
	trz_pointer_info info;
	void *p = rig_alloc(&r, 700, NULL), *q = rig_alloc(&r, 700, NULL);
	const struct slots *o = &stream_of(&r, NULL)->slots;
	assert_ok(trz_check(r.heap));
	assert_false(slots_are_out(o));
	rig_free(&r, q);
	assert_true(slots_are_out(o));
	assert_ok(trz_query(r.heap, p, &info));
	assert_false(slots_are_out(o));
	rig_free(&r, rig_alloc(&r, 700, NULL));
	assert_true(slots_are_out(o));
	assert_ok(trz_record_stream(r.heap, p, other));
	assert_false(slots_are_out(o));
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(trz_poll(r.heap));
	rig_close(&r);
}

static void test_a_history_keeps_slots_in(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, 700, NULL);
	const struct slots *o = &stream_of(&r, NULL)->slots;
	assert_ok(trz_history_start(r.heap, 100));
	assert_false(slots_are_out(o));
	rig_free(&r, p);
	p = rig_alloc(&r, 700, NULL);
	assert_false(slots_are_out(o));
	assert_ok(trz_history_stop(r.heap));
	rig_free(&r, p);
	assert_true(slots_are_out(o));
	rig_close(&r);
}

static void test_a_retired_streams_slots_stay_in(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream stream = rig_stream(&r);
	rig_alloc(&r, 700, NULL);
	void *p = rig_alloc(&r, 700, stream), *q = rig_alloc(&r, 700, stream);
	const struct slots *o = &stream_of(&r, stream)->slots;
	rig_free(&r, q);
	assert_true(slots_are_out(o));
	assert_ok(trz_stream_retire(r.heap, stream));
	assert_false(slots_are_out(o));
	rig_free(&r, p);
	assert_false(slots_are_out(o));
	assert_ok(trz_check(r.heap));
	rig_sync(&r);
	rig_close(&r);
}

static void test_a_free_slot_leaves_a_ticket_owed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, 700, NULL), *q = rig_alloc(&r, 700, NULL);
	struct tickets *t = &stream_of(&r, NULL)->tickets;
	uint64_t newest = t->newest;
	rig_free(&r, p);
	rig_free(&r, q);
	assert_int_equal(t->newest, newest);
	heap_lock(r.heap);
	assert_int_equal(ticket_newest(t), newest + 1);
	assert_int_equal(ticket_newest(t), newest + 1);
	heap_unlock(r.heap);
	rig_close(&r);
}

/* Decision 4: each allocation asks for the stream's id, and whether it is being captured; a free asks nothing. */
static void test_what_is_asked_for_a_slot(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream stream = rig_stream(&r);
	void *p[] = {rig_alloc(&r, 700, stream), rig_alloc(&r, 700, stream), rig_alloc(&r, 700, stream)};
	uint64_t ids = sim_calls(r.s, SIM_SLOT_stream_id), captures = sim_calls(r.s, SIM_SLOT_stream_capture);
	for (int i = 0; i < 100; i++) {
		rig_free(&r, p[i % LENGTH(p)]);
		p[i % LENGTH(p)] = rig_alloc(&r, 700, stream);
	}
	assert_int_equal(sim_calls(r.s, SIM_SLOT_stream_id), ids + 100);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_stream_capture), captures + 100);
	assert_int_equal(rig_stat(&r, "driver_calls.stream_id"), ids + 100);
	assert_int_equal(rig_stat(&r, "driver_calls.stream_capture"), captures + 100);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots_go_out_with_the_first_and_stay_out),
		cmocka_unit_test(test_who_looks_at_slots_calls_them_in),
		cmocka_unit_test(test_a_history_keeps_slots_in),
		cmocka_unit_test(test_a_retired_streams_slots_stay_in),
		cmocka_unit_test(test_a_free_slot_leaves_a_ticket_owed),
		cmocka_unit_test(test_what_is_asked_for_a_slot),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
