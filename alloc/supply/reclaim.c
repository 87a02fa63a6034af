/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding wholly free tiles, and returning memory to the driver.
 */
#include "supply/reclaim.h"

#include <assert.h>
#include <string.h>

#include "heap/carve.h"
#include "heap/contexts.h"
#include "heap/events.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "observe/notice.h"
#include "observe/nvtx.h"
#include "supply/borrow.h"
#include "supply/import.h"
#include "supply/policy.h"

static trz_status worse(trz_status a, trz_status b)
{
	return a != TRZ_OK ? a : b;
}

bool reclaim_lists(trz_heap *h, size_t n)
{
	HEAP_GROWTH_LOCKED(h);
	if (n <= h->lay_capacity)
		return true;
	size_t capacity = max_u64(n, 2 * h->lay_capacity);
	struct tile **tiles = meta_alloc(&h->meta, capacity * sizeof *tiles);
	struct block **moved = meta_alloc(&h->meta, capacity * sizeof *moved);
	if (!tiles || !moved) {
		meta_free(&h->meta, tiles);
		meta_free(&h->meta, moved);
		return false;
	}
	if (h->lay_capacity) {
		memcpy(tiles, h->lay_list, h->lay_capacity * sizeof *tiles);
		memcpy(moved, h->moved, h->lay_capacity * sizeof *moved);
	}
	meta_free(&h->meta, h->lay_list);
	meta_free(&h->meta, h->moved);
	h->lay_list = tiles;
	h->moved = moved;
	h->lay_capacity = capacity;
	return true;
}

/* ---- finding ---- */

enum { CANDIDATES_FIRST = 256 };  /* room for so many at first */

static COLD bool grow_candidates(trz_heap *h, size_t n)
{
	size_t capacity = n ? 2 * n : CANDIDATES_FIRST;
	struct candidate *grown = meta_alloc(&h->meta, capacity * sizeof *grown);
	if (!grown)
		return false;
	if (n)
		memcpy(grown, h->candidates, n * sizeof *grown);
	meta_free(&h->meta, h->candidates);
	h->candidates = grown;
	h->candidates_capacity = capacity;
	return true;
}

static inline bool add_candidate(trz_heap *h, size_t n, struct candidate c)
{
	if (UNLIKELY(n == h->candidates_capacity) && !grow_candidates(h, n))
		return false;
	c.found = c.tile->found_at = (uint32_t)n;
	h->candidates[n] = c;
	return true;
}

/* The wholly free tiles of one free block that no other process uses, up to `*most` bytes and `limit` candidates. */
static size_t find_in_block(trz_heap *h, struct block *b, uint64_t *most, size_t n, size_t limit)
{
	const struct window *w = b->window;
	if (UNLIKELY(w->classic != NULL)) {
		struct candidate c = {.tile = w->classic, .block = b, .address = b->address, .size = b->size};
		return b->size == w->size && !add_candidate(h, n, c) ? SIZE_MAX : n + (b->size == w->size);
	}
	trz_addr cursor = b->address, end = block_end(b);
	const struct place *p = window_next_owned(w, &cursor, end);
	b->tileless = !p;
	for (; p && n < limit && place_size(p) <= *most; p = window_next_owned(w, &cursor, end)) {
		SPINLOCK_STEP();
		struct candidate c = {.tile = p->tile, .block = b, .address = p->address, .size = place_size(p)};
		if (UNLIKELY(c.tile->exports))
			continue;
		if (!add_candidate(h, n++, c))
			return SIZE_MAX;
		*most -= c.size;
	}
	return n;
}

const struct candidate *reclaim_candidate(const trz_heap *h, const struct tile *tile, size_t n)
{
	HEAP_GROWTH_LOCKED(h);
	return tile->found_at < n && h->candidates[tile->found_at].tile == tile ? &h->candidates[tile->found_at] : NULL;
}

/* Whether memory of `of` may go to `to`; NULL: to the driver. Dedicated memory never moves. */
static bool may_leave(const struct lane *of, const struct lane *to, unsigned how)
{
	if (to && of->dedicated)
		return false;
	return !lane_is_pinned(of) && (!to || !of->pool || of->pool == to->pool || how & FIND_EVERYWHERE);
}

