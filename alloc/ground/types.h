/* SPDX-License-Identifier: Apache-2.0
 *
 * What all of alloc/ builds on: units, kinds, states of blocks. docs/design.md explains every noun ("Words") and gives
 * the reasons; docs/invariants.md has the numbered laws that check.c verifies. The nouns to begin with:
 *
 *   tile     one physical handle, mapped whole at one or more places, owned at one
 *   window   a reserved address range that tiles are laid into; it grows at its top
 *   block    a run of bytes of a window
 *   lane     one stream's part of one pool
 *   ticket   (stream, sequence number) of a free; passed when the work before it is complete
 *
 * Laws of the accounting, in bytes (L1, L2 of docs/invariants.md):
 *   blocks of a window, in address order, cover [base, top) without gap or overlap
 *   reserved = requested + rounding + pending + cached + free slots + idle + zombie
 *     requested   bytes of live allocations, as requested
 *     rounding    bytes of their slots and blocks beyond that
 *     pending     freed, waiting for a ticket before it may be reused
 *     cached      free blocks
 *     free slots  slots of slabs that no caller holds, and the rest of a slab that is too short for a slot
 *     idle        memory that an operation is moving; between operations only the edges that classic segments lose to
 *                 alignment
 *     zombie      tiles that the driver refused to take back
 *
 * Locks, in the order in which they may be taken (docs/lock-order.md):
 *   1 growth_lock  tiles, places, windows; held across driver calls; never taken by free
 *   2 heap lock    blocks, streams, counters; some tens of ns; never held across a driver call
 *   3 slots.lock   a stream's slots, while they are out (order/slots.h); some ns; never held across anything
 */
#ifndef TRZ_ALLOC_TYPES_H
#define TRZ_ALLOC_TYPES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "terrazzo_driver.h"

enum {
	UNIT = 512,           /* sizes and addresses of blocks are multiples of this, as in PyTorch */
	CELL_SHIFT = 15,
	CELL = 1 << CELL_SHIFT,
	GRANULE_SHIFT = 21,
	GRANULE = 1 << GRANULE_SHIFT,
	ADDRESS_BITS = 48,
	SLAB_SLOTS_MAX = 64
};

/* Largest request that is not refused at once: no device address space holds more. */
#define SIZE_LIMIT ((uint64_t)1 << 47)

/* Small requests live in slabs, medium ones in blocks in the windows of small memory, large ones in other windows:
 * tiles that hold small, short-lived allocations would otherwise never become wholly free. The values index counters
 * and arrays. */
enum kind { SMALL = 0, LARGE = 1, KINDS = 2 };

/* A lane keeps its free memory, and the windows that it grows in, in parts: one for each kind, and one for views
 * (view.h), which are large memory. */
enum { VIEWS = KINDS, PARTS };

/* Loops over the parts that hold memory of a kind. */
#define FOR_PARTS(part, kind) for (unsigned part = (kind); part < PARTS; part = part == LARGE ? VIEWS : PARTS)

enum block_state {
	BLOCK_FREE,  /* in its home stream's fit index */
	BLOCK_LIVE,  /* held by a caller */
	BLOCK_SLAB,  /* cut into slots */
	BLOCK_PENDING,  /* freed; waits for the tickets of other streams that used it */
	BLOCK_ENDED,  /* freed, its tickets have passed, but not free: other processes use it, or own it */
	BLOCK_HOLE,  /* address space without memory */
	BLOCK_BUSY   /* free memory that the holder of the growth lock is moving */
};

/* Sorts of dedicated memory: each lane and each window has a set of these bits; 0: packed memory. The program asks for
 * DEDICATED, with _FD or _FABRIC if it wants to export the memory that way. Debugging options set DEDICATED_ONCE: the
 * memory serves one allocation, then goes back to the driver. */
enum { DEDICATED = 1, DEDICATED_FD = 2, DEDICATED_FABRIC = 4, DEDICATED_ONCE = 8 };

struct stream;
struct lane;
struct pool;
struct window;
struct tile;
struct slab;

/* A further stream, not the home's, that uses a live block or a held slot; once that is freed, the ticket to await. */
struct use {
	struct use *next;
	struct stream *stream;
	uint64_t sequence;
	unsigned slot;               /* which slot of its slab; not used by blocks */
};

#define CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

#endif
