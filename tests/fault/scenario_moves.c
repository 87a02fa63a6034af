/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that moves: flips, refills, views, gathering for pools; memory that changes its stream: borrowing, and the
 * ladder with its waits; limits; windows that go.
 */
#include "heap/heap.h"
#include "scenario.h"
#include "supply/policy.h"

#define SMALL_TILES "tile_size:2MiB,tile_size_max:2MiB,"
#define MOVES       SMALL_TILES "slack_per_mille:0,churn_per_mille:0,"

static void got_what_was_freed(struct stage *g)
{
	assert_ptr_equal(g->p, g->was);
}

static trz_status alloc_8(struct stage *g)
{
	return stage_alloc(g, MIB(8), g->a);
}

static trz_status alloc_20(struct stage *g)
{
	return stage_alloc(g, MIB(20), g->a);
}

static trz_status alloc_100(struct stage *g)
{
	return stage_alloc(g, MIB(100), g->a);
}

/* ---- flips --------------------------------------------------------------------------------------------- */

/* Nine blocks of 4 MiB side by side, of which the tiles of six have moved behind the others, where they are held:
 *
 *   0 | hole 1  2  3 | 4 | hole 5  6  7 | 8 | moved 1 | 5 | 2 | 6 | 3 | 7
 */
enum { ROW = 9 };

static void move_two(struct stage *g, void *row[ROW], int i, int k)
{
	rig_free(&g->rig, row[i]);
	rig_free(&g->rig, row[k]);
	rig_free(&g->rig, stage_take(g, MIB(8), g->a));
	row[i] = stage_take(g, MIB(4), g->a);
	row[k] = stage_take(g, MIB(4), g->a);
}

/* Frees those blocks of the row whose bits are set, and holds the others. */
static void moved_row(struct stage *g, unsigned gone)
{
	void *row[ROW];
	for (int i = 0; i < ROW; i++)
		row[i] = stage_take(g, MIB(4), g->a);
	char *first = row[0];
	for (int i = 1; i <= 3; i++)
		move_two(g, row, i, i + 4);
	for (int i = ROW - 1; i >= 0; i--)
		if (gone >> i & 1)
			rig_free(&g->rig, row[i]);
		else
			stage_keep(g, row[i], MIB(4));
	g->was = first;
}

static void moved_before_the_hole(struct stage *g)
{
	moved_row(g, 1u << 0 | 1u << 1);
}

static void moved_behind_the_hole(struct stage *g)
{
	moved_row(g, 1u << 3 | 1u << 4);
	g->was = (char *)g->was + MIB(12);
}

static void moved_around_the_hole(struct stage *g)
{
	moved_row(g, 0x1f);
}

static void moved_inside_the_hole(struct stage *g)
{
	moved_row(g, 1u << 2 | 1u << 3);
	g->was = (char *)g->was + MIB(8);
}

/* Another stream is there, so the heap asks whether they have passed. */
static void moved_and_passed(struct stage *g)
{
	stage_hold(g, 700, g->b);
	moved_around_the_hole(g);
	rig_sync(&g->rig);
}

/* The tiles are another stream's by now. */
static void moved_and_given_away(struct stage *g)
{
	stage_hold(g, 700, g->b);
	moved_row(g, 0);
	rig_sync(&g->rig);
	for (size_t i = 0; i < g->count;)
		if (g->held[i] >= g->was && (char *)g->held[i] < (char *)g->was + MIB(4) * ROW) {
			i++;
		} else if (g->stamped[i] == MIB(4)) {
			assert_ok(trz_free_on(g->rig.heap, g->held[i], g->b));
			g->held[i] = g->held[--g->count];
			g->stamped[i] = g->stamped[g->count];
		} else {
			i++;
		}
	rig_sync(&g->rig);
}

static trz_status alloc_12_on_the_other(struct stage *g)
{
	return stage_alloc(g, MIB(12), g->b);
}

/* ---- refills ------------------------------------------------------------------------------------------- */

