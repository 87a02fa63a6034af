/* SPDX-License-Identifier: Apache-2.0
 *
 * The history of a heap: a bounded ring of small events in which the newest replace the oldest, and the tags that
 * events carry. The heap's lock guards everything here; no function makes a call that can block; the caller provides
 * the memory. A history that is off costs one branch.
 *
 * Replayed backwards from the heap's state the kept events give its earlier states (PyTorch's viewer does so),
 * whatever the ring has forgotten, provided that
 *  - every change of what is live or laid is noted under the same hold of the lock as the change itself;
 *  - memory is noted as laid before allocations in it, and as freed before it is noted as taken away;
 *  - events are noted from the moment at which the history is started until the snapshot, or it is stopped.
 */
#ifndef TRZ_STATS_HISTORY_H
#define TRZ_STATS_HISTORY_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bits.h"
#include "ticks.h"

enum history_kind {
	HISTORY_ALLOC,             /* address, requested size, stream */
	HISTORY_FREE,              /* a free that took effect at once: stands for the next two */
	HISTORY_FREE_REQUESTED,    /* address, requested size, stream */
	HISTORY_FREE_COMPLETED,    /* that free completed: its tickets have passed */
	HISTORY_SEGMENT_ALLOC,     /* a plain driver allocation: address, size */
	HISTORY_SEGMENT_FREE,      /* its end; always whole */
	HISTORY_MAP,               /* tiles laid on a range that had no memory: address, size */
	HISTORY_UNMAP,             /* a range lost its memory, by unmapping or as an alias: address, size */
	HISTORY_FLIP,              /* memory moved: from, address, size; it was mapped at the new place already */
	HISTORY_GATHER,            /* memory moved, with a new mapping */
	HISTORY_WAIT,              /* stream waited for the stream `awaited`; size: ns that the host stalled */
	HISTORY_OOM,               /* requested size, stream, device_free */
	HISTORY_SNAPSHOT,          /* size: allocated bytes */
	HISTORY_STEP,              /* the program has ended a step; no members */
	HISTORY_KINDS
};

struct history_event {
	uint64_t time;             /* of history_clock; set by history_note */
	union {
		uint64_t address;
		uint64_t device_free;  /* HISTORY_OOM */
		uint64_t awaited;      /* HISTORY_WAIT */
	};
	uint64_t size;
	union {
		uint64_t stream;       /* the handle's value */
		uint64_t from;         /* HISTORY_FLIP, HISTORY_GATHER: the address before */
	};
	uint64_t frames;           /* the number of the caller's stack; 0: none */
	uint32_t pool;             /* 0: none */
	uint16_t tag;              /* of the table of tags; 0: none */
	uint8_t kind;              /* enum history_kind */
};

_Static_assert(sizeof(struct history_event) == 48, "history is counted in events a megabyte");

/* Turns readings into times, along a straight line through the readings of both clocks at the start and at the
 * snapshot. */
struct history_clock {
	struct ticks ticks;        /* the clock of `time`; not calibrated */
	uint64_t burst;            /* about a microsecond of it */
	uint64_t start, end;
	uint64_t start_ns, end_ns; /* the monotonic clock at start and end */
	uint64_t epoch_ns;         /* the time of day at the end */
};

struct history {
	struct history_event *ring;  /* NULL: off */
	uint32_t capacity;
	uint32_t next;             /* the slot to be written, < capacity */
	uint64_t count;            /* events noted since the start */
	uint64_t last_time;        /* the clock's newest reading */
	uint32_t unread;           /* this many events may still take last_time without a reading */
	struct history_clock clock;
};

/* Begins an empty history in `bytes` at `memory` (8-byte aligned). false, and off: not one event fits. */
bool history_start(struct history *h, void *memory, size_t bytes);

/* Forgets the stacks of all events. */
void history_forget_frames(struct history *h);

/* Forgets all events and switches the history off. Returns its memory; NULL: it was off. */
void *history_stop(struct history *h);

/* Reads the clock. */
void history_take_time(struct history *h);

/* The slot for an event of this kind, with last_time brought up to date. The history is on. */
static inline struct history_event *history_claim(struct history *h, unsigned kind)
{
	assert(h->ring && h->next < h->capacity);
	if (h->unread > 0 && kind <= HISTORY_FREE_COMPLETED)
		h->unread--;
	else
		history_take_time(h);
	struct history_event *slot = &h->ring[h->next];
	h->next = h->next + 1 == h->capacity ? 0 : h->next + 1;
	h->count++;
	return slot;
}

/* Notes an event: history_note(h, HISTORY_ALLOC, .address = a, .size = n, .stream = s). Members not given are 0; the
 * arguments are evaluated only if the history is on. Reading the counter takes longer than everything else, so in a
 * burst of allocations and frees less than about a microsecond apart only every eighth reads it: the first seven events
 * after a burst can carry its time. */
#define history_note(history, what, ...) \
	do { \
		if (UNLIKELY((history)->ring)) { \
			struct history_event *slot_ = history_claim(history, what); \
			*slot_ = (struct history_event){.time = (history)->last_time, .kind = (what), __VA_ARGS__}; \
		} \
	} while (0)

static inline uint32_t history_kept(const struct history *h)
{
	return h->count < h->capacity ? (uint32_t)h->count : h->capacity;
}

/* The newest `count` <= history_kept() events, oldest first. */
void history_copy(const struct history *h, struct history_event *out, uint32_t count);

/* Reads both clocks once more, so that times up to now can be converted. Needs no lock on a copy. */
void history_clock_settle(struct history_clock *c);

/* The time of day of a reading, in nanoseconds; an earlier reading never gets a later time. The clock is settled. */
uint64_t history_clock_epoch_ns(const struct history_clock *c, uint64_t time);

/* ---- tags ------------------------------------------------------------------------------------------- */

enum { HISTORY_TAGS = 256, HISTORY_TAG_BYTES = 64 };  /* a tag fits into 16 bits */

/* Texts by number. An entry never changes, so those below a `count` that was read under the lock can be read
 * without it. Zeroed memory is an empty table. */
struct history_tags {
	uint32_t count;
	char text[HISTORY_TAGS][HISTORY_TAG_BYTES];  /* [i]: of tag i + 1, ends with a 0 */
};

/* The number of a tag, added if it is new; 0 for the empty text. What does not fit into HISTORY_TAG_BYTES, with a final
 * 0, is cut off between characters of UTF-8. When the table is nearly full all new texts share its last entry,
 * "(other tags)". */
uint32_t history_tag(struct history_tags *t, const char *text);

/* "" for 0. tag <= count. */
static inline const char *history_tag_text(const struct history_tags *t, uint32_t tag)
{
	return tag ? t->text[tag - 1] : "";
}

#endif
