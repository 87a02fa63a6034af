/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices of mappings: a registration cache that follows them always knows the memory behind the program's addresses,
 * and gets a notice before any of it goes. The tests at the end plant bugs that must be noticed.
 */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "heap/heap.h"
#include "prng.h"
#include "registry.h"
#include "supply/reclaim.h"

#define TIGHT "slack_per_mille:0,tile_size:2MiB,tile_size_max:2MiB,window_factor:1"

enum { HELD = 12 };

static struct overlay o;
static struct registry cache;

struct holder {
	trz_heap *heap;
	trz_stream streams[3];
	void *held[HELD];
	size_t sizes[HELD];
	uint64_t random;
	unsigned uncovered;
	bool large_only;
};

static void open_cache(uint64_t capacity, const char *conf)
{
	overlay_machine(&o, capacity);
	registry_watch(&cache, &o);
	overlay_open_heap(&o, conf);
	assert_ok(trz_set_map_callback(o.rig.heap, registry_notice, &cache));
}

static void expect_right(void)
{
	if (*cache.wrong)
		print_error("%s\n", cache.wrong);
	assert_string_equal(cache.wrong, "");
}

/* A request in place of another; what is given out must be known to the cache. */
static void turn(struct holder *h)
{
	size_t i = prng_below(&h->random, HELD);
	assert_ok(trz_free(h->heap, h->held[i]));
	h->held[i] = NULL;
	bool large = h->large_only || prng_below(&h->random, 4) != 0;
	h->sizes[i] = large ? MIB(1) + prng_below(&h->random, MIB(8)) : 1 + prng_below(&h->random, 30000);
	trz_status status = trz_alloc(h->heap, h->sizes[i], 0, h->streams[prng_below(&h->random, 3)], &h->held[i]);
	if (status != TRZ_ERROR_OUT_OF_MEMORY && status != TRZ_ERROR_LIMIT && status != TRZ_ERROR_DRIVER)
		assert_ok(status);
	h->uncovered += h->held[i] && !registry_covers(&cache, h->held[i], h->sizes[i]);
}

static void let_go(struct holder *h)
{
	for (size_t i = 0; i < HELD; i++)
		assert_ok(trz_free(h->heap, h->held[i]));
}

static struct holder open_holder(uint64_t seed)
{
	struct holder h = {.heap = o.rig.heap, .random = seed};
	h.streams[1] = rig_stream(&o.rig);
	h.streams[2] = rig_stream(&o.rig);
	return h;
}

static void churn(struct holder *h, int turns)
{
	for (int i = 0; i < turns; i++) {
		turn(h);
		sim_run(o.rig.s, 2);
		if (i % 100 == 99) {
			rig_sync(&o.rig);
			trz_status status = trz_trim(h->heap, MIB(16), NULL);
			if (status != TRZ_ERROR_DRIVER)
				assert_ok(status);
			rig_check(&o.rig);
		}
	}
}

static void end(struct holder *h)
{
	let_go(h);
	rig_sync(&o.rig);
	expect_right();
	assert_int_equal(h->uncovered, 0);
	rig_close(&o.rig);
	expect_right();
	assert_int_equal(cache.known_count, 0);
	assert_int_equal(cache.maps, cache.unmaps);
}

static void test_a_cache_is_always_right(void **state)
{
	(void)state;
	static const char *const confs[] = {TIGHT, TIGHT ",quarantine:0", "vmm:off,tile_size:4MiB", NULL};
	for (size_t i = 0; i < LENGTH(confs); i++) {
		open_cache(MIB(64), confs[i]);
		struct holder h = open_holder(i + 1);
		cache.busy = i % 2 == 0;
		churn(&h, 1500);
		assert_true(cache.maps > 20 && cache.unmaps > 10);
		assert_true(i > 0 || rig_stat(&o.rig, "path_refill") > 10);
		end(&h);
	}
}

