/* SPDX-License-Identifier: Apache-2.0
 *
 * Unit tests of the pickle reader: opcodes, refusals, damage, and the meaning of a history.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "load_copy.h"
#include "pickle_builder.h"
#include "trace.h"

/* -- opcodes --------------------------------------------------------------------------------------------- */

/* Loads a snapshot whose only entry has a size made by the given opcodes. */
static trz_status load_size(const void *opcodes, size_t length, uint64_t *size)
{
	struct pickle_builder b;
	build_begin(&b);
	build_entry(&b, "alloc", 0x1000, 1, 0);
	PUT(&b, "}(");
	build_string(&b, "action");
	build_string(&b, "alloc");
	build_string(&b, "addr");
	PUT(&b, "K\x01");
	build_string(&b, "stream");
	PUT(&b, "K\0");
	build_string(&b, "size");
	build_bytes(&b, opcodes, length);
	PUT(&b, "u");
	build_end(&b);
	struct trace trace;
	trz_status status = load_copy(b.bytes, b.size, TRACE_ANY_DEVICE, &trace);
	if (status == TRZ_OK)
		*size = trace.events[1].size;
	trace_free(&trace);
	return status;
}

static void integers(void **state)
{
	(void)state;
	static const struct {
		const char *opcodes;
		size_t length;
		uint64_t value;
	} good[] = {
		{ "K\xff", 2, 255 },
		{ "M\xff\xfe", 3, 0xfeff },
		{ "J\x01\x02\x03\x04", 5, 0x04030201 },
		{ "\x8a\x00", 2, 0 },
		{ "\x8a\x01\x7f", 3, 127 },
		{ "\x8a\x05\x00\x00\x00\x80\x00", 7, UINT64_C(0x80000000) },
		{ "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x01", 10, UINT64_C(1) << 56 },
		{ "K\x01K\x02" "0", 5, 1 },
		{ "K\x07q\x09" "0h\x09", 7, 7 },
		{ "K\x07r\x21\x00\x00\x00" "0j\x21\x00\x00\x00", 13, 7 },
		{ "K\x01(K\x02K\x03" "1", 8, 1 },
		{ "(0K\x05", 4, 5 },
	};
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		uint64_t value = ~good[i].value;
		assert_int_equal(load_size(good[i].opcodes, good[i].length, &value), TRZ_OK);
		assert_int_equal(value, good[i].value);
	}
	static const struct {
		const char *opcodes;
		size_t length;
	} bad[] = {
		{ "J\xff\xff\xff\xff", 5 },                                /* -1 */
		{ "\x8a\x01\x80", 3 },                                     /* -128 */
		{ "\x8a\x08\x01\x00\x00\x00\x00\x00\x00\x01", 10 },        /* above 2^56 */
		{ "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", 10 },        /* 2^63 - 1 */
		{ "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00", 11 },    /* 2^64 - 1 */
		{ "\x8b\x01\x00\x00\x00\x05", 6 },                         /* LONG4 is for huge numbers */
		{ "G\x3f\xf0\x00\x00\x00\x00\x00\x00", 9 },
		{ "N", 1 },
		{ "\x88", 1 },
		{ "]", 1 },
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		uint64_t value;
		assert_int_equal(load_size(bad[i].opcodes, bad[i].length, &value), TRZ_ERROR_BAD_INPUT);
		assert_non_null(strstr(trz_last_error(), "entry 1 of device 0: its size"));
	}
}

/* Data of every other kind is passed over, wherever it stands. */
static void other_data(void **state)
{
	(void)state;
	static const char data[] = "\x88\x89NG12345678"
	                           "\x8b\x02\x00\x00\x00zz"
	                           "\x8c\x03" "abcX\x02\x00\x00\x00xy\x8d\x01\x00\x00\x00\x00\x00\x00\x00s"
	                           "C\x02zz" "B\x01\x00\x00\x00z\x8e\x01\x00\x00\x00\x00\x00\x00\x00z"
	                           "\x96\x01\x00\x00\x00\x00\x00\x00\x00z"
	                           "\x8f(K\x01\x90(K\x01\x91" ")K\x01\x85K\x01K\x02\x86"
	                           "K\x01K\x02K\x03\x87(K\x01t(K\x01l"
	                           "(K\x01K\x02" "d}K\x01K\x02s]K\x01" "a2"
	                           "\x95\x00\x00\x00\x00\x00\x00\x00\x00";
	struct pickle_builder b;
	build_begin(&b);
	build_entry(&b, "alloc", 0x1000, 4096, 0);
	PUT(&b, "}(");
	build_string(&b, "frames");
	PUT(&b, "](");
	build_bytes(&b, data, sizeof data - 1);
	PUT(&b, "e");
	build_string(&b, "action");
	build_string(&b, "segment_alloc");
	PUT(&b, "u");
	build_end(&b);
	struct trace trace;
	assert_int_equal(load_copy(b.bytes, b.size, TRACE_ANY_DEVICE, &trace), TRZ_OK);
	assert_int_equal(trace.count, 1);
	assert_int_equal(trace.events[0].size, 4096);
	trace_free(&trace);
}

