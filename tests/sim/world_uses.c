/* SPDX-License-Identifier: Apache-2.0
 *
 * How a program uses memory: allocations, uses by several streams, frees of every kind, streams that end.
 */
#include <stdlib.h>

#include "heap/heap.h"
#include "world_parts.h"

/* ---- sizes ------------------------------------------------------------------------------------------ */

static uint64_t log_uniform(struct actor *a, unsigned least_shift, unsigned most_shift)
{
	uint64_t size = 1ull << (least_shift + below(a, most_shift - least_shift));
	return size + below(a, size);
}

uint64_t world_random_size(struct actor *a)
{
	uint64_t large = max_u64(a->w->capacity / 32, MIB(1)), size;
	switch (a->w->profiles[below(a, WORLD_PROFILES)]) {
	case 0:
		size = 1 + below(a, 4096);
		break;
	case 1:
		size = 1 + below(a, KIB(32));
		break;
	case 2:
		size = KIB(32) + below(a, MIB(1));
		break;
	case 3:
		size = 1 + below(a, 4 * large);
		break;
	case 4:
		size = log_uniform(a, 3, 26);
		break;
	case 5:
		size = (1 + below(a, 5)) * large / 4;  /* a few sizes, often */
		break;
	default:
		size = (1 + below(a, 3)) * GRANULE - UNIT + below(a, 3) * UNIT;
	}
	return max_u64(size, 8);
}

/* ---- allocation --------------------------------------------------------------------------------------- */

/* After a refusal: once all work is done, a request that fits beside the tiles in use must be served. */
static const char *must_fit(struct actor *a, uint64_t size, uint64_t alignment, unsigned stream)
{
	struct world *w = a->w;
	void *p;
	size_t limit;
	MUST(w, world_sync(w));
	MUST(w, trz_get_limit(w->heap, &limit));
	uint64_t most = align_down(w->capacity - world_withheld(w), GRANULE);
	uint64_t room = limit && limit < most ? limit : most, touched = world_touched(w, true);
	uint64_t need = align_up(max_u64(size, CELL + UNIT) + alignment, GRANULE) + GRANULE;
	trz_status status = trz_alloc(w->heap, size, alignment, handle_of(w, stream), &p);
	if (status != TRZ_OK && touched + need <= room)
		return world_wrong(w, "%llu bytes refused beside %llu in use of %llu: %s", (unsigned long long)size,
		                   (unsigned long long)touched, (unsigned long long)room, trz_last_error());
	if (status == TRZ_OK)
		MUST(w, trz_free(w->heap, p));
	return NULL;
}

/* Whether only this thread decides about the device's memory: one thread, no pools, no other process. */
static bool is_simple(const struct world *w)
{
	return w->vmm && w->actor_count == 1 && !w->graphs && !w->other && !w->faulty;
}

const char *world_allocate_on(struct actor *a, uint64_t size, unsigned stream)
{
	struct world *w = a->w;
	struct live l, asked = {.requested = size, .stream = stream};
	uint64_t alignment = below(a, 12) ? 0 : 1ull << below(a, 22);
	unsigned pool = world_expected_pool(a, stream);
	void *p = w;
	world_arm(a);
	trz_status status = trz_alloc(w->heap, asked.requested, alignment, handle_of(w, stream), &p);
	world_disarm(a);
	if (status != TRZ_OK) {
		TRY(world_refused(a, status, p));
		return is_simple(w) && chance(a, 4) ? must_fit(a, asked.requested, alignment, stream) : NULL;
	}
	TRY(world_receive(a, p, &asked, alignment, pool, &l));
	world_give(w, &l);
	return NULL;
}

static const char *allocate_some_on(struct actor *a, unsigned stream)
{
	return world_allocate_on(a, world_random_size(a), stream);
}

const char *world_allocate(struct actor *a)
{
	return world_on_any(a, allocate_some_on);
}

/* ---- frees -------------------------------------------------------------------------------------------- */

const char *world_free_here(struct actor *a, struct live *l)
{
	struct world *w = a->w;
	TRY(world_verify(a, l, l->stream));
	world_drop(w, l);
	world_arm(a);
	trz_status status = l->moved ? trz_free_on(w->heap, (void *)l->address, handle_of(w, l->stream))
	                             : trz_free(w->heap, (void *)l->address);
	world_disarm(a);
	if (status != TRZ_OK && l->moved && world_tolerates(w, status)) {  /* the stream's id could not be had */
		MUST(w, trz_free_on(w->heap, (void *)l->address, handle_of(w, l->stream)));
		status = TRZ_OK;
	}
	MUST(w, status);
	return NULL;
}

