/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams that are retired and destroyed while the heap still has their memory.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "heap/heap.h"
#include "overlay.h"
#include "testing.h"

static void retire(struct rig *r, trz_stream stream)
{
	assert_ok(trz_stream_retire(r->heap, stream));
	assert_ok(sim_stream_destroy(r->s, r->c, stream));
}

static void test_cached_memory_can_be_trimmed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(3), a), *q = rig_alloc(&r, 300, a);
	rig_free(&r, p);
	rig_free(&r, q);
	retire(&r, a);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* More streams than a heap can know at a time, one after the other, each with a block that outlives it. */
static void test_entries_are_used_again(void **state)
{
	(void)state;
	enum { ROUNDS = 3000 };
	struct rig r = rig_open(GIB(1), NULL);
	void *left = NULL;
	for (int i = 0; i < ROUNDS; i++) {
		trz_stream a = rig_stream(&r);
		void *p = rig_alloc(&r, MIB(1), a), *q = rig_alloc(&r, 900, a);
		assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, MIB(1), 7));
		rig_free(&r, q);
		assert_ok(trz_free(r.heap, left));
		left = p;
		assert_ok(sim_stream_sync(r.s, r.c, a));
		retire(&r, a);
	}
	assert_true(rig_stat(&r, "stream.current") < 16);
	assert_true(rig_stat(&r, "reserved_bytes.all.current") <= MIB(64));
	rig_free(&r, left);
	rig_check(&r);
	rig_close(&r);
}

static void *come_and_go(void *arg)
{
	struct rig *r = arg;
	void *p = NULL;
	bool ok = trz_alloc(r->heap, 1000, 0, (trz_stream)2, &p) == TRZ_OK && trz_free(r->heap, p) == TRZ_OK &&
	          trz_stream_retire(r->heap, (trz_stream)2) == TRZ_OK;
	return ok ? arg : NULL;
}

/* The per-thread streams of more threads than a heap can know streams at a time. */
static void test_entries_of_threads_are_used_again(void **state)
{
	(void)state;
	enum { THREADS = 1100 };
	struct rig r = rig_open(GIB(1), NULL);
	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;
		void *ok;
		assert_int_equal(pthread_create(&thread, NULL, come_and_go, &r), 0);
		assert_int_equal(pthread_join(thread, &ok), 0);
		assert_non_null(ok);
		rig_sync(&r);
	}
	assert_true(rig_stat(&r, "stream.current") < 16);
	rig_close(&r);
}

static void test_a_long_queue_of_events_is_no_obstacle(void **state)
{
	(void)state;
	enum { N = 300 };
	static void *p[N];
	struct rig r = rig_open(GIB(4), NULL);
	trz_stream a = rig_stream(&r);
	rig_alloc(&r, 100, NULL);
	for (int i = 0; i < N; i++)
		p[i] = rig_alloc(&r, MIB(1), a);
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p[0], MIB(1), 7));
	for (int i = 0; i < N; i++)
		rig_free(&r, p[i]);
	assert_ok(trz_stream_retire(r.heap, a));
	assert_ok(sim_stream_destroy(r.s, r.c, a));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.large_pool.current"), 0);
	rig_close(&r);
}

/* What was allocated or used on the stream and is freed later. */
static void test_frees_after_retirement_settle(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *own = rig_alloc(&r, MIB(3), b), *slot = rig_alloc(&r, 300, b), *used = rig_alloc(&r, MIB(3), a);
	assert_ok(trz_record_stream(r.heap, used, b));
	retire(&r, b);
	rig_free(&r, own);
	rig_free(&r, slot);
	rig_free(&r, used);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "pending.current"), 0);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* The stream had no free of its own: its retirement covers the use all the same. */
static void test_close_waits_for_a_retired_streams_use(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(3), a);
	assert_ok(trz_record_stream(r.heap, p, b));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)p, MIB(3), 1));
	retire(&r, b);
	rig_free(&r, p);
	rig_close(&r);
}

