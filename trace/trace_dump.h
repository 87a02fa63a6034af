/* SPDX-License-Identifier: Apache-2.0
 *
 * A memory snapshot as a program reads it: the segments and blocks of all devices, and their history. Read from
 * PyTorch's pickles of any version, from their JSON, and from terrazzo's own JSON.
 *
 *     struct dump d;
 *     trz_status status = dump_load("snapshot.pickle", &d);
 *     ...
 *     dump_free(&d);
 *
 * Texts and arrays live until dump_free. Texts are never NULL: "" is none.
 */
#ifndef TRZ_TRACE_DUMP_H
#define TRZ_TRACE_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "call_site.h"
#include "terrazzo.h"

enum dump_state {
	DUMP_FREE,
	DUMP_HELD,
	DUMP_PENDING               /* freed, awaiting other streams */
};

enum dump_action {
	DUMP_ALLOC,
	DUMP_FREE_REQUESTED,
	DUMP_FREE_COMPLETED,
	DUMP_SEGMENT_ALLOC,
	DUMP_SEGMENT_FREE,
	DUMP_SEGMENT_MAP,
	DUMP_SEGMENT_UNMAP,
	DUMP_SNAPSHOT,
	DUMP_OOM,
	DUMP_OTHER                 /* annotations, and whatever newer versions add */
};

struct dump_block {
	uint64_t address, size;
	uint64_t requested;        /* <= size; 0: unknown, or the block is free */
	uint64_t stream;           /* its segment's; its own where streams share segments */
	uint32_t stack;            /* of its allocation; 0: unknown */
	enum dump_state state;
	const char *tag;
};

/* Its blocks are blocks[first] .. blocks[first + count - 1], by address, and cover it: the reader adds free blocks for
 * the gaps that the file leaves. */
struct dump_segment {
	uint64_t address, size, stream;
	uint64_t pool;             /* 0: the default pool */
	int device;
	bool expandable, small;
	uint32_t stack;
	size_t first, count;
};

struct dump_event {
	uint64_t address;          /* DUMP_OOM: the device's free bytes */
	uint64_t size;             /* as requested; for a segment, its size */
	uint64_t stream;
	uint64_t pool;
	uint64_t time_us;          /* since the epoch; 0: unknown */
	uint32_t stack;
	enum dump_action action;
	const char *tag;
};

struct dump_frame {
	const char *file, *name;
	uint32_t line;
	bool of_interpreter;       /* call_is_of_interpreter() */
};

/* Innermost first: frames[first] .. frames[first + count - 1] of stack_frames. */
struct dump_stack {
	uint32_t first, count;
};

/* What a stack shows, once dump_site() has been asked. */
struct dump_site {
	uint32_t frame;            /* of call_site_level; UINT32_MAX: the stack is not known */
	enum evidence_category category;
	enum call_gradients gradients;
	enum call_optimizer optimizer;
	unsigned modules;
	bool known, begins_step, of_program, of_file, of_model, has_python, in_own_loop;
};

/* The history of one device, oldest first: events[first] .. */
struct dump_trace {
	size_t first, count;
};

/* A mark that the program set, as PyTorch's optimizers do. DUMP_STEP_MARK: it told terrazzo that a step ended. */
#define DUMP_STEP_MARK "step"
struct dump_mark {
	const char *name;
	bool end;
	int device;
	uint64_t time_us;
};

/* A wait that terrazzo inserted into a stream, for memory that another stream had freed. */
struct dump_wait {
	uint64_t stream, awaited;
	uint64_t stalled_ns;       /* that the host waited */
	uint64_t time_us;
};

/* Memory that terrazzo moved to `address`, where it was mapped already (a flip) or was mapped then (gathering). The
 * history has an unmapping and a mapping for it, too. In the order of the history. */
struct dump_move {
	uint64_t from, address, size;
	bool flip;
};

/* Addresses that terrazzo has reserved; the first `laid` have had tiles. */
struct dump_window {
	uint64_t address, reserved, laid, pool;
	bool small;
	const char *kind;          /* "packed", "view", "dedicated", "classic", "import" */
};

enum dump_tile_state {
	DUMP_TILE_USED,
	DUMP_TILE_IDLE,            /* nothing in it is held */
	DUMP_TILE_ALIAS,           /* still mapped here, but its memory is used at `owned_at` */
	DUMP_TILE_ZOMBIE           /* the driver refused to take it back */
};

struct dump_tile {
	uint64_t address, size, owned_at;
	enum dump_tile_state state;
};

enum { DUMP_POWERS = 16 };

struct dump {
	struct dump_segment *segments;   /* by device and address */
	struct dump_block *blocks;
	struct dump_event *events;
	struct dump_trace *traces;       /* one for each device */
	struct dump_stack *stacks;       /* [0]: the unknown one, empty; no two are equal */
	struct dump_site *sites;         /* of stacks */
	uint32_t *stack_frames;          /* indices into frames */
	struct dump_frame *frames;       /* no two are equal */
	struct dump_mark *marks;
	struct dump_wait *waits;
	struct dump_move *moves;
	struct dump_window *windows;     /* by address; so are the tiles */
	struct dump_tile *tiles;
	size_t segment_count, block_count, event_count, trace_count, stack_count, frame_count, mark_count, wait_count;
	size_t move_count, window_count, tile_count;
	bool has_requested;              /* blocks have their requested sizes */
	bool terrazzo;                   /* written by terrazzo */
	bool pools_told;                 /* events have their pools */
	bool expandable;                 /* PyTorch's option; so are the next two */
	uint32_t divisions[DUMP_POWERS]; /* [i]: steps from 1 MiB << i to the next power of two that sizes round up to */
	uint64_t max_split;              /* blocks from this size on are not split; 0: all are */
	uint64_t events_noted;           /* by terrazzo since the history began; 0: unknown */
	void *report;                    /* a json_t: terrazzo's report of the failure; NULL: none */
	void *texts;                     /* storage; so is the next */
	size_t stack_frame_count;
};

/* Reads a file, also one compressed with gzip, xz or zstd; "-": standard input. Errors: IO, BAD_INPUT (no snapshot, or
 * a damaged one), HOST_MEMORY; then `d` is empty. */
trz_status dump_load(const char *path, struct dump *d);
/* Whether a file begins as a snapshot does. */
bool dump_may_be(const char *path);
trz_status dump_load_memory(const char *name, const void *bytes, size_t size, struct dump *d);
void dump_free(struct dump *d);

static inline const struct dump_frame *dump_frame(const struct dump *d, uint32_t stack, uint32_t level)
{
	return &d->frames[d->stack_frames[d->stacks[stack].first + level]];
}

#endif
