/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other processes, mapped here: each import in a window of its own, as one block that callers hold, use on
 * streams and free like any other. It is never reserved, cached or lent: when its tickets have passed it is unmapped.
 * All need the growth lock and call the driver.
 */
#ifndef TRZ_ALLOC_IMPORT_H
#define TRZ_ALLOC_IMPORT_H

#include "heap.h"

/* Maps what a shareable handle stands for, `size` bytes, for use on a stream. kind: TRZ_EXPORT_*. Errors as of the
 * driver, ADDRESS_SPACE, HOST_MEMORY; the text is set. */
trz_status import_open(trz_heap *h, unsigned kind, const void *shareable, uint64_t size, struct stream *s,
                       trz_addr *out);

/* Unmaps what has been freed and whose tickets have passed. What the driver refuses is tried again the next time. */
void import_sweep(trz_heap *h);

/* The same for all imports, at the end. Nothing uses them any more. */
trz_status import_end_all(trz_heap *h);

#endif
