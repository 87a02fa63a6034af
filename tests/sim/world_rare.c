/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens seldom to a program: crowds of streams, threads that come and go, children made by fork(), a context
 * that ends and comes back, and the loss of the device.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/heap.h"
#include "world_parts.h"

/* Whether allocations may be diverted by the handle of a stream that no one else knows. */
static bool is_any_filtered(const struct world *w)
{
	bool any = false;
	for (unsigned i = 0; i < w->stream_count; i++)
		any |= atomic_load(&w->streams[i].filters) != 0;
	return any;
}

/* ---- crowds ---------------------------------------------------------------------------------------------- */

enum { CROWD = 2 * RECENT_STREAMS + 10 };

/* A stream for a short time, and a block that it may hold. */
struct guest {
	trz_stream handle;
	struct live l;
	bool holds;
};

static const char *guest_allocates(struct actor *a, struct guest *g)
{
	struct world *w = a->w;
	uint64_t size = chance(a, 8) ? world_random_size(a) : 1 + below(a, 4096);
	struct live asked = {.requested = size, .stream = WORLD_STREAMS};
	void *p = w;
	world_arm(a);
	trz_status status = trz_alloc(w->heap, asked.requested, 0, g->handle, &p);
	world_disarm(a);
	if (status != TRZ_OK)
		return world_refused(a, status, p);
	TRY(world_accept(a, p, &asked, 0, 0, &g->l));
	g->holds = true;
	g->l.tag = atomic_fetch_add(&w->tags, 1) + 1;
	MUST(w, sim_stamp(w->s, w->c, g->handle, g->l.address, g->l.size, g->l.tag));
	return NULL;
}

static const char *guest_frees(struct actor *a, struct guest *g)
{
	struct world *w = a->w;
	g->holds = false;
	MUST(w, sim_verify(w->s, w->c, g->handle, g->l.address, g->l.size, g->l.tag));
	world_drop(w, &g->l);
	world_arm(a);
	trz_status status = trz_free(w->heap, (void *)g->l.address);
	world_disarm(a);
	MUST(w, status);
	return NULL;
}

static const char *guest_goes(struct actor *a, struct guest *g)
{
	struct world *w = a->w;
	if (g->holds)
		TRY(guest_frees(a, g));
	world_arm(a);
	trz_status status = trz_stream_retire(w->heap, g->handle);
	world_disarm(a);
	if (world_tolerates(w, status))
		status = trz_stream_retire(w->heap, g->handle);
	MUST(w, status);
	MUST(w, sim_stream_destroy(w->s, w->c, g->handle));
	return NULL;
}

static const char *entertain(struct actor *a, struct guest *guests)
{
	for (int i = 0; i < CROWD; i++)
		MUST(a->w, sim_stream_create(a->w->s, a->w->c, false, &guests[i].handle));
	for (int i = 0; i < 4 * CROWD; i++) {
		struct guest *g = &guests[below(a, CROWD)];
		TRY(g->holds ? guest_frees(a, g) : guest_allocates(a, g));
	}
	for (int i = 0; i < CROWD; i++)
		TRY(guest_goes(a, &guests[i]));
	return NULL;
}

/* More streams at once than the heap finds without its lock. */
const char *world_crowd(struct actor *a)
{
	if (a->diversion_count || is_any_filtered(a->w))
		return NULL;
	struct guest *guests = calloc(CROWD, sizeof *guests);
	if (!guests)
		abort();
	const char *wrong = entertain(a, guests);
	free(guests);
	return wrong;
}

/* ---- threads that come and go -------------------------------------------------------------------------------- */

/* A thread that uses its own default stream, leaves memory in that stream's cache, and a block to somebody else. */
struct visit {
	struct actor *a;
	struct live l;
	trz_event done;
	bool leaves;           /* it has left a block */
	const char *wrong;
};

#define OWN ((trz_stream)2)

static const char *visit_allocates(struct visit *v, struct live *l, bool *served)
{
	struct actor *a = v->a;
	struct world *w = a->w;
	struct live asked = {.requested = world_random_size(a), .stream = WORLD_STREAMS};
	void *p = w;
	world_arm(a);
	trz_status status = trz_alloc(w->heap, asked.requested, 0, OWN, &p);
	world_disarm(a);
	*served = status == TRZ_OK;
	if (!*served)
		return world_refused(a, status, p);
	TRY(world_accept(a, p, &asked, 0, 0, l));
	l->tag = atomic_fetch_add(&w->tags, 1) + 1;
	MUST(w, sim_stamp(w->s, w->c, OWN, l->address, l->size, l->tag));
	return NULL;
}

