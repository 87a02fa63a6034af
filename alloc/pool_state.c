/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking and restoring checkpoints. A checkpoint is kept in address order, so that restoring it is one walk along the
 * pool's windows.
 */
#include "pool_state.h"

#include "account.h"
#include "error.h"

/* A live block, or a slab with what is held of it. */
struct saved {
	trz_addr address;
	uint64_t size;
	uint64_t requested, frames;         /* of a block */
	struct stream *stream;
	unsigned size_class;                /* CLASS_COUNT: a block */
	uint64_t held;                      /* of a slab, a bit for each slot */
	uint16_t slack[SLAB_SLOTS_MAX];
};

struct trz_pool_state {
	struct meta *meta;
	uint32_t pool;                      /* its id */
	size_t count;
	struct saved list[];                /* by address within each window */
};

/* ---- walking ---- */

/* Windows are the growth lock's, blocks the heap lock's. */
static void lock_all(trz_heap *h)
{
	pthread_mutex_lock(&h->growth_lock);
	heap_lock(h);
}

static void unlock_all(trz_heap *h)
{
	heap_unlock(h);
	pthread_mutex_unlock(&h->growth_lock);
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
	size_t n = 0;
	FOR_POOL_WINDOWS(h, w, p)
		for (const struct block *b = w->blocks.first; b; b = b->next)
			n += is_held(b);
	return n;
}

static struct saved save(const struct block *b)
{
	struct saved s = {.address = b->address, .size = b->size, .stream = b->home->stream, .size_class = CLASS_COUNT};
	if (b->state == BLOCK_LIVE) {
		s.requested = b->requested;
		s.frames = b->frames;
		return s;
	}
	s.size_class = b->slab->size_class;
	s.held = held_slots(b->slab);
	for (unsigned slot = 0; slot < SLAB_SLOTS_MAX; slot++)
		s.slack[slot] = b->slab->slack[slot];
	return s;
}

