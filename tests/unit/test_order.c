/* SPDX-License-Identifier: Apache-2.0
 *
 * Known order: memory goes from stream to stream by the program's own waits, and never by anything less.
 */
#include <pthread.h>

#include "api/init.h"
#include "heap/heap.h"
#include "rig.h"

/* A device that holds the stripes and no more: what a stream gets is memory that was freed. */
enum { STRIPES = 8, STRIPE = 64 };

struct scene {
	struct rig r;
	trz_stream a, b, c;
	void *held[STRIPES];
};

static trz_event make_event(struct rig *r)
{
	trz_event event = NULL;
	assert_ok(r->d->event_create(r->d->self, r->c, &event));
	return event;
}

static void record(struct rig *r, trz_event event, trz_stream stream)
{
	uint64_t token = trz_event_record_begin(r->heap, event, stream);
	assert_ok(r->d->event_record(r->d->self, r->c, event, stream));
	trz_event_record_end(r->heap, event, stream, token, true);
}

static void await(struct rig *r, trz_event event, trz_stream stream)
{
	uint64_t token = trz_stream_wait_begin(r->heap, stream, event);
	assert_ok(r->d->stream_wait(r->d->self, r->c, stream, event));
	trz_stream_wait_end(r->heap, stream, event, token, true);
}

static void drop(struct rig *r, trz_event event)
{
	trz_event_forget(r->heap, event);
	assert_ok(r->d->event_destroy(r->d->self, r->c, event));
}

static void order(struct rig *r, trz_stream from, trz_stream to)
{
	trz_event event = make_event(r);
	record(r, event, from);
	await(r, event, to);
	drop(r, event);
}

/* All memory is a's, which works on the first `busy` stripes and frees them. Waits of the heap are off, so that b gets
 * memory by order or not at all. */
static struct scene open_scene(int busy)
{
	struct scene s = {.r = rig_open(MIB(STRIPES * STRIPE), "tile_size:64MiB,wait:off")};
	struct rig *r = &s.r;
	s.a = rig_stream(r);
	s.b = rig_stream(r);
	s.c = rig_stream(r);
	for (int i = 0; i < STRIPES; i++)
		s.held[i] = rig_alloc(r, MIB(STRIPE), s.a);
	for (int i = 0; i < busy; i++) {
		assert_ok(sim_stamp(r->s, r->c, s.a, (trz_addr)s.held[i], MIB(STRIPE), 7));
		rig_free(r, s.held[i]);
	}
	return s;
}

static void close_scene(struct scene *s)
{
	rig_sync(&s->r);
	rig_check(&s->r);
	rig_close(&s->r);
}

/* Whether a stream gets a stripe; the device checks the order of the stamp that is laid into it. */
static void *try_stripe(struct scene *s, trz_stream stream)
{
	struct rig *r = &s->r;
	void *p = NULL;
	if (trz_alloc(r->heap, MIB(STRIPE), 0, stream, &p) != TRZ_OK)
		return NULL;
	assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)p, MIB(STRIPE), 9));
	return p;
}

#define GETS(scene, stream) assert_non_null(try_stripe(scene, stream))
#define GETS_NOTHING(scene, stream) assert_null(try_stripe(scene, stream))

static void test_a_wait_gives_what_was_freed_before_the_record(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	GETS_NOTHING(&s, s.b);
	order(&s.r, s.a, s.b);
	sim_reset_calls(s.r.s);
	GETS(&s, s.b);
	assert_int_equal(sim_calls(s.r.s, SIM_SLOT_event_query), 0);
	assert_int_equal(sim_calls(s.r.s, SIM_SLOT_event_record), 0);
	assert_int_equal(sim_calls(s.r.s, SIM_SLOT_stream_wait), 0);
	close_scene(&s);
}

static void test_a_free_after_the_record_is_not_covered(void **state)
{
	(void)state;
	struct scene s = open_scene(0);
	trz_event event = make_event(&s.r);
	record(&s.r, event, s.a);
	assert_ok(sim_stamp(s.r.s, s.r.c, s.a, (trz_addr)s.held[0], MIB(STRIPE), 7));
	rig_free(&s.r, s.held[0]);
	await(&s.r, event, s.b);
	GETS_NOTHING(&s, s.b);
	drop(&s.r, event);
	close_scene(&s);
}

