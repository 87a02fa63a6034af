/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations at a given address: memory freed there can be allocated again; memory that is live or in use
 * cannot.
 */
#include "ground/types.h"
#include "rig.h"
#include "testing.h"

static trz_status alloc_at(struct rig *r, void *address, size_t size, trz_stream stream, void **out)
{
	const trz_alloc_params params = {.struct_size = sizeof params, .size = size, .stream = stream, .address = address};
	*out = r;
	return trz_alloc_with(r->heap, &params, out);
}

static void expect_at(struct rig *r, void *address, size_t size, trz_stream stream)
{
	void *p;
	trz_pointer_info info;
	assert_ok(alloc_at(r, address, size, stream, &p));
	assert_ptr_equal(p, address);
	assert_ok(trz_query(r->heap, p, &info));
	assert_int_equal(info.requested, size);
	assert_ok(sim_fill(r->s, r->c, stream, (trz_addr)p, size, 1));
	rig_check(r);
}

static void expect_none(struct rig *r, void *address, size_t size, trz_stream stream)
{
	void *p;
	assert_error(alloc_at(r, address, size, stream, &p), TRZ_ERROR_NO_ROOM, "part of that range is not free");
	assert_null(p);
	rig_check(r);
}

static void *after(void *p, size_t bytes)
{
	return (char *)p + bytes;
}

static void test_every_size_comes_back(void **state)
{
	(void)state;
	static const size_t sizes[] = {1, 512, 700, 5000, 32768, 40000, MIB(1), MIB(1) + 1, MIB(20), MIB(300)};
	struct rig r = rig_open(GIB(1), NULL);
	void *p[LENGTH(sizes)];
	for (size_t i = 0; i < LENGTH(sizes); i++)
		p[i] = rig_alloc(&r, sizes[i], NULL);
	for (size_t i = 0; i < LENGTH(sizes); i++)
		expect_none(&r, p[i], sizes[i], NULL);
	for (size_t i = 0; i < LENGTH(sizes); i++)
		rig_free(&r, p[i]);
	uint64_t created = rig_stat(&r, "driver_calls.create");
	for (size_t i = LENGTH(sizes); i-- > 0;)
		expect_at(&r, p[i], sizes[i], NULL);
	assert_int_equal(rig_stat(&r, "driver_calls.create"), created);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		expect_none(&r, p[i], sizes[i], NULL);
		rig_free(&r, p[i]);
	}
	rig_sync(&r);
	rig_close(&r);
}

/* A slot of a slab that others keep, and of one that has gone back to the free memory around it. */
static void test_slots(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, 3000, NULL), *q = rig_alloc(&r, 3000, NULL);
	rig_free(&r, p);
	expect_none(&r, after(p, 512), 1000, NULL);
	expect_none(&r, p, 4000, NULL);
	expect_at(&r, p, 2000, NULL);
	rig_free(&r, p);
	rig_free(&r, q);
	expect_at(&r, q, 3000, NULL);
	expect_none(&r, q, 3000, NULL);
	rig_free(&r, q);
	rig_sync(&r);
	rig_close(&r);
}

/* No slab lies across two granules, whichever address is asked for. */
static void test_slots_beside_the_end_of_a_granule(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p[4], *out;
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(&r, MIB(1), NULL);
	char *begin = p[0], *end = (char *)p[3] + MIB(1);
	assert_int_equal(end - begin, MIB(4));
	for (size_t i = 0; i < LENGTH(p); i++)
		rig_free(&r, p[i]);
	char *border = (char *)align_up((trz_addr)begin + 1, GRANULE);
	size_t had = 0;
	for (char *at = border - KIB(256); at < border + KIB(64); at += UNIT) {
		trz_status status = alloc_at(&r, at, 20000, NULL, &out);
		assert_true(status == TRZ_OK || status == TRZ_ERROR_NO_ROOM);
		rig_check(&r);
		had += status == TRZ_OK;
		if (status == TRZ_OK)
			rig_free(&r, out);
	}
	assert_true(had > 0);
	rig_sync(&r);
	rig_close(&r);
}

static void test_a_part_of_free_memory(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(40), NULL), *end = rig_alloc(&r, MIB(2), NULL);
	rig_free(&r, p);
	expect_at(&r, after(p, MIB(10)), MIB(10), NULL);
	expect_none(&r, after(p, MIB(5)), MIB(10), NULL);
	expect_none(&r, after(p, MIB(35)), MIB(10), NULL);
	expect_none(&r, p, GIB(100), NULL);
	expect_at(&r, p, MIB(10), NULL);
	expect_at(&r, after(p, MIB(20)), MIB(20), NULL);
	assert_int_equal(rig_stat(&r, "cached_bytes.current"), rig_stat(&r, "reserved_bytes.all.current") - MIB(42));
	rig_free(&r, p);
	rig_free(&r, after(p, MIB(10)));
	rig_free(&r, after(p, MIB(20)));
	rig_free(&r, end);
	rig_sync(&r);
	rig_close(&r);
}

static void test_in_the_order_of_streams(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	uint32_t go = 0;
	void *p = rig_alloc(&r, MIB(40), a), *small = rig_alloc(&r, 600, a);
	assert_ok(sim_spin(r.s, r.c, a, &go));
	rig_free(&r, p);
	rig_free(&r, small);
	expect_none(&r, p, MIB(40), b);
	expect_none(&r, small, 600, b);
	expect_at(&r, p, MIB(40), a);
	expect_at(&r, small, 600, a);
	rig_free(&r, p);
	go = 1;
	rig_sync(&r);
	expect_at(&r, p, MIB(40), b);
	rig_free(&r, p);
	rig_free(&r, small);
	rig_sync(&r);
	rig_close(&r);
}

