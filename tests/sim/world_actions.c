/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a simulated world, and how often each happens: one table.
 */
#include "heap/heap.h"
#include "world_parts.h"

/* ---- rare events ------------------------------------------------------------------------------------------ */

/* A trim must not return memory that graphs know. */
static const char *trim(struct actor *a)
{
	struct world *w = a->w;
	const struct world_pool *p = &a->pools[below(a, WORLD_POOLS)];
	trz_pool_info before = {0}, after = {0};
	if (p->pool)
		MUST(w, trz_pool_query(w->heap, p->pool, &before));
	world_arm(a);
	trz_status status = trz_trim(w->heap, chance(a, 2) ? 0 : below(a, w->capacity), NULL);
	world_disarm(a);
	if (status != TRZ_OK && !world_tolerates(w, status))
		return world_failed(w, "trz_trim", status);
	if (p->pool)
		MUST(w, trz_pool_query(w->heap, p->pool, &after));
	if (before.pinned && after.reserved < before.reserved && !w->free_running)
		return world_wrong(w, "law 5: a trim took %zu bytes from pool %u, which has graphs",
		                   before.reserved - after.reserved, p->id);
	return NULL;
}

/* In one case of eight below what is held, so that nothing can be created until it is raised. */
static const char *set_limit(struct actor *a)
{
	struct world *w = a->w;
	pthread_mutex_lock(&w->lock);
	uint64_t occupied = w->occupied;
	pthread_mutex_unlock(&w->lock);
	uint64_t limit = chance(a, 8) ? 1 + below(a, occupied + 1) : occupied + below(a, w->capacity);
	limit = chance(a, 2) ? limit : 0;
	MUST(w, trz_set_limit(w->heap, limit));
	w->limit = w->free_running ? 0 : limit;
	return NULL;
}

static const char *poll(struct actor *a)
{
	struct world *w = a->w;
	world_arm(a);
	trz_status status = trz_poll(w->heap);
	world_disarm(a);
	MUST(w, status);
	return NULL;
}

static const char *reset_peaks(struct actor *a)
{
	MUST(a->w, trz_reset_peaks(a->w->heap));
	return NULL;
}

const char *world_await(struct actor *a, unsigned stream)
{
	struct world *w = a->w;
	uint64_t token = trz_stream_sync_begin(w->heap, handle_of(w, stream));
	trz_status status = sim_stream_sync(w->s, context_of(w, stream), handle_of(w, stream));
	trz_sync_end(w->heap, token, status == TRZ_OK);
	MUST(w, status);
	return NULL;
}

static const char *wait_for_stream(struct actor *a)
{
	return world_on_any(a, world_await);
}

static const char *wait_for_device(struct actor *a)
{
	struct world *w = a->w;
	if (pthread_rwlock_trywrlock(&w->capture_lock) != 0)
		return NULL;
	uint64_t token = trz_context_sync_begin(w->heap, w->c);
	trz_status status = world_sync(w);
	trz_sync_end(w->heap, token, status == TRZ_OK);
	pthread_rwlock_unlock(&w->capture_lock);
	MUST(w, status);
	return NULL;
}

