/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing a heap's structures, its streams and their lanes, events and polls.
 */
#include "heap.h"

#include <assert.h>
#include <sched.h>
#include <string.h>

#include "error.h"

_Thread_local const char *heap_thread_tag;
_Thread_local uint64_t heap_thread_frames;

/* ---- opening and closing ---- */

/* What the debugging options mean for the others. */
static trz_status apply_aids(trz_heap *h)
{
	struct config *c = &h->config;
	bool never_again = c->guard || c->unmap_on_free;
	if (never_again && !h->driver.vmm)
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "%s needs virtual memory management, which %s",
		                c->guard ? "guard" : "unmap_on_free",
		                h->driver.info.vmm ? "vmm:off has switched off" : "the device lacks");
	h->isolated = c->no_cache || never_again;
	if (c->no_cache)
		c->small_limit = 0;
	if (never_again)
		c->quarantine = (uint64_t)1 << 20;  /* more than there are addresses */
	return TRZ_OK;
}

static trz_status open_structures(trz_heap *h)
{
	uint64_t total;
	trz_status status = driver_mem_info(&h->driver, &h->attainable, &total);
	if (status != TRZ_OK)
		return trz_fail(status, "device %d does not tell its free memory: %s", h->driver.device,
		                trz_driver_last_error());
	if (!pagemap_open(&h->pagemap, &h->meta))
		return meta_exhausted();
	node_pool_init(&h->blocks, &h->meta, sizeof(struct block));
	node_pool_init(&h->slabs, &h->meta, sizeof(struct slab));
	node_pool_init(&h->pendings, &h->meta, sizeof(struct pending));
	node_pool_init(&h->uses, &h->meta, sizeof(struct use));
	node_pool_init(&h->slot_frames, &h->meta, SLAB_SLOTS_MAX * sizeof(uint64_t));
	h->config.tile_size = align_up(h->config.tile_size, h->driver.granule);
	h->config.tile_size_max = align_up(h->config.tile_size_max, h->driver.granule);
	tiles_init(&h->tiles, &h->meta, &h->driver, &h->counters,
	           h->config.exportable && h->driver.info.export_fd ? TRZ_EXPORT_FD : TRZ_EXPORT_NONE);
	h->streams.meta = h->events.meta = h->undestroyed.meta = &h->meta;
	h->events.context = h->undestroyed.context = h->driver.context;
	h->streams.counters = &h->counters;
	lanes_init(&h->streams.lanes);
	h->tile_least[SMALL] = h->tile_least[LARGE] = SIZE_LIMIT;
	atomic_init(&h->limit, h->config.limit);
	return TRZ_OK;
}

/* Readers are every allocation: whoever wants to begin or end a diversion would else wait for a gap between them. */
static void init_divert_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attributes;
	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(lock, &attributes);
	pthread_rwlockattr_destroy(&attributes);
}

trz_status heap_open(trz_heap *h, const trz_open_params *params, const trz_driver *table)
{
	trz_status status = config_load(&h->config, params->config);
	if (status != TRZ_OK)
		return status;
	status = driver_bind(&h->driver, table, params->device, params->context, h->config.vmm, &h->counters);
	if (status != TRZ_OK)
		return status;
	if (!meta_open(&h->meta)) {
		driver_unbind(&h->driver);
		return meta_exhausted();
	}
	pthread_mutex_init(&h->growth_lock, NULL);
	pthread_mutex_init(&h->oom_lock, NULL);
	init_divert_lock(&h->divert_lock);
	status = apply_aids(h);
	if (status == TRZ_OK)
		status = open_structures(h);
	if (status != TRZ_OK)
		heap_close(h);
	return status;
}

void heap_close(trz_heap *h)
{
	pthread_mutex_destroy(&h->growth_lock);
	pthread_mutex_destroy(&h->oom_lock);
	pthread_rwlock_destroy(&h->divert_lock);
	meta_close(&h->meta);
	driver_unbind(&h->driver);
}

