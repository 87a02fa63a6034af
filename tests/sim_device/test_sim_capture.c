/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated device's captures and graphs: the nodes that they collect, the calls that they forbid, launches, and
 * graphs whose memory has changed since.
 */
#include "sim_fixture.h"

#include <pthread.h>

static const uint64_t granule = MIB(2);

static void begin(struct fixture *f, trz_stream st, trz_capture_mode mode)
{
	assert_int_equal(sim_capture_begin(f->s, f->c, st, mode), TRZ_OK);
}

static sim_graph end(struct fixture *f, trz_stream st)
{
	sim_graph graph = 0;
	assert_int_equal(sim_capture_end(f->s, f->c, st, &graph), TRZ_OK);
	assert_true(graph != 0);
	return graph;
}

/* The capture is over and gave no graph. */
static void end_in_vain(struct fixture *f, trz_stream st)
{
	sim_graph graph = 7;
	assert_int_equal(sim_capture_end(f->s, f->c, st, &graph), TRZ_ERROR_CAPTURE);
	assert_true(graph == 7);
}

static trz_capture_status capture_status(struct fixture *f, trz_stream st)
{
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t id = 0;
	assert_int_equal(f->d->stream_capture(f->self, f->c, st, &status, &id), TRZ_OK);
	assert_int_equal(id != 0, status == TRZ_CAPTURE_ACTIVE);
	return status;
}

static uint64_t capture_id(struct fixture *f, trz_stream st)
{
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t id = 0;
	assert_int_equal(f->d->stream_capture(f->self, f->c, st, &status, &id), TRZ_OK);
	return id;
}

static void wait_for(struct fixture *f, trz_stream waits, trz_stream other)
{
	assert_int_equal(f->d->stream_wait(f->self, f->c, waits, record_on(f, other)), TRZ_OK);
}

static void launch(struct fixture *f, sim_graph graph, trz_stream st)
{
	assert_int_equal(sim_graph_launch(f->s, f->c, graph, st), TRZ_OK);
}

static trz_stream make_blocking_stream(struct fixture *f)
{
	trz_stream st = NULL;
	assert_int_equal(sim_stream_create(f->s, f->c, true, &st), TRZ_OK);
	return st;
}

static trz_capture_mode exchange_mode(struct fixture *f, trz_capture_mode mode)
{
	assert_int_equal(f->d->capture_mode(f->self, &mode), TRZ_OK);
	return mode;
}

static void count(void *arg)
{
	++*(unsigned *)arg;
}

/* ---- what is collected -------------------------------------------------------------------------------- */

