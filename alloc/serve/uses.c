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

bool uses_record(trz_heap *h, trz_addr address, struct stream *s)
{
	bool ok = true;
	heap_lock(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	if (pagemap_is_slab(entry)) {
		struct slab *slab = pagemap_slab(entry);
		heap_call_in_locked(h, slab->home->stream);
		unsigned slot = held_slot(slab, address);
		if (slot != SLAB_SLOTS_MAX && slab->home->stream != s)
			ok = add_use_locked(h, &slab->uses, s, slot);
	} else {
		struct block *b = live_block_locked(h, address);
		if (b && b->home->stream != s)
			ok = add_use_locked(h, &b->uses, s, 0);
	}
	heap_unlock(h);
	return ok;
}

bool uses_record_own(trz_heap *h, trz_addr address, uint64_t capture)
{
	bool ok = true;
	heap_lock(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	struct slab *slab = pagemap_is_slab(entry) ? pagemap_slab(entry) : NULL;
	struct block *b = slab ? NULL : live_block_locked(h, address);
	struct lane *home = slab ? slab->home : b ? b->home : NULL;
	bool needed = home && (!capture || home->serving != capture);
	if (needed && slab) {
		heap_call_in_locked(h, home->stream);
		unsigned slot = held_slot(slab, address);
		if (slot != SLAB_SLOTS_MAX && slab_slot_address(slab, slot) == address)
			ok = add_use_locked(h, &slab->uses, home->stream, slot);
	} else if (needed && b->address == address) {
		ok = add_use_locked(h, &b->uses, home->stream, 0);
	}
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
