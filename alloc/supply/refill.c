/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a gap, clearing it, and laying it.
 */
#include "supply/refill.h"

#include <assert.h>

#include "heap/carve.h"
#include "observe/notice.h"

enum { CLEARED_MOST = 256 };    /* the most mappings that a gap may have */

/* ---- finding ---- */

struct search {
	trz_heap *heap;
	const struct demand *demand;
	struct block *hole;            /* the one being looked at */
	struct block *best_hole;       /* NULL: none */
	struct gap *best;
	uint64_t below;                /* a better gap needs fewer bytes than this */
};

/* Whether memory in this hole could be the demand's. Holes in views are not refilled: views come and go as a whole, and
 * are laid only at their windows' ends. */
static bool serves(const struct block *hole, const struct demand *d)
{
	const struct window *w = hole->window;
	return w->kind == d->kind && !w->view && !w->pool && !w->dedicated && !w->foreign;
}

static struct block *own_free(const struct search *f, struct block *b)
{
	return b && b->state == BLOCK_FREE && b->home == f->demand->lane ? b : NULL;
}

static uint64_t free_bytes(const struct block *b)
{
	return b ? b->size : 0;
}

/* Whether a mapping in a hole can be unmapped: no work uses it any more, no tile returns to it, and the program is not
 * being told of it. */
static bool may_go(const struct place *p)
{
	const struct tile *tile = p->tile;
	bool stays = tile->zombie || tile->pins || tile->seat == p || p->leaving;
	return !stays && (!p->user || ticket_passed(&p->user->tickets, p->sequence));
}

static bool is_clearable(const struct window *w, trz_addr begin, trz_addr end)
{
	unsigned mapped = 0;
	for (trz_addr a = begin; a < end; a = window_next(w, a)) {
		const struct place *p = window_at(w, a);
		if (p && (++mapped > CLEARED_MOST || !may_go(p)))
			return false;
	}
	return true;
}

/* The beginning, or the end, of the mapping that an address of the hole lies in. */
static trz_addr whole_down(const struct search *f, trz_addr address)
{
	const struct place *p = window_at(f->hole->window, address);
	return p ? p->address : address;
}

static trz_addr whole_up(const struct search *f, trz_addr address)
{
	return address < block_end(f->hole) ? window_next(f->hole->window, address - 1) : address;
}

/* Whether the hole has room for so many bytes, fewer than the best gap needs. */
static bool is_better(const struct search *f, uint64_t need)
{
	return need <= f->hole->size && need < f->below;
}

/* Considers as much of the hole as the demand needs, in whole mappings, with room for the last tile's excess. */
static void consider(struct search *f, uint64_t need, bool downwards, struct block *before, struct block *after)
{
	const struct block *hole = f->hole;
	uint64_t size = min_u64(hole->size, need + f->heap->config.tile_size);
	trz_addr begin = downwards ? whole_down(f, block_end(hole) - size) : hole->address;
	trz_addr end = downwards ? block_end(hole) : whole_up(f, begin + size);
	if (!is_clearable(hole->window, begin, end))
		return;
	*f->best = (struct gap){.window = hole->window, .begin = begin, .end = end, .need = need, .downwards = downwards,
	                        .before = before, .after = after};
	f->best_hole = f->hole;
	f->below = need;
}

/* The bytes to lay beside a free block. */
static uint64_t need_beside(const struct search *f, const struct block *b)
{
	return align_up(f->demand->bytes - b->size, f->heap->driver.granule);
}

static void look_at(struct search *f, struct block *hole)
{
	uint64_t bytes = f->demand->bytes;
	struct block *before = own_free(f, hole->prev), *after = own_free(f, hole->next);
	if (max_u64(free_bytes(before), free_bytes(after)) >= bytes)
		return;  /* freed since the request looked for it: the next search finds it */
	f->hole = hole;
	if (before && is_better(f, need_beside(f, before)))
		consider(f, need_beside(f, before), false, before, NULL);
	if (after && is_better(f, need_beside(f, after)))
		consider(f, need_beside(f, after), true, NULL, after);
	if (before && after && before->size + hole->size + after->size >= bytes && is_better(f, hole->size))
		consider(f, hole->size, false, before, after);
}

/* ---- taking ---- */

static void take_beside_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	if (!b)
		return;
	fit_remove(heap_index_of(b), b);
	b->state = BLOCK_BUSY;
	level_add(&h->counters.idle_bytes, b->size);
}

