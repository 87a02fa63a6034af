/* SPDX-License-Identifier: Apache-2.0
 *
 * Call stacks: the heap asks for them with no lock held and only while it keeps a history, keeps them with live
 * allocations whatever the history forgets, and looks them up only for snapshots.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rig.h"

/* ---- a program that names stacks ------------------------------------------------------------------------- */

static struct program {
	trz_heap *heap;
	uint64_t stack;              /* where the program is now */
	unsigned asked, told;
	bool allocates;
} program;

static uint64_t name_stack(void *user)
{
	struct program *p = user;
	p->asked++;
	assert_ok(trz_check(p->heap));  /* takes every lock */
	if (p->allocates) {
		void *inner;
		assert_ok(trz_alloc(p->heap, 100, 0, NULL, &inner));
		assert_ok(trz_free(p->heap, inner));
	}
	return p->stack;
}

static size_t tell_stack(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	struct program *p = user;
	p->told++;
	assert_ok(trz_check(p->heap));
	assert_true(capacity >= 2);
	frames[0] = (trz_frame){"model.py", "forward", (unsigned)(id & 0xffff)};
	frames[1] = (trz_frame){NULL, NULL, 0};
	return 2;
}

static struct rig open_program(const char *conf)
{
	struct rig r = rig_open(MIB(256), conf);
	program = (struct program){.heap = r.heap};
	assert_ok(trz_set_frame_callback(r.heap, name_stack, tell_stack, &program));
	return r;
}

static void *alloc_at(struct rig *r, size_t size, uint64_t stack)
{
	program.stack = stack;
	return rig_alloc(r, size, NULL);
}

/* ---- looking at snapshots ------------------------------------------------------------------------------- */

static json_t *snapshot_of(struct rig *r)
{
	char path[] = "frames_XXXXXX", command[512];
	const char *source = getenv("TRZ_SOURCE_DIR");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	assert_ok(trz_snapshot(r->heap, path));
	snprintf(command, sizeof command, "python3 '%s/tools/check_snapshot.py' '%s'", source ? source : ".", path);
	assert_int_equal(system(command), 0);
	json_t *json = json_load_file(path, 0, NULL);
	assert_non_null(json);
	unlink(path);
	return json;
}

static json_t *frames_of_block(const json_t *snapshot, const void *address)
{
	size_t i, k;
	json_t *segment, *block;
	json_array_foreach(json_object_get(snapshot, "segments"), i, segment)
		json_array_foreach(json_object_get(segment, "blocks"), k, block)
			if (json_integer_value(json_object_get(block, "address")) == (json_int_t)(uintptr_t)address)
				return json_object_get(block, "frames");
	fail_msg("no block at %p", address);
	return NULL;
}

static json_int_t line_of(const json_t *frames)
{
	return json_integer_value(json_object_get(json_array_get(frames, 0), "line"));
}

static json_int_t line_of_block(const json_t *snapshot, const void *address)
{
	return line_of(frames_of_block(snapshot, address));
}

/* The newest event of an action at an address (NULL: at any); NULL: there is none. */
static const json_t *event_at(const json_t *snapshot, const char *action, const void *address)
{
	const json_t *newest = NULL;
	size_t i;
	json_t *entry;
	json_array_foreach(json_array_get(json_object_get(snapshot, "device_traces"), 0), i, entry) {
		bool here = !address || json_integer_value(json_object_get(entry, "addr")) == (json_int_t)(intptr_t)address;
		if (here && strcmp(json_string_value(json_object_get(entry, "action")), action) == 0)
			newest = entry;
	}
	return newest;
}

/* Its line; -1: there is none, 0: it has no stack. */
static json_int_t line_of_event_at(const json_t *snapshot, const char *action, const void *address)
{
	const json_t *entry = event_at(snapshot, action, address);
	return entry ? line_of(json_object_get(entry, "frames")) : -1;
}

/* The tag of the same event; NULL: there is none. */
static const char *tag_of_event_at(const json_t *snapshot, const char *action, const void *address)
{
	const json_t *entry = event_at(snapshot, action, address);
	return json_string_value(json_object_get(entry, "user_metadata"));
}

