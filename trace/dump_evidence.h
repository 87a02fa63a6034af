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

/* The device that ran out of memory last, else the one with most memory; -1: there is none. */
int dump_fullest(const struct dump *d);

/* The newest failure of a device, of d->events; SIZE_MAX: none. */
size_t dump_newest_oom(const struct dump *d, int device);

/* The segment that PyTorch's allocator asks the driver for. Expandable segments map whole pages: more, where that is
 * why it failed. */
uint64_t dump_needed_by_pytorch(uint64_t size, uint64_t device_free, bool expandable);

#endif