/* Stale mappings are unmapped in growth, many at once. */
static void test_aliases_that_go(void **state)
{
	(void)state;
	open_cache(MIB(64), TIGHT ",refill:off");
	struct holder h = open_holder(5);
	cache.busy = true;
	uint64_t most = 0;
	for (int i = 0; i < 4000; i++) {
		turn(&h);
		sim_run(o.rig.s, 3);
		most = max_u64(most, rig_stat(&o.rig, "alias.current"));
	}
	assert_true(most > 256);
	assert_true(cache.unmaps > 200);
	end(&h);
}

/* While a trim tells of its first tile, another thread looks for aliases: those of what the trim will return are not
 * for it. Should it take some, it lets the trim finish before it goes on. */
static struct {
	sem_t trimming, looked, trimmed;
	pthread_t trimmer;
	bool told, took;
} meeting;

static void meet(void *user, trz_map_event event, void *address, size_t size)
{
	(void)user;
	(void)address;
	(void)size;
	bool trims = pthread_equal(pthread_self(), meeting.trimmer);
	if (event != TRZ_UNMAP || (trims ? meeting.told : meeting.took))
		return;
	*(trims ? &meeting.told : &meeting.took) = true;
	sem_post(trims ? &meeting.trimming : &meeting.looked);
	sem_wait(trims ? &meeting.looked : &meeting.trimmed);
}

static void *trim_all(void *arg)
{
	meeting.trimmer = pthread_self();
	trz_trim(arg, 0, NULL);
	sem_post(&meeting.trimmed);
	return NULL;
}

static void test_a_trim_beside_a_search_for_aliases(void **state)
{
	(void)state;
	pthread_t thread;
	open_cache(MIB(64), TIGHT);
	trz_heap *heap = o.rig.heap;
	void *scattered[24];
	for (size_t i = 0; i < LENGTH(scattered); i++)
		scattered[i] = rig_alloc(&o.rig, MIB(2), NULL);
	for (size_t i = 0; i < LENGTH(scattered); i += 2)
		rig_free(&o.rig, scattered[i]);
	void *gathered = rig_alloc(&o.rig, MIB(16), NULL);
	assert_true(rig_stat(&o.rig, "alias.current") >= 8);
	rig_free(&o.rig, gathered);
	for (size_t i = 1; i < LENGTH(scattered); i += 2)
		rig_free(&o.rig, scattered[i]);
	rig_sync(&o.rig);
	sem_init(&meeting.trimming, 0, 0);
	sem_init(&meeting.looked, 0, 0);
	sem_init(&meeting.trimmed, 0, 0);
	meeting.told = meeting.took = false;
	assert_ok(trz_set_map_callback(heap, meet, NULL));
	assert_int_equal(pthread_create(&thread, NULL, trim_all, heap), 0);
	sem_wait(&meeting.trimming);
	assert_true(heap_lock_growth(heap));
	reclaim_all_aliases(heap);
	heap_unlock_growth(heap);
	sem_post(&meeting.looked);
	pthread_join(thread, NULL);
	assert_false(meeting.took);
	assert_ok(trz_trim(heap, 0, NULL));
	assert_int_equal(rig_stat(&o.rig, "reserved_bytes.all.current"), 0);
	rig_check(&o.rig);
	rig_close(&o.rig);
}

/* What the driver refuses to unmap is mapped still, and the cache is told so. */
static void test_a_driver_that_refuses(void **state)
{
	(void)state;
	open_cache(MIB(64), TIGHT);
	struct holder h = open_holder(7);
	sim_fault_probability(o.rig.s, (1 << SIM_SLOT_unmap) | (1 << SIM_SLOT_release), 0.2, TRZ_ERROR_DRIVER);
	churn(&h, 1500);
	assert_true(sim_faults(o.rig.s) > 20);
	sim_fault_probability(o.rig.s, 0, 0, TRZ_OK);
	assert_ok(trz_trim(h.heap, 0, NULL));
	end(&h);
}

static void take_aliases(void)
{
	assert_true(heap_lock_growth(o.rig.heap));
	reclaim_all_aliases(o.rig.heap);
	heap_unlock_growth(o.rig.heap);
}

