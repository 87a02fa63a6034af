/* SPDX-License-Identifier: Apache-2.0
 *
 * Address -> owner. Two levels by granule, then one entry per granule, or per cell:
 *
 *   root[2^14] -> leaf[2^13 granules = 16 GiB] -> block
 *                                              -> cells[64 cells of 32 KiB]
 *
 * A granule in which never more than one live block has begun at a time, and no slab, has one entry, in the leaf: the
 * block. So has each granule that a large block begins in, and no other memory is read to find it. A second block, or a
 * slab, gives the granule its cells, for good. A cell's entry holds the one live block that begins in the cell, or the
 * slab that the cell lies in: a live block outside slabs is longer than a cell and a slab is made of whole cells, so
 * there is never a second claimant. That costs at most 512 B per laid granule (0.024 %), where an index of every 512 B
 * would cost 0.8 %.
 *
 * Every change is made under the heap lock. Entries may be read without it: leaves and cells are never taken away, and
 * each level is published after what is below it. What such a reader finds may be out of date. It takes the lock that
 * guards what the entry names, and reads the entry again: if that is unchanged, it is true (slots.h). A granule may get
 * its cells between the two: a reader without the lock that has been sent to the leaf's entry may find the cells there.
 * It takes these for a block, which it must look up anew under the heap lock anyhow; a slab's cells were published
 * before any of its slots was given out.
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

/* A tagged pointer: bit 0 tells a slab from a block; 0 is none. In a leaf, bit 1 tells cells from a block. */
typedef uintptr_t pagemap_entry;

enum { PAGEMAP_IS_SLAB = 1, PAGEMAP_HAS_CELLS = 2 };

struct pagemap_cells {
	_Atomic pagemap_entry entry[CELLS_PER_GRANULE];
};

/* Invariant: bit g of `begun` is set exactly when a block is the granule's entry, or one of its cells'. */
struct pagemap_leaf {
	_Atomic pagemap_entry entry[1 << PAGEMAP_LEAF_BITS];
	uint16_t begins[1 << PAGEMAP_LEAF_BITS];         /* block entries in the granule's cells */
	uint64_t begun[(1 << PAGEMAP_LEAF_BITS) / 64];
};

struct pagemap {
	struct meta *meta;
	_Atomic(struct pagemap_leaf *) *root;
	struct node_pool cells;
};

bool pagemap_open(struct pagemap *m, struct meta *meta);

/* Makes the leaves of a range; entries in it then need cells at most. false: the host has no memory. */
bool pagemap_cover(struct pagemap *m, trz_addr address, uint64_t size);

enum { PAGEMAP_SLAB_GRANULES = 2 };  /* enough for a slab, which lies in one granule (slab_init) */

/* Reserves cells for up to `granules` granules. */
static inline bool pagemap_reserve(struct pagemap *m, size_t granules)
{
	return node_pool_reserve(&m->cells, granules);
}

static inline struct pagemap_leaf *pagemap_leaf_of(const struct pagemap *m, uint64_t granule)
{
	return atomic_load_explicit(&m->root[granule >> PAGEMAP_LEAF_BITS], memory_order_acquire);
}

static inline pagemap_entry pagemap_read(const _Atomic pagemap_entry *slot)
{
	return atomic_load_explicit(slot, memory_order_acquire);
}

/* Of a leaf's entry. */
static inline bool pagemap_has_cells(pagemap_entry e)
{
	return e & PAGEMAP_HAS_CELLS;
}

static inline struct pagemap_cells *pagemap_cells(pagemap_entry e)
{
	return (struct pagemap_cells *)(e - PAGEMAP_HAS_CELLS);
}

/* Where the entry of an address is, until the granule gets cells; NULL: nothing near it was ever covered. */
static inline _Atomic pagemap_entry *pagemap_slot(const struct pagemap *m, trz_addr address)
{
	uint64_t granule = address >> GRANULE_SHIFT;
	if (granule >> (ADDRESS_BITS - GRANULE_SHIFT))
		return NULL;
	struct pagemap_leaf *leaf = pagemap_leaf_of(m, granule);
	if (!leaf)
		return NULL;
	_Atomic pagemap_entry *entry = &leaf->entry[granule & ((1u << PAGEMAP_LEAF_BITS) - 1)];
	pagemap_entry e = pagemap_read(entry);
	return pagemap_has_cells(e) ? &pagemap_cells(e)->entry[address >> CELL_SHIFT & (CELLS_PER_GRANULE - 1)] : entry;
}

static inline bool pagemap_is_slab(pagemap_entry e)
{
	return e & PAGEMAP_IS_SLAB;
}

static inline struct slab *pagemap_slab(pagemap_entry e)
{
	return (struct slab *)(e - PAGEMAP_IS_SLAB);
}

static inline struct block *pagemap_block(pagemap_entry e)
{
	return (struct block *)e;
}

/* The slab that an address lies in, or the live block that begins in its cell, or perhaps one that begins elsewhere in
 * its granule; 0: none of these. Under the heap lock. */
static inline pagemap_entry pagemap_get(const struct pagemap *m, trz_addr address)
{
	const _Atomic pagemap_entry *slot = pagemap_slot(m, address);
	return slot ? pagemap_read(slot) : 0;
}

/* A live block begins / no longer begins at its address, which is covered. */
void pagemap_set_block(struct pagemap *m, struct block *b);
void pagemap_clear_block(struct pagemap *m, const struct block *b);

/* Every cell of a covered range belongs to a slab, or (NULL) to none. */
void pagemap_set_slab(struct pagemap *m, trz_addr address, uint64_t size, struct slab *s);

/* The last live block that begins at or before the end of an address's cell; NULL: none. Reads a bit per granule: 1 KiB
 * of bits for 16 GiB. */
struct block *pagemap_block_before(const struct pagemap *m, trz_addr address);

#endif
