/* SPDX-License-Identifier: Apache-2.0
 *
 * From an address inside an allocation to its block or slot.
 */
#include "serve/uses.h"

#include "heap/ledger.h"

/* The held slot that an address lies in; SLAB_SLOTS_MAX: none. */
static unsigned held_slot(const struct slab *s, trz_addr address)
{
	unsigned slot = size_class_slot(slab_class(s), address - s->base);
	return slot < slab_class(s)->slots && !((s->free | s->pending) >> slot & 1) ? slot : SLAB_SLOTS_MAX;
}

/* The live block that an address lies in; NULL: none. */
static struct block *live_block_locked(const trz_heap *h, trz_addr address)
{
	HEAP_LOCKED(h);
	struct block *b = pagemap_block_before(&h->pagemap, address);
	if (b && b->address > address)  /* it begins behind the address, in the same cell */
		b = pagemap_block_before(&h->pagemap, align_down(address, CELL) - 1);
	return b && address < block_end(b) ? b : NULL;
}

static bool add_use_locked(trz_heap *h, struct use **list, struct stream *s, unsigned slot)
{
	HEAP_LOCKED(h);
	for (const struct use *u = *list; u; u = u->next)
		if (u->stream == s && u->slot == slot)
			return true;
	if (!node_pool_reserve(&h->uses, 1))
		return false;
	struct use *u = node_pool_take(&h->uses);
	*u = (struct use){.next = *list, .stream = s, .slot = slot};
	*list = u;
	s->uses++;
	return true;
}

/* What an address lies in: a slab, or a live block, and whose it is; home NULL: neither. */
struct found {
	struct slab *slab;
	struct block *block;
	struct lane *home;
};

static struct found find_locked(const trz_heap *h, trz_addr address)
{
	HEAP_LOCKED(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	if (pagemap_is_slab(entry))
		return (struct found){.slab = pagemap_slab(entry), .home = pagemap_slab(entry)->home};
	struct block *b = live_block_locked(h, address);
	return (struct found){.block = b, .home = b ? b->home : NULL};
}

/* Notes a use of the held slot, or the block; with `begins` only if that begins at the address. */
static bool note_use_locked(trz_heap *h, struct found f, trz_addr address, bool begins, struct stream *s)
{
	HEAP_LOCKED(h);
	if (f.block)
		return (begins && f.block->address != address) || add_use_locked(h, &f.block->uses, s, 0);
	heap_call_in_locked(h, f.home->stream);
	unsigned slot = held_slot(f.slab, address);
	if (slot == SLAB_SLOTS_MAX || (begins && slab_slot_address(f.slab, slot) != address))
		return true;
	return add_use_locked(h, &f.slab->uses, s, slot);
}

bool uses_record(trz_heap *h, trz_addr address, struct stream *s)
{
	heap_lock(h);
	struct found f = find_locked(h, address);
	bool needed = f.home && f.home->stream != s;
	bool ok = !needed || note_use_locked(h, f, address, false, s);
	heap_unlock(h);
	return ok;
}

bool uses_record_own(trz_heap *h, trz_addr address, uint64_t capture)
{
	heap_lock(h);
	struct found f = find_locked(h, address);
	bool needed = f.home && (!capture || f.home->serving != capture);
	bool ok = !needed || note_use_locked(h, f, address, true, f.home->stream);
	heap_unlock(h);
	return ok;
}

/* ---- query ---- */

static bool query_slab_locked(const struct slab *s, trz_addr address, trz_pointer_info *info)
{
	unsigned slot = held_slot(s, address);
	if (slot == SLAB_SLOTS_MAX)
		return false;
	uint64_t size = slab_class(s)->slot_size;
	*info = (trz_pointer_info){.base = (void *)slab_slot_address(s, slot),
	                           .size = size,
	                           .requested = size - s->unused[slot],
	                           .stream = s->home->stream->handle,
	                           .small = true};
	return true;
}

static bool query_block_locked(const trz_heap *h, trz_addr address, trz_pointer_info *info)
{
	HEAP_LOCKED(h);
	const struct block *b = live_block_locked(h, address);
	if (!b)
		return false;
	*info = (trz_pointer_info){.base = (void *)b->address,
	                           .size = b->size,
	                           .requested = b->requested,
	                           .stream = b->home->stream->handle,
	                           .small = b->kind == SMALL};
	return true;
}

bool uses_query_locked(trz_heap *h, trz_addr address, trz_pointer_info *info)
{
	HEAP_LOCKED(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	if (!pagemap_is_slab(entry))
		return query_block_locked(h, address, info);
	heap_call_in_locked(h, pagemap_slab(entry)->home->stream);
	return query_slab_locked(pagemap_slab(entry), address, info);
}

bool uses_query(trz_heap *h, trz_addr address, trz_pointer_info *info)
{
	heap_lock(h);
	bool known = uses_query_locked(h, address, info);
	heap_unlock(h);
	if (known)
		info->device = h->driver.device;
	return known;
}
