/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of other contexts: of a second device, which reads and writes this device's memory as a peer, and of a second
 * context of this device.
 */
#include <pthread.h>

#include "heap/heap.h"
#include "rig.h"

/* A machine of two devices with a heap on the first, and a stream of another context. */
struct pair {
	struct rig r;
	trz_context there;
	trz_stream theirs, ours;
};

static struct pair pair_open(bool second_device, const char *conf)
{
	struct pair p = {.r = rig_machine((sim_config){.devices = 2, .capacity = MIB(512),
	                                               .lenient_rules = SIM_RULE_SYNC_MAYBE})};
	if (second_device)
		assert_ok(sim_context_primary(p.r.s, 1, &p.there));
	else
		assert_ok(sim_context_create(p.r.s, 0, &p.there));
	assert_ok(sim_stream_create(p.r.s, p.there, false, &p.theirs));
	rig_open_heap(&p.r, conf);
	assert_ok(trz_enable_peer(p.r.heap, 1, true));
	p.ours = rig_stream(&p.r);
	return p;
}

/* Work of the other context on a block of memory. */
static void use_there(struct pair *p, void *memory, uint64_t size)
{
	assert_ok(sim_stamp(p->r.s, p->there, p->theirs, (trz_addr)memory, size, 1));
}

static void sync_there(struct pair *p)
{
	assert_ok(sim_stream_sync(p->r.s, p->there, p->theirs));
}

static void for_both(void (*run)(struct pair *p))
{
	for (int device = 0; device < 2; device++) {
		struct pair p = pair_open(device, NULL);
		run(&p);
		if (p.r.heap)
			rig_close(&p.r);
	}
}

/* ---- uses ---- */

static void use_and_free(struct pair *p)
{
	const uint64_t sizes[] = {MIB(40), 4096};
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		void *memory = rig_alloc(&p->r, sizes[i], NULL);
		assert_ok(trz_record_stream(p->r.heap, memory, p->theirs));
		use_there(p, memory, sizes[i]);
		rig_free(&p->r, memory);
		assert_true(rig_stat(&p->r, "pending.current") > 0);
		assert_ok(trz_poll(p->r.heap));
		assert_true(rig_stat(&p->r, "pending.current") > 0);
		sync_there(p);
		assert_ok(trz_poll(p->r.heap));
		assert_int_equal(rig_stat(&p->r, "pending.current"), 0);
		rig_check(&p->r);
	}
}

static void test_uses_pass(void **state)
{
	(void)state;
	for_both(use_and_free);
}

/* As a pipeline does: each piece of work is handed to the other device and freed here. */
static void hand_over(struct pair *p)
{
	for (int i = 0; i < 600; i++) {
		void *memory = rig_alloc(&p->r, MIB(4), p->ours);
		assert_ok(trz_record_stream(p->r.heap, memory, p->theirs));
		use_there(p, memory, MIB(4));
		rig_free(&p->r, memory);
		if (i % 8 == 7)
			sync_there(p);
	}
	assert_true(rig_stat(&p->r, "reserved_bytes.all.peak") <= MIB(256));
	rig_check(&p->r);
}

static void test_a_pipeline_keeps_its_memory(void **state)
{
	(void)state;
	for_both(hand_over);
}

/* ---- frees and allocations ---- */

static void free_there(struct pair *p)
{
	void *large = rig_alloc(&p->r, MIB(40), NULL), *small = rig_alloc(&p->r, 512, NULL);
	use_there(p, large, MIB(40));
	use_there(p, small, 512);
	assert_ok(trz_free_on(p->r.heap, large, p->theirs));
	assert_ok(trz_free_on(p->r.heap, small, p->theirs));
	rig_check(&p->r);
	sync_there(p);
	size_t released;
	assert_ok(trz_trim(p->r.heap, 0, &released));
	assert_int_equal(rig_stat(&p->r, "reserved_bytes.all.current"), 0);
}

static void test_frees_in_their_order(void **state)
{
	(void)state;
	for_both(free_there);
}

static void allocate_there(struct pair *p)
{
	for (int i = 0; i < 40; i++) {
		void *large = rig_alloc(&p->r, MIB(40), p->theirs), *small = rig_alloc(&p->r, 512, p->theirs);
		use_there(p, large, MIB(40));
		use_there(p, small, 512);
		rig_free(&p->r, large);
		rig_free(&p->r, small);
	}
	assert_int_equal(rig_stat(&p->r, "allocation.all.current"), 0);
	assert_true(rig_stat(&p->r, "reserved_bytes.all.peak") <= MIB(64));
	sync_there(p);
}

