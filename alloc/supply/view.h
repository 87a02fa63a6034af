/* SPDX-License-Identifier: Apache-2.0
 *
 * Views. A request that is large compared with what is free gets scattered tiles, laid side by side in a window of
 * views. They only visit: when the memory is free again, each tile returns to its seat, where it lay before and is
 * still mapped. So the rest of the heap is as it was. A program that repeats itself finds the same tiles free next
 * time, and the heap flips them into the same view, without a driver call (docs/decisions/0016-views.md).
 *
 *   window    | live | seat 1 | live | seat 2 | seat 3 | live |      while the view is live these are holes
 *                        \              \        \
 *   views     |         | tile 1 | tile 2 | tile 3 |                 a hole when they have returned
 *
 * Free memory in a view is indexed apart (VIEWS): only a request that takes most of it is served from it. Growth lets
 * it return before it looks for memory elsewhere.
 */
#ifndef TRZ_ALLOC_VIEW_H
#define TRZ_ALLOC_VIEW_H

#include "supply/demand.h"

/* Takes a free view of the lane's own that the demand nearly fills, and cuts it to size; it is busy and counts as idle.
 * NULL: there is none. */
struct block *view_take(trz_heap *h, const struct demand *d);

/* Returns the tiles of free views whose last use has passed, or is the lane's own stream's. May poll. */
void view_return(trz_heap *h, const struct lane *l);

#endif
