/* SPDX-License-Identifier: Apache-2.0
 *
 * Polls: recording late events for tickets that no event covers yet, and draining what has passed. The last ticket of a
 * stream that retires.
 */
#include "heap/poll.h"

#include "heap/contexts.h"
#include "heap/ends.h"
#include "heap/events.h"
#include "heap/ledger.h"
#include "heap/pending.h"
#include "heap/streams.h"

/* Takes the `n` oldest events out of the queue: they have completed. */
static void pop_passed(trz_heap *h, struct stream *s, unsigned n)
{
	while (n--) {
		heap_lock(h);
		struct event_pool *p = s->events;  /* once its last event is gone another stream can get the entry */
		trz_event event = ticket_pop(&s->tickets);
		heap_unlock(h);
		heap_return_event(h, p, event);
	}
}

/* A capture began between the question and the record: the oldest event is part of a graph, and answers nothing.
 * Another event will cover its tickets. */
static void drop_captured(trz_heap *h, struct stream *s)
{
	heap_lock(h);
	struct event_pool *p = s->events;
	trz_event event = ticket_drop(&s->tickets);
	heap_unlock(h);
	heap_return_event(h, p, event);
}

/* Events complete in order, so this asks the oldest, then ones further and further on, and then by halves how far the
 * stream has come. Frees only append to the queue meanwhile. true: all that was queued had passed. */
static bool collect_passed(trz_heap *h, struct stream *s)
{
	trz_status status = TRZ_OK;
	heap_lock(h);
	unsigned passed = 0;                                         /* this many have passed, */
	unsigned count = s->tickets.waiters ? 0 : s->tickets.count;  /* what is waited for stays queued */
	unsigned open = count;                                       /* and this one has not, if there is any */
	heap_unlock(h);
	while (passed < open) {
		unsigned i = open < count ? (passed + open) / 2 : (unsigned)min_u64(2 * passed, open - 1);
		heap_lock(h);
		trz_event event = s->tickets.queue[(s->tickets.head + i) % TICKET_QUEUE].event;
		heap_unlock(h);
		status = heap_note_loss(h, s->events, driver_event_query(&h->driver, s->events->context, event));
		if (status == TRZ_OK)
			passed = i + 1;
		else
			open = i;
	}
	pop_passed(h, s, passed);
	if (passed == 0 && status == TRZ_ERROR_CAPTURE)
		drop_captured(h, s);
	return passed == count;
}

/* Drains a full queue first, as far as it has passed. */
void heap_record_late(trz_heap *h, struct stream *s)
{
	HEAP_GROWTH_LOCKED(h);
	heap_lock(h);
	bool full = s->tickets.count == TICKET_QUEUE;
	heap_unlock(h);
	if (full)
		collect_passed(h, s);
	heap_lock(h);
	uint64_t newest = ticket_newest(&s->tickets);
	bool wanted = newest > s->tickets.recorded;
	heap_unlock(h);
	trz_event event = wanted && heap_reaches_stream(s) ? heap_record_event(h, s) : NULL;
	if (!event)
		return;
	heap_lock(h);
	struct event_pool *p = s->events;
	if (!stream_is_gone(s))  /* else it was recorded on another stream */
		event = ticket_note(&s->tickets, newest, event, 0);
	heap_unlock(h);
	if (event)
		heap_return_event(h, p, event);
}

