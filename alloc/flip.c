/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a run and flipping its tiles.
 *
 *      own free   |  place  place  place  |   own free        one hole: three places whose tiles are free elsewhere
 *   ------a-------[-----------------------]-------b------
 *
 * The request is laid against a or b, or over both, whichever moves the fewest bytes.
 */
#include "flip.h"

#include <assert.h>

#include "reclaim.h"

/* A run of places in one hole, and what of it is to be taken. */
struct run {
	struct block *hole;
	struct block *before, *after;  /* the lane's free neighbours; NULL: the run does not touch them */
	trz_addr begin, end;           /* the places to be flipped: whole tiles */
	uint64_t moved;                /* bytes of them */
	bool unpassed;
};

struct search {
	trz_heap *heap;
	struct lane *lane;
	uint64_t bytes;
	size_t candidates;
	uint64_t movable;              /* bytes of them */
	uint64_t run;                  /* number of the run being scanned: a tile may have several aliases in one */
	struct run best;               /* hole NULL: none */
};

static struct block *own_free(const struct search *f, struct block *b)
{
	return b && b->state == BLOCK_FREE && b->home == f->lane ? b : NULL;
}

/* The candidate whose alias lies at an address of a hole; NULL: the tile there is not free, or none is. Tiles that
 * are owned inside the run's own free neighbours must stay there. */
static const struct candidate *flippable(const struct search *f, const struct block *hole, trz_addr address)
{
	const struct place *p = window_at(hole->window, address);
	const struct candidate *c = p && p->accessible ? reclaim_candidate(f->heap, p->tile, f->candidates) : NULL;
	if (!c)
		return NULL;
	trz_addr owned = c->tile->places->address;
	const struct block *before = own_free(f, hole->prev), *after = own_free(f, hole->next);
	bool beside = (before && owned >= before->address && owned < block_end(before)) ||
	              (after && owned >= after->address && owned < block_end(after));
	return beside || p->tile->seen_in == f->run ? NULL : c;
}

/* The next run to be scanned. Numbers never repeat in a heap. */
static void next_run(struct search *f)
{
	f->run = ++f->heap->flip_runs;
}

static uint64_t free_bytes(const struct block *b)
{
	return b ? b->size : 0;
}

/* Takes the run into account if it is large enough and moves less than the best one. */
static void consider(struct search *f, struct run r)
{
	uint64_t size = r.end - r.begin + free_bytes(r.before) + free_bytes(r.after);
	r.moved = r.end - r.begin;
	if (size >= f->bytes && (!f->best.hole || r.moved < f->best.moved))
		f->best = r;
}

/* The places of a run are walked from its beginning: each step is a possible end of what is taken, laid against the
 * free block before it. The whole run may also join what is behind it. */
static trz_addr scan_run(struct search *f, struct block *hole, trz_addr begin)
{
	struct run r = {.hole = hole, .begin = begin, .end = begin};
	if (begin == hole->address)
		r.before = own_free(f, hole->prev);
	const struct candidate *c;
	next_run(f);
	while (r.end < block_end(hole) && (c = flippable(f, hole, r.end))) {
		r.end += c->tile->size;
		c->tile->seen_in = f->run;
		r.unpassed |= !c->passed;
		if (r.end == block_end(hole))
			r.after = own_free(f, hole->next);
		consider(f, r);
	}
	return r.end;
}

/* The places at the end of a hole, laid against the free block behind it. */
static void scan_end(struct search *f, struct block *hole)
{
	struct run r = {.hole = hole, .begin = block_end(hole), .end = block_end(hole), .after = own_free(f, hole->next)};
	const struct candidate *c;
	if (!r.after)
		return;
	next_run(f);
	while (r.begin > hole->address && (c = flippable(f, hole, r.begin - 1))) {
		r.begin -= c->tile->size;
		c->tile->seen_in = f->run;
		r.unpassed |= !c->passed;
		if (r.begin == hole->address)
			return;  /* the whole hole: scan_run has seen it */
		consider(f, r);
	}
}

