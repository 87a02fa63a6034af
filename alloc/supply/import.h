/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other processes, mapped here: each import in a window of its own, as one block that callers hold, use on
 * streams and free like any other. It is never reserved, cached or lent: when its tickets have passed it is unmapped.
 * All need the growth lock and call the driver.
 */
#ifndef TRZ_ALLOC_IMPORT_H
#define TRZ_ALLOC_IMPORT_H

#include "heap/heap.h"

/* Where the tiles of an import come from; asked with no lock held. */
struct import_source {
	trz_import_callback *next;
	void *user;
};

/* Maps the memory of shareable handles, `size` bytes in all, side by side, for use on a stream. kind: TRZ_EXPORT_*.
 * The growth lock is given back while the source is asked. Errors: the driver's, the source's, ADDRESS_SPACE,
 * HOST_MEMORY, INVALID_ARGUMENT; the text is set, except for the source's. */
trz_status import_open(trz_heap *h, unsigned kind, struct import_source from, uint64_t size, struct stream *s,
                       trz_addr *out);

/* Unmaps freed imports whose tickets have passed. If the driver refuses, the next call tries again. */
void import_sweep(trz_heap *h);

/* Unmaps all imports, at closing, when nothing uses them. */
trz_status import_end_all(trz_heap *h);

#endif
