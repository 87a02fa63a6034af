/* SPDX-License-Identifier: Apache-2.0
 *
 * A demand: what a request needs of memory, on its way from the caller down to the driver.
 */
#ifndef TRZ_ALLOC_DEMAND_H
#define TRZ_ALLOC_DEMAND_H

#include "heap/heap.h"

/* Chosen by the policy (policy.h); the ladder raises it (oom.h). */
enum effort {
	EFFORT_CREATE,               /* creating memory is cheap: nothing moves */
	EFFORT_MOVE,                 /* what the heap has moves first, what is still short is created */
	EFFORT_ALL                   /* the device is full: all that can move does, no more is created than is short */
};

struct demand {
	struct lane *lane;           /* that the memory is for */
	uint64_t size;               /* as asked */
	uint64_t occupied;           /* what an allocation in a block of its own takes of it */
	uint64_t bytes;              /* what has to be found or made in one piece; set where no free block served at once */
	uint64_t alignment;
	unsigned size_class;         /* CLASS_COUNT: a block of its own */
	enum kind kind;              /* of the windows that serve it */
	enum effort effort;          /* set with `bytes` */
};

#endif
