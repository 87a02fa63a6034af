/* SPDX-License-Identifier: Apache-2.0
 *
 * Closing a heap when the driver does not cooperate: nothing is unmapped under work that could not be waited for.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "overlay.h"
#include "testing.h"

static struct overlay o;
static int failing_unmaps, failing_accesses;
static bool failing_records, failing_syncs;

static trz_status record(void *self, trz_context c, trz_event e, trz_stream s)
{
	return failing_records ? TRZ_ERROR_DRIVER : o.rig.d->event_record(self, c, e, s);
}

static trz_status record_context(void *self, trz_context c, trz_event e)
{
	return failing_records ? TRZ_ERROR_DRIVER : o.rig.d->context_record(self, c, e);
}

static trz_status sync_event(void *self, trz_context c, trz_event e)
{
	return failing_syncs ? TRZ_ERROR_DRIVER : o.rig.d->event_sync(self, c, e);
}

static trz_status unmap(void *self, trz_addr address, uint64_t size)
{
	return failing_unmaps && failing_unmaps-- ? TRZ_ERROR_DRIVER : o.rig.d->unmap(self, address, size);
}

static trz_status set_access(void *self, trz_addr address, uint64_t size, const int *devices, int count)
{
	bool fails = failing_accesses && failing_accesses--;
	return fails ? TRZ_ERROR_DRIVER : o.rig.d->set_access(self, address, size, devices, count);
}

static void open_heap(void)
{
	overlay_machine(&o, GIB(1));
	o.table.event_record = record;
	o.table.context_record = record_context;
	o.table.event_sync = sync_event;
	o.table.unmap = unmap;
	o.table.set_access = set_access;
	overlay_open_heap(&o, NULL);
}

/* A freed block whose work has not run. */
static trz_stream busy_free(void)
{
	trz_stream a = rig_stream(&o.rig);
	void *p = rig_alloc(&o.rig, MIB(3), a);
	assert_ok(sim_stamp(o.rig.s, o.rig.c, a, (trz_addr)p, MIB(3), 1));
	rig_free(&o.rig, p);
	return a;
}

static void expect_legal_and_end(void)
{
	rig_sync(&o.rig);
	assert_int_equal(sim_violations(o.rig.s), 0);
	sim_close(o.rig.s);
	failing_records = failing_syncs = false;
}

static void test_no_event_can_be_recorded(void **state)
{
	(void)state;
	open_heap();
	busy_free();
	failing_records = true;
	assert_status(trz_close(o.rig.heap), TRZ_ERROR_DRIVER);
	expect_legal_and_end();
}

static void test_no_event_can_be_waited_for(void **state)
{
	(void)state;
	open_heap();
	busy_free();
	failing_syncs = true;
	assert_status(trz_close(o.rig.heap), TRZ_ERROR_DRIVER);
	expect_legal_and_end();
}

/* The heap knows that the capture goes on, since it has been announced. */
static void test_a_stream_is_being_captured(void **state)
{
	(void)state;
	trz_pool *pool;
	open_heap();
	trz_stream a = rig_stream(&o.rig);
	void *p = rig_alloc(&o.rig, MIB(3), a);
	sim_graph graph;
	assert_ok(sim_stamp(o.rig.s, o.rig.c, a, (trz_addr)p, MIB(3), 1));
	assert_ok(trz_pool_create(o.rig.heap, &pool));
	assert_ok(trz_pool_begin_capture(o.rig.heap, pool, a));
	assert_ok(sim_capture_begin(o.rig.s, o.rig.c, a, TRZ_CAPTURE_RELAXED));
	rig_free(&o.rig, p);
	assert_status(trz_close(o.rig.heap), TRZ_ERROR_CAPTURE);
	assert_ok(sim_capture_end(o.rig.s, o.rig.c, a, &graph));
	assert_ok(sim_graph_destroy(o.rig.s, o.rig.c, graph));
	expect_legal_and_end();
}