static bool fill_locked(trz_heap *h, const struct pool *p, struct trz_pool_state *state, size_t room)
{
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
		state->meta = &h->meta;
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
	meta_free(state->meta, state);
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

/* Whether only the block's own stream has to do with it. */
static bool is_settled(const struct block *b)
{
	switch ((enum block_state)b->state) {
	case BLOCK_LIVE:
		return !b->uses && !b->exports;
	case BLOCK_SLAB:
		return !b->slab->uses && !b->slab->pending;
	case BLOCK_PENDING:
	case BLOCK_ENDED:
	case BLOCK_BUSY:
		return false;
	case BLOCK_FREE:
	case BLOCK_HOLE:
		break;
	}
	return true;
}

/* With several lanes memory may change its stream: then all that is free must have passed. The caller answers for the
 * work of what is still held. */
static bool all_settled_locked(trz_heap *h, const struct pool *p)
{
	bool several = p->lanes && p->lanes->pool_next;
	FOR_POOL_WINDOWS(h, w, p)
		for (const struct block *b = w->blocks.first; b; b = b->next) {
			if (!is_settled(b))
				return false;
			if (several && b->state == BLOCK_FREE && !ticket_passed(&b->home->stream->tickets, b->sequence))
				return false;
		}
	return true;
}

/* How much of what a checkpoint names has memory in a window. Both are in address order. */
static size_t count_there_locked(const struct window *w, const struct trz_pool_state *state)
{
	const struct block *b = w->blocks.first;
	size_t found = 0;
	for (size_t i = 0; i < state->count; i++) {
		const struct saved *s = &state->list[i];
		trz_addr end = s->address + s->size;
		if (s->address < w->base || end > w->top)
			continue;
		while (block_end(b) <= s->address)
			b = b->next;
		bool whole = true;
		for (const struct block *part = b; part && part->address < end; part = part->next)
			whole &= part->state != BLOCK_HOLE;
		found += whole;
	}
	return found;
}

static bool all_there_locked(trz_heap *h, const struct pool *p, const struct trz_pool_state *state)
{
	size_t found = 0;
	FOR_POOL_WINDOWS(h, w, p)
		found += count_there_locked(w, state);
	return found == state->count;
}

/* ---- restoring ---- */

static void empty_slab_locked(trz_heap *h, struct slab *s)
{
	uint64_t size = slab_class(s)->slot_size;
	for (uint64_t held = held_slots(s); held; held &= held - 1) {
		unsigned slot = (unsigned)__builtin_ctzll(held);
		account_free(h, SMALL, size - s->slack[slot], size);
		ACCOUNT_NOTE(h, HISTORY_FREE, s->home, slab_slot_address(s, slot), size - s->slack[slot]);
	}
	ticket_take(&s->home->stream->tickets);
	if (!s->free)
		bin_push(&s->home->bins[s->size_class], s);
	s->free = slab_all_slots(s);
	heap_retire_slab_locked(h, s);
}

static void drop_block_locked(trz_heap *h, struct block *b)
{
	pagemap_clear_block(&h->pagemap, b->address);
	account_free(h, LARGE, b->requested, b->size);
	ACCOUNT_NOTE(h, HISTORY_FREE, b->home, b->address, b->requested);
	b->home->held -= b->size;
	heap_free_block_locked(h, b, ticket_take(&b->home->stream->tickets));
}

static void drop_everything_locked(trz_heap *h, const struct pool *p)
{
	FOR_POOL_WINDOWS(h, w, p)
		for (struct block *b = w->blocks.first, *next; b; b = next) {
			next = b->next;
			while (next && next->state == BLOCK_FREE)  /* those may join with what is dropped */
				next = next->next;
			if (b->state == BLOCK_LIVE)
				drop_block_locked(h, b);
			else if (b->state == BLOCK_SLAB)
				empty_slab_locked(h, b->slab);
		}
}

/* Makes all packed free memory one lane's, so that neighbours join. */
static void join_lanes_locked(trz_heap *h, const struct pool *p)
{
	struct lane *first = lane_find(p->lanes, NULL, 0);
	for (struct lane *l = first; l && (l = lane_find(l->pool_next, NULL, 0));)
		for (int kind = 0; kind < KINDS; kind++)
			for (struct block *b; (b = fit_find(&l->fit[kind], UNIT));) {
				fit_remove(&l->fit[kind], b);
				b->home = first;
				heap_free_block_locked(h, b, 0);
			}
}

static void place_slab_locked(trz_heap *h, struct block *b, const struct saved *saved)
{
	struct slab *s = node_pool_take(&h->slabs);
	uint64_t size = size_classes[saved->size_class].slot_size;
	b->state = BLOCK_SLAB;
	b->slab = s;
	slab_init(s, b, saved->size_class);
	pagemap_set_slab(&h->pagemap, b->address, b->size, s);
	counter_add(&h->counters.slab_bytes, b->size);
	s->free &= ~saved->held;
	for (uint64_t held = saved->held; held; held &= held - 1) {
		unsigned slot = (unsigned)__builtin_ctzll(held);
		s->slack[slot] = saved->slack[slot];
		account_alloc(h, SMALL, size - s->slack[slot], size);
		ACCOUNT_NOTE(h, HISTORY_ALLOC, s->home, slab_slot_address(s, slot), size - s->slack[slot]);
	}
	if (s->free)
		bin_push(&b->home->bins[s->size_class], s);
}

static void place_locked(trz_heap *h, const struct pool *p, struct block *b, const struct saved *saved)
{
	b->home = lane_find(p->lanes, saved->stream, b->window->apart);
	if (saved->size_class < CLASS_COUNT) {
		place_slab_locked(h, b, saved);
		return;
	}
	b->state = BLOCK_LIVE;
	b->requested = saved->requested;
	b->uses = NULL;
	pagemap_set_block(&h->pagemap, b->address, b);
	b->home->held += b->size;
	b->home->held_peak = max_u64(b->home->held_peak, b->home->held);
	account_alloc(h, LARGE, saved->requested, b->size);
	ACCOUNT_NOTE(h, HISTORY_ALLOC, b->home, b->address, saved->requested);
	b->frames = saved->frames;
}

static void place_everything_locked(trz_heap *h, const struct pool *p, const struct trz_pool_state *state)
{
	FOR_POOL_WINDOWS(h, w, p) {
		struct block *b = w->blocks.first;
		for (size_t i = 0; i < state->count; i++) {
			const struct saved *s = &state->list[i];
			if (s->address < w->base || s->address >= w->top)
				continue;
			while (block_end(b) <= s->address)
				b = b->next;
			b = heap_cut_block_locked(h, b, s->address, s->size);
			place_locked(h, p, b, s);
		}
	}
}

static trz_status restore_locked(trz_heap *h, struct pool *p, const struct trz_pool_state *state)
{
	if (!all_settled_locked(h, p))
		return trz_fail(TRZ_NOT_READY, "other streams still use memory of the pool: synchronise, then restore it");
	if (!all_there_locked(h, p, state))
		return trz_fail(TRZ_ERROR_NOT_FOUND,
		                "memory of the checkpoint has gone back to the device: only a pool that a capture has used "
		                "keeps it");
	/* Dropping takes no node: what was live is a node already. */
	if (!node_pool_reserve(&h->blocks, 2 * state->count) || !node_pool_reserve(&h->slabs, state->count))
		return meta_exhausted();
	drop_everything_locked(h, p);
	join_lanes_locked(h, p);
	place_everything_locked(h, p, state);
	return TRZ_OK;
}

trz_status pool_state_restore(trz_heap *h, struct pool *p, const struct trz_pool_state *state)
{
	if (state->meta != &h->meta || state->pool != p->id)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "the checkpoint is of another pool");
	trz_capture_mode mode = heap_lock_growth(h);
	heap_poll(h);
	heap_lock(h);
	trz_status status = restore_locked(h, p, state);
	heap_unlock(h);
	heap_unlock_growth(h, mode);
	return status;
}
