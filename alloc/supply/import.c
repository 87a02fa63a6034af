/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and ending imports. An import that could not be made, or ended, counts as one that callers have given back.
 */
#include "supply/import.h"

#include <inttypes.h>

#include "error.h"
#include "heap/carve.h"
#include "observe/notice.h"

/* Lists an import: from here on other threads see it, and it is counted. */
static void list(trz_heap *h, struct window *w)
{
	for (const struct tile *tile = w->foreign; tile; tile = tile->next)
		level_add(&h->counters.imported_bytes, tile->size);
	w->next = h->imports;
	h->imports = w;
}

/* ---- the end ---- */

/* Gives back an import's tiles. On an error, those that were given back stay so. */
static trz_status give_back(trz_heap *h, struct window *w)
{
	while (w->foreign) {
		struct tile *tile = w->foreign;
		trz_status status = window_unmap_tile(&h->tiles, tile);
		if (status == TRZ_OK)
			status = driver_release(&h->driver, tile->handle);
		if (status != TRZ_OK)
			return status;
		level_sub(&h->counters.imported_bytes, tile->size);
		tile->handle = 0;
		w->foreign = tile->next;
		tile_forget(&h->tiles, tile);
	}
	return TRZ_OK;
}

/* An import's addresses stay out of use like those of any old window (law L10). */
static void retire(trz_heap *h, struct window *w)
{
	struct block *b = w->blocks.first;
	if (!b && window_close(&h->meta, &h->driver, w) == TRZ_OK)
		return;
	w->next = h->windows[LARGE];
	h->windows[LARGE] = w;
	heap_lock(h);
	if (b) {
		h->imports_freed--;
		heap_make_hole_locked(h, b);
	}
	heap_unlock(h);
}

static bool has_ended(trz_heap *h, const struct window *w)
{
	heap_lock(h);
	bool ended = !w->blocks.first || w->blocks.first->state == BLOCK_ENDED;
	heap_unlock(h);
	return ended;
}

static bool is_pinned(const struct window *w)
{
	const struct tile *tile = w->foreign;
	while (tile && !tile->pins)
		tile = tile->next;
	return tile != NULL;
}

/* The next import to be ended, with `all` whatever its state; NULL: none. */
static struct window *next_ended(trz_heap *h, bool all)
{
	struct window *w = h->imports;
	while (w && (w->leaving || !(all || (has_ended(h, w) && !is_pinned(w)))))
		w = w->next;
	return w;
}

static void unlist(trz_heap *h, const struct window *w)
{
	struct window **link = &h->imports;
	while (*link != w)
		link = &(*link)->next;
	*link = w->next;
}

/* Ends imports. The growth lock is given back while the program is told of each; no other thread touches a window that
 * is marked as leaving. */
static trz_status sweep(trz_heap *h, bool all)
{
	trz_status worst = TRZ_OK;
	for (struct window *w; (w = next_ended(h, all));) {
		w->leaving = true;
		for (struct tile *tile = w->foreign; tile; tile = tile->next)
			notice_leaving(h, w, tile);
		trz_status status = give_back(h, w);
		if (status == TRZ_OK) {
			unlist(h, w);
			retire(h, w);
			continue;
		}
		worst = status;
		if (all)
			continue;  /* the heap is closing: no second try */
		w->leaving = false;
		for (struct tile *tile = w->foreign; tile; tile = tile->next)
			notice_back(h, w, tile);
		return worst;
	}
	return worst;
}

void import_sweep(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	sweep(h, false);
}

trz_status import_end_all(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	heap_lock(h);
	for (struct window *w = h->imports; w; w = w->next)
		h->imports_freed += w->blocks.first && w->blocks.first->state == BLOCK_LIVE;
	heap_unlock(h);
	return sweep(h, true);
}

/* ---- the making ---- */

static trz_status refused(trz_heap *h, trz_status status, uint64_t size)
{
	return trz_fail(status, "device %d cannot map the imported memory as %" PRIu64 " bytes: %s; check that it is "
	                "memory of this machine, that its process still holds it, and that its size there is exactly this",
	                h->driver.device, size, trz_driver_last_error());
}

/* Makes a block over what has been laid, already given back. */
static void append_ended_locked(trz_heap *h, struct window *w, struct block *node, struct lane *home)
{
	HEAP_LOCKED(h);
	heap_append_block_locked(node, w, home, w->top - w->base)->state = BLOCK_ENDED;
	h->imports_freed++;
}

static trz_status abandon(trz_heap *h, struct window *w, trz_status status)
{
	list(h, w);
	import_sweep(h);
	return status;
}

