/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that others reach: peers, on and off; exports of dedicated memory and of packed tiles; imports, with notices
 * and with uses.
 */
#include <unistd.h>

#include "scenario.h"

#define SMALL_TILES "tile_size:2MiB,tile_size_max:2MiB"

/* ---- peers --------------------------------------------------------------------------------------------- */

static bool peer_reaches(struct stage *g, const void *p)
{
	struct sim_place place;
	assert_true(sim_place_at(g->rig.s, (trz_addr)p, &place));
	return place.access >> 1 & 1;
}

static void a_peer(struct stage *g)
{
	stage_hold(g, 700, g->a);
	stage_hold(g, MIB(20), g->a);
	assert_ok(trz_enable_peer(g->rig.heap, 1, true));
}

static void the_peer_reaches_it(struct stage *g)
{
	assert_true(peer_reaches(g, g->p));
	assert_true(peer_reaches(g, g->held[0]));
}

static void scattered_beside_a_peer(struct stage *g)
{
	stage_scatter_and_wait(g);
	assert_ok(trz_enable_peer(g->rig.heap, 1, true));
}

static void aliased_without_a_peer(struct stage *g)
{
	stage_scatter_and_wait(g);
	stage_hold(g, MIB(100), g->a);
}

static trz_status alloc_large(struct stage *g)
{
	return stage_alloc(g, MIB(33), g->a);
}

static trz_status alloc_100(struct stage *g)
{
	return stage_alloc(g, MIB(100), g->a);
}

static trz_status alloc_dedicated(struct stage *g)
{
	return stage_alloc_dedicated(g, MIB(33), g->a);
}

static trz_status enable_and_alloc(struct stage *g)
{
	trz_status status = trz_enable_peer(g->rig.heap, 1, true);
	return status == TRZ_OK ? alloc_large(g) : status;
}

static trz_status disable_and_alloc(struct stage *g)
{
	trz_status status = trz_enable_peer(g->rig.heap, 1, false);
	return status == TRZ_OK ? alloc_100(g) : status;
}

static void the_peer_reaches_the_old(struct stage *g)
{
	bool reached = true;
	for (uint64_t at = 0; at < MIB(100); at += MIB(2))
		reached &= peer_reaches(g, (const char *)g->p + at);
	assert_false(reached);
	assert_true(peer_reaches(g, g->held[0]));
}

/* ---- exports ------------------------------------------------------------------------------------------- */

static void *exportable(struct stage *g)
{
	trz_alloc_params params = {
		.struct_size = sizeof params, .size = MIB(4), .stream = g->a, .flags = TRZ_ALLOC_SHARE_FD};
	void *p;
	assert_ok(trz_alloc_with(g->rig.heap, &params, &p));
	return p;
}

static int shared_fd;

/* Freed while another process has it, and that process is done. */
static void exported_and_freed(struct stage *g)
{
	stage_hold(g, 700, g->b);
	g->was = exportable(g);
	assert_ok(trz_export(g->rig.heap, g->was, TRZ_ALLOC_SHARE_FD, &shared_fd));
	close(shared_fd);
	rig_free(&g->rig, g->was);
	rig_sync(&g->rig);
	assert_ok(trz_poll(g->rig.heap));
	assert_true(rig_stat(&g->rig, "pending_bytes.current") > 0);
}

static trz_status end_export_and_trim(struct stage *g)
{
	trz_status status = trz_export_end(g->rig.heap, g->was);
	return status == TRZ_OK || status == TRZ_ERROR_NOT_FOUND ? trz_trim(g->rig.heap, 0, NULL) : status;
}

static trz_status trim_and_end_export(struct stage *g)
{
	trz_status status = trz_trim(g->rig.heap, 0, NULL);
	assert_true(rig_stat(&g->rig, "exported_bytes.current") > 0);
	assert_ok(trz_export_end(g->rig.heap, g->was));
	return status;
}

static trz_status close_heap(struct stage *g)
{
	trz_heap *heap = g->rig.heap;
	g->rig.heap = NULL;
	return trz_close(heap);
}

/* Some free tiles are pinned, and do not move. */
static void scattered_and_exported(struct stage *g)
{
	trz_exported_tile tile;
	for (int i = 0; i < 20; i++)
		stage_hold(g, MIB(4), g->a);
	assert_ok(trz_export_tile(g->rig.heap, g->held[3], TRZ_ALLOC_SHARE_FD, NULL, &tile));
	g->was = tile.base;
	stage_perforate(g);
	rig_sync(&g->rig);
}

static trz_status gather_and_end(struct stage *g)
{
	trz_status status = stage_alloc(g, MIB(30), g->a);
	assert_ok(trz_export_end(g->rig.heap, g->was));
	return status;
}

/* ---- imports ------------------------------------------------------------------------------------------- */

/* Other heap's dedicated memory, whose descriptor stays good as long as it is there. */
static void exported_with_notices(struct stage *g)
{
	void *p = exportable(g);
	stage_keep(g, p, 0);
	assert_ok(trz_export(g->rig.heap, p, TRZ_ALLOC_SHARE_FD, &shared_fd));
	assert_ok(trz_export_end(g->rig.heap, p));
	assert_ok(stage_listen(g));
	g->proof = g->told.bytes;
}

static void *import_it(struct stage *g, trz_status *status)
{
	void *p = g;
	*status = trz_import(g->rig.heap, TRZ_ALLOC_SHARE_FD, &shared_fd, MIB(4), g->a, &p);
	close(shared_fd);
	if (*status != TRZ_OK)
		assert_null(p);
	return p;
}

