/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling, sealing and writing snapshots.
 */
#include "snapshot.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "jsonw.h"
#include "prng.h"

/* ---- filling ---------------------------------------------------------------------------------------- */

static size_t with_slack(size_t count)
{
	return count + count / 8 + 64;
}

static trz_status make_room(struct snapshot *s)
{
	snapshot_free(s);
	size_t events = with_slack(s->event_count), blocks = with_slack(s->block_count);
	size_t ranges = with_slack(s->range_count), windows = with_slack(s->window_count);
	size_t tiles = with_slack(s->tile_count);
	if (s->event_most)
		events = min_u64(events, s->event_most);
	size_t bytes = events * sizeof *s->events + blocks * sizeof *s->blocks + ranges * sizeof *s->ranges +
	               windows * sizeof *s->windows + tiles * sizeof *s->tiles + sizeof *s->room;
	s->events = s->memory.alloc(s->memory.owner, bytes);
	if (!s->events)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for a snapshot of %zu bytes; %zu of them are "
		                "history: shorten it", bytes, events * sizeof *s->events);
	s->blocks = (void *)(s->events + events);
	s->ranges = (void *)(s->blocks + blocks);
	s->windows = (void *)(s->ranges + ranges);
	s->tiles = (void *)(s->windows + windows);
	s->room = (void *)(s->tiles + tiles);
	s->event_capacity = events;
	s->block_capacity = blocks;
	s->range_capacity = ranges;
	s->window_capacity = windows;
	s->tile_capacity = tiles;
	return TRZ_OK;
}

trz_status snapshot_reserve(struct snapshot *s)
{
	trz_status status = s->events && snapshot_fits(s) ? TRZ_OK : make_room(s);
	s->event_count = s->block_count = s->range_count = s->window_count = s->tile_count = 0;
	s->events_noted = 0;
	s->tag_count = 0;
	s->clock = (struct history_clock){0};
	return status;
}

void snapshot_add_history(struct snapshot *s, const struct history *h)
{
	s->event_count = history_kept(h);
	s->event_most = h->capacity;
	if (s->event_limit) {
		s->event_count = min_u64(s->event_count, s->event_limit);
		s->event_most = min_u64(s->event_most, s->event_limit);
	}
	if (s->event_count <= s->event_capacity)
		history_copy(h, s->events, (uint32_t)s->event_count);
	s->events_noted = h->count;
	s->tag_count = s->tags ? s->tags->count : 0;
	s->clock = h->clock;
}

void snapshot_free(struct snapshot *s)
{
	if (s->events)
		s->memory.free(s->memory.owner, s->events);
	s->events = NULL;
	s->blocks = NULL;
	s->ranges = NULL;
	s->windows = NULL;
	s->tiles = NULL;
	s->room = NULL;
	s->event_capacity = s->block_capacity = s->range_capacity = s->window_capacity = s->tile_capacity = 0;
}

/* ---- sealing ---------------------------------------------------------------------------------------- */

_Static_assert(offsetof(struct snapshot_range, address) == 0 && offsetof(struct snapshot_block, address) == 0 &&
               offsetof(struct snapshot_window, address) == 0 && offsetof(struct snapshot_tile, address) == 0,
               "by_address takes any");

