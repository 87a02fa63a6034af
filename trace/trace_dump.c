/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns plain data into a memory snapshot's arrays. Versions differ in what they write: what is missing is unknown,
 * what has the wrong kind or size is bad input.
 */
#include "trace_dump.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "call_site.h"
#include "error.h"
#include "trace.h"
#include "trace_format.h"
#include "trace_json.h"
#include "trace_map.h"
#include "trace_pickle.h"
#include "trace_room.h"

#define BYTES_MAX ((int64_t)1 << 56)

enum { PICKLE_FIRST = 0x80 };

/* Keys and values of dicts that may be looked at for each cell of the file: PyTorch's dicts have fewer. */
enum { LOOKS_MAX = 32 };

struct reader {
	const char *name;
	struct dump *d;
	struct plain plain;
	struct trace_map lists, dicts;   /* of what has been read: list of frames -> stack, frame's dict -> frame */
	struct trace_map stacks, frames; /* by contents */
	struct trace_map numbered;       /* stacks by the number that the file gives */
	size_t segment_room, block_room, event_room, trace_room, stack_room, frame_room, mark_room, stack_frame_room;
	size_t wait_room, move_room, window_room, tile_room;
	uint64_t walked;                 /* items of the lists of blocks, entries and tiles */
	uint64_t looked;                 /* keys and values of dicts */
};

static trz_status bad(const struct reader *r, const char *where, size_t number, const char *what)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: %s %zu: %s", r->name, where, number, what);
}

static trz_status no_memory(const struct reader *r)
{
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", r->name);
}

/* ---- arrays ----------------------------------------------------------------------------------------- */

/* Appends a zeroed item to an array of the dump. NULL: no memory. */
#define ADD(r, array, counter, room)                                                                         \
	(make_room(&(r)->d->array, (r)->d->counter, &(r)->room, sizeof *(r)->d->array)                           \
	     ? memset(&(r)->d->array[(r)->d->counter++], 0, sizeof *(r)->d->array) : NULL)

static uint64_t mix(uint64_t h, uint64_t x)
{
	h = (h + x + 1) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 32;
}

/* ---- values ----------------------------------------------------------------------------------------- */

static const char *text_of(const struct reader *r, plain_value value)
{
	const char *text = plain_text(&r->plain, value);
	return text && *text ? text : "";  /* one empty text */
}

/* An address, stream or time: any number; 0 for anything else. */
static uint64_t number_of(plain_value value)
{
	return plain_tag(value) == PLAIN_INT || plain_tag(value) == PLAIN_BOOL ? (uint64_t)plain_int(value) : 0;
}

/* A number of bytes; false: it is none. */
static bool size_of(plain_value value, uint64_t *size)
{
	if (plain_tag(value) != PLAIN_INT || plain_int(value) < 0 || plain_int(value) > BYTES_MAX)
		return false;
	*size = (uint64_t)plain_int(value);
	return true;
}

static uint64_t pool_of(plain_value value)
{
	return plain_tag(value) == PLAIN_PAIR ? plain_index(value) : 0;
}

/* Walks a dict: for (it = plain_items(p, dict); next_pair(p, &it, &key, &value);). */
static bool next_pair(const struct plain *p, struct plain_items *it, enum plain_word *key, plain_value *value)
{
	plain_value word;
	if (!plain_next(p, it, &word) || !plain_next(p, it, value))
		return false;
	*key = plain_word(word);
	return true;
}

/* Whether a list of blocks, entries or tiles can be walked: if each stands in one place, they have no more items
 * together than the file. Else a small file could name the same large list at will. */
static bool may_walk(struct reader *r, plain_value list)
{
	r->walked += plain_count(&r->plain, list);
	return r->walked <= r->plain.cells.count;
}

/* Called before a dict is looked through. A list may have the same dict in several places, but a small file cannot name
 * a large one at will. */
static trz_status look(struct reader *r, plain_value dict)
{
	r->looked += plain_count(&r->plain, dict);
	if (r->looked / LOOKS_MAX <= r->plain.cells.count)
		return TRZ_OK;
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: it names the same large dict again and again", r->name);
}

/* ---- frames and stacks ------------------------------------------------------------------------------ */

/* Texts are kept once, so that equal ones are the same. */
static bool same_frame(const struct dump_frame *a, const struct dump_frame *b)
{
	return a->file == b->file && a->name == b->name && a->line == b->line;
}

