/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts of a failed request, or of a heap at a moment: where its memory is, and what the ladder's rungs gave.
 */
#ifndef TRZ_ALLOC_FACTS_H
#define TRZ_ALLOC_FACTS_H

#include "heap/heap.h"

enum { FACTS_RUNGS = 6 };

/* What one rung of the ladder did for a request. */
struct facts_rung {
	const char *name;
	uint64_t gave;               /* bytes that it made free in the request's lane, or returned to the driver */
};

struct facts {
	trz_oom_info info;           /* info.requested 0: no request has failed */
	trz_shared_limit shared;     /* limit 0: there is none */
	uint64_t heap;               /* the serial */
	uint64_t site;               /* the stack of the request's call site */
	unsigned category;           /* the request's, as is the next */
	uint32_t pool;
	uint64_t needed;             /* bytes that serving the request takes */
	uint64_t withheld;           /* of info.device_free: what the device does not give */
	uint64_t live_requested;
	uint64_t free_slots;         /* not part of info.cached */
	uint64_t free_own, free_streams, free_pools;           /* of info.cached and free_slots: for the lane; of other
	                                                        * lanes of its pool; of pools that graphs rely on */
	uint64_t largest_own, largest_streams, largest_pools;  /* the largest block of each */
	uint64_t whole, whole_pools; /* free bytes in wholly free tiles, outside those pools and in them */
	uint64_t peak_allocated, peak_reserved;
	struct facts_rung rungs[FACTS_RUNGS];
	unsigned rung_count;
	char reason[192];            /* and what helps, as the error's text says it */
};

/* Fills all but `info`, `needed` and the rungs, for a lane. Growth lock held. */
void facts_gather(trz_heap *h, const struct lane *l, struct facts *f);

#endif
