/* SPDX-License-Identifier: Apache-2.0
 *
 * Driver memory of its own for each allocation, for debugging (options no_cache, unmap_on_free and guard): a tile
 * that is laid at the window's end and returned when it has been freed and its work has passed. Free blocks are
 * never given out again: they wait for that. All need the growth lock; they may give it back meanwhile (notice.h).
 *
 *   | tile: ........ allocation | guard, unmapped | tile: ... allocation | guard |         with option guard
 *   | tile: allocation ... | tile: allocation ......... |                                   without
 */
#ifndef TRZ_ALLOC_ISOLATE_H
#define TRZ_ALLOC_ISOLATE_H

#include "heap/heap.h"

/* The bytes of its tile that a request takes. */
static inline uint64_t isolate_occupied(const trz_heap *h, uint64_t size)
{
	return h->config.guard ? size : align_up(size, h->driver.granule);
}

/* A new tile of at least `bytes` for the lane: a busy block, counted as idle. */
trz_status isolate_grow(trz_heap *h, struct lane *l, uint64_t bytes, struct block **out);

/* Returns what has been freed and has passed. */
void isolate_return_freed(trz_heap *h);

/* Waits, with no lock held, for the work before some free; false: nothing is to be waited for, or may be. */
bool isolate_wait(trz_heap *h, const struct lane *l);

#endif