static void test_memory_is_given_in_their_order(void **state)
{
	(void)state;
	for_both(allocate_there);
}

/* The ladder makes a stream of the heap's context wait for one of the other, and the reverse. */
static void wait_for_each_other(struct pair *p)
{
	const uint64_t size = MIB(300);
	trz_stream streams[] = {p->theirs, p->ours, p->theirs};
	rig_free(&p->r, rig_alloc(&p->r, 512, p->ours));  /* a heap of one stream records no events */
	for (size_t i = 0; i < LENGTH(streams); i++) {
		trz_context of = streams[i] == p->theirs ? p->there : p->r.c;
		void *memory = rig_alloc(&p->r, size, streams[i]);
		assert_ok(sim_stamp(p->r.s, of, streams[i], (trz_addr)memory, size, i));
		assert_ok(sim_verify(p->r.s, of, streams[i], (trz_addr)memory, size, i));
		rig_free(&p->r, memory);
	}
	assert_int_equal(rig_stat(&p->r, "waits_inserted"), 2);
	sync_there(p);
}

static void test_the_ladder_waits_across_contexts(void **state)
{
	(void)state;
	for_both(wait_for_each_other);
}

/* ---- ends ---- */

static void close_at_once(struct pair *p)
{
	void *memory = rig_alloc(&p->r, MIB(40), NULL), *slot = rig_alloc(&p->r, 512, NULL);
	assert_ok(trz_record_stream(p->r.heap, memory, p->theirs));
	assert_ok(trz_record_stream(p->r.heap, slot, p->theirs));
	use_there(p, memory, MIB(40));
	use_there(p, slot, 512);
	rig_free(&p->r, memory);
	rig_free(&p->r, slot);
}

static void test_closing_waits_for_them(void **state)
{
	(void)state;
	for_both(close_at_once);
}

static void retire_there(struct pair *p)
{
	void *memory = rig_alloc(&p->r, MIB(40), NULL);
	assert_ok(trz_record_stream(p->r.heap, memory, p->theirs));
	use_there(p, memory, MIB(40));
	assert_ok(trz_stream_retire(p->r.heap, p->theirs));
	assert_ok(sim_stream_destroy(p->r.s, p->there, p->theirs));
	rig_free(&p->r, memory);
	trz_stream next;
	assert_ok(sim_stream_create(p->r.s, p->there, false, &next));
	rig_free(&p->r, rig_alloc(&p->r, 512, next));
	rig_check(&p->r);
}

static void test_they_are_retired(void **state)
{
	(void)state;
	for_both(retire_there);
}

/* What a context that is gone was given has ended with it: nothing is stuck, and this heap lives on. */
static void end_context(struct pair *p)
{
	void *memory = rig_alloc(&p->r, MIB(40), NULL), *later = rig_alloc(&p->r, MIB(40), NULL);
	assert_ok(trz_record_stream(p->r.heap, memory, p->theirs));
	assert_ok(trz_record_stream(p->r.heap, later, p->theirs));
	use_there(p, memory, MIB(40));
	rig_free(&p->r, memory);
	assert_ok(sim_context_destroy(p->r.s, p->there));
	assert_ok(trz_poll(p->r.heap));
	assert_int_equal(rig_stat(&p->r, "pending.current"), 0);
	rig_free(&p->r, later);
	assert_ok(trz_poll(p->r.heap));
	assert_int_equal(rig_stat(&p->r, "pending.current"), 0);
	rig_free(&p->r, rig_alloc(&p->r, MIB(80), NULL));
	rig_check(&p->r);
}

static void test_a_context_ends_before_the_heap(void **state)
{
	(void)state;
	for_both(end_context);
}

/* Nor does it look like a context that is being captured: a graph's memory comes back, and what threads that have ended
 * leave behind. */
static void *alloc_in_thread(void *arg)
{
	struct pair *p = arg;
	void *memory = NULL;
	return trz_alloc(p->r.heap, MIB(40), 0, (trz_stream)2, &memory) == TRZ_OK ? memory : NULL;
}

