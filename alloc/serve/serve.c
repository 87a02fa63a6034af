/* SPDX-License-Identifier: Apache-2.0
 *
 * The paths of allocation and free. The fast ones make no call and take one lock once: for slots the stream's own, else
 * the heap lock. The slow one, under the growth lock, ends with memory that belongs to the request from the start, so
 * that no other thread can take it.
 */
#include "serve/serve.h"

#include <assert.h>

#include "error.h"
#include "heap/capture.h"
#include "heap/carve.h"
#include "heap/events.h"
#include "heap/pending.h"
#include "heap/poll.h"
#include "heap/streams.h"
#include "observe/account.h"
#include "observe/check.h"
#include "observe/dump.h"
#include "observe/holders.h"
#include "observe/notice.h"
#include "observe/steps.h"
#include "serve/postmortem.h"
#include "serve/small.h"
#include "supply/borrow.h"
#include "supply/extend.h"
#include "supply/oom.h"
#include "supply/policy.h"
#include "supply/upkeep.h"
#include "supply/view.h"

/* The class whose slots are large and aligned enough; slots of a slab lie at multiples of their size from an
 * address that is aligned to CELL. */
static unsigned slot_class(const trz_heap *h, uint64_t size, uint64_t alignment)
{
	if (size > h->config.small_limit || alignment > CELL)
		return CLASS_COUNT;
	unsigned c = size_class_of(size);
	while (c < CLASS_COUNT && size_classes[c].slot_size % alignment != 0)
		c++;
	return c;
}

static inline struct demand make_demand(const trz_heap *h, struct lane *l, uint64_t size, uint64_t alignment)
{
	unsigned c = slot_class(h, size, alignment);
	bool medium = size <= h->config.medium_limit && alignment <= CELL;
	enum kind kind = c < CLASS_COUNT || medium ? SMALL : LARGE;
	return (struct demand){.lane = l,
	                       .size = size,
	                       .occupied = demand_block_bytes(kind, size),
	                       .alignment = alignment,
	                       .size_class = c,
	                       .kind = kind};
}

unsigned serve_sort(const trz_heap *h, uint64_t size, uint64_t alignment)
{
	bool once = h->dedicates && slot_class(h, size, alignment) == CLASS_COUNT;
	return once ? DEDICATED_ONCE : 0;
}

/* Reserves host memory for cutting a block and indexing it, or a slab in it. */
static inline bool reserve_nodes_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	return node_pool_reserve(&h->blocks, 2) && node_pool_reserve(&h->slabs, 1) &&
	       pagemap_reserve(&h->pagemap, PAGEMAP_SLAB_GRANULES);
}

/* ---- small ---- */

static void open_slab_locked(trz_heap *h, const struct demand *d, struct block *b)
{
	heap_open_slab_locked(h, d->lane, d->size_class, b);
	heap_note_least_locked(h);
}

/* Where a slab can lie in a block; 0: nowhere. Not across two granules, which may be two tiles: one slot would keep
 * both in place. */
static trz_addr slab_place(const struct block *b, uint64_t size)
{
	trz_addr address = align_up(b->address, CELL);
	if (address % GRANULE + size > GRANULE)
		address = align_up(address, GRANULE);
	return address + size <= block_end(b) ? address : 0;
}

/* So many bytes that a slab has a place in them wherever they begin. */
static uint64_t slab_room(uint64_t size)
{
	return 2 * size - UNIT;
}

enum { SLAB_TRIES = 4 };  /* blocks that are looked at before the search is for one that certainly has room */

/* A free block with a place for a slab: one of the smallest, else one that certainly has room; NULL: none. */
static struct block *find_for_slab(const struct fit *f, uint64_t size)
{
	struct block *b = fit_find(f, size);
	for (int tries = 0; b && tries < SLAB_TRIES; tries++, b = fit_next(f, b))
		if (slab_place(b, size))
			return b;
	return b ? fit_find(f, slab_room(size)) : NULL;
}