/* A search for candidates in a lane's indices. */
struct finding {
	const struct lane *lane;
	uint64_t most;               /* bytes that may still be listed */
	bool ordered;                /* what has not passed will do, too: the lane is of the stream that is asking */
};

static size_t find_in_index_locked(trz_heap *h, struct finding *f, const struct fit *index, uint64_t least, size_t n,
                                   bool *poll_helps)
{
	HEAP_LOCKED(h);
	for (struct block *b = fit_find(index, least); b && n != SIZE_MAX; b = fit_next(index, b)) {
		if (b->tileless)
			continue;
		bool passed = ticket_passed(&f->lane->stream->tickets, b->sequence);
		*poll_helps |= !passed;
		if (passed || f->ordered)
			n = find_in_block(h, b, &f->most, n, SIZE_MAX);
	}
	return n;
}

size_t reclaim_find_locked(trz_heap *h, const struct lane *l, enum kind kind, unsigned how, bool *poll_helps)
{
	HEAP_LOCKED(h);
	size_t n = 0;
	bool apart = how & FIND_SPARE && kind == LARGE && policy_peaks_are_apart(h, l);
	*poll_helps = false;
	for (const struct lane *of = h->streams.lanes.first; of && n != SIZE_MAX; of = of->next) {
		if (!may_leave(of, l, how))
			continue;
		struct finding f = {.lane = of, .most = UINT64_MAX,
		                    .ordered = l && of->stream == l->stream && !(how & FIND_PASSED)};
		if (how & FIND_SPARE && of != l && kind == LARGE)
			f.most = stream_lendable(of, l, apart);
		n = find_in_index_locked(h, &f, &of->fit[kind], of->dedicated ? GRANULE : h->tile_least[kind], n, poll_helps);
		if (kind == LARGE && n != SIZE_MAX)
			n = find_in_index_locked(h, &f, &of->fit[VIEWS], GRANULE, n, poll_helps);
	}
	return n;
}

/* Cuts a part out of `b`, or out of what is left of it behind the parts that were cut before. */
static struct block *cut_locked(trz_heap *h, struct block *b, trz_addr address, uint64_t size)
{
	HEAP_LOCKED(h);
	while (block_end(b) <= address)
		b = b->next;
	return heap_cut_block_locked(h, b, address, size);
}

void reclaim_cut_rest_locked(trz_heap *h, struct cutting *cut)
{
	HEAP_LOCKED(h);
	if (cut->block)
		h->moved[cut->count++] = cut_locked(h, cut->block, cut->begin, cut->end - cut->begin);
	cut->block = NULL;
}

void reclaim_cut_locked(trz_heap *h, struct cutting *cut, const struct candidate *c)
{
	HEAP_LOCKED(h);
	if (c->block != cut->block || c->address != cut->end) {
		reclaim_cut_rest_locked(h, cut);
		cut->block = c->block;
		cut->begin = c->address;
	}
	cut->end = c->address + c->size;
}

/* ---- returning ---- */

static void uncount_tile(trz_heap *h, const struct tile *tile)
{
	flow_sub(&h->counters.reserved_bytes, tile->kind, tile->size);
	flow_sub(&h->counters.segment, tile->kind, 1);
	if (tile->dedicated)
		level_sub(&h->counters.dedicated_bytes, tile->size);
}

void reclaim_make_zombie(trz_heap *h, struct tile *tile)
{
	HEAP_GROWTH_LOCKED(h);
	tile->zombie = true;
	tile->next = h->tiles.zombies;
	h->tiles.zombies = tile;
	level_add(&h->counters.zombie_bytes, tile->size);
}

static trz_status release_handle(trz_heap *h, struct tile *tile)
{
	trz_status status = driver_release(&h->driver, tile->handle);
	if (status != TRZ_OK)
		return status;
	tile->handle = 0;
	uncount_tile(h, tile);
	tile_forget(&h->tiles, tile);
	return TRZ_OK;
}

bool reclaim_destroy_tile(trz_heap *h, struct tile *tile, trz_status *status)
{
	HEAP_GROWTH_LOCKED(h);
	*status = window_unmap_tile(&h->tiles, tile);
	if (*status != TRZ_OK)
		return false;
	*status = release_handle(h, tile);
	if (*status != TRZ_OK)
		reclaim_make_zombie(h, tile);
	return true;
}

