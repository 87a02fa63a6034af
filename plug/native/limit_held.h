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

/* A piece of memory. It is given back when nothing refers to it any more. */
struct limit_memory;

/* Takes memory: makes room if that is needed. NULL: the limit refuses it. */
struct limit_memory *limit_memory_take(uint64_t bytes);

/* The same with the bytes that it has turned out to be. */
void limit_memory_resize(struct limit_memory *memory, uint64_t bytes);

/* `part` becomes a part of `whole`; takes over the caller's reference to it. */
void limit_memory_join(struct limit_memory *whole, struct limit_memory *part);

/* One more reference to it. */
struct limit_memory *limit_memory_hold(struct limit_memory *memory);

/* Notes that it has been used, or asks. */
void limit_memory_mark(struct limit_memory *memory);
bool limit_memory_is_marked(const struct limit_memory *memory);

/* Drops a reference that no name has: of memory that has just been taken. */
void limit_memory_drop(struct limit_memory *memory);

/* `key` names the memory, `size` bytes of addresses for a mapping. Takes over the caller's reference. */
void limit_name(enum limit_kind kind, uint64_t key, uint64_t size, struct limit_memory *memory);

/* One more reference to what `key` names; NULL: nothing. */
struct limit_memory *limit_find(enum limit_kind kind, uint64_t key, uint64_t *size);

/* The name goes; the caller has its reference. NULL: there was none. */
struct limit_memory *limit_unname(enum limit_kind kind, uint64_t key, uint64_t *size);

/* The same, and drops the reference. */
void limit_end(enum limit_kind kind, uint64_t key);

/* All names of a kind for the memory go, with their references. */
void limit_end_all(enum limit_kind kind, const struct limit_memory *memory);

/* The bytes that the driver has for a key now. Called with the lock of the names: it calls the driver alone. */
typedef uint64_t limit_measure(uint64_t key);

/* What `key` names has turned out to be so much, `fresh` included, which has just been taken for it. What names nothing
 * yet names `fresh`. Takes over the caller's reference to it, and returns one to what the key names. */
struct limit_memory *limit_measure_name(enum limit_kind kind, uint64_t key, struct limit_memory *fresh,
                                        limit_measure *measure);

/* All that has a name of a kind has turned out to be so much. */
void limit_measure_all(enum limit_kind kind, limit_measure *measure);

/* A node that allocates has been captured; takes over the reference. limit_graphs.c. */
void limit_graph_captured(struct limit_memory *memory, cuda_addr address);

#endif