static json_int_t line_of_event(const json_t *snapshot, const char *action)
{
	return line_of_event_at(snapshot, action, NULL);
}

/* ---- tests ---------------------------------------------------------------------------------------------- */

static trz_status largest_block(trz_heap *heap)
{
	size_t size;
	return trz_largest_block(heap, NULL, &size);
}

static void test_asked_only_while_a_history_is_kept(void **state)
{
	(void)state;
	struct rig r = open_program(NULL);
	rig_free(&r, alloc_at(&r, 100, 1));
	assert_int_equal(program.asked, 0);
	assert_ok(trz_history_start(r.heap, 100));
	rig_free(&r, alloc_at(&r, 100, 1));
	rig_free(&r, alloc_at(&r, MIB(3), 1));
	assert_int_equal(program.asked, 4);
	assert_ok(trz_history_stop(r.heap));
	rig_free(&r, alloc_at(&r, 100, 1));
	assert_int_equal(program.asked, 4);
	assert_int_equal(program.told, 0);
	rig_close(&r);
}

static void test_live_memory_keeps_its_stack(void **state)
{
	(void)state;
	struct rig r = open_program(NULL);
	void *before = alloc_at(&r, 700, 9);
	assert_ok(trz_history_start(r.heap, 4));
	void *slot = alloc_at(&r, 700, 11), *other = alloc_at(&r, 700, 12), *large = alloc_at(&r, MIB(5), 13);
	void *unnamed = alloc_at(&r, 700, 0);
	for (int i = 0; i < 20; i++)  /* more than the ring holds */
		rig_free(&r, alloc_at(&r, 700, 0x100000001400));
	json_t *json = snapshot_of(&r);
	assert_int_equal(line_of_block(json, slot), 11);
	assert_int_equal(line_of_block(json, other), 12);
	assert_int_equal(line_of_block(json, large), 13);
	assert_int_equal(json_array_size(frames_of_block(json, before)), 0);
	assert_int_equal(json_array_size(frames_of_block(json, unnamed)), 0);
	assert_int_equal(line_of_event(json, "alloc"), 0x1400);
	assert_int_equal(line_of_event(json, "free_requested"), 0x1400);
	const json_t *second = json_array_get(frames_of_block(json, slot), 1);
	assert_string_equal(json_string_value(json_object_get(second, "name")), "??");
	json_decref(json);
	rig_check(&r);
	for (void *p[] = {before, slot, other, large, unnamed}, **i = p; i < p + LENGTH(p); i++)
		rig_free(&r, *i);
	rig_close(&r);
}

/* What is given out again while no stacks are asked for does not carry the stack of its last life. */
static void test_no_stack_outlives_its_allocation(void **state)
{
	(void)state;
	struct rig r = open_program(NULL);
	assert_ok(trz_history_start(r.heap, 100));
	void *slot = alloc_at(&r, 700, 11), *large = alloc_at(&r, MIB(5), 12);
	rig_free(&r, slot);
	rig_free(&r, large);
	assert_ok(trz_history_stop(r.heap));
	assert_ptr_equal(alloc_at(&r, 700, 13), slot);
	assert_ptr_equal(alloc_at(&r, MIB(5), 14), large);
	json_t *json = snapshot_of(&r);
	assert_int_equal(json_array_size(frames_of_block(json, slot)), 0);
	assert_int_equal(json_array_size(frames_of_block(json, large)), 0);
	json_decref(json);
	rig_free(&r, slot);
	rig_free(&r, large);
	rig_close(&r);
}

/* Nor does what is given out again, in the same history, to a thread that has no stack, as autograd's threads. */
static void test_no_stack_comes_from_an_earlier_life(void **state)
{
	(void)state;
	struct rig r = open_program(NULL);
	assert_ok(trz_history_start(r.heap, 100));
	void *slot = alloc_at(&r, 700, 11), *large = alloc_at(&r, MIB(5), 12);
	rig_free(&r, slot);
	rig_free(&r, large);
	assert_ptr_equal(alloc_at(&r, 700, 0), slot);
	assert_ptr_equal(alloc_at(&r, MIB(5), 0), large);
	json_t *json = snapshot_of(&r);
	assert_int_equal(json_array_size(frames_of_block(json, slot)), 0);
	assert_int_equal(json_array_size(frames_of_block(json, large)), 0);
	json_decref(json);
	rig_free(&r, slot);
	rig_free(&r, large);
	rig_close(&r);
}

