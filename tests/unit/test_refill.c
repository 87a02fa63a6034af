/* SPDX-License-Identifier: Apache-2.0
 *
 * Refills: which part of a hole is laid anew, and what must not be unmapped for that.
 *
 * Eight blocks of 4 MiB lie side by side. The tiles of two are gathered behind all others:
 *
 *   b0 | hole 1 | b2 | hole 3 | b4 | b5 | b6 | b7 | moved: 1 3
 */
#include "heap/heap.h"
#include "rig.h"

enum { BLOCKS = 8 };

#define CONF "tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:0,churn_per_mille:0,wait:off"

struct scene {
	struct rig r;
	trz_stream stream;
	char *first;                /* address of b0 */
	void *held[BLOCKS];         /* NULL: not held */
	void *moved;
};

static char *place(const struct scene *s, int i)
{
	return s->first + i * MIB(4);
}

static void let_go(struct scene *s, int i)
{
	rig_free(&s->r, s->held[i]);
	s->held[i] = NULL;
}

static void work(struct scene *s, void *p, size_t size)
{
	assert_ok(sim_stamp(s->r.s, s->r.c, s->stream, (trz_addr)p, size, 7));
}

static struct scene fill_scene(const char *conf)
{
	struct scene s = {.r = rig_open(GIB(1), conf)};
	s.stream = rig_stream(&s.r);
	for (int i = 0; i < BLOCKS; i++) {
		s.held[i] = rig_alloc(&s.r, MIB(4), s.stream);
		s.first = s.held[0];
		assert_ptr_equal(s.held[i], place(&s, i));
	}
	return s;
}

static struct scene open_scene(const char *conf)
{
	struct scene s = fill_scene(conf);
	let_go(&s, 1);
	let_go(&s, 3);
	s.moved = rig_alloc(&s.r, MIB(8), s.stream);
	assert_ptr_equal(s.moved, place(&s, BLOCKS));
	rig_sync(&s.r);
	return s;
}

static void close_scene(struct scene *s)
{
	rig_check(&s->r);
	rig_sync(&s->r);
	for (int i = 0; i < BLOCKS; i++)
		if (s->held[i])
			let_go(s, i);
	rig_free(&s->r, s->moved);
	rig_sync(&s->r);
	rig_check(&s->r);
	rig_close(&s->r);
}

/* Asks for so much, which is to lie where block `i` was, for which this many mappings go. */
static void expect_refill(struct scene *s, uint64_t bytes, int i, uint64_t unmaps)
{
	uint64_t before = rig_stat(&s->r, "driver_calls.unmap");
	void *p = rig_alloc(&s->r, bytes, s->stream);
	assert_ptr_equal(p, place(s, i));
	assert_int_equal(rig_stat(&s->r, "path_refill"), 1);
	assert_int_equal(rig_stat(&s->r, "driver_calls.unmap"), before + unmaps);
	rig_check(&s->r);
	work(s, p, bytes);
	rig_free(&s->r, p);
	close_scene(s);
}

/* Asks for so much, for which nothing in a hole is touched. */
static void expect_none(struct scene *s, uint64_t bytes)
{
	uint64_t before = rig_stat(&s->r, "driver_calls.unmap");
	void *p = rig_alloc(&s->r, bytes, s->stream);
	assert_true((char *)p >= place(s, BLOCKS) || (char *)p < s->first);
	assert_int_equal(rig_stat(&s->r, "path_refill"), 0);
	assert_int_equal(rig_stat(&s->r, "driver_calls.unmap"), before);
	rig_free(&s->r, p);
	close_scene(s);
}

static void test_behind_free_memory(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF);
	let_go(&s, 2);
	expect_refill(&s, MIB(7), 2, 2);
}

static void test_before_free_memory(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF);
	let_go(&s, 4);
	expect_refill(&s, MIB(8), 3, 2);
}

static void test_between_free_memory(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF);
	let_go(&s, 2);
	let_go(&s, 4);
	expect_refill(&s, MIB(12), 2, 2);
}

