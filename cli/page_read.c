/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a history into lives of allocations and of ranges that have memory. What the history does not show is taken
 * from the snapshot's own state: what is live at the end, but was not allocated in the history, has always been there.
 */
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_sites.h"
#include "error.h"
#include "page.h"
#include "trace_map.h"

trz_status page_room(void *array, size_t count, size_t *room, size_t item)
{
	void **items = array;
	if (count < *room)
		return TRZ_OK;
	size_t grown = max_u64(64, *room + *room / 2);
	void *moved = realloc(*items, grown * item);
	if (!moved)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory to read the history");
	*items = moved;
	*room = grown;
	return TRZ_OK;
}

struct reading {
	struct page_history *h;
	struct trace_map open;     /* address -> index of the life that is taking it */
	struct trace_map tags, streams;
	uint64_t *bounds;          /* of ranges, ascending, each once */
	uint32_t *since;           /* for each piece between bounds: 1 + the state since which it has memory; 0: none */
	uint32_t *left;            /* 1 + the state in which it lost memory; 0: it has some, or never had */
	unsigned char *kind;       /* enum page_range_kind, of the memory that it has */
	bool *seen;                /* an event has named the piece */
	size_t bound_count, bound_room;
	size_t moved;              /* of the dump's moves: the next that the history comes to */
};

/* ---- tags and streams --------------------------------------------------------------------------------- */

static uint64_t text_key(const char *text)
{
	uint64_t key = 14695981039346656037u;
	for (; *text; text++)
		key = (key ^ (unsigned char)*text) * 1099511628211u;
	return key;
}

static trz_status tag_number(struct reading *r, const char *tag, uint32_t *number)
{
	struct page_history *h = r->h;
	uint64_t key = text_key(tag);
	while (map_get(&r->tags, key, number)) {
		if (strcmp(h->tags[*number], tag) == 0)
			return TRZ_OK;
		key++;
	}
	size_t room = h->tag_room;
	trz_status status = page_room(&h->tags, h->tag_count, &room, sizeof *h->tags);
	h->tag_room = (uint32_t)room;
	if (status != TRZ_OK)
		return status;
	*number = h->tag_count;
	h->tags[h->tag_count++] = tag;
	return map_set(&r->tags, key, *number);
}

static trz_status stream_number(struct reading *r, uint64_t stream, uint32_t *number)
{
	struct page_history *h = r->h;
	if (map_get(&r->streams, stream, number))
		return TRZ_OK;
	size_t room = h->stream_room;
	trz_status status = page_room(&h->streams, h->stream_count, &room, sizeof *h->streams);
	h->stream_room = (uint32_t)room;
	if (status != TRZ_OK)
		return status;
	*number = h->stream_count;
	h->streams[h->stream_count++] = stream;
	return map_set(&r->streams, stream, *number);
}

/* ---- sites -------------------------------------------------------------------------------------------- */

/* The slot of a site's number by its text, which is new if the slot is 0. */
static size_t site_slot(const struct page_history *h, const uint32_t *slots, size_t room, const char *text)
{
	size_t at = text_key(text) % room;
	while (slots[at] && strcmp(h->sites[slots[at]], text) != 0)
		at = (at + 1) % room;
	return at;
}

/* Stacks that come from one line of the program have one number; 0: no stack. */
static trz_status read_sites(struct page_history *h)
{
	const struct dump *d = h->dump;
	size_t room = 2 * d->stack_count + 2;
	uint32_t *slots = calloc(room, sizeof *slots);
	char text[DUMP_SITE_BYTES];
	h->site_of = calloc(d->stack_count + 1, sizeof *h->site_of);
	h->sites = calloc(d->stack_count + 1, sizeof *h->sites);
	bool ok = slots && h->site_of && h->sites && (h->sites[0] = strdup(""));
	h->site_count = ok ? 1 : 0;
	for (uint32_t i = 1; ok && i < d->stack_count; i++) {
		if (!dump_site_text(d, i, text))
			continue;
		size_t at = site_slot(h, slots, room, text);
		if (!slots[at] && (h->sites[h->site_count] = strdup(text)))
			slots[at] = h->site_count++;
		ok = slots[at];
		h->site_of[i] = slots[at];
	}
	free(slots);
	return ok ? TRZ_OK : trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for %zu call stacks", d->stack_count);
}

/* ---- lives ---------------------------------------------------------------------------------------------- */

