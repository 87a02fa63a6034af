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
	while (l && (l == borrower || l->pool != borrower->pool))
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
	if (atomic_load_explicit(&h->streams.count, memory_order_acquire) < 2)
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
		if (p->lanes && !p->pinned)
			take_passed_locked(h, p->lanes, kind, false);
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

static bool is_capturing(trz_heap *h, const struct stream *s)
{
	trz_capture_status status;
	return driver_stream_capture(&h->driver, s->handle, &status, NULL) != TRZ_OK || status != TRZ_CAPTURE_NONE;
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
		counter_add(&h->counters.waits_inserted, 1);
		history_note(&h->history, HISTORY_WAIT, .stream = (uint64_t)s->handle, .awaited = (uint64_t)other->handle);
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

void borrow_with_waits(trz_heap *h, struct lane *l, enum kind kind, uint64_t bytes)
{
	if (atomic_load_explicit(&h->streams.count, memory_order_acquire) < 2 || is_capturing(h, l->stream))
		return;
	uint64_t taken = 0;
	while (taken < bytes) {
		trz_event event;
		heap_lock(h);
		struct block *b = waitable_locked(h, l, kind, bytes, &event);
		if (b) {
			taken += b->size;
			fit_remove(&b->home->fit[kind], b);
			b->state = BLOCK_BUSY;
			level_add(&h->counters.idle_bytes, b->size);
		}
		heap_unlock(h);
		if (!b || !wait_for_block(h, l, b, event))
			return;
	}
}
