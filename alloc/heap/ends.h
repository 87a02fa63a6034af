/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of private pools and of captures: other lanes take over their memory. Growth lock held throughout.
 */
#ifndef TRZ_ALLOC_ENDS_H
#define TRZ_ALLOC_ENDS_H

#include "heap/heap.h"

/* Gives the memory of a stream's captured lanes in a pool to its other lanes there; without `all`, what is free for any
 * capture stays. */
void heap_merge_captured_lanes(trz_heap *h, struct pool *p, const struct stream *s, bool all);

/* Gives a block to another lane, of the same stream unless it is free. */
void heap_rehome_block_locked(trz_heap *h, struct block *b, struct lane *to);

/* Notes what the pools that have ended since the last poll must await. If that took a deputy, asks at once whether it
 * has passed. */
void heap_end_pools(trz_heap *h);

/* Gives the memory of ended pools that need await nothing more to the default pool. */
void heap_dissolve_pools(trz_heap *h);

#endif