static bool intern_frame(struct reader *r, const struct dump_frame *f, uint32_t *number)
{
	uint64_t key = mix(mix(mix(0, (uintptr_t)f->file), (uintptr_t)f->name), f->line) | 1;
	while (map_get(&r->frames, key, number)) {
		if (same_frame(&r->d->frames[*number], f))
			return true;
		key++;
	}
	struct dump_frame *added = ADD(r, frames, frame_count, frame_room);
	if (!added)
		return false;
	*added = *f;
	added->of_interpreter = call_is_of_interpreter(&(struct call_frame){ f->file, f->name, f->line });
	*number = (uint32_t)(r->d->frame_count - 1);
	return map_set(&r->frames, key, *number) == TRZ_OK;
}

static bool read_frame(struct reader *r, plain_value frame, uint32_t *number)
{
	if (map_get(&r->dicts, plain_index(frame), number))
		return true;
	struct dump_frame f = { .file = "", .name = "" };
	enum plain_word key;
	plain_value value;
	for (struct plain_items it = plain_items(&r->plain, frame); next_pair(&r->plain, &it, &key, &value);) {
		if (key == PLAIN_FILENAME)
			f.file = text_of(r, value);
		else if (key == PLAIN_NAME)
			f.name = text_of(r, value);
		else if (key == PLAIN_LINE)
			f.line = (uint32_t)number_of(value);
	}
	return intern_frame(r, &f, number) && map_set(&r->dicts, plain_index(frame), *number) == TRZ_OK;
}

/* Makes a stack of the last frames in stack_frames, from `first` on, or finds the equal one. */
static bool intern_stack(struct reader *r, uint32_t first, uint32_t *number)
{
	struct dump *d = r->d;
	uint32_t count = (uint32_t)(d->stack_frame_count - first);
	uint64_t key = 0;
	for (uint32_t i = 0; i < count; i++)
		key = mix(key, d->stack_frames[first + i]);
	key |= 1;
	while (map_get(&r->stacks, key, number)) {
		const struct dump_stack *s = &d->stacks[*number];
		if (s->count == count &&
		    memcmp(&d->stack_frames[s->first], &d->stack_frames[first], count * sizeof *d->stack_frames) == 0) {
			d->stack_frame_count = first;
			return true;
		}
		key++;
	}
	struct dump_stack *added = ADD(r, stacks, stack_count, stack_room);
	if (!added)
		return false;
	*added = (struct dump_stack){ .first = first, .count = count };
	*number = (uint32_t)(d->stack_count - 1);
	return map_set(&r->stacks, key, *number) == TRZ_OK;
}

/* Appends a stack's frames to stack_frames, or all but the interpreter's. */
static trz_status add_frames(struct reader *r, plain_value list, bool all)
{
	plain_value frame;
	for (struct plain_items it = plain_items(&r->plain, list); plain_next(&r->plain, &it, &frame);) {
		uint32_t number;
		if (plain_tag(frame) != PLAIN_DICT)
			continue;
		if (!read_frame(r, frame, &number))
			return no_memory(r);
		if (!all && r->d->frames[number].of_interpreter)
			continue;
		uint32_t *added = ADD(r, stack_frames, stack_frame_count, stack_frame_room);
		if (!added)
			return no_memory(r);
		*added = number;
	}
	return TRZ_OK;
}

/* A stack has the interpreter's frames only if it has no others: equal lines have equal stacks then. */
static trz_status read_stack(struct reader *r, plain_value list, uint32_t *stack)
{
	*stack = 0;
	if (!plain_is_list(list) || plain_count(&r->plain, list) == 0 || map_get(&r->lists, plain_index(list), stack))
		return TRZ_OK;
	uint32_t first = (uint32_t)r->d->stack_frame_count;
	trz_status status = add_frames(r, list, false);
	if (status == TRZ_OK && r->d->stack_frame_count == first)
		status = add_frames(r, list, true);
	if (status != TRZ_OK)
		return status;
	if (r->d->stack_frame_count == first)
		return map_set(&r->lists, plain_index(list), 0) == TRZ_OK ? TRZ_OK : no_memory(r);
	return intern_stack(r, first, stack) && map_set(&r->lists, plain_index(list), *stack) == TRZ_OK
	           ? TRZ_OK : no_memory(r);
}

