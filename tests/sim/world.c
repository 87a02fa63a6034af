/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a simulated world, and what is checked after them.
 */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accounts.h"
#include "heap.h"
#include "world_parts.h"

const char *world_wrong(struct world *w, const char *format, ...)
{
	if (w->wrong[0])
		return w->wrong;
	int at = snprintf(w->wrong, sizeof w->wrong, "seed %llu, event %llu (%u streams, %s): ",
	                  (unsigned long long)w->seed,
	                  (unsigned long long)w->events, w->stream_count, w->conf);
	va_list args;
	va_start(args, format);
	vsnprintf(w->wrong + at, sizeof w->wrong - (size_t)at, format, args);
	va_end(args);
	return w->wrong;
}

#define TRY(call) \
	do { \
		const char *text = (call); \
		if (text) \
			return text; \
	} while (0)

/* A call that has to succeed. */
#define MUST(w, call) \
	do { \
		trz_status must = (call); \
		if (must != TRZ_OK) \
			return world_wrong((w), "%s: %s: %s", #call, trz_status_name(must), trz_last_error()); \
	} while (0)

/* ---- which tiles are touched ---------------------------------------------------------------------------- */

static int by_pointer(const void *a, const void *b)
{
	const void *x = *(const void *const *)a, *y = *(const void *const *)b;
	return x < y ? -1 : x > y;
}

static const struct window *window_of(const struct world *w, trz_addr address)
{
	for (int pool = 0; pool < KINDS; pool++)
		for (const struct window *i = w->heap->windows[pool]; i; i = i->next)
			if (address >= i->base && address < i->top)
				return i;
	return NULL;
}

/* The tiles under [begin, end), appended to list[n ..]; returns the new count. */
static size_t add_tiles(const struct world *w, trz_addr begin, trz_addr end, const struct tile **list, size_t n)
{
	const struct window *window = window_of(w, begin);
	if (!window)
		return n;
	if (window->classic) {
		list[n++] = window->classic;
		return n;
	}
	for (trz_addr a = begin; a < end; a = align_down(a, GRANULE) + GRANULE)
		list[n++] = window_at(window, a)->tile;
	return n;
}

uint64_t world_touched(const struct world *w, bool slabs)
{
	size_t n = 0, most = 0;
	for (size_t i = 0; i < w->shadow.count; i++)
		most += w->shadow.list[i].size / GRANULE + 2;
	const struct tile **list = malloc(most * sizeof *list + 1);
	for (size_t i = 0; list && i < w->shadow.count; i++) {
		const struct live *l = &w->shadow.list[i];
		trz_addr begin = l->address, end = begin + l->size;
		pagemap_entry entry = pagemap_get(&w->heap->pagemap, begin);
		if (slabs && l->small && pagemap_is_slab(entry)) {
			begin = pagemap_slab(entry)->base;
			end = begin + slab_class(pagemap_slab(entry))->slab_size;
		}
		n = add_tiles(w, begin, end, list, n);
	}
	qsort(list, n, sizeof *list, by_pointer);
	uint64_t bytes = 0;
	for (size_t i = 0; i < n; i++)
		bytes += i == 0 || list[i] != list[i - 1] ? list[i]->size : 0;
	free(list);
	return bytes;
}

/* ---- checks ---------------------------------------------------------------------------------------- */

static const char *check_balance(struct world *w)
{
	struct accounts a = accounts_read(w->heap);
	if (!accounts_balance(&a))
		return world_wrong(w, "law 2: %llu bytes reserved are not the sum of their owners",
		                   (unsigned long long)a.reserved);
	for (int pool = 0; pool < 2; pool++)
		if (a.allocations[pool] != w->count[pool] || a.requested_of[pool] != w->requested[pool] ||
		    a.allocated[pool] != w->allocated[pool])
			return world_wrong(w, "the counters of the %s pool do not say what is held",
			                   pool ? "large" : "small");
	if (a.rounding != w->rounding)
		return world_wrong(w, "rounding is %llu, not %llu", (unsigned long long)a.rounding,
		                   (unsigned long long)w->rounding);
	if (a.zombie || (w->vmm && a.idle))
		return world_wrong(w, "%llu zombie and %llu idle bytes", (unsigned long long)a.zombie,
		                   (unsigned long long)a.idle);
	if (w->vmm && a.reserved != sim_device_used(w->s, 0))
		return world_wrong(w, "%llu bytes are reserved, the device has given %llu",
		                   (unsigned long long)a.reserved, (unsigned long long)sim_device_used(w->s, 0));
	return NULL;
}

static const char *check_legal(struct world *w)
{
	return sim_violations(w->s) ? world_wrong(w, "violation: %s", sim_first_violation(w->s)) : NULL;
}

const char *world_check(struct world *w)
{
	TRY(check_legal(w));
	MUST(w, trz_check(w->heap));
	return check_balance(w);
}

/* ---- allocation and free ----------------------------------------------------------------------------- */

static void hold(struct world *w, const struct live *l, uint64_t sign)
{
	w->count[!l->small] += sign;
	w->requested[!l->small] += sign * l->requested;
	w->allocated[!l->small] += sign * align_up(l->requested, UNIT);
	w->rounding += sign * (l->size - l->requested);
	w->occupied += sign * l->size;
}

/* After a refusal: with all work done, a request that fits beside the tiles in use has to be served. */
static const char *must_fit(struct world *w, uint64_t size, uint64_t alignment, unsigned stream)
{
	void *p;
	size_t limit;
	MUST(w, sim_device_sync(w->s, 0));
	MUST(w, trz_get_limit(w->heap, &limit));
	uint64_t room = limit && limit < w->capacity ? limit : w->capacity, touched = world_touched(w, true);
	uint64_t need = align_up(max_u64(size, CELL + UNIT) + alignment, GRANULE) + GRANULE;
	trz_status status = trz_alloc(w->heap, size, alignment, w->streams[stream], &p);
	if (status != TRZ_OK && touched + need <= room)
		return world_wrong(w, "%llu bytes refused beside %llu in use of %llu: %s", (unsigned long long)size,
		                   (unsigned long long)touched, (unsigned long long)room, trz_last_error());
	if (status == TRZ_OK)
		MUST(w, trz_free(w->heap, p));
	return NULL;
}

static const char *refused(struct world *w, trz_status status, void *p, uint64_t size, uint64_t alignment,
                           unsigned stream)
{
	if (p)
		return world_wrong(w, "an allocation failed and gave a pointer");
	if (status != TRZ_ERROR_OUT_OF_MEMORY && status != TRZ_ERROR_LIMIT)
		return world_wrong(w, "allocation of %llu: %s: %s; driver: %s", (unsigned long long)size,
		                   trz_status_name(status), trz_last_error(), trz_driver_last_error());
	w->oom_count++;
	return w->vmm && world_below(w, 4) == 0 ? must_fit(w, size, alignment, stream) : NULL;
}

const char *world_alloc(struct world *w, uint64_t size, uint64_t alignment, unsigned stream)
{
	void *p = w;
	trz_pointer_info info;
	trz_status status = trz_alloc(w->heap, size, alignment, w->streams[stream], &p);
	if (status != TRZ_OK)
		return refused(w, status, p, size, alignment, stream);
	MUST(w, trz_query(w->heap, p, &info));
	struct live l = {.address = (trz_addr)p, .size = info.size, .requested = size, .tag = ++w->tags,
	                 .stream = stream, .small = info.small};
	size_t other;
	if (l.address % max_u64(alignment, UNIT) || info.base != p || info.requested != size || info.size < size)
		return world_wrong(w, "%p of %llu bytes is not what was asked for", p, (unsigned long long)size);
	if (!shadow_add(&w->shadow, l, &other))
		return world_wrong(w, "%p, %llu bytes, shares bytes with a live allocation of tag %llu", p,
		                   (unsigned long long)size, (unsigned long long)w->shadow.list[other].tag);
	hold(w, &l, 1);
	MUST(w, sim_stamp(w->s, w->c, w->streams[stream], l.address, l.size, l.tag));
	return NULL;
}

static const char *verify(struct world *w, const struct live *l, unsigned stream)
{
	MUST(w, sim_verify(w->s, w->c, w->streams[stream], l->address, l->size, l->tag));
	return NULL;
}

const char *world_free(struct world *w, size_t index)
{
	struct live l = shadow_remove(&w->shadow, index);
	TRY(verify(w, &l, l.stream));
	MUST(w, trz_free(w->heap, (void *)l.address));
	hold(w, &l, (uint64_t)-1);
	return NULL;
}

/* What `to` is given from now on waits for what `from` has been given. */
static const char *order(struct world *w, unsigned from, unsigned to)
{
	trz_event event = NULL;
	MUST(w, w->d->event_create(w->d->self, w->c, &event));
	MUST(w, w->d->event_record(w->d->self, w->c, event, w->streams[from]));
	MUST(w, w->d->stream_wait(w->d->self, w->c, w->streams[to], event));
	MUST(w, w->d->event_destroy(w->d->self, w->c, event));
	return NULL;
}

static const char *free_on_another(struct world *w, size_t index)
{
	struct live l = w->shadow.list[index];
	unsigned other = (unsigned)world_below(w, w->stream_count);
	TRY(verify(w, &l, l.stream));
	TRY(order(w, l.stream, other));
	TRY(verify(w, &l, other));
	shadow_remove(&w->shadow, index);
	MUST(w, trz_free_on(w->heap, (void *)l.address, w->streams[other]));
	hold(w, &l, (uint64_t)-1);
	return NULL;
}

/* Used for a while by another stream, as a communication stream does, and handed back. */
static const char *lend(struct world *w, size_t index)
{
	struct live *l = &w->shadow.list[index];
	unsigned other = (unsigned)world_below(w, w->stream_count);
	TRY(order(w, l->stream, other));
	TRY(verify(w, l, other));
	l->tag = ++w->tags;
	MUST(w, sim_stamp(w->s, w->c, w->streams[other], l->address, l->size, l->tag));
	return order(w, other, l->stream);
}

/* Read by another stream behind the owner's back: the free has to wait for it, nothing else does. */
static const char *share(struct world *w, size_t index)
{
	struct live *l = &w->shadow.list[index];
	unsigned other = (unsigned)world_below(w, w->stream_count);
	TRY(order(w, l->stream, other));
	TRY(verify(w, l, other));
	l->read_elsewhere = true;
	MUST(w, trz_record_stream(w->heap, (void *)l->address, w->streams[other]));
	return NULL;
}

static const char *use_elsewhere(struct world *w, size_t index)
{
	return w->shadow.list[index].read_elsewhere || world_below(w, 2) ? share(w, index) : lend(w, index);
}

/* ---- the program ----------------------------------------------------------------------------------- */

static uint64_t log_uniform(struct world *w, unsigned least_shift, unsigned most_shift)
{
	uint64_t size = 1ull << (least_shift + world_below(w, most_shift - least_shift));
	return size + world_below(w, size);
}

static uint64_t random_size(struct world *w)
{
	uint64_t large = max_u64(w->capacity / 32, MIB(1)), size;
	switch (w->profiles[world_below(w, WORLD_PROFILES)]) {
	case 0:
		size = 1 + world_below(w, 4096);
		break;
	case 1:
		size = 1 + world_below(w, KIB(32));
		break;
	case 2:
		size = KIB(32) + world_below(w, MIB(1));
		break;
	case 3:
		size = 1 + world_below(w, 4 * large);
		break;
	case 4:
		size = log_uniform(w, 3, 26);
		break;
	case 5:
		size = (1 + world_below(w, 5)) * large / 4;  /* few sizes, again and again */
		break;
	default:
		size = (1 + world_below(w, 3)) * GRANULE - UNIT + world_below(w, 3) * UNIT;
	}
	return max_u64(size, 8);
}

static uint64_t random_alignment(struct world *w)
{
	return world_below(w, 12) ? 0 : 1ull << world_below(w, 22);
}

static const char *allocate(struct world *w)
{
	return world_alloc(w, random_size(w), random_alignment(w), (unsigned)world_below(w, w->stream_count));
}

static const char *free_any(struct world *w)
{
	size_t index = world_below(w, w->shadow.count);
	return world_below(w, 8) ? world_free(w, index) : free_on_another(w, index);
}

static const char *rare_event(struct world *w)
{
	size_t limit = 0;
	switch (world_below(w, 5)) {
	case 0:
		MUST(w, trz_trim(w->heap, world_below(w, 2) ? 0 : world_below(w, w->capacity), NULL));
		break;
	case 1:
		if (world_below(w, 2))
			limit = w->occupied + world_below(w, w->capacity);
		MUST(w, trz_set_limit(w->heap, limit));
		break;
	case 2:
		MUST(w, trz_reset_peaks(w->heap));
		break;
	case 3:
		MUST(w, sim_stream_sync(w->s, w->c, w->streams[world_below(w, w->stream_count)]));
		break;
	default:
		MUST(w, sim_device_sync(w->s, 0));
	}
	return NULL;
}

static const char *act(struct world *w)
{
	bool full = w->shadow.count >= w->live_most || w->occupied > w->fill_target, empty = w->shadow.count == 0;
	uint64_t what = world_below(w, 256);
	if (what < 3)
		return rare_event(w);
	if (what < 10 && !empty)
		return use_elsewhere(w, world_below(w, w->shadow.count));
	if (w->burst == 0 && what < 14) {
		w->burst = world_below(w, 2 * w->live_most);
		w->burst_allocates = world_below(w, 2);
	}
	bool grow = w->burst ? w->burst_allocates : world_below(w, 2);
	w->burst -= w->burst != 0;
	if (empty || (grow && !full))
		return allocate(w);
	return grow && world_below(w, 16) == 0 ? allocate(w) : free_any(w);
}

const char *world_step(struct world *w)
{
	w->events++;
	TRY(act(w));
	if (w->run_most)
		sim_run(w->s, world_below(w, w->run_most + 1));
	else
		sim_tick(w->s, w->lag);
	TRY(check_balance(w));
	return w->events % 64 == 0 ? world_check(w) : NULL;
}

const char *world_end(struct world *w)
{
	while (w->shadow.count)
		TRY(world_free(w, world_below(w, w->shadow.count)));
	MUST(w, sim_device_sync(w->s, 0));
	MUST(w, trz_trim(w->heap, 0, NULL));
	TRY(world_check(w));
	struct accounts a = accounts_read(w->heap);
	if (a.reserved || sim_device_used(w->s, 0))
		return world_wrong(w, "%llu bytes stay reserved", (unsigned long long)a.reserved);
	trz_heap *heap = w->heap;
	w->heap = NULL;
	MUST(w, trz_close(heap));
	char leaks[200];
	if (sim_leaks(w->s, leaks, sizeof leaks))
		return world_wrong(w, "left with the driver: %s", leaks);
	return check_legal(w);
}

void world_close(struct world *w)
{
	trz_close(w->heap);
	if (w->s)
		sim_close(w->s);
	shadow_clear(&w->shadow);
	w->heap = NULL;
	w->s = NULL;
}
