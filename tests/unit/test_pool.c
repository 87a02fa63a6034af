/* SPDX-License-Identifier: Apache-2.0
 *
 * Private pools: which requests get their memory, captures into them, the addresses that graphs rely on, checkpoints,
 * and their end.
 */
#include <pthread.h>

#include "heap/heap.h"
#include "overlay.h"

static trz_pool *new_pool(struct rig *r)
{
	trz_pool *pool = NULL;
	assert_ok(trz_pool_create(r->heap, &pool));
	return pool;
}

static void *pool_alloc(struct rig *r, trz_pool *pool, size_t size, trz_stream stream)
{
	void *p = NULL;
	assert_ok(trz_pool_alloc(r->heap, pool, size, 0, stream, &p));
	assert_non_null(p);
	return p;
}

static trz_pool_info info_of(struct rig *r, trz_pool *pool)
{
	trz_pool_info info;
	assert_ok(trz_pool_query(r->heap, pool, &info));
	return info;
}

static size_t live_of(struct rig *r, trz_pool *pool, void **list, size_t capacity)
{
	size_t count = 0;
	assert_ok(trz_pool_live(r->heap, pool, list, capacity, &count));
	return count;
}

static void test_memory_stays_in_the_pool(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	trz_pool *pool = new_pool(&r);
	void *p = pool_alloc(&r, pool, MIB(100), NULL), *slot = pool_alloc(&r, pool, 700, NULL);
	trz_pool_info info = info_of(&r, pool);
	assert_true(info.id > 0 && info.references == 1 && !info.pinned);
	assert_int_equal(info.allocations, 2);
	assert_true(info.reserved >= MIB(102) && info.allocated >= MIB(100) + 700);
	rig_free(&r, p);
	rig_free(&r, slot);
	void *other = rig_alloc(&r, MIB(100), NULL), *small = rig_alloc(&r, 700, NULL);
	assert_ptr_not_equal(other, p);
	assert_ptr_not_equal(small, slot);
	assert_ptr_equal(pool_alloc(&r, pool, MIB(100), NULL), p);
	rig_free(&r, p);
	assert_int_equal(info_of(&r, pool).allocations, 0);
	rig_check(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));  /* it is not pinned: what is free can go */
	assert_int_equal(info_of(&r, pool).reserved, 0);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_free(&r, other);
	rig_free(&r, small);
	rig_close(&r);
}

static void test_a_released_pool_is_everybodys(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream side = rig_stream(&r);
	void *held = pool_alloc(&r, pool, MIB(64), NULL), *gone = pool_alloc(&r, pool, MIB(64), NULL);
	void *slot = pool_alloc(&r, pool, 3000, NULL), *on_side = pool_alloc(&r, pool, MIB(10), side);
	rig_free(&r, gone);
	assert_ok(trz_pool_retain(r.heap, pool));
	assert_ok(trz_pool_release(r.heap, pool));
	assert_int_equal(info_of(&r, pool).references, 1);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_check(&r);
	assert_ptr_equal(rig_alloc(&r, MIB(64), NULL), gone);
	rig_free(&r, held);
	rig_free(&r, slot);
	rig_free(&r, on_side);
	rig_free(&r, gone);
	rig_check(&r);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

struct job {
	struct rig *rig;
	void *result;
};

static void *allocate_elsewhere(void *arg)
{
	struct job *job = arg;
	job->result = rig_alloc(job->rig, MIB(30), NULL);
	return NULL;
}

static void test_a_thread_is_diverted(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	trz_pool *outer = new_pool(&r), *nested = new_pool(&r);
	void *warm = rig_alloc(&r, 512, NULL);
	rig_free(&r, warm);
	assert_ok(trz_pool_begin(r.heap, outer, NULL, NULL));
	void *a = rig_alloc(&r, 512, NULL);
	assert_ok(trz_pool_begin(r.heap, nested, NULL, NULL));
	void *b = rig_alloc(&r, MIB(30), NULL);
	struct job job = {&r, NULL};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, &job), 0);
	pthread_join(thread, NULL);
	assert_ok(trz_pool_end(r.heap, nested));
	void *c = rig_alloc(&r, MIB(30), NULL);
	assert_ok(trz_pool_end(r.heap, outer));
	void *d = rig_alloc(&r, MIB(30), NULL);
	assert_int_equal(info_of(&r, outer).allocations, 2);
	assert_int_equal(info_of(&r, nested).allocations, 1);
	assert_error(trz_pool_end(r.heap, outer), TRZ_ERROR_NOT_FOUND, "no diversion");
	void *all[] = {a, b, c, d, job.result};
	for (size_t i = 0; i < 5; i++)
		rig_free(&r, all[i]);
	assert_ok(trz_pool_release(r.heap, nested));
	assert_ok(trz_pool_release(r.heap, outer));
	rig_check(&r);
	rig_close(&r);
}

static bool is_the_stream(void *user, trz_stream stream)
{
	return stream == user;
}

