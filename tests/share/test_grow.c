/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing in place: into a free neighbour, at the end of the window, and not at all; never at the cost of unfinished
 * work.
 */
#include "accounts.h"
#include "overlay.h"

static trz_pointer_info query(struct rig *r, const void *p)
{
	trz_pointer_info info;
	assert_ok(trz_query(r->heap, p, &info));
	return info;
}

/* The counters say that p is all there is, and that it has `size` bytes. */
static void expect_alone(struct rig *r, void *p, size_t size)
{
	struct accounts a = accounts_read(r->heap);
	assert_true(accounts_balance(&a));
	assert_int_equal(a.requested, size);
	assert_int_equal(a.allocations[0] + a.allocations[1], 1);
	trz_pointer_info info = query(r, p);
	assert_ptr_equal(info.base, p);
	assert_int_equal(info.requested, size);
	assert_true(info.size >= size);
	rig_check(r);
}

static void test_into_a_free_neighbour(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(3), NULL), *q = rig_alloc(&r, MIB(20), NULL), *end = rig_alloc(&r, MIB(2), NULL);
	rig_free(&r, q);
	uint64_t calls = rig_calls(&r);
	assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p, MIB(3), 5));
	assert_ok(trz_grow(r.heap, p, MIB(10)));
	assert_int_equal(query(&r, p).size, MIB(10));
	assert_ok(trz_grow(r.heap, p, MIB(23)));
	assert_int_equal(rig_calls(&r), calls);
	assert_int_equal(rig_stat(&r, "path_grow"), 2);
	assert_ok(sim_verify(r.s, r.c, NULL, (trz_addr)p, MIB(3), 5));
	assert_ok(sim_fill(r.s, r.c, NULL, (trz_addr)p, MIB(23), 1));
	rig_sync(&r);
	assert_status(trz_grow(r.heap, p, MIB(23) + 1), TRZ_ERROR_NO_ROOM);
	rig_free(&r, end);
	expect_alone(&r, p, MIB(23));
	rig_free(&r, p);
	assert_int_equal(accounts_read(r.heap).requested, 0);
	rig_check(&r);
	rig_close(&r);
}

static void test_at_the_end_of_the_window(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(3), NULL);
	for (size_t size = MIB(4); size <= MIB(700); size = size * 3 / 2) {
		assert_ok(trz_grow(r.heap, p, size));
		expect_alone(&r, p, size);
	}
	assert_ok(sim_fill(r.s, r.c, NULL, (trz_addr)p, query(&r, p).size, 1));
	rig_sync(&r);
	assert_status(trz_grow(r.heap, p, MIB(1100)), TRZ_ERROR_OUT_OF_MEMORY);
	assert_ok(trz_set_limit(r.heap, MIB(800)));
	assert_status(trz_grow(r.heap, p, MIB(900)), TRZ_ERROR_LIMIT);
	assert_text(trz_last_error(), "limit");
	size_t size = query(&r, p).requested;
	expect_alone(&r, p, size);
	assert_ok(trz_grow(r.heap, p, 100));  /* it is longer already */
	expect_alone(&r, p, size);
	rig_close(&r);
}

static void test_within_the_rounding(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *slot = rig_alloc(&r, 1000, NULL);
	assert_ok(trz_grow(r.heap, slot, 1020));
	expect_alone(&r, slot, 1020);
	assert_status(trz_grow(r.heap, slot, 1030), TRZ_ERROR_NO_ROOM);
	rig_free(&r, slot);
	assert_status(trz_grow(r.heap, slot, 1010), TRZ_ERROR_UNKNOWN_POINTER);
	trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(3), .flags = TRZ_ALLOC_CONTIGUOUS};
	void *dedicated = NULL;
	assert_ok(trz_alloc_with(r.heap, &params, &dedicated));
	assert_ok(trz_grow(r.heap, dedicated, MIB(4)));
	expect_alone(&r, dedicated, MIB(4));
	assert_status(trz_grow(r.heap, dedicated, MIB(4) + 1), TRZ_ERROR_NO_ROOM);
	assert_status(trz_grow(r.heap, (char *)dedicated + 512, MIB(5)), TRZ_ERROR_UNKNOWN_POINTER);
	assert_status(trz_grow(r.heap, dedicated, (size_t)1 << 48), TRZ_ERROR_SIZE);
	assert_status(trz_grow(r.heap, NULL, 5), TRZ_ERROR_INVALID_ARGUMENT);
	rig_check(&r);
	rig_close(&r);
}

/* p of one stream; behind it memory that another one has freed; then something live. */
static void test_another_streams_neighbour_has_to_have_passed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	uint32_t go = 0;
	void *p = rig_alloc(&r, MIB(5), a), *q = rig_alloc(&r, MIB(5), a), *end = rig_alloc(&r, MIB(1), a);
	rig_order(&r, a, b);
	assert_ok(sim_spin(r.s, r.c, b, &go));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)q, MIB(5), 3));
	assert_ok(sim_verify(r.s, r.c, b, (trz_addr)q, MIB(5), 3));
	assert_ok(trz_free_on(r.heap, q, b));
	assert_status(trz_grow(r.heap, p, MIB(8)), TRZ_ERROR_NO_ROOM);
	go = 1;
	rig_sync(&r);
	assert_ok(trz_grow(r.heap, p, MIB(8)));
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, MIB(8), 4));
	rig_sync(&r);
	rig_free(&r, end);
	expect_alone(&r, p, MIB(8));
	rig_close(&r);
}

