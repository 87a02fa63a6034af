/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the balance from statistics by name. Looks names up once, since the order of statistics never changes.
 */
#include "accounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256 };

static const char *const names[] = {
	"reserved_bytes.all.current", "requested_bytes.all.current", "rounding_bytes", "pending_bytes.current",
	"cached_bytes.current", "free_slot_bytes", "idle_bytes.current", "zombie_bytes.current",
	"allocation.small_pool.current", "allocation.large_pool.current", "allocated_bytes.small_pool.current",
	"allocated_bytes.large_pool.current", "requested_bytes.small_pool.current",
	"requested_bytes.large_pool.current", "classic_bytes.current",
};

enum { NAMES = sizeof names / sizeof *names };

static size_t index_of(const trz_stat_value *values, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(values[i].name, name) == 0)
			return i;
	fprintf(stderr, "there is no statistic %s\n", name);
	abort();
}

struct accounts accounts_read(trz_heap *heap)
{
	static _Thread_local size_t indexes[NAMES];
	static _Thread_local bool known;
	trz_stat_value values[MOST];
	size_t count = 0;
	if (trz_stats(heap, values, MOST, &count) != TRZ_OK || count > MOST)
		abort();
	for (size_t i = 0; !known && i < NAMES; i++)
		indexes[i] = index_of(values, count, names[i]);
	known = true;
	uint64_t v[NAMES];
	for (size_t i = 0; i < NAMES; i++)
		v[i] = values[indexes[i]].value;
	return (struct accounts){v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], {v[8], v[9]}, {v[10], v[11]},
	                         {v[12], v[13]}, v[14]};
}

bool accounts_balance(const struct accounts *a)
{
	return a->reserved == a->requested + a->rounding + a->pending + a->cached + a->free_slots + a->idle + a->zombie;
}
