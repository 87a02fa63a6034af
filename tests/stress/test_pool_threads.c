/* SPDX-License-Identifier: Apache-2.0
 *
 * Real threads make, share, capture into, restore and release private pools while others free their memory, streams
 * come and go, and one thread trims and checks. The judges are the stamps, the final balance, and
 * ThreadSanitizer.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "accounts.h"
#include "prng.h"
#include "rig.h"

#ifdef TRZ_UNDER_TSAN
enum { OPERATIONS = 1500 };
#else
enum { OPERATIONS = 8000 };
#endif
enum { WORKERS = 4, MINE_MOST = 40, SHARED = 3, NOTED = 5 };

struct parcel {
	void *p;
	uint64_t size, tag;
	trz_stream stream;
};

struct stress {
	struct rig rig;
	trz_stream shared;
	pthread_mutex_t lock;           /* of the pools and of the market */
	trz_pool *pools[SHARED];        /* each with a reference of the table's */
	struct parcel market[8];
	atomic_uint working;
	atomic_uint_fast64_t tags;
	_Atomic(const char *) wrong;    /* the first thing that went wrong: cmocka's assertions are the main thread's */
};

struct worker {
	struct stress *all;
	uint64_t random;
	trz_stream own, captured;
	struct parcel mine[MINE_MOST];
	unsigned count;
};

static void wrong(struct stress *s, const char *what)
{
	const char *none = NULL;
	if (atomic_compare_exchange_strong(&s->wrong, &none, what))
		print_error("%s: %s\n", what, trz_last_error());
}

static bool ok(struct stress *s, trz_status status, const char *what)
{
	if (status != TRZ_OK)
		wrong(s, what);
	return status == TRZ_OK;
}

static bool is_full(trz_status status)
{
	return status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT;
}

static uint64_t random_size(struct worker *w)
{
	static const uint64_t most[] = {KIB(4), KIB(32), KIB(300), MIB(12)};
	return 8 + prng_below(&w->random, most[prng_below(&w->random, LENGTH(most))]);
}

static trz_pool *borrow_pool(struct worker *w)
{
	struct stress *s = w->all;
	pthread_mutex_lock(&s->lock);
	trz_pool *p = s->pools[prng_below(&w->random, SHARED)];
	ok(s, trz_pool_retain(s->rig.heap, p), "retain");
	pthread_mutex_unlock(&s->lock);
	return p;
}

static void keep(struct worker *w, struct parcel p)
{
	struct rig *r = &w->all->rig;
	ok(w->all, sim_stamp(r->s, r->c, p.stream, (trz_addr)p.p, p.size, p.tag), "stamp");
	w->mine[w->count++] = p;
}

/* From a pool by name, by a diversion of the thread, or from the default one. */
static void allocate(struct worker *w)
{
	struct stress *s = w->all;
	trz_heap *h = s->rig.heap;
	struct parcel p = {.size = random_size(w), .tag = atomic_fetch_add(&s->tags, 1)};
	p.stream = prng_below(&w->random, 3) ? w->own : s->shared;
	trz_pool *pool = borrow_pool(w);
	trz_status status;
	switch (prng_below(&w->random, 3)) {
	case 0:
		status = trz_pool_alloc(h, pool, p.size, 0, p.stream, &p.p);
		break;
	case 1:
		ok(s, trz_pool_begin(h, pool, NULL, NULL), "begin");
		status = trz_alloc(h, p.size, 0, p.stream, &p.p);
		ok(s, trz_pool_end(h, pool), "end");
		break;
	default:
		status = trz_alloc(h, p.size, 0, p.stream, &p.p);
	}
	ok(s, trz_pool_release(h, pool), "release");
	if (!is_full(status) && ok(s, status, "allocation"))
		keep(w, p);
}

static void release(struct worker *w, struct parcel p)
{
	struct stress *s = w->all;
	struct rig *r = &s->rig;
	ok(s, sim_verify(r->s, r->c, p.stream, (trz_addr)p.p, p.size, p.tag), "verify");
	if (prng_below(&w->random, 8) == 0)
		ok(s, trz_record_stream(r->heap, p.p, s->shared), "record_stream");
	ok(s, trz_free(r->heap, p.p), "free");
}

