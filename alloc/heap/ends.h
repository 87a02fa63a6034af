/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of private pools and of captures: their memory becomes other lanes'. Growth lock held throughout.
 */
#ifndef TRZ_ALLOC_ENDS_H
#define TRZ_ALLOC_ENDS_H

#include "heap/heap.h"

/* Gives the memory of a stream's captured lanes in a pool to its other lanes. Growth lock held. */
void heap_merge_captured_lanes(trz_heap *h, struct pool *p, const struct stream *s);

/* Notes what pools that have ended since the last poll must await, and asks which events have completed. Growth lock
 * held. */
void heap_end_pools(trz_heap *h);

/* Gives the memory of released pools that await nothing to the default pool. Growth lock held. */
void heap_dissolve_pools(trz_heap *h);

#endif
