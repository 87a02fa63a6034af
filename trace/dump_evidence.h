/* SPDX-License-Identifier: Apache-2.0
 *
 * What a memory snapshot tells of an out-of-memory error: the state at the newest one that its history has, or at its
 * end if it has none.
 */
#ifndef TRZ_TRACE_DUMP_EVIDENCE_H
#define TRZ_TRACE_DUMP_EVIDENCE_H

#include "dump_moment.h"
#include "evidence.h"

enum { DUMP_ANY_DEVICE = -1 };

/* `device`: DUMP_ANY_DEVICE is the one that ran out of memory last, else the one with most memory. Errors: NOT_FOUND
 * (no such device, or the snapshot has no memory and no history), HOST_MEMORY. */
trz_status dump_evidence(const struct dump *d, const char *name, int device, struct evidence *e);

/* Live memory by site, tag and category, most bytes first: at most `capacity`; the texts are kept in `e`. Errors:
 * HOST_MEMORY. */
trz_status dump_holders(const struct dump *d, const struct dump_moment *m, struct evidence *e);

#endif
