/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the simulated world share among themselves.
 */
#ifndef TRZ_TESTS_WORLD_PARTS_H
#define TRZ_TESTS_WORLD_PARTS_H

#include "prng.h"
#include "world.h"

enum { WORLD_SIZE_PROFILES = 7 };

/* Keeps the first thing that is wrong, with seed and event, and returns its text. */
const char *world_wrong(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline uint64_t world_below(struct world *w, uint64_t bound)
{
	return prng_below(&w->random, bound);
}

#endif
