/* SPDX-License-Identifier: Apache-2.0
 *
 * Undoes a history, event by event, from the end that the file shows.
 */
#include "dump_moment.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_sites.h"
#include "error.h"
#include "trace_map.h"
#include "trace_room.h"

enum { UNIT = 512 };

/* In a large segment PyTorch leaves a rest of up to this with the block before it. */
#define REST_MAX MIB(1)

/* Invariants: ranges[order[0]], ranges[order[1]], ... are sorted by address and do not overlap, so that a change moves
 * small numbers alone; blocks[live[address]] is the block there. */
struct rewind {
	const struct dump *d;
	int device;
	struct dump_segment *ranges;   /* those that are gone, too */
	uint32_t *order;               /* [order_count] */
	struct dump_block *blocks;     /* size 0: not known; state DUMP_FREE: taken back */
	struct trace_map live;
	size_t range_count, range_room, order_count, order_room, block_count, block_room;
	bool requests_told;            /* the history has DUMP_FREE_REQUESTED, not only DUMP_FREE_COMPLETED */
	bool complete;
};

/* ---- ranges ----------------------------------------------------------------------------------------- */

static struct dump_segment *range(const struct rewind *w, size_t i)
{
	return &w->ranges[w->order[i]];
}

static uint64_t range_end(const struct rewind *w, size_t i)
{
	return range(w, i)->address + range(w, i)->size;
}

