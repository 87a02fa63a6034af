/* SPDX-License-Identifier: Apache-2.0
 *
 * Deputies. An event of a whole context answers for streams on which none can be recorded from here, and for launches
 * on streams that the heap has never seen. It breaks every capture in its context, so none is recorded while the heap
 * knows of one. Growth lock held throughout.
 */
#include "heap/contexts.h"

#include "heap/events.h"

/* The legacy default stream answers for streams that this thread cannot ask. */
static bool is_known_captured(trz_heap *h, const struct stream *s)
{
	return !s->thread_bound && !atomic_load_explicit(&s->retired, memory_order_acquire) && heap_is_captured(h, s);
}

bool heap_may_be_captured(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	unsigned streams = h->closing ? 0 : atomic_load_explicit(&h->streams.count, memory_order_acquire);
	bool captured = atomic_load(&h->capturing) || heap_is_legacy_captured(h, &h->events);
	for (unsigned i = 0; i < streams && !captured; i++)
		captured = is_known_captured(h, atomic_load_explicit(&h->streams.list[i], memory_order_relaxed));
	return captured;
}

static bool tells_of(enum cover cover, const struct stream *s)
{
	return cover == COVER_ALL || (cover == COVER_THREADS ? s->thread_bound : stream_is_out_of_reach(s));
}

/* Marks the tickets that the next deputy will answer for. false: none needs it. */
static bool mark(trz_heap *h, const struct event_pool *p, enum cover cover)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	bool any = false;
	heap_lock(h);
	for (unsigned i = 0; i < streams; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		if (s->events != p)
			continue;  /* another context's deputy may be outstanding, and answers for these */
		bool wanted = s->tickets.recorded < ticket_newest(&s->tickets);
		s->covered = wanted && tells_of(cover, s) ? s->tickets.newest : 0;
		any |= s->covered != 0;
	}
	heap_unlock(h);
	return any;
}

/* Records a deputy for the marked tickets. */
static trz_status record(trz_heap *h, struct event_pool *p, enum cover cover)
{
	trz_event event;
	if (cover == COVER_THREADS && (atomic_load(&h->announced) || heap_is_legacy_captured(h, p)))
		return TRZ_ERROR_CAPTURE;
	trz_status status = heap_take_event(h, p, &event);
	if (status != TRZ_OK)
		return status;
	status = cover == COVER_THREADS ? driver_event_record(&h->driver, p->context, event, NULL)
	                                : driver_context_record(&h->driver, p->context, event);
	if (heap_note_loss(h, p, status) != TRZ_OK) {
		heap_return_event(h, p, event);
		return status;
	}
	p->deputy = event;
	p->deputies++;
	return TRZ_OK;
}

trz_status heap_record_deputy(trz_heap *h, struct event_pool *p, enum cover cover)
{
	HEAP_GROWTH_LOCKED(h);
	assert(!p->deputy);
	mark(h, p, cover);
	return record(h, p, cover);
}

trz_status heap_cover_context(trz_heap *h, struct event_pool *p, enum cover cover)
{
	HEAP_GROWTH_LOCKED(h);
	bool wanted = !p->deputy && !heap_has_lost(p) && mark(h, p, cover);
	return wanted ? record(h, p, cover) : TRZ_OK;
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
	heap_return_event(h, p, p->deputy);
	p->deputy = NULL;
}

void heap_collect_contexts(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	for (struct event_pool *p = &h->events; p; p = p->next) {
		if (!p->deputy)
			continue;
		trz_status status = heap_note_loss(h, p, driver_event_query(&h->driver, p->context, p->deputy));
		if (heap_has_lost(p))
			p->deputy = NULL;
		else if (status == TRZ_OK)
			heap_end_cover(h, p);
	}
}
