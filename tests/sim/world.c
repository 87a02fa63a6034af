/* SPDX-License-Identifier: Apache-2.0
 *
 * The base of all events of a simulated world: streams and their locks, live allocations and their contents, and the
 * checks.
 */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accounts.h"
#include "heap/heap.h"
#include "world_parts.h"

const char *world_wrong(struct world *w, const char *format, ...)
{
	pthread_mutex_lock(&w->lock);
	if (!w->wrong[0]) {
		int at = snprintf(w->wrong, sizeof w->wrong, "seed %llu, event %llu (%u streams, %u threads, %s): ",
		                  (unsigned long long)w->seed, (unsigned long long)w->events, w->stream_count,
		                  w->actor_count, w->conf);
		va_list args;
		va_start(args, format);
		vsnprintf(w->wrong + at, sizeof w->wrong - (size_t)at, format, args);
		va_end(args);
	}
	pthread_mutex_unlock(&w->lock);
	atomic_store(&w->failed, true);
	return w->wrong;
}

const char *world_failed(struct world *w, const char *call, trz_status status)
{
	const char *violation = sim_first_violation(w->s);
	return world_wrong(w, "%s: %s: %s; driver: %s%s%s", call, trz_status_name(status), trz_last_error(),
	                   trz_driver_last_error(), violation ? "; violation: " : "", violation ? violation : "");
}

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

const char *world_check_balance(struct world *w)
{
	struct accounts a = accounts_read(w->heap);
	if (!accounts_balance(&a))
		return world_wrong(w, "law 2: %llu bytes reserved are not the sum of their owners",
		                   (unsigned long long)a.reserved);
	for (int kind = 0; kind < 2; kind++)
		if (a.allocations[kind] != w->count[kind] || a.requested_of[kind] != w->requested[kind] ||
		    a.allocated[kind] != w->allocated[kind])
			return world_wrong(w, "the counters of the %s pool do not say what is held",
			                   kind ? "large" : "small");
	if (a.rounding != w->rounding)
		return world_wrong(w, "rounding is %llu, not %llu", (unsigned long long)a.rounding,
		                   (unsigned long long)w->rounding);
	if ((a.zombie && !w->faulty) || (w->vmm && a.idle))
		return world_wrong(w, "%llu zombie and %llu idle bytes", (unsigned long long)a.zombie,
		                   (unsigned long long)a.idle);
	if (w->limit && a.reserved > max_u64(w->limit, w->reserved))
		return world_wrong(w, "%llu bytes are reserved, %llu more than before, though the limit is %llu",
		                   (unsigned long long)a.reserved, (unsigned long long)(a.reserved - w->reserved),
		                   (unsigned long long)w->limit);
	w->reserved = a.reserved;
	uint64_t used = sim_device_used(w->s, 0) - w->other_used;
	if (w->vmm && a.reserved != used)
		return world_wrong(w, "%llu bytes are reserved, the device has given %llu",
		                   (unsigned long long)a.reserved, (unsigned long long)used);
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
	return world_check_balance(w);
}

/* ---- injected failures ------------------------------------------------------------------------------- */

bool world_tolerates(const struct world *w, trz_status status)
{
	return w->faulty && (status == TRZ_ERROR_DRIVER || status == TRZ_ERROR_OUT_OF_MEMORY);
}

/* If all actors run at a time, only calls that the program does not make itself can be made to fail. Setting a thread's
 * own capture mode fails only for wrong arguments. */
void world_arm(struct actor *a)
{
	static const uint64_t heaps_own = 1ull << SIM_SLOT_create | 1ull << SIM_SLOT_release | 1ull << SIM_SLOT_map |
	                                  1ull << SIM_SLOT_unmap | 1ull << SIM_SLOT_set_access |
	                                  1ull << SIM_SLOT_reserve | 1ull << SIM_SLOT_mem_alloc |
	                                  1ull << SIM_SLOT_mem_info | 1ull << SIM_SLOT_event_query;
	static const double probabilities[] = {0.02, 0.2, 0.7};
	struct world *w = a->w;
	uint64_t slots = w->free_running ? heaps_own : ~(1ull << SIM_SLOT_capture_mode);
	if (w->faulty && chance(a, 8))
		sim_fault_probability(w->s, slots, probabilities[below(a, 3)],
		                      chance(a, 2) ? TRZ_ERROR_OUT_OF_MEMORY : TRZ_ERROR_DRIVER);
}

void world_disarm(struct actor *a)
{
	if (a->w->faulty)
		sim_fault_probability(a->w->s, 0, 0, TRZ_OK);
}

/* ---- streams --------------------------------------------------------------------------------------- */

