/* SPDX-License-Identifier: Apache-2.0
 *
 * Best fit decreasing on a circle of time.
 */
#include "memory/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;
	if (x->size != y->size)
		return x->size > y->size ? -1 : 1;
	if (x->life != y->life)
		return x->life > y->life ? -1 : 1;
	return x->name < y->name ? -1 : 1;
}

/* Whether two lives share a moment. */
static inline bool meet(const struct piece *a, const struct piece *b, uint32_t period)
{
	uint32_t later = b->begin >= a->begin ? b->begin - a->begin : b->begin + period - a->begin;
	uint32_t earlier = later ? period - later : 0;
	return later < a->life || earlier < b->life;
}

/* Whether a piece cannot lie where it would. */
static bool clashes(const struct piece *placed, size_t n, const struct piece *p, uint32_t period)
{
	for (size_t i = 0; i < n && placed[i].place < p->place + p->size; i++)
		if (placed[i].place + placed[i].size > p->place && meet(p, &placed[i], period))
			return true;
	return false;
}

/* The smallest gap that the placed ones, which are in order of their places, leave a piece; else behind them all. */
static uint64_t best_gap(const struct piece *placed, size_t n, const struct piece *p, uint32_t period)
{
	uint64_t end = 0, best = UINT64_MAX, place = 0;
	for (size_t i = 0; i < n; i++) {
		if (!meet(p, &placed[i], period))
			continue;
		uint64_t gap = placed[i].place > end ? placed[i].place - end : 0;
		if (gap >= p->size && gap < best) {
			best = gap;
			place = end;
		}
		uint64_t after = placed[i].place + placed[i].size;
		end = after > end ? after : end;
	}
	return best == UINT64_MAX ? end : place;
}

/* Adds one to those that are in order. */
static void insert(struct piece *placed, size_t n, const struct piece *p)
{
	size_t low = 0, high = n;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (placed[middle].place <= p->place)
			low = middle + 1;
		else
			high = middle;
	}
	memmove(placed + low + 1, placed + low, (n - low) * sizeof *placed);
	placed[low] = *p;
}

void pack(struct piece *pieces, size_t fixed, size_t count, uint32_t period, uint64_t limit, struct piece *scratch)
{
	size_t n = 0;
	qsort(pieces + fixed, count - fixed, sizeof *pieces, by_size);
	for (size_t i = 0; i < count; i++) {
		struct piece *p = &pieces[i];
		if (i >= fixed && p->place != PACK_NOWHERE && clashes(scratch, n, p, period))
			p->place = PACK_NOWHERE;
		if (p->place != PACK_NOWHERE)
			insert(scratch, n++, p);
	}
	for (size_t i = fixed; i < count; i++) {
		struct piece *p = &pieces[i];
		if (p->place != PACK_NOWHERE)
			continue;
		p->place = best_gap(scratch, n, p, period);
		if (p->place > limit || limit - p->place < p->size)
			p->place = PACK_NOWHERE;
		else
			insert(scratch, n++, p);
	}
}
