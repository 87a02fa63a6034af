/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass through a model that was running when memory ran out. However long it is, what it has made is no leak yet:
 * that would outlive it.
 */
#ifndef TRZ_TRACE_DUMP_RUNNING_H
#define TRZ_TRACE_DUMP_RUNNING_H

#include "dump_moment.h"

/* Finds the event at which the newest call of the outermost module began that d->events[event], a failure, is in;
 * `event`: it is in none, or the history does not show where one call begins and the next. Errors: HOST_MEMORY. */
trz_status dump_running(const struct dump *d, int device, size_t event, size_t *begin);

/* No leak is what for the most part lines have made since `since`; it counts as a list that holds more than before.
 * Errors: HOST_MEMORY. */
trz_status dump_pardon_since(const struct dump *d, size_t since, size_t event, const struct dump_moment *m,
                             struct evidence *e);

#endif