uint64_t heap_ask_device(trz_heap *h, uint64_t *total)
{
	uint64_t free_bytes, unused;
	if (driver_mem_info(&h->driver, &free_bytes, total ? total : &unused) != TRZ_OK)
		return 0;
	h->attainable = heap_reserved(h) + free_bytes;
	return free_bytes;
}

trz_status heap_not_permitted(const char *function)
{
	return trz_fail(TRZ_ERROR_NOT_PERMITTED, "%s in a host function of a stream, where CUDA permits no call", function);
}

/* ---- streams ---- */

/* The events of a context: those of its streams. NULL: no host memory. */
static struct event_pool *events_of_locked(trz_heap *h, trz_context context)
{
	struct event_pool *p = &h->events;
	while (p && (p->context != context || heap_has_lost(p)))
		p = p->next;
	if (p || !(p = meta_alloc(&h->meta, sizeof *p)))
		return p;
	p->meta = &h->meta;
	p->context = context;
	p->next = h->events.next;
	h->events.next = p;
	return p;
}

static struct stream *add_locked(trz_heap *h, trz_stream handle, uint64_t id, trz_context context, bool growing)
{
	struct stream *s = stream_find(&h->streams, id);
	struct event_pool *events = s ? NULL : events_of_locked(h, context);
	if (events) {
		stream_bury(&h->streams, handle);
		s = stream_recycle(&h->streams, id, handle, events, growing);
		if (!s)
			s = stream_add(&h->streams, id, handle, events);
		if (s)  /* it has been given nothing that uses the heap's memory */
			s->announced = (struct announcement){h->announcements, s->tickets.newest};
	}
	if (s)
		s->entered++;
	return s;
}

/* Whether the entry can be another stream's: nothing of the stream is under way or held, imports and pools included. */
static bool is_idle_locked(const trz_heap *h, const struct stream *s)
{
	if (s == atomic_load_explicit(&h->legacy, memory_order_relaxed) || s->tickets.closed || !stream_is_idle(s))
		return false;
	for (const struct pool *p = h->pools; p; p = p->next)
		for (const struct lane *l = p->lanes; l; l = l->pool_next)
			if (l->stream == s)
				return false;
	for (const struct window *w = h->imports; w; w = w->next)
		if (w->blocks.first && w->blocks.first->home->stream == s)
			return false;
	return true;
}

enum { ENTRIES_AT_ONCE = 64 };

/* As many streams are known as can be: the entries of some that hold nothing and have nothing under way are given up,
 * as if they had been retired. One that comes again gets another entry. Growth lock held. */
static void make_room(trz_heap *h)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire), found = 0;
	heap_poll_all(h);
	heap_retire_empty_slabs(h);
	for (unsigned i = 0; i < streams && found < ENTRIES_AT_ONCE; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		heap_lock(h);
		if (is_idle_locked(h, s)) {
			s->tickets.closed = true;
			atomic_store_explicit(&s->retired, true, memory_order_relaxed);
			found++;
		}
		heap_unlock(h);
	}
}

/* A stream that is not known: its context is asked for while it is alive. */
static trz_status add_stream(trz_heap *h, trz_stream handle, uint64_t id, bool growing, struct stream **out)
{
	trz_context context;
	trz_status status = driver_stream_context(&h->driver, handle, &context);
	if (status != TRZ_OK)
		return trz_fail(status, "stream %p does not tell its context: %s", handle, trz_driver_last_error());
	heap_lock(h);
	struct stream *s = add_locked(h, handle, id, context, growing);
	heap_unlock(h);
	if (!s && !growing) {
		if (!heap_lock_growth(h))
			return heap_not_permitted("a stream that is new to the heap");
		make_room(h);
		heap_lock(h);
		s = add_locked(h, handle, id, context, true);
		heap_unlock(h);
		heap_unlock_growth(h);
	}
	if (!s)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no room for another stream: %d are known that hold memory "
		                "(trz_stream_retire gives those up that go), or the host has no memory left", STREAMS_MAX);
	*out = s;
	return TRZ_OK;
}

