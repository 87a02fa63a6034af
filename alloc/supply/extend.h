/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing a window's end: by creating tiles, or by gathering tiles that are wholly free elsewhere in the heap. The
 * choice is the policy's (policy.h).
 */
#ifndef TRZ_ALLOC_EXTEND_H
#define TRZ_ALLOC_EXTEND_H

#include "supply/demand.h"

/* Adds memory for a demand, as one busy block of at least its bytes that counts as idle: by a flip, in a hole, or at
 * the end of a window of its lane. Growth lock held, heap lock not.
 * OUT_OF_MEMORY, LIMIT, ADDRESS_SPACE, HOST_MEMORY, CONTEXT_DEAD, DRIVER: the heap is as it was. */
trz_status extend(trz_heap *h, const struct demand *d, struct block **out);

/* Adds the demand's bytes at the top of a given window. If the window ends with free memory, the caller passes that as
 * `tail`, busy and counted as idle; it becomes part of the result. NO_ROOM: the window is used up. On an error the tail
 * is free again. */
trz_status extend_behind(trz_heap *h, const struct demand *d, struct window *w, struct block *tail, struct block **out);

/* The largest request that would succeed for `l` now: from its free blocks, from other streams' passed blocks, or from
 * what growth with all effort could lay. An estimate: others allocate meanwhile. Growth lock held. */
uint64_t extend_largest(trz_heap *h, struct lane *l);

#endif
