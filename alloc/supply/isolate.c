/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and returning memory that stands alone.
 */
#include "supply/isolate.h"

#include "heap/carve.h"
#include "heap/events.h"
#include "heap/pending.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "supply/reclaim.h"

/* ---- making ---- */

static trz_status find_window(trz_heap *h, struct lane *l, uint64_t size, struct window **out)
{
	*out = l->window[LARGE];
	if (*out && window_room(*out) >= size)
		return TRZ_OK;
	return reclaim_new_window(h, l, LARGE, size, out);
}

/* Everything that is needed of the host: two nodes, for the memory and for the guard. */
static bool reserve_metadata(trz_heap *h, const struct window *w, uint64_t size, struct block *nodes[2])
{
	heap_lock(h);
	bool room = pagemap_cover(&h->pagemap, w->top, size) && node_pool_reserve(&h->blocks, 2);
	for (int i = 0; room && i < 2; i++)
		nodes[i] = node_pool_take(&h->blocks);
	heap_unlock(h);
	return room && tiles_reserve(&h->tiles, 1, 1);
}

static trz_status create(trz_heap *h, uint64_t size, struct tile **out)
{
	if (!heap_limit_allows(h, size))
		return TRZ_ERROR_LIMIT;
	trz_status status = tile_create(&h->tiles, size, LARGE, h->tiles.export_kinds, out);
	if (status != TRZ_OK)
		return status;
	flow_add(&h->counters.reserved_bytes, LARGE, size);
	flow_add(&h->counters.segment, LARGE, 1);
	h->tile_least[LARGE] = min_u64(h->tile_least[LARGE], size);
	h->tile_most = max_u64(h->tile_most, size);
	return TRZ_OK;
}

/* Makes the window's next `size` bytes a hole. */
static void skip_locked(trz_heap *h, struct window *w, struct lane *l, struct block *node, uint64_t size)
{
	heap_make_hole_locked(h, heap_append_block_locked(node, w, l, size));
}

/* Lays a tile at the window's end, or undoes all. The idle bytes of the tile are counted where it succeeds. */
static trz_status lay(trz_heap *h, struct window *w, struct lane *l, struct tile *tile, struct block *nodes[2])
{
	trz_addr top = w->top;
	uint64_t size = tile->size;
	trz_status status = window_lay(w, &h->tiles, &tile, 1), undone;
	if (status != TRZ_OK && !reclaim_destroy_tile(h, tile, &undone))
		reclaim_make_zombie(h, tile);
	heap_lock(h);
	if (status != TRZ_OK && w->top > top) {  /* the mapping could not be undone: these addresses are used up */
		skip_locked(h, w, l, nodes[0], size);
		nodes[0] = NULL;
	}
	if (status == TRZ_OK)
		level_add(&h->counters.idle_bytes, size);
	heap_unlock(h);
	return status;
}

static trz_status give_up(trz_heap *h, struct block *nodes[2], trz_status status)
{
	heap_lock(h);
	for (int i = 0; i < 2; i++)
		if (nodes[i])
			node_pool_give(&h->blocks, nodes[i]);
	heap_unlock(h);
	return status;
}

trz_status isolate_grow(trz_heap *h, struct lane *l, uint64_t bytes, struct block **out)
{
	uint64_t size = align_up(bytes, h->driver.granule), gap = h->config.guard ? h->driver.granule : 0;
	struct block *nodes[2] = {NULL, NULL};
	struct window *w;
	struct tile *tile;
	trz_status status = find_window(h, l, size + gap, &w);
	if (status != TRZ_OK)
		return status;
	if (!reserve_metadata(h, w, size, nodes))
		return give_up(h, nodes, meta_exhausted());
	status = create(h, size, &tile);
	if (status == TRZ_OK)
		status = lay(h, w, l, tile, nodes);
	if (status != TRZ_OK)
		return give_up(h, nodes, status);
	heap_lock(h);
	account_mapping_locked(h, HISTORY_MAP, 0, tile->places->address, size, pool_id(l->pool));
	*out = heap_append_block_locked(nodes[0], w, l, size);
	(*out)->sequence = 0;
	if (gap) {
		w->top += gap;
		skip_locked(h, w, l, nodes[1], gap);
	} else {
		node_pool_give(&h->blocks, nodes[1]);
	}
	counter_add(&h->counters.path_extend, 1);
	heap_unlock(h);
	return TRZ_OK;
}

/* ---- returning ---- */

void isolate_return_freed(trz_heap *h)
{
	uint64_t returned = 0;
	heap_poll(h);
	reclaim_retry_zombies(h);
	reclaim_trim_kind(h, LARGE, 0, &returned);
	reclaim_all_aliases(h);
}

/* ---- waiting ---- */

/* The oldest event of a stream that was recorded inside a free and has not been seen to pass; false: none. */
static bool oldest_exact_locked(const struct tickets *t, struct ticket_event *out)
{
	for (unsigned i = 0; i < t->count; i++) {
		const struct ticket_event *e = &t->queue[(t->head + i) % TICKET_QUEUE];
		if (e->exact && !ticket_passed(t, e->sequence)) {
			*out = *e;
			return true;
		}
	}
	return false;
}

/* The lane's own stream first, then the others. */
static struct stream *awaitable_locked(trz_heap *h, const struct lane *l, struct ticket_event *event)
{
	if (oldest_exact_locked(&l->stream->tickets, event))
		return l->stream;
	for (unsigned i = 0; i < h->streams.count; i++)
		if (oldest_exact_locked(&h->streams.list[i]->tickets, event))
			return h->streams.list[i];
	return NULL;
}

/* The event was recorded in a free, so it covers nothing that came after it (law 8); while somebody waits for it, it
 * stays queued. */
bool isolate_wait(trz_heap *h, const struct lane *l)
{
	struct ticket_event event;
	if (heap_is_captured(h, l->stream))
		return false;
	heap_lock(h);
	struct stream *s = awaitable_locked(h, l, &event);
	if (s)
		s->tickets.waiters++;
	heap_unlock(h);
	if (!s)
		return false;
	counter_add(&h->counters.waits_of_host, 1);
	heap_unlock_growth(h);
	trz_capture_mode mode;
	heap_relax(h, &mode);
	trz_status status = driver_event_sync(&h->driver, s->events->context, event.event);
	heap_tighten(h, mode);
	heap_relock_growth(h);
	heap_lock(h);
	s->tickets.waiters--;
	if (status == TRZ_OK) {  /* noted here: another thread that waits keeps the event queued, and would wait for ever */
		ticket_pass(&s->tickets, event.sequence);
		heap_drain_pending_locked(h, s);
	}
	heap_unlock(h);
	return status == TRZ_OK;
}
