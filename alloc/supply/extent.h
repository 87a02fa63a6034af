/* SPDX-License-Identifier: Apache-2.0
 *
 * New memory at the top of a window: the window, the tiles, and how each is given back. All functions that lay tiles
 * acquire and undo them here. Growth lock held, heap lock not.
 */
#ifndef TRZ_ALLOC_EXTENT_H
#define TRZ_ALLOC_EXTENT_H

#include "heap/heap.h"

/* The window that a part of a lane grows in, with room for `least` bytes: a new one if the current one is used up.
 * ADDRESS_SPACE, HOST_MEMORY, CONTEXT_DEAD, DRIVER. */
trz_status extent_window(trz_heap *h, struct lane *l, unsigned part, uint64_t least, struct window **out);

/* Counts tiles that have just got their memory; extent_drop undoes it. */
void extent_count(trz_heap *h, enum kind kind, uint64_t bytes, size_t tiles);

/* Gives back a tile, mapped or not, that holds no allocation. If the driver refuses, it becomes a zombie. */
void extent_drop(trz_heap *h, struct tile *tile);

/* Whether the device has so many bytes: TRZ_OK if it calls them free and they are not withheld. Else the driver is
 * asked for them in one handle, which is given back: others may have freed memory, and no figure is sure. */
trz_status extent_ask_for(trz_heap *h, uint64_t bytes);

/* The driver has refused a handle, or a plain allocation, of so many bytes: finds out what of that which the device
 * calls free it withholds. Driver: creates and releases handles; without virtual memory management only asks. */
void extent_learn_withheld(trz_heap *h, uint64_t refused);

/* Maps tiles at the end of a window. On an error none of them may be used; if a mapping could not be undone, its
 * addresses become a hole, which takes *node and sets it to NULL. */
trz_status extent_lay(trz_heap *h, struct window *w, struct lane *l, struct tile **tiles, size_t count,
                      struct block **node);

/* How long a plain allocation is that serves a request of so many bytes: the driver's alignment may lose its edges. */
static inline uint64_t extent_segment(uint64_t bytes)
{
	return align_up(bytes + UNIT, GRANULE);
}

/* The largest request that so many new bytes serve. Of a plain allocation some are for the edges; one that serves once
 * is whole granules besides. */
static inline uint64_t extent_serves(const trz_heap *h, uint64_t bytes)
{
	uint64_t lost = h->driver.vmm ? 0 : h->dedicates ? h->driver.granule : UNIT;
	bytes = align_down(bytes, h->driver.granule);
	return bytes - min_u64(bytes, lost);
}

/* A plain driver allocation as a window of its own, a busy block that counts as idle. LIMIT, OUT_OF_MEMORY,
 * HOST_MEMORY, CONTEXT_DEAD, DRIVER: all is as it was. */
trz_status extent_classic(trz_heap *h, struct lane *l, enum kind kind, uint64_t bytes, struct block **out);

/* Makes memory for one allocation of a dedicated lane: a tile of `bytes`, whole granules, in a block of its own at the
 * end of the lane's window, busy, without a ticket, and counted as idle. The next `gap` bytes of addresses become a
 * hole. Where the device cannot map tiles, it makes a classic segment. On an error all is as it was: LIMIT,
 * OUT_OF_MEMORY and the errors of extent_window. */
trz_status extent_make(trz_heap *h, struct lane *l, uint64_t bytes, uint64_t gap, struct block **out);

#endif