static trz_status add_life(struct reading *r, struct page_life life, const char *tag, uint64_t stream)
{
	struct page_history *h = r->h;
	trz_status status = tag_number(r, tag, &life.tag);
	if (status == TRZ_OK)
		status = stream_number(r, stream, &life.stream);
	if (status == TRZ_OK)
		status = page_room(&h->lives, h->life_count, &h->life_room, sizeof life);
	if (status == TRZ_OK)
		h->lives[h->life_count++] = life;
	return status;
}

/* Begins a life that nothing has ended yet. */
static trz_status open_life(struct reading *r, uint32_t state, const struct dump_event *e)
{
	uint32_t last = r->h->count + 1, index;
	if (map_get(&r->open, e->address, &index)) {  /* the history lost its free */
		struct page_life *lost = &r->h->lives[index];
		lost->released = (uint32_t)min_u64(lost->released, state);
		lost->end = state;
	}
	trz_status status = map_set(&r->open, e->address, (uint32_t)r->h->life_count);
	if (status != TRZ_OK)
		return status;
	return add_life(r, (struct page_life){ e->address, e->size, state, last, last, e->stack, 0, 0 }, e->tag, e->stream);
}

static trz_status release_life(struct reading *r, uint32_t state, const struct dump_event *e, bool completed)
{
	uint32_t index;
	if (!map_get(&r->open, e->address, &index)) {  /* it began before the history */
		uint32_t last = r->h->count + 1;
		trz_status status = completed ? TRZ_OK : map_set(&r->open, e->address, (uint32_t)r->h->life_count);
		if (status != TRZ_OK)
			return status;
		return add_life(r, (struct page_life){ e->address, e->size, 0, state, completed ? state : last, 0, 0, 0 }, "",
		                e->stream);
	}
	struct page_life *l = &r->h->lives[index];
	l->released = (uint32_t)min_u64(l->released, state);
	if (completed) {  /* if right after the request, the free took effect at once */
		l->end = state == l->released + 1 ? l->released : state;
		map_remove(&r->open, e->address);
	}
	return TRZ_OK;
}

static trz_status read_lives(struct reading *r)
{
	trz_status status = TRZ_OK;
	for (uint32_t i = 0; i < r->h->count && status == TRZ_OK; i++) {
		const struct dump_event *e = &r->h->events[i];
		if (e->action == DUMP_ALLOC)
			status = open_life(r, i + 1, e);
		else if (e->action == DUMP_FREE_REQUESTED || e->action == DUMP_FREE_COMPLETED)
			status = release_life(r, i + 1, e, e->action == DUMP_FREE_COMPLETED);
	}
	return status;
}

/* Blocks that the snapshot has and the history does not have always been there. */
static trz_status read_blocks(struct reading *r, const struct dump_segment *s)
{
	uint32_t last = r->h->count + 1, index;
	for (size_t i = s->first; i < s->first + s->count; i++) {
		const struct dump_block *b = &r->h->dump->blocks[i];
		if (b->state == DUMP_FREE || map_get(&r->open, b->address, &index))
			continue;
		uint64_t size = b->requested ? b->requested : b->size;
		struct page_life life = { b->address, size, 0, b->state == DUMP_HELD ? last : 0, last, b->stack, 0, 0 };
		trz_status status = add_life(r, life, b->tag, b->stream);
		if (status != TRZ_OK)
			return status;
	}
	return TRZ_OK;
}

