/* SPDX-License-Identifier: Apache-2.0
 *
 * Meetings: items of streams that complete when other ranks have come. This test plays the other ranks.
 */
#include "sim_fixture.h"

#include <stdio.h>

static const uint64_t granule = MIB(2);

struct side {
	unsigned arrived, finished, dropped, waits, launched;
	bool allowed, met, comes_on_wait, fails, refuses;
};

static struct side side;

static bool can_arrive(void *arg)
{
	return ((struct side *)arg)->allowed;
}

static void arrive(void *arg)
{
	((struct side *)arg)->arrived++;
}

static int met(void *arg)
{
	const struct side *s = arg;
	return s->met ? SIM_MEET_COMPLETE : SIM_MEET_AWAITS;
}

static int finish(void *arg, char *text, size_t size)
{
	struct side *s = arg;
	s->finished++;
	snprintf(text, size, "the others never came");
	return s->fails ? SIM_MEET_FAILED : SIM_MEET_COMPLETE;
}

static void drop(void *arg)
{
	((struct side *)arg)->dropped++;
}

static void *again(void *arg, char *text, size_t size)
{
	struct side *s = arg;
	s->launched++;
	snprintf(text, size, "the others are gone");
	return s->refuses ? NULL : s;
}

static uint32_t mark(void)
{
	return side.waits;
}

static void *tell(void *arg)
{
	return arg;
}

/* The others come while the host waits. */
static void wait_for_others(void *ticket, uint32_t seen)
{
	struct side *s = ticket;
	assert_int_equal(seen, s->waits);
	s->waits++;
	s->allowed = true;
	s->met = s->met || (s->arrived && s->comes_on_wait);
}

static trz_status enqueue(struct fixture *f, trz_stream st, trz_addr address)
{
	const struct sim_use use = {address, granule, true};
	const struct sim_meeting m = {
		.name = "sum", .uses = &use, .count = 1, .real_bytes = granule, .can_arrive = can_arrive, .arrive = arrive,
		.met = met, .finish = finish, .drop = drop, .again = again, .mark = mark, .tell = tell,
		.wait = wait_for_others, .arg = &side,
	};
	return sim_meet(f->s, f->c, st, &m);
}

static struct fixture open_with(struct side start)
{
	side = start;
	return fixture_lenient(0);
}

static void expect_side(unsigned arrived, unsigned finished, unsigned dropped)
{
	assert_int_equal(side.arrived, arrived);
	assert_int_equal(side.finished, finished);
	assert_int_equal(side.dropped, dropped);
}

static void test_a_stream_arrives_then_awaits_the_others(void **state)
{
	(void)state;
	struct fixture f = open_with((struct side){.allowed = false});
	trz_addr address = make_memory(&f, granule);
	trz_stream st = make_stream(&f);
	assert_int_equal(enqueue(&f, st, address), TRZ_OK);
	assert_int_equal(sim_run(f.s, 9), 0);
	expect_side(0, 0, 0);
	side.allowed = true;
	assert_int_equal(sim_run(f.s, 9), 1);
	expect_side(1, 0, 0);
	trz_event after = record_on(&f, st);
	assert_int_equal(f.d->event_query(f.self, f.c, after), TRZ_NOT_READY);
	side.met = true;
	assert_int_equal(sim_run(f.s, 9), 1);
	expect_side(1, 1, 1);
	assert_int_equal(f.d->event_query(f.self, f.c, after), TRZ_OK);
	assert_int_equal(sim_violations(f.s), 0);
	fixture_close(&f);
}

static void test_a_host_that_blocks_lets_others_come(void **state)
{
	(void)state;
	struct fixture f = open_with((struct side){.comes_on_wait = true});
	trz_addr address = make_memory(&f, granule);
	trz_stream st = make_stream(&f), other = make_stream(&f);
	assert_int_equal(enqueue(&f, st, address), TRZ_OK);
	trz_event after = record_on(&f, st);
	assert_int_equal(f.d->stream_wait(f.self, f.c, other, after), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, f.c, other), TRZ_OK);
	expect_side(1, 1, 1);
	assert_int_equal(side.waits, 2);  /* for room, and for the others */
	assert_int_equal(sim_violations(f.s), 0);
	fixture_close(&f);
}

static void test_memory_that_is_gone_is_named(void **state)
{
	(void)state;
	for (int arrived = 0; arrived < 2; arrived++) {
		side = (struct side){.allowed = true};
		struct fixture f = fixture_lenient(SIM_RULE_UNMAP_IN_USE);
		trz_handle handle = make_handle(&f, granule);
		trz_addr address = make_range(&f, granule);
		lay(&f, address, granule, handle);
		trz_stream st = make_stream(&f);
		assert_int_equal(enqueue(&f, st, address), TRZ_OK);
		if (arrived)
			sim_run(f.s, 9);
		assert_int_equal(f.d->unmap(f.self, address, granule), TRZ_OK);
		side.met = true;
		uint64_t before = sim_violations(f.s);
		sim_run(f.s, 9);
		assert_int_equal(sim_violations(f.s), before + 1);
		expect_side((unsigned)arrived, 0, 1);
		fixture_close(&f);
	}
}

static void test_a_failure_is_a_violation(void **state)
{
	(void)state;
	struct fixture f = open_with((struct side){.allowed = true, .met = true, .fails = true});
	trz_addr address = make_memory(&f, granule);
	trz_stream st = make_stream(&f);
	assert_int_equal(enqueue(&f, st, address), TRZ_OK);
	sim_run(f.s, 9);
	expect_side(1, 1, 1);
	assert_string_equal(sim_first_violation(f.s), "the others never came");
	fixture_close(&f);
}

