/* SPDX-License-Identifier: Apache-2.0
 *
 * Dependent launches that do not wait, on the simulated device: which uses of the same memory the device catches, and
 * which edges between them make them right. bench/gpu/figures/aliasing.c asks a GPU the same.
 */
#include "sim_fixture.h"

static const uint64_t granule = MIB(2);

/* One tile laid at two addresses, and a stream. */
struct twins {
	struct fixture f;
	trz_handle h;
	trz_addr a, b;
	trz_stream st;
};

static struct twins twins_open(unsigned lenient_rules)
{
	struct twins t = {.f = fixture_lenient(lenient_rules)};
	t.h = make_handle(&t.f, granule);
	t.a = make_range(&t.f, granule);
	t.b = make_range(&t.f, granule);
	lay(&t.f, t.a, granule, t.h);
	lay(&t.f, t.b, granule, t.h);
	t.st = make_stream(&t.f);
	return t;
}

static void stamp(struct twins *t, trz_addr at)
{
	assert_int_equal(sim_stamp(t->f.s, t->f.c, t->st, at, 4096, 1), TRZ_OK);
}

static void stamp_dependent(struct twins *t, trz_addr at)
{
	assert_int_equal(sim_stamp_dependent(t->f.s, t->f.c, t->st, at, 4096, 2), TRZ_OK);
}

static void wait_for_itself(struct twins *t)
{
	assert_int_equal(t->f.d->stream_wait(t->f.self, t->f.c, t->st, record_on(&t->f, t->st)), TRZ_OK);
}

static void ignore(void *arg)
{
	(void)arg;
}

/* Lets all work run without the host's knowing, and ends the test. */
static void close_with(struct twins *t, uint64_t violations)
{
	sim_run(t->f.s, UINT64_MAX);
	if (violations)
		expect_violation(&t->f, violations, "overlap without wait");
	else
		expect_clean(&t->f);
	assert_int_equal(sim_unfinished(t->f.s), 0);
	fixture_close(&t->f);
}

static void test_overlap_at_any_address(void **state)
{
	(void)state;
	for (int same = 0; same < 2; same++) {
		struct twins t = twins_open(0);
		stamp(&t, t.a);
		stamp_dependent(&t, same ? t.a : t.b);
		close_with(&t, 1);
	}
}

/* That the first item has run already is luck, as long as the host has not seen it. */
static void test_overlap_after_the_fact(void **state)
{
	(void)state;
	struct twins t = twins_open(0);
	stamp(&t, t.a);
	sim_run(t.f.s, UINT64_MAX);
	stamp_dependent(&t, t.b);
	close_with(&t, 1);
}

static void test_other_bytes_are_fine(void **state)
{
	(void)state;
	struct twins t = twins_open(0);
	stamp(&t, t.a);
	stamp_dependent(&t, t.a + 4096);
	stamp_dependent(&t, t.b + 8192);
	close_with(&t, 0);
}

/* An item that is not dependent, or that waits, starts when those before it have completed. */
static void test_ordinary_item_needs_no_edge(void **state)
{
	(void)state;
	struct twins t = twins_open(0);
	stamp(&t, t.a);
	stamp(&t, t.b);
	stamp_dependent(&t, t.a + 4096);
	stamp(&t, t.a);
	close_with(&t, 0);
}

/* Measured: neither a record nor a wait for it on the same stream holds a dependent launch back. */
static void test_record_and_wait_are_no_edge(void **state)
{
	(void)state;
	for (int waits = 0; waits < 2; waits++) {
		struct twins t = twins_open(0);
		trz_event timed;
		stamp(&t, t.a);
		if (waits)
			wait_for_itself(&t);
		else
			record_on(&t.f, t.st);
		assert_int_equal(sim_event_create_timed(t.f.s, t.f.c, &timed), TRZ_OK);
		assert_int_equal(t.f.d->event_record(t.f.self, t.f.c, timed, t.st), TRZ_OK);
		stamp_dependent(&t, t.b);
		close_with(&t, 1);
	}
}

