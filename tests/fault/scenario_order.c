/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and their order: uses on other streams, frees behind events, reports of the program's events, streams of
 * threads and of other contexts, streams that retire, are destroyed or are too many.
 */
#include <pthread.h>

#include "heap/heap.h"
#include "scenario.h"

static trz_status poll_heap(struct stage *g)
{
	return trz_poll(g->rig.heap);
}

static trz_status close_heap(struct stage *g)
{
	trz_heap *heap = g->rig.heap;
	g->rig.heap = NULL;
	return trz_close(heap);
}

static trz_status free_it(struct stage *g)
{
	g->frees = true;
	return trz_free(g->rig.heap, g->p);
}

static void nothing_is_pending(struct stage *g)
{
	assert_int_equal(rig_stat(&g->rig, "pending.current"), 0);
}

static void something_is_pending(struct stage *g)
{
	assert_int_equal(rig_stat(&g->rig, "pending.current"), 1);
}

/* ---- uses on other streams ----------------------------------------------------------------------------- */

static void held_of_size(struct stage *g, size_t size)
{
	g->p = stage_take(g, size, g->a);
	rig_order(&g->rig, g->a, g->b);
	assert_ok(sim_verify(g->rig.s, g->rig.c, g->b, (trz_addr)g->p, size, (trz_addr)g->p));
}

static void held_block(struct stage *g)
{
	held_of_size(g, MIB(30));
}

static void held_slot(struct stage *g)
{
	held_of_size(g, 700);
}

/* Has another user, and a third one that has nothing to do with it yet. */
static void used_block(struct stage *g)
{
	held_block(g);
	assert_ok(trz_record_stream(g->rig.heap, g->p, g->b));
	assert_ok(trz_record_stream(g->rig.heap, g->p, rig_stream(&g->rig)));
}

static void used_slot(struct stage *g)
{
	held_slot(g);
	assert_ok(trz_record_stream(g->rig.heap, g->p, g->b));
	assert_ok(trz_record_stream(g->rig.heap, g->p, rig_stream(&g->rig)));
}

/* The stream is new to the heap. */
static trz_status use_and_free(struct stage *g)
{
	trz_status status = trz_record_stream(g->rig.heap, g->p, g->b);
	g->frees = true;
	return status == TRZ_OK ? trz_free(g->rig.heap, g->p) : status;
}

static void used_and_freed(struct stage *g)
{
	void *p;
	used_block(g);
	rig_free(&g->rig, g->p);
	held_slot(g);
	p = g->p;
	g->p = NULL;
	assert_ok(trz_record_stream(g->rig.heap, p, g->b));
	rig_free(&g->rig, p);
	assert_int_equal(rig_stat(&g->rig, "pending.current"), 2);
	rig_sync(&g->rig);
}

static trz_status free_on_a_third(struct stage *g)
{
	g->frees = true;
	return trz_free_on(g->rig.heap, g->p, (trz_stream)g->was);
}

static void used_block_and_a_third_stream(struct stage *g)
{
	trz_stream third = rig_stream(&g->rig);
	used_block(g);
	rig_order(&g->rig, g->a, third);
	rig_order(&g->rig, g->b, third);
	g->was = third;
}

/* ---- frees after events -------------------------------------------------------------------------------- */

static void given_with_events(struct stage *g)
{
	const trz_driver *d = g->rig.d;
	const size_t sizes[] = {MIB(30), 700, MIB(3)};
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		trz_event event;
		void *p = stage_take(g, sizes[i], g->a);
		assert_ok(d->event_create(d->self, g->rig.c, &event));
		assert_ok(d->event_record(d->self, g->rig.c, event, g->a));
		assert_ok(trz_free_after(g->rig.heap, p, event));
	}
	assert_int_equal(rig_stat(&g->rig, "pending.current"), 3);
	rig_sync(&g->rig);
}

/* ---- the program's own events -------------------------------------------------------------------------- */

/* Stream a has made b wait for its event after it had freed, and works on: only the report tells the heap. */
static void freed_before_an_event(struct stage *g)
{
	const trz_driver *d = g->rig.d;
	stage_hold(g, 700, g->b);
	g->was = stage_take(g, MIB(30), g->a);
	rig_free(&g->rig, g->was);
	assert_ok(d->event_create(d->self, g->rig.c, &g->event));
	assert_ok(d->event_record(d->self, g->rig.c, g->event, g->a));
	assert_ok(d->stream_wait(d->self, g->rig.c, g->b, g->event));
	assert_ok(sim_stamp(g->rig.s, g->rig.c, g->b, (trz_addr)g->held[0], 696, 1));
	g->stamped[0] = 0;
}

