/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording on streams that may be another thread's, captured, retired, or dead.
 */
#include "heap/events.h"

#include <sched.h>

bool heap_is_threads_own(const struct stream *s)
{
	return !s->thread_bound || s->id == stream_default_id(STREAM_PER_THREAD);
}

bool heap_reaches_stream(const struct stream *s)
{
	return !atomic_load_explicit(&s->retired, memory_order_acquire) && heap_is_threads_own(s);
}

trz_status heap_note_loss(trz_heap *h, struct event_pool *p, trz_status status)
{
	bool gone = status == TRZ_ERROR_CONTEXT_DEAD || status == TRZ_ERROR_SHUTDOWN;
	if (gone && p != &h->events && !driver_is_dead(&h->driver)) {
		atomic_store_explicit(&p->lost, true, memory_order_relaxed);
		atomic_store_explicit(&h->poll_wanted, true, memory_order_relaxed);
	}
	return status;
}

trz_status heap_take_event(trz_heap *h, struct event_pool *p, trz_event *event)
{
	heap_lock(h);
	*event = event_pool_take(p);
	heap_unlock(h);
	return *event ? TRZ_OK : heap_note_loss(h, p, driver_event_create(&h->driver, p->context, event));
}

/* A context that has gone has taken its captures with it. */
static bool is_captured(trz_heap *h, struct event_pool *p, trz_stream handle)
{
	trz_capture_status capture;
	if (heap_has_lost(p))
		return false;
	trz_status status = driver_stream_capture(&h->driver, p->context, handle, &capture, NULL);
	return heap_note_loss(h, p, status) == TRZ_OK ? capture != TRZ_CAPTURE_NONE : !heap_has_lost(p);
}

bool heap_is_captured(trz_heap *h, const struct stream *s)
{
	return is_captured(h, s->events, s->handle);
}

bool heap_is_legacy_captured(trz_heap *h, struct event_pool *p)
{
	return is_captured(h, p, NULL);
}

/* An event on the legacy default stream would invalidate a capture that a blocking stream begins after the question, so
 * none is recorded there once a capture has been announced. */
bool heap_may_record(trz_heap *h, const struct stream *s)
{
	bool announced = is_legacy(s->handle) && atomic_load(&h->announced);
	return !announced && !heap_is_captured(h, s) && !heap_has_lost(s->events);
}

/* Another thread may begin a capture between the question and the record: an event that has become part of it must
 * never be asked. Captures that the heap serves are announced before they begin, so the question is repeated only while
 * there is a diversion. */
trz_event heap_record_event(trz_heap *h, const struct stream *s)
{
	struct event_pool *p = s->events;
	trz_event event;
	if (!heap_may_record(h, s) || heap_take_event(h, p, &event) != TRZ_OK)
		return NULL;
	trz_status status = driver_event_record(&h->driver, p->context, event, s->handle);
	bool recorded = heap_note_loss(h, p, status) == TRZ_OK;
	if (recorded && !(atomic_load_explicit(&h->diverting, memory_order_acquire) && heap_is_captured(h, s)))
		return event;
	heap_return_event(h, p, event);
	return NULL;
}

void heap_return_event(trz_heap *h, struct event_pool *p, trz_event event)
{
	heap_lock(h);
	bool kept = event_pool_give(p, event);
	heap_unlock(h);
	if (!kept)
		driver_event_destroy(&h->driver, p->context, event);
}

void heap_destroy_event(trz_heap *h, trz_event event)
{
	if (driver_event_destroy(&h->driver, h->driver.context, event) == TRZ_OK)
		return;
	heap_lock(h);
	event_pool_give(&h->undestroyed, event);
	heap_unlock(h);
}

void heap_await_recorders(trz_heap *h, const struct stream *s)
{
	for (bool any = true; any;) {
		heap_lock(h);
		any = s->recorders != 0;
		heap_unlock(h);
		if (any)
			sched_yield();
	}
}
