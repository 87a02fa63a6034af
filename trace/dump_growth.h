/* SPDX-License-Identifier: Apache-2.0
 *
 * What grows in the history of a snapshot, by the line of the program that allocates it.
 */
#ifndef TRZ_TRACE_DUMP_GROWTH_H
#define TRZ_TRACE_DUMP_GROWTH_H

#include "dump_moment.h"
#include "evidence.h"

/* Sets growth and forecast of `e` from the history of the device before d->events[event]. `m` is the memory then; e's
 * figures are known already. Growth is a leak only if the program has steps, and they are not those of one pass through
 * a model, or of data that are loaded. Errors: HOST_MEMORY. */
trz_status dump_growth(const struct dump *d, int device, size_t event, const struct dump_moment *m,
                       struct evidence *e);

#endif