static void test_captured_work_runs_at_launches_only(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_memory(&f, granule);
	unsigned ran = 0;
	uint8_t to = 0, from = 9;
	trz_stream st = make_stream(&f);
	begin(&f, st, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(sim_host(f.s, f.c, st, count, &ran), TRZ_OK);
	assert_int_equal(sim_fill(f.s, f.c, st, a, 16, 5), TRZ_OK);
	assert_int_equal(sim_copy(f.s, f.c, st, a + 8, (uint64_t)&from, 1), TRZ_OK);
	assert_int_equal(sim_copy(f.s, f.c, st, (uint64_t)&to, a + 8, 1), TRZ_OK);
	assert_int_equal(sim_stamp(f.s, f.c, st, a + 4096, 4096, 3), TRZ_OK);
	assert_int_equal(sim_verify(f.s, f.c, st, a + 4096, 4096, 3), TRZ_OK);
	assert_int_equal(sim_unfinished(f.s), 0);
	sim_graph graph = end(&f, st);
	assert_int_equal(sim_run(f.s, UINT64_MAX), 0);
	for (unsigned i = 1; i <= 3; i++) {
		launch(&f, graph, st);
		assert_int_equal(ran, i - 1);
		assert_int_equal(sim_stream_sync(f.s, f.c, st), TRZ_OK);
		assert_int_equal(ran, i);
	}
	assert_int_equal(to, 9);
	assert_int_equal(sim_unfinished(f.s), 0);
	expect_clean(&f);
	fixture_close(&f);
}

static void test_status_and_id(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_stream st = make_stream(&f), other = make_stream(&f);
	begin(&f, st, TRZ_CAPTURE_THREAD_LOCAL);
	uint64_t first = capture_id(&f, st);
	assert_int_equal(capture_status(&f, st), TRZ_CAPTURE_ACTIVE);
	assert_int_equal(capture_status(&f, other), TRZ_CAPTURE_NONE);
	wait_for(&f, other, st);
	assert_true(capture_id(&f, other) == first);
	wait_for(&f, st, other);
	sim_graph graph = end(&f, st);
	assert_int_equal(capture_status(&f, st), TRZ_CAPTURE_NONE);
	assert_int_equal(capture_status(&f, other), TRZ_CAPTURE_NONE);
	begin(&f, st, TRZ_CAPTURE_THREAD_LOCAL);
	assert_true(capture_id(&f, st) != first);
	assert_int_equal(sim_graph_destroy(f.s, f.c, graph), TRZ_OK);
	expect_clean(&f);
	fixture_close(&f);
}

struct mark {
	unsigned *clock;
	unsigned at;
};

static void set_mark(void *arg)
{
	struct mark *m = arg;
	m->at = ++*m->clock;
}

/* A diamond: first, then left and right in some order, then last; the launching stream's own work around it. */
struct diamond {
	unsigned clock;
	struct mark before, first, left, right, last, after;
};

static sim_graph capture_diamond(struct fixture *f, struct diamond *d, trz_stream a, trz_stream b)
{
	begin(f, a, TRZ_CAPTURE_GLOBAL);
	sim_host(f->s, f->c, a, set_mark, &d->first);
	wait_for(f, b, a);
	sim_host(f->s, f->c, a, set_mark, &d->left);
	sim_host(f->s, f->c, b, set_mark, &d->right);
	wait_for(f, a, b);
	sim_host(f->s, f->c, a, set_mark, &d->last);
	return end(f, a);
}

static void test_forks_run_behind_their_waits(void **state)
{
	(void)state;
	unsigned left_first = 0, right_first = 0;
	for (int schedule = 0; schedule < SIM_SCHEDULES; schedule++)
		for (uint64_t seed = 0; seed < 20; seed++) {
			struct fixture f = fixture_open((sim_config){.schedule = (sim_schedule)schedule, .seed = seed});
			struct diamond d = {0};
			struct mark *marks[] = {&d.before, &d.first, &d.left, &d.right, &d.last, &d.after};
			for (int i = 0; i < 6; i++)
				marks[i]->clock = &d.clock;
			trz_stream a = make_stream(&f), b = make_stream(&f);
			sim_graph graph = capture_diamond(&f, &d, a, b);
			for (int i = 0; i < 2; i++) {
				d.clock = 0;
				sim_host(f.s, f.c, b, set_mark, &d.before);
				launch(&f, graph, b);
				sim_host(f.s, f.c, b, set_mark, &d.after);
				assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
				assert_int_equal(d.before.at, 1);
				assert_int_equal(d.first.at, 2);
				assert_int_equal(d.left.at + d.right.at, 3 + 4);
				assert_int_equal(d.last.at, 5);
				assert_int_equal(d.after.at, 6);
				left_first += d.left.at < d.right.at;
				right_first += d.left.at > d.right.at;
			}
			expect_clean(&f);
			fixture_close(&f);
		}
	assert_true(left_first > 0 && right_first > 0);
}

/* From whichever streams: the second launch begins when the first has ended. */
static void test_launches_of_one_graph_do_not_overlap(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct fixture f = fixture_open((sim_config){.seed = seed});
		trz_addr a = make_memory(&f, granule);
		trz_stream st = make_stream(&f), other = make_stream(&f);
		begin(&f, st, TRZ_CAPTURE_GLOBAL);
		sim_stamp(f.s, f.c, st, a, 512, 1);
		wait_for(&f, other, st);
		sim_verify(f.s, f.c, other, a, 512, 1);
		sim_stamp(f.s, f.c, other, a, 512, 2);
		sim_verify(f.s, f.c, other, a, 512, 2);
		wait_for(&f, st, other);
		sim_graph graph = end(&f, st);
		launch(&f, graph, st);
		launch(&f, graph, other);
		sim_run(f.s, UINT64_MAX);
		assert_int_equal(sim_unfinished(f.s), 0);
		expect_clean(&f);
		fixture_close(&f);
	}
}

static void test_stream_that_is_not_joined_back(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned ran = 0;
	trz_stream st = make_stream(&f), other = make_stream(&f);
	begin(&f, st, TRZ_CAPTURE_GLOBAL);
	wait_for(&f, other, st);
	wait_for(&f, st, other);
	assert_int_equal(sim_host(f.s, f.c, other, count, &ran), TRZ_OK);
	end_in_vain(&f, st);
	expect_violation(&f, 1, "joined back");
	assert_int_equal(capture_status(&f, other), TRZ_CAPTURE_NONE);
	begin(&f, st, TRZ_CAPTURE_GLOBAL);
	wait_for(&f, other, st);
	end(&f, st);
	assert_int_equal(sim_violations(f.s), 1);
	fixture_close(&f);
}

