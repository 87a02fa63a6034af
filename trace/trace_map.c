/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash map: open addressing with linear probing; removal shifts back, so that there are no tombstones.
 */
#include "trace_map.h"

#include <stdlib.h>

#include "error.h"
#include "prng.h"

static size_t home(const struct trace_map *map, uint64_t key)
{
	return prng_mix(key) & (map->capacity - 1);
}

/* The key's slot, or the empty one where it would go. */
static size_t find(const struct trace_map *map, uint64_t key)
{
	size_t i = home(map, key);
	while (map->slots[i].used && map->slots[i].key != key)
		i = (i + 1) & (map->capacity - 1);
	return i;
}

static trz_status grow(struct trace_map *map)
{
	struct trace_map bigger = { .capacity = map->capacity ? 2 * map->capacity : 64, .count = map->count };
	bigger.slots = calloc(bigger.capacity, sizeof *bigger.slots);
	if (!bigger.slots)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for an index of %zu entries", bigger.capacity);
	for (size_t i = 0; i < map->capacity; i++) {
		if (map->slots[i].used)
			bigger.slots[find(&bigger, map->slots[i].key)] = map->slots[i];
	}
	free(map->slots);
	*map = bigger;
	return TRZ_OK;
}

trz_status map_set(struct trace_map *map, uint64_t key, uint32_t value)
{
	if (2 * (map->count + 1) > map->capacity) {
		trz_status status = grow(map);
		if (status != TRZ_OK)
			return status;
	}
	struct trace_map_slot *slot = &map->slots[find(map, key)];
	map->count += !slot->used;
	*slot = (struct trace_map_slot){ .key = key, .value = value, .used = true };
	return TRZ_OK;
}

bool map_get(const struct trace_map *map, uint64_t key, uint32_t *value)
{
	if (map->count == 0)
		return false;
	const struct trace_map_slot *slot = &map->slots[find(map, key)];
	if (slot->used)
		*value = slot->value;
	return slot->used;
}

trz_status map_count(struct trace_map *map, uint64_t key, uint32_t *count)
{
	*count = 0;
	map_get(map, key, count);
	return map_set(map, key, ++*count);
}

void map_remove(struct trace_map *map, uint64_t key)
{
	if (map->count == 0)
		return;
	size_t mask = map->capacity - 1;
	size_t hole = find(map, key);
	if (!map->slots[hole].used)
		return;
	map->count--;
	for (size_t i = (hole + 1) & mask; map->slots[i].used; i = (i + 1) & mask) {
		/* An entry may fill the hole only if the hole is not before its home. */
		size_t distance = (i - home(map, map->slots[i].key)) & mask;
		if (distance >= ((i - hole) & mask)) {
			map->slots[hole] = map->slots[i];
			hole = i;
		}
	}
	map->slots[hole].used = false;
}

void map_free(struct trace_map *map)
{
	free(map->slots);
	*map = (struct trace_map){ 0 };
}
