/* SPDX-License-Identifier: Apache-2.0
 *
 * Flips: memory for a request without a driver call. A hole is address space whose tiles are owned elsewhere but
 * still mapped; where such tiles are wholly free at their owner's place they are simply owned at the hole again.
 */
#ifndef TRZ_ALLOC_FLIP_H
#define TRZ_ALLOC_FLIP_H

#include "supply/demand.h"

/* Looks for a run of holes that can be filled so, with the lane's own free blocks on either side of it, of at least the
 * demand's bytes, choosing the one that moves least. h->candidates holds n tiles, found under this hold of the heap
 * lock. On success the run is one busy block that counts as idle; NULL: there is none. *unpassed tells whether a
 * tile was, or would have been, moved that needs a fence first: then nothing has been done and NULL is returned. */
struct block *flip_locked(trz_heap *h, const struct demand *d, size_t n, bool *unpassed);

#endif
