/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest size that is enough for something that can be tried, for example a program on a device of that size.
 */
#ifndef TRZ_TRACE_BISECT_H
#define TRZ_TRACE_BISECT_H

#include <stdint.h>

#include "terrazzo.h"

struct bisect {
	uint64_t low;   /* less is known not to be enough */
	uint64_t high;  /* more is not to be tried */
	uint64_t step;  /* > 0; only multiples of it are tried */
	/* Says whether `size` is enough. An error ends the search. */
	trz_status (*enough)(void *arg, uint64_t size, bool *is_enough);
	void *arg;
};

struct bisect_result {
	uint64_t size;   /* 0: not even `high` is enough */
	unsigned runs;   /* tries made */
	bool verified;   /* tried once more at the end, size - step was not enough and size was */
};

/* Goes up from `low` in growing strides, then halves: few tries where the answer is near `low`. It assumes that every
 * size above one that is enough is enough; `verified` tests that as far as two more tries can. The last try is the one
 * of `size`. Errors: those of `enough`. */
trz_status bisect_run(const struct bisect *b, struct bisect_result *out);

#endif
