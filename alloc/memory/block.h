/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks: the runs of bytes that a window is divided into. Each window's blocks form a list in address order.
 * Guarded by the heap lock.
 */
#ifndef TRZ_ALLOC_BLOCK_H
#define TRZ_ALLOC_BLOCK_H

#include <assert.h>

#include "ground/meta.h"
#include "ground/types.h"

/* The blocks of a window. */
struct block_list {
	struct block *first, *last;
};

enum side { LEFT = 0, RIGHT = 1 };  /* of a node of a tree; !side is the other one */

/* Invariants: `next->address == address + size` within a window; no two neighbours are both free with the same
 * home (they would have been joined), nor both holes. At most 128 bytes. */
struct block {
	trz_addr address;
	uint64_t size;               /* > 0, a multiple of UNIT */
	struct block *prev, *next;   /* in the window, by address */
	uint32_t priority;           /* of the tree node */
	uint8_t state;               /* enum block_state */
	uint8_t kind;                /* enum kind, as the window's */
	uint16_t exports;            /* > 0: other processes may use it; live, pending or ended */
	struct lane *home;           /* the lane in whose stream's order it is, or was last, used; NULL: none yet */
	union {
		struct {                 /* BLOCK_FREE: node of a tree of the home's fit index */
			struct block *child[2], *up;  /* children by side; parent, NULL at the root */
			uint64_t sequence;   /* the ticket of its newest free, in the home's order; 0: passed for all */
		};
		struct {                 /* BLOCK_LIVE, BLOCK_PENDING, BLOCK_ENDED */
			uint64_t requested;
			union {
				struct use *uses;         /* live: streams that use it beside the one that will free it */
				uint64_t ended_sequence;  /* ended: its ticket in the home's order, once it is free */
			};
			uint64_t frames;     /* the number of the stack that allocated it; 0: none */
		};
		struct slab *slab;       /* BLOCK_SLAB */
		struct block *cut_next;  /* BLOCK_BUSY, cut out by a trim: the next block that it has cut out */
		struct {                 /* BLOCK_HOLE: in the heap's list of holes */
			struct block *hole_next, *hole_prev;
		};
	};
	struct window *window;       /* const */
	struct block_list *list;     /* const: the window's */
	bool tileless;               /* free: a search has found no whole tile in it */
	uint16_t bucket;             /* free: of the index */
	uint16_t site;               /* live: its call site's number; 0: none */
};

_Static_assert(sizeof(struct block) <= 128, "a block costs at most 128 bytes");

static inline trz_addr block_end(const struct block *b)
{
	return b->address + b->size;
}

/* Makes `next` (NULL: nothing) the neighbour behind `b`. */
static inline void block_link_next(struct block *b, struct block *next)
{
	b->next = next;
	if (next)
		next->prev = b;
	else
		b->list->last = b;
}

/* Appends a block. */
static inline void block_append(struct block_list *list, struct block *b)
{
	struct block *last = list->last;
	assert(b->size > 0 && (b->address | b->size) % UNIT == 0 && (!last || block_end(last) == b->address));
	b->list = list;
	b->prev = last;
	if (last)
		last->next = b;
	else
		list->first = b;
	block_link_next(b, NULL);
}

/* Cuts `b` after `size` bytes (0 < size < b->size). The rest becomes a new block behind it, with the same state, home
 * and, where free, sequence; neither is in an index. Takes one node, which the caller has reserved. */
static inline struct block *block_split(struct node_pool *nodes, struct block *b, uint64_t size)
{
	assert(size > 0 && size < b->size && size % UNIT == 0);
	struct block *rest = node_pool_take(nodes);
	*rest = *b;
	rest->address = b->address + size;
	rest->size = b->size - size;
	block_link_next(rest, b->next);
	b->size = size;
	b->next = rest;
	rest->prev = b;
	return rest;
}

/* Joins `b` with the neighbour behind it, whose node is freed. Neither is in an index. */
static inline void block_absorb_next(struct node_pool *nodes, struct block *b)
{
	struct block *gone = b->next;
	assert(gone && gone->address == block_end(b) && gone->window == b->window);
	b->size += gone->size;
	block_link_next(b, gone->next);
	node_pool_give(nodes, gone);
}

#endif
