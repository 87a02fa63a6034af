/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots: growing, sealing, the JSON of a heap's ranges, blocks and events, and files.
 */
#include "testing.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "snapshot_file.h"

#define BASE ((uint64_t)0x7f0000000000)

/* -- the fixture -------------------------------------------------------------------------------------- */

static int live;
static bool host_is_full;

static void *host_alloc(void *owner, size_t size)
{
	(void)owner;
	if (host_is_full)
		return NULL;
	live++;
	return malloc(size);
}

static void host_free(void *owner, void *memory)
{
	(void)owner;
	live--;
	free(memory);
}

static struct snapshot open_snapshot(void)
{
	struct snapshot s = {.memory = {host_alloc, host_free, NULL}};
	assert_ok(snapshot_reserve(&s));
	return s;
}

static void add_range(struct snapshot *s, uint64_t offset, uint64_t size)
{
	snapshot_add_range(s, (struct snapshot_range){.address = BASE + offset, .size = size, .expandable = true});
}

static void add_block(struct snapshot *s, uint64_t offset, uint64_t size, uint64_t requested)
{
	snapshot_add_block(s, (struct snapshot_block){.address = BASE + offset, .size = size, .requested = requested});
}

struct text {
	char *bytes;
	size_t size;
};

static bool collect(void *owner, const char *bytes, size_t size)
{
	struct text *t = owner;
	t->bytes = realloc(t->bytes, t->size + size);
	memcpy(t->bytes + t->size, bytes, size);
	t->size += size;
	return true;
}

/* What a sealed snapshot is written as; the snapshot is freed. */
static json_t *written(struct snapshot *s)
{
	struct text text = {0};
	json_error_t error;
	assert_ok(snapshot_write(s, collect, &text));
	snapshot_free(s);
	json_t *json = json_loadb(text.bytes, text.size, JSON_REJECT_DUPLICATES, &error);
	if (!json)
		print_error("%s at byte %d\n", error.text, error.position);
	assert_non_null(json);
	free(text.bytes);
	return json;
}

static json_t *sealed(struct snapshot *s)
{
	assert_true(snapshot_fits(s));
	assert_ok(snapshot_seal(s));
	return written(s);
}

/* The value at a path of keys and indices, as in "segments.0.blocks.1.size". */
static json_t *at(json_t *json, const char *path)
{
	char copy[100], *rest = copy, *key;
	snprintf(copy, sizeof copy, "%s", path);
	while (json && (key = strsep(&rest, ".")))
		json = json_is_array(json) ? json_array_get(json, strtoul(key, NULL, 10)) : json_object_get(json, key);
	if (!json)
		print_error("there is no %s\n", path);
	assert_non_null(json);
	return json;
}

static int64_t number(json_t *json, const char *path)
{
	assert_true(json_is_integer(at(json, path)));
	return json_integer_value(at(json, path));
}

static const char *string(json_t *json, const char *path)
{
	assert_true(json_is_string(at(json, path)));
	return json_string_value(at(json, path));
}

static size_t length(json_t *json, const char *path)
{
	assert_true(json_is_array(at(json, path)));
	return json_array_size(at(json, path));
}

static int no_leak(void **state)
{
	(void)state;
	return live;
}

/* -- growing ------------------------------------------------------------------------------------------ */

static void test_it_grows_until_all_fits(void **state)
{
	(void)state;
	enum { EVENTS = 5000, BLOCKS = 3000 };
	static struct history_event ring[EVENTS];
	struct history h;
	assert_true(history_start(&h, ring, sizeof ring));
	for (uint64_t i = 0; i < 2 * EVENTS; i++)
		history_note(&h, HISTORY_OOM, .size = i);
	struct snapshot s = {.memory = {host_alloc, host_free, NULL}};
	int rounds = 0;
	do {
		assert_ok(snapshot_reserve(&s));
		add_range(&s, 0, BLOCKS * 512);
		for (uint64_t i = 0; i < BLOCKS; i++)
			add_block(&s, i * 512, 512, 512);
		snapshot_add_history(&s, &h);
		rounds++;
	} while (!snapshot_fits(&s));
	assert_int_equal(rounds, 2);
	json_t *json = sealed(&s);
	assert_int_equal(length(json, "segments.0.blocks"), BLOCKS);
	assert_int_equal(length(json, "device_traces.0"), EVENTS);
	assert_int_equal(number(json, "device_traces.0.0.size"), EVENTS);
	assert_int_equal(number(json, "terrazzo.events_noted"), 2 * EVENTS);
	assert_int_equal(number(json, "terrazzo.events_kept"), EVENTS);
	json_decref(json);
}

