/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking and restoring checkpoints. A checkpoint is kept in address order, so that restoring it is one walk along the
 * pool's windows.
 */
#include "serve/pool_state.h"

#include "error.h"
#include "heap/carve.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "observe/holders.h"

/* A live block, or a slab with its held slots. */
struct saved {
	trz_addr address;
	uint64_t size;
	uint64_t requested, frames;         /* for a block */
	struct stream *stream;
	uint8_t kind, dedicated;            /* the window's */
	unsigned size_class;                /* CLASS_COUNT: a block */
	uint64_t held;                      /* for a slab: a bit for each held slot */
	uint16_t unused[SLAB_SLOTS_MAX];
};

struct trz_pool_state {
	trz_heap *heap;
	uint32_t pool;                      /* its id */
	size_t count;
	struct saved list[];                /* by address within each window */
};

/* ---- walking ---- */

/* The growth lock guards windows, the heap lock blocks. */
static void lock_all(trz_heap *h)
{
	heap_take_growth(h);
	heap_lock(h);
	heap_call_all_in_locked(h);
}

static void unlock_all(trz_heap *h)
{
	heap_unlock(h);
	heap_give_growth(h);
}

static struct window *pool_window_from(struct window *w, const struct pool *p)
{
	while (w && w->pool != p)
		w = w->next;
	return w;
}

#define FOR_POOL_WINDOWS(h, w, p)                                                                               \
	for (int kind_ = 0; kind_ < KINDS; kind_++)                                                             \
		for (struct window *w = pool_window_from((h)->windows[kind_], p); w; w = pool_window_from(w->next, p))

static uint64_t held_slots(const struct slab *s)
{
	return slab_all_slots(s) & ~(s->free | s->pending);
}

static bool is_held(const struct block *b)
{
	return b->state == BLOCK_LIVE || (b->state == BLOCK_SLAB && held_slots(b->slab));
}

/* ---- taking ---- */

static size_t count_held_locked(trz_heap *h, const struct pool *p)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	size_t n = 0;
	FOR_POOL_WINDOWS(h, w, p)
		for (const struct block *b = w->blocks.first; b; b = b->next)
			n += is_held(b);
	return n;
}

static struct saved save(const struct block *b)
{
	struct saved s = {.address = b->address,
	                  .size = b->size,
	                  .stream = b->home->stream,
	                  .kind = b->window->kind,
	                  .dedicated = b->window->dedicated,
	                  .size_class = CLASS_COUNT};
	if (b->state == BLOCK_LIVE) {
		s.requested = b->requested;
		s.frames = b->frames;
		return s;
	}
	s.size_class = b->slab->size_class;
	s.held = held_slots(b->slab);
	for (unsigned slot = 0; slot < SLAB_SLOTS_MAX; slot++)
		s.unused[slot] = b->slab->unused[slot];
	return s;
}

static bool fill_locked(trz_heap *h, const struct pool *p, struct trz_pool_state *state, size_t room)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	if (count_held_locked(h, p) > room)
		return false;
	FOR_POOL_WINDOWS(h, w, p)
		for (const struct block *b = w->blocks.first; b; b = b->next)
			if (is_held(b))
				state->list[state->count++] = save(b);
	return true;
}

trz_status pool_state_take(trz_heap *h, struct pool *p, struct trz_pool_state **out)
{
	size_t room = 0;
	for (;;) {
		struct trz_pool_state *state = meta_alloc(&h->meta, sizeof *state + room * sizeof *state->list);
		if (!state)
			return meta_exhausted();
		state->heap = h;
		state->pool = p->id;
		lock_all(h);
		bool filled = fill_locked(h, p, state, room);
		if (!filled)
			room = count_held_locked(h, p);
		unlock_all(h);
		if (filled) {
			*out = state;
			return TRZ_OK;
		}
		meta_free(&h->meta, state);
	}
}

void pool_state_free(struct trz_pool_state *state)
{
	if (!heap_is_inherited(state->heap))
		meta_free(&state->heap->meta, state);
}

/* ---- listing ---- */

struct list {
	void **addresses;
	size_t count, capacity;
};

static void add(struct list *l, trz_addr address)
{
	if (l->count < l->capacity)
		l->addresses[l->count] = (void *)address;
	l->count++;
}

static void add_saved(struct list *l, const struct saved *s)
{
	if (s->size_class == CLASS_COUNT)
		add(l, s->address);
	for (uint64_t held = s->held; held; held &= held - 1)
		add(l, s->address + (uint64_t)__builtin_ctzll(held) * size_classes[s->size_class].slot_size);
}

size_t pool_state_list(const struct trz_pool_state *state, void **addresses, size_t capacity)
{
	struct list l = {addresses, 0, capacity};
	for (size_t i = 0; i < state->count; i++)
		add_saved(&l, &state->list[i]);
	return l.count;
}

size_t pool_state_live(trz_heap *h, const struct pool *p, void **addresses, size_t capacity)
{
	struct list l = {addresses, 0, capacity};
	lock_all(h);
	FOR_POOL_WINDOWS(h, w, p)
		for (const struct block *b = w->blocks.first; b; b = b->next)
			if (is_held(b)) {
				const struct saved s = save(b);
				add_saved(&l, &s);
			}
	unlock_all(h);
	return l.count;
}

