/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs of RMM and STAlloc: the traces in the fixtures beside this file, and a line number for every malformed line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "load_copy.h"
#include "trace.h"

#define RMM "Thread,Time,Action,Pointer,Size,Stream\n"

static trz_status load_text(const char *text, struct trace *trace)
{
	return load_copy(text, strlen(text), TRACE_ANY_DEVICE, trace);
}

static void load_fixture(const char *name, struct trace *trace)
{
	char path[4096];
	const char *source = getenv("TRZ_SOURCE_DIR");
	assert_non_null(source);
	snprintf(path, sizeof path, "%s/tests/trace/%s", source, name);
	if (trace_load(path, TRACE_ANY_DEVICE, trace) != TRZ_OK)
		fail_msg("%s", trz_last_error());
}

static void assert_text_refused(const char *text, const char *message)
{
	assert_refused(text, strlen(text), message);
}

static void assert_events(const struct trace *trace, const struct trace_event *expected, size_t count)
{
	assert_int_equal(trace->count, count);
	for (size_t i = 0; i < count; i++) {
		const struct trace_event *e = &trace->events[i];
		if (e->kind != expected[i].kind || e->id != expected[i].id || e->size != expected[i].size ||
		    e->stream != expected[i].stream || e->pool != 0)
			fail_msg("event %zu: kind %u, id %u, size %llu, stream %u", i, e->kind, e->id,
			         (unsigned long long)e->size, e->stream);
	}
}

/* Streams: 0, then those of the log in the order in which they appear. */
static void reads_rmm(void **state)
{
	(void)state;
	static const struct trace_event expected[] = {
		{ .kind = TRACE_ALLOC, .id = 0, .size = 1048576 },
		{ .kind = TRACE_ALLOC, .id = 1, .size = 4194304, .stream = 1 },
		{ .kind = TRACE_ALLOC, .id = 2, .size = 3000, .stream = 2 },
		{ .kind = TRACE_FREE, .id = 1 },  /* in the order of the default stream */
		{ .kind = TRACE_FREE, .id = 2, .stream = 2 },  /* lost by the log */
		{ .kind = TRACE_ALLOC, .id = 3, .size = 8192, .stream = 1 },
		{ .kind = TRACE_FREE, .id = 3, .stream = 1 },
		{ .kind = TRACE_FREE, .id = 0 },
	};
	struct trace trace;
	load_fixture("rmm.csv", &trace);
	assert_events(&trace, expected, sizeof expected / sizeof expected[0]);
	assert_int_equal(trace.streams, 3);
	assert_int_equal(trace.unknown_frees, 1);
	assert_int_equal(trace.implied_frees, 1);
	assert_int_equal(trace.failed_allocs, 1);
	trace_free(&trace);
}

static void reads_stalloc(void **state)
{
	(void)state;
	static const struct trace_event expected[] = {
		{ .kind = TRACE_ALLOC, .id = 0, .size = 2097152 },
		{ .kind = TRACE_MARKER, .id = 0 },
		{ .kind = TRACE_MARKER, .id = 0 },
		{ .kind = TRACE_MARKER, .id = 0 },
		{ .kind = TRACE_ALLOC, .id = 1, .size = 4096 },
		{ .kind = TRACE_ALLOC, .id = 2, .size = 8388608, .stream = 1 },
		{ .kind = TRACE_MARKER, .id = 0 },
		{ .kind = TRACE_FREE, .id = 1 },
		{ .kind = TRACE_MARKER, .id = 0 },
		{ .kind = TRACE_MARKER, .id = 0 },
		{ .kind = TRACE_FREE, .id = 2, .stream = 1 },
		{ .kind = TRACE_MARKER, .id = 0 },
		{ .kind = TRACE_MARKER, .id = 1 },
		{ .kind = TRACE_MARKER, .id = 1 },
		{ .kind = TRACE_MARKER, .id = 1 },
		{ .kind = TRACE_FREE, .id = 0 },
	};
	struct trace trace;
	load_fixture("stalloc.txt", &trace);
	assert_events(&trace, expected, sizeof expected / sizeof expected[0]);
	assert_int_equal(trace.streams, 2);
	assert_int_equal(trace.unknown_frees, 1);
	assert_int_equal(trace.implied_frees, 0);
	trace_free(&trace);
}

/* Line breaks of Windows, none at the end, numbers as large as they get. */
static void takes_other_spellings(void **state)
{
	(void)state;
	struct trace trace;
	const char *rmm = "Thread,Time,Action,Pointer,Size,Stream\r\n"
	                  "18446744073709551615,,allocate,FFFFFFFFFFFFFFFF,72057594037927936,7f001234\r\n"
	                  "1,a b,free,0xffffffffffffffff,72057594037927936,0x7f001234";
	static const struct trace_event expected[] = {
		{ .kind = TRACE_ALLOC, .size = (uint64_t)1 << 56, .stream = 1 },
		{ .kind = TRACE_FREE, .stream = 1 },
	};
	assert_int_equal(load_text(rmm, &trace), TRZ_OK);
	assert_events(&trace, expected, 2);
	trace_free(&trace);
	assert_int_equal(load_text("1 0xffffffffffffffff 72057594037927936 7f001234 \r\n"
	                           "0 ffffffffffffffff 72057594037927936 0x7f001234", &trace), TRZ_OK);
	assert_events(&trace, expected, 2);
	trace_free(&trace);
}

