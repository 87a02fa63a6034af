/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures into pools, and the graphs that they become. A capture does what the program does elsewhere: it stamps and
 * verifies blocks, lends them to other streams and frees them. The graph keeps the blocks that are live at the end, and
 * each launch writes them.
 */
#include "heap/heap.h"
#include "world_parts.h"

/* ---- blocks of a graph ------------------------------------------------------------------------------------ */

/* Marks a block as the graph's, which no actor takes, or as free to be taken again. */
static void set_kept(struct world *w, struct live *l, bool kept)
{
	l->kept = kept;
	world_give(w, l);
}

/* ---- beginning -------------------------------------------------------------------------------------------- */

static struct world_graph *empty_graph(struct actor *a)
{
	for (int i = 0; i < WORLD_GRAPHS; i++)
		if (!a->graphs[i].graph)
			return &a->graphs[i];
	return NULL;
}

/* Locks a stream for a capture. The legacy stream must not be used while a blocking one is captured. A stream that has
 * used the pool since the capture was announced cannot join it any more. */
static bool lock_lane(struct actor *a, unsigned stream)
{
	struct world *w = a->w;
	struct world_stream *st = &w->streams[stream];
	struct world_capture *c = &a->capture;
	if ((int)stream == w->legacy || st->owner >= 0 || pthread_rwlock_trywrlock(&st->lock) != 0)
		return false;
	bool conflict = st->blocking && w->legacy >= 0 && !c->legacy;
	bool busy = atomic_load(&st->filters) || (c->graph && atomic_load(&c->graph->pool->lately) >> stream & 1);
	if (!busy && conflict &&
	    pthread_rwlock_trywrlock(&w->streams[w->legacy].lock) == 0) {
		c->legacy = true;
		conflict = false;
	}
	if (busy || conflict) {
		pthread_rwlock_unlock(&st->lock);
		return false;
	}
	c->lanes[c->lane_count++] = stream;
	return true;
}

static void unlock_lanes(struct actor *a)
{
	struct world *w = a->w;
	struct world_capture *c = &a->capture;
	for (unsigned i = 0; i < c->lane_count; i++)
		pthread_rwlock_unlock(&w->streams[c->lanes[i]].lock);
	if (c->legacy)
		pthread_rwlock_unlock(&w->streams[w->legacy].lock);
	*c = (struct world_capture){0};
	pthread_rwlock_unlock(&w->capture_lock);
}

/* Gives the stream work on the pool's memory before its capture begins, and frees some of that memory. */
static const char *leave_work_under_way(struct actor *a, struct world_pool *p, unsigned stream)
{
	struct live l;
	bool done;
	for (uint64_t n = below(a, 4); n > 0; n--)
		TRY(world_pool_alloc(a, p, stream));
	while (chance(a, 2))
		if (world_take_of_pool(a, &l, p->id))
			TRY(world_free_one(a, &l, &done));
	return NULL;
}

static const char *begin(struct actor *a, struct world_pool *p, struct world_graph *g)
{
	struct world *w = a->w;
	trz_stream stream = handle_of(w, a->capture.lanes[0]);
	if (!p->graphs)
		TRY(leave_work_under_way(a, p, a->capture.lanes[0]));
	*g = (struct world_graph){.pool = p, .number = ++p->graphs_made};
	a->capture.graph = g;
	p->captured = true;
	MUST(w, trz_pool_retain(w->heap, p->pool));
	p->graphs++;
	atomic_store(&p->lately, 0);
	MUST(w, trz_pool_begin_capture(w->heap, p->pool, stream));
	MUST(w, sim_capture_begin(w->s, context_of(w, a->capture.lanes[0]), stream, (trz_capture_mode)below(a, 3)));
	return NULL;
}

const char *world_begin_capture(struct actor *a)
{
	struct world *w = a->w;
	struct world_graph *g = empty_graph(a);
	struct world_pool *p = &a->pools[below(a, WORLD_POOLS)];
	if (a->capture.graph || !g || !p->pool || !p->ours || p->diversions || (p->filtered && w->free_running) ||
	    pthread_rwlock_tryrdlock(&w->capture_lock) != 0)
		return NULL;
	if (lock_lane(a, (unsigned)below(a, w->stream_count)))
		return begin(a, p, g);
	pthread_rwlock_unlock(&w->capture_lock);
	return NULL;
}

/* ---- what is captured --------------------------------------------------------------------------------------- */

static unsigned any_lane(struct actor *a)
{
	return a->capture.lanes[below(a, a->capture.lane_count)];
}

static const char *join_stream(struct actor *a)
{
	unsigned origin = a->capture.lanes[0], stream = (unsigned)below(a, a->w->stream_count);
	return lock_lane(a, stream) ? world_order(a->w, origin, stream) : NULL;
}

