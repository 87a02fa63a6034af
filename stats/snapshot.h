/* SPDX-License-Identifier: Apache-2.0
 *
 * A snapshot: the memory of a heap and its history at one moment, written as JSON in the schema of PyTorch's
 * memory snapshots, which its viewer reads. The heap copies its state into the snapshot's arrays under its lock;
 * sorting, checking and writing need no lock:
 *
 *     struct snapshot s = {.memory = ..., .device = ...};
 *     do {
 *         status = snapshot_reserve(&s);            asks for host memory, so without the lock
 *         lock; add ranges, blocks and the history, in any order; unlock
 *     } while (!snapshot_fits(&s));
 *     status = snapshot_seal(&s); status = snapshot_to_file(&s, path, &size); snapshot_free(&s);
 *
 * Add only memory in use: the parts of a range that no block covers are written as inactive. Windows are shared
 * by streams, so segments are written with stream 0; the viewer joins and cuts segments by stream. A range may
 * change its pool only by HISTORY_UNMAP and HISTORY_MAP, since ranges of different pools are not joined.
 *
 * Whatever has a call stack is written with its number, "stack", and with the stack itself, "frames": where it occurs
 * first, and again while the file has few stacks. After that "frames" is empty.
 */
#ifndef TRZ_STATS_SNAPSHOT_H
#define TRZ_STATS_SNAPSHOT_H

#include "history.h"
#include "jsonw.h"
#include "terrazzo.h"

/* Addresses that hold memory. Neighbours of one kind become one segment, so that tiles can be added one by one; plain
 * driver allocations (not expandable) stay separate. */
struct snapshot_range {
	uint64_t address, size;
	uint32_t pool;
	bool small;
	bool expandable;
	bool apart;                /* a segment of its own, even beside others */
};

enum snapshot_window_kind { WINDOW_PACKED, WINDOW_VIEW, WINDOW_DEDICATED, WINDOW_CLASSIC, WINDOW_IMPORT };

/* A window. Tiles have been laid in the first `laid` bytes of its reserved addresses. */
struct snapshot_window {
	uint64_t address, reserved, laid;
	uint32_t pool;
	bool small;
	uint8_t kind;              /* enum snapshot_window_kind */
};

/* One mapping of a tile, in a window. */
struct snapshot_tile {
	uint64_t address, size;
	uint64_t owned_at;         /* where the tile is owned: if elsewhere, this is a stale alias; 0: nowhere any more */
};

/* A block or slot that is held, or freed and waiting for tickets. */
struct snapshot_block {
	uint64_t address, size;
	uint64_t requested;        /* <= size */
	uint64_t stream;           /* the handle's value */
	bool pending;
	bool known;                /* the history has its allocation; set by snapshot_seal, as is `tag` */
	uint64_t frames;           /* the number of the stack that allocated it */
	uint32_t tag;              /* its allocation's, if the history still has that */
};

struct snapshot_frame {
	const char *filename, *name;
	uint64_t line;
};

/* Host memory. `alloc` gives 8-byte aligned memory, NULL when there is none. */
struct snapshot_memory {
	void *(*alloc)(void *owner, size_t size);
	void (*free)(void *owner, void *memory);
	void *owner;
};

/* What goes into allocator_settings; the texts live until the snapshot has been written. */
struct snapshot_setting {
	const char *key, *value;
};

enum { SNAPSHOT_FRAMES_MAX = 64, SNAPSHOT_PATH = 4096 };

/* Writes up to SNAPSHOT_FRAMES_MAX frames of a stack to `out`, innermost first, and returns their number. Called
 * while writing, without a lock; the texts live until the next call. */
typedef size_t snapshot_frames(void *owner, uint64_t frames, struct snapshot_frame *out);

/* Writes what is known of the failure that the snapshot shows, as one value. */
typedef void snapshot_report(struct jsonw *j, void *owner);

/* What its writer needs besides: stacks may be small. */
struct snapshot_room {
	char path[SNAPSHOT_PATH];
	char buffer[16384];
};

/* The arrays and the room share the allocation at `events`. A count above its capacity includes what did not fit. After
 * snapshot_seal all arrays are sorted, ranges are segments and every block lies in one. */
struct snapshot {
	/* set by the caller before the first call; all but `memory` may be zero */
	struct snapshot_memory memory;
	int device;
	const struct history_tags *tags;
	snapshot_frames *frames;
	void *frames_owner;
	snapshot_report *report;
	void *report_owner;
	const struct snapshot_setting *settings;
	size_t setting_count;

	struct snapshot_stacks *stacks;  /* while it is written */

	struct history_event *events;
	struct snapshot_block *blocks;
	struct snapshot_range *ranges;
	struct snapshot_window *windows;
	struct snapshot_tile *tiles;
	struct snapshot_room *room;
	size_t event_count, block_count, range_count, window_count, tile_count;
	size_t event_capacity, block_capacity, range_capacity, window_capacity, tile_capacity;
	size_t event_most;         /* the most events that the history can keep; 0: not known yet */
	size_t event_limit;        /* only so many of the newest events are copied; 0: all */
	uint64_t events_noted;     /* events since the history's start; event_count of them are kept */
	uint32_t tag_count;        /* tags that the kept events can have */
	struct history_clock clock;
};

/* Empties the snapshot and makes room for as much as was added last, and some more. Errors: HOST_MEMORY. */
trz_status snapshot_reserve(struct snapshot *s);

static inline void snapshot_add_range(struct snapshot *s, struct snapshot_range range)
{
	if (s->range_count < s->range_capacity)
		s->ranges[s->range_count] = range;
	s->range_count++;
}

static inline void snapshot_add_block(struct snapshot *s, struct snapshot_block block)
{
	if (s->block_count < s->block_capacity)
		s->blocks[s->block_count] = block;
	s->block_count++;
}

static inline void snapshot_add_window(struct snapshot *s, struct snapshot_window window)
{
	if (s->window_count < s->window_capacity)
		s->windows[s->window_count] = window;
	s->window_count++;
}

static inline void snapshot_add_tile(struct snapshot *s, struct snapshot_tile tile)
{
	if (s->tile_count < s->tile_capacity)
		s->tiles[s->tile_count] = tile;
	s->tile_count++;
}

/* To be called once per filling; a history that is off adds nothing. */
void snapshot_add_history(struct snapshot *s, const struct history *h);

/* Drops the oldest events of a sealed snapshot until it takes at most `bytes` to write. false: it takes more even
 * without any. */
bool snapshot_shorten(struct snapshot *s, uint64_t bytes);

static inline bool snapshot_fits(const struct snapshot *s)
{
	return s->event_count <= s->event_capacity && s->block_count <= s->block_capacity &&
	       s->range_count <= s->range_capacity && s->window_count <= s->window_capacity &&
	       s->tile_count <= s->tile_capacity;
}

/* Sorts, joins and checks what was added. Errors: CORRUPT (ranges or blocks overlap, a block lies in no range, is
 * shorter than its request, or is empty). */
trz_status snapshot_seal(struct snapshot *s);

void snapshot_free(struct snapshot *s);

/* ---- what a sealed snapshot says, for other writers --------------------------------------------------- */

/* Calls the visitor's callbacks, in the order that terrazzo.h describes. */
void snapshot_walk(const struct snapshot *s, const trz_visitor *visitor);

/* ---- writing a sealed snapshot ---------------------------------------------------------------------- */

/* Errors: IO (the sink refused). */
trz_status snapshot_write(const struct snapshot *s, jsonw_sink *sink, void *owner);

#endif
