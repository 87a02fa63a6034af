/* SPDX-License-Identifier: Apache-2.0
 *
 * Frees that take effect when an event has completed.
 */
#ifndef TRZ_ALLOC_AFTER_H
#define TRZ_ALLOC_AFTER_H

#include "heap/heap.h"

/* Frees an allocation once a recorded event has completed; the event becomes the heap's. The text is set on errors. */
trz_status after_free(trz_heap *h, trz_addr address, trz_event event);

#endif