static struct parcel take_one(struct worker *w)
{
	unsigned i = (unsigned)prng_below(&w->random, w->count);
	struct parcel p = w->mine[i];
	w->mine[i] = w->mine[--w->count];
	return p;
}

static void trade(struct worker *w)
{
	struct stress *s = w->all;
	struct parcel mine = take_one(w);
	unsigned place = (unsigned)prng_below(&w->random, LENGTH(s->market));
	pthread_mutex_lock(&s->lock);
	struct parcel other = s->market[place];
	s->market[place] = mine;
	pthread_mutex_unlock(&s->lock);
	if (other.p)
		release(w, other);
}

/* A new pool takes the place of one of the table's. */
static void replace_pool(struct worker *w)
{
	struct stress *s = w->all;
	trz_pool *fresh;
	if (!ok(s, trz_pool_create(s->rig.heap, &fresh), "create"))
		return;
	unsigned place = (unsigned)prng_below(&w->random, SHARED);
	pthread_mutex_lock(&s->lock);
	trz_pool *old = s->pools[place];
	s->pools[place] = fresh;
	pthread_mutex_unlock(&s->lock);
	ok(s, trz_pool_release(s->rig.heap, old), "release");
}

/* A graph, launched where its memory is still held, then forgotten. Others must not enqueue on its stream meanwhile,
 * so that it has one of its own. */
static void capture(struct worker *w)
{
	struct stress *s = w->all;
	struct rig *r = &s->rig;
	sim_graph graph;
	void *p = NULL;
	uint64_t size = MIB(1) + prng_below(&w->random, MIB(8)), tag = atomic_fetch_add(&s->tags, 1);
	trz_pool *pool = borrow_pool(w);
	ok(s, trz_pool_begin_capture(r->heap, pool, w->captured), "begin_capture");
	ok(s, sim_capture_begin(r->s, r->c, w->captured, TRZ_CAPTURE_THREAD_LOCAL), "capture");
	trz_status status = trz_alloc(r->heap, size, 0, w->captured, &p);
	if (!is_full(status) && ok(s, status, "captured allocation")) {
		ok(s, sim_stamp(r->s, r->c, w->captured, (trz_addr)p, size, tag), "stamp");
		ok(s, sim_verify(r->s, r->c, w->captured, (trz_addr)p, size, tag), "verify");
		if (prng_below(&w->random, 2)) {
			ok(s, trz_free(r->heap, p), "free");
			p = NULL;
		}
	}
	ok(s, sim_capture_end(r->s, r->c, w->captured, &graph), "end of the capture");
	ok(s, trz_pool_end(r->heap, pool), "end");
	for (int i = 0; p && i < 2; i++)
		ok(s, sim_graph_launch(r->s, r->c, graph, w->captured), "launch");
	ok(s, sim_graph_destroy(r->s, r->c, graph), "end of the graph");
	ok(s, trz_free(r->heap, p), "free");
	ok(s, trz_pool_release(r->heap, pool), "release");
}

static void checkpoint(struct worker *w)
{
	struct stress *s = w->all;
	trz_heap *h = s->rig.heap;
	void *noted[NOTED] = {NULL}, *extra = NULL;
	trz_pool *pool;
	trz_pool_state *state = NULL;
	if (!ok(s, trz_pool_create(h, &pool), "create"))
		return;
	for (int i = 0; i < NOTED; i++) {
		trz_status status = trz_pool_alloc(h, pool, random_size(w), 0, w->own, &noted[i]);
		if (!is_full(status))
			ok(s, status, "allocation");
	}
	ok(s, trz_pool_checkpoint(h, pool, &state), "checkpoint");
	trz_status status = trz_pool_alloc(h, pool, random_size(w), 0, w->own, &extra);
	if (!is_full(status))
		ok(s, status, "allocation");
	for (int i = 0; i < NOTED; i += 2)
		ok(s, trz_free(h, noted[i]), "free");
	status = trz_pool_restore(h, pool, state);
	if (status == TRZ_OK) {
		for (int i = 0; i < NOTED; i++)
			ok(s, trz_free(h, noted[i]), "free of what was restored");
	} else if (status == TRZ_ERROR_NOT_FOUND || status == TRZ_NOT_READY) {
		/* trimmed or gathered by others, or theirs by a wait that has not passed: nothing has changed */
		for (int i = 1; i < NOTED; i += 2)
			ok(s, trz_free(h, noted[i]), "free");
		ok(s, trz_free(h, extra), "free");
	} else {
		wrong(s, "restore");
	}
	trz_pool_state_free(state);
	ok(s, trz_pool_release(h, pool), "release");
}