/* Eight blocks side by side; two tiles each of the second and the fourth have moved behind all of them. */
static void holes_in_a_row(struct stage *g, unsigned gone)
{
	void *row[8];
	for (size_t i = 0; i < LENGTH(row); i++)
		row[i] = stage_take(g, MIB(4), g->a);
	g->was = row[0];
	rig_free(&g->rig, row[1]);
	rig_free(&g->rig, row[3]);
	stage_hold(g, MIB(8), g->a);
	rig_sync(&g->rig);
	for (unsigned i = 0; i < LENGTH(row); i++)
		if (i != 1 && i != 3) {
			if (gone >> i & 1)
				rig_free(&g->rig, row[i]);
			else
				stage_keep(g, row[i], MIB(4));
		}
}

static void a_hole_behind_free_memory(struct stage *g)
{
	holes_in_a_row(g, 1u << 0);
}

static void a_hole_before_free_memory(struct stage *g)
{
	holes_in_a_row(g, 1u << 4);
	g->was = (char *)g->was + MIB(12);
}

static void a_hole_between_free_memory(struct stage *g)
{
	holes_in_a_row(g, 1u << 0 | 1u << 2);
}

static trz_status alloc_12(struct stage *g)
{
	return stage_alloc(g, MIB(12), g->a);
}

static void told_of_a_hole(struct stage *g)
{
	assert_ok(stage_listen(g));
	a_hole_between_free_memory(g);
}

/* ---- views --------------------------------------------------------------------------------------------- */

static bool has_view(const struct stage *g)
{
	const struct window *w = g->rig.heap->windows[LARGE];
	while (w && !w->view)
		w = w->next;
	return w && w->mapped;
}

static void has_laid_a_view(struct stage *g)
{
	assert_true(has_view(g));
}

/* Every second block of a row except the last is free. The program is warm, and has asked for 12 MiB before. */
static void before_a_view_of(struct stage *g, trz_stream stream)
{
	for (int i = 0; i < 8; i++)
		stage_hold(g, MIB(4), stream);
	for (size_t i = 6; i-- > 0;)
		if (i % 2)
			stage_drop(g, i);
	stage_hold(g, 700, g->a);
	rig_sync(&g->rig);
	g->rig.heap->moved_bytes = GIB(1);
	g->rig.heap->views.sizes[VIEW_SIZES - 1] = MIB(12);
}

static void before_a_view(struct stage *g)
{
	before_a_view_of(g, g->a);
}

static void before_a_view_of_others(struct stage *g)
{
	before_a_view_of(g, g->b);
}

static void a_free_view_in_use(struct stage *g)
{
	before_a_view(g);
	g->was = stage_take(g, MIB(12), g->a);
	assert_true(has_view(g));
	rig_free(&g->rig, g->was);
}

static void a_free_view(struct stage *g)
{
	a_free_view_in_use(g);
	rig_sync(&g->rig);
}

static void a_free_view_of_others(struct stage *g)
{
	before_a_view_of_others(g);
	g->was = stage_take(g, MIB(12), g->a);
	assert_true(has_view(g));
	rig_free(&g->rig, g->was);
	rig_sync(&g->rig);
}

/* The tiles have returned to their seats. */
static void a_left_view(struct stage *g)
{
	a_free_view(g);
	void *p = rig_alloc(&g->rig, MIB(4), g->a);
	assert_int_equal(rig_stat(&g->rig, "tiles_returned"), 6);
	rig_free(&g->rig, p);
}

static trz_status alloc_11(struct stage *g)
{
	return stage_alloc(g, MIB(11), g->a);
}

static trz_status alloc_4(struct stage *g)
{
	return stage_alloc(g, MIB(4), g->a);
}

/* ---- borrowing ----------------------------------------------------------------------------------------- */

static void freed_by_another(struct stage *g)
{
	stage_hold(g, 700, g->a);
	g->was = stage_take(g, MIB(30), g->b);
	rig_free(&g->rig, g->was);
}

