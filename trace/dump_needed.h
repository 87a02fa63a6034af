/* SPDX-License-Identifier: Apache-2.0
 *
 * What weights need beside themselves.
 */
#ifndef TRZ_TRACE_DUMP_NEEDED_H
#define TRZ_TRACE_DUMP_NEEDED_H

#include "dump_moment.h"
#include "trace_dump.h"

/* So many blocks as large as a weight may be its gradient and the optimizer's state. */
enum { DUMP_BESIDE_WEIGHT = 3 };

/* Whether a stack's line holds gradients or an optimizer's state, and of each size no more than weights of that size
 * need: an optimizer's state only those that still get gradients, at the moment or in the newest step, events first ..
 * end - 1. What has no stack may be a weight or a gradient. Errors: HOST_MEMORY. */
trz_status dump_is_needed(const struct dump *d, const struct dump_moment *m, uint32_t stack, size_t first, size_t end,
                          bool *needed);

#endif
