/* SPDX-License-Identifier: Apache-2.0
 *
 * Slabs and bins: small requests. A slab is a block cut into equal slots; a bit mask says which are free, so that
 * taking and giving a slot touches one cache line and no device memory. A bin is one lane's slabs of one
 * class that have a free slot. Guarded as their stream's slots are (order/slots.h), except `stream`.
 */
#ifndef TRZ_ALLOC_SLAB_H
#define TRZ_ALLOC_SLAB_H

#include <assert.h>

#include "ground/sizeclass.h"
#include "memory/block.h"

/* Invariants: slots = free + pending + held; sampled is part of held; the slab is in its bin's list exactly when free
 * is not 0. */
struct slab {
	_Alignas(64) trz_addr base;
	_Atomic(struct stream *) stream;    /* the home's; may be read without a lock, but then may have changed since */
	uint64_t free;                      /* bit i: slot i can be given out */
	uint64_t pending;                   /* bit i: slot i is freed and waits for a ticket */
	uint64_t sampled;                   /* bit i: slot i is held, and counted by its call site */
	struct use *uses;                   /* the uses of all its held slots */
	struct size_class shape;            /* a copy of size_classes[size_class], since every operation reads it */
	struct lane *home;
	struct block *block;
	struct slab *next, *prev;           /* in the bin */
	uint16_t *sites;                    /* [SLAB_SLOTS_MAX], the call sites of the sampled slots; NULL: none yet */
	uint8_t size_class;
	uint16_t unused[SLAB_SLOTS_MAX];     /* slot size - requested, of held and pending slots */
	uint64_t *frames;                   /* [SLAB_SLOTS_MAX], the numbers of the slots' stacks; NULL: none yet */
};

/* Invariant: only the last slab can be wholly free, since it was the bin's only slab when it became so. */
struct bin {
	struct slab *first, *last;
	uint32_t length;
};

/* A slab over a block of its class's size, all slots free; not yet in a bin. */
void slab_init(struct slab *s, struct block *b, unsigned size_class);

static inline const struct size_class *slab_class(const struct slab *s)
{
	return &s->shape;
}

static inline uint64_t slab_all_slots(const struct slab *s)
{
	return ~(uint64_t)0 >> (SLAB_SLOTS_MAX - slab_class(s)->slots);
}

static inline trz_addr slab_slot_address(const struct slab *s, unsigned slot)
{
	return s->base + (uint64_t)slot * slab_class(s)->slot_size;
}

/* The slot that begins at an address of the slab; SLAB_SLOTS_MAX: none does. */
static inline unsigned slab_slot_at(const struct slab *s, trz_addr address)
{
	unsigned slot = size_class_slot(slab_class(s), address - s->base);
	return slot < slab_class(s)->slots && slab_slot_address(s, slot) == address ? slot : SLAB_SLOTS_MAX;
}

static inline void bin_push(struct bin *b, struct slab *s)
{
	s->prev = NULL;
	s->next = b->first;
	if (s->next)
		s->next->prev = s;
	else
		b->last = s;
	b->first = s;
	b->length++;
}

void bin_unlink(struct bin *b, struct slab *s);

/* Unlinks the first slab. */
static inline void bin_pop(struct bin *b)
{
	assert(b->length > 0);
	b->first = b->first->next;
	if (b->first)
		b->first->prev = NULL;
	else
		b->last = NULL;
	b->length--;
}

/* Takes a slot of the bin's first slab, `s`, for `requested` bytes. */
static inline trz_addr bin_take_slot(struct bin *b, struct slab *s, uint64_t requested)
{
	assert(s == b->first && s->free && requested <= slab_class(s)->slot_size);
	unsigned slot = (unsigned)__builtin_ctzll(s->free);
	s->free &= s->free - 1;
	s->unused[slot] = (uint16_t)(slab_class(s)->slot_size - requested);
	if (__builtin_expect(!s->free, 0))
		bin_pop(b);
	return slab_slot_address(s, slot);
}

/* Gives back a slot that is not free. true: the slab is now wholly free, and its bin has another slab. */
static inline bool bin_give_slot(struct bin *b, struct slab *s, unsigned slot)
{
	assert(slot < slab_class(s)->slots && !((s->free | s->pending) >> slot & 1));
	if (__builtin_expect(!s->free, 0))
		bin_push(b, s);
	s->free |= (uint64_t)1 << slot;
	return s->free == slab_all_slots(s) && b->length > 1;
}

#endif
