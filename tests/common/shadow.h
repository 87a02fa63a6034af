/* SPDX-License-Identifier: Apache-2.0
 *
 * The shadow map: every live allocation as its owner sees it, in address order, so that two owners of one byte are
 * noticed whatever the heap's own books say.
 */
#ifndef TRZ_TESTS_SHADOW_H
#define TRZ_TESTS_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "terrazzo_driver.h"

struct live {
	trz_addr address;
	uint64_t size;           /* bytes reserved for it */
	uint64_t requested;
	uint64_t tag;            /* of the stamp that lies in it */
	unsigned stream;         /* index of the owner's choosing */
	bool small;
	bool read_elsewhere;     /* by a stream that nothing orders before the owner's */
	bool moved;              /* the stream that it was allocated on is gone: `stream` has taken it over */
	bool busy;               /* somebody is doing something with it */
	bool kept;               /* a graph's, from launch to launch, or another process's */
	bool shareable;          /* may be exported */
	unsigned pool;           /* id of the private pool that it came from; 0: none */
	unsigned owner;          /* number of the thread whose pool that is; 0: nobody's */
};

/* Invariant: list[i] ends at or before list[i + 1] begins. */
struct shadow {
	struct live *list;
	size_t count, room;
};

/* false: it overlaps with a live allocation, whose index goes to *other. */
bool shadow_add(struct shadow *s, struct live l, size_t *other);

struct live shadow_remove(struct shadow *s, size_t index);

/* Index of the allocation that holds the address; SIZE_MAX: none does. */
size_t shadow_find(const struct shadow *s, trz_addr address);

void shadow_clear(struct shadow *s);

#endif