bool world_enter(struct actor *a, unsigned stream)
{
	struct world_stream *st = &a->w->streams[stream];
	return (st->owner < 0 || st->owner == (int)a->index) && pthread_rwlock_tryrdlock(&st->lock) == 0;
}

void world_leave(struct actor *a, unsigned stream)
{
	pthread_rwlock_unlock(&a->w->streams[stream].lock);
}

unsigned world_enter_any(struct actor *a)
{
	for (int tries = 0; tries < 4; tries++) {
		unsigned stream = (unsigned)below(a, a->w->stream_count);
		if (world_enter(a, stream))
			return stream;
	}
	return WORLD_STREAMS;
}

const char *world_on_any(struct actor *a, const char *(*act)(struct actor *a, unsigned stream))
{
	unsigned stream = world_enter_any(a);
	if (stream == WORLD_STREAMS)
		return NULL;
	const char *wrong = act(a, stream);
	world_leave(a, stream);
	return wrong;
}

const char *world_join(struct actor *a, unsigned set, unsigned to, bool *done)
{
	unsigned entered = 0;
	const char *wrong = NULL;
	*done = true;
	for (unsigned i = 0; i < a->w->stream_count && *done; i++) {
		if (!(set >> i & 1) || i == to)
			continue;
		*done = world_enter(a, i);
		entered |= (unsigned)*done << i;
	}
	for (unsigned i = 0; i < a->w->stream_count; i++) {
		if (!(entered >> i & 1))
			continue;
		if (*done && !wrong)
			wrong = world_order(a->w, i, to);
		world_leave(a, i);
	}
	return wrong;
}

/* ---- memory ---------------------------------------------------------------------------------------- */

void world_hold(struct world *w, const struct live *l, uint64_t sign)
{
	w->count[!l->small] += sign;
	w->requested[!l->small] += sign * l->requested;
	w->allocated[!l->small] += sign * align_up(l->requested, UNIT);
	w->rounding += sign * (l->size - l->requested);
	w->occupied += sign * l->size;
}

/* If all actors run at a time, only its owner may take a pool's memory: a restore may change it at any moment. */
static bool may_take(const struct actor *a, const struct live *l)
{
	return !l->busy && !l->kept && (!a->w->free_running || !l->owner || l->owner == a->index + 1);
}

static bool take(struct actor *a, struct live *l, unsigned tries, bool (*fits)(const struct live *l, unsigned arg),
                 unsigned arg)
{
	struct world *w = a->w;
	bool found = false;
	pthread_mutex_lock(&w->lock);
	while (tries-- && !found && w->shadow.count) {
		struct live *any = &w->shadow.list[below(a, w->shadow.count)];
		found = may_take(a, any) && (!fits || fits(any, arg));
		if (!found)
			continue;
		any->busy = true;
		*l = *any;
	}
	pthread_mutex_unlock(&w->lock);
	return found;
}

bool world_take(struct actor *a, struct live *l)
{
	return take(a, l, 8, NULL, 0);
}

static bool is_shareable(const struct live *l, unsigned arg)
{
	(void)arg;
	return l->shareable;
}

bool world_take_shareable(struct actor *a, struct live *l)
{
	return take(a, l, 200, is_shareable, 0);
}

static bool is_of_one(const struct live *l, unsigned streams)
{
	return streams >> l->stream & 1;
}

static bool is_of_pool(const struct live *l, unsigned pool)
{
	return l->pool == pool;
}

bool world_take_of_pool(struct actor *a, struct live *l, unsigned pool)
{
	return take(a, l, 32, is_of_pool, pool);
}

bool world_take_of_streams(struct actor *a, struct live *l, unsigned streams)
{
	return take(a, l, 32, is_of_one, streams);
}

struct live world_look_up(struct world *w, trz_addr address)
{
	pthread_mutex_lock(&w->lock);
	struct live l = w->shadow.list[shadow_find(&w->shadow, address)];
	pthread_mutex_unlock(&w->lock);
	return l;
}

bool world_enter_of(struct actor *a, trz_addr address, struct live *l)
{
	unsigned stream = world_look_up(a->w, address).stream;
	if (!world_enter(a, stream))
		return false;
	*l = world_look_up(a->w, address);
	if (l->stream == stream)
		return true;
	world_leave(a, stream);
	return false;
}

void world_give(struct world *w, const struct live *l)
{
	pthread_mutex_lock(&w->lock);
	struct live *mine = &w->shadow.list[shadow_find(&w->shadow, l->address)];
	*mine = *l;
	mine->busy = false;
	pthread_mutex_unlock(&w->lock);
}

void world_drop(struct world *w, const struct live *l)
{
	pthread_mutex_lock(&w->lock);
	shadow_remove(&w->shadow, shadow_find(&w->shadow, l->address));
	world_hold(w, l, (uint64_t)-1);
	pthread_mutex_unlock(&w->lock);
}

