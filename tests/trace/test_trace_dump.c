/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory snapshots as plain arrays: what each version writes, and what the reader refuses.
 */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace_dump.h"

static struct dump d;

static trz_status load(const char *text)
{
	return dump_load_memory("test", text, strlen(text), &d);
}

#define FRAMES "[{\"filename\":\"a.py\",\"line\":3,\"name\":\"f\"},{\"filename\":\"b.py\",\"line\":4,\"name\":\"g\"}]"

static void test_everything_is_read(void **state)
{
	(void)state;
	assert_ok(load("{\"segments\":[{\"device\":1,\"address\":4096,\"total_size\":4096,\"stream\":7,"
	               "\"segment_type\":\"small\",\"segment_pool_id\":[0,5],\"is_expandable\":true,\"frames\":[],"
	               "\"blocks\":[{\"address\":4096,\"size\":1024,\"requested_size\":1000,"
	               "\"state\":\"active_allocated\",\"frames\":" FRAMES "},"
	               "{\"address\":6144,\"size\":512,\"requested_size\":9,\"state\":\"active_awaiting_free\"}]}],"
	               "\"device_traces\":[[],[{\"action\":\"alloc\",\"addr\":4096,\"size\":1000,\"stream\":7,"
	               "\"time_us\":12,\"pool_id\":[0,5],\"user_metadata\":\"tag\",\"frames\":" FRAMES "},"
	               "{\"action\":\"oom\",\"device_free\":99,\"size\":5000,\"stream\":0},{\"action\":\"new\"}]],"
	               "\"allocator_settings\":{\"expandable_segments\":true},"
	               "\"external_annotations\":[{\"stage\":\"END\",\"name\":\"step\",\"device\":1,\"time_us\":15}]}"));
	assert_int_equal(d.segment_count, 1);
	assert_int_equal(d.segments[0].pool, 5);
	assert_int_equal(d.segments[0].stream, 7);
	assert_true(d.segments[0].small && d.segments[0].expandable && d.expandable && d.has_requested);
	assert_int_equal(d.block_count, 4);
	assert_int_equal(d.blocks[0].requested, 1000);
	assert_int_equal(d.blocks[1].state, DUMP_FREE);  /* what no block covers */
	assert_int_equal(d.blocks[1].size, 1024);
	assert_int_equal(d.blocks[2].state, DUMP_PENDING);
	assert_int_equal(d.blocks[3].size, 1536);
	assert_int_equal(d.trace_count, 2);
	assert_int_equal(d.traces[1].count, 3);
	assert_int_equal(d.events[0].stack, d.blocks[0].stack);
	assert_string_equal(d.events[0].tag, "tag");
	assert_int_equal(d.events[1].action, DUMP_OOM);
	assert_int_equal(d.events[1].address, 99);
	assert_int_equal(d.events[2].action, DUMP_OTHER);
	assert_int_equal(d.stack_count, 2);
	assert_string_equal(dump_frame(&d, 1, 1)->name, "g");
	assert_int_equal(dump_frame(&d, 1, 1)->line, 4);
	assert_true(d.marks[0].end && d.marks[0].time_us == 15);
	dump_free(&d);
}

/* A list on top; blocks without addresses, as PyTorch 1 has them; frames in a history, as 2.0 has them. */
static void test_older_versions(void **state)
{
	(void)state;
	assert_ok(load("[{\"device\":0,\"address\":4096,\"total_size\":2048,\"segment_type\":\"large\",\"blocks\":["
	               "{\"size\":512,\"state\":\"active_allocated\",\"history\":[{\"addr\":1,\"real_size\":500,"
	               "\"frames\":" FRAMES "}]},{\"size\":1536,\"state\":\"inactive\"}]}]"));
	assert_int_equal(d.block_count, 2);
	assert_int_equal(d.blocks[0].requested, 500);
	assert_int_equal(d.stacks[d.blocks[0].stack].count, 2);
	assert_int_equal(d.blocks[1].address, 4096 + 512);
	dump_free(&d);
}

static void test_segments_are_sorted(void **state)
{
	(void)state;
	assert_ok(load("{\"segments\":[{\"device\":1,\"address\":8192,\"total_size\":1,\"blocks\":[]},"
	               "{\"device\":0,\"address\":9000,\"total_size\":2,\"blocks\":[]},"
	               "{\"device\":0,\"address\":4096,\"total_size\":3,\"blocks\":[]}]}"));
	assert_int_equal(d.segments[0].size, 3);
	assert_int_equal(d.segments[1].size, 2);
	assert_int_equal(d.segments[2].size, 1);
	assert_int_equal(d.blocks[d.segments[0].first].size, 3);
	dump_free(&d);
}

static void test_bad_input_says_what_is_wrong(void **state)
{
	(void)state;
	static const struct {
		const char *text, *error;
	} bad[] = {
		{"", "is empty"},
		{"hello", "not a memory snapshot"},
		{"{}", "no list of segments"},
		{"{\"segments\":[}", "byte 13"},
		{"{\"segments\":[]", "a brace is missing"},
		{"{\"segments\":[]} x", "behind the end"},
		{"{\"segments\":[1]}", "segment 0: is not a dict"},
		{"{\"segments\":[{\"total_size\":0,\"blocks\":[]}]}", "segment 0: it has no size"},
		{"{\"segments\":[{\"total_size\":-1,\"blocks\":[]}]}", "total_size"},
		{"{\"segments\":[{\"total_size\":1}]}", "no list of blocks"},
		{"{\"segments\":[{\"device\":99999,\"total_size\":1,\"blocks\":[]}]}", "that many devices"},
		{"{\"segments\":[{\"address\":5,\"total_size\":8,\"blocks\":[{\"size\":9,\"state\":\"inactive\"}]}]}",
		 "overlap or lie outside"},
		{"{\"segments\":[{\"address\":5,\"total_size\":8,\"blocks\":[{\"address\":4,\"size\":1}]}]}",
		 "overlap or lie outside"},
		{"{\"segments\":[],\"device_traces\":[1]}", "device_traces 0: is not a list"},
		{"{\"segments\":[],\"device_traces\":[[1]]}", "entry 0: is not a dict"},
		{"[[[[[[[[[[[", "byte"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_error(load(bad[i].text), TRZ_ERROR_BAD_INPUT, bad[i].error);
		assert_null(d.segments);
	}
}

static void test_files(void **state)
{
	(void)state;
	char path[512];
	snprintf(path, sizeof path, "%s/tests/fuzz/corpus/dump/whole4.pickle", getenv("TRZ_SOURCE_DIR"));
	assert_ok(dump_load(path, &d));
	assert_int_equal(d.event_count, 3);
	assert_string_equal(dump_frame(&d, d.blocks[0].stack, 0)->file, "a.py");
	dump_free(&d);
	assert_error(dump_load("no such file", &d), TRZ_ERROR_IO, "no such file");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_everything_is_read),
		cmocka_unit_test(test_older_versions),
		cmocka_unit_test(test_segments_are_sorted),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_bad_input_says_what_is_wrong),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