static void refuses_code(void **state)
{
	(void)state;
	static const struct {
		uint8_t opcode;
		const char *name;
	} opcodes[] = {
		{ 'c', "GLOBAL" }, { 'R', "REDUCE" }, { 'i', "INST" }, { 'o', "OBJ" }, { 'b', "BUILD" },
		{ 'P', "PERSID" }, { 'Q', "BINPERSID" }, { 0x81, "NEWOBJ" }, { 0x82, "EXT1" }, { 0x83, "EXT2" },
		{ 0x84, "EXT4" }, { 0x92, "NEWOBJ_EX" }, { 0x93, "STACK_GLOBAL" },
	};
	for (size_t i = 0; i < sizeof opcodes / sizeof opcodes[0]; i++) {
		const uint8_t bytes[] = { 0x80, 4, ')', ')', opcodes[i].opcode, 'o', 's', '\n', '.' };
		char text[80];
		snprintf(text, sizeof text, "test: byte 4: opcode %s: the pickle calls code: refused",
		         opcodes[i].name);
		assert_refused(bytes, sizeof bytes, text);
	}
}

static void refuses_malformed(void **state)
{
	(void)state;
#define CASE(literal, text) { literal, sizeof(literal) - 1, text }
	static const struct {
		const char *bytes;
		size_t size;
		const char *text;
	} cases[] = {
		CASE("\x80\x01N.", "opcode PROTO: only the protocols 2 to 5"),
		CASE("\x80\x06N.", "opcode PROTO: only the protocols 2 to 5"),
		CASE("\x80\x02\xff.", "byte 2: 0xff is not a pickle opcode"),
		CASE("\x80\x02I1\n.", "byte 2: opcode INT: is of protocol 0"),
		CASE("\x80\x05\x97.", "opcode NEXT_BUFFER: refers to data outside"),
		CASE("\x80\x02.", "byte 2: opcode STOP: the stack holds too few"),
		CASE("\x80\x02N(.", "opcode STOP: the stack holds too few"),
		CASE("\x80\x02" "0.", "opcode POP: the stack holds too few"),
		CASE("\x80\x02" "2.", "opcode DUP: the stack holds too few"),
		CASE("\x80\x02N(2.", "opcode DUP: the stack holds too few"),
		CASE("\x80\x02NNt.", "opcode TUPLE: there is no mark"),
		CASE("\x80\x02N\x86.", "opcode TUPLE2: the stack holds too few"),
		CASE("\x80\x02N(N\x86.", "opcode TUPLE2: the stack holds too few"),
		CASE("\x80\x02(e.", "opcode APPENDS: the stack holds too few"),
		CASE("\x80\x02N(Ne.", "opcode APPENDS: an append needs a list on the stack"),
		CASE("\x80\x02)Na.", "opcode APPEND: an append needs a list on the stack"),
		CASE("\x80\x02}(Nu.", "opcode SETITEMS: a key has no value"),
		CASE("\x80\x02](NNu.", "opcode SETITEMS: a set item needs a dict on the stack"),
		CASE("\x80\x02]NNs.", "opcode SETITEM: a set item needs a dict on the stack"),
		CASE("\x80\x02(Nd.", "opcode DICT: a key has no value"),
		CASE("\x80\x04](N\x90.", "opcode ADDITEMS: an add needs a set on the stack"),
		CASE("\x80\x02h\x00.", "opcode BINGET: the memo has no such entry"),
		CASE("\x80\x02Nq\x02h\x01.", "opcode BINGET: the memo has no such entry"),
		CASE("\x80\x02j\xff\xff\xff\xff.", "opcode LONG_BINGET: the memo has no such entry"),
		CASE("\x80\x02Nr\xff\xff\xff\xff.", "opcode LONG_BINPUT: the memo index is larger"),
		CASE("\x80\x02\x94.", "opcode MEMOIZE: the stack holds too few"),
		CASE("\x80\x02\x8b\xff\xff\xff\xffx.", "opcode LONG4: the length is negative"),
		CASE("\x80\x02X\xff\xff\xff\xffx.", "byte 7: truncated"),
		CASE("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffx.", "byte 11: truncated"),
		CASE("\x80\x02N.", "not a memory snapshot"),
		CASE("\x80\x02].", "not a memory snapshot"),
		CASE("\x80\x02}X\x0d\x00\x00\x00" "device_tracesNs.", "not a memory snapshot"),
		CASE("\x80\x02}X\x0d\x00\x00\x00" "device_traces]s.", "device_traces are empty"),
		CASE("\x80\x02}X\x0d\x00\x00\x00" "device_traces]]as.", "device_traces are empty"),
		CASE("\x80\x02}X\x0d\x00\x00\x00" "device_traces]Nas.", "device_traces[0] is not a list"),
		CASE("\x80\x02}X\x0d\x00\x00\x00" "device_traces]]Naas.", "entry 0 of device 0: is not a dict"),
		CASE("\x80\x02}X\x0d\x00\x00\x00" "device_traces]]}aas.", "entry 0 of device 0: has no action"),
		CASE("", "is empty"),
		CASE("hello, world", "not a trace"),
	};
#undef CASE
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_refused(cases[i].bytes, cases[i].size, cases[i].text);
}

