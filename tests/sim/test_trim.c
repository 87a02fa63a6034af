/* SPDX-License-Identifier: Apache-2.0
 *
 * Trim is exact: after a random 90 % of the blocks have been freed and their work is done, only the tiles under live
 * memory stay reserved. Prints reserved / live.
 */
#include "accounts.h"
#include "testing.h"
#include "world.h"
#include "world_parts.h"

enum { BLOCKS = 2000, SEEDS = 96 };

static struct world world;

static void must(const char *wrong)
{
	if (wrong)
		fail_msg("%s", wrong);
}

static uint64_t random_size(void)
{
	uint64_t kind = world_below(&world, 8);
	if (kind < 4)
		return 8 + world_below(&world, KIB(32));
	return 8 + world_below(&world, kind < 7 ? MIB(2) : MIB(24));
}

/* Allocates until the device is three quarters full. */
static void fill(unsigned streams)
{
	for (int i = 0; i < BLOCKS && world.occupied < world.capacity / 4 * 3; i++)
		must(world_alloc(&world, random_size(), 0, (unsigned)world_below(&world, streams)));
}

static void trim_exactly(uint64_t seed, unsigned streams)
{
	must(world_open(&world, seed));
	if (!world.vmm || world.graphs || world.stream_count < streams) {
		world_close(&world);
		return;
	}
	fill(streams);
	for (size_t left = world.shadow.count / 10; world.shadow.count > left;)
		must(world_free(&world, world_below(&world, world.shadow.count)));
	assert_ok(world_sync(&world));
	assert_ok(trz_trim(world.heap, 0, NULL));
	must(world_check(&world));
	uint64_t touched = world_touched(&world, false), reserved = accounts_read(world.heap).reserved;
	print_message("seed %llu, %u streams: reserved / live %.3f (%llu of %llu bytes)\n", (unsigned long long)seed,
	              streams, world.occupied ? (double)reserved / (double)world.occupied : 0.0,
	              (unsigned long long)reserved, (unsigned long long)world.occupied);
	if (reserved != touched && reserved == world_touched(&world, true))
		print_error("a slab lies across two tiles and is held for the sake of one\n");
	assert_int_equal(reserved, touched);
	must(world_end(&world));
	world_close(&world);
}

static void test_one_stream(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		trim_exactly(seed, 1);
}

static void test_several_streams(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		trim_exactly(seed, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_stream),
		cmocka_unit_test(test_several_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
