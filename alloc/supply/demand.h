/* SPDX-License-Identifier: Apache-2.0
 *
 * A demand: the memory that a request needs, on its way from the caller down to the driver.
 */
#ifndef TRZ_ALLOC_DEMAND_H
#define TRZ_ALLOC_DEMAND_H

#include "heap/carve.h"
#include "observe/account.h"

/* Chosen by the policy (policy.h); the ladder raises it (oom.h). */
enum effort {
	EFFORT_CREATE,               /* creating memory is cheap: nothing moves */
	EFFORT_MOVE,                 /* free memory moves first; what is still missing is created */
	EFFORT_ALL,                  /* the device is full: everything that can move does; no more is created than is
	                              * missing, and nothing if the device does not seem to have that */
	EFFORT_LAST                  /* the same once more: the driver is asked, whatever the device seems to have */
};

struct demand {
	struct lane *lane;           /* the lane that gets the memory */
	uint64_t size;               /* as asked */
	uint64_t occupied;           /* the bytes that an allocation in a block of its own takes */
	uint64_t bytes;              /* bytes to find or create in one piece; set when no free block has served at once */
	uint64_t alignment;
	unsigned size_class;         /* CLASS_COUNT: a block of its own */
	enum kind kind;              /* of the windows that serve it */
	enum effort effort;          /* set with `bytes` */
	bool view;                   /* scattered tiles visit a view, instead of moving for good; set with `bytes` */
};

/* The size of a block for a request in a window of a kind: longer than a cell (pagemap.h); for a medium request whole
 * grains, so that more blocks are equal. */
static inline uint64_t demand_block_bytes(enum kind kind, uint64_t size)
{
	uint64_t bytes = max_u64(account_rounded(size), CELL + UNIT);
	return kind == SMALL ? align_up(bytes, heap_grain(bytes)) : bytes;
}

/* So many bytes that the block has a place in them wherever they begin. */
static inline uint64_t demand_padded(const struct demand *d)
{
	return d->occupied + d->alignment - UNIT;
}

#endif