/* A stream goes, and with it the lanes that it has in many pools; another one may get its entry. */
static void renew_stream(struct worker *w)
{
	struct stress *s = w->all;
	struct rig *r = &s->rig;
	ok(s, trz_stream_retire(r->heap, w->captured), "retire");
	ok(s, sim_stream_destroy(r->s, r->c, w->captured), "destroy");
	ok(s, sim_stream_create(r->s, r->c, false, &w->captured), "new stream");
}

static void *work(void *arg)
{
	struct worker *w = arg;
	for (int i = 0; i < OPERATIONS && !atomic_load(&w->all->wrong); i++) {
		uint64_t what = prng_below(&w->random, 64);
		if (w->count == 0 || (what < 32 && w->count < MINE_MOST))
			allocate(w);
		else if (what < 52)
			release(w, take_one(w));
		else if (what < 56)
			trade(w);
		else if (what < 58)
			replace_pool(w);
		else if (what < 60)
			capture(w);
		else if (what < 62)
			checkpoint(w);
		else if (what == 62)
			renew_stream(w);
		sim_run(w->all->rig.s, prng_below(&w->random, 4));
	}
	while (w->count)
		release(w, take_one(w));
	atomic_fetch_sub(&w->all->working, 1);
	return NULL;
}

static void *look_on(void *arg)
{
	struct stress *s = arg;
	for (int i = 0; atomic_load(&s->working); i++) {
		ok(s, trz_check(s->rig.heap), "check");
		pthread_mutex_lock(&s->lock);
		trz_pool *p = s->pools[i % SHARED];
		trz_pool_info info;
		ok(s, trz_pool_query(s->rig.heap, p, &info), "query");
		pthread_mutex_unlock(&s->lock);
		if (i % 4 == 0)
			ok(s, trz_trim(s->rig.heap, i % 8 ? 0 : MIB(64), NULL), "trim");
		sim_run(s->rig.s, 200);
	}
	return NULL;
}

static void expect_clean(struct stress *s)
{
	for (unsigned i = 0; i < LENGTH(s->market); i++)
		if (s->market[i].p)
			rig_free(&s->rig, s->market[i].p);
	for (int i = 0; i < SHARED; i++)
		assert_ok(trz_pool_release(s->rig.heap, s->pools[i]));
	if (sim_violations(s->rig.s))
		print_error("violation: %s\n", sim_first_violation(s->rig.s));
	if (atomic_load(&s->wrong))
		fail_msg("%s", atomic_load(&s->wrong));
	rig_check(&s->rig);
	rig_sync(&s->rig);
	assert_ok(trz_trim(s->rig.heap, 0, NULL));
	assert_int_equal(rig_stat(&s->rig, "reserved_bytes.all.current"), 0);
	assert_int_equal(rig_stat(&s->rig, "pending.current"), 0);
	pthread_mutex_destroy(&s->lock);
	rig_close(&s->rig);
}

static void stress(sim_config config, const char *conf)
{
	static struct worker workers[WORKERS];
	static struct stress s;
	pthread_t threads[WORKERS], looker;
	s = (struct stress){.rig = rig_machine(config)};
	atomic_store(&s.tags, 1);
	pthread_mutex_init(&s.lock, NULL);
	rig_open_heap(&s.rig, conf);
	s.shared = rig_stream(&s.rig);
	for (int i = 0; i < SHARED; i++)
		assert_ok(trz_pool_create(s.rig.heap, &s.pools[i]));
	atomic_store(&s.working, WORKERS);
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.all = &s, .random = prng_mix((uint64_t)i + config.seed)};
		workers[i].own = rig_stream(&s.rig);
		workers[i].captured = rig_stream(&s.rig);
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	assert_int_equal(pthread_create(&looker, NULL, look_on, &s), 0);
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(pthread_join(looker, NULL), 0);
	expect_clean(&s);
}

static void test_pools_in_threads(void **state)
{
	(void)state;
	stress((sim_config){.capacity = GIB(2), .seed = 5}, NULL);
}