/* Whether a hole can be of use at all. Most cannot, and what tells so without a look at their tiles, or even at their
 * neighbours, saves most of a search. */
static bool is_promising(const struct search *f, const struct block *hole)
{
	uint64_t most = min_u64(hole->size, f->movable), beside = counter_get(&f->lane->fit[hole->kind].largest);
	return most + 2 * beside >= f->bytes &&
	       most + free_bytes(own_free(f, hole->prev)) + free_bytes(own_free(f, hole->next)) >= f->bytes;
}

static void scan_hole(struct search *f, struct block *hole)
{
	trz_addr address = hole->address;
	while (address < block_end(hole)) {
		trz_addr end = scan_run(f, hole, address);
		address = end > address ? end : window_next(hole->window, address);  /* nothing to flip here */
	}
	scan_end(f, hole);
}

/* Moves the tiles' ownership to the target, which is busy; the old places become holes, once all are cut, since
 * holes join and their blocks then go away. */
static void move_tiles_locked(trz_heap *h, const struct run *r, struct block *target, size_t n)
{
	size_t count = 0;
	for (trz_addr a = r->begin; a < r->end;) {
		struct tile *tile = window_at(target->window, a)->tile;
		h->moved[count++] = reclaim_cut_locked(h, reclaim_candidate(h, tile, n));
		a += tile->size;
	}
	trz_addr a = r->begin;
	for (size_t i = 0; i < count; i++) {
		struct place *p = window_at(target->window, a);
		history_note(&h->history, HISTORY_FLIP, .address = a, .from = h->moved[i]->address, .size = p->tile->size,
		             .pool = pool_id(target->window->pool));
		tile_leave(p->tile->places, h->moved[i]->home->stream, h->moved[i]->sequence);
		tile_flip(p);
		heap_make_hole_locked(h, h->moved[i]);
		a += p->tile->size;
	}
}

static struct block *take_run_locked(struct search *f)
{
	trz_heap *h = f->heap;
	const struct run *r = &f->best;
	struct block *b = heap_cut_hole_locked(h, r->hole, r->begin, r->end - r->begin);
	b->home = f->lane;
	b->sequence = f->lane->stream->tickets.newest;  /* at most: what passed is of no harm to wait for */
	move_tiles_locked(h, r, b, f->candidates);
	level_add(&h->counters.idle_bytes, b->size);
	counter_add(&h->counters.bytes_flipped, b->size);
	counter_add(&h->counters.path_flip, 1);
	h->gathered_bytes += b->size;
	if (r->after && own_free(f, b->next)) {
		level_add(&h->counters.idle_bytes, b->next->size);
		heap_join_busy_locked(h, b);
	}
	if (r->before && own_free(f, b->prev)) {
		struct block *before = b->prev;
		fit_remove(&f->lane->fit[before->kind], before);
		before->state = BLOCK_BUSY;
		level_add(&h->counters.idle_bytes, before->size);
		heap_join_busy_locked(h, before);
		b = before;
	}
	return b;
}

struct block *flip_locked(trz_heap *h, struct lane *l, enum kind kind, uint64_t bytes, size_t n, bool *unpassed)
{
	struct search f = {.heap = h, .lane = l, .bytes = bytes, .candidates = n};
	for (size_t i = 0; i < n; i++)
		f.movable += h->candidates[i].tile->size;
	for (struct block *hole = h->holes; hole && n; hole = hole->hole_next)
		if (hole->kind == kind && is_promising(&f, hole) && hole->window->pool == l->pool && !hole->window->apart)
			scan_hole(&f, hole);
	*unpassed = f.best.hole && f.best.unpassed;
	if (!f.best.hole || *unpassed)
		return NULL;
	size_t tiles = (f.best.end - f.best.begin) / GRANULE;
	bool room = node_pool_reserve(&h->blocks, 2 * tiles + 2) && reclaim_lists(h, tiles);
	return room ? take_run_locked(&f) : NULL;
}
