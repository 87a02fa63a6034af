/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting and joining blocks.
 */
#include "memory/block.h"

#include <assert.h>

/* `b` has a new neighbour behind it, or none. */
static void link_next(struct block *b, struct block *next)
{
	b->next = next;
	if (next)
		next->prev = b;
	else
		b->list->last = b;
}

void block_append(struct block_list *list, struct block *b)
{
	struct block *last = list->last;
	assert(b->size > 0 && (b->address | b->size) % UNIT == 0 && (!last || block_end(last) == b->address));
	b->list = list;
	b->prev = last;
	if (last)
		last->next = b;
	else
		list->first = b;
	link_next(b, NULL);
}

struct block *block_split(struct node_pool *nodes, struct block *b, uint64_t size)
{
	assert(size > 0 && size < b->size && size % UNIT == 0);
	struct block *rest = node_pool_take(nodes);
	*rest = *b;
	rest->address = b->address + size;
	rest->size = b->size - size;
	link_next(rest, b->next);
	b->size = size;
	b->next = rest;
	rest->prev = b;
	return rest;
}

void block_absorb_next(struct node_pool *nodes, struct block *b)
{
	struct block *gone = b->next;
	assert(gone && gone->address == block_end(b) && gone->window == b->window);
	b->size += gone->size;
	link_next(b, gone->next);
	node_pool_give(nodes, gone);
}
