/* SPDX-License-Identifier: Apache-2.0
 *
 * The rare parts of the accounting.
 */
#include "observe/account.h"

#include <string.h>

COLD void account_active_peaks_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	active_raise(&h->counters.active_bytes, &h->counters.allocated_bytes);
	active_raise(&h->counters.active, &h->counters.allocation);
}

/* A new allocation carries its stack; a slot only if there is host memory for it. */
static void keep_frames_locked(trz_heap *h, trz_addr address)
{
	HEAP_LOCKED(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	if (!pagemap_is_slab(entry)) {
		pagemap_block(entry)->frames = heap_thread_frames;
		return;
	}
	struct slab *s = pagemap_slab(entry);
	if (!s->frames && heap_thread_frames && node_pool_reserve(&h->slot_frames, 1)) {
		s->frames = node_pool_take(&h->slot_frames);
		memset(s->frames, 0, SLAB_SLOTS_MAX * sizeof *s->frames);
	}
	if (s->frames)
		s->frames[size_class_slot(slab_class(s), address - s->base)] = heap_thread_frames;
	h->keeps_frames |= heap_thread_frames != 0;
}

NOINLINE void account_note_locked(trz_heap *h, unsigned event, const struct lane *l, trz_addr address, uint64_t size)
{
	HEAP_LOCKED(h);
	bool alloc = event == HISTORY_ALLOC;
	if (alloc && (heap_thread_frames || h->keeps_frames))
		keep_frames_locked(h, address);
	history_note(&h->history, event, .address = address, .size = size, .stream = (uint64_t)l->stream->handle,
	             .frames = heap_thread_frames, .pool = pool_id(l->pool), .tag = alloc ? heap_tag_locked(h) : 0);
}