/* ---- ranges ----------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static trz_status add_bounds(struct reading *r, uint64_t address, uint64_t size)
{
	trz_status status = page_room(&r->bounds, r->bound_count + 1, &r->bound_room, sizeof *r->bounds);
	if (status == TRZ_OK) {
		r->bounds[r->bound_count++] = address;
		r->bounds[r->bound_count++] = address + size;
	}
	return status;
}

static bool lays(const struct dump_event *e)
{
	return e->action == DUMP_SEGMENT_ALLOC || e->action == DUMP_SEGMENT_MAP;
}

static bool takes(const struct dump_event *e)
{
	return e->action == DUMP_SEGMENT_FREE || e->action == DUMP_SEGMENT_UNMAP;
}

static bool is_ours(const struct page_history *h, const struct dump_segment *s)
{
	return s->device == h->device;
}

static trz_status collect_bounds(struct reading *r)
{
	const struct page_history *h = r->h;
	trz_status status = TRZ_OK;
	for (uint32_t i = 0; i < h->count && status == TRZ_OK; i++)
		if (lays(&h->events[i]) || takes(&h->events[i]))
			status = add_bounds(r, h->events[i].address, h->events[i].size);
	for (size_t i = 0; i < h->dump->segment_count && status == TRZ_OK; i++)
		if (is_ours(h, &h->dump->segments[i]))
			status = add_bounds(r, h->dump->segments[i].address, h->dump->segments[i].size);
	for (size_t i = 0; i < h->dump->tile_count && status == TRZ_OK; i++)
		status = add_bounds(r, h->dump->tiles[i].address, h->dump->tiles[i].size);
	if (status != TRZ_OK || r->bound_count == 0)
		return status;
	qsort(r->bounds, r->bound_count, sizeof *r->bounds, by_value);
	size_t kept = 1;
	for (size_t i = 1; i < r->bound_count; i++)
		if (r->bounds[i] != r->bounds[kept - 1])
			r->bounds[kept++] = r->bounds[i];
	r->bound_count = kept;
	r->since = calloc(kept, sizeof *r->since);
	r->left = calloc(kept, sizeof *r->left);
	r->kind = calloc(kept, sizeof *r->kind);
	r->seen = calloc(kept, sizeof *r->seen);
	bool ok = r->since && r->left && r->kind && r->seen;
	return ok ? TRZ_OK : trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for %zu ranges", kept);
}

static size_t piece_at(const struct reading *r, uint64_t address)
{
	const uint64_t *found = bsearch(&address, r->bounds, r->bound_count, sizeof *r->bounds, by_value);
	return (size_t)(found - r->bounds);
}

static trz_status add_range(struct reading *r, size_t piece, uint32_t begin, uint32_t end, enum page_range_kind kind)
{
	struct page_history *h = r->h;
	uint64_t address = r->bounds[piece], size = r->bounds[piece + 1] - address;
	struct page_range range = { address, size, begin, end, kind };
	trz_status status = page_room(&h->ranges, h->range_count, &h->range_room, sizeof range);
	if (status == TRZ_OK && begin < end)
		h->ranges[h->range_count++] = range;
	return status;
}

/* Adds the time since a piece lost its memory. */
static trz_status add_gap(struct reading *r, size_t piece, uint32_t end, bool mapped)
{
	struct page_history *h = r->h;
	uint32_t begin = r->left[piece] ? r->left[piece] - 1 : 0;
	struct page_range range = { r->bounds[piece], r->bounds[piece + 1] - r->bounds[piece], begin, end,
		                        mapped ? PAGE_ALIAS : PAGE_HOLE };
	if ((!r->left[piece] && !mapped) || begin >= end)
		return TRZ_OK;
	trz_status status = page_room(&h->gaps, h->gap_count, &h->gap_room, sizeof range);
	if (status == TRZ_OK)
		h->gaps[h->gap_count++] = range;
	return status;
}

static trz_status lay_piece(struct reading *r, size_t i, uint32_t state, enum page_range_kind kind)
{
	trz_status status = r->since[i] ? TRZ_OK : add_gap(r, i, state, kind == PAGE_FLIPPED);
	if (!r->since[i]) {
		r->since[i] = state + 1;
		r->kind[i] = (unsigned char)kind;
	}
	r->left[i] = 0;
	return status;
}

static trz_status take_piece(struct reading *r, size_t i, uint32_t state)
{
	uint32_t since = r->since[i];
	if (!since && r->seen[i])
		return TRZ_OK;
	r->h->reserved += since ? 0 : r->bounds[i + 1] - r->bounds[i];
	r->since[i] = 0;
	r->left[i] = state + 1;
	return add_range(r, i, since ? since - 1 : 0, state, since ? r->kind[i] : PAGE_MADE);
}

/* A range gets memory in this state, or loses it. What it loses, but was never seen to get, it has always had. */
static trz_status turn(struct reading *r, const struct dump_event *e, uint32_t state, enum page_range_kind kind)
{
	trz_status status = TRZ_OK;
	for (size_t i = piece_at(r, e->address); r->bounds[i] < e->address + e->size && status == TRZ_OK; i++) {
		status = lays(e) ? lay_piece(r, i, state, kind) : take_piece(r, i, state);
		r->seen[i] = true;
	}
	return status;
}

