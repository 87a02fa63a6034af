/* SPDX-License-Identifier: Apache-2.0
 *
 * Private pools: making one, and giving references up.
 */
#ifndef TRZ_ALLOC_POOLS_H
#define TRZ_ALLOC_POOLS_H

#include "heap/heap.h"

/* Makes a private pool with one reference; gives a reference up. Allocations in progress hold references, too. */
trz_status heap_pool_create(trz_heap *h, struct pool **out);
void heap_pool_release(trz_heap *h, struct pool *p);

#endif