static void refuses_every_truncation(void **state)
{
	(void)state;
	struct pickle_builder b;
	build_begin(&b);
	build_entry(&b, "alloc", 0x1000, 4096, 0);
	build_entry(&b, "free_requested", 0x1000, 4096, 0);
	build_end(&b);
	for (size_t size = 1; size < b.size; size++)
		assert_refused(b.bytes, size, "truncated");
	struct trace trace;
	assert_int_equal(load_copy(b.bytes, b.size, TRACE_ANY_DEVICE, &trace), TRZ_OK);
	trace_free(&trace);
}

/* Nothing recurses: a million open containers, a million marks, lists that hold themselves. */
static void survives_depth(void **state)
{
	(void)state;
	enum { DEPTH = 1000000 };
	uint8_t *bytes = malloc(DEPTH + 2);
	memcpy(bytes, "\x80\x02", 2);
	static const char openers[] = { '(', ']', '}', ')' };
	for (size_t i = 0; i < sizeof openers; i++) {
		memset(bytes + 2, openers[i], DEPTH);
		assert_refused(bytes, DEPTH + 2, "truncated");
	}
	bytes[2] = ']';
	memset(bytes + 3, '2', DEPTH / 2 - 1);
	memset(bytes + 2 + DEPTH / 2, 'a', DEPTH / 2 - 1);
	bytes[DEPTH + 1] = '.';
	assert_refused(bytes, DEPTH + 2, "not a memory snapshot");
	free(bytes);
}

/* -- what a history means ------------------------------------------------------------------------------ */

static void assert_event(const struct trace *trace, size_t i, int kind, uint32_t id, uint64_t size,
                         int stream)
{
	assert_true(i < trace->count);
	assert_int_equal(trace->events[i].kind, kind);
	assert_int_equal(trace->events[i].id, id);
	assert_int_equal(trace->events[i].size, size);
	assert_int_equal(trace->events[i].stream, stream);
}

static void load_built(struct pickle_builder *b, struct trace *trace)
{
	build_end(b);
	assert_int_equal(load_copy(b->bytes, b->size, TRACE_ANY_DEVICE, trace), TRZ_OK);
}

static void frees_are_those_requested(void **state)
{
	(void)state;
	struct pickle_builder b;
	struct trace trace;
	build_begin(&b);
	build_entry(&b, "segment_alloc", 0x1000, 1 << 21, 0);
	build_entry(&b, "alloc", 0x1000, 10, 0);
	build_entry(&b, "alloc", 0x2000, 20, 0);
	build_entry(&b, "free_requested", 0x1000, 10, 0);
	build_entry(&b, "free_completed", 0x1000, 10, 0);
	build_entry(&b, "alloc", 0x1000, 30, 0);
	build_entry(&b, "free_completed", 0x2000, 20, 0);
	load_built(&b, &trace);
	assert_int_equal(trace.count, 4);
	assert_int_equal(trace.allocs, 3);
	assert_event(&trace, 0, TRACE_ALLOC, 0, 10, 0);
	assert_event(&trace, 1, TRACE_ALLOC, 1, 20, 0);
	assert_event(&trace, 2, TRACE_FREE, 0, 0, 0);
	assert_event(&trace, 3, TRACE_ALLOC, 2, 30, 0);
	assert_int_equal(trace.unknown_frees, 0);
	trace_free(&trace);
}

static void frees_completed_stand_in(void **state)
{
	(void)state;
	struct pickle_builder b;
	struct trace trace;
	build_begin(&b);
	build_entry(&b, "alloc", 0x1000, 10, 0);
	build_entry(&b, "free_completed", 0x1000, 10, 0);
	load_built(&b, &trace);
	assert_int_equal(trace.count, 2);
	assert_event(&trace, 1, TRACE_FREE, 0, 0, 0);
	trace_free(&trace);
}