/* Frees a busy block. If its stream cannot be entered, frees it plainly, unless it has moved: then its stream must be
 * named. */
const char *world_free_one(struct actor *a, struct live *l, bool *done)
{
	struct world *w = a->w;
	*done = true;
	if (world_enter(a, l->stream)) {
		const char *wrong = world_free_here(a, l);
		world_leave(a, l->stream);
		return wrong;
	}
	*done = !l->moved;
	if (!*done) {
		world_give(w, l);
		return NULL;
	}
	world_drop(w, l);
	MUST(w, trz_free(w->heap, (void *)l->address));
	return NULL;
}

const char *world_free_any(struct actor *a)
{
	struct live l;
	bool done;
	return world_take(a, &l) ? world_free_one(a, &l, &done) : NULL;
}

/* Takes a block whose stream can be entered, and another stream; enters both. */
static bool enter_two(struct actor *a, struct live *l, unsigned *other)
{
	struct world *w = a->w;
	if (!world_take(a, l))
		return false;
	if (world_enter(a, l->stream)) {
		*other = world_enter_any(a);
		if (*other < WORLD_STREAMS)
			return true;
		world_leave(a, l->stream);
	}
	world_give(w, l);
	return false;
}

static const char *free_on(struct actor *a, struct live *l, unsigned other)
{
	struct world *w = a->w;
	TRY(world_verify(a, l, l->stream));
	TRY(world_order(w, l->stream, other));
	TRY(world_verify(a, l, other));
	world_drop(w, l);
	world_arm(a);
	trz_status status = trz_free_on(w->heap, (void *)l->address, handle_of(w, other));
	world_disarm(a);
	if (world_tolerates(w, status))
		status = trz_free_on(w->heap, (void *)l->address, handle_of(w, other));
	MUST(w, status);
	return NULL;
}

const char *world_free_elsewhere(struct actor *a)
{
	struct live l;
	unsigned other;
	if (!enter_two(a, &l, &other))
		return NULL;
	unsigned stream = l.stream;
	const char *wrong = free_on(a, &l, other);
	world_leave(a, other);
	world_leave(a, stream);
	return wrong;
}

/* ---- frees by host functions ----------------------------------------------------------------------------- */

/* How a host function frees. */
enum form { PLAINLY, BY_NAME, AFTER_EVENT, WITH_USE, FORMS };

struct parcel {
	struct parcel *next;   /* of those that have not been delivered */
	struct world *w;
	struct live l;
	bool foreign;
	enum form form;
	unsigned other;        /* another stream; it may have gone meanwhile */
	trz_event event;
};

/* Frees by a stream's name, or after noting a use by it; plainly, if the stream cannot be named. */
static trz_status free_with_stream(const struct parcel *p)
{
	struct world *w = p->w;
	void *address = (void *)p->l.address;
	struct world_stream *st = &w->streams[p->other];
	if (st->owner >= 0 || pthread_rwlock_tryrdlock(&st->lock) != 0)
		return trz_free(w->heap, address);
	trz_status status = p->form == BY_NAME ? trz_free_on(w->heap, address, st->handle)
	                                       : trz_record_stream(w->heap, address, st->handle);
	bool unknown = status == TRZ_ERROR_NOT_PERMITTED || world_tolerates(w, status);
	if (p->form == WITH_USE || unknown)
		status = status == TRZ_OK || unknown ? trz_free(w->heap, address) : status;
	pthread_rwlock_unlock(&st->lock);
	return status;
}

/* Allocates: the cache serves, or the refusal is one that is allowed here. */
static trz_status allocate_in_callback(struct world *w)
{
	void *p = NULL;
	if (w->legacy < 0 || w->graphs || !w->refuses)
		return TRZ_OK;
	trz_status status = trz_alloc(w->heap, 700, 0, NULL, &p);
	if (status == TRZ_OK)
		status = trz_free(w->heap, p);
	return status == TRZ_ERROR_NOT_PERMITTED ? TRZ_OK : status;
}

static void keep_parcel(struct parcel *p)
{
	pthread_mutex_lock(&p->w->lock);
	p->next = p->w->parcels;
	p->w->parcels = p;
	pthread_mutex_unlock(&p->w->lock);
}

static void forget_parcel(struct parcel *p)
{
	pthread_mutex_lock(&p->w->lock);
	struct parcel **link = &p->w->parcels;
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
	pthread_mutex_unlock(&p->w->lock);
	free(p);
}

void world_forget_parcels(struct world *w)
{
	while (w->parcels)
		forget_parcel(w->parcels);
}

