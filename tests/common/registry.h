/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of the registration caches that network libraries keep: it registers the mappings that it is notified of, and
 * compares them with the driver's. It uses the heap from inside the callback, as a real cache may.
 */
#ifndef TRZ_TESTS_REGISTRY_H
#define TRZ_TESTS_REGISTRY_H

#include "overlay.h"

enum { REGISTRY_MAX = 1 << 14 };

struct registration {
	trz_addr address;
	uint64_t size;
	trz_handle handle;           /* the memory behind it; 0: a plain allocation */
};

struct registry {
	struct overlay *overlay;
	struct registration mapped[REGISTRY_MAX], known[REGISTRY_MAX];  /* the driver's; the cache's */
	size_t mapped_count, known_count;
	uint64_t maps, unmaps;       /* how many notices */
	uint64_t handles;            /* plain allocations so far; numbers them as their handles */
	bool busy;                   /* uses the heap in callbacks */
	char wrong[160];             /* the first thing that was wrong; "": nothing */
};

/* Watches the overlay's machine. One at a time. */
void registry_watch(struct registry *r, struct overlay *o);

/* The callback; `user` is the registry. */
void registry_notice(void *user, trz_map_event event, void *address, size_t size);

/* Whether the cache knows all of a range, and the memory that is behind it now. */
bool registry_covers(struct registry *r, const void *address, size_t size);

#endif