trz_pool_info pool_state_info(trz_heap *h, const struct pool *p)
{
	lock_all(h);
	trz_pool_info info = {.id = p->id, .references = p->users, .pinned = p->pinned};
	FOR_POOL_WINDOWS(h, w, p)
		for (const struct block *b = w->blocks.first; b; b = b->next) {
			info.reserved += b->state == BLOCK_HOLE ? 0 : b->size;
			if (!is_held(b))
				continue;
			uint64_t slots = b->state == BLOCK_LIVE ? 0 : (uint64_t)__builtin_popcountll(held_slots(b->slab));
			info.allocations += b->state == BLOCK_LIVE ? 1 : slots;
			info.allocated += b->state == BLOCK_LIVE ? b->size : slots * slab_class(b->slab)->slot_size;
		}
	unlock_all(h);
	return info;
}

/* ---- may it be restored? ---- */

/* Why a block cannot be dropped and given out again; TRZ_OK: it can. */
static trz_status check_settled(const struct block *b)
{
	bool held = is_held(b), slab = b->state == BLOCK_SLAB;
	const struct use *uses = slab ? b->slab->uses : b->state == BLOCK_LIVE ? b->uses : NULL;
	trz_addr used = uses && slab ? slab_slot_address(b->slab, uses->slot) : b->address;
	if (held && uses)
		return trz_fail(TRZ_NOT_READY, "the pool's allocation %p is live and other streams use it: free "
		                "it first, synchronise, then restore the pool", (void *)used);
	if (held && !slab && b->exports)
		return trz_fail(TRZ_NOT_READY, "the pool's allocation %p is exported: end its exports, then restore the pool",
		                (void *)used);
	bool under_way = b->state == BLOCK_PENDING || b->state == BLOCK_ENDED || b->state == BLOCK_BUSY;
	if (under_way || (slab && b->slab->pending))
		return trz_fail(TRZ_NOT_READY, "other streams or processes still use the pool's freed memory at %p: "
		                "synchronise, then restore it", (void *)b->address);
	return TRZ_OK;
}

static trz_status check_all_settled_locked(trz_heap *h, const struct pool *p)
{
	HEAP_LOCKED(h);
	trz_status status = TRZ_OK;
	FOR_POOL_WINDOWS(h, w, p)
		for (const struct block *b = w->blocks.first; b && status == TRZ_OK; b = b->next)
			status = check_settled(b);
	return status;
}

/* The first block with memory of `s`, on a walk along the blocks of a window, both in address order; `b` is where the
 * walk has come to. NULL: `s` lies in another window, or its addresses have become a window of another sort since. */
static struct block *seek(const struct window *w, struct block **b, const struct saved *s)
{
	bool same = w->kind == s->kind && w->dedicated == s->dedicated;
	if (!same || s->address < w->base || s->address + s->size > w->top)
		return NULL;
	while (block_end(*b) <= s->address)
		*b = (*b)->next;
	return *b;
}

/* Whether all of `s`, which begins in `b`, has memory. */
static bool is_there(const struct block *b, const struct saved *s)
{
	bool whole = true;
	for (; b && b->address < s->address + s->size; b = b->next)
		whole &= b->state != BLOCK_HOLE;
	return whole;
}

/* Whether restoring `s` would give free memory to another stream than the one that has yet to pass its free. For memory
 * that is still held, the caller answers. */
static bool is_early(const struct block *b, const struct saved *s)
{
	bool early = false;
	for (; b && b->address < s->address + s->size; b = b->next)
		early |= b->state == BLOCK_FREE && b->home->stream != s->stream && !heap_block_passed(b);
	return early;
}

static trz_status check_places_locked(trz_heap *h, const struct pool *p, const struct trz_pool_state *state)
{
	HEAP_LOCKED(h);
	size_t found = 0;
	bool early = false;
	FOR_POOL_WINDOWS(h, w, p) {
		struct block *at = w->blocks.first;
		for (size_t i = 0; i < state->count; i++) {
			const struct block *b = seek(w, &at, &state->list[i]);
			found += b && is_there(b, &state->list[i]);
			early |= b && is_early(b, &state->list[i]);
		}
	}
	if (found < state->count)
		return trz_fail(TRZ_ERROR_NOT_FOUND,
		                "the heap has returned memory of the checkpoint to the device: only a pool that a capture has "
		                "used keeps it");
	return early ? trz_fail(TRZ_NOT_READY, "another stream's free of the checkpoint's memory has not passed: "
	                        "synchronise, then restore the pool")
	             : TRZ_OK;
}

/* ---- restoring ---- */

