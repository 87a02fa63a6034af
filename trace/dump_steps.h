/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a program, such as the iterations of a training loop, in a snapshot's history: those that the program
 * told (trz_step), else the marks of its optimizers' steps, else the period of its allocations.
 */
#ifndef TRZ_TRACE_DUMP_STEPS_H
#define TRZ_TRACE_DUMP_STEPS_H

#include "trace_dump.h"

/* Step i is d->events[at[i]] to d->events[at[i + 1] - 1]: there are count - 1. */
struct dump_steps {
	size_t *at;
	size_t count;
	bool marked;               /* false: recognised by a place that allocates at regular intervals */
	bool calls;                /* rounds of a loop that only calls models */
	bool lasts;                /* the program is still in its loop: its newest step ended not long ago */
};

/* Of events first .. end - 1. count == 0: fewer than DUMP_STEPS_LEAST are found. Errors: HOST_MEMORY. */
enum { DUMP_STEPS_LEAST = 4 };
trz_status dump_steps(const struct dump *d, int device, size_t first, size_t end, struct dump_steps *out);

/* Those that the program or its optimizers have marked, however few; else those that the stacks of its optimizers show
 * or, where nothing is trained, the rounds of a loop that calls models. Errors: HOST_MEMORY. */
trz_status dump_marks(const struct dump *d, int device, size_t first, size_t end, struct dump_steps *out);
void dump_steps_free(struct dump_steps *s);

#endif
