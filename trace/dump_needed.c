/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts weights, their gradients, and what a line holds, by size.
 */
#include "dump_needed.h"

#include "dump_sites.h"
#include "trace_map.h"

/* Of what a line holds, a part of so little does not count, such as scalars. */
enum { BEYOND = 64 };

/* By size: how many a line holds, and how many weights and gradients there may be; of these, the weights that a stack
 * shows, and the gradients of the newest step. */
struct counts {
	struct trace_map own, weights, gradients, shown, newest;
};

static bool may_be(const struct dump *d, uint32_t stack, enum evidence_category category)
{
	return stack == 0 || dump_category(d, stack) == category;
}

static trz_status count_if(bool counts, struct trace_map *map, uint64_t size)
{
	uint32_t count;
	return counts ? map_count(map, size, &count) : TRZ_OK;
}

static trz_status count_blocks(const struct dump *d, const struct dump_moment *m, uint32_t line, struct counts *c)
{
	trz_status status = TRZ_OK;
	for (size_t i = 0; i < m->block_count && status == TRZ_OK; i++) {
		const struct dump_block *b = &m->blocks[i];
		uint64_t size = dump_rounded(d, b->requested ? b->requested : b->size);
		if (b->state != DUMP_HELD)
			continue;
		status = count_if(b->stack && dump_site(d, b->stack)->frame == line, &c->own, size);
		if (status == TRZ_OK)
			status = count_if(may_be(d, b->stack, CATEGORY_WEIGHTS), &c->weights, size);
		if (status == TRZ_OK)
			status = count_if(b->stack && may_be(d, b->stack, CATEGORY_WEIGHTS), &c->shown, size);
		if (status == TRZ_OK)
			status = count_if(may_be(d, b->stack, CATEGORY_GRADIENTS), &c->gradients, size);
	}
	return status;
}

static trz_status count_gradients(const struct dump *d, size_t first, size_t end, struct counts *c)
{
	trz_status status = TRZ_OK;
	for (size_t i = first; i < end && status == TRZ_OK; i++) {
		const struct dump_event *e = &d->events[i];
		bool gradient = e->action == DUMP_ALLOC && may_be(d, e->stack, CATEGORY_GRADIENTS);
		status = count_if(gradient, &c->gradients, dump_rounded(d, e->size));
		if (status == TRZ_OK)
			status = count_if(gradient, &c->newest, dump_rounded(d, e->size));
	}
	return status;
}

static bool are_enough(const struct trace_map *counts, const struct trace_map_slot *own)
{
	uint32_t count = 0;
	map_get(counts, own->key, &count);
	return own->value <= DUMP_BESIDE_WEIGHT * (uint64_t)count;
}

/* State of a size that neither weights nor gradients have is of all weights at once, such as the directions that LBFGS
 * remembers: their number is the optimizer's own. */
static bool is_of_all(const struct counts *c, uint64_t size)
{
	uint32_t count;
	return !map_get(&c->shown, size, &count) && !map_get(&c->newest, size, &count);
}

/* Gradients that the newest step has not made are of weights that are trained no longer, such as a finished model's. */
static bool may_need(const struct counts *c, const struct trace_map_slot *own, enum evidence_category category)
{
	if (category != CATEGORY_OPTIMIZER)
		return are_enough(&c->weights, own) && are_enough(&c->newest, own);
	return is_of_all(c, own->key) || (are_enough(&c->weights, own) && are_enough(&c->gradients, own));
}

trz_status dump_is_needed(const struct dump *d, const struct dump_moment *m, uint32_t stack, size_t first, size_t end,
                          bool *needed)
{
	enum evidence_category category = dump_category(d, stack);
	struct counts c = { 0 };
	*needed = category == CATEGORY_GRADIENTS || category == CATEGORY_OPTIMIZER;
	if (!*needed)
		return TRZ_OK;
	trz_status status = count_blocks(d, m, dump_site(d, stack)->frame, &c);
	if (status == TRZ_OK)
		status = count_gradients(d, first, end, &c);
	uint64_t held = 0, beyond = 0;
	for (size_t i = 0; i < c.own.capacity; i++) {
		const struct trace_map_slot *own = &c.own.slots[i];
		uint64_t bytes = own->used ? own->key * own->value : 0;
		held += bytes;
		beyond += own->used && !may_need(&c, own, category) ? bytes : 0;
	}
	*needed = beyond <= held / BEYOND;
	map_free(&c.own);
	map_free(&c.weights);
	map_free(&c.gradients);
	map_free(&c.shown);
	map_free(&c.newest);
	return status;
}
