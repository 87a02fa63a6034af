/* SPDX-License-Identifier: Apache-2.0
 *
 * A tool that NVTX injects knows every live allocation, and no other memory.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_tool.h"
#include "prng.h"
#include "rig.h"

static struct fake_tool *tool;

static const char *injected_path(void)
{
	const char *path = getenv("NVTX_INJECTION64_PATH");
	assert_non_null(path);
	return path;
}

static int find_tool(void **state)
{
	(void)state;
	void *library = dlopen(injected_path(), RTLD_NOW);
	tool = library ? dlsym(library, "fake_tool") : NULL;
	return tool ? 0 : -1;
}

static bool knows(const void *p, uint64_t size)
{
	for (size_t i = 0; i < tool->region_count; i++)
		if (tool->regions[i].address == (uint64_t)p)
			return tool->regions[i].size == size;
	return false;
}

static void test_off_nothing_is_told(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), NULL);
	rig_free(&r, rig_alloc(&r, 100, NULL));
	rig_close(&r);
	assert_int_equal(tool->calls, 0);
	assert_int_equal(tool->initialized, 0);
}

static void set_path(const char *path)
{
	static char entries[2][512];
	static unsigned turn;
	char *entry = entries[turn++ % 2];
	snprintf(entry, sizeof entries[0], "NVTX_INJECTION64_PATH=%s", path);
	assert_int_equal(putenv(entry), 0);
}

static void test_no_tool(void **state)
{
	(void)state;
	char path[400];
	snprintf(path, sizeof path, "%s", injected_path());
	set_path("");
	struct rig r = rig_open(MIB(64), "nvtx:on");
	rig_free(&r, rig_alloc(&r, 100, NULL));
	rig_close(&r);
	set_path(path);
	assert_int_equal(tool->calls, 0);
}

/* In a process of its own: a process tries once. */
static void test_a_tool_that_cannot_be_loaded(void **state)
{
	(void)state;
	int status;
	pid_t child = fork();
	if (child == 0) {
		struct rig r = rig_machine((sim_config){.capacity = MIB(64)});
		trz_open_params params = {.driver = r.d, .config = "nvtx:on"};
		set_path("nowhere.so");
		bool refused = trz_open(&params, &r.heap) == TRZ_ERROR_NOT_SUPPORTED && strstr(trz_last_error(), "nowhere.so");
		_exit(refused && sim_leaks(r.s, NULL, 0) == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void programs(const char *conf)
{
	enum { HELD = 60 };
	struct rig r = rig_open(MIB(128), conf);
	trz_stream streams[2] = {NULL, rig_stream(&r)};
	void *held[HELD] = {NULL};
	uint64_t sizes[HELD], random = 3;
	size_t count = 0;
	for (int i = 0; i < 3000; i++) {
		size_t k = prng_below(&random, HELD);
		bool large = prng_below(&random, 3) == 0;
		if (held[k]) {
			assert_true(knows(held[k], sizes[k]));
			if (large)
				assert_ok(trz_record_stream(r.heap, held[k], streams[1]));
			rig_free(&r, held[k]);
			assert_false(knows(held[k], sizes[k]));
			held[k] = NULL;
			count--;
		} else {
			sizes[k] = 1 + prng_below(&random, large ? MIB(5) : KIB(20));
			trz_alloc(r.heap, sizes[k], 0, streams[prng_below(&random, 2)], &held[k]);
			count += held[k] != NULL;
		}
		assert_int_equal(tool->region_count, count);
		sim_run(r.s, 2);
		if (i % 300 == 299)
			assert_ok(trz_trim(r.heap, 0, NULL));
	}
	assert_string_equal(tool->wrong, "");
	assert_true(tool->heap_count > 0);
	assert_string_equal(tool->name, "terrazzo, device 0");
	uint64_t calls = tool->calls;
	assert_status(trz_free(r.heap, (void *)4096), TRZ_ERROR_UNKNOWN_POINTER);
	assert_int_equal(tool->calls, calls);
	rig_sync(&r);
	rig_close(&r);  /* with what is held */
	assert_int_equal(tool->heap_count, 0);
	assert_int_equal(tool->region_count, 0);
	assert_string_equal(tool->wrong, "");
}

static void test_a_tool_knows_what_is_allocated(void **state)
{
	(void)state;
	programs("nvtx:on");
	programs("nvtx:on,vmm:off");
	programs("nvtx:on,no_cache:on");
	programs("nvtx:on,quarantine:0,window_factor:1,tile_size:2MiB,tile_size_max:2MiB");
	assert_int_equal(tool->initialized, 1);
}

static void test_a_pool_that_is_restored(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(128), "nvtx:on");
	trz_pool *pool = NULL;
	trz_pool_state *checkpoint = NULL;
	void *block, *slot, *later;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_alloc(r.heap, pool, MIB(3), 0, NULL, &block));
	assert_ok(trz_pool_alloc(r.heap, pool, 1000, 0, NULL, &slot));
	assert_ok(trz_pool_checkpoint(r.heap, pool, &checkpoint));
	rig_free(&r, block);
	assert_ok(trz_pool_alloc(r.heap, pool, 700, 0, NULL, &later));
	assert_ok(trz_pool_restore(r.heap, pool, checkpoint));
	assert_true(knows(block, MIB(3)));
	assert_true(knows(slot, 1000));
	assert_false(knows(later, 700));
	rig_free(&r, block);
	rig_free(&r, slot);
	assert_int_equal(tool->region_count, 0);
	assert_string_equal(tool->wrong, "");
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

static void test_growth(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "nvtx:on");
	void *p = rig_alloc(&r, 520, NULL);
	assert_ok(trz_grow(r.heap, p, 700));
	assert_true(knows(p, 700));
	assert_ok(trz_grow(r.heap, p, 600));  /* it is longer already */
	assert_true(knows(p, 700));
	rig_free(&r, p);
	assert_int_equal(tool->region_count, 0);
	rig_close(&r);
}

/* The tool knows nothing of other processes' memory. */
static void test_an_import(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "nvtx:on");
	trz_heap *other = rig_second_heap(&r);
	trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(2), .flags = TRZ_ALLOC_SHARE_FD};
	void *theirs, *ours;
	int fd;
	assert_ok(trz_alloc_with(other, &params, &theirs));
	assert_ok(trz_export(other, theirs, TRZ_ALLOC_SHARE_FD, &fd));
	assert_ok(trz_import(r.heap, TRZ_ALLOC_SHARE_FD, &fd, MIB(2), NULL, &ours));
	close(fd);
	rig_free(&r, ours);
	assert_string_equal(tool->wrong, "");
	assert_ok(trz_poll(r.heap));
	assert_ok(trz_close(other));
	rig_close(&r);
}

static bool returned;

static void *allocate_cancelled(void *rig)
{
	struct rig *r = rig;
	pthread_cancel(pthread_self());
	rig_free(r, rig_alloc(r, 100, NULL));
	returned = true;
	pthread_testcancel();
	return NULL;
}

/* Else the tool's lock would stay taken. */
static void test_a_thread_is_not_cancelled_in_the_tool(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "nvtx:on");
	pthread_t thread;
	void *result;
	tool->waits = 1;
	assert_int_equal(pthread_create(&thread, NULL, allocate_cancelled, &r), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	tool->waits = 0;
	assert_true(returned);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	rig_free(&r, rig_alloc(&r, 100, NULL));
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_off_nothing_is_told),
		cmocka_unit_test(test_no_tool),
		cmocka_unit_test(test_a_tool_that_cannot_be_loaded),
		cmocka_unit_test(test_a_tool_knows_what_is_allocated),
		cmocka_unit_test(test_a_pool_that_is_restored),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_an_import),
		cmocka_unit_test(test_a_thread_is_not_cancelled_in_the_tool),
	};
	return cmocka_run_group_tests(tests, find_tool, NULL);
}