/* terrazzo's snapshots number stacks; not every entry with a number has the frames, too. */
static trz_status settle_stack(struct reader *r, uint64_t number, uint32_t *stack)
{
	if (number == 0)
		return TRZ_OK;
	if (*stack)
		return map_set(&r->numbered, number, *stack);
	map_get(&r->numbered, number, stack);
	return TRZ_OK;
}

/* ---- segments --------------------------------------------------------------------------------------- */

static enum dump_state state_of(plain_value value)
{
	switch (plain_word(value)) {
	case PLAIN_ACTIVE_ALLOCATED:
		return DUMP_HELD;
	case PLAIN_ACTIVE_PENDING_FREE:
	case PLAIN_ACTIVE_AWAITING_FREE:
		return DUMP_PENDING;
	default:
		return DUMP_FREE;
	}
}

/* PyTorch 2.0 keeps a block's frames in the block's `history`, newest first. */
static trz_status read_history(struct reader *r, plain_value list, struct dump_block *b)
{
	plain_value entry;
	struct plain_items it;
	if (!plain_is_list(list))
		return TRZ_OK;
	it = plain_items(&r->plain, list);
	if (!plain_next(&r->plain, &it, &entry) || plain_tag(entry) != PLAIN_DICT)
		return TRZ_OK;
	trz_status status = look(r, entry);
	if (status != TRZ_OK)
		return status;
	if (size_of(plain_entry(&r->plain, entry, PLAIN_REAL_SIZE), &b->requested))
		r->d->has_requested = true;
	return read_stack(r, plain_entry(&r->plain, entry, PLAIN_FRAMES), &b->stack);
}

static trz_status read_own(struct reader *r, plain_value own, struct dump_block *b)
{
	if (plain_tag(own) != PLAIN_DICT)
		return TRZ_OK;
	trz_status status = look(r, own);
	if (status != TRZ_OK)
		return status;
	b->stream = number_of(plain_entry(&r->plain, own, PLAIN_STREAM));
	b->tag = text_of(r, plain_entry(&r->plain, own, PLAIN_TAG));
	return TRZ_OK;
}

static trz_status read_block(struct reader *r, plain_value from, struct dump_block *b)
{
	trz_status status = look(r, from);
	enum plain_word key;
	plain_value value;
	uint64_t number = 0;
	b->address = UINT64_MAX;
	b->tag = "";
	for (struct plain_items it = plain_items(&r->plain, from);
	     status == TRZ_OK && next_pair(&r->plain, &it, &key, &value);) {
		switch (key) {
		case PLAIN_ADDRESS:
			b->address = number_of(value);
			break;
		case PLAIN_SIZE:
			if (!size_of(value, &b->size))
				return bad(r, "block", r->d->block_count, "its size is not a number from 0 to 2^56");
			break;
		case PLAIN_REQUESTED_SIZE:
			r->d->has_requested |= size_of(value, &b->requested);
			break;
		case PLAIN_STATE:
			b->state = state_of(value);
			break;
		case PLAIN_FRAMES:
			status = read_stack(r, value, &b->stack);
			break;
		case PLAIN_STACK:
			number = number_of(value);
			break;
		case PLAIN_HISTORY:
			status = read_history(r, value, b);
			break;
		case PLAIN_TERRAZZO:
			status = read_own(r, value, b);
			break;
		default:
			break;
		}
	}
	b->requested = b->state == DUMP_HELD || b->state == DUMP_PENDING ? min_u64(b->requested, b->size) : 0;
	return status == TRZ_OK ? settle_stack(r, number, &b->stack) : status;
}

static trz_status add_block(struct reader *r, const struct dump_block *b)
{
	struct dump_block *added = ADD(r, blocks, block_count, block_room);
	if (!added)
		return no_memory(r);
	*added = *b;
	return TRZ_OK;
}

static trz_status add_gap(struct reader *r, const struct dump_segment *s, uint64_t from, uint64_t to)
{
	if (from == to)
		return TRZ_OK;
	return add_block(r, &(struct dump_block){ .address = from, .size = to - from, .stream = s->stream, .tag = "" });
}

