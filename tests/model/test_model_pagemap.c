/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the address index with an array of ranges, which lie in a few clusters around borders of granules, leaves
 * and the address space. By every other seed most granules have one block at most, and need no cells.
 */
#include "bits.h"
#include "memory/block.h"
#include "memory/pagemap.h"
#include "prng.h"
#include "testing.h"

enum { CLUSTERS = 6, CLUSTER_CELLS = 4 * CELLS_PER_GRANULE, EVENTS = 40000, SEEDS = 8 };

static const trz_addr bases[CLUSTERS] = {
	0,
	(1ull << (GRANULE_SHIFT + PAGEMAP_LEAF_BITS)) - 2 * GRANULE,
	(7ull << (GRANULE_SHIFT + PAGEMAP_LEAF_BITS)) + 62 * GRANULE,
	(9ull << (GRANULE_SHIFT + PAGEMAP_LEAF_BITS)) - 3 * GRANULE,
	(200ull << (GRANULE_SHIFT + PAGEMAP_LEAF_BITS)) + 5 * GRANULE,
	(1ull << ADDRESS_BITS) - 4 * GRANULE,
};

/* What begins in, or covers, each cell of the clusters. */
struct cell {
	struct block block;    /* begins here; size 0: none does */
	struct slab *slab;
};

struct model {
	struct meta meta;
	struct pagemap map;
	struct cell cells[CLUSTERS][CLUSTER_CELLS];
	uint64_t random;
	bool sparse;
};

static trz_addr cell_address(unsigned cluster, unsigned i)
{
	return bases[cluster] + (uint64_t)i * CELL;
}

static void change(struct model *m)
{
	unsigned cluster = (unsigned)prng_below(&m->random, CLUSTERS), i = (unsigned)prng_below(&m->random, CLUSTER_CELLS);
	if (m->sparse)
		i -= i % CELLS_PER_GRANULE % (CELLS_PER_GRANULE - 1);  /* to the granule's first cell, seldom its last */
	struct cell *c = &m->cells[cluster][i];
	trz_addr address = cell_address(cluster, i);
	assert_true(pagemap_cover(&m->map, address, CELL));
	assert_true(pagemap_reserve(&m->map, 2));
	if (c->slab) {
		pagemap_set_slab(&m->map, address, CELL, NULL);
		c->slab = NULL;
	} else if (c->block.size) {
		pagemap_clear_block(&m->map, &c->block);
		c->block.size = 0;
	} else if (prng_below(&m->random, m->sparse ? 256 : 4) == 0) {
		c->slab = (struct slab *)(void *)c;
		pagemap_set_slab(&m->map, address, CELL, c->slab);
	} else {
		c->block.address = address + prng_below(&m->random, CELL / UNIT) * UNIT;
		c->block.size = UNIT;
		pagemap_set_block(&m->map, &c->block);
	}
}

/* By walking every cell. */
static struct block *naive_before(struct model *m, trz_addr address)
{
	struct block *best = NULL;
	for (unsigned cluster = 0; cluster < CLUSTERS; cluster++)
		for (unsigned i = 0; i < CLUSTER_CELLS && cell_address(cluster, i) <= address; i++)
			if (m->cells[cluster][i].block.size)
				best = &m->cells[cluster][i].block;
	return best;
}

/* Whether a block begins in another cell of an address's granule. */
static bool is_elsewhere(const struct block *b, trz_addr address)
{
	return b->size && b->address >> GRANULE_SHIFT == address >> GRANULE_SHIFT &&
	       b->address >> CELL_SHIFT != address >> CELL_SHIFT;
}

static void look(struct model *m)
{
	unsigned cluster = (unsigned)prng_below(&m->random, CLUSTERS), i = (unsigned)prng_below(&m->random, CLUSTER_CELLS);
	const struct cell *c = &m->cells[cluster][i];
	trz_addr address = cell_address(cluster, i) + prng_below(&m->random, CELL);
	pagemap_entry e = pagemap_get(&m->map, address);
	assert_int_equal(pagemap_is_slab(e), c->slab != NULL);
	if (c->slab)
		assert_ptr_equal(pagemap_slab(e), c->slab);
	else if (c->block.size)
		assert_ptr_equal(pagemap_block(e), &c->block);
	else if (e)
		assert_true(is_elsewhere(pagemap_block(e), address));
	assert_ptr_equal(pagemap_block_before(&m->map, address), naive_before(m, address));
	address = prng_next(&m->random) >> 16;  /* anywhere */
	assert_ptr_equal(pagemap_block_before(&m->map, address), naive_before(m, address));
}

static void test_against_the_array(void **state)
{
	(void)state;
	static struct model m;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		memset(&m, 0, sizeof m);
		m.random = prng_mix(seed);
		m.sparse = seed % 2;
		assert_true(meta_open(&m.meta));
		assert_true(pagemap_open(&m.map, &m.meta));
		for (int event = 0; event < EVENTS / SEEDS; event++) {
			change(&m);
			if (event % 4 == 0)
				look(&m);
		}
		meta_close(&m.meta);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_the_array)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
