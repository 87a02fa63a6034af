/* SPDX-License-Identifier: Apache-2.0
 *
 * Views: tiles laid together for a large request return to their seats when it is freed, and the same request needs no
 * call of the driver the next time.
 *
 * Eight blocks of 4 MiB lie side by side. Every second one except the last is freed, and 12 MiB requested:
 *
 *   b0 | seats 1 | b2 | seats 3 | b4 | seats 5 | b6 | b7        view: | 1 | 3 | 5 |
 */
#include "heap/heap.h"
#include "supply/policy.h"
#include "rig.h"

enum { BLOCKS = 8, SEATED = 3 };

#define CONF "tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:0,churn_per_mille:0,wait:off"

struct scene {
	struct rig r;
	trz_stream stream, other;
	char *first;                /* address of b0 */
	void *held[BLOCKS];
	void *view;
};

static const int seated[SEATED] = {1, 3, 5};

static char *place(const struct scene *s, int i)
{
	return s->first + i * MIB(4);
}

static void work(struct scene *s, trz_stream stream, void *p, size_t size)
{
	assert_ok(sim_stamp(s->r.s, s->r.c, stream, (trz_addr)p, size, 7));
}

/* `own`: the scattered blocks were the same stream's. Their work is done. */
static struct scene open_scene(const char *conf, bool own)
{
	struct scene s = {.r = rig_open(GIB(1), conf)};
	s.stream = rig_stream(&s.r);
	s.other = own ? s.stream : rig_stream(&s.r);
	for (int i = 0; i < BLOCKS; i++) {
		s.held[i] = rig_alloc(&s.r, MIB(4), s.other);
		s.first = i ? s.first : s.held[0];
		assert_ptr_equal(s.held[i], place(&s, i));
	}
	for (int i = 0; i < SEATED; i++) {
		rig_free(&s.r, s.held[seated[i]]);
		s.held[seated[i]] = NULL;
	}
	rig_sync(&s.r);
	s.r.heap->moved_bytes = GIB(1);  /* the program is warm, */
	s.r.heap->views.sizes[VIEW_SIZES - 1] = MIB(12);  /* and has asked for as much before */
	s.view = rig_alloc(&s.r, MIB(12), s.stream);
	assert_int_equal(rig_stat(&s.r, "path_gather"), 1);
	assert_true((char *)s.view >= place(&s, BLOCKS) || (char *)s.view < place(&s, 0));
	return s;
}

static void close_scene(struct scene *s)
{
	rig_sync(&s->r);
	rig_check(&s->r);
	for (int i = 0; i < BLOCKS; i++)
		if (s->held[i])
			rig_free(&s->r, s->held[i]);
	rig_sync(&s->r);
	rig_close(&s->r);
}

static uint64_t memory_calls(const struct scene *s)
{
	return rig_stat(&s->r, "driver_calls.create") + rig_stat(&s->r, "driver_calls.map") +
	       rig_stat(&s->r, "driver_calls.set_access") + rig_stat(&s->r, "driver_calls.unmap");
}

static void take_seats(struct scene *s, trz_stream stream)
{
	for (int i = 0; i < SEATED; i++) {
		s->held[seated[i]] = rig_alloc(&s->r, MIB(4), stream);
		assert_ptr_equal(s->held[seated[i]], place(s, seated[i]));
	}
}

static void leave_seats(struct scene *s)
{
	for (int i = 0; i < SEATED; i++) {
		rig_free(&s->r, s->held[seated[i]]);
		s->held[seated[i]] = NULL;
	}
}

static void test_the_same_again_needs_no_call(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	uint64_t calls = memory_calls(&s);
	for (int round = 0; round < 5; round++) {
		rig_free(&s.r, s.view);
		rig_sync(&s.r);
		take_seats(&s, s.stream);
		rig_check(&s.r);
		leave_seats(&s);
		rig_sync(&s.r);
		assert_ptr_equal(rig_alloc(&s.r, MIB(12), s.stream), s.view);
		rig_check(&s.r);
	}
	assert_int_equal(memory_calls(&s), calls);
	assert_int_equal(rig_stat(&s.r, "path_flip"), 5);
	assert_int_equal(rig_stat(&s.r, "tiles_returned"), 5 * 2 * SEATED);
	rig_free(&s.r, s.view);
	close_scene(&s);
}

