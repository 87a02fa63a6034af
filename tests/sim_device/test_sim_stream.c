/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated device's streams: late execution, schedules, events, default streams, blocking, deadlocks,
 * stamps, and the trace clock.
 */
#include "sim_fixture.h"

#include <pthread.h>

#include "sim_machine.h"

static const uint64_t granule = MIB(2);

/* A host function that writes down when it ran. */
struct mark {
	unsigned *clock;
	unsigned at;
};

static void set_mark(void *arg)
{
	struct mark *m = arg;
	m->at = ++*m->clock;
}

static void enqueue_mark(struct fixture *f, trz_stream st, struct mark *m)
{
	assert_int_equal(sim_host(f->s, f->c, st, set_mark, m), TRZ_OK);
}

static trz_status query(struct fixture *f, trz_event e)
{
	return f->d->event_query(f->self, f->c, e);
}

static void test_work_runs_late_and_in_order(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0;
	struct mark m[3] = {{&clock, 0}, {&clock, 0}, {&clock, 0}};
	trz_stream st = make_stream(&f);
	trz_event before = record_on(&f, st);
	for (int i = 0; i < 3; i++)
		enqueue_mark(&f, st, &m[i]);
	trz_event after = record_on(&f, st);
	assert_int_equal(clock, 0);
	assert_int_equal(sim_unfinished(f.s), 3);
	assert_int_equal(query(&f, before), TRZ_OK);
	assert_int_equal(query(&f, after), TRZ_NOT_READY);
	assert_int_equal(sim_run(f.s, 2), 2);
	assert_int_equal(query(&f, after), TRZ_NOT_READY);
	assert_int_equal(sim_run(f.s, 2), 1);
	assert_int_equal(query(&f, after), TRZ_OK);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(m[i].at, i + 1);
	fixture_close(&f);
}

/* Work enqueued after a record is not part of it, and an event can be recorded anew. */
static void test_record_captures_the_moment(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0;
	struct mark m = {&clock, 0};
	trz_stream st = make_stream(&f);
	enqueue_mark(&f, st, &m);
	trz_event e = record_on(&f, st);
	enqueue_mark(&f, st, &m);
	sim_run(f.s, 1);
	assert_int_equal(query(&f, e), TRZ_OK);
	assert_int_equal(f.d->event_record(f.self, f.c, e, st), TRZ_OK);
	assert_int_equal(query(&f, e), TRZ_NOT_READY);
	assert_int_equal(f.d->event_sync(f.self, f.c, e), TRZ_OK);
	assert_int_equal(clock, 2);
	fixture_close(&f);
}

static void test_event_may_go_early(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0;
	struct mark m = {&clock, 0}, n = {&clock, 0};
	trz_stream a = make_stream(&f), b = make_stream(&f);
	enqueue_mark(&f, a, &m);
	trz_event e = record_on(&f, a);
	assert_int_equal(f.d->stream_wait(f.self, f.c, b, e), TRZ_OK);
	assert_int_equal(f.d->event_destroy(f.self, f.c, e), TRZ_OK);
	enqueue_mark(&f, b, &n);
	assert_int_equal(sim_stream_sync(f.s, f.c, b), TRZ_OK);
	assert_int_equal(m.at, 1);
	assert_int_equal(n.at, 2);
	expect_clean(&f);
	fixture_close(&f);
}

static void test_never_recorded_event_has_passed(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_event e = make_event(&f);
	assert_int_equal(query(&f, e), TRZ_OK);
	assert_int_equal(f.d->event_sync(f.self, f.c, e), TRZ_OK);
	assert_int_equal(f.d->stream_wait(f.self, f.c, make_stream(&f), e), TRZ_OK);
	assert_int_equal(sim_unfinished(f.s), 0);
	fixture_close(&f);
}

/* A chain of waits over three streams, under every schedule and some seeds. */
static void test_waits_hold_under_every_schedule(void **state)
{
	(void)state;
	for (int schedule = 0; schedule < SIM_SCHEDULES; schedule++)
		for (uint64_t seed = 0; seed < 20; seed++) {
			struct fixture f = fixture_open((sim_config){.schedule = (sim_schedule)schedule, .seed = seed});
			unsigned clock = 0;
			struct mark m[3] = {{&clock, 0}, {&clock, 0}, {&clock, 0}};
			trz_stream last = NULL;
			for (int i = 0; i < 3; i++) {
				trz_stream st = make_stream(&f);
				if (last)
					assert_int_equal(f.d->stream_wait(f.self, f.c, st, record_on(&f, last)), TRZ_OK);
				enqueue_mark(&f, st, &m[i]);
				last = st;
			}
			sim_run(f.s, 2);
			assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
			for (unsigned i = 0; i < 3; i++)
				assert_int_equal(m[i].at, i + 1);
			expect_clean(&f);
			fixture_close(&f);
		}
}