/* Uses are of the allocation, what it has got since included. */
static void test_uses_cover_what_is_added(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	uint32_t go = 0;
	void *p = rig_alloc(&r, MIB(5), a);
	assert_ok(trz_record_stream(r.heap, p, b));
	assert_ok(trz_grow(r.heap, p, MIB(30)));
	rig_order(&r, a, b);
	assert_ok(sim_spin(r.s, r.c, b, &go));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)p, MIB(30), 3));
	assert_ok(sim_verify(r.s, r.c, b, (trz_addr)p, MIB(30), 3));
	rig_free(&r, p);
	assert_int_equal(rig_stat(&r, "pending_bytes.current"), MIB(30));
	void *q = rig_alloc(&r, MIB(30), a);
	assert_true((char *)q >= (char *)p + MIB(30) || (char *)q + MIB(30) <= (char *)p);
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)q, MIB(30), 4));
	go = 1;
	rig_sync(&r);
	rig_check(&r);
	rig_close(&r);
}

/* Gathered memory can be what is added, although work of the stream's own still runs there. */
static void test_free_tiles_are_gathered_behind_it(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(128), "slack_per_mille:0,tile_size:2MiB,tile_size_max:2MiB");
	trz_stream a = rig_stream(&r);
	void *held[40], *p;
	for (size_t i = 0; i < LENGTH(held); i++)
		held[i] = rig_alloc(&r, MIB(2), a);
	p = rig_alloc(&r, MIB(2), a);
	for (size_t i = 0; i < LENGTH(held); i += 2) {
		assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)held[i], MIB(2), i));
		rig_free(&r, held[i]);
	}
	assert_ok(trz_grow(r.heap, p, MIB(30)));
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, MIB(30), 77));
	assert_ok(sim_verify(r.s, r.c, a, (trz_addr)p, MIB(30), 77));
	assert_true(rig_stat(&r, "tiles_gathered") > 0);
	rig_sync(&r);
	rig_check(&r);
	rig_close(&r);
}

static void test_while_the_stream_is_captured(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r);
	trz_pool *pool = NULL;
	void *p = rig_alloc(&r, MIB(5), a), *slot = rig_alloc(&r, 520, a), *q;
	sim_graph graph = 0;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_begin_capture(r.heap, pool, a));
	assert_ok(sim_capture_begin(r.s, r.c, a, TRZ_CAPTURE_GLOBAL));
	assert_ok(trz_alloc(r.heap, MIB(4), 0, a, &q));
	assert_status(trz_grow(r.heap, p, MIB(100)), TRZ_ERROR_CAPTURE);
	assert_status(trz_grow(r.heap, p, MIB(6)), TRZ_ERROR_CAPTURE);  /* there is free memory behind it */
	assert_status(trz_grow(r.heap, slot, 600), TRZ_ERROR_CAPTURE);
	assert_ok(trz_grow(r.heap, p, MIB(5)));
	assert_ok(trz_grow(r.heap, q, MIB(40)));
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)q, MIB(40), 7));
	assert_ok(sim_capture_end(r.s, r.c, a, &graph));
	assert_ok(trz_pool_end(r.heap, pool));
	assert_ok(sim_graph_launch(r.s, r.c, graph, a));
	rig_sync(&r);
	assert_ok(trz_grow(r.heap, p, MIB(100)));
	rig_check(&r);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

/* Memory of a pool, with free memory behind it that the stream still uses when its capture begins. */
static void play_into_what_is_in_use(bool synchronised)
{
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r);
	trz_pool *pool = NULL;
	void *p = NULL, *q = NULL, *captured;
	sim_graph graph = 0;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_alloc(r.heap, pool, MIB(20), 0, a, &p));
	assert_ok(trz_pool_alloc(r.heap, pool, MIB(20), 0, a, &q));
	assert_ptr_equal((char *)p + MIB(20), q);
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)q, MIB(20), 1));
	rig_free(&r, q);
	if (synchronised)
		rig_sync(&r);
	assert_ok(trz_pool_begin_capture(r.heap, pool, a));
	assert_ok(sim_capture_begin(r.s, r.c, a, TRZ_CAPTURE_GLOBAL));
	captured = rig_alloc(&r, 1000, a);
	assert_status(trz_grow(r.heap, p, MIB(30)), synchronised ? TRZ_OK : TRZ_ERROR_NO_ROOM);
	assert_ok(sim_capture_end(r.s, r.c, a, &graph));
	assert_ok(trz_pool_end(r.heap, pool));
	assert_ok(trz_grow(r.heap, p, MIB(35)));
	rig_free(&r, captured);
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

