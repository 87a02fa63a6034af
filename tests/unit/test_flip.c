/* SPDX-License-Identifier: Apache-2.0
 *
 * Flips: which places of a hole serve a request, and that this needs no call of the driver.
 *
 * Nine blocks of 4 MiB lie side by side. Three times two of them are freed and 8 MiB requested, which gathers their
 * tiles behind all others, where they are again held as two blocks of 4 MiB:
 *
 *   b0 | hole 1  2  3 | b4 | hole 5  6  7 | b8 | moved 1 | 5 | 2 | 6 | 3 | 7
 */
#include "rig.h"

enum { BLOCKS = 9 };

struct world {
	struct rig rig;
	char *first;                /* address of b0 */
	void *held[BLOCKS];         /* where the tiles of each are held now */
};

static void *block(struct world *w)
{
	return rig_alloc(&w->rig, MIB(4), NULL);
}

static void move_two(struct world *w, int a, int b)
{
	rig_free(&w->rig, w->held[a]);
	rig_free(&w->rig, w->held[b]);
	rig_free(&w->rig, rig_alloc(&w->rig, MIB(8), NULL));
	w->held[a] = block(w);
	w->held[b] = block(w);
	assert_ptr_equal((char *)w->held[a] + MIB(4), w->held[b]);
}

#define CONF "tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:0,churn_per_mille:0,refill:off"

static struct world world_open(void)
{
	struct world w = {.rig = rig_open(GIB(1), CONF)};
	for (int i = 0; i < BLOCKS; i++) {
		w.held[i] = block(&w);
		assert_ptr_equal(w.held[i], (char *)w.held[0] + i * MIB(4));
	}
	w.first = w.held[0];
	for (int i = 1; i <= 3; i++)
		move_two(&w, i, i + 4);
	assert_int_equal(rig_stat(&w.rig, "path_flip"), 0);
	return w;
}

static void world_close(struct world *w)
{
	for (int i = 0; i < BLOCKS; i++)
		if (w->held[i])
			rig_free(&w->rig, w->held[i]);
	rig_sync(&w->rig);
	rig_close(&w->rig);
}

static void let_go(struct world *w, int i)
{
	rig_free(&w->rig, w->held[i]);
	w->held[i] = NULL;
}

static uint64_t memory_calls(const struct world *w)
{
	return rig_stat(&w->rig, "driver_calls.create") + rig_stat(&w->rig, "driver_calls.map") +
	       rig_stat(&w->rig, "driver_calls.set_access") + rig_stat(&w->rig, "driver_calls.unmap");
}

/* Asks for so much, which is to lie where block `i` was and to cost nothing. */
static void expect_flip(struct world *w, uint64_t bytes, int i)
{
	uint64_t calls = memory_calls(w);
	void *p = rig_alloc(&w->rig, bytes, NULL);
	assert_ptr_equal(p, w->first + i * MIB(4));
	assert_int_equal(rig_stat(&w->rig, "path_flip"), 1);
	assert_int_equal(memory_calls(w), calls);
	rig_check(&w->rig);
	rig_free(&w->rig, p);
	world_close(w);
}

/* Nothing is laid over a hole for it: what is free is gathered. */
static void expect_gathering(struct world *w, uint64_t bytes)
{
	uint64_t gathered = rig_stat(&w->rig, "path_gather");
	rig_free(&w->rig, rig_alloc(&w->rig, bytes, NULL));
	assert_int_equal(rig_stat(&w->rig, "path_flip"), 0);
	assert_int_equal(rig_stat(&w->rig, "path_gather"), gathered + 1);
	rig_check(&w->rig);
	world_close(w);
}

static void test_against_the_block_before(void **state)
{
	(void)state;
	struct world w = world_open();
	let_go(&w, 0);
	let_go(&w, 1);
	expect_flip(&w, MIB(8), 0);
}

static void test_against_the_block_behind(void **state)
{
	(void)state;
	struct world w = world_open();
	let_go(&w, 4);
	let_go(&w, 3);
	expect_flip(&w, MIB(8), 3);
}

static void test_between_two_blocks(void **state)
{
	(void)state;
	struct world w = world_open();
	let_go(&w, 0);
	let_go(&w, 4);
	for (int i = 1; i <= 3; i++)
		let_go(&w, i);
	expect_flip(&w, MIB(20), 0);
}

/* Two of three, beside blocks that are held: the last ones, so that the first must be seen not to do. */
static void test_inside_a_hole(void **state)
{
	(void)state;
	struct world w = world_open();
	let_go(&w, 2);
	let_go(&w, 3);
	expect_flip(&w, MIB(8), 2);
}

static void test_the_hole_that_moves_less(void **state)
{
	(void)state;
	struct world w = world_open();
	let_go(&w, 6);
	let_go(&w, 7);   /* 8 MiB inside the second hole */
	let_go(&w, 0);
	let_go(&w, 1);   /* 4 MiB of the first, beside b0 */
	expect_flip(&w, MIB(8), 0);
}

/* The tiles of 1 and 3 are free, the one between them is not. */
static void test_a_gap_is_not_laid_over(void **state)
{
	(void)state;
	struct world w = world_open();
	let_go(&w, 1);
	let_go(&w, 3);
	expect_gathering(&w, MIB(8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_the_block_before),
		cmocka_unit_test(test_against_the_block_behind),
		cmocka_unit_test(test_between_two_blocks),
		cmocka_unit_test(test_inside_a_hole),
		cmocka_unit_test(test_the_hole_that_moves_less),
		cmocka_unit_test(test_a_gap_is_not_laid_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