/* Two streams with two items each: what the clock reads at the items, as four digits. */
static unsigned interleaving(sim_schedule schedule, uint64_t seed)
{
	struct fixture f = fixture_open((sim_config){.schedule = schedule, .seed = seed});
	unsigned clock = 0;
	struct mark m[4] = {{&clock, 0}, {&clock, 0}, {&clock, 0}, {&clock, 0}};
	trz_stream a = make_stream(&f), b = make_stream(&f);
	enqueue_mark(&f, a, &m[0]);
	enqueue_mark(&f, b, &m[2]);
	enqueue_mark(&f, a, &m[1]);
	enqueue_mark(&f, b, &m[3]);
	sim_run(f.s, UINT64_MAX);
	unsigned digits = 0;
	for (int i = 0; i < 4; i++)
		digits = digits * 10 + m[i].at;
	fixture_close(&f);
	return digits;
}

static void test_schedules_order(void **state)
{
	(void)state;
	assert_int_equal(interleaving(SIM_FIFO, 1), 1324);
	assert_int_equal(interleaving(SIM_LIFO, 1), 3412);
	bool seen[5000] = {false};
	unsigned kinds = 0;
	for (uint64_t seed = 0; seed < 100; seed++) {
		unsigned order = interleaving(SIM_RANDOM, seed);
		assert_int_equal(order, interleaving(SIM_RANDOM, seed));
		kinds += !seen[order];
		seen[order] = true;
	}
	assert_int_equal(kinds, 6);
}

static void test_starved_stream_runs_when_the_host_blocks(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.schedule = SIM_STARVE, .seed = 3});
	unsigned clock = 0;
	struct mark m = {&clock, 0};
	trz_stream only = make_stream(&f);
	enqueue_mark(&f, only, &m);
	trz_event e = record_on(&f, only);
	for (int i = 0; i < 1000; i++)
		sim_tick(f.s, 0);
	assert_int_equal(sim_run(f.s, UINT64_MAX), 0);
	assert_int_equal(query(&f, e), TRZ_NOT_READY);
	assert_int_equal(f.d->event_sync(f.self, f.c, e), TRZ_OK);
	assert_int_equal(m.at, 1);
	fixture_close(&f);
}

/* A host that blocks under an unkind schedule sees no more than what it waits for, here through
 * another stream. */
static void test_blocking_runs_no_more_than_needed(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.schedule = SIM_LIFO});
	unsigned clock = 0;
	struct mark needed = {&clock, 0}, last = {&clock, 0}, other = {&clock, 0};
	trz_stream a = make_stream(&f), b = make_stream(&f), c = make_stream(&f);
	enqueue_mark(&f, a, &needed);
	trz_event e = record_on(&f, a);
	assert_int_equal(f.d->stream_wait(f.self, f.c, b, e), TRZ_OK);
	enqueue_mark(&f, b, &last);
	enqueue_mark(&f, a, &other);
	enqueue_mark(&f, c, &other);
	assert_int_equal(sim_stream_sync(f.s, f.c, b), TRZ_OK);
	assert_int_equal(needed.at, 1);
	assert_int_equal(last.at, 2);
	assert_int_equal(sim_unfinished(f.s), 2);
	fixture_close(&f);
}

static void test_ticks(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0;
	struct mark m = {&clock, 0}, n = {&clock, 0};
	trz_stream st = make_stream(&f);
	enqueue_mark(&f, st, &m);
	sim_tick(f.s, 0);
	assert_int_equal(clock, 1);
	enqueue_mark(&f, st, &m);
	sim_tick(f.s, 2);
	enqueue_mark(&f, st, &n);
	sim_tick(f.s, 2);
	assert_int_equal(clock, 1);
	sim_tick(f.s, 2);
	assert_int_equal(clock, 2);
	sim_tick(f.s, 2);
	assert_int_equal(clock, 3);
	fixture_close(&f);
}

/* What is due still waits for what is not. */
static void test_tick_respects_waits(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0;
	struct mark m = {&clock, 0}, n = {&clock, 0};
	uint32_t flag = 0;
	trz_stream a = make_stream(&f), b = make_stream(&f);
	assert_int_equal(sim_spin(f.s, f.c, a, &flag), TRZ_OK);
	enqueue_mark(&f, a, &m);
	trz_event e = record_on(&f, a);
	assert_int_equal(f.d->stream_wait(f.self, f.c, b, e), TRZ_OK);
	enqueue_mark(&f, b, &n);
	for (int i = 0; i < 10; i++)
		sim_tick(f.s, 0);
	assert_int_equal(clock, 0);
	flag = 1;
	sim_tick(f.s, 0);
	assert_int_equal(m.at, 1);
	assert_int_equal(n.at, 2);
	fixture_close(&f);
}

