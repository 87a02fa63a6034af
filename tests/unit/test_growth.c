/* SPDX-License-Identifier: Apache-2.0
 *
 * Growth: other threads' operations during its driver calls, requests for which it must not even begin, and programs
 * that would move memory for ever.
 */
#include <stdlib.h>

#include "heap/heap.h"
#include "overlay.h"
#include "prng.h"
#include "testing.h"

static struct overlay o;
static bool armed, no_addresses;

/* Another thread's allocations in the middle of a growth: the heap lock is free, so they can take every node. */
static trz_status map_amid_traffic(void *self, trz_addr address, uint64_t size, trz_handle handle)
{
	void *p;
	bool now = armed;
	armed = false;
	while (now && o.rig.heap->blocks.available != 2)
		assert_ok(trz_alloc(o.rig.heap, KIB(40), 0, NULL, &p));
	if (now)
		assert_ok(trz_alloc(o.rig.heap, KIB(40), MIB(2), NULL, &p));
	return o.rig.d->map(self, address, size, handle);
}

static void test_nodes_are_kept_while_the_driver_maps(void **state)
{
	(void)state;
	void *p, *q;
	overlay_machine(&o, GIB(2));
	o.table.map = map_amid_traffic;
	overlay_open_heap(&o, "tile_size:2MiB,slack_per_mille:1000,medium_limit:0");
	p = rig_alloc(&o.rig, MIB(100), NULL);
	q = rig_alloc(&o.rig, MIB(500), NULL);
	rig_free(&o.rig, p);
	armed = true;
	p = rig_alloc(&o.rig, MIB(350), NULL);
	assert_false(armed);
	rig_check(&o.rig);
	rig_free(&o.rig, p);
	rig_free(&o.rig, q);
	rig_sync(&o.rig);
	rig_close(&o.rig);
}

static void test_more_than_the_device_has_costs_nothing(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(80), NULL);
	void *p = rig_alloc(&r, 100, NULL), *q;
	uint64_t metadata = rig_stat(&r, "metadata_bytes"), addresses = rig_stat(&r, "address_bytes.current");
	for (uint64_t size = GIB(1024); size <= GIB(65536); size *= 4) {
		assert_error(trz_alloc(r.heap, size, 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "the device is full, ");
		assert_text(trz_last_error(), " short: ");
	}
	assert_int_equal(rig_stat(&r, "metadata_bytes"), metadata);
	assert_int_equal(rig_stat(&r, "address_bytes.current"), addresses);
	rig_free(&r, p);
	rig_sync(&r);
	rig_close(&r);
}

static trz_status reserve(void *self, uint64_t size, uint64_t alignment, trz_addr hint, trz_addr *address)
{
	return no_addresses ? TRZ_ERROR_ADDRESS_SPACE : o.rig.d->reserve(self, size, alignment, hint, address);
}

/* A stream without a window of its own lives on what another one has cached. */
static void test_without_addresses_others_memory_serves(void **state)
{
	(void)state;
	void *none;
	overlay_machine(&o, GIB(4));
	o.table.reserve = reserve;
	overlay_open_heap(&o, NULL);
	trz_stream a = rig_stream(&o.rig), b = rig_stream(&o.rig);
	rig_free(&o.rig, rig_alloc(&o.rig, MIB(100), a));
	rig_sync(&o.rig);
	no_addresses = true;
	void *p = rig_alloc(&o.rig, MIB(50), b);
	assert_error(trz_alloc(o.rig.heap, MIB(500), 0, b, &none), TRZ_ERROR_ADDRESS_SPACE, "address range");
	no_addresses = false;
	rig_free(&o.rig, p);
	rig_sync(&o.rig);
	rig_close(&o.rig);
}

/* The seam promises 256-byte alignment of plain memory, blocks need more. */
static trz_status skewed_alloc(void *self, trz_context c, uint64_t size, trz_addr *address)
{
	trz_status status = o.rig.d->mem_alloc(self, c, size + 4096, address);
	*address += status == TRZ_OK ? 256 : 0;
	return status;
}

static trz_status skewed_free(void *self, trz_context c, trz_addr address)
{
	return o.rig.d->mem_free(self, c, address - 256);
}