static void test_a_filter_diverts_streams(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream mine = rig_stream(&r), other = rig_stream(&r);
	assert_ok(trz_pool_begin(r.heap, pool, is_the_stream, mine));
	void *a = rig_alloc(&r, MIB(3), mine), *b = rig_alloc(&r, MIB(3), other);
	assert_ok(trz_pool_end(r.heap, pool));
	assert_int_equal(info_of(&r, pool).allocations, 1);
	void *live[2];
	assert_int_equal(live_of(&r, pool, live, 2), 1);
	assert_ptr_equal(live[0], a);
	rig_free(&r, a);
	rig_free(&r, b);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

/* Captures a write and a read of two allocations, one of them freed and allocated again in between. */
static sim_graph capture(struct rig *r, trz_pool *pool, trz_stream stream, void **kept)
{
	sim_graph graph;
	assert_ok(trz_pool_begin_capture(r->heap, pool, stream));
	assert_ok(sim_capture_begin(r->s, r->c, stream, TRZ_CAPTURE_GLOBAL));
	void *p = rig_alloc(r, MIB(48), stream), *temporary = rig_alloc(r, MIB(200), stream);
	assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)temporary, MIB(200), 1));
	assert_ok(sim_verify(r->s, r->c, stream, (trz_addr)temporary, MIB(200), 1));
	rig_free(r, temporary);
	void *again = rig_alloc(r, MIB(200), stream);
	assert_ptr_equal(again, temporary);
	assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)again, MIB(200), 2));
	assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)p, MIB(48), 3));
	rig_free(r, again);
	assert_ok(sim_capture_end(r->s, r->c, stream, &graph));
	assert_ok(trz_pool_end(r->heap, pool));
	*kept = p;
	return graph;
}

static void test_graphs_keep_their_memory(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream stream = rig_stream(&r), other = rig_stream(&r);
	void *kept;
	sim_graph graph = capture(&r, pool, stream, &kept);
	assert_true(info_of(&r, pool).pinned);
	uint64_t reserved = info_of(&r, pool).reserved;
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(info_of(&r, pool).reserved, reserved);
	/* The device is filled up, to the last byte that is not the pool's. */
	size_t most;
	assert_ok(trz_largest_block(r.heap, other, &most));
	assert_true(most <= GIB(2) - reserved);
	void *rest = rig_alloc(&r, most, other), *more = NULL;
	assert_error(trz_alloc(r.heap, MIB(100), 0, other, &more), TRZ_ERROR_OUT_OF_MEMORY, "requested");
	assert_ok(sim_stamp(r.s, r.c, other, (trz_addr)rest, most, 9));
	for (int i = 0; i < 3; i++)
		assert_ok(sim_graph_launch(r.s, r.c, graph, stream));
	assert_ok(sim_verify(r.s, r.c, other, (trz_addr)rest, most, 9));
	assert_ok(sim_verify(r.s, r.c, stream, (trz_addr)kept, MIB(48), 3));
	rig_sync(&r);
	rig_check(&r);
	rig_free(&r, rest);
	rig_free(&r, kept);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

/* A launch that is under way when the last reference goes, on a stream of which the pool knows nothing. */
static void test_the_end_of_a_pool_waits_for_launches(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream stream = rig_stream(&r), launcher = rig_stream(&r);
	void *kept, *seen = rig_alloc(&r, 512, launcher);
	sim_graph graph = capture(&r, pool, stream, &kept);
	rig_sync(&r);
	assert_ok(sim_graph_launch(r.s, r.c, graph, launcher));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	rig_free(&r, kept);
	assert_ok(trz_pool_release(r.heap, pool));
	uint64_t reserved = rig_stat(&r, "reserved_bytes.all.current");
	void *mine = rig_alloc(&r, MIB(200), stream);
	assert_true(rig_stat(&r, "reserved_bytes.all.current") >= reserved + MIB(150));
	rig_free(&r, mine);
	rig_free(&r, seen);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_check(&r);
	rig_close(&r);
}

/* The end of a pool names heirs, then walks its windows, and gives the heap lock up now and then. What another thread
 * frees meanwhile, in the order of a stream that has had nothing of the pool, goes to that stream's part of the heir's
 * pool: the pool's lanes are freed in the end. */
static void test_a_free_by_name_while_a_pool_ends(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_stream own = rig_stream(&r), other = rig_stream(&r);
	trz_pool *pool = new_pool(&r);
	rig_free(&r, rig_alloc(&r, MIB(4), other));
	void *p = pool_alloc(&r, pool, MIB(48), own), *behind = pool_alloc(&r, pool, MIB(48), own);
	struct lane *l = ((struct pool *)(void *)pool)->lanes;
	heap_lock(r.heap);
	l->heir = &l->stream->lane;
	heap_unlock(r.heap);
	assert_ok(trz_free_on(r.heap, p, other));
	assert_null(((struct pool *)(void *)pool)->lanes->pool_next);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_check(&r);
	assert_ptr_equal(rig_alloc(&r, MIB(48), other), p);
	rig_free(&r, p);
	rig_free(&r, behind);
	rig_sync(&r);
	rig_close(&r);
}

/* A pool that has ended while its graph runs on a stream that the heap has never seen. */
static void launch_and_end(struct rig *r)
{
	trz_pool *pool = new_pool(r);
	trz_stream launcher = rig_stream(r);
	void *kept;
	sim_graph graph = capture(r, pool, rig_stream(r), &kept);
	assert_ok(sim_graph_launch(r->s, r->c, graph, launcher));
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	rig_free(r, kept);
	assert_ok(trz_pool_release(r->heap, pool));
}

static void expect_all_goes(struct rig *r)
{
	rig_sync(r);
	assert_ok(trz_trim(r->heap, 0, NULL));
	assert_int_equal(rig_stat(r, "reserved_bytes.all.current"), 0);
	rig_check(r);
}

static void test_the_end_of_a_pool_waits_for_unknown_streams(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	launch_and_end(&r);
	uint64_t reserved = rig_stat(&r, "reserved_bytes.all.current");
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), reserved);
	expect_all_goes(&r);
	launch_and_end(&r);
	rig_close(&r);  /* closing waits, too */
}

