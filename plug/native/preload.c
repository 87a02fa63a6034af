/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's calls that allocate or free memory, tell of it, or end what the heaps rely on.
 */
#include "preload.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "event_order.h"
#include "limit.h"
#include "native.h"
#include "relink.h"

enum {
	ATTRIBUTE_CONTEXT = 1, ATTRIBUTE_SYNC_MEMOPS = 6, ATTRIBUTE_RANGE_START = 11,  /* CU_POINTER_ATTRIBUTE_* */
	ATTRIBUTE_RANGE_SIZE = 12, ATTRIBUTE_HANDLE_TYPES = 14, ATTRIBUTE_MEMPOOL = 17, ATTRIBUTE_MAPPING_SIZE = 18,
	ATTRIBUTE_MAPPING_BASE = 19
};

enum { CONTEXT_SYNC_MEMOPS = 0x80 };  /* CU_CTX_SYNC_MEMOPS */

/* ---- beginning and end ------------------------------------------------------------------------------------------ */

static int is_pytorch(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	return strstr(info->dlpi_name, "/libc10_cuda.so") != NULL;
}

/* Uses of contexts beyond the first (cuCtxAttach). Once one has found no place (`full`), nobody knows which cuCtxDetach
 * is the last: none ends a heap. */
static struct {
	pthread_mutex_t lock;
	struct {
		void *context;
		unsigned uses;
	} of[32];
	bool full;
} attached = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { ATTACHED = sizeof attached.of / sizeof attached.of[0] };

/* In the child, locks of the parent's may be held for ever. */
static void note_fork(void)
{
	atomic_store(&event_order_reporting, false);
	atomic_store(&event_order_given_up, true);
	preload_forget_parents_captures();
	pthread_mutex_init(&attached.lock, NULL);
}

static bool exporter; /* ipc:auto has found that the program may export memory */

/* Whether the program may export memory by CUDA's older way: it then imports one of these functions. A file that
 * imports cuMemPoolGetAccess as well is a runtime, which imports everything, and so does not count. */
static bool exports_memory(void)
{
	static const char *const names[] = {"cudaIpcGetMemHandle", "cuIpcGetMemHandle"};
	return relink_imports(names, sizeof names / sizeof names[0], "cuMemPoolGetAccess");
}

bool preload_in_pytorch(void)
{
	return dl_iterate_phdr(is_pytorch, NULL);
}

/* Not in PyTorch, whose own allocator the plug replaces. */
static bool may_open(void)
{
	if (preload_in_pytorch())
		return false;
	exporter = !native_options.refuse_ipc && !native_options.classic && exports_memory();
	if (exporter)
		atomic_store(&native_options.classic, true);
	pthread_atfork(NULL, NULL, note_fork);
	native_config = preload_pages();
	atomic_store(&event_order_reporting, true);
	return true;
}

static int is_driver(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	return strstr(info->dlpi_name, "/libcuda.so") != NULL;
}

/* If no call came through here, nobody has read the options yet. */
__attribute__((destructor)) static void end(void)
{
	native_read_options();
	if (native_options.report && !native_report() && native_options.on && dl_iterate_phdr(is_driver, NULL))
		fputs("terrazzo: the driver is loaded, but no allocation came through terrazzo: docs/native.md says which "
		      "programs cannot be served\n", stderr);
	if (native_options.report && exporter)
		fputs("terrazzo: cudaMalloc was passed on to the driver, since a loaded file imports cudaIpcGetMemHandle; if "
		      "the program shares no memory, set TERRAZZO_NATIVE=ipc:refuse to serve it\n", stderr);
	if (native_options.report && atomic_load(&native_devices_apart))
		fputs("terrazzo: cudaMalloc was passed on to the driver once a second device was used, since not all devices "
		      "reach each other's memory\n", stderr);
}

__attribute__((constructor)) static void begin(void)
{
	native_sees_all = true;
	native_may_open = may_open;
	native_on_open = preload_tell_sites;
	at_quick_exit(end);
}

/* ---- allocation -------------------------------------------------------------------------------------------------- */

/* Drivers older than CUDA 11.4 are not served: native_load fails, and their own function is called. */
#define SERVED(call, ...) return native_load() ? native_##call : REAL __VA_ARGS__

/* The same for those that allocate. */
#define ALLOCATED(call, ...)           \
	do {                               \
		native_caller = NATIVE_CALLER; \
		SERVED(call, __VA_ARGS__);     \
	} while (0)

