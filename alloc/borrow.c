/* SPDX-License-Identifier: Apache-2.0
 *
 * Changing the home of free blocks.
 */
#include "borrow.h"

static void rehome_locked(trz_heap *h, struct block *b, struct lane *l, uint64_t sequence)
{
	fit_remove(&b->home->fit[b->kind], b);
	b->home = l;
	heap_free_block_locked(h, b, sequence);
}

/* The first lane at or after `l` that is another one of the borrower's pool. */
static struct lane *lender_from(struct lane *l, const struct lane *borrower)
{
	while (l && (l == borrower || l->pool != borrower->pool || l->apart != borrower->apart))
		l = l->next;
	return l;
}

#define FOR_LENDERS(h, other, borrower)                                                                        \
	for (struct lane *other = lender_from((h)->streams.lanes.first, borrower); other;                      \
	     other = lender_from(other->next, borrower))

static uint64_t lendable(const struct lane *lender, const struct lane *to, enum kind kind)
{
	return kind == LARGE ? stream_lendable(lender, to) : UINT64_MAX;
}

/* The best fit among the passed free blocks of the others. */
static struct block *best_passed_locked(const trz_heap *h, const struct lane *l, enum kind kind, uint64_t bytes)
{
	struct block *best = NULL;
	FOR_LENDERS(h, other, l) {
		uint64_t most = lendable(other, l, kind);
		struct block *b = fit_find(&other->fit[kind], bytes);
		while (b && !ticket_passed(&other->stream->tickets, b->sequence))
			b = fit_next(&other->fit[kind], b);
		if (b && b->size <= most && (!best || b->size < best->size))
			best = b;
	}
	return best;
}

/* Takes all that has passed, or with `spare` only as much of it as each lane can lend. */
static bool take_passed_locked(trz_heap *h, struct lane *l, enum kind kind, bool spare)
{
	bool any = false;
	FOR_LENDERS(h, other, l) {
		uint64_t most = spare ? lendable(other, l, kind) : UINT64_MAX;
		struct block *b = fit_find(&other->fit[kind], UNIT);
		while (b) {
			struct block *next = fit_next(&other->fit[kind], b);
			if (b->size <= most && ticket_passed(&other->stream->tickets, b->sequence)) {
				most -= most == UINT64_MAX ? 0 : b->size;
				rehome_locked(h, b, l, 0);
				any = true;
			}
			b = next;
		}
	}
	return any;
}

bool borrow(trz_heap *h, struct lane *l, enum kind kind, uint64_t bytes)
{
	bool given = atomic_load_explicit(&h->given_count, memory_order_relaxed) > 0;
	if (atomic_load_explicit(&h->streams.count, memory_order_acquire) < 2 && !given)
		return false;
	heap_poll(h);
	heap_lock(h);
	bool found = fit_find(&l->fit[kind], bytes) != NULL;  /* the poll may have drained enough */
	struct block *b = found ? NULL : best_passed_locked(h, l, kind, bytes);
	if (b) {
		rehome_locked(h, b, l, 0);
		found = true;
	}
	if (!found)
		found = take_passed_locked(h, l, kind, true) && fit_find(&l->fit[kind], bytes);
	heap_unlock(h);
	return found;
}

void borrow_join_all_locked(trz_heap *h, struct lane *l, enum kind kind)
{
	take_passed_locked(h, l, kind, false);
}

void borrow_join_everywhere_locked(trz_heap *h, enum kind kind)
{
	if (h->streams.lanes.first)
		take_passed_locked(h, h->streams.lanes.first, kind, false);
	for (const struct pool *p = h->pools; p; p = p->next)
		if (lane_find(p->lanes, NULL, 0) && !p->pinned)
			take_passed_locked(h, lane_find(p->lanes, NULL, 0), kind, false);
}

/* ---- with waits ---- */

/* The event of exactly this ticket; NULL: none was recorded in that free, or it has completed. */
static trz_event exact_event_locked(const struct tickets *t, uint64_t sequence)
{
	for (unsigned i = 0; i < t->count; i++) {
		const struct ticket_event *e = &t->queue[(t->head + i) % TICKET_QUEUE];
		if (e->sequence == sequence)
			return e->exact ? e->event : NULL;
	}
	return NULL;
}

static void note_wait_locked(trz_heap *h, const struct stream *s, const struct stream *awaited)
{
	counter_add(&h->counters.waits_inserted, 1);
	history_note(&h->history, HISTORY_WAIT, .stream = (uint64_t)s->handle, .awaited = (uint64_t)awaited->handle);
}

/* Makes `s` wait for the free of a busy block, and frees it as a block of `s`. The event stays queued while the
 * growth lock is held. */
static bool wait_for_block(trz_heap *h, struct lane *l, struct block *b, trz_event event)
{
	struct stream *s = l->stream;
	const struct stream *other = b->home->stream;
	trz_status status = driver_stream_wait(&h->driver, s->handle, event);
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, b->size);
	if (status == TRZ_OK) {
		b->home = l;
		b->sequence = ticket_take(&s->tickets);  /* what s does from now on comes after the free */
		note_wait_locked(h, s, other);
	}
	heap_free_block_locked(h, b, b->sequence);
	heap_unlock(h);
	return status == TRZ_OK;
}

