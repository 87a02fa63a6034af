/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that is cancelled inside a call: the call returns, and leaves the heap as any other call does. The thread
 * ends at its own next cancellation point.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "lock.h"
#include "rig.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls_return),
		cmocka_unit_test(test_notices_end),
		cmocka_unit_test(test_a_callback_for_failures_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