static void passed_of_another(struct stage *g)
{
	freed_by_another(g);
	rig_sync(&g->rig);
}

static trz_status alloc_30(struct stage *g)
{
	return stage_alloc(g, MIB(30), g->a);
}

/* Free pieces of two streams, side by side in one tile. */
static void passed_neighbours(struct stage *g)
{
	enum { PIECES = 8 };
	void *p[PIECES];
	const uint64_t piece = MIB(2) / PIECES;
	for (int i = 0; i < PIECES; i++)
		p[i] = stage_take(g, piece, g->b);
	rig_free(&g->rig, p[2]);
	rig_order(&g->rig, g->b, g->a);
	rig_sync(&g->rig);
	assert_ok(trz_poll(g->rig.heap));
	assert_ptr_equal(stage_take(g, piece, g->a), p[2]);
	rig_free(&g->rig, p[2]);
	rig_free(&g->rig, p[3]);
	rig_sync(&g->rig);
	for (int i = 0; i < PIECES; i++)
		if (i != 2 && i != 3)
			stage_keep(g, p[i], piece);
	g->was = p[2];
}

static trz_status alloc_two_pieces(struct stage *g)
{
	return stage_alloc(g, KIB(512), g->a);
}

/* Both streams have much, in pieces. */
static void passed_and_scattered(struct stage *g)
{
	for (int i = 0; i < 32; i++)
		stage_hold(g, MIB(4), i % 4 < 2 ? g->a : g->b);
	rig_sync(&g->rig);
	for (size_t i = 32; i-- > 0;)
		if (i % 8 != 0 && i % 8 != 2)
			stage_drop(g, i);
	rig_sync(&g->rig);
}

/* ---- the ladder ---------------------------------------------------------------------------------------- */

static void both_known(struct stage *g)
{
	rig_free(&g->rig, rig_alloc(&g->rig, 512, g->a));
	rig_free(&g->rig, rig_alloc(&g->rig, 512, g->b));
}

static void free_late(struct stage *g, size_t size, trz_stream stream)
{
	rig_free(&g->rig, stage_take(g, size, stream));
}

static void full_of_late_blocks(struct stage *g)
{
	both_known(g);
	void *p[3];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = stage_take(g, MIB(34), g->b);
	for (size_t i = 0; i < LENGTH(p); i++)
		rig_free(&g->rig, p[i]);
}

static trz_status alloc_60(struct stage *g)
{
	return stage_alloc(g, MIB(60), g->a);
}

/* Blocks of a stream that another one reads still. */
static void full_of_pending_blocks(struct stage *g)
{
	both_known(g);
	void *p[3];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = stage_take(g, MIB(34), g->a);
	rig_order(&g->rig, g->a, g->b);
	for (size_t i = 0; i < LENGTH(p); i++) {
		assert_ok(sim_verify(g->rig.s, g->rig.c, g->b, (trz_addr)p[i], MIB(34), (trz_addr)p[i]));
		assert_ok(trz_record_stream(g->rig.heap, p[i], g->b));
		rig_free(&g->rig, p[i]);
	}
}

static void full_of_late_blocks_beside_a_pool(struct stage *g)
{
	both_known(g);
	assert_ok(trz_pool_create(g->rig.heap, &g->pool));
	free_late(g, MIB(100), g->b);
}

static trz_status alloc_60_of_the_pool(struct stage *g)
{
	return stage_alloc_of(g, g->pool, MIB(60), g->a);
}

static void full_of_late_small_memory(struct stage *g)
{
	void *small[40];
	both_known(g);
	for (size_t i = 0; i < LENGTH(small); i++)
		small[i] = stage_take(g, MIB(2), g->b);
	stage_hold(g, MIB(36), g->b);
	for (size_t i = 0; i < LENGTH(small); i++)
		rig_free(&g->rig, small[i]);
}

