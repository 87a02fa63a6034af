/* SPDX-License-Identifier: Apache-2.0
 *
 * Frees after an event: no stream gets the memory before the event, any stream may get it afterwards, and none waits.
 */
#include <unistd.h>

#include "accounts.h"
#include "rig.h"

static trz_event record(struct rig *r, trz_stream stream)
{
	trz_event event = NULL;
	assert_ok(r->d->event_create(r->d->self, r->c, &event));
	assert_ok(r->d->event_record(r->d->self, r->c, event, stream));
	return event;
}

/* Held back on stream b until `go`; used there. */
static trz_event busy_until(struct rig *r, void *p, size_t size, trz_stream a, trz_stream b, const uint32_t *go)
{
	rig_order(r, a, b);
	assert_ok(sim_spin(r->s, r->c, b, go));
	assert_ok(sim_stamp(r->s, r->c, b, (trz_addr)p, size, 3));
	assert_ok(sim_verify(r->s, r->c, b, (trz_addr)p, size, 3));
	return record(r, b);
}

static void reuse(struct rig *r, size_t size, trz_stream stream, const void *freed, bool same)
{
	void *p = rig_alloc(r, size, stream);
	assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)p, size, 4));
	assert_true((p == freed) == same);
}

static void expect_waiting(struct rig *r, uint64_t bytes)
{
	struct accounts a = accounts_read(r->heap);
	assert_true(accounts_balance(&a));
	assert_int_equal(a.pending, bytes);
	assert_int_equal(rig_stat(r, "waits_inserted"), 0);
	rig_check(r);
}

static void test_a_block_waits_for_its_event(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "slack_per_mille:0,churn_per_mille:0");
	trz_stream a = rig_stream(&r), b = rig_stream(&r), c = rig_stream(&r);
	uint32_t go = 0;
	void *p = rig_alloc(&r, MIB(16), a);
	rig_alloc(&r, 100, c);
	assert_ok(trz_record_stream(r.heap, p, b));  /* forgotten: the event covers it */
	assert_ok(trz_free_after(r.heap, p, busy_until(&r, p, MIB(16), a, b, &go)));
	expect_waiting(&r, MIB(16));
	assert_status(trz_free(r.heap, p), TRZ_ERROR_DOUBLE_FREE);
	reuse(&r, MIB(16), a, p, false);
	reuse(&r, MIB(16), c, p, false);
	go = 1;
	rig_sync(&r);
	reuse(&r, MIB(16), c, p, true);
	expect_waiting(&r, 0);
	rig_sync(&r);
	rig_close(&r);
}

static void test_a_slot_waits_for_its_event(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	uint32_t go = 0;
	void *p = rig_alloc(&r, 1000, a);
	assert_ok(trz_free_after(r.heap, p, busy_until(&r, p, 1000, a, b, &go)));
	assert_status(trz_free(r.heap, p), TRZ_ERROR_DOUBLE_FREE);
	expect_waiting(&r, 1024);
	reuse(&r, 1000, a, p, false);
	go = 1;
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, SIZE_MAX, NULL));  /* asks */
	expect_waiting(&r, 0);
	reuse(&r, 1000, a, p, true);
	rig_sync(&r);
	rig_close(&r);
}

static void test_on_one_stream(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "slack_per_mille:0,churn_per_mille:0");
	uint32_t go = 0;
	trz_stream outside = rig_stream(&r);  /* the heap never hears of it */
	void *p = rig_alloc(&r, MIB(16), NULL);
	assert_ok(trz_free_after(r.heap, p, busy_until(&r, p, MIB(16), NULL, outside, &go)));
	reuse(&r, MIB(16), NULL, p, false);
	go = 1;
	rig_sync(&r);
	reuse(&r, MIB(16), NULL, p, true);
	rig_sync(&r);
	rig_check(&r);
	rig_close(&r);
}