cuda_result cuMemAlloc_v2(cuda_addr *address, size_t size)
{
	ENTER(cuMemAlloc_v2);
	ALLOCATED(alloc(address, size), (cuMemAlloc_v2)(address, size));
}

cuda_result cuMemAllocPitch_v2(cuda_addr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
	ENTER(cuMemAllocPitch_v2);
	ALLOCATED(alloc_pitch(address, pitch, width, height, element),
	          (cuMemAllocPitch_v2)(address, pitch, width, height, element));
}

cuda_result cuMemFree_v2(cuda_addr address)
{
	ENTER(cuMemFree_v2);
	SERVED(free(address), (cuMemFree_v2)(address));
}

cuda_result cuMemGetInfo_v2(size_t *unused, size_t *total)
{
	ENTER(cuMemGetInfo_v2);
	SERVED(mem_info(unused, total), (cuMemGetInfo_v2)(unused, total));
}

cuda_result cuMemAllocAsync(cuda_addr *address, size_t size, void *stream)
{
	ENTER(cuMemAllocAsync);
	ALLOCATED(alloc_async(address, size, stream), (cuMemAllocAsync)(address, size, stream));
}

cuda_result cuMemAllocAsync_ptsz(cuda_addr *address, size_t size, void *stream)
{
	stream = preload_of_thread(stream);
	ENTER(cuMemAllocAsync);
	ALLOCATED(alloc_async(address, size, stream), (cuMemAllocAsync)(address, size, stream));
}

cuda_result cuMemAllocFromPoolAsync(cuda_addr *address, size_t size, void *pool, void *stream)
{
	ENTER(cuMemAllocFromPoolAsync);
	ALLOCATED(alloc_from_pool(address, size, pool, stream), (cuMemAllocFromPoolAsync)(address, size, pool, stream));
}

cuda_result cuMemAllocFromPoolAsync_ptsz(cuda_addr *address, size_t size, void *pool, void *stream)
{
	stream = preload_of_thread(stream);
	ENTER(cuMemAllocFromPoolAsync);
	ALLOCATED(alloc_from_pool(address, size, pool, stream), (cuMemAllocFromPoolAsync)(address, size, pool, stream));
}

cuda_result cuMemFreeAsync(cuda_addr address, void *stream)
{
	ENTER(cuMemFreeAsync);
	SERVED(free_async(address, stream), (cuMemFreeAsync)(address, stream));
}

cuda_result cuMemFreeAsync_ptsz(cuda_addr address, void *stream)
{
	return cuMemFreeAsync(address, preload_of_thread(stream));
}

/* ---- questions about an address -------------------------------------------------------------------------------- */

/* An address that is never memory: about freed memory the driver is asked as about this. */
enum { NOWHERE = 16 };

static cuda_addr asked_about(enum native_place place, cuda_addr address)
{
	return place == NATIVE_DEAD ? NOWHERE : address;
}

/* Whether the driver answers no question here, whatever the address: in a callback of a stream, for example. Programs
 * learn from this where they are. */
static bool is_refused(cuda_result result)
{
	return result != TRZ_CUDA_SUCCESS && result != TRZ_CUDA_ERROR_INVALID_VALUE && result != TRZ_CUDA_ERROR_NOT_FOUND &&
	       result != TRZ_CUDA_ERROR_NOT_SUPPORTED;
}

cuda_result cuMemGetAddressRange_v2(cuda_addr *start, size_t *size, cuda_addr address)
{
	struct native_heap *h;
	trz_pointer_info info;
	ENTER(cuMemGetAddressRange_v2);
	native_enter();
	enum native_place place = native_look(address, &h, &info);
	native_leave();
	cuda_result result = REAL(cuMemGetAddressRange_v2)(start, size, asked_about(place, address));
	if (place != NATIVE_LIVE || is_refused(result))
		return result;
	if (start)
		*start = (uintptr_t)info.base;
	if (size)
		*size = info.requested;
	return TRZ_CUDA_SUCCESS;
}

/* Answers where the driver would describe the tile instead of the allocation. false: the driver's own answer is
 * right. */