/* A slot of the stream's slabs, or of a new slab in its free blocks; 0: neither. */
static trz_addr fast_small_locked(trz_heap *h, const struct demand *d)
{
	HEAP_LOCKED(h);
	heap_call_in_locked(h, d->lane->stream);
	if (!d->lane->bins[d->size_class].first) {
		uint64_t size = size_classes[d->size_class].slab_size;
		struct block *b = find_for_slab(&d->lane->fit[SMALL], size);
		if (!b || !reserve_nodes_locked(h))
			return 0;
		open_slab_locked(h, d, heap_cut_block_locked(h, b, slab_place(b, size), size));
	}
	return small_take_locked(h, d->lane, d->size_class, d->size);
}

/* ---- medium and large ---- */

trz_addr serve_make_live_locked(trz_heap *h, struct lane *l, uint64_t size, struct block *b)
{
	HEAP_LOCKED(h);
	assert(b->state == BLOCK_BUSY);
	assert(size > 0 && size <= b->size && l->dedicated == b->window->dedicated);
	b->state = BLOCK_LIVE;
	b->home = l;
	b->requested = size;
	b->uses = NULL;
	b->frames = 0;
	pagemap_set_block(&h->pagemap, b);
	if (b->kind == LARGE)
		counter_add(&h->burst_bytes, b->size);
	heap_note_least_locked(h);
	l->held += b->size;
	l->held_peak = max_u64(l->held_peak, l->held);
	account_alloc(h, (enum kind)b->kind, size, b->size);
	holders_take_block_locked(h, b);
	ACCOUNT_NOTE(h, HISTORY_ALLOC, l, b->address, size);
	return b->address;
}

/* The best fit among the stream's free blocks; 0: none. */
static inline trz_addr fast_block_locked(trz_heap *h, const struct demand *d)
{
	HEAP_LOCKED(h);
	struct block *b = fit_find(&d->lane->fit[d->kind], demand_padded(d));
	if (!b || !reserve_nodes_locked(h))
		return 0;
	counter_add(&h->counters.path_best_fit, 1);
	trz_addr address = align_up(b->address, d->alignment);
	b = heap_cut_block_locked(h, b, address, heap_block_size(d->kind, d->occupied, block_end(b) - address));
	return serve_make_live_locked(h, d->lane, d->size, b);
}

FLAT trz_addr serve_block(trz_heap *h, struct lane *l, uint64_t size)
{
	assert(size > h->config.small_limit && !l->dedicated);
	enum kind kind = size <= h->config.medium_limit ? SMALL : LARGE;
	if (UNLIKELY(size >= SIZE_LIMIT || h->dedicates || holders_prepares(h) || heap_poll_is_wanted(h)))
		return 0;
	const struct demand d = {.lane = l, .size = size, .occupied = demand_block_bytes(kind, size), .alignment = UNIT,
	                         .kind = kind};
	heap_lock(h);
	trz_addr address = fast_block_locked(h, &d);
	heap_unlock(h);
	return address;
}

static trz_addr fast_locked(trz_heap *h, const struct demand *d)
{
	return d->size_class < CLASS_COUNT ? fast_small_locked(h, d) : fast_block_locked(h, d);
}

/* ---- slow ---- */

/* Turns a busy, idle-counted block into what the demand needs and frees the rest of it. */
static trz_addr settle(trz_heap *h, const struct demand *d, struct block *b)
{
	assert(b->state == BLOCK_BUSY);
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, b->size);
	if (!reserve_nodes_locked(h)) {
		heap_free_block_locked(h, b, b->sequence);
		heap_unlock(h);
		return 0;
	}
	bool small = d->size_class < CLASS_COUNT;
	uint64_t slab = small ? size_classes[d->size_class].slab_size : 0;
	trz_addr address = small ? slab_place(b, slab) : align_up(b->address, d->alignment);
	uint64_t size = small ? slab : heap_block_size(d->kind, d->occupied, block_end(b) - address);
	b = heap_trim_busy_locked(h, b, address, size);
	if (small) {
		heap_call_in_locked(h, d->lane->stream);
		open_slab_locked(h, d, b);
		address = small_take_locked(h, d->lane, d->size_class, d->size);
	} else {
		serve_make_live_locked(h, d->lane, d->size, b);
	}
	heap_unlock(h);
	return address;
}