/* A context has one deputy at a time: the second pool's comes after the first one's. */
static void test_the_ends_of_two_pools(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	launch_and_end(&r);
	launch_and_end(&r);
	uint64_t reserved = rig_stat(&r, "reserved_bytes.all.current");
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), reserved);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_context_record), 1);
	expect_all_goes(&r);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_context_record), 2);
	launch_and_end(&r);
	launch_and_end(&r);
	rig_close(&r);
}

/* It does so when the captures are over that the event of the context would invalidate: one that has been announced,
 * and one on a stream that the heap has been given. */
static void test_the_end_of_a_pool_waits_for_captures(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream announced = rig_stream(&r), known = rig_stream(&r);
	sim_graph graph;
	rig_free(&r, rig_alloc(&r, 512, known));
	assert_ok(sim_capture_begin(r.s, r.c, known, TRZ_CAPTURE_RELAXED));
	launch_and_end(&r);
	assert_ok(trz_pool_begin_capture(r.heap, pool, announced));
	assert_ok(sim_capture_begin(r.s, r.c, announced, TRZ_CAPTURE_RELAXED));
	assert_ok(trz_poll(r.heap));
	assert_ok(sim_capture_end(r.s, r.c, known, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_ok(sim_capture_end(r.s, r.c, announced, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_int_equal(sim_calls(r.s, SIM_SLOT_context_record), 0);
	assert_ok(trz_pool_end(r.heap, pool));
	assert_ok(trz_pool_release(r.heap, pool));
	assert_ok(trz_poll(r.heap));
	assert_true(sim_calls(r.s, SIM_SLOT_context_record) > 0);
	expect_all_goes(&r);
	rig_close(&r);
}

/* A driver without events of contexts: streams that the heap knows are waited for all the same. */
static void test_the_end_of_a_pool_on_an_old_driver(void **state)
{
	(void)state;
	struct overlay o;
	overlay_open_on_old_driver(&o, GIB(2));
	struct rig *r = &o.rig;
	trz_pool *pool = new_pool(r);
	trz_stream launcher = rig_stream(r);
	void *kept, *seen = rig_alloc(r, 512, launcher);
	sim_graph graph = capture(r, pool, rig_stream(r), &kept);
	rig_sync(r);
	assert_ok(sim_graph_launch(r->s, r->c, graph, launcher));
	rig_free(r, kept);
	rig_free(r, seen);
	assert_ok(trz_pool_release(r->heap, pool));
	uint64_t reserved = rig_stat(r, "reserved_bytes.large_pool.current");
	assert_ok(trz_trim(r->heap, 0, NULL));
	assert_int_equal(rig_stat(r, "reserved_bytes.large_pool.current"), reserved);
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	expect_all_goes(r);
	rig_close(r);
}

/* A launch on the default stream of a thread, which ends. */
struct launch {
	struct rig *rig;
	sim_graph graph;
	trz_status status;
};

static void *launch_and_leave(void *arg)
{
	struct launch *l = arg;
	void *seen;
	l->status = trz_alloc(l->rig->heap, 512, 0, (trz_stream)2, &seen);
	if (l->status == TRZ_OK)
		l->status = sim_graph_launch(l->rig->s, l->rig->c, l->graph, (trz_stream)2);
	if (l->status == TRZ_OK)
		l->status = trz_free(l->rig->heap, seen);
	return NULL;
}

/* Nor can such a driver be told of a thread's stream when the thread has gone: the legacy default stream tells. */
static void test_the_end_of_a_pool_on_an_old_driver_beside_a_thread(void **state)
{
	(void)state;
	struct overlay o;
	overlay_open_on_old_driver(&o, GIB(2));
	struct rig *r = &o.rig;
	trz_pool *pool = new_pool(r);
	void *kept;
	sim_graph graph = capture(r, pool, rig_stream(r), &kept);
	rig_sync(r);
	struct launch l = {.rig = r, .graph = graph};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, launch_and_leave, &l), 0);
	pthread_join(thread, NULL);
	assert_ok(l.status);
	rig_free(r, kept);
	assert_ok(trz_pool_release(r->heap, pool));
	uint64_t reserved = rig_stat(r, "reserved_bytes.large_pool.current");
	assert_ok(trz_trim(r->heap, 0, NULL));
	assert_int_equal(rig_stat(r, "reserved_bytes.large_pool.current"), reserved);
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	rig_sync(r);
	assert_ok(trz_trim(r->heap, 0, NULL));
	assert_int_equal(rig_stat(r, "reserved_bytes.large_pool.current"), 0);
	rig_close(r);
}

/* A captured allocation that has been given back; the graph is gone, too. */
static trz_pool *used_pool(struct rig *r, trz_stream stream)
{
	trz_pool *pool = new_pool(r);
	void *kept;
	assert_ok(sim_graph_destroy(r->s, r->c, capture(r, pool, stream, &kept)));
	rig_free(r, kept);
	return pool;
}

static void *use_its_stream(void *arg)
{
	struct job *job = arg;
	if (trz_alloc(job->rig->heap, 1000, 0, (trz_stream)2, &job->result) == TRZ_OK)
		trz_free(job->rig->heap, job->result);
	return NULL;
}

static void *free_half(void *arg)
{
	struct job *job = arg;
	void **list = job->result;
	for (; *list; list++)
		if (trz_free(job->rig->heap, *list) != TRZ_OK)
			return NULL;
	return list;
}

/* A pool with more blocks than change their lane in one hold of the heap lock, some of which are freed meanwhile, on
 * their streams and on another one. */
static void test_a_large_pool_ends_bit_by_bit(void **state)
{
	(void)state;
	enum { N = 6000 };
	static void *held[N / 2 + 1], *freed[N / 2 + 1];
	struct rig r = rig_open(GIB(8), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream streams[3] = {NULL, rig_stream(&r), rig_stream(&r)};
	for (int i = 0; i < N / 2; i++) {
		held[i] = pool_alloc(&r, pool, i % 5 ? KIB(200) : 900, streams[i % 2]);
		freed[i] = pool_alloc(&r, pool, i % 5 ? KIB(100) : 900, streams[i % 2]);
	}
	for (int i = 0; i < N / 4; i++)
		rig_free(&r, freed[i]);
	for (int i = 0; i < N / 4; i++)
		assert_ok(trz_free_on(r.heap, freed[N / 4 + i], streams[i % 3]));
	struct job job = {&r, held};
	pthread_t thread;
	void *ended = NULL;
	assert_int_equal(pthread_create(&thread, NULL, free_half, &job), 0);
	assert_ok(trz_pool_release(r.heap, pool));
	assert_int_equal(pthread_join(thread, &ended), 0);
	assert_non_null(ended);
	rig_check(&r);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

static void *divert_for_ever(void *arg)
{
	struct job *job = arg;
	job->result = trz_pool_begin(job->rig->heap, job->result, NULL, NULL) == TRZ_OK ? job->result : NULL;
	return NULL;
}

static void *alloc_undiverted(void *arg)
{
	struct job *job = arg;
	trz_pool_info info;
	void *p = NULL;
	bool ok = trz_alloc(job->rig->heap, MIB(3), 0, NULL, &p) == TRZ_OK && trz_free(job->rig->heap, p) == TRZ_OK &&
	          trz_pool_query(job->rig->heap, job->result, &info) == TRZ_OK && info.reserved == 0;
	return ok ? p : NULL;
}

/* A thread that ends without ending its diversion leaves nothing to the thread that is made in its place. */
static void test_diversions_are_not_inherited(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_pool *pool = new_pool(&r);
	struct job job = {&r, pool};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, divert_for_ever, &job), 0);
	pthread_join(thread, NULL);
	assert_ptr_equal(job.result, pool);
	for (int i = 0; i < 8; i++) {
		void *ok = NULL;
		assert_int_equal(pthread_create(&thread, NULL, alloc_undiverted, &job), 0);
		assert_int_equal(pthread_join(thread, &ok), 0);
		assert_non_null(ok);
	}
	assert_ok(trz_pool_end(r.heap, pool));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

struct capture_job {
	struct rig *rig;
	trz_status status;
};

/* Captures this thread's default stream, as another thread does with its own; their handle is one. */
static void *capture_own_stream(void *arg)
{
	struct capture_job *job = arg;
	struct rig *r = job->rig;
	trz_stream own = (trz_stream)2;
	sim_graph graph;
	void *p = NULL;
	if (sim_capture_begin(r->s, r->c, own, TRZ_CAPTURE_RELAXED) != TRZ_OK)
		return NULL;
	job->status = trz_alloc(r->heap, MIB(3), 0, own, &p);
	return sim_capture_end(r->s, r->c, own, &graph) == TRZ_OK && sim_graph_destroy(r->s, r->c, graph) == TRZ_OK
	           ? job : NULL;
}

static void test_captures_of_per_thread_streams(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_pool *pool = new_pool(&r);
	struct capture_job job = {&r, TRZ_OK};
	trz_stream own = (trz_stream)2;
	pthread_t thread;
	sim_graph graph;
	void *done = NULL, *p = NULL;
	assert_ok(trz_pool_begin_capture(r.heap, pool, own));
	assert_ok(sim_capture_begin(r.s, r.c, own, TRZ_CAPTURE_RELAXED));
	p = rig_alloc(&r, MIB(5), own);
	assert_int_equal(pthread_create(&thread, NULL, capture_own_stream, &job), 0);
	assert_int_equal(pthread_join(thread, &done), 0);
	assert_non_null(done);
	assert_int_equal(job.status, TRZ_ERROR_CAPTURE);
	assert_int_equal(info_of(&r, pool).allocations, 1);
	assert_ok(sim_capture_end(r.s, r.c, own, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_pool_end(r.heap, pool));
	rig_free(&r, p);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

/* Nobody can record events on the stream of a thread that has gone, and yet what it had been given is waited for. */
static void test_the_end_of_a_pool_beside_a_thread_that_has_gone(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	struct job job = {&r, NULL};
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, use_its_stream, &job), 0);
	pthread_join(thread, NULL);
	assert_non_null(job.result);
	trz_pool *pool = used_pool(&r, rig_stream(&r));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.large_pool.current"), 0);
	rig_check(&r);
	rig_close(&r);
}

/* Another capture, of the strictest mode and on a blocking stream, is under way when a pool ends. */
static void test_the_end_of_a_pool_leaves_captures_alone(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_stream blocking;
	sim_graph graph;
	assert_ok(sim_stream_create(r.s, r.c, true, &blocking));
	rig_free(&r, rig_alloc(&r, MIB(2), (trz_stream)2));
	trz_pool *pool = used_pool(&r, rig_stream(&r));
	assert_ok(sim_capture_begin(r.s, r.c, blocking, TRZ_CAPTURE_GLOBAL));
	assert_ok(trz_pool_release(r.heap, pool));
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_ok(sim_capture_end(r.s, r.c, blocking, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* Two captures into one pool: the second one reuses what the first has freed. */
static void test_graphs_share_a_pool(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream stream = rig_stream(&r);
	void *first, *second;
	sim_graph a = capture(&r, pool, stream, &first);
	uint64_t reserved = info_of(&r, pool).reserved;
	sim_graph b = capture(&r, pool, stream, &second);
	assert_ptr_not_equal(first, second);
	assert_true(info_of(&r, pool).reserved <= reserved + MIB(64));
	assert_ok(sim_graph_launch(r.s, r.c, a, stream));
	assert_ok(sim_graph_launch(r.s, r.c, b, stream));
	assert_ok(sim_verify(r.s, r.c, stream, (trz_addr)first, MIB(48), 3));
	rig_sync(&r);
	rig_free(&r, first);
	rig_free(&r, second);
	assert_ok(sim_graph_destroy(r.s, r.c, a));
	assert_ok(sim_graph_destroy(r.s, r.c, b));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

/* A stream that joins a capture allocates from its pool; one that is in another capture does not. */
static void test_streams_of_a_capture(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream stream = rig_stream(&r), joined = rig_stream(&r), elsewhere = rig_stream(&r);
	sim_graph graph, other;
	void *p = NULL, *refused = NULL;
	assert_ok(trz_pool_begin_capture(r.heap, pool, stream));
	assert_ok(sim_capture_begin(r.s, r.c, stream, TRZ_CAPTURE_RELAXED));
	assert_ok(sim_capture_begin(r.s, r.c, elsewhere, TRZ_CAPTURE_RELAXED));
	rig_order(&r, stream, joined);
	assert_ok(trz_alloc(r.heap, MIB(5), 0, joined, &p));
	assert_error(trz_alloc(r.heap, MIB(5), 0, elsewhere, &refused), TRZ_ERROR_CAPTURE, "trz_pool_begin_capture");
	assert_int_equal(info_of(&r, pool).allocations, 1);
	assert_ok(trz_record_stream(r.heap, p, stream));
	rig_free(&r, p);  /* pending: nothing can be recorded before the end */
	void *q = rig_alloc(&r, MIB(5), joined);
	assert_ptr_not_equal(p, q);
	rig_order(&r, joined, stream);
	assert_ok(sim_capture_end(r.s, r.c, elsewhere, &other));
	assert_ok(sim_capture_end(r.s, r.c, stream, &graph));
	assert_ok(trz_pool_end(r.heap, pool));
	rig_free(&r, q);
	rig_sync(&r);
	rig_check(&r);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(sim_graph_destroy(r.s, r.c, other));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

/* A capture that the driver does not tell about for once: no other pool takes its place. */
static void test_a_capture_that_is_not_known(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_pool *pool = new_pool(&r), *eager = new_pool(&r);
	trz_stream stream = rig_stream(&r);
	sim_graph graph;
	void *p = NULL;
	assert_ok(trz_pool_begin(r.heap, eager, NULL, NULL));
	assert_ok(trz_pool_begin_capture(r.heap, pool, stream));
	assert_ok(sim_capture_begin(r.s, r.c, stream, TRZ_CAPTURE_RELAXED));
	for (uint64_t nth = 1; nth <= 2; nth++) {
		sim_fault_nth(r.s, 1ull << SIM_SLOT_stream_capture, nth, false, TRZ_ERROR_DRIVER);
		assert_error(trz_alloc(r.heap, MIB(5), 0, stream, &p), TRZ_ERROR_DRIVER, "stream");
	}
	assert_ok(trz_alloc(r.heap, MIB(5), 0, stream, &p));
	assert_int_equal(info_of(&r, pool).allocations, 1);
	assert_false(info_of(&r, eager).pinned);
	assert_ok(sim_capture_end(r.s, r.c, stream, &graph));
	assert_ok(trz_pool_end(r.heap, pool));
	assert_ok(trz_pool_end(r.heap, eager));
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_pool_release(r.heap, pool));
	assert_ok(trz_pool_release(r.heap, eager));
	rig_close(&r);
}

static void test_checkpoints(void **state)
{
	(void)state;
	enum { BLOCKS = 40, SLOTS = 300 };
	struct rig r = rig_open(GIB(4), NULL);
	trz_pool *pool = new_pool(&r);
	void *noted[BLOCKS + SLOTS], *live[BLOCKS + SLOTS];
	size_t n = 0, count;
	for (int i = 0; i < BLOCKS; i++)
		noted[n++] = pool_alloc(&r, pool, MIB(1) + (size_t)i * 70000, NULL);
	for (int i = 0; i < SLOTS; i++)
		noted[n++] = pool_alloc(&r, pool, 600 + (size_t)(i % 7) * 900, NULL);
	for (size_t i = 0; i < n; i += 3) {
		rig_free(&r, noted[i]);
		noted[i] = NULL;
	}
	trz_pool_state *note = NULL;
	assert_ok(trz_pool_checkpoint(r.heap, pool, &note));
	uint64_t allocated = rig_stat(&r, "allocated_bytes.all.current");
	for (size_t i = 0; i < n; i += 2)
		assert_ok(trz_free(r.heap, noted[i]));
	for (int i = 0; i < 30; i++)
		pool_alloc(&r, pool, i % 2 ? 5000 : MIB(3), NULL);
	assert_ok(trz_pool_restore(r.heap, pool, note));
	rig_check(&r);
	assert_int_equal(rig_stat(&r, "allocated_bytes.all.current"), allocated);
	assert_ok(trz_pool_state_live(note, live, n, &count));
	assert_int_equal(live_of(&r, pool, NULL, 0), count);
	for (size_t i = 0; i < n; i++)
		assert_ok(trz_free(r.heap, noted[i]));  /* exactly what was held at the checkpoint is held again */
	assert_int_equal(live_of(&r, pool, NULL, 0), 0);
	assert_ok(trz_pool_restore(r.heap, pool, note));
	assert_int_equal(live_of(&r, pool, live, n), count);
	for (size_t i = 0; i < count; i++)
		rig_free(&r, live[i]);
	trz_pool_state_free(note);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_check(&r);
	rig_close(&r);
}

/* A stream that has been refused has not been served: the other's order is all that counts, and is not forgotten. */
static void test_a_restore_with_work_under_way(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream stream = rig_stream(&r), refused = rig_stream(&r);
	trz_pool_state *note = NULL;
	void *none = NULL;
	assert_ok(trz_pool_checkpoint(r.heap, pool, &note));
	void *p = pool_alloc(&r, pool, MIB(40), stream);
	assert_ok(sim_stamp(r.s, r.c, stream, (trz_addr)p, MIB(40), 1));
	assert_status(trz_pool_alloc(r.heap, pool, GIB(2), 0, refused, &none), TRZ_ERROR_OUT_OF_MEMORY);
	assert_ok(trz_pool_restore(r.heap, pool, note));
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(info_of(&r, pool).allocations, 0);
	assert_true(info_of(&r, pool).reserved >= MIB(40));
	rig_check(&r);
	trz_pool_state_free(note);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

static void test_checkpoints_that_cannot_be_restored(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	trz_pool *pool = new_pool(&r), *other = new_pool(&r);
	trz_stream side = rig_stream(&r);
	void *p = pool_alloc(&r, pool, MIB(30), NULL);
	trz_pool_state *note = NULL;
	assert_ok(trz_pool_checkpoint(r.heap, pool, &note));
	assert_error(trz_pool_restore(r.heap, other, note), TRZ_ERROR_INVALID_ARGUMENT, "another pool");
	assert_ok(trz_record_stream(r.heap, p, side));
	assert_error(trz_pool_restore(r.heap, pool, note), TRZ_NOT_READY, "free it first");
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_error(trz_pool_restore(r.heap, pool, note), TRZ_ERROR_NOT_FOUND, "returned");
	assert_int_equal(info_of(&r, pool).allocations, 0);
	trz_pool_state_free(note);
	assert_ok(trz_pool_release(r.heap, other));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

/* cudaMalloc may give a returned segment's address to one for other sizes: the small block must not end up there. */
static void test_a_checkpoint_of_small_memory_where_large_memory_is_now(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), "vmm:off,small_limit:512");
	trz_pool *pool = new_pool(&r);
	void *small = pool_alloc(&r, pool, 1232, NULL);
	trz_pool_state *note = NULL;
	assert_ok(trz_pool_checkpoint(r.heap, pool, &note));
	rig_free(&r, small);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	void *large = pool_alloc(&r, pool, MIB(30), NULL);
	assert_ptr_equal(large, small);
	assert_error(trz_pool_restore(r.heap, pool, note), TRZ_ERROR_NOT_FOUND, "returned");
	assert_int_equal(info_of(&r, pool).allocations, 1);
	rig_check(&r);
	rig_free(&r, large);
	trz_pool_state_free(note);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

static void test_checkpoints_of_several_streams(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *x[60];
	for (int i = 0; i < 60; i++)
		x[i] = pool_alloc(&r, pool, i % 3 ? MIB(1) + (size_t)i * 5000 : 700 + (size_t)i * 100, i % 2 ? a : b);
	trz_pool_state *note;
	for (int i = 0; i < 60; i += 4) {
		rig_free(&r, x[i]);
		x[i] = NULL;
	}
	rig_sync(&r);
	assert_ok(trz_pool_checkpoint(r.heap, pool, &note));
	for (int i = 0; i < 60; i += 3)
		assert_ok(trz_free(r.heap, x[i]));
	for (int i = 0; i < 30; i++)
		pool_alloc(&r, pool, MIB(2), i % 2 ? a : b);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, GIB(4), NULL));
	assert_ok(trz_pool_restore(r.heap, pool, note));
	rig_check(&r);
	for (int i = 0; i < 60; i++)
		assert_ok(trz_free(r.heap, x[i]));
	rig_check(&r);
	rig_sync(&r);
	assert_ok(trz_pool_restore(r.heap, pool, note));
	rig_check(&r);
	assert_ok(trz_pool_release(r.heap, pool));
	for (int i = 0; i < 60; i++)
		assert_ok(trz_free(r.heap, x[i]));
	rig_check(&r);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* Work that has not run where nothing changes its stream is no obstacle, and what is left of each stream's memory
 * stays that stream's. */
static void test_checkpoints_ask_for_no_more_than_they_need(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	trz_pool *pool = new_pool(&r);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *x = pool_alloc(&r, pool, MIB(6), a), *y = pool_alloc(&r, pool, MIB(6), b);
	trz_pool_state *note;
	assert_ok(trz_pool_checkpoint(r.heap, pool, &note));
	void *z = pool_alloc(&r, pool, MIB(40), a), *w = pool_alloc(&r, pool, MIB(50), b);
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)z, MIB(40), 1));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)w, MIB(50), 2));
	rig_free(&r, z);
	rig_free(&r, w);
	assert_ok(trz_pool_restore(r.heap, pool, note));
	rig_check(&r);
	assert_ptr_equal(pool_alloc(&r, pool, MIB(40), a), z);
	assert_ptr_equal(pool_alloc(&r, pool, MIB(50), b), w);
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)z, MIB(40), 3));
	assert_ok(sim_verify(r.s, r.c, a, (trz_addr)z, MIB(40), 3));
	/* What the note has for a is b's now, and b has work left with it. */
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)x, MIB(6), 4));
	assert_ok(trz_free_on(r.heap, x, b));
	assert_error(trz_pool_restore(r.heap, pool, note), TRZ_NOT_READY, "has not passed");
	rig_sync(&r);
	assert_ok(trz_pool_restore(r.heap, pool, note));
	rig_free(&r, x);
	rig_free(&r, y);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_check(&r);
	rig_close(&r);
}

