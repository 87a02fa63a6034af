/* SPDX-License-Identifier: Apache-2.0
 *
 * A program's calls in host functions of streams, where the driver takes no call: frees of all kinds succeed, and a
 * later poll covers them; allocations succeed or say why not; nothing waits for a lock, and the heap works on.
 */
#include <stdio.h>

#include "rig.h"

enum { MOST = 8 };

struct scene {
	struct rig *r;
	trz_stream a, b;
	void *p[MOST];
	trz_event event;
	trz_status status[MOST];
	uint64_t size;
	char text[200];
	bool ran;
};

static struct scene open_scene(struct rig *r, const char *conf)
{
	*r = rig_open(GIB(2), conf);
	return (struct scene){.r = r, .a = rig_stream(r), .b = rig_stream(r), .size = MIB(20)};
}

/* Lets the host function run, with all that was given to the stream before it. */
static void run(struct scene *c, void (*function)(void *))
{
	assert_ok(sim_host(c->r->s, c->r->c, c->a, function, c));
	assert_ok(sim_stream_sync(c->r->s, c->r->c, c->a));
	assert_true(c->ran);
}

static void stamp(struct scene *c, void *p, uint64_t size, trz_stream stream, uint64_t tag)
{
	assert_ok(sim_stamp(c->r->s, c->r->c, stream, (trz_addr)p, size, tag));
}

static trz_event event_of(struct scene *c, trz_stream stream)
{
	trz_event event = NULL;
	assert_ok(c->r->d->event_create(c->r->d->self, c->r->c, &event));
	assert_ok(c->r->d->event_record(c->r->d->self, c->r->c, event, stream));
	return event;
}

/* ---- frees ---- */

static void free_in_all_ways(void *arg)
{
	struct scene *c = arg;
	trz_heap *h = c->r->heap;
	c->status[0] = trz_free(h, c->p[0]);
	c->status[1] = trz_free_on(h, c->p[1], c->b);
	c->status[2] = trz_free_after(h, c->p[2], c->event);
	c->status[3] = trz_record_stream(h, c->p[3], c->b);
	c->status[4] = trz_free(h, c->p[3]);
	c->status[5] = trz_free_on(h, c->p[4], c->b);
	c->ran = true;
}

/* Blocks or slots; after a poll all has passed, and nothing earlier. */
static void free_all_of(uint64_t size)
{
	struct rig r;
	struct scene c = open_scene(&r, NULL);
	rig_free(&r, rig_alloc(&r, 100, c.b));
	for (int i = 0; i < 5; i++) {
		c.p[i] = rig_alloc(&r, size, c.a);
		stamp(&c, c.p[i], size, c.a, 1);
	}
	c.event = event_of(&c, c.a);
	rig_order(&r, c.a, c.b);
	for (int i = 1; i < 5; i += 3)
		stamp(&c, c.p[i], size, c.b, 2);
	run(&c, free_in_all_ways);
	for (int i = 0; i < 6; i++)
		assert_ok(c.status[i]);
	rig_check(&r);
	assert_int_equal(rig_stat(&r, "allocation.all.current"), 0);
	stamp(&c, rig_alloc(&r, size, c.a), size, c.a, 3);  /* not over what b has still to do */
	rig_sync(&r);
	assert_ok(trz_poll(r.heap));
	assert_ok(trz_poll(r.heap));
	assert_int_equal(rig_stat(&r, "pending_bytes.current"), 0);
	rig_check(&r);
	rig_close(&r);
}

static void test_frees_of_blocks(void **state)
{
	(void)state;
	free_all_of(MIB(20));
}

static void test_frees_of_slots(void **state)
{
	(void)state;
	free_all_of(700);
}

static void free_on_unknown_stream(void *arg)
{
	struct scene *c = arg;
	c->status[0] = trz_free_on(c->r->heap, c->p[0], c->b);
	snprintf(c->text, sizeof c->text, "%s", trz_last_error());
	c->status[1] = trz_free(c->r->heap, c->p[0]);
	c->ran = true;
}

static void test_a_stream_that_the_heap_has_not_seen(void **state)
{
	(void)state;
	struct rig r;
	struct scene c = open_scene(&r, NULL);
	c.p[0] = rig_alloc(&r, MIB(4), c.a);
	run(&c, free_on_unknown_stream);
	assert_status(c.status[0], TRZ_ERROR_NOT_PERMITTED);
	assert_non_null(strstr(c.text, "new to the heap"));
	assert_ok(c.status[1]);
	rig_close(&r);
}

/* A handle that has become another stream's is that of the newest one. */
static void test_a_handle_that_came_again(void **state)
{
	(void)state;
	struct rig r;
	struct scene c = open_scene(&r, NULL);
	trz_stream old = c.b;
	rig_free(&r, rig_alloc(&r, MIB(4), old));
	assert_ok(sim_stream_destroy(r.s, r.c, old));  /* nobody tells the heap */
	c.b = rig_stream(&r);
	assert_ptr_equal(c.b, old);
	c.p[0] = rig_alloc(&r, MIB(30), c.a);
	rig_free(&r, rig_alloc(&r, MIB(6), c.b));
	rig_order(&r, c.a, c.b);
	stamp(&c, c.p[0], MIB(30), c.b, 1);
	run(&c, free_on_unknown_stream);
	assert_ok(c.status[0]);
	void *p = rig_alloc(&r, MIB(30), c.b);
	assert_ptr_equal(p, c.p[0]);
	rig_close(&r);
}

