/* SPDX-License-Identifier: Apache-2.0
 *
 * The rare parts of the accounting.
 */
#include "observe/account.h"

#include <string.h>

void account_slot_grow(trz_heap *h, struct stream *s, uint64_t size, uint64_t grown)
{
	SLOTS_IN(h, s);
	assert(size < grown);
	const uint64_t more[MEASURES] = {0, account_rounded(grown) - account_rounded(size), grown - size};
	heap_take_beyond_limit_locked(h, s, more);
}

void account_slot_pend(trz_heap *h, struct stream *s, uint64_t size, uint64_t occupied)
{
	SLOTS_IN(h, s);
	const uint64_t less[MEASURES] = {1, account_rounded(size), size};
	slots_count_given(&s->slots, size, occupied);
	for (enum measure m = 0; m < MEASURES; m++) {
		s->slots.limit[m] -= less[m];
		h->limits[m] -= less[m];
	}
}

/* A new allocation carries its stack; a slot only if there is host memory for it. */
static void keep_frames_locked(trz_heap *h, trz_addr address)
{
	HEAP_LOCKED(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	if (!pagemap_is_slab(entry)) {
		pagemap_block(entry)->frames = heap_thread.frames;
		return;
	}
	struct slab *s = pagemap_slab(entry);
	SLOTS_IN(h, s->home->stream);
	if (!s->frames && heap_thread.frames && node_pool_reserve(&h->slot_frames, 1)) {
		s->frames = node_pool_take(&h->slot_frames);
		memset(s->frames, 0, SLAB_SLOTS_MAX * sizeof *s->frames);
	}
	if (s->frames)
		s->frames[size_class_slot(slab_class(s), address - s->base)] = heap_thread.frames;
	h->keeps_frames |= heap_thread.frames != 0;
}

NOINLINE void account_note_locked(trz_heap *h, unsigned event, const struct lane *l, trz_addr address, uint64_t size)
{
	HEAP_LOCKED(h);
	bool alloc = event == HISTORY_ALLOC;
	if (alloc && (heap_thread.frames || h->keeps_frames))
		keep_frames_locked(h, address);
	history_note(&h->history, event, .address = address, .size = size, .stream = (uint64_t)l->stream->handle,
	             .frames = heap_thread.frames, .pool = pool_id(l->pool), .tag = alloc ? heap_tag_locked(h) : 0);
}
