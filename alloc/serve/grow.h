/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing an allocation in place.
 */
#ifndef TRZ_ALLOC_GROW_H
#define TRZ_ALLOC_GROW_H

#include "heap/heap.h"

/* Makes the allocation that begins at an address `size` bytes long. Statuses as of trz_grow; no text is set. */
trz_status grow_in_place(trz_heap *h, trz_addr address, uint64_t size);

#endif
