/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for the event of a free.
 */
#include "supply/await.h"

#include "heap/events.h"
#include "heap/pending.h"

/* The oldest exact event of a stream that the heap has not seen pass; false: none. */
static bool oldest_exact_locked(const struct tickets *t, struct ticket_event *out)
{
	for (unsigned i = 0; i < t->count; i++) {
		const struct ticket_event *e = &t->queue[(t->head + i) % TICKET_QUEUE];
		if (e->first && !ticket_passed(t, e->sequence)) {
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

/* The event is exact, so it covers nothing that came after the free (law L8). It stays queued while a thread waits for
 * it. */
bool await_free(trz_heap *h, const struct lane *l)
{
	HEAP_GROWTH_LOCKED(h);
	struct ticket_event event = {0};
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
	int cancel = uncancelled_begin();
	trz_status status = driver_event_sync(&h->driver, s->events->context, event.event);
	uncancelled_end(cancel);
	heap_tighten(h, mode);
	heap_relock_growth(h);
	heap_lock(h);
	s->tickets.waiters--;
	if (status == TRZ_OK) {  /* noted here, since polls pop no event while another thread still waits for one */
		ticket_pass(&s->tickets, event.sequence);
		heap_drain_pending_locked(h, s);
	}
	heap_unlock(h);
	return status == TRZ_OK;
}