void reclaim_retry_zombies(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	struct tile *zombies = h->tiles.zombies;
	h->tiles.zombies = NULL;
	while (zombies) {
		struct tile *tile = zombies;
		zombies = tile->next;
		tile->zombie = false;
		level_sub(&h->counters.zombie_bytes, tile->size);
		trz_status status;
		if (!reclaim_destroy_tile(h, tile, &status))
			reclaim_make_zombie(h, tile);
	}
}

/* Returns a classic window, which goes as a whole; its one block is busy. */
static trz_status return_classic(trz_heap *h, struct window *w)
{
	struct tile tile = *w->classic;
	uint64_t lost = tile.size - w->size;
	struct window **link = &h->windows[w->kind];
	while (*link != w)
		link = &(*link)->next;
	struct window *next = w->next;
	nvtx_window_closing(h, w);
	trz_status status = window_close_classic(&h->meta, &h->tiles, w);
	if (status != TRZ_OK)
		return status;
	*link = next;
	uncount_tile(h, &tile);
	level_sub(&h->counters.classic_bytes, tile.size);
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, lost);
	heap_unlock(h);
	return TRZ_OK;
}

/* The tile that a busy block of one whole tile lies on. */
static struct tile *tile_of(const struct block *b)
{
	return b->window->classic ? b->window->classic : window_at(b->window, b->address)->tile;
}

/* A trim lists what it cuts out of free blocks by `cut_next`, not as candidates: the growth lock, which guards those,
 * may be given back before the last block is returned. Pins keep other threads from the tiles' aliases meanwhile. */
struct trimming {
	uint64_t keep, reserved;     /* at most `keep` bytes are to stay reserved; so many would be, without those cut */
	struct block *first, *last;
	unsigned steps;
};

enum { CUT_AT_ONCE = 48, CUT_STEPS = 4 };  /* steps: a tile's block is cut out of another, of which two may be left */

/* Cuts tiles out of a free block; *more: it may still have others. false: no host memory. */
static bool trim_block_locked(trz_heap *h, struct trimming *t, struct block *b, bool *more)
{
	HEAP_LOCKED(h);
	uint64_t most = UINT64_MAX;
	size_t n = find_in_block(h, b, &most, 0, CUT_AT_ONCE), cut = 0;
	if (n == SIZE_MAX || !node_pool_reserve(&h->blocks, 2 * n))
		return false;
	for (size_t i = 0; i < n && t->reserved > t->keep; i++) {
		const struct candidate *c = &h->candidates[i];
		if (c->tile->pins)
			continue;
		struct block *tile = cut_locked(h, c->block, c->address, c->size);
		level_add(&h->counters.idle_bytes, tile->size);
		c->tile->pins++;
		t->reserved -= tile->size;
		tile->cut_next = NULL;
		*(t->last ? &t->last->cut_next : &t->first) = tile;
		t->last = tile;
		cut++;
	}
	*more = n == CUT_AT_ONCE && cut;
	t->steps += (unsigned)cut * CUT_STEPS;
	return true;
}

/* The same for all free blocks of a lane that have passed. What is left of a block that has been cut is shorter: if it
 * may still have tiles, the walk goes on with that. The lock is given up now and then, and a capture may pin the lane's
 * pool meanwhile. */
static bool trim_lane_locked(trz_heap *h, struct trimming *t, struct lane *l, unsigned part)
{
	HEAP_LOCKED(h);
	const struct fit *f = &l->fit[part];
	struct block *b = fit_find(f, l->dedicated || part == VIEWS ? GRANULE : h->tile_least[part]);
	while (b && t->reserved > t->keep && may_leave(l, NULL, 0)) {
		uint64_t size = b->size;
		trz_addr address = b->address, after = block_end(b);
		bool more = false;
		if (!b->tileless && ticket_passed(&l->stream->tickets, b->sequence) && !trim_block_locked(h, t, b, &more))
			return false;
		if (more && block_end(t->last) < after) {
			address = block_end(t->last) - 1;
			size = after - block_end(t->last);
		}
		heap_rest(h, &t->steps, 1);
		b = fit_from(f, size, address + 1);
	}
	return true;
}