/* The driver's calls came before the reports of them, which is no later than the reports say. */
static void report(struct stage *g, bool waits)
{
	trz_heap *h = g->rig.heap;
	trz_event_forget(h, g->event);
	uint64_t token = trz_event_record_begin(h, g->event, g->a);
	trz_event_record_end(h, g->event, g->a, token, true);
	token = trz_stream_wait_begin(h, g->b, g->event);
	trz_stream_wait_end(h, g->b, g->event, token, waits);
}

static trz_status report_and_alloc(struct stage *g)
{
	report(g, true);
	return stage_alloc(g, MIB(30), g->b);
}

static trz_status report_refusals_and_alloc(struct stage *g)
{
	report(g, false);
	return stage_alloc(g, MIB(30), g->b);
}

static void got_what_was_freed(struct stage *g)
{
	assert_ptr_equal(g->p, g->was);
	assert_true(sim_unfinished(g->rig.s) > 0);
}

static void got_something_else(struct stage *g)
{
	assert_ptr_not_equal(g->p, g->was);
}

/* All work is complete, which the driver would say; but only the reports are taken. */
static void freed_and_complete(struct stage *g)
{
	freed_before_an_event(g);
	rig_sync(&g->rig);
}

static trz_status report_syncs_and_alloc(struct stage *g)
{
	trz_heap *h = g->rig.heap;
	uint64_t token = trz_event_record_begin(h, g->event, g->a);
	trz_event_record_end(h, g->event, g->a, token, true);
	token = trz_event_sync_begin(h, g->event);
	trz_event_sync_end(h, g->event, token, true);
	token = trz_stream_sync_begin(h, g->a);
	trz_sync_end(h, token, true);
	token = trz_context_sync_begin(h, g->rig.c);
	trz_sync_end(h, token, true);
	trz_event_forget(h, NULL);
	return stage_alloc(g, MIB(30), g->b);
}

static void got_it_anyway(struct stage *g)
{
	assert_ptr_equal(g->p, g->was);
}

/* ---- streams of threads -------------------------------------------------------------------------------- */

static const trz_stream per_thread = (trz_stream)2;

static trz_status alloc_per_thread(struct stage *g)
{
	return stage_alloc(g, MIB(3), per_thread);
}

static void own_block(struct stage *g)
{
	g->p = stage_take(g, MIB(30), per_thread);
}

static void own_slot_held(struct stage *g)
{
	stage_hold(g, 300, per_thread);
}

static void own_slot(struct stage *g)
{
	g->p = stage_take(g, 300, per_thread);
}

static void *allocate_and_leave(void *arg)
{
	struct stage *g = arg;
	g->p = stage_take(g, (size_t)g->proof, per_thread);
	return NULL;
}