static void test_pending_memory_and_failures(void **state)
{
	(void)state;
	struct rig r = open_program(NULL);
	trz_stream other = rig_stream(&r);
	assert_ok(trz_history_start(r.heap, 100));
	void *slot = alloc_at(&r, 700, 21), *large = alloc_at(&r, MIB(5), 22), *none;
	for (void *p[] = {slot, large}, **i = p; i < p + LENGTH(p); i++) {
		assert_ok(sim_stamp(r.s, r.c, other, (trz_addr)*i, 8, 1));
		assert_ok(trz_record_stream(r.heap, *i, other));
		program.stack = 23;
		rig_free(&r, *i);
	}
	program.stack = 24;
	assert_status(trz_alloc(r.heap, GIB(1), 0, NULL, &none), TRZ_ERROR_OUT_OF_MEMORY);
	json_t *json = snapshot_of(&r);
	assert_int_equal(line_of_block(json, slot), 21);
	assert_int_equal(line_of_block(json, large), 22);
	assert_int_equal(line_of_event(json, "free_requested"), 23);
	assert_int_equal(line_of_event(json, "oom"), 24);
	json_decref(json);
	rig_sync(&r);
	assert_ok(trz_poll(r.heap));
	json = snapshot_of(&r);
	assert_int_equal(line_of_event_at(json, "free_completed", slot), 21);
	assert_int_equal(line_of_event_at(json, "free_completed", large), 22);
	json_decref(json);
	rig_free(&r, alloc_at(&r, MIB(20), 25));  /* polls */
	assert_ok(trz_trim(r.heap, 0, NULL));
	json = snapshot_of(&r);
	assert_int_equal(line_of_event(json, "free_completed"), 25);
	json_decref(json);
	rig_close(&r);
}

/* Memory that is mapped, moved and unmapped carries the stack and the tag of the operation that did it. */
static void test_mappings(void **state)
{
	(void)state;
	struct rig r = open_program("medium_limit:0,slack_per_mille:0");
	assert_ok(trz_history_start(r.heap, 100));
	trz_set_tag("model");
	void *first = alloc_at(&r, MIB(32), 51), *kept = alloc_at(&r, MIB(16), 52), *second = alloc_at(&r, MIB(32), 53);
	json_t *json = snapshot_of(&r);
	assert_int_equal(line_of_event_at(json, "segment_map", first), 51);
	assert_int_equal(line_of_event_at(json, "segment_map", second), 53);
	assert_string_equal(tag_of_event_at(json, "segment_map", second), "model");
	json_decref(json);
	rig_free(&r, first);
	rig_free(&r, second);
	trz_set_tag("moves");
	void *moved = alloc_at(&r, MIB(64), 54);
	json = snapshot_of(&r);
	assert_true(rig_stat(&r, "tiles_gathered") > 0);
	assert_int_equal(line_of_event_at(json, "segment_unmap", first), 54);
	assert_int_equal(line_of_event(json, "segment_map"), 54);
	assert_string_equal(tag_of_event_at(json, "segment_unmap", first), "moves");
	json_decref(json);
	rig_free(&r, moved);
	trz_set_tag("trim");
	program.stack = 55;
	assert_ok(trz_trim(r.heap, 0, NULL));
	json = snapshot_of(&r);
	assert_int_equal(line_of_event(json, "segment_unmap"), 55);
	assert_string_equal(tag_of_event_at(json, "segment_unmap", NULL), "trim");
	json_decref(json);
	trz_set_tag(NULL);
	rig_free(&r, kept);
	rig_close(&r);
}

