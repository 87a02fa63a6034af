/* SPDX-License-Identifier: Apache-2.0
 *
 * Handle values: how the machine's objects are named towards users. With `reuse`, a value that died is the
 * first to be handed out again, which is what makes stale handles dangerous on hardware.
 */
#include <stdlib.h>

#include "sim_machine.h"

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
	return ((uint64_t)index + 1) << 8 | r->kind;
}

void *sim_registry_get(const struct sim_registry *r, uint64_t value)
{
	uint64_t index = (value >> 8) - 1;
	if ((value & 0xff) != r->kind || index >= r->count)
		return NULL;
	return r->objects[index];
}

void sim_registry_remove(struct sim_registry *r, uint64_t value)
{
	uint32_t index = (uint32_t)((value >> 8) - 1);
	r->objects[index] = NULL;
	if (r->reuse)
		r->unused[r->unused_count++] = index;
}

void sim_registry_free(struct sim_registry *r)
{
	free(r->objects);
	free(r->unused);
}
