/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that is cancelled inside a call: the call returns, and leaves the heap as any other call does. The thread
 * ends at its own next cancellation point.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "lock.h"
#include "overlay.h"

struct calls {
	struct rig *rig;
	void (*make)(struct rig *r);
	bool returned;
};

/* Calls with a cancellation pending, as if another thread had just asked for it. */
static void *call_cancelled(void *argument)
{
	struct calls *c = argument;
	pthread_cancel(pthread_self());
	c->make(c->rig);
	c->returned = true;
	pthread_testcancel();
	return argument;
}

static void is_not_cancelled(struct rig *r, void (*make)(struct rig *r))
{
	struct calls c = {.rig = r, .make = make};
	pthread_t thread;
	void *result;
	assert_int_equal(pthread_create(&thread, NULL, call_cancelled, &c), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_true(c.returned);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	if (r->heap)
		assert_ok(trz_check(r->heap));
}

static void allocate(struct rig *r)
{
	void *p = rig_alloc(r, MIB(100), NULL), *q = rig_alloc(r, KIB(4), NULL);
	assert_ok(trz_free(r->heap, q));
	assert_ok(trz_free(r->heap, p));
	assert_ok(trz_trim(r->heap, 0, NULL));
}

static void run_out(struct rig *r)
{
	void *p;
	assert_status(trz_alloc(r->heap, GIB(2), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY);
}

static bool drop(void *user, const char *text, size_t size)
{
	(void)user, (void)text, (void)size;
	pthread_testcancel();
	return true;
}

static void report(struct rig *r)
{
	assert_ok(trz_report(r->heap, 0, drop, NULL));
}

static void snapshot(struct rig *r)
{
	assert_ok(trz_snapshot(r->heap, "/dev/null"));
}

static void close_heap(struct rig *r)
{
	assert_ok(trz_close(r->heap));
	r->heap = NULL;
}

static void wait_a_moment(struct rig *r)
{
	(void)r;
	thread_sleep(1000);
}

static void test_calls_return(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "oom_snapshot:/dev/null");
	for (int i = 0; i < 2; i++) {  /* what the first has left behind does not stop the second */
		is_not_cancelled(&r, allocate);
		is_not_cancelled(&r, run_out);
		is_not_cancelled(&r, report);
		is_not_cancelled(&r, snapshot);
		is_not_cancelled(&r, wait_a_moment);
	}
	is_not_cancelled(&r, close_heap);
	rig_close(&r);
}

static void notice(void *user, trz_map_event event, void *address, size_t size)
{
	(void)event, (void)address, (void)size;
	++*(unsigned *)user;
	pthread_testcancel();
}

static void test_notices_end(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	unsigned notices = 0;
	assert_ok(trz_set_map_callback(r.heap, notice, &notices));
	is_not_cancelled(&r, allocate);
	assert_true(notices >= 2);
	is_not_cancelled(&r, close_heap);
	rig_close(&r);
}

static bool ask_again(void *user, const trz_oom_info *info)
{
	(void)info;
	++*(unsigned *)user;
	pthread_testcancel();
	return false;
}

static void test_a_callback_for_failures_ends(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	unsigned asked = 0;
	assert_ok(trz_set_oom_callback(r.heap, ask_again, &asked));
	is_not_cancelled(&r, run_out);
	assert_int_equal(asked, 1);
	rig_close(&r);
}

static trz_pool *pool;

/* In a diversion: an allocation in progress holds a reference to the pool, and its stream's entry. */
static void allocate_in_a_pool(struct rig *r)
{
	trz_stream stream = rig_stream(r);
	assert_ok(trz_pool_begin(r->heap, pool, NULL, NULL));
	void *p = rig_alloc(r, MIB(400), stream);
	assert_ok(trz_pool_end(r->heap, pool));
	assert_ok(trz_free(r->heap, p));
	assert_ok(trz_stream_retire(r->heap, stream));
	assert_ok(sim_stream_destroy(r->s, r->c, stream));
}

static void expect_one_reference(struct rig *r)
{
	trz_pool_info info;
	assert_ok(trz_pool_query(r->heap, pool, &info));
	assert_int_equal(info.references, 1);
}

static uint64_t number_the_stack(void *user)
{
	pthread_testcancel();
	return ++*(unsigned *)user;
}

static size_t tell_the_stack(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	(void)user, (void)id, (void)frames, (void)capacity;
	pthread_testcancel();
	return 0;
}

static void warn(void *user, const trz_warning_info *info)
{
	(void)info;
	++*(unsigned *)user;
	pthread_testcancel();
}

static void test_callbacks_in_an_allocation_end(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	unsigned stacks = 0, warnings = 0;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_set_site_callback(r.heap, number_the_stack, tell_the_stack, &stacks));
	is_not_cancelled(&r, allocate_in_a_pool);
	assert_true(stacks > 0);
	expect_one_reference(&r);
	assert_ok(trz_set_site_callback(r.heap, NULL, NULL, NULL));
	assert_ok(trz_trim(r.heap, 0, NULL));
	rig_alloc(&r, MIB(560), NULL);
	assert_ok(trz_set_warning_callback(r.heap, warn, &warnings));
	is_not_cancelled(&r, allocate_in_a_pool);
	assert_true(warnings > 0);
	expect_one_reference(&r);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

static void see_block(void *user, const trz_block_info *block)
{
	(void)block;
	++*(unsigned *)user;
	pthread_testcancel();
}

static void walk(struct rig *r)
{
	unsigned blocks = 0;
	const trz_visitor visitor = {.block = see_block, .user = &blocks};
	assert_ok(trz_walk(r->heap, &visitor));
	assert_true(blocks > 0);
}

static void test_a_walk_ends(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_alloc(&r, MIB(4), NULL);
	uint64_t before = rig_stat(&r, "metadata_bytes");
	is_not_cancelled(&r, walk);
	assert_int_equal(rig_stat(&r, "metadata_bytes"), before);
	rig_close(&r);
}

/* A driver whose calls about streams and events are cancellation points. */
static struct overlay waiting;
static void *block;

static trz_status waiting_capture(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                                  uint64_t *id)
{
	pthread_testcancel();
	return waiting.rig.d->stream_capture(self, context, stream, status, id);
}

static trz_status waiting_create(void *self, trz_context context, trz_event *event)
{
	pthread_testcancel();
	return waiting.rig.d->event_create(self, context, event);
}

static trz_status waiting_record(void *self, trz_context context, trz_event event, trz_stream stream)
{
	pthread_testcancel();
	return waiting.rig.d->event_record(self, context, event, stream);
}

static void free_block(struct rig *r)
{
	assert_ok(trz_free(r->heap, block));
}

static void grow_block(struct rig *r)
{
	assert_ok(trz_grow(r->heap, block, MIB(4)));
}

/* While a free records its event, or a growth asks about the stream, retiring the stream waits. */
static void test_what_counts_as_a_recorder_ends(void **state)
{
	(void)state;
	overlay_machine(&waiting, GIB(1));
	waiting.table.stream_capture = waiting_capture;
	waiting.table.event_create = waiting_create;
	waiting.table.event_record = waiting_record;
	overlay_open_heap(&waiting, "event_bytes:0");
	struct rig *r = &waiting.rig;
	trz_stream a = rig_stream(r), b = rig_stream(r);
	rig_free(r, rig_alloc(r, MIB(2), b));
	block = rig_alloc(r, MIB(3), a);
	is_not_cancelled(r, grow_block);
	is_not_cancelled(r, free_block);
	assert_int_equal(rig_stat(r, "idle_bytes.current"), 0);
	block = rig_alloc(r, MIB(3), a);
	assert_ok(trz_record_stream(r->heap, block, b));
	is_not_cancelled(r, free_block);
	assert_ok(trz_stream_retire(r->heap, a));
	assert_ok(trz_stream_retire(r->heap, b));
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls_return),
		cmocka_unit_test(test_notices_end),
		cmocka_unit_test(test_a_callback_for_failures_ends),
		cmocka_unit_test(test_callbacks_in_an_allocation_end),
		cmocka_unit_test(test_a_walk_ends),
		cmocka_unit_test(test_what_counts_as_a_recorder_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
