/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots of real heaps, by seed: several streams, uses on other streams, trims, rings that wrap. Each file must
 * pass tools/check_snapshot.py, which holds the rules that PyTorch's viewer depends on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bits.h"
#include "prng.h"
#include "rig.h"
#include "testing.h"

enum { HELD = 400, STREAMS = 3 };

struct load {
	struct rig rig;
	trz_stream streams[STREAMS];
	void *held[HELD];
	uint64_t random;
};

static uint64_t below(struct load *l, uint64_t bound)
{
	return prng_below(&l->random, bound);
}

static void open_load(struct load *l, uint64_t seed, const char *conf)
{
	*l = (struct load){.rig = rig_open(GIB(2), conf), .random = seed};
	for (int i = 1; i < STREAMS; i++)
		l->streams[i] = rig_stream(&l->rig);
}

static void step(struct load *l)
{
	void **slot = &l->held[below(l, HELD)];
	if (!*slot) {
		uint64_t size = below(l, 3) ? 1 + below(l, 40000) : 1 + below(l, MIB(20));
		trz_alloc(l->rig.heap, size, 0, l->streams[below(l, STREAMS)], slot);
		return;
	}
	if (below(l, 4) == 0)
		assert_ok(trz_record_stream(l->rig.heap, *slot, l->streams[below(l, STREAMS)]));
	if (below(l, 8) == 0)
		assert_ok(trz_free_on(l->rig.heap, *slot, l->streams[below(l, STREAMS)]));
	else
		rig_free(&l->rig, *slot);
	*slot = NULL;
}

static void close_load(struct load *l)
{
	rig_sync(&l->rig);
	for (int i = 0; i < HELD; i++)
		rig_free(&l->rig, l->held[i]);
	rig_sync(&l->rig);
	rig_close(&l->rig);
}

static void check_file(const char *path)
{
	char command[512];
	const char *source = getenv("TRZ_SOURCE_DIR");
	snprintf(command, sizeof command, "python3 '%s/tools/check_snapshot.py' '%s'", source ? source : ".", path);
	if (system(command) != 0)
		fail_msg("%s breaks a rule", path);
}

static void snapshots_of(uint64_t seed, size_t ring, int steps, const char *conf)
{
	char path[] = "snapshot_heap_XXXXXX";
	struct load l;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	open_load(&l, seed, conf);
	assert_ok(trz_history_start(l.rig.heap, ring));
	trz_set_tag(seed % 2 ? "odd" : NULL);
	for (int i = 0; i < steps; i++) {
		step(&l);
		if (i % 50 == 0)
			sim_run(l.rig.s, below(&l, 100));
		if (i % 700 == 699) {
			rig_sync(&l.rig);
			assert_ok(trz_trim(l.rig.heap, MIB(200), NULL));
		}
	}
	rig_check(&l.rig);
	assert_ok(trz_snapshot(l.rig.heap, path));
	assert_ok(trz_history_stop(l.rig.heap));
	trz_set_tag(NULL);
	close_load(&l);
	check_file(path);
	unlink(path);
}

static void test_whole_histories(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++)
		snapshots_of(seed, 100000, 2000, NULL);
}

static void test_wrapped_rings(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++)
		snapshots_of(seed, 100 * seed, 3000, NULL);
}

static void test_classic_segments(void **state)
{
	(void)state;
	snapshots_of(5, 1000, 3000, "vmm:off");
}

static void test_without_a_history(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	char path[] = "snapshot_heap_XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	void *p = rig_alloc(&r, 1000, NULL), *q = rig_alloc(&r, MIB(30), NULL);
	assert_ok(trz_snapshot(r.heap, path));
	check_file(path);
	assert_int_equal(trz_snapshot(r.heap, "/nonexistent/folder/file"), TRZ_ERROR_IO);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_close(&r);
	unlink(path);
}

static void test_bad_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	assert_int_equal(trz_history_start(r.heap, 0), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(trz_history_start(r.heap, SIZE_MAX), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(trz_history_start(NULL, 1), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(trz_history_stop(NULL), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(trz_snapshot(r.heap, NULL), TRZ_ERROR_INVALID_ARGUMENT);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_histories),
		cmocka_unit_test(test_wrapped_rings),
		cmocka_unit_test(test_classic_segments),
		cmocka_unit_test(test_without_a_history),
		cmocka_unit_test(test_bad_arguments),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
