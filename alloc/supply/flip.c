/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a run and flipping its tiles.
 *
 *      own free   |  place  place  place  |   own free        one hole: three places whose tiles are free elsewhere
 *   ------a-------[-----------------------]-------b------
 *
 * The request is laid against a or b, or over both, whichever moves the fewest bytes.
 */
#include "supply/flip.h"

#include <assert.h>

#include "heap/carve.h"
#include "observe/account.h"
#include "supply/policy.h"
#include "supply/reclaim.h"

/* A run of places in one hole, and what of it is to be taken. */
struct run {
	struct block *hole;
	struct block *before, *after;  /* the lane's free neighbours; NULL: the run does not touch them */
	trz_addr begin, end;           /* the places to be flipped: whole tiles */
};

struct search {
	trz_heap *heap;
	const struct demand *demand;
	size_t candidates;
	uint64_t movable;              /* bytes of them */
	struct block *hole;            /* being scanned, */
	struct block *before, *after;  /* and the lane's free blocks beside it, or NULL */
	uint64_t run;                  /* number of the run being scanned: a tile may have several aliases in one */
	struct run best;               /* hole NULL: none */
};

static struct block *own_free(const struct search *f, struct block *b)
{
	return b && b->state == BLOCK_FREE && b->home == f->demand->lane ? b : NULL;
}

/* The place at an address of the hole, if its tile can be owned there; it is then part of the run. NULL: the tile is
 * not free, or there is none. Tiles of the free blocks beside the hole must stay where they are. */
static const struct place *flippable(struct search *f, trz_addr address)
{
	const struct place *p = window_at(f->hole->window, address);
	const struct candidate *c = p && p->accessible ? reclaim_candidate(f->heap, p->tile, f->candidates) : NULL;
	if (!c || c->block == f->before || c->block == f->after || p->tile->seen_in == f->run)
		return NULL;
	p->tile->seen_in = f->run;
	return p;
}

/* Begins a run. Numbers of runs never repeat in a heap. */
static void next_run(struct search *f)
{
	f->run = ++f->heap->flip_runs;
}

/* How far the places from an address on can be flipped together, up to `limit`. */
static trz_addr flippable_up(struct search *f, trz_addr address, trz_addr limit)
{
	const struct place *p;
	next_run(f);
	while (address < limit && (p = flippable(f, address)))
		address = place_end(p);
	return address;
}

/* How far downwards the places from an address on can be flipped together, down to `limit`. */
static trz_addr flippable_down(struct search *f, trz_addr address, trz_addr limit)
{
	const struct place *p;
	next_run(f);
	while (address > limit && (p = flippable(f, address - 1)))
		address = p->address;
	return address;
}

static uint64_t free_bytes(const struct block *b)
{
	return b ? b->size : 0;
}

/* The bytes to flip beside this many free bytes. */
static uint64_t missing(const struct search *f, uint64_t beside)
{
	return f->demand->bytes - min_u64(beside, f->demand->bytes - 1);
}

/* Whether this is less than the best run moves. */
static bool is_less(const struct search *f, uint64_t moved)
{
	return !f->best.hole || moved < f->best.end - f->best.begin;
}

static void consider(struct search *f, trz_addr begin, trz_addr end, struct block *before, struct block *after)
{
	uint64_t moved = end - begin;
	if (moved > 0 && moved + free_bytes(before) + free_bytes(after) >= f->demand->bytes && is_less(f, moved))
		f->best = (struct run){.hole = f->hole, .before = before, .after = after, .begin = begin, .end = end};
}

/* Where the places that hold so many bytes of the hole, from an address on, end; at most the hole's end. */
static trz_addr end_of(const struct search *f, trz_addr begin, uint64_t bytes)
{
	trz_addr end = block_end(f->hole);
	return end - begin > bytes ? window_next(f->hole->window, begin + bytes - 1) : end;
}

/* Considers the hole's first places, behind the free block before it; if they are the whole hole, also with the one
 * behind it. */
static void scan_front(struct search *f)
{
	trz_addr begin = f->hole->address, limit = end_of(f, begin, missing(f, f->before->size));
	trz_addr end = flippable_up(f, begin, limit);
	consider(f, begin, end, f->before, end == block_end(f->hole) ? f->after : NULL);
}

/* Considers the hole's last places, before the free block behind it. */
static void scan_back(struct search *f)
{
	trz_addr end = block_end(f->hole), limit = end - min_u64(f->hole->size, missing(f, f->after->size));
	consider(f, flippable_down(f, end, limit), end, NULL, f->after);
}

/* Considers places anywhere in the hole. It looks at each stretch that would do from its end: most holes are full of
 * tiles that are not free, and one such tile rules out every run across it. */
static void scan_inside(struct search *f)
{
	trz_addr begin = f->hole->address;
	while (block_end(f->hole) - begin >= f->demand->bytes) {
		trz_addr end = end_of(f, begin, f->demand->bytes), reached = flippable_down(f, end, begin);
		if (reached == begin) {
			consider(f, begin, end, NULL, NULL);
			return;
		}
		begin = reached;
	}
}