/* Makes a busy block free again. */
static void keep_block(trz_heap *h, struct block *b)
{
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, b->size);
	heap_free_block_locked(h, b, b->sequence);
	heap_unlock(h);
}

/* Returns the memory of a busy block, whose tile has been pinned; on an error the block is free again. Adds to
 * *returned what has been given back. */
static trz_status return_block(trz_heap *h, struct block *b, uint64_t *returned)
{
	bool classic = b->window->classic != NULL, gone;
	uint32_t pool = pool_id(b->window->pool);
	struct tile *tile = tile_of(b);
	trz_status status;
	if (--tile->pins) {  /* a callback set since the tile was cut out is being told that it is there */
		keep_block(h, b);
		return TRZ_OK;
	}
	notice_leaving(h, b->window, tile);
	uint64_t before = heap_reserved(h);  /* other threads change it while the lock is given back */
	if (classic) {
		status = return_classic(h, b->window);
		gone = status == TRZ_OK;
	} else {
		gone = reclaim_destroy_tile(h, tile, &status);
	}
	*returned += before - heap_reserved(h);
	if (!gone) {
		notice_back(h, b->window, tile);
		keep_block(h, b);
		return status;
	}
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, b->size);
	account_mapping_locked(h, classic ? HISTORY_SEGMENT_FREE : HISTORY_UNMAP, 0, b->address, b->size, pool);
	if (classic)
		node_pool_give(&h->blocks, b);
	else
		heap_make_hole_locked(h, b);
	heap_unlock(h);
	return status;
}

/* The smallest free dedicated tile that a lane keeps; NULL: none. */
static struct block *first_kept(const struct lane *l)
{
	return lane_keeps_dedicated(l) ? fit_find(&l->fit[LARGE], UNIT) : NULL;
}

/* A passed free block of dedicated memory that no notice in progress concerns; NULL: none. */
static struct block *find_dedicated_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	for (const struct lane *l = h->streams.lanes.first; l; l = l->next)
		for (struct block *b = first_kept(l); b; b = fit_next(&l->fit[LARGE], b))
			if (!lane_is_pinned(l) && ticket_passed(&l->stream->tickets, b->sequence) && !tile_of(b)->pins)
				return b;
	return NULL;
}

uint64_t reclaim_dedicated(trz_heap *h, uint64_t bytes)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t returned = 0, limit = heap_limit(h), reserved = heap_reserved(h);
	if (reserved > limit)
		bytes += reserved - limit;  /* the limit has been lowered */
	while (returned < bytes) {
		heap_lock(h);
		struct block *b = find_dedicated_locked(h);
		if (b) {
			heap_cut_block_locked(h, b, b->address, b->size);
			level_add(&h->counters.idle_bytes, b->size);
			tile_of(b)->pins++;
		}
		heap_unlock(h);
		if (!b || return_block(h, b, &returned) != TRZ_OK)
			break;
	}
	return returned;
}

uint64_t reclaim_dedicated_bytes_locked(const trz_heap *h)
{
	HEAP_LOCKED(h);
	uint64_t bytes = 0;
	for (const struct lane *l = h->streams.lanes.first; l; l = l->next)
		for (struct block *b = first_kept(l); b; b = fit_next(&l->fit[LARGE], b))
			if (!lane_is_pinned(l) && ticket_passed(&l->stream->tickets, b->sequence))
				bytes += b->size;
	return bytes;
}

trz_status reclaim_trim_kind(trz_heap *h, enum kind kind, uint64_t keep, uint64_t *returned)
{
	HEAP_GROWTH_LOCKED(h);
	struct trimming t = {.keep = keep, .reserved = heap_reserved(h)};
	bool room = true;
	heap_lock(h);
	borrow_join_everywhere_locked(h, kind);
	for (struct lane *l = h->streams.lanes.first; l && room; l = l->next)
		FOR_PARTS(part, kind)
			room = room && trim_lane_locked(h, &t, l, part);
	heap_unlock(h);
	trz_status worst = room ? TRZ_OK : meta_exhausted();
	for (struct block *b = t.first, *next; b; b = next) {
		next = b->cut_next;
		worst = worse(worst, return_block(h, b, returned));
	}
	return worst;
}

