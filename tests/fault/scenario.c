/* SPDX-License-Identifier: Apache-2.0
 *
 * The scenarios, and the checks after a disturbance.
 */
#include "scenario.h"

#include <stdio.h>
#include <unistd.h>

#include "accounts.h"
#include "error.h"

static trz_status alloc_one(struct stage *g, size_t size, trz_stream stream)
{
	g->p = g;
	trz_status status = trz_alloc(g->rig.heap, size, 0, stream, &g->p);
	if (status != TRZ_OK)
		assert_null(g->p);
	return status;
}

/* Allocates and uses. */
static void *take(struct stage *g, size_t size, trz_stream stream)
{
	void *p = rig_alloc(&g->rig, size, stream);
	assert_ok(sim_stamp(g->rig.s, g->rig.c, stream, (trz_addr)p, size, size));
	return p;
}

static void hold(struct stage *g, size_t size, trz_stream stream)
{
	assert_true(g->count < STAGE_BLOCKS);
	g->held[g->count++] = take(g, size, stream);
}

/* Frees every second of what is held. */
static void perforate(struct stage *g)
{
	size_t kept = 0;
	for (size_t i = 0; i < g->count; i++)
		if (i % 2)
			rig_free(&g->rig, g->held[i]);
		else
			g->held[kept++] = g->held[i];
	g->count = kept;
}

/* ---- preparations ---------------------------------------------------------------------------------- */

static void nothing(struct stage *g)
{
	(void)g;
}

static void one_of_each(struct stage *g)
{
	hold(g, 700, g->a);
	hold(g, MIB(20), g->a);
}

static void scattered(struct stage *g)
{
	for (int i = 0; i < 24; i++)
		hold(g, MIB(16), g->a);
	perforate(g);
}

static void scattered_and_last(struct stage *g)
{
	scattered(g);
	hold(g, MIB(20), g->a);
}

static void scattered_and_done(struct stage *g)
{
	scattered(g);
	rig_sync(&g->rig);
}

/* Tiles have moved away, and beside one of the holes, in which they are still mapped, memory is free. */
static void a_hole_beside_free_memory(struct stage *g)
{
	scattered_and_done(g);
	hold(g, MIB(100), g->a);
	rig_free(&g->rig, g->held[1]);
	g->held[1] = g->held[--g->count];
	rig_sync(&g->rig);
}

/* Free memory that another stream has done with. */
static void another_streams(struct stage *g)
{
	hold(g, 700, g->b);
	scattered_and_done(g);
}

/* Nearly full, most of it free, but in the wrong places: in blocks, in empty slabs, and on another stream. */
static void nearly_full(struct stage *g)
{
	static void *slots[1300];
	for (int i = 0; i < 8; i++)
		hold(g, MIB(8), g->a);
	for (size_t i = 0; i < LENGTH(slots); i++)
		slots[i] = rig_alloc(&g->rig, KIB(30), i % 3 ? g->a : g->b);
	perforate(g);
	for (size_t i = 0; i < LENGTH(slots); i++)
		rig_free(&g->rig, slots[i]);
	rig_order(&g->rig, g->a, g->b);
	assert_ok(trz_free_on(g->rig.heap, take(g, 600, g->a), g->b));
	rig_sync(&g->rig);
}

static void held_block(struct stage *g)
{
	g->p = take(g, MIB(30), g->a);
}

static void held_slot(struct stage *g)
{
	g->p = take(g, 700, g->a);
}

static void held_block_beside_another_stream(struct stage *g)
{
	hold(g, 700, g->b);
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
	hold(g, 700, g->b);
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
		hold(g, MIB(20), i % 2 ? g->b : g->a);
	for (size_t i = 0; i < g->count; i++)
		rig_free(&g->rig, g->held[i]);
	g->count = 0;
}

static void ignore_notice(void *user, trz_map_event event, void *address, size_t size)
{
	(void)user;
	(void)event;
	(void)address;
	(void)size;
}

/* Free tiles, tiles that have moved, empty slabs, pending slots: all that trim and close have to do with. */
static void used_up(struct stage *g)
{
	another_streams(g);
	hold(g, MIB(60), g->a);
	held_slot_beside_another_stream(g);
	assert_ok(trz_free_on(g->rig.heap, g->p, g->b));
	rig_free(&g->rig, take(g, KIB(20), g->a));
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
	rig_free(&g->rig, take(g, MIB(30), g->b));
	rig_sync(&g->rig);
}

