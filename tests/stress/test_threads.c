/* SPDX-License-Identifier: Apache-2.0
 *
 * Real threads on one heap: four allocate, stamp, verify and free, also each other's blocks, on streams of their own
 * and on a shared one; one reads statistics and checks; one trims. The judges are the stamps, the final balance, and
 * ThreadSanitizer.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "accounts.h"
#include "prng.h"
#include "rig.h"

#ifdef TRZ_UNDER_TSAN
enum { OPERATIONS = 5000 };
#else
enum { OPERATIONS = 25000 };
#endif
enum { WORKERS = 4, MINE_MOST = 60, MARKET = 64, LOOKS = 300, TRIMS = 60 };

/* An allocation on its way from one thread to another. */
struct parcel {
	void *p;
	uint64_t size, tag;
	trz_stream stream;
};

struct stress {
	struct rig rig;
	trz_stream shared;
	pthread_mutex_t lock;           /* of the market */
	struct parcel market[MARKET];   /* p NULL: an empty place */
	atomic_uint working;
	atomic_uint_fast64_t tags;
	_Atomic(const char *) wrong;    /* the first thing that went wrong: cmocka's assertions are the main thread's */
};

struct worker {
	struct stress *all;
	uint64_t random;
	trz_stream own;
	struct parcel mine[MINE_MOST];
	unsigned count;
};

static void wrong(struct stress *s, const char *what)
{
	const char *none = NULL;
	atomic_compare_exchange_strong(&s->wrong, &none, what);
}

static bool ok(struct stress *s, trz_status status, const char *what)
{
	if (status != TRZ_OK)
		wrong(s, what);
	return status == TRZ_OK;
}

static uint64_t random_size(struct worker *w)
{
	static const uint64_t most[] = {KIB(4), KIB(4), KIB(32), KIB(300), MIB(12)};
	return 8 + prng_below(&w->random, most[prng_below(&w->random, LENGTH(most))]);
}

static void allocate(struct worker *w)
{
	struct stress *s = w->all;
	struct rig *r = &s->rig;
	struct parcel p = {.size = random_size(w), .tag = atomic_fetch_add(&s->tags, 1)};
	p.stream = prng_below(&w->random, 3) ? w->own : s->shared;
	trz_status status = trz_alloc(r->heap, p.size, 0, p.stream, &p.p);
	if (status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT)
		return;
	if (!ok(s, status, "allocation"))
		return;
	ok(s, sim_stamp(r->s, r->c, p.stream, (trz_addr)p.p, p.size, p.tag), "stamp");
	w->mine[w->count++] = p;
}

static void release(struct worker *w, struct parcel p)
{
	struct stress *s = w->all;
	struct rig *r = &s->rig;
	ok(s, sim_verify(r->s, r->c, p.stream, (trz_addr)p.p, p.size, p.tag), "verify");
	ok(s, trz_free(r->heap, p.p), "free");
}

/* Used last on the worker's own stream, whatever stream it came from. */
static void release_here(struct worker *w, struct parcel p)
{
	struct stress *s = w->all;
	struct rig *r = &s->rig;
	trz_event event;
	if (!ok(s, r->d->event_create(r->d->self, r->c, &event), "event"))
		return;
	ok(s, r->d->event_record(r->d->self, r->c, event, p.stream), "record");
	ok(s, r->d->stream_wait(r->d->self, r->c, w->own, event), "wait");
	ok(s, r->d->event_destroy(r->d->self, r->c, event), "event");
	ok(s, sim_verify(r->s, r->c, w->own, (trz_addr)p.p, p.size, p.tag), "verify");
	ok(s, trz_free_on(r->heap, p.p, w->own), "free_on");
}

static struct parcel take_one(struct worker *w)
{
	unsigned i = (unsigned)prng_below(&w->random, w->count);
	struct parcel p = w->mine[i];
	w->mine[i] = w->mine[--w->count];
	return p;
}

/* Puts one of its own on the market and takes what lay there. */
static struct parcel trade(struct worker *w)
{
	struct stress *s = w->all;
	struct parcel mine = take_one(w);
	unsigned place = (unsigned)prng_below(&w->random, MARKET);
	pthread_mutex_lock(&s->lock);
	struct parcel other = s->market[place];
	s->market[place] = mine;
	pthread_mutex_unlock(&s->lock);
	return other;
}

static void look_up(struct worker *w)
{
	const struct parcel *p = &w->mine[prng_below(&w->random, w->count)];
	trz_pointer_info info;
	char *inside = (char *)p->p + prng_below(&w->random, p->size);
	if (ok(w->all, trz_query(w->all->rig.heap, inside, &info), "query") && info.base != p->p)
		wrong(w->all, "query found another allocation");
}

static void *work(void *arg)
{
	struct worker *w = arg;
	for (int i = 0; i < OPERATIONS && !atomic_load(&w->all->wrong); i++) {
		uint64_t what = prng_below(&w->random, 16);
		if (w->count == 0 || (what < 8 && w->count < MINE_MOST))
			allocate(w);
		else if (what < 12)
			release(w, take_one(w));
		else if (what == 12)
			release_here(w, take_one(w));
		else if (what == 13)
			look_up(w);
		else {
			struct parcel other = trade(w);
			if (other.p)
				release(w, other);
		}
		sim_run(w->all->rig.s, prng_below(&w->random, 4));
	}
	while (w->count)
		release(w, take_one(w));
	atomic_fetch_sub(&w->all->working, 1);
	return NULL;
}