/* A pool and a note of another heap, whose pools have the same numbers. */
static void test_pools_belong_to_their_heap(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(2), NULL);
	trz_heap *other = r.heap;
	trz_pool *theirs = new_pool(&r);
	trz_pool_state *note = NULL;
	void *p = NULL;
	assert_ok(trz_pool_checkpoint(other, theirs, &note));
	rig_open_heap(&r, NULL);
	trz_pool *pool = new_pool(&r);
	trz_alloc_params params = {.struct_size = sizeof params, .size = 1, .pool = theirs};
	p = &p;
	assert_error(trz_pool_alloc(r.heap, theirs, 1, 0, NULL, &p), TRZ_ERROR_WRONG_DEVICE, "another heap");
	assert_null(p);
	assert_error(trz_alloc_with(r.heap, &params, &p), TRZ_ERROR_WRONG_DEVICE, "another heap");
	assert_error(trz_pool_release(r.heap, theirs), TRZ_ERROR_WRONG_DEVICE, "another heap");
	assert_error(trz_pool_restore(r.heap, pool, note), TRZ_ERROR_INVALID_ARGUMENT, "another pool");
	trz_pool_state_free(note);
	assert_ok(trz_pool_release(r.heap, pool));
	assert_ok(trz_close(other));
	rig_close(&r);
}