static void test_a_host_without_memory(void **state)
{
	(void)state;
	struct snapshot s = {.memory = {host_alloc, host_free, NULL}};
	host_is_full = true;
	assert_error(snapshot_reserve(&s), TRZ_ERROR_HOST_MEMORY, "history");
	host_is_full = false;
	snapshot_free(&s);
}

/* -- segments and blocks ------------------------------------------------------------------------------ */

static void test_nothing_at_all(void **state)
{
	(void)state;
	struct snapshot s = open_snapshot();
	json_t *json = sealed(&s);
	assert_int_equal(length(json, "segments"), 0);
	assert_int_equal(length(json, "device_traces"), 1);
	assert_int_equal(length(json, "device_traces.0"), 0);
	assert_int_equal(length(json, "external_annotations"), 0);
	assert_int_equal(length(json, "host_segments"), 0);
	assert_int_equal(length(json, "host_traces"), 0);
	json_decref(json);
}

static void test_ranges_become_segments_by_address(void **state)
{
	(void)state;
	struct snapshot s = open_snapshot();
	struct snapshot_range plain = {.address = BASE + MIB(20), .size = MIB(2)};
	add_range(&s, MIB(12), MIB(2));
	add_range(&s, MIB(4), MIB(2));
	add_range(&s, 0, MIB(2));
	add_range(&s, MIB(2), MIB(2));
	snapshot_add_range(&s, plain);
	plain.address += MIB(2);
	snapshot_add_range(&s, plain);
	snapshot_add_range(&s, (struct snapshot_range){
	    .address = BASE + MIB(14), .size = MIB(2), .pool = 5, .small = true, .expandable = true});
	json_t *json = sealed(&s);
	static const struct { uint64_t address, size; } expected[] = {
	    {0, MIB(6)}, {MIB(12), MIB(2)}, {MIB(14), MIB(2)}, {MIB(20), MIB(2)}, {MIB(22), MIB(2)}};
	assert_int_equal(length(json, "segments"), LENGTH(expected));
	for (size_t i = 0; i < LENGTH(expected); i++) {
		json_t *segment = json_array_get(at(json, "segments"), i);
		assert_int_equal(number(segment, "address"), BASE + expected[i].address);
		assert_int_equal(number(segment, "total_size"), expected[i].size);
		assert_int_equal(number(segment, "blocks.0.size"), expected[i].size);
	}
	assert_true(json_is_true(at(json, "segments.0.is_expandable")));
	assert_true(json_is_false(at(json, "segments.3.is_expandable")));
	assert_string_equal(string(json, "segments.0.segment_type"), "large");
	assert_string_equal(string(json, "segments.2.segment_type"), "small");
	assert_int_equal(number(json, "segments.2.segment_pool_id.0"), 0);
	assert_int_equal(number(json, "segments.2.segment_pool_id.1"), 5);
	json_decref(json);
}

static void test_blocks_tile_their_segment(void **state)
{
	(void)state;
	struct snapshot s = open_snapshot();
	add_range(&s, 0, MIB(2));
	add_range(&s, MIB(2), MIB(2));
	add_block(&s, MIB(1), MIB(2), MIB(2) - 100);
	snapshot_add_block(&s, (struct snapshot_block){
	    .address = BASE + MIB(3), .size = 512, .requested = 1, .stream = 99, .pending = true});
	add_block(&s, 512, 1024, 1000);
	json_t *json = sealed(&s), *segment = at(json, "segments.0");
	static const struct { uint64_t address, size, requested; const char *state; } expected[] = {
	    {0, 512, 0, "inactive"},
	    {512, 1024, 1000, "active_allocated"},
	    {1536, MIB(1) - 1536, 0, "inactive"},
	    {MIB(1), MIB(2), MIB(2) - 100, "active_allocated"},
	    {MIB(3), 512, 1, "active_pending_free"},
	    {MIB(3) + 512, MIB(1) - 512, 0, "inactive"}};
	assert_int_equal(length(segment, "blocks"), LENGTH(expected));
	for (size_t i = 0; i < LENGTH(expected); i++) {
		json_t *block = json_array_get(at(segment, "blocks"), i);
		assert_int_equal(number(block, "address"), BASE + expected[i].address);
		assert_int_equal(number(block, "size"), expected[i].size);
		assert_int_equal(number(block, "requested_size"), expected[i].requested);
		assert_string_equal(string(block, "state"), expected[i].state);
		assert_int_equal(length(block, "frames"), 0);
	}
	assert_int_equal(number(segment, "allocated_size"), MIB(2) + 1024);
	assert_int_equal(number(segment, "active_size"), MIB(2) + 1024 + 512);
	assert_int_equal(number(segment, "requested_size"), MIB(2) - 100 + 1000 + 1);
	assert_int_equal(number(segment, "blocks.4.terrazzo.stream"), 99);
	json_decref(json);
}

