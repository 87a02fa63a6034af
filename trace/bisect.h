/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches, by trying, for the smallest size that is enough, for example of a device that a program runs on.
 */
#ifndef TRZ_TRACE_BISECT_H
#define TRZ_TRACE_BISECT_H

#include <stdint.h>

#include "terrazzo.h"

struct bisect {
	uint64_t low;   /* less is known not to be enough */
	uint64_t high;  /* nothing above it is tried */
	uint64_t step;  /* > 0; only multiples of it are tried */
	/* Tries whether `size` is enough. An error ends the search. */
	trz_status (*enough)(void *arg, uint64_t size, bool *is_enough);
	void *arg;
};

struct bisect_result {
	uint64_t size;   /* 0: not even `high` is enough */
	unsigned runs;   /* tries made */
	bool verified;   /* tried once more at the end, size - step was not enough and size was */
};

/* Goes up from `low` in growing strides, then halves: few tries if the answer is near `low`. It assumes that what is
 * larger than enough is enough; `verified` tests that as far as two more tries can. The last try is of `size`. Errors:
 * those of `enough`. */
trz_status bisect_run(const struct bisect *b, struct bisect_result *out);

#endif
