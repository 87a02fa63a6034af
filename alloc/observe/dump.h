/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots that options ask for: of failures, and at the end. Whatever becomes of one, the program's own result stays
 * what it is.
 */
#ifndef TRZ_ALLOC_DUMP_H
#define TRZ_ALLOC_DUMP_H

#include "heap/heap.h"
#include "snapshot.h"

/* Memory for a snapshot of a heap whose host has none left. Errors: HOST_MEMORY. */
trz_status dump_open(trz_heap *h);

/* If the option is set: a snapshot of the heap as a failed allocation left it. Returns the failure; its text then ends
 * with the snapshot's path, or with the reason why there is none. `report` writes what is known of the failure, its
 * owner is the heap. Takes locks: none may be held. Waits for no other thread's snapshot, which may itself wait for
 * something that this thread holds. */
trz_status dump_failure(trz_heap *h, trz_status failure, snapshot_report *report);

/* If the option is set: a snapshot at the end. */
void dump_end(trz_heap *h);

#endif