static void free_what_a_thread_left(struct stage *g, size_t size)
{
	pthread_t thread;
	g->proof = size;
	assert_int_equal(pthread_create(&thread, NULL, allocate_and_leave, g), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	rig_free(&g->rig, g->p);
	g->p = NULL;
}

/* Only an event of the whole context answers for what is left. */
static void left_by_threads(struct stage *g)
{
	stage_hold(g, MIB(5), g->a);
	free_what_a_thread_left(g, MIB(40));
	free_what_a_thread_left(g, 300);
	rig_sync(&g->rig);
}

static trz_status alloc_90(struct stage *g)
{
	return stage_alloc(g, MIB(90), g->a);
}

/* ---- streams of another context ------------------------------------------------------------------------ */

static trz_context there;
static trz_stream theirs;

static void another_context(struct stage *g)
{
	stage_hold(g, 700, g->a);
	rig_sync(&g->rig);
	assert_ok(sim_context_create(g->rig.s, 0, &there));
	assert_ok(sim_stream_create(g->rig.s, there, false, &theirs));
}

static trz_status alloc_there(struct stage *g)
{
	return stage_alloc(g, MIB(30), theirs);
}

static void stamp_there(struct stage *g, void *p, size_t size)
{
	assert_ok(sim_stamp(g->rig.s, there, theirs, (trz_addr)p, size, (trz_addr)p));
}

static void held_there(struct stage *g)
{
	another_context(g);
	g->p = rig_alloc(&g->rig, MIB(30), theirs);
	stamp_there(g, g->p, MIB(30));
}

static void freed_there(struct stage *g)
{
	held_there(g);
	g->was = g->p;
	rig_free(&g->rig, g->p);
	g->p = rig_alloc(&g->rig, 700, theirs);
	stamp_there(g, g->p, 696);
	rig_free(&g->rig, g->p);
	g->p = NULL;
}

static void freed_where_the_context_has_ended(struct stage *g)
{
	freed_there(g);
	assert_ok(sim_context_destroy(g->rig.s, there));
}

static trz_status alloc_30(struct stage *g)
{
	return stage_alloc(g, MIB(30), g->a);
}

/* ---- streams that go ----------------------------------------------------------------------------------- */

static void a_stream_about_to_go(struct stage *g)
{
	stage_hold(g, 700, g->a);
	trz_stream c = rig_stream(&g->rig);
	rig_free(&g->rig, stage_take(g, MIB(20), c));
	rig_free(&g->rig, stage_take(g, 300, c));
	stage_hold(g, 400, c);
	stage_hold(g, MIB(3), c);
	g->was = c;
}

static trz_status retire(struct stage *g)
{
	return trz_stream_retire(g->rig.heap, (trz_stream)g->was);
}

static bool is_retired(const struct stage *g)
{
	struct streams *t = &g->rig.heap->streams;
	bool any = false;
	for (unsigned i = 0; i < atomic_load(&t->count); i++)
		any |= atomic_load(&atomic_load(&t->list[i])->retired);
	return any;
}

static void one_has_retired(struct stage *g)
{
	assert_true(is_retired(g));
}

static void a_retired_stream(struct stage *g)
{
	a_stream_about_to_go(g);
	assert_ok(retire(g));
	assert_ok(sim_stream_destroy(g->rig.s, g->rig.c, (trz_stream)g->was));
	g->proof = rig_stat(&g->rig, "stream.current");
}

static void a_retired_stream_that_has_passed(struct stage *g)
{
	stage_hold(g, 700, g->a);
	trz_stream c = rig_stream(&g->rig);
	rig_free(&g->rig, stage_take(g, MIB(20), c));
	rig_free(&g->rig, stage_take(g, 300, c));
	assert_ok(trz_stream_retire(g->rig.heap, c));
	assert_ok(sim_stream_destroy(g->rig.s, g->rig.c, c));
	g->was = rig_stream(&g->rig);
	rig_sync(&g->rig);
	assert_ok(trz_poll(g->rig.heap));
	g->proof = rig_stat(&g->rig, "stream.current");
}

static trz_status alloc_on_a_new_stream(struct stage *g)
{
	return stage_alloc(g, MIB(3), (trz_stream)g->was);
}

static void the_entry_serves_again(struct stage *g)
{
	assert_int_equal(rig_stat(&g->rig, "stream.current"), g->proof);
}

/* What it had allocated others free. */
static trz_status free_what_it_held(struct stage *g)
{
	while (g->count > 1) {
		trz_status status = trz_free(g->rig.heap, g->held[g->count - 1]);
		if (status != TRZ_OK)
			return status;
		g->count--;
		stage_note(g);
	}
	return trz_poll(g->rig.heap);
}

/* Destroyed unseen; the next stream has its handle. */
static void a_handle_that_is_anothers(struct stage *g)
{
	a_stream_about_to_go(g);
	assert_ok(sim_stream_destroy(g->rig.s, g->rig.c, (trz_stream)g->was));
	assert_ptr_equal(rig_stream(&g->rig), g->was);
}

static void as_many_streams_as_possible(struct stage *g)
{
	void *p = rig_alloc(&g->rig, MIB(2), rig_stream(&g->rig));
	while (rig_stat(&g->rig, "stream.current") < STREAMS_MAX)
		assert_ok(trz_record_stream(g->rig.heap, p, rig_stream(&g->rig)));
	rig_free(&g->rig, p);
	assert_ok(trz_poll(g->rig.heap));
	g->proof = STREAMS_MAX;
	g->was = rig_stream(&g->rig);
}

/* ---- slots that are called in -------------------------------------------------------------------------- */

/* Slots of two streams, each alone with its slabs; one full slab more. */
static void slots_of_two(struct stage *g)
{
	for (int i = 0; i < 130; i++)
		stage_hold(g, 1000, i % 2 ? g->a : g->b);
	stage_perforate(g);
	rig_order(&g->rig, g->a, g->b);
	rig_order(&g->rig, g->b, g->a);
}

/* Back and forth: new peaks, frees on the other stream, on a slab's own, and of its last slot. */
static trz_status use_slots_of_two(struct stage *g)
{
	trz_status status = TRZ_OK;
	for (int i = 0; i < 40 && status == TRZ_OK; i++) {
		status = stage_alloc(g, 1000, i % 2 ? g->a : g->b);
		if (status == TRZ_OK)
			stage_keep(g, g->p, 0);
		g->p = NULL;
		stage_note(g);
	}
	while (status == TRZ_OK && g->count > 20) {
		void *p = g->held[g->count - 1];
		status = g->count % 3 ? trz_free(g->rig.heap, p)
		                      : trz_free_on(g->rig.heap, p, g->count % 2 ? g->a : g->b);
		g->count -= status == TRZ_OK;
		stage_note(g);
	}
	return status;
}

/* ---- the list ------------------------------------------------------------------------------------------ */

static const struct scenario list[] = {
	{.name = "use a block on a new stream and free it", .conf = "event_bytes:0", .prepare = held_block,
	 .run = use_and_free, .shows = "driver_calls.event_record", .proof = something_is_pending},
	{.name = "use a slot on a new stream and free it", .prepare = held_slot, .run = use_and_free,
	 .shows = "pending.peak", .proof = something_is_pending},
	{.name = "free a block that others use", .conf = "event_bytes:0", .prepare = used_block, .run = free_it,
	 .shows = "driver_calls.event_record", .proof = something_is_pending},
	{.name = "free a slot that others use", .prepare = used_slot, .run = free_it, .shows = "pending.peak",
	 .proof = something_is_pending},
	{.name = "free a block that others use on a new stream", .conf = "event_bytes:0",
	 .prepare = used_block_and_a_third_stream, .run = free_on_a_third, .shows = "driver_calls.event_record"},
	{.name = "poll when uses have passed", .prepare = used_and_freed, .run = poll_heap,
	 .shows = "driver_calls.event_query", .proof = nothing_is_pending},
	{.name = "poll when events of frees have completed", .prepare = given_with_events, .run = poll_heap,
	 .shows = "driver_calls.event_destroy", .proof = nothing_is_pending},
	{.name = "close with events of frees", .prepare = given_with_events, .run = close_heap},
	{.name = "report events and take what is ordered", .conf = "slack_per_mille:0", .prepare = freed_before_an_event,
	 .run = report_and_alloc, .proof = got_what_was_freed},
	{.name = "report that a wait was refused", .conf = "slack_per_mille:0", .prepare = freed_before_an_event,
	 .run = report_refusals_and_alloc, .proof = got_something_else},
	{.name = "report waits of the host", .conf = "slack_per_mille:0", .prepare = freed_and_complete,
	 .run = report_syncs_and_alloc, .proof = got_it_anyway},
	{.name = "allocate on a thread's stream", .prepare = own_slot_held, .run = alloc_per_thread,
	 .shows = "path_extend"},
	{.name = "free a block of a thread's stream", .prepare = own_block, .run = free_it,
	 .shows = "driver_calls.event_record"},
	{.name = "free a slot of a thread's stream", .prepare = own_slot, .run = free_it,
	 .shows = "driver_calls.event_record"},
	{.name = "trim what threads have left", .prepare = left_by_threads, .run = stage_trim,
	 .shows = "driver_calls.context_record"},
	{.name = "climb the ladder to what threads have left", .capacity = MIB(120), .prepare = left_by_threads,
	 .run = alloc_90, .shows = "driver_calls.context_record", .vmm_only = true},
	{.name = "close when threads have left memory", .prepare = left_by_threads, .run = close_heap},
	{.name = "close when threads have left memory, old driver", .prepare = left_by_threads, .run = close_heap,
	 .old_driver = true},
	{.name = "allocate on a stream of another context", .prepare = another_context, .run = alloc_there,
	 .shows = "stream.current", .two_contexts = true},
	{.name = "free a block of another context's stream", .conf = "event_bytes:0", .prepare = held_there,
	 .run = free_it, .shows = "driver_calls.event_record", .two_contexts = true},
	{.name = "trim beside another context", .prepare = freed_there, .run = stage_trim,
	 .shows = "driver_calls.event_query", .two_contexts = true},
	{.name = "close beside another context", .prepare = freed_there, .run = close_heap, .two_contexts = true},
	{.name = "take memory of a context that has ended", .conf = "slack_per_mille:0",
	 .prepare = freed_where_the_context_has_ended, .run = alloc_30, .proof = got_it_anyway, .two_contexts = true},
	{.name = "close when a context has ended", .prepare = freed_where_the_context_has_ended,
	 .run = close_heap, .two_contexts = true},
	{.name = "retire a stream", .prepare = a_stream_about_to_go, .run = retire, .shows = "driver_calls.event_record",
	 .proof = one_has_retired, .also = TRZ_ERROR_DRIVER},
	{.name = "free what a retired stream held", .prepare = a_retired_stream, .run = free_what_it_held,
	 .shows = "driver_calls.event_query"},
	{.name = "a retired stream's entry for another", .prepare = a_retired_stream_that_has_passed,
	 .run = alloc_on_a_new_stream, .proof = the_entry_serves_again},
	{.name = "a handle that is another stream's", .prepare = a_handle_that_is_anothers,
	 .run = alloc_on_a_new_stream, .shows = "stream.current"},
	{.name = "a stream too many", .prepare = as_many_streams_as_possible, .run = alloc_on_a_new_stream,
	 .proof = the_entry_serves_again, .points = 8},
	{.name = "slots of two streams", .prepare = slots_of_two, .run = use_slots_of_two, .shows = "pending.peak"},
};

const struct scenarios scenarios_of_order = {list, LENGTH(list)};