const char *world_stamp(struct actor *a, struct live *l, unsigned stream)
{
	struct world *w = a->w;
	l->tag = atomic_fetch_add(&w->tags, 1) + 1;
	MUST(w, sim_stamp(w->s, context_of(w, stream), handle_of(w, stream), l->address, l->size, l->tag));
	if (l->pool)
		world_note_user(a, l->pool, stream);
	return NULL;
}

const char *world_verify(struct actor *a, const struct live *l, unsigned stream)
{
	struct world *w = a->w;
	MUST(w, sim_verify(w->s, context_of(w, stream), handle_of(w, stream), l->address, l->size, l->tag));
	if (l->pool)
		world_note_user(a, l->pool, stream);
	return NULL;
}

const char *world_accept(struct actor *a, void *p, const struct live *asked, uint64_t alignment, unsigned pool,
                         struct live *l)
{
	struct world *w = a->w;
	trz_pointer_info info;
	MUST(w, trz_query(w->heap, p, &info));
	*l = (struct live){.address = (trz_addr)p, .size = info.size, .requested = asked->requested,
	                   .stream = asked->stream, .small = info.small, .busy = true};
	if (l->address % max_u64(alignment, UNIT) || info.base != p || info.requested != l->requested ||
	    info.size < l->requested)
		return world_wrong(w, "%p of %llu bytes is not what was asked for", p, (unsigned long long)l->requested);
	l->pool = world_pool_of(w, l->address);
	l->owner = world_owner_of(w, l->pool);
	const struct world_pool *own = world_own_pool(a, l->pool);
	l->graphs = own ? own->graphs_made : 0;  /* other actors allocate only from pools without graphs */
	if (l->pool != pool && !w->free_running)
		return world_wrong(w, "%p, %llu bytes on stream %u, is from pool %u, not %u", p,
		                   (unsigned long long)l->requested, l->stream, l->pool, pool);
	size_t other;
	TRY(world_check_registered(w, l->address, l->size));
	pthread_mutex_lock(&w->lock);
	bool alone = shadow_add(&w->shadow, *l, &other);
	uint64_t tag = alone ? 0 : w->shadow.list[other].tag;
	if (alone)
		world_hold(w, l, 1);
	pthread_mutex_unlock(&w->lock);
	if (!alone)
		return world_wrong(w, "%p, %llu bytes, shares bytes with a live allocation of tag %llu", p,
		                   (unsigned long long)l->requested, (unsigned long long)tag);
	return NULL;
}

const char *world_receive(struct actor *a, void *p, const struct live *asked, uint64_t alignment, unsigned pool,
                          struct live *l)
{
	TRY(world_accept(a, p, asked, alignment, pool, l));
	return world_stamp(a, l, l->stream);
}

/* Whether the heap knows as many streams as it can. Those with work under way keep their entries. */
static bool is_crowded(const struct world *w)
{
	uint64_t streams = 0;
	return trz_stat(w->heap, "stream.current", &streams) == TRZ_OK && streams == STREAMS_MAX;
}

const char *world_refused(struct actor *a, trz_status status, const void *p)
{
	struct world *w = a->w;
	if (p)
		return world_wrong(w, "an allocation failed and gave a pointer");
	if (status == TRZ_ERROR_HOST_MEMORY && is_crowded(w)) {
		sim_nudge(w->s, WORLD_EVENTS);
		return NULL;
	}
	bool want = status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT;
	if (!want && !world_tolerates(w, status) && !(w->faulty && status == TRZ_ERROR_ADDRESS_SPACE))
		return world_failed(w, "an allocation", status);
	pthread_mutex_lock(&w->lock);
	w->ooms++;
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

const char *world_alloc(struct world *w, uint64_t size, uint64_t alignment, unsigned stream)
{
	struct actor *a = &w->actors[0];
	struct live l, asked = {.requested = size, .stream = stream};
	void *p = w;
	trz_status status = trz_alloc(w->heap, size, alignment, handle_of(w, stream), &p);
	if (status != TRZ_OK)
		return world_refused(a, status, p);
	TRY(world_receive(a, p, &asked, alignment, 0, &l));
	world_give(w, &l);
	return NULL;
}

const char *world_free(struct world *w, size_t index)
{
	struct live l = w->shadow.list[index];
	bool done;
	return world_free_one(&w->actors[0], &l, &done);
}

/* ---- one actor alone --------------------------------------------------------------------------------- */

const char *world_step(struct world *w)
{
	w->events++;
	TRY(world_act(&w->actors[0]));
	TRY(world_check_balance(w));
	return w->events % 64 == 0 ? world_check(w) : NULL;
}
