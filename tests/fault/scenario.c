/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, growth, gathering, the ladder, dedicated and shared memory, pools, frees, trims, closing.
 */
#include <unistd.h>

#include "error.h"
#include "scenario.h"

/* ---- preparations ---------------------------------------------------------------------------------- */

static void nothing(struct stage *g)
{
	(void)g;
}

static void one_of_each(struct stage *g)
{
	stage_hold(g, 700, g->a);
	stage_hold(g, MIB(20), g->a);
}

static void scattered_and_last(struct stage *g)
{
	stage_scatter(g);
	stage_hold(g, MIB(20), g->a);
}

/* Tiles have moved away, and beside one of the holes, in which they are still mapped, memory is free. */
static void a_hole_beside_free_memory(struct stage *g)
{
	stage_scatter_and_wait(g);
	stage_hold(g, MIB(100), g->a);
	stage_drop(g, 1);
	rig_sync(&g->rig);
}

/* Free memory that another stream has done with. */
static void another_streams(struct stage *g)
{
	stage_hold(g, 700, g->b);
	stage_scatter_and_wait(g);
}

/* Nearly full, most of it free, but in the wrong places: in blocks, in empty slabs, and on another stream. */
static void nearly_full(struct stage *g)
{
	static void *slots[1300];
	for (int i = 0; i < 8; i++)
		stage_hold(g, MIB(8), g->a);
	for (size_t i = 0; i < LENGTH(slots); i++)
		slots[i] = rig_alloc(&g->rig, KIB(30), i % 3 ? g->a : g->b);
	stage_perforate(g);
	for (size_t i = 0; i < LENGTH(slots); i++)
		rig_free(&g->rig, slots[i]);
	rig_order(&g->rig, g->a, g->b);
	assert_ok(trz_free_on(g->rig.heap, stage_take(g, 600, g->a), g->b));
	rig_sync(&g->rig);
}

static void held_block(struct stage *g)
{
	g->p = stage_take(g, MIB(30), g->a);
}

static void held_slot(struct stage *g)
{
	g->p = stage_take(g, 700, g->a);
}

static void held_block_beside_another_stream(struct stage *g)
{
	stage_hold(g, 700, g->b);
	held_block(g);
	rig_order(&g->rig, g->a, g->b);
}

static void passed_on_another_stream(struct stage *g)
{
	held_block_beside_another_stream(g);
	g->was = g->p;
	g->p = NULL;
	assert_ok(trz_free_on(g->rig.heap, g->was, g->b));
	rig_sync(&g->rig);
}

static void held_slot_beside_another_stream(struct stage *g)
{
	stage_hold(g, 700, g->b);
	held_slot(g);
	rig_order(&g->rig, g->a, g->b);
}

static void with_an_event(struct stage *g)
{
	const trz_driver *d = g->rig.d;
	assert_ok(d->event_create(d->self, g->rig.c, &g->event));
	assert_ok(d->event_record(d->self, g->rig.c, g->event, g->b));
}

static void held_block_with_event(struct stage *g)
{
	held_block_beside_another_stream(g);
	with_an_event(g);
}

static void held_slot_with_completed_event(struct stage *g)
{
	held_slot(g);
	with_an_event(g);
	rig_sync(&g->rig);
}

/* A device full of what has been freed and is still in use. */
static void freed_in_use(struct stage *g)
{
	for (int i = 0; i < 3; i++)
		stage_hold(g, MIB(20), i % 2 ? g->b : g->a);
	for (size_t i = 0; i < g->count; i++)
		rig_free(&g->rig, g->held[i]);
	g->count = 0;
}

/* Free tiles, tiles that have moved, empty slabs, pending slots: all that trim and close have to do with. */
static void used_up(struct stage *g)
{
	another_streams(g);
	stage_hold(g, MIB(60), g->a);
	held_slot_beside_another_stream(g);
	assert_ok(trz_free_on(g->rig.heap, g->p, g->b));
	rig_free(&g->rig, stage_take(g, KIB(20), g->a));
	rig_sync(&g->rig);
	g->p = NULL;
}