static void test_wrong_begins_and_ends(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	sim_graph graph = 0;
	trz_stream st = make_stream(&f), other = make_stream(&f);
	assert_int_equal(sim_capture_begin(f.s, f.c, NULL, TRZ_CAPTURE_GLOBAL), TRZ_ERROR_CAPTURE);
	assert_int_equal(sim_capture_begin(f.s, f.c, (trz_stream)1, TRZ_CAPTURE_GLOBAL), TRZ_ERROR_CAPTURE);
	expect_clean(&f);
	assert_int_equal(sim_capture_end(f.s, f.c, st, &graph), TRZ_ERROR_INVALID_ARGUMENT);
	begin(&f, st, TRZ_CAPTURE_RELAXED);
	assert_int_equal(sim_capture_begin(f.s, f.c, st, TRZ_CAPTURE_GLOBAL), TRZ_ERROR_INVALID_ARGUMENT);
	wait_for(&f, other, st);
	assert_int_equal(sim_capture_end(f.s, f.c, other, &graph), TRZ_ERROR_CAPTURE);
	assert_int_equal(sim_violations(f.s), 3);
	graph = end(&f, st);
	begin(&f, other, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(sim_graph_launch(f.s, f.c, graph, other), TRZ_ERROR_NOT_SUPPORTED);
	end(&f, other);
	assert_int_equal(sim_graph_destroy(f.s, f.c, graph), TRZ_OK);
	assert_int_equal(sim_graph_launch(f.s, f.c, graph, st), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_graph_destroy(f.s, f.c, graph), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), 5);
	fixture_close(&f);
}

/* ---- what is forbidden meanwhile ------------------------------------------------------------------------ */

/* What the calls of `calls_of_all` are made on. */
struct call_site {
	struct fixture *f;
	trz_stream captured;
	trz_handle handle;
	trz_addr mapped, unmapped, plain;
	trz_event event;
	trz_status expected;
};

static trz_status call_nth(struct call_site *p, int n)
{
	const trz_driver *d = p->f->d;
	void *self = p->f->self;
	trz_tile_props props = {.device = 0};
	int device = 0;
	trz_handle handle;
	trz_addr address;
	switch (n) {
	case 0: return d->create(self, &props, granule, &handle);
	case 1: return d->map(self, p->unmapped, granule, p->handle);
	case 2: return d->set_access(self, p->mapped, granule, &device, 1);
	case 3: return d->unmap(self, p->mapped, granule);
	case 4: return d->release(self, p->handle);
	case 5: return d->mem_alloc(self, p->f->c, 4096, &address);
	case 6: return d->mem_free(self, p->f->c, p->plain);
	case 7: return d->event_query(self, p->f->c, p->event);
	default: return d->event_sync(self, p->f->c, p->event);
	}
}

enum { FORBIDDEN_CALLS = 9 };

/* Each forbidden call in a machine of its own, made by a thread with its own mode. */
static void *call_in_mode(void *arg)
{
	struct call_site *p = ((void **)arg)[0];
	trz_capture_mode *mode = ((void **)arg)[1];
	int *n = ((void **)arg)[2];
	exchange_mode(p->f, *mode);
	assert_int_equal(call_nth(p, *n), p->expected);
	exchange_mode(p->f, TRZ_CAPTURE_GLOBAL);
	return NULL;
}

static void try_all(trz_capture_mode capture, trz_capture_mode thread_mode, bool other_thread, bool forbidden,
                    unsigned lenient)
{
	for (int n = 0; n < FORBIDDEN_CALLS; n++) {
		struct fixture f = fixture_lenient(lenient);
		struct call_site site = {
			.f = &f, .captured = make_stream(&f), .handle = make_handle(&f, granule),
			.mapped = make_memory(&f, granule), .unmapped = make_range(&f, granule),
			.event = record_on(&f, make_stream(&f)), .expected = forbidden ? TRZ_ERROR_CAPTURE : TRZ_OK,
		};
		assert_int_equal(f.d->mem_alloc(f.self, f.c, 4096, &site.plain), TRZ_OK);
		uint64_t used = sim_device_used(f.s, 0);
		begin(&f, site.captured, capture);
		void *args[] = {&site, &thread_mode, &n};
		pthread_t thread;
		if (other_thread) {
			assert_int_equal(pthread_create(&thread, NULL, call_in_mode, args), 0);
			pthread_join(thread, NULL);
		} else {
			call_in_mode(args);
		}
		if (forbidden) {
			expect_violation(&f, 1, "captures stream");
			assert_int_equal(capture_status(&f, site.captured), TRZ_CAPTURE_INVALIDATED);
			assert_int_equal(sim_device_used(f.s, 0), used);
			end_in_vain(&f, site.captured);
			assert_int_equal(capture_status(&f, site.captured), TRZ_CAPTURE_NONE);
			site.expected = TRZ_OK;
			assert_int_equal(call_nth(&site, n), TRZ_OK);
		} else {
			expect_clean(&f);
			end(&f, site.captured);
		}
		fixture_close(&f);
	}
}