static trz_addr find(trz_heap *h, const struct demand *d)
{
	heap_lock(h);
	trz_addr address = fast_locked(h, d);
	heap_unlock(h);
	return address;
}

/* A free view, or free memory once the views have returned. */
static trz_addr find_in_views(trz_heap *h, const struct demand *d)
{
	struct block *b = view_take(h, d);
	if (b)
		return settle(h, d, b);
	view_return(h, d->lane);
	return find(h, d);
}

/* Pending memory becomes free only when a poll finds that its users are done. So the heap asks before it creates what
 * the slack allows, if any is pending (docs/decisions/0027-pending-before-creating.md); borrowing asks anyway. */
static trz_addr find_after_poll(trz_heap *h, const struct demand *d)
{
	if (d->kind != LARGE || counter_get(&h->counters.pending.current) == 0)
		return 0;
	heap_poll(h);
	heap_lock(h);
	heap_end_known_locked(h, d->lane->stream);
	trz_addr address = fast_locked(h, d);
	heap_unlock(h);
	return address;
}

static NOINLINE trz_status find_or_grow(trz_heap *h, struct demand *d, trz_addr *out)
{
	HEAP_GROWTH_LOCKED(h);
	struct block *b;
	d->bytes = d->size_class < CLASS_COUNT ? slab_room(size_classes[d->size_class].slab_size) : demand_padded(d);
	d->effort = policy_effort(h, d);
	d->view = policy_views(h, d);
	*out = find(h, d);  /* another thread may have freed or grown meanwhile */
	if (!*out && d->kind == LARGE)
		*out = find_in_views(h, d);
	if (!*out && !d->lane->captured && d->effort == EFFORT_CREATE)
		*out = find_after_poll(h, d);
	else if (!*out && borrow(h, d))
		*out = find(h, d);
	if (*out)
		return TRZ_OK;
	trz_status status = extend(h, d, &b);
	if (oom_is_want_of_memory(status))
		status = oom_ladder(h, d, status, &b);
	if (status != TRZ_OK)
		return status;
	notice_mapped(h, b);
	*out = settle(h, d, b);
	return *out ? TRZ_OK : meta_exhausted();
}

static NOINLINE trz_status slow(trz_heap *h, struct demand *d, trz_addr *out)
{
	if (!heap_lock_growth(h))
		return TRZ_ERROR_NOT_PERMITTED;
	trz_status status = find_or_grow(h, d, out);
	if (status == TRZ_OK)
		upkeep_return_free(h);
	heap_unlock_growth(h);
	CHECK_SLOW_PATH(h);
	return status;
}

trz_status serve_alloc(trz_heap *h, struct lane *l, uint64_t size, uint64_t alignment, trz_addr *out)
{
	struct demand d = make_demand(h, l, size, alignment);
	assert(!l->dedicated);
	*out = d.size_class < CLASS_COUNT ? small_take(l, d.size_class, size) : 0;
	if (*out)
		return TRZ_OK;
	if (d.size_class == CLASS_COUNT || slots_are_due(&l->stream->slots, size))
		holders_prepare(h);
	heap_lock(h);
	*out = fast_locked(h, &d);
	heap_unlock(h);
	if (LIKELY(*out != 0))
		return TRZ_OK;
	trz_status status = slow(h, &d, out);
	if (UNLIKELY(oom_is_full(status)) && oom_ask(h, status))
		status = slow(h, &d, out);
	if (LIKELY(!oom_is_full(status)))
		return steps_after_growth(h, status);
	oom_count(h, &d);
	return postmortem_failed(h, dump_failure(h, status, postmortem_write));
}