/* A program that makes a stream for each request: what the host waits for takes no longer from one to the next. */
static void test_ended_streams_are_not_looked_at(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0, seen = 0;
	struct mark m = {&clock, 0};
	const struct sim_stream *st;
	for (int i = 0; i < 1000; i++) {
		trz_stream idle = make_stream(&f), busy = make_stream(&f);
		enqueue_mark(&f, busy, &m);
		assert_int_equal(sim_stream_destroy(f.s, f.c, idle), TRZ_OK);
		assert_int_equal(sim_stream_destroy(f.s, f.c, busy), TRZ_OK);
		assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	}
	assert_int_equal(clock, 1000);
	LIST_FOREACH(st, &f.s->all_streams, link)
		seen++;
	assert_in_range(seen, 0, 100);
	fixture_close(&f);
}

/* ---- default streams ------------------------------------------------------------------------------ */

static void test_legacy_stream_orders_blocking_streams(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct fixture f = fixture_open((sim_config){.seed = seed});
		unsigned clock = 0;
		struct mark first = {&clock, 0}, middle = {&clock, 0}, last = {&clock, 0};
		trz_stream a, b;
		assert_int_equal(sim_stream_create(f.s, f.c, true, &a), TRZ_OK);
		assert_int_equal(sim_stream_create(f.s, f.c, true, &b), TRZ_OK);
		enqueue_mark(&f, a, &first);
		enqueue_mark(&f, NULL, &middle);
		enqueue_mark(&f, b, &last);
		sim_run(f.s, UINT64_MAX);
		assert_int_equal(first.at, 1);
		assert_int_equal(middle.at, 2);
		assert_int_equal(last.at, 3);
		fixture_close(&f);
	}
}

static void test_record_on_legacy_stream_covers_blocking_streams(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0;
	struct mark m = {&clock, 0};
	trz_stream a;
	assert_int_equal(sim_stream_create(f.s, f.c, true, &a), TRZ_OK);
	assert_int_equal(query(&f, record_on(&f, NULL)), TRZ_OK);
	enqueue_mark(&f, a, &m);
	trz_event e = record_on(&f, NULL);
	assert_int_equal(query(&f, e), TRZ_NOT_READY);
	assert_int_equal(f.d->event_sync(f.self, f.c, e), TRZ_OK);
	assert_int_equal(m.at, 1);
	fixture_close(&f);
}

static void test_wait_of_legacy_stream_orders_blocking_streams(void **state)
{
	(void)state;
	for (int passed = 0; passed < 2; passed++) {
		struct fixture f = fixture_lenient(0);
		unsigned clock = 0, other_clock = 0;
		uint32_t flag = 0;
		struct mark first = {&clock, 0}, last = {&clock, 0}, other = {&other_clock, 0};
		trz_stream a, b, c = make_stream(&f);
		assert_int_equal(sim_stream_create(f.s, f.c, true, &a), TRZ_OK);
		assert_int_equal(sim_stream_create(f.s, f.c, true, &b), TRZ_OK);
		enqueue_mark(&f, c, &other);
		trz_event e = record_on(&f, c);
		if (passed)
			sim_run(f.s, UINT64_MAX);
		assert_int_equal(sim_spin(f.s, f.c, a, &flag), TRZ_OK);
		enqueue_mark(&f, a, &first);
		assert_int_equal(f.d->stream_wait(f.self, f.c, NULL, e), TRZ_OK);
		enqueue_mark(&f, b, &last);
		sim_run(f.s, UINT64_MAX);
		assert_int_equal(clock, 0);
		flag = 1;
		sim_run(f.s, UINT64_MAX);
		assert_int_equal(first.at, 1);
		assert_int_equal(last.at, 2);
		fixture_close(&f);
	}
}

static void test_non_blocking_stream_ignores_legacy_stream(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0;
	uint32_t flag = 0;
	struct mark m = {&clock, 0};
	assert_int_equal(sim_spin(f.s, f.c, (trz_stream)1, &flag), TRZ_OK);
	enqueue_mark(&f, make_stream(&f), &m);
	sim_run(f.s, UINT64_MAX);
	assert_int_equal(m.at, 1);
	enqueue_mark(&f, (trz_stream)2, &m);
	sim_run(f.s, UINT64_MAX);
	assert_int_equal(clock, 1);
	flag = 1;
	sim_run(f.s, UINT64_MAX);
	assert_int_equal(clock, 2);
	fixture_close(&f);
}

struct other_thread {
	struct fixture *f;
	uint64_t legacy, own;
};

static void *ask_ids(void *arg)
{
	struct other_thread *t = arg;
	t->f->d->stream_id(t->f->self, t->f->c, NULL, &t->legacy);
	t->f->d->stream_id(t->f->self, t->f->c, (trz_stream)2, &t->own);
	return NULL;
}

