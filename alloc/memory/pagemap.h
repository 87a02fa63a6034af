/* SPDX-License-Identifier: Apache-2.0
 *
 * Address -> owner. Two levels by granule, then one entry per cell:
 *
 *   root[2^14] -> leaf[2^13 granules = 16 GiB] -> cells[64 cells of 32 KiB]
 *
 * An entry holds the one live block that begins in its cell, or the slab that the cell lies in: a live block
 * outside slabs is longer than a cell and a slab is made of whole cells, so there is never a second claimant.
 * That costs at most 512 B per laid granule (0.024 %), where an index of every 512 B would cost 0.8 %.
 *
 * Every change is made under the heap lock. Entries may be read without it: leaves and cells are never taken away, and
 * each level is published after what is below it. What such a reader finds may be out of date. It takes the lock that
 * guards what the entry names, and reads the entry again: if that is unchanged, it is true (slots.h).
 */
#ifndef TRZ_ALLOC_PAGEMAP_H
#define TRZ_ALLOC_PAGEMAP_H

#include "ground/meta.h"
#include "ground/types.h"

enum {
	PAGEMAP_LEAF_BITS = 13,
	PAGEMAP_ROOT_BITS = ADDRESS_BITS - GRANULE_SHIFT - PAGEMAP_LEAF_BITS,
	CELLS_PER_GRANULE = GRANULE / CELL
};

struct block;

/* A tagged pointer: bit 0 tells a slab from a block; 0 is none. */
typedef uintptr_t pagemap_entry;

struct pagemap_cells {
	_Atomic pagemap_entry entry[CELLS_PER_GRANULE];
};

/* Invariant: bit g of `begun` is set exactly when some block entry of cells[g] is not 0. */
struct pagemap_leaf {
	_Atomic(struct pagemap_cells *) cells[1 << PAGEMAP_LEAF_BITS];
	uint16_t begins[1 << PAGEMAP_LEAF_BITS];         /* block entries in the granule */
	uint64_t begun[(1 << PAGEMAP_LEAF_BITS) / 64];
};

struct pagemap {
	struct meta *meta;
	_Atomic(struct pagemap_leaf *) *root;
	struct node_pool cells;
};

bool pagemap_open(struct pagemap *m, struct meta *meta);

/* Makes the leaves of a range; an entry in it then needs only its granule's cells. false: the host has no memory. */
bool pagemap_cover(struct pagemap *m, trz_addr address, uint64_t size);

enum { PAGEMAP_SLAB_GRANULES = 2 };  /* enough for a slab, which lies in one granule (slab_init) */

/* Reserves cells for up to `granules` granules. A granule gets its cells with the first entry in it: a large block has
 * one entry for all of its granules. */
static inline bool pagemap_reserve(struct pagemap *m, size_t granules)
{
	return node_pool_reserve(&m->cells, granules);
}

static inline struct pagemap_leaf *pagemap_leaf_of(const struct pagemap *m, uint64_t granule)
{
	return atomic_load_explicit(&m->root[granule >> PAGEMAP_LEAF_BITS], memory_order_acquire);
}

static inline struct pagemap_cells *pagemap_cells_of(const struct pagemap_leaf *leaf, uint64_t granule)
{
	uint64_t g = granule & ((1u << PAGEMAP_LEAF_BITS) - 1);
	return atomic_load_explicit(&leaf->cells[g], memory_order_acquire);
}

/* Where the entry of an address's cell is, which never moves; NULL: its cells have not been made yet. */
static inline _Atomic pagemap_entry *pagemap_slot(const struct pagemap *m, trz_addr address)
{
	uint64_t granule = address >> GRANULE_SHIFT;
	if (granule >> (ADDRESS_BITS - GRANULE_SHIFT))
		return NULL;
	struct pagemap_leaf *leaf = pagemap_leaf_of(m, granule);
	if (!leaf)
		return NULL;
	struct pagemap_cells *cells = pagemap_cells_of(leaf, granule);
	return cells ? &cells->entry[address >> CELL_SHIFT & (CELLS_PER_GRANULE - 1)] : NULL;
}

static inline bool pagemap_is_slab(pagemap_entry e)
{
	return e & 1;
}

static inline struct slab *pagemap_slab(pagemap_entry e)
{
	return (struct slab *)(e - 1);
}

static inline struct block *pagemap_block(pagemap_entry e)
{
	return (struct block *)e;
}

static inline pagemap_entry pagemap_read(const _Atomic pagemap_entry *slot)
{
	return atomic_load_explicit(slot, memory_order_acquire);
}

/* The entry of the cell that an address lies in; 0 where there is none. */
static inline pagemap_entry pagemap_get(const struct pagemap *m, trz_addr address)
{
	const _Atomic pagemap_entry *slot = pagemap_slot(m, address);
	return slot ? pagemap_read(slot) : 0;
}

/* A live block begins / no longer begins at an address that is covered. */
void pagemap_set_block(struct pagemap *m, trz_addr address, struct block *b);
void pagemap_clear_block(struct pagemap *m, trz_addr address);

/* Every cell of a covered range belongs to a slab, or (NULL) to none. */
void pagemap_set_slab(struct pagemap *m, trz_addr address, uint64_t size, struct slab *s);

/* The last live block that begins at or before the end of an address's cell; NULL: none. Reads a bit per granule: 1 KiB
 * of bits for 16 GiB. */
struct block *pagemap_block_before(const struct pagemap *m, trz_addr address);

#endif
