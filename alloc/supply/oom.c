/* SPDX-License-Identifier: Apache-2.0
 *
 * The ladder as a table of rungs. No rung makes the host wait for the device.
 */
#include "supply/oom.h"

#include <stdio.h>
#include <string.h>

#include "error.h"
#include "heap/carve.h"
#include "heap/ledger.h"
#include "heap/poll.h"
#include "observe/frames.h"
#include "size_text.h"
#include "supply/borrow.h"
#include "supply/extend.h"
#include "supply/extent.h"
#include "supply/reclaim.h"
#include "supply/shared.h"

/* What the rungs work for. */
struct climb {
	trz_heap *heap;
	const struct demand *demand;
	struct waits waits;          /* the waits that they have put into the stream */
	struct facts_rung rungs[FACTS_RUNGS];
	unsigned rung_count;
};

/* ---- the rungs ---- */

/* Each returns whether growth may find more than before. */

/* Asks how far the streams are, drains what has passed, and borrows it. Driver: event queries, and a record if tickets
 * are out of reach. */
static bool drain(struct climb *c)
{
	heap_poll_all(c->heap);
	borrow(c->heap, c->demand);
	return true;
}

/* Frees the empty slabs that bins keep for the next request. No driver call. */
static bool slabs(struct climb *c)
{
	heap_retire_empty_slabs(c->heap);
	return true;
}

/* Joins what has passed across the streams of the lane's pool; growth, tried after the rung, gathers tiles. Driver:
 * event queries. */
static bool gather(struct climb *c)
{
	trz_heap *h = c->heap;
	heap_poll(h);
	heap_lock(h);
	borrow_join_all_locked(h, c->demand->lane, SMALL);
	borrow_join_all_locked(h, c->demand->lane, LARGE);
	heap_unlock(h);
	return true;
}

/* Returns free dedicated memory to the driver: nothing else can be served from it. */
static bool dedicated(struct climb *c)
{
	uint64_t before = heap_reserved(c->heap);
	reclaim_dedicated(c->heap, c->demand->bytes);
	if (c->heap->dedicates)
		reclaim_spent(c->heap);
	return heap_reserved(c->heap) < before;
}

/* Free memory of pools that graphs rely on, other than the lane's own. */
static uint64_t held_for_graphs(trz_heap *h, const struct lane *l)
{
	uint64_t bytes = 0;
	heap_lock(h);
	for (const struct lane *of = h->streams.lanes.first; of; of = of->next)
		bytes += lane_is_pinned(of) && of->pool != l->pool ? lane_free_bytes(of) : 0;
	heap_unlock(h);
	return bytes;
}

/* What would still be missing if all free and pending memory that may serve the lane, and all that the device and the
 * limit allow, lay in one piece. */
static uint64_t missing(trz_heap *h, const struct lane *l, uint64_t bytes, uint64_t device_free)
{
	uint64_t limit = heap_limit(h), reserved = heap_reserved(h);
	uint64_t growth = min_u64(device_free, limit > reserved ? limit - reserved : 0);
	uint64_t all = extent_serves(h, growth) + counter_get(&h->counters.cached_bytes.current) +
	               counter_get(&h->counters.pending_bytes.current);
	all -= min_u64(all, held_for_graphs(h, l));
	return bytes > all ? bytes - all : 0;
}

/* Makes the stream wait, on the device, for frees of other streams, unless that cannot help. The heap cannot know
 * whether one of them waits for later work of this stream: the program says so by an option. */
static bool wait_for_frees(struct climb *c)
{
	const struct demand *d = c->demand;
	if (c->heap->config.wait && missing(c->heap, d->lane, d->bytes, heap_ask_device(c->heap, NULL)) == 0)
		borrow_with_waits(c->heap, d, &c->waits);
	return c->waits.count > 0;
}

/* Returns to the driver the tiles that it refused before, and classic segments, which cannot move to where they are
 * needed. Free tiles stay: growth would have gathered them. */
static bool trim(struct climb *c)
{
	uint64_t released, before = heap_reserved(c->heap);
	if (c->heap->driver.vmm)
		reclaim_retry_zombies(c->heap);
	else
		reclaim_trim(c->heap, 0, &released);
	return heap_reserved(c->heap) < before;
}