/* Used on another stream, freed, and unmapped once that has passed. */
static trz_status import_use_and_free(struct stage *g)
{
	trz_status status;
	void *p = import_it(g, &status);
	if (status != TRZ_OK)
		return status;
	g->imported = p;
	status = trz_record_stream(g->rig.heap, p, g->b);
	if (status == TRZ_OK && (status = trz_free(g->rig.heap, p)) == TRZ_OK)
		g->imported = NULL;
	return status == TRZ_OK ? trz_poll(g->rig.heap) : status;
}

static void an_import_with_notices(struct stage *g)
{
	trz_status status;
	exported_with_notices(g);
	void *p = import_it(g, &status);
	assert_ok(status);
	assert_int_equal(g->told.bytes, g->proof + MIB(4));
	rig_free(&g->rig, p);
	rig_sync(&g->rig);
}

static void told_that_it_has_gone(struct stage *g)
{
	assert_int_equal(g->told.bytes, g->proof);
}

/* An import of two tiles, of which the program has no second. */
static trz_status refuse_second(void *user, size_t offset, void *shareable, size_t *size)
{
	(void)user;
	*(int *)shareable = shared_fd;
	*size = MIB(4);
	return offset ? TRZ_ERROR_NOT_FOUND : TRZ_OK;
}

static trz_status import_half(struct stage *g)
{
	void *p = g;
	trz_status status = trz_import_tiles(g->rig.heap, TRZ_ALLOC_SHARE_FD, MIB(8), refuse_second, g, g->a, &p);
	close(shared_fd);
	assert_null(p);
	return status;
}

/* The driver refuses to map it at another size. */
static trz_status import_at_a_wrong_size(struct stage *g)
{
	void *p = g;
	trz_status status = trz_import(g->rig.heap, TRZ_ALLOC_SHARE_FD, &shared_fd, MIB(6), g->a, &p);
	close(shared_fd);
	assert_null(p);
	return status;
}

static void nothing_is_imported(struct stage *g)
{
	assert_int_equal(rig_stat(&g->rig, "imported_bytes.current"), 0);
}

/* A peer reaches an import, whichever comes first. */
static void an_import_and_no_peer(struct stage *g)
{
	trz_status status;
	exported_with_notices(g);
	g->imported = import_it(g, &status);
	assert_ok(status);
}

static trz_status enable_peer(struct stage *g)
{
	return trz_enable_peer(g->rig.heap, 1, true);
}

static void the_peer_reaches_the_import(struct stage *g)
{
	assert_true(peer_reaches(g, g->imported));
}

static void exported_beside_a_peer(struct stage *g)
{
	exported_with_notices(g);
	assert_ok(trz_enable_peer(g->rig.heap, 1, true));
}

/* ---- the list ------------------------------------------------------------------------------------------ */

static const struct scenario list[] = {
	{.name = "enable a peer and extend", .prepare = aliased_without_a_peer, .run = enable_and_alloc,
	 .shows = "driver_calls.set_access", .proof = the_peer_reaches_it, .vmm_only = true},
	{.name = "extend for a peer", .prepare = a_peer, .run = alloc_large, .shows = "path_extend",
	 .proof = the_peer_reaches_it, .vmm_only = true},
	{.name = "gather for a peer", .prepare = scattered_beside_a_peer, .run = alloc_100, .shows = "path_gather",
	 .proof = the_peer_reaches_it, .vmm_only = true},
	{.name = "a tile of its own for a peer", .prepare = a_peer, .run = alloc_dedicated, .shows = "path_dedicated",
	 .proof = the_peer_reaches_it, .vmm_only = true},
	{.name = "disable a peer and gather", .prepare = scattered_beside_a_peer, .run = disable_and_alloc,
	 .shows = "path_gather", .proof = the_peer_reaches_the_old, .vmm_only = true},
	{.name = "end the export of freed memory and trim", .prepare = exported_and_freed, .run = end_export_and_trim,
	 .shows = "num_device_free", .vmm_only = true},
	{.name = "trim beside an export", .prepare = exported_and_freed, .run = trim_and_end_export, .vmm_only = true},
	{.name = "close with an export", .prepare = exported_and_freed, .run = close_heap, .vmm_only = true},
	{.name = "gather around exported tiles", .conf = SMALL_TILES ",slack_per_mille:0",
	 .prepare = scattered_and_exported, .run = gather_and_end, .shows = "path_gather", .vmm_only = true},
	{.name = "import, use elsewhere, free", .prepare = exported_with_notices, .run = import_use_and_free,
	 .shows = "imported_bytes.peak", .vmm_only = true},
	{.name = "trim a freed import with notices", .prepare = an_import_with_notices, .run = stage_trim,
	 .shows = "driver_calls.unmap", .proof = told_that_it_has_gone, .vmm_only = true},
	{.name = "close a freed import with notices", .prepare = an_import_with_notices, .run = close_heap,
	 .vmm_only = true},
	{.name = "an import that ends half-way", .prepare = exported_with_notices, .run = import_half,
	 .shows = "driver_calls.import_handle", .proof = nothing_is_imported, .expected = TRZ_ERROR_NOT_FOUND,
	 .vmm_only = true},
	{.name = "an import of a wrong size", .prepare = exported_with_notices, .run = import_at_a_wrong_size,
	 .shows = "driver_calls.import_handle", .proof = nothing_is_imported, .expected = TRZ_ERROR_INVALID_ARGUMENT,
	 .vmm_only = true},
	{.name = "enable a peer beside an import", .prepare = an_import_and_no_peer, .run = enable_peer,
	 .shows = "driver_calls.set_access", .proof = the_peer_reaches_the_import, .vmm_only = true},
	{.name = "import for a peer", .prepare = exported_beside_a_peer, .run = import_use_and_free,
	 .shows = "imported_bytes.peak", .vmm_only = true},
};

const struct scenarios scenarios_of_sharing = {list, LENGTH(list)};
