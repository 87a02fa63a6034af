/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing a window.
 *
 * A request that no free block serves needs `bytes` minus the free tail of the window. That much is created where the
 * policy allows (policy.c). Else wholly free tiles are gathered first; what is then missing is covered by the smallest
 * larger tile that is free, else created. Gathered tiles are mapped a second time; their old mappings stay, since
 * unmapping would have to wait for the device.
 *
 * Holes are what gathering leaves behind. A request that does not fit is first laid over holes whose tiles are
 * free again (flip.c): that needs no driver call at all. Else it is laid where it needs the fewest bytes: in a part of
 * a hole beside free memory (refill.c), or at the window's end.
 */
#include "supply/extend.h"

#include <assert.h>
#include <stdlib.h>

#include "error.h"
#include "heap/carve.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "supply/extent.h"
#include "supply/flip.h"
#include "supply/policy.h"
#include "supply/reclaim.h"
#include "supply/refill.h"

/* One growth in progress. */
struct growth {
	trz_heap *heap;
	const struct demand *demand;
	struct window *window;       /* memory is laid at its end, unless a gap is taken */
	bool refills;                /* may be laid in a gap */
	struct gap gap;
	struct block *node;          /* reserved for the block of what is laid at the end */
	struct block *tail;          /* the window's free tail, busy; NULL: there is none that the demand can use */
	uint64_t need;               /* bytes to lay behind it, or in the gap */
	size_t gathered, count;      /* lay_list[0 .. gathered) moves, the rest up to `count` is new */
	struct cutting cut;          /* moved[0 .. cut.count) are the blocks that they leave, in the same order */
	uint64_t gathered_bytes, new_bytes;
};

enum { VIEW_NEW = 8 };          /* at most such a part of a view is new memory */

/* ---- the window and its tail ---- */

/* The lane's free block at the window's end; NULL: none. */
static struct block *free_end_locked(const struct window *w, const struct lane *l)
{
	struct block *last = w->blocks.last;
	return last && last->state == BLOCK_FREE && last->home == l ? last : NULL;
}

/* The free memory at the window's end that the request can use; NULL: none. */
static struct block *own_tail_locked(const struct growth *g)
{
	HEAP_LOCKED(g->heap);
	const struct demand *d = g->demand;
	struct block *end = d->view ? NULL : free_end_locked(g->window, d->lane);
	return end && end->size < d->bytes ? end : NULL;
}

/* The bytes to lay behind the tail. */
static uint64_t need_at_end(const struct growth *g, const struct block *tail)
{
	return align_up(g->demand->bytes - (tail ? tail->size : 0), g->heap->driver.granule);
}

/* Takes the free memory at the window's end, and works out what is to be laid behind it. */
static void take_tail_locked(struct growth *g)
{
	HEAP_LOCKED(g->heap);
	trz_heap *h = g->heap;
	struct block *tail = own_tail_locked(g);
	g->need = need_at_end(g, tail);
	if (!tail)
		return;
	fit_remove(heap_index_of(tail), tail);
	tail->state = BLOCK_BUSY;
	level_add(&h->counters.idle_bytes, tail->size);
	g->tail = tail;
}

static void give_tail_locked(struct growth *g)
{
	HEAP_LOCKED(g->heap);
	if (!g->tail)
		return;
	level_sub(&g->heap->counters.idle_bytes, g->tail->size);
	heap_free_block_locked(g->heap, g->tail, g->tail->sequence);
	g->tail = NULL;
}

/* How much can be laid in the gap, or at the window's end. */
static uint64_t room_of(const struct growth *g)
{
	return g->gap.block ? g->gap.end - g->gap.begin : window_room(g->window);
}

/* The most by which the last tile can exceed the request. */
static uint64_t last_tile_most(const trz_heap *h, enum kind kind)
{
	return max_u64(policy_tile(h, kind, heap_reserved(h)), h->tile_most);
}

/* How much room a window must have for a request and the last tile's excess. */
static uint64_t room_for(const trz_heap *h, enum kind kind, uint64_t bytes)
{
	return align_up(bytes, h->driver.granule) + last_tile_most(h, kind);
}

