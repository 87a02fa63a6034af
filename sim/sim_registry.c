/* SPDX-License-Identifier: Apache-2.0
 *
 * Handle values: users' names for the machine's objects. With `reuse`, a dead value is the first to be handed out
 * again, which makes stale handles as dangerous as on hardware.
 */
#include <stdlib.h>

#include "sim_machine.h"

/* Values look like a driver's, which are aligned pointers: programs tell their own numbers from them by the low bits.
 * Neither host nor device memory lies at these addresses. */
enum { INDEX_SHIFT = 4, KIND_SHIFT = 37 };
#define HANDLES 0x600000000000ull

static uint64_t index_of(uint64_t value)
{
	return ((value & ((1ull << KIND_SHIFT) - 1)) >> INDEX_SHIFT) - 1;
}

static bool grow(struct sim_registry *r)
{
	uint32_t room = r->room ? r->room * 2 : 64;
	void **objects = realloc(r->objects, room * sizeof *objects);
	if (!objects)
		return false;
	r->objects = objects;
	uint32_t *unused = realloc(r->unused, room * sizeof *unused);
	if (!unused)
		return false;
	r->unused = unused;
	r->room = room;
	return true;
}

uint64_t sim_registry_add(struct sim_registry *r, void *object)
{
	uint32_t index;
	if (r->unused_count > 0) {
		index = r->unused[--r->unused_count];
	} else {
		if (r->count == r->room && !grow(r))
			return 0;
		index = r->count++;
	}
	r->objects[index] = object;
	return sim_registry_value(r, index);
}

uint64_t sim_registry_value(const struct sim_registry *r, uint32_t index)
{
	return HANDLES | (uint64_t)r->kind << KIND_SHIFT | ((uint64_t)index + 1) << INDEX_SHIFT;
}

void *sim_registry_get(const struct sim_registry *r, uint64_t value)
{
	uint64_t index = index_of(value);
	if (index >= r->count || value != sim_registry_value(r, (uint32_t)index))
		return NULL;
	return r->objects[index];
}

void sim_registry_remove(struct sim_registry *r, uint64_t value)
{
	uint32_t index = (uint32_t)index_of(value);
	r->objects[index] = NULL;
	if (r->reuse)
		r->unused[r->unused_count++] = index;
}

void sim_registry_free(struct sim_registry *r)
{
	free(r->objects);
	free(r->unused);
}