static void refused(struct snapshot *s, const char *part)
{
	assert_error(snapshot_seal(s), TRZ_ERROR_CORRUPT, part);
	snapshot_free(s);
}

static void test_ranges_that_cannot_be(void **state)
{
	(void)state;
	struct snapshot s = open_snapshot();
	add_range(&s, 0, MIB(4));
	add_range(&s, MIB(2), MIB(4));
	refused(&s, "overlap");
	s = open_snapshot();
	add_range(&s, 0, MIB(4));
	add_range(&s, 0, MIB(4));
	refused(&s, "overlap");
	s = open_snapshot();
	add_range(&s, 0, 0);
	refused(&s, "no range");
	s = open_snapshot();
	snapshot_add_range(&s, (struct snapshot_range){.address = UINT64_C(1) << 53, .size = 1});
	refused(&s, "no range");
	s = open_snapshot();
	snapshot_add_range(&s, (struct snapshot_range){.address = BASE, .size = UINT64_MAX});
	refused(&s, "no range");
}

static void test_blocks_that_cannot_be(void **state)
{
	(void)state;
	static const struct { uint64_t blocks[2][3]; const char *part; } cases[] = {
	    {{{MIB(2), 512, 1}}, "in no range"},                      /* behind the last */
	    {{{MIB(2) - 512, 1024, 1}}, "in no range"},               /* out of it */
	    {{{(uint64_t)-512, 1024, 1}}, "in no range"},             /* into it */
	    {{{MIB(4) - 512, 512, 1}}, "in no range"},                /* between */
	    {{{MIB(6) - 512, 1024, 1}}, "in no range"},               /* over two segments */
	    {{{0, UINT64_MAX, 1}}, "in no range"},
	    {{{0, 1024, 1}, {512, 512, 1}}, "overlaps"},
	    {{{0, 512, 1}, {0, 512, 1}}, "overlaps"},
	    {{{0, 512, 513}}, "less than was requested"},
	    {{{0, 0, 0}}, "empty"}};
	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct snapshot s = open_snapshot();
		add_range(&s, 0, MIB(2));
		add_range(&s, MIB(4), MIB(2));
		snapshot_add_range(&s, (struct snapshot_range){
		    .address = BASE + MIB(6), .size = MIB(2), .pool = 1, .expandable = true});
		for (int k = 0; k < 2; k++)
			if (cases[i].blocks[k][1] || k == 0)
				add_block(&s, cases[i].blocks[k][0], cases[i].blocks[k][1], cases[i].blocks[k][2]);
		refused(&s, cases[i].part);
	}
}

/* -- history ------------------------------------------------------------------------------------------ */

