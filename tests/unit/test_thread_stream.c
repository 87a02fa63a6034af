/* SPDX-License-Identifier: Apache-2.0
 *
 * Per-thread default streams: handle 2 is another stream in every thread, so what is recorded for one in the
 * wrong thread would say nothing about it (reference: cuda.h, CU_STREAM_PER_THREAD).
 */
#include <pthread.h>

#include "overlay.h"

static const trz_stream per_thread = (trz_stream)2;

/* What a helper thread does, while the main thread waits for it. */
struct errand {
	struct rig *rig;
	void *p;
	size_t size;
	trz_status status;
};

static void run_thread(void *(*body)(void *), struct errand *e)
{
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, body, e), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *free_it(void *arg)
{
	struct errand *e = arg;
	e->status = trz_free(e->rig->heap, e->p);
	return NULL;
}

static void *alloc_it(void *arg)
{
	struct errand *e = arg;
	e->status = trz_alloc(e->rig->heap, e->size, 0, per_thread, &e->p);
	return NULL;
}

static void test_two_threads_have_two_streams(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(3), per_thread);
	assert_ok(sim_stamp(r.s, r.c, per_thread, (trz_addr)p, MIB(3), 1));
	rig_free(&r, p);
	struct errand e = {.rig = &r, .size = MIB(3)};
	run_thread(alloc_it, &e);
	assert_ok(e.status);
	assert_ptr_not_equal(e.p, p);
	assert_int_equal(rig_stat(&r, "stream.current"), 2);
	assert_ptr_equal(rig_alloc(&r, MIB(3), per_thread), p);
	rig_close(&r);
}

/* The other thread frees what this one's stream still uses: nothing may be unmapped before that has passed. */
static void free_elsewhere(size_t size)
{
	struct rig r = rig_open(GIB(1), NULL);
	struct errand e = {.rig = &r, .size = size};
	e.p = rig_alloc(&r, size, per_thread);
	rig_alloc(&r, size, rig_stream(&r));
	assert_ok(sim_stamp(r.s, r.c, per_thread, (trz_addr)e.p, size, 1));
	run_thread(free_it, &e);
	assert_ok(e.status);
	assert_ok(trz_trim(r.heap, 0, NULL));
	rig_check(&r);
	rig_sync(&r);
	rig_close(&r);
}

static void test_a_block_freed_by_another_thread(void **state)
{
	(void)state;
	free_elsewhere(MIB(30));
}

static void test_a_slot_freed_by_another_thread(void **state)
{
	(void)state;
	free_elsewhere(300);
}

static void test_close_waits_for_another_threads_stream(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct errand e = {.rig = &r, .size = 300};
	e.p = rig_alloc(&r, 300, per_thread);
	assert_ok(sim_stamp(r.s, r.c, per_thread, (trz_addr)e.p, 300, 1));
	run_thread(free_it, &e);
	rig_close(&r);
}

/* What the stream's own thread freed and has completed goes back to the driver. */
static void own_frees(size_t size)
{
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, size, per_thread);
	assert_ok(sim_stamp(r.s, r.c, per_thread, (trz_addr)p, size, 1));
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

static void test_own_blocks_can_be_trimmed(void **state)
{
	(void)state;
	own_frees(MIB(30));
}

static void test_own_slots_can_be_trimmed(void **state)
{
	(void)state;
	own_frees(300);
}

/* ---- threads that have ended, or do nothing any more ---- */

static void *alloc_and_use(void *arg)
{
	struct errand *e = arg;
	e->status = trz_alloc(e->rig->heap, e->size, 0, per_thread, &e->p);
	if (e->status == TRZ_OK)
		e->status = sim_stamp(e->rig->s, e->rig->c, per_thread, (trz_addr)e->p, e->size, 1);
	return NULL;
}

/* What a thread leaves behind others free, when it has gone. */
static void leave_behind(struct rig *r, size_t size, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct errand e = {.rig = r, .size = size};
		run_thread(alloc_and_use, &e);
		assert_ok(e.status);
		rig_free(r, e.p);
	}
}

