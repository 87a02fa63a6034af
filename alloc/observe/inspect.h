/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a heap: statistics, without a lock that allocation takes; the history; snapshots.
 */
#ifndef TRZ_ALLOC_INSPECT_H
#define TRZ_ALLOC_INSPECT_H

#include "heap/heap.h"
#include "snapshot.h"

void inspect_stats(const trz_heap *h, trz_stat_value *values, size_t capacity, size_t *count);
/* false: none has that name. */
bool inspect_stat(const trz_heap *h, const char *name, trz_stat_value *value);
void inspect_reset_peaks(trz_heap *h);

/* Starts a history of this many events (0: stops it). */
trz_status inspect_history(trz_heap *h, size_t events);

/* An empty snapshot for this heap, which gets its memory from the heap's metadata; inspect_take fills and seals it. The
 * caller frees it, also on an error. */
struct snapshot inspect_empty(trz_heap *h);
trz_status inspect_take(trz_heap *h, struct snapshot *s);

trz_status inspect_snapshot(trz_heap *h, const char *path);
trz_status inspect_walk(trz_heap *h, const trz_visitor *visitor);

/* The mapping of the heap's own memory that covers an address; false: there is none. */
bool inspect_mapping(trz_heap *h, trz_addr address, trz_segment_info *out);

#endif
