/* SPDX-License-Identifier: Apache-2.0
 *
 * Call stacks. A callback of the program gives the stack of an operation a number, before the operation takes its first
 * lock; the events that the operation notes, and its allocations, carry the number. Another callback looks up the
 * stacks of numbers when a snapshot is written.
 */
#ifndef TRZ_ALLOC_FRAMES_H
#define TRZ_ALLOC_FRAMES_H

#include "call_site.h"
#include "heap/heap.h"

static inline bool frames_wanted(const trz_heap *h)
{
	return atomic_load_explicit(&h->gathers, memory_order_relaxed);
}

/* Whether each operation is observed: stacks are on, or a tool watches. */
static inline bool frames_or_tool(const trz_heap *h)
{
	return atomic_load_explicit(&h->watched, memory_order_relaxed);
}

/* Asks the callback for the number of the thread's stack, with no lock held; 0: none. */
uint64_t frames_gather(trz_heap *h);

/* Asks the callback for call sites, with no lock held, and notes the number for the thread's operation; one that
 * knows the operation's stack already, for the history, is not asked again. */
void frames_gather_site(trz_heap *h);

/* The thread's operation has failed. A preloaded program calls CUDA's runtime, and that calls terrazzo: the call site
 * becomes the place where the program called the runtime. Takes the dynamic linker's lock, so none may be held. */
void frames_find_asker(void);

/* An operation begins: the events that it notes carry its stack, if stacks are on. Pass the result to frames_leave at
 * its end. The heap may be NULL. */
static inline uint64_t frames_enter(trz_heap *h)
{
	uint64_t outer = heap_thread.frames;
	heap_thread.frames = h && UNLIKELY(frames_wanted(h)) ? frames_gather(h) : 0;
	return outer;
}

static inline void frames_leave(uint64_t outer)
{
	heap_thread.frames = outer;
}

/* Sets the callbacks (NULL: by the heap's options) and forgets the numbers of the old ones. Takes the growth lock and
 * the heap lock. */
void frames_set(trz_heap *h, trz_frame_callback *callback, trz_frame_text_callback *text, void *user);

/* The same for call sites: by the option native_frames, native stacks or the callers' addresses. Takes the growth lock
 * and the heap lock. */
void frames_set_sites(trz_heap *h, trz_frame_callback *callback, trz_frame_text_callback *text, void *user);

/* The stack of a call site; returns how many levels it has written. */
size_t frames_of_site(trz_heap *h, uint64_t stack, trz_frame *frames, size_t capacity);

enum { FRAMES_LEVELS = 48 };

/* The same, in the form that reports judge: up to FRAMES_LEVELS levels, a missing text as "". */
size_t frames_calls_of_site(trz_heap *h, uint64_t stack, struct call_frame *frames, size_t capacity);

/* The same for a stack of Python's. 0: the stack is native; that tells nothing of steps, models and weights, and the
 * dynamic linker takes up to a millisecond to name each of its levels. */
size_t frames_python_calls(trz_heap *h, uint64_t stack, struct call_frame *frames, size_t capacity);

/* Called when the history has been switched on or off. */
void frames_update(trz_heap *h);

/* Looks up the stacks of a snapshot. */
struct frames_teller {
	trz_frame_text_callback *text;
	void *user;
};

struct frames_teller frames_teller(trz_heap *h);

/* snapshot_frames of a teller. */
struct snapshot_frame;
size_t frames_tell(void *teller, uint64_t frames, struct snapshot_frame *out);

#endif
