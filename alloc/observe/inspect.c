/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics, history and snapshots of a heap.
 */
#include "observe/inspect.h"

#include "error.h"
#include "heap/ledger.h"
#include "observe/frames.h"
#include "snapshot_file.h"

static uint64_t largest_free(const trz_heap *h)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	uint64_t largest = 0;
	for (unsigned i = 0; i < streams; i++) {
		const struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		for (int kind = 0; kind < KINDS; kind++)
			largest = max_u64(largest, counter_get(&s->lane.fit[kind].largest));
	}
	return largest;
}

static struct counter_view view_of(const trz_heap *h)
{
	return (struct counter_view){
	    .metadata_bytes = atomic_load_explicit(&h->meta.bytes, memory_order_relaxed),
	    .largest_free_bytes = largest_free(h),
	};
}

void inspect_stats(const trz_heap *h, trz_stat_value *values, size_t capacity, size_t *count)
{
	struct counter_view view = view_of(h);
	struct counters counters;
	heap_read_counters(h, &counters);
	counters_read(&counters, &view, values, capacity, count);
}

bool inspect_stat(const trz_heap *h, const char *name, trz_stat_value *value)
{
	struct counter_view view = view_of(h);
	struct counters counters;
	heap_read_counters(h, &counters);
	return counters_find(&counters, &view, name, value);
}

void inspect_reset_peaks(trz_heap *h)
{
	heap_take_growth(h);
	heap_lock(h);
	heap_reset_peaks_locked(h);
	heap_unlock(h);
	heap_give_growth(h);
}

/* ---- history ---- */

trz_status inspect_history(trz_heap *h, size_t events)
{
	size_t bytes = events * sizeof(struct history_event);
	void *memory = events ? meta_alloc(&h->meta, bytes) : NULL;
	if (events && !memory)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "a history of %zu events needs %zu bytes of host memory", events, bytes);
	heap_lock(h);
	void *old = history_stop(&h->history);
	bool on = !memory || history_start(&h->history, memory, bytes);
	h->notes = h->history.ring || h->keeps_frames;
	heap_call_all_in_locked(h);
	heap_unlock(h);
	meta_free(&h->meta, old);
	frames_update(h);
	return on ? TRZ_OK : trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "a history needs room for at least one event");
}

/* ---- snapshots ---- */

static void *copy_alloc(void *owner, size_t size)
{
	return meta_alloc(owner, size);
}

static void copy_free(void *owner, void *memory)
{
	meta_free(owner, memory);
}

static void add_slab(struct snapshot *s, const struct slab *slab)
{
	const struct size_class *c = slab_class(slab);
	for (unsigned slot = 0; slot < c->slots; slot++)
		if (!(slab->free >> slot & 1))
			snapshot_add_block(s, (struct snapshot_block){.address = slab_slot_address(slab, slot),
			                                              .size = c->slot_size,
			                                              .requested = c->slot_size - slab->unused[slot],
			                                              .stream = (uint64_t)slab->home->stream->handle,
			                                              .frames = slot_frames(slab, slot),
			                                              .pending = slab->pending >> slot & 1});
}

static void add_range(struct snapshot *s, const struct window *w, trz_addr address, uint64_t size)
{
	snapshot_add_range(s, (struct snapshot_range){.address = address,
	                                              .size = size,
	                                              .pool = pool_id(w->pool),
	                                              .small = w->kind == SMALL,
	                                              .expandable = !w->classic,
	                                              .apart = w->dedicated != 0});
}

static enum snapshot_window_kind kind_of(const struct window *w)
{
	return w->classic ? WINDOW_CLASSIC : w->foreign ? WINDOW_IMPORT : w->view ? WINDOW_VIEW :
	       w->dedicated ? WINDOW_DEDICATED : WINDOW_PACKED;
}

static void add_tile(struct snapshot *s, const struct tile *tile, trz_addr address, uint64_t size)
{
	const struct place *owner = tile->zombie ? NULL : tile->places;
	snapshot_add_tile(s, (struct snapshot_tile){.address = address,
	                                            .size = size,
	                                            .owned_at = owner ? owner->address : 0});
}

static void add_tiles(struct snapshot *s, const struct window *w)
{
	trz_addr top = w->classic ? w->base + w->size : w->top;
	snapshot_add_window(s, (struct snapshot_window){.address = w->base,
	                                                .reserved = w->size,
	                                                .laid = top - w->base,
	                                                .pool = pool_id(w->pool),
	                                                .small = w->kind == SMALL,
	                                                .kind = kind_of(w)});
	if (w->classic)
		snapshot_add_tile(s, (struct snapshot_tile){.address = w->base, .size = w->size, .owned_at = w->base});
	for (trz_addr at = w->base; !w->classic && at < w->top; at = window_next(w, at)) {
		const struct place *p = window_at(w, at);
		if (p)
			add_tile(s, p->tile, p->address, place_size(p));
	}
}

