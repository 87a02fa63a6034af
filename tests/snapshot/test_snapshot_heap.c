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
#include "trace_dump.h"

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

struct sums {
	uint64_t segments, blocks, held, requested, at;
	unsigned allocs, frees, maps;
	bool tagged;
};

static void add_segment(void *user, const trz_segment_info *s)
{
	struct sums *sums = user;
	assert_int_equal(sums->segments, sums->blocks);
	sums->segments += s->size;
	sums->at = s->address;
	assert_true(s->expandable);
	assert_int_equal(s->pool, 0);
}

static void add_block(void *user, const trz_block_info *b)
{
	struct sums *sums = user;
	assert_int_equal(b->address, sums->at);
	sums->at += b->size;
	sums->blocks += b->size;
	sums->held += b->state == TRZ_BLOCK_HELD ? b->size : 0;
	sums->requested += b->requested;
	sums->tagged |= strcmp(b->tag, "walk") == 0;
}

static void add_event(void *user, const trz_event_info *e)
{
	struct sums *sums = user;
	sums->allocs += strcmp(e->action, "alloc") == 0;
	sums->frees += strcmp(e->action, "free_requested") == 0;
	sums->maps += strcmp(e->action, "segment_map") == 0;
	assert_true(e->time_ns > 0);
}

static void test_walk_tells_what_a_snapshot_does(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct sums sums = {0};
	uint64_t reserved, held;
	assert_ok(trz_history_start(r.heap, 100));
	trz_set_tag("walk");
	void *p = rig_alloc(&r, 1000, NULL), *q = rig_alloc(&r, MIB(30), NULL), *gone = rig_alloc(&r, MIB(3), NULL);
	trz_set_tag(NULL);
	rig_free(&r, gone);
	assert_ok(trz_walk(r.heap, &(trz_visitor){add_segment, add_block, add_event, &sums}));
	assert_ok(trz_stat(r.heap, "reserved_bytes.all.current", &reserved));
	assert_ok(trz_stat(r.heap, "requested_bytes.all.current", &held));
	assert_int_equal(sums.segments, reserved);
	assert_int_equal(sums.blocks, reserved);
	assert_int_equal(sums.requested, held);
	assert_in_range(sums.held, held, held + KIB(32));
	assert_int_equal(sums.allocs, 3);
	assert_int_equal(sums.frees, 1);
	assert_true(sums.maps > 0 && sums.tagged);
	assert_ok(trz_walk(r.heap, &(trz_visitor){0}));
	assert_int_equal(trz_walk(r.heap, NULL), TRZ_ERROR_INVALID_ARGUMENT);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_close(&r);
}

static struct dump snapshot_of(const struct rig *r)
{
	char path[] = "snapshot_tiles_XXXXXX";
	struct dump d;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	assert_ok(trz_snapshot(r->heap, path));
	check_file(path);
	assert_ok(dump_load(path, &d));
	unlink(path);
	return d;
}

/* Of blocks of 4 MiB side by side, in tiles of 2 MiB, numbers 1 and 3 are freed: 8 MiB take their tiles along. */
static void test_tiles_and_where_they_went(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:0,churn_per_mille:0");
	void *blocks[5];
	assert_ok(trz_history_start(r.heap, 1000));
	for (int i = 0; i < 5; i++)
		blocks[i] = rig_alloc(&r, MIB(4), NULL);
	uint64_t base = (uintptr_t)blocks[0], moved;
	rig_free(&r, blocks[1]);
	rig_free(&r, blocks[3]);
	void *both = rig_alloc(&r, MIB(8), NULL);
	moved = (uintptr_t)both;
	rig_free(&r, both);
	struct dump d = snapshot_of(&r);
	assert_int_equal(d.window_count, 1);
	assert_int_equal(d.windows[0].laid, MIB(28));
	assert_true(d.windows[0].address == base && d.windows[0].reserved > MIB(28) && !d.windows[0].small);
	assert_string_equal(d.windows[0].kind, "packed");
	assert_int_equal(d.tile_count, 14);
	for (size_t i = 0; i < d.tile_count; i++) {
		const struct dump_tile *t = &d.tiles[i];
		bool left = i == 2 || i == 3 || i == 6 || i == 7;
		assert_int_equal(t->address, base + i * MIB(2));
		assert_int_equal(t->size, MIB(2));
		assert_int_equal(t->state, left ? DUMP_TILE_ALIAS : i < 10 ? DUMP_TILE_USED : DUMP_TILE_IDLE);
		assert_true(left ? t->owned_at >= moved && t->owned_at < moved + MIB(8) : t->owned_at == t->address);
	}
	assert_int_equal(d.move_count, 4);
	for (size_t i = 0; i < d.move_count; i++)
		assert_true(!d.moves[i].flip && d.moves[i].size == MIB(2) && d.moves[i].from < moved &&
		            d.moves[i].address >= moved);
	dump_free(&d);
	for (int i = 0; i < 5; i += 2)
		rig_free(&r, blocks[i]);
	rig_sync(&r);
	rig_close(&r);
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
		cmocka_unit_test(test_walk_tells_what_a_snapshot_does),
		cmocka_unit_test(test_tiles_and_where_they_went),
		cmocka_unit_test(test_bad_arguments),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