/* A tile of its own, and its end. */
static void test_mappings_apart(void **state)
{
	(void)state;
	struct rig r = open_program(NULL);
	const trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(4), .flags = TRZ_ALLOC_CONTIGUOUS};
	void *p;
	assert_ok(trz_history_start(r.heap, 100));
	program.stack = 61;
	assert_ok(trz_alloc_with(r.heap, &params, &p));
	rig_free(&r, p);
	program.stack = 62;
	assert_ok(trz_trim(r.heap, 0, NULL));
	json_t *json = snapshot_of(&r);
	assert_int_equal(line_of_event_at(json, "segment_map", p), 61);
	assert_int_equal(line_of_event_at(json, "segment_unmap", p), 62);
	json_decref(json);
	rig_close(&r);
}

/* What no allocation and no trim maps and unmaps: memory that stands alone, returned by whoever looks next. */
static void test_mappings_of_polls(void **state)
{
	static trz_status (*const looks[])(trz_heap *h) = {trz_poll, largest_block};
	(void)state;
	for (unsigned i = 0; i < LENGTH(looks); i++) {
		struct rig r = open_program("no_cache:on");
		assert_ok(trz_history_start(r.heap, 100));
		void *p = alloc_at(&r, MIB(4), 71);
		rig_free(&r, p);
		rig_sync(&r);
		program.stack = 72;
		assert_ok(looks[i](r.heap));
		json_t *json = snapshot_of(&r);
		assert_int_equal(line_of_event_at(json, "segment_map", p), 71);
		assert_int_equal(line_of_event_at(json, "segment_unmap", p), 72);
		json_decref(json);
		rig_close(&r);
	}
}

static void test_plain_allocations_of_the_driver(void **state)
{
	(void)state;
	struct rig r = open_program("vmm:off");
	assert_ok(trz_history_start(r.heap, 100));
	rig_free(&r, alloc_at(&r, MIB(4), 81));
	program.stack = 82;
	assert_ok(trz_trim(r.heap, 0, NULL));
	json_t *json = snapshot_of(&r);
	assert_int_equal(line_of_event(json, "segment_alloc"), 81);
	assert_int_equal(line_of_event(json, "segment_free"), 82);
	json_decref(json);
	rig_close(&r);
}

static void test_a_callback_may_use_the_heap(void **state)
{
	(void)state;
	struct rig r = open_program(NULL);
	assert_ok(trz_history_start(r.heap, 100));
	program.allocates = true;
	void *p = alloc_at(&r, MIB(5), 31);
	assert_int_equal(program.asked, 1);
	program.allocates = false;
	json_t *json = snapshot_of(&r);
	assert_int_equal(line_of_block(json, p), 31);
	json_decref(json);
	rig_free(&r, p);
	rig_close(&r);
}

static void test_numbers_die_with_their_callback(void **state)
{
	(void)state;
	struct rig r = open_program(NULL);
	assert_ok(trz_history_start(r.heap, 100));
	void *slot = alloc_at(&r, 700, 41), *large = alloc_at(&r, MIB(5), 42);
	assert_ok(trz_set_frame_callback(r.heap, name_stack, tell_stack, &program));
	json_t *json = snapshot_of(&r);
	assert_int_equal(json_array_size(frames_of_block(json, slot)), 0);
	assert_int_equal(json_array_size(frames_of_block(json, large)), 0);
	assert_int_equal(line_of_event(json, "alloc"), 0);
	assert_int_equal(program.told, 0);
	json_decref(json);
	assert_ok(trz_set_frame_callback(r.heap, NULL, NULL, NULL));
	rig_free(&r, slot);
	rig_free(&r, large);
	assert_int_equal(program.asked, 2);
	assert_ok(trz_set_frame_callback(r.heap, name_stack, tell_stack, &program));
	slot = alloc_at(&r, 700, 43);
	json = snapshot_of(&r);
	assert_int_equal(line_of_block(json, slot), 43);
	json_decref(json);
	rig_free(&r, slot);
	assert_ok(trz_history_stop(r.heap));
	assert_ptr_equal(alloc_at(&r, 700, 44), slot);
	json = snapshot_of(&r);
	assert_int_equal(json_array_size(frames_of_block(json, slot)), 0);
	json_decref(json);
	rig_free(&r, slot);
	assert_status(trz_set_frame_callback(NULL, NULL, NULL, NULL), TRZ_ERROR_INVALID_ARGUMENT);
	rig_close(&r);
}