static void test_special_streams_have_ids(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	uint64_t null_id, legacy_id;
	assert_int_equal(f.d->stream_id(f.self, f.c, NULL, &null_id), TRZ_OK);
	assert_int_equal(f.d->stream_id(f.self, f.c, (trz_stream)1, &legacy_id), TRZ_OK);
	assert_int_equal(null_id, legacy_id);
	struct other_thread here = {.f = &f}, there = {.f = &f};
	ask_ids(&here);
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, ask_ids, &there), 0);
	pthread_join(thread, NULL);
	assert_int_equal(here.legacy, there.legacy);
	assert_int_not_equal(here.own, there.own);
	assert_int_not_equal(here.own, here.legacy);
	fixture_close(&f);
}

/* ---- handles -------------------------------------------------------------------------------------- */

static void test_handles_are_reused_at_once(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_stream keep = make_stream(&f), a = make_stream(&f);
	uint64_t old_id, new_id;
	assert_int_equal(f.d->stream_id(f.self, f.c, a, &old_id), TRZ_OK);
	assert_int_equal(sim_stream_destroy(f.s, f.c, a), TRZ_OK);
	assert_ptr_equal(make_stream(&f), a);
	assert_int_equal(f.d->stream_id(f.self, f.c, a, &new_id), TRZ_OK);
	assert_int_not_equal(old_id, new_id);
	assert_ptr_not_equal(keep, a);
	trz_event e = make_event(&f);
	assert_int_equal(f.d->event_destroy(f.self, f.c, e), TRZ_OK);
	assert_ptr_equal(make_event(&f), e);
	expect_clean(&f);
	fixture_close(&f);

	f = fixture_lenient(SIM_RULE_HANDLE_REUSE);
	a = make_stream(&f);
	assert_int_equal(sim_stream_destroy(f.s, f.c, a), TRZ_OK);
	assert_ptr_not_equal(make_stream(&f), a);
	fixture_close(&f);
}

static void test_destroyed_stream_finishes_its_work(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0;
	struct mark m = {&clock, 0};
	trz_stream st = make_stream(&f);
	enqueue_mark(&f, st, &m);
	trz_event e = record_on(&f, st);
	assert_int_equal(sim_stream_destroy(f.s, f.c, st), TRZ_OK);
	assert_int_equal(query(&f, e), TRZ_NOT_READY);
	trz_stream heir = make_stream(&f);
	assert_ptr_equal(heir, st);
	assert_int_equal(sim_stream_sync(f.s, f.c, heir), TRZ_OK);
	assert_int_equal(f.d->event_sync(f.self, f.c, e), TRZ_OK);
	assert_int_equal(m.at, 1);
	fixture_close(&f);
}

static void test_dead_handles(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_stream st = make_stream(&f);
	trz_event e = make_event(&f);
	uint64_t id;
	assert_int_equal(sim_stream_destroy(f.s, f.c, st), TRZ_OK);
	assert_int_equal(f.d->event_record(f.self, f.c, e, st), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "stream");
	assert_int_equal(f.d->stream_id(f.self, f.c, st, &id), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->event_destroy(f.self, f.c, e), TRZ_OK);
	assert_int_equal(f.d->event_destroy(f.self, f.c, e), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(query(&f, e), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(query(&f, st), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), 5);
	fixture_close(&f);
}

/* ---- blocking ------------------------------------------------------------------------------------- */

static void test_spin_ends_when_other_work_sets_the_flag(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.schedule = SIM_STARVE});
	trz_addr a = make_memory(&f, granule);
	uint32_t flag = 0;
	trz_stream waits = make_stream(&f), sets = make_stream(&f);
	assert_int_equal(sim_spin(f.s, f.c, waits, &flag), TRZ_OK);
	assert_int_equal(sim_fill(f.s, f.c, sets, a, 4, 1), TRZ_OK);
	assert_int_equal(sim_copy(f.s, f.c, sets, (uint64_t)&flag, a, 4), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, waits), TRZ_OK);
	assert_int_equal(flag, 0x01010101);
	fixture_close(&f);
}

/* The allocator's mistake that hangs a GPU: A waits for an event recorded late on B, whose later work waits
 * for A. */
static void test_deadlock_is_detected(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0;
	struct mark m = {&clock, 0};
	uint32_t flag = 0;
	trz_stream a = make_stream(&f), b = make_stream(&f);
	assert_int_equal(sim_spin(f.s, f.c, b, &flag), TRZ_OK);
	trz_event late = record_on(&f, b);
	assert_int_equal(f.d->stream_wait(f.self, f.c, a, late), TRZ_OK);
	enqueue_mark(&f, a, &m);
	assert_int_equal(sim_stream_sync(f.s, f.c, a), TRZ_ERROR_DRIVER);
	expect_violation(&f, 1, "deadlock");
	flag = 1;
	assert_int_equal(sim_stream_sync(f.s, f.c, a), TRZ_OK);
	assert_int_equal(m.at, 1);
	fixture_close(&f);
}