static void free_parcel(void *arg)
{
	struct parcel *p = arg;
	struct world *w = p->w;
	void *address = (void *)p->l.address;
	if (p->foreign)
		pthread_mutex_lock(&w->foreign);
	world_drop(w, &p->l);
	trz_status status = p->form == PLAINLY       ? trz_free(w->heap, address)
	                    : p->form == AFTER_EVENT ? trz_free_after(w->heap, address, p->event)
	                                             : free_with_stream(p);
	if (status == TRZ_OK)
		status = allocate_in_callback(w);
	if (p->foreign)
		pthread_mutex_unlock(&w->foreign);
	if (status != TRZ_OK)
		world_failed(w, "a host function", status);
	forget_parcel(p);
}

/* Makes an event that may not have completed when the host function runs. */
static const char *make_event(struct actor *a, struct parcel *p)
{
	struct world *w = a->w;
	unsigned other = world_enter_any(a);
	if (other == WORLD_STREAMS) {
		p->form = PLAINLY;
		return NULL;
	}
	const char *wrong = world_order(w, p->l.stream, other);
	trz_status status = w->d->event_create(w->d->self, context_of(w, other), &p->event);
	if (status == TRZ_OK)
		status = w->d->event_record(w->d->self, context_of(w, other), p->event, handle_of(w, other));
	world_leave(a, other);
	MUST(w, status);
	return wrong;
}

/* Enqueues a host function that frees the block; its stream has been entered. */
static const char *send(struct actor *a, const struct live *l)
{
	struct world *w = a->w;
	struct parcel *p = malloc(sizeof *p);
	if (!p)
		abort();
	*p = (struct parcel){.w = w, .l = *l, .foreign = chance(a, 2), .other = (unsigned)below(a, w->stream_count)};
	if (!l->read_elsewhere && !l->pool && !w->faulty)
		p->form = (enum form)below(a, FORMS);
	keep_parcel(p);
	const char *wrong = world_verify(a, l, l->stream);
	if (!wrong && p->form == AFTER_EVENT)
		wrong = make_event(a, p);
	trz_status status = TRZ_OK;
	if (!wrong)
		status = sim_host(w->s, context_of(w, l->stream), handle_of(w, l->stream), free_parcel, p);
	if (wrong || status != TRZ_OK)
		forget_parcel(p);
	MUST(w, status);
	return wrong;
}

const char *world_free_in_callback(struct actor *a)
{
	struct world *w = a->w;
	struct live l;
	if (!world_take(a, &l))
		return NULL;
	if (l.moved || (l.owner && w->free_running) || !world_enter(a, l.stream)) {
		world_give(w, &l);
		return NULL;
	}
	const char *wrong = send(a, &l);
	world_leave(a, l.stream);
	return wrong;
}

/* Holds a lock that host functions want, too, so nothing that frees may wait for the device. If no driver call waits,
 * allocations do not either, except, with debugging options, when the device is full. */
const char *world_use_with_foreign_lock(struct actor *a)
{
	struct world *w = a->w;
	pthread_mutex_lock(&w->foreign);
	const char *wrong = chance(a, 3) ? world_free_elsewhere(a) : chance(a, 2) ? world_share(a) : world_free_any(a);
	if (!wrong && !w->waits && !w->aided && w->vmm && w->actor_count > 1)
		wrong = world_allocate(a);
	pthread_mutex_unlock(&w->foreign);
	return wrong;
}

/* ---- several streams ------------------------------------------------------------------------------------- */

static const char *lend_to(struct actor *a, struct live *l, unsigned other)
{
	struct world *w = a->w;
	TRY(world_order(w, l->stream, other));
	TRY(world_verify(a, l, other));
	TRY(world_stamp(a, l, other));
	return world_order(w, other, l->stream);
}

/* Lets another stream use a block for a while, as a communication stream would, and hand it back. */
const char *world_lend(struct actor *a)
{
	struct live l;
	unsigned other;
	if (!enter_two(a, &l, &other))
		return NULL;
	if (l.read_elsewhere) {  /* its reader must not see another tag */
		world_leave(a, other);
		world_leave(a, l.stream);
		world_give(a->w, &l);
		return NULL;
	}
	const char *wrong = lend_to(a, &l, other);
	world_leave(a, other);
	world_leave(a, l.stream);
	world_give(a->w, &l);
	return wrong;
}

static const char *share_with(struct actor *a, struct live *l, unsigned other)
{
	struct world *w = a->w;
	TRY(world_order(w, l->stream, other));
	TRY(world_verify(a, l, other));
	world_arm(a);
	trz_status status = trz_record_stream(w->heap, (void *)l->address, handle_of(w, other));
	world_disarm(a);
	if (world_tolerates(w, status))
		return world_order(w, other, l->stream);
	MUST(w, status);
	l->read_elsewhere = true;
	return NULL;
}

