/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy of growth: whether to create memory or to move free memory, and the size of new tiles. Nothing here
 * calls the driver. Growth lock held.
 */
#ifndef TRZ_ALLOC_POLICY_H
#define TRZ_ALLOC_POLICY_H

#include "supply/demand.h"

/* The usual tile of small memory; while little is reserved tiles are smaller, and once small memory is large,
 * larger. */
enum { SMALL_TILE = 2 * GRANULE };

/* Whether to create the memory of a demand, or to move memory first: EFFORT_CREATE or EFFORT_MOVE. */
enum effort policy_effort(const trz_heap *h, const struct demand *d);

/* Whether tiles that move for a demand should only visit a view, and return. */
bool policy_views(const trz_heap *h, const struct demand *d);

/* Notes that bytes have been mapped elsewhere for a demand, as a view or for good; that bytes were flipped into a
 * view. */
void policy_moved(trz_heap *h, const struct demand *d, uint64_t bytes, bool view);
void policy_view_flipped(trz_heap *h, uint64_t bytes);

/* Whether to create `bytes`, which are still missing of the demand's `need`, rather than move more. */
bool policy_creates(const trz_heap *h, const struct demand *d, uint64_t bytes, uint64_t need);

/* Whether gathering should leave free blocks alone that it would break up for little. */
bool policy_bargains(const trz_heap *h, const struct demand *d);

/* Whether the streams of a lane's pool have their peaks so far apart in time that memory which each keeps for its own
 * would be much more than the program ever holds. */
bool policy_peaks_are_apart(const trz_heap *h, const struct lane *l);

/* The size of a tile when the policy is free to choose. */
uint64_t policy_tile(const trz_heap *h, enum kind kind, uint64_t reserved);

/* The size of the next tile when `missing` bytes are to be created and this much is reserved; 0: growth is refused. */
uint64_t policy_next_tile(const trz_heap *h, const struct demand *d, uint64_t missing, uint64_t reserved);

/* Whether the device's last answer about its free memory rules out this much more, or large tiles. */
bool policy_is_tight(const trz_heap *h, enum kind kind, uint64_t bytes);

/* Whether, with so much reserved, little of the device or the limit is left. */
bool policy_is_nearly_full(const trz_heap *h, uint64_t reserved);

#endif