static trz_status find_or_add(trz_heap *h, trz_stream handle, bool growing, struct stream **out)
{
	*out = heap_known_stream(h, handle);
	if (*out)
		return TRZ_OK;
	bool legacy = is_legacy(handle);
	if (legacy)
		handle = NULL;
	uint64_t id;
	trz_status status = driver_stream_id(&h->driver, handle, &id);
	if (status != TRZ_OK)
		return trz_fail(status, "stream %p is not known to the driver: %s", handle, trz_driver_last_error());
	heap_lock(h);
	*out = stream_find(&h->streams, id);
	if (*out)
		(*out)->entered++;
	heap_unlock(h);
	if (!*out)
		status = add_stream(h, handle, id, growing, out);
	if (status == TRZ_OK && legacy)
		atomic_store_explicit(&h->legacy, *out, memory_order_release);
	return status;
}

trz_status heap_stream(trz_heap *h, trz_stream handle, struct stream **out)
{
	return find_or_add(h, handle, false, out);
}

trz_status heap_legacy_stream(trz_heap *h, struct stream **out)
{
	return find_or_add(h, NULL, true, out);
}

/* A handle may be another stream's by now, of which nobody has told: the ticket is covered all the same, since what
 * covers it will be recorded on the handle. */
trz_status heap_stream_of_user(trz_heap *h, trz_stream handle, struct stream **out)
{
	trz_status status = heap_stream(h, handle, out);
	if (status != TRZ_ERROR_NOT_PERMITTED)
		return status;
	heap_lock(h);
	struct stream *known = stream_find_handle(&h->streams, handle);
	if (known)
		known->entered++;
	heap_unlock(h);
	if (!known)
		return trz_fail(status, "stream %p is new to the heap, and in a host function the driver tells nothing of it: "
		                "allocate on it once before, or use trz_free", handle);
	*out = known;
	return TRZ_OK;
}

struct lane *heap_make_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned apart, bool captured)
{
	struct lane **list = p ? &p->lanes : &s->apart;
	struct lane *l = lane_find(*list, s, apart, captured);
	if (l)
		return l;
	l = meta_alloc(&h->meta, sizeof *l);
	if (!l)
		return NULL;
	l->apart = (uint8_t)apart;
	l->captured = captured;
	lane_add(&h->streams.lanes, l, s, p, &h->counters.cached_bytes);
	l->pool_next = *list;
	*list = l;
	return l;
}

struct lane *heap_lane_apart_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned apart)
{
	return !p && !apart ? &s->lane : heap_make_lane_locked(h, s, p, apart, false);
}

/* ---- events ---- */

bool heap_is_threads_own(trz_heap *h, const struct stream *s)
{
	uint64_t id;
	return !s->thread_bound || (driver_stream_id(&h->driver, s->handle, &id) == TRZ_OK && id == s->id);
}

bool heap_reaches_stream(trz_heap *h, const struct stream *s)
{
	return !atomic_load_explicit(&s->retired, memory_order_acquire) && heap_is_threads_own(h, s);
}

trz_status heap_note_loss(trz_heap *h, struct event_pool *p, trz_status status)
{
	bool gone = status == TRZ_ERROR_CONTEXT_DEAD || status == TRZ_ERROR_SHUTDOWN;
	if (gone && p != &h->events && !driver_is_dead(&h->driver)) {
		atomic_store_explicit(&p->lost, true, memory_order_relaxed);
		atomic_store_explicit(&h->poll_wanted, true, memory_order_relaxed);
	}
	return status;
}

trz_status heap_take_event(trz_heap *h, struct event_pool *p, trz_event *event)
{
	heap_lock(h);
	*event = event_pool_take(p);
	heap_unlock(h);
	return *event ? TRZ_OK : heap_note_loss(h, p, driver_event_create(&h->driver, p->context, event));
}

bool heap_is_captured(trz_heap *h, const struct stream *s)
{
	struct event_pool *p = s ? s->events : &h->events;
	trz_capture_status capture;
	trz_status status = driver_stream_capture(&h->driver, p->context, s ? s->handle : NULL, &capture, NULL);
	return heap_note_loss(h, p, status) != TRZ_OK || capture != TRZ_CAPTURE_NONE;
}

