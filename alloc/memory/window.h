/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows: reserved address ranges, laid with tiles from the base up. A window grows at its top, and another window
 * follows one that is used up. A place that has been given up gets other tiles only after its mapping is gone
 * (refill.h, law L10). A classic window is one plain driver allocation.
 *
 *   base                                          top                                   base + size
 *   | tile A | tile B | (hole: tile moved) | tile D | ....... reserved, nothing laid ....... |
 *
 * Places and `top` are guarded by the growth lock, the list of blocks by the heap lock.
 */
#ifndef TRZ_ALLOC_WINDOW_H
#define TRZ_ALLOC_WINDOW_H

#include <assert.h>

#include "bits.h"
#include "memory/block.h"
#include "memory/tile.h"

struct window {
	struct window *next;         /* an older window of the same kind */
	trz_addr base;
	uint64_t size;               /* reserved bytes */
	trz_addr top;                /* end of what has been laid */
	uint64_t mapped;             /* bytes mapped now */
	uint64_t alias_cursor;       /* the offset that the current round of reclaim_aliases has reached */
	struct place **places;       /* [size / GRANULE]: the mapping on each granule, or NULL; NULL in a classic window */
	struct tile *classic;        /* its only tile; NULL in a laid window */
	trz_addr classic_address;    /* the driver's address; `base` is aligned */
	bool leaving;                /* a thread is giving back this import or classic segment: no other thread does, and
	                              * the program is no longer told of it */
	struct block_list blocks;    /* by address */
	struct pool *pool;           /* whose memory it holds; NULL: the default pool */
	void *nvtx_heap;             /* the tool's handle for it; these two belong to nvtx.c */
	bool nvtx_known;
	uint8_t kind;                /* enum kind */
	uint8_t dedicated;           /* DEDICATED_*: each block is a tile, with DEDICATED_ONCE a part of one; 0: packed */
	bool grows;                  /* a lane grows in it (lane.h); guarded by the growth lock */
	bool view;                   /* its tiles only visit, and return to their seats (view.h) */
	struct tile *foreign;        /* an import: the list of its tiles, another process's memory; NULL: the heap's own */
};

/* Reserves a window of `size` bytes, or fewer, down to `least`, if the driver has no more. Driver: reserve. */
trz_status window_open(struct meta *meta, struct driver *driver, enum kind kind, uint64_t size,
                       uint64_t least, struct window **out);

/* Gives the reservation back and frees the window. Nothing is mapped in it. Driver: unreserve. */
trz_status window_close(struct meta *meta, struct driver *driver, struct window *w);

/* Makes a window of one plain driver allocation. Driver: mem_alloc. */
trz_status window_open_classic(struct meta *meta, struct tiles *tiles, enum kind kind, uint64_t size,
                               struct window **out);

/* Gives the segment back. On an error nothing has changed. Driver: mem_free. */
trz_status window_close_classic(struct meta *meta, struct tiles *tiles, struct window *w);

/* Maps the tiles side by side from an address on, the window's top or one below it where nothing is mapped, and makes
 * them accessible. Each becomes owned there, and gets its seat there unless it only visits.
 * Fails as a whole: the tiles mapped so far are unmapped again. If the driver refuses that, too, the range stays used
 * up: top moves past it, and the mapping remains as an alias. Places have been reserved. Driver: map per tile, one
 * set_access. */
trz_status window_lay(struct window *w, trz_addr at, struct tiles *tiles, struct tile **list, size_t count);

/* Unmaps a tile everywhere, last where it is owned. On an error it is still mapped there. */
trz_status window_unmap_tile(struct tiles *tiles, struct tile *tile);

/* Unmaps one place. Driver: unmap. */
trz_status window_unmap_place(struct tiles *tiles, struct place *p);

/* Which part of a lane's memory lies in a window. */
static inline unsigned window_part(const struct window *w)
{
	return w->view ? VIEWS : w->kind;
}

/* How much can still be laid. */
static inline uint64_t window_room(const struct window *w)
{
	return w->base + w->size - w->top;
}

/* The mapping that covers an address of a laid window; NULL: none. */
static inline struct place *window_at(const struct window *w, trz_addr address)
{
	assert(!w->classic && address - w->base < w->size);
	return w->places[(address - w->base) >> GRANULE_SHIFT];
}

/* The end of the mapping that covers an address; where none does, the end of its granule. */
static inline trz_addr window_next(const struct window *w, trz_addr address)
{
	const struct place *p = window_at(w, address);
	return p ? place_end(p) : align_down(address, GRANULE) + GRANULE;
}

/* The places of owned tiles that lie wholly inside [address, end), a part of a free block of `w`, one by one: returns
 * the first at or after *cursor (begin with the block's address) and moves the cursor behind it; NULL: no more. */
static inline const struct place *window_next_owned(const struct window *w, trz_addr *cursor, trz_addr end)
{
	while (*cursor < end) {
		const struct place *p = window_at(w, *cursor);
		trz_addr after = place_end(p);
		bool whole = p->address >= *cursor && after <= end;
		*cursor = after;
		if (whole)
			return p;
	}
	return NULL;
}

#endif
