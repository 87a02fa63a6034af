/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory apart, exports to the other process, peers, growth in place, frees after an event.
 *
 * The other process has no heap: it maps what it is given, writes a stamp of its own there and finds it again before
 * it lets go. Nothing orders the two processes but the host.
 */
#include <unistd.h>

#include "heap.h"
#include "world_parts.h"

/* ---- memory apart ----------------------------------------------------------------------------------------- */

const char *world_allocate_apart(struct actor *a)
{
	struct world *w = a->w;
	struct live l, asked = {.requested = world_random_size(a), .stream = world_enter_any(a)};
	void *p = w;
	if (asked.stream == WORLD_STREAMS)
		return NULL;
	bool shareable = chance(a, 2);
	const trz_alloc_params params = {.struct_size = sizeof params, .size = asked.requested,
	                                 .stream = handle_of(w, asked.stream),
	                                 .flags = shareable ? TRZ_ALLOC_SHARE_FD : TRZ_ALLOC_CONTIGUOUS};
	unsigned pool = world_expected_pool(a, asked.stream);
	world_arm(a);
	trz_status status = trz_alloc_with(w->heap, &params, &p);
	world_disarm(a);
	const char *wrong = NULL;
	if (status == TRZ_OK)
		wrong = world_receive(a, p, &asked, 0, pool, &l);
	else if (status != TRZ_ERROR_NOT_SUPPORTED || w->vmm)
		wrong = world_refused(a, status, p);
	world_leave(a, asked.stream);
	if (status == TRZ_OK && !wrong) {
		l.shareable = shareable;
		world_give(w, &l);
	}
	return wrong;
}

/* ---- growth ------------------------------------------------------------------------------------------------- */

static const char *grow(struct actor *a, struct live *l)
{
	struct world *w = a->w;
	uint64_t size = l->requested + below(a, chance(a, 2) ? 4096 : l->requested + 1);
	trz_pointer_info info;
	size_t other;
	world_arm(a);
	trz_status status = trz_grow(w->heap, (void *)l->address, size);
	world_disarm(a);
	if (status == TRZ_ERROR_NO_ROOM)
		return NULL;
	if (status != TRZ_OK)
		return world_refused(a, status, NULL);
	MUST(w, trz_query(w->heap, (void *)l->address, &info));
	TRY(world_verify(a, l, l->stream));
	world_drop(w, l);
	l->requested = info.requested;
	l->size = info.size;
	pthread_mutex_lock(&w->lock);
	bool alone = shadow_add(&w->shadow, *l, &other);
	if (alone)
		world_hold(w, l, 1);
	pthread_mutex_unlock(&w->lock);
	if (!alone || info.requested != size)
		return world_wrong(w, "%#llx has grown to %llu bytes, %s", (unsigned long long)l->address,
		                   (unsigned long long)size, alone ? "it is said not to" : "over its neighbour");
	return world_stamp(a, l, l->stream);
}

/* What reads it elsewhere must not see another stamp; nor is the stream that it was allocated on there any more where
 * it has moved. The free memory of a pool may be its graphs'. */
const char *world_grow(struct actor *a)
{
	struct live l;
	const char *wrong = NULL;
	if (!world_take(a, &l))
		return NULL;
	if (!l.read_elsewhere && !l.moved && !l.pool && world_enter(a, l.stream)) {
		wrong = grow(a, &l);
		world_leave(a, l.stream);
	}
	world_give(a->w, &l);
	return wrong;
}

/* ---- frees after an event ------------------------------------------------------------------------------------- */

static const char *free_after(struct actor *a, struct live *l)
{
	struct world *w = a->w;
	trz_event event = NULL;
	TRY(world_verify(a, l, l->stream));
	MUST(w, w->d->event_create(w->d->self, w->c, &event));
	MUST(w, w->d->event_record(w->d->self, w->c, event, handle_of(w, l->stream)));
	world_drop(w, l);
	MUST(w, trz_free_after(w->heap, (void *)l->address, event));
	return NULL;
}

const char *world_free_after(struct actor *a)
{
	struct world *w = a->w;
	struct live l;
	if (!world_take(a, &l))
		return NULL;
	if (l.read_elsewhere || w->faulty || !world_enter(a, l.stream)) {
		world_give(w, &l);
		return NULL;
	}
	const char *wrong = free_after(a, &l);
	world_leave(a, l.stream);
	return wrong;
}

/* ---- exports ---------------------------------------------------------------------------------------------------- */

/* The other process maps what a descriptor stands for, and writes to it. false: it has no room. */
static bool adopt(struct world *w, struct world_export *e, int fd)
{
	const trz_driver *d = sim_driver(w->other);
	const int device = 0;
	if (d->import_handle(d->self, TRZ_EXPORT_FD, &fd, &e->handle) != TRZ_OK)
		return false;
	bool reserved = d->reserve(d->self, e->size, 0, 0, &e->there) == TRZ_OK;
	bool mapped = reserved && d->map(d->self, e->there, e->size, e->handle) == TRZ_OK;
	if (mapped && d->set_access(d->self, e->there, e->size, &device, 1) == TRZ_OK)
		return true;
	if (mapped)
		d->unmap(d->self, e->there, e->size);
	if (reserved)
		d->unreserve(d->self, e->there, e->size);
	d->release(d->self, e->handle);
	return false;
}

