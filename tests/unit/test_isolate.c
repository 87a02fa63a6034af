/* SPDX-License-Identifier: Apache-2.0
 *
 * The debugging options no_cache, unmap_on_free and guard. The simulated device faults, like a real one, if work uses
 * addresses where nothing is mapped: so a use too late or too far is an error of the context, not a wrong result.
 */
#include "overlay.h"
#include "prng.h"

static const char *const modes[] = {"no_cache:on", "unmap_on_free:on,small_limit:0", "guard:on,small_limit:0",
                                    "no_cache:on,vmm:off"};

static uint64_t reserved(const struct rig *r)
{
	return rig_stat(r, "reserved_bytes.all.current");
}

static void stamp(struct rig *r, void *p, uint64_t size, trz_stream stream)
{
	assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)p, size, (uint64_t)p));
}

static void verify(struct rig *r, void *p, uint64_t size, trz_stream stream)
{
	assert_ok(sim_verify(r->s, r->c, stream, (trz_addr)p, size, (uint64_t)p));
}

static void test_nothing_is_cached(void **state)
{
	(void)state;
	for (size_t m = 0; m < LENGTH(modes); m++) {
		struct rig r = rig_open(GIB(1), modes[m]);
		void *a = rig_alloc(&r, 100, NULL), *b = rig_alloc(&r, MIB(10), NULL), *c = rig_alloc(&r, MIB(3), NULL);
		assert_in_range(reserved(&r), MIB(15), MIB(22));
		assert_int_equal(rig_stat(&r, "segment.all.current"), 3);
		rig_check(&r);
		stamp(&r, b, MIB(10), NULL);
		rig_free(&r, a);
		rig_free(&r, b);
		rig_free(&r, c);
		assert_ok(trz_poll(r.heap));
		assert_true(reserved(&r) >= MIB(10));  /* its work has not run */
		rig_sync(&r);
		assert_ok(trz_poll(r.heap));
		assert_int_equal(reserved(&r), 0);
		rig_close(&r);
	}
}

/* Each option's aim: what is freed is not given out again, at the same address least of all. */
static void test_no_address_comes_twice(void **state)
{
	(void)state;
	enum { N = 400 };
	static void *seen[N];
	for (size_t m = 1; m < 3; m++) {
		struct rig r = rig_open(MIB(64), modes[m]);
		for (size_t i = 0; i < N; i++) {
			seen[i] = rig_alloc(&r, 1 + i * 5000, NULL);
			for (size_t k = 0; k < i; k++)
				assert_ptr_not_equal(seen[k], seen[i]);
			rig_free(&r, seen[i]);
			rig_sync(&r);
		}
		assert_int_equal(rig_stat(&r, "windows_closed"), 0);
		rig_check(&r);
		rig_close(&r);
	}
}

/* Nor is what the program asks to be dedicated, however small. */
static void test_dedicated_memory_is_not_kept(void **state)
{
	(void)state;
	static const char *const kept_small[] = {"no_cache:on", "unmap_on_free:on", "guard:on"};
	for (size_t m = 0; m < LENGTH(kept_small); m++) {
		struct rig r = rig_open(MIB(64), kept_small[m]);
		trz_alloc_params params = {.struct_size = sizeof params, .size = 500, .flags = TRZ_ALLOC_CONTIGUOUS};
		void *first, *second;
		assert_ok(trz_alloc_with(r.heap, &params, &first));
		rig_free(&r, first);
		rig_sync(&r);
		assert_ok(trz_alloc_with(r.heap, &params, &second));
		assert_ptr_not_equal(first, second);
		rig_free(&r, second);
		rig_sync(&r);
		assert_ok(trz_poll(r.heap));
		assert_int_equal(reserved(&r), 0);
		rig_check(&r);
		rig_close(&r);
	}
}

