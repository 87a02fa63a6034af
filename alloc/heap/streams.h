/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap's table of streams and their lanes.
 */
#ifndef TRZ_ALLOC_STREAMS_H
#define TRZ_ALLOC_STREAMS_H

#include "heap/heap.h"

/* The legacy default stream, once seen, whose handle can mean no other stream. Else NULL. */
static inline struct stream *heap_known_stream(trz_heap *h, trz_stream handle)
{
	return is_legacy(handle) ? atomic_load_explicit(&h->legacy, memory_order_acquire) : NULL;
}

/* The stream of a handle, added if it is new, and entered (heap/lookup.h). NO_ROOM, without a text: the stream is new,
 * the table is full, and the caller does not hold the growth lock (`growing`), which it needs to reuse an entry. */
trz_status heap_find_stream(trz_heap *h, trz_stream handle, bool growing, struct stream **out);

/* The same where the driver has been asked for the id. */
trz_status heap_find_stream_of_id(trz_heap *h, trz_stream handle, uint64_t id, bool growing, struct stream **out);

/* The text of a failed question for a stream's id. */
trz_status heap_stream_not_asked(trz_stream handle, trz_status status);

/* The stream's lane of a pool (NULL: the default one), for packed or for dedicated memory, made if it is new.
 * NULL: no host memory. */
struct lane *heap_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned dedicated);

/* The stream's lane, or its captured lane; never the default pool's for packed memory. */
struct lane *heap_make_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned dedicated, bool captured);

#endif