/* What nearly fills the view gets it, also while its last work is under way. */
static void test_a_free_view_is_taken_as_it_is(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	work(&s, s.stream, s.view, MIB(12));
	rig_free(&s.r, s.view);
	void *p = rig_alloc(&s.r, MIB(11), s.stream);
	assert_ptr_equal(p, s.view);
	assert_int_equal(rig_stat(&s.r, "tiles_returned"), 0);
	work(&s, s.stream, p, MIB(11));
	rig_free(&s.r, p);
	close_scene(&s);
}

/* What is far smaller does not. */
static void test_a_small_request_gets_a_seat(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	rig_free(&s.r, s.view);
	rig_sync(&s.r);
	uint64_t calls = memory_calls(&s);
	assert_ptr_equal(s.held[1] = rig_alloc(&s.r, MIB(4), s.stream), place(&s, 1));
	assert_int_equal(memory_calls(&s), calls);
	close_scene(&s);
}

/* The stream's order is enough, whatever the address (law L9): its tiles return before the work there is done. */
static void test_unfinished_work_of_the_same_stream(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	uint64_t calls = memory_calls(&s);
	work(&s, s.stream, s.view, MIB(12));
	rig_free(&s.r, s.view);
	take_seats(&s, s.stream);
	assert_int_equal(sim_calls(s.r.s, SIM_SLOT_stream_wait), 0);
	assert_int_equal(memory_calls(&s), calls);
	for (int i = 0; i < SEATED; i++)
		work(&s, s.stream, s.held[seated[i]], MIB(4));
	close_scene(&s);
}

static void test_unfinished_work_of_another_stream(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	trz_stream other = rig_stream(&s.r);
	work(&s, s.stream, s.view, MIB(12));
	rig_free(&s.r, s.view);
	void *p = rig_alloc(&s.r, MIB(4), other);
	work(&s, other, p, MIB(4));
	assert_int_equal(rig_stat(&s.r, "tiles_returned"), 0);
	rig_sync(&s.r);
	void *q = rig_alloc(&s.r, MIB(5), other);
	assert_int_equal(rig_stat(&s.r, "tiles_returned"), 2 * SEATED);
	rig_check(&s.r);
	rig_free(&s.r, p);
	rig_free(&s.r, q);
	close_scene(&s);
}

/* Memory of another stream visits, and is that one's again. */
static void test_memory_returns_to_its_stream(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", false);
	const struct lane *owner = pagemap_block(pagemap_get(&s.r.heap->pagemap, (trz_addr)s.held[0]))->home;
	uint64_t calls = memory_calls(&s);
	work(&s, s.stream, s.view, MIB(12));
	rig_free(&s.r, s.view);
	rig_sync(&s.r);
	assert_ptr_equal(s.held[1] = rig_alloc(&s.r, MIB(4), s.other), place(&s, 1));
	assert_int_equal(owner->fit[LARGE].bytes, MIB(8));
	assert_int_equal(memory_calls(&s), calls);
	close_scene(&s);
}

static void test_without_views_memory_moves_for_good(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:0", true);
	rig_free(&s.r, s.view);
	rig_sync(&s.r);
	assert_ptr_equal(s.held[1] = rig_alloc(&s.r, MIB(4), s.stream), s.view);
	close_scene(&s);
}

/* Much is free, and scattered: that is mended for good. */
static void test_what_is_asked_for_is_much_of_what_is_free(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	rig_free(&s.r, s.view);
	rig_sync(&s.r);
	void *many[40];
	for (int i = 0; i < 40; i++)
		many[i] = rig_alloc(&s.r, MIB(6), s.stream);
	for (int i = 0; i < 40; i += 2)
		rig_free(&s.r, many[i]);
	rig_sync(&s.r);
	void *p = rig_alloc(&s.r, MIB(12), s.stream);
	rig_free(&s.r, p);
	rig_sync(&s.r);
	uint64_t returned = rig_stat(&s.r, "tiles_returned");
	void *q = rig_alloc(&s.r, MIB(10), s.stream);
	assert_ptr_equal(q, p);
	assert_int_equal(rig_stat(&s.r, "tiles_returned"), returned);
	rig_free(&s.r, q);
	for (int i = 1; i < 40; i += 2)
		rig_free(&s.r, many[i]);
	close_scene(&s);
}