static void held_exportable(struct stage *g)
{
	trz_alloc_params params = {
		.struct_size = sizeof params, .size = MIB(4), .stream = g->a, .flags = TRZ_ALLOC_SHARE_FD};
	one_of_each(g);
	assert_ok(trz_alloc_with(g->rig.heap, &params, &g->held[g->count++]));
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
	hold(g, MIB(5), g->a);
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
	assert_ok(trz_pool_alloc(g->rig.heap, pool, size, 0, stream, &g->held[g->count++]));
}

/* A pool that two streams use, both kinds of memory, held and free. */
static void a_pool(struct stage *g)
{
	one_of_each(g);
	assert_ok(trz_pool_create(g->rig.heap, &pool));
	for (int i = 0; i < 12; i++)
		hold_of_pool(g, i % 3 ? MIB(1) : 3000, i % 2 ? g->a : g->b);
	perforate(g);
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
	hold(g, 100, g->b);
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
	assert_ok(trz_set_map_callback(g->rig.heap, ignore_notice, NULL));
	used_up(g);
}

/* So many recorded events that the next allocation asks for them. */
static void a_long_queue(struct stage *g)
{
	hold(g, 700, g->b);
	for (int i = 0; i < 240; i++)
		rig_free(&g->rig, take(g, MIB(3), g->a));
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
	return alloc_one(g, 1000, g->a);
}

/* The pool does not outlive the graph. */
static trz_status alloc_captured(struct stage *g)
{
	sim_graph graph;
	trz_status status = trz_pool_begin_capture(g->rig.heap, pool, g->a);
	if (status == TRZ_OK) {
		assert_ok(sim_capture_begin(g->rig.s, g->rig.c, g->a, TRZ_CAPTURE_RELAXED));
		status = alloc_one(g, MIB(3), g->a);
		assert_ok(sim_capture_end(g->rig.s, g->rig.c, g->a, &graph));
		assert_ok(sim_graph_destroy(g->rig.s, g->rig.c, graph));
		assert_ok(trz_pool_end(g->rig.heap, pool));
	}
	assert_ok(trz_pool_release(g->rig.heap, pool));
	return status;
}

static trz_status alloc_large(struct stage *g)
{
	return alloc_one(g, MIB(33), g->a);
}

static trz_status alloc_legacy(struct stage *g)
{
	return alloc_one(g, MIB(3), NULL);
}

static trz_status alloc_dedicated_of(struct stage *g, size_t size, trz_stream stream)
{
	trz_alloc_params params = {
		.struct_size = sizeof params, .size = size, .stream = stream, .flags = TRZ_ALLOC_CONTIGUOUS};
	g->p = g;
	trz_status status = trz_alloc_with(g->rig.heap, &params, &g->p);
	if (status != TRZ_OK)
		assert_null(g->p);
	return status;
}

static trz_status alloc_dedicated(struct stage *g)
{
	return alloc_dedicated_of(g, MIB(33), g->a);
}

static trz_status alloc_dedicated_of_another(struct stage *g)
{
	return alloc_dedicated_of(g, MIB(39), g->b);
}

static trz_status alloc_dedicated_last(struct stage *g)
{
	return alloc_dedicated_of(g, MIB(90), g->a);
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
	return alloc_one(g, MIB(100), g->a);
}

static trz_status alloc_beside(struct stage *g)
{
	return alloc_one(g, MIB(30), g->a);
}

static trz_status alloc_on_the_other(struct stage *g)
{
	return alloc_one(g, MIB(100), g->b);
}

static trz_status alloc_last(struct stage *g)
{
	return alloc_one(g, MIB(72), g->a);
}

static trz_status alloc_too_much(struct stage *g)
{
	return alloc_one(g, MIB(200), g->a);
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
	g->p = g;
	status = trz_pool_alloc(g->rig.heap, fresh, MIB(5), 0, g->a, &g->p);
	if (status != TRZ_OK)
		assert_null(g->p);
	assert_ok(trz_pool_release(g->rig.heap, fresh));
	return status;
}

