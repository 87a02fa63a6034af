/* SPDX-License-Identifier: Apache-2.0
 *
 * The address index.
 */
#include "memory/pagemap.h"

#include <assert.h>
#include <string.h>

#include "bits.h"
#include "memory/block.h"

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

static void mark_begun(struct pagemap_leaf *leaf, uint64_t g)
{
	leaf->begun[g / 64] |= (uint64_t)1 << g % 64;
}

static void mark_not_begun(struct pagemap_leaf *leaf, uint64_t g)
{
	leaf->begun[g / 64] &= ~((uint64_t)1 << g % 64);
}

static inline void enter_block(struct pagemap_leaf *leaf, uint64_t g, struct pagemap_cells *cells, struct block *b)
{
	assert(!entry_of(cells, cell_in_granule(b->address)));
	set_entry(cells, b->address, (pagemap_entry)b);
	if (leaf->begins[g]++ == 0)
		mark_begun(leaf, g);
}

/* Gives a granule cells, from a reserved node. The block that was its entry is in its cell when they are published. */
static NOINLINE struct pagemap_cells *make_cells(struct pagemap *m, struct pagemap_leaf *leaf, uint64_t g)
{
	pagemap_entry e = pagemap_read(&leaf->entry[g]);
	struct pagemap_cells *cells = node_pool_take(&m->cells);
	memset(cells, 0, sizeof *cells);
	if (e)
		enter_block(leaf, g, cells, pagemap_block(e));
	atomic_store_explicit(&leaf->entry[g], (pagemap_entry)cells | PAGEMAP_HAS_CELLS, memory_order_release);
	return cells;
}

static inline struct pagemap_cells *cells_of(struct pagemap *m, struct pagemap_leaf *leaf, uint64_t g)
{
	pagemap_entry e = pagemap_read(&leaf->entry[g]);
	return LIKELY(pagemap_has_cells(e)) ? pagemap_cells(e) : make_cells(m, leaf, g);
}

void pagemap_set_block(struct pagemap *m, struct block *b)
{
	uint64_t granule = b->address >> GRANULE_SHIFT, g = granule & (LEAF_GRANULES - 1);
	struct pagemap_leaf *leaf = pagemap_leaf_of(m, granule);
	assert(leaf);
	pagemap_entry e = pagemap_read(&leaf->entry[g]);
	if (pagemap_has_cells(e)) {
		enter_block(leaf, g, pagemap_cells(e), b);
	} else if (e) {
		enter_block(leaf, g, make_cells(m, leaf, g), b);
	} else {
		atomic_store_explicit(&leaf->entry[g], (pagemap_entry)b, memory_order_release);
		mark_begun(leaf, g);
	}
}

void pagemap_clear_block(struct pagemap *m, const struct block *b)
{
	uint64_t granule = b->address >> GRANULE_SHIFT, g = granule & (LEAF_GRANULES - 1);
	struct pagemap_leaf *leaf = pagemap_leaf_of(m, granule);
	pagemap_entry e = pagemap_read(&leaf->entry[g]);
	assert(pagemap_get(m, b->address) == (pagemap_entry)b);
	if (pagemap_has_cells(e)) {
		set_entry(pagemap_cells(e), b->address, 0);
		if (--leaf->begins[g] > 0)
			return;
	} else {
		atomic_store_explicit(&leaf->entry[g], 0, memory_order_release);
	}
	mark_not_begun(leaf, g);
}

void pagemap_set_slab(struct pagemap *m, trz_addr address, uint64_t size, struct slab *s)
{
	for (trz_addr a = address; a < address + size; a += CELL) {
		uint64_t granule = a >> GRANULE_SHIFT;
		struct pagemap_leaf *leaf = pagemap_leaf_of(m, granule);
		struct pagemap_cells *cells = cells_of(m, leaf, granule & (LEAF_GRANULES - 1));
		assert(s ? !pagemap_get(m, a) : pagemap_is_slab(pagemap_get(m, a)));
		set_entry(cells, a, s ? (pagemap_entry)s | PAGEMAP_IS_SLAB : 0);
	}
}

/* The last block of a granule that begins in its cells up to `last`, counted from the granule's begin. */
static struct block *last_begin(const struct pagemap_leaf *leaf, uint64_t g, unsigned last)
{
	pagemap_entry granule = pagemap_read(&leaf->entry[g]);
	if (!pagemap_has_cells(granule))
		return granule && cell_in_granule(pagemap_block(granule)->address) <= last ? pagemap_block(granule) : NULL;
	for (unsigned i = last + 1; i-- > 0;) {
		pagemap_entry e = entry_of(pagemap_cells(granule), i);
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
	struct block *b = leaf ? last_begin(leaf, g, cell_in_granule(address)) : NULL;
	if (b)
		return b;
	for (;;) {
		unsigned found = leaf ? last_begun(leaf, g) : LEAF_GRANULES;
		if (found != LEAF_GRANULES)
			return last_begin(leaf, found, CELLS_PER_GRANULE - 1);
		if (r == 0)
			return NULL;
		leaf = pagemap_leaf_of(m, --r << PAGEMAP_LEAF_BITS);
		g = LEAF_GRANULES;
	}
}