static void test_a_free_view_is_trimmed(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	rig_free(&s.r, s.view);
	rig_sync(&s.r);
	size_t released;
	assert_ok(trz_trim(s.r.heap, 0, &released));
	assert_int_equal(released, MIB(12));
	assert_int_equal(rig_stat(&s.r, "reserved_bytes.all.current"), (BLOCKS - SEATED) * MIB(4));
	close_scene(&s);
}

/* A request for the very address of a free view, and a small one afterwards: only whole tiles return. */
static void test_an_address_in_a_free_view(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	rig_free(&s.r, s.view);
	rig_sync(&s.r);
	void *p = NULL;
	const trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(3), .stream = s.stream,
	                                 .address = s.view};
	assert_ok(trz_alloc_with(s.r.heap, &params, &p));
	assert_ptr_equal(p, s.view);
	void *q = rig_alloc(&s.r, MIB(4), s.stream);
	assert_int_equal(rig_stat(&s.r, "tiles_returned"), 2 * SEATED - 2);
	rig_check(&s.r);
	rig_free(&s.r, p);
	rig_free(&s.r, q);
	close_scene(&s);
}

/* On a full device a pool gets the tiles, and gives them back for a request outside it: they are the pool's until then,
 * and what has a seat in its windows must not visit. */
static void test_memory_of_a_pool_does_not_visit(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	trz_pool *pool = NULL;
	void *p = NULL;
	rig_free(&s.r, s.view);
	rig_sync(&s.r);
	assert_ok(trz_pool_create(s.r.heap, &pool));
	assert_ok(trz_set_limit(s.r.heap, BLOCKS * MIB(4)));
	assert_ok(trz_pool_alloc(s.r.heap, pool, MIB(12), 0, s.stream, &p));
	rig_free(&s.r, p);
	rig_sync(&s.r);
	p = rig_alloc(&s.r, MIB(12), s.stream);
	rig_free(&s.r, p);
	rig_sync(&s.r);
	p = rig_alloc(&s.r, MIB(4), s.stream);
	const struct block *b = pagemap_block(pagemap_get(&s.r.heap->pagemap, (trz_addr)p));
	assert_ptr_equal(b->window->pool, b->home->pool);
	rig_check(&s.r);
	rig_free(&s.r, p);
	assert_ok(trz_pool_release(s.r.heap, pool));
	close_scene(&s);
}

/* Frees three blocks, ever others, and asks for 12 MiB, as if views had been worth their while. */
static void ask_in_many_ways(struct scene *s, unsigned ways)
{
	for (unsigned i = 0; i < ways; i++) {
		const unsigned out[] = {1 + i % 7, 1 + i / 7 % 7, 1 + i / 49 % 7};
		if (out[0] == out[1] || out[1] == out[2] || out[0] == out[2])
			continue;
		for (int k = 0; k < BLOCKS; k++)
			if (!s->held[k])
				s->held[k] = rig_alloc(&s->r, MIB(4), s->stream);
		rig_sync(&s->r);
		for (int k = 0; k < 3; k++) {
			rig_free(&s->r, s->held[out[k]]);
			s->held[out[k]] = NULL;
		}
		rig_sync(&s->r);
		s->r.heap->views.debt = 0;
		rig_free(&s->r, rig_alloc(&s->r, MIB(12), s->stream));
		rig_sync(&s->r);
	}
}

/* However many views there have been, seats stay mapped, and stale aliases are bounded. */
static void test_many_different_views(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	rig_free(&s.r, s.view);
	ask_in_many_ways(&s, 2000);
	assert_true(rig_stat(&s.r, "tiles_returned") > 1000);
	assert_true(rig_stat(&s.r, "alias.current") < 1000);
	close_scene(&s);
}

/* ---- whether there is a view ---- */

