/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocation grows into the free block behind it, if that is its own stream's, and so in the same order, or has
 * passed. At the end of a window more can be laid first.
 */
#include "serve/grow.h"

#include "heap/capture.h"
#include "heap/carve.h"
#include "heap/ends.h"
#include "heap/events.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "observe/check.h"
#include "observe/holders.h"
#include "observe/notice.h"
#include "serve/serve.h"
#include "supply/extend.h"
#include "supply/policy.h"

/* Which free memory behind an allocation may become part of it. */
enum taking {
	TAKE_NOTHING,                /* none: the stream is another thread's own, so whether it is captured is unknown */
	TAKE_OWN,                    /* what is the lane's own: it is in the stream's order */
	TAKE_FOR_CAPTURE             /* the stream is being captured: what the capture could be given, or has passed */
};

static void note_locked(trz_heap *h, const struct lane *l, trz_addr address, uint64_t size, uint64_t grown)
{
	HEAP_LOCKED(h);
	ACCOUNT_NOTE(h, HISTORY_FREE, l, address, size);
	ACCOUNT_NOTE(h, HISTORY_ALLOC, l, address, grown);
	counter_add(&h->counters.path_grow, 1);
}

/* Whether work that is being captured may use more of the lane's memory. */
static bool is_refused(const struct lane *l, enum taking taking)
{
	return taking == TAKE_FOR_CAPTURE && !l->pool;
}

static trz_status grow_slot_locked(trz_heap *h, struct slab *s, trz_addr address, uint64_t size,
                                      enum taking taking)
{
	HEAP_LOCKED(h);
	uint64_t occupied = slab_class(s)->slot_size;
	heap_call_in_locked(h, s->home->stream);
	unsigned slot = slab_slot_at(s, address);
	if (slot == SLAB_SLOTS_MAX || (s->free | s->pending) >> slot & 1)
		return TRZ_ERROR_UNKNOWN_POINTER;
	uint64_t requested = occupied - s->unused[slot];
	if (size <= requested)
		return TRZ_OK;
	if (is_refused(s->home, taking))
		return TRZ_ERROR_CAPTURE;
	if (size > occupied)
		return TRZ_ERROR_NO_ROOM;
	s->unused[slot] = (uint16_t)(occupied - size);
	account_slot_grow(h, s->home->stream, requested, size);
	holders_grow_slot_locked(h, s, slot, requested);
	note_locked(h, s->home, address, requested, size);
	return TRZ_OK;
}

/* Makes the bytes of a block that is long enough now the caller's. `added`: the bytes that it has gained. */
static trz_status settle_locked(trz_heap *h, struct block *b, uint64_t size, uint64_t added)
{
	HEAP_LOCKED(h);
	uint64_t requested = b->requested;
	assert(b->state == BLOCK_LIVE && requested < size && size <= b->size);
	b->requested = size;
	b->home->held += added;
	b->home->held_peak = max_u64(b->home->held_peak, b->home->held);
	if (b->kind == LARGE)
		counter_add(&h->burst_bytes, added);
	account_grow(h, (enum kind)b->kind, requested, size, added);
	holders_grow_block_locked(h, b, requested);
	note_locked(h, b->home, b->address, requested, size);
	return TRZ_OK;
}

/* How many bytes the block lacks. */
static uint64_t missing(const struct block *b, uint64_t size)
{
	uint64_t occupied = account_rounded(size);
	return occupied > b->size ? occupied - b->size : 0;
}

/* The free block behind, of the same lane, if it may be taken: it is ordered, or has passed. A capture may take what it
 * could be given. */
static struct block *free_behind_locked(const struct block *b, enum taking taking)
{
	struct block *n = b->next;
	if (taking == TAKE_NOTHING || !n || n->state != BLOCK_FREE || n->home != b->home)
		return NULL;
	bool ordered = taking == TAKE_OWN || heap_serves_captures_locked(n->home);
	return ordered || heap_block_passed(n) ? n : NULL;
}

/* Whether a request is too large for the window of small memory that the block lies in. */
static bool is_too_large(const trz_heap *h, const struct block *b, uint64_t size)
{
	return b->kind == SMALL && size > h->config.medium_limit;
}

