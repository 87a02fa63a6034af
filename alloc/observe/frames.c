/* SPDX-License-Identifier: Apache-2.0
 *
 * Calling the callbacks for call stacks, and forgetting their numbers.
 */
#include "observe/frames.h"

#include <string.h>

#include "heap/ledger.h"
#include "snapshot.h"

static _Thread_local bool in_callback;

uint64_t frames_gather(trz_heap *h)
{
	pthread_mutex_lock(&h->oom_lock);
	trz_frame_callback *callback = h->frame_callback;
	void *user = h->frame_user;
	pthread_mutex_unlock(&h->oom_lock);
	if (!callback || in_callback)
		return 0;
	in_callback = true;
	uint64_t frames = callback(user);
	in_callback = false;
	return frames;
}

static void forget_in_window_locked(struct window *w)
{
	for (struct block *b = w->blocks.first; b; b = b->next) {
		if (b->state == BLOCK_LIVE || b->state == BLOCK_PENDING || b->state == BLOCK_ENDED)
			b->frames = 0;
		else if (b->state == BLOCK_SLAB && b->slab->frames)
			memset(b->slab->frames, 0, SLAB_SLOTS_MAX * sizeof *b->slab->frames);
	}
}

static void forget(trz_heap *h)
{
	heap_take_growth(h);
	heap_lock(h);
	heap_call_all_in_locked(h);
	for (int kind = 0; kind < KINDS; kind++)
		for (struct window *w = h->windows[kind]; w; w = w->next)
			forget_in_window_locked(w);
	history_forget_frames(&h->history);
	h->keeps_frames = false;
	h->notes = h->history.ring;
	heap_unlock(h);
	heap_give_growth(h);
}

void frames_update(trz_heap *h)
{
	pthread_mutex_lock(&h->oom_lock);
	bool asked = h->frame_callback != NULL;
	pthread_mutex_unlock(&h->oom_lock);
	heap_lock(h);
	bool gathers = asked && h->history.ring;
	atomic_store_explicit(&h->gathers, gathers, memory_order_relaxed);
	atomic_store_explicit(&h->watched, gathers || h->annotates, memory_order_relaxed);
	heap_unlock(h);
}

void frames_set(trz_heap *h, trz_frame_callback *callback, trz_frame_text_callback *text, void *user)
{
	bool native = !callback && h->config.native_frames;
	pthread_mutex_lock(&h->oom_lock);
	h->frame_callback = native ? trz_native_frames : callback;
	h->frame_text = native ? trz_native_frame_text : text;
	h->frame_user = user;
	pthread_mutex_unlock(&h->oom_lock);
	forget(h);
	frames_update(h);
}

struct frames_teller frames_teller(trz_heap *h)
{
	pthread_mutex_lock(&h->oom_lock);
	struct frames_teller teller = {h->frame_text, h->frame_user};
	pthread_mutex_unlock(&h->oom_lock);
	return teller;
}

size_t frames_tell(void *owner, uint64_t frames, struct snapshot_frame *out)
{
	const struct frames_teller *teller = owner;
	trz_frame list[SNAPSHOT_FRAMES_MAX];
	size_t count = teller->text ? teller->text(teller->user, frames, list, SNAPSHOT_FRAMES_MAX) : 0;
	count = min_u64(count, SNAPSHOT_FRAMES_MAX);
	for (size_t i = 0; i < count; i++)
		out[i] = (struct snapshot_frame){.filename = list[i].filename ? list[i].filename : "??",
		                                 .name = list[i].name ? list[i].name : "??",
		                                 .line = list[i].line};
	return count;
}