/* Nor by the growth of what lies before it; and what grows is memory of its own still. */
static void test_growth_takes_nothing_that_was_freed(void **state)
{
	(void)state;
	for (size_t m = 0; m < LENGTH(modes); m++) {
		struct rig r = rig_open(MIB(64), modes[m]);
		trz_pointer_info info;
		void *p = rig_alloc(&r, MIB(2), NULL), *q = rig_alloc(&r, MIB(2), NULL), *last = rig_alloc(&r, MIB(1), NULL);
		rig_free(&r, q);
		assert_status(trz_grow(r.heap, p, MIB(4)), TRZ_ERROR_NO_ROOM);
		assert_status(trz_grow(r.heap, last, MIB(20)), TRZ_ERROR_NO_ROOM);
		assert_ok(trz_query(r.heap, last, &info));
		assert_ok(trz_grow(r.heap, last, info.size));
		rig_check(&r);
		rig_free(&r, p);
		rig_free(&r, last);
		rig_sync(&r);
		assert_ok(trz_poll(r.heap));
		assert_int_equal(reserved(&r), 0);
		rig_close(&r);
	}
}

/* Runs what has been enqueued; true: the context has failed for it. */
static bool faults(struct rig *r)
{
	sim_run(r->s, UINT64_MAX);
	trz_status status = sim_device_sync(r->s, 0);
	return status != TRZ_OK || sim_violations(r->s) > 0;
}

static void forget_machine(struct rig *r)
{
	trz_close(r->heap);
	sim_close(r->s);
}

static void test_late_use_faults(void **state)
{
	(void)state;
	for (size_t m = 0; m < 3; m++) {
		struct rig r = rig_open(MIB(256), modes[m]);
		void *p = rig_alloc(&r, MIB(5), NULL);
		stamp(&r, p, MIB(5), NULL);
		rig_free(&r, p);
		stamp(&r, p, MIB(5), NULL);  /* too late, but the mapping may not go under it */
		assert_ok(trz_poll(r.heap));
		assert_false(faults(&r));
		assert_ok(trz_poll(r.heap));
		stamp(&r, p, MIB(5), NULL);
		assert_true(faults(&r));
		forget_machine(&r);
	}
}

static void test_a_step_too_far_faults(void **state)
{
	(void)state;
	static const struct {
		uint64_t size, alignment;
	} requests[] = {{MIB(5), 0}, {MIB(4), 0}, {512, 0}, {1024, 512}, {MIB(3) + 512, 0}, {KIB(200), 4096}};
	for (size_t i = 0; i < LENGTH(requests); i++) {
		struct rig r = rig_open(MIB(256), "guard:on,small_limit:0");
		void *p, *next;
		assert_ok(trz_alloc(r.heap, requests[i].size, requests[i].alignment, NULL, &p));
		assert_ok(trz_alloc(r.heap, requests[i].size, requests[i].alignment, NULL, &next));
		assert_int_equal((uint64_t)p % max_u64(512, requests[i].alignment), 0);
		rig_check(&r);
		stamp(&r, p, requests[i].size, NULL);
		verify(&r, p, requests[i].size, NULL);
		stamp(&r, next, requests[i].size, NULL);
		assert_false(faults(&r));
		stamp(&r, (char *)p + requests[i].size, 8, NULL);
		assert_true(faults(&r));
		forget_machine(&r);
	}
}

static void test_small_requests_stay_in_slabs(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "guard:on");
	void *p[500];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(&r, 600, NULL);
	assert_true(reserved(&r) <= MIB(4));
	for (size_t i = 0; i < LENGTH(p); i++)
		rig_free(&r, p[i]);
	rig_check(&r);
	rig_close(&r);
}

/* ---- streams and want of memory ---- */