/* Free memory elsewhere is moved into it. */
static void test_memory_is_gathered_there(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF);
	uint64_t creates = rig_stat(&s.r, "driver_calls.create");
	let_go(&s, 2);
	let_go(&s, 5);
	void *p = rig_alloc(&s.r, MIB(8), s.stream);
	assert_ptr_equal(p, place(&s, 2));
	assert_int_equal(rig_stat(&s.r, "path_refill"), 1);
	assert_int_equal(rig_stat(&s.r, "driver_calls.create"), creates);
	rig_free(&s.r, p);
	close_scene(&s);
}

struct taker {
	struct scene *scene;
	void *taken;
};

/* Takes b5 when the first mapping goes. */
static void take_tiles(void *user, trz_map_event event, void *address, size_t size)
{
	struct taker *t = user;
	(void)address;
	(void)size;
	if (event != TRZ_UNMAP || t->taken)
		return;
	void *first = rig_alloc(&t->scene->r, MIB(4), t->scene->stream);
	t->taken = rig_alloc(&t->scene->r, MIB(4), t->scene->stream);
	rig_free(&t->scene->r, first);
}

/* While a gap is being cleared, the tiles that were to be gathered there may be taken. */
static void test_what_was_found_is_taken_meanwhile(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF);
	struct taker t = {.scene = &s};
	let_go(&s, 2);
	let_go(&s, 5);
	assert_ok(trz_set_map_callback(s.r.heap, take_tiles, &t));
	void *p = rig_alloc(&s.r, MIB(8), s.stream);
	assert_ok(trz_set_map_callback(s.r.heap, NULL, NULL));
	assert_ptr_equal(t.taken, place(&s, 5));
	assert_ptr_equal(p, place(&s, 2));
	rig_check(&s.r);
	rig_free(&s.r, t.taken);
	rig_free(&s.r, p);
	close_scene(&s);
}

/* Memory of another stream that is still at work on it: so much is reserved, and nobody can have it. */
static void leave_unfinished(struct rig *r, uint64_t bytes)
{
	trz_stream other = rig_stream(r);
	void *p = rig_alloc(r, bytes, other);
	assert_ok(sim_stamp(r->s, r->c, other, (trz_addr)p, bytes, 8));
	rig_free(r, p);
}

/* Where nothing is free beside it, a hole saves nothing. */
static void test_nothing_free_beside_it(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF);
	leave_unfinished(&s.r, MIB(16));
	expect_none(&s, MIB(4));
}

/* Only what is needed is cleared, and room for a tile more. */
static void test_the_rest_stays_a_hole(void **state)
{
	(void)state;
	struct scene s = fill_scene(CONF);
	for (int i = 1; i <= 3; i++)
		let_go(&s, i);
	let_go(&s, 6);
	s.moved = rig_alloc(&s.r, MIB(16), s.stream);
	rig_sync(&s.r);
	let_go(&s, 4);
	uint64_t unmaps = rig_stat(&s.r, "driver_calls.unmap");
	void *p = rig_alloc(&s.r, MIB(6), s.stream);
	assert_ptr_equal(p, place(&s, 3) + MIB(2));
	assert_int_equal(rig_stat(&s.r, "driver_calls.unmap"), unmaps + 2);
	rig_check(&s.r);
	rig_free(&s.r, p);
	p = rig_alloc(&s.r, MIB(12), s.stream);
	assert_ptr_equal(p, place(&s, 2));
	assert_int_equal(rig_stat(&s.r, "path_refill"), 2);
	rig_check(&s.r);
	rig_free(&s.r, p);
	close_scene(&s);
}

/* A device that is still at work on what lay there (law L4). */
static void test_what_has_not_passed_stays_mapped(void **state)
{
	(void)state;
	struct scene s = fill_scene(CONF);
	work(&s, s.held[1], MIB(4));
	work(&s, s.held[3], MIB(4));
	let_go(&s, 1);
	let_go(&s, 3);
	s.moved = rig_alloc(&s.r, MIB(8), s.stream);
	assert_int_equal(rig_stat(&s.r, "path_gather"), 1);
	let_go(&s, 2);
	expect_none(&s, MIB(8));
}

