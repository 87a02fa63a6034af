/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of one device at a moment of a snapshot's history: the file shows the end, and the events since that
 * moment are undone. A snapshot is often taken after the failure that it is to explain, when much has been freed.
 */
#ifndef TRZ_TRACE_DUMP_MOMENT_H
#define TRZ_TRACE_DUMP_MOMENT_H

#include "trace_dump.h"

/* As in struct dump, blocks cover their segments. The size of a block that has been freed since is worked out from its
 * request, as its allocator does. */
struct dump_moment {
	struct dump_segment *segments;
	struct dump_block *blocks;
	size_t segment_count, block_count;
	bool complete;             /* every block that was live has its place; false: the history has gaps */
};

/* The memory of `device` before d->events[event], one of its events; d->event_count: at the end. Live blocks get stacks
 * and tags from their allocations, where the history has those. Errors: HOST_MEMORY; then `m` is empty. */
trz_status dump_moment(const struct dump *d, int device, size_t event, struct dump_moment *m);
void dump_moment_free(struct dump_moment *m);

/* What the allocator rounds a request up to, by its settings; a rest too small to split off, which it leaves with the
 * block, comes on top. */
uint64_t dump_rounded(const struct dump *d, uint64_t requested);

#endif