/* Blocks are in the order of addresses; one without an address begins where the one before it ends. */
static trz_status read_blocks(struct reader *r, plain_value list, struct dump_segment *s)
{
	uint64_t at = s->address, end = s->address + s->size;
	trz_status status = TRZ_OK;
	plain_value from;
	s->first = r->d->block_count;
	if (!may_walk(r, list))
		return bad(r, "segment", r->d->segment_count - 1, "its list of blocks is another's, too");
	for (struct plain_items it = plain_items(&r->plain, list); plain_next(&r->plain, &it, &from);) {
		struct dump_block b = { .stream = s->stream };
		if (plain_tag(from) != PLAIN_DICT)
			return bad(r, "block", r->d->block_count, "is not a dict");
		status = read_block(r, from, &b);
		if (status != TRZ_OK)
			return status;
		b.address = b.address == UINT64_MAX ? at : b.address;
		if (b.address < at || b.address > end || b.size > end - b.address)
			return bad(r, "segment", r->d->segment_count - 1, "its blocks overlap or lie outside of it");
		status = add_gap(r, s, at, b.address);
		if (status == TRZ_OK && b.size)
			status = add_block(r, &b);
		if (status != TRZ_OK)
			return status;
		at = b.address + b.size;
	}
	status = add_gap(r, s, at, end);
	s->count = r->d->block_count - s->first;
	return status;
}

static trz_status read_segment_entry(struct reader *r, struct dump_segment *s, enum plain_word key, plain_value value)
{
	switch (key) {
	case PLAIN_ADDRESS:
		s->address = number_of(value);
		break;
	case PLAIN_TOTAL_SIZE:
		if (!size_of(value, &s->size))
			return bad(r, "segment", r->d->segment_count - 1, "its total_size is not a number from 0 to 2^56");
		break;
	case PLAIN_STREAM:
		s->stream = number_of(value);
		break;
	case PLAIN_DEVICE:
		if (number_of(value) >= TRACE_DEVICES_MAX)
			return bad(r, "segment", r->d->segment_count - 1, "there are not that many devices");
		s->device = (int)number_of(value);
		break;
	case PLAIN_SEGMENT_POOL_ID:
		s->pool = pool_of(value);
		break;
	case PLAIN_IS_EXPANDABLE:
		s->expandable = number_of(value);
		break;
	case PLAIN_SEGMENT_TYPE:
		s->small = strcmp(text_of(r, value), "small") == 0;
		break;
	case PLAIN_FRAMES:
		return read_stack(r, value, &s->stack);
	default:
		break;
	}
	return TRZ_OK;
}

static trz_status read_segment(struct reader *r, plain_value from)
{
	struct dump_segment *s = ADD(r, segments, segment_count, segment_room);
	size_t number = r->d->segment_count - 1;
	trz_status status = TRZ_OK;
	enum plain_word key;
	plain_value value, blocks = PLAIN_UNSET;
	if (!s)
		return no_memory(r);
	if (plain_tag(from) != PLAIN_DICT)
		return bad(r, "segment", number, "is not a dict");
	status = look(r, from);
	for (struct plain_items it = plain_items(&r->plain, from);
	     status == TRZ_OK && next_pair(&r->plain, &it, &key, &value);) {
		if (key == PLAIN_BLOCKS)
			blocks = value;
		else
			status = read_segment_entry(r, s, key, value);
	}
	if (status != TRZ_OK)
		return status;
	if (s->size == 0 || s->address > UINT64_MAX - s->size)
		return bad(r, "segment", number, "it has no size, or no room for it");
	if (!plain_is_list(blocks))
		return bad(r, "segment", number, "it has no list of blocks");
	return read_blocks(r, blocks, s);
}

static int by_device_and_address(const void *a, const void *b)
{
	const struct dump_segment *x = a, *y = b;
	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	return (x->address > y->address) - (x->address < y->address);
}

static trz_status read_segments(struct reader *r, plain_value list)
{
	plain_value from;
	trz_status status = TRZ_OK;
	for (struct plain_items it = plain_items(&r->plain, list); status == TRZ_OK && plain_next(&r->plain, &it, &from);)
		status = read_segment(r, from);
	if (status == TRZ_OK && r->d->segment_count)
		qsort(r->d->segments, r->d->segment_count, sizeof *r->d->segments, by_device_and_address);
	return status;
}

/* ---- history ---------------------------------------------------------------------------------------- */

