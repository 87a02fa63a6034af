/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that work on parts of their memory. A program that cuts a buffer into parts often gives each stream one, and
 * each launch the buffer's address and an offset. The device could not tell an offset from another number, but two
 * launches show it: on different streams, with the same addresses and shape, and with a number that differs by at least
 * as much as there are threads, within the memory. From then on nobody knows which part a launch uses.
 */
#include "driver_graph.h"

#include <pthread.h>
#include <string.h>

#include "bits.h"

static pthread_mutex_t parts_lock = PTHREAD_MUTEX_INITIALIZER;

void look_parts_begin(struct look_launch *l, const struct cuda_kernel_node *k, void *stream)
{
	*l = (struct look_launch){.stream = stream};
	memcpy(l->grid, k->grid, sizeof l->grid);
	memcpy(l->block, k->block, sizeof l->block);
}

void look_parts_add_number(struct look_launch *l, uint64_t number)
{
	if (l->count < LOOK_PARTS_NUMBERS)
		l->number[l->count++] = number;
}

void look_parts_add_address(struct look_launch *l, uint64_t address)
{
	if (!l->address)
		l->address = address;
	l->addresses = (l->addresses ^ address) * 0x9e3779b97f4a7c15;
}

static uint64_t threads_of(const struct look_launch *l)
{
	uint64_t threads = 1;
	for (int i = 0; i < 3; i++)
		threads *= (uint64_t)l->grid[i] * l->block[i];
	return threads;
}

static bool same_memory(const struct look_launch *a, const struct look_launch *b)
{
	return a->address && a->address == b->address && a->addresses == b->addresses && a->count == b->count &&
	       memcmp(a->grid, b->grid, sizeof a->grid) == 0 && memcmp(a->block, b->block, sizeof a->block) == 0;
}

static bool apart(const struct look_launch *a, const struct look_launch *b)
{
	struct sim_place place;
	bool some = a->stream != b->stream && same_memory(a, b);
	for (size_t i = 0; some && i < a->count; i++) {
		uint64_t low = min_u64(a->number[i], b->number[i]), high = max_u64(a->number[i], b->number[i]);
		if (high - low >= threads_of(a) && sim_place_at(look.sim, a->address + high, &place))
			return true;
	}
	return false;
}

bool look_parts_note(struct look_parts *p, const struct look_launch *l)
{
	pthread_mutex_lock(&parts_lock);
	p->found = p->found || apart(&p->last, l);
	p->last = *l;
	bool found = p->found;
	pthread_mutex_unlock(&parts_lock);
	return found;
}
