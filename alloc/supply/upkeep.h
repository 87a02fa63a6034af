/* SPDX-License-Identifier: Apache-2.0
 *
 * Returning free memory to the driver unasked: beyond a threshold, or when it was not needed for a while. Driven by
 * allocations that the cache cannot serve and by polls; terrazzo has no thread of its own
 * (docs/decisions/0012-no-thread.md).
 */
#ifndef TRZ_ALLOC_UPKEEP_H
#define TRZ_ALLOC_UPKEEP_H

#include "heap/heap.h"

/* Asks how far the streams are, unmaps imports that have ended, and returns what is too much. Growth lock held. */
void upkeep(trz_heap *h);

/* The same, if a poll is wanted (some queue of events is long) and the growth lock is free. Allocations call it: queues
 * are bounded, and frees ask the driver nothing. */
void upkeep_if_wanted(trz_heap *h);

/* Returns only what is too much. Growth lock held; it may be given back meanwhile (notice.h). */
void upkeep_return_free(trz_heap *h);

#endif