void reclaim_spent(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t returned = 0;
	heap_poll(h);
	reclaim_retry_zombies(h);
	reclaim_trim_kind(h, LARGE, 0, &returned);
	reclaim_all_aliases(h);
}

trz_status reclaim_trim(trz_heap *h, uint64_t keep, uint64_t *released)
{
	HEAP_GROWTH_LOCKED(h);
	heap_poll_all(h);
	import_sweep(h);
	uint64_t before = heap_reserved(h);
	reclaim_retry_zombies(h);
	*released = before - heap_reserved(h);
	heap_retire_empty_slabs(h);
	trz_status status = reclaim_trim_kind(h, LARGE, keep, released);
	status = worse(status, reclaim_trim_kind(h, SMALL, keep, released));
	reclaim_windows(h);
	return status;
}

/* ---- aliases ---- */

enum { ALIASES_LEAST = 256, ALIASES_PER_TILE = 12, ALIASES_MOST = 32768, ALIASES_LOOKED_AT = 64, LOOK_MAPPED = 16,
       LOOK_BEHIND = 8 };

static bool alias_passed(trz_heap *h, const struct place *p)
{
	heap_lock(h);
	bool passed = !p->user || ticket_passed(&p->user->tickets, p->sequence);
	heap_unlock(h);
	return passed;
}

enum { ALIASES_AT_ONCE = 256, ALIASES_IN_GROWTH = 512 };

/* Looks at the places of a window, from its cursor on, while `*look` lasts: a place takes LOOK_MAPPED of it, a granule
 * without a mapping 1. Lists up to `most` places that are stale, no seats, and whose last use has passed. */
static size_t find_aliases(trz_heap *h, struct window *w, struct place **list, size_t most, size_t *look)
{
	size_t n = 0;
	while (n < most && *look && w->alias_cursor < w->top - w->base) {
		struct place *p = window_at(w, w->base + w->alias_cursor);
		w->alias_cursor = window_next(w, w->base + w->alias_cursor) - w->base;
		*look -= min_u64(*look, p ? LOOK_MAPPED : 1);
		bool stale = p && !p->tile->zombie && !p->tile->pins && !tile_is_owned_at(p) && p->tile->seat != p;
		if (stale && alias_passed(h, p))
			list[n++] = p;
	}
	return n;
}

static void rewind_cursors(trz_heap *h)
{
	for (int kind = 0; kind < KINDS; kind++)
		for (struct window *w = h->windows[kind]; w; w = w->next)
			w->alias_cursor = 0;
}

/* Unmaps up to `most` of the aliases that the cursors come to. true: there may be more. The growth lock may have been
 * given back meanwhile. */
static bool unmap_some_aliases(trz_heap *h, size_t most, size_t *look)
{
	struct place *list[ALIASES_AT_ONCE];
	size_t n = 0, refused = 0;
	most = min_u64(most, ALIASES_AT_ONCE);
	for (int kind = 0; kind < KINDS; kind++)
		for (struct window *w = h->windows[kind]; w; w = w->next)
			if (!w->classic)
				n += find_aliases(h, w, list + n, most - n, look);
	notice_aliases_leaving(h, list, n);
	for (size_t i = 0; i < n; i++)
		if (window_unmap_place(&h->tiles, list[i]) != TRZ_OK)
			list[refused++] = list[i];
	notice_aliases_back(h, list, refused);
	return n && !refused;
}

void reclaim_aliases(trz_heap *h, size_t most)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t aliases = counter_get(&h->counters.alias.current);
	uint64_t limit = min_u64(ALIASES_LEAST + ALIASES_PER_TILE * flow_all(&h->counters.segment), ALIASES_MOST);
	if (aliases <= limit)
		return;
	/* The more aliases there are, the further it looks: they may lie far apart, in windows that are mostly holes. */
	size_t look = LOOK_MAPPED * (ALIASES_LOOKED_AT + 2 * most) * (1 + LOOK_BEHIND * (aliases - limit) / limit);
	size_t left = min_u64(most, ALIASES_IN_GROWTH);
	while (left && unmap_some_aliases(h, left, &look))
		left -= min_u64(left, ALIASES_AT_ONCE);
	if (look)
		rewind_cursors(h);  /* all have been seen: the next call begins with the lowest, oldest addresses again */
}

