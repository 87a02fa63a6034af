/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream of a handle, for the duration of an operation.
 */
#ifndef TRZ_ALLOC_LOOKUP_H
#define TRZ_ALLOC_LOOKUP_H

#include "heap/streams.h"

/* The stream of a handle, added if it is new; its entry stays the stream's until heap_leave_stream. May call the driver
 * (its capture and id); takes the growth lock when the table is full and needs room. */
trz_status heap_stream(trz_heap *h, trz_stream handle, struct stream **out);

/* heap_stream for a caller that has asked the driver. */
trz_status heap_stream_asked(trz_heap *h, trz_stream handle, const struct asked *asked, struct stream **out);

/* heap_stream for a caller that takes a ticket but no memory. In a host function, where the driver permits no call, it
 * finds the newest stream that is known by the handle. */
trz_status heap_stream_of_user(trz_heap *h, trz_stream handle, struct stream **out);

/* The same, and which capture the stream is in; in a host function: none. */
trz_status heap_stream_of_freer(trz_heap *h, trz_stream handle, struct stream **out, struct capture *capture);

/* Ends what heap_stream has begun. The legacy default stream is not counted: its entry never goes to another stream. */
static inline void heap_leave_stream(struct stream *s, trz_stream handle)
{
	if (!is_legacy(handle))
		atomic_fetch_add_explicit(&s->left, 1, memory_order_release);
}

#endif
