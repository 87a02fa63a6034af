/* SPDX-License-Identifier: Apache-2.0
 *
 * Size classes of slots: every 512 B up to 4 KiB (1 to 8 units), then four per doubling up to 32 KiB, so that a slot is
 * at most 25 % larger than its request, 8 % on average over uniform sizes. Pure functions.
 */
#ifndef TRZ_ALLOC_SIZECLASS_H
#define TRZ_ALLOC_SIZECLASS_H

#include <assert.h>

#include "ground/types.h"

enum {
	CLASS_COUNT = 20,
	CLASS_SIZE_MAX = CELL  /* a live block outside slabs is larger than a cell, so at most one begins in each */
};

struct size_class {
	uint32_t slot_size;    /* bytes, a multiple of UNIT */
	uint32_t slab_size;    /* bytes, a multiple of CELL: the fewest cells that waste at most 1/16 */
	uint32_t slots;        /* 4 .. SLAB_SLOTS_MAX */
	uint32_t reciprocal;   /* slot of offset o = (o / UNIT * reciprocal) >> 16 */
};

extern const struct size_class size_classes[CLASS_COUNT];
extern const uint8_t size_class_of_units[CLASS_SIZE_MAX / UNIT + 1];

/* The smallest class that holds `size` bytes, 1 <= size <= CLASS_SIZE_MAX. */
static inline unsigned size_class_of(uint64_t size)
{
	assert(size > 0 && size <= CLASS_SIZE_MAX);
	return size_class_of_units[(size + UNIT - 1) / UNIT];
}

/* The slot that holds the byte at `offset` of a slab; `slots` for the rest behind the last slot. */
static inline unsigned size_class_slot(const struct size_class *c, uint64_t offset)
{
	return (unsigned)((offset / UNIT * c->reciprocal) >> 16);
}

#endif
