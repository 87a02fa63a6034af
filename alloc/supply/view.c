/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking a view as it is, and returning its tiles.
 */
#include "supply/view.h"

#include <assert.h>

#include "heap/carve.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "supply/reclaim.h"

enum {
	TAKE_REST = 8,               /* a demand takes a view that is longer by at most such a part of the demand */
	RETURN_AT_ONCE = 64,         /* the most tiles that return in one hold of the heap lock */
	RETURN_STEPS = 4             /* steps a tile: out of an index, cut, into another, with two neighbours */
};

struct block *view_take(trz_heap *h, const struct demand *d)
{
	HEAP_GROWTH_LOCKED(h);
	heap_lock(h);
	struct block *b = d->kind == LARGE ? fit_find(&d->lane->fit[VIEWS], d->bytes) : NULL;
	if (b && b->size <= d->bytes + d->bytes / TAKE_REST && node_pool_reserve(&h->blocks, 2)) {
		b = heap_cut_block_locked(h, b, b->address, d->bytes);
		level_add(&h->counters.idle_bytes, b->size);
	} else {
		b = NULL;
	}
	heap_unlock(h);
	return b;
}

/* ---- returning ---- */

/* A return in progress. */
struct homing {
	trz_heap *heap;
	const struct lane *lane;     /* the lane that asks for memory */
	bool ordered;                /* its stream's free memory returns although it has yet to pass */
};

static bool may_return(const struct homing *r, const struct block *b)
{
	if (b->state != BLOCK_FREE)
		return false;
	return heap_block_passed(b) || (r->ordered && b->home->stream == r->lane->stream);
}

/* The hole that a tile has left at its seat. */
static struct block *hole_at_locked(trz_heap *h, const struct window *w, trz_addr seat)
{
	HEAP_LOCKED(h);
	struct block *b = pagemap_block_before(&h->pagemap, seat);
	if (!b || b->window != w || b->address > seat)
		b = w->blocks.first;
	while (block_end(b) <= seat)
		b = b->next;
	assert(b->state == BLOCK_HOLE);
	return b;
}

/* Makes a tile owned at its seat again, as free memory of the stream that it was taken from. If it has not passed, it
 * is ordered for the asking stream alone, and becomes that stream's. */
static void seat_tile_locked(const struct homing *r, struct tile *tile, const struct block *from)
{
	trz_heap *h = r->heap;
	HEAP_LOCKED(h);
	struct place *view = tile->places, *seat = tile->seat;
	bool passed = heap_block_passed(from);
	bool alive = !atomic_load_explicit(&tile->seat_of->retired, memory_order_relaxed);
	struct lane *home = passed && alive ? &tile->seat_of->lane : from->home;
	account_mapping_locked(h, HISTORY_FLIP, view->address, seat->address, tile->size, 0);
	tile_leave(view, from->home->stream, from->sequence);
	tile_flip(seat);
	struct block *hole = hole_at_locked(h, seat->window, seat->address);
	struct block *b = heap_cut_hole_locked(h, hole, seat->address, tile->size);
	b->home = home;
	heap_free_block_locked(h, b, passed ? 0 : home->stream->tickets.newest);
}

/* Whether a tile visits: it has a seat elsewhere, and nothing holds it here. */
static bool visits(const struct tile *tile)
{
	return tile->seat && tile->seat != tile->places && !tile->exports;
}

/* Cuts the next visiting tiles out of a free block and returns them to their seats; how many. The block is gone
 * afterwards, or shorter. */
static size_t return_some_locked(const struct homing *r, struct block *b)
{
	trz_heap *h = r->heap;
	HEAP_LOCKED(h);
	struct cutting cut = {0};
	struct lane *home = b->home;
	uint64_t sequence = b->sequence;
	trz_addr cursor = b->address, end = block_end(b);
	size_t n = 0;
	if (!node_pool_reserve(&h->blocks, 4 * RETURN_AT_ONCE) || !reclaim_lists(h, RETURN_AT_ONCE))
		return 0;
	for (const struct place *p; n < RETURN_AT_ONCE && (p = window_next_owned(b->window, &cursor, end));)
		if (visits(p->tile))
			h->lay_list[n++] = p->tile;
	for (size_t i = 0; i < n; i++)
		reclaim_cut_locked(h, &cut, &(struct candidate){.tile = h->lay_list[i], .block = b,
		                                                .address = h->lay_list[i]->places->address,
		                                                .size = h->lay_list[i]->size});
	reclaim_cut_rest_locked(h, &cut);
	const struct block from = {.home = home, .sequence = sequence};
	for (size_t i = 0; i < n; i++)
		seat_tile_locked(r, h->lay_list[i], &from);
	for (size_t i = 0; i < cut.count; i++)
		heap_make_hole_locked(h, h->moved[i]);
	counter_add(&h->counters.tiles_returned, n);
	return n;
}

/* The first block of a window that ends behind an address. */
static struct block *block_after(const struct window *w, trz_addr address)
{
	struct block *b = w->blocks.first;
	while (b && block_end(b) <= address)
		b = b->next;
	return b;
}

/* Returns a window's tiles. The lock is given up now and then, so the walk goes by addresses. */
static void return_window_locked(const struct homing *r, const struct window *w)
{
	trz_heap *h = r->heap;
	HEAP_LOCKED(h);
	trz_addr reached = w->base;
	unsigned steps = 0;
	for (struct block *b; (b = block_after(w, reached));) {
		trz_addr end = block_end(b);
		size_t n = may_return(r, b) ? return_some_locked(r, b) : 0;
		if (n < RETURN_AT_ONCE)
			reached = end;
		heap_rest(h, &steps, 1 + (unsigned)n * RETURN_STEPS);
	}
}

static struct window *view_from(struct window *w)
{
	while (w && !w->view)
		w = w->next;
	return w;
}

#define FOR_VIEWS(h, w) \
	for (struct window *w = view_from((h)->windows[LARGE]); w; w = view_from(w->next))

/* Whether free views have yet to pass. */
static bool is_awaited(trz_heap *h)
{
	bool awaited = false;
	heap_lock(h);
	FOR_VIEWS(h, w)
		for (const struct block *b = w->blocks.first; b; b = b->next)
			awaited |= b->state == BLOCK_FREE && !heap_block_passed(b);
	heap_unlock(h);
	return awaited;
}

void view_return(trz_heap *h, const struct lane *l)
{
	HEAP_GROWTH_LOCKED(h);
	bool captured = atomic_load_explicit(&l->stream->capture, memory_order_relaxed) != 0;
	struct homing r = {.heap = h, .lane = l, .ordered = !captured};
	if (!view_from(h->windows[LARGE]))
		return;
	if (is_awaited(h))
		heap_poll(h);
	heap_lock(h);
	FOR_VIEWS(h, w)
		return_window_locked(&r, w);
	heap_unlock(h);
}
