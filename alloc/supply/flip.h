/* SPDX-License-Identifier: Apache-2.0
 *
 * Flips: memory for a request without a driver call. A hole is address space whose tiles are owned elsewhere but
 * still mapped; where such tiles are wholly free at their owner's place they are simply owned at the hole again.
 */
#ifndef TRZ_ALLOC_FLIP_H
#define TRZ_ALLOC_FLIP_H

#include "supply/demand.h"

/* Looks for a run of places in a hole that can be filled this way and that has at least the demand's bytes, together
 * with the lane's own free blocks on either side; of all such runs it takes the one that moves least. h->candidates
 * holds n tiles, found under this hold of the heap lock. On success the run is one busy block that counts as idle;
 * NULL: there is none. */
struct block *flip_locked(trz_heap *h, const struct demand *d, size_t n);

#endif
