/* SPDX-License-Identifier: Apache-2.0
 *
 * Noting that further streams use live memory, and asking what it is, by any address inside it.
 */
#ifndef TRZ_ALLOC_USES_H
#define TRZ_ALLOC_USES_H

#include "heap/heap.h"

/* Notes that a stream also uses the memory at an address; ignores an address where nothing is live. false: the host has
 * no memory. */
bool uses_record(trz_heap *h, trz_addr address, struct stream *s);

/* Before memory is freed in the order of a stream that is in a capture: notes that its own stream uses it, too. What
 * that has done before the capture comes before the capture's work in no launch. Not needed if the memory's lane serves
 * the same capture. false: the host has no memory. */
bool uses_record_own(trz_heap *h, trz_addr address, uint64_t capture);

/* The live block or held slot that holds an address; false: none does. */
bool uses_query(trz_heap *h, trz_addr address, trz_pointer_info *info);

/* uses_query without the device. */
bool uses_query_locked(trz_heap *h, trz_addr address, trz_pointer_info *info);

#endif