/* The same of stale mappings, which others may be flipped to again. */
static void test_aliases_that_a_driver_keeps(void **state)
{
	(void)state;
	void *scattered[24];
	open_cache(MIB(64), TIGHT);
	for (size_t i = 0; i < LENGTH(scattered); i++)
		scattered[i] = rig_alloc(&o.rig, MIB(2), NULL);
	for (size_t i = 0; i < LENGTH(scattered); i += 2)
		rig_free(&o.rig, scattered[i]);
	rig_alloc(&o.rig, MIB(16), NULL);
	rig_sync(&o.rig);
	uint64_t aliases = rig_stat(&o.rig, "alias.current"), unmaps = cache.unmaps;
	size_t known = cache.known_count;
	assert_true(aliases >= 8);
	sim_fault_probability(o.rig.s, 1 << SIM_SLOT_unmap, 1, TRZ_ERROR_DRIVER);
	take_aliases();
	sim_fault_probability(o.rig.s, 0, 0, TRZ_OK);
	assert_int_equal(cache.unmaps - unmaps, aliases);
	assert_int_equal(cache.known_count, known);
	take_aliases();
	assert_int_equal(cache.known_count, known - aliases);
	assert_int_equal(rig_stat(&o.rig, "alias.current"), 0);
	expect_right();
	rig_check(&o.rig);
	rig_close(&o.rig);
}

static void test_a_callback_that_comes_late_and_goes(void **state)
{
	(void)state;
	overlay_machine(&o, MIB(64));
	registry_watch(&cache, &o);
	overlay_open_heap(&o, TIGHT);
	struct holder h = open_holder(9);
	churn(&h, 300);
	assert_int_equal(cache.maps, 0);
	h.uncovered = 0;
	assert_ok(trz_set_map_callback(h.heap, registry_notice, &cache));
	assert_true(cache.maps > 20);
	churn(&h, 300);
	assert_int_equal(h.uncovered, 0);
	assert_ok(trz_set_map_callback(h.heap, NULL, NULL));
	uint64_t told = cache.maps + cache.unmaps;
	cache.known_count = 0;  /* it gives up all that it knows */
	churn(&h, 300);
	assert_int_equal(cache.maps + cache.unmaps, told);
	expect_right();
	let_go(&h);
	rig_sync(&o.rig);
	assert_status(trz_set_map_callback(NULL, NULL, NULL), TRZ_ERROR_INVALID_ARGUMENT);
	rig_close(&o.rig);
	assert_int_equal(cache.maps + cache.unmaps, told);
}

/* ---- what is known of a mapping ---- */

static struct {
	unsigned maps, of_pool, others;
	unsigned pool;
} seen;

/* Both when it is told that memory comes and when it is told that it goes. */
static void ask(void *user, trz_map_event event, void *address, size_t size)
{
	trz_segment_info info = {0};
	(void)event;
	assert_ok(trz_query_mapping(user, (char *)address + size - 1, &info));
	assert_int_equal(info.address, (uintptr_t)address);
	assert_int_equal(info.size, size);
	seen.maps++;
	*(info.pool == seen.pool ? &seen.of_pool : &seen.others) += 1;
}

static void test_what_is_known_of_a_mapping(void **state)
{
	static const char *const confs[] = {TIGHT, "vmm:off,tile_size:4MiB"};
	(void)state;
	for (size_t i = 0; i < LENGTH(confs); i++) {
		struct rig r = rig_open(MIB(64), confs[i]);
		trz_pool *pool;
		trz_pool_info pool_info;
		trz_segment_info info;
		void *held;
		memset(&seen, 0, sizeof seen);
		assert_ok(trz_pool_create(r.heap, &pool));
		assert_ok(trz_pool_query(r.heap, pool, &pool_info));
		seen.pool = pool_info.id;
		assert_ok(trz_set_map_callback(r.heap, ask, r.heap));
		assert_ok(trz_pool_alloc(r.heap, pool, MIB(6), 0, NULL, &held));
		assert_true(seen.of_pool > 0);
		assert_int_equal(seen.others, 0);
		void *small = rig_alloc(&r, 100, NULL);
		assert_true(seen.others > 0);
		assert_ok(trz_query_mapping(r.heap, small, &info));
		assert_int_equal(info.pool, 0);
		assert_true(info.small);
		assert_int_equal(info.expandable, i == 0);
		assert_ok(trz_query_mapping(r.heap, held, &info));
		assert_int_equal(info.pool, seen.pool);
		assert_false(info.small);
		assert_status(trz_query_mapping(r.heap, &r, &info), TRZ_ERROR_NOT_FOUND);
		assert_status(trz_query_mapping(r.heap, small, NULL), TRZ_ERROR_INVALID_ARGUMENT);
		assert_status(trz_query_mapping(NULL, small, &info), TRZ_ERROR_INVALID_ARGUMENT);
		rig_free(&r, small);
		rig_free(&r, held);
		assert_ok(trz_pool_release(r.heap, pool));
		rig_sync(&r);
		unsigned maps = seen.maps;
		assert_ok(trz_trim(r.heap, 0, NULL));
		assert_true(seen.maps > maps);
		rig_close(&r);
	}
}

