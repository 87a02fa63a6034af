/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a heap: statistics, without a lock that allocation takes; the history; snapshots.
 */
#ifndef TRZ_ALLOC_INSPECT_H
#define TRZ_ALLOC_INSPECT_H

#include "heap/heap.h"

void inspect_stats(const trz_heap *h, trz_stat_value *values, size_t capacity, size_t *count);
void inspect_reset_peaks(trz_heap *h);

/* Starts a history of this many events (0: stops it). */
trz_status inspect_history(trz_heap *h, size_t events);

/* If the option is set: a snapshot of the heap as a failed allocation left it. Returns the failure; its text then ends
 * with the snapshot's path, or with the reason why there is none. Takes locks: none may be held. */
trz_status inspect_oom(trz_heap *h, trz_status failure);

trz_status inspect_snapshot(trz_heap *h, const char *path);
trz_status inspect_walk(trz_heap *h, const trz_visitor *visitor);

/* The mapping of the heap's own memory that covers an address; false: there is none. */
bool inspect_mapping(trz_heap *h, trz_addr address, trz_segment_info *out);

#endif