struct rung {
	const char *name;
	bool (*climb)(struct climb *c);
	size_t counter;              /* offset of its count */
	bool grows;                  /* if it changes anything, growth is tried again after it, with all effort */
};

static const struct rung ladder[] = {
	{"drain: take in what has passed", drain, offsetof(struct counters, rung_drain), false},
	{"slabs: free empty slabs", slabs, offsetof(struct counters, rung_slabs), false},
	{"gather: join what has passed", gather, offsetof(struct counters, rung_gather), true},
	{"dedicated: return dedicated tiles", dedicated, offsetof(struct counters, rung_dedicated), true},
	{"wait: wait for other streams' frees", wait_for_frees, offsetof(struct counters, rung_wait), true},
	{"trim: return what cannot move", trim, offsetof(struct counters, rung_trim), true},
};

_Static_assert(sizeof ladder / sizeof *ladder == FACTS_RUNGS, "the facts have room for each rung");

/* What the lane has free, minus what is reserved: a rung gives what this grows by. */
static uint64_t at_hand(trz_heap *h, const struct lane *l)
{
	heap_lock(h);
	uint64_t bytes = lane_free_bytes(l);
	heap_unlock(h);
	return bytes - heap_reserved(h);
}

/* Whether growth is to be tried after the rung. */
static bool climb_rung(struct climb *c, const struct rung *rung)
{
	trz_heap *h = c->heap;
	counter *count = (counter *)(void *)((char *)&h->counters + rung->counter);
	uint64_t before = at_hand(h, c->demand->lane);
	counter_add(count, 1);
	bool changed = rung->climb(c);
	int64_t more = (int64_t)(at_hand(h, c->demand->lane) - before);
	c->rungs[c->rung_count++] = (struct facts_rung){rung->name, more > 0 ? (uint64_t)more : 0};
	return rung->grows && changed;
}

/* ---- */

bool oom_is_want_of_memory(trz_status status)
{
	return status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT || status == TRZ_ERROR_ADDRESS_SPACE;
}

bool oom_is_hopeless(const trz_heap *h, uint64_t bytes, trz_status *status)
{
	if (bytes > h->driver.info.total_bytes)
		*status = TRZ_ERROR_OUT_OF_MEMORY;
	else if (bytes > max_u64(heap_limit(h), heap_reserved(h)))
		*status = TRZ_ERROR_LIMIT;
	else
		return false;
	return true;
}

/* A free block of the lane, cut to the demand's bytes, busy and counted as idle; NULL: none. */
static struct block *search(trz_heap *h, const struct demand *d)
{
	heap_lock(h);
	struct block *b = node_pool_reserve(&h->blocks, 2) ? fit_find(&d->lane->fit[d->kind], d->bytes) : NULL;
	if (b) {
		b = heap_cut_block_locked(h, b, b->address, d->bytes);
		level_add(&h->counters.idle_bytes, b->size);
	}
	heap_unlock(h);
	return b;
}

/* Serves a small request from what the large windows have free, as a block of its own: no program should fail for want
 * of so little. */
static struct block *search_large(trz_heap *h, struct demand *d)
{
	struct demand large = *d;
	if (d->kind == LARGE)
		return NULL;
	large.kind = LARGE;
	large.size_class = CLASS_COUNT;
	large.occupied = demand_block_bytes(LARGE, d->size);
	large.bytes = demand_padded(&large);
	struct block *b = search(h, &large);
	if (b)
		*d = large;
	return b;
}

/* The newest failure of this thread, and whether its callback is running. */
static _Thread_local struct facts thread_failure;
static _Thread_local bool in_callback;

const struct facts *oom_thread_facts(void)
{
	return &thread_failure;
}

