/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory apart: allocations that get a tile of their own, because somebody will register or share it as a whole. Such
 * tiles lie in windows of their own sort, are never packed, gathered or flipped, and keep their one address until
 * they go back to the driver. Free ones are kept by stream and sort like other blocks.
 */
#ifndef TRZ_ALLOC_APART_H
#define TRZ_ALLOC_APART_H

#include "heap/heap.h"

/* What TRZ_ALLOC_* flags ask of memory: a set of APART_*, or 0 where packed memory does. NOT_SUPPORTED,
 * INVALID_ARGUMENT, with the text. */
trz_status apart_sort(const trz_heap *h, unsigned flags, unsigned *apart);

/* As serve_alloc, for a lane of memory apart. Its address is aligned to GRANULE. */
trz_status apart_alloc(trz_heap *h, struct lane *l, uint64_t size, trz_addr *out);

#endif
