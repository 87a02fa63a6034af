/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole-heap simulation: a machine, a heap and a program of which one seed decides everything. Every live
 * allocation is stamped on its stream and verified before it is freed; a shadow map proves that no byte has two
 * owners; the balance is checked after each event and the whole heap every 64.
 *
 * Functions return NULL, or the text of what is wrong, so that planted bugs can be looked for.
 */
#ifndef TRZ_TESTS_WORLD_H
#define TRZ_TESTS_WORLD_H

#include "bits.h"
#include "shadow.h"
#include "sim.h"

enum { WORLD_EVENTS = 10000, WORLD_STREAMS = 4, WORLD_PROFILES = 3, WORLD_TEXT = 700 };

struct world {
	uint64_t seed, random, events, tags;
	/* decided by the seed */
	uint64_t capacity, fill_target, lag, run_most;
	unsigned live_most, stream_count, profiles[WORLD_PROFILES];
	bool vmm;
	char conf[256];
	/* what is there */
	sim *s;
	const trz_driver *d;
	trz_context c;
	trz_heap *heap;
	trz_stream streams[WORLD_STREAMS];
	struct shadow shadow;
	/* what callers hold, by [small, large] */
	uint64_t count[2], requested[2], allocated[2], rounding, occupied;
	/* what has happened */
	uint64_t oom_count, burst;
	bool burst_allocates;
	char wrong[WORLD_TEXT];
};

/* A world with its heap open and nothing allocated. */
const char *world_open(struct world *w, uint64_t seed);

/* One event of the program, and the checks after it. */
const char *world_step(struct world *w);

/* Frees everything; nothing may stay reserved, nothing be left with the driver, no rule have been broken. */
const char *world_end(struct world *w);

/* Closes what is still open, without a word. */
void world_close(struct world *w);

/* The parts of a step that tests use on their own. `stream` is an index. */
const char *world_alloc(struct world *w, uint64_t size, uint64_t alignment, unsigned stream);
const char *world_free(struct world *w, size_t index);

/* The whole check: heap, driver, device. */
const char *world_check(struct world *w);

/* Bytes of the tiles, found through the windows, that hold a byte of a live allocation (with whole slabs where
 * `slabs`). */
uint64_t world_touched(const struct world *w, bool slabs);

#endif
