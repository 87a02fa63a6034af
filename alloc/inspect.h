/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a heap: statistics, without a lock that allocation takes.
 */
#ifndef TRZ_ALLOC_INSPECT_H
#define TRZ_ALLOC_INSPECT_H

#include "heap.h"

void inspect_stats(const trz_heap *h, trz_stat_value *values, size_t capacity, size_t *count);
void inspect_reset_peaks(trz_heap *h);

#endif
