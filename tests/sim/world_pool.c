/* SPDX-License-Identifier: Apache-2.0
 *
 * Private pools of a simulated world: allocations from them, diversions, checkpoints, and their end.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "heap/heap.h"
#include "order/pool.h"
#include "world_parts.h"

/* ---- finding ------------------------------------------------------------------------------------------ */

static bool captures(const struct world_capture *c, unsigned stream)
{
	bool any = false;
	for (unsigned i = 0; i < c->lane_count; i++)
		any |= c->lanes[i] == stream;
	return any;
}

/* The actor's capture of the stream; NULL: it has none. */
static const struct world_capture *capture_of(const struct actor *a, unsigned stream)
{
	return captures(&a->capture, stream) ? &a->capture : captures(&a->aside, stream) ? &a->aside : NULL;
}

/* What is done before a capture, on a stream that it is about to capture, is no concern of its graph's launches. */
static void note_in(const struct actor *a, struct world_pool *p, unsigned stream)
{
	const struct world_capture *c = capture_of(a, stream);
	atomic_fetch_or(&p->lately, 1u << stream);
	atomic_fetch_or(&p->served, 1u << stream);
	for (int i = 0; i < WORLD_GRAPHS && !(c && c->begun); i++)
		if (!c || c->graph != &a->graphs[i])
			atomic_fetch_or(&p->since[i], 1u << stream);
}

/* If the pool has gone, or another has taken its place, this notes at worst too many users. Memory, and its pool's id
 * in the shadow map, outlive the pool. */
void world_note_user(struct actor *a, unsigned pool, unsigned stream)
{
	struct world *w = a->w;
	for (unsigned i = 0; i < w->actor_count; i++)
		for (int k = 0; k < WORLD_POOLS; k++)
			if (atomic_load(&w->actors[i].pools[k].id) == pool)
				note_in(a, &w->actors[i].pools[k], stream);
}

void world_note_wait(struct world *w, unsigned stream)
{
	for (unsigned i = 0; i < w->actor_count; i++)
		for (int k = 0; k < WORLD_POOLS; k++)
			atomic_fetch_or(&w->actors[i].pools[k].lately, 1u << stream);
}

unsigned world_owner_of(struct world *w, unsigned pool)
{
	for (unsigned i = 0; i < w->actor_count; i++)
		for (int k = 0; k < WORLD_POOLS; k++)
			if (pool && atomic_load(&w->actors[i].pools[k].id) == pool)
				return i + 1;
	return 0;
}

struct world_pool *world_own_pool(struct actor *a, unsigned pool)
{
	for (int k = 0; k < WORLD_POOLS; k++)
		if (pool && a->pools[k].pool && a->pools[k].id == pool)
			return &a->pools[k];
	return NULL;
}

/* This can only be told if actors take turns. */
unsigned world_expected_pool(struct actor *a, unsigned stream)
{
	const struct world_diversion *newest = NULL;
	struct world *w = a->w;
	for (unsigned i = 0; i < w->actor_count && !w->free_running; i++)
		for (unsigned k = 0; k < w->actors[i].diversion_count; k++) {
			const struct world_diversion *d = &w->actors[i].diversions[k];
			bool applies = d->stream < 0 ? i == a->index : handle_of(w, (unsigned)d->stream) == handle_of(w, stream);
			if (applies && (!newest || d->order > newest->order))
				newest = d;
		}
	return newest ? newest->pool->id : 0;
}