static void test_what_never_completes_is_dropped(void **state)
{
	(void)state;
	struct fixture f = open_with((struct side){.allowed = true});
	trz_addr address = make_memory(&f, granule);
	trz_stream st = make_stream(&f);
	assert_int_equal(enqueue(&f, st, address), TRZ_OK);
	sim_run(f.s, 9);
	fixture_close(&f);
	expect_side(1, 0, 1);
}

/* A fill on another stream, enqueued first, that nothing orders before it. */
static void test_a_race_with_a_fill_is_named(void **state)
{
	(void)state;
	struct fixture f = open_with((struct side){.allowed = true, .met = true});
	trz_addr address = make_memory(&f, granule);
	trz_stream st = make_stream(&f), other = make_stream(&f);
	uint32_t flag = 0;
	assert_int_equal(sim_spin(f.s, f.c, other, &flag), TRZ_OK);
	assert_int_equal(sim_fill(f.s, f.c, other, address, 8, 1), TRZ_OK);
	assert_int_equal(enqueue(&f, st, address), TRZ_OK);
	sim_run(f.s, 9);
	assert_int_equal(sim_violations(f.s), 1);
	assert_non_null(strstr(sim_first_violation(f.s), "race: collective sum"));
	flag = 1;
	fixture_close(&f);
}

/* The graph of a meeting with the memory at `address`. */
static sim_graph capture(struct fixture *f, trz_stream st, trz_addr address)
{
	sim_graph graph = 0;
	assert_int_equal(sim_capture_begin(f->s, f->c, st, TRZ_CAPTURE_GLOBAL), TRZ_OK);
	assert_int_equal(enqueue(f, st, address), TRZ_OK);
	assert_int_equal(sim_capture_end(f->s, f->c, st, &graph), TRZ_OK);
	sim_run(f->s, 9);
	expect_side(0, 0, 0);
	return graph;
}

static void test_each_launch_of_a_graph_is_a_meeting(void **state)
{
	(void)state;
	struct fixture f = open_with((struct side){.allowed = true});
	trz_addr address = make_memory(&f, granule);
	trz_stream st = make_stream(&f);
	sim_graph graph = capture(&f, st, address);
	assert_int_equal(sim_graph_launch(f.s, f.c, graph, st), TRZ_OK);
	assert_int_equal(sim_graph_launch(f.s, f.c, graph, st), TRZ_OK);
	assert_int_equal(side.launched, 2);
	trz_event after = record_on(&f, st);
	sim_run(f.s, 9);
	expect_side(1, 0, 0);  /* the second waits for the first */
	assert_int_equal(sim_graph_destroy(f.s, f.c, graph), TRZ_OK);
	expect_side(1, 0, 1);  /* what has been launched goes on */
	side.met = true;
	sim_run(f.s, 9);
	expect_side(2, 2, 3);
	assert_int_equal(f.d->event_query(f.self, f.c, after), TRZ_OK);
	assert_int_equal(sim_violations(f.s), 0);
	fixture_close(&f);
}

static void test_a_launch_that_no_one_can_meet_is_a_violation(void **state)
{
	(void)state;
	struct fixture f = open_with((struct side){.allowed = true, .met = true, .refuses = true});
	trz_addr address = make_memory(&f, granule);
	trz_stream st = make_stream(&f);
	sim_graph graph = capture(&f, st, address);
	assert_int_not_equal(sim_graph_launch(f.s, f.c, graph, st), TRZ_OK);
	assert_string_equal(sim_first_violation(f.s), "the others are gone");
	sim_run(f.s, 9);
	fixture_close(&f);
	expect_side(0, 0, 1);
}

/* Memory mapped after the capture is not what the graph was made for. */
static void test_a_launch_after_the_memory_has_gone_is_named(void **state)
{
	(void)state;
	struct fixture f = open_with((struct side){.allowed = true, .met = true});
	trz_handle handle = make_handle(&f, granule);
	trz_addr address = make_range(&f, 2 * granule);
	lay(&f, address, granule, handle);
	trz_stream st = make_stream(&f);
	sim_graph graph = capture(&f, st, address);
	assert_int_equal(f.d->unmap(f.self, address, granule), TRZ_OK);
	lay(&f, address, granule, handle);
	assert_int_equal(sim_graph_launch(f.s, f.c, graph, st), TRZ_OK);
	sim_run(f.s, 9);
	assert_int_equal(sim_violations(f.s), 1);
	assert_non_null(strstr(sim_first_violation(f.s), "illegal access by collective sum on stream"));
	assert_non_null(strstr(sim_first_violation(f.s), " of a graph, which writes"));
	fixture_close(&f);
	expect_side(0, 0, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stream_arrives_then_awaits_the_others),
		cmocka_unit_test(test_a_host_that_blocks_lets_others_come),
		cmocka_unit_test(test_memory_that_is_gone_is_named),
		cmocka_unit_test(test_a_failure_is_a_violation),
		cmocka_unit_test(test_what_never_completes_is_dropped),
		cmocka_unit_test(test_a_race_with_a_fill_is_named),
		cmocka_unit_test(test_each_launch_of_a_graph_is_a_meeting),
		cmocka_unit_test(test_a_launch_that_no_one_can_meet_is_a_violation),
		cmocka_unit_test(test_a_launch_after_the_memory_has_gone_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