/* The record is a snapshot of the moment before it, however late its end is told. */
static void test_a_free_during_the_record_is_not_covered(void **state)
{
	(void)state;
	struct scene s = open_scene(0);
	struct rig *r = &s.r;
	trz_event event = make_event(r);
	uint64_t token = trz_event_record_begin(r->heap, event, s.a);
	assert_ok(r->d->event_record(r->d->self, r->c, event, s.a));
	assert_ok(sim_stamp(r->s, r->c, s.a, (trz_addr)s.held[0], MIB(STRIPE), 7));
	rig_free(r, s.held[0]);
	trz_event_record_end(r->heap, event, s.a, token, true);
	await(r, event, s.b);
	GETS_NOTHING(&s, s.b);
	drop(r, event);
	close_scene(&s);
}

/* By way of a stream that the heap has never seen. */
static void test_order_is_passed_on(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	order(&s.r, s.a, s.c);
	GETS_NOTHING(&s, s.b);
	order(&s.r, s.c, s.b);
	GETS(&s, s.b);
	close_scene(&s);
}

static void test_order_has_a_direction(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	order(&s.r, s.b, s.a);
	GETS_NOTHING(&s, s.b);
	close_scene(&s);
}

/* Memory of a that c has used, too: it is a's again when a waits for c. */
static void test_uses_on_other_streams(void **state)
{
	(void)state;
	struct scene s = open_scene(0);
	struct rig *r = &s.r;
	order(r, s.a, s.c);
	assert_ok(sim_stamp(r->s, r->c, s.c, (trz_addr)s.held[0], MIB(STRIPE), 7));
	assert_ok(trz_record_stream(r->heap, s.held[0], s.c));
	rig_free(r, s.held[0]);
	GETS_NOTHING(&s, s.a);
	order(r, s.a, s.b);  /* a's record proves nothing about c */
	GETS_NOTHING(&s, s.b);
	order(r, s.c, s.a);
	GETS(&s, s.a);
	close_scene(&s);
}

/* Two users, of which the home waits for one. */
static void test_every_user_counts(void **state)
{
	(void)state;
	struct scene s = open_scene(0);
	struct rig *r = &s.r;
	trz_stream users[] = {s.b, s.c};
	for (int i = 0; i < 2; i++) {
		order(r, s.a, users[i]);
		assert_ok(sim_verify(r->s, r->c, users[i], (trz_addr)s.held[0], MIB(STRIPE), 0));
		assert_ok(trz_record_stream(r->heap, s.held[0], users[i]));
	}
	assert_ok(trz_free(r->heap, s.held[0]));
	order(r, s.c, s.a);
	GETS_NOTHING(&s, s.a);
	order(r, s.b, s.a);
	assert_int_equal(rig_stat(r, "pending_bytes.current"), MIB(STRIPE));
	void *p = NULL;
	assert_ok(trz_alloc(r->heap, MIB(STRIPE), 0, s.a, &p));
	assert_int_equal(rig_stat(r, "pending_bytes.current"), 0);
	sim_device_sync(r->s, 0);
	assert_ok(trz_close(r->heap));
	sim_close(r->s);
}

static void test_slots_come_back_by_order(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	rig_sync(r);
	void *p = rig_alloc(r, 512, s.a), *q;
	order(r, s.a, s.b);
	assert_ok(sim_stamp(r->s, r->c, s.b, (trz_addr)p, 512, 7));
	assert_ok(trz_record_stream(r->heap, p, s.b));
	rig_free(r, p);
	order(r, s.b, s.a);
	assert_int_equal(rig_stat(r, "pending_bytes.current"), 512);
	assert_status(trz_alloc(r->heap, MIB(4 * STRIPE), 0, s.a, &q), TRZ_ERROR_OUT_OF_MEMORY);  /* takes the slow path */
	assert_int_equal(rig_stat(r, "pending_bytes.current"), 0);
	close_scene(&s);
}

/* ---- what is not certain ---- */

static void test_an_event_that_was_recorded_again(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	trz_event event = make_event(r);
	record(r, event, s.a);
	record(r, event, s.c);
	await(r, event, s.b);
	GETS_NOTHING(&s, s.b);
	drop(r, event);
	close_scene(&s);
}

/* Between the beginning of the wait and its end, the driver's call before or after that. */
static void test_an_event_that_is_recorded_again_meanwhile(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	trz_event event = make_event(r);
	record(r, event, s.a);
	uint64_t token = trz_stream_wait_begin(r->heap, s.b, event);
	record(r, event, s.c);
	assert_ok(r->d->stream_wait(r->d->self, r->c, s.b, event));
	trz_stream_wait_end(r->heap, s.b, event, token, true);
	GETS_NOTHING(&s, s.b);
	drop(r, event);
	close_scene(&s);
}

