/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap disturbs no capture, and refuses to serve a stream that is being captured.
 */
#include "overlay.h"
#include "rig.h"
#include "testing.h"

static trz_capture_status status_of(struct rig *r, trz_stream stream)
{
	trz_capture_status status;
	uint64_t id;
	assert_ok(r->d->stream_capture(r->d->self, r->c, stream, &status, &id));
	return status;
}

static void test_a_captured_stream_is_refused(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r);
	sim_graph graph;
	void *p = rig_alloc(&r, 1000, captured), *out = &out;
	assert_ok(sim_capture_begin(r.s, r.c, captured, TRZ_CAPTURE_GLOBAL));
	assert_error(trz_alloc(r.heap, 1000, 0, captured, &out), TRZ_ERROR_CAPTURE, "being captured");
	assert_null(out);
	assert_error(trz_alloc(r.heap, MIB(30), 0, captured, &out), TRZ_ERROR_CAPTURE, "being captured");
	assert_int_equal(status_of(&r, captured), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(r.s, r.c, captured, &graph));
	assert_ok(trz_alloc(r.heap, MIB(30), 0, captured, &out));
	rig_free(&r, out);
	rig_free(&r, p);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	rig_sync(&r);
	rig_close(&r);
}

static void allocate_captured(struct rig *r, trz_pool *pool, trz_stream stream)
{
	sim_graph graph;
	void *p;
	assert_ok(trz_pool_begin_capture(r->heap, pool, stream));
	assert_ok(sim_capture_begin(r->s, r->c, stream, TRZ_CAPTURE_GLOBAL));
	assert_ok(trz_alloc(r->heap, 1000, 0, stream, &p));
	assert_ok(trz_free(r->heap, p));
	assert_ok(trz_alloc(r->heap, MIB(3), 0, stream, &p));
	assert_ok(trz_free_on(r->heap, p, stream));
	assert_int_equal(status_of(r, stream), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(r->s, r->c, stream, &graph));
	assert_ok(trz_pool_end(r->heap, pool));
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
}

/* The driver cannot be asked for its id before the capture ends. */
static void test_a_stream_first_seen_in_a_capture_is_the_same_afterwards(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r);
	trz_pool *pool;
	assert_ok(trz_pool_create(r.heap, &pool));
	allocate_captured(&r, pool, captured);
	allocate_captured(&r, pool, captured);
	assert_int_equal(rig_stat(&r, "stream.current"), 1);
	void *p = rig_alloc(&r, MIB(30), captured);
	rig_free(&r, p);
	assert_int_equal(rig_stat(&r, "stream.current"), 1);
	allocate_captured(&r, pool, captured);
	assert_int_equal(rig_stat(&r, "stream.current"), 1);
	rig_check(&r);
	rig_sync(&r);
	assert_ok(trz_stream_retire(r.heap, captured));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

static void test_a_stream_seen_in_captures_alone_retires(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r), other = rig_stream(&r);
	trz_pool *pool;
	assert_ok(trz_pool_create(r.heap, &pool));
	allocate_captured(&r, pool, captured);
	assert_ok(trz_stream_retire(r.heap, captured));
	assert_ok(sim_stream_destroy(r.s, r.c, captured));
	void *p = rig_alloc(&r, MIB(30), other);
	rig_free(&r, p);
	assert_ok(trz_pool_release(r.heap, pool));
	assert_ok(trz_trim(r.heap, 0, NULL));
	rig_check(&r);
	rig_sync(&r);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* That stream was destroyed, unseen, and another one got its handle. */
static void test_a_handle_seen_in_captures_alone_can_be_another_stream(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r);
	trz_pool *pool;
	assert_ok(trz_pool_create(r.heap, &pool));
	allocate_captured(&r, pool, captured);
	assert_ok(sim_stream_destroy(r.s, r.c, captured));
	trz_stream again = rig_stream(&r);
	assert_ptr_equal(again, captured);
	allocate_captured(&r, pool, again);
	void *p = rig_alloc(&r, MIB(30), again);
	rig_free(&r, p);
	rig_check(&r);
	rig_sync(&r);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