/* Another stream waits for the first item, and the stream for that one, when it has happened already or not. */
static void test_wait_for_another_stream_is_an_edge_by_rule(void **state)
{
	(void)state;
	for (int way = 0; way < 4; way++) {
		bool lenient = way & 1, happened = way & 2;
		struct twins t = twins_open(lenient ? SIM_RULE_WAIT_NO_EDGE : 0);
		trz_stream other = make_stream(&t.f);
		stamp(&t, t.a);
		assert_int_equal(t.f.d->stream_wait(t.f.self, t.f.c, other, record_on(&t.f, t.st)), TRZ_OK);
		trz_event after = record_on(&t.f, other);
		if (happened)
			sim_run(t.f.s, UINT64_MAX);
		assert_int_equal(t.f.d->stream_wait(t.f.self, t.f.c, t.st, after), TRZ_OK);
		stamp_dependent(&t, t.b);
		close_with(&t, !lenient);
	}
}

/* A stream that waits for an event behind dependent items starts when all of them have completed. */
static void test_other_stream_behind_the_event(void **state)
{
	(void)state;
	struct twins t = twins_open(0);
	trz_stream other = make_stream(&t.f);
	stamp(&t, t.a);
	stamp_dependent(&t, t.a + 4096);
	assert_int_equal(t.f.d->stream_wait(t.f.self, t.f.c, other, record_on(&t.f, t.st)), TRZ_OK);
	assert_int_equal(sim_verify(t.f.s, t.f.c, other, t.a, 4096, 1), TRZ_OK);
	assert_int_equal(sim_verify(t.f.s, t.f.c, other, t.a + 4096, 4096, 2), TRZ_OK);
	close_with(&t, 0);
}

/* A ticket that the host has seen to pass is an edge; one that it has not asked is none. */
static void test_passed_ticket_is_an_edge(void **state)
{
	(void)state;
	for (int way = 0; way < 5; way++) {
		struct twins t = twins_open(0);
		stamp(&t, t.a);
		trz_event e = record_on(&t.f, t.st);
		sim_run(t.f.s, UINT64_MAX);
		if (way == 0)
			assert_int_equal(t.f.d->event_query(t.f.self, t.f.c, e), TRZ_OK);
		else if (way == 1)
			assert_int_equal(t.f.d->event_sync(t.f.self, t.f.c, e), TRZ_OK);
		else if (way == 2)
			assert_int_equal(sim_stream_sync(t.f.s, t.f.c, t.st), TRZ_OK);
		else if (way == 3)
			assert_int_equal(sim_device_sync(t.f.s, 0), TRZ_OK);
		stamp_dependent(&t, t.b);
		close_with(&t, way == 4);
	}
}

/* The host asks an event of another stream, which has waited for the first, or has not. */
static void test_passed_ticket_is_an_edge_for_what_its_stream_waited_for(void **state)
{
	(void)state;
	for (int waited = 0; waited < 3; waited++) {
		struct twins t = twins_open(0);
		trz_stream other = NULL, third = NULL;
		assert_int_equal(sim_stream_create(t.f.s, t.f.c, false, &other), TRZ_OK);
		assert_int_equal(sim_stream_create(t.f.s, t.f.c, false, &third), TRZ_OK);
		stamp(&t, t.a);
		trz_event first = record_on(&t.f, t.st);
		if (waited == 2)
			sim_run(t.f.s, UINT64_MAX);  /* then the wait is none any more */
		if (waited)
			assert_int_equal(t.f.d->stream_wait(t.f.self, t.f.c, third, first), TRZ_OK);
		assert_int_equal(t.f.d->stream_wait(t.f.self, t.f.c, other, record_on(&t.f, third)), TRZ_OK);
		trz_event last = record_on(&t.f, other);
		sim_run(t.f.s, UINT64_MAX);
		assert_int_equal(sim_stream_destroy(t.f.s, t.f.c, other), TRZ_OK);
		assert_int_equal(t.f.d->event_query(t.f.self, t.f.c, last), TRZ_OK);
		stamp_dependent(&t, t.b);
		close_with(&t, !waited);
	}
}

static void test_item_between_that_is_not_dependent(void **state)
{
	(void)state;
	struct twins t = twins_open(0);
	stamp(&t, t.a);
	assert_int_equal(sim_host(t.f.s, t.f.c, t.st, ignore, NULL), TRZ_OK);
	stamp_dependent(&t, t.b);
	close_with(&t, 0);
}

