/* SPDX-License-Identifier: Apache-2.0
 *
 * What small traces need from any allocator, worked out by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "bits.h"
#include "replay.h"
#include "synth.h"

enum { NEVER = INT32_MAX };

static void add(struct trace *trace, enum trace_kind kind, uint32_t id, uint16_t stream, uint64_t size, uint32_t pool)
{
	struct trace_event event = { .kind = (uint8_t)kind, .id = id, .size = size, .stream = stream, .pool = pool };
	assert_int_equal(trace_add(trace, &event), TRZ_OK);
}

/* Returns the id. */
static uint32_t get(struct trace *trace, uint16_t stream, uint64_t mib)
{
	add(trace, TRACE_ALLOC, trace->allocs, stream, MIB(mib), 0);
	return trace->allocs - 1;
}

static uint32_t get_of_pool(struct trace *trace, uint16_t stream, uint64_t mib, uint32_t pool)
{
	add(trace, TRACE_ALLOC, trace->allocs, stream, MIB(mib), pool);
	return trace->allocs - 1;
}

static void give(struct trace *trace, uint32_t id, uint16_t stream)
{
	add(trace, TRACE_FREE, id, stream, 0, 0);
}

static void record(struct trace *trace, uint32_t event, uint16_t stream)
{
	add(trace, TRACE_EVENT_RECORD, event, stream, 0, 0);
}

static void await(struct trace *trace, uint32_t event, uint16_t stream)
{
	add(trace, TRACE_STREAM_WAIT, event, stream, 0, 0);
}

/* In MiB. */
static uint64_t bound_of(const struct trace *trace, uint64_t lag)
{
	struct replay_bound bound;
	assert_int_equal(replay_bound(trace, lag, &bound), TRZ_OK);
	assert_true(bound.bytes >= bound.peak_allocated_bytes);
	return bound.bytes / MIB(1);
}

/* Memory that stream 1 has freed, and stream 2 wants 4 MiB: what that needs in all, with what is added between. */
static uint64_t handed_over(void (*between)(struct trace *))
{
	struct trace trace = { .streams = 1 };
	give(&trace, get(&trace, 1, 4), 1);
	between(&trace);
	get(&trace, 2, 4);
	uint64_t mib = bound_of(&trace, NEVER);
	trace_free(&trace);
	return mib;
}

static void nothing(struct trace *trace)
{
	(void)trace;
}

static void a_wait(struct trace *trace)
{
	record(trace, 7, 1);
	await(trace, 7, 2);
}

static void a_wait_the_other_way(struct trace *trace)
{
	record(trace, 7, 2);
	await(trace, 7, 1);
}

static void a_wait_for_nothing(struct trace *trace)
{
	await(trace, 7, 2);
	record(trace, 7, 1);
}

static void a_third_stream(struct trace *trace)
{
	record(trace, 7, 1);
	await(trace, 7, 3);
	record(trace, 7, 3);
	await(trace, 7, 2);
}

static void a_third_stream_too_early(struct trace *trace)
{
	record(trace, 8, 3);
	record(trace, 7, 1);
	await(trace, 7, 3);
	await(trace, 8, 2);
}

static void stream_sync(struct trace *trace)
{
	add(trace, TRACE_STREAM_SYNC, 0, 1, 0, 0);
}

static void sync_of_a_follower(struct trace *trace)
{
	record(trace, 7, 1);
	await(trace, 7, 3);
	add(trace, TRACE_STREAM_SYNC, 0, 3, 0, 0);
}

static void sync_of_another(struct trace *trace)
{
	add(trace, TRACE_STREAM_SYNC, 0, 3, 0, 0);
}

static void event_sync(struct trace *trace)
{
	record(trace, 7, 1);
	add(trace, TRACE_EVENT_SYNC, 7, 0, 0, 0);
}

static void device_sync(struct trace *trace)
{
	add(trace, TRACE_DEVICE_SYNC, 0, 0, 0, 0);
}

