/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites by Python's stacks and native ones. Numbers of native stacks have the bit NATIVE.
 */
#include "call_sites.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#define NATIVE ((uint64_t)1 << 62)

static _Atomic(trz_frame_callback *) python_stack;
static _Atomic(trz_frame_text_callback *) python_text;
static _Atomic(enum {UNKNOWN, PRESENT, ABSENT}) unwinder;

/* It stays loaded. */
static void find_unwinder(void)
{
	void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
	atomic_store(&unwinder, library && dlsym(library, "unw_backtrace") ? PRESENT : ABSENT);
}

static uint64_t number_of(void *user)
{
	trz_frame_callback *python = atomic_load_explicit(&python_stack, memory_order_acquire);
	uint64_t number = python ? python(user) : 0;
	if (number || atomic_load_explicit(&unwinder, memory_order_relaxed) != PRESENT)
		return number;
	return trz_native_frames(NULL) | NATIVE;
}

/* The allocator, and the shim that PyTorch calls it through. */
static bool is_own(const trz_frame *f)
{
	return f->filename && (strstr(f->filename, "/libterrazzo") || strstr(f->filename, "/terrazzo/shim-"));
}

static size_t text_of(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	if (!(id & NATIVE))
		return atomic_load_explicit(&python_text, memory_order_relaxed)(user, id, frames, capacity);
	size_t count = trz_native_frame_text(NULL, id & ~NATIVE, frames, capacity), own = 0;
	while (own < count && is_own(&frames[own]))
		own++;
	memmove(frames, frames + own, (count - own) * sizeof *frames);
	return count - own;
}

bool sites_set_python(trz_frame_callback *stack, trz_frame_text_callback *text)
{
	bool told = atomic_load(&unwinder) == PRESENT || atomic_load(&python_stack);
	atomic_store_explicit(&python_text, text, memory_order_relaxed);
	atomic_store_explicit(&python_stack, stack, memory_order_release);
	return !told;
}

void sites_join(trz_heap *heap, bool history)
{
	if (atomic_load(&unwinder) == UNKNOWN)
		find_unwinder();
	if (atomic_load(&unwinder) != PRESENT && !atomic_load(&python_stack))
		return;
	trz_set_site_callback(heap, number_of, text_of, NULL);
	if (history)
		trz_set_frame_callback(heap, number_of, text_of, NULL);
}
