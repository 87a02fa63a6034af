/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of whole contexts: they answer for streams on which no event can be recorded from here, and for launches on
 * streams that the heap has never seen. Such an event breaks every capture in its context, so none is recorded while
 * one is known to be under way. Growth lock held throughout.
 */
#include "heap/contexts.h"

#include "heap/events.h"

/* Of a capture that was announced its diversion tells; of what this thread cannot ask, the legacy default stream. */
static bool is_known_captured(trz_heap *h, const struct stream *s, bool handles_live)
{
	if (!handles_live)
		return atomic_load_explicit(&s->capture, memory_order_relaxed) && !s->begun.number;
	return !s->thread_bound && !atomic_load_explicit(&s->retired, memory_order_acquire) && heap_is_captured(h, s);
}

bool heap_may_be_captured(trz_heap *h, bool handles_live)
{
	HEAP_GROWTH_LOCKED(h);
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	bool captured = atomic_load(&h->capturing) || heap_is_captured(h, NULL);
	for (unsigned i = 0; i < streams && !captured; i++)
		captured = is_known_captured(h, atomic_load_explicit(&h->streams.list[i], memory_order_relaxed), handles_live);
	return captured;
}

trz_status heap_record_context(trz_heap *h, struct event_pool *p, trz_event *event)
{
	HEAP_GROWTH_LOCKED(h);
	trz_status status = heap_take_event(h, p, event);
	if (status != TRZ_OK)
		return status;
	status = heap_note_loss(h, p, driver_context_record(&h->driver, p->context, *event));
	if (status != TRZ_OK)
		heap_return_event(h, p, *event);
	return status;
}

/* Notes of which tickets an event that is recorded next tells: the newest of the context's streams that are out of
 * reach, or of all. false: there is none that is not told of yet. */
static bool mark_locked(trz_heap *h, const struct event_pool *p, bool all)
{
	HEAP_LOCKED(h);
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_relaxed);
	bool any = false;
	for (unsigned i = 0; i < streams; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		if (s->events != p)
			continue;  /* another context's event may be under way, and tells of these */
		bool wanted = s->tickets.recorded < s->tickets.newest;
		s->covered = wanted && (all || stream_is_out_of_reach(s)) ? s->tickets.newest : 0;
		any |= s->covered != 0;
	}
	return any;
}

trz_status heap_cover_context(trz_heap *h, struct event_pool *p, bool all)
{
	HEAP_GROWTH_LOCKED(h);
	trz_event event;
	if (p->whole || heap_has_lost(p))
		return TRZ_OK;
	heap_lock(h);
	bool any = mark_locked(h, p, all);
	heap_unlock(h);
	trz_status status = any ? heap_record_context(h, p, &event) : TRZ_OK;
	if (any && status == TRZ_OK)
		p->whole = event;
	return status;
}

void heap_end_cover(trz_heap *h, struct event_pool *p)
{
	HEAP_GROWTH_LOCKED(h);
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	heap_lock(h);
	for (unsigned i = 0; i < streams; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		if (s->events == p)
			ticket_pass(&s->tickets, s->covered);
	}
	heap_unlock(h);
	heap_return_event(h, p, p->whole);
	p->whole = NULL;
}

void heap_collect_contexts(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	for (struct event_pool *p = &h->events; p; p = p->next) {
		if (!p->whole)
			continue;
		trz_status status = heap_note_loss(h, p, driver_event_query(&h->driver, p->context, p->whole));
		if (heap_has_lost(p))
			p->whole = NULL;
		else if (status == TRZ_OK)
			heap_end_cover(h, p);
	}
}
