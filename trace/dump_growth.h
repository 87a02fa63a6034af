/* SPDX-License-Identifier: Apache-2.0
 *
 * What grows in a snapshot's history, by the program's line that allocates it.
 */
#ifndef TRZ_TRACE_DUMP_GROWTH_H
#define TRZ_TRACE_DUMP_GROWTH_H

#include "dump_play.h"
#include "evidence.h"

/* Sets e's growth and forecast from a history that was played up to the moment that `m` is of; e's figures are set
 * already. Growth is a leak only if the program has steps, other than those of one pass through a model or of loading
 * data. Errors: HOST_MEMORY. */
trz_status dump_growth(const struct dump_play *p, const struct dump_moment *m, struct evidence *e);

#endif