static void test_what_has_completed_is_free_at_once(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(16), a), *slot = rig_alloc(&r, 100, a);
	trz_event first = record(&r, a), second = record(&r, a);
	rig_sync(&r);
	assert_ok(trz_free_after(r.heap, p, first));
	assert_ok(trz_free_after(r.heap, slot, second));
	expect_waiting(&r, 0);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_destroy), 2);
	assert_ok(trz_free_after(r.heap, NULL, record(&r, a)));
	rig_close(&r);
}

static void test_many_events(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	uint32_t go = 0;
	void *held[400];
	for (size_t i = 0; i < LENGTH(held); i++)
		held[i] = rig_alloc(&r, i % 2 ? KIB(2) : KIB(100), a);
	rig_order(&r, a, b);
	for (size_t i = 0; i < LENGTH(held); i++) {
		if (i == 200)
			assert_ok(sim_spin(r.s, r.c, b, &go));
		assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)held[i], KIB(2), i));
		assert_ok(trz_free_after(r.heap, held[i], record(&r, b)));
	}
	sim_run(r.s, 200);
	rig_alloc(&r, 300, b);  /* so many that an allocation asks */
	assert_true(rig_stat(&r, "pending.current") >= 200 && rig_stat(&r, "pending.current") < 400);
	rig_check(&r);
	go = 1;
	rig_sync(&r);
	rig_check(&r);
	rig_close(&r);
}

static void test_refusals(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(16), a);
	trz_event event = record(&r, a);
	assert_status(trz_free_after(r.heap, (char *)p + 512, event), TRZ_ERROR_UNKNOWN_POINTER);
	assert_status(trz_free_after(r.heap, p, NULL), TRZ_ERROR_INVALID_ARGUMENT);
	sim_fault_nth(r.s, 1ull << SIM_SLOT_event_query, 1, false, TRZ_ERROR_CAPTURE);
	assert_status(trz_free_after(r.heap, p, event), TRZ_ERROR_CAPTURE);
	assert_ok(r.d->event_destroy(r.d->self, r.c, event));  /* it is still ours */
	rig_free(&r, p);
	rig_check(&r);
	rig_close(&r);
}

static void test_dedicated_memory_and_imports(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	const trz_alloc_params params = {
	    .struct_size = sizeof params, .size = MIB(4), .stream = a, .flags = TRZ_ALLOC_SHARE_FD};
	void *p = NULL, *q = NULL, *other = NULL;
	uint32_t go = 0;
	int fd = -1;
	assert_ok(trz_alloc_with(r.heap, &params, &p));
	assert_ok(trz_export(r.heap, p, TRZ_ALLOC_SHARE_FD, &fd));
	assert_ok(trz_import(r.heap, TRZ_ALLOC_SHARE_FD, &fd, MIB(4), a, &q));
	close(fd);
	assert_ok(trz_free_after(r.heap, q, busy_until(&r, q, MIB(4), a, b, &go)));
	assert_ok(trz_free_after(r.heap, p, record(&r, b)));
	assert_ok(trz_export_end(r.heap, p));
	assert_ok(trz_alloc_with(r.heap, &params, &other));
	assert_ptr_not_equal(other, p);
	assert_int_equal(rig_stat(&r, "imported_bytes.current"), MIB(4));
	rig_check(&r);
	go = 1;
	rig_sync(&r);
	rig_alloc(&r, 100, b);
	assert_int_equal(rig_stat(&r, "imported_bytes.current"), 0);
	assert_ok(trz_alloc_with(r.heap, &params, &other));
	assert_ptr_equal(other, p);
	rig_check(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_block_waits_for_its_event),
		cmocka_unit_test(test_a_slot_waits_for_its_event),
		cmocka_unit_test(test_on_one_stream),
		cmocka_unit_test(test_what_has_completed_is_free_at_once),
		cmocka_unit_test(test_many_events),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_dedicated_memory_and_imports),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