struct blocker {
	struct fixture *f;
	trz_stream st;
	trz_status seen;
};

static void block_on_own_stream(void *arg)
{
	struct blocker *b = arg;
	b->seen = sim_stream_sync(b->f->s, b->f->c, b->st);
}

static void test_host_function_that_blocks_on_itself(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	struct blocker b = {&f, make_stream(&f), TRZ_OK};
	assert_int_equal(sim_host(f.s, f.c, b.st, block_on_own_stream, &b), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, b.st), TRZ_OK);
	assert_int_equal(b.seen, TRZ_ERROR_DRIVER);
	expect_violation(&f, 1, "deadlock");
	fixture_close(&f);
}

/* Host functions run without the machine's lock, and where the driver lets them they may call it. */
struct caller {
	struct fixture *f;
	trz_addr address;
	trz_status seen;
};

static void free_in_host_function(void *arg)
{
	struct caller *c = arg;
	c->seen = c->f->d->unmap(c->f->self, c->address, granule);
}

static void test_host_function_may_call_the_driver(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(SIM_RULE_HOST_CALLS);
	struct caller c = {&f, make_memory(&f, granule), TRZ_ERROR_DRIVER};
	assert_int_equal(sim_host(f.s, f.c, NULL, free_in_host_function, &c), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, NULL), TRZ_OK);
	assert_int_equal(c.seen, TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), 0);
	expect_clean(&f);
	fixture_close(&f);
}

/* Where the rule is enforced the call has no effect, and the thread may call again when the function has returned. */
static void test_host_function_may_not_call_the_driver(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	struct caller c = {&f, make_memory(&f, granule), TRZ_OK};
	assert_int_equal(sim_host(f.s, f.c, NULL, free_in_host_function, &c), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, NULL), TRZ_OK);
	assert_int_equal(c.seen, TRZ_ERROR_NOT_PERMITTED);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	free_in_host_function(&c);
	assert_int_equal(c.seen, TRZ_OK);
	expect_clean(&f);
	fixture_close(&f);
}

/* An allocation and its end, as a program's callback may cause them, through every slot that these need. */
static void allocate_in_host_function(void *arg)
{
	struct fixture *f = arg;
	trz_tile_props props = {.device = 0};
	trz_capture_status status;
	trz_event e;
	trz_addr plain;
	uint64_t id;
	trz_stream st = make_stream(f);
	trz_handle h = make_handle(f, granule);
	trz_addr a = make_range(f, granule);
	lay(f, a, granule, h);
	assert_int_equal(f->d->create(f->self, &props, granule + 1, &h), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f->d->mem_alloc(f->self, f->c, 4096, &plain), TRZ_OK);
	assert_int_equal(sim_stamp(f->s, f->c, st, a, granule, 1), TRZ_OK);
	assert_int_equal(f->d->event_create(f->self, f->c, &e), TRZ_OK);
	assert_int_equal(f->d->stream_id(f->self, f->c, st, &id), TRZ_OK);
	assert_int_equal(f->d->stream_capture(f->self, f->c, st, &status, &id), TRZ_OK);
	assert_int_equal(f->d->event_record(f->self, f->c, e, st), TRZ_OK);
	assert_int_equal(f->d->event_sync(f->self, f->c, e), TRZ_OK);
	assert_int_equal(f->d->event_query(f->self, f->c, e), TRZ_OK);
	assert_int_equal(f->d->event_destroy(f->self, f->c, e), TRZ_OK);
	assert_int_equal(f->d->unmap(f->self, a, granule), TRZ_OK);
	assert_int_equal(f->d->unreserve(f->self, a, granule), TRZ_OK);
	assert_int_equal(f->d->release(f->self, h), TRZ_OK);
	assert_int_equal(sim_stream_destroy(f->s, f->c, st), TRZ_OK);
}

static void test_host_functions_that_allocate(void **state)
{
	(void)state;
	for (int schedule = 0; schedule < SIM_SCHEDULES; schedule++) {
		struct fixture f = fixture_open((sim_config){
			.schedule = (sim_schedule)schedule, .lenient_rules = SIM_RULE_SYNC_MAYBE | SIM_RULE_HOST_CALLS});
		trz_stream a = make_stream(&f), b = make_stream(&f);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(sim_host(f.s, f.c, a, allocate_in_host_function, &f), TRZ_OK);
			assert_int_equal(sim_host(f.s, f.c, b, allocate_in_host_function, &f), TRZ_OK);
		}
		assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
		assert_int_equal(sim_leaks(f.s, NULL, 0), 6);  /* the plain ones */
		expect_clean(&f);
		fixture_close(&f);
	}
}

