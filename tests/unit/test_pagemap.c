/* SPDX-License-Identifier: Apache-2.0
 *
 * The address index: entries, coverage and the search backwards, at the borders of cells, granules and leaves.
 */
#include "bits.h"
#include "memory/block.h"
#include "memory/pagemap.h"
#include "testing.h"

enum { LEAF_SHIFT = GRANULE_SHIFT + PAGEMAP_LEAF_BITS };

struct world {
	struct meta meta;
	struct pagemap map;
	struct block a, b, c;
};

static void open_world(struct world *w)
{
	*w = (struct world){0};
	assert_true(meta_open(&w->meta));
	assert_true(pagemap_open(&w->map, &w->meta));
}

static void set(struct world *w, struct block *b, trz_addr address)
{
	assert_true(pagemap_cover(&w->map, address, UNIT));
	assert_true(pagemap_reserve(&w->map, 2));
	b->address = address;
	pagemap_set_block(&w->map, b);
}

static void test_nothing_is_found_in_an_empty_index(void **state)
{
	(void)state;
	struct world w;
	open_world(&w);
	static const trz_addr places[] = {0, 1, GRANULE, 1ull << LEAF_SHIFT, (1ull << ADDRESS_BITS) - 1,
	                                  1ull << ADDRESS_BITS, UINT64_MAX};
	for (size_t i = 0; i < LENGTH(places); i++) {
		assert_int_equal(pagemap_get(&w.map, places[i]), 0);
		assert_null(pagemap_block_before(&w.map, places[i]));
	}
	meta_close(&w.meta);
}

static void test_cover_refuses_what_is_no_address(void **state)
{
	(void)state;
	struct world w;
	open_world(&w);
	assert_true(pagemap_cover(&w.map, (1ull << ADDRESS_BITS) - GRANULE, GRANULE));
	assert_true(pagemap_reserve(&w.map, 2));
	assert_false(pagemap_cover(&w.map, (1ull << ADDRESS_BITS) - GRANULE, 2 * GRANULE));
	assert_false(pagemap_cover(&w.map, 1ull << ADDRESS_BITS, GRANULE));
	meta_close(&w.meta);
}

static void test_an_entry_is_found_from_its_whole_cell(void **state)
{
	(void)state;
	struct world w;
	open_world(&w);
	trz_addr at = 7ull * GRANULE + 5 * CELL;
	set(&w, &w.a, at + 3 * UNIT);
	set(&w, &w.b, at + 2 * CELL);  /* so that the granule has cells */
	assert_ptr_equal(pagemap_block(pagemap_get(&w.map, at)), &w.a);
	assert_ptr_equal(pagemap_block(pagemap_get(&w.map, at + CELL - 1)), &w.a);
	assert_int_equal(pagemap_get(&w.map, at - 1), 0);
	assert_int_equal(pagemap_get(&w.map, at + CELL), 0);
	pagemap_clear_block(&w.map, &w.a);
	assert_int_equal(pagemap_get(&w.map, at), 0);
	meta_close(&w.meta);
}

/* No host memory but the leaf's is needed for it. */
static void test_a_granule_of_one_block_has_no_cells(void **state)
{
	(void)state;
	struct world w;
	open_world(&w);
	trz_addr at = 7ull * GRANULE;
	set(&w, &w.a, at + 5 * CELL);
	size_t available = w.map.cells.available;
	assert_ptr_equal(pagemap_block(pagemap_get(&w.map, at + 5 * CELL)), &w.a);
	assert_ptr_equal(pagemap_block_before(&w.map, at + 5 * CELL), &w.a);
	assert_null(pagemap_block_before(&w.map, at + 4 * CELL));
	pagemap_clear_block(&w.map, &w.a);
	assert_int_equal(pagemap_get(&w.map, at + 5 * CELL), 0);
	assert_null(pagemap_block_before(&w.map, at + GRANULE));
	set(&w, &w.b, at + CELL);
	assert_int_equal(w.map.cells.available, available);
	set(&w, &w.a, at + 5 * CELL);
	assert_int_equal(w.map.cells.available, available - 1);
	assert_ptr_equal(pagemap_block(pagemap_get(&w.map, at + CELL)), &w.b);
	assert_ptr_equal(pagemap_block(pagemap_get(&w.map, at + 5 * CELL)), &w.a);
	assert_ptr_equal(pagemap_block_before(&w.map, at + 4 * CELL), &w.b);
	meta_close(&w.meta);
}

