/* SPDX-License-Identifier: Apache-2.0
 *
 * Private pools: memory that serves only requests to the pool while the pool lives. Each stream that allocates from one
 * has a lane of its own there. A pool is pinned from the announcement of a capture into it (pool_divert.c), or from the
 * first allocation of a captured stream (route.c), until its last reference goes: graphs know its addresses, so the
 * heap moves, unmaps and lends none of its memory (law L5). Guarded by the heap lock.
 */
#ifndef TRZ_ALLOC_POOL_H
#define TRZ_ALLOC_POOL_H

#include "order/stream.h"

/* A ticket that has to pass before the memory of a released pool may go elsewhere. */
struct awaited {
	struct stream *stream;
	uint64_t sequence;
};

struct pool {
	struct pool *next;           /* of the heap */
	struct lane *lanes;          /* by pool_next */
	const struct trz_heap *heap; /* const */
	uint32_t id;                 /* const; > 0, never used again in the heap */
	uint32_t users;              /* references; 0: it has ended, and goes when the tickets that it awaits have passed */
	bool pinned;                 /* for good */
	uint64_t announced;          /* the newest announcement of a capture into it; 0: none is in force */
	unsigned announcers;         /* how many announcements are in force */
	bool awaits;                 /* the pool has ended, and a poll has noted what it awaits: the next two */
	uint64_t deputy;             /* the number of a deputy of the heap's context (contexts.c); 0: none */
	struct awaited *awaited;     /* tickets of the streams that the deputy does not answer for */
	unsigned awaited_count;
	uint64_t moved_bytes;        /* bytes that were mapped elsewhere for it; guarded by the growth lock */
};

static inline bool lane_is_pinned(const struct lane *l)
{
	return l->pool && l->pool->pinned;
}

static inline uint32_t pool_id(const struct pool *p)
{
	return p ? p->id : 0;
}

#endif