/* Where the memory that an event lays comes from, by the event before it and terrazzo's own list of moves. */
static enum page_range_kind origin(struct reading *r, const struct dump_event *e)
{
	const struct dump *d = r->h->dump;
	const struct dump_move *m = r->moved < d->move_count ? &d->moves[r->moved] : NULL;
	if (!m || e == r->h->events || !takes(e - 1) || m->address != e->address || m->from != e[-1].address ||
	    m->size != e->size)
		return PAGE_MADE;
	r->moved++;
	return m->flip ? PAGE_FLIPPED : PAGE_GATHERED;
}

/* At the end: adds what the snapshot has without any event, and ends what is still open. */
static trz_status close_ranges(struct reading *r)
{
	struct page_history *h = r->h;
	trz_status status = TRZ_OK;
	for (size_t k = 0; k < h->dump->segment_count; k++) {
		const struct dump_segment *s = &h->dump->segments[k];
		if (!is_ours(h, s) || !s->size)
			continue;
		for (size_t i = piece_at(r, s->address); r->bounds[i] < s->address + s->size; i++)
			if (!r->seen[i] && !r->since[i]) {
				r->since[i] = 1;
				h->reserved += r->bounds[i + 1] - r->bounds[i];
			}
	}
	for (size_t i = 0, tile = 0; i + 1 < r->bound_count && status == TRZ_OK; i++) {
		while (tile < h->dump->tile_count && h->dump->tiles[tile].address + h->dump->tiles[tile].size <= r->bounds[i])
			tile++;
		const struct dump_tile *t = tile < h->dump->tile_count ? &h->dump->tiles[tile] : NULL;
		bool mapped = t && t->address <= r->bounds[i] && t->state != DUMP_TILE_USED && t->state != DUMP_TILE_IDLE;
		if (r->since[i])
			status = add_range(r, i, r->since[i] - 1, h->count + 1, r->kind[i]);
		else
			status = add_gap(r, i, h->count + 1, mapped);
	}
	return status;
}

static trz_status read_ranges(struct reading *r)
{
	const struct page_history *h = r->h;
	trz_status status = collect_bounds(r);
	for (uint32_t i = 0; i < h->count && status == TRZ_OK; i++)
		if ((lays(&h->events[i]) || takes(&h->events[i])) && h->events[i].size)
			status = turn(r, &h->events[i], i + 1, lays(&h->events[i]) ? origin(r, &h->events[i]) : PAGE_MADE);
	return status == TRZ_OK ? close_ranges(r) : status;
}

/* ---- places, peaks, order ------------------------------------------------------------------------------ */

/* Time ends a little after the last event that changes anything, since a snapshot is often taken much later. */
void page_place(struct page_history *h, bool by_time)
{
	uint32_t n = h->count, changing = n;
	while (changing > 1 && (h->events[changing - 1].action == DUMP_SNAPSHOT ||
	                        h->events[changing - 1].action == DUMP_OTHER))
		changing--;
	h->timed = by_time && n > 1 && h->events[0].time_us && h->events[n - 1].time_us > h->events[0].time_us;
	double last = 0;
	for (uint32_t i = 0; i < n + 2; i++) {
		double at = i;
		if (h->timed && i > 0 && i <= changing)
			at = ((double)h->events[i - 1].time_us - (double)h->events[0].time_us) / 1e6;
		else if (h->timed)
			at = i <= n ? last : last * 1.01;
		last = at > last ? at : last;  /* no event is before its predecessor */
		h->place[i] = last;
	}
}

static int64_t *make_changes(const struct page_history *h)
{
	int64_t *change = calloc(h->count + 2, sizeof *change);
	for (size_t i = 0; change && i < h->life_count; i++) {
		const struct page_life *l = &h->lives[i];
		change[l->begin] += (int64_t)l->size;
		change[l->released] -= (int64_t)l->size;
	}
	return change;
}

static trz_status find_peaks(struct page_history *h)
{
	int64_t *change = make_changes(h), level = 0;
	if (!change)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for %u events", h->count);
	for (uint32_t i = 0; i <= h->count; i++) {
		level += change[i];
		if ((uint64_t)level > h->held_peak) {
			h->held_peak = (uint64_t)level;
			h->peak = i;
		}
		h->held = i ? h->held : (uint64_t)level;
	}
	h->held_end = (uint64_t)level;
	free(change);
	uint64_t reserved = h->reserved;
	h->reserved_peak = reserved;
	for (uint32_t i = 0; i < h->count; i++) {
		const struct dump_event *e = &h->events[i];
		reserved += lays(e) ? e->size : 0;
		reserved -= takes(e) ? min_u64(reserved, e->size) : 0;
		h->reserved_peak = max_u64(h->reserved_peak, reserved);
	}
	h->reserved_end = reserved;
	return TRZ_OK;
}