static trz_status find_room(struct growth *g)
{
	const struct demand *d = g->demand;
	return extent_window(g->heap, d->lane, d->kind, room_for(g->heap, d->kind, d->bytes), &g->window);
}

/* ---- gathering ---- */

/* Largest first, so that few are mapped; of equals those of the smallest blocks. */
static int by_size(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	return x->found < y->found ? -1 : 1;
}

static void choose_locked(struct growth *g, const struct candidate *c)
{
	HEAP_LOCKED(g->heap);
	reclaim_cut_locked(g->heap, &g->cut, c);
	g->heap->lay_list[g->gathered++] = c->tile;
	g->gathered_bytes += c->size;
}

/* Leaves out the candidates of each block of which gathering would take less than three fifths: the rest would be edges
 * that no whole tile covers, and that join nothing across the hole. Candidates of one block follow each other. Returns
 * how many are left. */
static size_t drop_bad_bargains_locked(trz_heap *h, size_t n)
{
	HEAP_LOCKED(h);
	size_t left = 0;
	for (size_t i = 0, next; i < n; i = next) {
		const struct block *b = h->candidates[i].block;
		uint64_t taken = 0;
		for (next = i; next < n && h->candidates[next].block == b; next++)
			taken += h->candidates[next].size;
		for (size_t k = i; k < next && 5 * taken >= 3 * b->size; k++)
			h->candidates[left++] = h->candidates[k];
	}
	return left;
}

/* Whether a block is part of where the request goes. */
static bool is_target(const struct growth *g, const struct block *b)
{
	return b == g->tail || (g->gap.block && (b == g->gap.before || b == g->gap.after));
}

/* Chooses among the n candidates and cuts them out of their blocks. */
static void choose_candidates_locked(struct growth *g, size_t n)
{
	HEAP_LOCKED(g->heap);
	trz_heap *h = g->heap;
	const struct candidate *larger = NULL;
	uint64_t before = g->gathered_bytes, room = room_of(g);
	if (policy_bargains(h, g->demand))
		n = drop_bad_bargains_locked(h, n);
	if (!n || !node_pool_reserve(&h->blocks, 2 * n) || !reclaim_lists(h, g->gathered + n))
		return;
	if (!g->gap.block && !g->demand->view)
		qsort(h->candidates, n, sizeof *h->candidates, by_size);  /* else those of the smallest blocks come first */
	for (size_t i = 0; i < n; i++) {
		const struct candidate *c = &h->candidates[i];
		if (is_target(g, c->block))
			continue;
		if (g->gathered_bytes + c->size <= g->need)
			choose_locked(g, c);
		else if (!larger || c->size <= larger->size)
			larger = c;
	}
	uint64_t missing = g->need - g->gathered_bytes;
	bool fits = larger && g->gathered_bytes + larger->size <= room;
	if (missing && fits && !policy_creates(h, g->demand, missing, g->need))
		choose_locked(g, larger);
	reclaim_cut_rest_locked(h, &g->cut);
	level_add(&h->counters.idle_bytes, g->gathered_bytes - before);
}

/* Whether the stream is being captured: then only tiles that have passed move, since a graph may be
 * launched on any stream. */
static bool is_captured(const struct growth *g)
{
	return atomic_load_explicit(&g->demand->lane->stream->capture, memory_order_relaxed) != 0;
}

/* Finds candidates of a kind. *poll_helps: a poll could find more of them, or have more pass. */
static size_t find_candidates_locked(const struct growth *g, enum kind kind, bool *poll_helps)
{
	HEAP_LOCKED(g->heap);
	trz_heap *h = g->heap;
	unsigned how = g->demand->effort >= EFFORT_ALL ? FIND_EVERYWHERE : FIND_SPARE;
	size_t n = reclaim_find_locked(h, g->demand->lane, kind, how | (is_captured(g) ? FIND_PASSED : 0), poll_helps);
	*poll_helps |= n == 0 && counter_get(&h->counters.pending.current) > 0;
	return n == SIZE_MAX ? 0 : n;
}

static void gather(struct growth *g, enum kind kind)
{
	trz_heap *h = g->heap;
	bool poll_helps;
	heap_lock(h);
	size_t n = find_candidates_locked(g, kind, &poll_helps);
	if (poll_helps) {
		heap_unlock(h);
		heap_poll(h);
		heap_lock(h);
		n = find_candidates_locked(g, kind, &poll_helps);
	}
	choose_candidates_locked(g, n);
	heap_unlock(h);
}

