/* SPDX-License-Identifier: Apache-2.0
 *
 * Private pools and captures: announced and not, settled and not, what is allocated, freed and grown in them, and what
 * they leave; diversions; the ends of pools; checkpoints.
 */
#include "heap/heap.h"
#include "scenario.h"

static void *take_of_pool(struct stage *g, size_t size, trz_stream stream)
{
	void *p;
	assert_ok(trz_pool_alloc(g->rig.heap, g->pool, size, 0, stream, &p));
	return p;
}

static void use(struct stage *g, void *p, size_t size, trz_stream stream)
{
	assert_ok(sim_stamp(g->rig.s, g->rig.c, stream, (trz_addr)p, size, (trz_addr)p));
}

static void hold_of_pool(struct stage *g, size_t size, trz_stream stream)
{
	void *p = take_of_pool(g, size, stream);
	use(g, p, size, stream);
	stage_keep(g, p, size);
}

/* Two streams have memory of it, held and free. */
static void a_pool(struct stage *g)
{
	stage_hold(g, 700, g->a);
	stage_hold(g, MIB(3), g->b);
	assert_ok(trz_pool_create(g->rig.heap, &g->pool));
	for (int i = 0; i < 6; i++)
		hold_of_pool(g, i % 3 ? MIB(2) : 3000, i % 2 ? g->a : g->b);
	stage_perforate(g);
}

static void a_pool_that_has_passed(struct stage *g)
{
	a_pool(g);
	rig_sync(&g->rig);
}

/* ---- captures ------------------------------------------------------------------------------------------ */

static void begin_capture(struct stage *g, trz_stream stream)
{
	assert_ok(sim_capture_begin(g->rig.s, g->rig.c, stream, TRZ_CAPTURE_RELAXED));
}

/* Whether the capture ended well, and its graph is launched. */
static void end_capture(struct stage *g, trz_stream stream)
{
	sim_graph graph;
	assert_ok(sim_capture_end(g->rig.s, g->rig.c, stream, &graph));
	assert_ok(sim_graph_launch(g->rig.s, g->rig.c, graph, stream));
	assert_ok(sim_graph_destroy(g->rig.s, g->rig.c, graph));
}

/* Allocates, uses, frees and allocates again, of both kinds; what is kept is used in the graph. */
static trz_status work_in_capture(struct stage *g, trz_stream stream)
{
	static const size_t sizes[] = {MIB(3), 900, KIB(300), MIB(2), 900};
	trz_status status = TRZ_OK;
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		void *p = NULL;
		status = trz_pool_alloc(g->rig.heap, g->pool, sizes[i], 0, stream, &p);
		if (status != TRZ_OK)
			break;
		use(g, p, align_up(sizes[i], 8), stream);
		if (i % 2 == 0 && (status = i ? trz_free_on(g->rig.heap, p, stream) : trz_free(g->rig.heap, p)) == TRZ_OK)
			continue;
		stage_keep(g, p, 0);
		stage_note(g);
		if (status != TRZ_OK)
			break;
	}
	return status;
}

static trz_status capture_announced(struct stage *g)
{
	trz_status status = trz_pool_begin_capture(g->rig.heap, g->pool, g->a);
	if (status != TRZ_OK)
		return status;
	begin_capture(g, g->a);
	status = work_in_capture(g, g->a);
	end_capture(g, g->a);
	assert_ok(trz_pool_end(g->rig.heap, g->pool));
	return status;
}

static trz_status capture_unannounced(struct stage *g)
{
	begin_capture(g, g->a);
	trz_status status = work_in_capture(g, g->a);
	end_capture(g, g->a);
	return status;
}

static void pool_is_pinned(struct stage *g)
{
	trz_pool_info info;
	assert_ok(trz_pool_query(g->rig.heap, g->pool, &info));
	assert_true(info.pinned);
}

/* A lane of the pool that serves captures alone. */
static bool has_captured_lane(const struct stage *g)
{
	const struct lane *l = g->rig.heap->streams.lanes.first;
	while (l && !(l->captured && (l->held || lane_free_bytes(l) || l->slabs)))
		l = l->next;
	return l;
}

static void left_a_captured_lane(struct stage *g)
{
	pool_is_pinned(g);
	assert_true(has_captured_lane(g));
}

static void left_no_captured_lane(struct stage *g)
{
	pool_is_pinned(g);
	assert_false(has_captured_lane(g));
}

