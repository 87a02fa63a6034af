/* SPDX-License-Identifier: Apache-2.0
 *
 * Announcing mappings to the program (trz_set_map_callback). Notices follow mappings, not owners: when a tile's
 * ownership moves, the old mapping stays, with its memory behind it, until it is unmapped as an alias.
 *
 * All functions are called with the growth lock held, and give it back while the callback runs: no other thread can
 * reach the memory meanwhile, thanks to a busy block or to `leaving` and `pins` of its places and tiles
 * (docs/lock-order.md). The caller must read again everything else that it has read under the lock. Without a callback
 * they do nothing.
 */
#ifndef TRZ_ALLOC_NOTICE_H
#define TRZ_ALLOC_NOTICE_H

#include "heap/heap.h"

/* Sets the callback and announces all existing mappings to it. */
void notice_set(trz_heap *h, trz_map_callback *callback, void *user);

/* Announces the new mappings under a busy block. */
void notice_mapped(trz_heap *h, struct block *b);

/* Announces that all mappings of a tile, whose block is busy, go; only classic segments need the window. */
void notice_leaving(trz_heap *h, struct window *w, struct tile *tile);

/* Announces that these aliases go. Their tiles have no pins. */
void notice_aliases_leaving(trz_heap *h, struct place *const *aliases, size_t n);

/* Announces that all mappings of the heap go; no other thread is inside it. */
void notice_all_leaving(trz_heap *h);

/* The driver has refused to unmap these aliases, so they are announced again. */
void notice_aliases_back(trz_heap *h, struct place *const *aliases, size_t n);

/* The driver has refused to unmap some mapping of a tile that was announced as leaving, so it is announced again. */
void notice_back(trz_heap *h, struct window *w, struct tile *tile);

#endif
