/* SPDX-License-Identifier: Apache-2.0
 *
 * The two-level address index.
 */
#include "memory/pagemap.h"

#include <assert.h>

#include "bits.h"

enum { LEAF_GRANULES = 1 << PAGEMAP_LEAF_BITS };

bool pagemap_open(struct pagemap *m, struct meta *meta)
{
	m->meta = meta;
	node_pool_init(&m->cells, meta, sizeof(struct pagemap_cells));
	m->root = meta_alloc(meta, sizeof *m->root << PAGEMAP_ROOT_BITS);
	return m->root != NULL;
}

bool pagemap_cover(struct pagemap *m, trz_addr address, uint64_t size)
{
	uint64_t last = (address + size - 1) >> GRANULE_SHIFT;
	if (last >> (ADDRESS_BITS - GRANULE_SHIFT))
		return false;
	for (uint64_t i = address >> GRANULE_SHIFT >> PAGEMAP_LEAF_BITS; i <= last >> PAGEMAP_LEAF_BITS; i++)
		if (!m->root[i] && !(m->root[i] = meta_alloc(m->meta, sizeof **m->root)))
			return false;
	return true;
}

/* The cells of a granule, made if it had none: a node has been reserved. */
static struct pagemap_cells *cells_of(struct pagemap *m, struct pagemap_leaf *leaf, uint64_t g)
{
	struct pagemap_cells **cells = &leaf->cells[g];
	if (!*cells) {
		*cells = node_pool_take(&m->cells);
		**cells = (struct pagemap_cells){{0}};
	}
	return *cells;
}

static inline unsigned cell_in_granule(trz_addr address)
{
	return address >> CELL_SHIFT & (CELLS_PER_GRANULE - 1);
}

void pagemap_set_block(struct pagemap *m, trz_addr address, struct block *b)
{
	uint64_t granule = address >> GRANULE_SHIFT, g = granule & (LEAF_GRANULES - 1);
	struct pagemap_leaf *leaf = m->root[granule >> PAGEMAP_LEAF_BITS];
	assert(leaf && !pagemap_get(m, address));
	cells_of(m, leaf, g)->entry[cell_in_granule(address)] = (pagemap_entry)b;
	if (leaf->begins[g]++ == 0)
		leaf->begun[g / 64] |= (uint64_t)1 << g % 64;
}

void pagemap_clear_block(struct pagemap *m, trz_addr address)
{
	uint64_t granule = address >> GRANULE_SHIFT, g = granule & (LEAF_GRANULES - 1);
	struct pagemap_leaf *leaf = m->root[granule >> PAGEMAP_LEAF_BITS];
	assert(leaf->begins[g] > 0 && pagemap_get(m, address) && !pagemap_is_slab(pagemap_get(m, address)));
	leaf->cells[g]->entry[cell_in_granule(address)] = 0;
	if (--leaf->begins[g] == 0)
		leaf->begun[g / 64] &= ~((uint64_t)1 << g % 64);
}

void pagemap_set_slab(struct pagemap *m, trz_addr address, uint64_t size, struct slab *s)
{
	for (trz_addr a = address; a < address + size; a += CELL) {
		uint64_t granule = a >> GRANULE_SHIFT;
		struct pagemap_leaf *leaf = m->root[granule >> PAGEMAP_LEAF_BITS];
		assert(leaf && (s ? !pagemap_get(m, a) : pagemap_is_slab(pagemap_get(m, a))));
		cells_of(m, leaf, granule & (LEAF_GRANULES - 1))->entry[cell_in_granule(a)] = s ? (pagemap_entry)s | 1 : 0;
	}
}

/* The last block entry of a granule's cells up to cell `from`. */
static struct block *last_begin(const struct pagemap_cells *cells, unsigned from)
{
	for (unsigned i = from + 1; i-- > 0;)
		if (cells->entry[i] && !pagemap_is_slab(cells->entry[i]))
			return pagemap_block(cells->entry[i]);
	return NULL;
}

/* The last granule of a leaf before `end` in which a block begins; LEAF_GRANULES: none. */
static unsigned last_begun(const struct pagemap_leaf *leaf, unsigned end)
{
	for (unsigned word = (end + 63) / 64; word-- > 0;) {
		uint64_t bits = leaf->begun[word];
		if (word == end / 64)
			bits &= ((uint64_t)1 << end % 64) - 1;
		if (bits)
			return word * 64 + log2_floor(bits);
	}
	return LEAF_GRANULES;
}

struct block *pagemap_block_before(const struct pagemap *m, trz_addr address)
{
	uint64_t granule = address >> GRANULE_SHIFT;
	if (granule >> (ADDRESS_BITS - GRANULE_SHIFT))
		return NULL;
	unsigned g = granule & (LEAF_GRANULES - 1);
	uint64_t r = granule >> PAGEMAP_LEAF_BITS;
	const struct pagemap_leaf *leaf = m->root[r];
	if (leaf && leaf->cells[g]) {
		struct block *b = last_begin(leaf->cells[g], cell_in_granule(address));
		if (b)
			return b;
	}
	for (;;) {
		unsigned found = leaf ? last_begun(leaf, g) : LEAF_GRANULES;
		if (found != LEAF_GRANULES)
			return last_begin(leaf->cells[found], CELLS_PER_GRANULE - 1);
		if (r == 0)
			return NULL;
		leaf = m->root[--r];
		g = LEAF_GRANULES;
	}
}