static void test_its_memory_goes_to_others(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(50), a);
	rig_free(&r, p);
	retire(&r, a);
	rig_sync(&r);
	void *q = rig_alloc(&r, MIB(50), b);
	rig_free(&r, q);
	rig_sync(&r);
	rig_close(&r);
}

static trz_status id_of_handle(void *self, trz_context c, trz_stream stream, uint64_t *id)
{
	(void)self;
	(void)c;
	*id = (uintptr_t)stream;
	return TRZ_OK;
}

/* A driver without ids. What the old stream was given has not run: its memory is not in the order of the new one. */
static void test_another_stream_by_the_same_handle(void **state)
{
	(void)state;
	struct overlay o;
	struct rig *r = &o.rig;
	overlay_machine(&o, GIB(1));
	o.table.stream_id = id_of_handle;
	overlay_open_heap(&o, NULL);
	trz_stream a = rig_stream(r);
	void *p = rig_alloc(r, MIB(3), a), *slot = rig_alloc(r, 300, a);
	assert_ok(sim_stamp(r->s, r->c, a, (trz_addr)p, MIB(3), 1));
	rig_free(r, p);
	rig_free(r, slot);
	retire(r, a);
	trz_stream b = rig_stream(r);
	assert_ptr_equal(a, b);
	void *q = rig_alloc(r, MIB(3), b), *other = rig_alloc(r, 300, b);
	assert_ptr_not_equal(q, p);
	assert_ptr_not_equal(other, slot);
	rig_free(r, q);
	rig_free(r, other);
	retire(r, b);
	rig_sync(r);
	assert_ok(trz_poll(r->heap));
	uint64_t streams = rig_stat(r, "stream.current");
	rig_free(r, rig_alloc(r, MIB(3), rig_stream(r)));
	assert_int_equal(rig_stat(r, "stream.current"), streams);
	rig_check(r);
	rig_close(r);
}

static void test_a_captured_stream_cannot_be_retired(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r);
	sim_graph graph;
	void *p = rig_alloc(&r, MIB(3), a);
	assert_ok(sim_capture_begin(r.s, r.c, a, TRZ_CAPTURE_RELAXED));
	assert_error(trz_stream_retire(r.heap, a), TRZ_ERROR_CAPTURE, "end the capture");
	assert_ok(sim_capture_end(r.s, r.c, a, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	rig_free(&r, p);
	retire(&r, a);
	rig_sync(&r);
	rig_close(&r);
}

/* A free by another thread that has asked whether the stream is being captured, and not yet recorded, when the stream
 * is retired and destroyed. It holds out for that a while: an end of retiring that does not wait comes at once. */
static struct overlay slow;
static _Thread_local bool dawdles;
static atomic_bool asked, destroyed;

static trz_status dawdle(void *self, trz_context c, trz_stream stream, trz_capture_status *status, uint64_t *id)
{
	trz_status answer = slow.rig.d->stream_capture(self, c, stream, status, id);
	if (dawdles) {
		atomic_store(&asked, true);
		for (int i = 0; i < 300 && !atomic_load(&destroyed); i++)
			usleep(1000);
	}
	return answer;
}

static void *free_slowly(void *p)
{
	dawdles = true;
	return trz_free(slow.rig.heap, p) == TRZ_OK ? p : NULL;
}

static void test_a_free_beside_the_end_of_its_stream(void **state)
{
	(void)state;
	void *freed = NULL;
	pthread_t thread;
	overlay_machine(&slow, GIB(1));
	slow.table.stream_capture = dawdle;
	overlay_open_heap(&slow, "event_bytes:0");
	struct rig *r = &slow.rig;
	trz_stream a = rig_stream(r);
	rig_free(r, rig_alloc(r, 100, NULL));
	void *p = rig_alloc(r, MIB(3), a);
	assert_int_equal(pthread_create(&thread, NULL, free_slowly, p), 0);
	while (!atomic_load(&asked))
		sched_yield();
	retire(r, a);
	atomic_store(&destroyed, true);
	assert_int_equal(pthread_join(thread, &freed), 0);
	assert_ptr_equal(freed, p);
	rig_sync(r);
	rig_check(r);
	rig_close(r);
}

/* ---- streams that go without a word ---- */

static trz_stream use_and_destroy(struct rig *r, size_t size, uint64_t tag, void **p)
{
	trz_stream stream = rig_stream(r);
	*p = rig_alloc(r, size, stream);
	assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)*p, size, tag));
	rig_free(r, *p);
	assert_ok(sim_stream_destroy(r->s, r->c, stream));
	return stream;
}

