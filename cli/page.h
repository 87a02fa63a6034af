/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of `terrazzo report`: what a history says about a device's memory over time, condensed to what a screen can
 * show, and written as one HTML file.
 *
 * Time is counted in states: state 0 is before the first event, state i after event i - 1. A state has a place on the
 * page's axis: seconds since the first event or, if events have no times, its own number.
 */
#ifndef TRZ_CLI_PAGE_H
#define TRZ_CLI_PAGE_H

#include <argp.h>

#include "jsonw.h"
#include "trace_dump.h"

/* An allocation's life. Invariant: begin <= released <= end; it is held in states [begin, released), and its memory is
 * taken in [begin, end). */
struct page_life {
	uint64_t address, size;
	uint32_t begin, released, end;
	uint32_t stack;
	uint32_t tag, stream;      /* in struct page_history's lists */
};

/* How a range got its memory, or what became of the memory that it had. */
enum page_range_kind {
	PAGE_MADE,                 /* memory of its own, from the driver */
	PAGE_GATHERED,             /* moved here from elsewhere */
	PAGE_FLIPPED,              /* moved back here, where it was mapped all the time */
	PAGE_ALIAS,                /* the memory is used elsewhere, and still mapped here too */
	PAGE_HOLE                  /* had memory, which has moved away or was given back */
};

/* A range of addresses, a tile or a part of a segment, that has memory, or has lost it, in states [begin, end). */
struct page_range {
	uint64_t address, size;
	uint32_t begin, end;
	enum page_range_kind kind;
};

struct page_history {
	const struct dump *dump;
	int device;
	const struct dump_event *events;
	uint32_t count;            /* events; count + 1 states */
	double *place;             /* of states 0 .. count + 1; the last is where the last state ends */
	bool timed;                /* places are seconds */
	bool addressed;            /* addresses mean something; a trace's do not */
	struct page_life *lives;   /* by address */
	size_t life_count, life_room;
	struct page_range *ranges; /* with memory: by address; those of one address by time */
	struct page_range *gaps;   /* without: aliases and holes */
	size_t range_count, range_room, gap_count, gap_room;
	uint32_t *site_of;         /* a stack's site: its number in `sites`, where [0] is "" */
	char **sites;
	uint32_t site_count;
	const char **tags;         /* [0]: "" */
	uint64_t *streams;
	uint32_t tag_count, tag_room, stream_count, stream_room;
	uint64_t held, reserved;   /* in state 0 */
	uint64_t held_peak, reserved_peak, held_end, reserved_end;
	uint32_t peak;             /* the state in which most is held */
};

/* The arguments of commands that make something of a history (page_load.c). */
struct page_files {
	const char *in, *out;
	int device;                /* -1: not said */
};

enum { PAGE_DEVICE = 256, PAGE_OPTIONS };  /* a command's own options begin at PAGE_OPTIONS */

/* Parses what such commands have in common: -o, --device and the file. */
error_t page_option(int key, char *arg, struct argp_state *state, struct page_files *files);

/* Reads a snapshot, or a trace as if it were one; *kind says which, in words. Errors: IO, BAD_INPUT,
 * HOST_MEMORY; then `d` is empty. */
trz_status page_load(const char *file, struct dump *d, const char **kind);

/* Errors: NOT_FOUND (no such device; nothing to show), BAD_INPUT (too many events), HOST_MEMORY; then `h` is empty.
 * `file`: its name, for errors. `device`: -1 is the one with most events, else most memory. Places are by time if there
 * are times. */
trz_status page_read(const struct dump *d, const char *file, int device, struct page_history *h);

/* Places the states anew, by time or by their numbers. */
void page_place(struct page_history *h, bool by_time);
void page_free(struct page_history *h);

/* -- parts of the page's data, each a value of JSON under a key ------------------------------------------ */

/* Levels over the states: what is held, pending and reserved, condensed so that every extreme stays. */
trz_status page_put_levels(struct jsonw *j, const struct page_history *h);

/* Fragmentation at moments that lie evenly on the axis. */
trz_status page_put_fragmentation(struct jsonw *j, const struct page_history *h);

/* What is held over time by category, tag, line, stream and size. */
trz_status page_put_groups(struct jsonw *j, const struct page_history *h);

/* All lives and ranges, from which the page draws addresses over time, and tells what lies under the pointer. */
trz_status page_put_lives(struct jsonw *j, const struct page_history *h);

/* Call stacks that hold memory at the peak and at the end. */
trz_status page_put_stacks(struct jsonw *j, const struct page_history *h);

/* -- helpers ------------------------------------------------------------------------------------------- */

/* Makes room for one more item of an array. */
trz_status page_room(void *array, size_t count, size_t *room, size_t item);

/* Bytes as text in base 64: how numbers travel in bulk. */
void page_put_bytes(struct jsonw *j, const char *key, const void *bytes, size_t size);

/* Numbers with a fraction. */
void page_put_real(struct jsonw *j, double value);

/* The place of a moment on an axis of `columns` columns. */
static inline double page_column(const struct page_history *h, uint32_t state, unsigned columns)
{
	double from = h->place[0], to = h->place[h->count + 1];
	return to > from ? (h->place[state] - from) / (to - from) * columns : 0;
}

static inline bool page_holds(const struct page_life *l, uint32_t state)
{
	return l->begin <= state && state < l->released;
}

#endif