/* The free block of another stream that a wait can give: the smallest of at least `bytes`, else the largest. */
static struct block *waitable_locked(const trz_heap *h, const struct lane *l, enum kind kind, uint64_t bytes,
                                     trz_event *event)
{
	struct block *best = NULL;
	FOR_LENDERS(h, other, l) {
		for (struct block *b = fit_find(&other->fit[kind], UNIT); b; b = fit_next(&other->fit[kind], b)) {
			bool better = !best || (best->size < bytes ? b->size > best->size
			                                           : b->size >= bytes && b->size < best->size);
			trz_event e = better ? exact_event_locked(&other->stream->tickets, b->sequence) : NULL;
			if (e) {
				best = b;
				*event = e;
			}
		}
	}
	return best;
}

/* Waits for free blocks of other streams until they add up to `bytes`; returns how much that was. */
static uint64_t wait_for_free_blocks(trz_heap *h, struct lane *l, enum kind kind, uint64_t bytes)
{
	uint64_t taken = 0;
	while (taken < bytes) {
		trz_event event;
		heap_lock(h);
		struct block *b = waitable_locked(h, l, kind, bytes, &event);
		if (b) {
			fit_remove(&b->home->fit[kind], b);
			b->state = BLOCK_BUSY;
			level_add(&h->counters.idle_bytes, b->size);
		}
		heap_unlock(h);
		uint64_t size = b ? b->size : 0;
		if (!b || !wait_for_block(h, l, b, event))
			break;
		taken += size;
	}
	return taken;
}

/* ---- pending blocks ---- */

enum { AWAITED_MOST = 8 };

/* What has to be waited for before a pending block is free for a stream. */
struct awaited_uses {
	const struct stream *streams[AWAITED_MOST];
	trz_event events[AWAITED_MOST];
	unsigned count;
};

/* Adds the event of a ticket, if it needs one. false: there is none that may be waited for. */
static bool add_awaited_locked(struct awaited_uses *a, const struct stream *to, const struct stream *s,
                               uint64_t sequence)
{
	if (s == to || ticket_passed(&s->tickets, sequence))
		return true;
	trz_event event = exact_event_locked(&s->tickets, sequence);
	if (!event || a->count == AWAITED_MOST)
		return false;
	a->streams[a->count] = s;
	a->events[a->count++] = event;
	return true;
}

static bool find_awaited_locked(struct awaited_uses *a, const struct stream *to, const struct stream *s,
                                const struct pending *p)
{
	a->count = 0;
	bool ok = add_awaited_locked(a, to, s, p->sequence) &&
	          add_awaited_locked(a, to, p->block->home->stream, p->home_sequence);
	for (const struct use *u = p->uses; u && ok; u = u->next)
		ok = add_awaited_locked(a, to, u->stream, u->sequence);
	return ok;
}

static void unlink_pending(struct stream *s, struct pending **link)
{
	struct pending *p = *link;
	*link = p->next;
	if (s->pending_last == &p->next)
		s->pending_last = link;
}

/* Whether a pending block can become one of the lane's: memory of its sort and pool, with which no other process has to
 * do. */
static bool could_be(const struct block *b, const struct lane *l, enum kind kind)
{
	return b->kind == kind && b->home->pool == l->pool && b->window->apart == l->apart && !b->exports &&
	       !b->window->foreign;
}

/* Takes the first pending block that waits can give to the lane out of its list; NULL: there is none. */
static struct pending *take_pending_locked(trz_heap *h, const struct lane *l, enum kind kind, struct stream **from,
                                           struct awaited_uses *a)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_relaxed);
	for (unsigned i = 0; i < streams; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		for (struct pending **link = &s->pending_first; *link; link = &(*link)->next) {
			struct pending *p = *link;
			if (!p->block || !could_be(p->block, l, kind) || !find_awaited_locked(a, l->stream, s, p))
				continue;
			unlink_pending(s, link);
			*from = s;
			return p;
		}
	}
	return NULL;
}

static void finish_pending_locked(trz_heap *h, struct lane *l, struct pending *p, const struct awaited_uses *a)
{
	for (unsigned i = 0; i < a->count; i++)
		note_wait_locked(h, l->stream, a->streams[i]);
	for (struct use *u; (u = p->uses);) {
		p->uses = u->next;
		node_pool_give(&h->uses, u);
	}
	p->block->home = l;
	p->home_sequence = ticket_take(&l->stream->tickets);
	heap_end_pending_locked(h, p);
}

/* Waits for what other streams still do with freed blocks until those add up to `bytes`. */
static void wait_for_pending_blocks(trz_heap *h, struct lane *l, enum kind kind, uint64_t bytes)
{
	uint64_t taken = 0;
	while (taken < bytes) {
		struct awaited_uses a;
		struct stream *from;
		heap_lock(h);
		struct pending *p = take_pending_locked(h, l, kind, &from, &a);
		heap_unlock(h);
		if (!p)
			return;
		taken += p->block->size;
		trz_status status = TRZ_OK;
		for (unsigned i = 0; i < a.count && status == TRZ_OK; i++)
			status = driver_stream_wait(&h->driver, l->stream->handle, a.events[i]);
		heap_lock(h);
		if (status == TRZ_OK)
			finish_pending_locked(h, l, p, &a);
		else
			heap_push_pending_locked(from, p, p->sequence);
		heap_unlock(h);
		if (status != TRZ_OK)
			return;
	}
}

void borrow_with_waits(trz_heap *h, struct lane *l, enum kind kind, uint64_t bytes)
{
	if (atomic_load_explicit(&h->streams.count, memory_order_acquire) < 2 || heap_is_captured(h, l->stream->handle))
		return;
	uint64_t taken = wait_for_free_blocks(h, l, kind, bytes);
	if (taken < bytes)
		wait_for_pending_blocks(h, l, kind, bytes - taken);
}
