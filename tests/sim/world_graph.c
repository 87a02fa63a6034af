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
		if (!a->graphs[i].graph && &a->graphs[i] != a->aside.graph)
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

void world_unlock_lanes(struct actor *a)
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

/* Allocates from a pool (NULL: none is named), often so much that memory must be created or gathered. */
static const char *allocate_on(struct actor *a, struct world_pool *p, unsigned stream)
{
	uint64_t size = chance(a, 2) ? world_random_size(a) : 1 + below(a, a->w->capacity / 8);
	return p ? world_pool_alloc(a, p, size, stream) : world_allocate_on(a, size, stream);
}

/* Gives the stream work before its capture begins, on the pool's memory or on its own, and frees some of that. */
static const char *leave_work_under_way(struct actor *a, struct world_pool *p, unsigned stream)
{
	struct live l;
	bool done, of_pool = chance(a, 2);
	for (uint64_t n = below(a, 6); n > 0; n--)
		TRY(allocate_on(a, of_pool ? p : NULL, stream));
	while (below(a, 4))
		if (of_pool ? world_take_of_pool(a, &l, p->id) : world_take_of_streams(a, &l, 1u << stream))
			TRY(world_free_one(a, &l, &done));
	return NULL;
}

/* Grows a block of the pool that is the stream's. */
static const char *grow_on(struct actor *a, const struct world_pool *p, unsigned stream)
{
	struct live l;
	if (!world_take_of_pool(a, &l, p->id))
		return NULL;
	const char *wrong = l.stream == stream ? world_grow_here(a, &l) : NULL;
	world_give(a->w, &l);
	return wrong;
}

/* Makes a block busy that the program has allocated beside the graph and that a launch may write to. false: there is
 * none, or somebody is busy with one (*busy). */
static bool take_overwritten(struct actor *a, const struct world_graph *g, struct live *l, bool *busy)
{
	struct world *w = a->w;
	bool found = false;
	*busy = false;
	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < w->shadow.count && !found && !*busy; i++) {
		struct live *any = &w->shadow.list[i];
		bool overwritten = any->pool == g->pool->id && !any->kept && any->graphs >= g->number;
		*busy = overwritten && any->busy;
		found = overwritten && !any->busy;
		any->busy |= found;
		*l = *any;
	}
	pthread_mutex_unlock(&w->lock);
	return found;
}

/* Frees a block of the stream's that is not of the pool. */
static const char *free_of(struct actor *a, const struct world_pool *p, unsigned stream)
{
	struct live l;
	if (!world_take_of_streams(a, &l, 1u << stream))
		return NULL;
	if (l.pool != p->id)
		return world_free_here(a, &l);
	world_give(a->w, &l);
	return NULL;
}

/* Frees what the stream has got from the pool since the announcement. */
static const char *free_new(struct actor *a, const struct world_graph *g)
{
	struct live l;
	bool busy;
	while (take_overwritten(a, g, &l, &busy))
		TRY(world_free_here(a, &l));
	return NULL;
}

/* Announces captures into other pools that have had some, and takes that back: it changes nothing for the one that is
 * announced. */
static const char *announce_others(struct actor *a, const struct world_graph *g)
{
	struct world *w = a->w;
	for (int i = 0; i < WORLD_POOLS; i++) {
		struct world_pool *p = &a->pools[i];
		if (p == g->pool || !p->captured || !p->ours || p->diversions || world_captures_into(a, p))
			continue;
		MUST(w, trz_pool_begin_capture(w->heap, p->pool, handle_of(w, a->capture.lanes[0])));
		MUST(w, trz_pool_end(w->heap, p->pool));
	}
	return NULL;
}

/* Work between the announcement and the capture: on the stream's other memory, of which it frees some, and often on new
 * memory of the pool, for which that is gathered. */
static const char *work_on(struct actor *a, struct world_graph *g, unsigned stream)
{
	struct world_pool *p = g->pool;
	bool of_pool = a->haste != NO_HASTE && chance(a, 2);
	for (uint64_t n = below(a, of_pool ? 10 : 16); n > 0; n--) {
		if (n % 4 == 1)
			TRY(announce_others(a, g));
		switch (below(a, of_pool ? 6 : 4)) {
		case 0:
		case 1:
			TRY(allocate_on(a, NULL, stream));
			break;
		case 4:
			TRY(allocate_on(a, p, stream));
			break;
		case 5:
			TRY(grow_on(a, p, stream));
			break;
		default:
			TRY(free_of(a, p, stream));
			break;
		}
	}
	return chance(a, 2) ? free_new(a, g) : NULL;
}

static const char *announce(struct actor *a, struct world_pool *p, trz_stream stream)
{
	if (a->capture.silent)
		return NULL;
	world_arm(a);
	trz_status status = trz_pool_begin_capture(a->w->heap, p->pool, stream);
	world_disarm(a);
	MUST(a->w, status);
	return NULL;
}