static const char *visit_works(struct visit *v)
{
	struct world *w = v->a->w;
	for (uint64_t n = 1 + below(v->a, 8); n > 0; n--) {
		struct live l;
		bool served;
		TRY(visit_allocates(v, &l, &served));
		if (!served)
			continue;
		MUST(w, sim_verify(w->s, w->c, OWN, l.address, l.size, l.tag));
		world_drop(w, &l);
		MUST(w, trz_free(w->heap, (void *)l.address));
	}
	TRY(visit_allocates(v, &v->l, &v->leaves));
	MUST(w, w->d->event_create(w->d->self, w->c, &v->done));
	MUST(w, w->d->event_record(w->d->self, w->c, v->done, OWN));
	return NULL;
}

static void *visit(void *arg)
{
	struct visit *v = arg;
	v->wrong = visit_works(v);
	return NULL;
}

/* The block goes on in the order of a stream of the actor's. */
static const char *inherit(struct visit *v, unsigned heir)
{
	struct world *w = v->a->w;
	MUST(w, w->d->stream_wait(w->d->self, context_of(w, heir), handle_of(w, heir), v->done));
	MUST(w, w->d->event_destroy(w->d->self, w->c, v->done));
	if (!v->leaves)
		return NULL;
	v->l.stream = heir;
	v->l.moved = true;
	TRY(world_verify(v->a, &v->l, heir));
	world_give(w, &v->l);
	return NULL;
}

const char *world_visit(struct actor *a)
{
	struct visit v = {.a = a};
	pthread_t thread;
	unsigned heir = is_any_filtered(a->w) ? WORLD_STREAMS : world_enter_any(a);
	if (heir == WORLD_STREAMS)
		return NULL;
	if (pthread_create(&thread, NULL, visit, &v) != 0 || pthread_join(thread, NULL) != 0)
		abort();
	const char *wrong = v.wrong ? v.wrong : inherit(&v, heir);
	world_leave(a, heir);
	return wrong;
}

/* ---- children ------------------------------------------------------------------------------------------- */

/* In the child; 0: nothing was served, nothing failed that must not, and nothing hung. */
static int be_child(struct world *w, const struct live *l)
{
	void *p = NULL;
	alarm(60);
	bool refused = trz_alloc(w->heap, 700, 0, NULL, &p) == TRZ_ERROR_SHUTDOWN &&
	               trz_trim(w->heap, 0, NULL) == TRZ_ERROR_SHUTDOWN && trz_poll(w->heap) == TRZ_ERROR_SHUTDOWN;
	bool silent = trz_free(w->heap, (void *)l->address) == TRZ_OK && trz_close(w->heap) == TRZ_OK;
	return !refused + 2 * !silent;
}

const char *world_fork(struct actor *a)
{
	struct world *w = a->w;
	struct live l;
	int end = 0;
	if (!world_take(a, &l))
		return NULL;
	pid_t child = fork();
	if (child == 0)
		_exit(be_child(w, &l));
	bool ended = child > 0 && waitpid(child, &end, 0) == child;
	world_give(w, &l);
	return ended && !end ? NULL : world_wrong(w, "a child made by fork() ends with status %#x", (unsigned)end);
}

/* ---- a context that ends and comes back ------------------------------------------------------------------- */

static unsigned streams_abroad(const struct world *w)
{
	unsigned set = 0;
	for (unsigned i = 0; i < w->stream_count; i++)
		set |= (unsigned)(context_of(w, i) == w->far) << i;
	return set;
}

/* Ends the context, with the streams and whatever the heap has there, and makes their places anew in another one. */
static const char *change_context(struct actor *a, unsigned set, trz_context next, unsigned heir)
{
	struct world *w = a->w;
	for (unsigned i = 0; i < w->stream_count && chance(a, 2); i++)
		if (set >> i & 1)
			MUST(w, trz_stream_retire(w->heap, handle_of(w, i)));
	MUST(w, trz_poll(w->heap));
	MUST(w, sim_context_destroy(w->s, w->far));
	w->far = next;
	for (unsigned i = 0; i < w->stream_count; i++) {
		struct world_stream *st = &w->streams[i];
		if (!(set >> i & 1))
			continue;
		st->of = next;
		st->serial++;
		MUST(w, sim_stream_create(w->s, next, st->blocking, &st->handle));
		world_pass_on(w, i, heir);
	}
	return NULL;
}