/* Adds the next tile, which is the last of the list. */
static trz_status add_tile(trz_heap *h, struct window *w, unsigned kind, const void *shareable, uint64_t size,
                           struct tile **last)
{
	trz_handle handle;
	if (!tiles_reserve(&h->tiles, 1, 1))
		return meta_exhausted();
	trz_status status = driver_import_handle(&h->driver, kind, shareable, &handle);
	if (status != TRZ_OK)
		return refused(h, status, w->size);
	struct tile *tile = tile_new(&h->tiles, handle, size, LARGE);
	*(*last ? &(*last)->next : &w->foreign) = tile;
	*last = tile;
	return TRZ_OK;
}

static trz_status wrong_part(trz_heap *h, uint64_t part, uint64_t missing)
{
	return trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
	                "import: got a tile of %" PRIu64 " bytes where %" PRIu64 " are missing: it must be a tile's size "
	                "on the exporting side, a multiple of %" PRIu64, part, missing, h->driver.granule);
}

static trz_status none_given(trz_status status, uint64_t offset)
{
	return trz_fail(status, "import: the callback returned %s in place of the tile at byte %" PRIu64 ": %s",
	                trz_status_name(status), offset, trz_status_text(status));
}

/* Asks the program for each tile, with no lock held: no other thread knows the window yet. */
static trz_status add_tiles(trz_heap *h, struct window *w, unsigned kind, struct import_source from, size_t *count)
{
	struct tile *last = NULL;
	for (uint64_t done = 0; done < w->size; ++*count) {
		uint64_t shareable[TRZ_SHAREABLE_BYTES / sizeof(uint64_t)];
		size_t size = 0;
		heap_unlock_growth(h);
		int cancel = uncancelled_begin();
		trz_status status = from.next(from.user, done, shareable, &size);
		uncancelled_end(cancel);
		heap_relock_growth(h);
		if (status != TRZ_OK)
			return none_given(status, done);
		if (size == 0 || size % h->driver.granule || size > w->size - done)
			return wrong_part(h, size, w->size - done);
		status = add_tile(h, w, kind, shareable, size, &last);
		if (status != TRZ_OK)
			return status;
		done += size;
	}
	return TRZ_OK;
}

/* Maps them side by side. */
static trz_status lay(trz_heap *h, struct window *w, size_t count)
{
	struct tile **tiles = meta_alloc(&h->meta, count * sizeof(struct tile *));
	size_t n = 0;
	if (!tiles || !tiles_reserve(&h->tiles, 0, count)) {
		meta_free(&h->meta, tiles);
		return meta_exhausted();
	}
	for (struct tile *tile = w->foreign; tile; tile = tile->next)
		tiles[n++] = tile;
	trz_status status = window_lay(w, w->top, &h->tiles, tiles, n);
	meta_free(&h->meta, tiles);
	if (status == TRZ_ERROR_NOT_SUPPORTED)
		status = TRZ_ERROR_INVALID_ARGUMENT;  /* so the driver answers to a wrong size */
	return status == TRZ_OK ? TRZ_OK : refused(h, status, w->size);
}

trz_status import_open(trz_heap *h, unsigned kind, struct import_source from, uint64_t size, struct stream *s,
                       trz_addr *out)
{
	HEAP_GROWTH_LOCKED(h);
	struct window *w;
	size_t count = 0;
	trz_status status = window_open(&h->meta, &h->driver, LARGE, size, size, &w);
	if (status != TRZ_OK)
		return status;
	w->dedicated = DEDICATED;
	status = add_tiles(h, w, kind, from, &count);
	struct block *node = status == TRZ_OK ? heap_take_node(h, w->top, size) : NULL;
	if (!node)
		return abandon(h, w, status == TRZ_OK ? meta_exhausted() : status);
	status = lay(h, w, count);
	heap_lock(h);
	if (status == TRZ_OK && !pagemap_reserve(&h->pagemap, 1))
		status = meta_exhausted();
	if (status == TRZ_OK) {
		struct block *b = heap_append_block_locked(node, w, &s->lane, size);
		b->state = BLOCK_LIVE;
		b->requested = size;
		b->uses = NULL;
		pagemap_set_block(&h->pagemap, b);
	} else if (w->top == w->base) {
		node_pool_give(&h->blocks, node);
	} else {
		append_ended_locked(h, w, node, &s->lane);
	}
	heap_unlock(h);
	if (status != TRZ_OK)
		return abandon(h, w, status);
	list(h, w);
	notice_mapped(h, w->blocks.first);  /* no other thread knows its address yet */
	*out = w->base;
	return TRZ_OK;
}