/* ---- threads ---- */

static void *work(void *argument)
{
	struct holder *h = argument;
	for (int i = 0; i < 1000; i++) {
		turn(h);
		if (i % 50 == 0)
			trz_trim(h->heap, MIB(8), NULL);
	}
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	enum { WORKERS = 3 };
	struct holder h[WORKERS];
	pthread_t threads[WORKERS];
	open_cache(MIB(128), TIGHT);
	cache.busy = true;
	for (int i = 0; i < WORKERS; i++)
		h[i] = open_holder(11 + (uint64_t)i);
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, &h[i]), 0);
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (int i = 1; i < WORKERS; i++) {
		let_go(&h[i]);
		assert_int_equal(h[i].uncovered, 0);
	}
	end(&h[0]);
}

/* ---- one callback after the other ---- */

enum { GENERATIONS = 500, KNOWN_MOST = 1024 };  /* stale aliases are known as well */

/* What one callback of many has been told is mapped. */
static struct generation {
	pthread_mutex_t lock;
	void *known[KNOWN_MOST];
	size_t count;
} generations[GENERATIONS];

static atomic_uint told_wrong;
static atomic_bool enough;

static void note(void *user, trz_map_event event, void *address, size_t size)
{
	struct generation *g = user;
	size_t i = 0;
	(void)size;
	pthread_mutex_lock(&g->lock);
	while (i < g->count && g->known[i] != address)
		i++;
	if ((event == TRZ_MAP) != (i == g->count) || g->count == KNOWN_MOST)
		atomic_fetch_add(&told_wrong, 1);
	else if (event == TRZ_MAP)
		g->known[g->count++] = address;
	else
		g->known[i] = g->known[--g->count];
	pthread_mutex_unlock(&g->lock);
}

static void *map_and_unmap(void *heap)
{
	bool ok = true;
	while (!atomic_load(&enough)) {
		void *p = NULL;
		ok &= trz_alloc(heap, MIB(12), 0, NULL, &p) == TRZ_OK && trz_free(heap, p) == TRZ_OK &&
		      trz_trim(heap, 0, NULL) == TRZ_OK;
	}
	return ok ? heap : NULL;
}

/* Each hears the end of what it has heard the beginning of, and of nothing else. */
static void test_callbacks_that_follow_each_other(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "tile_size:2MiB,tile_size_max:2MiB");
	pthread_t threads[2];
	for (size_t i = 0; i < LENGTH(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, map_and_unmap, r.heap), 0);
	for (size_t i = 0; i < GENERATIONS; i++) {
		pthread_mutex_init(&generations[i].lock, NULL);
		assert_ok(trz_set_map_callback(r.heap, note, &generations[i]));
	}
	atomic_store(&enough, true);
	for (size_t i = 0; i < LENGTH(threads); i++) {
		void *fine = NULL;
		assert_int_equal(pthread_join(threads[i], &fine), 0);
		assert_non_null(fine);
	}
	rig_sync(&r);
	rig_close(&r);
	assert_int_equal(atomic_load(&told_wrong), 0);
	assert_int_equal(generations[GENERATIONS - 1].count, 0);
}