static enum dump_action action_of(plain_value value)
{
	switch (plain_word(value)) {
	case PLAIN_ALLOC:
		return DUMP_ALLOC;
	case PLAIN_FREE_REQUESTED:
		return DUMP_FREE_REQUESTED;
	case PLAIN_FREE_COMPLETED:
		return DUMP_FREE_COMPLETED;
	case PLAIN_SEGMENT_ALLOC:
		return DUMP_SEGMENT_ALLOC;
	case PLAIN_SEGMENT_FREE:
		return DUMP_SEGMENT_FREE;
	case PLAIN_SEGMENT_MAP:
		return DUMP_SEGMENT_MAP;
	case PLAIN_SEGMENT_UNMAP:
		return DUMP_SEGMENT_UNMAP;
	case PLAIN_SNAPSHOT:
		return DUMP_SNAPSHOT;
	case PLAIN_OOM:
		return DUMP_OOM;
	default:
		return DUMP_OTHER;
	}
}

static trz_status read_event(struct reader *r, plain_value from, struct dump_event *e)
{
	trz_status status = look(r, from);
	enum plain_word key;
	plain_value value;
	uint64_t number = 0;
	e->action = DUMP_OTHER;
	e->tag = "";
	for (struct plain_items it = plain_items(&r->plain, from);
	     status == TRZ_OK && next_pair(&r->plain, &it, &key, &value);) {
		switch (key) {
		case PLAIN_ACTION:
			e->action = action_of(value);
			break;
		case PLAIN_ADDR:
		case PLAIN_DEVICE_FREE:
			e->address = number_of(value);
			break;
		case PLAIN_SIZE:
			if (!size_of(value, &e->size))
				e->size = plain_tag(value) == PLAIN_INT && plain_int(value) > 0 ? BYTES_MAX : 0;
			break;
		case PLAIN_STREAM:
			e->stream = number_of(value);
			break;
		case PLAIN_POOL_ID:
			e->pool = pool_of(value);
			r->d->pools_told = true;
			break;
		case PLAIN_TIME_US:
			e->time_us = number_of(value);
			break;
		case PLAIN_USER_METADATA:
			e->tag = text_of(r, value);
			break;
		case PLAIN_FRAMES:
			status = read_stack(r, value, &e->stack);
			break;
		case PLAIN_STACK:
			number = number_of(value);
			break;
		default:
			break;
		}
	}
	return status == TRZ_OK ? settle_stack(r, number, &e->stack) : status;
}

static trz_status read_trace(struct reader *r, plain_value list)
{
	struct dump_trace *t = ADD(r, traces, trace_count, trace_room);
	size_t number = r->d->trace_count - 1;
	plain_value from;
	if (!t)
		return no_memory(r);
	t->first = r->d->event_count;
	if (number >= TRACE_DEVICES_MAX)
		return bad(r, "device_traces", number, "there are not that many devices");
	if (!plain_is_list(list))
		return bad(r, "device_traces", number, "is not a list");
	if (!may_walk(r, list))
		return bad(r, "device_traces", number, "is the list of another device, too");
	for (struct plain_items it = plain_items(&r->plain, list); plain_next(&r->plain, &it, &from);) {
		if (plain_tag(from) != PLAIN_DICT)
			return bad(r, "entry", r->d->event_count, "is not a dict");
		struct dump_event *e = ADD(r, events, event_count, event_room);
		if (!e)
			return no_memory(r);
		trz_status status = read_event(r, from, e);
		if (status != TRZ_OK)
			return status;
	}
	t->count = r->d->event_count - t->first;
	return TRZ_OK;
}

static trz_status read_traces(struct reader *r, plain_value list)
{
	plain_value from;
	trz_status status = TRZ_OK;
	if (!plain_is_list(list))
		return TRZ_OK;
	for (struct plain_items it = plain_items(&r->plain, list); status == TRZ_OK && plain_next(&r->plain, &it, &from);)
		status = read_trace(r, from);
	return status;
}

/* ---- the rest --------------------------------------------------------------------------------------- */

static trz_status read_marks(struct reader *r, plain_value list)
{
	plain_value from;
	if (!plain_is_list(list))
		return TRZ_OK;
	for (struct plain_items it = plain_items(&r->plain, list); plain_next(&r->plain, &it, &from);) {
		if (plain_tag(from) != PLAIN_DICT)
			continue;
		trz_status status = look(r, from);
		if (status != TRZ_OK)
			return status;
		struct dump_mark *m = ADD(r, marks, mark_count, mark_room);
		if (!m)
			return no_memory(r);
		m->name = text_of(r, plain_entry(&r->plain, from, PLAIN_NAME));
		m->end = strcmp(text_of(r, plain_entry(&r->plain, from, PLAIN_STAGE)), "END") == 0;
		m->device = (int)min_u64(number_of(plain_entry(&r->plain, from, PLAIN_DEVICE)), TRACE_DEVICES_MAX);
		m->time_us = number_of(plain_entry(&r->plain, from, PLAIN_TIME_US));
	}
	return TRZ_OK;
}

