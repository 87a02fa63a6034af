/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole-heap check.
 */
#ifndef TRZ_ALLOC_CHECK_H
#define TRZ_ALLOC_CHECK_H

#include "heap/heap.h"

/* Verifies the invariants of docs/invariants.md; CORRUPT names the first that does not hold. Takes both locks. */
trz_status check_heap(trz_heap *h);

/* At the end of an operation that called the driver, with no lock held: in builds with TRZ_HEAP_CHECKS a heap that
 * breaks an invariant stops the program there. */
#ifdef TRZ_HEAP_CHECKS
#include <assert.h>
#define CHECK_SLOW_PATH(h) assert(check_heap(h) == TRZ_OK)
#else
#define CHECK_SLOW_PATH(h) ((void)0)
#endif

#endif