static void test_forbidden_calls_by_mode(void **state)
{
	(void)state;
	const trz_capture_mode global = TRZ_CAPTURE_GLOBAL, local = TRZ_CAPTURE_THREAD_LOCAL,
	                       relaxed = TRZ_CAPTURE_RELAXED;
	const bool here = false, elsewhere = true;
	try_all(global, global, here, true, 0);
	try_all(global, local, here, true, 0);
	try_all(global, relaxed, here, false, 0);
	try_all(local, global, here, true, 0);
	try_all(local, relaxed, here, false, 0);
	try_all(relaxed, global, here, false, 0);
	try_all(global, global, elsewhere, true, 0);
	try_all(global, local, elsewhere, false, 0);
	try_all(global, relaxed, elsewhere, false, 0);
	try_all(local, global, elsewhere, false, 0);
	try_all(relaxed, global, elsewhere, false, 0);
	try_all(global, global, here, false, SIM_RULE_CREATE_IN_CAPTURE | SIM_RULE_PLAIN_IN_CAPTURE);
}

static void test_invalidated_capture_takes_nothing_more(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned ran = 0;
	trz_tile_props props = {.device = 0};
	trz_handle h;
	trz_stream st = make_stream(&f), other = make_stream(&f);
	begin(&f, st, TRZ_CAPTURE_GLOBAL);
	trz_event e = record_on(&f, st);
	assert_int_equal(f.d->create(f.self, &props, granule, &h), TRZ_ERROR_CAPTURE);
	assert_int_equal(sim_host(f.s, f.c, st, count, &ran), TRZ_ERROR_CAPTURE);
	assert_int_equal(f.d->event_record(f.self, f.c, e, st), TRZ_ERROR_CAPTURE);
	assert_int_equal(f.d->stream_wait(f.self, f.c, other, e), TRZ_ERROR_CAPTURE);
	assert_int_equal(sim_violations(f.s), 1);
	end_in_vain(&f, st);
	assert_int_equal(sim_host(f.s, f.c, st, count, &ran), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, st), TRZ_OK);
	assert_int_equal(ran, 1);
	fixture_close(&f);
}

static void test_event_of_a_capture_cannot_be_asked(void **state)
{
	(void)state;
	for (int lenient = 0; lenient < 2; lenient++)
		for (int wait = 0; wait < 2; wait++) {
			struct fixture f = fixture_lenient(lenient ? SIM_RULE_CAPTURED_EVENT : 0);
			trz_stream st = make_stream(&f);
			begin(&f, st, TRZ_CAPTURE_RELAXED);
			trz_event e = record_on(&f, st);
			assert_int_equal(wait ? f.d->event_sync(f.self, f.c, e) : f.d->event_query(f.self, f.c, e),
			                 TRZ_ERROR_CAPTURE);
			assert_int_equal(sim_violations(f.s), !lenient);
			if (lenient)
				end(&f, st);
			else
				end_in_vain(&f, st);
			assert_int_equal(f.d->event_query(f.self, f.c, e), TRZ_ERROR_CAPTURE);
			assert_int_equal(f.d->event_record(f.self, f.c, e, st), TRZ_OK);
			assert_int_equal(f.d->event_query(f.self, f.c, e), TRZ_OK);
			assert_int_equal(sim_violations(f.s), lenient ? 0 : 2);
			fixture_close(&f);
		}
}

