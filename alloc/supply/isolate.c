/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and returning memory that stands alone.
 */
#include "supply/isolate.h"

#include "heap/carve.h"
#include "heap/events.h"
#include "heap/pending.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "supply/extent.h"
#include "supply/reclaim.h"

/* ---- making ---- */

trz_status isolate_grow(trz_heap *h, struct lane *l, uint64_t bytes, struct block **out)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t gap = h->config.guard ? h->driver.granule : 0;
	trz_status status = extent_make(h, l, align_up(bytes, h->driver.granule), gap, out);
	if (status == TRZ_OK)
		counter_add(&h->counters.path_extend, 1);
	return status;
}

/* ---- returning ---- */

void isolate_return_freed(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t returned = 0;
	heap_poll(h);
	reclaim_retry_zombies(h);
	reclaim_trim_kind(h, LARGE, 0, &returned);
	reclaim_all_aliases(h);
}

/* ---- waiting ---- */

/* The oldest event of a stream that was recorded inside a free and has not been seen to pass; false: none. */
static bool oldest_exact_locked(const struct tickets *t, struct ticket_event *out)
{
	for (unsigned i = 0; i < t->count; i++) {
		const struct ticket_event *e = &t->queue[(t->head + i) % TICKET_QUEUE];
		if (e->exact && !ticket_passed(t, e->sequence)) {
			*out = *e;
			return true;
		}
	}
	return false;
}

/* The lane's own stream first, then the others. */
static struct stream *awaitable_locked(trz_heap *h, const struct lane *l, struct ticket_event *event)
{
	HEAP_LOCKED(h);
	if (oldest_exact_locked(&l->stream->tickets, event))
		return l->stream;
	for (unsigned i = 0; i < h->streams.count; i++)
		if (oldest_exact_locked(&h->streams.list[i]->tickets, event))
			return h->streams.list[i];
	return NULL;
}

/* The event was recorded in a free, so it covers nothing that came after it (law 8); while somebody waits for it, it
 * stays queued. */
bool isolate_wait(trz_heap *h, const struct lane *l)
{
	HEAP_GROWTH_LOCKED(h);
	struct ticket_event event;
	if (heap_is_captured(h, l->stream))
		return false;
	heap_lock(h);
	struct stream *s = awaitable_locked(h, l, &event);
	if (s)
		s->tickets.waiters++;
	heap_unlock(h);
	if (!s)
		return false;
	counter_add(&h->counters.waits_of_host, 1);
	heap_unlock_growth(h);
	trz_capture_mode mode;
	heap_relax(h, &mode);
	trz_status status = driver_event_sync(&h->driver, s->events->context, event.event);
	heap_tighten(h, mode);
	heap_relock_growth(h);
	heap_lock(h);
	s->tickets.waiters--;
	if (status == TRZ_OK) {  /* noted here: another thread that waits keeps the event queued, and would wait for ever */
		ticket_pass(&s->tickets, event.sequence);
		heap_drain_pending_locked(h, s);
	}
	heap_unlock(h);
	return status == TRZ_OK;
}