/* A tile of its own, kept. */
static void a_kept_tile(struct stage *g)
{
	trz_alloc_params params = {
		.struct_size = sizeof params, .size = MIB(40), .stream = g->a, .flags = TRZ_ALLOC_CONTIGUOUS};
	void *p;
	one_of_each(g);
	assert_ok(trz_alloc_with(g->rig.heap, &params, &p));
	rig_free(&g->rig, p);
	rig_sync(&g->rig);
}

static void full_of_kept_tiles(struct stage *g)
{
	a_kept_tile(g);
	rig_free(&g->rig, stage_take(g, MIB(30), g->b));
	rig_sync(&g->rig);
}

static void held_exportable(struct stage *g)
{
	trz_alloc_params params = {
		.struct_size = sizeof params, .size = MIB(4), .stream = g->a, .flags = TRZ_ALLOC_SHARE_FD};
	one_of_each(g);
	void *p;
	assert_ok(trz_alloc_with(g->rig.heap, &params, &p));
	stage_keep(g, p, 0);
}

static int shared_fd;

/* The descriptor is good as long as the memory is there, or anybody has it. */
static void held_and_exported(struct stage *g)
{
	held_exportable(g);
	assert_ok(trz_export(g->rig.heap, g->held[g->count - 1], TRZ_ALLOC_SHARE_FD, &shared_fd));
	assert_ok(trz_export_end(g->rig.heap, g->held[g->count - 1]));
}

/* Tiles of a packed block, by descriptors that stay good. */
static trz_exported_tile shared_tiles[STAGE_TILES];
static int shared_fds[STAGE_TILES];
static size_t shared_tile_count;

static void a_packed_block(struct stage *g)
{
	one_of_each(g);
	stage_hold(g, MIB(5), g->a);
}

static void tiles_exported(struct stage *g)
{
	a_packed_block(g);
	char *p = g->held[g->count - 1], *at = p;
	shared_tile_count = 0;
	while (at < p + MIB(5)) {
		size_t i = shared_tile_count++;
		assert_ok(trz_export_tile(g->rig.heap, at, TRZ_ALLOC_SHARE_FD, &shared_fds[i], &shared_tiles[i]));
		at = (char *)shared_tiles[i].base + shared_tiles[i].size;
		assert_ok(trz_export_end(g->rig.heap, shared_tiles[i].base));
	}
}

static trz_status next_tile(void *user, size_t offset, void *shareable, size_t *size)
{
	size_t *next = user;
	(void)offset;
	*(int *)shareable = shared_fds[*next];
	*size = shared_tiles[(*next)++].size;
	return TRZ_OK;
}

static trz_status import_tiles_and_free(struct stage *g)
{
	void *p = g;
	size_t next = 0, size = 0;
	for (size_t i = 0; i < shared_tile_count; i++)
		size += shared_tiles[i].size;
	trz_status status = trz_import_tiles(g->rig.heap, TRZ_ALLOC_SHARE_FD, size, next_tile, &next, g->b, &p);
	for (size_t i = 0; i < shared_tile_count; i++)
		close(shared_fds[i]);
	if (status != TRZ_OK) {
		assert_null(p);
		return status;
	}
	status = trz_free(g->rig.heap, p);
	g->imported = status == TRZ_OK ? NULL : p;
	return status;
}

static trz_status import_and_free(struct stage *g)
{
	void *p = g;
	trz_status status = trz_import(g->rig.heap, TRZ_ALLOC_SHARE_FD, &shared_fd, MIB(4), g->b, &p);
	close(shared_fd);
	if (status != TRZ_OK) {
		assert_null(p);
		return status;
	}
	status = trz_free(g->rig.heap, p);
	g->imported = status == TRZ_OK ? NULL : p;
	return status;
}