/* What is free of a pool that no graph knows helps others when the device is full. */
static void test_a_full_device_takes_free_pool_memory(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_pool *pool = new_pool(&r);
	rig_free(&r, pool_alloc(&r, pool, MIB(700), NULL));
	void *p = rig_alloc(&r, MIB(900), NULL);
	assert_true(info_of(&r, pool).reserved <= MIB(124));
	rig_check(&r);
	rig_free(&r, p);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

static void test_missing_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_pool *pool = new_pool(&r);
	trz_pool_state *note = NULL;
	size_t count;
	assert_error(trz_pool_create(r.heap, NULL), TRZ_ERROR_INVALID_ARGUMENT, "out is NULL");
	assert_error(trz_pool_retain(r.heap, NULL), TRZ_ERROR_INVALID_ARGUMENT, "pool is NULL");
	assert_error(trz_pool_release(NULL, pool), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_pool_begin_capture(r.heap, pool, NULL), TRZ_ERROR_INVALID_ARGUMENT, "legacy");
	assert_error(trz_pool_alloc(r.heap, pool, 1, 0, NULL, NULL), TRZ_ERROR_INVALID_ARGUMENT, "out is NULL");
	assert_error(trz_pool_query(r.heap, pool, NULL), TRZ_ERROR_INVALID_ARGUMENT, "out is NULL");
	assert_error(trz_pool_live(r.heap, pool, NULL, 0, NULL), TRZ_ERROR_INVALID_ARGUMENT, "count is NULL");
	assert_error(trz_pool_checkpoint(r.heap, pool, NULL), TRZ_ERROR_INVALID_ARGUMENT, "out is NULL");
	assert_error(trz_pool_restore(r.heap, pool, note), TRZ_ERROR_INVALID_ARGUMENT, "state is NULL");
	assert_error(trz_pool_state_live(NULL, NULL, 0, &count), TRZ_ERROR_INVALID_ARGUMENT, "state is NULL");
	trz_pool_state_free(NULL);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_stays_in_the_pool),
		cmocka_unit_test(test_a_released_pool_is_everybodys),
		cmocka_unit_test(test_a_thread_is_diverted),
		cmocka_unit_test(test_a_filter_diverts_streams),
		cmocka_unit_test(test_graphs_keep_their_memory),
		cmocka_unit_test(test_the_end_of_a_pool_waits_for_launches),
		cmocka_unit_test(test_a_free_by_name_while_a_pool_ends),
		cmocka_unit_test(test_the_end_of_a_pool_waits_for_unknown_streams),
		cmocka_unit_test(test_the_ends_of_two_pools),
		cmocka_unit_test(test_the_end_of_a_pool_waits_for_captures),
		cmocka_unit_test(test_the_end_of_a_pool_on_an_old_driver),
		cmocka_unit_test(test_the_end_of_a_pool_on_an_old_driver_beside_a_thread),
		cmocka_unit_test(test_the_end_of_a_pool_beside_a_thread_that_has_gone),
		cmocka_unit_test(test_the_end_of_a_pool_leaves_captures_alone),
		cmocka_unit_test(test_a_large_pool_ends_bit_by_bit),
		cmocka_unit_test(test_diversions_are_not_inherited),
		cmocka_unit_test(test_captures_of_per_thread_streams),
		cmocka_unit_test(test_graphs_share_a_pool),
		cmocka_unit_test(test_streams_of_a_capture),
		cmocka_unit_test(test_a_capture_that_is_not_known),
		cmocka_unit_test(test_checkpoints),
		cmocka_unit_test(test_a_restore_with_work_under_way),
		cmocka_unit_test(test_checkpoints_that_cannot_be_restored),
		cmocka_unit_test(test_a_checkpoint_of_small_memory_where_large_memory_is_now),
		cmocka_unit_test(test_checkpoints_of_several_streams),
		cmocka_unit_test(test_checkpoints_ask_for_no_more_than_they_need),
		cmocka_unit_test(test_pools_belong_to_their_heap),
		cmocka_unit_test(test_a_full_device_takes_free_pool_memory),
		cmocka_unit_test(test_missing_arguments),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
