/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing: arguments, driver tables, devices, contexts, several heaps.
 */
#include <pthread.h>

#include "rig.h"

static void test_out_is_null(void **state)
{
	(void)state;
	assert_error(trz_open(NULL, NULL), TRZ_ERROR_INVALID_ARGUMENT, "out is NULL");
}

static void test_no_driver_on_this_machine_is_an_error(void **state)
{
	(void)state;
	trz_heap *heap = (trz_heap *)state;
	trz_status status = trz_open(NULL, &heap);
	if (status == TRZ_OK) {  /* there is one */
		assert_ok(trz_close(heap));
		return;
	}
	assert_true(status == TRZ_ERROR_NO_DRIVER || status == TRZ_ERROR_NO_DEVICE);
	assert_true(*trz_last_error());
	assert_ptr_equal(heap, (trz_heap *)state);
}

static void test_close_nothing(void **state)
{
	(void)state;
	assert_ok(trz_close(NULL));
}

static trz_status open_on(struct rig *r, int device, trz_context context, const char *conf, trz_heap **out)
{
	trz_open_params params = {.device = device, .context = context, .config = conf, .driver = r->d};
	return trz_open(&params, out);
}

static void test_a_heap_without_allocations_takes_no_memory(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	assert_int_equal(sim_device_used(r.s, 0), 0);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	assert_int_equal(rig_stat(&r, "address_bytes.current"), 0);
	assert_true(rig_stat(&r, "metadata_bytes") > 0);
	rig_check(&r);
	rig_close(&r);
}

static void test_no_such_device(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.devices = 2});
	static const int bad[] = {-1, 2, 1000};
	for (size_t i = 0; i < LENGTH(bad); i++) {
		trz_heap *heap = (trz_heap *)&r;
		assert_error(open_on(&r, bad[i], NULL, NULL, &heap), TRZ_ERROR_NO_DEVICE, "this machine has 2");
		assert_ptr_equal(heap, (trz_heap *)&r);
	}
	rig_close(&r);
}

static void test_bad_configuration(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.devices = 1});
	trz_heap *heap;
	assert_error(open_on(&r, 0, NULL, "lmit:1GiB", &heap), TRZ_ERROR_CONFIG_KEY, "lmit");
	assert_error(open_on(&r, 0, NULL, "limit:x", &heap), TRZ_ERROR_CONFIG_VALUE, "limit");
	rig_close(&r);
}

static void test_driver_table_of_another_version(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.devices = 1});
	trz_driver table = *r.d;
	trz_open_params params = {.driver = &table};
	trz_heap *heap;
	table.version++;
	assert_error(trz_open(&params, &heap), TRZ_ERROR_INVALID_ARGUMENT, "version");
	table = *r.d;
	table.size -= sizeof(void *);
	assert_error(trz_open(&params, &heap), TRZ_ERROR_INVALID_ARGUMENT, "size");
	table = *r.d;
	table.event_record = NULL;
	assert_error(trz_open(&params, &heap), TRZ_ERROR_INVALID_ARGUMENT, "event_record");
	rig_close(&r);
}

static void test_context_of_another_device(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.devices = 2});
	trz_context other;
	trz_heap *heap;
	assert_ok(sim_context_create(r.s, 1, &other));
	assert_status(open_on(&r, 0, other, NULL, &heap), TRZ_ERROR_WRONG_DEVICE);
	assert_true(*trz_last_error());
	assert_ok(sim_context_destroy(r.s, other));
	rig_close(&r);
}

/* Allocates in a context and checks that a stream of it, and of no other, works with the heap. */
static void use_in_context(struct rig *r, trz_heap *heap, trz_context context)
{
	trz_stream stream;
	void *p;
	assert_ok(sim_stream_create(r->s, context, false, &stream));
	assert_ok(trz_alloc(heap, MIB(3), 0, stream, &p));
	assert_ok(sim_stamp(r->s, context, stream, (trz_addr)p, MIB(3), 1));
	assert_ok(sim_verify(r->s, context, stream, (trz_addr)p, MIB(3), 1));
	assert_ok(trz_free(heap, p));
}

static void test_a_users_context(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.devices = 1});
	trz_context mine;
	assert_ok(sim_context_create(r.s, 0, &mine));
	assert_ok(open_on(&r, 0, mine, NULL, &r.heap));
	assert_null(sim_context_current(r.s));
	use_in_context(&r, r.heap, mine);
	rig_close(&r);
}

static void test_the_current_context_comes_before_the_primary_one(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.devices = 1});
	trz_context mine;
	assert_ok(sim_context_create(r.s, 0, &mine));
	sim_context_set_current(r.s, mine);
	assert_ok(open_on(&r, 0, NULL, NULL, &r.heap));
	assert_ptr_equal(sim_context_current(r.s), mine);
	use_in_context(&r, r.heap, mine);
	rig_close(&r);
}

static void test_a_current_context_of_another_device_does_not_count(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.devices = 2});
	trz_context other;
	assert_ok(sim_context_create(r.s, 1, &other));
	sim_context_set_current(r.s, other);
	assert_ok(open_on(&r, 0, NULL, NULL, &r.heap));
	use_in_context(&r, r.heap, r.c);
	assert_ptr_equal(sim_context_current(r.s), other);
	rig_close(&r);
}

struct errand {
	struct rig *rig;
	const char *wrong;
};