static void freed_import(struct stage *g)
{
	held_and_exported(g);
	assert_ok(import_and_free(g));
	rig_sync(&g->rig);
}

static void freed_imported_tiles(struct stage *g)
{
	tiles_exported(g);
	assert_ok(import_tiles_and_free(g));
	rig_sync(&g->rig);
}

static trz_pool *pool;
static trz_pool_state *noted;
enum { LATER = 200 }; /* allocations after the checkpoint */

static void hold_of_pool(struct stage *g, size_t size, trz_stream stream)
{
	void *p;
	assert_ok(trz_pool_alloc(g->rig.heap, pool, size, 0, stream, &p));
	stage_keep(g, p, 0);
}

/* A pool that two streams use, both kinds of memory, held and free. */
static void a_pool(struct stage *g)
{
	one_of_each(g);
	assert_ok(trz_pool_create(g->rig.heap, &pool));
	for (int i = 0; i < 12; i++)
		hold_of_pool(g, i % 3 ? MIB(1) : 3000, i % 2 ? g->a : g->b);
	stage_perforate(g);
	rig_sync(&g->rig);
}

/* The same, with free memory that its stream still uses. */
static void a_pool_in_use(struct stage *g)
{
	void *p = NULL;
	a_pool(g);
	assert_ok(trz_pool_alloc(g->rig.heap, pool, MIB(3), 0, g->a, &p));
	assert_ok(sim_stamp(g->rig.s, g->rig.c, g->a, (trz_addr)p, MIB(3), 1));
	rig_free(&g->rig, p);
}

/* As after a capture, with work of all streams under way. */
static void a_pinned_pool(struct stage *g)
{
	sim_graph graph;
	a_pool(g);
	assert_ok(trz_pool_begin_capture(g->rig.heap, pool, g->a));
	assert_ok(sim_capture_begin(g->rig.s, g->rig.c, g->a, TRZ_CAPTURE_RELAXED));
	hold_of_pool(g, MIB(3), g->a);
	assert_ok(sim_capture_end(g->rig.s, g->rig.c, g->a, &graph));
	assert_ok(trz_pool_end(g->rig.heap, pool));
	assert_ok(sim_graph_destroy(g->rig.s, g->rig.c, graph));
	stage_hold(g, 100, g->b);
}

static void a_checkpoint(struct stage *g)
{
	a_pool(g);
	assert_ok(trz_pool_checkpoint(g->rig.heap, pool, &noted));
	for (size_t i = 0; i < LATER; i++)
		hold_of_pool(g, i % 2 ? 700 : KIB(200), g->a);
	rig_sync(&g->rig);
}

static void used_up_with_notices(struct stage *g)
{
	assert_ok(stage_listen(g));
	used_up(g);
}

/* So many recorded events that the next allocation asks for them. */
static void a_long_queue(struct stage *g)
{
	stage_hold(g, 700, g->b);
	for (int i = 0; i < 240; i++)
		rig_free(&g->rig, stage_take(g, MIB(3), g->a));
}

/* ---- operations ------------------------------------------------------------------------------------ */

static trz_status open_heap(struct stage *g)
{
	trz_open_params params = {.config = g->conf, .driver = g->rig.d};
	trz_heap *heap = (trz_heap *)g;
	trz_status status = trz_open(&params, &heap);
	if (status == TRZ_OK)
		g->rig.heap = heap;
	else
		assert_ptr_equal(heap, (trz_heap *)g);
	return status;
}

static trz_status alloc_small(struct stage *g)
{
	return stage_alloc(g, 1000, g->a);
}

/* The pool does not outlive the graph. */
static trz_status alloc_captured(struct stage *g)
{
	sim_graph graph;
	trz_status status = trz_pool_begin_capture(g->rig.heap, pool, g->a);
	if (status == TRZ_OK) {
		assert_ok(sim_capture_begin(g->rig.s, g->rig.c, g->a, TRZ_CAPTURE_RELAXED));
		status = stage_alloc(g, MIB(3), g->a);
		assert_ok(sim_capture_end(g->rig.s, g->rig.c, g->a, &graph));
		assert_ok(sim_graph_destroy(g->rig.s, g->rig.c, graph));
		assert_ok(trz_pool_end(g->rig.heap, pool));
	}
	assert_ok(trz_pool_release(g->rig.heap, pool));
	return status;
}