/* Late stripes between live ones: together they are enough, but they cannot be joined. */
static void full_of_late_stripes(struct stage *g)
{
	both_known(g);
	rig_sync(&g->rig);
	assert_ok(trz_trim(g->rig.heap, 0, NULL));
	for (int i = 0; i < 24; i++)
		stage_hold(g, MIB(5), g->b);
	stage_perforate(g);
}

/* Half of a full device is free in pieces of 1.5 MiB, in the windows of large memory. */
static void full_of_holes_for_small_memory(struct stage *g)
{
	for (size_t i = 0; i < 40; i++)
		stage_hold(g, MIB(1) + KIB(512), g->a);
	stage_perforate(g);
	rig_sync(&g->rig);
	void *p;
	while (trz_alloc(g->rig.heap, MIB(1), 0, g->a, &p) == TRZ_OK)
		stage_keep(g, p, 0);
	for (size_t i = 1; i < 20; i += 2)
		stage_drop(g, i);
	rig_sync(&g->rig);
}

static trz_status alloc_1(struct stage *g)
{
	return stage_alloc(g, MIB(1), g->a);
}

static bool let_one_go(void *user, const trz_oom_info *info)
{
	struct stage *g = user;
	(void)info;
	if (g->count == 0)
		return false;
	stage_drop(g, g->count - 1);
	rig_sync(&g->rig);
	stage_note(g);
	return true;
}

static void full_with_a_callback(struct stage *g)
{
	stage_hold(g, MIB(40), g->a);
	stage_hold(g, MIB(40), g->a);
	stage_hold(g, MIB(40), g->a);
	assert_ok(trz_set_oom_callback(g->rig.heap, let_one_go, g));
}

static trz_status alloc_36_with_a_callback(struct stage *g)
{
	trz_status status = stage_alloc(g, MIB(36), g->a);
	assert_ok(trz_set_oom_callback(g->rig.heap, NULL, NULL));
	return status;
}

/* A pool that no graph relies on has most of the device free. */
static void a_free_pool_on_a_full_device(struct stage *g)
{
	void *p;
	stage_hold(g, MIB(20), g->a);
	assert_ok(trz_pool_create(g->rig.heap, &g->pool));
	assert_ok(trz_pool_alloc(g->rig.heap, g->pool, MIB(80), 0, g->a, &p));
	rig_free(&g->rig, p);
	rig_sync(&g->rig);
}

static void scattered_beside_a_pool(struct stage *g)
{
	stage_scatter_and_wait(g);
	assert_ok(trz_pool_create(g->rig.heap, &g->pool));
}

static trz_status alloc_100_of_the_pool(struct stage *g)
{
	return stage_alloc_of(g, g->pool, MIB(100), g->b);
}

static void one_held(struct stage *g)
{
	stage_hold(g, MIB(20), g->a);
}

static trz_status alloc_more_than_is_given(struct stage *g)
{
	return stage_alloc(g, MIB(90), g->a);
}

static void knows_what_is_withheld(struct stage *g)
{
	assert_true(g->rig.heap->withheld > 0);
}

/* ---- limits and windows ---------------------------------------------------------------------------------- */

static void beyond_the_limit(struct stage *g)
{
	stage_scatter_and_wait(g);
	assert_ok(trz_set_limit(g->rig.heap, MIB(200)));
}

/* Enough is free, in pieces. */
static void held_in_a_limit(struct stage *g)
{
	beyond_the_limit(g);
	assert_ok(trz_trim(g->rig.heap, MIB(300), NULL));
}

static trz_status alloc_beyond(struct stage *g)
{
	return stage_alloc(g, MIB(300), g->a);
}

static trz_status trim_to_the_limit(struct stage *g)
{
	size_t limit;
	trz_status status = trz_get_limit(g->rig.heap, &limit);
	return status == TRZ_OK ? trz_trim(g->rig.heap, limit, NULL) : status;
}

