/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated device's contexts: which one a thread gets, their memory, the objects of each, and their deaths.
 */
#include "sim_fixture.h"

#include <pthread.h>

static const uint64_t granule = MIB(2);

struct seen {
	sim *s;
	trz_context current;
};

static void *look_at_current(void *arg)
{
	struct seen *seen = arg;
	seen->current = sim_context_current(seen->s);
	return NULL;
}

static void test_threads_begin_without_a_context(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	assert_null(sim_context_current(f.s));
	sim_context_set_current(f.s, f.c);
	assert_ptr_equal(sim_context_current(f.s), f.c);
	struct seen seen = {f.s, f.c};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, look_at_current, &seen), 0);
	pthread_join(thread, NULL);
	assert_null(seen.current);
	make_memory(&f, granule);
	record_on(&f, NULL);
	assert_ptr_equal(sim_context_current(f.s), f.c);
	sim_context_set_current(f.s, NULL);
	record_on(&f, NULL);
	assert_null(sim_context_current(f.s));
	fixture_close(&f);
}

static void test_retain_chooses(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.devices = 2, .continue_on_violation = true});
	trz_context made, other, got;
	assert_int_equal(sim_context_create(f.s, 0, &made), TRZ_OK);
	assert_int_equal(sim_context_create(f.s, 1, &other), TRZ_OK);
	assert_int_equal(f.d->context_retain(f.self, 0, NULL, &got), TRZ_OK);
	assert_ptr_equal(got, f.c);
	assert_int_equal(f.d->context_retain(f.self, 0, made, &got), TRZ_OK);
	assert_ptr_equal(got, made);
	sim_context_set_current(f.s, made);
	assert_int_equal(f.d->context_retain(f.self, 0, NULL, &got), TRZ_OK);
	assert_ptr_equal(got, made);
	sim_context_set_current(f.s, other);
	assert_int_equal(f.d->context_retain(f.self, 0, NULL, &got), TRZ_OK);
	assert_ptr_equal(got, f.c);
	assert_int_equal(f.d->context_retain(f.self, 0, other, &got), TRZ_ERROR_WRONG_DEVICE);
	assert_int_equal(f.d->context_retain(f.self, 2, NULL, &got), TRZ_ERROR_NO_DEVICE);
	assert_int_equal(sim_leaks(f.s, NULL, 0), 4);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(f.d->context_release(f.self, 0, made), TRZ_OK);
		assert_int_equal(f.d->context_release(f.self, 0, f.c), TRZ_OK);
	}
	assert_int_equal(sim_leaks(f.s, NULL, 0), 0);
	expect_clean(&f);
	assert_int_equal(f.d->context_release(f.self, 0, made), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "not retained");
	fixture_close(&f);
}

static void test_context_costs_memory(void **state)
{
	(void)state;
	sim *s;
	sim_config config = {.capacity = MIB(64), .context_overhead = MIB(40)};
	assert_int_equal(sim_open(&config, &s), TRZ_OK);
	const trz_driver *d = sim_driver(s);
	trz_context c, more;
	assert_int_equal(sim_device_used(s, 0), 0);
	assert_int_equal(d->context_retain(d->self, 0, NULL, &c), TRZ_OK);
	assert_int_equal(sim_device_used(s, 0), MIB(40));
	assert_int_equal(d->context_retain(d->self, 0, NULL, &more), TRZ_OK);
	assert_int_equal(sim_device_used(s, 0), MIB(40));
	assert_int_equal(sim_context_create(s, 0, &more), TRZ_ERROR_OUT_OF_MEMORY);
	assert_int_equal(d->context_release(d->self, 0, c), TRZ_OK);
	assert_int_equal(sim_device_used(s, 0), MIB(40));
	assert_int_equal(d->context_release(d->self, 0, c), TRZ_OK);
	assert_int_equal(sim_device_used(s, 0), 0);
	sim_close(s);
}