/* Growth, frees with events, polls and trims in the capturing thread, under the strictest mode. */
static void test_captures_are_not_disturbed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r), other = rig_stream(&r), third = rig_stream(&r);
	sim_graph graph;
	void *before = rig_alloc(&r, MIB(20), third);
	assert_ok(sim_capture_begin(r.s, r.c, captured, TRZ_CAPTURE_GLOBAL));
	void *p = rig_alloc(&r, MIB(100), other), *q = rig_alloc(&r, 5000, other);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_free(&r, before);
	p = rig_alloc(&r, MIB(300), third);
	assert_ok(trz_trim(r.heap, 0, NULL));
	rig_free(&r, p);
	assert_int_equal(status_of(&r, captured), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(r.s, r.c, captured, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	rig_check(&r);
	rig_sync(&r);
	rig_close(&r);
}

/* Memory of a stream that is captured by the time of the free: no event may be recorded there. */
static void test_a_free_on_a_captured_stream(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r), other = rig_stream(&r);
	sim_graph graph;
	void *p = rig_alloc(&r, MIB(20), captured), *q = rig_alloc(&r, MIB(20), other);
	assert_ok(sim_capture_begin(r.s, r.c, captured, TRZ_CAPTURE_GLOBAL));
	rig_free(&r, p);
	rig_free(&r, q);
	assert_int_equal(status_of(&r, captured), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(r.s, r.c, captured, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* ---- memory that was freed before the capture, with its work under way ---- */

/* Allocations from a pool whose memory a stream still uses. */
struct scene {
	struct rig r;
	trz_stream stream, launcher;
	trz_pool *pool;
	sim_graph graph;
	uint32_t go;             /* the stream's work waits for it */
};

static void set(void *arg)
{
	__atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE);
}

static void scene_open(struct scene *c)
{
	*c = (struct scene){.r = rig_open(GIB(1), NULL)};
	c->stream = rig_stream(&c->r);
	c->launcher = rig_stream(&c->r);
	assert_ok(trz_pool_create(c->r.heap, &c->pool));
}

static void *scene_alloc(struct scene *c, size_t size)
{
	void *p = NULL;
	assert_ok(trz_pool_alloc(c->r.heap, c->pool, size, 0, c->stream, &p));
	return p;
}

static void scene_block(struct scene *c)
{
	c->go = 0;
	assert_ok(sim_spin(c->r.s, c->r.c, c->stream, &c->go));
}

/* Its own work, outside of any capture. */
static void scene_use(struct scene *c, void *p, size_t size)
{
	assert_ok(sim_stamp(c->r.s, c->r.c, c->stream, (trz_addr)p, size, 1));
	assert_ok(sim_verify(c->r.s, c->r.c, c->stream, (trz_addr)p, size, 1));
}

static void scene_begin(struct scene *c)
{
	assert_ok(trz_pool_begin_capture(c->r.heap, c->pool, c->stream));
	assert_ok(sim_capture_begin(c->r.s, c->r.c, c->stream, TRZ_CAPTURE_GLOBAL));
}

static void *scene_capture(struct scene *c, size_t size)
{
	void *p = rig_alloc(&c->r, size, c->stream);
	assert_ok(sim_stamp(c->r.s, c->r.c, c->stream, (trz_addr)p, size, 2));
	return p;
}

static void scene_end(struct scene *c)
{
	assert_int_equal(status_of(&c->r, c->stream), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(c->r.s, c->r.c, c->stream, &c->graph));
	assert_ok(trz_pool_end(c->r.heap, c->pool));
}

/* The graph is launched at once, on another stream, which is done before the first one goes on. */
static void scene_close(struct scene *c)
{
	struct rig *r = &c->r;
	assert_ok(sim_graph_launch(r->s, r->c, c->graph, c->launcher));
	assert_ok(sim_host(r->s, r->c, c->launcher, set, &c->go));
	rig_sync(r);
	rig_check(r);
	assert_ok(sim_graph_destroy(r->s, r->c, c->graph));
	assert_ok(trz_pool_release(r->heap, c->pool));
	rig_sync(r);
	assert_ok(trz_poll(r->heap));
	rig_check(r);
	rig_close(r);
}

enum { SIZES = 4 };
static const size_t scene_sizes[SIZES] = {700, KIB(20), KIB(300), MIB(20)};

/* Freed with its work under way; slots, medium and large blocks. `synchronised`: the work has ended by then. */
static void play_freed_before(bool synchronised)
{
	struct scene c;
	void *before[SIZES], *slot_mate, *first[SIZES], *again[SIZES];
	scene_open(&c);
	slot_mate = scene_alloc(&c, scene_sizes[0]);  /* keeps the slab */
	for (int i = 0; i < SIZES; i++)
		before[i] = scene_alloc(&c, scene_sizes[i]);
	scene_block(&c);
	for (int i = 0; i < SIZES; i++) {
		scene_use(&c, before[i], scene_sizes[i]);
		rig_free(&c.r, before[i]);
	}
	if (synchronised) {
		set(&c.go);
		rig_sync(&c.r);
	}
	scene_begin(&c);
	for (int i = 0; i < SIZES; i++)
		first[i] = scene_capture(&c, scene_sizes[i]);
	for (int i = 0; i < SIZES; i++)
		assert_int_equal(first[i] == before[i], synchronised);
	for (int i = 0; i < SIZES; i++)
		rig_free(&c.r, first[i]);
	for (int i = 0; i < SIZES; i++) {
		again[i] = scene_capture(&c, scene_sizes[i]);  /* what the capture itself frees it may reuse */
		assert_ptr_equal(again[i], first[i]);
	}
	scene_end(&c);
	for (int i = 0; i < SIZES; i++)
		rig_free(&c.r, again[i]);
	rig_free(&c.r, slot_mate);
	scene_close(&c);
}

static void test_a_capture_takes_nothing_that_is_in_use(void **state)
{
	(void)state;
	play_freed_before(false);
	play_freed_before(true);
}

/* Live when the capture begins, with work under way, and freed in it. */
static void play_freed_meanwhile(bool synchronised)
{
	struct scene c;
	void *before[SIZES], *slot_mate, *q[SIZES];
	scene_open(&c);
	slot_mate = scene_alloc(&c, scene_sizes[0]);
	for (int i = 0; i < SIZES; i++)
		before[i] = scene_alloc(&c, scene_sizes[i]);
	scene_block(&c);
	for (int i = 0; i < SIZES; i++)
		scene_use(&c, before[i], scene_sizes[i]);
	if (synchronised) {
		set(&c.go);
		rig_sync(&c.r);
	}
	scene_begin(&c);
	for (int i = 0; i < SIZES; i++)
		rig_free(&c.r, before[i]);
	for (int i = 0; i < SIZES; i++) {
		q[i] = scene_capture(&c, scene_sizes[i]);
		assert_int_equal(q[i] == before[i], synchronised);
	}
	scene_end(&c);
	for (int i = 0; i < SIZES; i++)
		rig_free(&c.r, q[i]);
	rig_free(&c.r, slot_mate);
	scene_close(&c);
}

static void test_what_is_freed_in_a_capture_may_be_in_use(void **state)
{
	(void)state;
	play_freed_meanwhile(false);
	play_freed_meanwhile(true);
}

/* What one capture has allocated is used by the program, and freed, without another allocation in between; the next
 * capture finds it so. */
static void test_what_a_capture_has_left_may_be_in_use(void **state)
{
	(void)state;
	struct scene c;
	sim_graph earlier;
	scene_open(&c);
	scene_begin(&c);
	void *p = scene_capture(&c, MIB(20)), *slot = scene_capture(&c, 700), *mate = scene_capture(&c, 700);
	scene_end(&c);
	earlier = c.graph;
	scene_block(&c);
	scene_use(&c, p, MIB(20));
	scene_use(&c, slot, 700);
	rig_free(&c.r, p);
	scene_begin(&c);
	rig_free(&c.r, slot);
	void *q = scene_capture(&c, MIB(20)), *other = scene_capture(&c, 700);
	assert_ptr_not_equal(q, p);
	assert_ptr_not_equal(other, slot);
	rig_free(&c.r, q);
	assert_ptr_equal(scene_capture(&c, MIB(20)), q);
	scene_end(&c);
	rig_free(&c.r, q);
	rig_free(&c.r, other);
	rig_free(&c.r, mate);
	assert_ok(sim_graph_destroy(c.r.s, c.r.c, earlier));
	scene_close(&c);
}

/* The work ends while the capture is under way: from then on all is the capture's. */
static void test_a_stream_that_settles_late(void **state)
{
	(void)state;
	struct scene c;
	scene_open(&c);
	void *p = scene_alloc(&c, MIB(20)), *slot = scene_alloc(&c, 700);
	scene_block(&c);
	scene_use(&c, p, MIB(20));
	rig_free(&c.r, p);
	scene_begin(&c);
	void *q = scene_capture(&c, MIB(20)), *small = scene_capture(&c, 700);
	assert_ptr_not_equal(q, p);
	rig_free(&c.r, q);
	set(&c.go);
	sim_run(c.r.s, 1000);
	rig_free(&c.r, slot);
	void *both[2] = {scene_capture(&c, MIB(20)), scene_capture(&c, MIB(20))};
	assert_true(both[0] == p || both[1] == p);
	assert_true(both[0] == q || both[1] == q);
	scene_end(&c);
	rig_free(&c.r, both[0]);
	rig_free(&c.r, both[1]);
	rig_free(&c.r, small);
	scene_close(&c);
}

/* A capture that nobody has announced, into a pool by name: nothing is known of what its stream was given before. */
static void test_a_capture_that_is_not_announced(void **state)
{
	(void)state;
	struct scene c;
	void *q;
	scene_open(&c);
	void *p = scene_alloc(&c, MIB(20));
	scene_block(&c);
	scene_use(&c, p, MIB(20));
	assert_ok(sim_capture_begin(c.r.s, c.r.c, c.stream, TRZ_CAPTURE_GLOBAL));
	rig_free(&c.r, p);
	q = scene_alloc(&c, MIB(20));
	assert_ptr_not_equal(q, p);
	assert_ok(sim_capture_end(c.r.s, c.r.c, c.stream, &c.graph));
	rig_free(&c.r, q);
	scene_close(&c);
}

/* ---- memory that a forked stream has used before the capture ---- */

/* Frees a block of the forked stream, whose own work still uses it, in the capture's order on the first stream; returns
 * what that gets next. */
static void *free_across(struct scene *c, trz_stream forked, void *p)
{
	rig_order(&c->r, c->stream, forked);
	rig_order(&c->r, forked, c->stream);
	assert_ok(trz_free_on(c->r.heap, p, c->stream));
	return scene_capture(c, MIB(20));
}

/* Work of the forked stream that goes on until the scene ends, on a block. */
static void *use_on(struct scene *c, trz_pool *pool, trz_stream stream)
{
	void *p = NULL;
	assert_ok(trz_pool_alloc(c->r.heap, pool, MIB(20), 0, stream, &p));
	c->go = 0;
	assert_ok(sim_stamp(c->r.s, c->r.c, stream, (trz_addr)p, MIB(20), 1));
	rig_sync(&c->r);
	assert_ok(sim_spin(c->r.s, c->r.c, stream, &c->go));
	assert_ok(sim_verify(c->r.s, c->r.c, stream, (trz_addr)p, MIB(20), 1));
	return p;
}

/* The first stream has settled, so the capture takes what it frees at once. */
static void test_a_settled_stream_frees_what_an_unsettled_one_uses(void **state)
{
	(void)state;
	struct scene c;
	scene_open(&c);
	trz_stream forked = rig_stream(&c.r);
	void *p = use_on(&c, c.pool, forked);
	scene_begin(&c);
	void *q = free_across(&c, forked, p);
	assert_ptr_not_equal(q, p);
	rig_free(&c.r, q);
	scene_end(&c);
	scene_close(&c);
}

/* What the forked stream has freed so does not serve the first one after the capture, whose order counts for the graph
 * alone. */
static void test_the_order_of_a_capture_ends_with_it(void **state)
{
	(void)state;
	struct scene c;
	scene_open(&c);
	trz_stream forked = rig_stream(&c.r);
	void *p = use_on(&c, c.pool, forked);
	scene_begin(&c);
	rig_free(&c.r, free_across(&c, forked, p));
	scene_end(&c);
	void *q = scene_alloc(&c, MIB(20));
	scene_use(&c, q, MIB(20));
	sim_run(c.r.s, 1000);
	rig_free(&c.r, q);
	scene_close(&c);
}

/* A slot goes back to its own stream; that stream's tickets then tell when its slab may leave. */
static void test_a_slot_that_a_capture_frees_waits_for_its_own_stream(void **state)
{
	(void)state;
	struct scene c;
	scene_open(&c);
	trz_stream forked = rig_stream(&c.r);
	void *p = rig_alloc(&c.r, KIB(14), forked);
	c.go = 0;
	assert_ok(sim_spin(c.r.s, c.r.c, forked, &c.go));
	assert_ok(sim_stamp(c.r.s, c.r.c, forked, (trz_addr)p, KIB(14), 1));
	scene_begin(&c);
	rig_order(&c.r, c.stream, forked);
	rig_order(&c.r, forked, c.stream);
	assert_ok(trz_free_on(c.r.heap, p, c.stream));
	scene_end(&c);
	for (int i = 0; i < 2; i++) {  /* records an event on the first stream, and sees that it has passed */
		assert_ok(trz_poll(c.r.heap));
		assert_ok(sim_stream_sync(c.r.s, c.r.c, c.stream));
	}
	assert_ok(trz_poll(c.r.heap));
	assert_ok(trz_trim(c.r.heap, 0, NULL));
	rig_check(&c.r);
	scene_close(&c);
}

/* ---- captures one after the other, behind work that goes on ---- */

static uint64_t reserved(const struct scene *c)
{
	return rig_stat(&c->r, "reserved_bytes.all.current");
}

/* Captures a graph whose memory is all freed in it. Returns the address of its largest block. */
static void *capture_one(struct scene *c, sim_graph *graph)
{
	void *p[SIZES];
	scene_begin(c);
	for (int i = 0; i < SIZES; i++)
		p[i] = scene_capture(c, scene_sizes[i]);
	for (int i = 0; i < SIZES; i++)
		rig_free(&c->r, p[i]);
	scene_end(c);
	*graph = c->graph;
	return p[SIZES - 1];
}

enum { CAPTURES = 20 };

/* Launches all but the last, whose launch ends the scene, one after the other. */
static void close_captures(struct scene *c, const sim_graph *graphs, int n)
{
	for (int i = 0; i < n; i++) {
		if (i < n - 1) {
			assert_ok(sim_graph_launch(c->r.s, c->r.c, graphs[i], c->launcher));
			assert_ok(sim_graph_destroy(c->r.s, c->r.c, graphs[i]));
		}
	}
	c->graph = graphs[n - 1];
	scene_close(c);
}

static void test_captures_share_what_they_free(void **state)
{
	(void)state;
	struct scene c;
	sim_graph graphs[CAPTURES];
	scene_open(&c);
	scene_block(&c);
	void *first = capture_one(&c, &graphs[0]);
	uint64_t before = reserved(&c);
	for (int i = 1; i < CAPTURES; i++) {
		assert_ptr_equal(capture_one(&c, &graphs[i]), first);
		rig_free(&c.r, rig_alloc(&c.r, MIB(2), c.stream));  /* the heap sees the stream outside of captures, too */
	}
	assert_true(reserved(&c) <= before + MIB(12));  /* the other memory of the stream, and small memory */
	close_captures(&c, graphs, CAPTURES);
}

/* Whether the stream has settled changes from capture to capture. */
static void test_captures_share_whether_settled_or_not(void **state)
{
	(void)state;
	struct scene c;
	sim_graph graphs[CAPTURES];
	uint64_t before = 0;
	scene_open(&c);
	for (int i = 0; i < CAPTURES; i++) {
		if (i % 2 == 0)
			scene_block(&c);
		capture_one(&c, &graphs[i]);
		before = i == 1 ? reserved(&c) : before;
		set(&c.go);
		if (i % 2 == 0)
			rig_sync(&c.r);
	}
	assert_true(reserved(&c) <= before + MIB(4));
	close_captures(&c, graphs, CAPTURES);
}

/* What captures have left serves the program as well, and once the program has used it, no capture before that has
 * passed. */
static void test_what_the_program_uses_is_no_longer_for_captures(void **state)
{
	(void)state;
	struct scene c;
	sim_graph graphs[4];
	scene_open(&c);
	scene_block(&c);
	void *first = capture_one(&c, &graphs[0]);
	assert_ptr_equal(capture_one(&c, &graphs[1]), first);
	uint64_t before = reserved(&c);
	void *p = scene_alloc(&c, MIB(20));
	assert_int_equal(reserved(&c), before);
	assert_ptr_equal(p, first);
	scene_use(&c, p, MIB(20));
	rig_free(&c.r, p);
	void *other = capture_one(&c, &graphs[2]);
	assert_ptr_not_equal(other, first);
	assert_ptr_equal(capture_one(&c, &graphs[3]), other);
	close_captures(&c, graphs, 4);
}

/* Work of the stream's own on 64 MiB of the default pool, in pieces: each is written now, and read once the stream goes
 * on. The memory is freed before that. */
static void use_for_long(struct scene *c)
{
	void *p = rig_alloc(&c->r, MIB(64), c->stream);
	trz_addr begin = (trz_addr)p, end = begin + MIB(64);
	for (trz_addr at = begin; at < end; at += KIB(256))
		assert_ok(sim_stamp(c->r.s, c->r.c, c->stream, at, KIB(256), 1));
	rig_sync(&c->r);
	scene_block(c);
	for (trz_addr at = begin; at < end; at += KIB(256))
		assert_ok(sim_verify(c->r.s, c->r.c, c->stream, at, KIB(256), 1));
	rig_free(&c->r, p);
}

/* The pool gathers, outside of captures, tiles that the stream's own work still uses. What is left of them is not for a
 * capture, though the stream's newest free was one of a capture. */
static void test_tiles_that_the_program_uses_are_not_for_captures(void **state)
{
	(void)state;
	struct scene c;
	sim_graph graphs[2];
	scene_open(&c);
	use_for_long(&c);
	capture_one(&c, &graphs[0]);
	uint64_t gathered = rig_stat(&c.r, "path_gather");
	void *p = scene_alloc(&c, MIB(38) + KIB(256));
	assert_true(rig_stat(&c.r, "path_gather") > gathered);
	scene_begin(&c);
	rig_free(&c.r, scene_capture(&c, MIB(1) + KIB(256)));
	scene_end(&c);
	graphs[1] = c.graph;
	rig_free(&c.r, p);
	close_captures(&c, graphs, 2);
}

/* Begins the announced capture, which takes and gives back what is left beside p, and ends all. */
static void capture_the_rest(struct scene *c, void *p)
{
	assert_ok(sim_capture_begin(c->r.s, c->r.c, c->stream, TRZ_CAPTURE_GLOBAL));
	rig_free(&c->r, scene_capture(c, MIB(1) + KIB(256)));
	scene_end(c);
	rig_free(&c->r, p);
	scene_close(c);
}

/* The same between the announcement and the capture: what the pool gathers then is not older than the announcement. */
static void test_tiles_gathered_after_the_announcement_are_not_for_the_capture(void **state)
{
	(void)state;
	struct scene c;
	scene_open(&c);
	use_for_long(&c);
	assert_ok(trz_pool_begin_capture(c.r.heap, c.pool, c.stream));
	uint64_t gathered = rig_stat(&c.r, "path_gather");
	void *p = scene_alloc(&c, MIB(38) + KIB(256));
	assert_true(rig_stat(&c.r, "path_gather") > gathered);
	capture_the_rest(&c, p);
}

/* What an allocation of the pool grows into then is not, either. */
static void test_a_block_that_grows_after_the_announcement_leaves_nothing_for_the_capture(void **state)
{
	(void)state;
	struct scene c;
	scene_open(&c);
	void *p = scene_alloc(&c, MIB(2));
	assert_ok(trz_pool_begin_capture(c.r.heap, c.pool, c.stream));
	rig_sync(&c.r);
	use_for_long(&c);
	uint64_t gathered = rig_stat(&c.r, "tiles_gathered");
	assert_ok(trz_grow(c.r.heap, p, MIB(38) + KIB(256)));
	assert_true(rig_stat(&c.r, "tiles_gathered") > gathered);
	capture_the_rest(&c, p);
}

/* Nor does one that grows into the stream's own free memory, which is freed with it before the capture. */
static void test_a_block_that_grows_into_free_memory_after_the_announcement(void **state)
{
	(void)state;
	struct scene c;
	scene_open(&c);
	void *p = scene_alloc(&c, MIB(2)), *q = scene_alloc(&c, MIB(18));
	assert_ptr_equal(q, (char *)p + MIB(2));
	rig_free(&c.r, q);
	assert_ok(trz_pool_begin_capture(c.r.heap, c.pool, c.stream));
	rig_sync(&c.r);
	scene_block(&c);
	assert_ok(trz_grow(c.r.heap, p, MIB(20)));
	scene_use(&c, q, MIB(18));
	rig_free(&c.r, p);
	assert_ok(sim_capture_begin(c.r.s, c.r.c, c.stream, TRZ_CAPTURE_GLOBAL));
	q = scene_capture(&c, MIB(18));
	assert_true(q < p || (char *)q >= (char *)p + MIB(20));
	rig_free(&c.r, q);
	scene_end(&c);
	scene_close(&c);
}

/* The announcement of a capture into another pool does not change that: the stream's work on what it got is younger. */
static void test_an_announcement_for_another_pool_does_not_settle_the_stream(void **state)
{
	(void)state;
	struct scene c;
	trz_pool *other;
	scene_open(&c);
	assert_ok(trz_pool_create(c.r.heap, &other));
	assert_ok(trz_pool_begin_capture(c.r.heap, c.pool, c.stream));
	void *p = scene_alloc(&c, MIB(20));
	assert_ok(trz_pool_begin_capture(c.r.heap, other, c.launcher));
	rig_sync(&c.r);
	scene_block(&c);
	scene_use(&c, p, MIB(20));
	rig_free(&c.r, p);
	assert_ok(sim_capture_begin(c.r.s, c.r.c, c.stream, TRZ_CAPTURE_GLOBAL));
	void *q = scene_capture(&c, MIB(20));
	assert_ptr_not_equal(q, p);
	rig_free(&c.r, q);
	scene_end(&c);
	assert_ok(trz_pool_end(c.r.heap, other));
	assert_ok(trz_pool_release(c.r.heap, other));
	scene_close(&c);
}

/* A slab in use when its capture ends: the program uses the slots that the capture has freed, and they do not serve the
 * next capture before that has passed. */
static void test_slots_beside_what_a_graph_keeps(void **state)
{
	(void)state;
	struct scene c;
	sim_graph earlier;
	scene_open(&c);
	rig_free(&c.r, scene_alloc(&c, MIB(2)));
	scene_block(&c);
	scene_begin(&c);
	void *kept = scene_capture(&c, 700), *freed = scene_capture(&c, 700);
	rig_free(&c.r, freed);
	scene_end(&c);
	earlier = c.graph;
	void *used = scene_alloc(&c, 700);
	assert_ptr_equal(used, freed);
	scene_use(&c, used, 700);
	rig_free(&c.r, used);
	scene_begin(&c);
	void *p = scene_capture(&c, 700);
	assert_ptr_not_equal(p, used);
	rig_free(&c.r, kept);
	void *q = scene_capture(&c, 700);
	assert_ptr_not_equal(q, kept);
	scene_end(&c);
	rig_free(&c.r, p);
	rig_free(&c.r, q);
	assert_ok(sim_graph_destroy(c.r.s, c.r.c, earlier));
	scene_close(&c);
}

/* What a capture has left behind a block serves its growth outside of captures. */
static void test_a_block_grows_into_what_a_capture_has_left(void **state)
{
	(void)state;
	struct scene c;
	scene_open(&c);
	rig_free(&c.r, scene_alloc(&c, MIB(2)));
	scene_block(&c);
	scene_begin(&c);
	void *p = scene_capture(&c, MIB(3)), *behind = scene_capture(&c, MIB(3));
	assert_ptr_equal((char *)p + MIB(3), behind);
	rig_free(&c.r, behind);
	scene_end(&c);
	uint64_t before = reserved(&c);
	assert_ok(trz_grow(c.r.heap, p, MIB(6)));
	assert_int_equal(reserved(&c), before);
	rig_free(&c.r, p);
	scene_close(&c);
}

/* ---- a capture that begins between the heap's question and its record ---- */

static struct overlay racing;
static trz_stream about_to_begin;

/* The capture has come to no harm; nothing is left of it and its pool. */
static void end_unharmed(struct rig *r, trz_stream stream, trz_pool *pool)
{
	sim_graph graph;
	assert_int_equal(status_of(r, stream), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(r->s, r->c, stream, &graph));
	assert_ok(trz_pool_end(r->heap, pool));
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	assert_ok(trz_pool_release(r->heap, pool));
	rig_sync(r);
	assert_ok(trz_trim(r->heap, 0, NULL));
	assert_int_equal(rig_stat(r, "reserved_bytes.all.current"), 0);
	rig_close(r);
}

static trz_status begin_and_record(void *self, trz_context context, trz_event event, trz_stream stream)
{
	if (stream == about_to_begin) {
		about_to_begin = NULL;
		assert_ok(sim_capture_begin(racing.rig.s, context, stream, TRZ_CAPTURE_GLOBAL));
	}
	return racing.rig.d->event_record(self, context, event, stream);
}

static void test_a_capture_that_begins_meanwhile(void **state)
{
	(void)state;
	trz_pool *pool;
	overlay_machine(&racing, GIB(1));
	racing.table.event_record = begin_and_record;
	overlay_open_heap(&racing, "event_bytes:0");
	struct rig *r = &racing.rig;
	trz_stream stream = rig_stream(r), other = rig_stream(r);
	void *p = rig_alloc(r, MIB(30), stream);
	rig_free(r, rig_alloc(r, MIB(30), other));
	assert_ok(trz_pool_create(r->heap, &pool));
	assert_ok(trz_pool_begin_capture(r->heap, pool, stream));
	about_to_begin = stream;
	rig_free(r, p);
	assert_null(about_to_begin);
	assert_ok(trz_poll(r->heap));
	rig_check(r);
	end_unharmed(r, stream, pool);
}

static trz_status ask_and_begin(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                                uint64_t *id)
{
	trz_status answer = racing.rig.d->stream_capture(self, context, stream, status, id);
	if (stream == NULL && about_to_begin) {
		assert_ok(sim_capture_begin(racing.rig.s, context, about_to_begin, TRZ_CAPTURE_GLOBAL));
		about_to_begin = NULL;
	}
	return answer;
}

/* The same for a free on the legacy default stream, where an event would break the capture of a blocking stream. */
static void test_a_capture_that_a_free_would_break(void **state)
{
	(void)state;
	trz_pool *pool;
	trz_stream stream;
	overlay_machine(&racing, GIB(1));
	racing.table.stream_capture = ask_and_begin;
	overlay_open_heap(&racing, NULL);
	struct rig *r = &racing.rig;
	assert_ok(sim_stream_create(r->s, r->c, true, &stream));
	void *p = rig_alloc(r, MIB(30), NULL);
	rig_free(r, rig_alloc(r, MIB(30), stream));
	assert_ok(trz_pool_create(r->heap, &pool));
	assert_ok(trz_pool_begin_capture(r->heap, pool, stream));
	about_to_begin = stream;
	rig_free(r, p);
	if (about_to_begin)
		assert_ok(sim_capture_begin(r->s, r->c, stream, TRZ_CAPTURE_GLOBAL));
	about_to_begin = NULL;
	end_unharmed(r, stream, pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_captured_stream_is_refused),
		cmocka_unit_test(test_a_stream_first_seen_in_a_capture_is_the_same_afterwards),
		cmocka_unit_test(test_a_stream_seen_in_captures_alone_retires),
		cmocka_unit_test(test_a_handle_seen_in_captures_alone_can_be_another_stream),
		cmocka_unit_test(test_captures_are_not_disturbed),
		cmocka_unit_test(test_a_free_on_a_captured_stream),
		cmocka_unit_test(test_a_capture_takes_nothing_that_is_in_use),
		cmocka_unit_test(test_what_is_freed_in_a_capture_may_be_in_use),
		cmocka_unit_test(test_what_a_capture_has_left_may_be_in_use),
		cmocka_unit_test(test_a_stream_that_settles_late),
		cmocka_unit_test(test_a_capture_that_is_not_announced),
		cmocka_unit_test(test_a_settled_stream_frees_what_an_unsettled_one_uses),
		cmocka_unit_test(test_the_order_of_a_capture_ends_with_it),
		cmocka_unit_test(test_a_slot_that_a_capture_frees_waits_for_its_own_stream),
		cmocka_unit_test(test_captures_share_what_they_free),
		cmocka_unit_test(test_captures_share_whether_settled_or_not),
		cmocka_unit_test(test_what_the_program_uses_is_no_longer_for_captures),
		cmocka_unit_test(test_tiles_that_the_program_uses_are_not_for_captures),
		cmocka_unit_test(test_tiles_gathered_after_the_announcement_are_not_for_the_capture),
		cmocka_unit_test(test_a_block_that_grows_after_the_announcement_leaves_nothing_for_the_capture),
		cmocka_unit_test(test_a_block_that_grows_into_free_memory_after_the_announcement),
		cmocka_unit_test(test_an_announcement_for_another_pool_does_not_settle_the_stream),
		cmocka_unit_test(test_slots_beside_what_a_graph_keeps),
		cmocka_unit_test(test_a_block_grows_into_what_a_capture_has_left),
		cmocka_unit_test(test_a_capture_that_begins_meanwhile),
		cmocka_unit_test(test_a_capture_that_a_free_would_break),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