/* Of a stream that the heap has not been given, in the thread that closes, in the strictest mode. All work on the
 * heap's memory has passed, so closing asks nothing of the device, and the capture goes on. */
static void test_another_streams_capture_goes_on(void **state)
{
	(void)state;
	trz_capture_status status;
	uint64_t id;
	sim_graph graph;
	open_heap();
	trz_stream captured = rig_stream(&o.rig);
	rig_free(&o.rig, rig_alloc(&o.rig, MIB(3), NULL));
	rig_sync(&o.rig);
	assert_ok(trz_poll(o.rig.heap));
	assert_ok(sim_capture_begin(o.rig.s, o.rig.c, captured, TRZ_CAPTURE_GLOBAL));
	assert_ok(trz_close(o.rig.heap));
	assert_int_equal(sim_leaks(o.rig.s, NULL, 0), 0);
	assert_ok(o.rig.d->stream_capture(o.rig.d->self, o.rig.c, captured, &status, &id));
	assert_int_equal(status, TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(o.rig.s, o.rig.c, captured, &graph));
	assert_ok(sim_graph_destroy(o.rig.s, o.rig.c, graph));
	expect_legal_and_end();
}

/* A capture that nobody announced has ended. The heap has not heard of that when the program, at its end, destroys its
 * streams, so it must ask about no handle. */
static void test_streams_end_after_a_capture_that_was_not_announced(void **state)
{
	(void)state;
	trz_pool *pool;
	sim_graph graph;
	void *p = NULL;
	open_heap();
	struct rig *r = &o.rig;
	trz_stream captured = rig_stream(r), busy = rig_stream(r);
	void *slot = rig_alloc(r, 300, busy);
	assert_ok(trz_pool_create(r->heap, &pool));
	assert_ok(sim_capture_begin(r->s, r->c, captured, TRZ_CAPTURE_GLOBAL));
	assert_ok(trz_pool_alloc(r->heap, pool, MIB(3), 0, captured, &p));
	assert_ok(sim_capture_end(r->s, r->c, captured, &graph));
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	assert_ok(sim_stamp(r->s, r->c, busy, (trz_addr)slot, 300, 1));
	rig_free(r, slot);
	assert_ok(sim_stream_destroy(r->s, r->c, captured));
	assert_ok(sim_stream_destroy(r->s, r->c, busy));
	assert_ok(trz_close(r->heap));
	assert_int_equal(sim_leaks(r->s, NULL, 0), 0);
	expect_legal_and_end();
}

/* A pool whose graph may be running goes while something is captured, so nothing could be recorded behind the launch
 * then. */
static void test_streams_end_after_a_pool_that_could_not_wait(void **state)
{
	(void)state;
	trz_pool *pool;
	sim_graph graph, other;
	open_heap();
	struct rig *r = &o.rig;
	trz_stream captured = rig_stream(r), launcher = rig_stream(r);
	rig_free(r, rig_alloc(r, 512, launcher));
	assert_ok(trz_pool_create(r->heap, &pool));
	assert_ok(trz_pool_begin_capture(r->heap, pool, captured));
	assert_ok(sim_capture_begin(r->s, r->c, captured, TRZ_CAPTURE_GLOBAL));
	void *p = rig_alloc(r, MIB(3), captured);
	assert_ok(sim_stamp(r->s, r->c, captured, (trz_addr)p, MIB(3), 1));
	rig_free(r, p);
	assert_ok(sim_capture_end(r->s, r->c, captured, &graph));
	assert_ok(trz_pool_end(r->heap, pool));
	assert_ok(sim_graph_launch(r->s, r->c, graph, launcher));
	assert_ok(sim_capture_begin(r->s, r->c, captured, TRZ_CAPTURE_RELAXED));
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	assert_ok(trz_pool_release(r->heap, pool));
	assert_ok(sim_capture_end(r->s, r->c, captured, &other));
	assert_ok(sim_graph_destroy(r->s, r->c, other));
	assert_ok(sim_stream_destroy(r->s, r->c, captured));
	assert_ok(sim_stream_destroy(r->s, r->c, launcher));
	assert_ok(trz_close(r->heap));
	assert_int_equal(sim_leaks(r->s, NULL, 0), 0);
	expect_legal_and_end();
}

