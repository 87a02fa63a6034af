/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing a window's end: by creating tiles, or by gathering tiles that are wholly free elsewhere in the heap. The
 * choice is the policy's (policy.h).
 */
#ifndef TRZ_ALLOC_EXTEND_H
#define TRZ_ALLOC_EXTEND_H

#include "supply/demand.h"

/* Adds memory for a demand: as many contiguous bytes at the end of its lane's window, handed over as a busy block of at
 * least that size that counts as idle. Growth lock held, heap lock not.
 * OUT_OF_MEMORY, LIMIT, ADDRESS_SPACE, HOST_MEMORY, CONTEXT_DEAD, DRIVER: the heap is as it was. */
trz_status extend(trz_heap *h, const struct demand *d, struct block **out);

/* Adds memory at the top of a given window, behind its free tail if it has one: the caller passes the tail as a busy
 * block that counts as idle, or NULL; it is part of the result, and the demand's bytes come on top. NO_ROOM: the window
 * is used up. On an error the tail is free again. */
trz_status extend_behind(trz_heap *h, const struct demand *d, struct window *w, struct block *tail, struct block **out);

/* The largest request that would succeed for `l` now: from its free blocks, from other streams' passed blocks, or from
 * what growth with all effort could lay. An estimate: others allocate meanwhile. Growth lock held. */
uint64_t extend_largest(trz_heap *h, struct lane *l);

#endif