static void test_pools_in_threads_on_a_full_device(void **state)
{
	(void)state;
	stress((sim_config){.capacity = MIB(256), .seed = 6, .schedule = SIM_STARVE}, "tile_size:2MiB");
}

static void test_pools_in_threads_without_vmm(void **state)
{
	(void)state;
	stress((sim_config){.capacity = GIB(2), .seed = 7}, "vmm:off");
}

/* ---- frees while a pool's memory changes lanes ---- */

#ifdef TRZ_UNDER_TSAN
enum { ROUNDS = 100 };
#else
enum { ROUNDS = 400 };
#endif
enum { BLOCKS = 300, REST_AT = 256 };

/* The main thread fills a pool with blocks, every second of which is free, and then makes a capture's lane end, which
 * walks along them, and gives the heap lock up for a moment at a free block. Another thread frees its neighbours. */
struct walk {
	struct rig rig;
	trz_stream own, captured;
	trz_pool *pool;
	void *blocks[BLOCKS];
	atomic_int begun, ended;        /* rounds */
	atomic_bool failed;
};

static void walk_fill(struct walk *w)
{
	assert_ok(trz_pool_create(w->rig.heap, &w->pool));
	for (int i = 0; i < BLOCKS; i++)
		assert_ok(trz_pool_alloc(w->rig.heap, w->pool, KIB(64), 0, w->own, &w->blocks[i]));
	for (int i = 0; i < BLOCKS; i += 2)
		rig_free(&w->rig, w->blocks[i]);
}

/* A thread that sleeps would come too late. */
static void await(const atomic_int *rounds, int round)
{
	while (atomic_load(rounds) <= round)
		;
}

static void pause_for(int turns)
{
	for (int i = 0; i < turns; i++)
		__asm__ volatile("" ::: "memory");
}

static void *free_neighbours(void *arg)
{
	struct walk *w = arg;
	for (int round = 0; round < ROUNDS; round++) {
		await(&w->begun, round);
		pause_for(round % 100 * 300);
		for (int i = REST_AT - 3; i < REST_AT + 6; i += 2) {
			if (trz_free(w->rig.heap, w->blocks[i]) != TRZ_OK)
				atomic_store(&w->failed, true);
			w->blocks[i] = NULL;
		}
		atomic_store(&w->ended, round + 1);
	}
	return NULL;
}

/* A capture that was not announced has a lane of its own, whose memory its stream's other lane gets afterwards. */
static void *capture_unannounced(struct walk *w)
{
	struct rig *r = &w->rig;
	sim_graph graph;
	void *p = NULL;
	assert_ok(sim_capture_begin(r->s, r->c, w->captured, TRZ_CAPTURE_RELAXED));
	assert_ok(trz_pool_alloc(r->heap, w->pool, KIB(64), 0, w->captured, &p));
	assert_ok(sim_capture_end(r->s, r->c, w->captured, &graph));
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	return p;
}

static void test_frees_while_a_captures_lane_ends(void **state)
{
	(void)state;
	static struct walk w;
	pthread_t thread;
	w = (struct walk){.rig = rig_machine((sim_config){.capacity = GIB(2), .seed = 8})};
	rig_open_heap(&w.rig, NULL);
	w.own = rig_stream(&w.rig);
	w.captured = rig_stream(&w.rig);
	assert_int_equal(pthread_create(&thread, NULL, free_neighbours, &w), 0);
	for (int round = 0; round < ROUNDS; round++) {
		walk_fill(&w);
		void *p = capture_unannounced(&w);
		atomic_store(&w.begun, round + 1);
		rig_free(&w.rig, rig_alloc(&w.rig, KIB(64), w.captured));
		await(&w.ended, round);
		rig_check(&w.rig);
		for (int i = 1; i < BLOCKS; i += 2)
			rig_free(&w.rig, w.blocks[i]);
		rig_free(&w.rig, p);
		assert_ok(trz_pool_release(w.rig.heap, w.pool));
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_false(atomic_load(&w.failed));
	rig_close(&w.rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pools_in_threads),
		cmocka_unit_test(test_pools_in_threads_on_a_full_device),
		cmocka_unit_test(test_pools_in_threads_without_vmm),
		cmocka_unit_test(test_frees_while_a_captures_lane_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