static void after_a_capture(struct stage *g)
{
	a_pool(g);
	assert_ok(capture_unannounced(g));
	assert_true(has_captured_lane(g));
}

static trz_status alloc_after_it(struct stage *g)
{
	return stage_alloc_of(g, g->pool, MIB(2), g->a);
}

static trz_status alloc_of_default_after_it(struct stage *g)
{
	return stage_alloc(g, MIB(2), g->a);
}

/* What a capture has allocated grows in the next one, and what was allocated before does. */
static trz_status grow_in_capture(struct stage *g)
{
	trz_status status = trz_pool_begin_capture(g->rig.heap, g->pool, g->a);
	if (status != TRZ_OK)
		return status;
	begin_capture(g, g->a);
	void *p = NULL;
	status = trz_pool_alloc(g->rig.heap, g->pool, MIB(8), 0, g->a, &p);
	if (status == TRZ_OK) {
		stage_keep(g, p, 0);
		stage_note(g);
		status = trz_grow(g->rig.heap, p, MIB(20));
	}
	end_capture(g, g->a);
	assert_ok(trz_pool_end(g->rig.heap, g->pool));
	return status;
}

/* The graph that is captured has no memory but the pool's. */
static trz_status capture_without_a_pool(struct stage *g)
{
	begin_capture(g, g->a);
	trz_status status = stage_alloc(g, MIB(3), g->a);
	end_capture(g, g->a);
	return status;
}

/* Frees into a capture what was allocated before it. */
static trz_status free_in_capture(struct stage *g)
{
	trz_status status = trz_pool_begin_capture(g->rig.heap, g->pool, g->a);
	if (status != TRZ_OK)
		return status;
	begin_capture(g, g->a);
	while (status == TRZ_OK && g->count > 1) {
		status = trz_free_on(g->rig.heap, g->held[g->count - 1], g->a);
		g->count -= status == TRZ_OK;
		stage_note(g);
	}
	end_capture(g, g->a);
	assert_ok(trz_pool_end(g->rig.heap, g->pool));
	return status;
}

static void a_pool_of_one_stream(struct stage *g)
{
	assert_ok(trz_pool_create(g->rig.heap, &g->pool));
	for (int i = 0; i < 6; i++)
		hold_of_pool(g, i % 3 ? MIB(2) : 3000, g->a);
	stage_hold(g, 700, g->b);
	stage_perforate(g);
	rig_sync(&g->rig);
}

/* Polls, trims and growth elsewhere harm no capture. */
static trz_status work_beside_a_capture(struct stage *g)
{
	trz_status status = trz_pool_begin_capture(g->rig.heap, g->pool, g->a);
	if (status != TRZ_OK)
		return status;
	begin_capture(g, g->a);
	status = trz_poll(g->rig.heap);
	if (status == TRZ_OK)
		status = trz_trim(g->rig.heap, 0, NULL);
	if (status == TRZ_OK)
		status = stage_alloc(g, MIB(40), g->b);
	end_capture(g, g->a);
	assert_ok(trz_pool_end(g->rig.heap, g->pool));
	return status;
}

/* ---- diversions ---------------------------------------------------------------------------------------- */

static bool is_mine(void *user, trz_stream stream)
{
	const struct stage *g = user;
	return stream == g->b;
}

/* By a filter, and inside of that by thread. */
static trz_status alloc_diverted(struct stage *g)
{
	trz_status status = trz_pool_begin(g->rig.heap, g->pool, is_mine, g);
	if (status != TRZ_OK)
		return status;
	void *p = NULL;
	status = trz_alloc(g->rig.heap, MIB(20), 0, g->b, &p);
	if (status == TRZ_OK) {
		stage_keep(g, p, 0);
		stage_note(g);
		status = trz_pool_begin(g->rig.heap, g->pool, NULL, NULL);
		if (status == TRZ_OK) {
			status = stage_alloc(g, 3000, g->a);
			assert_ok(trz_pool_end(g->rig.heap, g->pool));
		}
	}
	assert_ok(trz_pool_end(g->rig.heap, g->pool));
	return status;
}