static void ungather(struct growth *g)
{
	trz_heap *h = g->heap;
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, g->gathered_bytes);
	for (size_t i = 0; i < g->cut.count; i++)
		heap_free_block_locked(h, h->moved[i], h->moved[i]->sequence);
	heap_unlock(h);
	g->gathered = g->count = g->cut.count = 0;
	g->gathered_bytes = 0;
}

/* ---- moving ---- */

/* Takes the place that needs the fewest bytes: a gap, or the window's end. If it is a gap that has to be cleared first,
 * this returns false with `clears`, else it takes the window's end. */
static bool take_place_locked(struct growth *g, bool clears)
{
	HEAP_LOCKED(g->heap);
	bool found = g->refills && refill_find_locked(g->heap, g->demand, need_at_end(g, own_tail_locked(g)), &g->gap);
	if (found && !g->gap.block && clears)
		return false;
	if (g->gap.block)
		g->need = g->gap.need;
	else
		take_tail_locked(g);
	return true;
}

/* Unmaps what is in the gap, then finds a window again, since the growth lock may have been given back. */
static trz_status clear_gap(struct growth *g)
{
	refill_clear(g->heap, &g->gap);
	return find_room(g);
}

/* Takes what the heap's free memory has for the request. Either a flip serves it: *out is its block. Or *out is NULL;
 * the place to lay memory at has been taken, and the tiles to be gathered there. One search of the free tiles serves
 * flip and gather. At most once each, the heap polls, if that could find more, and clears a gap, which changes nothing
 * for the tiles that were found. */
static trz_status flip_or_gather(struct growth *g, struct block **out)
{
	trz_heap *h = g->heap;
	bool asked = false, cleared = false, poll_helps = false;
	unsigned takes = 0;
	size_t n = 0;
	trz_status status = TRZ_OK;
	while (status == TRZ_OK) {
		heap_lock(h);
		if (!cleared || heap_lock_takes(h) != takes + 1)
			n = find_candidates_locked(g, g->demand->kind, &poll_helps);
		struct block *b = cleared ? NULL : flip_locked(h, g->demand, n);
		bool asks = !b && poll_helps && !asked;
		bool taken = !b && !asks && take_place_locked(g, !cleared);
		if (taken && !policy_creates(h, g->demand, g->need, g->need))
			choose_candidates_locked(g, n);
		takes = heap_lock_takes(h);
		heap_unlock(h);
		*out = b;
		if (b || taken)
			return TRZ_OK;
		if (asks)
			heap_poll(h);
		else
			status = clear_gap(g);
		cleared |= !asks;
		asked |= asks;
	}
	return status;
}

/* ---- creating ---- */

/* Adds a tile that is to be laid, without memory yet. */
static bool plan_tile(struct growth *g, uint64_t size)
{
	trz_heap *h = g->heap;
	if (!reclaim_lists(h, g->count + 1) || !tiles_reserve(&h->tiles, 1, 0))
		return false;
	h->lay_list[g->count++] = tile_new(&h->tiles, 0, size, g->demand->kind);
	g->new_bytes += size;
	h->tile_least[g->demand->kind] = min_u64(h->tile_least[g->demand->kind], size);
	h->tile_most = max_u64(h->tile_most, size);
	return true;
}

/* Plans tiles for what is missing. If the device seems tight, asks it again: other users may have given memory back. */
static trz_status plan_missing(struct growth *g)
{
	trz_heap *h = g->heap;
	uint64_t done = g->gathered_bytes, room = room_of(g), reserved = heap_reserved(h);
	if (done < g->need && g->demand->effort != EFFORT_LAST && policy_is_tight(h, g->demand->kind, g->need - done))
		heap_ask_device(h, NULL);
	while (done < g->need) {
		uint64_t size = policy_next_tile(h, g->demand, g->need - done, reserved);
		if (!size)
			return reserved + g->need - done > heap_limit(h) ? TRZ_ERROR_LIMIT : TRZ_ERROR_OUT_OF_MEMORY;
		size = min_u64(size, room - done);  /* the preference may have grown meanwhile */
		if (!plan_tile(g, size))
			return meta_exhausted();
		reserved += size;
		done += size;
	}
	if (policy_is_nearly_full(h, reserved))
		atomic_store_explicit(&h->short_of_memory, true, memory_order_relaxed);
	return TRZ_OK;
}