void reclaim_all_aliases(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	size_t look = SIZE_MAX;
	rewind_cursors(h);
	while (counter_get(&h->counters.alias.current) && unmap_some_aliases(h, SIZE_MAX, &look))
		;
}

/* ---- windows and the end ---- */

/* false: the driver refuses. */
static bool close_window(trz_heap *h, struct window **link)
{
	struct window *w = *link, *next = w->next;
	struct block *first = w->blocks.first;
	nvtx_window_closing(h, w);
	if (window_close(&h->meta, &h->driver, w) != TRZ_OK)
		return false;
	*link = next;
	counter_add(&h->counters.windows_closed, 1);
	heap_lock(h);
	heap_drop_holes_locked(h, first);
	heap_unlock(h);
	return true;
}

enum { QUARANTINE_WINDOWS = 1024 };  /* imports have windows of their own, which can be small and many */

/* The newest windows that are used up, and in which nothing is mapped, keep their addresses out of use (law L10), up to
 * a multiple of the device's memory and a number of windows. */
void reclaim_windows(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t most = h->config.quarantine * max_u64(h->driver.info.total_bytes, GRANULE), held = 0;
	unsigned count = 0;
	for (int kind = 0; kind < KINDS; kind++) {
		if (!h->windows[kind] || h->windows[kind]->classic)
			continue;
		for (struct window **link = &h->windows[kind]; *link;) {
			struct window *w = *link;
			bool over = w->mapped == 0 && !w->grows;
			if (over && (held + w->size > most || count == QUARANTINE_WINDOWS) && close_window(h, link))
				continue;
			held += over ? w->size : 0;
			count += over;
			link = &w->next;
		}
	}
	level_set(&h->counters.quarantine_bytes, held);
}

/* Waits for all queued events of a stream. A context that was destroyed before the heap has taken its events with
 * it. */
static trz_status sync_queue(trz_heap *h, struct stream *s)
{
	struct event_pool *p = s->events;
	struct tickets *t = &s->tickets;
	trz_status worst = TRZ_OK;
	while (t->count && !heap_has_lost(p)) {
		trz_status status = driver_event_sync(&h->driver, p->context, ticket_oldest(t)->event);
		heap_note_loss(h, p, status);
		if (heap_has_lost(p))
			break;
		worst = worse(worst, status);
		heap_return_event(h, p, ticket_pop(t));
	}
	return worst;
}

/* Why no event covers a stream's newest ticket. For a thread-bound stream the legacy default stream is asked. */
static trz_status why_uncovered(trz_heap *h, const struct stream *s)
{
	trz_capture_status capture = TRZ_CAPTURE_NONE;
	trz_stream asked = s->thread_bound ? NULL : s->handle;
	if (driver_is_dead(&h->driver))
		return TRZ_ERROR_CONTEXT_DEAD;
	trz_status status = driver_stream_capture(&h->driver, s->events->context, asked, &capture, NULL);
	return status != TRZ_ERROR_CAPTURE && capture == TRZ_CAPTURE_NONE ? TRZ_ERROR_DRIVER : TRZ_ERROR_CAPTURE;
}

/* Waits for all work that a stream was given before its newest free; tries twice. */
static trz_status wait_for_stream(trz_heap *h, struct stream *s)
{
	struct tickets *t = &s->tickets;
	trz_status status = sync_queue(h, s);
	if (status == TRZ_OK && t->recorded == ticket_newest(t))
		return TRZ_OK;
	ticket_take(t);
	heap_poll(h);
	status = sync_queue(h, s);
	return status == TRZ_OK && t->recorded < ticket_newest(t) ? why_uncovered(h, s) : status;
}

/* Waits for the events that came with frees, and ends what they decide about. */
static trz_status wait_for_given(trz_heap *h)
{
	trz_status worst = TRZ_OK;
	for (struct pending **link = &h->given, *p; (p = *link);) {
		trz_status status = driver_event_sync(&h->driver, h->driver.context, p->event);
		worst = worse(worst, status);
		if (status == TRZ_OK)
			heap_end_given(h, link, p);
		else
			link = &p->next;
	}
	return worst;
}