static trz_status add_step(struct reader *r, plain_value from)
{
	struct dump_mark *m = ADD(r, marks, mark_count, mark_room);
	if (!m)
		return no_memory(r);
	*m = (struct dump_mark){ .name = DUMP_STEP_MARK, .end = true, .device = -1 };
	m->time_us = number_of(plain_entry(&r->plain, from, PLAIN_TIME_US));
	return TRZ_OK;
}

static trz_status add_wait(struct reader *r, plain_value from)
{
	struct dump_wait *w = ADD(r, waits, wait_count, wait_room);
	if (!w)
		return no_memory(r);
	w->stream = number_of(plain_entry(&r->plain, from, PLAIN_STREAM));
	w->awaited = number_of(plain_entry(&r->plain, from, PLAIN_AWAITED));
	w->stalled_ns = number_of(plain_entry(&r->plain, from, PLAIN_STALLED_NS));
	w->time_us = number_of(plain_entry(&r->plain, from, PLAIN_TIME_US));
	return TRZ_OK;
}

static trz_status add_move(struct reader *r, plain_value from, bool flip)
{
	struct dump_move *m = ADD(r, moves, move_count, move_room);
	if (!m)
		return no_memory(r);
	*m = (struct dump_move){ .flip = flip };
	m->address = number_of(plain_entry(&r->plain, from, PLAIN_ADDR));
	m->from = number_of(plain_entry(&r->plain, from, PLAIN_FROM));
	if (!size_of(plain_entry(&r->plain, from, PLAIN_SIZE), &m->size))
		m->size = 0;
	return TRZ_OK;
}

/* Steps that the program told terrazzo are marks, too. */
static trz_status read_own_events(struct reader *r, plain_value list)
{
	plain_value from;
	if (!plain_is_list(list))
		return TRZ_OK;
	for (struct plain_items it = plain_items(&r->plain, list); plain_next(&r->plain, &it, &from);) {
		if (plain_tag(from) != PLAIN_DICT)
			continue;
		trz_status status = look(r, from);
		if (status != TRZ_OK)
			return status;
		const char *action = text_of(r, plain_entry(&r->plain, from, PLAIN_ACTION));
		if (strcmp(action, DUMP_STEP_MARK) == 0)
			status = add_step(r, from);
		else if (strcmp(action, "wait") == 0)
			status = add_wait(r, from);
		else if (strcmp(action, "flip") == 0 || strcmp(action, "gather") == 0)
			status = add_move(r, from, *action == 'f');
		if (status != TRZ_OK)
			return status;
	}
	return TRZ_OK;
}

/* ---- windows and tiles ------------------------------------------------------------------------------ */

static enum dump_tile_state tile_state_of(plain_value value)
{
	switch (plain_word(value)) {
	case PLAIN_USED:
		return DUMP_TILE_USED;
	case PLAIN_IDLE:
		return DUMP_TILE_IDLE;
	case PLAIN_ALIAS:
		return DUMP_TILE_ALIAS;
	default:
		return DUMP_TILE_ZOMBIE;
	}
}

/* A row: address, size, state and, for an alias, where its tile is used. */
static trz_status read_tile(struct reader *r, plain_value row)
{
	plain_value cells[4] = { PLAIN_UNSET, PLAIN_UNSET, PLAIN_UNSET, PLAIN_UNSET }, cell;
	size_t count = 0;
	struct dump_tile t = { 0 };
	for (struct plain_items it = plain_items(&r->plain, row); count < 4 && plain_next(&r->plain, &it, &cell);)
		cells[count++] = cell;
	t.address = number_of(cells[0]);
	if (count < 3 || !size_of(cells[1], &t.size) || t.size == 0 || t.address > UINT64_MAX - t.size)
		return bad(r, "tile", r->d->tile_count, "has no place or no size");
	t.state = tile_state_of(cells[2]);
	t.owned_at = t.state == DUMP_TILE_ALIAS ? number_of(cells[3]) : t.state == DUMP_TILE_ZOMBIE ? 0 : t.address;
	struct dump_tile *added = ADD(r, tiles, tile_count, tile_room);
	if (!added)
		return no_memory(r);
	*added = t;
	return TRZ_OK;
}