/* ---- native stacks -------------------------------------------------------------------------------------- */

static NOINLINE uint64_t deeper(unsigned levels)
{
	uint64_t id = levels ? deeper(levels - 1) : trz_native_frames(NULL);
	__asm__ volatile("" : "+r"(id));  /* no tail call */
	return id;
}

static void test_native_stacks_are_numbered_once(void **state)
{
	(void)state;
	uint64_t ids[6];
	for (unsigned i = 0; i < LENGTH(ids); i++)
		ids[i] = deeper(i % 3);
	assert_true(ids[0] && ids[1] && ids[2]);
	assert_true(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ids[i], ids[i + 3]);
	trz_frame shallow[64], deep[64];
	size_t n = trz_native_frame_text(NULL, ids[0], shallow, LENGTH(shallow));
	size_t m = trz_native_frame_text(NULL, ids[2], deep, LENGTH(deep));
	assert_true(n >= 3);
	assert_int_equal(m, n + 2);
	assert_int_equal(trz_native_frame_text(NULL, deeper(60), deep, LENGTH(deep)), 48);
	assert_non_null(deep[0].filename);
	assert_non_null(strchr(deep[0].name, '+'));
	assert_int_equal(trz_native_frame_text(NULL, ids[0], shallow, 1), 1);
	assert_int_equal(trz_native_frame_text(NULL, 0, shallow, 64), 0);
	assert_int_equal(trz_native_frame_text(NULL, UINT64_MAX, shallow, 64), 0);
}

/* Names that have been found are kept: the second time a stack has the same. */
static void test_names_of_levels_are_kept(void **state)
{
	(void)state;
	trz_frame frames[64];
	char first[64][256];
	for (unsigned round = 0; round < 20; round++) {
		uint64_t id = deeper(round % 10);
		size_t n = trz_native_frame_text(NULL, id, frames, LENGTH(frames));
		for (size_t i = 0; i < n; i++)
			snprintf(first[i], sizeof first[i], "%s %s", frames[i].name, frames[i].filename);
		assert_int_equal(trz_native_frame_text(NULL, id, frames, LENGTH(frames)), n);
		for (size_t i = 0; i < n; i++) {
			char again[256];
			snprintf(again, sizeof again, "%s %s", frames[i].name, frames[i].filename);
			assert_string_equal(again, first[i]);
		}
	}
}

static void test_native_stacks_by_option(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), "native_frames:on");
	assert_ok(trz_set_frame_callback(r.heap, name_stack, tell_stack, &program));
	assert_ok(trz_set_frame_callback(r.heap, NULL, NULL, NULL));  /* the option holds again */
	assert_ok(trz_history_start(r.heap, 100));
	void *slot = rig_alloc(&r, 700, NULL), *large = rig_alloc(&r, MIB(5), NULL);
	json_t *json = snapshot_of(&r);
	assert_true(json_array_size(frames_of_block(json, slot)) >= 3);
	assert_true(json_array_size(frames_of_block(json, large)) >= 3);
	json_decref(json);
	rig_free(&r, slot);
	rig_free(&r, large);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_asked_only_while_a_history_is_kept),
		cmocka_unit_test(test_live_memory_keeps_its_stack),
		cmocka_unit_test(test_no_stack_outlives_its_allocation),
		cmocka_unit_test(test_no_stack_comes_from_an_earlier_life),
		cmocka_unit_test(test_pending_memory_and_failures),
		cmocka_unit_test(test_mappings),
		cmocka_unit_test(test_mappings_apart),
		cmocka_unit_test(test_mappings_of_polls),
		cmocka_unit_test(test_plain_allocations_of_the_driver),
		cmocka_unit_test(test_a_callback_may_use_the_heap),
		cmocka_unit_test(test_numbers_die_with_their_callback),
		cmocka_unit_test(test_native_stacks_are_numbered_once),
		cmocka_unit_test(test_names_of_levels_are_kept),
		cmocka_unit_test(test_native_stacks_by_option),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