/* Reserves all host memory that laying and finishing need, so that neither can fail for lack of it. What is planned
 * counts as idle from here on. */
static bool reserve_metadata(struct growth *g)
{
	trz_heap *h = g->heap;
	if (!tiles_reserve(&h->tiles, 0, g->count))
		return false;
	if (!g->gap.block && !(g->node = heap_take_node(h, g->window->top, g->gathered_bytes + g->new_bytes)))
		return false;
	heap_lock(h);
	level_add(&h->counters.idle_bytes, g->new_bytes);
	heap_unlock(h);
	return true;
}

/* Forgets the planned tiles from `first` on, which have no memory; returns their bytes. */
static uint64_t forget_planned(struct growth *g, size_t first)
{
	trz_heap *h = g->heap;
	uint64_t bytes = 0;
	for (size_t i = first; i < g->count; i++) {
		bytes += h->lay_list[i]->size;
		tile_forget(&h->tiles, h->lay_list[i]);
	}
	g->new_bytes -= bytes;
	g->count = first;
	return bytes;
}

/* Whether other lanes have at least `bytes` of large memory free that the lane cannot have, since its stream does not
 * follow their work. The lock is given up now and then. */
static bool is_out_of_order_locked(trz_heap *h, const struct lane *l, uint64_t bytes)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	uint64_t found = 0;
	unsigned steps = 0;
	for (const struct lane *other = h->streams.lanes.first; other && found < bytes; other = other->next) {
		if (other == l || other->pool != l->pool || other->dedicated)
			continue;
		const struct fit *f = &other->fit[LARGE];
		for (const struct block *b = fit_find(f, GRANULE); b && found < bytes;) {
			uint64_t size = b->size;
			trz_addr address = b->address;
			found += stream_follows(l->stream, other->stream, b->sequence) ? 0 : size;
			b = heap_rest(h, &steps, 1) ? fit_from(f, size, address + 1) : fit_next(f, b);
		}
	}
	return found >= bytes;
}

enum { REGRETS = 8 };  /* after so many, a lane lends nothing of its peak */

/* How much of what the lane had at its peak it has no longer. */
static uint64_t lent_locked(const struct lane *l)
{
	uint64_t has = l->held + l->fit[LARGE].bytes;
	return l->held_peak > has ? l->held_peak - has : 0;
}

/* Notes it when a lane that has held as much before has to create memory, because others have what it lent and cannot
 * give it back in time: from now on the lane lends that much less, and soon nothing of its peak. One regret is no
 * reason to keep more than others have. */
static void note_regret(struct growth *g)
{
	trz_heap *h = g->heap;
	struct lane *l = g->demand->lane;
	if (g->demand->kind == SMALL || g->demand->effort == EFFORT_CREATE || !g->new_bytes)
		return;
	heap_lock(h);
	if (l->held + g->demand->bytes <= l->held_peak && is_out_of_order_locked(h, l, g->new_bytes))
		l->kept += max_u64(g->new_bytes, min_u64(l->held_peak / REGRETS, lent_locked(l)));
	heap_unlock(h);
}

/* The driver has refused so many bytes: others may have taken some, or it withholds some. Later growth counts on less.
 * What was created before the refusal is there still. */
static void note_refusal(trz_heap *h, const struct demand *d, uint64_t bytes)
{
	if (d->effort >= EFFORT_ALL)
		extent_learn_withheld(h, bytes);
	else
		heap_ask_device(h, NULL);
}