/* The first range that ends after `address`. */
static size_t range_at(const struct rewind *w, uint64_t address)
{
	size_t low = 0, high = w->order_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (range_end(w, middle) <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool insert_range(struct rewind *w, size_t at, struct dump_segment new)
{
	if (!make_room(&w->ranges, w->range_count, &w->range_room, sizeof *w->ranges) ||
	    !make_room(&w->order, w->order_count, &w->order_room, sizeof *w->order))
		return false;
	memmove(w->order + at + 1, w->order + at, (w->order_count - at) * sizeof *w->order);
	w->order[at] = (uint32_t)w->range_count;
	w->order_count++;
	w->ranges[w->range_count++] = new;
	return true;
}

/* Undoes a return of memory: the range is there again. What is there already stays as it is. */
static bool add_range(struct rewind *w, struct dump_segment new)
{
	uint64_t from = new.address, end = new.address + new.size;
	for (size_t i = range_at(w, from); from < end; i++) {
		bool last = i == w->order_count || range(w, i)->address >= end;
		uint64_t to = last ? end : range(w, i)->address;
		if (to > from) {
			new.address = from;
			new.size = to - from;
			if (!insert_range(w, i++, new))
				return false;
		}
		if (last)
			return true;
		from = range_end(w, i);
	}
	return true;
}

/* Undoes the making of memory: it is not there yet. */
static bool remove_range(struct rewind *w, uint64_t from, uint64_t end)
{
	size_t i = range_at(w, from);
	if (i < w->order_count && range(w, i)->address < from && range_end(w, i) > end) {
		struct dump_segment behind = *range(w, i);
		behind.size = range_end(w, i) - end;
		behind.address = end;
		range(w, i)->size = from - range(w, i)->address;
		return insert_range(w, i + 1, behind);
	}
	if (i < w->order_count && range(w, i)->address < from) {
		range(w, i)->size = from - range(w, i)->address;
		i++;
	}
	size_t keep = i;
	for (; i < w->order_count && range_end(w, i) <= end; i++)
		;
	if (i > keep)
		memmove(w->order + keep, w->order + i, (w->order_count - i) * sizeof *w->order);
	w->order_count -= i - keep;
	if (keep < w->order_count && range(w, keep)->address < end) {
		range(w, keep)->size -= end - range(w, keep)->address;
		range(w, keep)->address = end;
	}
	return true;
}

/* ---- blocks ----------------------------------------------------------------------------------------- */

static struct dump_block *find_block(struct rewind *w, uint64_t address)
{
	uint32_t at;
	return map_get(&w->live, address, &at) ? &w->blocks[at] : NULL;
}

static bool add_block(struct rewind *w, const struct dump_block *b)
{
	if (!make_room(&w->blocks, w->block_count, &w->block_room, sizeof *w->blocks) ||
	    map_set(&w->live, b->address, (uint32_t)w->block_count) != TRZ_OK)
		return false;
	w->blocks[w->block_count++] = *b;
	return true;
}

/* PyTorch's event has the stack of the free, not of who held the block: that only the allocation tells. */
static bool revive(struct rewind *w, const struct dump_event *e, enum dump_state state)
{
	return add_block(w, &(struct dump_block){ .address = e->address, .requested = e->size, .stream = e->stream,
	                                          .stack = w->d->terrazzo ? e->stack : 0, .state = state, .tag = e->tag });
}

/* ---- taking back ------------------------------------------------------------------------------------ */

static bool take_back_free(struct rewind *w, const struct dump_event *e)
{
	struct dump_block *b = find_block(w, e->address);
	if (e->action == DUMP_FREE_COMPLETED)
		return b || revive(w, e, w->requests_told ? DUMP_PENDING : DUMP_HELD);
	if (!b)
		return revive(w, e, DUMP_HELD);
	b->state = DUMP_HELD;
	b->requested = max_u64(b->requested, min_u64(e->size, b->size ? b->size : e->size));
	return true;
}

static void take_back_alloc(struct rewind *w, const struct dump_event *e)
{
	struct dump_block *b = find_block(w, e->address);
	if (b)
		b->state = DUMP_FREE;
	else
		w->complete = false;
	map_remove(&w->live, e->address);
}

static bool take_back(struct rewind *w, const struct dump_event *e)
{
	bool fits = e->size > 0 && e->size <= UINT64_MAX - e->address;
	switch (e->action) {
	case DUMP_ALLOC:
		take_back_alloc(w, e);
		return true;
	case DUMP_FREE_REQUESTED:
	case DUMP_FREE_COMPLETED:
		return take_back_free(w, e);
	case DUMP_SEGMENT_ALLOC:
	case DUMP_SEGMENT_MAP:
		return !fits || remove_range(w, e->address, e->address + e->size);
	case DUMP_SEGMENT_FREE:
	case DUMP_SEGMENT_UNMAP:
		return !fits || add_range(w, (struct dump_segment){ .address = e->address,
		                                                    .size = e->size,
		                                                    .stream = e->stream,
		                                                    .pool = e->pool,
		                                                    .device = w->device,
		                                                    .expandable = e->action == DUMP_SEGMENT_UNMAP,
		                                                    .small = e->size == MIB(2) });
	default:
		return true;
	}
}

static bool begin(struct rewind *w)
{
	for (size_t i = 0; i < w->d->segment_count; i++) {
		const struct dump_segment *s = &w->d->segments[i];
		if (s->device != w->device)
			continue;
		if (!add_range(w, *s))
			return false;
		for (size_t k = s->first; k < s->first + s->count; k++)
			if (w->d->blocks[k].state != DUMP_FREE && !add_block(w, &w->d->blocks[k]))
				return false;
	}
	return true;
}

/* ---- what the history has missed ---------------------------------------------------------------------- */

/* PyTorch copies the history before it looks at the memory. What another thread frees in between, such as one of
 * autograd's that failed, has no event: what was allocated, was not freed and is not there at the end was live. */
static trz_status find_unfreed(const struct dump *d, const struct dump_trace *t, size_t stop, struct trace_map *unfreed)
{
	trz_status status = TRZ_OK;
	bool frees_told = false;
	for (size_t i = t->first; i < stop && status == TRZ_OK; i++) {
		const struct dump_event *e = &d->events[i];
		if (e->action == DUMP_ALLOC)
			status = map_set(unfreed, e->address, (uint32_t)i);
		if (e->action != DUMP_FREE_REQUESTED && e->action != DUMP_FREE_COMPLETED)
			continue;
		map_remove(unfreed, e->address);
		frees_told = true;
	}
	if (!frees_told) {  /* the history may leave them out */
		map_free(unfreed);
		*unfreed = (struct trace_map){ 0 };
	}
	return status;
}

static bool revive_unfreed(struct rewind *w, const struct dump_trace *t, size_t stop)
{
	struct trace_map unfreed = { 0 };
	bool done = find_unfreed(w->d, t, stop, &unfreed) == TRZ_OK;
	for (size_t i = t->first; i < stop && done; i++) {
		const struct dump_event *e = &w->d->events[i];
		uint32_t at;
		bool lives = e->action == DUMP_ALLOC && map_get(&unfreed, e->address, &at) && at == i;
		if (lives && !find_block(w, e->address))
			done = revive(w, e, DUMP_HELD);
	}
	map_free(&unfreed);
	return done;
}

/* ---- where the blocks were allocated ------------------------------------------------------------------ */

/* Where only live blocks have stacks, the events tell none; otherwise an allocation without one, as of autograd's
 * threads where Python's lines alone are recorded, does not have that of what lay there before. */
static bool find_origins(struct rewind *w, const struct dump_trace *t, size_t end)
{
	bool stacks = dump_history_has_stacks(w->d, t->first, end);
	for (size_t i = t->first; i < end; i++) {
		const struct dump_event *e = &w->d->events[i];
		struct dump_block *b = e->action == DUMP_ALLOC ? find_block(w, e->address) : NULL;
		if (!b)
			continue;
		b->stack = stacks ? e->stack : b->stack;
		b->tag = *e->tag ? e->tag : b->tag;
	}
	return true;
}

/* ---- laying it out ---------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
	const struct dump_block *x = a, *y = b;
	return (x->address > y->address) - (x->address < y->address);
}

/* Live blocks alone, sorted. */
static void sort_blocks(struct rewind *w)
{
	size_t count = 0;
	for (size_t i = 0; i < w->block_count; i++) {
		uint32_t at;
		bool live = w->blocks[i].state != DUMP_FREE && map_get(&w->live, w->blocks[i].address, &at) && at == i;
		if (live)
			w->blocks[count++] = w->blocks[i];
	}
	w->block_count = count;
	if (count)
		qsort(w->blocks, count, sizeof *w->blocks, by_address);
}

static bool joins(const struct dump_segment *a, const struct dump_segment *b)
{
	return a->expandable && b->expandable && a->address + a->size == b->address && a->stream == b->stream &&
	       a->pool == b->pool;
}

/* The ranges in their order, in an array of their own. */
static bool put_ranges(const struct rewind *w, struct dump_moment *m)
{
	m->segments = malloc((w->order_count + !w->order_count) * sizeof *m->segments);
	for (size_t i = 0; i < w->order_count && m->segments; i++) {
		struct dump_segment *last = m->segment_count ? &m->segments[m->segment_count - 1] : NULL;
		if (last && joins(last, range(w, i)))
			last->size += range(w, i)->size;
		else
			m->segments[m->segment_count++] = *range(w, i);
	}
	return m->segments != NULL;
}

uint64_t dump_rounded(const struct dump *d, uint64_t requested)
{
	uint64_t size = max_u64(requested, 1), floor = UINT64_C(1) << log2_floor(size);
	unsigned power = log2_floor(max_u64(floor >> 20, 1));
	uint32_t divisions = d->divisions[min_u64(power, DUMP_POWERS - 1)];
	if (divisions < 2 || size <= (uint64_t)UNIT * divisions || size > UINT64_MAX / 2)
		return size > UINT64_MAX - UNIT ? size : align_up(size, UNIT);
	uint64_t part = max_u64(floor >> log2_floor(divisions), 1);
	return size == floor ? size : (size & ~(part - 1)) + part;
}

/* The size of the block that the allocator gave for a request, out of `room` bytes. */
static uint64_t given(const struct dump *d, const struct dump_segment *s, uint64_t requested, uint64_t room)
{
	uint64_t size = min_u64(room, dump_rounded(d, min_u64(requested, room)));
	bool whole = d->max_split && size >= d->max_split;
	bool keeps_rest = !s->expandable && !s->small && (whole || room - size <= REST_MAX);
	return keeps_rest ? room : size;
}

static bool put_block(struct dump_moment *m, size_t *room, const struct dump_block *b)
{
	if (b->size == 0)
		return true;
	if (!make_room(&m->blocks, m->block_count, room, sizeof *m->blocks))
		return false;
	m->blocks[m->block_count++] = *b;
	return true;
}

static bool put_gap(struct dump_moment *m, size_t *room, const struct dump_segment *s, uint64_t from, uint64_t to)
{
	return put_block(m, room, &(struct dump_block){ .address = from, .size = to - from, .stream = s->stream,
	                                                .tag = "" });
}

/* Puts the blocks of a range, from blocks[*next] on; *next is then the first one after the range. */
static bool put_range(struct rewind *w, struct dump_moment *m, size_t *room, struct dump_segment *s, size_t *next)
{
	uint64_t at = s->address, end = s->address + s->size;
	s->first = m->block_count;
	for (; *next < w->block_count && w->blocks[*next].address < end; ++*next) {
		struct dump_block b = w->blocks[*next];
		if (b.address < at) {
			w->complete = false;
			continue;
		}
		bool followed = *next + 1 < w->block_count && w->blocks[*next + 1].address < end;
		uint64_t most = (followed ? w->blocks[*next + 1].address : end) - b.address;
		b.size = b.size ? min_u64(b.size, most) : given(w->d, s, b.requested, most);
		b.requested = min_u64(b.requested, b.size);
		if (!put_gap(m, room, s, at, b.address) || !put_block(m, room, &b))
			return false;
		at = b.address + b.size;
	}
	if (!put_gap(m, room, s, at, end))
		return false;
	s->count = m->block_count - s->first;
	return true;
}

static bool lay_out(struct rewind *w, struct dump_moment *m)
{
	size_t room = 0, next = 0;
	sort_blocks(w);
	if (!put_ranges(w, m))
		return false;
	for (size_t i = 0; i < m->segment_count; i++)
		if (!put_range(w, m, &room, &m->segments[i], &next))
			return false;
	m->complete = w->complete && next == w->block_count;
	return true;
}

static bool has_requests(const struct dump *d, const struct dump_trace *t)
{
	for (size_t i = t->first; i < t->first + t->count; i++)
		if (d->events[i].action == DUMP_FREE_REQUESTED)
			return true;
	return false;
}

static bool go_back(struct rewind *w, size_t event, struct dump_moment *m)
{
	static const struct dump_trace none;
	const struct dump_trace *t = (size_t)w->device < w->d->trace_count ? &w->d->traces[w->device] : &none;
	size_t end = t->first + t->count;
	size_t stop = min_u64(max_u64(event, t->first), end);
	w->requests_told = has_requests(w->d, t);
	if (!begin(w))
		return false;
	for (size_t i = end; i > stop; i--)
		if (!take_back(w, &w->d->events[i - 1]))
			return false;
	bool failed = stop < end && w->d->events[stop].action == DUMP_OOM;
	if (failed && !w->d->terrazzo && !revive_unfreed(w, t, stop))
		return false;
	return find_origins(w, t, stop) && lay_out(w, m);
}

trz_status dump_moment(const struct dump *d, int device, size_t event, struct dump_moment *m)
{
	struct rewind w = { .d = d, .device = device, .complete = true };
	*m = (struct dump_moment){ 0 };
	bool done = go_back(&w, event, m);
	free(w.ranges);
	free(w.order);
	free(w.blocks);
	map_free(&w.live);
	if (done)
		return TRZ_OK;
	dump_moment_free(m);
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to go back in a history of %zu events", d->event_count);
}

void dump_moment_free(struct dump_moment *m)
{
	free(m->segments);
	free(m->blocks);
	*m = (struct dump_moment){ 0 };
}