/* A tile that could neither be made accessible nor unmapped again, and that close cannot unmap at first either. */
static void test_a_mapped_zombie_goes_once(void **state)
{
	(void)state;
	void *p;
	open_heap();
	failing_accesses = 1;
	failing_unmaps = 4;
	assert_status(trz_alloc(o.rig.heap, MIB(3), 0, NULL, &p), TRZ_ERROR_DRIVER);
	assert_true(rig_stat(&o.rig, "zombie_bytes.current") > 0);
	rig_check(&o.rig);
	failing_unmaps = 1;
	assert_ok(trz_close(o.rig.heap));
	assert_int_equal(sim_leaks(o.rig.s, NULL, 0), 0);
	expect_legal_and_end();
}

/* Frees what is left in its own way, one when the first mapping goes, the other after an event. */
static struct {
	trz_stream stream;
	void *p, *q;
} left;

static void free_left(void *user, trz_map_event event, void *address, size_t size)
{
	trz_event after = NULL;
	struct rig *r = user;
	(void)address;
	(void)size;
	if (event != TRZ_UNMAP || !left.p)
		return;
	assert_ok(trz_free(r->heap, left.p));
	assert_ok(r->d->event_create(r->d->self, r->c, &after));
	assert_ok(r->d->event_record(r->d->self, r->c, after, left.stream));
	assert_ok(trz_free_after(r->heap, left.q, after));
	left.p = NULL;
}

/* What is freed while the program is told that all goes is waited for as well, and no event of it stays behind. */
static void test_frees_when_the_end_is_told(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_free(&r, rig_alloc(&r, 100, NULL));
	left.stream = rig_stream(&r);
	left.p = rig_alloc(&r, MIB(4), left.stream);
	left.q = rig_alloc(&r, MIB(4), left.stream);
	assert_ok(sim_stamp(r.s, r.c, left.stream, (trz_addr)left.p, MIB(4), 1));
	assert_ok(sim_stamp(r.s, r.c, left.stream, (trz_addr)left.q, MIB(4), 2));
	assert_ok(trz_set_map_callback(r.heap, free_left, &r));
	rig_close(&r);
	assert_null(left.p);
}

/* ---- what other threads report ---- */

enum { REPORTERS = 4 };

static atomic_bool reports_end;

static void *report_events(void *event)
{
	while (!atomic_load(&reports_end))
		trz_event_forget(NULL, event);
	return NULL;
}

/* They look at all open heaps, all the time: a heap that is closed waits for those alone that may have seen it. */
static void test_reports_of_events_go_on_and_on(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	pthread_t threads[REPORTERS];
	trz_event event;
	assert_ok(r.d->event_create(r.d->self, r.c, &event));
	for (int i = 0; i < REPORTERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, report_events, event), 0);
	for (int i = 0; i < 20; i++) {
		trz_heap *second = rig_second_heap(&r);
		assert_ok(trz_close(second));
	}
	atomic_store(&reports_end, true);
	for (int i = 0; i < REPORTERS; i++)
		pthread_join(threads[i], NULL);
	assert_ok(r.d->event_destroy(r.d->self, r.c, event));
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_event_can_be_recorded),
		cmocka_unit_test(test_no_event_can_be_waited_for),
		cmocka_unit_test(test_a_stream_is_being_captured),
		cmocka_unit_test(test_another_streams_capture_goes_on),
		cmocka_unit_test(test_streams_end_after_a_capture_that_was_not_announced),
		cmocka_unit_test(test_streams_end_after_a_pool_that_could_not_wait),
		cmocka_unit_test(test_a_mapped_zombie_goes_once),
		cmocka_unit_test(test_frees_when_the_end_is_told),
		cmocka_unit_test(test_reports_of_events_go_on_and_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