static void both_are_the_pools(struct stage *g)
{
	void *list[20];
	size_t count, found = 0;
	assert_ok(trz_pool_live(g->rig.heap, g->pool, list, LENGTH(list), &count));
	for (size_t i = 0; i < count && i < LENGTH(list); i++)
		found += list[i] == g->p || list[i] == g->held[g->count - 1];
	assert_int_equal(found, 2);
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

/* As after a capture, with its launch under way. */
static void a_pinned_pool(struct stage *g)
{
	a_pool_that_has_passed(g);
	assert_ok(capture_announced(g));
}

static trz_status release_and_poll(struct stage *g)
{
	trz_status status = trz_pool_release(g->rig.heap, g->pool);
	g->pool = NULL;
	return status == TRZ_OK ? trz_poll(g->rig.heap) : status;
}

static void a_released_pool(struct stage *g)
{
	a_pinned_pool(g);
	assert_ok(trz_pool_release(g->rig.heap, g->pool));
	g->pool = NULL;
	assert_non_null(g->rig.heap->pools);
	rig_sync(&g->rig);
}

static trz_status poll_heap(struct stage *g)
{
	return trz_poll(g->rig.heap);
}

static void no_pool_is_left(struct stage *g)
{
	assert_null(g->rig.heap->pools);
}

static trz_status close_heap(struct stage *g)
{
	trz_heap *heap = g->rig.heap;
	g->rig.heap = NULL;
	return trz_close(heap);
}

/* With dedicated memory, which its streams have no lane for elsewhere. */
static void a_pool_with_dedicated_memory(struct stage *g)
{
	a_pool_that_has_passed(g);
	trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(4), .stream = g->b, .pool = g->pool,
	                           .flags = TRZ_ALLOC_CONTIGUOUS};
	void *p;
	for (int i = 0; i < 2; i++) {
		assert_ok(trz_alloc_with(g->rig.heap, &params, &p));
		stage_keep(g, p, 0);
	}
	stage_drop(g, g->count - 1);
	rig_sync(&g->rig);
}

/* ---- checkpoints --------------------------------------------------------------------------------------- */

static trz_pool_state *noted;
static size_t noted_count;

static void noted_and_gone_on(struct stage *g, void (*prepare)(struct stage *))
{
	prepare(g);
	assert_ok(trz_pool_checkpoint(g->rig.heap, g->pool, &noted));
	noted_count = g->count;
	for (int i = 0; i < 6; i++)
		hold_of_pool(g, i % 2 ? KIB(200) : 700, i % 3 ? g->a : g->b);
	rig_sync(&g->rig);
}

static void a_checkpoint(struct stage *g)
{
	noted_and_gone_on(g, a_pool_that_has_passed);
}

static void a_checkpoint_of_dedicated_memory(struct stage *g)
{
	noted_and_gone_on(g, a_pool_with_dedicated_memory);
}

static void a_checkpoint_in_a_history(struct stage *g)
{
	assert_ok(trz_history_start(g->rig.heap, 1000));
	a_checkpoint(g);
}

static trz_status restore(struct stage *g)
{
	trz_status status = trz_pool_restore(g->rig.heap, g->pool, noted);
	if (status == TRZ_OK)
		g->count = noted_count;
	return status;
}

/* What it has allocated since is used elsewhere. */
static void a_checkpoint_in_use(struct stage *g)
{
	a_checkpoint(g);
	assert_ok(trz_record_stream(g->rig.heap, g->held[g->count - 1], g->a));
	assert_ok(trz_record_stream(g->rig.heap, g->held[g->count - 1], g->b));
}

/* Its memory has gone back to the device. */
static void a_checkpoint_of_what_has_gone(struct stage *g)
{
	a_pool_that_has_passed(g);
	hold_of_pool(g, MIB(60), g->a);
	assert_ok(trz_pool_checkpoint(g->rig.heap, g->pool, &noted));
	stage_drop(g, g->count - 1);
	rig_sync(&g->rig);
	assert_ok(trz_trim(g->rig.heap, 0, NULL));
}

static trz_status look_at_the_pool(struct stage *g)
{
	trz_pool_state *state;
	trz_pool_info info;
	void *list[20];
	size_t live, noted_live;
	assert_ok(trz_pool_query(g->rig.heap, g->pool, &info));
	assert_ok(trz_pool_live(g->rig.heap, g->pool, list, LENGTH(list), &live));
	assert_int_equal(info.allocations, live);
	trz_status status = trz_pool_checkpoint(g->rig.heap, g->pool, &state);
	if (status != TRZ_OK)
		return status;
	assert_ok(trz_pool_state_live(state, list, LENGTH(list), &noted_live));
	assert_int_equal(live, noted_live);
	trz_pool_state_free(state);
	return TRZ_OK;
}

