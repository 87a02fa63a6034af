/* SPDX-License-Identifier: Apache-2.0
 *
 * Every driver call of every public operation fails: the first, the second, and so on, once and from then on,
 * until the operation meets none of the faults. Prints the number of points. Then a context dies at each of these
 * points; then the driver refuses every call of each operation.
 */
#include <stdio.h>

#include "scenario.h"

enum { POINTS_MOST = 5000 };

static const trz_status kinds[] = {TRZ_ERROR_OUT_OF_MEMORY, TRZ_ERROR_DRIVER};

/* One disturbance. Returns whether it met a call. */
struct point {
	const struct scenario *scenario;
	bool classic, persistent;
	trz_status kind;
	uint64_t nth;                /* 0: no call fails */
};

static void explain(const struct point *p)
{
	print_error("%s%s: call %llu fails %s with %s\n", p->scenario->name, p->classic ? ", without vmm" : "",
	            (unsigned long long)p->nth, p->persistent ? "and all after it" : "once", trz_status_name(p->kind));
}

/* What the injected failure may come out as. A reservation that fails for want of memory is want of addresses; a close
 * that cannot wait for the streams says DRIVER. */
static bool is_sane(const struct point *p, bool closed, trz_status status)
{
	if (closed && status == TRZ_ERROR_DRIVER)
		return true;
	if (status == p->scenario->expected || status == p->scenario->also)
		return true;
	return status == TRZ_OK || status == p->kind || status == TRZ_ERROR_OUT_OF_MEMORY ||
	       (p->kind == TRZ_ERROR_OUT_OF_MEMORY && status == TRZ_ERROR_ADDRESS_SPACE);
}

static const struct point *current;

static bool strike(const struct point *p)
{
	struct stage g;
	current = p;
	stage_open(&g, p->scenario, p->classic);
	sim_fault_nth(g.rig.s, ~0ull, p->nth, p->persistent, p->kind);
	trz_status status = p->scenario->run(&g);
	bool met = sim_faults(g.rig.s) > 0;
	sim_fault_nth(g.rig.s, 0, 0, false, TRZ_OK);
	if (!is_sane(p, !g.rig.heap, status)) {
		explain(p);
		fail_msg("gave %s: %s", trz_status_name(status), trz_last_error());
	}
	if (status == TRZ_OK && !g.rig.heap && met && sim_leaks(g.rig.s, NULL, 0)) {
		explain(p);
		fail_msg("close left something with the driver and did not say so");
	}
	stage_judge(&g, p->scenario, status);
	current = NULL;
	return met;
}

/* cmocka leaves a failed test without a word about where it stood. */
static int tell_where(void **state)
{
	(void)state;
	if (current)
		explain(current);
	current = NULL;
	return 0;
}

/* How many calls the undisturbed operation makes: so many points there are, or nearly. */
static uint64_t count_calls(const struct scenario *s, bool classic)
{
	struct stage g;
	stage_open(&g, s, classic);
	uint64_t before = rig_calls(&g.rig);
	trz_status status = s->run(&g);
	uint64_t calls = rig_calls(&g.rig) - before;
	stage_judge(&g, s, status);
	return calls;
}

static uint64_t sweep(const struct scenario *s, bool classic)
{
	uint64_t points = 0, stride = scenario_stride(s, count_calls(s, classic));
	for (size_t kind = 0; kind < LENGTH(kinds); kind++)
		for (int persistent = 0; persistent < 2; persistent++) {
			static struct point p;
			p = (struct point){s, classic, persistent, kinds[kind], 1};
			while (strike(&p)) {
				points++;
				p.nth += stride;
				assert_true(p.nth < POINTS_MOST);
			}
		}
	return points;
}

static void sweep_all(bool classic)
{
	uint64_t points = 0;
	FOR_SCENARIOS(i, s)
		if (!classic || !s->vmm_only)
			points += sweep(s, classic);
	print_message("%llu injection points%s\n", (unsigned long long)points, classic ? " without vmm" : "");
	assert_true(points > 0 || scenarios_are_chosen());
}

static void test_every_call_fails(void **state)
{
	(void)state;
	sweep_all(false);
}

static void test_every_call_fails_without_vmm(void **state)
{
	(void)state;
	sweep_all(true);
}

static const char *unproven;

static int tell_which(void **state)
{
	(void)state;
	if (unproven)
		print_error("undisturbed: %s\n", unproven);
	return 0;
}

/* Undisturbed, each scenario succeeds and goes the way that it is there to disturb. */
static void test_the_scenarios_do_what_they_say(void **state)
{
	(void)state;
	FOR_SCENARIOS(i, s) {
		struct stage g;
		unproven = s->name;
		stage_open(&g, s, false);
		uint64_t before = s->shows ? rig_stat(&g.rig, s->shows) : 0;
		trz_status status = s->run(&g);
		if (status != s->expected || (s->shows && rig_stat(&g.rig, s->shows) == before))
			fail_msg("%s: %s, %s %llu", s->name, trz_status_name(status), s->shows ? s->shows : "",
			         (unsigned long long)before);
		if (s->proof)
			s->proof(&g);
		stage_judge(&g, s, status);
	}
	unproven = NULL;
}

