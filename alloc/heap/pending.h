/* SPDX-License-Identifier: Apache-2.0
 *
 * Freed memory that waits for tickets. Heap lock held.
 */
#ifndef TRZ_ALLOC_PENDING_H
#define TRZ_ALLOC_PENDING_H

#include "heap/heap.h"

/* Frees a use of memory that is over, or has been given up. */
void heap_drop_use_locked(trz_heap *h, struct use *u);

/* Notes freed memory that waits for the ticket `sequence` of `s`; all other members of `p` are set. */
void heap_push_pending_locked(struct stream *s, struct pending *p, uint64_t sequence);

/* Makes a pending block whose tickets have all passed free, with the ticket `sequence` of its home; or ended, if other
 * processes may still use it, or own it. */
void heap_end_block_locked(trz_heap *h, struct block *b, uint64_t sequence);

/* Ends an entry whose wait is over, or is ordered before its home's later work: the memory becomes free, with
 * `home_sequence` as its ticket there, or ended; the entry is given back. */
void heap_end_pending_locked(trz_heap *h, struct pending *p);

/* Ends the entries that waited for tickets of `s` which have passed. The lock is given up now and then. Growth lock
 * held. */
void heap_drain_pending_locked(trz_heap *h, struct stream *s);

/* Frees the stream's pending memory that waits only for what the stream's future work follows. Growth lock held; the
 * heap lock is given up now and then. */
void heap_end_known_locked(trz_heap *h, struct stream *s);

#endif