/* A record, work or a wait on the legacy stream: a free on some other thread is enough. */
static void test_legacy_stream_invalidates_blocking_captures(void **state)
{
	(void)state;
	for (int way = 0; way < 3; way++) {
		struct fixture f = fixture_lenient(0);
		unsigned ran = 0;
		trz_stream st = make_blocking_stream(&f), other = make_stream(&f);
		trz_event e = record_on(&f, other);
		begin(&f, st, TRZ_CAPTURE_RELAXED);
		begin(&f, other, TRZ_CAPTURE_RELAXED);
		trz_status status = way == 0 ? f.d->event_record(f.self, f.c, e, NULL)
		                  : way == 1 ? sim_host(f.s, f.c, (trz_stream)1, count, &ran)
		                             : f.d->stream_wait(f.self, f.c, NULL, e);
		assert_int_equal(status, TRZ_ERROR_CAPTURE);
		expect_violation(&f, 1, "legacy stream");
		assert_int_equal(capture_status(&f, st), TRZ_CAPTURE_INVALIDATED);
		assert_int_equal(capture_status(&f, other), TRZ_CAPTURE_ACTIVE);
		end_in_vain(&f, st);
		assert_int_equal(f.d->event_record(f.self, f.c, e, NULL), TRZ_OK);
		end(&f, other);
		assert_int_equal(sim_violations(f.s), 1);
		fixture_close(&f);
	}
}

