/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites of PyTorch's programs: the Python stack if the thread has one, else the native stack, as in autograd's
 * threads. Numbers of native stacks have the bit NATIVE.
 */
#include "plug.h"

#include <dlfcn.h>
#include <stdatomic.h>

#define NATIVE ((uint64_t)1 << 62)

static _Atomic(trz_frame_callback *) python_stack;
static _Atomic(trz_frame_text_callback *) python_text;
static atomic_bool native;

/* Without libunwind a native stack takes microseconds. */
static bool has_unwinder(void)
{
	void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
	return library && dlsym(library, "unw_backtrace");
}

static uint64_t number_of(void *user)
{
	uint64_t number = atomic_load_explicit(&python_stack, memory_order_relaxed)(user);
	if (number || !atomic_load_explicit(&native, memory_order_relaxed))
		return number;
	return trz_native_frames(NULL) | NATIVE;
}

static size_t text_of(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	if (!(id & NATIVE))
		return atomic_load_explicit(&python_text, memory_order_relaxed)(user, id, frames, capacity);
	return trz_native_frame_text(NULL, id & ~NATIVE, frames, capacity);
}

void plug_join_sites(trz_heap *heap)
{
	if (atomic_load_explicit(&python_stack, memory_order_acquire))
		trz_set_site_callback(heap, number_of, text_of, NULL);
}

void trz_torch_set_sites(trz_frame_callback *stack, trz_frame_text_callback *text)
{
	atomic_store_explicit(&native, has_unwinder(), memory_order_relaxed);
	atomic_store_explicit(&python_text, text, memory_order_relaxed);
	atomic_store_explicit(&python_stack, stack, memory_order_release);
	plug_join_all_sites();
}
