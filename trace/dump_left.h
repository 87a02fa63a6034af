/* SPDX-License-Identifier: Apache-2.0
 *
 * What the steps of a short history leave: one of the newest events alone has two or three, too few for a trend.
 */
#ifndef TRZ_TRACE_DUMP_LEFT_H
#define TRZ_TRACE_DUMP_LEFT_H

#include "dump_moment.h"
#include "evidence.h"
#include "trace_dump.h"

/* Adds to `e`, which has a failure and a history but no leak, what is one although few steps are seen of it: each half
 * of the marked steps leaves a part of it, the heap grows by that, and the line holds many times as much. Errors:
 * HOST_MEMORY. */
trz_status dump_left(const struct dump *d, int device, size_t event, const struct dump_moment *m, struct evidence *e);

#endif