/* Makes the calls one after the other, since each evicts our data from the caches. */
static trz_status create_planned(struct growth *g)
{
	trz_heap *h = g->heap;
	trz_status status = TRZ_OK;
	size_t i = g->gathered;
	while (i < g->count && (status = tile_fill(&h->tiles, h->lay_list[i], h->tiles.export_kinds)) == TRZ_OK)
		i++;
	size_t created = i - g->gathered;
	uint64_t refused = status == TRZ_ERROR_OUT_OF_MEMORY ? h->lay_list[i]->size : 0;
	if (status != TRZ_OK) {
		uint64_t bytes = forget_planned(g, i);
		heap_lock(h);
		level_sub(&h->counters.idle_bytes, bytes);
		heap_unlock(h);
	}
	extent_count(h, g->demand->kind, g->new_bytes, created);
	note_regret(g);
	if (refused)
		note_refusal(h, g->demand, refused);
	return status;
}

/* Creates what is missing, and reserves all host memory that laying needs. */
static trz_status create_missing(struct growth *g)
{
	g->count = g->gathered;
	trz_status status = plan_missing(g);
	if (status == TRZ_OK && g->demand->effort == EFFORT_LAST)
		status = extent_ask_for(g->heap, g->new_bytes);
	if (status == TRZ_OK && !reserve_metadata(g))
		status = meta_exhausted();
	if (status == TRZ_OK)
		return create_planned(g);
	forget_planned(g, g->gathered);
	return status;
}

/* Gives back the tiles of create_missing, mapped or not. */
static void destroy_created(struct growth *g)
{
	trz_heap *h = g->heap;
	for (size_t i = g->gathered; i < g->count; i++)
		extent_drop(h, h->lay_list[i]);
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, g->new_bytes);
	heap_unlock(h);
	g->new_bytes = 0;
	g->count = g->gathered;
}

/* ---- laying ---- */

/* Notes that a tile has moved away from a place in a free block. */
static void leave_place(struct tile *tile, struct place *from, const struct block *b)
{
	if (tile->seat == from)
		tile->seat_of = b->home->stream;
	tile_leave(from, b->home->stream, b->sequence);
}

/* Makes holes of what the moved tiles have left; a tile's old place is now the second in its list. */
static void leave_places_locked(struct growth *g)
{
	HEAP_LOCKED(g->heap);
	trz_heap *h = g->heap;
	struct tile *const *tile = h->lay_list;
	for (size_t i = 0; i < g->cut.count; i++) {
		struct block *b = h->moved[i];
		for (trz_addr from = b->address; from < block_end(b); from += (*tile++)->size) {
			account_mapping_locked(h, HISTORY_GATHER, from, (*tile)->places->address, (*tile)->size,
			                       pool_id(g->demand->lane->pool));
			leave_place(*tile, (*tile)->places->next, b);
		}
		heap_make_hole_locked(h, b);
	}
}

/* Memory laid at the window's end becomes one busy block with the tail before it. */
static struct block *append_locked(struct growth *g, uint64_t size, uint64_t sequence)
{
	trz_heap *h = g->heap;
	HEAP_LOCKED(h);
	struct block *b = heap_append_block_locked(g->node, g->window, g->demand->lane, size);
	b->sequence = sequence;
	if (g->tail) {
		b = g->tail;
		b->sequence = max_u64(b->sequence, sequence);
		block_absorb_next(&h->blocks, b);
	}
	return b;
}

static counter *path_of(struct growth *g)
{
	struct counters *c = &g->heap->counters;
	return g->gap.block ? &c->path_refill : g->gathered ? &c->path_gather : &c->path_extend;
}

/* The laid memory becomes one busy block with the free memory beside it. */
static struct block *finish_locked(struct growth *g)
{
	HEAP_LOCKED(g->heap);
	trz_heap *h = g->heap;
	/* Gathered tiles may have yet to pass: this stream's order is theirs, others' is not. */
	uint64_t sequence = g->gathered && !is_captured(g) ? g->demand->lane->stream->tickets.newest : 0;
	uint64_t size = g->gathered_bytes + g->new_bytes;
	leave_places_locked(g);
	for (size_t i = g->gathered; i < g->count; i++)
		account_mapping_locked(h, HISTORY_MAP, 0, h->lay_list[i]->places->address, h->lay_list[i]->size,
		                       pool_id(g->demand->lane->pool));
	counter_add(&h->counters.tiles_gathered, g->gathered);
	counter_add(path_of(g), 1);
	return g->gap.block ? refill_join_locked(h, &g->gap, size, sequence) : append_locked(g, size, sequence);
}

