/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the tests: planted bugs that the simulated worlds, or a small scene on the simulated device, must notice.
 * Bugs of streams and their order are in test_planted_order.c.
 */
#include "heap/heap.h"
#include "rig.h"
#include "world.h"

static struct world world;

/* Opens a world and lets some events happen. */
static void warm_up(uint64_t seed)
{
	const char *wrong = world_open(&world, seed);
	for (int i = 0; !wrong && i < 500; i++)
		wrong = world_step(&world);
	if (wrong)
		fail_msg("%s", wrong);
}

/* Runs on until the world notices something. */
static const char *run_on(int events)
{
	const char *wrong = NULL;
	for (int i = 0; !wrong && i < events; i++)
		wrong = world_step(&world);
	return wrong ? wrong : world_end(&world);
}

/* ---- unmap under running work ------------------------------------------------------------------------ */

/* The bug: a ticket counts as passed too early. */
static void test_trim_of_memory_in_use(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(40), NULL);
	assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p, MIB(40), 1));
	rig_free(&r, p);
	struct tickets *t = &r.heap->streams.list[0]->tickets;
	assert_true(t->passed < t->newest);
	t->passed = t->recorded = t->newest;
	trz_trim(r.heap, 0, NULL);
	assert_true(sim_violations(r.s) > 0);
	assert_text(sim_first_violation(r.s), "unmap of");
	assert_text(sim_first_violation(r.s), "while an unfinished stamp");
	trz_close(r.heap);
	sim_close(r.s);
}

static trz_status always_passed(void *self, trz_context context, trz_event event)
{
	(void)self;
	(void)context;
	(void)event;
	return TRZ_OK;
}

/* The bug: in a world of several streams, the driver says of every event that it has completed. */
static void test_a_world_whose_events_lie(void **state)
{
	(void)state;
	unsigned noticed = 0, tried = 0;
	for (uint64_t seed = 1; tried < 5; seed++) {
		const char *wrong = world_open(&world, seed);
		bool fit = !wrong && world.stream_count > 1 && world.vmm;
		trz_driver liar = world.watch;
		liar.event_query = always_passed;
		assert_ok(trz_close(world.heap));
		assert_null(world_open_heap(&world, &liar));
		world.run_most = 0;  /* work runs late enough for the lie to matter */
		world.lag = 100;
		wrong = fit ? run_on(6000) : NULL;
		noticed += wrong && (strstr(wrong, "violation") || strstr(wrong, "CONTEXT_DEAD"));
		tried += fit;
		world_close(&world);
	}
	assert_int_equal(noticed, tried);
}

/* ---- events of the wrong context ------------------------------------------------------------------------ */

static trz_status own_context(void *self, trz_context context, trz_stream stream, trz_context *of)
{
	(void)self;
	(void)stream;
	*of = context;
	return TRZ_OK;
}

/* The bug: the heap makes events for all streams in its own context. The driver refuses to record them, and memory
 * stays pending for ever. */
static void test_a_world_of_one_context_only(void **state)
{
	(void)state;
	unsigned noticed = 0, tried = 0;
	for (uint64_t seed = 1; tried < 3; seed++) {
		const char *wrong = world_open(&world, seed);
		bool fit = !wrong && world.far && world.stream_count > 2 && !world.graphs && !world.faulty;
		trz_driver liar = world.watch;
		liar.stream_context = own_context;
		assert_ok(trz_close(world.heap));
		assert_null(world_open_heap(&world, &liar));
		noticed += fit && run_on(4000);
		tried += fit;
		world_close(&world);
	}
	assert_true(noticed > tried / 2);  /* a world whose frees record nothing cannot notice */
}

/* ---- a counter that drifts --------------------------------------------------------------------------- */

static void test_counters_that_drift(void **state)
{
	(void)state;
#define PLACE(name) offsetof(struct counters, name)
	static const size_t places[] = {
		PLACE(cached_bytes.current),      PLACE(requested_bytes.allocated[1]), PLACE(allocation.freed[1]),
		PLACE(reserved_bytes.allocated[0]), PLACE(pending_bytes.current),      PLACE(zombie_bytes.current),
	};
#undef PLACE
	for (size_t i = 0; i < LENGTH(places); i++) {
		warm_up(3);
		assert_ok(trz_check(world.heap));
		counter *drifting = (counter *)(void *)((char *)&world.heap->counters + places[i]);
		counter_set(drifting, counter_get(drifting) + 512);
		assert_status(trz_check(world.heap), TRZ_ERROR_CORRUPT);
		assert_true(strstr(trz_last_error(), "invariant I8") || strstr(trz_last_error(), "invariant I9"));
		assert_non_null(world_check(&world));
		world_close(&world);
	}
}

/* ---- a limit that is too high ------------------------------------------------------------------------- */