static void lost_entries_are_counted(void **state)
{
	(void)state;
	struct pickle_builder b;
	struct trace trace;
	build_begin(&b);
	build_entry(&b, "free_requested", 0x9000, 10, 0);
	build_entry(&b, "alloc", 0x1000, 10, 0);
	build_entry(&b, "alloc", 0x1000, 20, 0);
	build_entry(&b, "free_requested", 0x1000, 20, 0);
	build_entry(&b, "free_requested", 0x1000, 20, 0);
	load_built(&b, &trace);
	assert_int_equal(trace.count, 4);
	assert_event(&trace, 1, TRACE_FREE, 0, 0, 0);
	assert_event(&trace, 2, TRACE_ALLOC, 1, 20, 0);
	assert_event(&trace, 3, TRACE_FREE, 1, 0, 0);
	assert_int_equal(trace.unknown_frees, 2);
	assert_int_equal(trace.implied_frees, 1);
	trace_free(&trace);
}

static void streams_are_dense(void **state)
{
	(void)state;
	struct pickle_builder b;
	struct trace trace;
	build_begin(&b);
	build_entry(&b, "alloc", 0x1000, 1, 0x55aa55aa5500);
	build_entry(&b, "alloc", 0x2000, 1, 0x55aa55aa6600);
	build_entry(&b, "alloc", 0x3000, 1, 0);
	build_entry(&b, "free_requested", 0x1000, 1, 0x55aa55aa5500);
	load_built(&b, &trace);
	assert_event(&trace, 0, TRACE_ALLOC, 0, 1, 1);
	assert_event(&trace, 1, TRACE_ALLOC, 1, 1, 2);
	assert_event(&trace, 2, TRACE_ALLOC, 2, 1, 0);
	assert_event(&trace, 3, TRACE_FREE, 0, 0, 1);
	assert_int_equal(trace.streams, 3);
	trace_free(&trace);
}

static void add_pool_alloc(struct pickle_builder *b, int address, const char *pool, size_t size)
{
	build_entry(b, "alloc", address, 1, 0);
	build_string(b, "pool_id");
	build_bytes(b, pool, size);
	PUT(b, "s");
}

static void pools_are_dense(void **state)
{
	(void)state;
	struct pickle_builder b;
	struct trace trace;
	build_begin(&b);
	add_pool_alloc(&b, 0x1000, "K\x00K\x07\x86", 5);
	add_pool_alloc(&b, 0x2000, "K\x03K\x00\x86", 5);
	add_pool_alloc(&b, 0x3000, "K\x00K\x00\x86", 5);
	add_pool_alloc(&b, 0x4000, "K\x00K\x07\x86", 5);
	load_built(&b, &trace);
	assert_int_equal(trace.events[0].pool, 1);
	assert_int_equal(trace.events[1].pool, 2);
	assert_int_equal(trace.events[2].pool, 0);
	assert_int_equal(trace.events[3].pool, 1);
	trace_free(&trace);
}

static void device_with_most_entries(void **state)
{
	(void)state;
	struct pickle_builder b;
	struct trace trace;
	build_begin(&b);
	build_entry(&b, "alloc", 0x1000, 11, 0);
	PUT(&b, "e](");
	build_entry(&b, "alloc", 0x1000, 22, 0);
	build_entry(&b, "free_requested", 0x1000, 22, 0);
	PUT(&b, "e](");
	build_end(&b);
	assert_int_equal(load_copy(b.bytes, b.size, TRACE_ANY_DEVICE, &trace), TRZ_OK);
	assert_int_equal(trace.device, 1);
	assert_int_equal(trace.events[0].size, 22);
	trace_free(&trace);
	assert_int_equal(load_copy(b.bytes, b.size, 0, &trace), TRZ_OK);
	assert_int_equal(trace.device, 0);
	assert_int_equal(trace.events[0].size, 11);
	trace_free(&trace);
	assert_int_equal(load_copy(b.bytes, b.size, 2, &trace), TRZ_ERROR_BAD_INPUT);
	assert_int_equal(load_copy(b.bytes, b.size, 3, &trace), TRZ_ERROR_INVALID_ARGUMENT);
	assert_non_null(strstr(trz_last_error(), "has no device 3"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers),
		cmocka_unit_test(other_data),
		cmocka_unit_test(refuses_code),
		cmocka_unit_test(refuses_malformed),
		cmocka_unit_test(refuses_every_truncation),
		cmocka_unit_test(survives_depth),
		cmocka_unit_test(frees_are_those_requested),
		cmocka_unit_test(frees_completed_stand_in),
		cmocka_unit_test(lost_entries_are_counted),
		cmocka_unit_test(streams_are_dense),
		cmocka_unit_test(pools_are_dense),
		cmocka_unit_test(device_with_most_entries),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