static bool tell(void *value, int attribute, const struct native_heap *h, const trz_pointer_info *info)
{
	switch (attribute) {
	case ATTRIBUTE_CONTEXT:
		*(void **)value = info->stream == h->host ? h->own : NULL;  /* that of pools belongs to none */
		return true;
	case ATTRIBUTE_SYNC_MEMOPS:
		*(int *)value = atomic_load(&h->sync_memops);
		return true;
	case ATTRIBUTE_RANGE_START:
	case ATTRIBUTE_MAPPING_BASE:
		*(cuda_addr *)value = (uintptr_t)info->base;
		return true;
	case ATTRIBUTE_RANGE_SIZE:
	case ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)value = info->requested;
		return true;
	case ATTRIBUTE_HANDLE_TYPES:
		*(uint64_t *)value = 0;
		return true;
	case ATTRIBUTE_MEMPOOL:
		*(void **)value = info->stream == h->host ? NULL : h->pool;
		return true;
	default:
		return false;
	}
}

cuda_result cuPointerGetAttribute(void *value, int attribute, cuda_addr address)
{
	struct native_heap *h;
	trz_pointer_info info;
	ENTER(cuPointerGetAttribute);
	native_enter();
	enum native_place place = native_look(address, &h, &info);
	cuda_result result = REAL(cuPointerGetAttribute)(value, attribute, asked_about(place, address));
	if (value && place == NATIVE_LIVE && !is_refused(result) && tell(value, attribute, h, &info))
		result = TRZ_CUDA_SUCCESS;
	native_leave();
	return result;
}

cuda_result cuPointerGetAttributes(unsigned count, int *attributes, void **values, cuda_addr address)
{
	struct native_heap *h;
	trz_pointer_info info;
	ENTER(cuPointerGetAttributes);
	native_enter();
	enum native_place place = native_look(address, &h, &info);
	cuda_result result = REAL(cuPointerGetAttributes)(count, attributes, values, asked_about(place, address));
	for (unsigned i = 0; place == NATIVE_LIVE && result == TRZ_CUDA_SUCCESS && i < count; i++)
		tell(values[i], attributes[i], h, &info);
	native_leave();
	return result;
}

struct flag_calls {
	cuda_result (*get)(unsigned *);
	cuda_result (*set)(unsigned);
};

/* Makes copies and fills of a heap's memory wait until they are done. Mapped memory takes no such attribute, but its
 * context has a flag for all memory, which drivers have from CUDA 12.1 on. It stays set: others may rely on it. */
static cuda_result wait_for_copies(struct native_heap *h, const struct flag_calls *flag)
{
	unsigned flags = 0;
	void *popped;
	if (!flag->get || !flag->set)
		return TRZ_CUDA_ERROR_NOT_SUPPORTED;
	cuda_result result = native_driver.cuCtxPushCurrent_v2(h->own);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	result = flag->get(&flags);
	if (result == TRZ_CUDA_SUCCESS)
		result = flag->set(flags | CONTEXT_SYNC_MEMOPS);
	native_driver.cuCtxPopCurrent_v2(&popped);
	if (result == TRZ_CUDA_SUCCESS)
		atomic_store(&h->sync_memops, true);
	return result;
}

cuda_result cuPointerSetAttribute(const void *value, int attribute, cuda_addr address)
{
	struct native_heap *h;
	trz_pointer_info info;
	cuda_result result = TRZ_CUDA_SUCCESS;
	ENTER(cuPointerSetAttribute);
	const struct flag_calls flag = {
		(cuda_result(*)(unsigned *))native_symbol("cuCtxGetFlags"),
		(cuda_result(*)(unsigned))native_symbol("cuCtxSetFlags"),
	};
	native_enter();
	enum native_place place = native_look(address, &h, &info);
	bool heaps = place == NATIVE_LIVE && value && attribute == ATTRIBUTE_SYNC_MEMOPS;
	if (heaps && *(const int *)value)
		result = wait_for_copies(h, &flag);
	native_leave();
	return heaps ? result : REAL(cuPointerSetAttribute)(value, attribute, asked_about(place, address));
}

cuda_result cuIpcGetMemHandle(struct preload_ipc *handle, cuda_addr address)
{
	ENTER(cuIpcGetMemHandle);
	cuda_result result = native_may_export(address);
	return result == TRZ_CUDA_SUCCESS ? REAL(cuIpcGetMemHandle)(handle, address) : result;
}

/* ---- memory that a program maps itself -------------------------------------------------------------------------- */

/* Whether an address is a heap's. To the program it is memory of cuMemAlloc, for which the driver has no handles: with
 * a tile's handle a library could export to others what it does not know lies there. */
