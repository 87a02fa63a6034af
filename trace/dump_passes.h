/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes through models that leave their activations, as an evaluation without no_grad() does after a training whose
 * steps let go of theirs: memory may run out in its second pass, long before a trend shows.
 */
#ifndef TRZ_TRACE_DUMP_PASSES_H
#define TRZ_TRACE_DUMP_PASSES_H

#include "dump_moment.h"
#include "evidence.h"
#include "trace_dump.h"

/* Compares what has run since the newest step of an optimizer with the steps before. Sets e's kept_passes; adds a leak
 * if there are passes enough. `e` has a failure and a history but no leak. Errors: HOST_MEMORY. */
trz_status dump_passes(const struct dump *d, int device, size_t event, const struct dump_moment *m, struct evidence *e);

/* Where the newest step of an optimizer has ended, if steps keep several passes at a time, as those that go back
 * through time do, and what runs since calls models where they did; otherwise `event`. Errors: HOST_MEMORY. */
trz_status dump_passes_of_step(const struct dump *d, int device, size_t event, size_t *begin);

#endif