static void test_segments_at_odd_addresses(void **state)
{
	(void)state;
	overlay_machine(&o, GIB(1));
	o.table.mem_alloc = skewed_alloc;
	o.table.mem_free = skewed_free;
	overlay_open_heap(&o, "vmm:off");
	void *p = rig_alloc(&o.rig, MIB(3), NULL), *q = rig_alloc(&o.rig, 300, NULL);
	rig_check(&o.rig);
	rig_free(&o.rig, p);
	rig_free(&o.rig, q);
	rig_sync(&o.rig);
	assert_ok(trz_trim(o.rig.heap, 0, NULL));
	rig_check(&o.rig);
	assert_int_equal(rig_stat(&o.rig, "reserved_bytes.all.current"), 0);
	assert_int_equal(rig_stat(&o.rig, "idle_bytes.current"), 0);
	rig_close(&o.rig);
}

/* What alignment has left before a block is too short for any, and no request that would be served. */
static void test_the_largest_request_down_to_nothing(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "oom_report:off");
	void *aligned;
	size_t size;
	rig_free(&r, rig_alloc(&r, MIB(8), NULL));
	rig_alloc(&r, MIB(2) - KIB(16), NULL);
	assert_ok(trz_alloc(r.heap, MIB(2), MIB(2), NULL, &aligned));
	while (trz_largest_block(r.heap, NULL, &size) == TRZ_OK && size)
		rig_alloc(&r, size, NULL);
	assert_int_equal(size, 0);
	assert_int_equal(rig_stat(&r, "cached_bytes.current"), KIB(16));
	rig_check(&r);
	rig_close(&r);
}

/* Steps that allocate more and more, on two streams, and free all of it; how many tiles are mapped. */
static uint64_t maps_of_steps(bool resets)
{
	struct rig r = rig_open(GIB(8), NULL);
	trz_stream streams[] = {rig_stream(&r), rig_stream(&r)};
	uint64_t random = 5;
	for (int i = 0; i < 20; i++)
		rig_alloc(&r, MIB(10) + prng_below(&random, MIB(40)), streams[0]);
	for (int step = 0; step < 60; step++) {
		void *held[80];
		size_t count = 40 + prng_below(&random, 40);
		if (resets)
			assert_ok(trz_reset_peaks(r.heap));
		for (size_t i = 0; i < count; i++)
			held[i] = rig_alloc(&r, MIB(2) + prng_below(&random, MIB(60)), streams[i % 5 == 4]);
		while (count)
			rig_free(&r, held[--count]);
		rig_sync(&r);
	}
	uint64_t maps = sim_calls(r.s, SIM_SLOT_map);
	rig_close(&r);
	return maps;
}

/* Training loops reset them at each step. */
static void test_resetting_the_peaks_changes_nothing_else(void **state)
{
	(void)state;
	assert_int_equal(maps_of_steps(true), maps_of_steps(false));
}

enum { PIECES = 16 };

static int by_address(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;
	return (x > y) - (x < y);
}

/* Frees every second block, asks for almost as much in one piece, and fills up again: what is free never lines up. */
static void pass(struct rig *r, void **p)
{
	qsort(p, PIECES, sizeof *p, by_address);
	for (int i = 1; i < PIECES; i += 2)
		rig_free(r, p[i]);
	rig_free(r, rig_alloc(r, MIB(30), NULL));
	for (int i = 1; i < PIECES; i += 2)
		p[i] = rig_alloc(r, MIB(4), NULL);
}

/* How often the driver maps memory in such a program's last quarter. */
static uint64_t maps_when_warm(const char *config)
{
	void *p[PIECES];
	uint64_t before = 0;
	struct rig r = rig_open(GIB(1), config);
	for (int i = 0; i < PIECES; i++)
		p[i] = rig_alloc(&r, MIB(4), NULL);
	for (int i = 0; i < 400; i++) {
		if (i == 300)
			before = sim_calls(r.s, SIM_SLOT_map);
		pass(&r, p);
	}
	uint64_t maps = sim_calls(r.s, SIM_SLOT_map) - before;
	rig_check(&r);
	for (int i = 0; i < PIECES; i++)
		rig_free(&r, p[i]);
	rig_sync(&r);
	rig_close(&r);
	return maps;
}

#define SMALL_TILES "tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:0"
#define FIXED SMALL_TILES ",churn_per_mille:0"

static void test_a_program_that_repeats_itself_comes_to_rest(void **state)
{
	(void)state;
	assert_true(maps_when_warm(FIXED ",view_tiles:0") >= 100);
	assert_int_equal(maps_when_warm(FIXED ",view_tiles:8"), 0);
	assert_int_equal(maps_when_warm(SMALL_TILES ",view_tiles:0"), 0);
}