/* ---- while others are told ---- */

/* What happens inside callbacks of the tests below. */
static struct {
	void *telling;               /* the range whose TRZ_MAP is being told */
	bool early;                  /* its TRZ_UNMAP has been told meanwhile */
	void *taken;                 /* allocated inside a callback */
} inside;

static void want_more_memory(void *user, trz_map_event event, void *address, size_t size)
{
	trz_alloc_params params = {.struct_size = sizeof params, .size = size + MIB(2), .flags = TRZ_ALLOC_CONTIGUOUS};
	inside.early |= event == TRZ_UNMAP && address == inside.telling;
	if (event == TRZ_UNMAP || inside.telling)
		return;
	inside.telling = address;
	trz_alloc_with(user, &params, &inside.taken);
	inside.telling = NULL;
}

/* Dedicated memory that is free and wanted elsewhere stays while the program is being told of it. */
static void test_memory_stays_while_it_is_told_of(void **state)
{
	(void)state;
	memset(&inside, 0, sizeof inside);
	struct rig r = rig_open(MIB(64), NULL);
	trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(40), .flags = TRZ_ALLOC_CONTIGUOUS};
	void *p;
	assert_ok(trz_alloc_with(r.heap, &params, &p));
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(trz_set_map_callback(r.heap, want_more_memory, r.heap));
	assert_false(inside.early);
	assert_ok(trz_set_map_callback(r.heap, NULL, NULL));
	assert_ok(trz_free(r.heap, inside.taken));
	rig_check(&r);
	rig_close(&r);
}

static void count(void *user, trz_map_event event, void *address, size_t size)
{
	(void)event;
	(void)address;
	(void)size;
	++*(unsigned *)user;
}

/* The plug for PyTorch calls these under a lock that a callback would want which allocates in a pool, or opens one. */
static void test_pools_come_and_go_without_notices(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "trim_threshold:1MiB,decay_ms:1");
	trz_stream stream = rig_stream(&r);
	unsigned told = 0;
	trz_pool *pool;
	void *p = NULL;
	assert_ok(trz_set_map_callback(r.heap, count, &told));
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_alloc(r.heap, pool, MIB(40), 0, stream, &p));
	rig_free(&r, p);
	rig_free(&r, rig_alloc(&r, MIB(200), stream));
	rig_sync(&r);
	unsigned before = told;
	assert_true(before > 0);
	assert_ok(trz_pool_retain(r.heap, pool));
	assert_ok(trz_pool_begin(r.heap, pool, NULL, NULL));
	assert_ok(trz_pool_end(r.heap, pool));
	assert_ok(trz_pool_begin_capture(r.heap, pool, stream));
	assert_ok(trz_pool_end(r.heap, pool));
	assert_ok(trz_pool_release(r.heap, pool));
	assert_ok(trz_pool_release(r.heap, pool));
	assert_int_equal(told, before);
	assert_ok(trz_poll(r.heap));
	assert_true(told > before);  /* there was something to return */
	rig_close(&r);
}

static void take_some(void *user, trz_map_event event, void *address, size_t size)
{
	(void)address;
	(void)size;
	if (event == TRZ_UNMAP && !inside.taken)
		assert_ok(trz_alloc(user, MIB(200), 0, NULL, &inside.taken));
}

/* A trim during which somebody allocates more than it returns tells what it returned. */
static void test_what_a_trim_returns(void **state)
{
	(void)state;
	memset(&inside, 0, sizeof inside);
	struct rig r = rig_open(GIB(1), NULL);
	size_t released = 0;
	assert_ok(trz_set_map_callback(r.heap, take_some, r.heap));
	rig_free(&r, rig_alloc(&r, MIB(60), NULL));
	rig_sync(&r);
	uint64_t reserved = rig_stat(&r, "reserved_bytes.all.current");
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_non_null(inside.taken);
	assert_int_equal(released, reserved);
	rig_free(&r, inside.taken);
	rig_close(&r);
}

/* One thread trims; when it tells of the first tile it lets another one set a new callback, which is told of the other
 * tiles: they do not go before that has ended. */
