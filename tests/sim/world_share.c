/* SPDX-License-Identifier: Apache-2.0
 *
 * Dedicated memory, allocations at an address, exports to the other process, peers, growth in place, frees after an
 * event.
 *
 * The other process has no heap: it maps the memory that it gets, writes a stamp of its own there and verifies it
 * before it unmaps. Only the host orders the two processes.
 */
#include <unistd.h>

#include "heap/heap.h"
#include "world_parts.h"

/* ---- dedicated memory ----------------------------------------------------------------------------------------- */

const char *world_allocate_dedicated(struct actor *a)
{
	struct world *w = a->w;
	struct live l, asked = {.requested = world_random_size(a), .stream = world_enter_any(a)};
	void *p = w;
	if (asked.stream == WORLD_STREAMS)
		return NULL;
	bool shareable = chance(a, 2);
	const trz_alloc_params params = {.struct_size = sizeof params,
	                                 .size = asked.requested,
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

/* ---- at an address ---------------------------------------------------------------------------------------- */

static const char *allocate_at(struct actor *a, trz_addr address, uint64_t size, unsigned stream)
{
	struct world *w = a->w;
	struct live l, asked = {.requested = size, .stream = stream};
	void *p = w;
	const trz_alloc_params params = {
		.struct_size = sizeof params, .size = size, .stream = handle_of(w, stream), .address = (void *)address};
	unsigned pool = world_expected_pool(a, stream);
	world_arm(a);
	trz_status status = trz_alloc_with(w->heap, &params, &p);
	world_disarm(a);
	if (status == TRZ_ERROR_NO_ROOM)
		return NULL;
	if (status != TRZ_OK)
		return world_refused(a, status, p);
	TRY(world_receive(a, p, &asked, 0, pool, &l));
	world_give(w, &l);
	return (trz_addr)p == address
	           ? NULL
	           : world_wrong(w, "%p was given where %#llx was asked for", p, (unsigned long long)address);
}

/* Frees a block and asks for it where it was, or for part of it, or for what lies behind it. */
const char *world_allocate_at(struct actor *a)
{
	struct live l;
	bool done;
	if (!world_take(a, &l))
		return NULL;
	if (l.read_elsewhere || l.moved) {
		world_give(a->w, &l);
		return NULL;
	}
	TRY(world_free_one(a, &l, &done));
	if (!done) {
		world_give(a->w, &l);
		return NULL;
	}
	trz_addr address = l.address + (chance(a, 3) ? align_down(below(a, l.size + UNIT), UNIT) : 0);
	unsigned stream = chance(a, 2) && world_enter(a, l.stream) ? l.stream : world_enter_any(a);
	if (stream == WORLD_STREAMS)
		return NULL;
	const char *wrong = allocate_at(a, address, chance(a, 3) ? world_random_size(a) : l.requested, stream);
	world_leave(a, stream);
	return wrong;
}

/* ---- growth ------------------------------------------------------------------------------------------------- */

/* Grows a busy block, whose stream has been entered or is in the actor's capture. */
const char *world_grow_one(struct actor *a, struct live *l)
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

/* A pool's free memory may be its graphs', so the new bytes are used after the launches so far. */
static const char *grow_here(struct actor *a, struct live *l)
{
	const struct world_pool *p = world_own_pool(a, l->pool);
	if (p) {
		TRY(world_follow(a->w, p->launched, l->stream));
		l->graphs = p->graphs_made;
	}
	return world_grow_one(a, l);
}

/* Streams that read a block elsewhere must not see another stamp; and if it has moved, its first stream is gone. */
const char *world_grow_here(struct actor *a, struct live *l)
{
	bool reachable = !l->pool || world_own_pool(a, l->pool);
	return !l->read_elsewhere && !l->moved && reachable ? grow_here(a, l) : NULL;
}

const char *world_grow(struct actor *a)
{
	struct live l;
	const char *wrong = NULL;
	if (!world_take(a, &l))
		return NULL;
	if (world_enter(a, l.stream)) {
		wrong = world_grow_here(a, &l);
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
	trz_context of = context_of(w, l->stream);
	MUST(w, w->d->event_create(w->d->self, of, &event));
	MUST(w, w->d->event_record(w->d->self, of, event, handle_of(w, l->stream)));
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

/* Undoes an import as far as it has come. */
static void disown(struct world *w, const struct world_export *e, unsigned imported, unsigned mapped)
{
	const trz_driver *d = sim_driver(w->other);
	trz_addr at = e->there;
	for (unsigned i = 0; i < mapped; at += e->tile_sizes[i++])
		d->unmap(d->self, at, e->tile_sizes[i]);
	if (e->there)
		d->unreserve(d->self, e->there, e->there_size);
	for (unsigned i = 0; i < imported; i++)
		d->release(d->self, e->handles[i]);
}

/* The other process maps the descriptors' memory side by side. false: it has no room. */
static bool adopt(struct world *w, struct world_export *e, const int *fds)
{
	const trz_driver *d = sim_driver(w->other);
	const int device = 0;
	unsigned imported = 0, mapped = 0;
	while (imported < e->tile_count &&
	       d->import_handle(d->self, TRZ_EXPORT_FD, &fds[imported], &e->handles[imported]) == TRZ_OK)
		e->there_size += e->tile_sizes[imported++];
	bool whole = imported == e->tile_count && d->reserve(d->self, e->there_size, 0, 0, &e->there) == TRZ_OK;
	for (trz_addr at = e->there; whole && mapped < e->tile_count; at += e->tile_sizes[mapped++])
		if (d->map(d->self, at, e->tile_sizes[mapped], e->handles[mapped]) != TRZ_OK)
			break;
	if (whole && mapped == e->tile_count && d->set_access(d->self, e->there, e->there_size, &device, 1) == TRZ_OK)
		return true;
	disown(w, e, imported, mapped);
	return false;
}

/* The address of the allocation itself in the other process. */
static trz_addr seen_there(const struct world_export *e)
{
	return e->there + (e->address - e->tiles[0]);
}

static const char *write_there(struct world *w, const struct world_export *e)
{
	MUST(w, sim_stamp(w->other, w->other_context, NULL, seen_there(e), e->size, e->tag));
	MUST(w, sim_device_sync(w->other, 0));
	return NULL;
}

static const char *let_go_there(struct world *w, const struct world_export *e)
{
	if (e->tag) {
		MUST(w, sim_verify(w->other, w->other_context, NULL, seen_there(e), e->size, e->tag));
		MUST(w, sim_device_sync(w->other, 0));
	}
	disown(w, e, e->tile_count, e->tile_count);
	return sim_violations(w->other) ? world_wrong(w, "another process: %s", sim_first_violation(w->other)) : NULL;
}

/* Ends the heap's exports, the newest first. */
static const char *end_exports(struct world *w, struct world_export *e)
{
	pthread_mutex_lock(&w->lock);
	unsigned count = e->tile_count;
	e->tile_count = 0;
	pthread_mutex_unlock(&w->lock);
	while (count--)
		MUST(w, trz_export_end(w->heap, (void *)e->tiles[count]));
	e->address = 0;
	return NULL;
}

/* Exports all tiles of an allocation as they are. *count stays 0 if that is impossible, or they are too many. */
static const char *export_tiles(struct world *w, const struct live *l, struct world_export *e, int *fds,
                                unsigned *count)
{
	trz_exported_tile tile;
	trz_addr at = l->address;
	unsigned n = 0;
	while (at < l->address + l->size && n < WORLD_EXPORT_TILES) {
		trz_status status = trz_export_tile(w->heap, (void *)at, TRZ_ALLOC_SHARE_FD, &fds[n], &tile);
		if (n == 0 && !l->shareable && status == (w->vmm ? TRZ_ERROR_INVALID_ARGUMENT : TRZ_ERROR_NOT_SUPPORTED) &&
		    !(w->vmm && w->exportable))
			return NULL;
		MUST(w, status);
		e->tiles[n] = (trz_addr)tile.base;
		e->tile_sizes[n++] = tile.size;
		at = (trz_addr)tile.base + tile.size;
	}
	bool whole = at >= l->address + l->size;
	*count = whole ? n : 0;
	while (!whole && n--) {
		close(fds[n]);
		MUST(w, trz_export_end(w->heap, (void *)e->tiles[n]));
	}
	return NULL;
}

static const char *export_alone(struct world *w, const struct live *l, struct world_export *e, int *fds,
                                unsigned *count)
{
	MUST(w, trz_export(w->heap, (void *)l->address, TRZ_ALLOC_SHARE_FD, fds));
	e->tiles[0] = l->address;
	e->tile_sizes[0] = l->size;
	*count = 1;
	return NULL;
}

/* The stream has been entered; *gone: the block has been freed. Freed dedicated memory stays as it is until the export
 * ends; freed packed memory the heap uses again in place, and the other process must not touch it. */
static const char *export_to_other(struct actor *a, struct live *l, struct world_export *e, bool *gone)
{
	struct world *w = a->w;
	int fds[WORLD_EXPORT_TILES];
	unsigned count = 0;
	pthread_mutex_lock(&w->lock);
	*e = (struct world_export){.address = l->address, .size = l->size};
	pthread_mutex_unlock(&w->lock);
	TRY(world_verify(a, l, l->stream));
	MUST(w, sim_stream_sync(w->s, context_of(w, l->stream), handle_of(w, l->stream)));
	TRY(l->shareable && chance(a, 2) ? export_alone(w, l, e, fds, &count) : export_tiles(w, l, e, fds, &count));
	pthread_mutex_lock(&w->lock);
	e->tile_count = count;
	pthread_mutex_unlock(&w->lock);
	bool adopted = count && adopt(w, e, fds);
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	if (!adopted)
		return end_exports(w, e);
	*gone = e->freed = chance(a, 2);
	if (*gone) {
		world_drop(w, l);
		MUST(w, trz_free(w->heap, (void *)l->address));
	}
	l->kept = true;
	if (*gone && !l->shareable)
		return NULL;
	e->tag = atomic_fetch_add(&w->tags, 1) + 1;
	return write_there(w, e);
}

const char *world_export(struct actor *a)
{
	struct world *w = a->w;
	struct world_export *e = &a->exports[below(a, WORLD_EXPORTS)];
	struct live l;
	const char *wrong = NULL;
	bool gone = false;
	if (!w->other || w->faulty || e->address || !(chance(a, 2) ? world_take_shareable(a, &l) : world_take(a, &l)))
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
	if (!e->freed && !world_enter_of(a, e->address, &l))
		return NULL;
	const char *wrong = let_go_there(w, e);
	if (!wrong)
		wrong = end_exports(w, e);
	if (!e->freed) {
		if (!wrong)
			wrong = world_stamp(a, &l, l.stream);
		world_leave(a, l.stream);
		l.kept = false;
		world_give(w, &l);
	}
	return wrong;
}

const char *world_end_export(struct actor *a)
{
	struct world_export *e = &a->exports[below(a, WORLD_EXPORTS)];
	return e->address ? world_end_one_export(a, e) : NULL;
}

bool world_is_exported(struct world *w, trz_addr address, uint64_t size)
{
	bool found = false;
	pthread_mutex_lock(&w->lock);
	for (unsigned i = 0; i < w->actor_count; i++)
		for (unsigned k = 0; k < WORLD_EXPORTS; k++) {
			const struct world_export *e = &w->actors[i].exports[k];
			for (unsigned n = 0; n < e->tile_count; n++)
				found |= e->tiles[n] < address + size && address < e->tiles[n] + e->tile_sizes[n];
		}
	pthread_mutex_unlock(&w->lock);
	return found;
}

/* ---- peers ---------------------------------------------------------------------------------------------- */

/* The other device may then read memory laid before, later, and laid anew. */
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
	MUST(w, sim_stream_sync(w->s, context_of(w, l->stream), handle_of(w, l->stream)));
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
	/* The device reads on its legacy stream, which cannot be used while a stream of its context is captured. */
	bool captured = pthread_rwlock_trywrlock(&w->capture_lock) != 0;
	if (!captured && world_enter(a, l.stream)) {
		wrong = read_there(a, &l);
		world_leave(a, l.stream);
	}
	if (!captured)
		pthread_rwlock_unlock(&w->capture_lock);
	world_give(w, &l);
	return wrong;
}