static void test_every_kind_of_event(void **state)
{
	(void)state;
	static struct history_event ring[32];
	struct history h;
	assert_true(history_start(&h, ring, sizeof ring));
	uint64_t a = BASE, b = BASE + MIB(2);
	history_note(&h, HISTORY_SEGMENT_ALLOC, .address = b, .size = 9, .stream = 7);
	history_note(&h, HISTORY_SEGMENT_FREE, .address = b, .size = 9, .stream = 7);
	history_note(&h, HISTORY_MAP, .address = a, .size = 8, .pool = 3);
	history_note(&h, HISTORY_ALLOC, .address = a, .size = 5, .stream = 7);
	history_note(&h, HISTORY_FREE, .address = a, .size = 5, .stream = 7);
	history_note(&h, HISTORY_FREE_REQUESTED, .address = a, .size = 6);
	history_note(&h, HISTORY_FREE_COMPLETED, .address = a, .size = 6);
	history_note(&h, HISTORY_FLIP, .from = a, .address = b, .size = 8);
	history_note(&h, HISTORY_GATHER, .from = b, .address = a, .size = 8);
	history_note(&h, HISTORY_WAIT, .stream = 7, .awaited = 8, .size = 1234);
	history_note(&h, HISTORY_UNMAP, .address = a, .size = 8);
	history_note(&h, HISTORY_OOM, .size = 100, .device_free = 10, .stream = 7);
	history_note(&h, HISTORY_SNAPSHOT, .size = 42);
	struct snapshot s = open_snapshot();
	s.device = 2;
	snapshot_add_history(&s, &h);
	json_t *json = sealed(&s), *trace = at(json, "device_traces.2");
	static const struct { const char *action; uint64_t addr, size, stream; } expected[] = {
	    {"segment_alloc", BASE + MIB(2), 9, 0}, {"segment_free", BASE + MIB(2), 9, 0},
	    {"segment_map", BASE, 8, 0}, {"alloc", BASE, 5, 7},
	    {"free_requested", BASE, 5, 7}, {"free_completed", BASE, 5, 7},
	    {"free_requested", BASE, 6, 0}, {"free_completed", BASE, 6, 0},
	    {"segment_unmap", BASE, 8, 0}, {"segment_map", BASE + MIB(2), 8, 0},
	    {"segment_unmap", BASE + MIB(2), 8, 0}, {"segment_map", BASE, 8, 0},
	    {"segment_unmap", BASE, 8, 0}, {"oom", 10, 100, 7}, {"snapshot", 0, 42, 0}};
	assert_int_equal(length(json, "device_traces"), 3);
	assert_int_equal(length(json, "device_traces.0") + length(json, "device_traces.1"), 0);
	assert_int_equal(json_array_size(trace), LENGTH(expected));
	for (size_t i = 0; i < LENGTH(expected); i++) {
		json_t *entry = json_array_get(trace, i);
		bool oom = strcmp(expected[i].action, "oom") == 0;
		assert_string_equal(string(entry, "action"), expected[i].action);
		assert_int_equal(number(entry, oom ? "device_free" : "addr"), expected[i].addr);
		assert_int_equal(number(entry, "size"), expected[i].size);
		assert_int_equal(number(entry, "stream"), expected[i].stream);
		assert_string_equal(string(entry, "compile_context"), "N/A");
		assert_string_equal(string(entry, "user_metadata"), "");
		assert_true(number(entry, "time_us") > 1000000000000000);
	}
	assert_int_equal(number(trace, "2.pool_id.1"), 3);
	assert_int_equal(length(json, "terrazzo.events"), 3);
	assert_string_equal(string(json, "terrazzo.events.0.action"), "flip");
	assert_int_equal(number(json, "terrazzo.events.0.from"), BASE);
	assert_int_equal(number(json, "terrazzo.events.0.addr"), BASE + MIB(2));
	assert_string_equal(string(json, "terrazzo.events.1.action"), "gather");
	assert_string_equal(string(json, "terrazzo.events.2.action"), "wait");
	assert_int_equal(number(json, "terrazzo.events.2.stream"), 7);
	assert_int_equal(number(json, "terrazzo.events.2.awaited"), 8);
	assert_int_equal(number(json, "terrazzo.events.2.stalled_ns"), 1234);
	json_decref(json);
}

static size_t two_frames(void *owner, uint64_t frames, struct snapshot_frame *out)
{
	(void)owner;
	out[0] = (struct snapshot_frame){"model.py", "forward", frames};
	out[1] = (struct snapshot_frame){"train.py", "main", 1};
	return 2;
}

