/* SPDX-License-Identifier: Apache-2.0
 *
 * Slabs and the lists of bins.
 */
#include "memory/slab.h"

#include <assert.h>
#include <string.h>

void slab_init(struct slab *s, struct block *b, unsigned size_class)
{
	memset(&s->free, 0, sizeof *s - offsetof(struct slab, free));
	s->base = b->address;
	s->block = b;
	s->home = b->home;
	s->size_class = (uint8_t)size_class;
	s->shape = size_classes[size_class];
	assert(b->size == slab_class(s)->slab_size && b->address % CELL == 0 && b->address % GRANULE + b->size <= GRANULE);
	s->free = slab_all_slots(s);
}

void bin_unlink(struct bin *b, struct slab *s)
{
	assert(b->length > 0 && (s->prev ? s->prev->next == s : b->first == s));
	if (s->prev)
		s->prev->next = s->next;
	else
		b->first = s->next;
	if (s->next)
		s->next->prev = s->prev;
	else
		b->last = s->prev;
	b->length--;
}