/* Blocks of random sizes and lives, which moves keep within a tenth of what is needed, for ever. Their addresses fill
 * many windows, which are mostly holes. */
static void test_aliases_stay_within_their_bound(void **state)
{
	(void)state;
#ifdef __SANITIZE_THREAD__
	skip();  /* which leaves too few addresses */
#endif
	enum { BLOCKS = 6, SIZES = 64, ROUNDS = 10000 };
	struct rig r = rig_open(GIB(80), "churn_per_mille:0");
	void *p[BLOCKS] = {NULL};
	uint64_t seed = 1;
	for (int i = 0; i < ROUNDS; i++) {
		void **block = &p[prng_below(&seed, BLOCKS)];
		if (*block)
			rig_free(&r, *block);
		*block = rig_alloc(&r, (1 + prng_below(&seed, SIZES)) * MIB(64), NULL);
	}
	uint64_t peak = rig_stat(&r, "allocated_bytes.all.peak");
	assert_true(rig_stat(&r, "reserved_bytes.all.peak") < peak + peak / 10);
	uint64_t limit = 256 + 12 * rig_stat(&r, "segment.all.current");
	assert_true(rig_stat(&r, "alias.current") < limit + limit / 4);
	for (int i = 0; i < BLOCKS; i++)
		rig_free(&r, p[i]);
	rig_close(&r);
}

/* docs/design.md, "One allocation, followed", tells these figures. */
static void test_the_driver_calls_of_one_allocation(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(80), NULL);
	uint64_t before = rig_calls(&r);
	void *p = rig_alloc(&r, MIB(100), NULL), *held[32];
	assert_int_equal(rig_calls(&r) - before, 31);
	assert_int_equal(rig_stat(&r, "driver_calls.create"), 13);
	assert_int_equal(rig_stat(&r, "driver_calls.map"), 13);
	before = rig_calls(&r);
	rig_free(&r, p);
	p = rig_alloc(&r, MIB(100), NULL);
	rig_free(&r, p);
	assert_int_equal(rig_calls(&r) - before, 0);
	for (unsigned i = 0; i < 32; i++)
		held[i] = rig_alloc(&r, MIB(48), NULL);
	for (unsigned i = 0; i < 32; i += 2)
		rig_free(&r, held[i]);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), MIB(1546));
	before = rig_calls(&r);
	for (unsigned round = 0; round < 3; round++) {
		p = rig_alloc(&r, MIB(100), NULL);
		assert_int_equal(rig_calls(&r) - before, 14);
		rig_free(&r, p);
	}
	assert_int_equal(rig_stat(&r, "tiles_gathered"), 6);
	for (unsigned i = 1; i < 32; i += 2)
		rig_free(&r, held[i]);
	rig_sync(&r);
	rig_close(&r);
}

/* A tile that two blocks share is free only when both are: of what was allocated in a burst most can be put together
 * though every second block of it is still held. */
static void test_tiles_of_a_burst_end_with_their_blocks(void **state)
{
	(void)state;
	enum { BLOCKS = 1600 };
	static void *p[BLOCKS];
	size_t largest;
	struct rig r = rig_open(GIB(80), NULL);
	for (int i = 0; i < BLOCKS; i++)
		p[i] = rig_alloc(&r, MIB(48), NULL);
	for (int i = 0; i < BLOCKS; i += 2)
		rig_free(&r, p[i]);
	assert_ok(trz_set_limit(r.heap, rig_stat(&r, "reserved_bytes.all.current")));
	assert_ok(trz_largest_block(r.heap, NULL, &largest));
	assert_true(largest > MIB(48) * BLOCKS / 2 / 2);
	for (int i = 1; i < BLOCKS; i += 2)
		rig_free(&r, p[i]);
	rig_sync(&r);
	rig_close(&r);
}