static void test_a_block_has_the_origin_of_its_newest_allocation(void **state)
{
	(void)state;
	static struct history_tags tags;
	static struct history_event ring[4];
	struct history h;
	assert_true(history_start(&h, ring, sizeof ring));
	uint32_t old = history_tag(&tags, "old"), new = history_tag(&tags, "new");
	history_note(&h, HISTORY_ALLOC, .address = BASE + 512, .size = 9, .tag = old, .frames = 5);
	history_note(&h, HISTORY_ALLOC, .address = BASE, .size = 9, .tag = old, .frames = 1);
	history_note(&h, HISTORY_FREE, .address = BASE, .size = 9);
	history_note(&h, HISTORY_ALLOC, .address = BASE, .size = 9, .tag = new, .frames = 2);
	history_note(&h, HISTORY_SNAPSHOT, .size = 0);  /* replaces the first */
	struct snapshot s = open_snapshot();
	s.tags = &tags;
	s.frames = two_frames;
	add_range(&s, 0, MIB(2));
	add_block(&s, 0, 512, 9);
	add_block(&s, 512, 512, 9);
	snapshot_add_history(&s, &h);
	json_t *json = sealed(&s);
	assert_string_equal(string(json, "segments.0.blocks.0.terrazzo.tag"), "new");
	assert_int_equal(length(json, "segments.0.blocks.0.frames"), 2);
	assert_string_equal(string(json, "segments.0.blocks.0.frames.0.filename"), "model.py");
	assert_string_equal(string(json, "segments.0.blocks.0.frames.0.name"), "forward");
	assert_int_equal(number(json, "segments.0.blocks.0.frames.0.line"), 2);
	assert_int_equal(length(json, "segments.0.blocks.1.frames"), 0);
	assert_string_equal(string(json, "device_traces.0.0.user_metadata"), "old");
	assert_int_equal(number(json, "device_traces.0.0.frames.0.line"), 1);
	json_decref(json);
}

/* A long history tells each stack in full where it occurs first, and then by its number. */
static void test_long_histories_tell_a_stack_once(void **state)
{
	(void)state;
	enum { EVENTS = 52000, STACKS = 3 };
	static struct history_event ring[EVENTS];
	struct history h;
	assert_true(history_start(&h, ring, sizeof ring));
	for (uint64_t i = 0; i < EVENTS; i++)
		history_note(&h, HISTORY_OOM, .size = i, .frames = i < EVENTS - 1 ? 100 + i % STACKS : 7);
	struct snapshot s = open_snapshot();
	s.frames = two_frames;
	snapshot_add_history(&s, &h);
	assert_ok(snapshot_reserve(&s));
	snapshot_add_history(&s, &h);
	json_t *json = sealed(&s), *trace = at(json, "device_traces.0"), *entry;
	size_t i, in_full = 0;
	json_array_foreach(trace, i, entry) {
		json_t *frames = at(entry, "frames");
		bool last = i == EVENTS - 1, full = json_array_size(frames) > 0;
		in_full += full;
		assert_int_equal(number(entry, "stack"), last ? STACKS + 1 : 1 + i % STACKS);
		if (full)
			assert_int_equal(number(frames, "0.line"), last ? 7 : 100 + i % STACKS);
		assert_true(full || i >= STACKS);
	}
	assert_in_range(in_full, STACKS + 1, EVENTS - 1000);
	json_decref(json);
}

/* -- texts and numbers -------------------------------------------------------------------------------- */

static void test_texts_come_back_as_they_were(void **state)
{
	(void)state;
	struct snapshot_setting settings[] = {
	    {"plain", "tiles:16MiB,limit:0"},
	    {"quotes \" and \\", "\"\\/"},
	    {"control", "\x01\x1f\t\n\r\b\f\x7f"},
	    {"utf-8", "\xce\xbb \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"},
	    {"", ""}};
	struct snapshot s = open_snapshot();
	s.settings = settings;
	s.setting_count = LENGTH(settings);
	json_t *json = sealed(&s), *own = at(json, "allocator_settings.terrazzo");
	assert_int_equal(json_object_size(own), LENGTH(settings));
	for (size_t i = 0; i < LENGTH(settings); i++)
		assert_string_equal(json_string_value(json_object_get(own, settings[i].key)), settings[i].value);
	json_decref(json);
}