static void default_work(struct trace *trace)
{
	add(trace, TRACE_STREAM_BLOCKING, 0, 1, 0, 0);
	add(trace, TRACE_STREAM_BLOCKING, 0, 2, 0, 0);
	add(trace, TRACE_DEFAULT_WORK, 0, 0, 0, 0);
}

static void default_work_of_one(struct trace *trace)
{
	add(trace, TRACE_STREAM_BLOCKING, 0, 1, 0, 0);
	add(trace, TRACE_DEFAULT_WORK, 0, 0, 0, 0);
}

static void a_wait_in_a_capture(struct trace *trace)
{
	add(trace, TRACE_CAPTURE_BEGIN, 0, 1, 0, 1);
	record(trace, 7, 1);
	await(trace, 7, 2);
	record(trace, 7, 2);
	await(trace, 7, 1);
	add(trace, TRACE_CAPTURE_END, 0, 1, 0, 0);
}

static void order_hands_over(void **state)
{
	(void)state;
	static void (*const ordered[])(struct trace *) = { a_wait, a_third_stream, stream_sync, sync_of_a_follower,
	                                                   event_sync, device_sync, default_work };
	static void (*const unordered[])(struct trace *) = { nothing, a_wait_the_other_way, a_wait_for_nothing,
	                                                     a_third_stream_too_early, sync_of_another,
	                                                     default_work_of_one, a_wait_in_a_capture };
	for (size_t i = 0; i < sizeof ordered / sizeof ordered[0]; i++)
		assert_int_equal(handed_over(ordered[i]), 4);
	for (size_t i = 0; i < sizeof unordered / sizeof unordered[0]; i++)
		assert_int_equal(handed_over(unordered[i]), 8);
}

static void completion_hands_over(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	give(&trace, get(&trace, 1, 4), 1);
	for (uint32_t i = 0; i < 9; i++)
		add(&trace, TRACE_MARKER, i, 0, 0, 0);
	get(&trace, 2, 4);
	assert_int_equal(bound_of(&trace, 0), 4);
	assert_int_equal(bound_of(&trace, 9), 4);
	assert_int_equal(bound_of(&trace, 10), 8);
	trace_free(&trace);
}

/* Stream 1's memory, used on 2, too: who may have it follows both. */
static void uses_count(void **state)
{
	(void)state;
	for (int waits = 0; waits < 2; waits++) {
		struct trace trace = { .streams = 1 };
		uint32_t id = get(&trace, 1, 4);
		add(&trace, TRACE_RECORD_STREAM, id, 2, 0, 0);
		record(&trace, 7, 2);
		give(&trace, id, 1);
		if (waits)
			record(&trace, 7, 2);
		await(&trace, 7, 1);
		get(&trace, 1, 4);
		assert_int_equal(bound_of(&trace, NEVER), waits ? 4 : 8);
		assert_int_equal(bound_of(&trace, 0), 4);
		trace_free(&trace);
	}
}

/* What few may use goes first: stream 1 leaves stream 2's to stream 2. */
static void own_memory_goes_first(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	uint32_t own = get(&trace, 1, 4), other = get(&trace, 2, 6);
	give(&trace, own, 1);
	give(&trace, other, 2);
	a_wait_the_other_way(&trace);
	get(&trace, 1, 7);  /* 3 of them stream 2's */
	get(&trace, 2, 3);
	assert_int_equal(bound_of(&trace, NEVER), 10);
	trace_free(&trace);
}

/* A pool keeps what it has until it is released; later captures use what earlier ones freed. */
static void pools_keep_theirs(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	for (uint32_t capture = 0; capture < 2; capture++) {
		add(&trace, TRACE_CAPTURE_BEGIN, capture, 1, 0, 1);
		give(&trace, get_of_pool(&trace, 1, 4, 1), 1);
		add(&trace, TRACE_CAPTURE_END, capture, 1, 0, 0);
	}
	add(&trace, TRACE_GRAPH_LAUNCH, 0, 2, 0, 0);
	assert_int_equal(bound_of(&trace, NEVER), 4);
	uint32_t eager = get(&trace, 1, 4);
	assert_int_equal(bound_of(&trace, NEVER), 8);
	add(&trace, TRACE_POOL_RELEASE, 0, 0, 0, 1);
	get(&trace, 1, 4);
	assert_int_equal(bound_of(&trace, NEVER), 12);
	give(&trace, eager, 1);
	record(&trace, 7, 2);
	await(&trace, 7, 1);
	get(&trace, 1, 8);
	assert_int_equal(bound_of(&trace, NEVER), 12);
	trace_free(&trace);
}