static bool is_heaps(cuda_addr address)
{
	struct native_heap *h;
	trz_pointer_info info;
	native_enter();
	enum native_place place = native_look(address, &h, &info);
	native_leave();
	return place != NATIVE_ELSEWHERE;
}

cuda_result cuMemRetainAllocationHandle(cuda_mem *handle, void *address)
{
	ENTER(cuMemRetainAllocationHandle);
	if (is_heaps((uintptr_t)address))
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	return REAL(cuMemRetainAllocationHandle)(handle, address);
}

cuda_result cuMemUnmap(cuda_addr address, size_t size)
{
	ENTER(cuMemUnmap);
	return is_heaps(address) ? TRZ_CUDA_ERROR_INVALID_VALUE : REAL(cuMemUnmap)(address, size);
}

cuda_result cuMemSetAccess(cuda_addr address, size_t size, const struct cuda_mem_access *access, size_t count)
{
	ENTER(cuMemSetAccess);
	return is_heaps(address) ? TRZ_CUDA_ERROR_INVALID_VALUE : REAL(cuMemSetAccess)(address, size, access, count);
}

/* ---- pools ------------------------------------------------------------------------------------------------------ */

cuda_result cuMemPoolTrimTo(void *pool, size_t keep)
{
	ENTER(cuMemPoolTrimTo);
	cuda_result result = REAL(cuMemPoolTrimTo)(pool, keep);
	if (result == TRZ_CUDA_SUCCESS)
		native_pool_trim(pool, keep);
	return result;
}

cuda_result cuMemPoolGetAttribute(void *pool, int attribute, void *value)
{
	ENTER(cuMemPoolGetAttribute);
	cuda_result result = REAL(cuMemPoolGetAttribute)(pool, attribute, value);
	if (result == TRZ_CUDA_SUCCESS)
		native_pool_add(pool, attribute, value);
	return result;
}

cuda_result cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
	ENTER(cuMemPoolSetAttribute);
	cuda_result result = REAL(cuMemPoolSetAttribute)(pool, attribute, value);
	if (result == TRZ_CUDA_SUCCESS)
		native_pool_reset(pool, attribute);
	return result;
}

cuda_result cuMemPoolSetAccess(void *pool, const struct cuda_mem_access *access, size_t count)
{
	ENTER(cuMemPoolSetAccess);
	cuda_result result = REAL(cuMemPoolSetAccess)(pool, access, count);
	if (result == TRZ_CUDA_SUCCESS)
		native_pool_open(pool, access, count);
	return result;
}

static cuda_result note_choice(cuda_result result)
{
	if (result == TRZ_CUDA_SUCCESS)
		atomic_fetch_add(&native_pools_chosen, 1);
	return result;
}

cuda_result cuDeviceSetMemPool(cuda_device device, void *pool)
{
	ENTER(cuDeviceSetMemPool);
	return note_choice(REAL(cuDeviceSetMemPool)(device, pool));
}

