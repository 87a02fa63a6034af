/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's allocation calls over the heaps.
 */
#include "native.h"

#include <stdio.h>

/* On all devices to date every pitch is a multiple of this. */
enum { PITCH = 512 };

atomic_int native_captures;
atomic_int native_pools_chosen;
bool native_sees_all;
_Thread_local const void *native_caller;

static cuda_result outcome(enum native_call call, enum native_outcome o, cuda_result result)
{
	native_count(call, o);
	return result;
}

/* Passes a call on to the driver; if that has no memory left, once more after the heaps have returned theirs. */
#define PASS(call, result, ...)                                                           \
	do {                                                                                  \
		(result) = native_driver.__VA_ARGS__;                                             \
		if ((result) == TRZ_CUDA_ERROR_OUT_OF_MEMORY && native_make_room())               \
			(result) = native_driver.__VA_ARGS__;                                         \
		native_count(call, NATIVE_PASSED);                                                \
	} while (0)

/* While a capture is under way, CUDA refuses calls that are not stream-ordered, unless the thread has chosen otherwise:
 * so the driver decides about them. */
static bool is_capturing(void)
{
	return atomic_load_explicit(&native_captures, memory_order_relaxed) != 0;
}

static bool may_capture(void *stream)
{
	int capturing = 0;
	if ((uintptr_t)stream == 1 || !stream || (native_sees_all && !is_capturing()))
		return false;
	return native_driver.cuStreamIsCapturing(stream, &capturing) != TRZ_CUDA_SUCCESS || capturing;
}

/* Waits for the heap's context, and tells the heap that it has. */
static cuda_result wait_for_all(struct native_heap *h)
{
	void *current = NULL, *popped;
	cuda_result result = native_driver.cuCtxGetCurrent(&current);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	if (current != h->own && (result = native_driver.cuCtxPushCurrent_v2(h->own)) != TRZ_CUDA_SUCCESS)
		return result;
	uint64_t token = trz_context_sync_begin(h->heap, h->own);
	result = native_driver.cuCtxSynchronize();
	trz_sync_end(h->heap, token, result == TRZ_CUDA_SUCCESS);
	if (current != h->own)
		native_driver.cuCtxPopCurrent_v2(&popped);
	return result;
}

/* ---- for all streams -------------------------------------------------------------------------------------------- */

/* Allocates on the host stream; false: the driver is to serve the request. */
static bool alloc_host(struct native_heap *h, cuda_addr *address, size_t size, cuda_result *result)
{
	void *made;
	trz_status status = trz_alloc_from(h->heap, size, 0, h->host, native_caller, &made);
	if (status == TRZ_OK && !native_settle(h)) {
		trz_free(h->heap, made);
		return false;
	}
	if (status == TRZ_OK)
		*address = (uintptr_t)made;
	*result = status == TRZ_OK ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	return status == TRZ_OK || status == TRZ_ERROR_LIMIT;
}

static bool try_alloc(enum native_call call, cuda_addr *address, size_t size, cuda_result *result)
{
	struct native_heap *h = address && size && !is_capturing() ? native_current() : NULL;
	bool classic = atomic_load_explicit(&native_options.classic, memory_order_relaxed);
	if (h)
		native_late_settle(h, wait_for_all);
	if (!h || classic || !alloc_host(h, address, size, result))
		return false;
	native_count(call, *result == TRZ_CUDA_SUCCESS ? NATIVE_SERVED : NATIVE_REFUSED);
	return true;
}

static cuda_result do_alloc(cuda_addr *address, size_t size)
{
	cuda_result result;
	if (try_alloc(NATIVE_cuMemAlloc, address, size, &result))
		return result;
	PASS(NATIVE_cuMemAlloc, result, cuMemAlloc_v2(address, size));
	return result;
}

static cuda_result do_alloc_pitch(cuda_addr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
	cuda_result result;
	size_t row, size;
	bool known = pitch && width && height && (element == 4 || element == 8 || element == 16) &&
	             !__builtin_add_overflow(width, PITCH - 1, &row) &&
	             !__builtin_mul_overflow(row / PITCH * PITCH, height, &size);
	if (known && try_alloc(NATIVE_cuMemAllocPitch, address, size, &result)) {
		if (result == TRZ_CUDA_SUCCESS)
			*pitch = row / PITCH * PITCH;
		return result;
	}
	PASS(NATIVE_cuMemAllocPitch, result, cuMemAllocPitch_v2(address, pitch, width, height, element));
	return result;
}

/* ---- the end of all uses -------------------------------------------------------------------------------------- */

/* Frees memory after an event of the whole context, which says when the last use is over. false: the driver has no such
 * event, or a capture forbids it, so the host must wait. */
static bool free_after_all(struct native_heap *h, void *ptr)
{
	const trz_driver *driver = native_table();
	trz_event event;
	if (is_capturing() || driver->event_create(driver->self, h->own, &event) != TRZ_OK)
		return false;
	if (driver->context_record(driver->self, h->own, event) == TRZ_OK &&
	    trz_free_after(h->heap, ptr, event) == TRZ_OK)
		return true;
	driver->event_destroy(driver->self, h->own, event);
	return false;
}

