/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots that options ask for: of failures, and at the end. If one cannot be written, the program's own result is
 * still the same.
 */
#ifndef TRZ_ALLOC_DUMP_H
#define TRZ_ALLOC_DUMP_H

#include "heap/heap.h"
#include "snapshot.h"

/* Sets memory aside for snapshots, in case the host has none left by then. Errors: HOST_MEMORY. */
trz_status dump_open(trz_heap *h);

/* If the option is set: a snapshot of the heap as a failed allocation left it. Returns the failure; its text then ends
 * with the snapshot's path, or with the reason why there is none. `report` writes what is known of the failure, its
 * owner is the heap. Takes locks: none may be held. Waits for no other thread's snapshot, which may itself wait for
 * something that this thread holds. */
trz_status dump_failure(trz_heap *h, trz_status failure, snapshot_report *report);

/* If the option is set: a snapshot at the end, once. */
void dump_end(trz_heap *h);

#endif
