/* SPDX-License-Identifier: Apache-2.0
 *
 * The heaps of a PyTorch process, one per device, and the hooks of CUDAPluggableAllocator over them.
 */
#include "plug.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "call_sites.h"
#include "cuda_events.h"
#include "terrazzo_driver.h"

/* Written under `lock`, never back to NULL. */
static _Atomic(trz_heap *) heaps[TRZ_TORCH_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* This is a child made by fork() after a heap was opened: locks of the parent's may be held for ever, and the driver is
 * unusable. */
static atomic_bool forked;

/* Guarded by `lock`. */
static void (*on_open)(int device, trz_heap *heap);

/* ---- failures -------------------------------------------------------------------------------------------- */

static _Thread_local char own_text[PLUG_TEXT];
static _Thread_local bool own_failure;

trz_status plug_fail(trz_status status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(own_text, sizeof own_text, format, args);
	va_end(args);
	own_failure = true;
	return status;
}

trz_status plug_pass(trz_status status)
{
	if (status != TRZ_OK)
		own_failure = false;
	return status;
}

const char *trz_torch_last_error(void)
{
	return own_failure ? own_text : trz_last_error();
}

static trz_status in_child(void)
{
	return plug_fail(TRZ_ERROR_SHUTDOWN,
	                 "CUDA memory cannot be used in a process made by fork() after its parent used it: start workers "
	                 "with the \"spawn\" method, or before the first CUDA call");
}

/* A free must not throw, so it can only print; once, since frees come in thousands. */
static void warn_of_free(const void *ptr)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	if (!atomic_flag_test_and_set(&told))
		fprintf(stderr, "terrazzo: a free of %p failed: %s\n", ptr, trz_torch_last_error());
}

/* ---- heaps ----------------------------------------------------------------------------------------------- */

static inline trz_heap *heap_of(int device)
{
	return atomic_load_explicit(&heaps[device], memory_order_acquire);
}

void trz_torch_on_open(void (*callback)(int device, trz_heap *heap))
{
	pthread_mutex_lock(&lock);
	on_open = callback;
	for (int device = 0; device < TRZ_TORCH_DEVICES; device++)
		if (heap_of(device) && callback)
			callback(device, heap_of(device));
	pthread_mutex_unlock(&lock);
}

void trz_torch_set_sites(trz_frame_callback *stack, trz_frame_text_callback *text)
{
	if (!sites_set_python(stack, text))
		return;
	pthread_mutex_lock(&lock);
	for (int device = 0; device < TRZ_TORCH_DEVICES; device++)
		if (heap_of(device))
			sites_join(heap_of(device), false);
	pthread_mutex_unlock(&lock);
}

size_t trz_torch_follow_events(void)
{
	return cuda_events_follow(false);
}

/* A heap is being opened, or has been. */
static atomic_bool begun;

static void note_fork(void)
{
	if (atomic_load_explicit(&begun, memory_order_relaxed))
		atomic_store_explicit(&forked, true, memory_order_relaxed);
}

static trz_status open_heap_locked(int device)
{
	static bool watching;
	trz_heap *heap;
	trz_open_params params = {.device = device};
	bool first = !atomic_exchange(&begun, true);
	if (!watching)
		pthread_atfork(NULL, NULL, note_fork);
	watching = true;
	trz_status status = plug_pass(trz_open(&params, &heap));
	if (status != TRZ_OK) {
		atomic_store(&begun, !first);
		return status;
	}
	sites_join(heap, false);
	if (on_open)
		on_open(device, heap);
	atomic_store_explicit(&heaps[device], heap, memory_order_release);
	plug_join_limit(device, heap);
	plug_join_history(heap);
	return TRZ_OK;
}

/* Asks the dynamic linker for the driver before it takes the lock, and for the events' calls after it has given it up
 * (docs/lock-order.md). */
static trz_status open_heap(int device)
{
	const trz_driver *loaded;
	trz_status status = plug_pass(trz_driver_cuda(&loaded));
	if (status != TRZ_OK)
		return status;
	pthread_mutex_lock(&lock);
	bool opens = !heap_of(device);
	if (opens)
		status = open_heap_locked(device);
	pthread_mutex_unlock(&lock);
	if (opens && status == TRZ_OK)
		cuda_events_follow(true);
	return status;
}

trz_status trz_torch_heap(int device, bool open, trz_heap **out)
{
	trz_status status = TRZ_OK;
	*out = NULL;
	if (device < 0 || device >= TRZ_TORCH_DEVICES)
		return plug_fail(TRZ_ERROR_INVALID_ARGUMENT, "there is no device %d", device);
	if (atomic_load_explicit(&forked, memory_order_relaxed))
		return in_child();
	if (open && !heap_of(device))
		status = open_heap(device);
	*out = heap_of(device);
	return status;
}