/* A released pool's number may be given to a new one, which keeps what it has as well. */
static void numbers_of_pools_are_used_again(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	for (uint32_t capture = 0; capture < 2; capture++) {
		if (capture)
			add(&trace, TRACE_POOL_RELEASE, 0, 0, 0, 1);
		add(&trace, TRACE_CAPTURE_BEGIN, capture, 1, 0, 1);
		give(&trace, get_of_pool(&trace, 1, 4, 1), 1);
		add(&trace, TRACE_CAPTURE_END, capture, 1, 0, 0);
	}
	get(&trace, 1, 4);
	assert_int_equal(bound_of(&trace, NEVER), 8);
	get(&trace, 1, 4);
	assert_int_equal(bound_of(&trace, NEVER), 12);
	trace_free(&trace);
}

/* A capture takes of the default pool only what has passed. */
static void captures_take_what_has_passed(void **state)
{
	(void)state;
	for (int passed = 0; passed < 2; passed++) {
		struct trace trace = { .streams = 1 };
		give(&trace, get(&trace, 1, 4), 1);
		if (passed)
			stream_sync(&trace);
		add(&trace, TRACE_CAPTURE_BEGIN, 0, 1, 0, 1);
		get_of_pool(&trace, 1, 4, 1);
		add(&trace, TRACE_CAPTURE_END, 0, 1, 0, 0);
		assert_int_equal(bound_of(&trace, NEVER), passed ? 4 : 8);
		trace_free(&trace);
	}
}

static void counts_batches(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	struct replay_bound bound;
	for (int i = 0; i < 127; i++)
		give(&trace, get(&trace, 1, 0), 1);
	for (int i = 0; i < 128; i++) {
		add(&trace, TRACE_ALLOC, trace.allocs, 1, 1, 0);
		give(&trace, trace.allocs - 1, 1);
	}
	give(&trace, get(&trace, 2, 64), 2);
	give(&trace, get(&trace, 3, 63), 3);
	assert_int_equal(replay_bound(&trace, 0, &bound), TRZ_OK);
	assert_int_equal(bound.frees, 130);
	assert_int_equal(bound.batches, 3);
	assert_int_equal(bound.bytes, MIB(64));
	trace_free(&trace);
}

/* Where all work completes at once, nothing is needed beyond the peak; and never less where it is late. */
static void agrees_with_synthetic_traces(void **state)
{
	(void)state;
	static const enum synth_shape shapes[] = { SYNTH_RANDOM, SYNTH_RING, SYNTH_FSDP };
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		struct synth_params params = { .shape = shapes[i], .streams = 4, .events = 3000, .record_stream = i > 0 };
		struct trace trace;
		struct replay_bound now, late;
		assert_int_equal(synth_trace(&params, &trace), TRZ_OK);
		assert_int_equal(replay_bound(&trace, 0, &now), TRZ_OK);
		assert_int_equal(replay_bound(&trace, 200, &late), TRZ_OK);
		assert_int_equal(now.bytes, now.peak_allocated_bytes);
		assert_true(late.bytes > now.bytes);
		trace_free(&trace);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_hands_over),
		cmocka_unit_test(completion_hands_over),
		cmocka_unit_test(uses_count),
		cmocka_unit_test(own_memory_goes_first),
		cmocka_unit_test(pools_keep_theirs),
		cmocka_unit_test(numbers_of_pools_are_used_again),
		cmocka_unit_test(captures_take_what_has_passed),
		cmocka_unit_test(counts_batches),
		cmocka_unit_test(agrees_with_synthetic_traces),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
