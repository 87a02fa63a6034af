/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap's table of streams and their lanes.
 */
#ifndef TRZ_ALLOC_STREAMS_H
#define TRZ_ALLOC_STREAMS_H

#include "heap/heap.h"

/* The legacy default stream, if the handle is its and the heap has seen it; else NULL. Its handle can mean no other
 * stream, so the driver need not be asked. */
static inline struct stream *heap_known_stream(trz_heap *h, trz_stream handle)
{
	return is_legacy(handle) ? atomic_load_explicit(&h->legacy, memory_order_acquire) : NULL;
}

/* What the driver has said about a stream. */
struct asked {
	bool has_capture;            /* `capture` is its answer */
	struct capture capture;
	uint64_t id;                 /* 0: the stream is being captured */
};

/* Asks the driver whether the stream is being captured and, unless it is, for its id. Sets the error text. */
trz_status heap_ask_stream(trz_heap *h, trz_stream handle, struct asked *out);

/* Which capture the stream is in: the driver's answer, or it is asked now, in the stream's context. The legacy default
 * stream is in none. */
static inline trz_status heap_capture_asked(trz_heap *h, const struct stream *s, trz_stream handle,
                                            const struct asked *asked, struct capture *capture)
{
	*capture = asked->capture;
	if (asked->has_capture || is_legacy(handle))
		return TRZ_OK;
	int cancel = uncancelled_begin();  /* the stream has been entered */
	trz_status status =
	    driver_stream_capture(&h->driver, s->events->context, handle, &capture->status, &capture->id);
	uncancelled_end(cancel);
	return status;
}

/* The stream of a handle, added if it is new, and entered (heap/lookup.h). NO_ROOM, without a text: the stream is new,
 * the table is full, and the caller does not hold the growth lock (`growing`), which it needs to reuse an entry. */
trz_status heap_find_stream(trz_heap *h, trz_stream handle, const struct asked *asked, bool growing,
                            struct stream **out);

/* The stream with this id, which the driver has just given for the handle; NULL: the heap has not seen it. One that it
 * has seen in captures alone gets the id. */
struct stream *heap_seen_stream_locked(trz_heap *h, trz_stream handle, uint64_t id);

/* Sets the error text when the driver would not answer about a stream; returns the status. */
trz_status heap_stream_not_asked(trz_stream handle, trz_status status);

/* The stream's lane of a pool (NULL: the default one), for packed or for dedicated memory, made if it is new.
 * NULL: no host memory. */
struct lane *heap_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned dedicated);

/* The same, or with `captured` the stream's captured lane; not for packed memory of the default pool. */
struct lane *heap_make_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned dedicated, bool captured);

#endif