/* Another thread's question whether anything is captured may come before a capture that begins unannounced, and what it
 * does then, after: only in turns are some not announced. Nor are those beside another one of the same pool. */
static const char *begin(struct actor *a, struct world_pool *p, struct world_graph *g)
{
	struct world *w = a->w;
	trz_stream stream = handle_of(w, a->capture.lanes[0]);
	*g = (struct world_graph){.pool = p, .number = ++p->graphs_made};
	p->origin = (int)a->capture.lanes[0];
	a->capture.graph = g;
	bool another = a->aside.graph && a->aside.graph->pool == p;
	a->capture.silent = !w->free_running && !another && chance(a, 4);
	p->captured = true;
	MUST(w, trz_pool_retain(w->heap, p->pool));
	p->graphs++;
	if (!another)
		atomic_store(&p->lately, 0);
	atomic_store(&p->since[g - a->graphs], 0);
	TRY(announce(a, p, stream));
	bool waits = a->haste == NO_HASTE || (a->haste == SOME_HASTE && chance(a, 2));
	bool works = a->haste == NO_HASTE || (a->haste == SOME_HASTE && chance(a, 2));
	if (waits)
		TRY(world_await(a, a->capture.lanes[0]));
	if (works)
		TRY(work_on(a, g, a->capture.lanes[0]));
	MUST(w, sim_capture_begin(w->s, context_of(w, a->capture.lanes[0]), stream, (trz_capture_mode)below(a, 3)));
	a->capture.begun = true;
	return NULL;
}

const char *world_begin_capture_in(struct actor *a, struct world_pool *p)
{
	struct world *w = a->w;
	struct world_graph *g = empty_graph(a);
	if (a->capture.graph || !g || !p->pool || !p->ours || p->diversions || (p->filtered && w->free_running))
		return NULL;
	bool again = p->origin >= 0 && !chance(a, 4);
	unsigned stream = again ? (unsigned)p->origin : (unsigned)below(a, w->stream_count);
	if (world_enter(a, stream)) {
		const char *wrong = leave_work_under_way(a, p, stream);
		world_leave(a, stream);
		TRY(wrong);
	}
	if (pthread_rwlock_tryrdlock(&w->capture_lock) != 0)
		return NULL;
	if (lock_lane(a, stream))
		return begin(a, p, g);
	pthread_rwlock_unlock(&w->capture_lock);
	return NULL;
}