/* A callback that frees what queued work still uses. */
static void test_host_function_that_frees_too_much(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(SIM_RULE_HOST_CALLS);
	struct caller c = {&f, make_memory(&f, granule), TRZ_ERROR_DRIVER};
	assert_int_equal(sim_host(f.s, f.c, NULL, free_in_host_function, &c), TRZ_OK);
	assert_int_equal(sim_fill(f.s, f.c, NULL, c.address, 8, 1), TRZ_OK);
	sim_run(f.s, 1);
	expect_violation(&f, 1, "unfinished fill");
	fixture_close(&f);
}

/* Two threads, each inside a host function that blocks on the other's stream. */
struct embrace {
	struct fixture *f;
	trz_stream own, other;
	pthread_barrier_t *both_inside;
	trz_status inner, outer;
};

static void block_on_other_stream(void *arg)
{
	struct embrace *e = arg;
	pthread_barrier_wait(e->both_inside);
	e->inner = sim_stream_sync(e->f->s, e->f->c, e->other);
}

static void *block_on_own(void *arg)
{
	struct embrace *e = arg;
	e->outer = sim_stream_sync(e->f->s, e->f->c, e->own);
	return NULL;
}

static void test_deadlock_of_two_threads(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.continue_on_violation = true, .schedule = SIM_LIFO});
	pthread_barrier_t both_inside;
	pthread_t threads[2];
	trz_stream a = make_stream(&f), b = make_stream(&f);
	struct embrace e[2] = {{&f, a, b, &both_inside, TRZ_OK, TRZ_OK}, {&f, b, a, &both_inside, TRZ_OK, TRZ_OK}};
	assert_int_equal(pthread_barrier_init(&both_inside, NULL, 2), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(sim_host(f.s, f.c, e[i].own, block_on_other_stream, &e[i]), TRZ_OK);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, block_on_own, &e[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	expect_violation(&f, 1, "deadlock");
	assert_int_equal((e[0].inner == TRZ_ERROR_DRIVER) + (e[1].inner == TRZ_ERROR_DRIVER), 1);
	assert_int_equal((e[0].inner == TRZ_OK) + (e[1].inner == TRZ_OK), 1);
	assert_int_equal(e[0].outer, TRZ_OK);
	assert_int_equal(e[1].outer, TRZ_OK);
	assert_int_equal(sim_unfinished(f.s), 0);
	pthread_barrier_destroy(&both_inside);
	fixture_close(&f);
}

enum { WORKERS = 4, ROUNDS = 200 };

struct worker {
	struct fixture *f;
	trz_addr address;
	unsigned failures, ran;
};

static void count_run(void *arg)
{
	unsigned *ran = arg;
	__atomic_fetch_add(ran, 1, __ATOMIC_RELAXED);
}

static void *work_in_thread(void *arg)
{
	struct worker *w = arg;
	struct fixture *f = w->f;
	trz_stream st;
	w->failures += sim_stream_create(f->s, f->c, true, &st) != TRZ_OK;
	for (uint64_t i = 0; i < ROUNDS; i++) {
		trz_event e;
		w->failures += f->d->event_create(f->self, f->c, &e) != TRZ_OK;
		w->failures += sim_stamp(f->s, f->c, st, w->address, granule, i) != TRZ_OK;
		w->failures += sim_host(f->s, f->c, st, count_run, &w->ran) != TRZ_OK;
		w->failures += sim_verify(f->s, f->c, st, w->address, granule, i) != TRZ_OK;
		w->failures += f->d->event_record(f->self, f->c, e, st) != TRZ_OK;
		w->failures += f->d->event_sync(f->self, f->c, e) != TRZ_OK;
		w->failures += f->d->event_destroy(f->self, f->c, e) != TRZ_OK;
	}
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){0});
	struct worker w[WORKERS];
	pthread_t threads[WORKERS];
	for (int i = 0; i < WORKERS; i++)
		w[i] = (struct worker){.f = &f, .address = make_memory(&f, granule)};
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work_in_thread, &w[i]), 0);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < WORKERS; i++) {
		assert_int_equal(w[i].failures, 0);
		assert_int_equal(w[i].ran, ROUNDS);
	}
	assert_int_equal(sim_unfinished(f.s), 0);
	fixture_close(&f);
}

/* ---- stamps --------------------------------------------------------------------------------------- */