/* ---- free ---- */

static COLD trz_status is_free(trz_addr address)
{
	return trz_fail(TRZ_ERROR_DOUBLE_FREE, "%p has been freed already, or was never allocated", (void *)address);
}

/* Sets the text of a failed free or query. Tells a freed address from an unknown one by walking the windows, which is
 * expensive, but only wrong programs pay for it. */
static COLD trz_status complain(trz_heap *h, trz_addr address)
{
	trz_status status = TRZ_ERROR_UNKNOWN_POINTER;
	heap_take_growth(h);
	heap_lock(h);
	const struct window *w = heap_window_at(h, address);
	const struct block *b = w ? w->blocks.first : NULL;
	while (b && block_end(b) <= address)
		b = b->next;
	if (b && b->state != BLOCK_LIVE && b->state != BLOCK_SLAB)
		status = TRZ_ERROR_DOUBLE_FREE;
	heap_unlock(h);
	heap_give_growth(h);
	if (status == TRZ_ERROR_DOUBLE_FREE)
		return is_free(address);
	return trz_fail(status,
	                "%p was not allocated by the heap of device %d, or is not the first byte of an allocation",
	                (void *)address, h->driver.device);
}

static void give_slot_locked(trz_heap *h, struct slab *s, unsigned slot)
{
	HEAP_LOCKED(h);
	uint64_t occupied = slab_class(s)->slot_size;
	account_slot_free(h, s->home->stream, occupied - s->unused[slot], occupied);
	holders_give_slot_locked(h, s, slot);
	ACCOUNT_NOTE(h, HISTORY_FREE, s->home, slab_slot_address(s, slot), occupied - s->unused[slot]);
	ticket_take(&s->home->stream->tickets);
	if (UNLIKELY(bin_give_slot(&s->home->bins[s->size_class], s, slot)))
		heap_retire_slab_locked(h, s);
}

/* Takes the uses of one slot out of its slab's list. */
static struct use *detach_slot_uses(struct slab *s, unsigned slot)
{
	struct use *mine = NULL;
	for (struct use **link = &s->uses; *link;) {
		struct use *u = *link;
		if (u->slot != slot) {
			link = &u->next;
			continue;
		}
		*link = u->next;
		u->next = mine;
		mine = u;
	}
	return mine;
}

/* Takes each use's ticket on its stream now, in the free. Uses on the freeing stream need none: its own ticket covers
 * them. */
static struct use *take_use_tickets_locked(trz_heap *h, struct use *uses, const struct stream *on)
{
	HEAP_LOCKED(h);
	for (struct use **link = &uses; *link;) {
		struct use *u = *link;
		if (u->stream == on) {
			*link = u->next;
			heap_drop_use_locked(h, u);
			continue;
		}
		u->sequence = ticket_take(&u->stream->tickets);
		link = &u->next;
	}
	return uses;
}

static struct pending *new_pending_locked(trz_heap *h, enum kind kind, uint64_t occupied)
{
	HEAP_LOCKED(h);
	struct pending *p = node_pool_take(&h->pendings);
	*p = (struct pending){0};
	level_add(&h->counters.pending_bytes, occupied);
	level_add(&h->counters.pending, 1);
	counter_add(&h->counters.active_bytes.pending[kind], occupied);
	counter_add(&h->counters.active.pending[kind], 1);
	heap_raise_peaks_locked(h);
	return p;
}

/* Queues pending memory that waits first for ticket `sequence` of `on` (NULL: for that of its first use), then for the
 * tickets of its uses. */