static void test_memory_of_threads_that_have_ended(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	leave_behind(&r, MIB(200), 3);
	leave_behind(&r, 300, 3);
	size_t released;
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_int_equal(released, 0);  /* their work is not done */
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_true(released >= MIB(600));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* Its event is asked for beside that of the heap's own context. */
static void test_memory_of_threads_beside_another_context(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_context there;
	trz_stream theirs;
	assert_ok(sim_context_create(r.s, 0, &there));
	assert_ok(sim_stream_create(r.s, there, false, &theirs));
	rig_free(&r, rig_alloc(&r, MIB(20), theirs));
	leave_behind(&r, MIB(200), 3);
	assert_ok(trz_trim(r.heap, 0, NULL));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

static void test_a_full_device_takes_what_threads_have_left(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(512), NULL);
	leave_behind(&r, MIB(200), 2);
	rig_sync(&r);
	rig_alloc(&r, MIB(400), NULL);
	rig_check(&r);
	rig_close(&r);
}

static void *note_use(void *arg)
{
	struct errand *e = arg;
	e->status = trz_record_stream(e->rig->heap, e->p, per_thread);
	if (e->status == TRZ_OK)
		e->status = sim_verify(e->rig->s, e->rig->c, per_thread, (trz_addr)e->p, e->size, 1);
	return NULL;
}

static void test_a_slot_that_another_threads_stream_used(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct errand e = {.rig = &r, .size = 304};
	trz_stream own = rig_stream(&r);
	e.p = rig_alloc(&r, 304, own);
	assert_ok(sim_stamp(r.s, r.c, own, (trz_addr)e.p, 304, 1));
	rig_sync(&r);
	run_thread(note_use, &e);
	assert_ok(e.status);
	rig_free(&r, e.p);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "pending.current"), 1);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "pending.current"), 0);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* An event of the whole context would break the capture; the memory comes when that is over. */
static void test_captures_come_first(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r);
	rig_free(&r, rig_alloc(&r, 512, captured));
	leave_behind(&r, MIB(200), 2);
	rig_sync(&r);
	sim_graph graph;
	assert_ok(sim_capture_begin(r.s, r.c, captured, TRZ_CAPTURE_RELAXED));
	size_t released;
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_true(released < MIB(200));
	assert_ok(sim_capture_end(r.s, r.c, captured, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_true(released >= MIB(400));
	rig_close(&r);
}

/* What no thread can ask about costs nothing where there is nothing of it. */
static void test_others_pay_nothing(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_free(&r, rig_alloc(&r, MIB(40), rig_stream(&r)));
	rig_free(&r, rig_alloc(&r, MIB(40), per_thread));
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(sim_calls(r.s, SIM_SLOT_context_record), 0);
	rig_close(&r);
}

/* ---- drivers without events of contexts ---- */

static struct overlay old;

/* A thread has gone whose stream is busy with memory that has been freed. */
static void open_on_old_driver(void)
{
	overlay_open_on_old_driver(&old, GIB(1));
	leave_behind(&old.rig, MIB(200), 1);
	leave_behind(&old.rig, 300, 1);
}

static void test_old_drivers_wait_at_the_end(void **state)
{
	(void)state;
	open_on_old_driver();
	rig_close(&old.rig);
}

/* The event of the legacy default stream breaks captures of blocking streams alone. */
static void close_in_a_capture(bool blocking, trz_status expected)
{
	trz_stream captured;
	sim_graph graph;
	open_on_old_driver();
	struct rig *r = &old.rig;
	assert_ok(sim_stream_create(r->s, r->c, blocking, &captured));
	assert_ok(sim_capture_begin(r->s, r->c, captured, TRZ_CAPTURE_RELAXED));
	assert_status(trz_close(r->heap), expected);
	assert_ok(sim_capture_end(r->s, r->c, captured, &graph));
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	rig_sync(r);
	assert_int_equal(sim_violations(r->s), 0);
	sim_close(r->s);
}

static void test_old_drivers_leave_captures_alone(void **state)
{
	(void)state;
	close_in_a_capture(false, TRZ_OK);
	close_in_a_capture(true, TRZ_ERROR_CAPTURE);
}

/* Neither a trim nor a full device makes streams wait for each other: what only the thread can tell stays pending. */
static void test_old_drivers_order_nothing_before_the_end(void **state)
{
	(void)state;
	open_on_old_driver();
	uint64_t records = sim_calls(old.rig.s, SIM_SLOT_event_record);
	size_t released;
	assert_ok(trz_trim(old.rig.heap, 0, &released));
	assert_int_equal(released, 0);
	assert_int_equal(sim_calls(old.rig.s, SIM_SLOT_event_record), records);
	rig_close(&old.rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_threads_have_two_streams),
		cmocka_unit_test(test_a_block_freed_by_another_thread),
		cmocka_unit_test(test_a_slot_freed_by_another_thread),
		cmocka_unit_test(test_close_waits_for_another_threads_stream),
		cmocka_unit_test(test_own_blocks_can_be_trimmed),
		cmocka_unit_test(test_own_slots_can_be_trimmed),
		cmocka_unit_test(test_memory_of_threads_that_have_ended),
		cmocka_unit_test(test_memory_of_threads_beside_another_context),
		cmocka_unit_test(test_a_full_device_takes_what_threads_have_left),
		cmocka_unit_test(test_a_slot_that_another_threads_stream_used),
		cmocka_unit_test(test_captures_come_first),
		cmocka_unit_test(test_others_pay_nothing),
		cmocka_unit_test(test_old_drivers_wait_at_the_end),
		cmocka_unit_test(test_old_drivers_leave_captures_alone),
		cmocka_unit_test(test_old_drivers_order_nothing_before_the_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
