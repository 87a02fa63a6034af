/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations at an address of the caller's choice, in memory that has been freed there.
 */
#ifndef TRZ_ALLOC_EXACT_H
#define TRZ_ALLOC_EXACT_H

#include "heap/heap.h"

/* Makes `size` bytes at an address, a multiple of UNIT, the caller's. `captured`: the lane's stream is being captured.
 * Errors: NO_ROOM (not all of it is free memory that the lane may have now), HOST_MEMORY, NOT_PERMITTED, CONTEXT_DEAD.
 * Polls. */
trz_status exact_alloc(trz_heap *h, struct lane *l, trz_addr address, uint64_t size, bool captured);

#endif