/* ---- a context that dies ------------------------------------------------------------------------------ */

/* A context that has died leaves the threads their capture modes: setting one is no call about the context. */
static trz_capture_mode capture_mode_of(struct rig *r)
{
	trz_capture_mode mode = TRZ_CAPTURE_RELAXED, other;
	assert_ok(r->d->capture_mode(r->d->self, &mode));
	other = mode;
	assert_ok(r->d->capture_mode(r->d->self, &other));
	return mode;
}

/* From the n-th call on the context is dead: not one call comes after the one that says so. The thread is left in the
 * capture mode that it came with. */
static bool die(const struct scenario *s, uint64_t nth)
{
	struct stage g;
	stage_open(&g, s, false);
	sim_fault_nth(g.rig.s, ~(1ull << SIM_SLOT_capture_mode), nth, true, TRZ_ERROR_CONTEXT_DEAD);
	trz_status status = s->run(&g);
	if (capture_mode_of(&g.rig) != TRZ_CAPTURE_GLOBAL)
		fail_msg("%s, dead at call %llu: the thread is left in another capture mode", s->name,
		         (unsigned long long)nth);
	uint64_t faults = sim_faults(g.rig.s);
	if (faults > 1)
		fail_msg("%s: %llu calls after the one that said the context is dead (call %llu)", s->name,
		         (unsigned long long)faults - 1, (unsigned long long)nth);
	if (faults && g.rig.heap) {
		void *p = &g;
		uint64_t calls = rig_calls(&g.rig);
		assert_status(trz_alloc(g.rig.heap, 100, 0, g.a, &p), TRZ_ERROR_CONTEXT_DEAD);
		assert_null(p);
		assert_status(trz_alloc(g.rig.heap, MIB(50), 0, g.a, &p), TRZ_ERROR_CONTEXT_DEAD);
		assert_int_equal(rig_calls(&g.rig), calls);
		assert_ok(trz_check(g.rig.heap));
		if (status != TRZ_OK && status != TRZ_ERROR_CONTEXT_DEAD && status != s->expected)
			fail_msg("%s, dead at call %llu: %s", s->name, (unsigned long long)nth, trz_status_name(status));
	}
	trz_close(g.rig.heap);
	assert_int_equal(sim_violations(g.rig.s), 0);
	sim_close(g.rig.s);
	return faults > 0;
}

static uint64_t die_everywhere(const struct scenario *s)
{
	uint64_t points = 0, stride = scenario_stride(s, count_calls(s, false));
	for (uint64_t nth = 1; die(s, nth); nth += stride)
		points++;
	return points;
}

static void test_the_context_dies_at_every_call(void **state)
{
	(void)state;
	uint64_t points = 0;
	FOR_SCENARIOS(i, s)
		if (!s->two_contexts)
			points += die_everywhere(s);
	print_message("%llu points of death\n", (unsigned long long)points);
	assert_true(points > 0 || scenarios_are_chosen());
}

/* ---- host functions ------------------------------------------------------------------------------------ */

struct errand {
	struct stage g;
	const struct scenario *scenario;
	trz_status status;
};

static void run_errand(void *arg)
{
	struct errand *e = arg;
	e->status = e->scenario->run(&e->g);
}

/* Inside a host function the driver takes no call: what needs one says so, and the heap is as if nobody had asked. */
static bool call_back(const struct scenario *s, bool classic)
{
	struct errand e = {.scenario = s};
	struct rig *r = &e.g.rig;
	stage_open(&e.g, s, classic);
	trz_heap *heap = r->heap;
	assert_ok(sim_host(r->s, r->c, rig_stream(r), run_errand, &e));
	rig_sync(r);
	bool refused = e.status == TRZ_ERROR_NOT_PERMITTED;
	if (!refused && e.status != TRZ_OK && e.status != TRZ_ERROR_OUT_OF_MEMORY && e.status != s->expected)
		fail_msg("%s in a host function gave %s: %s", s->name, trz_status_name(e.status), trz_last_error());
	if (refused && heap && !r->heap) {  /* it could not be closed there */
		assert_ok(trz_check(heap));
		assert_ok(trz_close(heap));
		assert_int_equal(sim_leaks(r->s, NULL, 0), 0);
	}
	stage_judge(&e.g, s, e.status);
	return refused;
}

static void test_in_a_host_function(void **state)
{
	(void)state;
	unsigned count[2] = {0, 0};
	for (int classic = 0; classic < 2; classic++)
		FOR_SCENARIOS(i, s)
			if (!classic || !s->vmm_only)
				count[call_back(s, classic)]++;
	print_message("%u operations succeed in a host function, %u are refused\n", count[0], count[1]);
	assert_true((count[0] > 0 && count[1] > 0) || scenarios_are_chosen());
}

/* An argument: only scenarios whose names contain it. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_the_scenarios_do_what_they_say, tell_which),
		cmocka_unit_test_teardown(test_every_call_fails, tell_where),
		cmocka_unit_test_teardown(test_every_call_fails_without_vmm, tell_where),
		cmocka_unit_test(test_the_context_dies_at_every_call),
		cmocka_unit_test(test_in_a_host_function),
	};
	if (argc > 1)
		scenario_choose(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
