/* SPDX-License-Identifier: Apache-2.0
 *
 * Replay of small traces: what it counts, and that running out of memory is counted and survived.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bits.h"
#include "prng.h"
#include "replay.h"

static void add_alloc(struct trace *trace, uint64_t size, uint16_t stream)
{
	struct trace_event event = { .kind = TRACE_ALLOC, .id = trace->allocs, .size = size, .stream = stream };
	assert_int_equal(trace_add(trace, &event), TRZ_OK);
}

static void add_free(struct trace *trace, uint32_t id, uint16_t stream)
{
	struct trace_event event = { .kind = TRACE_FREE, .id = id, .stream = stream };
	assert_int_equal(trace_add(trace, &event), TRZ_OK);
}

static void replay(const struct trace *trace, const struct replay_params *params,
                   struct replay_result *result)
{
	trz_status status = replay_run(trace, params, result);
	if (status != TRZ_OK)
		fail_msg("%s: %s", trz_status_name(status), trz_last_error());
	if (result->violations || result->leaks)
		fail_msg("%s", result->problem);
}

static void counts_peaks(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	add_alloc(&trace, 1000, 0);
	add_alloc(&trace, MIB(3) + 1, 0);
	add_free(&trace, 0, 0);
	add_alloc(&trace, 0, 0);
	add_alloc(&trace, 1, 1);
	add_free(&trace, 2, 0);
	add_free(&trace, 1, 0);
	for (int policy = REPLAY_TERRAZZO; policy <= REPLAY_NAIVE; policy++) {
		struct replay_params params = { .policy = (enum replay_policy)policy, .capacity = GIB(1) };
		params.check = true;
		struct replay_result result;
		replay(&trace, &params, &result);
		assert_int_equal(result.events, 7);
		assert_int_equal(result.streams, 2);
		assert_int_equal(result.peak_requested_bytes, MIB(3) + 1 + 1000);
		assert_int_equal(result.peak_allocated_bytes, MIB(3) + 512 + 1024);
		assert_true(result.peak_reserved_bytes >= result.peak_allocated_bytes);
		assert_true(result.end_reserved_bytes > 0);
		assert_true(result.driver_time_ns >= result.max_driver_time_per_alloc_ns);
		assert_int_equal(result.ooms, 0);
		assert_int_equal(result.heap_valid, policy == REPLAY_TERRAZZO);
	}
	trace_free(&trace);
}

static void naive_calls_once_per_request(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	for (uint32_t i = 0; i < 8; i++) {
		add_alloc(&trace, MIB(2), 0);
		add_free(&trace, i, 0);
	}
	struct replay_params params = { .policy = REPLAY_NAIVE, .capacity = GIB(1), .repeat = 3 };
	struct replay_result result;
	replay(&trace, &params, &result);
	assert_int_equal(result.driver_calls[SIM_SLOT_mem_alloc], 24);
	assert_int_equal(result.driver_calls[SIM_SLOT_mem_free], 24);
	assert_int_equal(result.driver_calls_last_quarter, 12);
	assert_int_equal(result.operations, 48);
	assert_int_equal(result.end_reserved_bytes, 0);
	trace_free(&trace);
}

static void survives_out_of_memory(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	add_alloc(&trace, MIB(64), 0);
	add_alloc(&trace, MIB(256), 0);
	add_alloc(&trace, UINT64_C(1) << 50, 0);
	add_alloc(&trace, MIB(1), 0);
	add_free(&trace, 1, 0);
	add_free(&trace, 2, 0);
	add_free(&trace, 0, 0);
	add_free(&trace, 3, 0);
	for (int policy = REPLAY_TERRAZZO; policy <= REPLAY_NAIVE; policy++) {
		struct replay_params params = { .policy = (enum replay_policy)policy, .capacity = MIB(128) };
		struct replay_result result;
		replay(&trace, &params, &result);
		assert_int_equal(result.ooms, 2);
		assert_int_equal(result.peak_requested_bytes, MIB(65));
	}
	trace_free(&trace);
}

/* Passes over one heap; blocks live at a pass's end are freed before the next; several streams run late. */
static void repeats_with_lag(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	uint32_t live[64], count = 0;
	uint16_t streams[4096];
	uint64_t rng = 7;
	for (int i = 0; i < 4000; i++) {
		if (count == 64 || (count > 0 && prng_below(&rng, 2))) {
			uint32_t which = (uint32_t)prng_below(&rng, count);
			add_free(&trace, live[which], streams[live[which]]);
			live[which] = live[--count];
		} else {
			streams[trace.allocs] = (uint16_t)prng_below(&rng, 3);
			live[count++] = trace.allocs;
			add_alloc(&trace, 1 + (prng_next(&rng) >> (40 + prng_below(&rng, 20))), streams[trace.allocs]);
		}
	}
	for (int schedule = 0; schedule < SIM_SCHEDULES; schedule++) {
		struct replay_params params = { .capacity = GIB(8), .lag = 50, .repeat = 2, .check = true, .seed = 3,
		                                .schedule = (sim_schedule)schedule };
		struct replay_result result;
		replay(&trace, &params, &result);
		assert_int_equal(result.events, 8000);
		assert_int_equal(result.ooms, 0);
		assert_true(result.operations >= 8000);
	}
	trace_free(&trace);
}

static void bad_settings_are_named(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	add_alloc(&trace, 1, 0);
	struct replay_result result;
	struct replay_params conf = { .conf = "no_such_key:1" };
	assert_int_equal(replay_run(&trace, &conf, &result), TRZ_ERROR_CONFIG_KEY);
	assert_non_null(strstr(trz_last_error(), "no_such_key"));
	struct replay_params costs = { .costs = "/nonexistent/costs.ini" };
	assert_int_not_equal(replay_run(&trace, &costs, &result), TRZ_OK);
	assert_non_null(strstr(trz_last_error(), "costs.ini"));
	trace_free(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_peaks),
		cmocka_unit_test(naive_calls_once_per_request),
		cmocka_unit_test(survives_out_of_memory),
		cmocka_unit_test(repeats_with_lag),
		cmocka_unit_test(bad_settings_are_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