/* A full device: what is freed comes back when its work has passed, which is waited for. */
static void test_a_full_device(void **state)
{
	(void)state;
	for (size_t m = 0; m < LENGTH(modes); m++) {
		struct rig r = rig_open(MIB(64), modes[m]);
		trz_stream other = rig_stream(&r);
		for (int i = 0; i < 20; i++) {
			trz_stream stream = i % 3 ? NULL : other;
			void *p = rig_alloc(&r, MIB(40), stream);
			stamp(&r, p, MIB(40), stream);
			verify(&r, p, MIB(40), stream);
			rig_free(&r, p);
		}
		assert_true(rig_stat(&r, "waits_of_host") > 0);
		void *p = rig_alloc(&r, MIB(40), NULL), *none;
		assert_status(trz_alloc(r.heap, MIB(40), 0, NULL, &none), TRZ_ERROR_OUT_OF_MEMORY);
		assert_null(none);
		trz_oom_info info;
		assert_ok(trz_last_oom(r.heap, &info));
		assert_int_equal(info.requested, MIB(40));
		size_t largest;
		assert_ok(trz_largest_block(r.heap, NULL, &largest));
		assert_in_range(largest, MIB(16), MIB(24));
		rig_free(&r, rig_alloc(&r, largest - (m == 3 ? MIB(2) : 0), NULL));
		rig_free(&r, p);
		rig_check(&r);
		rig_close(&r);
	}
}

static struct overlay o;
static unsigned waited;

/* Another thread's allocation could be what the awaited work depends on: no lock may be held here. */
static trz_status check_and_sync(void *self, trz_context context, trz_event event)
{
	void *p;
	waited++;
	assert_ok(trz_check(o.rig.heap));  /* takes every lock */
	assert_ok(trz_alloc(o.rig.heap, MIB(2), 0, NULL, &p));
	assert_ok(trz_free(o.rig.heap, p));
	return o.rig.d->event_sync(self, context, event);
}

static void test_no_lock_is_held_across_a_wait(void **state)
{
	(void)state;
	overlay_machine(&o, MIB(64));
	o.table.event_sync = check_and_sync;
	overlay_open_heap(&o, "unmap_on_free:on");
	for (int i = 0; i < 5; i++) {
		void *p = rig_alloc(&o.rig, MIB(40), NULL);
		stamp(&o.rig, p, MIB(40), NULL);
		rig_free(&o.rig, p);
	}
	assert_true(waited >= 4);
	rig_sync(&o.rig);
	o.table.event_sync = o.rig.d->event_sync;
	rig_close(&o.rig);
}

static trz_event awaited;
static void *slots[2];
static bool recycled;

/* Others free and poll while this thread waits. */
static trz_status poll_and_sync(void *self, trz_context context, trz_event event)
{
	awaited = event;
	for (size_t i = 0; i < LENGTH(slots); i++) {
		rig_free(&o.rig, slots[i]);
		slots[i] = NULL;
		assert_ok(trz_poll(o.rig.heap));
	}
	awaited = NULL;
	return o.rig.d->event_sync(self, context, event);
}

static trz_status watch_record(void *self, trz_context context, trz_event event, trz_stream stream)
{
	recycled |= event == awaited;
	return o.rig.d->event_record(self, context, event, stream);
}

/* The queue is full of events of polls, and the last one, of a free, is waited for: it stands for that free alone. */
static void test_a_full_queue_keeps_what_is_waited_for(void **state)
{
	(void)state;
	overlay_machine(&o, MIB(64));
	o.table.event_sync = poll_and_sync;
	o.table.event_record = watch_record;
	overlay_open_heap(&o, "unmap_on_free:on");
	trz_stream s = rig_stream(&o.rig);
	void *p = rig_alloc(&o.rig, MIB(40), s);
	for (size_t i = 0; i < LENGTH(slots); i++)
		slots[i] = rig_alloc(&o.rig, 512, s);
	for (int i = 0; i < 255; i++) {
		void *slot = rig_alloc(&o.rig, 512, s);
		stamp(&o.rig, slot, 512, s);
		rig_free(&o.rig, slot);
		assert_ok(trz_poll(o.rig.heap));
	}
	stamp(&o.rig, p, MIB(40), s);
	rig_free(&o.rig, p);
	rig_free(&o.rig, rig_alloc(&o.rig, MIB(40), s));
	assert_null(slots[0]);
	assert_false(recycled);
	rig_sync(&o.rig);
	o.table.event_sync = o.rig.d->event_sync;
	rig_close(&o.rig);
}