static trz_status wait_for_deputy(trz_heap *h, struct event_pool *p)
{
	if (!p->deputy)
		return TRZ_OK;
	trz_status status = heap_note_loss(h, p, driver_event_sync(&h->driver, p->context, p->deputy));
	if (heap_has_lost(p))
		p->deputy = NULL;
	else if (status == TRZ_OK)
		heap_end_cover(h, p);
	return status;
}

/* Waits for all work of all streams by deputies, so that no event need be recorded on any stream: a program that ends
 * may have destroyed some unannounced. What deputies do not cover is awaited stream by stream afterwards. */
static void wait_for_contexts(trz_heap *h)
{
	bool captured = heap_may_be_captured(h);
	for (struct event_pool *p = &h->events; p; p = p->next) {
		wait_for_deputy(h, p);  /* of an earlier poll */
		if (captured || heap_cover_context(h, p, COVER_ALL) != TRZ_OK)
			heap_cover_context(h, p, COVER_THREADS);
		wait_for_deputy(h, p);
	}
}

/* Waits for the work behind every free. A context that has died has no work left. */
static trz_status wait_for_streams(trz_heap *h)
{
	wait_for_contexts(h);
	trz_status worst = wait_for_given(h);
	heap_poll(h);
	worst = worse(worst, wait_for_deputy(h, &h->events));  /* the poll may have recorded it for a pool that has ended */
	for (unsigned i = 0; i < h->streams.count; i++)
		worst = worse(worst, wait_for_stream(h, h->streams.list[i]));
	return worst;
}

static trz_status destroy_tiles_of(trz_heap *h, struct window *w)
{
	trz_status worst = TRZ_OK, status;
	for (trz_addr a = w->base, next; !w->classic && a < w->top; a = next) {
		const struct place *p = window_at(w, a);
		next = window_next(w, a);
		if (p && !p->tile->zombie && tile_is_owned_at(p) && !reclaim_destroy_tile(h, p->tile, &status))
			worst = worse(worst, status);
	}
	return worst;
}

static trz_status destroy_tiles(trz_heap *h, enum kind kind)
{
	trz_status worst = TRZ_OK;
	for (struct window *w = h->windows[kind]; w; w = w->next)
		worst = worse(worst, destroy_tiles_of(h, w));
	return worst;
}

static trz_status unreserve_windows(trz_heap *h, enum kind kind)
{
	trz_status worst = TRZ_OK;
	for (struct window *w = h->windows[kind], *next; w; w = next) {
		next = w->next;
		nvtx_window_closing(h, w);
		if (w->classic)
			worst = worse(worst, window_close_classic(&h->meta, &h->tiles, w));
		else if (w->mapped == 0)
			worst = worse(worst, window_close(&h->meta, &h->driver, w));
	}
	h->windows[kind] = NULL;
	return worst;
}

static trz_status destroy_events(trz_heap *h, struct event_pool *p)
{
	trz_status worst = TRZ_OK;
	for (trz_event event = p->deputy ? p->deputy : event_pool_take(p); event; event = event_pool_take(p)) {
		trz_status status = driver_event_destroy(&h->driver, p->context, event);
		heap_note_loss(h, p, status);
		worst = worse(worst, heap_has_lost(p) ? TRZ_OK : status);
	}
	return worst;
}

trz_status reclaim_everything(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	h->closing = true;
	trz_status worst = wait_for_streams(h);
	if (h->map_callback && (worst == TRZ_OK || driver_is_dead(&h->driver))) {
		notice_all_leaving(h);
		worst = worse(worst, wait_for_streams(h));  /* the program's callback may have freed memory */
	}
	if (worst != TRZ_OK && !driver_is_dead(&h->driver))
		return worst;  /* work may be under way: nothing can be unmapped under it */
	worst = worse(worst, import_end_all(h));
	reclaim_retry_zombies(h);
	for (int kind = 0; kind < KINDS; kind++)
		worst = worse(worst, destroy_tiles(h, kind));
	reclaim_retry_zombies(h);
	for (int kind = 0; kind < KINDS; kind++)
		worst = worse(worst, unreserve_windows(h, kind));
	worst = worse(worst, destroy_events(h, &h->undestroyed));
	for (struct event_pool *p = &h->events; p; p = p->next)
		if (!heap_has_lost(p))
			worst = worse(worst, destroy_events(h, p));
	return worst;
}