cuda_result cuMemSetMemPool(const struct cuda_mem_location *location, int type, void *pool)
{
	ENTER(cuMemSetMemPool);
	return note_choice(REAL(cuMemSetMemPool)(location, type, pool));
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

/* How often the program has retained a device's primary context: a heap's own reference must not keep it alive. */
static atomic_int retained[NATIVE_DEVICES];
static _Atomic(void *) primary[NATIVE_DEVICES];  /* the primary contexts */

cuda_result cuDevicePrimaryCtxRetain(void **context, cuda_device device)
{
	ENTER(cuDevicePrimaryCtxRetain);
	cuda_result result = REAL(cuDevicePrimaryCtxRetain)(context, device);
	if (result == TRZ_CUDA_SUCCESS && device >= 0 && device < NATIVE_DEVICES) {
		atomic_store(&primary[device], *context);
		atomic_fetch_add(&retained[device], 1);
		native_use_device(device);
	}
	return result;
}

static void end_primary(cuda_device device)
{
	preload_forget_captures(atomic_load(&primary[device]));
	native_end_primary(device);
}

/* After the driver's call that was to end a context. */
static cuda_result ended(cuda_result result, const void *context)
{
	if (result == TRZ_CUDA_SUCCESS)
		limit_end_context(context);
	native_ended();
	return result;
}

static bool is_last_release(cuda_device device)
{
	return device >= 0 && device < NATIVE_DEVICES && atomic_load(&retained[device]) > 0 &&
	       atomic_fetch_sub(&retained[device], 1) == 1;
}

static cuda_result release(preload_type_cuDevicePrimaryCtxRelease *real, cuda_device device)
{
	if (!is_last_release(device))
		return real(device);
	end_primary(device);
	return ended(real(device), atomic_load(&primary[device]));
}

cuda_result cuDevicePrimaryCtxRelease(cuda_device device)
{
	ENTER(cuDevicePrimaryCtxRelease);
	return release(REAL(cuDevicePrimaryCtxRelease), device);
}

cuda_result cuDevicePrimaryCtxRelease_v2(cuda_device device)
{
	ENTER(cuDevicePrimaryCtxRelease_v2);
	return release(REAL(cuDevicePrimaryCtxRelease_v2), device);
}

static cuda_result reset(preload_type_cuDevicePrimaryCtxReset *real, cuda_device device)
{
	if (device < 0 || device >= NATIVE_DEVICES)
		return real(device);
	event_order_forget_all();
	atomic_store(&retained[device], 0);
	end_primary(device);
	return ended(real(device), atomic_load(&primary[device]));
}

cuda_result cuDevicePrimaryCtxReset(cuda_device device)
{
	ENTER(cuDevicePrimaryCtxReset);
	return reset(REAL(cuDevicePrimaryCtxReset), device);
}

cuda_result cuDevicePrimaryCtxReset_v2(cuda_device device)
{
	ENTER(cuDevicePrimaryCtxReset_v2);
	return reset(REAL(cuDevicePrimaryCtxReset_v2), device);
}

static cuda_result destroy(preload_type_cuCtxDestroy *real, void *context)
{
	preload_forget_captures(context);
	native_end_context(context);
	event_order_forget_all();
	return ended(real(context), context);
}

cuda_result cuCtxDestroy(void *context)
{
	ENTER(cuCtxDestroy);
	return destroy(REAL(cuCtxDestroy), context);
}

cuda_result cuCtxDestroy_v2(void *context)
{
	ENTER(cuCtxDestroy_v2);
	return destroy(REAL(cuCtxDestroy_v2), context);
}

static void note_attach(void *context)
{
	pthread_mutex_lock(&attached.lock);
	int at = -1;
	for (int i = 0; i < ATTACHED && (at < 0 || attached.of[at].context != context); i++)
		if (attached.of[i].context == context || (at < 0 && attached.of[i].uses == 0))
			at = i;
	attached.full = attached.full || at < 0;
	if (at >= 0) {
		attached.of[at].uses = attached.of[at].context == context ? attached.of[at].uses + 1 : 1;
		attached.of[at].context = context;
	}
	pthread_mutex_unlock(&attached.lock);
}

/* Ends a use of a context. true: it was the last, and the driver is about to destroy the context. */
static bool note_detach(const void *context)
{
	pthread_mutex_lock(&attached.lock);
	bool last = !attached.full;
	for (int i = 0; i < ATTACHED; i++)
		if (attached.of[i].context == context && attached.of[i].uses > 0) {
			attached.of[i].uses--;
			last = false;
			break;
		}
	pthread_mutex_unlock(&attached.lock);
	return last;
}

cuda_result cuCtxAttach(void **context, unsigned flags)
{
	ENTER(cuCtxAttach);
	cuda_result result = REAL(cuCtxAttach)(context, flags);
	if (result == TRZ_CUDA_SUCCESS)
		note_attach(*context);
	return result;
}

/* The driver detaches only the current context. */
cuda_result cuCtxDetach(void *context)
{
	void *current = NULL;
	ENTER(cuCtxDetach);
	if (context && native_load() && native_driver.cuCtxGetCurrent(&current) == TRZ_CUDA_SUCCESS && current == context &&
	    note_detach(context))
		return destroy(REAL(cuCtxDetach), context);
	return REAL(cuCtxDetach)(context);
}

/* The current context may access the other one's memory, so its device may access the other's heap as well. */
cuda_result cuCtxEnablePeerAccess(void *other, unsigned flags)
{
	ENTER(cuCtxEnablePeerAccess);
	cuda_result result = REAL(cuCtxEnablePeerAccess)(other, flags);
	if (result == TRZ_CUDA_SUCCESS)
		native_open_to_current(other);
	return result;
}