static trz_status alloc_large(struct stage *g)
{
	return stage_alloc(g, MIB(33), g->a);
}

static trz_status alloc_legacy(struct stage *g)
{
	return stage_alloc(g, MIB(3), NULL);
}

static trz_status alloc_dedicated(struct stage *g)
{
	return stage_alloc_dedicated(g, MIB(33), g->a);
}

static trz_status alloc_dedicated_of_another(struct stage *g)
{
	return stage_alloc_dedicated(g, MIB(39), g->b);
}

static trz_status alloc_dedicated_last(struct stage *g)
{
	return stage_alloc_dedicated(g, MIB(90), g->a);
}

static trz_status alloc_aligned(struct stage *g)
{
	g->p = g;
	trz_status status = trz_alloc(g->rig.heap, MIB(5), MIB(2), g->a, &g->p);
	if (status != TRZ_OK)
		assert_null(g->p);
	return status;
}

static trz_status alloc_gathering(struct stage *g)
{
	return stage_alloc(g, MIB(100), g->a);
}

static trz_status alloc_beside(struct stage *g)
{
	return stage_alloc(g, MIB(30), g->a);
}

static trz_status alloc_on_the_other(struct stage *g)
{
	return stage_alloc(g, MIB(100), g->b);
}

static trz_status alloc_last(struct stage *g)
{
	return stage_alloc(g, MIB(72), g->a);
}

static trz_status alloc_too_much(struct stage *g)
{
	return stage_alloc(g, MIB(200), g->a);
}

static trz_status free_it(struct stage *g)
{
	g->frees = true;
	return trz_free(g->rig.heap, g->p);
}

static trz_status free_after_it(struct stage *g)
{
	g->frees = true;
	trz_status status = trz_free_after(g->rig.heap, g->p, g->event);
	if (status == TRZ_OK)
		g->event = NULL;
	return status;
}

static trz_status free_on_the_other(struct stage *g)
{
	g->frees = true;
	return trz_free_on(g->rig.heap, g->p, g->b);
}

static trz_status export_it(struct stage *g)
{
	int fd = -1;
	trz_status status = trz_export(g->rig.heap, g->held[g->count - 1], TRZ_ALLOC_SHARE_FD, &fd);
	if (status != TRZ_OK) {
		assert_status(trz_export_end(g->rig.heap, g->held[g->count - 1]), TRZ_ERROR_NOT_FOUND);
		trz_fail(status, "the export was refused");
		return status;
	}
	close(fd);
	void *p = g->held[g->count - 1];
	status = trz_free(g->rig.heap, p);
	g->count -= status == TRZ_OK;
	assert_ok(trz_export_end(g->rig.heap, p));
	return status;
}

/* The tiles of a packed block, which is freed before the last export ends. */
static trz_status export_tiles(struct stage *g)
{
	char *p = g->held[g->count - 1], *at = p;
	trz_exported_tile tiles[STAGE_TILES];
	int fds[STAGE_TILES];
	size_t n = 0;
	trz_status status = TRZ_OK;
	while (at < p + MIB(5) && status == TRZ_OK) {
		status = trz_export_tile(g->rig.heap, at, TRZ_ALLOC_SHARE_FD, &fds[n], &tiles[n]);
		at = status == TRZ_OK ? (char *)tiles[n].base + tiles[n].size : at;
		n += status == TRZ_OK;
	}
	assert_int_equal(rig_stat(&g->rig, "exported_bytes.current") > 0, n > 0);
	if (status == TRZ_OK && (status = trz_free(g->rig.heap, p)) == TRZ_OK) {
		g->count--;
		trz_trim(g->rig.heap, 0, NULL);
		rig_check(&g->rig);
	}
	while (n--) {
		close(fds[n]);
		assert_ok(trz_export_end(g->rig.heap, tiles[n].base));
	}
	assert_int_equal(rig_stat(&g->rig, "exported_bytes.current"), 0);
	if (status != TRZ_OK)
		trz_fail(status, "the export was refused");
	return status;
}

