/* SPDX-License-Identifier: Apache-2.0
 *
 * Dedicated memory: allocations with a tile of their own, because the caller will register or share it as a whole, or
 * because a debugging option asks for it. These tiles lie in windows of their sort, are never packed, gathered or
 * flipped, and keep their one address until they go back to the driver. Free ones are kept by stream and sort like
 * other blocks; if an option says that they serve once (DEDICATED_ONCE), they go back when they have been freed and
 * their work has passed.
 *
 *   | tile: allocation ......... | tile: allocation ... |
 *   | tile: ........ allocation | guard, unmapped | tile: ... allocation | guard |         with the option guard
 */
#ifndef TRZ_ALLOC_DEDICATED_H
#define TRZ_ALLOC_DEDICATED_H

#include "heap/heap.h"

/* The sort of memory for TRZ_ALLOC_* flags: a set of DEDICATED_*, or 0 if packed memory will do. NOT_SUPPORTED,
 * INVALID_ARGUMENT, with the text. */
trz_status dedicated_sort(const trz_heap *h, unsigned flags, unsigned *dedicated);

/* As serve_alloc, for a lane of dedicated memory. The address is aligned to GRANULE; with the option guard, and in a
 * classic segment, only as requested. */
trz_status dedicated_alloc(trz_heap *h, struct lane *l, uint64_t size, uint64_t alignment, trz_addr *out);

#endif