static void await_locked(trz_heap *h, struct pending *p, struct use *uses, struct stream *on, uint64_t sequence)
{
	HEAP_LOCKED(h);
	assert(on || uses);
	p->uses = uses;
	if (!on) {
		p->uses = uses->next;
		on = uses->stream;
		sequence = uses->sequence;
		heap_drop_use_locked(h, uses);
	}
	heap_push_pending_locked(on, p, sequence);
}

/* Takes a held slot from its holder; the caller then sets what it awaits. */
static struct pending *pend_slot_locked(trz_heap *h, struct slab *s, unsigned slot)
{
	HEAP_LOCKED(h);
	uint64_t occupied = slab_class(s)->slot_size;
	account_slot_pend(h, s->home->stream, occupied - s->unused[slot], occupied);
	holders_give_slot_locked(h, s, slot);
	ACCOUNT_NOTE(h, HISTORY_FREE_REQUESTED, s->home, slab_slot_address(s, slot), occupied - s->unused[slot]);
	struct pending *p = new_pending_locked(h, SMALL, occupied);
	p->slab = s;
	p->slot = slot;
	s->pending |= (uint64_t)1 << slot;
	counter_add(&h->counters.pending_slot_bytes, occupied);
	return p;
}

/* A slot freed on another stream than its slab's, or used by others, waits for their tickets before its home may
 * reuse it. Small frees record no event: a later poll records one for many. */
static COLD bool park_slot_locked(trz_heap *h, struct slab *s, unsigned slot, struct stream *on)
{
	HEAP_LOCKED(h);
	if (!node_pool_reserve(&h->pendings, 1))
		return false;
	struct stream *home = s->home->stream, *order = on ? on : home;
	struct use *uses = take_use_tickets_locked(h, detach_slot_uses(s, slot), order);
	if (order == home && !uses) {  /* other streams use another slot of the slab, not this one */
		give_slot_locked(h, s, slot);
		return true;
	}
	uint64_t sequence = ticket_take(&order->tickets);
	struct pending *p = pend_slot_locked(h, s, slot);
	await_locked(h, p, uses, order == home ? NULL : order, sequence);
	return true;
}

/* *bound: the per-thread stream in whose order the slot was freed, and whose event must be recorded now. */
static trz_status free_slot_locked(trz_heap *h, struct slab *s, trz_addr address, struct stream *on,
                                   struct stream **bound)
{
	HEAP_LOCKED(h);
	struct stream *order = on ? on : s->home->stream;
	*bound = UNLIKELY(order->thread_bound) ? order : NULL;
	unsigned slot = slab_slot_at(s, address);
	if (UNLIKELY(slot == SLAB_SLOTS_MAX))
		return TRZ_ERROR_UNKNOWN_POINTER;
	if (UNLIKELY((s->free | s->pending) >> slot & 1))
		return TRZ_ERROR_DOUBLE_FREE;
	if (UNLIKELY((on && on != s->home->stream) || s->uses))
		return park_slot_locked(h, s, slot, on) ? TRZ_OK : TRZ_ERROR_HOST_MEMORY;
	give_slot_locked(h, s, slot);
	return TRZ_OK;
}

/* Takes a live block away from its caller and makes `on` its home; it is then busy. `waits`: it will be pending, not
 * free. */
static void retract_block_locked(trz_heap *h, struct block *b, struct lane *on, bool waits)
{
	HEAP_LOCKED(h);
	assert(b->state == BLOCK_LIVE && on->dedicated == b->home->dedicated);
	pagemap_clear_block(&h->pagemap, b);
	b->state = BLOCK_BUSY;
	if (UNLIKELY(b->window->foreign != NULL)) {
		b->home = on;
		return;
	}
	account_free(h, (enum kind)b->kind, b->requested, b->size);
	holders_give_block_locked(h, b);
	ACCOUNT_NOTE(h, waits ? HISTORY_FREE_REQUESTED : HISTORY_FREE, on, b->address, b->requested);
	assert(b->home->held >= b->size);
	b->home->held -= b->size;
	b->home = on;
	if (b->kind == LARGE)
		counter_set(&h->burst_bytes, 0);
}