static trz_status enable_peer(struct stage *g)
{
	return trz_enable_peer(g->rig.heap, 1, true);
}

static trz_status alloc_where_it_was(struct stage *g)
{
	const trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(2), .stream = g->a, .address = g->was};
	g->p = g;
	trz_status status = trz_alloc_with(g->rig.heap, &params, &g->p);
	if (status == TRZ_ERROR_NO_ROOM)
		status = trz_fail(TRZ_ERROR_OUT_OF_MEMORY, "the driver does not say how far the other stream is");
	if (status == TRZ_OK)
		assert_ptr_equal(g->p, g->was);
	else
		assert_null(g->p);
	return status;
}

static trz_status grow_it(struct stage *g)
{
	void *p = g->held[g->count - 1];
	trz_pointer_info before, after;
	assert_ok(trz_query(g->rig.heap, p, &before));
	trz_status status = trz_grow(g->rig.heap, p, MIB(90));
	assert_ok(trz_query(g->rig.heap, p, &after));
	assert_int_equal(after.requested, status == TRZ_OK ? MIB(90) : before.requested);
	assert_int_equal(after.size, status == TRZ_OK ? after.size : before.size);
	return status;
}

static trz_status alloc_of_a_new_pool(struct stage *g)
{
	trz_pool *fresh;
	trz_status status = trz_pool_create(g->rig.heap, &fresh);
	if (status != TRZ_OK)
		return status;
	status = stage_alloc_of(g, fresh, MIB(5), g->a);
	assert_ok(trz_pool_release(g->rig.heap, fresh));
	return status;
}

static trz_status alloc_diverted(struct stage *g)
{
	trz_status status = trz_pool_begin(g->rig.heap, pool, NULL, NULL);
	if (status != TRZ_OK)
		return status;
	status = stage_alloc(g, MIB(33), g->a);
	assert_ok(trz_pool_end(g->rig.heap, pool));
	return status;
}

/* Its memory is everybody's in the end, whatever was refused when it ended. */
static trz_status end_pool(struct stage *g)
{
	assert_ok(trz_pool_release(g->rig.heap, pool));
	return TRZ_OK;
}

/* What is held is as before the checkpoint, or as before the operation. */
static trz_status restore(struct stage *g)
{
	trz_status status = trz_pool_restore(g->rig.heap, pool, noted);
	if (status != TRZ_OK)
		return status;
	g->count -= LATER;
	return TRZ_OK;
}

static trz_status trim_all(struct stage *g)
{
	size_t released = 0;
	uint64_t before = rig_stat(&g->rig, "reserved_bytes.all.current");
	trz_status status = trz_trim(g->rig.heap, 0, &released);
	assert_int_equal(before - rig_stat(&g->rig, "reserved_bytes.all.current"), released);
	return status;
}

static trz_status poll_heap(struct stage *g)
{
	return trz_poll(g->rig.heap);
}

static trz_status alloc_most(struct stage *g)
{
	return stage_alloc(g, MIB(40), g->a);
}

static trz_status look(struct stage *g)
{
	trz_pointer_info info;
	size_t limit;
	uint64_t value;
	assert_ok(trz_query(g->rig.heap, g->held[0], &info));
	assert_ok(trz_set_limit(g->rig.heap, MIB(500)));
	assert_ok(trz_get_limit(g->rig.heap, &limit));
	assert_ok(trz_set_limit(g->rig.heap, 0));
	assert_ok(trz_stat(g->rig.heap, "segment.all.current", &value));
	assert_ok(trz_reset_peaks(g->rig.heap));
	return trz_check(g->rig.heap);
}

