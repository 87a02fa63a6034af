/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop that takes a program's steps: the innermost function of the program that all of a step's allocations have in
 * common. What a model allocates, this function keeps, or what it calls.
 */
#ifndef TRZ_TRACE_DUMP_LOOP_H
#define TRZ_TRACE_DUMP_LOOP_H

#include "dump_moment.h"
#include "dump_steps.h"
#include "evidence.h"

struct dump_loop {
	uint32_t *stack;           /* the loop's function and what has called it, outermost first: indices into d->frames */
	size_t depth;              /* 0: the loop is not known */
};

/* Of the steps' functions the one that most steps have. Errors: HOST_MEMORY. */
trz_status dump_loop(const struct dump *d, const struct dump_steps *steps, struct dump_loop *out);
void dump_loop_free(struct dump_loop *l);

/* The loop's line that most of what is live of `site` was allocated for: in evidence's texts. NULL: it is the site
 * itself, or not known. Errors: HOST_MEMORY. */
trz_status dump_loop_line(const struct dump *d, const struct dump_loop *l, const struct dump_moment *m,
                          const struct dump_frame *site, struct evidence *e, const char **line);

#endif