/* Whether a block is not free even when its tickets have passed, since other processes use it, or own it. */
static bool is_shared(const struct block *b)
{
	return UNLIKELY(b->exports || b->window->foreign);
}

/* Records an event inside a free that counts as a recorder; NULL: none could be, and a later poll covers the ticket. */
static trz_event record_exact(trz_heap *h, const struct stream *s)
{
	return heap_is_threads_own(s) ? heap_record_event(h, s) : NULL;
}

/* Ends the record, and notes its event (NULL: there is none) for the batch that the free ends. Returns an event that
 * the caller must give back, or NULL. */
static trz_event note_exact_locked(trz_heap *h, struct stream *s, uint64_t first, uint64_t sequence, trz_event event)
{
	HEAP_LOCKED(h);
	stream_end_record(s);
	if (!event || stream_is_gone(s))
		return event;
	event = ticket_note(&s->tickets, sequence, event, first);
	if (s->tickets.count >= TICKET_QUEUE_HIGH && s->tickets.count % TICKET_QUEUE_STEP == 0)
		atomic_store_explicit(&h->poll_wanted, true, memory_order_relaxed);
	return event;
}

/* Records and notes an event, for a free that counts as a recorder. */
static void cover(trz_heap *h, struct stream *s, uint64_t first, uint64_t sequence)
{
	int cancel = uncancelled_begin();
	trz_event event = record_exact(h, s);
	heap_lock(h);
	struct event_pool *p = s->events;
	event = note_exact_locked(h, s, first, sequence, event);
	heap_unlock(h);
	if (event)
		heap_return_event(h, p, event);
	uncancelled_end(cancel);
}

/* Whether a free of so many bytes is to record an event on the stream. If so, it counts as a recorder from now on, and
 * this returns the first ticket of its batch; else 0. While the queue is full an event would only be thrown away. */
static NOINLINE uint64_t begin_cover_among_several_locked(trz_heap *h, struct stream *s, uint64_t sequence,
                                                          uint64_t bytes, bool at_once)
{
	HEAP_LOCKED(h);
	at_once |= atomic_load_explicit(&h->short_of_memory, memory_order_relaxed);
	uint64_t first = ticket_batch(&s->tickets, sequence, bytes, at_once ? 0 : h->config.event_bytes);
	bool room = s->tickets.count < TICKET_QUEUE;
	return first && room && stream_begin_record(s) ? first : 0;
}

static inline uint64_t begin_cover_locked(trz_heap *h, struct stream *s, uint64_t sequence, uint64_t bytes)
{
	HEAP_LOCKED(h);
	bool at_once = s->thread_bound || h->dedicates;
	if (LIKELY(atomic_load_explicit(&h->streams.count, memory_order_relaxed) == 1) && !at_once)
		return 0;
	return begin_cover_among_several_locked(h, s, sequence, bytes, at_once);
}

/* Records an event for a use, if one is due. */
static void cover_if_due(trz_heap *h, struct stream *s, uint64_t sequence, uint64_t bytes)
{
	heap_lock(h);
	uint64_t first = begin_cover_locked(h, s, sequence, bytes);
	heap_unlock(h);
	if (first)
		cover(h, s, first, sequence);
}

/* The capture that a free may be part of, if its lane has served one: the driver is to be asked, and the free counts as
 * a recorder. 0: none. One more ticket is taken, which no free has: what is given the stream's newest ticket, because
 * its last use is not known any closer, is never clean. */
static uint64_t begin_asking_locked(const struct lane *l)
{
	if (LIKELY(!l->serving) || !stream_begin_record(l->stream))
		return 0;
	ticket_take(&l->stream->tickets);
	return l->serving;
}