/* Whether an address lies in a heap's memory. The driver must not be asked to free it then: to the driver it may be the
 * base of an allocation. */
static bool is_mapped(struct native_heap *h, cuda_addr address)
{
	trz_segment_info segment;
	return h && trz_query_mapping(h->heap, (const void *)address, &segment) == TRZ_OK;
}

static cuda_result free_elsewhere(struct native_heap *h, cuda_addr address)
{
	if (is_mapped(h, address))
		return outcome(NATIVE_cuMemFree, NATIVE_SERVED, TRZ_CUDA_ERROR_INVALID_VALUE);
	return outcome(NATIVE_cuMemFree, NATIVE_PASSED, native_driver.cuMemFree_v2(address));
}

/* Frees during a capture. The driver says whether the thread may, by a free of its own, which waits as far as it has
 * to. */
static cuda_result free_in_capture(struct native_heap *h, void *ptr)
{
	cuda_addr probe = 0;
	cuda_result result = native_driver.cuMemAlloc_v2(&probe, 1);
	if (result == TRZ_CUDA_SUCCESS)
		result = native_driver.cuMemFree_v2(probe);
	if (result == TRZ_CUDA_SUCCESS || result == TRZ_CUDA_ERROR_OUT_OF_MEMORY)
		result = native_late_add(h, ptr) ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_INVALID_VALUE;
	return result;
}

static cuda_result do_free(cuda_addr address)
{
	struct native_heap *h = address ? native_owner(address) : NULL;
	trz_pointer_info info;
	if (!h)
		return free_elsewhere(NULL, address);
	if (!is_capturing())
		native_late_settle(h, wait_for_all);
	if (trz_query(h->heap, (const void *)address, &info) != TRZ_OK || (uintptr_t)info.base != address)
		return free_elsewhere(h, address);
	cuda_result result = TRZ_CUDA_SUCCESS;
	if (is_capturing()) {
		result = free_in_capture(h, info.base);
	} else if (!native_options.free_in_order || !free_after_all(h, info.base)) {
		result = wait_for_all(h);
		if (result == TRZ_CUDA_SUCCESS && trz_free_on(h->heap, info.base, h->host) != TRZ_OK)
			return free_elsewhere(h, address);
	}
	if (result == TRZ_CUDA_SUCCESS)
		native_pool_give(h, &info);
	return outcome(NATIVE_cuMemFree, NATIVE_SERVED, result);
}

/* ---- in the order of a stream --------------------------------------------------------------------------------- */

static bool alloc_on(struct native_heap *h, enum native_call call, cuda_addr *address, size_t size, void *stream,
                     cuda_result *result)
{
	void *made;
	trz_status status = trz_alloc_from(h->heap, size, 0, stream, native_caller, &made);
	if (status != TRZ_OK && status != TRZ_ERROR_LIMIT)
		return false;
	if (status == TRZ_OK)
		*address = (uintptr_t)made;
	if (status == TRZ_OK)
		native_pool_take(h, size);
	*result = status == TRZ_OK ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	native_count(call, status == TRZ_OK ? NATIVE_SERVED : NATIVE_REFUSED);
	return true;
}

/* Whether allocations that name no pool come from the device's default pool. */
static bool is_default_current(const struct native_heap *h)
{
	void *chosen = NULL;
	if (native_sees_all && !atomic_load_explicit(&native_pools_chosen, memory_order_relaxed))
		return true;
	return native_driver.cuDeviceGetMemPool(&chosen, h->device) == TRZ_CUDA_SUCCESS && chosen == h->pool;
}

static cuda_result do_alloc_async(cuda_addr *address, size_t size, void *stream)
{
	cuda_result result;
	struct native_heap *h = address && size && !may_capture(stream) ? native_of_stream(stream) : NULL;
	if (h && is_default_current(h) && alloc_on(h, NATIVE_cuMemAllocAsync, address, size, stream, &result))
		return result;
	PASS(NATIVE_cuMemAllocAsync, result, cuMemAllocAsync(address, size, stream));
	return result;
}

static cuda_result do_alloc_from_pool(cuda_addr *address, size_t size, void *pool, void *stream)
{
	cuda_result result;
	struct native_heap *h = address && size && !may_capture(stream) ? native_of_stream(stream) : NULL;
	if (h && pool == h->pool && alloc_on(h, NATIVE_cuMemAllocFromPoolAsync, address, size, stream, &result))
		return result;
	PASS(NATIVE_cuMemAllocFromPoolAsync, result, cuMemAllocFromPoolAsync(address, size, pool, stream));
	return result;
}

/* In a capture only a graph's own memory can be freed, which the driver serves. */
static cuda_result do_free_async(cuda_addr address, void *stream)
{
	struct native_heap *h = address ? native_owner(address) : NULL;
	trz_pointer_info info;
	if (h && !may_capture(stream) && trz_query(h->heap, (const void *)address, &info) == TRZ_OK &&
	    trz_free_on(h->heap, (void *)address, stream) == TRZ_OK) {
		native_pool_give(h, &info);
		return outcome(NATIVE_cuMemFreeAsync, NATIVE_SERVED, TRZ_CUDA_SUCCESS);
	}
	if (is_mapped(h, address))
		return outcome(NATIVE_cuMemFreeAsync, NATIVE_SERVED, TRZ_CUDA_ERROR_INVALID_VALUE);
	return outcome(NATIVE_cuMemFreeAsync, NATIVE_PASSED, native_driver.cuMemFreeAsync(address, stream));
}

