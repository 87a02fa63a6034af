/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings of processes' requests become a trace.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bits.h"
#include "sim_recording.h"
#include "trace.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static trz_status load(const struct sim_recorded *entries, size_t count, struct trace *trace)
{
	char path[] = "/tmp/recordingXXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, entries, count * sizeof *entries), count * sizeof *entries);
	close(fd);
	trz_status status = trace_load_recording(path, trace);
	unlink(path);
	return status;
}

static void assert_events(const struct trace *trace, const struct trace_event *expected, size_t count)
{
	assert_int_equal(trace->count, count);
	for (size_t i = 0; i < count; i++) {
		const struct trace_event *a = &trace->events[i], *b = &expected[i];
		if (a->kind != b->kind || a->id != b->id || a->size != b->size || a->stream != b->stream || a->pool != b->pool)
			fail_msg("event %zu: kind %d id %u size %llu stream %u pool %u", i, a->kind, a->id,
			         (unsigned long long)a->size, a->stream, a->pool);
	}
}

static void numbers_what_has_addresses(void **state)
{
	(void)state;
	static const struct sim_recorded entries[] = {
		{ .kind = SIM_RECORDED_BLOCKING, .stream = 70 },
		{ .kind = SIM_RECORDED_ALLOC, .key = 0x1000, .value = 100, .stream = 70 },
		{ .kind = SIM_RECORDED_ALLOC, .key = 0x2000, .value = 200, .stream = 0 },
		{ .kind = SIM_RECORDED_DEFAULT_WORK },
		{ .kind = SIM_RECORDED_EVENT, .key = 5, .stream = 70 },
		{ .kind = SIM_RECORDED_WAIT, .key = 5, .stream = 90 },
		{ .kind = SIM_RECORDED_USE, .key = 0x1000, .stream = 90 },
		{ .kind = SIM_RECORDED_USE, .key = 0x9000, .stream = 90 },
		{ .kind = SIM_RECORDED_FREE, .key = 0x1000, .stream = 90 },
		{ .kind = SIM_RECORDED_FREE, .key = 0x1000, .stream = 90 },
		{ .kind = SIM_RECORDED_STREAM_SYNC, .stream = 90 },
		{ .kind = SIM_RECORDED_EVENT_SYNC, .key = 5 },
		{ .kind = SIM_RECORDED_DEVICE_SYNC },
		{ .kind = SIM_RECORDED_FREE, .key = 0x2000, .stream = SIM_RECORDED_OWN_STREAM },
		{ .kind = SIM_RECORDED_END },
		{ .kind = SIM_RECORDED_DEVICE_SYNC },
	};
	static const struct trace_event expected[] = {
		{ .kind = TRACE_STREAM_BLOCKING, .stream = 1 }, { .kind = TRACE_ALLOC, .size = 100, .stream = 1 },
		{ .kind = TRACE_ALLOC, .id = 1, .size = 200 }, { .kind = TRACE_DEFAULT_WORK },
		{ .kind = TRACE_EVENT_RECORD, .stream = 1 }, { .kind = TRACE_STREAM_WAIT, .stream = 2 },
		{ .kind = TRACE_RECORD_STREAM, .stream = 2 }, { .kind = TRACE_FREE, .stream = 2 },
		{ .kind = TRACE_STREAM_SYNC, .stream = 2 }, { .kind = TRACE_EVENT_SYNC }, { .kind = TRACE_DEVICE_SYNC },
		{ .kind = TRACE_FREE, .id = 1 },
	};
	struct trace trace;
	assert_int_equal(load(entries, COUNT(entries), &trace), TRZ_OK);
	assert_events(&trace, expected, COUNT(expected));
	assert_int_equal(trace.unknown_frees, 1);
	assert_int_equal(trace.streams, 3);
	trace_free(&trace);
}

/* Neither a record that nobody waits for, nor a wait for a handle whose event is gone. */
static void events_that_order_nothing_are_left_out(void **state)
{
	(void)state;
	static const struct sim_recorded entries[] = {
		{ .kind = SIM_RECORDED_EVENT, .key = 5, .stream = 1 },
		{ .kind = SIM_RECORDED_EVENT, .key = 6, .stream = 1 },
		{ .kind = SIM_RECORDED_EVENT, .key = 5, .stream = 2 },
		{ .kind = SIM_RECORDED_WAIT, .key = 5, .stream = 1 },
		{ .kind = SIM_RECORDED_EVENT_END, .key = 5 },
		{ .kind = SIM_RECORDED_WAIT, .key = 5, .stream = 2 },
		{ .kind = SIM_RECORDED_WAIT, .key = 7, .stream = 2 },
		{ .kind = SIM_RECORDED_EVENT, .key = 8, .stream = 1 },
		{ .kind = SIM_RECORDED_EVENT_SYNC, .key = 8 },
	};
	static const struct trace_event expected[] = {
		{ .kind = TRACE_EVENT_RECORD, .stream = 1 }, { .kind = TRACE_STREAM_WAIT, .stream = 2 },
		{ .kind = TRACE_EVENT_RECORD, .stream = 2 }, { .kind = TRACE_EVENT_SYNC },
	};
	struct trace trace;
	assert_int_equal(load(entries, COUNT(entries), &trace), TRZ_OK);
	assert_events(&trace, expected, COUNT(expected));
	trace_free(&trace);
}