/* Frees a block whose free ends a batch (`first`), or may be part of a capture. The driver is called outside the lock,
 * before any thread can reuse the block, so that an event covers nothing that came after the free. */
static void free_with_calls(trz_heap *h, struct block *b, struct stream *on, uint64_t first, uint64_t sequence,
                            uint64_t capture)
{
	assert(b->state == BLOCK_BUSY);
	int cancel = uncancelled_begin();
	trz_event event = first ? record_exact(h, on) : NULL;
	bool captured = capture && heap_is_in_capture(h, on, capture);
	heap_lock(h);
	struct event_pool *p = on->events;
	if (first)
		event = note_exact_locked(h, on, first, sequence, event);
	if (capture) {
		stream_end_record(on);
		heap_note_in_capture_locked(b->home, capture, captured, sequence);
	}
	level_sub(&h->counters.idle_bytes, b->size);
	heap_free_block_locked(h, b, sequence);
	heap_unlock(h);
	if (event)
		heap_return_event(h, p, event);
	uncancelled_end(cancel);
}

static struct pending *new_pending_block_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	struct pending *p;
	assert(b->state == BLOCK_BUSY);
	if (b->window->foreign) {
		p = node_pool_take(&h->pendings);
		*p = (struct pending){0};
		h->imports_freed++;
		atomic_store_explicit(&h->poll_wanted, true, memory_order_relaxed);
	} else {
		p = new_pending_locked(h, (enum kind)b->kind, b->size);
	}
	p->block = b;
	b->state = BLOCK_PENDING;
	return p;
}

/* Frees a block that other streams, or processes, use as well: it waits for all of the streams. The heap lock is held
 * at the call and given up. */
static COLD void free_used_block_and_unlock(trz_heap *h, struct block *b, struct stream *on, uint64_t sequence,
                                            struct use *uses)
{
	HEAP_LOCKED(h);
	bool shared = is_shared(b);
	struct pending *p = new_pending_block_locked(h, b);
	p->home_sequence = sequence;
	heap_unlock(h);
	for (const struct use *u = uses; u; u = u->next)
		cover_if_due(h, u->stream, u->sequence, b->size);
	cover_if_due(h, on, sequence, b->size);
	heap_lock(h);
	await_locked(h, p, uses, shared ? on : NULL, sequence);
	heap_unlock(h);
}

COLD trz_status serve_complain(trz_heap *h, trz_addr address, trz_status status)
{
	if (status == TRZ_ERROR_DOUBLE_FREE)
		return is_free(address);
	if (status == TRZ_ERROR_HOST_MEMORY)
		return meta_exhausted();
	return complain(h, address);
}

/* Frees a block. The heap lock is held at the call and given up. */
static FLAT NOINLINE trz_status free_block_and_unlock(trz_heap *h, struct block *b, trz_addr address, struct stream *on)
{
	HEAP_LOCKED(h);
	if (!b || b->address != address) {
		heap_unlock(h);
		return complain(h, address);
	}
	bool waits = b->uses || is_shared(b);
	if (waits && !node_pool_reserve(&h->pendings, 1)) {
		heap_unlock(h);
		return serve_complain(h, address, TRZ_ERROR_HOST_MEMORY);
	}
	bool moves = on && on != b->home->stream;
	struct lane *home = moves ? heap_lane_locked(h, on, lane_pool(b->home), b->home->dedicated) : b->home;
	if (!home) {
		heap_unlock(h);
		return serve_complain(h, address, TRZ_ERROR_HOST_MEMORY);
	}
	on = home->stream;
	uint64_t sequence = ticket_take(&on->tickets);
	struct use *uses = b->uses ? take_use_tickets_locked(h, b->uses, on) : NULL;
	waits = uses || is_shared(b);
	retract_block_locked(h, b, home, waits);
	if (waits) {
		free_used_block_and_unlock(h, b, on, sequence, uses);
		return TRZ_OK;
	}
	uint64_t first = begin_cover_locked(h, on, sequence, b->size);
	uint64_t capture = moves ? 0 : begin_asking_locked(home);
	if (!first && !capture) {
		heap_free_block_locked(h, b, sequence);
		heap_unlock(h);
		return TRZ_OK;
	}
	level_add(&h->counters.idle_bytes, b->size);
	heap_unlock(h);
	free_with_calls(h, b, on, first, sequence, capture);
	return TRZ_OK;
}