/* A heap of a few blocks reserves little more than they need; one that grows has tiles of full size. */
static void test_a_small_heap_has_small_tiles(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(80), NULL);
	static const struct {
		uint64_t size, reserved;
		unsigned tiles;
	} steps[] = {{MIB(3), MIB(4), 1}, {MIB(12), MIB(16), 3}, {MIB(48), MIB(64), 9}, {MIB(3), MIB(68), 10},
	             {MIB(160), MIB(226), 30}, {MIB(1024), MIB(1250), 94}};
	enum { STEPS = sizeof steps / sizeof *steps };
	void *p[STEPS];
	for (int i = 0; i < STEPS; i++) {
		p[i] = rig_alloc(&r, steps[i].size, NULL);
		assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), steps[i].reserved);
		assert_int_equal(rig_stat(&r, "driver_calls.create"), steps[i].tiles);
	}
	for (int i = 0; i < STEPS; i++)
		rig_free(&r, p[i]);
	rig_sync(&r);
	rig_close(&r);
}

/* A library's workspace comes and goes, and blocks that stay take part of its place: the heap grows by these alone. */
static void test_a_small_heap_grows_by_what_stays(void **state)
{
	(void)state;
	enum { BLOCKS = 8 };
	struct rig r = rig_open(GIB(80), NULL);
	void *p[BLOCKS];
	for (int i = 0; i < BLOCKS; i++) {
		rig_free(&r, rig_alloc(&r, MIB(32), NULL));
		assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), MIB(32 + 4 * i));
		p[i] = rig_alloc(&r, MIB(4), NULL);
	}
	for (int i = 0; i < BLOCKS; i++)
		rig_free(&r, p[i]);
	rig_sync(&r);
	rig_close(&r);
}

/* Blocks of 28 MiB on tiles of 16 MiB, in a heap that is not small: each has one tile of its own, and 12 MiB more. A
 * few are freed, and 64 MiB are asked for, which break the slack. */
static uint64_t gathered_out_of_small_holes(const char *conf)
{
	enum { BLOCKS = 80, FREED = 4, ALL = 512 + 28 * BLOCKS };
	struct rig r = rig_open(GIB(80), conf);
	void *p[BLOCKS];
	rig_alloc(&r, MIB(512), NULL);
	for (int i = 0; i < BLOCKS; i++)
		p[i] = rig_alloc(&r, MIB(28), NULL);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), MIB(ALL));
	for (int i = 0; i < FREED; i++)
		rig_free(&r, p[20 * i + 10]);
	rig_alloc(&r, MIB(64), NULL);
	uint64_t gathered = rig_stat(&r, "tiles_gathered");
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), MIB(ALL + 64) - gathered * MIB(16));
	rig_close(&r);
	return gathered;
}

static void test_holes_are_not_broken_up_for_little(void **state)
{
	(void)state;
	assert_int_equal(gathered_out_of_small_holes("tile_size_max:16MiB"), 0);
	assert_int_equal(gathered_out_of_small_holes("tile_size_max:16MiB,slack_per_mille:0"), 4);  /* no room for it */
}

/* 576 MiB on an empty heap: the first tile is a burst's, of 16 MiB, or 2; the others are of 16, 8 and 2. */
static void test_tiles_shrink_with_what_the_device_has_left(void **state)
{
	(void)state;
	static const struct {
		uint64_t device;
		unsigned tiles;
	} cases[] = {{GIB(80), 36}, {GIB(21), 71}, {GIB(6), 288}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct rig r = rig_open(cases[i].device, NULL);
		void *p = rig_alloc(&r, MIB(576), NULL);
		assert_int_equal(rig_stat(&r, "driver_calls.create"), cases[i].tiles);
		rig_free(&r, p);
		rig_close(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tiles_shrink_with_what_the_device_has_left),
		cmocka_unit_test(test_the_driver_calls_of_one_allocation),
		cmocka_unit_test(test_nodes_are_kept_while_the_driver_maps),
		cmocka_unit_test(test_more_than_the_device_has_costs_nothing),
		cmocka_unit_test(test_without_addresses_others_memory_serves),
		cmocka_unit_test(test_segments_at_odd_addresses),
		cmocka_unit_test(test_a_program_that_repeats_itself_comes_to_rest),
		cmocka_unit_test(test_aliases_stay_within_their_bound),
		cmocka_unit_test(test_tiles_of_a_burst_end_with_their_blocks),
		cmocka_unit_test(test_a_small_heap_has_small_tiles),
		cmocka_unit_test(test_a_small_heap_grows_by_what_stays),
		cmocka_unit_test(test_holes_are_not_broken_up_for_little),
		cmocka_unit_test(test_the_largest_request_down_to_nothing),
		cmocka_unit_test(test_resetting_the_peaks_changes_nothing_else),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