static bool is_empty(const struct gap *gap)
{
	trz_addr a = gap->begin;
	while (a < gap->end && !window_at(gap->window, a))
		a += GRANULE;
	return a == gap->end;
}

static bool take_locked(struct search *f)
{
	trz_heap *h = f->heap;
	HEAP_LOCKED(h);
	struct gap *gap = f->best;
	if (!node_pool_reserve(&h->blocks, 3))
		return false;
	gap->block = heap_cut_hole_locked(h, f->best_hole, gap->begin, gap->end - gap->begin);
	gap->block->home = f->demand->lane;
	gap->block->sequence = 0;
	gap->spare = node_pool_take(&h->blocks);
	take_beside_locked(h, gap->before);
	take_beside_locked(h, gap->after);
	return true;
}

bool refill_find_locked(trz_heap *h, const struct demand *d, uint64_t below, struct gap *gap)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	struct search f = {.heap = h, .demand = d, .best = gap, .below = below};
	if (!h->config.refill || d->view || d->lane->pool)
		return false;
	uint64_t beside = 2 * counter_get(&d->lane->fit[d->kind].largest);
	for (struct block *hole = h->holes; hole; hole = hole->hole_next)
		if (hole->size + beside >= d->bytes && serves(hole, d))
			look_at(&f, hole);
	return f.best_hole && (!is_empty(gap) || take_locked(&f));
}

/* ---- clearing ---- */

static size_t list_mappings(const struct gap *gap, struct place **list)
{
	size_t n = 0;
	for (trz_addr a = gap->begin; a < gap->end; a = window_next(gap->window, a)) {
		struct place *p = window_at(gap->window, a);
		if (p)
			list[n++] = p;
	}
	assert(n <= CLEARED_MOST);
	return n;
}

void refill_clear(trz_heap *h, const struct gap *gap)
{
	HEAP_GROWTH_LOCKED(h);
	assert(!gap->block);
	struct place *list[CLEARED_MOST] = {NULL};
	size_t n = list_mappings(gap, list), refused = 0;
	notice_aliases_leaving(h, list, n);
	for (size_t i = 0; i < n; i++)
		if (window_unmap_place(&h->tiles, list[i]) != TRZ_OK)
			list[refused++] = list[i];
	notice_aliases_back(h, list, refused);
}

/* ---- laying ---- */

trz_status refill_lay(trz_heap *h, const struct gap *gap, struct tile **tiles, size_t count, uint64_t bytes)
{
	HEAP_GROWTH_LOCKED(h);
	assert(gap->block && bytes >= gap->need && bytes <= gap->end - gap->begin);
	return window_lay(gap->window, gap->downwards ? gap->end - bytes : gap->begin, &h->tiles, tiles, count);
}

/* Makes a hole of what has not been laid, on one side of the block; returns the block without it. */
static struct block *give_rest_locked(trz_heap *h, struct gap *gap, uint64_t bytes)
{
	HEAP_LOCKED(h);
	struct block *b = gap->block;
	uint64_t rest = b->size - bytes;
	node_pool_give(&h->blocks, gap->spare);
	if (!rest)
		return b;
	struct block *behind = block_split(&h->blocks, b, gap->downwards ? rest : bytes);
	heap_make_hole_locked(h, gap->downwards ? b : behind);
	return gap->downwards ? behind : b;
}

struct block *refill_join_locked(trz_heap *h, struct gap *gap, uint64_t bytes, uint64_t sequence)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	struct block *b = give_rest_locked(h, gap, bytes);
	b->sequence = sequence;
	if (gap->after)
		heap_join_busy_locked(h, b);
	if (gap->before) {
		b = gap->before;
		heap_join_busy_locked(h, b);
	}
	gap->block = NULL;
	return b;
}

static void give_beside_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	if (!b)
		return;
	level_sub(&h->counters.idle_bytes, b->size);
	heap_free_block_locked(h, b, b->sequence);
}

void refill_give_locked(trz_heap *h, struct gap *gap)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	if (!gap->block)
		return;
	node_pool_give(&h->blocks, gap->spare);
	heap_make_hole_locked(h, gap->block);
	give_beside_locked(h, gap->before);
	give_beside_locked(h, gap->after);
	gap->block = NULL;
}