/* A reader without a lock that was sent to the granule's entry does not take cells for a slab. */
static void test_a_stale_slot_shows_no_slab(void **state)
{
	(void)state;
	struct world w;
	open_world(&w);
	trz_addr at = 7ull * GRANULE;
	set(&w, &w.a, at);
	const _Atomic pagemap_entry *slot = pagemap_slot(&w.map, at);
	assert_true(pagemap_reserve(&w.map, 2));
	pagemap_set_slab(&w.map, at + 2 * CELL, CELL, (struct slab *)&w.c);
	assert_false(pagemap_is_slab(pagemap_read(slot)));
	assert_ptr_equal(pagemap_block(pagemap_get(&w.map, at)), &w.a);
	meta_close(&w.meta);
}

static void test_slabs_are_told_from_blocks(void **state)
{
	(void)state;
	struct world w;
	open_world(&w);
	struct slab *slab = (struct slab *)&w.c;  /* any aligned pointer */
	assert_true(pagemap_cover(&w.map, GRANULE, 2 * GRANULE));
	assert_true(pagemap_reserve(&w.map, 2));
	pagemap_set_slab(&w.map, 2ull * GRANULE - 2 * CELL, 4 * CELL, slab);  /* over a granule's border */
	for (trz_addr a = 2ull * GRANULE - 2 * CELL; a < 2ull * GRANULE + 2 * CELL; a += UNIT) {
		pagemap_entry e = pagemap_get(&w.map, a);
		assert_true(pagemap_is_slab(e));
		assert_ptr_equal(pagemap_slab(e), slab);
	}
	assert_null(pagemap_block_before(&w.map, 2ull * GRANULE + CELL));
	pagemap_set_slab(&w.map, 2ull * GRANULE - 2 * CELL, 4 * CELL, NULL);
	assert_int_equal(pagemap_get(&w.map, 2ull * GRANULE), 0);
	meta_close(&w.meta);
}

static void test_the_block_before(void **state)
{
	(void)state;
	struct world w;
	open_world(&w);
	trz_addr leaf = 9ull << LEAF_SHIFT;
	set(&w, &w.a, leaf - (3ull << LEAF_SHIFT));  /* three leaves before, the first granule */
	set(&w, &w.b, leaf + 66ull * GRANULE - UNIT);
	set(&w, &w.c, leaf + 66ull * GRANULE);
	assert_null(pagemap_block_before(&w.map, leaf - (3ull << LEAF_SHIFT) - 1));
	assert_ptr_equal(pagemap_block_before(&w.map, leaf), &w.a);
	assert_ptr_equal(pagemap_block_before(&w.map, leaf + 64ull * GRANULE), &w.a);
	assert_ptr_equal(pagemap_block_before(&w.map, leaf + 66ull * GRANULE - 1), &w.b);
	assert_ptr_equal(pagemap_block_before(&w.map, leaf + 66ull * GRANULE), &w.c);
	assert_ptr_equal(pagemap_block_before(&w.map, leaf + (2ull << LEAF_SHIFT)), &w.c);
	assert_ptr_equal(pagemap_block_before(&w.map, (1ull << ADDRESS_BITS) - 1), &w.c);
	pagemap_clear_block(&w.map, &w.c);
	assert_ptr_equal(pagemap_block_before(&w.map, leaf + 66ull * GRANULE), &w.b);
	meta_close(&w.meta);
}

static void test_two_blocks_of_one_granule(void **state)
{
	(void)state;
	struct world w;
	open_world(&w);
	set(&w, &w.a, GRANULE);
	set(&w, &w.b, GRANULE + 2 * CELL);
	pagemap_clear_block(&w.map, &w.a);
	assert_ptr_equal(pagemap_block_before(&w.map, 5ull * GRANULE), &w.b);
	pagemap_clear_block(&w.map, &w.b);
	assert_null(pagemap_block_before(&w.map, 5ull * GRANULE));
	meta_close(&w.meta);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_found_in_an_empty_index),
		cmocka_unit_test(test_cover_refuses_what_is_no_address),
		cmocka_unit_test(test_an_entry_is_found_from_its_whole_cell),
		cmocka_unit_test(test_a_granule_of_one_block_has_no_cells),
		cmocka_unit_test(test_a_stale_slot_shows_no_slab),
		cmocka_unit_test(test_slabs_are_told_from_blocks),
		cmocka_unit_test(test_the_block_before),
		cmocka_unit_test(test_two_blocks_of_one_granule),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
