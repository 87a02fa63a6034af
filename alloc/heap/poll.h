/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking the driver how far streams are, and retiring them. Growth lock held throughout.
 *
 * When the heap polls: before it takes or moves memory whose ticket has not passed (borrow, extend, grow, exact,
 * dedicated), before it gives memory back (reclaim, upkeep), on the ladder's rungs drain and gather (oom), when a pool
 * ends or is put back, while a captured stream has not settled, when a new stream finds the table full (lookup), and
 * when an allocation finds a queue of events long (upkeep_if_wanted). A request that a free block serves never polls.
 *
 * When a stream retires: the caller announces its end (trz_stream_retire), or the table is full and the stream holds
 * nothing and has passed all its work (lookup). An end that nobody announces shows when another stream comes with the
 * handle (stream_bury).
 */
#ifndef TRZ_ALLOC_POLL_H
#define TRZ_ALLOC_POLL_H

#include "heap/heap.h"

/* Covers the newest ticket of a stream by a late event, if no event covers it yet. */
void heap_record_late(trz_heap *h, struct stream *s);

/* Asks the driver which tickets of each stream have passed, recording a late event where none covers the
 * newest, and drains what became free. Waits for nothing. */
void heap_poll(trz_heap *h);

/* Whether the next allocation is to poll. */
static inline bool heap_poll_is_wanted(const trz_heap *h)
{
	return atomic_load_explicit(&h->poll_wanted, memory_order_relaxed);
}

/* A poll that also records deputies for tickets out of reach, in every context, unless that could break a capture. This
 * poll or a later one finds them passed. */
void heap_poll_all(trz_heap *h);

/* Ends what was freed with an event, which has completed, and destroys the event. `link` is that of the entry, or of
 * one before it. */
void heap_end_given(trz_heap *h, struct pending **link, struct pending *p);

/* Retires a stream whose handle is about to die: covers its newest ticket by an event now; none is recorded on it
 * afterwards. */
trz_status heap_retire_stream(trz_heap *h, trz_stream handle);

#endif
