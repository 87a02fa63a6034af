/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks: the runs of bytes that a window is divided into. Each window's blocks form a list in address order.
 * Guarded by the heap lock.
 */
#ifndef TRZ_ALLOC_BLOCK_H
#define TRZ_ALLOC_BLOCK_H

#include "ground/meta.h"
#include "ground/types.h"

/* The blocks of a window. */
struct block_list {
	struct block *first, *last;
};

/* Invariants: `next->address == address + size` within a window; no two neighbours are both free with the same
 * home (they would have been joined), nor both holes. At most 128 bytes. */
struct block {
	trz_addr address;
	uint64_t size;               /* > 0, a multiple of UNIT */
	struct block *prev, *next;   /* in the window, by address */
	struct window *window;       /* const */
	struct block_list *list;     /* const: the window's */
	struct lane *home;           /* of the stream in whose order it is, or was last, used; NULL: none yet */
	union {
		struct {                 /* BLOCK_FREE: node of a tree of the home's fit index */
			struct block *left, *right;
			uint64_t sequence;   /* the ticket of its newest free, in the home's order; 0: passed for all */
		};
		struct {                 /* BLOCK_LIVE, BLOCK_PENDING, BLOCK_ENDED */
			uint64_t requested;
			union {
				struct use *uses;         /* live: other streams that use it */
				uint64_t ended_sequence;  /* ended: its ticket in the home's order, for when it is free */
			};
			uint64_t frames;     /* the number of its allocation's stack; 0: none */
		};
		struct slab *slab;       /* BLOCK_SLAB */
		struct {                 /* BLOCK_HOLE: of the heap's list of holes */
			struct block *hole_next, *hole_prev;
		};
	};
	uint32_t priority;           /* of the tree node */
	uint8_t state;               /* enum block_state */
	uint8_t kind;                /* enum kind, as the window's */
	uint16_t exports;            /* > 0: other processes may use it; live, pending or ended */
	bool tileless;               /* free: a search has found no whole tile in it */
	uint16_t site;               /* live: its call site's number; 0: it has none */
};

_Static_assert(sizeof(struct block) <= 128, "a block costs at most 128 bytes");

static inline trz_addr block_end(const struct block *b)
{
	return b->address + b->size;
}

/* Appends a block. */
void block_append(struct block_list *list, struct block *b);

/* Cuts `b` after `size` bytes (0 < size < b->size); the rest is the new block behind it, with the same state,
 * home and, where free, sequence; neither is in an index. One node is taken from `nodes`, which has one. */
struct block *block_split(struct node_pool *nodes, struct block *b, uint64_t size);

/* Joins `b` with the neighbour behind it, whose node is freed. Neither is in an index. */
void block_absorb_next(struct node_pool *nodes, struct block *b);

#endif
