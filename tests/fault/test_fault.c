/* SPDX-License-Identifier: Apache-2.0
 *
 * Every driver call of every public operation fails: the first, the second, and so on, once and from then on,
 * until the operation meets none of the faults any more. Prints how many points that were. And a context that
 * dies at each of these points.
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
	uint64_t nth;
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

static uint64_t sweep(const struct scenario *s, bool classic)
{
	uint64_t points = 0;
	for (size_t kind = 0; kind < LENGTH(kinds); kind++)
		for (int persistent = 0; persistent < 2; persistent++) {
			static struct point p;
			p = (struct point){s, classic, persistent, kinds[kind], 1};
			while (strike(&p)) {
				points++;
				assert_true(++p.nth < POINTS_MOST);
			}
		}
	return points;
}

static void sweep_all(bool classic)
{
	uint64_t points = 0;
	for (size_t i = 0; i < scenario_count; i++)
		if (!classic || !scenarios[i].vmm_only)
			points += sweep(&scenarios[i], classic);
	print_message("%llu injection points%s\n", (unsigned long long)points, classic ? " without vmm" : "");
	assert_true(points > 0);
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

/* Undisturbed, each scenario succeeds and goes the way that it is there to disturb. */
static void test_the_scenarios_do_what_they_say(void **state)
{
	(void)state;
	for (size_t i = 0; i < scenario_count; i++) {
		const struct scenario *s = &scenarios[i];
		struct stage g;
		stage_open(&g, s, false);
		uint64_t before = s->shows ? rig_stat(&g.rig, s->shows) : 0;
		trz_status status = s->run(&g), expected = TRZ_OK;
		if (s->shows && strcmp(s->shows, "num_ooms") == 0)
			expected = TRZ_ERROR_OUT_OF_MEMORY;
		if (status != expected || (s->shows && rig_stat(&g.rig, s->shows) == before))
			fail_msg("%s: %s, %s %llu", s->name, trz_status_name(status), s->shows ? s->shows : "",
			         (unsigned long long)before);
		stage_judge(&g, s, status);
	}
}

/* ---- a context that dies ------------------------------------------------------------------------------ */

/* From the n-th call on the context is dead: not one call comes after the one that says so. */
static bool die(const struct scenario *s, uint64_t nth)
{
	struct stage g;
	stage_open(&g, s, false);
	sim_fault_nth(g.rig.s, ~0ull, nth, true, TRZ_ERROR_CONTEXT_DEAD);
	trz_status status = s->run(&g);
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
		bool in_vain = s->shows && strcmp(s->shows, "num_ooms") == 0;  /* and the report's figures missing */
		if (status != TRZ_OK && status != TRZ_ERROR_CONTEXT_DEAD && !(in_vain && status == TRZ_ERROR_OUT_OF_MEMORY))
			fail_msg("%s, dead at call %llu: %s", s->name, (unsigned long long)nth, trz_status_name(status));
	}
	trz_close(g.rig.heap);
	assert_int_equal(sim_violations(g.rig.s), 0);
	sim_close(g.rig.s);
	return faults > 0;
}

static void test_the_context_dies_at_every_call(void **state)
{
	(void)state;
	uint64_t points = 0;
	for (size_t i = 0; i < scenario_count; i++)
		for (uint64_t nth = 1; die(&scenarios[i], nth); nth++)
			points++;
	print_message("%llu points of death\n", (unsigned long long)points);
	assert_true(points > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_scenarios_do_what_they_say),
		cmocka_unit_test_teardown(test_every_call_fails, tell_where),
		cmocka_unit_test_teardown(test_every_call_fails_without_vmm, tell_where),
		cmocka_unit_test(test_the_context_dies_at_every_call),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