static uint64_t allocated_so_far(struct stress *s)
{
	uint64_t count = 0;
	ok(s, trz_stat(s->rig.heap, "allocation.all.allocated", &count), "stat");
	return count;
}

/* Statistics are read without a lock, what was freed before what was allocated: allocations that others make between
 * the two count whether they are freed again or not. */
static void look_at_statistics(struct stress *s)
{
	uint64_t before = allocated_so_far(s);
	struct accounts a = accounts_read(s->rig.heap);
	uint64_t meanwhile = allocated_so_far(s) - before;
	if (a.allocations[0] + a.allocations[1] > WORKERS * MINE_MOST + MARKET + WORKERS + meanwhile)
		wrong(s, "more allocations than there can be");
}

static void *look_on(void *arg)
{
	struct stress *s = arg;
	for (int i = 0; i < LOOKS && atomic_load(&s->working); i++) {
		look_at_statistics(s);
		if (i % 8 == 0)
			ok(s, trz_check(s->rig.heap), "check");
		if (i % 16 == 0)
			ok(s, trz_reset_peaks(s->rig.heap), "reset of the peaks");
		sim_run(s->rig.s, 100);
	}
	return NULL;
}

static void *trim(void *arg)
{
	struct stress *s = arg;
	for (int i = 0; i < TRIMS && atomic_load(&s->working); i++) {
		size_t released, limit = i % 3 ? 0 : GIB(1);
		ok(s, trz_set_limit(s->rig.heap, limit), "set_limit");
		ok(s, trz_trim(s->rig.heap, i % 2 ? 0 : MIB(64), &released), "trim");
		sim_run(s->rig.s, 1000);
	}
	return NULL;
}

static void run_threads(struct stress *s, struct worker *workers)
{
	pthread_t threads[WORKERS], looker, trimmer;
	atomic_store(&s->working, WORKERS);
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.all = s, .random = prng_mix((uint64_t)i + 1)};
		workers[i].own = rig_stream(&s->rig);
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	assert_int_equal(pthread_create(&looker, NULL, look_on, s), 0);
	assert_int_equal(pthread_create(&trimmer, NULL, trim, s), 0);
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(pthread_join(looker, NULL), 0);
	assert_int_equal(pthread_join(trimmer, NULL), 0);
}

static void expect_clean(struct stress *s)
{
	for (int i = 0; i < MARKET; i++)
		if (s->market[i].p)
			rig_free(&s->rig, s->market[i].p);
	if (sim_violations(s->rig.s))
		print_error("violation: %s\n", sim_first_violation(s->rig.s));
	if (atomic_load(&s->wrong))
		fail_msg("%s", atomic_load(&s->wrong));
	struct accounts a = accounts_read(s->rig.heap);
	assert_int_equal(a.allocations[0] + a.allocations[1], 0);
	rig_sync(&s->rig);
	assert_ok(trz_trim(s->rig.heap, 0, NULL));
	rig_check(&s->rig);
	assert_int_equal(rig_stat(&s->rig, "reserved_bytes.all.current"), 0);
	pthread_mutex_destroy(&s->lock);
	rig_close(&s->rig);
}

static void stress(sim_config config, const char *conf)
{
	static struct worker workers[WORKERS];
	static struct stress s;
	s = (struct stress){.rig = rig_machine(config)};
	atomic_store(&s.tags, 1);
	pthread_mutex_init(&s.lock, NULL);
	rig_open_heap(&s.rig, conf);
	s.shared = rig_stream(&s.rig);
	run_threads(&s, workers);
	expect_clean(&s);
}

static void test_threads(void **state)
{
	(void)state;
	stress((sim_config){.capacity = GIB(2), .seed = 5}, NULL);
}

static void test_threads_on_a_full_device(void **state)
{
	(void)state;
	stress((sim_config){.capacity = MIB(192), .seed = 6, .schedule = SIM_STARVE}, "tile_size:2MiB");
}

static void test_threads_without_vmm(void **state)
{
	(void)state;
	stress((sim_config){.capacity = GIB(2), .seed = 7}, "vmm:off");
}

/* Memory of a per-thread stream stays with its thread: elsewhere its handle would mean another stream. */
static void *work_alone(void *arg)
{
	struct worker *w = arg;
	w->own = (trz_stream)2;
	for (int i = 0; i < OPERATIONS / 4 && !atomic_load(&w->all->wrong); i++) {
		if (w->count == 0 || (prng_below(&w->random, 2) && w->count < MINE_MOST))
			allocate(w);
		else
			release(w, take_one(w));
		sim_run(w->all->rig.s, prng_below(&w->random, 4));
	}
	while (w->count)
		release(w, take_one(w));
	atomic_fetch_sub(&w->all->working, 1);
	return NULL;
}

static void test_threads_on_their_default_streams(void **state)
{
	(void)state;
	static struct worker workers[WORKERS];
	static struct stress s;
	pthread_t threads[WORKERS];
	s = (struct stress){.rig = rig_machine((sim_config){.capacity = GIB(2), .seed = 8})};
	atomic_store(&s.tags, 1);
	rig_open_heap(&s.rig, NULL);
	s.shared = rig_stream(&s.rig);
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.all = &s, .random = prng_mix((uint64_t)i + 1)};
		assert_int_equal(pthread_create(&threads[i], NULL, work_alone, &workers[i]), 0);
	}
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	if (atomic_load(&s.wrong))
		fail_msg("%s", atomic_load(&s.wrong));
	rig_check(&s.rig);
	rig_close(&s.rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_threads_on_a_full_device),
		cmocka_unit_test(test_threads_without_vmm),
		cmocka_unit_test(test_threads_on_their_default_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