/* Which of the streams may use what, as without the options. */
static void test_random_programs(void **state)
{
	(void)state;
	enum { HELD = 10, STREAMS = 3 };
	for (uint64_t seed = 1; seed <= 3 * LENGTH(modes); seed++) {
		struct rig r = rig_machine((sim_config){.capacity = MIB(96), .schedule = SIM_RANDOM, .seed = seed});
		rig_open_heap(&r, modes[seed % LENGTH(modes)]);
		trz_stream streams[STREAMS] = {NULL, rig_stream(&r), rig_stream(&r)};
		void *held[HELD] = {NULL};
		uint64_t sizes[HELD], random = seed;
		trz_stream homes[HELD];
		for (int i = 0; i < 1500; i++) {
			size_t k = prng_below(&random, HELD);
			if (held[k]) {
				verify(&r, held[k], sizes[k], homes[k]);
				trz_stream user = streams[prng_below(&random, STREAMS)];
				if (prng_below(&random, 3) == 0) {
					rig_order(&r, homes[k], user);
					verify(&r, held[k], sizes[k], user);
					assert_ok(trz_record_stream(r.heap, held[k], user));
				}
				rig_free(&r, held[k]);
				held[k] = NULL;
			} else {
				sizes[k] = 8 + 8 * prng_below(&random, MIB(1));
				homes[k] = streams[prng_below(&random, STREAMS)];
				trz_status status = trz_alloc(r.heap, sizes[k], 0, homes[k], &held[k]);
				if (status != TRZ_ERROR_OUT_OF_MEMORY)
					assert_ok(status);
				if (held[k])
					stamp(&r, held[k], sizes[k], homes[k]);
			}
			sim_run(r.s, prng_below(&random, 4));
			if (i % 100 == 0)
				rig_check(&r);
		}
		for (size_t k = 0; k < HELD; k++)
			rig_free(&r, held[k]);
		rig_close(&r);
	}
}

/* Every call that making an allocation takes is refused once: nothing is left behind. */
static void test_refusals(void **state)
{
	(void)state;
	for (size_t m = 0; m < LENGTH(modes); m++) {
		bool served = false;
		for (uint64_t nth = 1; !served; nth++) {
			assert_true(nth < 100);
			struct rig r = rig_open(MIB(64), modes[m]);
			void *p, *before = rig_alloc(&r, MIB(6), NULL);
			sim_fault_nth(r.s, ~(uint64_t)0, nth, nth % 2, TRZ_ERROR_DRIVER);
			served = trz_alloc(r.heap, MIB(4), 0, NULL, &p) == TRZ_OK;
			served &= sim_faults(r.s) == 0;
			sim_fault_nth(r.s, 0, 0, false, TRZ_OK);
			rig_check(&r);
			rig_free(&r, p);
			rig_free(&r, rig_alloc(&r, MIB(50), NULL));
			rig_free(&r, before);
			rig_close(&r);
		}
	}
}

static void test_options_that_need_vmm(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.capacity = MIB(64), .no_vmm = true});
	trz_open_params params = {.driver = r.d, .config = "guard:on"};
	assert_error(trz_open(&params, &r.heap), TRZ_ERROR_NOT_SUPPORTED, "guard needs virtual memory management");
	params.config = "unmap_on_free:on";
	assert_error(trz_open(&params, &r.heap), TRZ_ERROR_NOT_SUPPORTED, "device 0 lacks");
	assert_int_equal(sim_leaks(r.s, NULL, 0), 0);
	sim_close(r.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_cached),
		cmocka_unit_test(test_no_address_comes_twice),
		cmocka_unit_test(test_dedicated_memory_is_not_kept),
		cmocka_unit_test(test_growth_takes_nothing_that_was_freed),
		cmocka_unit_test(test_late_use_faults),
		cmocka_unit_test(test_a_step_too_far_faults),
		cmocka_unit_test(test_small_requests_stay_in_slabs),
		cmocka_unit_test(test_a_full_device),
		cmocka_unit_test(test_no_lock_is_held_across_a_wait),
		cmocka_unit_test(test_a_full_queue_keeps_what_is_waited_for),
		cmocka_unit_test(test_random_programs),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_options_that_need_vmm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