static void test_objects_belong_to_their_context(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_context other;
	assert_int_equal(sim_context_create(f.s, 0, &other), TRZ_OK);
	trz_event e = make_event(&f);
	trz_stream theirs;
	trz_context found;
	assert_int_equal(sim_stream_create(f.s, other, false, &theirs), TRZ_OK);
	assert_int_equal(f.d->stream_context(f.self, f.c, theirs, &found), TRZ_OK);
	assert_ptr_equal(found, other);
	assert_int_equal(f.d->event_record(f.self, f.c, e, theirs), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->event_record(f.self, other, e, theirs), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->context_record(f.self, other, e), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), 0);  /* the driver refuses, and nothing is lost */
	assert_int_equal(f.d->event_query(f.self, other, e), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, theirs), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "of context");
	uint64_t here, there;
	assert_int_equal(f.d->stream_id(f.self, f.c, NULL, &here), TRZ_OK);
	assert_int_equal(f.d->stream_id(f.self, other, NULL, &there), TRZ_OK);
	assert_int_not_equal(here, there);
	fixture_close(&f);
}

static void test_end_of_a_context(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_context made;
	trz_stream st;
	trz_event e;
	trz_addr plain, a = make_memory(&f, granule);
	assert_int_equal(sim_context_create(f.s, 0, &made), TRZ_OK);
	assert_int_equal(sim_stream_create(f.s, made, false, &st), TRZ_OK);
	assert_int_equal(f.d->event_create(f.self, made, &e), TRZ_OK);
	assert_int_equal(f.d->mem_alloc(f.self, made, 512, &plain), TRZ_OK);
	assert_int_equal(sim_fill(f.s, made, st, a, 1, 9), TRZ_OK);
	assert_int_equal(sim_context_destroy(f.s, made), TRZ_OK);
	unsigned char byte = 0;
	assert_true(sim_peek(f.s, a, &byte, 1));
	assert_int_equal(byte, 9);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	assert_int_equal(f.d->event_query(f.self, made, e), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(f.d->mem_free(f.self, made, plain), TRZ_ERROR_CONTEXT_DEAD);
	expect_clean(&f);
	assert_int_equal(sim_context_destroy(f.s, made), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "context");
	fixture_close(&f);
}

static void test_killed_context_stays_dead(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_memory(&f, granule);
	trz_stream st = make_stream(&f);
	assert_int_equal(sim_fill(f.s, f.c, st, a, 1, 9), TRZ_OK);
	trz_event e = record_on(&f, st);
	trz_handle h = make_handle(&f, granule);
	sim_kill_context(f.s, f.c);
	trz_tile_props props = {.device = 0};
	uint64_t x, y;
	assert_int_equal(f.d->event_query(f.self, f.c, e), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(f.d->event_sync(f.self, f.c, e), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(f.d->mem_info(f.self, f.c, &x, &y), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(f.d->create(f.self, &props, granule, &h), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(f.d->release(f.self, h), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(sim_unfinished(f.s), 0);
	assert_non_null(strstr(trz_driver_last_error(), "sticky"));
	expect_clean(&f);
	fixture_close(&f);
}

static void test_device_reset_heals(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	sim_kill_context(f.s, f.c);
	trz_context again;
	assert_int_equal(f.d->context_retain(f.self, 0, NULL, &again), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(f.d->context_release(f.self, 0, f.c), TRZ_OK);
	assert_int_equal(f.d->context_retain(f.self, 0, NULL, &again), TRZ_OK);
	assert_ptr_not_equal(again, f.c);
	uint64_t id;
	assert_int_equal(f.d->stream_id(f.self, again, NULL, &id), TRZ_OK);
	assert_int_equal(f.d->stream_id(f.self, f.c, NULL, &id), TRZ_ERROR_CONTEXT_DEAD);
	fixture_close(&f);
}

static void test_capture_mode_is_per_thread(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_capture_mode mode = TRZ_CAPTURE_RELAXED;
	assert_int_equal(f.d->capture_mode(f.self, &mode), TRZ_OK);
	assert_int_equal(mode, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(f.d->capture_mode(f.self, &mode), TRZ_OK);
	assert_int_equal(mode, TRZ_CAPTURE_RELAXED);
	trz_capture_status status = TRZ_CAPTURE_ACTIVE;
	uint64_t id;
	assert_int_equal(f.d->stream_capture(f.self, f.c, make_stream(&f), &status, &id), TRZ_OK);
	assert_int_equal(status, TRZ_CAPTURE_NONE);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_begin_without_a_context),
		cmocka_unit_test(test_retain_chooses),
		cmocka_unit_test(test_context_costs_memory),
		cmocka_unit_test(test_objects_belong_to_their_context),
		cmocka_unit_test(test_end_of_a_context),
		cmocka_unit_test(test_killed_context_stays_dead),
		cmocka_unit_test(test_device_reset_heals),
		cmocka_unit_test(test_capture_mode_is_per_thread),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
