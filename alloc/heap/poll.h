/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking the driver how far streams are. Growth lock held throughout.
 */
#ifndef TRZ_ALLOC_POLL_H
#define TRZ_ALLOC_POLL_H

#include "heap/heap.h"

/* Covers the newest ticket of a stream by a late event, if no event does. Growth lock held. */
void heap_record_late(trz_heap *h, struct stream *s);

/* Asks the driver which tickets of each stream have passed, recording a late event where none covers the
 * newest, and drains what became free. Waits for nothing. */
void heap_poll(trz_heap *h);

/* A poll that also covers tickets out of reach, in every context, unless that could break a capture: it or a later poll
 * finds them passed. */
void heap_poll_all(trz_heap *h);

/* Notes that a stream's handle is about to die: its newest ticket is covered by an event now, and no further one
 * will be recorded. Growth lock held. */
trz_status heap_retire_stream(trz_heap *h, trz_stream handle);

#endif