static void test_legacy_stream_may_be_asked(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t id = 0;
	trz_stream own = (trz_stream)2, other = make_stream(&f);
	begin(&f, other, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(capture_status(&f, NULL), TRZ_CAPTURE_NONE);
	begin(&f, own, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(f.d->stream_capture(f.self, f.c, NULL, &status, &id), TRZ_ERROR_CAPTURE);
	assert_int_equal(capture_status(&f, own), TRZ_CAPTURE_ACTIVE);
	end(&f, own);
	end(&f, other);
	assert_int_equal(capture_status(&f, NULL), TRZ_CAPTURE_NONE);
	expect_clean(&f);
	fixture_close(&f);
}

/* By the question that nobody vouches for: the capture is lost, but for those who know better. */
static void test_legacy_stream_may_not_be_asked_for_more(void **state)
{
	(void)state;
	for (int lenient = 0; lenient < 2; lenient++) {
		struct fixture f = fixture_lenient(lenient ? SIM_RULE_INFO_OF_LEGACY : 0);
		trz_capture_status status = TRZ_CAPTURE_NONE;
		uint64_t id = 0;
		trz_stream own = (trz_stream)2, other = make_stream(&f);
		trz_context context = NULL;
		assert_int_equal(sim_context_create(f.s, 0, &context), TRZ_OK);
		begin(&f, own, TRZ_CAPTURE_RELAXED);
		begin(&f, other, TRZ_CAPTURE_RELAXED);
		assert_int_equal(sim_capture_info(f.s, f.c, own, &status, &id), TRZ_OK);
		assert_int_equal(status, TRZ_CAPTURE_ACTIVE);
		assert_int_equal(sim_capture_info(f.s, context, other, &status, &id), TRZ_OK);
		assert_int_equal(status, TRZ_CAPTURE_ACTIVE);
		assert_int_equal(sim_capture_info(f.s, context, NULL, &status, &id), TRZ_OK);
		assert_int_equal(status, TRZ_CAPTURE_NONE);
		assert_int_equal(sim_capture_info(f.s, f.c, NULL, &status, &id), TRZ_ERROR_CAPTURE);
		if (lenient)
			expect_clean(&f);
		else
			expect_violation(&f, 1, "legacy stream");
		assert_int_equal(capture_status(&f, own), lenient ? TRZ_CAPTURE_ACTIVE : TRZ_CAPTURE_INVALIDATED);
		assert_int_equal(capture_status(&f, other), TRZ_CAPTURE_ACTIVE);
		end(&f, other);
		sim_graph graph;
		trz_status ended = sim_capture_end(f.s, f.c, own, &graph);
		assert_int_equal(ended, lenient ? TRZ_OK : TRZ_ERROR_CAPTURE);
		assert_int_equal(sim_violations(f.s), !lenient);
		fixture_close(&f);
	}
}

static void test_captures_are_isolated(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_stream a = make_stream(&f), b = make_stream(&f), outside = make_stream(&f);
	trz_event before = record_on(&f, outside), never = make_event(&f);
	begin(&f, a, TRZ_CAPTURE_RELAXED);
	assert_int_equal(f.d->stream_wait(f.self, f.c, a, never), TRZ_OK);
	assert_int_equal(f.d->stream_wait(f.self, f.c, a, before), TRZ_ERROR_CAPTURE);
	expect_violation(&f, 1, "border of a capture");
	assert_int_equal(capture_status(&f, a), TRZ_CAPTURE_INVALIDATED);
	end_in_vain(&f, a);

	begin(&f, a, TRZ_CAPTURE_RELAXED);
	begin(&f, b, TRZ_CAPTURE_RELAXED);
	assert_int_equal(f.d->stream_wait(f.self, f.c, b, record_on(&f, a)), TRZ_ERROR_CAPTURE);
	end_in_vain(&f, a);
	end_in_vain(&f, b);
	assert_int_equal(sim_violations(f.s), 2);

	begin(&f, a, TRZ_CAPTURE_RELAXED);
	trz_event inside = record_on(&f, a);
	assert_int_equal(f.d->stream_wait(f.self, f.c, NULL, inside), TRZ_ERROR_CAPTURE);
	end_in_vain(&f, a);
	assert_int_equal(f.d->stream_wait(f.self, f.c, outside, inside), TRZ_ERROR_CAPTURE);
	assert_int_equal(sim_violations(f.s), 4);
	fixture_close(&f);
}

static void test_host_cannot_wait_for_what_is_captured(void **state)
{
	(void)state;
	for (int way = 0; way < 3; way++) {
		struct fixture f = fixture_lenient(0);
		trz_stream st = make_stream(&f), other = make_stream(&f);
		begin(&f, st, TRZ_CAPTURE_RELAXED);
		assert_int_equal(sim_stream_sync(f.s, f.c, other), TRZ_OK);
		trz_status status = way == 0 ? sim_stream_sync(f.s, f.c, st)
		                  : way == 1 ? sim_device_sync(f.s, 0) : sim_stream_destroy(f.s, f.c, st);
		assert_int_equal(status, TRZ_ERROR_CAPTURE);
		expect_violation(&f, 1, "captured");
		end_in_vain(&f, st);
		assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
		fixture_close(&f);
	}
}

static void test_stream_that_joined_may_end(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_stream st = make_stream(&f), other = make_stream(&f);
	trz_addr a = make_memory(&f, granule);
	begin(&f, st, TRZ_CAPTURE_RELAXED);
	wait_for(&f, other, st);
	assert_int_equal(sim_fill(f.s, f.c, other, a, granule, 5), TRZ_OK);
	wait_for(&f, st, other);
	assert_int_equal(sim_stream_destroy(f.s, f.c, other), TRZ_OK);
	launch(&f, end(&f, st), st);
	assert_int_equal(sim_stream_sync(f.s, f.c, st), TRZ_OK);
	uint8_t byte = 0;
	assert_true(sim_peek(f.s, a, &byte, 1));
	assert_int_equal(byte, 5);
	assert_int_equal(sim_violations(f.s), 0);
	fixture_close(&f);
}

/* A graph with the nodes of another, and a place of its own between them. */
static void test_nodes_are_copied_and_followed(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_stream st = make_stream(&f), other = make_stream(&f);
	trz_addr a = make_memory(&f, granule);
	size_t nodes[4], before[4], place = 99;
	sim_node_kind kind;
	begin(&f, st, TRZ_CAPTURE_RELAXED);
	assert_int_equal(sim_fill(f.s, f.c, st, a, granule, 1), TRZ_OK);
	assert_int_equal(sim_fill(f.s, f.c, st, a, 1, 2), TRZ_OK);
	sim_graph first = end(&f, st);
	assert_ptr_equal(sim_graph_context(f.s, first, 0), f.c);
	assert_ptr_equal(sim_graph_context(f.s, first, 7), NULL);

	begin(&f, st, TRZ_CAPTURE_RELAXED);
	wait_for(&f, other, st);
	assert_int_equal(sim_capture_copy(f.s, f.c, st, first, 0), TRZ_OK);
	assert_int_equal(sim_capture_copy(f.s, f.c, st, first, 9), TRZ_ERROR_INVALID_ARGUMENT);
	uint64_t capture = sim_capture_of(f.s, f.c, st);
	assert_int_equal(sim_graph_nodes(f.s, 0, capture, nodes, 4), 1);
	assert_int_equal(sim_capture_follow(f.s, f.c, other, nodes, 1, &place), TRZ_OK);
	assert_int_equal(sim_graph_node(f.s, 0, capture, place, &kind, before, 4), 1);
	assert_int_equal(before[0], nodes[0]);
	assert_int_equal(sim_capture_copy(f.s, f.c, other, first, 1), TRZ_OK);
	wait_for(&f, st, other);
	sim_graph second = end(&f, st);
	assert_int_equal(sim_graph_nodes(f.s, second, 0, nodes, 4), 3);
	assert_int_equal(sim_graph_destroy(f.s, f.c, first), TRZ_OK);
	launch(&f, second, st);
	assert_int_equal(sim_stream_sync(f.s, f.c, st), TRZ_OK);
	uint8_t bytes[2];
	assert_true(sim_peek(f.s, a, bytes, 2));
	assert_int_equal(bytes[0], 2);
	assert_int_equal(bytes[1], 1);
	assert_int_equal(sim_violations(f.s), 0);
	assert_int_equal(sim_capture_follow(f.s, f.c, st, NULL, 0, &place), TRZ_ERROR_INVALID_ARGUMENT);
	fixture_close(&f);
}

static void *end_elsewhere(void *arg)
{
	void **p = arg;
	struct fixture *f = p[0];
	sim_graph graph = 0;
	assert_int_equal(sim_capture_end(f->s, f->c, p[1], &graph), *(trz_status *)p[2]);
	return NULL;
}

static void test_end_in_another_thread(void **state)
{
	(void)state;
	for (int relaxed = 0; relaxed < 2; relaxed++) {
		struct fixture f = fixture_lenient(0);
		trz_stream st = make_stream(&f);
		trz_status expected = relaxed ? TRZ_OK : TRZ_ERROR_CAPTURE;
		begin(&f, st, relaxed ? TRZ_CAPTURE_RELAXED : TRZ_CAPTURE_THREAD_LOCAL);
		void *args[] = {&f, st, &expected};
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, args), 0);
		pthread_join(thread, NULL);
		assert_int_equal(sim_violations(f.s), !relaxed);
		if (!relaxed)
			end(&f, st);
		fixture_close(&f);
	}
}