static void test_stamps_of_all_sizes(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_memory(&f, MIB(64));
	const uint64_t sizes[] = {8, 12, 16, 512, 520, 4096, MIB(1), MIB(2), MIB(2) + 512, MIB(30) + 8};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		for (uint64_t shift = 0; shift < 3; shift++) {
			trz_addr at = a + 1536 * shift * shift;
			assert_int_equal(sim_stamp(f.s, f.c, NULL, at, sizes[i], 100 + i), TRZ_OK);
			assert_int_equal(sim_verify(f.s, f.c, NULL, at, sizes[i], 100 + i), TRZ_OK);
		}
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	expect_clean(&f);
	assert_int_equal(sim_verify(f.s, f.c, NULL, a, MIB(30) + 8, 3), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	expect_violation(&f, 1, "expected tag 3");
	fixture_close(&f);
}

static void test_overlap_is_named(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_memory(&f, granule);
	assert_int_equal(sim_stamp(f.s, f.c, NULL, a + 4096, 4096, 71), TRZ_OK);
	assert_int_equal(sim_stamp(f.s, f.c, NULL, a + 8192 - 8, 512, 72), TRZ_OK);
	assert_int_equal(sim_verify(f.s, f.c, NULL, a + 4096, 4096, 71), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	expect_violation(&f, 1, "at offset 4088 found tag 72");
	assert_non_null(strstr(sim_first_violation(f.s), "expected tag 71"));
	fixture_close(&f);
}

/* Two owners of one tile through two mappings: the culprit is found through the other one. */
static void test_overlap_through_an_alias_is_named(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_handle h = make_handle(&f, granule);
	trz_addr a = make_range(&f, granule), b = make_range(&f, granule);
	lay(&f, a, granule, h);
	lay(&f, b, granule, h);
	assert_int_equal(sim_stamp(f.s, f.c, NULL, a, 512, 71), TRZ_OK);
	assert_int_equal(sim_stamp(f.s, f.c, NULL, b, 512, 72), TRZ_OK);
	assert_int_equal(sim_verify(f.s, f.c, NULL, a, 512, 71), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	expect_violation(&f, 1, "found tag 72");
	fixture_close(&f);
}

/* Memory that stream B reuses while A's work on it is still queued: some seed shows the wrong bytes, and with
 * a wait in between none does. */
static void test_early_reuse_shows(void **state)
{
	(void)state;
	unsigned caught[2] = {0, 0};
	for (int ordered = 0; ordered < 2; ordered++)
		for (uint64_t seed = 0; seed < 20; seed++) {
			struct fixture f = fixture_open((sim_config){.seed = seed, .continue_on_violation = true});
			trz_addr a = make_memory(&f, granule);
			trz_stream s1 = make_stream(&f), s2 = make_stream(&f);
			assert_int_equal(sim_stamp(f.s, f.c, s1, a, granule, 1), TRZ_OK);
			assert_int_equal(sim_verify(f.s, f.c, s1, a, granule, 1), TRZ_OK);
			if (ordered)
				assert_int_equal(f.d->stream_wait(f.self, f.c, s2, record_on(&f, s1)), TRZ_OK);
			assert_int_equal(sim_stamp(f.s, f.c, s2, a, granule, 2), TRZ_OK);
			assert_int_equal(sim_verify(f.s, f.c, s2, a, granule, 2), TRZ_OK);
			sim_run(f.s, UINT64_MAX);
			caught[ordered] += sim_violations(f.s) > 0;
			fixture_close(&f);
		}
	assert_true(caught[0] > 5);
	assert_int_equal(caught[1], 0);
}

static void test_sparse_stamps_touch_little(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){0});
	trz_addr a = make_memory(&f, GIB(2));
	for (uint64_t tag = 0; tag < 50; tag++) {
		assert_int_equal(sim_stamp(f.s, f.c, NULL, a, GIB(2), tag), TRZ_OK);
		assert_int_equal(sim_verify(f.s, f.c, NULL, a, GIB(2), tag), TRZ_OK);
		for (uint64_t at = 0; at < MIB(64); at += MIB(1))
			assert_int_equal(sim_stamp(f.s, f.c, NULL, a + at, MIB(1), tag), TRZ_OK);
	}
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	assert_true(sim_resident_bytes(f.s) < MIB(10));
	fixture_close(&f);
}

static void test_copy_reads_its_source_late(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_memory(&f, granule);
	char source[4] = "old", result[4] = "";
	assert_int_equal(sim_copy(f.s, f.c, NULL, a, (uint64_t)source, 4), TRZ_OK);
	assert_int_equal(sim_copy(f.s, f.c, NULL, (uint64_t)result, a, 4), TRZ_OK);
	memcpy(source, "new", 4);
	assert_int_equal(sim_stream_sync(f.s, f.c, NULL), TRZ_OK);
	assert_string_equal(result, "new");
	fixture_close(&f);
}

/* A stream that sleeps is passed neither by nudges nor by a few questions, but by a host that waits, wakes it or asks
 * for long. One of less than 0.1 ms holds nothing up. */
static void test_sleep_holds_its_stream_up(void **state)
{
	(void)state;
	enum { MS = 1000000 };
	int64_t ns = 0;
	struct fixture f = fixture_lenient(0);
	unsigned clock = 0, asked = 0;
	struct mark m[3] = {{&clock, 0}, {&clock, 0}, {&clock, 0}};
	trz_stream st = make_stream(&f), other = make_stream(&f);
	trz_event timed[2];
	for (int i = 0; i < 2; i++)
		assert_int_equal(sim_event_create_timed(f.s, f.c, &timed[i]), TRZ_OK);
	assert_int_equal(f.d->event_record(f.self, f.c, timed[0], st), TRZ_OK);
	assert_int_equal(sim_sleep(f.s, f.c, st, 50 * MS), TRZ_OK);
	assert_int_equal(sim_sleep(f.s, f.c, st, 30 * MS), TRZ_OK);
	enqueue_mark(&f, st, &m[0]);
	trz_event slept = record_on(&f, st);
	enqueue_mark(&f, other, &m[1]);
	sim_nudge(f.s, UINT64_MAX);
	assert_int_equal(m[0].at, 0);
	assert_int_equal(m[1].at, 1);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(query(&f, slept), TRZ_NOT_READY);
		sim_nudge(f.s, UINT64_MAX);
	}
	assert_int_equal(f.d->stream_wait(f.self, f.c, other, slept), TRZ_OK);
	enqueue_mark(&f, other, &m[2]);
	assert_int_equal(sim_stream_sync(f.s, f.c, other), TRZ_OK);
	assert_int_equal(m[0].at, 2);
	assert_int_equal(m[2].at, 3);
	assert_int_equal(f.d->event_record(f.self, f.c, timed[1], st), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, st), TRZ_OK);
	assert_int_equal(sim_event_elapsed(f.s, timed[0], timed[1], &ns), TRZ_OK);
	assert_in_range(ns, 80 * MS, 81 * MS);

	assert_int_equal(sim_sleep(f.s, f.c, st, 50 * MS), TRZ_OK);
	for (slept = record_on(&f, st); query(&f, slept) == TRZ_NOT_READY; asked++)
		sim_nudge(f.s, UINT64_MAX);
	assert_int_equal(asked, 256);

	assert_int_equal(sim_sleep(f.s, f.c, st, 50 * MS), TRZ_OK);
	assert_int_equal(sim_run(f.s, 1), 0);
	sim_wake(f.s);
	assert_int_equal(sim_run(f.s, 1), 1);
	assert_int_equal(sim_sleep(f.s, f.c, st, MS / 50), TRZ_OK);
	assert_int_equal(sim_run(f.s, 1), 1);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sleep_holds_its_stream_up),
		cmocka_unit_test(test_work_runs_late_and_in_order),
		cmocka_unit_test(test_record_captures_the_moment),
		cmocka_unit_test(test_event_may_go_early),
		cmocka_unit_test(test_never_recorded_event_has_passed),
		cmocka_unit_test(test_waits_hold_under_every_schedule),
		cmocka_unit_test(test_schedules_order),
		cmocka_unit_test(test_starved_stream_runs_when_the_host_blocks),
		cmocka_unit_test(test_blocking_runs_no_more_than_needed),
		cmocka_unit_test(test_ticks),
		cmocka_unit_test(test_tick_respects_waits),
		cmocka_unit_test(test_ended_streams_are_not_looked_at),
		cmocka_unit_test(test_legacy_stream_orders_blocking_streams),
		cmocka_unit_test(test_record_on_legacy_stream_covers_blocking_streams),
		cmocka_unit_test(test_wait_of_legacy_stream_orders_blocking_streams),
		cmocka_unit_test(test_non_blocking_stream_ignores_legacy_stream),
		cmocka_unit_test(test_special_streams_have_ids),
		cmocka_unit_test(test_handles_are_reused_at_once),
		cmocka_unit_test(test_destroyed_stream_finishes_its_work),
		cmocka_unit_test(test_dead_handles),
		cmocka_unit_test(test_spin_ends_when_other_work_sets_the_flag),
		cmocka_unit_test(test_deadlock_is_detected),
		cmocka_unit_test(test_host_function_that_blocks_on_itself),
		cmocka_unit_test(test_host_function_may_call_the_driver),
		cmocka_unit_test(test_host_function_may_not_call_the_driver),
		cmocka_unit_test(test_host_functions_that_allocate),
		cmocka_unit_test(test_host_function_that_frees_too_much),
		cmocka_unit_test(test_deadlock_of_two_threads),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_stamps_of_all_sizes),
		cmocka_unit_test(test_overlap_is_named),
		cmocka_unit_test(test_overlap_through_an_alias_is_named),
		cmocka_unit_test(test_early_reuse_shows),
		cmocka_unit_test(test_sparse_stamps_touch_little),
		cmocka_unit_test(test_copy_reads_its_source_late),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
