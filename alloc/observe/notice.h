/* SPDX-License-Identifier: Apache-2.0
 *
 * Telling the program what is mapped (trz_set_map_callback), in mappings, not in owners: where a tile's ownership
 * goes elsewhere the old mapping stays, with the same memory behind it, until it is unmapped as an alias.
 *
 * All functions are called with the growth lock held, and give it back while the callback runs: what it speaks of
 * is out of everyone's reach meanwhile, under a busy block or by `leaving` and `pins` of its places and tiles
 * (docs/lock-order.md). What else the caller has read under the lock must be read again. Without a callback they do
 * nothing.
 */
#ifndef TRZ_ALLOC_NOTICE_H
#define TRZ_ALLOC_NOTICE_H

#include "heap/heap.h"

/* Sets the callback and tells it of everything that is mapped. */
void notice_set(trz_heap *h, trz_map_callback *callback, void *user);

/* Tells of the new mappings under a busy block. */
void notice_mapped(trz_heap *h, struct block *b);

/* Tells that all mappings of a tile go, whose block is busy; the window counts for classic segments only. */
void notice_leaving(trz_heap *h, struct window *w, struct tile *tile);

/* Tells that these aliases go. Their tiles have no pins. */
void notice_aliases_leaving(trz_heap *h, struct place *const *aliases, size_t n);

/* Tells that all mappings of the heap go; no other thread is inside it. */
void notice_all_leaving(trz_heap *h);

/* The driver has refused to unmap these. */
void notice_aliases_back(trz_heap *h, struct place *const *aliases, size_t n);

/* The driver has refused to unmap some mapping of a tile that was told to leave: it is there again. */
void notice_back(trz_heap *h, struct window *w, struct tile *tile);

#endif