static trz_oom_info gather_info(trz_heap *h, struct lane *l, uint64_t bytes, const struct waits *waits)
{
	uint64_t total = h->driver.info.total_bytes, free_bytes = heap_ask_device(h, &total), withheld = h->withheld;
	trz_oom_info i = {.requested = bytes,
	                  .stream = l->stream->handle,
	                  .device_free = free_bytes + withheld,
	                  .device_total = total,
	                  .limit = atomic_load(&h->limit),
	                  .reserved = heap_reserved(h),
	                  .allocated = heap_held(h, ALLOCATED_BYTES),
	                  .pending = counter_get(&h->counters.pending_bytes.current),
	                  .cached = counter_get(&h->counters.cached_bytes.current),
	                  .pinned = held_for_graphs(h, l),
	                  .largest = extend_largest(h, l),
	                  .waits = waits->count,
	                  .awaited_count = waits->streams};
	for (unsigned k = 0; k < waits->streams; k++)
		i.awaited[k] = waits->awaited[k]->handle;
	i.missing = missing(h, l, bytes, free_bytes);
	return i;
}

/* The facts of a heap that has not allocated yet, and so knows no stream. */
static trz_oom_info unused_info(trz_heap *h)
{
	uint64_t total = h->driver.info.total_bytes, free_bytes = heap_ask_device(h, &total);
	return (trz_oom_info){.device_free = free_bytes + h->withheld,
	                      .device_total = total,
	                      .limit = atomic_load(&h->limit),
	                      .largest = min_u64(free_bytes, heap_limit(h))};
}

void oom_facts_now(trz_heap *h, struct facts *f)
{
	static const struct waits none;
	struct stream *s = atomic_load_explicit(&h->streams.count, memory_order_acquire)
	                       ? atomic_load_explicit(&h->streams.list[0], memory_order_relaxed) : NULL;
	if (s) {
		f->info = gather_info(h, &s->lane, 0, &none);
		facts_gather(h, &s->lane, f);
	} else {
		f->info = unused_info(h);
		shared_ask(h->driver.device, &f->shared);
	}
}

/* Free memory that the lane might get if the work of other streams were done: what has passed is the lane's by now, or
 * has been gathered. */
static uint64_t unfinished(trz_heap *h, const struct lane *l)
{
	uint64_t bytes = counter_get(&h->counters.pending_bytes.current);
	heap_lock(h);
	for (const struct lane *of = h->streams.lanes.first; of; of = of->next)
		bytes += of != l && of->pool == l->pool ? lane_free_bytes(of) : 0;
	heap_unlock(h);
	return bytes;
}

/* Whether the device has what is missing, but a limit that stands before the driver forbids it. If the device's figures
 * are unknown, the limit is taken to be the reason. */
static bool is_shared_limit(const trz_oom_info *i, const trz_shared_limit *shared)
{
	size_t left = shared->limit - min_u64(shared->limit, shared->own + shared->others);
	return shared->limit && i->missing &&
	       (!shared->device_total || shared->device_free - min_u64(left, shared->device_free) >= i->missing);
}

static bool is_own_limit(const trz_oom_info *i)
{
	return i->limit && i->limit - min_u64(i->limit, i->reserved) < i->device_free;
}

/* The reason by the sums alone. */
static enum verdict_kind reason(trz_heap *h, const struct lane *l, const struct facts *f)
{
	const trz_oom_info *i = &f->info;
	bool shared = is_shared_limit(i, &f->shared);
	if (i->requested > i->device_total && !shared)
		return VERDICT_TOO_LARGE;
	if (i->missing)
		return is_own_limit(i) || shared ? VERDICT_LIMIT : VERDICT_FULL;
	return unfinished(h, l) ? VERDICT_OTHER_STREAM : VERDICT_FRAGMENTED;
}

