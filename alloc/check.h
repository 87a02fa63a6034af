/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole-heap check.
 */
#ifndef TRZ_ALLOC_CHECK_H
#define TRZ_ALLOC_CHECK_H

#include "heap.h"

/* Verifies the invariants of docs/invariants.md; CORRUPT names the first that does not hold. Takes both locks. */
trz_status check_heap(trz_heap *h);

#endif
