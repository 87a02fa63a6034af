/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked and noted of live memory by any address inside it: further streams that use it, and what it is.
 */
#ifndef TRZ_ALLOC_USES_H
#define TRZ_ALLOC_USES_H

#include "heap/heap.h"

/* Notes that a stream also uses the memory at an address; ignores addresses in nothing live. false: the host has no
 * memory. */
bool uses_record(trz_heap *h, trz_addr address, struct stream *s);

/* The live block or held slot that holds an address; false: none does. */
bool uses_query(trz_heap *h, trz_addr address, trz_pointer_info *info);

/* uses_query without the device. */
bool uses_query_locked(trz_heap *h, trz_addr address, trz_pointer_info *info);

#endif
