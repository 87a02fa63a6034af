/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquiring and undoing new memory.
 */
#include "supply/extent.h"

#include <assert.h>

#include "heap/carve.h"
#include "observe/account.h"
#include "supply/reclaim.h"

/* ---- the window ---- */

/* The larger a range, the longer the driver takes to reserve it. The allocation that needs a new window, however small,
 * pays for all of it. */
#define WINDOW_MOST GIB(32)  /* docs/decisions/0011-bounded-growth.md */

/* How many times smaller a private pool's window is, and one for small memory. */
enum { POOL_WINDOWS = 8, SMALL_WINDOWS = 8 };

/* Private pools can be many, and are rarely large. Where a debugging option lets no address be used twice, each
 * allocation uses some up, so such windows are larger. */
static uint64_t window_size(const trz_heap *h, const struct lane *l, enum kind kind)
{
	uint64_t device = align_up(max_u64(h->driver.info.total_bytes, GRANULE), h->driver.granule);
	uint64_t size = h->config.window_factor * device;
	if (!(l->dedicated & DEDICATED_ONCE))
		size = min_u64(size, WINDOW_MOST);
	if (l->pool)
		size /= POOL_WINDOWS;
	return align_up(kind == SMALL ? size / SMALL_WINDOWS : size, h->driver.granule);
}

static trz_status open_window(trz_heap *h, struct lane *l, unsigned part, uint64_t least, struct window **out)
{
	enum kind kind = part == VIEWS ? LARGE : (enum kind)part;
	struct window *w;
	reclaim_windows(h);
	trz_status status = window_open(&h->meta, &h->driver, kind, max_u64(window_size(h, l, kind), least), least, &w);
	if (status != TRZ_OK)
		return status;
	w->pool = l->pool;
	w->dedicated = l->dedicated;
	w->view = part == VIEWS;
	w->grows = true;
	if (l->window[part])
		l->window[part]->grows = false;
	w->next = h->windows[kind];
	h->windows[kind] = l->window[part] = *out = w;
	return TRZ_OK;
}

trz_status extent_window(trz_heap *h, struct lane *l, unsigned part, uint64_t least, struct window **out)
{
	HEAP_GROWTH_LOCKED(h);
	*out = l->window[part];
	return *out && window_room(*out) >= least ? TRZ_OK : open_window(h, l, part, least, out);
}

/* ---- tiles ---- */

void extent_count(trz_heap *h, enum kind kind, uint64_t bytes, size_t tiles)
{
	HEAP_GROWTH_LOCKED(h);
	flow_add(&h->counters.reserved_bytes, kind, bytes);
	flow_add(&h->counters.segment, kind, tiles);
}

void extent_drop(trz_heap *h, struct tile *tile)
{
	HEAP_GROWTH_LOCKED(h);
	trz_status status;
	if (!reclaim_destroy_tile(h, tile, &status))
		reclaim_make_zombie(h, tile);
}

/* A handle that is taken only to learn whether it can be had. */
static trz_status create_probe(trz_heap *h, uint64_t size, struct tile **out)
{
	if (!tiles_reserve(&h->tiles, 1, 0))
		return meta_exhausted();
	trz_status status = tile_create(&h->tiles, size, LARGE, h->tiles.export_kinds, out);
	if (status == TRZ_OK)
		extent_count(h, LARGE, size, 1);
	return status;
}

trz_status extent_ask_for(trz_heap *h, uint64_t bytes)
{
	HEAP_GROWTH_LOCKED(h);
	struct tile *probe;
	uint64_t free_bytes = heap_ask_device(h, NULL);
	if (free_bytes >= bytes)
		return TRZ_OK;
	trz_status status = create_probe(h, bytes, &probe);
	if (status != TRZ_OK)
		return status;
	extent_drop(h, probe);
	uint64_t left = max_u64(free_bytes + h->withheld, bytes) - bytes;
	h->withheld = min_u64(h->withheld, left);
	return TRZ_OK;
}

enum { PROBES_MOST = 32 };  /* so many are more than it takes: others have freed memory meanwhile */

/* Takes what the device gives still, by halves, until it refuses a granule. What it calls free then, it withholds: the
 * lesser of its answers before and after, since others take and free memory at any time. */
static void probe_by_halves(trz_heap *h, uint64_t refused)
{
	uint64_t granule = h->driver.granule, before, after, total, size = refused;
	struct tile *probes = NULL, *probe;
	trz_status status = TRZ_OK;
	for (int i = 0; i < PROBES_MOST; i++) {
		size = max_u64(align_down(size / 2, granule), granule);
		status = driver_mem_info(&h->driver, &before, &total);
		if (status == TRZ_OK)
			status = create_probe(h, size, &probe);
		if (status != TRZ_OK && (status != TRZ_ERROR_OUT_OF_MEMORY || size == granule))
			break;
		if (status != TRZ_OK)
			continue;
		probe->next = probes;
		probes = probe;
	}
	if (status == TRZ_ERROR_OUT_OF_MEMORY && driver_mem_info(&h->driver, &after, &total) == TRZ_OK) {
		uint64_t withheld = min_u64(before, after);
		h->withheld = withheld >= granule ? withheld : 0;
	}
	while ((probe = probes)) {
		probes = probe->next;
		extent_drop(h, probe);
	}
}

/* Freeing a plain allocation may wait for the device, so none is made only to learn: at least all from one granule
 * below the refused size on is withheld. */
