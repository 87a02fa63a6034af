/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that is loaded again and again while the older ones are kept, as by a notebook's cell that is run again.
 */
#ifndef TRZ_TRACE_DUMP_COPIES_H
#define TRZ_TRACE_DUMP_COPIES_H

#include "dump_moment.h"
#include "evidence.h"
#include "trace_dump.h"

/* Adds to `e`, which has a failure and a history but no leak, the line that has made the same weights in the same order
 * three times or more, the last of them perhaps not wholly, with other work in between; or twice, if the first has been
 * trained before. Layers that are moved one by one come in the same way, but oftener, or with fewer weights each.
 * Errors: HOST_MEMORY. */
trz_status dump_copies(const struct dump *d, int device, size_t event, const struct dump_moment *m, struct evidence *e);

#endif
