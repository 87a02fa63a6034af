/* SPDX-License-Identifier: Apache-2.0
 *
 * A history played forward, step by step, with what each of the program's lines holds.
 */
#ifndef TRZ_TRACE_DUMP_PLAY_H
#define TRZ_TRACE_DUMP_PLAY_H

#include "dump_moment.h"
#include "dump_sites.h"
#include "dump_steps.h"
#include "leaks.h"
#include "trace_map.h"

/* A site's number is the index of the frame that names it, + 1; the classes of sizes follow. 0: not known. */
struct play_site {
	uint64_t now, low;         /* live bytes; the least since the newest step began */
	uint64_t count, few;       /* live allocations; the least since then */
	uint64_t before;           /* live allocations when the steps began */
	uint64_t size;             /* of its newest allocation; so is `stack` */
	uint32_t stack;
	bool told;                 /* `leaks` knows the site */
	uint64_t most, begun;      /* most bytes since it was last emptied; play.marks at that time */
	uint64_t most_count;       /* most allocations since then */
	/* What was live at the event `border`, when something of it was freed, and what of that still is: a list may be
	 * filled anew before the one in its place has been freed. old == 0: nothing has been freed since it was emptied. */
	size_t border;
	uint64_t old, old_count, most_old, most_old_count;
	uint64_t whole;            /* play.marks when half of it was live for the last time */
	struct leaks_fills fills;  /* those that took some steps */
	struct leaks_fills count_fills;  /* the same in allocations */
	bool put_together;         /* the failing line put its memory together, when it was less, since it was emptied */
};

struct dump_play {
	const struct dump *d;
	size_t first, end;
	struct dump_steps steps;
	struct leaks *leaks;
	struct play_site *sites;
	struct trace_map live;     /* address: its allocation, counted from `first` */
	uint64_t now, low, high;
	const struct play_site *begins;  /* where steps begin */
	const struct play_site *failing;  /* the line that failed; NULL: not known */
	uint64_t asked;            /* by the failing line */
	unsigned puts;
	uint64_t marks;            /* allocations at `begins`, in all of the history, whoever calls the function */
	bool requests_told, has_stacks;
	size_t allocations, frees; /* in the steps; frees of what the same step allocated */
	size_t allocations_before, frees_before;  /* those in the first half of the steps */
	size_t made, unmade;       /* allocations and frees before the steps */
	uint64_t bytes, model_bytes;  /* allocated in the steps; by models */
	uint64_t work_bytes;       /* by models, by what else trains or runs them, or unknown */
	uint64_t at_first, at_last;  /* live bytes when the steps began, and at the end of the newest */
	uint64_t rises;            /* sum over all steps: the most live bytes less the least */
};

/* Plays a device's history before d->events[event]. `m` is the memory at that moment. p->steps.count == 0: the history
 * has no steps, and was not played. Errors: HOST_MEMORY. */
trz_status dump_play(const struct dump *d, int device, size_t event, const struct dump_moment *m,
                     struct dump_play *p);
void dump_play_free(struct dump_play *p);

struct play_site *play_site_of(const struct dump_play *p, const struct dump_block *b);

/* The event that made what is live at an address; false: it is older than the history. */
bool play_event_of(const struct dump_play *p, uint64_t address, size_t *event);

#endif