/* Turns to the next hole. false: it cannot beat the best run. */
static bool turn_to(struct search *f, struct block *hole)
{
	uint64_t most = min_u64(hole->size, f->movable);
	f->hole = hole;
	f->before = own_free(f, hole->prev);
	f->after = own_free(f, hole->next);
	uint64_t beside = free_bytes(f->before) + free_bytes(f->after);
	return most + beside >= f->demand->bytes && is_less(f, missing(f, beside));
}

static void scan_hole(struct search *f)
{
	if (f->before)
		scan_front(f);
	if (f->after)
		scan_back(f);
	if (is_less(f, f->demand->bytes))
		scan_inside(f);
}

/* Moves the tiles' ownership to the target, which is busy; the old places become holes, once all are cut, since
 * holes join and their blocks then go away. */
static void move_tiles_locked(trz_heap *h, const struct run *r, struct block *target, size_t n)
{
	HEAP_LOCKED(h);
	struct cutting cut = {0};
	for (trz_addr a = r->begin; a < r->end; a = window_next(target->window, a))
		reclaim_cut_locked(h, &cut, reclaim_candidate(h, window_at(target->window, a)->tile, n));
	reclaim_cut_rest_locked(h, &cut);
	trz_addr a = r->begin;
	for (size_t i = 0; i < cut.count; i++) {
		struct block *b = h->moved[i];
		for (trz_addr from = b->address; from < block_end(b); a = window_next(target->window, a)) {
			struct place *p = window_at(target->window, a);
			account_mapping_locked(h, HISTORY_FLIP, from, a, place_size(p), pool_id(target->window->pool));
			if (p->tile->seat == p->tile->places)
				p->tile->seat_of = b->home->stream;
			tile_leave(p->tile->places, b->home->stream, b->sequence);
			tile_flip(p);
			if (!target->window->view)
				p->tile->seat = p;
			from += place_size(p);
		}
		heap_make_hole_locked(h, b);
	}
	assert(a == r->end);
}

static struct block *take_run_locked(struct search *f)
{
	trz_heap *h = f->heap;
	const struct run *r = &f->best;
	struct block *b = heap_cut_hole_locked(h, r->hole, r->begin, r->end - r->begin);
	b->home = f->demand->lane;
	b->sequence = f->demand->lane->stream->tickets.newest;  /* tiles that have passed may wait as well: no harm */
	move_tiles_locked(h, r, b, f->candidates);
	level_add(&h->counters.idle_bytes, b->size);
	counter_add(&h->counters.bytes_flipped, b->size);
	counter_add(&h->counters.path_flip, 1);
	if (f->demand->view)
		policy_view_flipped(h, b->size);
	if (r->after && own_free(f, b->next)) {
		level_add(&h->counters.idle_bytes, b->next->size);
		heap_join_busy_locked(h, b);
	}
	if (r->before && own_free(f, b->prev)) {
		struct block *before = b->prev;
		fit_remove(heap_index_of(before), before);
		before->state = BLOCK_BUSY;
		level_add(&h->counters.idle_bytes, before->size);
		heap_join_busy_locked(h, before);
		b = before;
	}
	assert(b->state == BLOCK_BUSY && b->size >= f->demand->bytes);
	return b;
}

/* Whether memory in this hole could be the demand's. */
static bool serves(const struct block *hole, const struct demand *d)
{
	const struct window *w = hole->window;
	return w->kind == d->kind && w->view == d->view && w->pool == d->lane->pool && !w->dedicated;
}

/* Considers all runs. Many holes are too small; to tell without a look at their windows, neighbours and tiles saves
 * much of a search. */
static void search(struct search *f)
{
	const struct demand *d = f->demand;
	uint64_t beside = 2 * counter_get(&d->lane->fit[d->view ? VIEWS : d->kind].largest);
	uint64_t least = d->bytes - min_u64(beside, d->bytes - 1);
	if (f->movable < least)
		return;
	for (struct block *hole = f->heap->holes; hole; hole = hole->hole_next)
		if (hole->size >= least && serves(hole, d) && turn_to(f, hole))
			scan_hole(f);
}

struct block *flip_locked(trz_heap *h, const struct demand *d, size_t n)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	assert(d->bytes > 0 && n <= h->candidates_capacity);
	struct search f = {.heap = h, .demand = d, .candidates = n};
	for (size_t i = 0; i < n; i++)
		f.movable += h->candidates[i].size;
	search(&f);
	if (!f.best.hole)
		return NULL;
	size_t tiles = (f.best.end - f.best.begin) / GRANULE;
	bool room = node_pool_reserve(&h->blocks, 2 * tiles + 2) && reclaim_lists(h, tiles);
	return room ? take_run_locked(&f) : NULL;
}
