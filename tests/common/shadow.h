/* SPDX-License-Identifier: Apache-2.0
 *
 * The shadow map: every live allocation as its owner sees it, in address order. It notices two owners of one byte,
 * whatever the heap's own records say.
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
	uint64_t tag;            /* the tag of the stamp in it */
	unsigned stream;         /* an index that the owner has chosen */
	bool small;
	bool read_elsewhere;     /* read by a stream that nothing orders before the owner's */
	bool moved;              /* the stream that it was allocated on is gone, and `stream` has taken it over */
	bool busy;               /* some actor is working on it */
	bool kept;               /* a graph keeps it from launch to launch, or another process has it */
	bool shareable;          /* may be exported */
	unsigned pool;           /* id of the private pool that it came from; 0: none */
	unsigned owner;          /* number of the thread whose pool that is; 0: no thread's */
	unsigned graphs;         /* how many graphs that pool had been given when this was allocated, or has grown */
};

/* Invariant: list[i] ends at or before list[i + 1] begins. */
struct shadow {
	struct live *list;
	size_t count, room;
};

/* false: it overlaps a live allocation; *other is that one's index. */
bool shadow_add(struct shadow *s, struct live l, size_t *other);

struct live shadow_remove(struct shadow *s, size_t index);

/* Index of the allocation that holds the address; SIZE_MAX: none does. */
size_t shadow_find(const struct shadow *s, trz_addr address);

void shadow_clear(struct shadow *s);

#endif