static sem_t trimming, learning, over;
static atomic_bool learnt, went_early;

static void learn(void *user, trz_map_event event, void *address, size_t size)
{
	(void)user;
	(void)address;
	(void)size;
	if (event == TRZ_UNMAP && !atomic_load(&learnt))
		atomic_store(&went_early, true);
	if (event == TRZ_UNMAP || atomic_load(&learnt))
		return;
	sem_post(&learning);
	sem_wait(&over);
	atomic_store(&learnt, true);
}

static void *learn_beside(void *heap)
{
	sem_wait(&trimming);
	return trz_set_map_callback(heap, learn, NULL) == TRZ_OK ? heap : NULL;
}

static void let_learn(void *user, trz_map_event event, void *address, size_t size)
{
	(void)user;
	(void)address;
	(void)size;
	if (event == TRZ_MAP)
		return;
	sem_post(&trimming);
	sem_wait(&learning);
}

static void test_a_callback_that_comes_in_a_trim(void **state)
{
	static const char *const confs[] = {TIGHT, "vmm:off,tile_size:2MiB"};
	(void)state;
	for (size_t i = 0; i < LENGTH(confs); i++) {
		struct rig r = rig_open(MIB(64), confs[i]);
		void *held[8], *fine = NULL;
		pthread_t thread;
		sem_init(&trimming, 0, 0);
		sem_init(&learning, 0, 0);
		sem_init(&over, 0, 0);
		atomic_store(&learnt, false);
		for (size_t k = 0; k < LENGTH(held); k++)
			held[k] = rig_alloc(&r, MIB(2), NULL);
		for (size_t k = 0; k < LENGTH(held); k++)
			rig_free(&r, held[k]);
		rig_sync(&r);
		assert_ok(trz_set_map_callback(r.heap, let_learn, NULL));
		assert_int_equal(pthread_create(&thread, NULL, learn_beside, r.heap), 0);
		assert_ok(trz_trim(r.heap, 0, NULL));
		assert_true(rig_stat(&r, "reserved_bytes.all.current") > 0);
		sem_post(&over);
		assert_int_equal(pthread_join(thread, &fine), 0);
		assert_non_null(fine);
		assert_false(atomic_load(&went_early));
		assert_ok(trz_trim(r.heap, 0, NULL));
		assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
		rig_check(&r);
		rig_close(&r);
	}
}

/* One thread trims; when it tells of the first tile it lets another one grow, which would like to unmap stale aliases
 * of the tiles that are to follow, and comes to tell of that when those are gone. */
static atomic_bool trims, grown, leaving_alias, trimmed;
static _Thread_local bool grower;

static void take_turns(void *user, trz_map_event event, void *address, size_t size)
{
	(void)user;
	(void)address;
	(void)size;
	if (event == TRZ_MAP)
		return;
	if (grower) {
		atomic_store(&leaving_alias, true);
		while (!atomic_load(&trimmed))
			sched_yield();
		return;
	}
	atomic_store(&trims, true);
	while (!atomic_load(&grown) && !atomic_load(&leaving_alias))
		sched_yield();
}

static void *grow_beside(void *arg)
{
	void *p = NULL;
	grower = true;
	while (!atomic_load(&trims))
		sched_yield();
	bool ok = trz_alloc(arg, MIB(1), 0, NULL, &p) == TRZ_OK;
	atomic_store(&grown, true);
	return ok && trz_free(arg, p) == TRZ_OK ? arg : NULL;
}

