/* SPDX-License-Identifier: Apache-2.0
 *
 * Views. A request that is large beside what is free gets scattered tiles, laid side by side in a window of views. They
 * only visit: when the memory is free again each tile returns to its seat, where it lay before, which is still mapped.
 * So the rest of the heap is as it was, a program that repeats itself finds the same tiles free next time, and they are
 * flipped into the same view: no driver call (docs/decisions/0016-views.md).
 *
 *   window    | live | seat 1 | live | seat 2 | seat 3 | live |      while the view is live these are holes
 *                        \              \        \
 *   views     |         | tile 1 | tile 2 | tile 3 |                 a hole when they have returned
 *
 * Free memory in a view is indexed apart (VIEWS): no request is served from it but one that takes most of it. Growth
 * lets it return before it looks for memory elsewhere.
 */
#ifndef TRZ_ALLOC_VIEW_H
#define TRZ_ALLOC_VIEW_H

#include "supply/demand.h"

/* A free view of the lane's own that the demand nearly fills, cut to it; busy and counted as idle. NULL: none. */
struct block *view_take(trz_heap *h, const struct demand *d);

/* Returns the tiles of free views, where their last use has passed or is the lane's stream's own, which then waits for
 * it on the device. May poll. */
void view_return(trz_heap *h, const struct lane *l);

#endif
