/* SPDX-License-Identifier: Apache-2.0
 *
 * The out-of-memory ladder: what is tried, in order of cost, when the heap cannot grow.
 */
#ifndef TRZ_ALLOC_OOM_H
#define TRZ_ALLOC_OOM_H

#include "grow.h"

/* Climbs the ladder for a request that neither the stream's free blocks nor thrifty growth can serve: after
 * each rung the search and growth are tried again. Growth lock held, heap lock not. On TRZ_OK *out is a busy
 * block as from grow(). Else `refused`, the status that growth ended with, and the error text is set. */
trz_status oom_ladder(trz_heap *h, struct stream *s, enum pool_kind pool, uint64_t bytes, trz_status refused,
                      struct block **out);

/* A free block of the stream, cut to `bytes` aligned ones, busy and counted as idle; NULL: none. Two nodes have
 * been reserved. */
struct block *oom_search_locked(trz_heap *h, struct stream *s, enum pool_kind pool, uint64_t bytes);

/* The last rung: asks the user's callback, without any lock, whether to try again. */
bool oom_ask(trz_heap *h);

#endif