/* ---- graphs and the memory behind them ---------------------------------------------------------------------- */

static sim_graph capture_stamp(struct fixture *f, trz_stream st, trz_addr a, uint64_t tag)
{
	begin(f, st, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(sim_stamp(f->s, f->c, st, a, granule, tag), TRZ_OK);
	return end(f, st);
}

static void test_stale_graph(void **state)
{
	(void)state;
	for (int relaid = 0; relaid < 2; relaid++) {
		struct fixture f = fixture_lenient(0);
		trz_handle h = make_handle(&f, granule);
		trz_addr a = make_range(&f, 2 * granule);
		trz_stream st = make_stream(&f);
		lay(&f, a, granule, h);
		sim_graph graph = capture_stamp(&f, st, a, 1);
		launch(&f, graph, st);
		assert_int_equal(sim_stream_sync(f.s, f.c, st), TRZ_OK);
		assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
		if (relaid)
			lay(&f, a, granule, h);
		expect_clean(&f);
		launch(&f, graph, st);
		sim_run(f.s, UINT64_MAX);
		expect_violation(&f, 1, relaid ? "younger" : "nothing is mapped");
		assert_non_null(strstr(sim_first_violation(f.s), "of a graph"));
		fixture_close(&f);
	}
}

static void fill_anew(struct fixture *f, trz_addr a, uint64_t size)
{
	assert_int_equal(f->d->unmap(f->self, a, size), TRZ_OK);
	lay(f, a, size, make_handle(f, size));
}

/* A program frees what fills a reservation, and fills it anew later: its graphs find it there. */
static void test_graph_of_a_reservation_filled_anew(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_range(&f, 2 * granule);
	trz_stream st = make_stream(&f);
	lay(&f, a, 2 * granule, make_handle(&f, 2 * granule));
	sim_graph graph = capture_stamp(&f, st, a, 1);
	for (int again = 0; again < 3; again++) {
		launch(&f, graph, st);
		assert_int_equal(sim_stream_sync(f.s, f.c, st), TRZ_OK);
		fill_anew(&f, a, 2 * granule);
		expect_clean(&f);
	}
	assert_int_equal(f.d->unmap(f.self, a, 2 * granule), TRZ_OK);
	lay(&f, a, granule, make_handle(&f, granule));  /* something else has been there */
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
	lay(&f, a, 2 * granule, make_handle(&f, 2 * granule));
	launch(&f, graph, st);
	sim_run(f.s, UINT64_MAX);
	expect_violation(&f, 1, "younger");
	fixture_close(&f);
}

/* Work that was enqueued before the memory went meant that memory. */
static void test_work_before_a_reservation_is_filled_anew(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(SIM_RULE_UNMAP_IN_USE);
	trz_addr a = make_range(&f, granule);
	trz_stream st = make_stream(&f);
	lay(&f, a, granule, make_handle(&f, granule));
	assert_int_equal(sim_stamp(f.s, f.c, st, a, granule, 1), TRZ_OK);
	fill_anew(&f, a, granule);
	sim_run(f.s, UINT64_MAX);
	expect_violation(&f, 1, "younger");
	fixture_close(&f);
}

static void test_unmap_under_a_launched_graph(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_memory(&f, granule);
	trz_stream st = make_stream(&f);
	launch(&f, capture_stamp(&f, st, a, 1), st);
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
	expect_violation(&f, 1, "unfinished stamp");
	fixture_close(&f);
}

/* A page of a graph's pool that is given to someone else while the graph lives: the next launch writes there. */
static void test_page_given_away_under_a_graph(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_handle h = make_handle(&f, granule);
	trz_addr a = make_range(&f, granule), b = make_range(&f, granule);
	trz_stream st = make_stream(&f);
	lay(&f, a, granule, h);
	sim_graph graph = capture_stamp(&f, st, a, 1);
	lay(&f, b, granule, h);
	assert_int_equal(sim_stamp(f.s, f.c, st, b, granule, 2), TRZ_OK);
	launch(&f, graph, st);
	assert_int_equal(sim_verify(f.s, f.c, st, b, granule, 2), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, st), TRZ_OK);
	expect_violation(&f, 1, "found tag 1");
	fixture_close(&f);
}