/* Tiles that visit a view return to them. */
static void test_seats_stay_mapped(void **state)
{
	(void)state;
	struct scene s = fill_scene(CONF ",view_tiles:4");
	let_go(&s, 1);
	let_go(&s, 3);
	rig_sync(&s.r);
	s.r.heap->moved_bytes = GIB(1);  /* the program is warm, */
	s.r.heap->views.sizes[VIEW_SIZES - 1] = MIB(8);  /* and has asked for as much before */
	s.moved = rig_alloc(&s.r, MIB(8), s.stream);
	let_go(&s, 2);
	rig_sync(&s.r);
	expect_none(&s, MIB(7));
}

static void test_off(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",refill:off");
	let_go(&s, 2);
	expect_none(&s, MIB(8));
}

/* Other lanes and pools, whose free memory the request cannot use. */
static void test_memory_of_another_stream_beside_it(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF);
	work(&s, s.held[2], MIB(4));
	let_go(&s, 2);
	trz_stream other = rig_stream(&s.r);
	void *p = rig_alloc(&s.r, MIB(8), other);  /* its own window grows */
	assert_int_equal(rig_stat(&s.r, "path_refill"), 0);
	rig_check(&s.r);
	rig_free(&s.r, p);
	close_scene(&s);
}

static void test_no_pools_memory(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF);
	trz_pool *pool;
	void *p;
	assert_ok(trz_pool_create(s.r.heap, &pool));
	assert_ok(trz_pool_alloc(s.r.heap, pool, MIB(4), 0, s.stream, &p));
	assert_int_equal(rig_stat(&s.r, "path_refill"), 0);
	rig_free(&s.r, p);
	assert_ok(trz_pool_release(s.r.heap, pool));
	close_scene(&s);
}

/* Whether a request of so much is laid over a hole full of mappings of 2 MiB, behind 4 MiB of free memory. */
static bool clears_for(uint64_t bytes)
{
	struct rig r = rig_open(GIB(4), CONF);
	trz_stream stream = rig_stream(&r);
	void *before = rig_alloc(&r, MIB(4), stream), *big = rig_alloc(&r, MIB(600), stream);
	void *behind = rig_alloc(&r, MIB(4), stream);
	rig_free(&r, big);
	void *moved = rig_alloc(&r, MIB(602), stream);
	rig_sync(&r);
	assert_int_equal(rig_stat(&r, "path_gather"), 1);
	leave_unfinished(&r, GIB(2));
	rig_free(&r, before);
	void *p = rig_alloc(&r, bytes, stream);
	bool clears = rig_stat(&r, "path_refill") == 1;
	assert_int_equal(p == before, clears);
	rig_check(&r);
	void *const all[] = {behind, moved, p};
	for (size_t i = 0; i < LENGTH(all); i++)
		rig_free(&r, all[i]);
	rig_sync(&r);
	rig_close(&r);
	return clears;
}

/* Unmapping takes time: a gap with more mappings is left alone. */
static void test_many_mappings(void **state)
{
	(void)state;
	assert_true(clears_for(MIB(514)));
	assert_false(clears_for(MIB(516)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_behind_free_memory),
		cmocka_unit_test(test_before_free_memory),
		cmocka_unit_test(test_between_free_memory),
		cmocka_unit_test(test_memory_is_gathered_there),
		cmocka_unit_test(test_what_was_found_is_taken_meanwhile),
		cmocka_unit_test(test_nothing_free_beside_it),
		cmocka_unit_test(test_the_rest_stays_a_hole),
		cmocka_unit_test(test_what_has_not_passed_stays_mapped),
		cmocka_unit_test(test_seats_stay_mapped),
		cmocka_unit_test(test_off),
		cmocka_unit_test(test_memory_of_another_stream_beside_it),
		cmocka_unit_test(test_no_pools_memory),
		cmocka_unit_test(test_many_mappings),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