const char *world_begin_capture(struct actor *a)
{
	return world_begin_capture_in(a, &a->pools[below(a, WORLD_POOLS)]);
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
	uint64_t size = chance(a, 2) ? world_random_size(a) : 1 + below(a, MIB(1) << below(a, 6));
	struct live l, asked = {.requested = size, .stream = any_lane(a)};
	void *p = w;
	if (g->count == WORLD_BLOCKS)
		return NULL;
	trz_pool *named = a->capture.silent ? g->pool->pool : NULL;
	trz_stream stream = handle_of(w, asked.stream);
	world_arm(a);
	trz_status status = named ? trz_pool_alloc(w->heap, named, asked.requested, 0, stream, &p)
	                          : trz_alloc(w->heap, asked.requested, 0, stream, &p);
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
	world_arm(a);
	trz_status status = elsewhere ? trz_free_on(w->heap, (void *)l.address, handle_of(w, other))
	                              : trz_free(w->heap, (void *)l.address);
	world_disarm(a);
	if (elsewhere && world_tolerates(w, status))
		status = trz_free_on(w->heap, (void *)l.address, handle_of(w, other));
	MUST(w, status);
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

/* Frees a busy block, which its stream had before the capture, in the capture's order on another of its streams. */
static const char *free_across(struct actor *a, struct live *l, unsigned other)
{
	struct world *w = a->w;
	TRY(world_order(w, l->stream, other));
	world_drop(w, l);
	MUST(w, trz_free_on(w->heap, (void *)l->address, handle_of(w, other)));
	return NULL;
}

/* Frees in the capture what its streams had before and may still be using; or grows memory of no pool, which must be
 * refused. */
static const char *meddle(struct actor *a)
{
	struct world *w = a->w;
	struct live l;
	bool done;
	unsigned other = any_lane(a);
	if (!world_take_of_streams(a, &l, captured_streams(a)))
		return NULL;
	if (other != l.stream && chance(a, 2))
		return free_across(a, &l, other);
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

/* A launch may overwrite what graphs keep whose captures had not ended before the capture began: this may use it as its
 * own. */
static void forget_later_contents(struct actor *a, const struct world_graph *g)
{
	for (int i = 0; i < WORLD_GRAPHS; i++)
		if (&a->graphs[i] != g && a->graphs[i].pool == g->pool && a->graphs[i].sealed >= g->number)
			a->graphs[i].launched = false;
}

bool world_may_be_overwritten(const struct actor *a, const struct world_pool *p, const struct world_graph *own,
                              unsigned begun)
{
	for (int i = 0; i < WORLD_GRAPHS; i++) {
		const struct world_graph *g = &a->graphs[i];
		if (g != own && g->graph && g->pool == p && !g->stale && g->number <= begun)
			return true;
	}
	return false;
}

bool world_captures_into(const struct actor *a, const struct world_pool *p)
{
	return (a->capture.graph && a->capture.graph->pool == p) || (a->aside.graph && a->aside.graph->pool == p);
}

bool world_captures(const struct actor *a)
{
	return a->capture.graph || a->aside.graph;
}

/* Frees all that the program has allocated beside the graph and that a launch may write to. *done false: could not. */
static const char *free_overwritten(struct actor *a, const struct world_graph *g, bool *done)
{
	struct live l;
	bool busy;
	*done = true;
	while (*done && take_overwritten(a, g, &l, &busy))
		TRY(world_free_one(a, &l, done));
	*done &= !busy;
	return NULL;
}

static const char *launch_on(struct actor *a, struct world_graph *g, unsigned stream)
{
	struct world *w = a->w;
	atomic_uint *since = &g->pool->since[g - a->graphs];
	bool done;
	TRY(free_overwritten(a, g, &done));
	unsigned joined = atomic_load(since);
	if (done)
		TRY(world_join(a, joined, stream, &done));
	if (!done || atomic_load(since) & ~joined)  /* another stream has taken over from one of these meanwhile */
		return NULL;
	TRY(world_follow(w, g->pool->launched, stream));
	MUST(w, sim_graph_launch(w->s, context_of(w, stream), g->graph, handle_of(w, stream)));
	g->launched = true;
	forget_later_contents(a, g);
	for (unsigned i = 0; i < g->count && chance(a, 2); i++) {
		struct live l = world_look_up(w, g->blocks[i]);
		TRY(world_verify(a, &l, stream));
	}
	atomic_store(since, 0);
	return world_mark(w, stream, &g->pool->launched);
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

/* The actor goes on with its other capture, or begins another. */
const char *world_set_aside(struct actor *a)
{
	struct world_capture now = a->capture;
	a->capture = a->aside;
	a->aside = now;
	return NULL;
}

/* Of two captures into one pool, the newer ends first, since trz_pool_end ends a thread's newest diversion. */
const char *world_end_capture(struct actor *a)
{
	struct world *w = a->w;
	struct world_graph *g = a->capture.graph, *other = a->aside.graph;
	if (!g)
		return NULL;
	if (other && other->pool == g->pool && other->number > g->number) {
		TRY(world_set_aside(a));
		g = other;
	}
	TRY(wind_up(a));
	MUST(w, sim_capture_end(w->s, context_of(w, a->capture.lanes[0]), handle_of(w, a->capture.lanes[0]), &g->graph));
	g->sealed = g->pool->graphs_made;
	world_arm(a);
	trz_status status = a->capture.silent ? TRZ_OK : trz_pool_end(w->heap, g->pool->pool);
	world_disarm(a);
	MUST(w, status);
	world_unlock_lanes(a);
	return chance(a, 2) ? launch(a, g) : NULL;
}

/* Makes a block that a graph has kept the program's own; frees it if an earlier graph may write to it. */
static const char *take_over(struct actor *a, const struct world_graph *g, trz_addr address, bool *done)
{
	struct world *w = a->w;
	struct live l;
	*done = world_enter_of(a, address, &l);
	if (!*done)
		return NULL;
	const char *wrong = world_follow(w, g->pool->launched, l.stream);
	if (!wrong && g->launched)
		wrong = world_verify(a, &l, l.stream);
	if (!wrong)
		wrong = world_stamp(a, &l, l.stream);
	bool goes = world_may_be_overwritten(a, g->pool, g, g->sealed);
	if (goes && !wrong)
		wrong = world_free_one(a, &l, done);
	world_leave(a, l.stream);
	if (*done && !goes)
		set_kept(w, &l, false);
	return wrong;
}

/* Launches may be under way. The graph's reference to the pool may be the last. A pool's graphs stay while the actor
 * captures into it. */
const char *world_destroy_one(struct actor *a, struct world_graph *g)
{
	struct world *w = a->w;
	if (world_captures_into(a, g->pool))
		return NULL;
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

/* *g: the graph; NULL: the capture could not begin. */
static const char *capture_at_once(struct actor *a, struct world_pool *p, struct world_graph **g)
{
	TRY(world_begin_capture_in(a, p));
	*g = a->capture.graph;
	for (uint64_t n = below(a, 16); n > 0; n--)
		TRY(world_capture_step(a));
	return world_end_capture(a);
}

/* No other event happens meanwhile, so the stream's work from before the capture is still under way at the launch. Most
 * of these graphs are soon destroyed, so that there is room for others. */
const char *world_capture_at_once(struct actor *a)
{
	struct world_graph *g;
	if (a->capture.graph)
		return NULL;
	TRY(world_make_pool(a));
	TRY(capture_at_once(a, &a->pools[below(a, WORLD_POOLS)], &g));
	return g && !chance(a, 4) ? world_destroy_one(a, g) : NULL;
}

/* Two captures at once, of one pool or of two, step by step, now of the one and now of the other. */
const char *world_capture_two(struct actor *a)
{
	if (world_captures(a))
		return NULL;
	struct world_pool *p = &a->pools[below(a, WORLD_POOLS)];
	TRY(world_make_pool_in(a, p));
	TRY(world_begin_capture_in(a, p));
	TRY(world_set_aside(a));
	TRY(world_begin_capture_in(a, chance(a, 2) ? p : &a->pools[below(a, WORLD_POOLS)]));
	for (uint64_t n = below(a, 32); n > 0; n--) {
		if (chance(a, 3))
			TRY(world_set_aside(a));
		TRY(world_capture_step(a));
	}
	TRY(world_end_capture(a));
	TRY(world_set_aside(a));
	return world_end_capture(a);
}

/* ---- captures in a row ---------------------------------------------------------------------------------------- */

/* Allocates on the stream of the newest capture, from the pool or not. */
static const char *allocate_between(struct actor *a, struct world_pool *p)
{
	unsigned stream = (unsigned)p->origin;
	if (!world_enter(a, stream))
		return NULL;
	const char *wrong = allocate_on(a, chance(a, 3) ? NULL : p, stream);
	world_leave(a, stream);
	return wrong;
}

static const char *free_between(struct actor *a, const struct world_pool *p)
{
	struct live l;
	bool done, of_pool = chance(a, 2);
	bool found = of_pool ? world_take_of_pool(a, &l, p->id) : world_take_of_streams(a, &l, 1u << p->origin);
	return found ? world_free_one(a, &l, &done) : NULL;
}

/* What a program does between two captures into a pool, outside of them. */
static const char *act_between(struct actor *a, struct world_pool *p, bool frees)
{
	switch (below(a, frees ? 8 : 4)) {
	case 0:
		return world_grow(a);
	case 4:
		return world_launch(a);
	case 5:
		return world_free_elsewhere(a);
	case 6:
	case 7:
		return free_between(a, p);
	default:
		return allocate_between(a, p);
	}
}

/* A program that synchronizes before its first capture, and then uses the pool for something large, and captures again
 * at once. */
static const char *capture_in_haste(struct actor *a, struct world_pool *p)
{
	struct world_graph *g;
	a->haste = NO_HASTE;
	TRY(capture_at_once(a, p, &g));
	if (g && world_enter(a, (unsigned)p->origin)) {
		const char *wrong = world_pool_alloc(a, p, 1 + below(a, a->w->capacity / 8), (unsigned)p->origin);
		world_leave(a, (unsigned)p->origin);
		TRY(wrong);
	}
	a->haste = ALL_HASTE;
	TRY(capture_at_once(a, p, &g));
	a->haste = SOME_HASTE;
	return NULL;
}

/* Several captures into one pool, often a new one, most of them of one stream, with the program's own use of pool and
 * stream between them. All of the stream's work is still under way. */
const char *world_capture_series(struct actor *a)
{
	struct world_pool *p = &a->pools[below(a, WORLD_POOLS)];
	struct world_graph *g;
	if (a->capture.graph)
		return NULL;
	if (p->pool && p->ours && !p->diversions && !p->graphs && chance(a, 2))
		TRY(world_drop_one(a, p));
	TRY(world_make_pool_in(a, p));
	bool haste = chance(a, 2);
	if (haste)
		TRY(capture_in_haste(a, p));
	for (uint64_t n = haste ? 0 : 2 + below(a, 3); n > 0; n--) {
		TRY(capture_at_once(a, p, &g));
		bool frees = chance(a, 2);
		for (uint64_t k = g ? below(a, frees ? 12 : 4) : 0; k > 0; k--)
			TRY(act_between(a, p, frees));
	}
	for (int i = 0; i < WORLD_GRAPHS; i++)
		if (a->graphs[i].graph && a->graphs[i].pool == p && !chance(a, 4))
			TRY(world_destroy_one(a, &a->graphs[i]));
	return NULL;
}

const char *world_destroy_graph(struct actor *a)
{
	struct world_graph *g = any_graph(a);
	return g ? world_destroy_one(a, g) : NULL;
}
