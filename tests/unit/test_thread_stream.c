/* SPDX-License-Identifier: Apache-2.0
 *
 * Per-thread default streams: handle 2 is another stream in every thread, so what is recorded for one in the
 * wrong thread would say nothing about it (reference: cuda.h, CU_STREAM_PER_THREAD).
 */
#include <pthread.h>

#include "rig.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_threads_have_two_streams),
		cmocka_unit_test(test_a_block_freed_by_another_thread),
		cmocka_unit_test(test_a_slot_freed_by_another_thread),
		cmocka_unit_test(test_close_waits_for_another_threads_stream),
		cmocka_unit_test(test_own_blocks_can_be_trimmed),
		cmocka_unit_test(test_own_slots_can_be_trimmed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