static void test_bytes_that_are_no_utf8_are_replaced(void **state)
{
	(void)state;
	static const struct { const char *given, *expected; } cases[] = {
	    {"a\xff" "b", "a\xef\xbf\xbd" "b"},
	    {"\x80", "\xef\xbf\xbd"},
	    {"\xc3", "\xef\xbf\xbd"},
	    {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
	    {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                    /* too long a form */
	    {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},    /* half of a pair */
	    {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}};
	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct snapshot_setting setting = {"key", cases[i].given};
		struct snapshot s = open_snapshot();
		s.settings = &setting;
		s.setting_count = 1;
		json_t *json = sealed(&s);
		assert_string_equal(string(json, "allocator_settings.terrazzo.key"), cases[i].expected);
		json_decref(json);
	}
}

static void test_numbers_stay_below_two_to_the_53(void **state)
{
	(void)state;
	static struct history_event ring[4];
	struct history h;
	assert_true(history_start(&h, ring, sizeof ring));
	int64_t limit = INT64_C(1) << 53;
	history_note(&h, HISTORY_OOM, .size = (uint64_t)limit - 1, .device_free = UINT64_MAX);
	struct snapshot s = open_snapshot();
	snapshot_add_history(&s, &h);
	json_t *json = sealed(&s);
	assert_int_equal(number(json, "device_traces.0.0.size"), limit - 1);
	assert_int_equal(number(json, "device_traces.0.0.device_free"), limit - 1);
	json_decref(json);
}

/* -- receivers and files ------------------------------------------------------------------------------ */

static bool refuse_second(void *owner, const char *bytes, size_t size)
{
	(void)bytes, (void)size;
	return ++*(int *)owner < 2;
}

static struct snapshot large_snapshot(void)
{
	struct snapshot s = {.memory = {host_alloc, host_free, NULL}, .block_count = 1000};
	assert_ok(snapshot_reserve(&s));
	add_range(&s, 0, MIB(2));
	for (uint64_t i = 0; i < 1000; i++)
		add_block(&s, i * 1024, 512, i % 512);
	assert_ok(snapshot_seal(&s));
	return s;
}

static void test_a_receiver_that_refuses(void **state)
{
	(void)state;
	struct snapshot s = large_snapshot();
	int calls = 0;
	assert_status(snapshot_write(&s, refuse_second, &calls), TRZ_ERROR_IO);
	assert_int_equal(calls, 2);
	snapshot_free(&s);
}

static int files_in(const char *folder)
{
	int count = 0;
	DIR *dir = opendir(folder);
	assert_non_null(dir);
	for (const struct dirent *entry; (entry = readdir(dir)); )
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

static trz_status to_file(struct snapshot *s, const char *path)
{
	uint64_t size = SNAPSHOT_ANY_SIZE;
	return snapshot_to_file(s, path, &size);
}

static void write_limited(struct snapshot *s, const char *path)
{
	struct rlimit old, limit;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = (struct rlimit){20000, old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	trz_status status = to_file(s, path);
	setrlimit(RLIMIT_FSIZE, &old);  /* its signal, which ends a process, has not come */
	assert_int_equal(status, TRZ_ERROR_IO);
	assert_text(trz_last_error(), path);
}

static void test_a_file_is_whole_or_not_there(void **state)
{
	(void)state;
	char folder[] = "snapshot-XXXXXX", path[64];
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/a.json", folder);
	struct snapshot s = large_snapshot();
	write_limited(&s, path);
	assert_int_equal(files_in(folder), 0);
	assert_ok(to_file(&s, path));
	assert_int_equal(files_in(folder), 1);
	write_limited(&s, path);  /* the file from before stays */
	assert_int_equal(files_in(folder), 1);
	json_t *json = json_load_file(path, 0, NULL);
	assert_int_equal(length(json, "segments.0.blocks"), 2000);
	json_decref(json);
	assert_ok(to_file(&s, path));  /* it is replaced */
	assert_int_equal(files_in(folder), 1);
	unlink(path);
	rmdir(folder);
	snapshot_free(&s);
}

static size_t frames_of_a_program(void *owner, uint64_t frames, struct snapshot_frame *out)
{
	(void)owner, (void)frames, (void)out;
	errno = 0;  /* as before strtol */
	return 0;
}

static void test_a_failure_is_one_whatever_texts_do(void **state)
{
	(void)state;
	char folder[] = "snapshot-XXXXXX", path[64];
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/a.json", folder);
	struct snapshot s = large_snapshot();
	s.frames = frames_of_a_program;
	for (size_t i = 0; i < s.block_count; i++)
		s.blocks[i].frames = i + 1;
	write_limited(&s, path);
	assert_text(trz_last_error(), strerror(EFBIG));
	assert_int_equal(files_in(folder), 0);
	rmdir(folder);
	snapshot_free(&s);
}

static void test_files_that_cannot_be(void **state)
{
	(void)state;
	char folder[] = "snapshot-XXXXXX", path[64];
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/no/a.json", folder);
	struct snapshot s = large_snapshot();
	assert_error(to_file(&s, path), TRZ_ERROR_IO, "cannot be created");
	snprintf(path, sizeof path, "%s/inner", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_error(to_file(&s, path), TRZ_ERROR_IO, "cannot be written");  /* a folder has the name */
	assert_int_equal(files_in(folder), 1);
	char *endless = calloc(1, 10000);
	memset(endless, 'a', 9999);
	assert_error(to_file(&s, endless), TRZ_ERROR_IO, "cannot be created: File name too long");
	free(endless);
	rmdir(path);
	rmdir(folder);
	snapshot_free(&s);
}

/* Reads a little of a pipe, and leaves. */
static void *read_a_little(void *pipe)
{
	char byte;
	int *fd = pipe;
	assert_int_equal(read(*fd, &byte, 1), 1);
	close(*fd);
	return NULL;
}

static void write_to_a_reader_that_leaves(struct snapshot *s)
{
	pthread_t reader;
	int ends[2];
	char path[64];
	assert_int_equal(pipe(ends), 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
	assert_int_equal(pthread_create(&reader, NULL, read_a_little, &ends[0]), 0);
	assert_error(to_file(s, path), TRZ_ERROR_IO, "Broken pipe");
	pthread_join(reader, NULL);
	close(ends[1]);
}

static bool is_pending(int number)
{
	sigset_t pending;
	assert_int_equal(sigpending(&pending), 0);
	return sigismember(&pending, number);
}

static void test_a_reader_that_leaves(void **state)
{
	(void)state;
	const struct timespec now = {0};
	sigset_t one, old;
	struct snapshot s = large_snapshot();
	write_to_a_reader_that_leaves(&s);  /* the signal would have ended us */
	sigemptyset(&one);
	sigaddset(&one, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &one, &old);
	assert_false(sigismember(&old, SIGPIPE));
	write_to_a_reader_that_leaves(&s);
	assert_false(is_pending(SIGPIPE));
	raise(SIGPIPE);
	write_to_a_reader_that_leaves(&s);
	assert_true(is_pending(SIGPIPE));  /* the program's own */
	assert_int_equal(sigtimedwait(&one, NULL, &now), SIGPIPE);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	snapshot_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_it_grows_until_all_fits, no_leak),
		cmocka_unit_test_teardown(test_a_host_without_memory, no_leak),
		cmocka_unit_test_teardown(test_nothing_at_all, no_leak),
		cmocka_unit_test_teardown(test_ranges_become_segments_by_address, no_leak),
		cmocka_unit_test_teardown(test_blocks_tile_their_segment, no_leak),
		cmocka_unit_test_teardown(test_ranges_that_cannot_be, no_leak),
		cmocka_unit_test_teardown(test_blocks_that_cannot_be, no_leak),
		cmocka_unit_test_teardown(test_every_kind_of_event, no_leak),
		cmocka_unit_test_teardown(test_a_block_has_the_origin_of_its_newest_allocation, no_leak),
		cmocka_unit_test_teardown(test_long_histories_tell_a_stack_once, no_leak),
		cmocka_unit_test_teardown(test_texts_come_back_as_they_were, no_leak),
		cmocka_unit_test_teardown(test_bytes_that_are_no_utf8_are_replaced, no_leak),
		cmocka_unit_test_teardown(test_numbers_stay_below_two_to_the_53, no_leak),
		cmocka_unit_test_teardown(test_a_receiver_that_refuses, no_leak),
		cmocka_unit_test_teardown(test_a_file_is_whole_or_not_there, no_leak),
		cmocka_unit_test_teardown(test_a_failure_is_one_whatever_texts_do, no_leak),
		cmocka_unit_test_teardown(test_files_that_cannot_be, no_leak),
		cmocka_unit_test_teardown(test_a_reader_that_leaves, no_leak),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