static void add_window(struct snapshot *s, const struct window *w)
{
	add_tiles(s, w);
	if (w->classic)
		add_range(s, w, w->base, w->size);
	for (const struct block *b = w->blocks.first; b; b = b->next) {
		if (!w->classic && b->state != BLOCK_HOLE)
			add_range(s, w, b->address, b->size);
		if (b->state == BLOCK_SLAB)
			add_slab(s, b->slab);
		else if (b->state == BLOCK_LIVE || b->state == BLOCK_PENDING || b->state == BLOCK_ENDED)
			snapshot_add_block(s, (struct snapshot_block){.address = b->address,
			                                              .size = b->size,
			                                              .requested = b->requested,
			                                              .stream = (uint64_t)b->home->stream->handle,
			                                              .frames = b->frames,
			                                              .pending = b->state != BLOCK_LIVE});
	}
}

/* State and history of one moment. The growth lock is held, so no memory is being moved. */
static void fill_snapshot(trz_heap *h, struct snapshot *s)
{
	heap_lock(h);
	heap_call_all_in_locked(h);
	for (int kind = 0; kind < KINDS; kind++)
		for (const struct window *w = h->windows[kind]; w; w = w->next)
			add_window(s, w);
	snapshot_add_history(s, &h->history);
	if (snapshot_fits(s))  /* else it is taken again; its event shows in the next snapshot */
		history_note(&h->history, HISTORY_SNAPSHOT, .size = heap_held(h, ALLOCATED_BYTES));
	heap_unlock(h);
}

trz_status inspect_take(trz_heap *h, struct snapshot *s)
{
	trz_status status = TRZ_OK;
	bool complete = false;
	while (status == TRZ_OK && !complete) {
		status = snapshot_reserve(s);
		if (status != TRZ_OK)
			break;
		heap_take_growth(h);
		fill_snapshot(h, s);
		heap_give_growth(h);
		complete = snapshot_fits(s);
	}
	return status == TRZ_OK ? snapshot_seal(s) : status;
}

struct snapshot inspect_empty(trz_heap *h)
{
	return (struct snapshot){.memory = {copy_alloc, copy_free, &h->meta}, .device = h->driver.device, .tags = &h->tags};
}

trz_status inspect_snapshot(trz_heap *h, const char *path)
{
	struct snapshot s = inspect_empty(h);
	struct frames_teller teller = frames_teller(h);
	uint64_t size = SNAPSHOT_ANY_SIZE;
	int cancel = uncancelled_begin();
	trz_status status = inspect_take(h, &s);
	s.frames = frames_tell;
	s.frames_owner = &teller;
	if (status == TRZ_OK)
		status = snapshot_to_file(&s, path, &size);
	snapshot_free(&s);
	uncancelled_end(cancel);
	return status;
}

trz_status inspect_walk(trz_heap *h, const trz_visitor *visitor)
{
	struct snapshot s = inspect_empty(h);
	int cancel = uncancelled_begin();
	trz_status status = inspect_take(h, &s);
	if (status == TRZ_OK)
		snapshot_walk(&s, visitor);
	snapshot_free(&s);
	uncancelled_end(cancel);
	return status;
}

/* ---- one mapping ---- */

static bool maps(const struct window *w, trz_addr address, trz_segment_info *out)
{
	const struct place *p = !w->classic && address >= w->base && address < w->top ? window_at(w, address) : NULL;
	trz_addr begin = p ? p->address : w->classic_address;
	const struct tile *tile = p ? p->tile : w->classic;
	if (!tile || address - begin >= tile->size)
		return false;
	*out = (trz_segment_info){.address = begin,
	                          .size = tile->size,
	                          .pool = pool_id(w->pool),
	                          .small = w->kind == SMALL,
	                          .expandable = !w->classic};
	return true;
}

bool inspect_mapping(trz_heap *h, trz_addr address, trz_segment_info *out)
{
	bool found = false;
	heap_take_growth(h);
	for (int kind = 0; kind < KINDS; kind++)
		for (const struct window *w = h->windows[kind]; w && !found; w = w->next)
			found = maps(w, address, out);
	heap_give_growth(h);
	return found;
}