/* A wait that comes while a record is under way: it may be for either. */
static void test_a_record_under_way(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	trz_event event = make_event(r);
	record(r, event, s.c);
	uint64_t token = trz_event_record_begin(r->heap, event, s.a);
	await(r, event, s.b);
	assert_ok(r->d->event_record(r->d->self, r->c, event, s.a));
	trz_event_record_end(r->heap, event, s.a, token, true);
	GETS_NOTHING(&s, s.b);
	drop(r, event);
	close_scene(&s);
}

/* Two records at a time: the driver knows which was the last, the heap does not; nor after one of them has ended. */
static void test_two_records_at_a_time(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	trz_event event = make_event(r);
	size_t most;
	assert_ok(trz_largest_block(r->heap, s.c, &most));  /* now the heap knows both streams */
	uint64_t first = trz_event_record_begin(r->heap, event, s.c);
	uint64_t second = trz_event_record_begin(r->heap, event, s.a);
	assert_ok(r->d->event_record(r->d->self, r->c, event, s.a));
	trz_event_record_end(r->heap, event, s.a, second, true);
	assert_ok(r->d->event_record(r->d->self, r->c, event, s.c));
	await(r, event, s.b);
	trz_event_record_end(r->heap, event, s.c, first, true);
	await(r, event, s.b);
	GETS_NOTHING(&s, s.b);
	record(r, event, s.a);  /* alone again */
	await(r, event, s.b);
	GETS(&s, s.b);
	drop(r, event);
	close_scene(&s);
}

static void test_what_the_driver_refuses_teaches_nothing(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	trz_event event = make_event(r);
	uint64_t token = trz_event_record_begin(r->heap, event, s.a);
	trz_event_record_end(r->heap, event, s.a, token, false);
	await(r, event, s.b);
	GETS_NOTHING(&s, s.b);
	record(r, event, s.a);
	token = trz_stream_wait_begin(r->heap, s.b, event);
	trz_stream_wait_end(r->heap, s.b, event, token, false);
	GETS_NOTHING(&s, s.b);
	drop(r, event);
	close_scene(&s);
}

/* A record that nobody told of, and a new event under an old handle. */
static void test_a_forgotten_event_teaches_nothing(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	trz_event event = make_event(r);
	record(r, event, s.a);
	trz_event_forget(r->heap, event);
	assert_ok(r->d->event_record(r->d->self, r->c, event, s.c));
	await(r, event, s.b);
	GETS_NOTHING(&s, s.b);
	record(r, event, s.a);
	trz_event_forget(r->heap, NULL);
	assert_int_equal(r->heap->clocks.count, 0);
	await(r, event, s.b);
	GETS_NOTHING(&s, s.b);
	drop(r, event);
	close_scene(&s);
}

static void test_a_capture_teaches_nothing(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	sim_graph graph;
	trz_event event = make_event(r);
	assert_ok(sim_capture_begin(r->s, r->c, s.a, TRZ_CAPTURE_RELAXED));
	record(r, event, s.a);
	await(r, event, s.b);  /* b joins the capture */
	record(r, event, s.b);
	await(r, event, s.a);
	assert_ok(sim_capture_end(r->s, r->c, s.a, &graph));
	GETS_NOTHING(&s, s.b);
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	drop(r, event);
	close_scene(&s);
}

/* ---- order is not completion ---- */

static void test_nothing_is_unmapped_by_order(void **state)
{
	(void)state;
	struct scene s = open_scene(2);
	size_t released;
	order(&s.r, s.a, s.b);
	GETS(&s, s.b);
	assert_ok(trz_trim(s.r.heap, 0, &released));
	assert_int_equal(released, 0);
	close_scene(&s);
}

/* What b got by order, and freed untouched, has not passed before a's work has. */
static void test_its_ticket_waits_for_the_old_users(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	void *p = NULL;
	size_t released;
	assert_ok(trz_poll(r->heap));
	order(r, s.a, s.b);
	assert_ok(trz_alloc(r->heap, MIB(STRIPE), 0, s.b, &p));
	rig_free(r, p);
	assert_ok(trz_poll(r->heap));
	assert_ok(trz_trim(r->heap, 0, &released));
	assert_int_equal(released, 0);
	rig_sync(r);
	assert_ok(trz_trim(r->heap, 0, &released));
	assert_int_equal(released, MIB(STRIPE));
	close_scene(&s);
}