/* Another process takes memory of the device, or frees some. */
static const char *other_process(struct actor *a)
{
	struct world *w = a->w;
	if (!w->other)
		return NULL;
	const trz_driver *d = sim_driver(w->other);
	const trz_tile_props props = {.device = 0};
	pthread_mutex_lock(&w->lock);
	unsigned i = (unsigned)below(a, WORLD_TILES);
	uint64_t size = align_up(1 + below(a, w->capacity / 8), GRANULE);
	if (w->tiles[i]) {
		w->other_used -= w->tile_sizes[i];
		d->release(d->self, w->tiles[i]);
		w->tiles[i] = 0;
	} else if (d->create(d->self, &props, size, &w->tiles[i]) == TRZ_OK) {
		w->tile_sizes[i] = size;
		w->other_used += size;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Changes the marks by which the thread's allocations are counted from now on, and those of some live memory. */
static const char *mark(struct actor *a)
{
	static const char *const tags[] = {
		NULL, "odd", "even", "a text of more than the 63 characters that the heap keeps of a tag"};
	struct live l;
	trz_set_tag(tags[below(a, sizeof tags / sizeof *tags)]);
	MUST(a->w, trz_set_category((trz_category)below(a, TRZ_CATEGORY_OTHER + 1)));
	if (!world_take(a, &l))
		return NULL;
	trz_status status = trz_categorize(a->w->heap, (void *)l.address, (trz_category)below(a, TRZ_CATEGORY_OTHER + 1));
	world_give(a->w, &l);
	MUST(a->w, status);
	return NULL;
}

static const char *read_holders(struct actor *a)
{
	trz_holder some[4];
	size_t count;
	MUST(a->w, trz_holders(a->w->heap, (trz_holder_kind)(1 + below(a, TRZ_BY_CATEGORY)), some, 4, &count));
	return NULL;
}

static bool count_bytes(void *user, const char *text, size_t size)
{
	(void)text;
	*(size_t *)user += size;
	return true;
}

/* Threads that run freely may be in this at the same time. */
static const char *report(struct actor *a)
{
	struct world *w = a->w;
	size_t bytes = 0;
	unsigned flags = (unsigned)below(a, 4);
	world_arm(a);
	trz_status status = trz_report(w->heap, flags, count_bytes, &bytes);
	world_disarm(a);
	if (status == TRZ_OK ? bytes < 100 : status != TRZ_ERROR_NOT_FOUND && status != TRZ_NOT_READY &&
	                                         !world_tolerates(w, status))
		return world_failed(w, "trz_report", status);
	return NULL;
}

/* ---- the table -------------------------------------------------------------------------------------------- */

struct action {
	const char *(*act)(struct actor *a);
	unsigned weight;
	enum { ALWAYS, WITH_GRAPHS } when;
};

static const struct action actions[] = {
	{trim, 3, ALWAYS},
	{set_limit, 2, ALWAYS},
	{poll, 4, ALWAYS},
	{reset_peaks, 2, ALWAYS},
	{wait_for_stream, 2, ALWAYS},
	{wait_for_device, 2, ALWAYS},
	{other_process, 6, ALWAYS},
	{mark, 12, ALWAYS},
	{read_holders, 2, ALWAYS},
	{report, 2, ALWAYS},
	{world_signal, 40, ALWAYS},
	{world_heed, 40, ALWAYS},
	{world_signal_abroad, 6, ALWAYS},
	{world_ask_signal, 10, ALWAYS},
	{world_replace_signal, 4, ALWAYS},
	{world_lend, 12, ALWAYS},
	{world_share, 16, ALWAYS},
	{world_free_elsewhere, 40, ALWAYS},
	{world_free_in_callback, 20, ALWAYS},
	{world_use_with_foreign_lock, 12, ALWAYS},
	{world_replace_stream, 4, ALWAYS},
	{world_crowd, 1, ALWAYS},
	{world_visit, 2, ALWAYS},
	{world_fork, 1, ALWAYS},
	{world_replace_context, 2, ALWAYS},
	{world_allocate_dedicated, 10, ALWAYS},
	{world_allocate_at, 15, ALWAYS},
	{world_grow, 30, ALWAYS},
	{world_free_after, 20, ALWAYS},
	{world_export, 20, ALWAYS},
	{world_end_export, 5, ALWAYS},
	{world_enable_peer, 2, ALWAYS},
	{world_read_by_peer, 6, ALWAYS},
	{world_make_pool, 4, WITH_GRAPHS},
	{world_drop_pool, 2, WITH_GRAPHS},
	{world_allocate_from_pool, 30, WITH_GRAPHS},
	{world_divert, 4, WITH_GRAPHS},
	{world_undivert, 6, WITH_GRAPHS},
	{world_checkpoint, 3, WITH_GRAPHS},
	{world_restore, 5, WITH_GRAPHS},
	{world_begin_capture, 10, WITH_GRAPHS},
	{world_capture_step, 150, WITH_GRAPHS},
	{world_set_aside, 2, WITH_GRAPHS},
	{world_capture_two, 8, WITH_GRAPHS},
	{world_end_capture, 8, WITH_GRAPHS},
	{world_capture_at_once, 12, WITH_GRAPHS},
	{world_capture_series, 12, WITH_GRAPHS},
	{world_launch, 20, WITH_GRAPHS},
	{world_destroy_graph, 4, WITH_GRAPHS},
};

/* Out of so many events; the rest are allocations and frees. */
enum { EVENTS_IN_ALL = 1024 };

static const struct action *choose(struct actor *a)
{
	static const struct action series = {world_capture_series, 0, WITH_GRAPHS};
	if (a->w->captures && a->w->graphs && chance(a, 6))
		return &series;
	uint64_t at = below(a, EVENTS_IN_ALL);
	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
		if (at < actions[i].weight)
			return actions[i].when == ALWAYS || a->w->graphs ? &actions[i] : NULL;
		at -= actions[i].weight;
	}
	return NULL;
}

/* The tide: now mostly allocations, now mostly frees. */
static const char *allocate_or_free(struct actor *a)
{
	struct world *w = a->w;
	pthread_mutex_lock(&w->lock);
	bool full = w->shadow.count >= w->live_most || w->occupied > w->fill_target, empty = w->shadow.count == 0;
	pthread_mutex_unlock(&w->lock);
	if (a->burst == 0 && below(a, 64) == 0) {
		a->burst = below(a, 2 * w->live_most);
		a->burst_allocates = chance(a, 2);
	}
	bool grow = a->burst ? a->burst_allocates : chance(a, 2);
	a->burst -= a->burst != 0;
	if (empty || (grow && (!full || chance(a, 16))))
		return world_allocate(a);
	return world_free_any(a);
}

const char *world_act(struct actor *a)
{
	struct world *w = a->w;
	const struct action *action = choose(a);
	TRY(action ? action->act(a) : allocate_or_free(a));
	TRY(world_ask(a));
	if (w->run_most)
		sim_run(w->s, below(a, w->run_most + 1));
	else
		sim_tick(w->s, w->lag);
	return atomic_load(&w->failed) ? w->wrong : NULL;  /* a host function or the watch may have failed */
}
