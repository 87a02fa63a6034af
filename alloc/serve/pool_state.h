/* SPDX-License-Identifier: Apache-2.0
 *
 * Listing a pool's allocations, and checkpoints of it: noting its allocations and their addresses, and restoring that
 * state. Programs that replay graphs in different orders need this: each graph expects the allocations that the one
 * before it left, at their addresses.
 */
#ifndef TRZ_ALLOC_POOL_STATE_H
#define TRZ_ALLOC_POOL_STATE_H

#include "heap/heap.h"

/* Notes the live allocations. HOST_MEMORY. */
trz_status pool_state_take(trz_heap *h, struct pool *p, struct trz_pool_state **out);

/* Frees all live allocations of the pool, then allocates again those of the checkpoint. An error changes nothing:
 * NOT_READY (other streams use some of it), NOT_FOUND (some of it has gone back to the driver), HOST_MEMORY. */
trz_status pool_state_restore(trz_heap *h, struct pool *p, const struct trz_pool_state *state);

/* Lists the allocations of a checkpoint, and those of the pool now: up to `capacity` addresses; returns how many there
 * are. */
size_t pool_state_list(const struct trz_pool_state *state, void **list, size_t capacity);
size_t pool_state_live(trz_heap *h, const struct pool *p, void **list, size_t capacity);

trz_pool_info pool_state_info(trz_heap *h, const struct pool *p);

void pool_state_free(struct trz_pool_state *state);

#endif