/* If a stream may hold more than the heap has counted for it, the heap misses peaks. */
static void test_the_check_notices_a_limit_that_is_too_high(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_alloc(&r, 700, NULL);
	rig_free(&r, rig_alloc(&r, 700, NULL));
	assert_ok(trz_check(r.heap));
	struct stream *s = atomic_load(&r.heap->legacy);
	s->slots.limit[ALLOCATED_BYTES] += 1024;
	assert_error(trz_check(r.heap), TRZ_ERROR_CORRUPT, "invariant I8");
	trz_close(r.heap);
	sim_close(r.s);
}

/* ---- a call site that counts what is gone --------------------------------------------------------------- */

static void test_the_check_notices_a_site_that_drifts(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_alloc(&r, MIB(10), NULL);
	assert_ok(trz_check(r.heap));
	sites_at(&r.heap->sites, 1)->held.bytes -= 512;
	assert_error(trz_check(r.heap), TRZ_ERROR_CORRUPT, "invariant I12");
	sites_at(&r.heap->sites, 1)->held.bytes += 512;
	assert_ok(trz_check(r.heap));
	r.heap->sites.tags[1].bytes = 512;
	assert_error(trz_check(r.heap), TRZ_ERROR_CORRUPT, "invariant I12");
	trz_close(r.heap);
	sim_close(r.s);
}

/* ---- a slot handed out twice ------------------------------------------------------------------------- */

/* Makes the slot at `p`, which a caller holds, the next one to be given out. */
static void plant_free_slot(trz_heap *heap, trz_addr p)
{
	pagemap_entry entry = pagemap_get(&heap->pagemap, p);
	assert_true(pagemap_is_slab(entry));
	struct slab *s = pagemap_slab(entry);
	unsigned slot = size_class_slot(slab_class(s), p - s->base);
	assert_int_equal(slab_slot_address(s, slot), p);
	assert_false(s->free >> slot & 1);
	assert_true(s->free != 0);
	s->free |= (uint64_t)1 << slot;
}

static void test_the_check_notices_a_slot_with_two_owners(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, 700, NULL);
	rig_alloc(&r, 700, NULL);
	plant_free_slot(r.heap, (trz_addr)p);
	assert_error(trz_check(r.heap), TRZ_ERROR_CORRUPT, "invariant I");
	trz_close(r.heap);
	sim_close(r.s);
}

/* ---- free tiles that nobody looks for any more ------------------------------------------------------- */

static void test_the_check_notices_a_hidden_tile(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(100), NULL);
	struct block *b = (struct block *)pagemap_block(pagemap_get(&r.heap->pagemap, (trz_addr)p));
	assert_ok(trz_free(r.heap, p));
	assert_ok(trz_check(r.heap));
	assert_int_equal(b->state, BLOCK_FREE);
	b->tileless = true;
	assert_error(trz_check(r.heap), TRZ_ERROR_CORRUPT, "invariant I3");
	assert_ok(trz_close(r.heap));
	sim_close(r.s);
}

static void test_the_shadow_map_notices_a_slot_with_two_owners(void **state)
{
	(void)state;
	assert_null(world_open(&world, 1));
	for (uint64_t seed = 2; world.aided || strstr(world.conf, "small_limit"); seed++) {  /* has slots of this size */
		world_close(&world);
		assert_null(world_open(&world, seed));
	}
	assert_null(world_alloc(&world, 700, 0, 0));
	assert_null(world_alloc(&world, 700, 0, 0));
	plant_free_slot(world.heap, world.shadow.list[0].address);
	const char *wrong = world_alloc(&world, 700, 0, 0);
	assert_non_null(wrong);
	assert_text(wrong, "shares bytes with a live allocation of tag 1");
	world_close(&world);
}

static void test_stamps_notice_a_slot_with_two_owners(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, 700, NULL);
	rig_alloc(&r, 700, NULL);
	assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p, 700, 41));
	plant_free_slot(r.heap, (trz_addr)p);
	void *q = rig_alloc(&r, 700, NULL);
	assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)q, 700, 42));
	assert_ok(sim_verify(r.s, r.c, NULL, (trz_addr)p, 700, 41));
	sim_device_sync(r.s, 0);
	assert_int_equal(sim_violations(r.s), 1);
	assert_text(sim_first_violation(r.s), "found tag 42");
	trz_close(r.heap);
	sim_close(r.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trim_of_memory_in_use),
		cmocka_unit_test(test_a_world_whose_events_lie),
		cmocka_unit_test(test_a_world_of_one_context_only),
		cmocka_unit_test(test_counters_that_drift),
		cmocka_unit_test(test_the_check_notices_a_limit_that_is_too_high),
		cmocka_unit_test(test_the_check_notices_a_site_that_drifts),
		cmocka_unit_test(test_the_check_notices_a_slot_with_two_owners),
		cmocka_unit_test(test_the_check_notices_a_hidden_tile),
		cmocka_unit_test(test_the_shadow_map_notices_a_slot_with_two_owners),
		cmocka_unit_test(test_stamps_notice_a_slot_with_two_owners),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
