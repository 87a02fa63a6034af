/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans: a program that repeats itself, and whose memory has to move, comes to rest without more memory; a program that
 * departs from its plan is served as without; the heap's invariants hold throughout.
 */
#include "rig.h"

enum { PIECES = 48, WEIGHTS = 40 };

#define CONFIG "plan:on,tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:20,churn_per_mille:0,warm_per_mille:0"

/* Small pieces that all live at the end, between others that are gone by then; then most of the memory in one piece. */
static void step(struct rig *r, uint64_t grown)
{
	void *kept[PIECES], *gone[PIECES];
	for (int i = 0; i < PIECES; i++) {
		gone[i] = rig_alloc(r, MIB(3 + i % 5), NULL);
		kept[i] = rig_alloc(r, MIB(2 + i % 3), NULL);
		if (i % 2)
			rig_free(r, gone[i - 1]);
	}
	for (int i = 1; i < PIECES; i += 2)
		rig_free(r, gone[i]);
	void *large = rig_alloc(r, MIB(150) + grown, NULL);
	for (int i = 0; i < PIECES; i++)
		rig_free(r, kept[i]);
	void *last = rig_alloc(r, MIB(90), NULL);
	rig_free(r, large);
	rig_free(r, last);
}

static uint64_t memory_calls(const struct rig *r)
{
	return rig_stat(r, "driver_calls.map") + rig_stat(r, "driver_calls.create") + rig_stat(r, "driver_calls.unmap");
}

static void close_rig(struct rig *r)
{
	rig_check(r);
	rig_sync(r);
	rig_close(r);
}

static void hold_weights(struct rig *r, void **weights)
{
	for (int i = 0; i < WEIGHTS; i++)
		weights[i] = rig_alloc(r, MIB(2) + KIB(64) * (uint64_t)i, NULL);
}

static void free_weights(struct rig *r, void **weights)
{
	for (int i = 0; i < WEIGHTS; i++)
		rig_free(r, weights[i]);
}

static uint64_t calls_at_rest(struct rig *r)
{
	void *weights[WEIGHTS];
	hold_weights(r, weights);
	for (int i = 0; i < 16; i++) {
		step(r, i < 2 ? MIB(8) * (uint64_t)i : MIB(16));
		rig_check(r);
	}
	uint64_t calls = memory_calls(r);
	for (int i = 0; i < 20; i++)
		step(r, MIB(16));
	calls = memory_calls(r) - calls;
	free_weights(r, weights);
	return calls;
}

static void test_a_program_comes_to_rest(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), CONFIG);
	assert_int_equal(calls_at_rest(&r), 0);
	assert_true(rig_stat(&r, "plans") >= 1);
	assert_true(rig_stat(&r, "path_plan") > 20 * PIECES);
	close_rig(&r);
	r = rig_open(GIB(4), CONFIG ",plan:off");
	assert_true(calls_at_rest(&r) > 0);
	assert_int_equal(rig_stat(&r, "plans"), 0);
	close_rig(&r);
}

static void test_departures_are_served(void **state)
{
	(void)state;
	void *weights[WEIGHTS], *kept[8];
	struct rig r = rig_open(GIB(4), CONFIG);
	hold_weights(&r, weights);
	for (int i = 0; i < 16; i++)
		step(&r, MIB(16));
	assert_true(rig_stat(&r, "plans") >= 1);
	for (int i = 0; i < 8; i++) {
		step(&r, MIB(3) * (uint64_t)i);
		kept[i] = rig_alloc(&r, MIB(21) + MIB(2) * (uint64_t)i, NULL);
		rig_check(&r);
	}
	for (int i = 0; i < 8; i++)
		rig_free(&r, kept[i]);
	for (int i = 0; i < 8; i++) {
		step(&r, MIB(16));
		rig_check(&r);
	}
	free_weights(&r, weights);
	close_rig(&r);
}

static void test_trim_returns_a_plans_memory(void **state)
{
	(void)state;
	void *weights[WEIGHTS];
	struct rig r = rig_open(GIB(4), CONFIG);
	hold_weights(&r, weights);
	for (int i = 0; i < 16; i++)
		step(&r, MIB(16));
	free_weights(&r, weights);
	rig_sync(&r);
	assert_int_equal(trz_trim(r.heap, 0, NULL), TRZ_OK);
	rig_check(&r);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	hold_weights(&r, weights);
	for (int i = 0; i < 4; i++) {
		step(&r, MIB(16));
		rig_check(&r);
	}
	free_weights(&r, weights);
	close_rig(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_program_comes_to_rest),
		cmocka_unit_test(test_departures_are_served),
		cmocka_unit_test(test_trim_returns_a_plans_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
