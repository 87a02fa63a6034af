/* SPDX-License-Identifier: Apache-2.0
 *
 * The diary: the last large requests of a heap, with their lives, and what in it the program now repeats. A request is
 * known by its size and stream. While requests follow each other as they did once before, each has a match, the entry
 * of that time; where they part, the longest stretch that ends with the same requests is looked for.
 * Pure bookkeeping, guarded by the heap lock.
 */
#ifndef TRZ_ALLOC_DIARY_H
#define TRZ_ALLOC_DIARY_H

#include <stdbool.h>
#include <stdint.h>

enum {
	DIARY = 1 << 17,             /* entries that are kept */
	DIARY_CONTEXT = 32           /* so many requests in a row are a stretch that can be found again */
};

/* Numbers of entries and the clock wrap around; only differences count. */
struct diary_entry {
	uint32_t units;              /* of 512 B: its size */
	uint32_t key;                /* of size and stream */
	uint32_t context;            /* of the key and of what was freed since the entry before */
	uint32_t begun, life;        /* in ticks: allocations and frees; life 0: it has not been freed */
	uint32_t match;              /* the number of its match; its own: it has none */
	uint32_t place;              /* where the plan puts it, in units, plus one; 0: nowhere */
	uint32_t level;              /* MiB that the heap had allocated before it */
};

/* Invariant: entries [next - DIARY, next) are kept; `follow` is the entry after the newest one's match. */
struct diary {
	uint32_t next;               /* the number of the next entry */
	uint32_t clock;
	uint32_t other;              /* an entry like the newest, in a stretch that has places */
	uint32_t follow, run;        /* run: so many requests in a row had a match, at the same distance; 0: none */
	uint64_t hash;               /* of the keys of the last DIARY_CONTEXT entries */
	uint64_t oldest_factor;      /* const: what the oldest of them counts for in it when another one comes */
	uint32_t newest[DIARY];      /* by hash: the newest entry that ended such a stretch, ... */
	uint32_t older[DIARY];       /* ... and by entry, modulo DIARY, the one before it */
	struct diary_entry entry[DIARY];
};

static inline struct diary_entry *diary_entry(struct diary *d, uint32_t number)
{
	return &d->entry[number % DIARY];
}

/* Makes a zeroed diary usable. */
void diary_open(struct diary *d);

/* Notes a request; returns its number. Its place is that of its match, if that was freed within `ticks`. */
uint32_t diary_begin(struct diary *d, uint64_t size, uint64_t stream, uint64_t level, uint32_t ticks);

static inline bool diary_has_match(struct diary *d, uint32_t number)
{
	return diary_entry(d, number)->match != number;
}

/* Notes its free. Numbers that are no longer kept are ignored. */
void diary_end(struct diary *d, uint32_t number);

/* How long an entry lived, or its match, or the match of that, in ticks; 0: none of them has been freed. */
uint32_t diary_life(const struct diary *d, uint32_t number);

/* The number of requests after which the program repeats itself, 0: it does not, or has not done so for long. */
uint32_t diary_period(const struct diary *d);

#endif