trz_status heap_retire_stream(trz_heap *h, trz_stream handle)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t id = stream_default_id(handle);
	trz_capture_status capture;
	trz_status status = driver_stream_capture(&h->driver, h->driver.context, handle, &capture, NULL);
	if (status == TRZ_OK && capture != TRZ_CAPTURE_NONE)
		return TRZ_ERROR_CAPTURE;
	if (status == TRZ_OK && !id)
		status = driver_stream_id(&h->driver, handle, &id);
	if (status != TRZ_OK)
		return status;
	heap_lock(h);
	struct stream *s = heap_seen_stream_locked(h, handle, id);
	uint64_t last = s ? ticket_take(&s->tickets) : 0;  /* of all the stream's memory, uses included */
	heap_unlock(h);
	if (!s)
		return TRZ_OK;
	bool covered = false, more = true;
	while (more) {
		heap_record_late(h, s);
		heap_lock(h);
		heap_call_in_locked(h, s);  /* its slots do not go out again once it is retired */
		covered = s->tickets.recorded == ticket_newest(&s->tickets);
		more = !covered && s->tickets.recorded >= last;  /* other threads have freed some of its memory meanwhile */
		last = s->tickets.newest;
		s->tickets.closed = covered;
		atomic_store_explicit(&s->retired, covered, memory_order_relaxed);
		heap_unlock(h);
	}
	if (covered)
		heap_await_recorders(h, s);
	atomic_store_explicit(&h->poll_wanted, true, memory_order_relaxed);  /* then its entry can be reused */
	if (!covered)
		return driver_is_dead(&h->driver) ? TRZ_ERROR_CONTEXT_DEAD : TRZ_ERROR_DRIVER;
	return TRZ_OK;
}

void heap_end_given(trz_heap *h, struct pending **link, struct pending *p)
{
	trz_event event = p->event;
	heap_lock(h);
	while (*link != p)  /* others are put in front meanwhile */
		link = &(*link)->next;
	*link = p->next;
	heap_end_pending_locked(h, p);
	atomic_fetch_sub_explicit(&h->given_count, 1, memory_order_relaxed);
	heap_unlock(h);
	heap_destroy_event(h, event);
}

/* Queries the events that came with frees. */
static void collect_given(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	struct pending **link = &h->given, *p;
	for (;;) {
		heap_lock(h);
		p = *link;
		heap_unlock(h);
		if (!p)
			return;
		if (driver_event_query(&h->driver, h->driver.context, p->event) == TRZ_OK)
			heap_end_given(h, link, p);
		else
			link = &p->next;
	}
}

/* Asks how far a stream is. While it has open events none is recorded: it would tell nothing sooner. A stream whose
 * context has gone has no work left. */
static void poll_stream(trz_heap *h, struct stream *s)
{
	HEAP_GROWTH_LOCKED(h);
	heap_lock(h);
	bool lost = heap_has_lost(s->events);
	heap_unlock(h);
	if (!lost && collect_passed(h, s)) {
		heap_record_late(h, s);
		collect_passed(h, s);
	}
	heap_lock(h);
	if (heap_has_lost(s->events) && !s->tickets.waiters)
		ticket_forget(&s->tickets);
	stream_note_poll(s);
	heap_drain_pending_locked(h, s);
	heap_unlock(h);
}

void heap_poll(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	heap_collect_contexts(h);
	heap_end_pools(h);
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	heap_lock(h);
	atomic_store_explicit(&h->poll_wanted, h->imports_freed > 0, memory_order_relaxed);
	heap_unlock(h);
	for (unsigned i = 0; i < streams; i++)
		poll_stream(h, atomic_load_explicit(&h->streams.list[i], memory_order_relaxed));
	collect_given(h);
	heap_dissolve_pools(h);
}

/* Whether tickets are open on which no poll of this thread can record. */
static bool is_any_out_of_reach(trz_heap *h)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	bool any = false;
	heap_lock(h);
	for (unsigned i = 0; i < streams && !any; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		any = stream_is_out_of_reach(s) && s->tickets.recorded < ticket_newest(&s->tickets);
	}
	heap_unlock(h);
	return any;
}

void heap_poll_all(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	heap_poll(h);
	if (!is_any_out_of_reach(h) || heap_may_be_captured(h))
		return;
	for (struct event_pool *p = &h->events; p; p = p->next)
		heap_cover_context(h, p, COVER_UNREACHED);
	heap_poll(h);
}