/* Lets another stream read a block, unordered: only the free must wait for that. A caller that frees by a stream's
 * name, as for memory that has moved, answers for all uses, so such a block is lent instead. */
const char *world_share(struct actor *a)
{
	struct live l;
	unsigned other;
	if (!enter_two(a, &l, &other))
		return NULL;
	bool lent = l.moved && !l.read_elsewhere;
	const char *wrong = lent ? lend_to(a, &l, other) : l.moved ? NULL : share_with(a, &l, other);
	world_leave(a, other);
	world_leave(a, l.stream);
	world_give(a->w, &l);
	return wrong;
}

/* ---- streams that end -------------------------------------------------------------------------------------- */

bool world_take_all_of(struct world *w, unsigned stream)
{
	bool all = true;
	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < w->shadow.count; i++)
		all &= w->shadow.list[i].stream != stream || !w->shadow.list[i].busy;
	for (size_t i = 0; i < w->shadow.count && all; i++)
		w->shadow.list[i].busy |= w->shadow.list[i].stream == stream;
	pthread_mutex_unlock(&w->lock);
	return all;
}

void world_pass_on(struct world *w, unsigned stream, unsigned to)
{
	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < w->shadow.count; i++) {
		struct live *l = &w->shadow.list[i];
		if (l->stream != stream)
			continue;
		l->busy = false;
		l->moved |= to != stream;
		l->stream = to;
	}
	pthread_mutex_unlock(&w->lock);
}

static void replace_in(atomic_uint *set, unsigned from, unsigned to)
{
	if (atomic_fetch_and(set, ~(1u << from)) >> from & 1)
		atomic_fetch_or(set, 1u << to);
}

static void replace_user(struct world *w, unsigned from, unsigned to)
{
	for (unsigned i = 0; i < w->actor_count; i++)
		for (int k = 0; k < WORLD_POOLS; k++) {
			struct world_pool *p = &w->actors[i].pools[k];
			for (int g = 0; g < WORLD_GRAPHS; g++)
				replace_in(&p->since[g], from, to);
			if (atomic_load(&p->served) >> from & 1)
				atomic_fetch_or(&p->served, 1u << to | WORLD_GONE);
		}
}

/* Makes a new stream for one that has gone; it is likely to get the old handle. The heap must have seen every stream
 * that graphs are launched on, so it is told at once. */
static const char *remake(struct actor *a, unsigned stream)
{
	struct world *w = a->w;
	struct world_stream *st = &w->streams[stream];
	void *p = NULL;
	MUST(w, sim_stream_destroy(w->s, st->of, st->handle));
	MUST(w, sim_stream_create(w->s, st->of, st->blocking, &st->handle));
	st->serial++;
	trz_status status = trz_alloc(w->heap, 64, 0, st->handle, &p);
	if (status != TRZ_OK)
		return world_refused(a, status, p);
	MUST(w, trz_free(w->heap, p));
	return NULL;
}

static const char *end_stream(struct actor *a, unsigned stream, unsigned heir)
{
	struct world *w = a->w;
	TRY(world_order(w, stream, heir));
	world_arm(a);
	trz_status status = trz_stream_retire(w->heap, handle_of(w, stream));
	world_disarm(a);
	bool retired = status == TRZ_OK;
	if (!retired && !world_tolerates(w, status))
		return world_failed(w, "trz_stream_retire", status);
	const char *wrong = NULL;
	if (retired) {
		replace_user(w, stream, heir);
		wrong = remake(a, stream);
	}
	world_pass_on(w, stream, retired ? heir : stream);
	return wrong;
}

/* The stream's blocks live on, in the order of another stream. */
const char *world_replace_stream(struct actor *a)
{
	struct world *w = a->w;
	unsigned stream = (unsigned)below(a, w->stream_count), heir = world_enter_any(a);
	struct world_stream *st = &w->streams[stream];
	const char *wrong = NULL;
	if (heir == WORLD_STREAMS)
		return NULL;
	bool fit = stream != heir && (int)stream != w->legacy && st->owner < 0 && w->streams[heir].owner < 0 &&
	           st->serial < 60 && pthread_rwlock_trywrlock(&st->lock) == 0;
	if (fit && atomic_load(&st->filters) == 0 && world_take_all_of(w, stream))
		wrong = end_stream(a, stream, heir);
	if (fit)
		pthread_rwlock_unlock(&st->lock);
	world_leave(a, heir);
	return wrong;
}
