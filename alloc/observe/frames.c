/* SPDX-License-Identifier: Apache-2.0
 *
 * Calling the callbacks for call stacks, and forgetting their numbers.
 */
#include "observe/frames.h"

#include <errno.h>
#include <string.h>

#include "heap/ledger.h"
#include "native_stack.h"
#include "snapshot.h"

static _Thread_local bool in_callback;

/* Leaves the library's own levels off native stacks if the operation says who called it. */
static uint64_t ask(trz_frame_callback *callback, void *user)
{
	uint64_t stack = heap_thread.stack;
	int cancel = uncancelled_begin();  /* the operation may hold a pool, and its stream's entry */
	in_callback = true;
	uint64_t frames = callback != trz_native_frames
	                      ? callback(user)
	                      : native_frames_from(stack & SITES_CALLER ? (const void *)(uintptr_t)(stack & ~SITES_CALLER)
	                                                                : NULL);
	in_callback = false;
	uncancelled_end(cancel);
	return frames;
}

uint64_t frames_gather(trz_heap *h)
{
	pthread_mutex_lock(&h->oom_lock);
	trz_frame_callback *callback = h->frame_callback;
	void *user = h->frame_user;
	pthread_mutex_unlock(&h->oom_lock);
	return callback && !in_callback ? ask(callback, user) : 0;
}

/* One number serves both history and call site if both have the same callback. A number that looks like a caller's
 * address (SITES_CALLER) counts as none. */
NOINLINE void frames_gather_site(trz_heap *h)
{
	if (heap_thread.stack && !(heap_thread.stack & SITES_CALLER))
		return;  /* it has been asked for this operation */
	pthread_mutex_lock(&h->oom_lock);
	trz_frame_callback *callback = h->site_callback;
	void *user = h->site_user;
	bool same = callback == h->frame_callback && user == h->frame_user;
	pthread_mutex_unlock(&h->oom_lock);
	if (!callback || in_callback)
		return;
	uint64_t stack = same && heap_thread.frames ? heap_thread.frames : ask(callback, user);
	heap_thread.stack = stack & SITES_CALLER ? 0 : stack;
}

void frames_find_asker(void)
{
	uint64_t stack = heap_thread.stack;
	int error = errno;
	if (stack & SITES_CALLER)
		heap_thread.stack = (uint64_t)(uintptr_t)native_asker((const void *)(uintptr_t)(stack & ~SITES_CALLER)) |
		                    SITES_CALLER;
	errno = error;
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

void frames_set_sites(trz_heap *h, trz_frame_callback *callback, trz_frame_text_callback *text, void *user)
{
	bool native = !callback && h->config.native_frames;
	pthread_mutex_lock(&h->oom_lock);
	h->site_callback = native ? trz_native_frames : callback;
	h->site_text = native ? trz_native_frame_text : text;
	h->site_user = user;
	bool asks = h->site_callback && h->sites.on;
	pthread_mutex_unlock(&h->oom_lock);
	heap_lock(h);
	sites_forget_stacks(&h->sites);
	atomic_store_explicit(&h->site_stacks, asks, memory_order_relaxed);
	heap_unlock(h);
}

static size_t one_frame(trz_frame *frames, size_t capacity, const char *text)
{
	if (capacity)
		frames[0] = (trz_frame){.name = text};
	return capacity > 0;
}

size_t frames_of_site(trz_heap *h, uint64_t stack, trz_frame *frames, size_t capacity)
{
	if (stack == SITES_OTHER)
		return one_frame(frames, capacity, "(other sites)");
	if (stack == SITES_FORGOTTEN)
		return one_frame(frames, capacity, "(stacks are numbered anew since)");
	if (stack & SITES_CALLER)
		return native_frame_of_address((const void *)(uintptr_t)(stack & ~SITES_CALLER), frames, capacity);
	pthread_mutex_lock(&h->oom_lock);
	trz_frame_text_callback *text = h->site_text;
	void *user = h->site_user;
	pthread_mutex_unlock(&h->oom_lock);
	if (!text || !stack)
		return 0;
	int cancel = uncancelled_begin();
	size_t count = text(user, stack, frames, capacity);
	uncancelled_end(cancel);
	return min_u64(count, capacity);
}

size_t frames_calls_of_site(trz_heap *h, uint64_t stack, struct call_frame *frames, size_t capacity)
{
	trz_frame list[FRAMES_LEVELS];
	size_t count = frames_of_site(h, stack, list, min_u64(capacity, FRAMES_LEVELS));
	for (size_t i = 0; i < count; i++)
		frames[i] = (struct call_frame){.file = list[i].filename ? list[i].filename : "",
		                                .name = list[i].name ? list[i].name : "",
		                                .line = list[i].line};
	return count;
}

/* Asks for the innermost level first, which tells whether the stack is native. */
size_t frames_python_calls(trz_heap *h, uint64_t stack, struct call_frame *frames, size_t capacity)
{
	if (!frames_calls_of_site(h, stack, frames, 1) || call_is_native(&frames[0]))
		return 0;
	return frames_calls_of_site(h, stack, frames, capacity);
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
