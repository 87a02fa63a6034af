/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other streams: free blocks whose tickets have passed may change their home.
 */
#ifndef TRZ_ALLOC_BORROW_H
#define TRZ_ALLOC_BORROW_H

#include "supply/demand.h"

/* Gives free blocks of the pool's other lanes, as far as these can lend them, to the demand's lane: the best fit where
 * one will do, else neighbours that are enough together with what the lane has. If there are none, it asks the driver
 * how far the streams are and looks again; if that is in vain, it takes all large blocks, so that they join. true: the
 * lane may now have a block of the demand's bytes. Waits for nothing; with one stream it does nothing. Growth lock
 * held. */
bool borrow(trz_heap *h, const struct demand *d);

/* Gives `l` every free block of its pool that it may have, so that neighbours join across streams, and tiles that
 * several streams had a part of become wholly free. */
void borrow_join_all_locked(trz_heap *h, struct lane *l, enum kind kind);

/* The same in every pool that is not pinned, each to one of its lanes. */
void borrow_join_everywhere_locked(trz_heap *h, enum kind kind);

/* The waits of a stream for others. */
struct waits {
	unsigned count;
	unsigned streams;            /* of which this many are listed, each once */
	const struct stream *awaited[TRZ_OOM_AWAITED];
};

/* For the ladder: makes the demand's stream wait, on the device, for other streams' frees of the blocks that it needs,
 * then for other streams' uses of freed blocks, and gives all these blocks to its lane; then for free tiles of other
 * pools and of the other kind, which growth with all effort can move. It waits only for exact events (law L8). Adds the
 * waits to *waits. Does nothing while the stream is being captured. Growth lock held. */
void borrow_with_waits(trz_heap *h, const struct demand *d, struct waits *waits);

#endif
