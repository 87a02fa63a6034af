/* SPDX-License-Identifier: Apache-2.0
 *
 * What grows in a snapshot's history, by the program's line that allocates it.
 */
#ifndef TRZ_TRACE_DUMP_GROWTH_H
#define TRZ_TRACE_DUMP_GROWTH_H

#include "dump_moment.h"
#include "evidence.h"

/* Sets e's growth and forecast from the device's history before d->events[event]. `m` is the memory at that moment; e's
 * figures are set already. Growth is a leak only if the program has steps, other than those of one pass through a model
 * or of loading data. Errors: HOST_MEMORY. */
trz_status dump_growth(const struct dump *d, int device, size_t event, const struct dump_moment *m,
                       struct evidence *e);

#endif