static void test_a_trim_beside_growth(void **state)
{
	(void)state;
	void *fine = NULL;
	pthread_t thread;
	open_cache(MIB(256), TIGHT);
	assert_ok(trz_set_limit(o.rig.heap, MIB(64)));
	struct holder h = open_holder(5);
	h.large_only = true;
	uint64_t tiles = 0;
	sim_fault_probability(o.rig.s, 1 << SIM_SLOT_unmap, 1, TRZ_ERROR_DRIVER);  /* so that aliases become too many */
	for (int i = 0; i < 8000 && rig_stat(&o.rig, "alias.current") <= 256 + 12 * tiles; i++) {
		turn(&h);
		sim_run(o.rig.s, 3);
		tiles = rig_stat(&o.rig, "segment.all.current") + 5;
	}
	assert_true(rig_stat(&o.rig, "alias.current") > 256 + 12 * tiles);
	sim_fault_probability(o.rig.s, 0, 0, TRZ_OK);
	let_go(&h);
	rig_sync(&o.rig);
	assert_ok(trz_set_limit(o.rig.heap, 0));
	assert_ok(trz_set_map_callback(h.heap, take_turns, NULL));
	assert_int_equal(pthread_create(&thread, NULL, grow_beside, h.heap), 0);
	assert_ok(trz_trim(h.heap, 0, NULL));
	atomic_store(&trimmed, true);
	assert_int_equal(pthread_join(thread, &fine), 0);
	assert_non_null(fine);
	assert_ok(trz_set_map_callback(h.heap, NULL, NULL));
	cache.known_count = 0;
	rig_check(&o.rig);
	rig_sync(&o.rig);
	rig_close(&o.rig);
}

/* ---- planted ---- */

/* Makes the heap forget that the program knows of the memory at an address: it will go without notice. */
static void plant_silence(const void *address)
{
	heap_lock(o.rig.heap);
	const struct block *b = pagemap_block_before(&o.rig.heap->pagemap, (trz_addr)address);
	window_at(b->window, (trz_addr)address)->tile->places->told = false;
	heap_unlock(o.rig.heap);
}

static void test_memory_that_goes_without_notice(void **state)
{
	(void)state;
	open_cache(MIB(64), TIGHT);
	void *p = rig_alloc(&o.rig, MIB(4), NULL);
	assert_true(registry_covers(&cache, p, MIB(4)));
	plant_silence(p);
	rig_free(&o.rig, p);
	rig_sync(&o.rig);
	assert_ok(trz_trim(o.rig.heap, 0, NULL));
	assert_non_null(strstr(cache.wrong, "is unmapped while the cache knows it"));
	cache.known_count = 0;
	rig_close(&o.rig);
}

/* Without quarantine the driver gives the same addresses out again: what was not told of then belongs to others. */
static void test_an_address_laid_again_without_notice(void **state)
{
	(void)state;
	open_cache(MIB(64), TIGHT ",quarantine:0");
	o.table.unmap = o.rig.d->unmap;  /* only a new mapping is looked at */
	cache.mapped_count = 0;
	void *p = rig_alloc(&o.rig, MIB(60), NULL);
	plant_silence(p);
	rig_free(&o.rig, p);
	rig_sync(&o.rig);
	assert_ok(trz_trim(o.rig.heap, 0, NULL));
	assert_string_equal(cache.wrong, "");
	for (int i = 0; i < 8 && !*cache.wrong; i++) {
		rig_free(&o.rig, rig_alloc(&o.rig, MIB(60), NULL));
		rig_sync(&o.rig);
		assert_ok(trz_trim(o.rig.heap, 0, NULL));
	}
	assert_non_null(strstr(cache.wrong, "is laid again while the cache knows it"));
	cache.known_count = 0;
	rig_close(&o.rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_cache_is_always_right),
		cmocka_unit_test(test_aliases_that_go),
		cmocka_unit_test(test_a_trim_beside_a_search_for_aliases),
		cmocka_unit_test(test_a_driver_that_refuses),
		cmocka_unit_test(test_aliases_that_a_driver_keeps),
		cmocka_unit_test(test_a_callback_that_comes_late_and_goes),
		cmocka_unit_test(test_what_is_known_of_a_mapping),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_callbacks_that_follow_each_other),
		cmocka_unit_test(test_memory_stays_while_it_is_told_of),
		cmocka_unit_test(test_pools_come_and_go_without_notices),
		cmocka_unit_test(test_what_a_trim_returns),
		cmocka_unit_test(test_a_callback_that_comes_in_a_trim),
		cmocka_unit_test(test_a_trim_beside_growth),
		cmocka_unit_test(test_memory_that_goes_without_notice),
		cmocka_unit_test(test_an_address_laid_again_without_notice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