/* Writes f->reason. */
static void advise(struct facts *f, enum verdict_kind kind, uint64_t missing, uint64_t kept)
{
	char *text = f->reason;
	size_t size = sizeof f->reason;
	char lack[SIZE_TEXT_BYTES], most[SIZE_TEXT_BYTES], advice[] = "free something, use a smaller batch, or";
	size_text(missing, lack);
	size_text(kept, most);
	switch (kind) {
	case VERDICT_TOO_LARGE:
		snprintf(text, size, "the device is full, %s short: no device of this size can serve that", lack);
		break;
	case VERDICT_LIMIT:
		snprintf(text, size, "%s limit is reached, %s short: %s raise %s", is_own_limit(&f->info) ? "the heap's" : "a",
		         lack, advice, is_own_limit(&f->info) ? "the limit" : "it");
		break;
	case VERDICT_OTHER_PROCESS:
		snprintf(text, size, "other processes have about %s of the device, %s short: end them, or use another device",
		         most, lack);
		break;
	case VERDICT_LEAK:
		snprintf(text, size, "%s of what is held grows with the program's steps, %s short: free or bound it", most,
		         lack);
		break;
	case VERDICT_POOL:
		snprintf(text, size, "other pools keep %s free, %s short: release them, or capture graphs with one shared pool",
		         most, lack);
		break;
	case VERDICT_OTHER_STREAM:
		snprintf(text, size, "free memory is fragmented by unfinished work of other streams or live blocks in the same "
		                     "tiles: synchronise, or free more");
		break;
	case VERDICT_ROUNDING:
		snprintf(text, size, "rounding takes %s, %s short: ask for sizes that need no rounding", most, lack);
		break;
	case VERDICT_FRAGMENTED:
		snprintf(text, size, "free memory is fragmented by live blocks in the same tiles: free more, or use a smaller "
		                     "batch");
		break;
	default:
		snprintf(text, size, "the device is full, %s short: %s find what else uses the device", lack, advice);
	}
}

/* The streams that the stream waited for; "" if it did not wait. */
static const char *wait_text(const trz_oom_info *i, char *text, size_t size)
{
	text[0] = '\0';
	if (i->waits)
		snprintf(text, size, "; stream %p waited for stream %p%s (%u wait%s)", i->stream, i->awaited[0],
		         i->awaited_count > 1 ? " and others" : "", i->waits, i->waits > 1 ? "s" : "");
	return text;
}

static void note_facts(const struct climb *c, const trz_oom_info *i)
{
	const struct demand *d = c->demand;
	struct facts *f = &thread_failure;
	*f = (struct facts){.info = *i, .needed = max_u64(d->bytes, d->size), .rung_count = c->rung_count};
	memcpy(f->rungs, c->rungs, sizeof f->rungs);
	facts_gather(c->heap, d->lane, f);
}

/* What the device does not give, and the limits that hold; "" for none. */
static const char *bounds_text(const trz_oom_info *i, const struct facts *f, char *text, size_t size)
{
	const trz_shared_limit *shared = &f->shared;
	char limit[SIZE_TEXT_BYTES], held[SIZE_TEXT_BYTES];
	int used = 0;
	text[0] = '\0';
	if (f->withheld)
		used = snprintf(text, size, ", %s of which cannot be had", size_text(f->withheld, held));
	if (i->limit)
		used += snprintf(text + used, size - (size_t)used, ", the heap has a limit of %s", size_text(i->limit, limit));
	if (shared->limit)
		snprintf(text + used, size - (size_t)used, ", %s of a limit of %s is held",
		         size_text(shared->own + shared->others, held), size_text(shared->limit, limit));
	return text;
}

void oom_reword(enum verdict_kind kind, uint64_t missing, uint64_t kept)
{
	struct facts *f = &thread_failure;
	char text[ERROR_TEXT_BYTES];
	snprintf(text, sizeof text, "%s", trz_last_error());
	const char *reason = f->reason[0] ? strstr(text, f->reason) : NULL;
	if (!reason)
		return;  /* cut off, or another error */
	const char *rest = reason + strlen(f->reason);
	advise(f, kind, missing, kept);
	trz_fail(TRZ_ERROR_OUT_OF_MEMORY, "%.*s%s%s", (int)(reason - text), text, f->reason, rest);
}