static void test_into_what_is_in_use_while_captured(void **state)
{
	(void)state;
	play_into_what_is_in_use(false);
	play_into_what_is_in_use(true);
}

/* The pool of an allocation ends when growth asks, in the midst of its work, how far the device is. */
static struct overlay late;
static trz_event of_context;
static unsigned not_ready;

static trz_status note_event(void *self, trz_context context, trz_event event)
{
	of_context = event;
	return late.rig.d->context_record(self, context, event);
}

static trz_status query_late(void *self, trz_context context, trz_event event)
{
	if (not_ready == 0 || event != of_context)
		return late.rig.d->event_query(self, context, event);
	not_ready--;
	return TRZ_NOT_READY;
}

static void test_while_its_pool_ends(void **state)
{
	(void)state;
	overlay_machine(&late, GIB(1));
	late.table.event_query = query_late;
	late.table.context_record = note_event;
	overlay_open_heap(&late, "slack_per_mille:0");
	struct rig *r = &late.rig;
	trz_stream a = rig_stream(r), b = rig_stream(r);
	trz_pool *pool = NULL;
	sim_graph graph;
	void *busy = rig_alloc(r, MIB(40), b);  /* what growth would like to gather, and asks for */
	assert_ok(trz_pool_create(r->heap, &pool));
	assert_ok(trz_pool_begin_capture(r->heap, pool, a));
	assert_ok(sim_capture_begin(r->s, r->c, a, TRZ_CAPTURE_GLOBAL));
	void *p = rig_alloc(r, MIB(16), a);
	assert_ok(sim_capture_end(r->s, r->c, a, &graph));
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	assert_ok(trz_pool_end(r->heap, pool));
	not_ready = 2;  /* the release asks, and the growth before it begins */
	assert_ok(trz_pool_release(r->heap, pool));
	assert_ok(sim_stamp(r->s, r->c, b, (trz_addr)busy, MIB(40), 1));
	rig_free(r, busy);
	assert_ok(trz_grow(r->heap, p, MIB(60)));
	assert_int_equal(not_ready, 0);
	rig_check(r);
	assert_ok(trz_poll(r->heap));
	rig_check(r);
	rig_free(r, p);
	rig_sync(r);
	assert_ok(trz_trim(r->heap, 0, NULL));
	assert_int_equal(rig_stat(r, "reserved_bytes.all.current"), 0);
	rig_close(r);
}

static void test_retired_streams_and_classic_segments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(17), a);  /* leaves some of its tiles free behind it */
	assert_ok(trz_stream_retire(r.heap, a));
	assert_ok(sim_stream_destroy(r.s, r.c, a));
	assert_ok(trz_grow(r.heap, p, MIB(18)));
	assert_status(trz_grow(r.heap, p, MIB(200)), TRZ_ERROR_NO_ROOM);
	expect_alone(&r, p, MIB(18));
	rig_close(&r);
	r = rig_open(GIB(1), "vmm:off");
	p = rig_alloc(&r, MIB(5), NULL);
	assert_ok(trz_grow(r.heap, p, MIB(9)));
	assert_status(trz_grow(r.heap, p, MIB(100)), TRZ_ERROR_NO_ROOM);
	expect_alone(&r, p, MIB(9));
	rig_close(&r);
}

/* What lies behind is freed by another thread just before more would be laid. */
static void *behind;

static trz_status relax_and_free(void *self, trz_capture_mode *mode)
{
	void *p = behind;
	behind = NULL;
	if (p)
		rig_free(&late.rig, p);
	return late.rig.d->capture_mode(self, mode);
}

static void test_what_lies_behind_is_freed_meanwhile(void **state)
{
	(void)state;
	overlay_machine(&late, GIB(1));
	late.table.capture_mode = relax_and_free;
	overlay_open_heap(&late, NULL);
	struct rig *r = &late.rig;
	trz_stream a = rig_stream(r);
	void *p = rig_alloc(r, MIB(20), a), *q = rig_alloc(r, MIB(20), a);
	assert_ptr_equal((char *)p + MIB(20), q);
	behind = q;
	assert_ok(trz_grow(r->heap, p, MIB(30)));
	assert_null(behind);
	rig_check(r);
	rig_free(r, p);
	rig_sync(r);
	rig_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_into_a_free_neighbour),
		cmocka_unit_test(test_at_the_end_of_the_window),
		cmocka_unit_test(test_within_the_rounding),
		cmocka_unit_test(test_another_streams_neighbour_has_to_have_passed),
		cmocka_unit_test(test_uses_cover_what_is_added),
		cmocka_unit_test(test_free_tiles_are_gathered_behind_it),
		cmocka_unit_test(test_while_the_stream_is_captured),
		cmocka_unit_test(test_into_what_is_in_use_while_captured),
		cmocka_unit_test(test_while_its_pool_ends),
		cmocka_unit_test(test_retired_streams_and_classic_segments),
		cmocka_unit_test(test_what_lies_behind_is_freed_meanwhile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
