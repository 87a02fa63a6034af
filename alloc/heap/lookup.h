/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream of a handle, for the time of an operation.
 */
#ifndef TRZ_ALLOC_LOOKUP_H
#define TRZ_ALLOC_LOOKUP_H

#include "heap/heap.h"

/* The stream of a handle, added if it is new; its entry stays the stream's until heap_leave_stream. May call the driver
 * (its id); takes the growth lock where so many streams are known that room has to be made. */
trz_status heap_stream(trz_heap *h, trz_stream handle, struct stream **out);

/* The same for who takes a ticket of it and no memory: where the driver permits no call, in a host function, that is
 * the newest stream known by the handle. */
trz_status heap_stream_of_user(trz_heap *h, trz_stream handle, struct stream **out);

/* The entry of the legacy default stream is never another's. */
static inline void heap_leave_stream(struct stream *s, trz_stream handle)
{
	if (!is_legacy(handle))
		atomic_fetch_add_explicit(&s->left, 1, memory_order_release);
}

#endif