static void test_destroyed_graph_finishes(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	unsigned ran = 0;
	trz_stream st = make_stream(&f);
	begin(&f, st, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(sim_host(f.s, f.c, st, count, &ran), TRZ_OK);
	sim_graph graph = end(&f, st);
	assert_int_equal(sim_stream_destroy(f.s, f.c, st), TRZ_OK);
	launch(&f, graph, NULL);
	launch(&f, graph, NULL);
	assert_int_equal(sim_graph_destroy(f.s, f.c, graph), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, NULL), TRZ_OK);
	assert_int_equal(ran, 2);
	expect_clean(&f);
	fixture_close(&f);
}

/* Captures and graphs end with their context and with their device. */
static void test_captures_end_with_their_context(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_context own = NULL;
	trz_stream st = NULL, done = NULL;
	sim_graph graph = 0;
	trz_tile_props props = {.device = 0};
	trz_handle h;
	assert_int_equal(sim_context_create(f.s, 0, &own), TRZ_OK);
	assert_int_equal(sim_stream_create(f.s, own, false, &st), TRZ_OK);
	assert_int_equal(sim_stream_create(f.s, own, false, &done), TRZ_OK);
	assert_int_equal(sim_capture_begin(f.s, own, done, TRZ_CAPTURE_GLOBAL), TRZ_OK);
	assert_int_equal(sim_capture_end(f.s, own, done, &graph), TRZ_OK);
	assert_int_equal(sim_graph_launch(f.s, own, graph, done), TRZ_OK);
	assert_int_equal(sim_capture_begin(f.s, own, st, TRZ_CAPTURE_GLOBAL), TRZ_OK);
	assert_int_equal(sim_context_destroy(f.s, own), TRZ_OK);
	assert_int_equal(f.d->create(f.self, &props, granule, &h), TRZ_OK);
	assert_int_equal(sim_graph_destroy(f.s, f.c, graph), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "graph");
	begin(&f, make_stream(&f), TRZ_CAPTURE_GLOBAL);
	sim_kill_context(f.s, f.c);
	assert_int_equal(f.d->create(f.self, &props, granule, &h), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(sim_violations(f.s), 1);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_captured_work_runs_at_launches_only),
		cmocka_unit_test(test_status_and_id),
		cmocka_unit_test(test_forks_run_behind_their_waits),
		cmocka_unit_test(test_launches_of_one_graph_do_not_overlap),
		cmocka_unit_test(test_stream_that_is_not_joined_back),
		cmocka_unit_test(test_wrong_begins_and_ends),
		cmocka_unit_test(test_forbidden_calls_by_mode),
		cmocka_unit_test(test_invalidated_capture_takes_nothing_more),
		cmocka_unit_test(test_event_of_a_capture_cannot_be_asked),
		cmocka_unit_test(test_legacy_stream_invalidates_blocking_captures),
		cmocka_unit_test(test_legacy_stream_may_be_asked),
		cmocka_unit_test(test_legacy_stream_may_not_be_asked_for_more),
		cmocka_unit_test(test_captures_are_isolated),
		cmocka_unit_test(test_host_cannot_wait_for_what_is_captured),
		cmocka_unit_test(test_end_in_another_thread),
		cmocka_unit_test(test_stale_graph),
		cmocka_unit_test(test_graph_of_a_reservation_filled_anew),
		cmocka_unit_test(test_work_before_a_reservation_is_filled_anew),
		cmocka_unit_test(test_unmap_under_a_launched_graph),
		cmocka_unit_test(test_page_given_away_under_a_graph),
		cmocka_unit_test(test_stream_that_joined_may_end),
		cmocka_unit_test(test_nodes_are_copied_and_followed),
		cmocka_unit_test(test_destroyed_graph_finishes),
		cmocka_unit_test(test_captures_end_with_their_context),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