static void learn_from_refusal(trz_heap *h, uint64_t refused)
{
	uint64_t free_bytes, total;
	if (driver_mem_info(&h->driver, &free_bytes, &total) == TRZ_OK && free_bytes >= refused)
		h->withheld = max_u64(h->withheld, min_u64(free_bytes, free_bytes - refused + h->driver.granule));
}

void extent_learn_withheld(trz_heap *h, uint64_t refused)
{
	HEAP_GROWTH_LOCKED(h);
	if (h->driver.vmm)
		probe_by_halves(h, refused);
	else
		learn_from_refusal(h, refused);
	heap_ask_device(h, NULL);
}

trz_status extent_lay(trz_heap *h, struct window *w, struct lane *l, struct tile **tiles, size_t count,
                      struct block **node)
{
	HEAP_GROWTH_LOCKED(h);
	trz_addr top = w->top;
	trz_status status = window_lay(w, top, &h->tiles, tiles, count);
	if (status == TRZ_OK || w->top == top)
		return status;
	heap_lock(h);
	heap_make_hole_locked(h, heap_append_block_locked(*node, w, l, w->top - top));
	heap_unlock(h);
	*node = NULL;
	return status;
}

/* ---- one tile ---- */

static unsigned export_kinds(const trz_heap *h, const struct lane *l)
{
	return h->tiles.export_kinds | (l->dedicated & DEDICATED_FD ? TRZ_EXPORT_FD : 0) |
	       (l->dedicated & DEDICATED_FABRIC ? TRZ_EXPORT_FABRIC : 0);
}

static trz_status create(trz_heap *h, const struct lane *l, uint64_t bytes, struct tile **out)
{
	if (!heap_limit_allows(h, bytes))
		return TRZ_ERROR_LIMIT;
	if (!tiles_reserve(&h->tiles, 1, 1))
		return meta_exhausted();
	trz_status status = tile_create(&h->tiles, bytes, LARGE, export_kinds(h, l), out);
	if (status != TRZ_OK)
		return status;
	extent_count(h, LARGE, bytes, 1);
	(*out)->dedicated = true;
	level_add(&h->counters.dedicated_bytes, bytes);
	return TRZ_OK;
}

/* Creates the tile and lays it, or neither. */
static trz_status create_and_lay(trz_heap *h, struct window *w, struct lane *l, uint64_t bytes, struct block **node)
{
	struct tile *tile;
	trz_status status = create(h, l, bytes, &tile);
	if (status != TRZ_OK)
		return status;
	status = extent_lay(h, w, l, &tile, 1, node);
	if (status != TRZ_OK)
		extent_drop(h, tile);
	return status;
}

/* ---- classic segments ---- */

trz_status extent_classic(trz_heap *h, struct lane *l, enum kind kind, uint64_t bytes, struct block **out)
{
	HEAP_GROWTH_LOCKED(h);
	struct window *w;
	if (!heap_limit_allows(h, bytes))
		return TRZ_ERROR_LIMIT;
	trz_status status = window_open_classic(&h->meta, &h->tiles, kind, bytes, &w);
	if (status != TRZ_OK)
		return status;
	struct block *node = heap_take_node(h, w->base, w->size);
	if (!node) {
		window_close_classic(&h->meta, &h->tiles, w);
		return meta_exhausted();
	}
	extent_count(h, kind, bytes, 1);
	level_add(&h->counters.classic_bytes, bytes);
	h->tile_least[kind] = min_u64(h->tile_least[kind], w->size);
	w->pool = l->pool;
	w->dedicated = l->dedicated;
	w->next = h->windows[kind];
	h->windows[kind] = w;
	heap_lock(h);
	*out = heap_append_block_locked(node, w, l, w->size);
	account_mapping_locked(h, HISTORY_SEGMENT_ALLOC, 0, w->base, w->size, pool_id(w->pool));
	level_add(&h->counters.idle_bytes, bytes);  /* and what alignment loses */
	heap_unlock(h);
	return TRZ_OK;
}

/* ---- dedicated memory ---- */

static void skip_locked(trz_heap *h, struct window *w, struct lane *l, uint64_t gap, struct block *node)
{
	HEAP_LOCKED(h);
	w->top += gap;
	heap_make_hole_locked(h, heap_append_block_locked(node, w, l, gap));
}

trz_status extent_make(trz_heap *h, struct lane *l, uint64_t bytes, uint64_t gap, struct block **out)
{
	HEAP_GROWTH_LOCKED(h);
	assert(l->dedicated && bytes % h->driver.granule == 0 && gap % h->driver.granule == 0);
	struct window *w;
	if (!h->driver.vmm)
		return extent_classic(h, l, LARGE, extent_segment(bytes), out);
	trz_status status = extent_window(h, l, LARGE, bytes + gap, &w);
	if (status != TRZ_OK)
		return status;
	struct block *node = heap_take_node(h, w->top, bytes);
	struct block *behind = gap ? heap_take_node(h, w->top + bytes, gap) : NULL;
	status = node && (behind || !gap) ? create_and_lay(h, w, l, bytes, &node) : meta_exhausted();
	if (status != TRZ_OK) {
		heap_give_node(h, node);
		heap_give_node(h, behind);
		return status;
	}
	heap_lock(h);
	*out = heap_append_block_locked(node, w, l, bytes);
	(*out)->sequence = 0;
	level_add(&h->counters.idle_bytes, bytes);
	account_mapping_locked(h, HISTORY_MAP, 0, (*out)->address, bytes, pool_id(l->pool));
	if (gap)
		skip_locked(h, w, l, gap, behind);
	heap_unlock(h);
	return TRZ_OK;
}