static const char *write_there(struct world *w, const struct world_export *e)
{
	MUST(w, sim_stamp(w->other, w->other_context, NULL, e->there, e->size, e->tag));
	MUST(w, sim_device_sync(w->other, 0));
	return NULL;
}

static const char *let_go_there(struct world *w, const struct world_export *e)
{
	const trz_driver *d = sim_driver(w->other);
	MUST(w, sim_verify(w->other, w->other_context, NULL, e->there, e->size, e->tag));
	MUST(w, sim_device_sync(w->other, 0));
	MUST(w, d->unmap(d->self, e->there, e->size));
	MUST(w, d->unreserve(d->self, e->there, e->size));
	MUST(w, d->release(d->self, e->handle));
	return sim_violations(w->other) ? world_wrong(w, "another process: %s", sim_first_violation(w->other)) : NULL;
}

/* The stream has been entered; *gone: the block has been freed. */
static const char *export_to_other(struct actor *a, struct live *l, struct world_export *e, bool *gone)
{
	struct world *w = a->w;
	int fd = -1;
	*e = (struct world_export){.address = l->address, .size = l->size};
	e->tag = atomic_fetch_add(&w->tags, 1) + 1;
	TRY(world_verify(a, l, l->stream));
	MUST(w, sim_stream_sync(w->s, w->c, handle_of(w, l->stream)));
	MUST(w, trz_export(w->heap, (void *)l->address, TRZ_ALLOC_SHARE_FD, &fd));
	bool adopted = adopt(w, e, fd);
	close(fd);
	if (!adopted) {
		e->address = 0;
		MUST(w, trz_export_end(w->heap, (void *)l->address));
		return NULL;
	}
	*gone = e->freed = chance(a, 2);
	if (*gone) {  /* what is freed stays as it is until the export ends */
		world_drop(w, l);
		MUST(w, trz_free(w->heap, (void *)l->address));
	}
	l->kept = true;
	return write_there(w, e);
}

const char *world_export(struct actor *a)
{
	struct world *w = a->w;
	struct world_export *e = &a->exports[below(a, WORLD_EXPORTS)];
	struct live l;
	const char *wrong = NULL;
	bool gone = false;
	if (!w->other || w->faulty || e->address || !world_take_shareable(a, &l))
		return NULL;
	if (!l.pool && !l.read_elsewhere && !l.moved && world_enter(a, l.stream)) {
		wrong = export_to_other(a, &l, e, &gone);
		world_leave(a, l.stream);
	}
	if (!gone)
		world_give(w, &l);
	return wrong;
}

const char *world_end_one_export(struct actor *a, struct world_export *e)
{
	struct world *w = a->w;
	struct live l;
	if (!e->freed) {
		l = world_look_up(w, e->address);
		if (!world_enter(a, l.stream))
			return NULL;
	}
	const char *wrong = let_go_there(w, e);
	trz_status status = wrong ? TRZ_OK : trz_export_end(w->heap, (void *)e->address);
	if (!e->freed) {
		if (!wrong)
			wrong = world_stamp(a, &l, l.stream);
		world_leave(a, l.stream);
		l.kept = false;
		world_give(w, &l);
	}
	e->address = 0;
	MUST(w, status);
	return wrong;
}

const char *world_end_export(struct actor *a)
{
	struct world_export *e = &a->exports[below(a, WORLD_EXPORTS)];
	return e->address ? world_end_one_export(a, e) : NULL;
}

/* ---- peers ---------------------------------------------------------------------------------------------- */

/* The other device may read what has been laid before, what will be, and what is laid anew. */
const char *world_enable_peer(struct actor *a)
{
	struct world *w = a->w;
	if (!w->peer || !w->vmm || atomic_load(&w->peer_enabled))
		return NULL;
	world_arm(a);
	trz_status status = trz_enable_peer(w->heap, 1, true);
	world_disarm(a);
	if (world_tolerates(w, status))
		return NULL;
	MUST(w, status);
	atomic_store(&w->peer_enabled, true);
	return NULL;
}

static const char *read_there(struct actor *a, const struct live *l)
{
	struct world *w = a->w;
	MUST(w, sim_stream_sync(w->s, w->c, handle_of(w, l->stream)));
	MUST(w, sim_verify(w->s, w->peer, NULL, l->address, l->size, l->tag));
	MUST(w, sim_stream_sync(w->s, w->peer, NULL));
	return NULL;
}

const char *world_read_by_peer(struct actor *a)
{
	struct world *w = a->w;
	struct live l;
	const char *wrong = NULL;
	if (!atomic_load(&w->peer_enabled) || !world_take(a, &l))
		return NULL;
	if (world_enter(a, l.stream)) {
		wrong = read_there(a, &l);
		world_leave(a, l.stream);
	}
	world_give(w, &l);
	return wrong;
}
