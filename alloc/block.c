/* SPDX-License-Identifier: Apache-2.0
 *
 * Cutting and joining blocks.
 */
#include "block.h"

#include <assert.h>

struct block *block_split(struct node_pool *nodes, struct block *b, uint64_t size)
{
	assert(size > 0 && size < b->size && size % UNIT == 0);
	struct block *rest = node_pool_take(nodes);
	*rest = *b;
	rest->address = b->address + size;
	rest->size = b->size - size;
	rest->prev = b;
	if (rest->next)
		rest->next->prev = rest;
	b->size = size;
	b->next = rest;
	return rest;
}

void block_absorb_next(struct node_pool *nodes, struct block *b)
{
	struct block *gone = b->next;
	assert(gone && gone->address == block_end(b));
	b->size += gone->size;
	b->next = gone->next;
	if (b->next)
		b->next->prev = b;
	node_pool_give(nodes, gone);
}
