/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes: one stream's free blocks and slabs of one pool. A lane serves its stream without looking at others; memory
 * changes lanes when tickets have passed (borrow.c). Guarded by the heap lock, except constants.
 */
#ifndef TRZ_ALLOC_LANE_H
#define TRZ_ALLOC_LANE_H

#include "memory/fit.h"
#include "memory/slab.h"

struct lane {
	struct lane *next;               /* of the heap */
	struct lane *pool_next;          /* of the private pool */
	struct stream *stream;           /* const */
	struct pool *pool;               /* NULL: the default pool */
	uint8_t dedicated;               /* const; DEDICATED_*; 0: packed memory */
	bool captured;                   /* it serves captures that began before the stream had settled (capture.c) */
	uint64_t serving;                /* the capture that it has served; 0: none, or a free has found that it is over */
	uint64_t clean;                  /* free blocks with tickets up to this one were last used in captures */
	struct lane *heir;               /* the lane that its memory is being given to; every writer also holds the
	                                  * growth lock */
	struct fit fit[PARTS];           /* its free blocks, ... */
	struct block *trees[PARTS][FIT_BUCKETS];  /* ... and room for the trees that hold them */
	struct bin bins[CLASS_COUNT];    /* its slabs with free slots */
	uint64_t held, held_peak;        /* bytes of its live blocks */
	uint64_t kept;                   /* large free bytes that it does not lend: once it did not get them back in time */
	uint32_t slabs;                  /* its slabs, full ones included */
	struct window *window[PARTS];    /* where its memory grows; guarded by the growth lock */
};

/* The first lane of a list (by pool_next) that is the stream's (NULL: any stream's) and holds memory of this sort. */
static inline struct lane *lane_find(struct lane *l, const struct stream *s, unsigned dedicated, bool captured)
{
	while (l && ((s && l->stream != s) || l->dedicated != dedicated || l->captured != captured))
		l = l->pool_next;
	return l;
}

static inline uint64_t lane_free_bytes(const struct lane *l)
{
	return l->fit[SMALL].bytes + l->fit[LARGE].bytes + l->fit[VIEWS].bytes;
}

/* The pool of its memory, from now on: NULL, the default one. */
static inline struct pool *lane_pool(const struct lane *l)
{
	return l->heir ? l->heir->pool : l->pool;
}

/* Whether its free blocks are dedicated tiles, kept for the next request. */
static inline bool lane_keeps_dedicated(const struct lane *l)
{
	return l->dedicated && !(l->dedicated & DEDICATED_ONCE);
}

/* All lanes of a heap, oldest first. */
struct lanes {
	struct lane *first, **end;
};

static inline void lanes_init(struct lanes *all)
{
	all->first = NULL;
	all->end = &all->first;
}

/* Makes a zeroed lane one of the heap's. `cached` is the heap's statistic of free blocks. */
void lane_add(struct lanes *all, struct lane *l, struct stream *s, struct pool *p, struct level *cached);

/* Removes an empty lane. */
void lane_remove(struct lanes *all, struct lane *l);

#endif
