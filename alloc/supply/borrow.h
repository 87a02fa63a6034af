/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other streams: free blocks whose tickets have passed may change their home.
 */
#ifndef TRZ_ALLOC_BORROW_H
#define TRZ_ALLOC_BORROW_H

#include "supply/demand.h"

/* Moves free blocks of the pool's other lanes to the demand's, as far as those can lend them: the best fit where one of
 * them will do, else neighbours that are enough together, with what the lane has. If there are none, it asks the driver
 * how far the streams are and looks again; in vain, it moves all large ones, so that they join. true: a block of the
 * demand's bytes may be there now. Waits for nothing; with one stream it does nothing. Growth lock held. */
bool borrow(trz_heap *h, const struct demand *d);

/* Moves every passed free block of the pool to `l`, so that neighbours join across streams and tiles that several
 * streams had a part of become wholly free. */
void borrow_join_all_locked(trz_heap *h, struct lane *l, enum kind kind);

/* The same in every pool that is not pinned, each to one of its lanes. */
void borrow_join_everywhere_locked(trz_heap *h, enum kind kind);

/* The waits of a stream for others. */
struct waits {
	unsigned count;
	unsigned streams;            /* of which this many are listed, each once */
	const struct stream *awaited[TRZ_OOM_AWAITED];
};

/* The ladder's way: makes the stream wait, on the device, for the frees of other streams' blocks that the
 * demand needs, then for other streams' uses of freed ones, and moves them to its lane; then for free tiles of other
 * pools and of the other kind, which growth with all effort can move. Only events recorded inside the frees are waited
 * for (law L8). Adds the waits to *waits. Not while it is being captured. Growth lock held. */
void borrow_with_waits(trz_heap *h, const struct demand *d, struct waits *waits);

#endif