static const char *allocate(struct actor *a)
{
	struct world *w = a->w;
	struct world_graph *g = a->capture.graph;
	struct live l, asked = {.requested = world_random_size(a), .stream = any_lane(a)};
	void *p = w;
	if (g->count == WORLD_BLOCKS)
		return NULL;
	world_arm(a);
	trz_status status = trz_alloc(w->heap, asked.requested, 0, handle_of(w, asked.stream), &p);
	world_disarm(a);
	if (status != TRZ_OK)
		return world_refused(a, status, p);
	TRY(world_receive(a, p, &asked, 0, g->pool->id, &l));
	g->blocks[g->count++] = l.address;
	set_kept(w, &l, true);
	return NULL;
}

static const char *release(struct actor *a, struct world_graph *g, unsigned i)
{
	struct world *w = a->w;
	struct live l = world_look_up(w, g->blocks[i]);
	unsigned other = any_lane(a);
	bool elsewhere = other != l.stream && chance(a, 4);
	g->blocks[i] = g->blocks[--g->count];
	TRY(world_verify(a, &l, l.stream));
	if (elsewhere) {
		TRY(world_order(w, l.stream, other));
		TRY(world_verify(a, &l, other));
	}
	world_drop(w, &l);
	if (elsewhere)
		MUST(w, trz_free_on(w->heap, (void *)l.address, handle_of(w, other)));
	else
		MUST(w, trz_free(w->heap, (void *)l.address));
	return NULL;
}

static const char *use(struct actor *a, struct world_graph *g, unsigned i)
{
	struct world *w = a->w;
	struct live l = world_look_up(w, g->blocks[i]);
	unsigned other = any_lane(a);
	TRY(world_order(w, l.stream, other));
	TRY(world_verify(a, &l, other));
	if (other == l.stream) {
		if (!l.read_elsewhere)
			TRY(world_stamp(a, &l, other));
	} else if (l.read_elsewhere || chance(a, 2)) {
		MUST(w, trz_record_stream(w->heap, (void *)l.address, handle_of(w, other)));
		l.read_elsewhere = true;
	} else {
		TRY(world_stamp(a, &l, other));
		TRY(world_order(w, other, l.stream));
	}
	set_kept(w, &l, true);
	return NULL;
}

static unsigned captured_streams(const struct actor *a)
{
	unsigned set = 0;
	for (unsigned i = 0; i < a->capture.lane_count; i++)
		set |= 1u << a->capture.lanes[i];
	return set;
}

/* Frees in the capture what its streams had before and may still be using; or grows memory of no pool, which must be
 * refused. */
static const char *meddle(struct actor *a)
{
	struct world *w = a->w;
	struct live l;
	bool done;
	if (!world_take_of_streams(a, &l, captured_streams(a)))
		return NULL;
	if (l.pool || l.moved || chance(a, 2))
		return world_free_one(a, &l, &done);
	trz_status status = trz_grow(w->heap, (void *)l.address, l.requested + 1 + below(a, 4096));
	world_give(w, &l);
	if (status != TRZ_ERROR_CAPTURE)
		return world_failed(w, "trz_grow of memory of no pool in a capture", status);
	return NULL;
}

static const char *extend(struct actor *a, struct world_graph *g, unsigned i)
{
	struct live l = world_look_up(a->w, g->blocks[i]);
	const char *wrong = l.read_elsewhere ? NULL : world_grow_one(a, &l);
	if (!wrong)
		set_kept(a->w, &l, true);
	return wrong;
}

const char *world_capture_step(struct actor *a)
{
	struct world_graph *g = a->capture.graph;
	if (!g)
		return NULL;
	switch (below(a, 10)) {
	case 0:
		return join_stream(a);
	case 8:
		return meddle(a);
	case 9:
		return g->count ? extend(a, g, (unsigned)below(a, g->count)) : NULL;
	case 1:
	case 2:
	case 3:
		return allocate(a);
	case 4:
	case 5:
		return g->count ? use(a, g, (unsigned)below(a, g->count)) : NULL;
	default:
		return g->count ? release(a, g, (unsigned)below(a, g->count)) : NULL;
	}
}

/* ---- the end of a capture ----------------------------------------------------------------------------------- */

/* Frees some blocks, joins all lanes back, which orders streams that read a block unordered, and keeps the rest. */
static const char *wind_up(struct actor *a)
{
	struct world *w = a->w;
	struct world_capture *c = &a->capture;
	struct world_graph *g = c->graph;
	unsigned most = (unsigned)below(a, 4);
	while (g->count > most)
		TRY(release(a, g, (unsigned)below(a, g->count)));
	for (unsigned i = 1; i < c->lane_count; i++)
		TRY(world_order(w, c->lanes[i], c->lanes[0]));
	for (unsigned i = 0; i < g->count; i++) {
		struct live l = world_look_up(w, g->blocks[i]);
		TRY(world_verify(a, &l, c->lanes[0]));
		l.read_elsewhere = false;
		set_kept(w, &l, true);
	}
	return NULL;
}

/* ---- graphs --------------------------------------------------------------------------------------------------- */

static struct world_graph *any_graph(struct actor *a)
{
	struct world_graph *g = &a->graphs[below(a, WORLD_GRAPHS)];
	return g->graph ? g : NULL;
}