static int by_address(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static bool joins(const struct snapshot_range *a, const struct snapshot_range *b)
{
	return a->address + a->size == b->address && a->pool == b->pool && a->small == b->small &&
	       a->expandable && b->expandable && !a->apart && !b->apart;
}

static trz_status seal_ranges(struct snapshot *s)
{
	size_t count = 0;
	qsort(s->ranges, s->range_count, sizeof *s->ranges, by_address);
	for (size_t i = 0; i < s->range_count; i++) {
		const struct snapshot_range *r = &s->ranges[i];
		struct snapshot_range *last = count ? &s->ranges[count - 1] : NULL;
		if (r->size == 0 || r->size > JSONW_NUMBER_MAX || r->address > JSONW_NUMBER_MAX - r->size)
			return trz_fail(TRZ_ERROR_CORRUPT, "snapshot: no range of %#llx bytes can be at %#llx",
			                (unsigned long long)r->size, (unsigned long long)r->address);
		if (last && r->address - last->address < last->size)
			return trz_fail(TRZ_ERROR_CORRUPT, "snapshot: the ranges at %#llx and %#llx overlap",
			                (unsigned long long)last->address, (unsigned long long)r->address);
		if (last && joins(last, r))
			last->size += r->size;
		else
			s->ranges[count++] = *r;
	}
	s->range_count = count;
	return TRZ_OK;
}

static trz_status seal_blocks(struct snapshot *s)
{
	const struct snapshot_range *r = s->ranges, *ranges_end = s->ranges + s->range_count;
	uint64_t taken = 0;  /* no block before this address can follow */
	qsort(s->blocks, s->block_count, sizeof *s->blocks, by_address);
	for (size_t i = 0; i < s->block_count; i++) {
		struct snapshot_block *b = &s->blocks[i];
		while (r < ranges_end && r->address + r->size <= b->address)
			r++;
		if (r == ranges_end || b->address < r->address || b->size > r->address + r->size - b->address)
			return trz_fail(TRZ_ERROR_CORRUPT, "snapshot: the block at %#llx lies in no range",
			                (unsigned long long)b->address);
		if (b->address < taken || b->size == 0 || b->requested > b->size)
			return trz_fail(TRZ_ERROR_CORRUPT, "snapshot: the block at %#llx overlaps another, is empty or has "
			                "less than was requested", (unsigned long long)b->address);
		taken = b->address + b->size;
		b->tag = 0;
		b->known = false;
	}
	return TRZ_OK;
}

/* The newest allocation at a block's address, if the history still has one, is the block's; older ones had the address
 * before. The block's own stack counts, since a restored pool has blocks that were allocated before those. */
static void find_origins(struct snapshot *s)
{
	for (size_t i = s->event_count; i-- > 0;) {
		const struct history_event *e = &s->events[i];
		if (e->kind != HISTORY_ALLOC)
			continue;
		struct snapshot_block key = {.address = e->address};
		struct snapshot_block *b = bsearch(&key, s->blocks, s->block_count, sizeof key, by_address);
		if (!b || b->known)
			continue;
		b->known = true;
		b->tag = e->tag;
		b->frames = b->frames ? b->frames : e->frames;
	}
}

trz_status snapshot_seal(struct snapshot *s)
{
	history_clock_settle(&s->clock);
	trz_status status = seal_ranges(s);
	if (status == TRZ_OK)
		status = seal_blocks(s);
	if (status == TRZ_OK)
		find_origins(s);
	qsort(s->windows, s->window_count, sizeof *s->windows, by_address);
	qsort(s->tiles, s->tile_count, sizeof *s->tiles, by_address);
	return status;
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static void put_pool(struct jsonw *j, const char *key, uint32_t pool)
{
	jsonw_key(j, key);
	jsonw_open(j, '[');
	jsonw_number(j, 0);
	jsonw_number(j, pool);
	jsonw_close(j, ']');
}

/* ---- segments --------------------------------------------------------------------------------------- */

enum { STACK_SLOTS = 1 << 16, STACKS_IN_FULL = 50000 };

/* The stacks that the file has so far. Invariant: at least a quarter of the slots is empty (frames 0). */
struct snapshot_stacks {
	uint32_t count;
	uint32_t told;             /* how often a stack was written in full */
	struct {
		uint64_t frames;
		uint32_t number;       /* from 1 on */
	} slots[STACK_SLOTS];
};

static const char *tag_text(const struct snapshot *s, uint32_t tag)
{
	return tag <= s->tag_count ? history_tag_text(s->tags, tag) : "";
}

/* A stack's number in the file; *written: it has been written already. 0: the table is full. */
static uint32_t stack_number(struct snapshot_stacks *t, uint64_t frames, bool *written)
{
	size_t i = (size_t)(prng_mix(frames) % STACK_SLOTS);
	while (t->slots[i].frames && t->slots[i].frames != frames)
		i = (i + 1) % STACK_SLOTS;
	*written = t->slots[i].frames != 0;
	if (*written)
		return t->slots[i].number;
	if (t->count >= STACK_SLOTS / 4 * 3)
		return 0;
	t->slots[i].frames = frames;
	return t->slots[i].number = ++t->count;
}

/* Writes a stack's number, and the stack in full where it occurs first; and again while there are few, for readers that
 * do not know the numbers. A long history would be many times as large if each event had its stack in full. */
static void put_frames(struct jsonw *j, const struct snapshot *s, uint64_t frames)
{
	struct snapshot_frame list[SNAPSHOT_FRAMES_MAX];
	bool written = false;
	uint32_t number = frames && s->frames && s->stacks ? stack_number(s->stacks, frames, &written) : 0;
	if (number)
		jsonw_put_number(j, "stack", number);
	bool again = written && s->stacks->told >= STACKS_IN_FULL;
	size_t count = frames && s->frames && !again ? s->frames(s->frames_owner, frames, list) : 0;
	if (s->stacks && count)
		s->stacks->told++;
	jsonw_key(j, "frames");
	jsonw_open(j, '[');
	for (size_t i = 0; i < count; i++) {
		jsonw_open(j, '{');
		jsonw_put_string(j, "filename", list[i].filename);
		jsonw_put_number(j, "line", list[i].line);
		jsonw_put_string(j, "name", list[i].name);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
}

static void put_block(struct jsonw *j, const struct snapshot *s, const struct snapshot_block *b)
{
	jsonw_open_line(j);
	jsonw_put_number(j, "address", b->address);
	jsonw_put_number(j, "size", b->size);
	jsonw_put_number(j, "requested_size", b->requested);
	jsonw_put_string(j, "state", b->pending ? "active_pending_free" : "active_allocated");
	put_frames(j, s, b->frames);
	if (b->stream || b->tag) {
		jsonw_key(j, "terrazzo");
		jsonw_open(j, '{');
		jsonw_put_number(j, "stream", b->stream);
		jsonw_put_string(j, "tag", tag_text(s, b->tag));
		jsonw_close(j, '}');
	}
	jsonw_close(j, '}');
}

static void put_gap(struct jsonw *j, uint64_t from, uint64_t to)
{
	if (from == to)
		return;
	jsonw_open_line(j);
	jsonw_put_number(j, "address", from);
	jsonw_put_number(j, "size", to - from);
	jsonw_put_number(j, "requested_size", 0);
	jsonw_put_string(j, "state", "inactive");
	jsonw_put_word(j, "frames", "[]");
	jsonw_close(j, '}');
}

static void put_segment_head(struct jsonw *j, const struct snapshot *s, const struct snapshot_range *r,
                             const struct snapshot_block *first, const struct snapshot_block *end)
{
	uint64_t allocated = 0, active = 0, requested = 0;
	for (const struct snapshot_block *b = first; b < end; b++) {
		allocated += b->pending ? 0 : b->size;
		active += b->size;
		requested += b->requested;
	}
	jsonw_put_number(j, "device", (uint64_t)s->device);
	jsonw_put_number(j, "address", r->address);
	jsonw_put_number(j, "total_size", r->size);
	jsonw_put_number(j, "allocated_size", allocated);
	jsonw_put_number(j, "active_size", active);
	jsonw_put_number(j, "requested_size", requested);
	jsonw_put_number(j, "stream", 0);
	jsonw_put_string(j, "segment_type", r->small ? "small" : "large");
	put_pool(j, "segment_pool_id", r->pool);
	jsonw_put_word(j, "is_expandable", r->expandable ? "true" : "false");
	jsonw_put_word(j, "frames", "[]");
}

/* Writes a segment with its blocks, the first of which is `b`; returns the block behind them. */
static const struct snapshot_block *put_segment(struct jsonw *j, const struct snapshot *s,
                                                const struct snapshot_range *r, const struct snapshot_block *b)
{
	const struct snapshot_block *end = b;
	uint64_t at = r->address;
	while (end < s->blocks + s->block_count && end->address < r->address + r->size)
		end++;
	jsonw_open_line(j);
	put_segment_head(j, s, r, b, end);
	jsonw_key(j, "blocks");
	jsonw_open(j, '[');
	for (; b < end; b++) {
		put_gap(j, at, b->address);
		put_block(j, s, b);
		at = b->address + b->size;
	}
	put_gap(j, at, r->address + r->size);
	jsonw_close(j, ']');
	jsonw_close(j, '}');
	return end;
}

static void put_segments(struct jsonw *j, const struct snapshot *s)
{
	const struct snapshot_block *b = s->blocks;
	jsonw_key(j, "segments");
	jsonw_open(j, '[');
	for (size_t i = 0; i < s->range_count; i++)
		b = put_segment(j, s, &s->ranges[i], b);
	jsonw_close(j, ']');
}

/* ---- history ---------------------------------------------------------------------------------------- */

/* An event's action in PyTorch's traces, whose readers refuse actions that they do not know, and in our own list. */
static const struct {
	const char *trace[2];
	const char *own;
} actions[HISTORY_KINDS] = {
	[HISTORY_ALLOC] = {{"alloc"}, NULL},
	[HISTORY_FREE] = {{"free_requested", "free_completed"}, NULL},
	[HISTORY_FREE_REQUESTED] = {{"free_requested"}, NULL},
	[HISTORY_FREE_COMPLETED] = {{"free_completed"}, NULL},
	[HISTORY_SEGMENT_ALLOC] = {{"segment_alloc"}, NULL},
	[HISTORY_SEGMENT_FREE] = {{"segment_free"}, NULL},
	[HISTORY_MAP] = {{"segment_map"}, NULL},
	[HISTORY_UNMAP] = {{"segment_unmap"}, NULL},
	[HISTORY_FLIP] = {{"segment_unmap", "segment_map"}, "flip"},
	[HISTORY_GATHER] = {{"segment_unmap", "segment_map"}, "gather"},
	[HISTORY_WAIT] = {{NULL}, "wait"},
	[HISTORY_OOM] = {{"oom"}, NULL},
	[HISTORY_SNAPSHOT] = {{"snapshot"}, NULL},
	[HISTORY_STEP] = {{NULL}, "step"},
};

static bool moves(const struct history_event *e)
{
	return e->kind == HISTORY_FLIP || e->kind == HISTORY_GATHER;
}

static bool lays(const struct history_event *e)
{
	return e->kind >= HISTORY_SEGMENT_ALLOC && e->kind <= HISTORY_GATHER;
}

static void put_entry(struct jsonw *j, const struct snapshot *s, const struct history_event *e, int part)
{
	jsonw_open_line(j);
	jsonw_put_string(j, "action", actions[e->kind].trace[part]);
	jsonw_put_number(j, e->kind == HISTORY_OOM ? "device_free" : "addr", moves(e) && part == 0 ? e->from : e->address);
	jsonw_put_number(j, "size", e->size);
	jsonw_put_number(j, "stream", lays(e) ? 0 : e->stream);
	jsonw_put_number(j, "time_us", history_clock_epoch_ns(&s->clock, e->time) / 1000);
	jsonw_put_string(j, "compile_context", "N/A");
	jsonw_put_string(j, "user_metadata", tag_text(s, e->tag));
	put_pool(j, "pool_id", e->pool);
	if (e->frames)
		put_frames(j, s, e->frames);
	jsonw_close(j, '}');
}

/* One list for every device up to ours; the others are empty. */
static void put_traces(struct jsonw *j, const struct snapshot *s)
{
	jsonw_key(j, "device_traces");
	jsonw_open(j, '[');
	for (int device = 0; device <= s->device; device++) {
		jsonw_open(j, '[');
		for (size_t i = 0; device == s->device && i < s->event_count; i++)
			for (int part = 0; part < 2; part++)
				if (actions[s->events[i].kind].trace[part])
					put_entry(j, s, &s->events[i], part);
		jsonw_close(j, ']');
	}
	jsonw_close(j, ']');
}

static void put_own_event(struct jsonw *j, const struct snapshot *s, const struct history_event *e)
{
	jsonw_open(j, '{');
	jsonw_put_string(j, "action", actions[e->kind].own);
	jsonw_put_number(j, moves(e) ? "addr" : "awaited", e->address);
	jsonw_put_number(j, moves(e) ? "from" : "stream", e->stream);
	jsonw_put_number(j, moves(e) ? "size" : "stalled_ns", e->size);
	jsonw_put_number(j, "time_us", history_clock_epoch_ns(&s->clock, e->time) / 1000);
	jsonw_close(j, '}');
}

/* ---- windows and tiles ------------------------------------------------------------------------------ */

static const char *tile_state(const struct snapshot_tile *t, bool in_use)
{
	if (t->owned_at == t->address)
		return in_use ? "used" : "idle";
	return t->owned_at ? "alias" : "zombie";
}

/* One row: address, size, state, and for an alias where its tile is owned. `b`: the first block that ends behind the
 * tile's address. */
static void put_tile(struct jsonw *j, const struct snapshot *s, const struct snapshot_tile *t,
                     const struct snapshot_block *b)
{
	bool in_use = b < s->blocks + s->block_count && b->address < t->address + t->size;
	jsonw_open(j, '[');
	jsonw_number(j, t->address);
	jsonw_number(j, t->size);
	jsonw_string(j, tile_state(t, in_use));
	if (t->owned_at && t->owned_at != t->address)
		jsonw_number(j, t->owned_at);
	jsonw_close(j, ']');
}

static void put_window_head(struct jsonw *j, const struct snapshot_window *w)
{
	static const char *const kinds[] = {"packed", "view", "dedicated", "classic", "import"};
	jsonw_put_number(j, "address", w->address);
	jsonw_put_number(j, "reserved", w->reserved);
	jsonw_put_number(j, "laid", w->laid);
	put_pool(j, "pool_id", w->pool);
	jsonw_put_string(j, "kind", kinds[w->kind]);
	jsonw_put_string(j, "segment_type", w->small ? "small" : "large");
}

static void put_windows(struct jsonw *j, const struct snapshot *s)
{
	const struct snapshot_tile *t = s->tiles, *tiles_end = s->tiles + s->tile_count;
	const struct snapshot_block *b = s->blocks, *blocks_end = s->blocks + s->block_count;
	jsonw_key(j, "windows");
	jsonw_open(j, '[');
	for (const struct snapshot_window *w = s->windows; w < s->windows + s->window_count; w++) {
		jsonw_open_line(j);
		put_window_head(j, w);
		jsonw_key(j, "tiles");
		jsonw_open(j, '[');
		for (; t < tiles_end && t->address < w->address + w->reserved; t++) {
			while (b < blocks_end && b->address + b->size <= t->address)
				b++;
			put_tile(j, s, t, b);
		}
		jsonw_close(j, ']');
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
}

static void put_own(struct jsonw *j, const struct snapshot *s)
{
	jsonw_key(j, "terrazzo");
	jsonw_open(j, '{');
	jsonw_put_number(j, "version", 1);
	jsonw_put_number(j, "events_noted", s->events_noted);
	jsonw_put_number(j, "events_kept", s->event_count);
	jsonw_key(j, "events");
	jsonw_open(j, '[');
	for (size_t i = 0; i < s->event_count; i++)
		if (actions[s->events[i].kind].own)
			put_own_event(j, s, &s->events[i]);
	jsonw_close(j, ']');
	put_windows(j, s);
	if (s->report) {
		jsonw_key(j, "report");
		s->report(j, s->report_owner);
	}
	jsonw_close(j, '}');
}

/* ---- for other writers ------------------------------------------------------------------------------ */

static void visit_gap(const trz_visitor *v, uint64_t from, uint64_t to)
{
	if (from < to)
		v->block(v->user, &(trz_block_info){.address = from, .size = to - from, .tag = ""});
}

/* Returns the block behind the segment's. */
static const struct snapshot_block *visit_segment(const struct snapshot *s, const trz_visitor *v,
                                                  const struct snapshot_range *r, const struct snapshot_block *b)
{
	uint64_t at = r->address, end = r->address + r->size;
	if (v->segment)
		v->segment(v->user, &(trz_segment_info){.address = r->address,
		                                        .size = r->size,
		                                        .pool = r->pool,
		                                        .small = r->small,
		                                        .expandable = r->expandable});
	for (; v->block && b < s->blocks + s->block_count && b->address < end; b++) {
		visit_gap(v, at, b->address);
		v->block(v->user, &(trz_block_info){.address = b->address,
		                                    .size = b->size,
		                                    .requested = b->requested,
		                                    .state = b->pending ? TRZ_BLOCK_PENDING : TRZ_BLOCK_HELD,
		                                    .stream = (trz_stream)b->stream,
		                                    .tag = tag_text(s, b->tag),
		                                    .frames = b->frames});
		at = b->address + b->size;
	}
	if (v->block)
		visit_gap(v, at, end);
	return b;
}

static void visit_event(const struct snapshot *s, const trz_visitor *v, const struct history_event *e, int part)
{
	v->event(v->user, &(trz_event_info){.action = actions[e->kind].trace[part],
	                                    .address = moves(e) && part == 0 ? e->from : e->address,
	                                    .size = e->size,
	                                    .time_ns = history_clock_epoch_ns(&s->clock, e->time),
	                                    .stream = lays(e) ? NULL : (trz_stream)e->stream,
	                                    .pool = e->pool,
	                                    .tag = tag_text(s, e->tag),
	                                    .frames = e->frames});
}

void snapshot_walk(const struct snapshot *s, const trz_visitor *v)
{
	const struct snapshot_block *b = s->blocks;
	for (size_t i = 0; i < s->range_count; i++)
		b = visit_segment(s, v, &s->ranges[i], b);
	for (size_t i = 0; v->event && i < s->event_count; i++)
		for (int part = 0; part < 2; part++)
			if (actions[s->events[i].kind].trace[part])
				visit_event(s, v, &s->events[i], part);
}

/* ---- the whole -------------------------------------------------------------------------------------- */

/* PyTorch's options come first, with the values that describe how the heap behaves, since tools may look for them. */
static void put_settings(struct jsonw *j, const struct snapshot *s)
{
	jsonw_key(j, "allocator_settings");
	jsonw_open(j, '{');
	jsonw_put_string(j, "PYTORCH_CUDA_ALLOC_CONF", "");
	jsonw_put_word(j, "max_split_size", "-1");
	jsonw_put_word(j, "garbage_collection_threshold", "0.0");
	jsonw_put_word(j, "expandable_segments", "true");
	jsonw_put_number(j, "pinned_num_register_threads", 1);
	jsonw_put_word(j, "release_lock_on_cudamalloc", "true");
	jsonw_put_word(j, "pinned_use_cuda_host_register", "false");
	jsonw_put_word(j, "graph_capture_record_stream_reuse", "false");
	jsonw_put_word(j, "max_round_threshold", "-1");
	jsonw_put_word(j, "max_cached_size", "-1");
	jsonw_put_word(j, "roundup_power2_divisions", "{}");
	jsonw_key(j, "terrazzo");
	jsonw_open(j, '{');
	for (size_t i = 0; i < s->setting_count; i++) {
		jsonw_text_key(j, s->settings[i].key);
		jsonw_string(j, s->settings[i].value);
	}
	jsonw_close(j, '}');
	jsonw_close(j, '}');
}

static void put_all(struct jsonw *j, const struct snapshot *s)
{
	jsonw_open(j, '{');
	put_segments(j, s);
	put_traces(j, s);
	put_settings(j, s);
	jsonw_put_word(j, "external_annotations", "[]");
	jsonw_put_word(j, "host_segments", "[]");
	jsonw_put_word(j, "host_traces", "[]");
	put_own(j, s);
	jsonw_close(j, '}');
	jsonw_byte(j, '\n');
	jsonw_flush(j);
}

trz_status snapshot_write(const struct snapshot *s, jsonw_sink *sink, void *owner)
{
	struct jsonw j = {.sink = sink, .owner = owner, .buffer = s->room->buffer, .room = sizeof s->room->buffer};
	struct snapshot with = *s;
	with.stacks = s->frames ? s->memory.alloc(s->memory.owner, sizeof *with.stacks) : NULL;
	if (with.stacks)
		memset(with.stacks, 0, sizeof *with.stacks);
	put_all(&j, &with);
	if (with.stacks)
		s->memory.free(s->memory.owner, with.stacks);
	return j.failed ? trz_fail(TRZ_ERROR_IO, "the snapshot cannot be written: its receiver refused") : TRZ_OK;
}

static bool count_bytes(void *owner, const char *bytes, size_t size)
{
	(void)bytes;
	*(uint64_t *)owner += size;
	return true;
}

static uint64_t bytes_with(const struct snapshot *s, size_t events)
{
	struct snapshot newest = *s;
	uint64_t bytes = 0;
	newest.events += s->event_count - events;
	newest.event_count = events;
	snapshot_write(&newest, count_bytes, &bytes);
	return bytes;
}

bool snapshot_shorten(struct snapshot *s, uint64_t bytes)
{
	uint64_t least = bytes_with(s, 0), all = bytes_with(s, s->event_count);
	if (least > bytes)
		return false;
	size_t kept = s->event_count;
	while (all > bytes) {  /* events differ in size, so it keeps a little less than their share */
		kept = (size_t)((double)kept * 0.98 * (double)(bytes - least) / (double)(all - least));
		all = kept ? bytes_with(s, kept) : least;
	}
	memmove(s->events, s->events + s->event_count - kept, kept * sizeof *s->events);
	s->event_count = kept;
	return true;
}