/* Scattered memory of another stream is gathered at once. */
static void test_tiles_move_by_order(void **state)
{
	(void)state;
	struct scene s = {.r = rig_open(MIB(STRIPES * STRIPE), "tile_size:16MiB,wait:off")};
	struct rig *r = &s.r;
	void *p = NULL;
	s.a = rig_stream(r);
	s.b = rig_stream(r);
	for (int i = 0; i < STRIPES; i++)
		s.held[i] = rig_alloc(r, MIB(STRIPE), s.a);
	for (int i = 0; i < STRIPES; i += 2) {
		assert_ok(sim_stamp(r->s, r->c, s.a, (trz_addr)s.held[i], MIB(STRIPE), 7));
		rig_free(r, s.held[i]);
	}
	assert_status(trz_alloc(r->heap, MIB(3 * STRIPE), 0, s.b, &p), TRZ_ERROR_OUT_OF_MEMORY);
	order(r, s.a, s.b);
	sim_reset_calls(r->s);
	assert_ok(trz_alloc(r->heap, MIB(3 * STRIPE), 0, s.b, &p));
	assert_int_equal(sim_calls(r->s, SIM_SLOT_create), 0);
	assert_ok(sim_stamp(r->s, r->c, s.b, (trz_addr)p, MIB(3 * STRIPE), 9));
	close_scene(&s);
}

/* A graph may be launched anywhere: what its capture's stream has waited for does not count. */
static void test_a_capture_takes_nothing_by_order(void **state)
{
	(void)state;
	for (int captured = 0; captured < 2; captured++) {
		struct rig r = rig_open(MIB(128), "tile_size:2MiB,wait:off");
		trz_stream a = rig_stream(&r), b = rig_stream(&r);
		trz_pool *pool;
		sim_graph graph = 0;
		void *p = NULL;
		assert_ok(trz_pool_create(r.heap, &pool));
		assert_ok(trz_pool_alloc(r.heap, pool, MIB(120), 0, a, &p));
		assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, MIB(120), 7));
		rig_free(&r, p);
		order(&r, a, b);
		if (captured)
			assert_ok(sim_capture_begin(r.s, r.c, b, TRZ_CAPTURE_RELAXED));
		trz_status status = trz_pool_alloc(r.heap, pool, MIB(100), 0, b, &p);
		assert_int_equal(status, captured ? TRZ_ERROR_OUT_OF_MEMORY : TRZ_OK);
		if (captured)
			assert_ok(sim_capture_end(r.s, r.c, b, &graph));
		else
			rig_free(&r, p);
		if (graph)
			assert_ok(sim_graph_destroy(r.s, r.c, graph));
		rig_sync(&r);
		assert_ok(trz_pool_release(r.heap, pool));
		rig_close(&r);
	}
}

/* ---- the host's waits ---- */

static void test_the_host_waits_for_a_stream(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	uint64_t token = trz_stream_sync_begin(r->heap, s.a);
	assert_ok(sim_stream_sync(r->s, r->c, s.a));
	assert_ok(sim_stamp(r->s, r->c, s.a, (trz_addr)s.held[2], MIB(STRIPE), 7));
	rig_free(r, s.held[2]);  /* not covered */
	trz_sync_end(r->heap, token, true);
	sim_reset_calls(r->s);
	GETS(&s, s.b);
	assert_int_equal(sim_calls(r->s, SIM_SLOT_event_query), 0);
	GETS_NOTHING(&s, s.b);
	close_scene(&s);
}

static void test_the_host_waits_for_an_event_or_all(void **state)
{
	(void)state;
	for (int all = 0; all < 2; all++) {
		struct scene s = open_scene(1);
		struct rig *r = &s.r;
		trz_event event = make_event(r);
		record(r, event, s.a);
		uint64_t token = all ? trz_context_sync_begin(r->heap, r->c) : trz_event_sync_begin(r->heap, event);
		rig_sync(r);
		if (all)
			trz_sync_end(r->heap, token, true);
		else
			trz_event_sync_end(r->heap, event, token, true);
		sim_reset_calls(r->s);
		GETS(&s, s.b);
		assert_int_equal(sim_calls(r->s, SIM_SLOT_event_query), 0);
		drop(r, event);
		close_scene(&s);
	}
}

/* ---- heaps, streams, many events ---- */

static void test_all_heaps_are_told(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	trz_heap *heap = s.r.heap, *second = rig_second_heap(&s.r);
	s.r.heap = NULL;
	order(&s.r, s.a, s.b);
	s.r.heap = heap;
	GETS(&s, s.b);
	assert_ok(trz_close(second));
	close_scene(&s);
}

struct reporting {
	struct scene *s;
	atomic_bool stopped;
};