/* The free memory of two streams, side by side, is one range for who may have both. */
static void test_across_two_blocks(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *p = rig_alloc(&r, MIB(20), a), *q = rig_alloc(&r, MIB(20), a), *end = rig_alloc(&r, MIB(2), a);
	assert_ptr_equal(q, after(p, MIB(20)));
	rig_free(&r, p);
	assert_ok(trz_free_on(r.heap, q, b));
	rig_sync(&r);
	expect_at(&r, after(p, MIB(5)), MIB(30), a);
	rig_free(&r, after(p, MIB(5)));
	rig_free(&r, end);
	rig_sync(&r);
	rig_close(&r);
}

/* What a graph writes to is put back for a second capture, in the pool and nowhere else. */
static void test_in_a_pool_and_a_capture(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream s = rig_stream(&r);
	trz_pool *pool;
	sim_graph first, second;
	void *p;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_begin_capture(r.heap, pool, s));
	assert_ok(sim_capture_begin(r.s, r.c, s, TRZ_CAPTURE_GLOBAL));
	void *grad = rig_alloc(&r, MIB(3), s), *small = rig_alloc(&r, 900, s);
	assert_ok(sim_capture_end(r.s, r.c, s, &first));
	assert_ok(trz_pool_end(r.heap, pool));
	rig_free(&r, grad);
	rig_free(&r, small);
	expect_none(&r, grad, MIB(3), s);
	rig_sync(&r);
	assert_ok(trz_pool_begin_capture(r.heap, pool, s));
	assert_ok(sim_capture_begin(r.s, r.c, s, TRZ_CAPTURE_GLOBAL));
	assert_ok(alloc_at(&r, grad, MIB(3), s, &p));
	assert_ok(alloc_at(&r, small, 900, s, &p));
	assert_ok(sim_capture_end(r.s, r.c, s, &second));
	assert_ok(trz_pool_end(r.heap, pool));
	rig_free(&r, grad);
	rig_free(&r, small);
	const trz_alloc_params params = {
		.struct_size = sizeof params, .size = MIB(3), .stream = s, .pool = pool, .address = grad};
	assert_ok(trz_alloc_with(r.heap, &params, &p));
	assert_ptr_equal(p, grad);
	rig_free(&r, p);
	assert_ok(sim_graph_destroy(r.s, r.c, first));
	assert_ok(sim_graph_destroy(r.s, r.c, second));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_sync(&r);
	rig_close(&r);
}

/* A capture is not given what work outside of it may still be using. */
static void test_a_capture_takes_nothing_in_use(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream s = rig_stream(&r);
	trz_pool *pool;
	sim_graph graph;
	uint32_t go = 0;
	void *p, *out;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_alloc(r.heap, pool, MIB(3), 0, s, &p));
	assert_ok(sim_spin(r.s, r.c, s, &go));
	rig_free(&r, p);
	assert_ok(trz_pool_begin_capture(r.heap, pool, s));
	assert_ok(sim_capture_begin(r.s, r.c, s, TRZ_CAPTURE_GLOBAL));
	assert_error(alloc_at(&r, p, MIB(3), s, &out), TRZ_ERROR_NO_ROOM, "free");
	go = 1;
	sim_run(r.s, UINT64_MAX);
	assert_ok(alloc_at(&r, p, MIB(3), s, &out));
	assert_ok(sim_capture_end(r.s, r.c, s, &graph));
	assert_ok(trz_pool_end(r.heap, pool));
	rig_free(&r, p);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_sync(&r);
	rig_close(&r);
}

static void test_what_cannot_be(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = rig_alloc(&r, MIB(40), NULL), *out = &r;
	expect_none(&r, after(NULL, MIB(1)), MIB(1), NULL);
	expect_none(&r, after(p, GIB(4)), MIB(1), NULL);
	assert_error(alloc_at(&r, after(p, 100), MIB(1), NULL, &out), TRZ_ERROR_ALIGNMENT, "a multiple of 512");
	const trz_alloc_params params = {
		.struct_size = sizeof params, .size = MIB(2), .address = p, .flags = TRZ_ALLOC_CONTIGUOUS};
	assert_error(trz_alloc_with(r.heap, &params, &out), TRZ_ERROR_INVALID_ARGUMENT, "flags");
	rig_free(&r, p);
	assert_ok(trz_trim(r.heap, 0, NULL));
	expect_none(&r, p, MIB(40), NULL);
	rig_close(&r);
}

/* The option says that what has been freed is not given out again. */
static void test_not_with_a_debugging_option(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "no_cache:on");
	void *p = rig_alloc(&r, MIB(40), NULL);
	rig_free(&r, p);
	expect_none(&r, p, MIB(40), NULL);
	rig_sync(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_size_comes_back),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_slots_beside_the_end_of_a_granule),
		cmocka_unit_test(test_a_part_of_free_memory),
		cmocka_unit_test(test_in_the_order_of_streams),
		cmocka_unit_test(test_across_two_blocks),
		cmocka_unit_test(test_in_a_pool_and_a_capture),
		cmocka_unit_test(test_a_capture_takes_nothing_in_use),
		cmocka_unit_test(test_what_cannot_be),
		cmocka_unit_test(test_not_with_a_debugging_option),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