static trz_status close_heap(struct stage *g)
{
	trz_heap *heap = g->rig.heap;
	g->rig.heap = NULL;
	g->count = 0;
	return trz_close(heap);
}

static const struct scenario list[] = {
	{.name = "open", .run = open_heap},
	{.name = "first allocation, small", .prepare = nothing, .run = alloc_small, .shows = "path_slot"},
	{.name = "first allocation, large", .prepare = nothing, .run = alloc_large, .shows = "path_extend"},
	{.name = "first allocation, aligned", .prepare = nothing, .run = alloc_aligned, .shows = "path_extend"},
	{.name = "first allocation of the legacy stream", .prepare = one_of_each, .run = alloc_legacy,
	 .shows = "stream.current"},
	{.name = "extend", .prepare = one_of_each, .run = alloc_large, .shows = "path_extend"},
	{.name = "extend by many tiles", .conf = "tile_size:2MiB,tile_size_max:2MiB", .prepare = one_of_each,
	 .run = alloc_large, .shows = "path_extend"},
	{.name = "gather", .prepare = stage_scatter_and_wait, .run = alloc_gathering, .shows = "path_gather",
	 .vmm_only = true},
	{.name = "gather what has yet to pass", .prepare = stage_scatter, .run = alloc_gathering, .shows = "path_gather",
	 .vmm_only = true},
	{.name = "gather what another stream has done with", .prepare = another_streams, .run = alloc_on_the_other,
	 .shows = "path_gather", .vmm_only = true},
	{.name = "lay a part of a hole anew", .prepare = a_hole_beside_free_memory, .run = alloc_beside,
	 .shows = "path_refill", .vmm_only = true},
	{.name = "climb the ladder", .capacity = MIB(128), .prepare = nearly_full, .run = alloc_last,
	 .shows = "num_alloc_retries", .vmm_only = true},
	{.name = "climb the ladder in vain", .capacity = MIB(128), .prepare = nearly_full, .run = alloc_too_much,
	 .shows = "num_ooms", .expected = TRZ_ERROR_OUT_OF_MEMORY},
	{.name = "allocate with a long queue of events", .conf = "event_bytes:0", .prepare = a_long_queue,
	 .run = alloc_small, .shows = "driver_calls.event_query"},
	{.name = "a tile of its own", .prepare = one_of_each, .run = alloc_dedicated, .shows = "path_dedicated",
	 .vmm_only = true},
	{.name = "a kept tile of another stream", .prepare = a_kept_tile, .run = alloc_dedicated_of_another,
	 .shows = "path_dedicated", .vmm_only = true},
	{.name = "a tile of its own on a full device", .capacity = MIB(128), .prepare = full_of_kept_tiles,
	 .run = alloc_dedicated_last, .shows = "rung_trim", .vmm_only = true},
	{.name = "packed memory on a device full of kept tiles", .capacity = MIB(128), .prepare = full_of_kept_tiles,
	 .run = alloc_last, .shows = "rung_dedicated", .vmm_only = true},
	{.name = "export, free, end the export", .prepare = held_exportable, .run = export_it,
	 .shows = "exported_bytes.peak", .vmm_only = true},
	{.name = "export tiles, free, end the exports", .conf = "tile_size:2MiB,tile_size_max:2MiB",
	 .prepare = a_packed_block, .run = export_tiles, .shows = "exported_bytes.peak", .vmm_only = true},
	{.name = "import tiles and free", .conf = "tile_size:2MiB,tile_size_max:2MiB", .prepare = tiles_exported,
	 .run = import_tiles_and_free, .shows = "imported_bytes.peak", .vmm_only = true},
	{.name = "trim with freed imported tiles", .conf = "tile_size:2MiB,tile_size_max:2MiB",
	 .prepare = freed_imported_tiles, .run = trim_all, .shows = "driver_calls.unmap", .vmm_only = true},
	{.name = "enable a peer", .prepare = used_up, .run = enable_peer, .shows = "driver_calls.set_access",
	 .vmm_only = true},
	{.name = "allocate where it was", .prepare = passed_on_another_stream, .run = alloc_where_it_was,
	 .shows = "driver_calls.event_query"},
	{.name = "grow in place", .prepare = one_of_each, .run = grow_it, .shows = "path_grow", .vmm_only = true},
	{.name = "grow in place by gathering", .conf = "slack_per_mille:0", .prepare = scattered_and_last, .run = grow_it,
	 .shows = "path_gather", .vmm_only = true},
	{.name = "import and free", .prepare = held_and_exported, .run = import_and_free, .shows = "imported_bytes.peak",
	 .vmm_only = true},
	{.name = "trim with a freed import", .prepare = freed_import, .run = trim_all, .shows = "driver_calls.unmap",
	 .vmm_only = true},
	{.name = "close with a freed import", .prepare = freed_import, .run = close_heap, .vmm_only = true},
	{.name = "allocate of a new pool", .prepare = one_of_each, .run = alloc_of_a_new_pool},
	{.name = "a diverted allocation", .prepare = a_pool, .run = alloc_diverted},
	{.name = "an allocation in a capture", .conf = "event_bytes:0", .prepare = a_pool_in_use, .run = alloc_captured,
	 .shows = "driver_calls.event_record"},
	{.name = "the end of a pool", .prepare = a_pool, .run = end_pool},
	{.name = "the end of a pinned pool", .prepare = a_pinned_pool, .run = end_pool,
	 .shows = "driver_calls.context_record"},
	{.name = "restore a checkpoint", .prepare = a_checkpoint, .run = restore},
	{.name = "free a block", .prepare = held_block, .run = free_it},
	{.name = "free a slot", .prepare = held_slot, .run = free_it},
	{.name = "free a block, two streams", .conf = "event_bytes:0", .prepare = held_block_beside_another_stream,
	 .run = free_it, .shows = "driver_calls.event_record"},
	{.name = "free a slot, two streams", .prepare = held_slot_beside_another_stream, .run = free_it},
	{.name = "free a block on another stream", .conf = "event_bytes:0", .prepare = held_block_beside_another_stream,
	 .run = free_on_the_other, .shows = "driver_calls.event_record"},
	{.name = "free a slot on another stream", .prepare = held_slot_beside_another_stream, .run = free_on_the_other,
	 .shows = "pending.peak"},
	{.name = "free a block after an event", .prepare = held_block_with_event, .run = free_after_it,
	 .shows = "pending.peak"},
	{.name = "free a slot after a completed event", .prepare = held_slot_with_completed_event, .run = free_after_it,
	 .shows = "driver_calls.event_destroy"},
	{.name = "trim", .prepare = used_up, .run = trim_all, .shows = "num_device_free"},
	{.name = "trim with notices", .prepare = used_up_with_notices, .run = trim_all, .shows = "num_device_free"},
	{.name = "poll past a threshold", .conf = "trim_threshold:1MiB", .prepare = used_up, .run = poll_heap,
	 .shows = "bytes_decayed"},
	{.name = "allocate once", .conf = "no_cache:on", .prepare = one_of_each, .run = alloc_large,
	 .shows = "path_dedicated"},
	{.name = "allocate before a guard", .conf = "guard:on", .prepare = one_of_each, .run = alloc_large,
	 .shows = "path_dedicated", .vmm_only = true},
	{.name = "wait for memory that serves once", .capacity = MIB(64), .conf = "unmap_on_free:on",
	 .prepare = freed_in_use, .run = alloc_most, .shows = "waits_of_host", .vmm_only = true},
	{.name = "query, limit, statistics, check", .prepare = one_of_each, .run = look},
	{.name = "close", .prepare = used_up, .run = close_heap},
};

const struct scenarios scenarios_first = {list, LENGTH(list)};
