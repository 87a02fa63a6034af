/* SPDX-License-Identifier: Apache-2.0
 *
 * The watch between a world's heap and its driver. It sees what no byte and no counter shows: calls made with the heap
 * lock held (docs/lock-order.md), and addresses whose memory changes without a notice to registration caches (law L10,
 * trz_set_map_callback). There is one world at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "heap/heap.h"
#include "world_parts.h"

static struct world *watched;

/* ---- registrations ----------------------------------------------------------------------------------------- */

/* The first registration that ends above an address. */
static size_t find(const struct world *w, trz_addr address)
{
	size_t low = 0, high = w->span_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (w->spans[middle].end > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void add_span(struct world *w, trz_addr begin, trz_addr end)
{
	size_t at = find(w, begin);
	if (w->span_count == w->span_room) {
		w->span_room = w->span_room ? 2 * w->span_room : 64;
		w->spans = realloc(w->spans, w->span_room * sizeof *w->spans);
		if (!w->spans)
			abort();
	}
	memmove(&w->spans[at + 1], &w->spans[at], (w->span_count - at) * sizeof *w->spans);
	w->spans[at] = (struct world_span){begin, end};
	w->span_count++;
}

static bool remove_span(struct world *w, trz_addr begin, trz_addr end)
{
	size_t at = find(w, begin);
	if (at == w->span_count || w->spans[at].begin != begin || w->spans[at].end != end)
		return false;
	w->span_count--;
	memmove(&w->spans[at], &w->spans[at + 1], (w->span_count - at) * sizeof *w->spans);
	return true;
}

static void note_change(void *user, trz_map_event event, void *address, size_t size)
{
	struct world *w = user;
	trz_addr begin = (trz_addr)address, end = begin + size;
	bool fits = true;
	pthread_mutex_lock(&w->lock);
	if (event == TRZ_MAP)
		add_span(w, begin, end);
	else
		fits = remove_span(w, begin, end);
	pthread_mutex_unlock(&w->lock);
	if (!fits)
		world_wrong(w, "law 10: %p, %zu bytes, is said to lose memory that it was not said to have", address, size);
}

/* `wholly`: whether all of the range is registered; else: whether any byte of it is. */
static bool is_registered(struct world *w, trz_addr address, uint64_t size, bool wholly)
{
	pthread_mutex_lock(&w->lock);
	size_t i = find(w, address);
	bool any = i < w->span_count && w->spans[i].begin < address + size;
	trz_addr covered = address;
	for (; wholly && i < w->span_count && w->spans[i].begin <= covered && covered < address + size; i++)
		covered = w->spans[i].end;
	pthread_mutex_unlock(&w->lock);
	return wholly ? covered >= address + size : any;
}

const char *world_check_registered(struct world *w, trz_addr address, uint64_t size)
{
	if (is_registered(w, address, size, true))
		return NULL;
	return world_wrong(w, "law 10: %#llx, %llu bytes, is given out before it is said to have memory",
	                   (unsigned long long)address, (unsigned long long)size);
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

/* If one thread acts at a time, a held lock is that thread's. */
static const trz_driver *enter(const char *slot)
{
	struct world *w = watched;
	if (w->heap && !w->free_running && atomic_load(&w->heap->lock.state) != SPINLOCK_FREE)
		world_wrong(w, "law 12: %s is called with the heap lock held", slot);
	return w->d;
}

static void expect_unregistered(const char *slot, trz_addr address, uint64_t size)
{
	if (is_registered(watched, address, size, false))
		world_wrong(watched, "law 10: %s of %#llx, %llu bytes, where somebody may hold a registration", slot,
		            (unsigned long long)address, (unsigned long long)size);
}

static trz_status map(void *self, trz_addr address, uint64_t size, trz_handle handle)
{
	const trz_driver *d = enter("map");
	expect_unregistered("map", address, size);
	return d->map(self, address, size, handle);
}

static trz_status unmap(void *self, trz_addr address, uint64_t size)
{
	const trz_driver *d = enter("unmap");
	expect_unregistered("unmap", address, size);
	if (world_is_exported(watched, address, size))
		world_wrong(watched, "law 10: %#llx, %llu bytes, is unmapped while another process has it",
		            (unsigned long long)address, (unsigned long long)size);
	return d->unmap(self, address, size);
}

static trz_status set_access(void *self, trz_addr address, uint64_t size, const int *devices, int count)
{
	return enter("set_access")->set_access(self, address, size, devices, count);
}

static trz_status create(void *self, const trz_tile_props *props, uint64_t size, trz_handle *handle)
{
	return enter("create")->create(self, props, size, handle);
}

static trz_status mem_free(void *self, trz_context context, trz_addr address)
{
	return enter("mem_free")->mem_free(self, context, address);
}

static trz_status event_record(void *self, trz_context context, trz_event event, trz_stream stream)
{
	return enter("event_record")->event_record(self, context, event, stream);
}

static trz_status event_query(void *self, trz_context context, trz_event event)
{
	return enter("event_query")->event_query(self, context, event);
}

static trz_status event_sync(void *self, trz_context context, trz_event event)
{
	return enter("event_sync")->event_sync(self, context, event);
}

static trz_status stream_wait(void *self, trz_context context, trz_stream stream, trz_event event)
{
	return enter("stream_wait")->stream_wait(self, context, stream, event);
}

const char *world_open_heap(struct world *w, const trz_driver *driver)
{
	trz_open_params params = {.config = w->conf, .driver = driver ? driver : &w->watch};
	if (trz_open(&params, &w->heap) != TRZ_OK)
		return world_wrong(w, "trz_open: %s", trz_last_error());
	MUST(w, trz_set_map_callback(w->heap, note_change, w));
	if (w->far && w->far == w->peer) {
		MUST(w, trz_enable_peer(w->heap, 1, true));
		atomic_store(&w->peer_enabled, true);
	}
	return world_show_streams(w);
}

void world_watch(struct world *w)
{
	watched = w;
	w->watch = *w->d;
	w->watch.map = map;
	w->watch.unmap = unmap;
	w->watch.set_access = set_access;
	w->watch.create = create;
	w->watch.mem_free = mem_free;
	w->watch.event_record = event_record;
	w->watch.event_query = event_query;
	w->watch.event_sync = event_sync;
	w->watch.stream_wait = stream_wait;
}