trz_heap *trz_torch_owner(const void *ptr)
{
	trz_pointer_info info;
	if (!ptr || atomic_load_explicit(&forked, memory_order_relaxed))
		return NULL;
	for (int device = 0; device < TRZ_TORCH_DEVICES; device++)
		if (heap_of(device) && trz_query(heap_of(device), ptr, &info) == TRZ_OK)
			return heap_of(device);
	return NULL;
}

/* ---- allocation ------------------------------------------------------------------------------------------ */

trz_status trz_torch_try_alloc(size_t size, int device, trz_stream stream, void **out)
{
	trz_heap *heap;
	*out = NULL;
	if (size == 0)
		return TRZ_OK;
	trz_status status = trz_torch_heap(device, true, &heap);
	if (status != TRZ_OK)
		return status;
	return plug_pass(plug_is_shareable() ? plug_alloc_shareable(heap, size, stream, out)
	                                     : trz_alloc(heap, size, 0, stream, out));
}

static trz_status alloc_with(int device, const trz_alloc_params *params, void **out)
{
	trz_heap *heap;
	*out = NULL;
	trz_status status = trz_torch_heap(device, true, &heap);
	return status == TRZ_OK ? plug_pass(trz_alloc_with(heap, params, out)) : status;
}

trz_status trz_torch_try_alloc_alone(size_t size, int device, trz_stream stream, void **out)
{
	const trz_alloc_params params = {
	    .struct_size = sizeof params, .size = size, .stream = stream, .flags = TRZ_ALLOC_CONTIGUOUS};
	if (size == 0 || plug_is_shareable())
		return trz_torch_try_alloc(size, device, stream, out);
	return alloc_with(device, &params, out);
}

trz_status trz_torch_try_alloc_at(size_t size, int device, trz_stream stream, void *address, void **out)
{
	const trz_alloc_params params = {
	    .struct_size = sizeof params, .size = size, .stream = stream, .address = address};
	return alloc_with(device, &params, out);
}

static trz_status free_anywhere(void *ptr, int device)
{
	trz_heap *owner = trz_torch_owner(ptr);
	return owner ? plug_pass(trz_free(owner, ptr))
	             : plug_fail(TRZ_ERROR_UNKNOWN_POINTER, "%p is not memory of terrazzo on device %d or any other", ptr,
	                         device);
}

trz_status trz_torch_try_free(void *ptr, int device)
{
	if (!ptr || atomic_load_explicit(&forked, memory_order_relaxed))
		return TRZ_OK;
	plug_share_end(ptr);
	trz_heap *heap = device >= 0 && device < TRZ_TORCH_DEVICES ? heap_of(device) : NULL;
	trz_status status = heap ? plug_pass(trz_free(heap, ptr)) : TRZ_ERROR_WRONG_DEVICE;
	return status == TRZ_ERROR_WRONG_DEVICE ? free_anywhere(ptr, device) : status;
}

void *trz_torch_segment_alloc(size_t size, int device, trz_stream stream)
{
	void *ptr;
	trz_torch_try_alloc(size, device, stream, &ptr);
	return ptr;
}

void *trz_torch_alloc(size_t size, int device, trz_stream stream)
{
	void *ptr;
	trz_status status = trz_torch_try_alloc(size, device, stream, &ptr);
	if (status != TRZ_OK)
		plug_throw(status, trz_torch_is_want_of_memory(status) ? trz_torch_oom_text(device, size)
		                                                       : trz_torch_last_error());
	return ptr;
}

void trz_torch_free(void *ptr, size_t size, int device, trz_stream stream)
{
	(void)size;
	(void)stream;
	if (trz_torch_try_free(ptr, device) != TRZ_OK)
		warn_of_free(ptr);
}

/* ---- hooks ----------------------------------------------------------------------------------------------- */

void trz_torch_init(int device_count)
{
	(void)device_count;  /* heaps are opened on demand: each costs its device a context */
}

size_t trz_torch_trim(size_t keep)
{
	size_t sum = 0;
	if (atomic_load_explicit(&forked, memory_order_relaxed))
		return 0;
	for (int device = 0; device < TRZ_TORCH_DEVICES; device++) {
		size_t released = 0;
		if (heap_of(device))
			trz_trim(heap_of(device), keep, &released);
		sum += released;
	}
	return sum;
}

void trz_torch_reset(void)
{
	plug_end_broken_captures();
	trz_torch_trim(0);
}

void *trz_torch_base_alloc(void *ptr, size_t *size)
{
	trz_pointer_info info;
	trz_heap *heap = trz_torch_owner(ptr);
	if (!heap || trz_query(heap, ptr, &info) != TRZ_OK)
		return ptr;
	if (size)
		*size = info.size;
	return info.base;
}

void trz_torch_record_stream(void *ptr, trz_stream stream)
{
	trz_heap *heap = trz_torch_owner(ptr);
	trz_status status = heap ? plug_pass(trz_record_stream(heap, ptr, stream)) : TRZ_OK;
	if (status != TRZ_OK)
		plug_throw(status, trz_torch_last_error());
}