/* A pool goes with its last holder; a capture goes into the pool that has begun. */
static void pools_and_captures(void **state)
{
	(void)state;
	static const struct sim_recorded entries[] = {
		{ .kind = SIM_RECORDED_POOL_OPEN, .pool = 4 },
		{ .kind = SIM_RECORDED_POOL_BEGIN, .pool = 4 },
		{ .kind = SIM_RECORDED_CAPTURE_BEGIN, .key = 99, .stream = 3 },
		{ .kind = SIM_RECORDED_ALLOC, .key = 0x1000, .value = 8, .stream = 3, .pool = 4 },
		{ .kind = SIM_RECORDED_CAPTURE_END, .key = 99, .stream = 3 },
		{ .kind = SIM_RECORDED_POOL_END, .pool = 4 },
		{ .kind = SIM_RECORDED_LAUNCH, .key = 99, .stream = 0 },
		{ .kind = SIM_RECORDED_POOL_RELEASE, .pool = 4 },
		{ .kind = SIM_RECORDED_CAPTURE_BEGIN, .key = 100, .stream = 3 },
		{ .kind = SIM_RECORDED_CAPTURE_END, .key = 100, .stream = 3 },
		{ .kind = SIM_RECORDED_POOL_RELEASE, .pool = 4 },
		{ .kind = SIM_RECORDED_LAUNCH, .key = 98, .stream = 0 },
	};
	static const struct trace_event expected[] = {
		{ .kind = TRACE_CAPTURE_BEGIN, .stream = 1, .pool = 1 },
		{ .kind = TRACE_ALLOC, .size = 8, .stream = 1, .pool = 1 }, { .kind = TRACE_CAPTURE_END, .stream = 1 },
		{ .kind = TRACE_GRAPH_LAUNCH }, { .kind = TRACE_CAPTURE_BEGIN, .id = 1, .stream = 1 },
		{ .kind = TRACE_CAPTURE_END, .id = 1, .stream = 1 }, { .kind = TRACE_POOL_RELEASE, .pool = 1 },
	};
	struct trace trace;
	assert_int_equal(load(entries, COUNT(entries), &trace), TRZ_OK);
	assert_events(&trace, expected, COUNT(expected));
	trace_free(&trace);
}

/* The memory of one device, the order of all. */
static void the_device_with_most_requests(void **state)
{
	(void)state;
	static const struct sim_recorded entries[] = {
		{ .kind = SIM_RECORDED_ALLOC, .key = 0x1000, .value = 8 },
		{ .kind = SIM_RECORDED_ALLOC, .key = 0x2000, .value = 9, .device = 1 },
		{ .kind = SIM_RECORDED_ALLOC, .key = 0x3000, .value = 9, .device = 1 },
		{ .kind = SIM_RECORDED_EVENT, .key = 5 },
		{ .kind = SIM_RECORDED_BLOCKING, .stream = 7 },  /* the other device's default stream orders it */
		{ .kind = SIM_RECORDED_WAIT, .key = 5, .device = 1 },
		{ .kind = SIM_RECORDED_DEVICE_SYNC },
	};
	static const struct trace_event expected[] = {
		{ .kind = TRACE_ALLOC, .size = 9 }, { .kind = TRACE_ALLOC, .id = 1, .size = 9 },
		{ .kind = TRACE_EVENT_RECORD, .stream = 1 }, { .kind = TRACE_STREAM_WAIT },
	};
	struct trace trace;
	assert_int_equal(load(entries, COUNT(entries), &trace), TRZ_OK);
	assert_events(&trace, expected, COUNT(expected));
	assert_int_equal(trace.device, 1);
	trace_free(&trace);
}

static void damage_is_named(void **state)
{
	(void)state;
	struct trace trace;
	const struct sim_recorded unknown = { .kind = SIM_RECORDED_KINDS };
	const struct sim_recorded huge = { .kind = SIM_RECORDED_ALLOC, .value = UINT64_MAX };
	assert_int_equal(load(&unknown, 1, &trace), TRZ_ERROR_BAD_INPUT);
	assert_non_null(strstr(trz_last_error(), "note 0 is damaged"));
	assert_int_equal(load(&huge, 1, &trace), TRZ_ERROR_BAD_INPUT);
	assert_int_equal(trace_load_recording("/nowhere/at/all", &trace), TRZ_ERROR_IO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_what_has_addresses), cmocka_unit_test(events_that_order_nothing_are_left_out),
		cmocka_unit_test(pools_and_captures), cmocka_unit_test(the_device_with_most_requests),
		cmocka_unit_test(damage_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
