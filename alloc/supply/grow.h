/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing a window's end: by creating tiles, or by gathering tiles that are wholly free elsewhere in the heap. The
 * choice is the policy's (policy.h).
 */
#ifndef TRZ_ALLOC_GROW_H
#define TRZ_ALLOC_GROW_H

#include "supply/demand.h"

/* Adds memory for a demand: as many contiguous bytes at the end of its lane's window, handed over as a busy block of at
 * least that size that counts as idle. Growth lock held, heap lock not.
 * OUT_OF_MEMORY, LIMIT, ADDRESS_SPACE, HOST_MEMORY, CONTEXT_DEAD, DRIVER: the heap is as it was. */
trz_status grow(trz_heap *h, const struct demand *d, struct block **out);

/* The same behind the end of a given window, which is all that is laid there, or behind its free tail: that is given as
 * a busy block that counts as idle, or NULL, and is part of the result; the demand's bytes come on top. NO_ROOM: the
 * window is used up. On an error the tail is free again. */
trz_status grow_behind(trz_heap *h, const struct demand *d, struct window *w, struct block *tail, struct block **out);

/* The largest request that would be served to `l` now: out of its free blocks, of what other streams are done with,
 * or of what growth with all effort could lay. An estimate: others allocate meanwhile. Growth lock held. */
uint64_t grow_largest(trz_heap *h, struct lane *l);

#endif