/* No assertion here: cmocka's belong to the test's own thread. */
static void *report_to_all(void *arg)
{
	struct reporting *reporting = arg;
	struct scene *s = reporting->s;
	char event;
	while (!atomic_load(&reporting->stopped)) {
		uint64_t token = trz_event_record_begin(NULL, &event, s->a);
		trz_event_record_end(NULL, &event, s->a, token, false);
		trz_stream_wait_end(NULL, s->b, &event, trz_stream_wait_begin(NULL, s->b, &event), true);
	}
	trz_event_forget(NULL, &event);
	return NULL;
}

static void test_heaps_come_and_go_while_all_are_told(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct reporting reporting = {.s = &s};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, report_to_all, &reporting), 0);
	for (int i = 0; i < 100; i++)
		assert_ok(trz_close(rig_second_heap(&s.r)));
	atomic_store(&reporting.stopped, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	order(&s.r, s.a, s.b);
	GETS(&s, s.b);
	close_scene(&s);
}

/* A heap that could not be closed has missed what was recorded meanwhile. */
static void test_a_heap_that_stays_open_after_all(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	trz_event event = make_event(r);
	record(r, event, s.a);
	assert_int_not_equal(trz_stream_wait_begin(r->heap, s.b, event), 0);
	init_remove_heap(r->heap);
	init_add_heap(r->heap);
	assert_int_equal(trz_stream_wait_begin(r->heap, s.b, event), 0);
	drop(r, event);
	close_scene(&s);
}

/* The entry of a stream that has nothing under way goes to another one, which has waited for nothing. */
static void test_a_new_stream_knows_nothing(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	order(r, s.a, s.b);
	for (int i = 0; i < STREAMS_MAX + 10; i++) {
		size_t most;
		assert_ok(trz_largest_block(r->heap, rig_stream(r), &most));
		assert_int_equal(most, 0);
	}
	order(r, s.a, s.c);
	GETS(&s, s.c);
	close_scene(&s);
}

static void test_it_can_be_switched_off(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "wait:off,order:off");
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(60), a);
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, MIB(60), 7));
	rig_free(&r, p);
	order(&r, a, b);
	assert_status(trz_alloc(r.heap, MIB(60), 0, b, &p), TRZ_ERROR_OUT_OF_MEMORY);
	rig_sync(&r);
	rig_close(&r);
}

static void test_many_events(void **state)
{
	(void)state;
	struct scene s = open_scene(1);
	struct rig *r = &s.r;
	enum { EVENTS = 5000 };
	static trz_event events[EVENTS];
	for (int i = 0; i < EVENTS; i++) {
		events[i] = make_event(r);
		record(r, events[i], i % 2 ? s.a : s.c);
	}
	await(r, events[EVENTS - 2], s.b);
	GETS_NOTHING(&s, s.b);
	await(r, events[EVENTS - 1], s.b);
	GETS(&s, s.b);
	for (int i = 0; i < EVENTS; i++)
		drop(r, events[i]);
	assert_int_equal(r->heap->clocks.count, 0);
	close_scene(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_wait_gives_what_was_freed_before_the_record),
		cmocka_unit_test(test_a_free_after_the_record_is_not_covered),
		cmocka_unit_test(test_a_free_during_the_record_is_not_covered),
		cmocka_unit_test(test_order_is_passed_on),
		cmocka_unit_test(test_order_has_a_direction),
		cmocka_unit_test(test_uses_on_other_streams),
		cmocka_unit_test(test_every_user_counts),
		cmocka_unit_test(test_slots_come_back_by_order),
		cmocka_unit_test(test_an_event_that_was_recorded_again),
		cmocka_unit_test(test_an_event_that_is_recorded_again_meanwhile),
		cmocka_unit_test(test_a_record_under_way),
		cmocka_unit_test(test_two_records_at_a_time),
		cmocka_unit_test(test_what_the_driver_refuses_teaches_nothing),
		cmocka_unit_test(test_a_forgotten_event_teaches_nothing),
		cmocka_unit_test(test_a_capture_teaches_nothing),
		cmocka_unit_test(test_nothing_is_unmapped_by_order),
		cmocka_unit_test(test_its_ticket_waits_for_the_old_users),
		cmocka_unit_test(test_tiles_move_by_order),
		cmocka_unit_test(test_a_capture_takes_nothing_by_order),
		cmocka_unit_test(test_the_host_waits_for_a_stream),
		cmocka_unit_test(test_the_host_waits_for_an_event_or_all),
		cmocka_unit_test(test_all_heaps_are_told),
		cmocka_unit_test(test_heaps_come_and_go_while_all_are_told),
		cmocka_unit_test(test_a_heap_that_stays_open_after_all),
		cmocka_unit_test(test_a_new_stream_knows_nothing),
		cmocka_unit_test(test_it_can_be_switched_off),
		cmocka_unit_test(test_many_events),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