unsigned world_pool_of(struct world *w, trz_addr address)
{
	trz_heap *h = w->heap;
	heap_lock(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	const struct lane *home = NULL;
	if (entry)
		home = pagemap_is_slab(entry) ? pagemap_slab(entry)->home : pagemap_block(entry)->home;
	unsigned id = home ? pool_id(home->pool) : 0;
	heap_unlock(h);
	return id;
}

/* ---- life --------------------------------------------------------------------------------------------- */

const char *world_make_pool(struct actor *a)
{
	return world_make_pool_in(a, &a->pools[below(a, WORLD_POOLS)]);
}

const char *world_make_pool_in(struct actor *a, struct world_pool *p)
{
	struct world *w = a->w;
	trz_pool_info info;
	if (p->pool)
		return NULL;
	MUST(w, trz_pool_create(w->heap, &p->pool));
	MUST(w, trz_pool_query(w->heap, p->pool, &info));
	atomic_store(&p->id, info.id);
	p->ours = true;
	p->captured = p->filtered = false;
	p->graphs_made = 0;
	p->origin = -1;
	for (int i = 0; i < WORLD_GRAPHS; i++)
		atomic_store(&p->since[i], 0);
	p->launched = NULL;
	atomic_store(&p->lately, 0);
	atomic_store(&p->served, 0);
	return NULL;
}

void world_forget_note(struct world_pool *p)
{
	trz_pool_state_free(p->note.state);
	free(p->note.list);
	free(p->note.serials);
	p->note = (struct world_note){0};
}

const char *world_pool_release(struct actor *a, struct world_pool *p)
{
	struct world *w = a->w;
	bool last = !p->ours && !p->diversions && !p->graphs;
	if (last)
		world_forget_note(p);
	world_arm(a);
	trz_status status = trz_pool_release(w->heap, p->pool);
	world_disarm(a);
	MUST(w, status);
	if (!last)
		return NULL;
	p->pool = NULL;
	return world_end_mark(w, &p->launched);
}

static struct world_pool *any_pool(struct actor *a)
{
	struct world_pool *p = &a->pools[below(a, WORLD_POOLS)];
	return p->pool ? p : NULL;
}

const char *world_drop_one(struct actor *a, struct world_pool *p)
{
	p->ours = false;
	return world_pool_release(a, p);
}

/* The program may let go of a pool whose graphs and diversions live on. */
const char *world_drop_pool(struct actor *a)
{
	struct world_pool *p = any_pool(a);
	if (!p || !p->ours || world_captures_into(a, p))
		return NULL;
	return world_drop_one(a, p);
}

const char *world_pool_alloc(struct actor *a, struct world_pool *p, uint64_t size, unsigned stream)
{
	struct world *w = a->w;
	void *out = w;
	struct live l, asked = {.requested = size, .stream = stream};
	TRY(world_follow(w, p->launched, stream));
	world_arm(a);
	trz_status status = trz_pool_alloc(w->heap, p->pool, asked.requested, 0, handle_of(w, stream), &out);
	world_disarm(a);
	if (status != TRZ_OK)
		return world_refused(a, status, out);
	TRY(world_receive(a, out, &asked, 0, p->id, &l));
	world_give(w, &l);
	return NULL;
}

const char *world_allocate_from_pool(struct actor *a)
{
	struct world_pool *p = any_pool(a);
	unsigned stream = p ? world_enter_any(a) : WORLD_STREAMS;
	if (stream == WORLD_STREAMS)
		return NULL;
	const char *wrong = world_pool_alloc(a, p, world_random_size(a), stream);
	world_leave(a, stream);
	return wrong;
}

/* ---- diversions ----------------------------------------------------------------------------------------- */

static bool is_the_stream(void *user, trz_stream stream)
{
	return stream == user;
}

/* Diverts nothing while the actor captures: a newer diversion would take the capture's allocations. */
const char *world_divert(struct actor *a)
{
	struct world *w = a->w;
	struct world_pool *p = any_pool(a);
	if (!p || p->captured || world_captures(a) || a->diversion_count == WORLD_DIVERSIONS)
		return NULL;
	struct world_diversion d = {.pool = p, .stream = -1};
	unsigned stream = chance(a, 2) ? world_enter_any(a) : WORLD_STREAMS;
	if (stream < WORLD_STREAMS) {
		d.stream = (int)stream;
		p->filtered = true;
		atomic_fetch_add(&w->streams[stream].filters, 1);
		MUST(w, trz_pool_begin(w->heap, p->pool, is_the_stream, handle_of(w, stream)));
		world_leave(a, stream);
	} else {
		MUST(w, trz_pool_begin(w->heap, p->pool, NULL, NULL));
	}
	pthread_mutex_lock(&w->lock);
	d.order = ++w->diversions_made;
	pthread_mutex_unlock(&w->lock);
	p->diversions++;
	a->diversions[a->diversion_count++] = d;
	return NULL;
}

/* Ends first the newest of this thread's diversions to the pool. */
const char *world_undivert(struct actor *a)
{
	struct world *w = a->w;
	if (a->diversion_count == 0)
		return NULL;
	struct world_diversion d = a->diversions[--a->diversion_count];
	MUST(w, trz_pool_end(w->heap, d.pool->pool));
	if (d.stream >= 0)
		atomic_fetch_sub(&w->streams[d.stream].filters, 1);
	d.pool->diversions--;
	if (!d.pool->ours && !d.pool->diversions && !d.pool->graphs) {
		world_forget_note(d.pool);
		d.pool->pool = NULL;
		return world_end_mark(w, &d.pool->launched);
	}
	return NULL;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------ */

/* Makes all of the pool's live blocks busy and copies them; false: an actor is busy with one. */
static bool take_all_of(struct world *w, unsigned pool, struct live **list, size_t *count)
{
	bool all = true;
	*count = 0;
	pthread_mutex_lock(&w->lock);
	*list = malloc((w->shadow.count + 1) * sizeof **list);
	if (!*list)
		abort();
	for (size_t i = 0; i < w->shadow.count; i++) {
		const struct live *l = &w->shadow.list[i];
		all &= l->pool != pool || !l->busy;
		if (l->pool == pool)
			(*list)[(*count)++] = *l;
	}
	for (size_t i = 0; i < w->shadow.count && all; i++)
		w->shadow.list[i].busy |= w->shadow.list[i].pool == pool;
	pthread_mutex_unlock(&w->lock);
	if (!all)
		free(*list);
	return all;
}

static void give_all(struct world *w, const struct live *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		world_give(w, &list[i]);
}

/* Checks that the heap lists the same live blocks as the shadow map. */
static const char *check_list(struct world *w, const struct world_pool *p, const struct live *list, size_t count)
{
	void *live[4096];
	size_t found = 0, same = 0;
	MUST(w, trz_pool_live(w->heap, p->pool, live, 4096, &found));
	for (size_t i = 0; i < found && i < 4096; i++)
		for (size_t k = 0; k < count; k++)
			same += (trz_addr)live[i] == list[k].address;
	if (found <= 4096 && (found != count || same != count))
		return world_wrong(w, "pool %u holds %zu allocations, %zu of them are among the program's %zu", p->id, found,
		                   same, count);
	return NULL;
}

/* If other actors may allocate from the pool at the same time, what it holds is not known. */
static bool may_be_noted(const struct actor *a, const struct world_pool *p)
{
	bool captured = p && world_captures_into(a, p);
	return p && !captured && !p->diversions && !(p->filtered && a->w->free_running);
}

const char *world_checkpoint(struct actor *a)
{
	struct world *w = a->w;
	struct world_pool *p = any_pool(a);
	struct world_note n = {0};
	trz_pool_info info;
	if (!may_be_noted(a, p) || !take_all_of(w, p->id, &n.list, &n.count))
		return NULL;
	const char *wrong = check_list(w, p, n.list, n.count);
	MUST(w, trz_pool_query(w->heap, p->pool, &info));
	n.graphs = p->graphs_made;
	n.pinned = info.pinned;
	n.serials = calloc(n.count + 1, sizeof *n.serials);
	if (!n.serials)
		abort();
	for (size_t i = 0; i < n.count; i++)
		n.serials[i] = w->streams[n.list[i].stream].serial;
	trz_status status = trz_pool_checkpoint(w->heap, p->pool, &n.state);
	give_all(w, n.list, n.count);
	world_forget_note(p);
	p->note = n;
	MUST(w, status);
	return wrong;
}

/* Graphs made after the note can only be destroyed; what earlier ones keep is not known until they are launched
 * again. */
static void set_graphs_back(struct actor *a, const struct world_pool *p)
{
	for (int i = 0; i < WORLD_GRAPHS; i++) {
		struct world_graph *g = &a->graphs[i];
		if (!g->graph || g->pool != p)
			continue;
		g->launched = false;
		if (g->number > p->note.graphs) {
			g->stale = true;
			g->count = 0;
		}
	}
}

static bool is_kept(const struct actor *a, const struct world_pool *p, trz_addr address)
{
	for (int i = 0; i < WORLD_GRAPHS; i++)
		for (unsigned k = 0; a->graphs[i].graph && a->graphs[i].pool == p && k < a->graphs[i].count; k++)
			if (a->graphs[i].blocks[k] == address)
				return true;
	return false;
}

/* Makes a block live again. If its stream has gone, another takes it over, since all work has been waited for. */
static const char *hold_again(struct actor *a, struct world_pool *p, size_t i)
{
	struct world *w = a->w;
	struct live l = p->note.list[i];
	size_t other;
	l.moved |= w->streams[l.stream].serial != p->note.serials[i];
	l.kept = is_kept(a, p, l.address);
	l.read_elsewhere = false;
	l.busy = true;
	pthread_mutex_lock(&w->lock);
	bool alone = shadow_add(&w->shadow, l, &other);
	if (alone)
		world_hold(w, &l, 1);
	pthread_mutex_unlock(&w->lock);
	if (!alone)
		return world_wrong(w, "pool %u holds %#llx again, which was given to another", p->id,
		                   (unsigned long long)l.address);
	bool done;
	if (!l.kept)
		TRY(world_stamp(a, &l, l.stream));
	if (!l.kept && world_may_be_overwritten(a, p, NULL, UINT_MAX))
		return world_free_one(a, &l, &done);
	world_give(w, &l);
	return NULL;
}

/* Whether only one stream has ever used the pool: then its order is enough. */
static bool is_of_one_stream(const struct world *w, const struct world_pool *p, const struct live *list, size_t count)
{
	unsigned served = atomic_load(&p->served);
	bool one = !p->captured && !(served & (served - 1));
	for (size_t i = 0; i < count; i++)
		one &= !list[i].moved;
	for (size_t i = 0; i < p->note.count; i++)
		one &= !p->note.list[i].moved && w->streams[p->note.list[i].stream].serial == p->note.serials[i];
	return one;
}

static const char *put_back(struct actor *a, struct world_pool *p, const struct live *list, size_t count)
{
	struct world *w = a->w;
	for (size_t i = 0; i < count; i++)
		if (!list[i].kept)
			TRY(world_verify(a, &list[i], list[i].stream));
	if (!is_of_one_stream(w, p, list, count))
		MUST(w, world_sync(w));
	world_arm(a);
	trz_status status = trz_pool_restore(w->heap, p->pool, p->note.state);
	world_disarm(a);
	if (status == TRZ_NOT_READY || (status == TRZ_ERROR_NOT_FOUND && !p->note.pinned)) {
		give_all(w, list, count);
		if (status == TRZ_ERROR_NOT_FOUND)
			world_forget_note(p);
		return NULL;
	}
	MUST(w, status);
	for (size_t i = 0; i < count; i++)
		world_drop(w, &list[i]);
	set_graphs_back(a, p);
	for (size_t i = 0; i < p->note.count; i++)
		TRY(hold_again(a, p, i));
	return NULL;
}

/* Enters the streams of all blocks that are live or were at the note; false: could not, and entered none. */
static bool enter_streams(struct actor *a, const struct world_pool *p, const struct live *list, size_t count,
                          unsigned *set)
{
	unsigned wanted = 0;
	*set = 0;
	for (size_t i = 0; i < count; i++)
		wanted |= 1u << list[i].stream;
	for (size_t i = 0; i < p->note.count; i++)
		wanted |= 1u << p->note.list[i].stream;
	for (unsigned i = 0; i < a->w->stream_count; i++) {
		if (!(wanted >> i & 1))
			continue;
		if (!world_enter(a, i))
			break;
		*set |= 1u << i;
	}
	if (*set == wanted)
		return true;
	for (unsigned i = 0; i < a->w->stream_count; i++)
		if (*set >> i & 1)
			world_leave(a, i);
	return false;
}

static const char *restore(struct actor *a, struct world_pool *p)
{
	struct world *w = a->w;
	struct live *list;
	size_t count;
	unsigned set;
	const char *wrong = NULL;
	if (!take_all_of(w, p->id, &list, &count))
		return NULL;
	if (enter_streams(a, p, list, count, &set)) {
		wrong = put_back(a, p, list, count);
		for (unsigned i = 0; i < w->stream_count; i++)
			if (set >> i & 1)
				world_leave(a, i);
	} else {
		give_all(w, list, count);
	}
	free(list);
	return wrong;
}

const char *world_restore(struct actor *a)
{
	struct world_pool *p = any_pool(a);
	if (!may_be_noted(a, p) || !p->note.state || pthread_rwlock_trywrlock(&a->w->capture_lock) != 0)
		return NULL;
	const char *wrong = restore(a, p);
	pthread_rwlock_unlock(&a->w->capture_lock);
	return wrong;
}