static struct demand demand_of(const struct scene *s, uint64_t bytes)
{
	const struct block *b = pagemap_block(pagemap_get(&s->r.heap->pagemap, (trz_addr)s->held[0]));
	return (struct demand){.lane = b->home, .bytes = bytes, .kind = LARGE};
}

static bool is_for_a_view(const struct scene *s, uint64_t bytes)
{
	trz_heap *h = s->r.heap;
	const struct demand d = demand_of(s, bytes);
	heap_take_growth(h);
	bool view = policy_views(h, &d);
	heap_give_growth(h);
	return view;
}

/* So much is moved for 12 MiB. */
static void move(const struct scene *s, uint64_t bytes, bool view)
{
	trz_heap *h = s->r.heap;
	const struct demand d = demand_of(s, MIB(12));
	heap_take_growth(h);
	policy_moved(h, &d, bytes, view);
	heap_give_growth(h);
}

enum { PEAK = BLOCKS * MIB(4) };

/* Views of which none comes again are given up, and memory moves for good; once that has not helped either, they get
 * another chance. */
static void test_views_that_do_not_repeat_end(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	rig_free(&s.r, s.view);
	assert_true(is_for_a_view(&s, MIB(12)));
	move(&s, 3 * PEAK, true);
	assert_false(is_for_a_view(&s, MIB(12)));
	move(&s, PEAK, false);
	assert_false(is_for_a_view(&s, MIB(12)));
	move(&s, PEAK, false);
	assert_true(is_for_a_view(&s, MIB(12)));
	move(&s, PEAK, true);
	assert_int_equal(s.r.heap->views.debt, PEAK);
	close_scene(&s);
}

/* While a program grows none repeats: once it holds more than ever before, views count anew. */
static void test_views_come_back_once_the_program_has_grown(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	rig_free(&s.r, s.view);
	move(&s, 4 * PEAK, true);
	assert_false(is_for_a_view(&s, MIB(12)));
	void *more = rig_alloc(&s.r, MIB(20), s.stream);  /* beside 20 MiB that are held */
	assert_true(is_for_a_view(&s, MIB(12)));
	rig_free(&s.r, more);
	close_scene(&s);
}

/* What has not been asked for before may not come again; where work is late, that may be too late. */
static void test_the_first_of_its_size_moves_for_good(void **state)
{
	(void)state;
	struct scene s = open_scene(CONF ",view_tiles:4", true);
	rig_free(&s.r, s.view);
	assert_true(is_for_a_view(&s, MIB(12)));
	assert_false(is_for_a_view(&s, MIB(14)));
	pagemap_block(pagemap_get(&s.r.heap->pagemap, (trz_addr)s.held[0]))->home->stream->late = true;
	assert_true(is_for_a_view(&s, MIB(14)));
	for (uint64_t i = 1; i <= VIEW_SIZES; i++)
		s.r.heap->views.sizes[i % VIEW_SIZES] = MIB(100) + i;
	move(&s, MIB(12), false);
	assert_int_equal(s.r.heap->views.sizes_count, 1);
	close_scene(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_same_again_needs_no_call),
		cmocka_unit_test(test_a_free_view_is_taken_as_it_is),
		cmocka_unit_test(test_a_small_request_gets_a_seat),
		cmocka_unit_test(test_unfinished_work_of_the_same_stream),
		cmocka_unit_test(test_unfinished_work_of_another_stream),
		cmocka_unit_test(test_memory_returns_to_its_stream),
		cmocka_unit_test(test_without_views_memory_moves_for_good),
		cmocka_unit_test(test_what_is_asked_for_is_much_of_what_is_free),
		cmocka_unit_test(test_a_free_view_is_trimmed),
		cmocka_unit_test(test_an_address_in_a_free_view),
		cmocka_unit_test(test_memory_of_a_pool_does_not_visit),
		cmocka_unit_test(test_many_different_views),
		cmocka_unit_test(test_views_that_do_not_repeat_end),
		cmocka_unit_test(test_views_come_back_once_the_program_has_grown),
		cmocka_unit_test(test_the_first_of_its_size_moves_for_good),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