static bool take_all(struct world *w, unsigned set)
{
	unsigned taken = 0;
	for (unsigned i = 0; i < w->stream_count; i++) {
		if (!(set >> i & 1))
			continue;
		if (!world_take_all_of(w, i))
			break;
		taken |= 1u << i;
	}
	for (unsigned i = 0; i < w->stream_count && taken != set; i++)
		if (taken >> i & 1)
			world_pass_on(w, i, i);
	return taken == set;
}

/* All work has been waited for, so that no event dies which a host function or the heap was given. */
const char *world_replace_context(struct actor *a)
{
	struct world *w = a->w;
	trz_context next;
	if (!w->far || w->far == w->peer || w->graphs || w->free_running || w->faulty)
		return NULL;
	unsigned set = streams_abroad(w), heir = 0;
	while (set >> heir & 1 || (w->streams[heir].owner >= 0 && heir < w->stream_count))
		heir++;
	MUST(w, world_sync(w));
	if (!set || heir >= w->stream_count || !take_all(w, set))
		return NULL;
	if (sim_context_create(w->s, 0, &next) == TRZ_OK)
		return change_context(a, set, next, heir);
	for (unsigned i = 0; i < w->stream_count; i++)
		if (set >> i & 1)
			world_pass_on(w, i, i);
	return NULL;
}

/* ---- the loss of the device ---------------------------------------------------------------------------------- */

/* The program gives up what it cannot use any more; none of that may fail. */
static const char *abandon_captures(struct actor *a)
{
	struct world *w = a->w;
	for (int i = 0; i < 2; i++) {
		const struct world_capture *c = &a->capture;
		if (c->graph && !c->silent)
			MUST(w, trz_pool_end(w->heap, c->graph->pool->pool));
		if (c->graph)
			MUST(w, trz_pool_release(w->heap, c->graph->pool->pool));
		if (c->graph)
			world_unlock_lanes(a);
		TRY(world_set_aside(a));
	}
	for (; a->diversion_count; a->diversion_count--)
		MUST(w, trz_pool_end(w->heap, a->diversions[a->diversion_count - 1].pool->pool));
	return NULL;
}

const char *world_abandon(struct actor *a, uint64_t arg)
{
	struct world *w = a->w;
	(void)arg;
	TRY(abandon_captures(a));
	for (int i = 0; i < WORLD_GRAPHS; i++)
		if (a->graphs[i].graph)
			MUST(w, trz_pool_release(w->heap, a->graphs[i].pool->pool));
	for (int i = 0; i < WORLD_POOLS; i++) {
		world_forget_note(&a->pools[i]);
		if (a->pools[i].pool && a->pools[i].ours)
			MUST(w, trz_pool_release(w->heap, a->pools[i].pool));
	}
	return NULL;
}

/* What has died cannot be served, unless the cache does it unasked. */
static bool is_dead(trz_status status)
{
	return status == TRZ_OK || status == TRZ_ERROR_CONTEXT_DEAD;
}

static const char *free_dead(struct world *w)
{
	while (w->shadow.count) {
		struct live l = w->shadow.list[w->shadow.count - 1];
		world_drop(w, &l);
		if (w->shadow.count % 2)
			MUST(w, trz_free(w->heap, (void *)l.address));
		else
			MUST(w, trz_free_on(w->heap, (void *)l.address, handle_of(w, l.stream)));
	}
	return NULL;
}

const char *world_end_dead(struct world *w)
{
	void *p = NULL;
	TRY(free_dead(w));
	trz_status status = trz_alloc(w->heap, w->capacity / 2, 0, handle_of(w, 0), &p);
	if (!is_dead(status))
		return world_failed(w, "an allocation after the loss of the device", status);
	MUST(w, status == TRZ_OK ? trz_free(w->heap, p) : TRZ_OK);
	if (!is_dead(status = trz_trim(w->heap, 0, NULL)) || !is_dead(status = trz_poll(w->heap)))
		return world_failed(w, "a trim or a poll after the loss of the device", status);
	MUST(w, trz_check(w->heap));
	trz_heap *heap = w->heap;
	w->heap = NULL;
	if (!is_dead(status = trz_close(heap)))
		return world_failed(w, "trz_close after the loss of the device", status);
	return sim_violations(w->s) ? world_wrong(w, "violation: %s", sim_first_violation(w->s)) : NULL;
}
