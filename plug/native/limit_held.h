/* SPDX-License-Identifier: Apache-2.0
 *
 * What the process holds under a limit, by the driver's names for it: addresses, handles, arrays, graphs.
 */
#ifndef TRZ_LIMIT_HELD_H
#define TRZ_LIMIT_HELD_H

#include "native_driver.h"

enum limit_kind {
	LIMIT_ADDRESS, LIMIT_HANDLE, LIMIT_MAPPING, LIMIT_ARRAY, LIMIT_POOL, LIMIT_GRAPH, LIMIT_EXEC, LIMIT_KINDS
};

/* A piece of memory. It goes back to the limit when nothing refers to it any more. */
struct limit_memory;

/* Takes memory from the limit, with a reference for the caller. NULL: the limit refuses, or the host has no memory. */
struct limit_memory *limit_memory_take(uint64_t bytes);

/* Sets the bytes that the memory has turned out to be. */
void limit_memory_resize(struct limit_memory *memory, uint64_t bytes);

/* Makes `part` a part of `whole`; takes over the caller's reference to `part`. */
void limit_memory_join(struct limit_memory *whole, struct limit_memory *part);

/* Takes one more reference. */
struct limit_memory *limit_memory_hold(struct limit_memory *memory);

/* Notes that the memory may have been used (its graph was instantiated); asks whether that has been noted. */
void limit_memory_mark(struct limit_memory *memory);
bool limit_memory_is_marked(const struct limit_memory *memory);

/* Drops a reference of the caller's. */
void limit_memory_drop(struct limit_memory *memory);

/* Makes `key` a name of the memory; `size`: the bytes of addresses of a mapping. Takes over the caller's reference. */
void limit_name(enum limit_kind kind, uint64_t key, uint64_t size, struct limit_memory *memory);

/* Finds what `key` names, with one more reference; NULL: nothing. */
struct limit_memory *limit_find(enum limit_kind kind, uint64_t key, uint64_t *size);

/* Removes a name; the caller gets its reference. NULL: there was none. */
struct limit_memory *limit_unname(enum limit_kind kind, uint64_t key, uint64_t *size);

/* Removes a name, and drops its reference. */
void limit_end(enum limit_kind kind, uint64_t key);

/* Removes all names of a kind that the memory has, with their references. */
void limit_end_all(enum limit_kind kind, const struct limit_memory *memory);

/* How many bytes the driver has for a key now. Called under the lock of the names, so it may call only the driver. */
typedef uint64_t limit_measure(uint64_t key);

/* Adds `fresh`, which has just been taken, to what `key` names, and measures that anew. If the key names nothing yet,
 * it becomes a name of `fresh`. Takes over the caller's reference to `fresh`, and returns one to what the key names. */
struct limit_memory *limit_measure_name(enum limit_kind kind, uint64_t key, struct limit_memory *fresh,
                                        limit_measure *measure);

/* Measures everything anew that has a name of a kind. */
void limit_measure_all(enum limit_kind kind, limit_measure *measure);

/* Notes memory that a capture has allocated; takes over the caller's reference. limit_graphs.c. */
void limit_graph_captured(struct limit_memory *memory, cuda_addr address);

#endif