static void empty_slab_locked(trz_heap *h, struct slab *s)
{
	HEAP_LOCKED(h);
	uint64_t size = slab_class(s)->slot_size;
	assert(!s->pending);
	for (uint64_t held = held_slots(s); held; held &= held - 1) {
		unsigned slot = (unsigned)__builtin_ctzll(held);
		account_slot_free(h, s->home->stream, size - s->unused[slot], size);
		holders_give_slot_locked(h, s, slot);
		ACCOUNT_NOTE(h, HISTORY_FREE, s->home, slab_slot_address(s, slot), size - s->unused[slot]);
	}
	ticket_take(&s->home->stream->tickets);
	if (!s->free)
		bin_push(&s->home->bins[s->size_class], s);
	s->free = slab_all_slots(s);
	heap_retire_slab_locked(h, s);
}

static void drop_block_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	assert(b->state == BLOCK_LIVE && b->home->held >= b->size);
	pagemap_clear_block(&h->pagemap, b);
	account_free(h, (enum kind)b->kind, b->requested, b->size);
	holders_give_block_locked(h, b);
	ACCOUNT_NOTE(h, HISTORY_FREE, b->home, b->address, b->requested);
	b->home->held -= b->size;
	heap_free_block_locked(h, b, ticket_take(&b->home->stream->tickets));
}

static void drop_everything_locked(trz_heap *h, const struct pool *p)
{
	HEAP_LOCKED(h);
	FOR_POOL_WINDOWS(h, w, p)
		for (struct block *b = w->blocks.first, *next; b; b = next) {
			next = b->next;
			while (next && next->state == BLOCK_FREE)  /* these may join with what is dropped */
				next = next->next;
			if (b->state == BLOCK_LIVE)
				drop_block_locked(h, b);
			else if (b->state == BLOCK_SLAB)
				empty_slab_locked(h, b->slab);
		}
}

static void place_slab_locked(trz_heap *h, struct block *b, const struct saved *saved)
{
	HEAP_LOCKED(h);
	struct slab *s = heap_open_slab_locked(h, b->home, saved->size_class, b);
	uint64_t size = slab_class(s)->slot_size;
	s->free &= ~saved->held;
	for (uint64_t held = saved->held; held; held &= held - 1) {
		unsigned slot = (unsigned)__builtin_ctzll(held);
		s->unused[slot] = saved->unused[slot];
		account_slot_alloc(h, s->home->stream, size - s->unused[slot], size);
		holders_take_slot_locked(h, s, slot);
		ACCOUNT_NOTE(h, HISTORY_ALLOC, s->home, slab_slot_address(s, slot), size - s->unused[slot]);
	}
	if (!s->free)
		bin_unlink(&b->home->bins[s->size_class], s);
}

static void place_locked(trz_heap *h, const struct pool *p, struct block *b, const struct saved *saved)
{
	HEAP_LOCKED(h);
	b->home = lane_find(p->lanes, saved->stream, b->window->dedicated, false);
	assert(b->state == BLOCK_BUSY && b->size == saved->size && b->home);
	if (saved->size_class < CLASS_COUNT) {
		place_slab_locked(h, b, saved);
		return;
	}
	b->state = BLOCK_LIVE;
	b->requested = saved->requested;
	b->uses = NULL;
	pagemap_set_block(&h->pagemap, b);
	b->home->held += b->size;
	b->home->held_peak = max_u64(b->home->held_peak, b->home->held);
	account_alloc(h, (enum kind)b->kind, saved->requested, b->size);
	holders_take_block_locked(h, b);
	ACCOUNT_NOTE(h, HISTORY_ALLOC, b->home, b->address, saved->requested);
	b->frames = saved->frames;
}

static void place_everything_locked(trz_heap *h, const struct pool *p, const struct trz_pool_state *state)
{
	HEAP_LOCKED(h);
	FOR_POOL_WINDOWS(h, w, p) {
		struct block *at = w->blocks.first;
		for (size_t i = 0; i < state->count; i++) {
			const struct saved *s = &state->list[i];
			if (!seek(w, &at, s))
				continue;
			at = heap_carve_locked(h, at, s->address, s->size);
			place_locked(h, p, at, s);
		}
	}
}

static trz_status restore_locked(trz_heap *h, struct pool *p, const struct trz_pool_state *state)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	trz_status status = check_all_settled_locked(h, p);
	if (status == TRZ_OK)
		status = check_places_locked(h, p, state);
	if (status != TRZ_OK)
		return status;
	/* Dropping takes no node: each live block is a node already. Nor does the pagemap: granules that need cells have
	 * them since all this was live before, and no other pool's memory begins in them. */
	if (!node_pool_reserve(&h->blocks, 2 * state->count) || !node_pool_reserve(&h->slabs, state->count))
		return meta_exhausted();
	drop_everything_locked(h, p);
	place_everything_locked(h, p, state);
	return TRZ_OK;
}

trz_status pool_state_restore(trz_heap *h, struct pool *p, const struct trz_pool_state *state)
{
	if (state->heap != h || state->pool != p->id)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "the checkpoint belongs to another pool");
	if (!heap_lock_growth(h))
		return heap_not_permitted("trz_pool_restore");
	heap_poll(h);
	heap_lock(h);
	heap_call_all_in_locked(h);
	trz_status status = restore_locked(h, p, state);
	heap_unlock(h);
	heap_unlock_growth(h);
	return status;
}