/* An event on the legacy default stream would invalidate a capture that has begun on a blocking stream since the
 * question was asked: none is recorded once such a capture has been announced. */
bool heap_may_record(trz_heap *h, const struct stream *s)
{
	return !((!s || is_legacy(s->handle)) && atomic_load(&h->announced)) && !heap_is_captured(h, s);
}

/* Another thread may begin a capture between the question and the record: an event that has become part of it must
 * never be asked. Captures that the heap serves are announced before they begin, so that the question is only asked
 * again where there is one. */
trz_event heap_record_event(trz_heap *h, const struct stream *s)
{
	struct event_pool *p = s->events;
	trz_event event;
	if (!heap_may_record(h, s) || heap_take_event(h, p, &event) != TRZ_OK)
		return NULL;
	trz_status status = driver_event_record(&h->driver, p->context, event, s->handle);
	bool recorded = heap_note_loss(h, p, status) == TRZ_OK;
	if (recorded && !(atomic_load_explicit(&h->diverting, memory_order_acquire) && heap_is_captured(h, s)))
		return event;
	heap_return_event(h, p, event);
	return NULL;
}

void heap_return_event(trz_heap *h, struct event_pool *p, trz_event event)
{
	heap_lock(h);
	bool kept = event_pool_give(p, event);
	heap_unlock(h);
	if (!kept)
		driver_event_destroy(&h->driver, p->context, event);
}

void heap_destroy_event(trz_heap *h, trz_event event)
{
	if (driver_event_destroy(&h->driver, h->driver.context, event) == TRZ_OK)
		return;
	heap_lock(h);
	event_pool_give(&h->undestroyed, event);
	heap_unlock(h);
}

/* Takes the `n` oldest events out of the queue: they have completed. */
static void pop_passed(trz_heap *h, struct stream *s, unsigned n)
{
	while (n--) {
		heap_lock(h);
		struct event_pool *p = s->events;  /* with its last event gone the entry can be another stream's */
		trz_event event = ticket_pop(&s->tickets);
		heap_unlock(h);
		heap_return_event(h, p, event);
	}
}

/* A capture began between the question whether there is one and the record: the oldest event is part of a graph, and
 * tells nothing. What it was to cover another one will. */
static void drop_captured(trz_heap *h, struct stream *s)
{
	heap_lock(h);
	struct event_pool *p = s->events;
	trz_event event = ticket_drop(&s->tickets);
	heap_unlock(h);
	heap_return_event(h, p, event);
}

/* Events complete in order: the oldest is asked, then ones further and further on, then by halves how far the stream
 * has come. Frees append to the queue meanwhile and change nothing of what is in it. */
static void collect_passed(trz_heap *h, struct stream *s)
{
	trz_status status = TRZ_OK;
	heap_lock(h);
	unsigned passed = 0;                                         /* so many have passed, */
	unsigned count = s->tickets.waiters ? 0 : s->tickets.count;  /* what is waited for stays queued */
	unsigned open = count;                                       /* and this one has not, if there is any */
	heap_unlock(h);
	while (passed < open) {
		unsigned i = open < count ? (passed + open) / 2 : (unsigned)min_u64(2 * passed, open - 1);
		heap_lock(h);
		trz_event event = s->tickets.queue[(s->tickets.head + i) % TICKET_QUEUE].event;
		heap_unlock(h);
		status = heap_note_loss(h, s->events, driver_event_query(&h->driver, s->events->context, event));
		if (status == TRZ_OK)
			passed = i + 1;
		else
			open = i;
	}
	pop_passed(h, s, passed);
	if (passed == 0 && status == TRZ_ERROR_CAPTURE)
		drop_captured(h, s);
}

