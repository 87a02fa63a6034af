/* SPDX-License-Identifier: Apache-2.0
 *
 * The two-level address index.
 */
#include "memory/pagemap.h"

#include <assert.h>
#include <string.h>

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
	for (uint64_t i = address >> GRANULE_SHIFT >> PAGEMAP_LEAF_BITS; i <= last >> PAGEMAP_LEAF_BITS; i++) {
		if (pagemap_leaf_of(m, i << PAGEMAP_LEAF_BITS))
			continue;
		struct pagemap_leaf *leaf = meta_alloc(m->meta, sizeof *leaf);
		if (!leaf)
			return false;
		atomic_store_explicit(&m->root[i], leaf, memory_order_release);
	}
	return true;
}

/* The cells of a granule; made, from a reserved node, if it had none. */
static inline struct pagemap_cells *cells_of(struct pagemap *m, struct pagemap_leaf *leaf, uint64_t granule)
{
	struct pagemap_cells *cells = pagemap_cells_of(leaf, granule);
	if (!cells) {
		cells = node_pool_take(&m->cells);
		memset(cells, 0, sizeof *cells);
		atomic_store_explicit(&leaf->cells[granule & (LEAF_GRANULES - 1)], cells, memory_order_release);
	}
	return cells;
}

static inline unsigned cell_in_granule(trz_addr address)
{
	return address >> CELL_SHIFT & (CELLS_PER_GRANULE - 1);
}

static inline pagemap_entry entry_of(const struct pagemap_cells *cells, unsigned cell)
{
	return atomic_load_explicit(&cells->entry[cell], memory_order_relaxed);
}

static inline void set_entry(struct pagemap_cells *cells, trz_addr address, pagemap_entry e)
{
	atomic_store_explicit(&cells->entry[cell_in_granule(address)], e, memory_order_release);
}

void pagemap_set_block(struct pagemap *m, trz_addr address, struct block *b)
{
	uint64_t granule = address >> GRANULE_SHIFT, g = granule & (LEAF_GRANULES - 1);
	struct pagemap_leaf *leaf = pagemap_leaf_of(m, granule);
	assert(leaf && !pagemap_get(m, address));
	set_entry(cells_of(m, leaf, granule), address, (pagemap_entry)b);
	if (leaf->begins[g]++ == 0)
		leaf->begun[g / 64] |= (uint64_t)1 << g % 64;
}

void pagemap_clear_block(struct pagemap *m, trz_addr address)
{
	uint64_t granule = address >> GRANULE_SHIFT, g = granule & (LEAF_GRANULES - 1);
	struct pagemap_leaf *leaf = pagemap_leaf_of(m, granule);
	assert(leaf->begins[g] > 0 && pagemap_get(m, address) && !pagemap_is_slab(pagemap_get(m, address)));
	set_entry(pagemap_cells_of(leaf, granule), address, 0);
	if (--leaf->begins[g] == 0)
		leaf->begun[g / 64] &= ~((uint64_t)1 << g % 64);
}

void pagemap_set_slab(struct pagemap *m, trz_addr address, uint64_t size, struct slab *s)
{
	for (trz_addr a = address; a < address + size; a += CELL) {
		uint64_t granule = a >> GRANULE_SHIFT;
		struct pagemap_leaf *leaf = pagemap_leaf_of(m, granule);
		assert(leaf && (s ? !pagemap_get(m, a) : pagemap_is_slab(pagemap_get(m, a))));
		set_entry(cells_of(m, leaf, granule), a, s ? (pagemap_entry)s | 1 : 0);
	}
}

/* The last block entry of a granule's cells up to cell `from`. */
static struct block *last_begin(const struct pagemap_cells *cells, unsigned from)
{
	for (unsigned i = from + 1; i-- > 0;) {
		pagemap_entry e = entry_of(cells, i);
		if (e && !pagemap_is_slab(e))
			return pagemap_block(e);
	}
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
	const struct pagemap_leaf *leaf = pagemap_leaf_of(m, granule);
	if (leaf && pagemap_cells_of(leaf, g)) {
		struct block *b = last_begin(pagemap_cells_of(leaf, g), cell_in_granule(address));
		if (b)
			return b;
	}
	for (;;) {
		unsigned found = leaf ? last_begun(leaf, g) : LEAF_GRANULES;
		if (found != LEAF_GRANULES)
			return last_begin(pagemap_cells_of(leaf, found), CELLS_PER_GRANULE - 1);
		if (r == 0)
			return NULL;
		leaf = pagemap_leaf_of(m, --r << PAGEMAP_LEAF_BITS);
		g = LEAF_GRANULES;
	}
}