/* Nothing is recorded on handles that may be dead. */
static void test_closing_after_streams_were_destroyed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p;
	for (unsigned i = 0; i < 4; i++)
		use_and_destroy(&r, i % 2 ? 512 : MIB(4), i, &p);
	rig_close(&r);
}

/* The next stream has the old one's handle: an event recorded there would say that the old one's work is done. */
static void test_a_handle_that_is_another_streams(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p, *q;
	rig_free(&r, rig_alloc(&r, 512, NULL));
	trz_stream old = use_and_destroy(&r, 512, 1, &p), next = rig_stream(&r);
	assert_ptr_equal(old, next);
	q = rig_alloc(&r, 512, next);
	assert_ok(trz_poll(r.heap));
	rig_free(&r, q);
	assert_ok(trz_trim(r.heap, 0, NULL));
	rig_check(&r);
	assert_true(rig_stat(&r, "reserved_bytes.all.current") > 0);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* ---- entries that are used again ---- */

enum { MORE_STREAMS = STREAMS_MAX + 200 };

static void test_streams_that_hold_nothing_make_room(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream first = rig_stream(&r), user = rig_stream(&r), slots = rig_stream(&r), last = NULL;
	trz_pointer_info info;
	void *mine = rig_alloc(&r, MIB(4), first), *used = rig_alloc(&r, MIB(4), NULL), *slot = rig_alloc(&r, 512, slots);
	assert_ok(trz_record_stream(r.heap, used, user));
	for (unsigned i = 0; i < MORE_STREAMS; i++) {
		last = rig_stream(&r);
		rig_free(&r, rig_alloc(&r, i % 2 ? 512 : MIB(2), last));
	}
	assert_true(rig_stat(&r, "stream.current") <= STREAMS_MAX);
	assert_ok(trz_query(r.heap, mine, &info));
	assert_ptr_equal(info.stream, first);
	assert_ok(trz_query(r.heap, slot, &info));
	assert_ptr_equal(info.stream, slots);
	assert_ok(sim_stamp(r.s, r.c, user, (trz_addr)used, MIB(4), 1));
	rig_free(&r, used);
	assert_ok(trz_poll(r.heap));
	assert_int_equal(rig_stat(&r, "pending.current"), 1);
	assert_ok(sim_stream_sync(r.s, r.c, user));
	assert_ok(trz_poll(r.heap));
	assert_int_equal(rig_stat(&r, "pending.current"), 0);
	rig_free(&r, mine);
	rig_free(&r, slot);
	rig_check(&r);
	rig_close(&r);
}

static void test_streams_in_use_make_none(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	void *p[STREAMS_MAX], *more = NULL;
	for (unsigned i = 0; i < STREAMS_MAX; i++)
		p[i] = rig_alloc(&r, 512, rig_stream(&r));
	trz_stream stream = rig_stream(&r);
	assert_status(trz_alloc(r.heap, 512, 0, stream, &more), TRZ_ERROR_HOST_MEMORY);
	rig_free(&r, p[77]);
	more = rig_alloc(&r, 512, stream);
	rig_free(&r, more);
	rig_check(&r);
	rig_close(&r);
}

struct visitor {
	struct rig *r;
	unsigned count;
	trz_status status;
	void *left;
};

/* Streams that come and go while other threads do the same: whoever is in the midst of a call keeps its entry. */
/* Where every stream that the heap knows still has work under way, it says so: the program lets that run. */
static trz_status alloc_patiently(struct rig *r, trz_stream stream, void **p)
{
	enum { TRIES = 100 };
	trz_status status = trz_alloc(r->heap, 4096, 0, stream, p);
	for (int i = 0; i < TRIES && status == TRZ_ERROR_HOST_MEMORY; i++) {
		sim_device_sync(r->s, 0);
		status = trz_alloc(r->heap, 4096, 0, stream, p);
	}
	return status;
}

static void *visit(void *arg)
{
	struct visitor *v = arg;
	struct rig *r = v->r;
	for (unsigned i = 0; i < v->count && v->status == TRZ_OK; i++) {
		trz_stream stream;
		void *p = NULL;
		v->status = sim_stream_create(r->s, r->c, false, &stream);
		if (v->status == TRZ_OK)
			v->status = alloc_patiently(r, stream, &p);
		if (v->status == TRZ_OK)
			v->status = sim_stamp(r->s, r->c, stream, (trz_addr)p, 4096, i);
		if (v->status == TRZ_OK)
			v->status = sim_verify(r->s, r->c, stream, (trz_addr)p, 4096, i);
		if (v->status == TRZ_OK)
			v->status = trz_free_on(r->heap, p, stream);
		sim_run(r->s, 8);
	}
	return NULL;
}

static void test_threads_with_many_streams(void **state)
{
	(void)state;
	enum { THREADS = 3 };
	struct rig r = rig_open(GIB(8), NULL);
	struct visitor v[THREADS];
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) {
		v[i] = (struct visitor){.r = &r, .count = MORE_STREAMS / 2};
		assert_int_equal(pthread_create(&threads[i], NULL, visit, &v[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_ok(v[i].status);
	}
	rig_check(&r);
	rig_close(&r);
}

static void *leave_a_block(void *arg)
{
	struct visitor *v = arg;
	v->status = trz_alloc(v->r->heap, 512, 0, (trz_stream)2, &v->left);
	return NULL;
}

static void *visit_on_own_stream(void *arg)
{
	struct visitor *v = arg;
	leave_a_block(v);
	if (v->status == TRZ_OK)
		v->status = trz_free(v->r->heap, v->left);
	return NULL;
}

/* A thread that does this and ends. */
static struct visitor come_and_end(struct rig *r, void *(*visits)(void *))
{
	struct visitor v = {.r = r};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, visits, &v), 0);
	pthread_join(thread, NULL);
	assert_ok(v.status);
	return v;
}

static void test_threads_that_come_and_go(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	for (unsigned i = 0; i < MORE_STREAMS; i++)
		come_and_end(&r, visit_on_own_stream);
	rig_free(&r, rig_alloc(&r, 512, rig_stream(&r)));  /* an entry for another sort of stream */
	rig_check(&r);
	rig_close(&r);
}

/* Threads that hand their blocks over and end. What others free in their streams, no poll of theirs sees pass. */
static void test_threads_that_leave_blocks(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	for (unsigned i = 0; i < MORE_STREAMS; i++)
		rig_free(&r, come_and_end(&r, leave_a_block).left);
	rig_check(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_free_beside_the_end_of_its_stream),
		cmocka_unit_test(test_cached_memory_can_be_trimmed),
		cmocka_unit_test(test_entries_are_used_again),
		cmocka_unit_test(test_entries_of_threads_are_used_again),
		cmocka_unit_test(test_a_long_queue_of_events_is_no_obstacle),
		cmocka_unit_test(test_frees_after_retirement_settle),
		cmocka_unit_test(test_close_waits_for_a_retired_streams_use),
		cmocka_unit_test(test_its_memory_goes_to_others),
		cmocka_unit_test(test_another_stream_by_the_same_handle),
		cmocka_unit_test(test_a_captured_stream_cannot_be_retired),
		cmocka_unit_test(test_closing_after_streams_were_destroyed),
		cmocka_unit_test(test_a_handle_that_is_another_streams),
		cmocka_unit_test(test_streams_that_hold_nothing_make_room),
		cmocka_unit_test(test_streams_in_use_make_none),
		cmocka_unit_test(test_threads_with_many_streams),
		cmocka_unit_test(test_threads_that_come_and_go),
		cmocka_unit_test(test_threads_that_leave_blocks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