/* ---- what is said --------------------------------------------------------------------------------------------- */

static uint64_t stat(const struct native_heap *h, const char *name)
{
	uint64_t value = 0;
	trz_stat(h->heap, name, &value);
	return value;
}

uint64_t native_cached(const struct native_heap *h)
{
	uint64_t reserved = stat(h, "reserved_bytes.all.current"), allocated = stat(h, "allocated_bytes.all.current");
	return reserved > allocated ? reserved - allocated : 0;
}

struct cached {
	int device;
	uint64_t bytes;
};

static void add_cached(struct native_heap *h, void *argument)
{
	struct cached *c = argument;
	if (h->device == c->device)
		c->bytes += native_cached(h);
}

/* Adjusts the driver's figures: what the device's heaps keep for later counts as free, so that an allocation lowers the
 * figure by its size and a free raises it again. All heaps return what they can before the driver refuses a request;
 * pieces of tiles that hold live memory, too, stay. Neither figure exceeds the limit. */
static void adjust(const struct native_heap *h, size_t *unused, size_t *total)
{
	uint64_t allocated = stat(h, "allocated_bytes.all.current");
	struct cached cached = {.device = h->device};
	size_t limit = 0;
	native_each(add_cached, &cached);
	*unused = *total - *unused > cached.bytes ? *unused + cached.bytes : *total;
	if (trz_get_limit(h->heap, &limit) == TRZ_OK && limit) {
		size_t left = limit > allocated ? limit - allocated : 0;
		*unused = *unused < left ? *unused : left;
		*total = *total < limit ? *total : limit;
	}
}

/* The driver judges the arguments; programs pass NULL for what they do not want. */
static cuda_result do_mem_info(size_t *unused, size_t *total)
{
	size_t left, all;
	struct native_heap *h = native_current();
	cuda_result result = native_driver.cuMemGetInfo_v2(unused, total);
	if (!h || result != TRZ_CUDA_SUCCESS || native_driver.cuMemGetInfo_v2(&left, &all) != TRZ_CUDA_SUCCESS)
		return outcome(NATIVE_cuMemGetInfo, NATIVE_PASSED, result);
	adjust(h, &left, &all);
	if (unused)
		*unused = left;
	if (total)
		*total = all;
	return outcome(NATIVE_cuMemGetInfo, NATIVE_SERVED, result);
}

/* ---- streams -------------------------------------------------------------------------------------------------- */

static void retire(struct native_heap *h, void *stream)
{
	trz_stream_retire(h->heap, stream);
}

void native_stream_retire(void *stream)
{
	native_enter();
	if ((uintptr_t)stream > 2)
		native_each(retire, stream);
	native_leave();
}

cuda_result native_stream_destroy(void *stream)
{
	native_stream_retire(stream);
	return outcome(NATIVE_cuStreamDestroy, NATIVE_PASSED, native_driver.cuStreamDestroy_v2(stream));
}

/* ---- other processes -------------------------------------------------------------------------------------------- */

cuda_result native_may_export(cuda_addr address)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	struct native_heap *h;
	trz_pointer_info info;
	native_enter();
	enum native_place place = native_look(address, &h, &info);
	native_leave();
	if (place == NATIVE_ELSEWHERE)
		return TRZ_CUDA_SUCCESS;
	if (!atomic_flag_test_and_set(&told))
		fputs("terrazzo: other processes cannot open memory that terrazzo serves (cudaIpcGetMemHandle): set "
		      "TERRAZZO_NATIVE=ipc:classic to pass cudaMalloc on to the driver\n", stderr);
	if (!native_options.refuse_ipc)
		atomic_store(&native_options.classic, true);
	return TRZ_CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- from outside ---------------------------------------------------------------------------------------------- */

#define GUARDED(name, parameters, arguments)     \
	cuda_result native_##name parameters         \
	{                                            \
		native_enter();                          \
		cuda_result result = do_##name arguments; \
		native_leave();                          \
		return result;                           \
	}

GUARDED(alloc, (cuda_addr *address, size_t size), (address, size))
GUARDED(alloc_pitch, (cuda_addr *address, size_t *pitch, size_t width, size_t height, unsigned element),
        (address, pitch, width, height, element))
GUARDED(free, (cuda_addr address), (address))
GUARDED(alloc_async, (cuda_addr *address, size_t size, void *stream), (address, size, stream))
GUARDED(alloc_from_pool, (cuda_addr *address, size_t size, void *pool, void *stream), (address, size, pool, stream))
GUARDED(free_async, (cuda_addr address, void *stream), (address, stream))
GUARDED(mem_info, (size_t *unused, size_t *total), (unused, total))