/* ---- the list ------------------------------------------------------------------------------------------ */

static const struct scenario list[] = {
	{.name = "an announced capture, settled", .prepare = a_pool_that_has_passed, .run = capture_announced,
	 .shows = "driver_calls.event_record", .proof = left_no_captured_lane},
	{.name = "an announced capture, not settled", .conf = "event_bytes:0", .prepare = a_pool,
	 .run = capture_announced, .shows = "driver_calls.event_query", .proof = left_a_captured_lane},
	{.name = "a capture that is not announced", .prepare = a_pool_that_has_passed, .run = capture_unannounced,
	 .proof = left_a_captured_lane},
	{.name = "a second capture", .prepare = after_a_capture, .run = capture_unannounced, .proof = left_a_captured_lane},
	{.name = "allocate of a pool after a capture", .prepare = after_a_capture, .run = alloc_after_it,
	 .proof = left_no_captured_lane},
	{.name = "allocate elsewhere after a capture", .prepare = after_a_capture, .run = alloc_of_default_after_it},
	{.name = "grow in a capture", .conf = "slack_per_mille:0", .prepare = a_pool_of_one_stream,
	 .run = grow_in_capture, .shows = "path_grow", .vmm_only = true},
	{.name = "free into a capture", .prepare = a_pool, .run = free_in_capture, .shows = "pending.peak"},
	{.name = "a capture without a pool", .prepare = a_pool, .run = capture_without_a_pool,
	 .expected = TRZ_ERROR_CAPTURE},
	{.name = "poll, trim and grow beside a capture", .conf = "event_bytes:0", .prepare = a_pool,
	 .run = work_beside_a_capture, .shows = "path_extend"},
	{.name = "diversions in each other", .prepare = a_pool_that_has_passed, .run = alloc_diverted,
	 .proof = both_are_the_pools},
	{.name = "the end of a captured pool", .prepare = a_pinned_pool, .run = release_and_poll,
	 .shows = "driver_calls.context_record"},
	{.name = "the end of a captured pool, old driver", .prepare = a_pinned_pool, .run = release_and_poll,
	 .shows = "driver_calls.event_record", .old_driver = true},
	{.name = "the end of a captured pool whose graphs are done", .prepare = a_released_pool, .run = poll_heap,
	 .shows = "driver_calls.event_query", .proof = no_pool_is_left},
	{.name = "the end of a captured pool whose graphs are done, old driver", .prepare = a_released_pool,
	 .run = poll_heap, .shows = "driver_calls.event_query", .proof = no_pool_is_left, .old_driver = true},
	{.name = "the end of a pool with dedicated memory", .prepare = a_pool_with_dedicated_memory,
	 .run = release_and_poll, .proof = no_pool_is_left, .vmm_only = true},
	{.name = "trim a pool", .prepare = a_pool_with_dedicated_memory, .run = stage_trim, .shows = "num_device_free"},
	{.name = "close with a captured pool", .prepare = a_pinned_pool, .run = close_heap},
	{.name = "close with a captured pool, old driver", .prepare = a_pinned_pool, .run = close_heap, .old_driver = true},
	{.name = "close with a released pool", .prepare = a_released_pool, .run = close_heap},
	{.name = "restore a checkpoint of two streams", .prepare = a_checkpoint, .run = restore,
	 .shows = "driver_calls.event_query"},
	{.name = "restore a checkpoint in a history", .prepare = a_checkpoint_in_a_history, .run = restore},
	{.name = "restore a checkpoint with dedicated memory", .prepare = a_checkpoint_of_dedicated_memory,
	 .run = restore, .vmm_only = true},
	{.name = "restore a checkpoint of what is in use", .prepare = a_checkpoint_in_use, .run = restore,
	 .expected = TRZ_NOT_READY},
	{.name = "restore a checkpoint of what has gone", .prepare = a_checkpoint_of_what_has_gone, .run = restore,
	 .expected = TRZ_ERROR_NOT_FOUND},
	{.name = "query, list, checkpoint a pool", .prepare = a_pool_with_dedicated_memory, .run = look_at_the_pool},
};

const struct scenarios scenarios_of_pools = {list, LENGTH(list)};
