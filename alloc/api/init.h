/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of open heaps, for error messages that name the heap a pointer really belongs to, for snapshots at exit, and
 * for fork(): in the child all of them are marked as inherited, and none is open.
 */
#ifndef TRZ_ALLOC_INIT_H
#define TRZ_ALLOC_INIT_H

#include "heap/heap.h"

void init_add_heap(trz_heap *h);

/* Takes a heap off the list; waits for the walks that are under way, and until no thread holds the heap. */
void init_remove_heap(trz_heap *h);

/* Calls a function for each open heap; none is closed meanwhile, so the function must be short, and wait for no other
 * thread. */
void init_each_heap(void (*function)(trz_heap *h, void *arg), void *arg);

/* Holds the newest open heap whose serial is below `before`: it is not closed until init_let_go. NULL: there is none.
 * Others may be closed meanwhile. */
trz_heap *init_hold(uint64_t before);
void init_let_go(trz_heap *h);

/* Whether another open heap than `but` holds the address; *device is then its device. */
bool init_find_owner(const trz_heap *but, const void *address, int *device);

#endif