/* A row of dependent items: the first of them may be there still when the last starts. */
static void test_row_of_dependent_items(void **state)
{
	(void)state;
	for (int edge_after = 0; edge_after <= 3; edge_after++) {
		struct twins t = twins_open(0);
		trz_addr other = make_memory(&t.f, granule);
		stamp(&t, t.a);
		for (int i = 1; i <= 3; i++) {
			if (i == edge_after)
				assert_int_equal(sim_host(t.f.s, t.f.c, t.st, ignore, NULL), TRZ_OK);
			stamp_dependent(&t, i == 3 ? t.b : other + (trz_addr)i * 4096);
		}
		close_with(&t, edge_after == 0);
	}
}

/* The tile is not at its old address any more: unmapped behind its use, laid elsewhere. */
static void test_tile_laid_elsewhere(void **state)
{
	(void)state;
	for (int settled = 0; settled < 2; settled++) {
		struct twins t = twins_open(0);
		trz_addr c = make_range(&t.f, 4 * granule) + granule;
		stamp(&t, t.a);
		sim_run(t.f.s, UINT64_MAX);
		assert_int_equal(t.f.d->unmap(t.f.self, t.a, granule), TRZ_OK);
		lay(&t.f, c, granule, t.h);
		if (settled)
			assert_int_equal(sim_stream_sync(t.f.s, t.f.c, t.st), TRZ_OK);
		stamp_dependent(&t, c);
		close_with(&t, !settled);
	}
}

/* A window of several tiles, of which a dependent item reaches one through its old address. */
static void test_one_tile_of_several(void **state)
{
	(void)state;
	struct twins t = twins_open(0);
	trz_addr window = make_range(&t.f, 3 * granule);
	lay(&t.f, window, granule, make_handle(&t.f, granule));
	lay(&t.f, window + granule, granule, t.h);
	lay(&t.f, window + 2 * granule, granule, make_handle(&t.f, granule));
	stamp(&t, t.a);
	assert_int_equal(sim_stamp_dependent(t.f.s, t.f.c, t.st, window, 3 * granule, 2), TRZ_OK);
	close_with(&t, 1);
}

static void test_graphs_keep_dependence(void **state)
{
	(void)state;
	for (int way = 0; way < 3; way++) {  /* nothing between the two, a record and a wait, an item */
		struct twins t = twins_open(0);
		sim_graph graph = 0;
		assert_int_equal(sim_capture_begin(t.f.s, t.f.c, t.st, TRZ_CAPTURE_GLOBAL), TRZ_OK);
		stamp(&t, t.a);
		if (way == 1)
			wait_for_itself(&t);
		else if (way == 2)
			assert_int_equal(sim_host(t.f.s, t.f.c, t.st, ignore, NULL), TRZ_OK);
		stamp_dependent(&t, t.b);
		assert_int_equal(sim_capture_end(t.f.s, t.f.c, t.st, &graph), TRZ_OK);
		for (int i = 0; i < 2; i++)
			assert_int_equal(sim_graph_launch(t.f.s, t.f.c, graph, t.st), TRZ_OK);
		close_with(&t, way == 2 ? 0 : 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_overlap_at_any_address),
		cmocka_unit_test(test_overlap_after_the_fact),
		cmocka_unit_test(test_other_bytes_are_fine),
		cmocka_unit_test(test_ordinary_item_needs_no_edge),
		cmocka_unit_test(test_record_and_wait_are_no_edge),
		cmocka_unit_test(test_wait_for_another_stream_is_an_edge_by_rule),
		cmocka_unit_test(test_other_stream_behind_the_event),
		cmocka_unit_test(test_passed_ticket_is_an_edge),
		cmocka_unit_test(test_passed_ticket_is_an_edge_for_what_its_stream_waited_for),
		cmocka_unit_test(test_item_between_that_is_not_dependent),
		cmocka_unit_test(test_row_of_dependent_items),
		cmocka_unit_test(test_tile_laid_elsewhere),
		cmocka_unit_test(test_one_tile_of_several),
		cmocka_unit_test(test_graphs_keep_dependence),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
