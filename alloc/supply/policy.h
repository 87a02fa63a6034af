/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy of growth: whether to create memory or to move what is there, and how large new tiles are. Nothing here
 * calls the driver or changes the heap. Growth lock held.
 */
#ifndef TRZ_ALLOC_POLICY_H
#define TRZ_ALLOC_POLICY_H

#include "supply/demand.h"

/* The tile that small memory grows by where nothing is known of it. */
enum { SMALL_TILE = 2 * GRANULE };

/* Whether to create what a demand asks for, or to move memory first: EFFORT_CREATE or EFFORT_MOVE. */
enum effort policy_effort(const trz_heap *h, const struct demand *d);

/* Whether creating `bytes` is better than moving more, where so much is short of `need`, a part of what it asks for. */
bool policy_creates(const trz_heap *h, const struct demand *d, uint64_t bytes, uint64_t need);

/* The size of a tile where size is a matter of choice. */
uint64_t policy_tile(const trz_heap *h, enum kind kind, uint64_t reserved);

/* The size of the next tile when `missing` bytes are to come and so much is reserved; 0: growth is refused. */
uint64_t policy_next_tile(const trz_heap *h, const struct demand *d, uint64_t missing, uint64_t reserved);

/* Whether what the device had free when it was last asked stands in the way of so much more, or of large tiles. */
bool policy_is_tight(const trz_heap *h, enum kind kind, uint64_t bytes);

#endif
