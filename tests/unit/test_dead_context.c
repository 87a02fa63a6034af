/* SPDX-License-Identifier: Apache-2.0
 *
 * A context that has failed (law L6): one clear error, no reuse, and no further driver call.
 */
#include "rig.h"

/* A heap that has noticed that its context is dead; *p and *q are still held. */
static struct rig open_dead(const char *conf, void **p, void **q)
{
	struct rig r = rig_open(GIB(1), conf);
	*p = rig_alloc(&r, MIB(3), NULL);
	*q = rig_alloc(&r, 300, NULL);
	rig_free(&r, rig_alloc(&r, MIB(5), NULL));
	sim_kill_context(r.s, r.c);
	void *out = &r;
	assert_error(trz_alloc(r.heap, MIB(200), 0, NULL, &out), TRZ_ERROR_CONTEXT_DEAD, "the context of device 0");
	assert_null(out);
	return r;
}

/* What the driver holds dies with its context; the heap's own memory goes in any case. */
static void close_dead(struct rig *r)
{
	trz_status status = trz_close(r->heap);
	assert_true(status == TRZ_OK || status == TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(sim_violations(r->s), 0);
	sim_close(r->s);
}

static void test_no_allocation_and_no_driver_call(void **state)
{
	(void)state;
	static const char *const confs[] = {NULL, "vmm:off"};
	for (size_t i = 0; i < LENGTH(confs); i++) {
		void *p, *q, *out = &p;
		struct rig r = open_dead(confs[i], &p, &q);
		static const size_t sizes[] = {1, 300, MIB(1), MIB(5), MIB(300)};
		uint64_t calls = rig_calls(&r);
		for (size_t j = 0; j < LENGTH(sizes); j++) {
			assert_error(trz_alloc(r.heap, sizes[j], 0, NULL, &out), TRZ_ERROR_CONTEXT_DEAD, "failed");
			assert_null(out);
		}
		assert_ok(trz_alloc(r.heap, 0, 0, NULL, &out));
		assert_int_equal(rig_calls(&r), calls);
		close_dead(&r);
	}
}

static void test_free_keeps_the_books(void **state)
{
	(void)state;
	void *p, *q;
	struct rig r = open_dead(NULL, &p, &q);
	uint64_t calls = rig_calls(&r);
	assert_ok(trz_free(r.heap, p));
	assert_ok(trz_free(r.heap, q));
	assert_error(trz_free(r.heap, q), TRZ_ERROR_DOUBLE_FREE, "freed already");
	assert_int_equal(rig_stat(&r, "allocated_bytes.all.current"), 0);
	assert_ok(trz_check(r.heap));
	assert_int_equal(rig_calls(&r), calls);
	close_dead(&r);
}

/* Also the free that finds out: the stream that it names cannot be asked about. */
static void test_a_free_on_a_stream_finds_out(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(3), a);
	sim_kill_context(r.s, r.c);
	assert_ok(trz_free_on(r.heap, p, b));
	assert_int_equal(rig_stat(&r, "allocation.all.current"), 0);
	assert_error(trz_free_on(r.heap, p, b), TRZ_ERROR_DOUBLE_FREE, "freed already");
	assert_ok(trz_check(r.heap));
	close_dead(&r);
}

static void test_looking_still_works(void **state)
{
	(void)state;
	void *p, *q;
	struct rig r = open_dead(NULL, &p, &q);
	trz_pointer_info info;
	size_t limit;
	uint64_t calls = rig_calls(&r);
	assert_ok(trz_query(r.heap, p, &info));
	assert_ok(trz_get_limit(r.heap, &limit));
	assert_ok(trz_reset_peaks(r.heap));
	assert_ok(trz_check(r.heap));
	assert_int_equal(rig_stat(&r, "allocation.all.current"), 2);
	assert_int_equal(rig_calls(&r), calls);
	close_dead(&r);
}

static void test_trim(void **state)
{
	(void)state;
	void *p, *q;
	struct rig r = open_dead(NULL, &p, &q);
	size_t released = 77;
	uint64_t calls = rig_calls(&r);
	assert_error(trz_trim(r.heap, 0, &released), TRZ_ERROR_CONTEXT_DEAD, "failed");
	assert_int_equal(released, 0);
	assert_int_equal(rig_calls(&r), calls);
	assert_ok(trz_check(r.heap));
	close_dead(&r);
}

/* The question for the stream's id is the call that finds out: the driver knows the stream, but the context is dead. */
static void test_an_allocation_on_a_stream_finds_out(void **state)
{
	(void)state;
	static const size_t sizes[] = {100, MIB(5)};
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		struct rig r = rig_open(GIB(1), NULL);
		trz_stream a = rig_stream(&r);
		void *p = rig_alloc(&r, sizes[i], a);
		sim_kill_context(r.s, r.c);
		assert_error(trz_alloc(r.heap, sizes[i], 0, a, &p), TRZ_ERROR_CONTEXT_DEAD, "must create a new one");
		assert_null(strstr(trz_last_error(), "does not know"));
		close_dead(&r);
	}
}

/* Nothing is served any more, whatever the cache holds; also where the question is the call that finds out. */
static void test_the_largest_block(void **state)
{
	(void)state;
	void *p, *q;
	size_t size = 77;
	struct rig r = open_dead(NULL, &p, &q);
	uint64_t calls = rig_calls(&r);
	assert_error(trz_largest_block(r.heap, NULL, &size), TRZ_ERROR_CONTEXT_DEAD, "the context of device 0");
	assert_int_equal(rig_calls(&r), calls);
	close_dead(&r);
	r = rig_open(GIB(1), NULL);
	rig_free(&r, rig_alloc(&r, MIB(5), NULL));
	sim_kill_context(r.s, r.c);
	assert_error(trz_largest_block(r.heap, NULL, &size), TRZ_ERROR_CONTEXT_DEAD, "the context of device 0");
	assert_int_equal(size, 77);
	close_dead(&r);
}

static void test_a_new_heap_after_the_context_has_ended(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.capacity = GIB(1)});
	rig_open_heap(&r, NULL);
	rig_alloc(&r, MIB(3), NULL);
	sim_kill_context(r.s, r.c);
	trz_close(r.heap);
	r.d->context_release(r.d->self, 0, r.c);  /* the test's own: it was the last */
	assert_ok(sim_context_primary(r.s, 0, &r.c));
	rig_open_heap(&r, NULL);
	void *p = rig_alloc(&r, MIB(3), NULL);
	assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p, MIB(3), 1));
	rig_sync(&r);
	assert_ok(trz_close(r.heap));
	assert_int_equal(sim_violations(r.s), 0);
	sim_close(r.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_allocation_and_no_driver_call),
		cmocka_unit_test(test_free_keeps_the_books),
		cmocka_unit_test(test_a_free_on_a_stream_finds_out),
		cmocka_unit_test(test_looking_still_works),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_an_allocation_on_a_stream_finds_out),
		cmocka_unit_test(test_the_largest_block),
		cmocka_unit_test(test_a_new_heap_after_the_context_has_ended),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