/* Stream 2 is another one in each thread; 1 and 0 are the same in all. */
static void each_thread_has_a_stream_of_its_own(void **state)
{
	(void)state;
	struct trace trace;
	const char *rmm = RMM "7,t,allocate,0x1000,512,0x2\n"
	                      "8,t,allocate,0x2000,512,0x2\n"
	                      "8,t,free,0x1000,512,0x2\n"
	                      "7,t,allocate,0x3000,512,0x1\n"
	                      "8,t,free,0x3000,512,0x0\n";
	static const struct trace_event expected[] = {
		{ .kind = TRACE_ALLOC, .size = 512, .stream = 1 },
		{ .kind = TRACE_ALLOC, .id = 1, .size = 512, .stream = 2 },
		{ .kind = TRACE_FREE, .stream = 2 },
		{ .kind = TRACE_ALLOC, .id = 2, .size = 512 },
		{ .kind = TRACE_FREE, .id = 2 },
	};
	assert_int_equal(load_text(rmm, &trace), TRZ_OK);
	assert_events(&trace, expected, sizeof expected / sizeof expected[0]);
	trace_free(&trace);
}

static void refuses_rmm(void **state)
{
	(void)state;
	static const struct { const char *text, *message; } cases[] = {
		{ "Thread,Time,Action,Pointer,Size\n", "test: line 1: the columns are not Thread,Time,Action" },
		{ RMM "1,t,allocate,0x1,1,0\n1,t,free,0x1,1\n", "line 3: a row does not have six columns" },
		{ RMM "1,t,allocate,0x1,1,0,0\n", "line 2: a row does not have six columns" },
		{ RMM "\n", "line 2: a row does not have six columns" },
		{ RMM "x,t,allocate,0x1,1,0\n", "line 2: its thread is not a number" },
		{ RMM "1,t,alloc,0x1,1,0\n", "line 2: its action is not allocate" },
		{ RMM "1,t,allocate,0xg,1,0\n", "line 2: its pointer is not an address" },
		{ RMM "1,t,allocate,0x,1,0\n", "line 2: its pointer is not an address" },
		{ RMM "1,t,allocate,0x10000000000000000,1,0\n", "line 2: its pointer is not an address" },
		{ RMM "1,t,allocate,0x1,-1,0\n", "line 2: its size is not a number" },
		{ RMM "1,t,allocate,0x1,72057594037927937,0\n", "line 2: its size is not a number" },
		{ RMM "1,t,allocate failure,0x0,,0\n", "line 2: its size is not a number" },
		{ RMM "1,t,free,0x1,1,\n", "line 2: its stream is not an address" },
		{ RMM "1,t,allocate,0x0,1,0\n", "line 2: an allocation has no address" },
		{ RMM, "the log holds no allocation" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_text_refused(cases[i].text, cases[i].message);
}

static void refuses_stalloc(void **state)
{
	(void)state;
	static const struct { const char *text, *message; } cases[] = {
		{ "1 0x1 1 0\n2 0x1 1 0\n", "test: line 2: is neither a request" },
		{ "1 0x1 1 0\n\n", "line 2: is neither a request" },
		{ "1 0x1 1\n", "line 1: a request does not have four columns" },
		{ "1 0x1  1 0\n", "line 1: a request does not have four columns" },
		{ "0 0x1 1 0 0\n", "line 1: a request does not have four columns" },
		{ "1 0x1 1.5 0\n", "line 1: its size is not a number" },
		{ "1 x 1 0\n", "line 1: its pointer is not an address" },
		{ "1 0x1 1 s\n", "line 1: its stream is not an address" },
		{ "Iteration Index : last\n", "line 1: its iteration is neither a number nor end" },
		{ "Iteration Index : 4294967296\n", "line 1: its iteration is neither a number nor end" },
		{ "micro-batch: X\n", "line 1: its micro-batch is not F, B or W" },
		{ "1 0x1 1 0\na->B Layer : W-start\n", "line 2: is neither a request" },
		{ "1 0x1 1 0\na Layer : F-start\n", "line 2: is neither a request" },
		{ "micro-batch: F\n", "the log holds no allocation" },
		{ "2 0x1 1 0\n", "not a trace" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_text_refused(cases[i].text, cases[i].message);
}

static void refuses_endless_lines(void **state)
{
	(void)state;
	static char text[8192] = "1 0x1 1 0\n";
	memset(text + 10, 'x', sizeof text - 10);
	assert_refused(text, sizeof text, "line 2: is longer than 4096 bytes");
}

static void refuses_too_many_streams(void **state)
{
	(void)state;
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	for (int i = 1; i <= TRACE_STREAMS_MAX; i++)
		fprintf(to, "1 %x 512 %x\n", i, i + 1);
	assert_int_equal(fclose(to), 0);
	assert_text_refused(text, "has more than 4096 streams");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_rmm),
		cmocka_unit_test(reads_stalloc),
		cmocka_unit_test(takes_other_spellings),
		cmocka_unit_test(each_thread_has_a_stream_of_its_own),
		cmocka_unit_test(refuses_rmm),
		cmocka_unit_test(refuses_stalloc),
		cmocka_unit_test(refuses_endless_lines),
		cmocka_unit_test(refuses_too_many_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
