/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at a pool, and checkpoints of it: which allocations it holds and where, and putting it back into that state.
 * Programs that replay graphs in different orders need it: each graph expects what the one before it left, at the same
 * addresses.
 */
#ifndef TRZ_ALLOC_POOL_STATE_H
#define TRZ_ALLOC_POOL_STATE_H

#include "heap/heap.h"

/* Notes what callers hold. HOST_MEMORY. */
trz_status pool_state_take(trz_heap *h, struct pool *p, struct trz_pool_state **out);

/* Frees all that callers hold of the pool, then gives out again what they held at the checkpoint. Nothing has changed
 * on an error: NOT_READY (other streams use some of it), NOT_FOUND (some of it has gone back to the driver),
 * HOST_MEMORY. */
trz_status pool_state_restore(trz_heap *h, struct pool *p, const struct trz_pool_state *state);

/* What a checkpoint holds, what the pool holds now: up to `capacity` addresses; returns how many there are. */
size_t pool_state_list(const struct trz_pool_state *state, void **list, size_t capacity);
size_t pool_state_live(trz_heap *h, const struct pool *p, void **list, size_t capacity);

trz_pool_info pool_state_info(trz_heap *h, const struct pool *p);

void pool_state_free(struct trz_pool_state *state);

#endif