/* A launch may overwrite what later graphs keep: an earlier graph may use it as its own. */
static void forget_later_contents(struct actor *a, const struct world_graph *g)
{
	for (int i = 0; i < WORLD_GRAPHS; i++)
		if (a->graphs[i].pool == g->pool && a->graphs[i].number > g->number)
			a->graphs[i].launched = false;
}

bool world_may_be_overwritten(const struct actor *a, const struct world_pool *p, unsigned number)
{
	for (int i = 0; i < WORLD_GRAPHS; i++) {
		const struct world_graph *g = &a->graphs[i];
		if (g->graph && g->pool == p && !g->stale && g->number < number)
			return true;
	}
	return false;
}

static const char *launch_on(struct actor *a, struct world_graph *g, unsigned stream)
{
	struct world *w = a->w;
	bool done;
	TRY(world_join(a, atomic_load(&g->pool->users), stream, &done));
	if (!done)
		return NULL;
	MUST(w, sim_graph_launch(w->s, context_of(w, stream), g->graph, handle_of(w, stream)));
	g->launched = true;
	forget_later_contents(a, g);
	atomic_store(&g->pool->users, 1u << stream);
	for (unsigned i = 0; i < g->count && chance(a, 2); i++) {
		struct live l = world_look_up(w, g->blocks[i]);
		TRY(world_verify(a, &l, stream));
	}
	return NULL;
}

static const char *launch(struct actor *a, struct world_graph *g)
{
	unsigned stream = world_enter_any(a);
	if (stream == WORLD_STREAMS)
		return NULL;
	const char *wrong = launch_on(a, g, stream);
	world_leave(a, stream);
	return wrong;
}

const char *world_launch(struct actor *a)
{
	struct world_graph *g = any_graph(a);
	return g && !g->stale ? launch(a, g) : NULL;
}

const char *world_end_capture(struct actor *a)
{
	struct world *w = a->w;
	struct world_graph *g = a->capture.graph;
	if (!g)
		return NULL;
	TRY(wind_up(a));
	MUST(w, sim_capture_end(w->s, context_of(w, a->capture.lanes[0]), handle_of(w, a->capture.lanes[0]), &g->graph));
	MUST(w, trz_pool_end(w->heap, g->pool->pool));
	unlock_lanes(a);
	return chance(a, 2) ? launch(a, g) : NULL;
}

/* Makes a block that a graph has kept the program's own; frees it if an earlier graph may write to it. */
static const char *take_over(struct actor *a, const struct world_graph *g, trz_addr address, bool *done)
{
	struct world *w = a->w;
	struct live l = world_look_up(w, address);
	*done = world_enter(a, l.stream);
	if (!*done)
		return NULL;
	if (world_look_up(w, address).stream != l.stream) {  /* another stream has taken it over meanwhile */
		world_leave(a, l.stream);
		*done = false;
		return NULL;
	}
	const char *wrong = world_join(a, atomic_load(&g->pool->users), l.stream, done);
	if (*done && !wrong && g->launched)
		wrong = world_verify(a, &l, l.stream);
	if (*done && !wrong)
		wrong = world_stamp(a, &l, l.stream);
	if (*done)
		atomic_fetch_or(&g->pool->users, 1u << l.stream);
	bool goes = *done && world_may_be_overwritten(a, g->pool, g->number);
	if (goes && !wrong)
		wrong = world_free_one(a, &l, done);
	world_leave(a, l.stream);
	if (*done && !goes)
		set_kept(w, &l, false);
	return wrong;
}

/* Launches may be under way. The graph's reference to the pool may be the last. */
const char *world_destroy_one(struct actor *a, struct world_graph *g)
{
	struct world *w = a->w;
	while (g->count) {
		bool done;
		TRY(take_over(a, g, g->blocks[g->count - 1], &done));
		if (!done)
			return NULL;  /* the rest is tried another time */
		g->count--;
		g->stale = true;
	}
	MUST(w, sim_graph_destroy(w->s, w->c, g->graph));
	g->graph = 0;
	g->pool->graphs--;
	return world_pool_release(a, g->pool);
}

/* No other event happens meanwhile, so the stream's work from before the capture is still under way at the launch. Most
 * of these graphs are soon destroyed, so that the pool can be used otherwise again. */
const char *world_capture_at_once(struct actor *a)
{
	if (a->capture.graph)
		return NULL;
	TRY(world_make_pool(a));
	TRY(world_begin_capture(a));
	struct world_graph *g = a->capture.graph;
	for (uint64_t n = below(a, 16); n > 0; n--)
		TRY(world_capture_step(a));
	TRY(world_end_capture(a));
	return g && !chance(a, 4) ? world_destroy_one(a, g) : NULL;
}

const char *world_destroy_graph(struct actor *a)
{
	struct world_graph *g = any_graph(a);
	bool captures = g && a->capture.graph && a->capture.graph->pool == g->pool;
	return g && !captures ? world_destroy_one(a, g) : NULL;
}
