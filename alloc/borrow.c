/* SPDX-License-Identifier: Apache-2.0
 *
 * Changing the home of free blocks.
 */
#include "borrow.h"

static void rehome_locked(trz_heap *h, struct block *b, struct stream *s, uint64_t sequence)
{
	fit_remove(&b->home->fit[b->pool], b);
	b->home = s;
	heap_free_block_locked(h, b, sequence);
}

static struct stream *stream_at(const trz_heap *h, unsigned i)
{
	return atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
}

static uint64_t lendable(const struct stream *lender, const struct stream *to, enum pool_kind pool)
{
	return pool == LARGE ? stream_lendable(lender, to) : UINT64_MAX;
}

/* The best fit among the passed free blocks of the others. */
static struct block *best_passed_locked(const trz_heap *h, const struct stream *s, enum pool_kind pool,
                                        uint64_t bytes, unsigned streams)
{
	struct block *best = NULL;
	for (unsigned i = 0; i < streams; i++) {
		const struct stream *other = stream_at(h, i);
		if (other == s)
			continue;
		uint64_t most = lendable(other, s, pool);
		struct block *b = fit_find(&other->fit[pool], bytes);
		while (b && !ticket_passed(&other->tickets, b->sequence))
			b = fit_next(&other->fit[pool], b);
		if (b && b->size <= most && (!best || b->size < best->size))
			best = b;
	}
	return best;
}

/* Takes all that has passed, or with `spare` only as much of it as each stream can lend. */
static bool take_passed_locked(trz_heap *h, struct stream *s, enum pool_kind pool, unsigned streams, bool spare)
{
	bool any = false;
	for (unsigned i = 0; i < streams; i++) {
		struct stream *other = stream_at(h, i);
		if (other == s)
			continue;
		uint64_t most = spare ? lendable(other, s, pool) : UINT64_MAX;
		struct block *b = fit_find(&other->fit[pool], UNIT);
		while (b) {
			struct block *next = fit_next(&other->fit[pool], b);
			if (b->size <= most && ticket_passed(&other->tickets, b->sequence)) {
				most -= most == UINT64_MAX ? 0 : b->size;
				rehome_locked(h, b, s, 0);
				any = true;
			}
			b = next;
		}
	}
	return any;
}

bool borrow(trz_heap *h, struct stream *s, enum pool_kind pool, uint64_t bytes)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	if (streams < 2)
		return false;
	heap_poll(h);
	heap_lock(h);
	bool found = fit_find(&s->fit[pool], bytes) != NULL;  /* the poll may have drained enough */
	struct block *b = found ? NULL : best_passed_locked(h, s, pool, bytes, streams);
	if (b) {
		rehome_locked(h, b, s, 0);
		found = true;
	}
	if (!found)
		found = take_passed_locked(h, s, pool, streams, true) && fit_find(&s->fit[pool], bytes);
	heap_unlock(h);
	return found;
}

void borrow_join_all_locked(trz_heap *h, struct stream *s, enum pool_kind pool)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_relaxed);
	if (streams > 1)
		take_passed_locked(h, s ? s : stream_at(h, 0), pool, streams, false);
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
	return driver_stream_capture(&h->driver, s->handle, &status) != TRZ_OK || status != TRZ_CAPTURE_NONE;
}

/* Makes `s` wait for the free of a busy block, and frees it as a block of `s`. The event stays queued while the
 * growth lock is held. */
static bool wait_for_block(trz_heap *h, struct stream *s, struct block *b, trz_event event)
{
	const struct stream *other = b->home;
	trz_status status = driver_stream_wait(&h->driver, s->handle, event);
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, b->size);
	if (status == TRZ_OK) {
		b->home = s;
		b->sequence = ticket_take(&s->tickets);  /* what s does from now on comes after the free */
		counter_add(&h->counters.waits_inserted, 1);
		history_note(&h->history, HISTORY_WAIT, .stream = (uint64_t)s->handle, .awaited = (uint64_t)other->handle);
	}
	heap_free_block_locked(h, b, b->sequence);
	heap_unlock(h);
	return status == TRZ_OK;
}

/* The free block of another stream that a wait can give: the smallest of at least `bytes`, else the largest. */
static struct block *waitable_locked(const trz_heap *h, const struct stream *s, enum pool_kind pool, uint64_t bytes,
                                     trz_event *event)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_relaxed);
	struct block *best = NULL;
	for (unsigned i = 0; i < streams; i++) {
		const struct stream *other = stream_at(h, i);
		if (other == s)
			continue;
		for (struct block *b = fit_find(&other->fit[pool], UNIT); b; b = fit_next(&other->fit[pool], b)) {
			bool better = !best || (best->size < bytes ? b->size > best->size
			                                           : b->size >= bytes && b->size < best->size);
			trz_event e = better ? exact_event_locked(&other->tickets, b->sequence) : NULL;
			if (e) {
				best = b;
				*event = e;
			}
		}
	}
	return best;
}

void borrow_with_waits(trz_heap *h, struct stream *s, enum pool_kind pool, uint64_t bytes)
{
	if (atomic_load_explicit(&h->streams.count, memory_order_acquire) < 2 || is_capturing(h, s))
		return;
	uint64_t taken = 0;
	while (taken < bytes) {
		trz_event event;
		heap_lock(h);
		struct block *b = waitable_locked(h, s, pool, bytes, &event);
		if (b) {
			taken += b->size;
			fit_remove(&b->home->fit[pool], b);
			b->state = BLOCK_BUSY;
			level_add(&h->counters.idle_bytes, b->size);
		}
		heap_unlock(h);
		if (!b || !wait_for_block(h, s, b, event))
			return;
	}
}