/* ---- allocations ---- */

static void allocate(void *arg)
{
	struct scene *c = arg;
	c->status[0] = trz_alloc(c->r->heap, c->size, 0, c->b, &c->p[0]);
	snprintf(c->text, sizeof c->text, "%s", trz_last_error());
	c->ran = true;
}

static void test_an_allocation_says_why_it_fails(void **state)
{
	(void)state;
	struct rig r;
	struct scene c = open_scene(&r, NULL);
	for (int i = 0; i < 2; i++) {
		run(&c, allocate);
		assert_status(c.status[0], TRZ_ERROR_NOT_PERMITTED);
		assert_null(c.p[0]);
		assert_non_null(strstr(c.text, "in a host function"));
		assert_null(strstr(c.text, "does not know"));
		c.b = NULL;  /* the legacy default stream needs no question, but memory */
	}
	rig_check(&r);
	rig_free(&r, rig_alloc(&r, c.size, NULL));
	run(&c, allocate);
	assert_ok(c.status[0]);
	assert_int_equal(rig_stat(&r, "num_ooms"), 0);
	rig_close(&r);
}

static void ask_for_everything(void *arg)
{
	struct scene *c = arg;
	trz_heap *h = c->r->heap;
	size_t size;
	const trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(2), .flags = TRZ_ALLOC_CONTIGUOUS};
	c->status[0] = trz_poll(h);
	c->status[1] = trz_trim(h, 0, NULL);
	c->status[2] = trz_stream_retire(h, c->b);
	c->status[3] = trz_largest_block(h, NULL, &size);
	c->status[4] = trz_alloc_with(h, &params, &c->p[1]);
	c->status[5] = trz_grow(h, c->p[0], GIB(1));
	c->status[6] = trz_close(h);
	c->ran = true;
}

static void test_what_needs_the_driver_is_refused(void **state)
{
	(void)state;
	struct rig r;
	struct scene c = open_scene(&r, NULL);
	c.p[0] = rig_alloc(&r, MIB(20), NULL);
	run(&c, ask_for_everything);
	for (int i = 0; i < 7; i++)
		assert_status(c.status[i], TRZ_ERROR_NOT_PERMITTED);
	rig_check(&r);
	rig_free(&r, c.p[0]);
	rig_close(&r);
}

/* ---- locks ---- */

static struct scene *running;
static trz_driver with_waiting_create;

/* Making memory waits for the device, as it may. */
static trz_status create_and_wait(void *self, const trz_tile_props *props, uint64_t size, trz_handle *handle)
{
	struct scene *c = running;
	running = NULL;
	if (c)
		run(c, allocate);
	return sim_driver(self)->create(self, props, size, handle);
}

/* A host function that runs while somebody grows waits for no lock. */
static void test_no_lock_is_waited_for(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.capacity = GIB(2), .lenient_rules = SIM_RULE_SYNC_MAYBE});
	with_waiting_create = *r.d;
	with_waiting_create.create = create_and_wait;
	r.d = &with_waiting_create;
	rig_open_heap(&r, NULL);
	r.d = sim_driver(r.s);
	struct scene c = {.r = &r, .a = rig_stream(&r), .size = MIB(500)};
	running = &c;
	rig_alloc(&r, MIB(40), NULL);
	assert_true(c.ran);
	assert_status(c.status[0], TRZ_ERROR_NOT_PERMITTED);
	rig_close(&r);
}

/* ---- pools ---- */

static void release_pool(void *arg)
{
	struct scene *c = arg;
	c->status[0] = trz_pool_release(c->r->heap, c->p[0]);
	c->ran = true;
}

static void test_the_last_reference_of_a_pool(void **state)
{
	(void)state;
	struct rig r;
	struct scene c = open_scene(&r, NULL);
	trz_pool *pool;
	void *p;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_alloc(r.heap, pool, MIB(20), 0, c.b, &p));
	rig_free(&r, p);
	c.p[0] = pool;
	run(&c, release_pool);
	assert_ok(c.status[0]);
	rig_free(&r, rig_alloc(&r, 100, c.b));  /* polls, as is wanted */
	assert_ptr_equal(rig_alloc(&r, MIB(20), c.b), p);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frees_of_blocks),
		cmocka_unit_test(test_frees_of_slots),
		cmocka_unit_test(test_a_stream_that_the_heap_has_not_seen),
		cmocka_unit_test(test_a_handle_that_came_again),
		cmocka_unit_test(test_an_allocation_says_why_it_fails),
		cmocka_unit_test(test_what_needs_the_driver_is_refused),
		cmocka_unit_test(test_no_lock_is_waited_for),
		cmocka_unit_test(test_the_last_reference_of_a_pool),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
