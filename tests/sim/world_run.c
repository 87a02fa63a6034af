/* SPDX-License-Identifier: Apache-2.0
 *
 * Which actor acts when: in turns by seed, or all at a time; and the end of a world. An actor with a thread does
 * everything there, to the end, since its captures, diversions and default stream belong to that thread.
 */
#include <stdlib.h>

#include "accounts.h"
#include "world_parts.h"

typedef const char *actor_work(struct actor *a, uint64_t arg);

/* ---- threads ---------------------------------------------------------------------------------------------- */

static void *live_on(void *arg)
{
	struct actor *a = arg;
	struct world *w = a->w;
	pthread_mutex_lock(&w->stage);
	for (;;) {
		while (!a->work && !w->quitting)
			pthread_cond_wait(&w->changed, &w->stage);
		if (!a->work)
			break;
		pthread_mutex_unlock(&w->stage);
		const char *result = a->work(a, a->arg);
		pthread_mutex_lock(&w->stage);
		a->result = result;
		a->work = NULL;
		pthread_cond_broadcast(&w->changed);
	}
	pthread_mutex_unlock(&w->stage);
	return NULL;
}

static bool has_threads(const struct world *w)
{
	return !w->ended && (w->actor_count > 1 || w->free_running);
}

static void start_threads(struct world *w)
{
	w->quitting = w->ended = false;
	for (unsigned i = 0; i < w->actor_count && has_threads(w); i++)
		if (pthread_create(&w->actors[i].thread, NULL, live_on, &w->actors[i]) != 0)
			abort();
}

static void stop_threads(struct world *w)
{
	pthread_mutex_lock(&w->stage);
	w->quitting = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->stage);
	for (unsigned i = 0; i < w->actor_count && has_threads(w); i++)
		pthread_join(w->actors[i].thread, NULL);
	w->ended = true;
}

static void give_work(struct actor *a, actor_work *work, uint64_t arg)
{
	struct world *w = a->w;
	pthread_mutex_lock(&w->stage);
	a->arg = arg;
	a->work = work;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->stage);
}

static const char *await(struct actor *a)
{
	struct world *w = a->w;
	pthread_mutex_lock(&w->stage);
	while (a->work)
		pthread_cond_wait(&w->changed, &w->stage);
	pthread_mutex_unlock(&w->stage);
	return a->result;
}

/* Lets one actor do something, while all others stand. */
static const char *let(struct actor *a, actor_work *work, uint64_t arg)
{
	if (!has_threads(a->w))
		return work(a, arg);
	give_work(a, work, arg);
	return await(a);
}

static const char *let_all(struct world *w, actor_work *work, uint64_t arg)
{
	for (unsigned i = 0; i < w->actor_count; i++)
		TRY(let(&w->actors[i], work, arg));
	return NULL;
}

/* ---- events --------------------------------------------------------------------------------------------------- */

static const char *act_and_check(struct actor *a, uint64_t events)
{
	struct world *w = a->w;
	for (uint64_t i = 0; i < events; i++) {
		w->events++;
		TRY(world_act(a));
		TRY(w->events % 64 == 0 ? world_check(w) : world_check_balance(w));
	}
	return NULL;
}

static const char *act_freely(struct actor *a, uint64_t events)
{
	for (uint64_t i = 0; i < events && !atomic_load(&a->w->failed); i++)
		TRY(world_act(a));
	return NULL;
}

static const char *run_in_turns(struct world *w, uint64_t events)
{
	while (w->events < events) {
		struct actor *a = &w->actors[world_below(w, w->actor_count)];
		uint64_t turn = has_threads(w) ? 1 + world_below(w, 48) : events;
		TRY(let(a, act_and_check, min_u64(turn, events - w->events)));
	}
	return NULL;
}

static void act_at_once(struct world *w, uint64_t events)
{
	bool disturbed = world_is_disturbed(w);
	for (unsigned i = 0; i < w->actor_count; i++)
		give_work(&w->actors[i], act_freely, events / w->actor_count);
	if (disturbed)
		world_disturb(w);
	for (unsigned i = 0; i < w->actor_count; i++)
		await(&w->actors[i]);
	if (disturbed)
		world_calm(w);
	w->events += events;
}