/* Counts moved memory, and a tile that changed its kind. */
static void account_moved(struct growth *g)
{
	trz_heap *h = g->heap;
	for (size_t i = 0; i < g->gathered; i++) {
		struct tile *tile = h->lay_list[i];
		if (tile->kind == g->demand->kind)
			continue;
		flow_sub(&h->counters.reserved_bytes, tile->kind, tile->size);
		flow_sub(&h->counters.segment, tile->kind, 1);
		tile->kind = (uint8_t)g->demand->kind;
		flow_add(&h->counters.reserved_bytes, tile->kind, tile->size);
		flow_add(&h->counters.segment, tile->kind, 1);
		h->tile_least[g->demand->kind] = min_u64(h->tile_least[g->demand->kind], tile->size);
	}
	policy_moved(h, g->demand, g->gathered_bytes, g->window->view);
}

static trz_status give_up(struct growth *g, trz_status status)
{
	destroy_created(g);
	ungather(g);
	heap_lock(g->heap);
	give_tail_locked(g);
	refill_give_locked(g->heap, &g->gap);
	heap_unlock(g->heap);
	heap_give_node(g->heap, g->node);
	return status;
}

/* ---- classic segments ---- */

static trz_status extend_by_segment(trz_heap *h, const struct demand *d, struct block **out)
{
	uint64_t usual = d->kind == SMALL ? SMALL_TILE : h->config.tile_size;
	uint64_t size = extent_segment(d->bytes);
	if (d->effort < EFFORT_ALL && heap_limit_allows(h, usual))
		size = max_u64(size, usual);
	if (d->effort == EFFORT_ALL && policy_is_tight(h, d->kind, size) && heap_ask_device(h, NULL) < size)
		return TRZ_ERROR_OUT_OF_MEMORY;
	trz_status status = extent_classic(h, d->lane, d->kind, size, out);
	if (status == TRZ_OK)
		counter_add(&h->counters.path_extend, 1);
	else if (status == TRZ_ERROR_OUT_OF_MEMORY)
		note_refusal(h, d, size);
	return status;
}

/* ---- */

/* A demand for a view gets one if gathered tiles nearly make it up: new memory has no other seat to return to. */
static trz_status choose_window(struct growth *g)
{
	const struct demand *d = g->demand;
	uint64_t room = room_for(g->heap, d->kind, d->bytes);
	bool view = d->view && d->effort == EFFORT_MOVE && g->gathered_bytes >= g->need - g->need / VIEW_NEW;
	return view ? extent_window(g->heap, d->lane, VIEWS, room, &g->window) : TRZ_OK;
}

static trz_status map(struct growth *g)
{
	trz_heap *h = g->heap;
	if (g->gap.block)
		return refill_lay(h, &g->gap, h->lay_list, g->count, g->gathered_bytes + g->new_bytes);
	return extent_lay(h, g->window, g->demand->lane, h->lay_list, g->count, &g->node);
}

/* Lays the missing memory: gathered and new tiles. */
static trz_status lay(struct growth *g, struct block **out)
{
	trz_heap *h = g->heap;
	if (g->demand->effort >= EFFORT_ALL && g->gathered_bytes < g->need)
		gather(g, g->demand->kind == SMALL ? LARGE : SMALL);
	trz_status status = choose_window(g);
	if (status == TRZ_OK)
		status = create_missing(g);
	if (status == TRZ_OK)
		status = map(g);
	if (status != TRZ_OK)
		return give_up(g, status);
	account_moved(g);
	heap_lock(h);
	*out = finish_locked(g);
	heap_unlock(h);
	return TRZ_OK;
}

/* *in_gap: the memory was to be laid in a gap; so the window's end may serve, if it has failed. */
static trz_status extend_once(trz_heap *h, const struct demand *d, bool refills, bool *in_gap, struct block **out)
{
	struct growth g = {.heap = h, .demand = d, .refills = refills};
	trz_status status = find_room(&g);
	if (status == TRZ_OK && d->effort != EFFORT_CREATE) {
		status = flip_or_gather(&g, out);
	} else if (status == TRZ_OK) {
		heap_lock(h);
		take_tail_locked(&g);
		heap_unlock(h);
	}
	if (*out || status != TRZ_OK)
		return status;
	*in_gap = g.gap.block != NULL;
	status = lay(&g, out);
	if (status == TRZ_OK)
		reclaim_aliases(h, 2 + 2 * g.gathered);
	return status;
}

