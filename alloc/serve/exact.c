/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts free memory at an address out of its block, or takes a slot of a slab that is there or can be opened there.
 * Creates, moves and maps nothing: an address where no tile is owned cannot be allocated.
 */
#include "serve/exact.h"

#include "heap/capture.h"
#include "heap/carve.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "observe/check.h"
#include "observe/holders.h"
#include "serve/serve.h"

/* A request, and its part of the address space. */
struct wanted {
	struct lane *lane;
	trz_addr address;
	uint64_t size;
	bool captured;
};

/* Whether the lane may have free memory of lane `of` in its stream's order, without a ticket having passed. */
static bool is_ordered_locked(const struct wanted *w, const struct lane *of)
{
	if (w->captured && !heap_serves_captures_locked(of))
		return false;
	return of->stream == w->lane->stream;
}

/* Whether the lane may take a block now. */
static bool is_to_be_had_locked(const struct wanted *w, const struct block *b)
{
	if (b->state != BLOCK_FREE || b->home->pool != w->lane->pool || b->home->dedicated != w->lane->dedicated)
		return false;
	return is_ordered_locked(w, b->home) || heap_block_passed(b);
}

/* How many bytes from `address` on, in `b` and behind it, the lane may take. */
static uint64_t available_locked(const struct wanted *w, const struct block *b, trz_addr address)
{
	trz_addr end = address;
	for (; b && is_to_be_had_locked(w, b); b = b->next)
		end = block_end(b);
	return end - address;
}

static struct block *block_at_locked(const trz_heap *h, const struct window *w, trz_addr address)
{
	HEAP_LOCKED(h);
	assert(address >= w->base && address < w->top);
	struct block *b = pagemap_block_before(&h->pagemap, address);
	if (!b || b->window != w || b->address > address)
		b = w->blocks.first;
	while (block_end(b) <= address)
		b = b->next;
	return b;
}

/* ---- slots ---- */

static void take_slot_locked(trz_heap *h, const struct wanted *w, struct slab *s, unsigned slot)
{
	HEAP_LOCKED(h);
	uint64_t occupied = slab_class(s)->slot_size;
	SLOTS_IN(h, s->home->stream);
	assert(s->free >> slot & 1 && w->size <= occupied && slab_slot_address(s, slot) == w->address);
	s->free &= ~((uint64_t)1 << slot);
	s->unused[slot] = (uint16_t)(occupied - w->size);
	if (!s->free)
		bin_unlink(&s->home->bins[s->size_class], s);
	account_slot_alloc(h, s->home->stream, w->size, occupied);
	holders_take_slot_locked(h, s, slot);
	ACCOUNT_NOTE(h, HISTORY_ALLOC, s->home, w->address, w->size);
}

static trz_status from_slab_locked(trz_heap *h, const struct wanted *w, struct slab *s)
{
	HEAP_LOCKED(h);
	heap_call_in_locked(h, s->home->stream);
	unsigned slot = slab_slot_at(s, w->address);
	bool ours = s->home->pool == w->lane->pool && is_ordered_locked(w, s->home);
	if (!ours || slot == SLAB_SLOTS_MAX || !(s->free >> slot & 1) || w->size > slab_class(s)->slot_size)
		return TRZ_ERROR_NO_ROOM;
	take_slot_locked(h, w, s, slot);
	return TRZ_OK;
}

/* Whether a slab can lie there: never across two granules (serve.c). */
static bool is_slab_place(trz_addr base, uint64_t size)
{
	return base % CELL == 0 && base % GRANULE + size <= GRANULE;
}

/* Opens a slab one of whose slots begins at the address, in free memory around it. */
static trz_status open_slab_locked(trz_heap *h, const struct wanted *w, const struct window *in)
{
	HEAP_LOCKED(h);
	unsigned class = size_class_of(w->size);
	const struct size_class *c = &size_classes[class];
	for (unsigned slot = 0; slot < c->slots; slot++) {
		trz_addr base = w->address - (uint64_t)slot * c->slot_size;
		if (base < in->base)
			break;
		if (!is_slab_place(base, c->slab_size))
			continue;
		struct block *b = block_at_locked(h, in, base);
		if (available_locked(w, b, base) < c->slab_size)
			continue;
		b = heap_carve_locked(h, b, base, c->slab_size);
		heap_call_in_locked(h, w->lane->stream);
		take_slot_locked(h, w, heap_open_slab_locked(h, w->lane, class, b), slot);
		return TRZ_OK;
	}
	return TRZ_ERROR_NO_ROOM;
}

/* ---- blocks ---- */

static trz_status from_free_locked(trz_heap *h, const struct wanted *w, const struct window *in)
{
	HEAP_LOCKED(h);
	struct block *b = block_at_locked(h, in, w->address);
	uint64_t bytes = demand_block_bytes(in->kind, w->size), available = available_locked(w, b, w->address);
	if (available < bytes)
		return TRZ_ERROR_NO_ROOM;
	b = heap_carve_locked(h, b, w->address, heap_block_size(in->kind, bytes, available));
	serve_make_live_locked(h, w->lane, w->size, b);
	return TRZ_OK;
}

/* ---- both ---- */

static trz_status take_locked(trz_heap *h, const struct wanted *w, const struct window *in)
{
	HEAP_LOCKED(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, w->address);
	if (pagemap_is_slab(entry))
		return from_slab_locked(h, w, pagemap_slab(entry));
	if (!node_pool_reserve(&h->blocks, 2) || !node_pool_reserve(&h->slabs, 1) ||
	    !pagemap_reserve(&h->pagemap, PAGEMAP_SLAB_GRANULES))
		return meta_exhausted();
	trz_status status = TRZ_ERROR_NO_ROOM;
	if (in->kind == SMALL && w->size <= h->config.small_limit)
		status = open_slab_locked(h, w, in);
	if (status == TRZ_ERROR_NO_ROOM)
		status = from_free_locked(h, w, in);
	heap_note_least_locked(h);
	return status;
}

static trz_status take(trz_heap *h, const struct wanted *w, const struct window *in)
{
	heap_lock(h);
	trz_status status = take_locked(h, w, in);
	heap_unlock(h);
	return status;
}

static trz_status alloc(trz_heap *h, const struct wanted *w)
{
	const struct window *in = heap_window_at(h, w->address);
	if (!in || in->foreign || w->size > in->top - w->address)
		return TRZ_ERROR_NO_ROOM;
	trz_status status = take(h, w, in);
	if (status != TRZ_ERROR_NO_ROOM)
		return status;
	heap_poll(h);
	if (driver_is_dead(&h->driver))
		return TRZ_ERROR_CONTEXT_DEAD;
	in = heap_window_at(h, w->address); /* a poll can give windows back */
	return in ? take(h, w, in) : TRZ_ERROR_NO_ROOM;
}

trz_status exact_alloc(trz_heap *h, struct lane *l, trz_addr address, uint64_t size, bool captured)
{
	const struct wanted w = {.lane = l, .address = address, .size = size, .captured = captured};
	if (!heap_lock_growth(h))
		return TRZ_ERROR_NOT_PERMITTED;
	trz_status status = alloc(h, &w);
	heap_unlock_growth(h);
	CHECK_SLOW_PATH(h);
	return status;
}