static const char *run_freely(struct world *w, uint64_t events)
{
	enum { STRETCHES = 10 };
	for (int i = 0; i < STRETCHES; i++) {
		act_at_once(w, events / STRETCHES);
		if (atomic_load(&w->failed))
			return w->wrong;
		TRY(world_check(w));
	}
	return NULL;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static const char *end_captures(struct actor *a, uint64_t arg)
{
	(void)arg;
	for (int i = 0; i < 2; i++) {
		TRY(world_end_capture(a));
		TRY(world_set_aside(a));
	}
	while (a->diversion_count)
		TRY(world_undivert(a));
	return NULL;
}

/* No actor is in the way any more, and all work has been waited for. */
static const char *end_pools(struct actor *a, uint64_t arg)
{
	(void)arg;
	for (int i = 0; i < WORLD_EXPORTS; i++)
		if (a->exports[i].address)
			TRY(world_end_one_export(a, &a->exports[i]));
	for (int i = 0; i < WORLD_GRAPHS; i++)
		if (a->graphs[i].graph)
			TRY(world_destroy_one(a, &a->graphs[i]));
	for (int i = 0; i < WORLD_POOLS; i++)
		if (a->pools[i].pool)
			TRY(world_drop_one(a, &a->pools[i]));
	return NULL;
}

/* Memory that has moved to this actor's default stream must be freed by that stream's name, so from this thread. */
static const char *free_moved(struct actor *a, uint64_t arg)
{
	struct world *w = a->w;
	bool done;
	(void)arg;
	for (size_t i = w->shadow.count; i-- > 0;) {
		struct live l = w->shadow.list[i];
		if (l.moved && w->streams[l.stream].owner == (int)a->index)
			TRY(world_free_one(a, &l, &done));
	}
	return NULL;
}

/* Frees from elsewhere what threads leave behind on their default streams. */
static const char *free_rest(struct world *w)
{
	bool done;
	for (unsigned i = 0; i < w->stream_count; i++)
		if (w->streams[i].owner >= 0)
			w->streams[i].owner = WORLD_ACTORS;
	while (w->shadow.count) {
		struct live l = w->shadow.list[w->shadow.count - 1];
		TRY(world_free_one(&w->actors[0], &l, &done));
	}
	return NULL;
}

static void free_other_process(struct world *w)
{
	for (int i = 0; i < WORLD_TILES; i++)
		if (w->tiles[i])
			sim_driver(w->other)->release(sim_driver(w->other)->self, w->tiles[i]);
	w->other_used = 0;
}

static const char *give_all_back(struct world *w)
{
	TRY(let_all(w, end_captures, 0));
	MUST(w, world_sync(w));  /* host functions free, too */
	TRY(let_all(w, end_pools, 0));
	TRY(let_all(w, free_moved, 0));
	stop_threads(w);
	TRY(free_rest(w));
	for (int i = 0; i < 2; i++) {
		MUST(w, trz_trim(w->heap, 0, NULL));
		MUST(w, world_sync(w));
	}
	free_other_process(w);
	MUST(w, trz_trim(w->heap, 0, NULL));
	TRY(world_check(w));
	struct accounts a = accounts_read(w->heap);
	if (a.reserved || sim_device_used(w->s, 0))
		return world_wrong(w, "%llu bytes stay reserved", (unsigned long long)a.reserved);
	return NULL;
}

/* The program destroys its busy streams without telling the heap. */
static const char *end_streams(struct world *w)
{
	for (unsigned i = 0; i < w->stream_count; i++) {
		const struct world_stream *st = &w->streams[i];
		void *p;
		if (st->owner >= 0 || trz_alloc(w->heap, 512, 0, st->handle, &p) != TRZ_OK)
			continue;
		MUST(w, sim_stamp(w->s, st->of, st->handle, (trz_addr)p, 512, i));
		MUST(w, trz_free(w->heap, p));
	}
	for (unsigned i = 0; i < w->stream_count; i++)
		if (w->streams[i].owner < 0 && (int)i != w->legacy)
			MUST(w, sim_stream_destroy(w->s, w->streams[i].of, w->streams[i].handle));
	return NULL;
}

static const char *close_heap(struct world *w)
{
	char leaks[200];
	TRY(end_streams(w));
	TRY(world_end_signals(w));
	trz_heap *heap = w->heap;
	w->heap = NULL;
	MUST(w, trz_close(heap));
	if (sim_leaks(w->s, leaks, sizeof leaks))
		return world_wrong(w, "left with the driver: %s", leaks);
	return sim_violations(w->s) ? world_wrong(w, "violation: %s", sim_first_violation(w->s)) : NULL;
}

const char *world_end(struct world *w)
{
	unsigned actors = w->actor_count;
	w->actor_count = 1;  /* a single thread ends alone what it has done */
	for (unsigned i = 0; i < w->stream_count; i++)
		w->streams[i].owner = w->streams[i].owner < 0 ? -1 : 0;
	const char *wrong = give_all_back(w);
	w->actor_count = actors;
	return wrong ? wrong : close_heap(w);
}

/* An illegal access ends the context, and with it all work. */
static const char *lose_device(struct world *w)
{
	sim_kill_context(w->s, w->c);
	TRY(let_all(w, world_abandon, 0));
	stop_threads(w);
	return world_end_dead(w);
}

const char *world_run(struct world *w, uint64_t events, bool freely)
{
	w->free_running = freely;
	start_threads(w);
	const char *wrong = freely ? run_freely(w, events) : run_in_turns(w, events);
	if (!wrong && w->dies)
		return lose_device(w);
	if (!wrong)
		wrong = give_all_back(w);
	stop_threads(w);
	return wrong ? wrong : close_heap(w);
}
