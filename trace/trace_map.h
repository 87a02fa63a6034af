/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash map from 64-bit keys to 32-bit numbers, for turning addresses, streams and pools into dense indices.
 * Private to trace/.
 */
#ifndef TRZ_TRACE_MAP_H
#define TRZ_TRACE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "terrazzo.h"

/* Invariants: capacity is 0 or a power of two, at least twice the count; from a key's home slot to its slot
 * no slot is empty. */
struct trace_map {
	struct trace_map_slot {
		uint64_t key;
		uint32_t value;
		bool used;
	} *slots;
	size_t capacity;
	size_t count;
};

/* Sets key to value. Errors: HOST_MEMORY. */
trz_status map_set(struct trace_map *map, uint64_t key, uint32_t value);
/* Adds one to the key's number, which begins at 0, and tells it. Errors: HOST_MEMORY. */
trz_status map_count(struct trace_map *map, uint64_t key, uint32_t *count);
bool map_get(const struct trace_map *map, uint64_t key, uint32_t *value);
void map_remove(struct trace_map *map, uint64_t key);
void map_free(struct trace_map *map);

#endif