trz_status extend(trz_heap *h, const struct demand *d, struct block **out)
{
	HEAP_GROWTH_LOCKED(h);
	assert(d->bytes > 0 && !d->lane->dedicated);
	bool in_gap = false;
	if (d->bytes > h->driver.info.total_bytes)
		return TRZ_ERROR_OUT_OF_MEMORY;  /* before it takes any address space */
	if (!h->driver.vmm)
		return extend_by_segment(h, d, out);
	*out = NULL;
	trz_status status = extend_once(h, d, true, &in_gap, out);
	if (status != TRZ_OK && in_gap)  /* at the window's end there is room for a tile of any size */
		status = extend_once(h, d, false, &in_gap, out);
	return status;
}

trz_status extend_behind(trz_heap *h, const struct demand *d, struct window *w, struct block *tail, struct block **out)
{
	HEAP_GROWTH_LOCKED(h);
	struct growth g = {.heap = h, .demand = d, .window = w, .tail = tail,
	                   .need = align_up(d->bytes, h->driver.granule)};
	assert(d->kind == (enum kind)w->kind);
	if (window_room(w) < room_for(h, d->kind, g.need))
		return give_up(&g, TRZ_ERROR_NO_ROOM);
	if (!policy_creates(h, d, g.need, g.need))
		gather(&g, d->kind);
	return lay(&g, out);
}

/* ---- the largest request ---- */

/* The lane's longest free block; no allocation is a block of a cell or less (pagemap.h). */
static uint64_t longest_free_locked(const struct lane *l, enum kind kind)
{
	uint64_t largest = counter_get(&l->fit[kind].largest);
	return largest > CELL ? largest : 0;
}

/* How long a block could become in memory of this kind: a free block of the lane's, or one of `fresh` bytes, which new
 * and movable tiles make up, and the free end of its window. */
static uint64_t longest_locked(trz_heap *h, const struct lane *l, enum kind kind, uint64_t fresh, uint64_t movable)
{
	HEAP_LOCKED(h);
	const struct window *w = l->window[kind];
	const struct block *end = w ? free_end_locked(w, l) : NULL;
	uint64_t largest = longest_free_locked(l, kind);
	if (end) {
		uint64_t whole = align_down(end->size, h->driver.granule);  /* may be among the movable: counts once */
		uint64_t behind = fresh + end->size - min_u64(whole, movable);
		if (window_room(w) >= room_for(h, kind, behind))
			return max_u64(largest, behind);
	}
	return max_u64(largest, fresh);
}

uint64_t extend_largest(trz_heap *h, struct lane *l)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t movable = 0;
	bool poll_helps;
	heap_poll(h);
	if (h->dedicates)
		reclaim_spent(h);
	uint64_t free_bytes = heap_ask_device(h, NULL);
	heap_lock(h);
	uint64_t dedicated = reclaim_dedicated_bytes_locked(h);  /* the ladder would return it */
	for (int kind = 0; h->driver.vmm && kind < KINDS; kind++) {
		size_t n = reclaim_find_locked(h, l, kind, FIND_EVERYWHERE, &poll_helps);
		for (size_t i = 0; n != SIZE_MAX && i < n; i++)
			movable += h->candidates[i].size;
	}
	uint64_t limit = heap_limit(h), reserved = heap_reserved(h) - dedicated;
	uint64_t growth = extent_serves(h, min_u64(free_bytes + dedicated, limit > reserved ? limit - reserved : 0));
	uint64_t large = longest_locked(h, l, LARGE, growth + movable, movable);
	uint64_t medium = min_u64(longest_locked(h, l, SMALL, growth + movable, movable), h->config.medium_limit);
	uint64_t spare = h->driver.vmm ? longest_free_locked(l, LARGE) : 0;  /* where the ladder returns no segments */
	heap_unlock(h);
	if (h->dedicates)
		return growth;
	if (large > h->config.medium_limit)
		return large;
	return max_u64(spare, medium ? align_down(medium, heap_grain(medium)) : 0);
}