static void end_context_and_graph(struct pair *p)
{
	sim_graph graph;
	trz_pool *pool;
	pthread_t thread;
	void *of_thread = NULL, *captured = NULL;
	rig_free(&p->r, rig_alloc(&p->r, 512, p->theirs));
	assert_ok(sim_context_destroy(p->r.s, p->there));
	assert_ok(trz_pool_create(p->r.heap, &pool));
	assert_ok(trz_pool_begin_capture(p->r.heap, pool, p->ours));
	assert_ok(sim_capture_begin(p->r.s, p->r.c, p->ours, TRZ_CAPTURE_GLOBAL));
	captured = rig_alloc(&p->r, MIB(40), p->ours);
	assert_ok(sim_capture_end(p->r.s, p->r.c, p->ours, &graph));
	assert_ok(trz_pool_end(p->r.heap, pool));
	assert_ok(sim_graph_destroy(p->r.s, p->r.c, graph));
	rig_free(&p->r, captured);
	assert_ok(trz_pool_release(p->r.heap, pool));
	assert_int_equal(pthread_create(&thread, NULL, alloc_in_thread, p), 0);
	assert_int_equal(pthread_join(thread, &of_thread), 0);
	assert_non_null(of_thread);
	rig_free(&p->r, of_thread);
	rig_sync(&p->r);
	assert_ok(trz_trim(p->r.heap, 0, NULL));
	assert_ok(trz_trim(p->r.heap, 0, NULL));
	assert_int_equal(rig_stat(&p->r, "reserved_bytes.all.current"), 0);
	rig_check(&p->r);
}

static void test_a_context_that_has_ended_is_not_captured(void **state)
{
	(void)state;
	for_both(end_context_and_graph);
}

static void test_a_device_dies_beside_the_heap(void **state)
{
	(void)state;
	struct pair p = pair_open(true, NULL);
	void *memory = rig_alloc(&p.r, MIB(40), NULL);
	assert_ok(trz_record_stream(p.r.heap, memory, p.theirs));
	use_there(&p, memory, MIB(40));
	sim_kill_context(p.r.s, p.there);
	rig_free(&p.r, memory);
	assert_ok(trz_poll(p.r.heap));
	assert_int_equal(rig_stat(&p.r, "pending.current"), 0);
	rig_free(&p.r, rig_alloc(&p.r, MIB(80), NULL));
	rig_check(&p.r);
	rig_close(&p.r);
}

/* An event of another context may end an allocation. */
static void free_after_theirs(struct pair *p)
{
	trz_event event = NULL;
	void *memory = rig_alloc(&p->r, MIB(40), NULL);
	use_there(p, memory, MIB(40));
	assert_ok(p->r.d->event_create(p->r.d->self, p->there, &event));
	assert_ok(p->r.d->event_record(p->r.d->self, p->there, event, p->theirs));
	assert_ok(trz_free_after(p->r.heap, memory, event));
	assert_int_equal(rig_stat(&p->r, "pending.current"), 1);
	sync_there(p);
	assert_ok(trz_poll(p->r.heap));
	assert_int_equal(rig_stat(&p->r, "pending.current"), 0);
}

static void test_frees_after_their_events(void **state)
{
	(void)state;
	for_both(free_after_theirs);
}

/* Such an event that the driver will not destroy is none to be recorded on the heap's own streams. */
static void refuse_the_end(struct pair *p)
{
	trz_event event = NULL;
	void *memory = rig_alloc(&p->r, MIB(40), p->ours), *other = rig_alloc(&p->r, MIB(40), NULL);
	assert_ok(p->r.d->event_create(p->r.d->self, p->there, &event));
	sim_fault_nth(p->r.s, 1ull << SIM_SLOT_event_destroy, 1, false, TRZ_ERROR_DRIVER);
	assert_ok(trz_free_after(p->r.heap, other, event));
	rig_free(&p->r, memory);
	rig_sync(&p->r);
	assert_ok(trz_poll(p->r.heap));
	size_t released;
	assert_ok(trz_trim(p->r.heap, 0, &released));
	assert_int_equal(rig_stat(&p->r, "reserved_bytes.all.current"), 0);
}

static void test_events_of_callers_stay_apart(void **state)
{
	(void)state;
	for_both(refuse_the_end);
}

/* ---- reports of events to all heaps ---- */

/* The default stream of which context is recorded, or awaited, is the current one's: to this heap another one's says
 * nothing. */
static void record_default(struct pair *p, trz_context current, trz_event event, trz_stream stream)
{
	sim_context_set_current(p->r.s, current);
	uint64_t token = trz_event_record_begin(NULL, event, stream);
	trz_event_record_end(NULL, event, stream, token, true);
}

