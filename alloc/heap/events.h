/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of streams: whether one can be recorded, recording and giving back.
 */
#ifndef TRZ_ALLOC_EVENTS_H
#define TRZ_ALLOC_EVENTS_H

#include "heap/heap.h"

static inline bool heap_has_lost(const struct event_pool *p)
{
	return atomic_load_explicit(&p->lost, memory_order_relaxed);
}

/* Passes on the status of a call about a stream's events, and notes if it says that their context was destroyed before
 * the heap, and all work of its streams with it. */
trz_status heap_note_loss(trz_heap *h, struct event_pool *p, trz_status status);

/* Whether the stream's handle, which must be alive, means the stream in this thread. */
bool heap_is_threads_own(const struct stream *s);

/* Whether the handle is alive and means the stream in this thread. Growth lock held. */
bool heap_reaches_stream(const struct stream *s);

/* Takes an event from the pool, or makes a new one. */
trz_status heap_take_event(trz_heap *h, struct event_pool *p, trz_event *event);

/* Takes an event back into the pool; without host memory it is destroyed. */
void heap_return_event(trz_heap *h, struct event_pool *p, trz_event event);

/* Destroys a caller's event; if the driver refuses, closing tries again. */
void heap_destroy_event(trz_heap *h, trz_event event);

/* Whether a stream is being captured, or its capture is invalidated, or the driver does not say. The legacy default
 * stream counts as captured while a blocking stream of its context is. No stream of a context that has gone is. */
bool heap_is_captured(trz_heap *h, const struct stream *s);
bool heap_is_legacy_captured(trz_heap *h, struct event_pool *p);

/* Whether an event can be recorded on a stream without becoming part of a capture, or breaking one. */
bool heap_may_record(trz_heap *h, const struct stream *s);

/* Records an event on a stream that is alive. NULL: none may be recorded, or the driver refuses. The caller holds the
 * growth lock, or is one of the stream's recorders. */
trz_event heap_record_event(trz_heap *h, const struct stream *s);

/* Waits for frees of other threads that are recording on a stream now. They hold no lock, and end after one driver call
 * that waits for nothing. */
void heap_await_recorders(trz_heap *h, const struct stream *s);

#endif
