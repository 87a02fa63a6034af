/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a program may keep without need: that of an attempt that ran out of memory, which an exception keeps
 * while the program tries again; and a checkpoint that was read to the device, beside the model that it was for.
 */
#ifndef TRZ_TRACE_DUMP_SPARE_H
#define TRZ_TRACE_DUMP_SPARE_H

#include "dump_moment.h"
#include "evidence.h"
#include "trace_dump.h"

/* Sets e's kept_failed and loaded_twice; e has a failure, at d->events[event], and a history. Errors: HOST_MEMORY. */
trz_status dump_spare(const struct dump *d, int device, size_t event, const struct dump_moment *m, struct evidence *e);

#endif