/* One line: the request, where the memory is, the remedy. */
static trz_status report(struct climb *c, trz_status status)
{
	trz_heap *h = c->heap;
	const struct demand *d = c->demand;
	enum { N = SIZE_TEXT_BYTES };
	char asked[N], reserved[N], held[N], cached[N], largest[N], free_text[N], total[N], pinned[N], bounds[192];
	struct lane *l = d->lane;
	trz_oom_info i = gather_info(h, l, d->size, &c->waits);
	char waited[160];
	note_facts(c, &i);
	const trz_shared_limit *shared = &thread_failure.shared;
	bool real = shared->device_total != 0;
	pthread_mutex_lock(&h->oom_lock);
	h->last_oom = i;
	pthread_mutex_unlock(&h->oom_lock);
	size_text(i.pinned, pinned);
	advise(&thread_failure, reason(h, l, &thread_failure), i.missing, 0);
	return trz_fail(status,
	                "%s requested on device %d: %s of %s is free there%s; this heap has reserved %s, callers hold "
	                "%s of it, %s is free%s%s%s, and %s is the most it could serve now%s; %s",
	                size_text(d->size, asked), h->driver.device,
	                size_text(real ? shared->device_free : i.device_free, free_text),
	                size_text(real ? shared->device_total : i.device_total, total),
	                bounds_text(&i, &thread_failure, bounds, sizeof bounds), size_text(i.reserved, reserved),
	                size_text(i.allocated, held),
	                size_text(i.cached, cached), i.pinned ? " (" : "", i.pinned ? pinned : "",
	                i.pinned ? " of that held for graphs in private pools)" : "", size_text(i.largest, largest),
	                wait_text(&i, waited, sizeof waited), thread_failure.reason);
}

trz_status oom_report(trz_heap *h, const struct demand *d, trz_status status)
{
	struct climb c = {.heap = h, .demand = d};
	return report(&c, status);
}

void oom_count(trz_heap *h, const struct demand *d)
{
	counter_add(&h->counters.num_ooms, 1);
	heap_lock(h);
	history_note(&h->history, HISTORY_OOM, .size = d->size, .stream = (uint64_t)d->lane->stream->handle,
	             .device_free = thread_failure.info.device_free, .frames = heap_thread.frames);
	heap_unlock(h);
}

trz_status oom_ladder(trz_heap *h, struct demand *d, trz_status refused, struct block **out)
{
	HEAP_GROWTH_LOCKED(h);
	assert(d->bytes > 0 && oom_is_want_of_memory(refused));
	struct climb c = {.heap = h, .demand = d};
	uint64_t starved = atomic_load_explicit(&h->meta.refused, memory_order_relaxed);
	if (oom_is_hopeless(h, d->bytes, &refused))
		return oom_report(h, d, refused);
	counter_add(&h->counters.num_alloc_retries, 1);
	atomic_store_explicit(&h->short_of_memory, true, memory_order_relaxed);
	d->effort = EFFORT_ALL;
	d->view = false;  /* tiles of other pools move now, too, and would have their seats there */
	for (size_t i = 0; i < sizeof ladder / sizeof *ladder; i++) {
		bool grows = climb_rung(&c, &ladder[i]);
		*out = search(h, d);
		if (*out)
			return TRZ_OK;
		if (grows && !oom_is_want_of_memory(refused = extend(h, d, out)))
			return refused;
	}
	d->effort = EFFORT_LAST;
	refused = extend(h, d, out);
	if (!oom_is_want_of_memory(refused))
		return refused;
	*out = search_large(h, d);
	if (*out)
		return TRZ_OK;
	if (atomic_load_explicit(&h->meta.refused, memory_order_relaxed) != starved)
		return meta_exhausted();  /* what stays where it is might have moved, or gone, with host memory */
	return refused == TRZ_ERROR_ADDRESS_SPACE ? refused : report(&c, refused);
}

bool oom_ask(trz_heap *h, trz_status status)
{
	char text[ERROR_TEXT_BYTES];
	frames_find_asker();
	thread_failure.site = heap_thread.stack;
	pthread_mutex_lock(&h->oom_lock);
	trz_oom_callback *callback = h->oom_callback;
	void *user = h->oom_user;
	pthread_mutex_unlock(&h->oom_lock);
	if (!callback || in_callback)
		return false;
	snprintf(text, sizeof text, "%s", trz_last_error());
	struct facts failure = thread_failure;
	trz_oom_info info = failure.info;
	int cancel = uncancelled_begin();
	in_callback = true;
	bool again = callback(user, &info);
	in_callback = false;
	uncancelled_end(cancel);
	thread_failure = failure;  /* the callback's own calls may have failed, too */
	trz_fail(status, "%s", text);
	return again;
}