/* In a thread without a context. cmocka's assertions belong to the main thread. */
static void *alloc_and_free(void *arg)
{
	struct errand *e = arg;
	struct rig *r = e->rig;
	void *small = NULL, *large = NULL;
	size_t released;
	if (sim_context_current(r->s))
		e->wrong = "the thread has a context";
	else if (trz_alloc(r->heap, 100, 0, NULL, &small) != TRZ_OK ||
	         trz_alloc(r->heap, MIB(5), 0, NULL, &large) != TRZ_OK)
		e->wrong = "allocation";
	else if (trz_free(r->heap, small) != TRZ_OK || trz_free_on(r->heap, large, NULL) != TRZ_OK)
		e->wrong = "free";
	else if (trz_trim(r->heap, 0, &released) != TRZ_OK || trz_check(r->heap) != TRZ_OK)
		e->wrong = "trim or check";
	else if (sim_context_current(r->s))
		e->wrong = "the thread has a context now";
	return NULL;
}

static void test_a_thread_without_a_context(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct errand e = {.rig = &r};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, alloc_and_free, &e), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	if (e.wrong)
		fail_msg("%s: %s", e.wrong, trz_last_error());
	rig_close(&r);
}

static void test_two_devices(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.devices = 2, .capacity = GIB(1)});
	trz_heap *heap[2];
	void *p[2];
	for (int i = 0; i < 2; i++) {
		trz_pointer_info info;
		assert_ok(open_on(&r, i, NULL, NULL, &heap[i]));
		assert_ok(trz_alloc(heap[i], MIB(10), 0, NULL, &p[i]));
		assert_ok(trz_query(heap[i], p[i], &info));
		assert_int_equal(info.device, i);
		assert_true(sim_device_used(r.s, i) >= MIB(10));
	}
	assert_error(trz_free(heap[0], p[1]), TRZ_ERROR_WRONG_DEVICE, "of device 1");
	assert_error(trz_free_on(heap[1], p[0], NULL), TRZ_ERROR_WRONG_DEVICE, "of device 0");
	for (int i = 0; i < 2; i++) {
		assert_ok(trz_free(heap[i], p[i]));
		assert_ok(trz_check(heap[i]));
		assert_ok(trz_close(heap[i]));
		assert_int_equal(sim_device_used(r.s, i), 0);
	}
	rig_close(&r);
}

static void test_several_heaps_of_one_device(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.capacity = GIB(1)});
	trz_heap *heap[3];
	void *p[3];
	for (int i = 0; i < 3; i++) {
		assert_ok(open_on(&r, 0, NULL, i == 1 ? "limit:64MiB" : NULL, &heap[i]));
		assert_ok(trz_alloc(heap[i], i ? MIB(10) : 100, 0, NULL, &p[i]));
	}
	size_t limit;
	assert_ok(trz_get_limit(heap[1], &limit));
	assert_int_equal(limit, MIB(64));
	assert_status(trz_free(heap[2], p[0]), TRZ_ERROR_WRONG_DEVICE);
	assert_ok(trz_close(heap[1]));  /* with its allocation */
	assert_status(trz_free(heap[0], p[1]), TRZ_ERROR_UNKNOWN_POINTER);
	assert_ok(trz_free(heap[0], p[0]));
	assert_ok(trz_free(heap[2], p[2]));
	assert_ok(trz_close(heap[2]));
	assert_ok(trz_close(heap[0]));
	rig_close(&r);
}

static void test_close_waits_for_pending_work(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(30), a), *q = rig_alloc(&r, 1000, b);
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, MIB(30), 1));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)q, 1000, 2));
	rig_free(&r, p);
	rig_free(&r, q);
	assert_int_equal(sim_unfinished(r.s), 2);
	rig_close(&r);
}

static void test_close_with_live_allocations(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	for (size_t size = 1; size < MIB(64); size *= 3)
		rig_alloc(&r, size, NULL);
	rig_close(&r);
}

static void test_heaps_one_after_another(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.capacity = MIB(64)});
	for (int i = 0; i < 20; i++) {
		trz_heap *heap;
		void *p;
		assert_ok(open_on(&r, 0, NULL, NULL, &heap));
		assert_ok(trz_alloc(heap, MIB(40), 0, NULL, &p));
		assert_ok(trz_close(heap));
		assert_int_equal(sim_leaks(r.s, NULL, 0), 0);
	}
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_out_is_null),
		cmocka_unit_test(test_no_driver_on_this_machine_is_an_error),
		cmocka_unit_test(test_close_nothing),
		cmocka_unit_test(test_a_heap_without_allocations_takes_no_memory),
		cmocka_unit_test(test_no_such_device),
		cmocka_unit_test(test_bad_configuration),
		cmocka_unit_test(test_driver_table_of_another_version),
		cmocka_unit_test(test_context_of_another_device),
		cmocka_unit_test(test_a_users_context),
		cmocka_unit_test(test_the_current_context_comes_before_the_primary_one),
		cmocka_unit_test(test_a_current_context_of_another_device_does_not_count),
		cmocka_unit_test(test_a_thread_without_a_context),
		cmocka_unit_test(test_two_devices),
		cmocka_unit_test(test_several_heaps_of_one_device),
		cmocka_unit_test(test_close_waits_for_pending_work),
		cmocka_unit_test(test_close_with_live_allocations),
		cmocka_unit_test(test_heaps_one_after_another),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