/* A full queue is emptied first, as far as it has passed. */
void heap_record_late(trz_heap *h, struct stream *s)
{
	heap_lock(h);
	bool full = s->tickets.count == TICKET_QUEUE;
	heap_unlock(h);
	if (full)
		collect_passed(h, s);
	heap_lock(h);
	uint64_t newest = s->tickets.newest;
	bool wanted = newest > s->tickets.recorded;
	heap_unlock(h);
	trz_event event = wanted && heap_reaches_stream(h, s) ? heap_record_event(h, s) : NULL;
	if (!event)
		return;
	heap_lock(h);
	struct event_pool *p = s->events;
	if (!stream_is_gone(s))  /* else it was recorded on another one */
		event = ticket_note(&s->tickets, newest, event, false);
	heap_unlock(h);
	if (event)
		heap_return_event(h, p, event);
}

void heap_await_recorders(trz_heap *h, const struct stream *s)
{
	for (bool any = true; any;) {
		heap_lock(h);
		any = s->recorders != 0;
		heap_unlock(h);
		if (any)
			sched_yield();
	}
}

trz_status heap_retire_stream(trz_heap *h, trz_stream handle)
{
	uint64_t id;
	trz_capture_status capture;
	trz_status status = driver_stream_id(&h->driver, handle, &id);
	if (status == TRZ_OK)
		status = driver_stream_capture(&h->driver, h->driver.context, handle, &capture, NULL);
	if (status != TRZ_OK)
		return status;
	if (capture != TRZ_CAPTURE_NONE)
		return TRZ_ERROR_CAPTURE;
	heap_lock(h);
	struct stream *s = stream_find(&h->streams, id);
	uint64_t last = s ? ticket_take(&s->tickets) : 0;  /* of whatever the stream has been given, uses too */
	heap_unlock(h);
	if (!s)
		return TRZ_OK;
	bool covered = false, more = true;
	while (more) {
		heap_record_late(h, s);
		heap_lock(h);
		covered = s->tickets.recorded == s->tickets.newest;
		more = !covered && s->tickets.recorded >= last;  /* other threads have freed memory of it meanwhile */
		last = s->tickets.newest;
		s->tickets.closed = covered;
		atomic_store_explicit(&s->retired, covered, memory_order_relaxed);
		heap_unlock(h);
	}
	if (covered)
		heap_await_recorders(h, s);
	atomic_store_explicit(&h->poll_wanted, true, memory_order_relaxed);  /* its entry can then be used again */
	return covered ? TRZ_OK : TRZ_ERROR_DRIVER;
}

/* Asks the events that came with frees. */
static void collect_given(trz_heap *h)
{
	struct pending **link = &h->given, *p;
	for (;;) {
		heap_lock(h);
		p = *link;
		heap_unlock(h);
		if (!p)
			return;
		trz_event event = p->event;
		trz_status status = driver_event_query(&h->driver, h->driver.context, event);
		heap_lock(h);
		while (*link != p)  /* others are put in front meanwhile */
			link = &(*link)->next;
		if (status == TRZ_OK) {
			*link = p->next;
			heap_end_pending_locked(h, p);
			atomic_fetch_sub_explicit(&h->given_count, 1, memory_order_relaxed);
		} else {
			link = &p->next;
		}
		heap_unlock(h);
		if (status == TRZ_OK)
			heap_destroy_event(h, event);
	}
}

/* How far a stream is. One whose context has gone has nothing under way. */
static void poll_stream(trz_heap *h, struct stream *s)
{
	heap_lock(h);
	bool lost = heap_has_lost(s->events);
	heap_unlock(h);
	if (!lost) {
		heap_record_late(h, s);
		collect_passed(h, s);
	}
	heap_lock(h);
	if (heap_has_lost(s->events) && !s->tickets.waiters)
		ticket_forget(&s->tickets);
	stream_note_poll(s);
	heap_drain_pending_locked(h, s);
	heap_unlock(h);
}

void heap_poll(trz_heap *h)
{
	heap_end_pools(h);
	heap_collect_contexts(h);
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	heap_lock(h);
	atomic_store_explicit(&h->poll_wanted, h->imports_freed > 0, memory_order_relaxed);
	heap_unlock(h);
	for (unsigned i = 0; i < streams; i++)
		poll_stream(h, atomic_load_explicit(&h->streams.list[i], memory_order_relaxed));
	collect_given(h);
	heap_dissolve_pools(h);
}
