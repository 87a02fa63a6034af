/* SPDX-License-Identifier: Apache-2.0
 *
 * What a memory snapshot tells of an out-of-memory error: the state at the newest one in its history, or at the end of
 * a history that has none. Or what it tells of the peak.
 */
#ifndef TRZ_TRACE_DUMP_EVIDENCE_H
#define TRZ_TRACE_DUMP_EVIDENCE_H

#include "dump_moment.h"
#include "evidence.h"

enum { DUMP_ANY_DEVICE = -1 };

/* `device`: DUMP_ANY_DEVICE means dump_fullest(). `fails`, unless NULL, gets the same where PyTorch's history shows no
 * failure, with what grows judged as if the program had failed later, as another source may tell; else it is left as it
 * is. Errors: NOT_FOUND (no such device, or the snapshot has no memory and no history), HOST_MEMORY. */
trz_status dump_evidence(const struct dump *d, const char *name, int device, struct evidence *e,
                         struct evidence *fails);

/* The same of the moment in the history at which most was allocated, whether or not the program failed. Without a
 * history e->peak is false, and it is the end. */
trz_status dump_evidence_at_peak(const struct dump *d, const char *name, int device, struct evidence *e);

/* The device that ran out of memory last; if none did, the one with the most reserved memory; -1: there is none. */
int dump_fullest(const struct dump *d);

/* Whether it has memory or a history of a device. */
bool dump_has_device(const struct dump *d, int device);

/* The index in d->events of a device's newest failure; SIZE_MAX: none. */
size_t dump_newest_oom(const struct dump *d, int device);

/* How much PyTorch's allocator asks the driver for to serve `size`. Expandable segments map whole pages: they need more
 * where only the rounding to pages exceeds what the device has left. */
uint64_t dump_needed_by_pytorch(uint64_t size, uint64_t device_free, bool expandable);

#endif
