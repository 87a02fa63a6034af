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

/* Handles the status of a call about a stream's events: the context may have gone before the heap, and all work of its
 * streams with it. Returns the status. */
trz_status heap_note_loss(trz_heap *h, struct event_pool *p, trz_status status);

/* Whether the handle, which is alive, means the stream in this thread. May ask the driver. */
bool heap_is_threads_own(trz_heap *h, const struct stream *s);

/* Whether the handle is alive and means the stream in this thread. Growth lock held. */
bool heap_reaches_stream(trz_heap *h, const struct stream *s);

/* An event, of the pool or a new one. */
trz_status heap_take_event(trz_heap *h, struct event_pool *p, trz_event *event);

/* Takes an event back into the pool; without host memory it is destroyed. */
void heap_return_event(trz_heap *h, struct event_pool *p, trz_event event);

/* Destroys a caller's event; if the driver refuses, closing tries again. */
void heap_destroy_event(trz_heap *h, trz_event event);

/* Whether a stream is being captured, was in a capture that is broken, or the driver does not say: for the legacy
 * default stream, while a blocking stream of its context is captured. No stream of a context that has gone is. */
bool heap_is_captured(trz_heap *h, const struct stream *s);
bool heap_is_legacy_captured(trz_heap *h, struct event_pool *p);

/* Whether an event can be recorded on a stream without becoming part of a capture, or breaking one. */
bool heap_may_record(trz_heap *h, const struct stream *s);

/* An event recorded now on a stream that is alive; NULL if none may be recorded, or the driver refuses. The growth lock
 * is held, or the stream counts a recorder. */
trz_event heap_record_event(trz_heap *h, const struct stream *s);

/* A full completion edge in a stream between its work so far and all later work (law L9): it waits for an event of its
 * own. Its tickets up to *fenced are behind it. Driver: record, wait. */
trz_status heap_fence(trz_heap *h, const struct stream *s, uint64_t *fenced);

/* Waits for frees of other threads that are recording on a stream now: they hold no lock that this thread wants, and
 * are about to make one driver call, which waits for nothing. */
void heap_await_recorders(trz_heap *h, const struct stream *s);

#endif