static trz_status read_window(struct reader *r, plain_value from)
{
	struct dump_window w = { .address = number_of(plain_entry(&r->plain, from, PLAIN_ADDRESS)) };
	plain_value tiles = plain_entry(&r->plain, from, PLAIN_TILES), row;
	trz_status status = look(r, from);
	if (status != TRZ_OK)
		return status;
	if (!size_of(plain_entry(&r->plain, from, PLAIN_RESERVED), &w.reserved) ||
	    !size_of(plain_entry(&r->plain, from, PLAIN_LAID), &w.laid) || w.address > UINT64_MAX - w.reserved)
		return bad(r, "window", r->d->window_count, "has no place or no size");
	w.pool = pool_of(plain_entry(&r->plain, from, PLAIN_POOL_ID));
	w.small = strcmp(text_of(r, plain_entry(&r->plain, from, PLAIN_SEGMENT_TYPE)), "small") == 0;
	w.kind = text_of(r, plain_entry(&r->plain, from, PLAIN_KIND));
	struct dump_window *added = ADD(r, windows, window_count, window_room);
	if (!added)
		return no_memory(r);
	*added = w;
	if (!plain_is_list(tiles))
		return TRZ_OK;
	if (!may_walk(r, tiles))
		return bad(r, "window", r->d->window_count - 1, "its list of tiles is another's, too");
	for (struct plain_items it = plain_items(&r->plain, tiles); status == TRZ_OK && plain_next(&r->plain, &it, &row);)
		if (plain_is_list(row))
			status = read_tile(r, row);
	return status;
}

static int windows_by_address(const void *a, const void *b)
{
	const struct dump_window *x = a, *y = b;
	return (x->address > y->address) - (x->address < y->address);
}

static int tiles_by_address(const void *a, const void *b)
{
	const struct dump_tile *x = a, *y = b;
	return (x->address > y->address) - (x->address < y->address);
}

static trz_status read_windows(struct reader *r, plain_value list)
{
	plain_value from;
	trz_status status = TRZ_OK;
	if (!plain_is_list(list))
		return TRZ_OK;
	for (struct plain_items it = plain_items(&r->plain, list); status == TRZ_OK && plain_next(&r->plain, &it, &from);)
		if (plain_tag(from) == PLAIN_DICT)
			status = read_window(r, from);
	if (status == TRZ_OK && r->d->window_count)
		qsort(r->d->windows, r->d->window_count, sizeof *r->d->windows, windows_by_address);
	if (status == TRZ_OK && r->d->tile_count)
		qsort(r->d->tiles, r->d->tile_count, sizeof *r->d->tiles, tiles_by_address);
	return status;
}

/* ---- settings, the root ----------------------------------------------------------------------------- */

static void read_divisions(struct reader *r, plain_value divisions)
{
	for (int i = 0; i < DUMP_POWERS && plain_tag(divisions) == PLAIN_DICT; i++)
		r->d->divisions[i] = (uint32_t)number_of(plain_entry(&r->plain, divisions, PLAIN_POWER_0 + i));
}

static void read_settings(struct reader *r, plain_value root)
{
	plain_value settings = plain_entry(&r->plain, root, PLAIN_ALLOCATOR_SETTINGS);
	plain_value own = plain_entry(&r->plain, root, PLAIN_TERRAZZO);
	if (plain_tag(settings) == PLAIN_DICT) {
		r->d->expandable = number_of(plain_entry(&r->plain, settings, PLAIN_EXPANDABLE_SEGMENTS));
		read_divisions(r, plain_entry(&r->plain, settings, PLAIN_ROUNDUP_POWER2_DIVISIONS));
		r->d->max_split = number_of(plain_entry(&r->plain, settings, PLAIN_MAX_SPLIT_SIZE));
	}
	if (plain_tag(own) != PLAIN_DICT)
		return;
	r->d->terrazzo = true;
	memset(r->d->divisions, 0, sizeof r->d->divisions);
	r->d->max_split = 0;
	r->d->events_noted = number_of(plain_entry(&r->plain, own, PLAIN_EVENTS_NOTED));
}