static void wait_in(struct pair *p, trz_context current, trz_event event, trz_stream stream)
{
	sim_context_set_current(p->r.s, current);
	uint64_t token = trz_stream_wait_begin(NULL, stream, event);
	trz_stream_wait_end(NULL, stream, event, token, true);
}

static bool follows(struct pair *p, trz_stream stream, trz_stream other)
{
	const struct streams *all = &p->r.heap->streams;
	struct stream *s = stream_find_handle(all, stream), *of = stream_find_handle(all, other);
	return stream_follows(s, of, ticket_newest(&of->tickets));
}

static void work_and_free(struct pair *p, trz_stream stream)
{
	void *memory = rig_alloc(&p->r, MIB(40), stream);
	assert_ok(sim_stamp(p->r.s, p->r.c, stream, (trz_addr)memory, MIB(40), 1));
	rig_free(&p->r, memory);
}

static void tell_of_default_streams(struct pair *p)
{
	trz_stream third = rig_stream(&p->r);
	char events[3];
	rig_free(&p->r, rig_alloc(&p->r, 512, p->ours));
	work_and_free(p, NULL);
	record_default(p, p->there, &events[0], NULL);
	wait_in(p, p->r.c, &events[0], p->ours);
	assert_false(follows(p, p->ours, NULL));
	record_default(p, NULL, &events[1], NULL);
	wait_in(p, p->r.c, &events[1], p->ours);
	assert_false(follows(p, p->ours, NULL));
	record_default(p, p->r.c, &events[2], NULL);
	wait_in(p, p->r.c, &events[2], p->ours);
	assert_true(follows(p, p->ours, NULL));
	work_and_free(p, third);
	record_default(p, p->there, &events[0], third);  /* any other handle means the same everywhere */
	wait_in(p, p->there, &events[0], NULL);
	assert_false(follows(p, NULL, third));
	wait_in(p, p->there, &events[0], p->ours);
	assert_true(follows(p, p->ours, third));
	sim_context_set_current(p->r.s, NULL);
}

static void test_default_streams_are_the_current_contexts(void **state)
{
	(void)state;
	for_both(tell_of_default_streams);
}

static void await_default_streams(struct pair *p)
{
	work_and_free(p, NULL);
	for (int own = 0; own < 2; own++) {
		if (own)
			rig_sync(&p->r);
		sim_context_set_current(p->r.s, own ? p->r.c : p->there);
		uint64_t token = trz_stream_sync_begin(NULL, NULL);
		trz_sync_end(NULL, token, true);
		struct stream *s = stream_find_handle(&p->r.heap->streams, NULL);
		assert_int_equal(ticket_passed(&s->tickets, ticket_newest(&s->tickets)), own);
	}
	work_and_free(p, NULL);
	sim_context_set_current(p->r.s, p->r.c);
	uint64_t token = trz_stream_sync_begin(NULL, NULL);
	sim_context_set_current(p->r.s, p->there);  /* by the runtime, in the wait itself */
	trz_sync_end(NULL, token, true);
	struct stream *s = stream_find_handle(&p->r.heap->streams, NULL);
	assert_false(ticket_passed(&s->tickets, ticket_newest(&s->tickets)));
	sim_context_set_current(p->r.s, NULL);
}

static void test_waits_for_default_streams_are_the_current_contexts(void **state)
{
	(void)state;
	for_both(await_default_streams);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uses_pass),
		cmocka_unit_test(test_a_pipeline_keeps_its_memory),
		cmocka_unit_test(test_frees_in_their_order),
		cmocka_unit_test(test_memory_is_given_in_their_order),
		cmocka_unit_test(test_the_ladder_waits_across_contexts),
		cmocka_unit_test(test_closing_waits_for_them),
		cmocka_unit_test(test_they_are_retired),
		cmocka_unit_test(test_a_context_ends_before_the_heap),
		cmocka_unit_test(test_a_context_that_has_ended_is_not_captured),
		cmocka_unit_test(test_a_device_dies_beside_the_heap),
		cmocka_unit_test(test_frees_after_their_events),
		cmocka_unit_test(test_events_of_callers_stay_apart),
		cmocka_unit_test(test_default_streams_are_the_current_contexts),
		cmocka_unit_test(test_waits_for_default_streams_are_the_current_contexts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
