/* SPDX-License-Identifier: Apache-2.0
 *
 * Refills: a part of a hole is laid anew, with other tiles than those that were mapped there, if that takes fewer bytes
 * than the window's end. What the lane has free beside the hole counts; the stale aliases in it are unmapped first,
 * once their last uses have passed.
 *
 *   own free   |  alias  .  .  alias  |   own free         one hole: some tiles that moved away are still mapped there
 *   -----------[----- gap ----->              laid upwards behind the first free block,
 *              <----- gap -----]-----------   or downwards before the second
 */
#ifndef TRZ_ALLOC_REFILL_H
#define TRZ_ALLOC_REFILL_H

#include "supply/demand.h"

/* The part of a hole that a demand is to be laid in: at least `need` bytes, and some for the last tile's excess. */
struct gap {
	struct window *window;
	trz_addr begin, end;
	uint64_t need;               /* bytes to lay in it */
	bool downwards;              /* they end at `end`, rather than begin at `begin` */
	struct block *before, *after;  /* the lane's free memory beside it, which the demand takes too; NULL: none */
	/* once it is taken */
	struct block *block;         /* over [begin, end), busy, as `before` and `after` are; NULL: it is not taken */
	struct block *spare;         /* a node, to split it */
};

/* Finds the gap that needs the fewest bytes, fewer than `below`; false: there is none. If nothing is mapped in it, the
 * gap is taken: no other thread uses it, and the free memory beside it counts as idle. Else gap->block is NULL, and the
 * caller calls refill_clear and searches again. */
bool refill_find_locked(trz_heap *h, const struct demand *d, uint64_t below, struct gap *gap);

/* Unmaps what is mapped in a gap that is not taken; what the driver refuses to unmap stays. The growth lock may be
 * given back meanwhile. Driver: unmap. */
void refill_clear(trz_heap *h, const struct gap *gap);

/* Maps tiles, `bytes` in all, side by side in a gap that is taken. Driver calls and errors as of window_lay. */
trz_status refill_lay(trz_heap *h, const struct gap *gap, struct tile **tiles, size_t count, uint64_t bytes);

/* Makes one busy block of the `bytes` laid and the free memory beside them; the rest of the gap is a hole again.
 * `sequence` is the ticket of what has been laid. */
struct block *refill_join_locked(trz_heap *h, struct gap *gap, uint64_t bytes, uint64_t sequence);

/* Gives a gap back, if it is taken, in which nothing has been laid. */
void refill_give_locked(trz_heap *h, struct gap *gap);

#endif