/* Windows that are used up, and whose memory has gone. */
static void used_up_windows(struct stage *g)
{
	for (int i = 0; i < 3; i++) {
		rig_free(&g->rig, stage_take(g, MIB(120), g->a));
		rig_sync(&g->rig);
		assert_ok(trz_trim(g->rig.heap, 0, NULL));
	}
	stage_hold(g, MIB(60), g->a);
	g->rig.heap->config.quarantine = 0;
}

static trz_status trim_and_alloc(struct stage *g)
{
	trz_status status = trz_trim(g->rig.heap, 0, NULL);
	return status == TRZ_OK ? stage_alloc(g, MIB(120), g->a) : status;
}

/* ---- the list ------------------------------------------------------------------------------------------ */

static const struct scenario list[] = {
	{.name = "flip behind free memory", .conf = MOVES "refill:off", .prepare = moved_before_the_hole, .run = alloc_8,
	 .shows = "path_flip", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "flip before free memory", .conf = MOVES "refill:off", .prepare = moved_behind_the_hole, .run = alloc_8,
	 .shows = "path_flip", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "flip between free memory", .conf = MOVES "refill:off", .prepare = moved_around_the_hole, .run = alloc_20,
	 .shows = "path_flip", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "flip inside a hole", .conf = MOVES "refill:off", .prepare = moved_inside_the_hole, .run = alloc_8,
	 .shows = "path_flip", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "flip what has passed, two streams", .conf = MOVES "refill:off", .prepare = moved_and_passed,
	 .run = alloc_20, .shows = "path_flip", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "gather what has been given away", .conf = MOVES, .prepare = moved_and_given_away,
	 .run = alloc_12_on_the_other, .vmm_only = true},
	{.name = "refill behind free memory", .conf = MOVES "wait:off", .prepare = a_hole_behind_free_memory,
	 .run = alloc_8, .shows = "path_refill", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "refill before free memory", .conf = MOVES "wait:off", .prepare = a_hole_before_free_memory,
	 .run = alloc_8, .shows = "path_refill", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "refill between free memory", .conf = MOVES "wait:off", .prepare = a_hole_between_free_memory,
	 .run = alloc_12, .shows = "path_refill", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "refill with notices", .conf = MOVES "wait:off", .prepare = told_of_a_hole, .run = alloc_12,
	 .shows = "path_refill", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "lay a view", .conf = MOVES "wait:off,view_tiles:4", .prepare = before_a_view, .run = alloc_12,
	 .shows = "path_gather", .proof = has_laid_a_view, .vmm_only = true},
	{.name = "lay a view of another stream's tiles", .conf = MOVES "wait:off,view_tiles:4",
	 .prepare = before_a_view_of_others, .run = alloc_12, .shows = "path_gather", .proof = has_laid_a_view,
	 .vmm_only = true},
	{.name = "take a free view", .conf = MOVES "wait:off,view_tiles:4", .prepare = a_free_view_in_use, .run = alloc_11,
	 .proof = got_what_was_freed, .vmm_only = true},
	{.name = "return a view", .conf = MOVES "wait:off,view_tiles:4", .prepare = a_free_view, .run = alloc_4,
	 .shows = "tiles_returned", .vmm_only = true},
	{.name = "return a view in its stream's order", .conf = MOVES "wait:off,view_tiles:4",
	 .prepare = a_free_view_in_use, .run = alloc_4, .shows = "tiles_returned", .vmm_only = true},
	{.name = "return a view to another stream", .conf = MOVES "wait:off,view_tiles:4",
	 .prepare = a_free_view_of_others, .run = alloc_4, .shows = "tiles_returned", .vmm_only = true},
	{.name = "flip into a view", .conf = MOVES "wait:off,view_tiles:4", .prepare = a_left_view, .run = alloc_12,
	 .shows = "path_flip", .proof = got_what_was_freed, .vmm_only = true},
	{.name = "trim a free view", .conf = MOVES "wait:off,view_tiles:4", .prepare = a_free_view, .run = stage_trim,
	 .shows = "num_device_free", .vmm_only = true},
	{.name = "borrow a block that has passed", .conf = "slack_per_mille:0", .prepare = passed_of_another,
	 .run = alloc_30, .shows = "driver_calls.event_query", .proof = got_what_was_freed},
	{.name = "borrow nothing that is in use", .conf = "slack_per_mille:0", .prepare = freed_by_another,
	 .run = alloc_30, .shows = "driver_calls.event_query"},
	{.name = "borrow neighbours", .conf = "slack_per_mille:0,tile_size:2MiB", .prepare = passed_neighbours,
	 .run = alloc_two_pieces, .proof = got_what_was_freed},
	{.name = "borrow all that is lent", .conf = MOVES, .prepare = passed_and_scattered, .run = alloc_100,
	 .shows = "path_gather", .vmm_only = true},
	{.name = "wait for a late block", .capacity = MIB(128), .conf = "event_bytes:0", .prepare = full_of_late_blocks,
	 .run = alloc_60, .shows = "waits_inserted", .vmm_only = true},
	{.name = "wait for pending blocks", .capacity = MIB(128), .conf = "event_bytes:0",
	 .prepare = full_of_pending_blocks, .run = alloc_60, .shows = "waits_inserted", .vmm_only = true},
	{.name = "wait for memory of another pool", .capacity = MIB(128), .conf = "event_bytes:0",
	 .prepare = full_of_late_blocks_beside_a_pool, .run = alloc_60_of_the_pool, .shows = "waits_inserted",
	 .vmm_only = true},
	{.name = "wait for small memory", .capacity = MIB(128), .conf = "event_bytes:0",
	 .prepare = full_of_late_small_memory, .run = alloc_60, .shows = "waits_inserted", .vmm_only = true},
	{.name = "wait in vain", .capacity = MIB(122), .conf = "event_bytes:0,tile_size:16MiB",
	 .prepare = full_of_late_stripes, .run = alloc_60, .shows = "waits_inserted",
	 .expected = TRZ_ERROR_OUT_OF_MEMORY, .vmm_only = true},
	{.name = "a small request out of large memory", .capacity = MIB(64), .prepare = full_of_holes_for_small_memory,
	 .run = alloc_1, .shows = "num_alloc_retries", .vmm_only = true},
	{.name = "a callback that frees", .capacity = MIB(128), .prepare = full_with_a_callback,
	 .run = alloc_36_with_a_callback, .shows = "num_alloc_retries"},
	{.name = "take a pool's free memory", .capacity = MIB(128), .prepare = a_free_pool_on_a_full_device,
	 .run = alloc_60, .shows = "rung_gather"},
	{.name = "gather in a pool", .conf = "slack_per_mille:0", .prepare = scattered_beside_a_pool,
	 .run = alloc_100_of_the_pool, .shows = "path_gather", .vmm_only = true},
	{.name = "find out what is withheld", .capacity = MIB(128), .withheld = MIB(40), .prepare = one_held,
	 .run = alloc_more_than_is_given, .shows = "num_ooms", .proof = knows_what_is_withheld,
	 .expected = TRZ_ERROR_OUT_OF_MEMORY},
	{.name = "ask beyond a lowered limit", .prepare = beyond_the_limit, .run = alloc_beyond, .shows = "num_ooms",
	 .expected = TRZ_ERROR_LIMIT},
	{.name = "gather below a lowered limit", .prepare = held_in_a_limit, .run = alloc_100, .shows = "path_gather",
	 .also = TRZ_ERROR_LIMIT, .vmm_only = true},
	{.name = "trim to a lowered limit", .prepare = beyond_the_limit, .run = trim_to_the_limit,
	 .shows = "num_device_free"},
	{.name = "close used-up windows", .capacity = MIB(256), .conf = SMALL_TILES "window_factor:1",
	 .prepare = used_up_windows, .run = trim_and_alloc, .shows = "windows_closed", .vmm_only = true},
};

const struct scenarios scenarios_of_moves = {list, LENGTH(list)};