static trz_status read_root(struct reader *r)
{
	plain_value root = r->plain.root;
	if (plain_is_list(root))
		return read_segments(r, root);
	plain_value segments = PLAIN_UNSET;
	if (plain_tag(root) == PLAIN_DICT)
		segments = plain_entry(&r->plain, root, PLAIN_SEGMENTS);
	if (!plain_is_list(segments))
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: not a memory snapshot: it has no list of segments", r->name);
	trz_status status = read_segments(r, segments);
	if (status == TRZ_OK)
		status = read_traces(r, plain_entry(&r->plain, root, PLAIN_DEVICE_TRACES));
	if (status == TRZ_OK)
		status = read_marks(r, plain_entry(&r->plain, root, PLAIN_EXTERNAL_ANNOTATIONS));
	plain_value own = plain_entry(&r->plain, root, PLAIN_TERRAZZO);
	if (status == TRZ_OK && plain_tag(own) == PLAIN_DICT)
		status = read_own_events(r, plain_entry(&r->plain, own, PLAIN_EVENTS));
	if (status == TRZ_OK && plain_tag(own) == PLAIN_DICT)
		status = read_windows(r, plain_entry(&r->plain, own, PLAIN_WINDOWS));
	if (status == TRZ_OK)
		read_settings(r, root);
	return status;
}

static bool is_json(unsigned char first)
{
	return first == '{' || first == '[';
}

static trz_status read_plain(struct reader *r, struct trace_input *in)
{
	trz_status status = plain_init(&r->plain, true);
	if (status == TRZ_OK)
		status = input_fill(in, COMPACT_MAGIC_SIZE);
	if (status != TRZ_OK)
		return status;
	if (in->at == in->end)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: is empty", in->name);
	if (*in->at == PICKLE_FIRST)
		return pickle_read(in, &r->plain);
	if (is_json(*in->at))
		return json_read(in, &r->plain);
	if (in->end - in->at >= COMPACT_MAGIC_SIZE && memcmp(in->at, COMPACT_MAGIC, COMPACT_MAGIC_SIZE) == 0)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: not a memory snapshot but a trace, which terrazzo replay and "
		                "terrazzo report read", in->name);
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: not a memory snapshot: neither a pickle of protocol 2 to 5 nor JSON",
	                in->name);
}

static trz_status read_dump(struct trace_input *in, struct dump *d)
{
	struct reader r = { .name = in->name, .d = d };
	*d = (struct dump){ 0 };
	trz_status status = read_plain(&r, in);
	if (status == TRZ_OK && !ADD(&r, stacks, stack_count, stack_room))
		status = no_memory(&r);
	if (status == TRZ_OK)
		status = read_root(&r);
	if (status == TRZ_OK && !(d->sites = calloc(d->stack_count, sizeof *d->sites)))
		status = no_memory(&r);
	d->texts = r.plain.texts.bytes;
	d->report = r.plain.report;
	r.plain.texts.bytes = NULL;
	r.plain.report = NULL;
	plain_free(&r.plain);
	map_free(&r.lists);
	map_free(&r.dicts);
	map_free(&r.stacks);
	map_free(&r.frames);
	map_free(&r.numbered);
	input_close(in);
	if (status != TRZ_OK)
		dump_free(d);
	return status;
}

bool dump_may_be(const char *path)
{
	struct trace_input in;
	if (input_open(&in, path) != TRZ_OK)
		return false;
	bool may = input_fill(&in, 1) == TRZ_OK && in.at < in.end && (*in.at == PICKLE_FIRST || is_json(*in.at));
	input_close(&in);
	return may;
}

trz_status dump_load(const char *path, struct dump *d)
{
	struct trace_input in;
	*d = (struct dump){ 0 };
	trz_status status = input_open(&in, path);
	return status == TRZ_OK ? read_dump(&in, d) : status;
}

trz_status dump_load_memory(const char *name, const void *bytes, size_t size, struct dump *d)
{
	struct trace_input in;
	input_open_memory(&in, name, bytes, size);
	return read_dump(&in, d);
}

void dump_free(struct dump *d)
{
	free(d->segments);
	free(d->blocks);
	free(d->events);
	free(d->traces);
	free(d->stacks);
	free(d->sites);
	free(d->stack_frames);
	free(d->frames);
	free(d->marks);
	free(d->waits);
	free(d->moves);
	free(d->windows);
	free(d->tiles);
	free(d->texts);
	json_decref(d->report);
	*d = (struct dump){ 0 };
}
