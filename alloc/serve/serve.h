/* SPDX-License-Identifier: Apache-2.0
 *
 * Serving requests: the paths of allocation and of free.
 */
#ifndef TRZ_ALLOC_SERVE_H
#define TRZ_ALLOC_SERVE_H

#include "supply/demand.h"

/* Makes a busy block the caller's, for `size` bytes; nodes for pagemap and index have been reserved. */
trz_addr serve_make_live_locked(trz_heap *h, struct lane *l, uint64_t size, struct block *b);

/* The sort of memory (DEDICATED_*) that the debugging options give a request; 0: packed. */
unsigned serve_sort(const trz_heap *h, uint64_t size, uint64_t alignment);

/* The best fit among the lane's free blocks, for a request without alignment that is too large for a slot, of a stream
 * that is not being captured; 0: there is none, or more has to be done. Takes one lock, once, and makes no call. */
trz_addr serve_block(trz_heap *h, struct lane *l, uint64_t size);

/* size > 0, <= SIZE_LIMIT; alignment a power of two between UNIT and GRANULE. */
trz_status serve_alloc(trz_heap *h, struct lane *l, uint64_t size, uint64_t alignment, trz_addr *out);

/* The live block that begins at an address; NULL: none does. */
struct block *serve_block_locked(const trz_heap *h, trz_addr address);

/* Frees in the order of `on`; NULL: in that of the memory's home. `at`: where the address's entry in the pagemap is;
 * NULL: there is none, so the address is not the heap's. */
trz_status serve_free(trz_heap *h, const _Atomic pagemap_entry *at, trz_addr address, struct stream *on);

/* Takes an allocation from its holder, and drops its uses. It is then pending, in no list: the caller sets what it
 * waits for. NULL: nothing has changed, *status says why. */
struct pending *serve_take_back_locked(trz_heap *h, trz_addr address, trz_status *status);

/* Sets the error text of a free that failed; returns the status, or a better one. */
trz_status serve_complain(trz_heap *h, trz_addr address, trz_status status);

#endif