static int lives_by_address(const void *a, const void *b)
{
	const struct page_life *x = a, *y = b;
	int order = (x->address > y->address) - (x->address < y->address);
	return order ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

static int ranges_by_address(const void *a, const void *b)
{
	const struct page_range *x = a, *y = b;
	int order = (x->address > y->address) - (x->address < y->address);
	return order ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

/* ---- all ---------------------------------------------------------------------------------------------- */

static int choose_device(const struct dump *d)
{
	int best = -1;
	size_t most = 0;
	uint64_t bytes[64] = { 0 };
	for (size_t i = 0; i < d->trace_count; i++)
		if (d->traces[i].count > most) {
			most = d->traces[i].count;
			best = (int)i;
		}
	for (size_t i = 0; best < 0 && i < d->segment_count; i++)
		if (d->segments[i].device >= 0 && d->segments[i].device < 64)
			bytes[d->segments[i].device] += d->segments[i].size;
	for (int i = 0; most == 0 && i < 64; i++)
		if (bytes[i] && (best < 0 || bytes[i] > bytes[best]))
			best = i;
	return best;
}

static bool has_segments(const struct dump *d, int device)
{
	for (size_t i = 0; i < d->segment_count; i++)
		if (d->segments[i].device == device)
			return true;
	return false;
}

static trz_status start(struct page_history *h, const struct dump *d, const char *file, int device)
{
	device = device < 0 ? choose_device(d) : device;
	bool has_events = device >= 0 && (size_t)device < d->trace_count && d->traces[device].count;
	if (device < 0 || (!has_events && !has_segments(d, device)))
		return trz_fail(TRZ_ERROR_NOT_FOUND, "%s: holds neither memory nor history of %s", file,
		                device < 0 ? "any device" : "this device");
	if (has_events && d->traces[device].count > UINT32_MAX - 8)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: the history has more than 2^32 events", file);
	*h = (struct page_history){ .dump = d, .device = device, .addressed = d->segment_count > 0 };
	if (has_events) {
		h->events = d->events + d->traces[device].first;
		h->count = (uint32_t)d->traces[device].count;
	}
	h->place = calloc(h->count + 2, sizeof *h->place);
	if (!h->place)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for %u events", h->count);
	page_place(h, true);
	for (uint32_t i = 0; i < h->count && !h->addressed; i++)
		h->addressed = lays(&h->events[i]);
	return TRZ_OK;
}

trz_status page_read(const struct dump *d, const char *file, int device, struct page_history *h)
{
	struct reading r = { .h = h };
	uint32_t none;
	*h = (struct page_history){ 0 };
	trz_status status = start(h, d, file, device);
	if (status == TRZ_OK)
		status = read_sites(h);
	if (status == TRZ_OK)
		status = tag_number(&r, "", &none);
	if (status == TRZ_OK)
		status = read_lives(&r);
	for (size_t i = 0; i < d->segment_count && status == TRZ_OK; i++)
		if (is_ours(h, &d->segments[i]))
			status = read_blocks(&r, &d->segments[i]);
	if (status == TRZ_OK)
		status = read_ranges(&r);
	if (status == TRZ_OK)
		status = find_peaks(h);
	map_free(&r.open);
	map_free(&r.tags);
	map_free(&r.streams);
	free(r.bounds);
	free(r.since);
	free(r.left);
	free(r.kind);
	free(r.seen);
	if (status != TRZ_OK) {
		page_free(h);
		return status;
	}
	if (h->life_count)
		qsort(h->lives, h->life_count, sizeof *h->lives, lives_by_address);
	if (h->range_count)
		qsort(h->ranges, h->range_count, sizeof *h->ranges, ranges_by_address);
	if (h->gap_count)
		qsort(h->gaps, h->gap_count, sizeof *h->gaps, ranges_by_address);
	return TRZ_OK;
}

void page_free(struct page_history *h)
{
	free(h->place);
	free(h->lives);
	free(h->ranges);
	free(h->gaps);
	for (uint32_t i = 0; i < h->site_count; i++)
		free(h->sites[i]);
	free(h->sites);
	free(h->site_of);
	free(h->tags);
	free(h->streams);
	*h = (struct page_history){ 0 };
}
