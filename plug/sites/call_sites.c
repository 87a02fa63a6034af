/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites by Python's stacks and native ones. Numbers of native stacks have the bit NATIVE.
 */
#include "call_sites.h"

#include <dlfcn.h>
#include <stdatomic.h>

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

static size_t text_of(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	if (!(id & NATIVE))
		return atomic_load_explicit(&python_text, memory_order_relaxed)(user, id, frames, capacity);
	return trz_native_frame_text(NULL, id & ~NATIVE, frames, capacity);
}

bool sites_set_python(trz_frame_callback *stack, trz_frame_text_callback *text)
{
	bool told = atomic_load(&unwinder) == PRESENT || atomic_load(&python_stack);
	atomic_store_explicit(&python_text, text, memory_order_relaxed);
	atomic_store_explicit(&python_stack, stack, memory_order_release);
	return !told;
}

void sites_join(trz_heap *heap)
{
	if (atomic_load(&unwinder) == UNKNOWN)
		find_unwinder();
	if (atomic_load(&unwinder) == PRESENT || atomic_load(&python_stack))
		trz_set_site_callback(heap, number_of, text_of, NULL);
}