static trz_status alloc_diverted(struct stage *g)
{
	trz_status status = trz_pool_begin(g->rig.heap, pool, NULL, NULL);
	if (status != TRZ_OK)
		return status;
	status = alloc_one(g, MIB(33), g->a);
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
	return alloc_one(g, MIB(40), g->a);
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

const struct scenario scenarios[] = {
	{"open", GIB(1), NULL, NULL, open_heap, NULL, false},
	{"first allocation, small", GIB(1), NULL, nothing, alloc_small, "path_slot", false},
	{"first allocation, large", GIB(1), NULL, nothing, alloc_large, "path_extend", false},
	{"first allocation, aligned", GIB(1), NULL, nothing, alloc_aligned, "path_extend", false},
	{"first allocation of the legacy stream", GIB(1), NULL, one_of_each, alloc_legacy, "stream.current", false},
	{"extend", GIB(1), NULL, one_of_each, alloc_large, "path_extend", false},
	{"extend by many tiles", GIB(1), "tile_size:2MiB,tile_size_max:2MiB", one_of_each, alloc_large, "path_extend",
     false},
	{"gather", GIB(1), NULL, scattered_and_done, alloc_gathering, "path_gather", true},
	{"gather what has yet to pass", GIB(1), NULL, scattered, alloc_gathering, "path_gather", true},
	{"gather what another stream has done with", GIB(1), NULL, another_streams, alloc_on_the_other, "path_gather",
     true},
	{"lay a part of a hole anew", GIB(1), NULL, a_hole_beside_free_memory, alloc_beside, "path_refill", true},
	{"climb the ladder", MIB(128), NULL, nearly_full, alloc_last, "num_alloc_retries", true},
	{"climb the ladder in vain", MIB(128), NULL, nearly_full, alloc_too_much, "num_ooms", false},
	{"allocate with a long queue of events", GIB(1), "event_bytes:0", a_long_queue, alloc_small,
     "driver_calls.event_query", false},
	{"a tile of its own", GIB(1), NULL, one_of_each, alloc_dedicated, "path_dedicated", true},
	{"a kept tile of another stream", GIB(1), NULL, a_kept_tile, alloc_dedicated_of_another, "path_dedicated", true},
	{"a tile of its own on a full device", MIB(128), NULL, full_of_kept_tiles, alloc_dedicated_last, "rung_trim", true},
	{"packed memory on a device full of kept tiles", MIB(128), NULL, full_of_kept_tiles, alloc_last, "rung_dedicated",
     true},
	{"export, free, end the export", GIB(1), NULL, held_exportable, export_it, "exported_bytes.peak", true},
	{"export tiles, free, end the exports", GIB(1), "tile_size:2MiB,tile_size_max:2MiB", a_packed_block, export_tiles,
     "exported_bytes.peak", true},
	{"import tiles and free", GIB(1), "tile_size:2MiB,tile_size_max:2MiB", tiles_exported, import_tiles_and_free,
     "imported_bytes.peak", true},
	{"trim with freed imported tiles", GIB(1), "tile_size:2MiB,tile_size_max:2MiB", freed_imported_tiles, trim_all,
     "driver_calls.unmap", true},
	{"enable a peer", GIB(1), NULL, used_up, enable_peer, "driver_calls.set_access", true},
	{"allocate where it was", GIB(1), NULL, passed_on_another_stream, alloc_where_it_was, "driver_calls.event_query",
     false},
	{"grow in place", GIB(1), NULL, one_of_each, grow_it, "path_grow", true},
	{"grow in place by gathering", GIB(1), "slack_per_mille:0", scattered_and_last, grow_it, "path_gather", true},
	{"import and free", GIB(1), NULL, held_and_exported, import_and_free, "imported_bytes.peak", true},
	{"trim with a freed import", GIB(1), NULL, freed_import, trim_all, "driver_calls.unmap", true},
	{"close with a freed import", GIB(1), NULL, freed_import, close_heap, NULL, true},
	{"allocate of a new pool", GIB(1), NULL, one_of_each, alloc_of_a_new_pool, NULL, false},
	{"a diverted allocation", GIB(1), NULL, a_pool, alloc_diverted, NULL, false},
	{"an allocation in a capture", GIB(1), "event_bytes:0", a_pool_in_use, alloc_captured,
     "driver_calls.event_record", false},
	{"the end of a pool", GIB(1), NULL, a_pool, end_pool, NULL, false},
	{"the end of a pinned pool", GIB(1), NULL, a_pinned_pool, end_pool, "driver_calls.context_record", false},
	{"restore a checkpoint", GIB(1), NULL, a_checkpoint, restore, NULL, false},
	{"free a block", GIB(1), NULL, held_block, free_it, NULL, false},
	{"free a slot", GIB(1), NULL, held_slot, free_it, NULL, false},
	{"free a block, two streams", GIB(1), "event_bytes:0", held_block_beside_another_stream, free_it,
     "driver_calls.event_record", false},
	{"free a slot, two streams", GIB(1), NULL, held_slot_beside_another_stream, free_it, NULL, false},
	{"free a block on another stream", GIB(1), "event_bytes:0", held_block_beside_another_stream, free_on_the_other,
     "driver_calls.event_record", false},
	{"free a slot on another stream", GIB(1), NULL, held_slot_beside_another_stream, free_on_the_other, "pending.peak",
     false},
	{"free a block after an event", GIB(1), NULL, held_block_with_event, free_after_it, "pending.peak", false},
	{"free a slot after a completed event", GIB(1), NULL, held_slot_with_completed_event, free_after_it,
     "driver_calls.event_destroy", false},
	{"trim", GIB(1), NULL, used_up, trim_all, "num_device_free", false},
	{"trim with notices", GIB(1), NULL, used_up_with_notices, trim_all, "num_device_free", false},
	{"poll past a threshold", GIB(1), "trim_threshold:1MiB", used_up, poll_heap, "bytes_decayed", false},
	{"allocate once", GIB(1), "no_cache:on", one_of_each, alloc_large, "path_dedicated", false},
	{"allocate before a guard", GIB(1), "guard:on", one_of_each, alloc_large, "path_dedicated", true},
	{"wait for memory that serves once", MIB(64), "unmap_on_free:on", freed_in_use, alloc_most, "waits_of_host", true},
	{"query, limit, statistics, check", GIB(1), NULL, one_of_each, look, NULL, false},
	{"close", GIB(1), NULL, used_up, close_heap, NULL, false},
};

const size_t scenario_count = LENGTH(scenarios);

/* ---- judging ----------------------------------------------------------------------------------------- */

void stage_open(struct stage *g, const struct scenario *s, bool classic)
{
	static char conf[200];
	*g = (struct stage){.conf = conf};
	snprintf(conf, sizeof conf, "%s%s", classic ? "vmm:off," : "", s->conf ? s->conf : "");
	g->rig = rig_machine((sim_config){.devices = 2, .capacity = s->capacity, .seed = 11});
	g->a = rig_stream(&g->rig);
	g->b = rig_stream(&g->rig);
	if (!s->prepare)
		return;
	rig_open_heap(&g->rig, conf);
	s->prepare(g);
}

static void expect_held(struct stage *g, uint64_t count)
{
	struct accounts a = accounts_read(g->rig.heap);
	assert_int_equal(a.allocations[0] + a.allocations[1], count);
	assert_true(accounts_balance(&a));
	assert_int_equal(a.idle, 0);
}

/* Small and large requests on both streams; the large ones as far as the device has room. */
static void use_heap(struct stage *g, uint64_t capacity)
{
	const size_t sizes[] = {100, KIB(20), KIB(100), capacity >= GIB(1) ? MIB(40) : MIB(1)};
	for (size_t i = 0; i < 2 * LENGTH(sizes); i++) {
		trz_stream stream = i % 2 ? g->a : g->b;
		void *p = take(g, sizes[i / 2], stream);
		assert_ok(sim_verify(g->rig.s, g->rig.c, stream, (trz_addr)p, sizes[i / 2], sizes[i / 2]));
		rig_free(&g->rig, p);
	}
}

static void give_everything_back(struct stage *g)
{
	for (size_t i = 0; i < g->count; i++)
		rig_free(&g->rig, g->held[i]);
	rig_free(&g->rig, g->imported);
	rig_sync(&g->rig);
	if (g->event)
		assert_ok(g->rig.d->event_destroy(g->rig.d->self, g->rig.c, g->event));
	assert_ok(trz_trim(g->rig.heap, 0, NULL));
	rig_check(&g->rig);
	assert_int_equal(rig_stat(&g->rig, "zombie_bytes.current"), 0);
	assert_int_equal(rig_stat(&g->rig, "reserved_bytes.all.current"), 0);
	assert_int_equal(sim_device_used(g->rig.s, 0), 0);
}

void stage_judge(struct stage *g, const struct scenario *s, trz_status status)
{
	if (status != TRZ_OK)
		assert_true(*trz_last_error());
	if (!g->rig.heap) { /* it was not opened, or it has been closed */
		if (s->prepare && sim_leaks(g->rig.s, NULL, 0) == 0)
			assert_ok(sim_device_sync(g->rig.s, 0));
		sim_close(g->rig.s);
		return;
	}
	if (g->frees ? status != TRZ_OK : status == TRZ_OK && g->p)
		g->held[g->count++] = g->p;
	rig_check(&g->rig);
	expect_held(g, g->count);
	use_heap(g, s->capacity);
	rig_check(&g->rig);
	expect_held(g, g->count);
	give_everything_back(g);
	rig_close(&g->rig);
}
