/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool's memory, private to driver_pool.c, which owns pools and the order of their streams, and driver_pool_range.c,
 * which owns the places of memory. Everything here is under the pools' lock.
 */
#ifndef TRZ_DRIVER_POOL_H
#define TRZ_DRIVER_POOL_H

#include <sys/queue.h>

#include "driver_lookalike.h"

enum { POOL_CHUNK_SHIFT = 25 };
#define POOL_CHUNK ((uint64_t)1 << POOL_CHUNK_SHIFT)

/* When work with freed memory is done: an event behind it. Parts of what was freed at once share it. */
struct pool_mark {
	unsigned users;
	trz_event event;             /* NULL: it has ended with its context, whose work is done */
	trz_context context;
	void *stream;
};

/* Invariant: a block is in its pool's `live` exactly while `live`, else in `of_graphs` while `graph` is not 0, else in
 * its pool's `unused`. In a range two neighbours in `unused` have a mark at least one of which has not passed, and not
 * one stream's. */
struct pool_block {
	LIST_ENTRY(pool_block) link;
	TAILQ_ENTRY(pool_block) beside;  /* in its range, by address */
	struct pool_range *range;    /* NULL: its memory is a plain allocation of its own */
	trz_addr address;
	uint64_t size;
	uint64_t id;                 /* of its newest allocation in a range */
	struct look_pool *pool;
	trz_context home;            /* the context that it was allocated in, of the pool's device */
	bool live;                   /* the program has it */
	void *stream;                /* outside ranges: the one that it was freed on */
	struct pool_mark *mark;      /* of that free, or behind its graph's newest launch; NULL: no work can use it */
	uint64_t asked;              /* bytes of its newest allocation */
	uint64_t graph;              /* the capture that has allocated it, whose graph still exists; 0: none */
	uint64_t freed_by;           /* another capture, whose graph's launches free it; 0: none */
	bool freed_inside;           /* the first has freed it itself; else its launches leave it allocated */
	bool launched;               /* it is live by a launch */
	uint64_t counted;            /* how much of its size counts as used, a multiple of 512; 0: it is free */
};

enum reuse { FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL_DEPENDENCIES, RULES };

/* Invariant: `used` is the sum of its blocks' `counted`, `reserved` that of its ranges' chunks with memory and of the
 * sizes of other blocks. A graph's blocks are used. A destroyed pool lasts until its blocks have ended. */
struct look_pool {
	LIST_ENTRY(look_pool) link;
	int device;
	bool destroyed;
	uint32_t access;             /* the other devices that it was opened to, one bit each */
	uint64_t threshold, reserved, used, reserved_high, used_high;
	uint64_t most;               /* the most that it may reserve; 0: no limit */
	int reuse[RULES];            /* by enum reuse: whether the rule holds */
	bool exports, imported;      /* it may be exported; it stands for another process's pool, and has no memory */
	LIST_HEAD(, pool_block) live, unused;
	LIST_HEAD(, pool_range) ranges;  /* one for each context that memory was allocated in */
};

/* A stream's wish for a pool's memory; `capture`: 0 outside a capture. */
struct wish {
	struct look_pool *pool;
	uint64_t size, room, capture;  /* room: what it takes of a range */
	trz_context context, home;   /* the stream's; for the memory, if it is new */
	void *stream;
};

/* ---- driver_pool.c ------------------------------------------------------------ */

/* Adds a block to the tree of all, in no list; NULL: no host memory. */
struct pool_block *pool_block_new(struct look_pool *pool, trz_context home, trz_addr address, uint64_t size);
/* Removes a block from the tree, its list and sums, and ends it. */
void pool_block_end(struct pool_block *b);
void pool_put_unused(struct pool_block *b);
void pool_pull_unused(struct pool_block *b);
void pool_grow(struct look_pool *pool, uint64_t bytes);
void pool_drop_mark(struct pool_block *b);
bool pool_has_passed(const struct pool_block *b);
/* Whether the stream may use the block at once. */
bool pool_serves(const struct pool_block *b, const struct wish *w);

/* ---- driver_pool_range.c ------------------------------------------------------------ */

/* Gives new memory a place, beside free blocks that serve the stream; the block is in no list. NULL: there is none. */
struct pool_block *pool_range_take(const struct wish *w);
/* Leaves a free block, which is in no list, only so much of its size; the rest becomes a free block. */
void pool_range_cut(struct pool_block *b, uint64_t size);
/* Joins a free block with its neighbours where nothing is lost by that. */
void pool_range_join(struct pool_block *b);
/* Forgets marks that have passed, and joins what they have kept apart; true: some was. */
bool pool_range_settle(struct look_pool *pool);
/* Returns whole chunks of free blocks whose work is done while the pool has more than `keep`; true: some. */
bool pool_range_trim(struct look_pool *pool, uint64_t keep);
/* Ends ranges: of a context that has ended, which took their memory with it, or (NULL) those without memory. */
void pool_ranges_end(struct look_pool *pool, trz_context context);

#endif