/* Grows a block without the growth lock. NO_ROOM: it may grow with it. */
static trz_status grow_block_locked(trz_heap *h, struct block *b, uint64_t size, enum taking taking)
{
	HEAP_LOCKED(h);
	uint64_t need = missing(b, size);
	struct block *behind = free_behind_locked(b, taking);
	if (size <= b->requested)
		return TRZ_OK;
	if (is_refused(b->home, taking))
		return TRZ_ERROR_CAPTURE;
	if (b->window->foreign || (need && (b->window->dedicated || is_too_large(h, b, size))))
		return TRZ_ERROR_NO_ROOM;
	if (!need)
		return settle_locked(h, b, size, 0);
	if (!behind || behind->size < need)
		return TRZ_ERROR_NO_ROOM;
	if (!node_pool_reserve(&h->blocks, 2))
		return TRZ_ERROR_HOST_MEMORY;
	need = heap_block_size((enum kind)b->kind, need, behind->size);
	heap_cut_block_locked(h, behind, behind->address, need);
	block_absorb_next(&h->blocks, b);
	return settle_locked(h, b, size, need);
}

static trz_status grow_locked(trz_heap *h, trz_addr address, uint64_t size, enum taking taking)
{
	HEAP_LOCKED(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	struct slab *s = pagemap_is_slab(entry) ? pagemap_slab(entry) : NULL;
	struct block *b = s ? NULL : serve_block_locked(h, address);
	if (!s && !b)
		return TRZ_ERROR_UNKNOWN_POINTER;
	const struct lane *home = s ? s->home : b->home;
	if (taking != TAKE_FOR_CAPTURE)
		heap_void_announcement_locked(h, home->pool, home->stream);
	return s ? grow_slot_locked(h, s, address, size, taking) : grow_block_locked(h, b, size, taking);
}

/* ---- whose order ---- */

/* The stream of an allocation; the caller counts as one of its recorders, so that the handle stays alive. NULL: there
 * is no such allocation, or the stream has been retired, so that nothing captures it. */
static struct stream *begin_asking(trz_heap *h, trz_addr address)
{
	heap_lock(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	const struct block *b = pagemap_is_slab(entry) ? NULL : serve_block_locked(h, address);
	const struct lane *l = pagemap_is_slab(entry) ? pagemap_slab(entry)->home : b ? b->home : NULL;
	struct stream *s = l && stream_begin_record(l->stream) ? l->stream : NULL;
	heap_unlock(h);
	return s;
}

/* Asks what may be taken, before any is: the work that uses the added bytes may become part of a graph. */
static trz_status ask_taking(trz_heap *h, trz_addr address, enum taking *taking)
{
	struct stream *s = begin_asking(h, address);
	struct capture capture = {.status = TRZ_CAPTURE_NONE};
	trz_status status = TRZ_OK;
	*taking = TAKE_OWN;
	if (!s)
		return TRZ_OK;
	bool known = heap_is_threads_own(s);
	if (known && s->handle && !heap_has_lost(s->events))
		status = driver_stream_capture(&h->driver, s->events->context, s->handle, &capture.status, &capture.id);
	heap_lock(h);
	stream_end_record(s);
	heap_unlock(h);
	if (!known)
		*taking = TAKE_NOTHING;
	else if (capture.status != TRZ_CAPTURE_NONE)
		*taking = TAKE_FOR_CAPTURE;
	if (known && status == TRZ_OK)
		heap_see_capture(h, s, &capture);
	return status;
}

/* ---- with the growth lock ---- */

/* Gives the memory behind a block, as far as it is free and has passed, to the block's lane, where it joins. */
static void adopt_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	for (struct block *n = b->next; n && n->state == BLOCK_FREE; n = n->next) {
		if (n->home == b->home)
			continue;
		if (!heap_block_passed(n) || n->home->pool != b->home->pool)
			return;
		fit_remove(heap_index_of(n), n);
		n->home = b->home;
		heap_free_block_locked(h, n, 0);
		n = b->next;  /* it may have joined the one before */
	}
}

/* Takes the free tail behind a block, if there is one, out of its index. false: something else lies between the block
 * and the end of what is laid. */
static bool take_tail_locked(trz_heap *h, struct block *b, enum taking taking, struct block **tail)
{
	HEAP_LOCKED(h);
	*tail = free_behind_locked(b, taking);
	if ((*tail ? *tail : b)->next)
		return false;
	if (*tail) {
		fit_remove(heap_index_of(b), *tail);
		(*tail)->state = BLOCK_BUSY;
		level_add(&h->counters.idle_bytes, (*tail)->size);
	}
	return true;
}

/* Joins what has been laid, busy and counted as idle, to the block before it, if that is there still. */
static trz_status join_locked(trz_heap *h, trz_addr address, struct block *laid, uint64_t size,
                              enum taking taking)
{
	HEAP_LOCKED(h);
	struct block *b = serve_block_locked(h, address);
	assert(laid->state == BLOCK_BUSY);
	level_sub(&h->counters.idle_bytes, laid->size);
	heap_free_block_locked(h, laid, laid->sequence);
	return b ? grow_block_locked(h, b, size, taking) : TRZ_ERROR_UNKNOWN_POINTER;
}

static trz_status lay_behind(trz_heap *h, trz_addr address, uint64_t size, enum taking taking)
{
	HEAP_GROWTH_LOCKED(h);
	struct block *tail = NULL, *laid;
	heap_lock(h);
	trz_status status = grow_locked(h, address, size, taking);  /* what lies behind may have been freed meanwhile */
	if (status != TRZ_ERROR_NO_ROOM) {
		heap_unlock(h);
		return status;
	}
	struct block *b = serve_block_locked(h, address);
	uint64_t need = b ? missing(b, size) : 0;
	bool at_end = b && need && !b->window->classic && !b->window->dedicated && !b->window->foreign &&
	              !is_too_large(h, b, size) && take_tail_locked(h, b, taking, &tail);
	struct window *w = at_end ? b->window : NULL;
	struct demand d = {.lane = at_end ? b->home : NULL,
	                   .size = size,
	                   .bytes = need - (tail ? min_u64(need, tail->size) : 0),
	                   .kind = at_end ? (enum kind)w->kind : LARGE};
	heap_unlock(h);
	if (!at_end)
		return TRZ_ERROR_NO_ROOM;
	d.effort = policy_effort(h, &d);
	status = extend_behind(h, &d, w, tail, &laid);
	if (status != TRZ_OK)
		return status;
	notice_mapped(h, laid);
	heap_lock(h);
	status = join_locked(h, address, laid, size, taking);
	heap_unlock(h);
	return status;
}

/* Holds the allocation's pool, if there is one, so that its lanes stay: allocations outlive their pools, and growth
 * polls, which ends pools. */
static struct pool *hold_pool_locked(const struct lane *l)
{
	struct pool *p = l ? l->pool : NULL;
	if (p)
		p->users++;
	return p;
}

/* If that was the last reference, a later poll handles the pool's end. */
static void let_go(trz_heap *h, struct pool *p)
{
	heap_lock(h);
	if (p)
		p->users--;
	heap_unlock(h);
}

/* What captures have left behind the block becomes the block's lane's. Returns the block, or NULL if it has been freed
 * meanwhile: the lock is given up. */
static struct block *leave_captures_locked(trz_heap *h, struct pool *p, const struct stream *s, trz_addr address)
{
	HEAP_LOCKED(h);
	heap_unlock(h);
	heap_merge_captured_lanes(h, p, s, true);
	heap_lock(h);
	return serve_block_locked(h, address);
}

static trz_status grow_slow(trz_heap *h, trz_addr address, uint64_t size, enum taking taking)
{
	HEAP_GROWTH_LOCKED(h);
	heap_poll(h);
	heap_lock(h);
	struct block *b = serve_block_locked(h, address);
	struct lane *l = b && !b->window->foreign ? b->home : NULL;
	struct pool *p = hold_pool_locked(l);
	if (p && taking == TAKE_OWN)
		b = leave_captures_locked(h, p, l->stream, address);
	if (l && b && !b->window->dedicated)
		adopt_locked(h, b);
	trz_status status = grow_locked(h, address, size, taking);
	heap_unlock(h);
	if (status == TRZ_ERROR_NO_ROOM && l && heap_reaches_stream(l->stream))
		status = lay_behind(h, address, size, taking);
	let_go(h, p);
	return status;
}

trz_status grow_in_place(trz_heap *h, trz_addr address, uint64_t size)
{
	enum taking taking;
	int cancel = uncancelled_begin();  /* it counts as a recorder meanwhile */
	trz_status status = ask_taking(h, address, &taking);
	uncancelled_end(cancel);
	if (status != TRZ_OK)
		return status;
	heap_lock(h);
	status = grow_locked(h, address, size, taking);
	heap_unlock(h);
	if (status != TRZ_ERROR_NO_ROOM)
		return status;
	if (!heap_lock_growth(h))
		return TRZ_ERROR_NOT_PERMITTED;
	status = grow_slow(h, address, size, taking);
	heap_unlock_growth(h);
	CHECK_SLOW_PATH(h);
	return status;
}