/* Frees a slot where the lock of the stream's slots alone is not enough. The heap lock is held at the call and given
 * up. */
static FLAT NOINLINE trz_status free_slot_and_unlock(trz_heap *h, struct slab *s, trz_addr address, struct stream *on)
{
	HEAP_LOCKED(h);
	struct stream *bound, *home = s->home->stream;
	heap_call_in_locked(h, home);
	trz_status status = free_slot_locked(h, s, address, on, &bound);
	uint64_t sequence = bound ? bound->tickets.newest : 0;
	if (UNLIKELY(bound && (status != TRZ_OK || !stream_begin_record(bound))))
		bound = NULL;
	heap_let_out_locked(h, home);
	heap_unlock(h);
	if (UNLIKELY(status != TRZ_OK))
		return serve_complain(h, address, status);
	if (UNLIKELY(bound != NULL))
		cover(h, bound, sequence, sequence);
	return TRZ_OK;
}

trz_status serve_free(trz_heap *h, const _Atomic pagemap_entry *at, trz_addr address, struct stream *on)
{
	if (at && small_free(at, address, on, true))
		return TRZ_OK;
	heap_lock(h);
	pagemap_entry entry = at ? pagemap_read(at) : 0;
	if (UNLIKELY(pagemap_has_cells(entry)))  /* since `at` was found */
		entry = pagemap_get(&h->pagemap, address);
	return pagemap_is_slab(entry) ? free_slot_and_unlock(h, pagemap_slab(entry), address, on)
	                              : free_block_and_unlock(h, pagemap_block(entry), address, on);
}

struct block *serve_block_locked(const trz_heap *h, trz_addr address)
{
	HEAP_LOCKED(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	struct block *b = pagemap_is_slab(entry) ? NULL : pagemap_block(entry);
	assert(!b || b->state == BLOCK_LIVE);
	return b && b->address == address ? b : NULL;
}

/* ---- free after an event ---- */

/* Drops uses: the caller's event covers them. */
static void drop_uses_locked(trz_heap *h, struct use *uses)
{
	HEAP_LOCKED(h);
	while (uses) {
		struct use *next = uses->next;
		heap_drop_use_locked(h, uses);
		uses = next;
	}
}

struct pending *serve_take_back_locked(trz_heap *h, trz_addr address, trz_status *status)
{
	HEAP_LOCKED(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	struct slab *s = pagemap_is_slab(entry) ? pagemap_slab(entry) : NULL;
	struct block *b = serve_block_locked(h, address);
	unsigned slot = s ? slab_slot_at(s, address) : SLAB_SLOTS_MAX;
	if (s)
		heap_call_in_locked(h, s->home->stream);
	*status = TRZ_ERROR_UNKNOWN_POINTER;
	if (!b && slot == SLAB_SLOTS_MAX)
		return NULL;
	*status = TRZ_ERROR_DOUBLE_FREE;
	if (s && (s->free | s->pending) >> slot & 1)
		return NULL;
	*status = TRZ_ERROR_HOST_MEMORY;
	if (!node_pool_reserve(&h->pendings, 1))
		return NULL;
	*status = TRZ_OK;
	if (s) {
		drop_uses_locked(h, detach_slot_uses(s, slot));
		return pend_slot_locked(h, s, slot);
	}
	drop_uses_locked(h, b->uses);
	retract_block_locked(h, b, b->home, true);
	return new_pending_block_locked(h, b);
}
