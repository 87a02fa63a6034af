/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver table over libcuda.so.1. Owns the loading of the library, the choice of symbols, the current
 * context of a call, and the translation of the driver's results (in one function, `translate`).
 *
 * The library is opened once and never closed: its other users in the process, and exit handlers that run after ours,
 * may still be inside. If it is too old or lacks a required symbol there is no table at all. Without the virtual memory
 * functions devices report vmm = false; the slot of an optional function that is missing answers NOT_SUPPORTED.
 */
#include "terrazzo_driver.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "device/driver_cuda.h"
#include "error.h"
#include "ticks.h"

enum {
	OLDEST_DRIVER = 11020,       /* CUDA 11.2 */
	MOST_DEVICES = 64,           /* in one set_access */
	NO_VMM_GRANULARITY = 2 << 20 /* what a device without virtual memory management reports */
};

/* These pass through unchanged. */
_Static_assert((int)TRZ_EXPORT_FD == (int)TRZ_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, "kind");
_Static_assert((int)TRZ_EXPORT_FABRIC == (int)TRZ_CU_MEM_HANDLE_TYPE_FABRIC, "kind");
_Static_assert((int)TRZ_CAPTURE_ACTIVE == (int)TRZ_CU_STREAM_CAPTURE_STATUS_ACTIVE, "status");
_Static_assert((int)TRZ_CAPTURE_INVALIDATED == (int)TRZ_CU_STREAM_CAPTURE_STATUS_INVALIDATED, "status");
_Static_assert((int)TRZ_CAPTURE_THREAD_LOCAL == (int)TRZ_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "mode");
_Static_assert((int)TRZ_CAPTURE_RELAXED == (int)TRZ_CU_STREAM_CAPTURE_MODE_RELAXED, "mode");

/* The table's `self`: one function pointer per symbol, NULL where an optional one is missing. */
struct cuda_api {
#define CUDA_API_FIELD(need, name, suffix, version, parameters) cuda_result(*name) parameters;
	CUDA_ABI_SYMBOLS(CUDA_API_FIELD)
#undef CUDA_API_FIELD
#define CUDA_API_FIELD(own, need, name, suffix, version, parameters) cuda_result(*own) parameters;
	CUDA_ABI_YOUNGER(CUDA_API_FIELD)
#undef CUDA_API_FIELD
	bool vmm; /* all VMM functions are there */
};

/* ---- results --------------------------------------------------------------------------------------- */

static const char *result_name(const struct cuda_api *cu, cuda_result result)
{
	const char *name = NULL;
	cu->cuGetErrorName(result, &name);
	return name ? name : "unknown result";
}

/* The one function that turns a result of the driver into a status. NOT_READY is an answer, not a failure. */
static trz_status translate(const struct cuda_api *cu, cuda_result result, const char *function)
{
	trz_status status = driver_cuda_status(result);
	if (status != TRZ_OK && status != TRZ_NOT_READY)
		trz_driver_note("%s (%d) from %s", result_name(cu, result), result, function);
	return status;
}

static trz_status missing(const char *function)
{
	trz_driver_note("this CUDA driver has no %s", function);
	return TRZ_ERROR_NOT_SUPPORTED;
}

#define CALL(cu, function, ...)                                                                             \
	((cu)->function ? translate((cu), (cu)->function(__VA_ARGS__), #function) : missing(#function))

/* ---- the context of a call ------------------------------------------------------------------------- */

static _Atomic(trz_context) last_entered;

/* Makes `context` current unless it is already; *pushed tells leave() what to undo. */
static trz_status enter(const struct cuda_api *cu, trz_context context, bool *pushed)
{
	void *current = NULL;
	assert(context != NULL);
	*pushed = false;
	if (atomic_load_explicit(&last_entered, memory_order_relaxed) != context)
		atomic_store_explicit(&last_entered, context, memory_order_relaxed);
	trz_status status = CALL(cu, cuCtxGetCurrent, &current);
	if (status != TRZ_OK || current == context)
		return status;
	status = CALL(cu, cuCtxPushCurrent, context);
	*pushed = status == TRZ_OK;
	return status;
}

static trz_status leave(const struct cuda_api *cu, bool pushed, trz_status status)
{
	void *popped;
	if (pushed)
		cu->cuCtxPopCurrent(&popped); /* the result of the call itself counts */
	return status;
}

/* The calls about created memory name no context. Whether they need a current one has not been tested on a GPU yet: in
 * a thread that has none, this makes the context current that was entered last, if it has not been released. */
static trz_status enter_any(const struct cuda_api *cu, bool *pushed)
{
	void *current = NULL;
	trz_context last = atomic_load_explicit(&last_entered, memory_order_relaxed);
	*pushed = false;
	trz_status status = CALL(cu, cuCtxGetCurrent, &current);
	return status == TRZ_OK && !current && last ? enter(cu, last, pushed) : status;
}

/* Makes one such call. */
#define CALL_IN_ANY(cu, status, function, ...) \
	do { \
		bool pushed; \
		*(status) = enter_any((cu), &pushed); \
		if (*(status) == TRZ_OK) \
			*(status) = leave((cu), pushed, CALL((cu), function, __VA_ARGS__)); \
	} while (0)

/* ---- devices and contexts -------------------------------------------------------------------------- */

static trz_status find_device(const struct cuda_api *cu, int ordinal, cuda_device *device)
{
	trz_status status = CALL(cu, cuDeviceGet, device, ordinal);
	return status == TRZ_ERROR_INVALID_ARGUMENT ? TRZ_ERROR_NO_DEVICE : status;
}

/* An attribute's value; 0 if the driver does not know it, since it then lacks the feature. */
static int read_attribute(const struct cuda_api *cu, cuda_device device, int which)
{
	int value = 0;
	return cu->cuDeviceGetAttribute(&value, which, device) == TRZ_CUDA_SUCCESS ? value : 0;
}

#define ATTRIBUTE(cu, device, name) read_attribute((cu), (device), TRZ_CU_DEVICE_ATTRIBUTE_##name)

static struct cuda_mem_prop make_prop(const trz_tile_props *props)
{
	return (struct cuda_mem_prop){
		.type = TRZ_CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = (int)props->export_kinds,
		.location = {TRZ_CU_MEM_LOCATION_TYPE_DEVICE, props->device},
		.flags.rdma = props->rdma,
	};
}

static trz_status cuda_device_count(void *self, int *count)
{
	const struct cuda_api *cu = self;
	int n = 0;
	trz_status status = CALL(cu, cuDeviceGetCount, &n);
	if (status == TRZ_OK)
		*count = n;
	return status;
}

static void fill_features(const struct cuda_api *cu, cuda_device device, trz_device_info *info)
{
	info->vmm = cu->vmm && ATTRIBUTE(cu, device, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
	info->rdma_with_vmm = info->vmm && ATTRIBUTE(cu, device, GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	bool share = info->vmm && cu->cuMemExportToShareableHandle && cu->cuMemImportFromShareableHandle;
	info->export_fd = share && ATTRIBUTE(cu, device, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
	info->export_fabric = share && ATTRIBUTE(cu, device, HANDLE_TYPE_FABRIC_SUPPORTED);
	info->compute_major = ATTRIBUTE(cu, device, COMPUTE_CAPABILITY_MAJOR);
	info->compute_minor = ATTRIBUTE(cu, device, COMPUTE_CAPABILITY_MINOR);
}

static trz_status find_granularity(const struct cuda_api *cu, int ordinal, uint64_t *granularity)
{
	const struct cuda_mem_prop prop = make_prop(&(trz_tile_props){.device = ordinal});
	size_t smallest = 0;
	trz_status status = CALL(cu, cuMemGetAllocationGranularity, &smallest, &prop,
	                         TRZ_CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (status == TRZ_OK)
		*granularity = smallest;
	return status;
}

static trz_status cuda_device_info(void *self, int ordinal, trz_device_info *info)
{
	const struct cuda_api *cu = self;
	trz_device_info found = {.granularity = NO_VMM_GRANULARITY};
	cuda_device device;
	size_t total = 0;
	trz_status status = find_device(cu, ordinal, &device);
	if (status == TRZ_OK)
		status = CALL(cu, cuDeviceGetName, found.name, (int)sizeof found.name, device);
	if (status == TRZ_OK)
		status = CALL(cu, cuDeviceTotalMem, &total, device);
	if (status != TRZ_OK)
		return status;
	found.total_bytes = total;
	fill_features(cu, device, &found);
	if (found.vmm)
		status = find_granularity(cu, ordinal, &found.granularity);
	if (status == TRZ_OK)
		*info = found;
	return status;
}

static trz_status device_of_context(const struct cuda_api *cu, trz_context context, cuda_device *device)
{
	bool pushed;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuCtxGetDevice, device));
	return status;
}

/* The primary context with one more reference, or NULL where there is none yet and `wake` is false. */
static trz_status retain_primary(const struct cuda_api *cu, cuda_device device, bool wake, void **primary)
{
	unsigned flags;
	int active = 0;
	*primary = NULL;
	trz_status status = CALL(cu, cuDevicePrimaryCtxGetState, device, &flags, &active);
	if (status == TRZ_OK && (active || wake))
		status = CALL(cu, cuDevicePrimaryCtxRetain, primary, device);
	return status;
}

/* Sets *context to the one that context_retain is to answer with; NULL: the primary one. */
static trz_status choose_context(const struct cuda_api *cu, cuda_device device, trz_context *context)
{
	bool wanted = *context != NULL;
	cuda_device home;
	trz_status status = wanted ? TRZ_OK : CALL(cu, cuCtxGetCurrent, context);
	if (status != TRZ_OK || *context == NULL)
		return status;
	trz_context asked = *context;
	status = device_of_context(cu, asked, &home);
	if (wanted && status == TRZ_ERROR_CONTEXT_DEAD) {
		trz_driver_note("%p is not a context, or one that has failed", asked);
		return TRZ_ERROR_INVALID_ARGUMENT;
	}
	if (status != TRZ_OK || home == device)
		return status;
	*context = NULL;
	if (!wanted)
		return TRZ_OK;
	trz_driver_note("the context is on device %d, not on device %d", home, device);
	return TRZ_ERROR_WRONG_DEVICE;
}

/* Retains the primary context even if it was asked for or is current: so context_release knows from the context alone
 * what to give back, and a heap outlives its program's own reference. */
static trz_status cuda_context_retain(void *self, int ordinal, trz_context wanted, trz_context *context)
{
	const struct cuda_api *cu = self;
	cuda_device device;
	trz_context chosen = wanted, primary;
	trz_status status = find_device(cu, ordinal, &device);
	if (status == TRZ_OK)
		status = choose_context(cu, device, &chosen);
	if (status == TRZ_OK)
		status = retain_primary(cu, device, chosen == NULL, &primary);
	if (status != TRZ_OK)
		return status;
	if (chosen && primary && chosen != primary)
		status = CALL(cu, cuDevicePrimaryCtxRelease, device);
	if (status == TRZ_OK)
		*context = chosen ? chosen : primary;
	return status;
}

static trz_status cuda_context_release(void *self, int ordinal, trz_context context)
{
	const struct cuda_api *cu = self;
	cuda_device device;
	trz_context primary = NULL;
	trz_context last = context;
	atomic_compare_exchange_strong(&last_entered, &last, NULL);
	trz_status status = find_device(cu, ordinal, &device);
	if (status == TRZ_OK)
		status = retain_primary(cu, device, false, &primary);
	if (status == TRZ_OK && primary != NULL)
		status = CALL(cu, cuDevicePrimaryCtxRelease, device); /* of the question above */
	if (status == TRZ_OK && primary == context)
		status = CALL(cu, cuDevicePrimaryCtxRelease, device);
	return status;
}

static trz_status cuda_mem_info(void *self, trz_context context, uint64_t *free_bytes, uint64_t *total_bytes)
{
	const struct cuda_api *cu = self;
	bool pushed;
	size_t unused = 0, total = 0;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuMemGetInfo, &unused, &total));
	if (status == TRZ_OK) {
		*free_bytes = unused;
		*total_bytes = total;
	}
	return status;
}

/* ---- virtual memory management --------------------------------------------------------------------- */

/* Drivers answer differently to a kind of export that they lack, so this asks for the attributes first. */
static trz_status check_export(const struct cuda_api *cu, const trz_tile_props *props)
{
	trz_device_info info = {0};
	cuda_device device;
	trz_status status = find_device(cu, props->device, &device);
	if (status != TRZ_OK)
		return status;
	fill_features(cu, device, &info);
	unsigned lacks = props->export_kinds;
	if (info.export_fd)
		lacks &= ~(unsigned)TRZ_EXPORT_FD;
	if (info.export_fabric)
		lacks &= ~(unsigned)TRZ_EXPORT_FABRIC;
	if (lacks == 0)
		return TRZ_OK;
	trz_driver_note("device %d cannot export memory as kind %#x", props->device, lacks);
	return TRZ_ERROR_NOT_SUPPORTED;
}

/* An administrator has to set up a channel between the machines; without it the driver answers NOT_PERMITTED to any use
 * of fabric handles. */
static trz_status permitted(trz_status status, unsigned kinds)
{
	bool lacks = status == TRZ_ERROR_NOT_PERMITTED && kinds & TRZ_EXPORT_FABRIC;
	return lacks ? TRZ_ERROR_NOT_SUPPORTED : status;
}

static trz_status cuda_create(void *self, const trz_tile_props *props, uint64_t size, trz_handle *handle)
{
	const struct cuda_api *cu = self;
	const struct cuda_mem_prop prop = make_prop(props);
	cuda_mem made = 0;
	trz_status status = props->export_kinds ? check_export(cu, props) : TRZ_OK;
	if (status == TRZ_OK)
		CALL_IN_ANY(cu, &status, cuMemCreate, &made, size, &prop, 0);
	status = permitted(status, props->export_kinds);
	if (status == TRZ_OK)
		*handle = made;
	return status;
}

static trz_status cuda_release(void *self, trz_handle handle)
{
	const struct cuda_api *cu = self;
	trz_status status;
	CALL_IN_ANY(cu, &status, cuMemRelease, handle);
	return status;
}

/* Drivers differ in the code for a range that they cannot find; each means ADDRESS_SPACE. */
static trz_status cuda_reserve(void *self, uint64_t size, uint64_t alignment, trz_addr hint,
                               trz_addr *address)
{
	const struct cuda_api *cu = self;
	cuda_addr found = 0;
	trz_status status;
	CALL_IN_ANY(cu, &status, cuMemAddressReserve, &found, size, alignment, hint, 0);
	if (status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_INVALID_ARGUMENT)
		return TRZ_ERROR_ADDRESS_SPACE;
	if (status == TRZ_OK)
		*address = found;
	return status;
}

static trz_status cuda_unreserve(void *self, trz_addr address, uint64_t size)
{
	const struct cuda_api *cu = self;
	trz_status status;
	CALL_IN_ANY(cu, &status, cuMemAddressFree, address, size);
	return status;
}

static trz_status cuda_map(void *self, trz_addr address, uint64_t size, trz_handle handle)
{
	const struct cuda_api *cu = self;
	trz_status status;
	CALL_IN_ANY(cu, &status, cuMemMap, address, size, 0, handle, 0);
	return status;
}

static trz_status cuda_unmap(void *self, trz_addr address, uint64_t size)
{
	const struct cuda_api *cu = self;
	trz_status status;
	CALL_IN_ANY(cu, &status, cuMemUnmap, address, size);
	return status;
}

static trz_status cuda_set_access(void *self, trz_addr address, uint64_t size, const int *devices, int count)
{
	const struct cuda_api *cu = self;
	struct cuda_mem_access access[MOST_DEVICES];
	if (count < 1 || count > MOST_DEVICES) {
		trz_driver_note("set_access for %d devices; 1 to %d are possible", count, MOST_DEVICES);
		return TRZ_ERROR_INVALID_ARGUMENT;
	}
	for (int i = 0; i < count; i++) {
		access[i] = (struct cuda_mem_access){
			.location = {TRZ_CU_MEM_LOCATION_TYPE_DEVICE, devices[i]},
			.flags = TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};
	}
	trz_status status;
	CALL_IN_ANY(cu, &status, cuMemSetAccess, address, size, access, (size_t)count);
	return status;
}

/* ---- plain memory ---------------------------------------------------------------------------------- */

static trz_status cuda_mem_alloc(void *self, trz_context context, uint64_t size, trz_addr *address)
{
	const struct cuda_api *cu = self;
	bool pushed;
	cuda_addr made = 0;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuMemAlloc, &made, size));
	if (status == TRZ_OK)
		*address = made;
	return status;
}

static trz_status cuda_mem_free(void *self, trz_context context, trz_addr address)
{
	const struct cuda_api *cu = self;
	bool pushed;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuMemFree, address));
	return status;
}

/* ---- events and streams ---------------------------------------------------------------------------- */

static trz_status cuda_event_create(void *self, trz_context context, trz_event *event)
{
	const struct cuda_api *cu = self;
	bool pushed;
	void *made = NULL;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuEventCreate, &made, TRZ_CU_EVENT_DISABLE_TIMING));
	if (status == TRZ_OK)
		*event = made;
	return status;
}

static trz_status cuda_event_destroy(void *self, trz_context context, trz_event event)
{
	const struct cuda_api *cu = self;
	bool pushed;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuEventDestroy, event));
	return status;
}

static trz_status cuda_event_record(void *self, trz_context context, trz_event event, trz_stream stream)
{
	const struct cuda_api *cu = self;
	bool pushed;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuEventRecord, event, stream));
	return status;
}

/* cuCtxRecordEvent takes the context as an argument, so none need be current. */
static trz_status cuda_context_record(void *self, trz_context context, trz_event event)
{
	const struct cuda_api *cu = self;
	return CALL(cu, cuCtxRecordEvent, context, event);
}

static trz_status cuda_event_query(void *self, trz_context context, trz_event event)
{
	const struct cuda_api *cu = self;
	bool pushed;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuEventQuery, event));
	return status;
}

static trz_status cuda_event_sync(void *self, trz_context context, trz_event event)
{
	const struct cuda_api *cu = self;
	bool pushed;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuEventSynchronize, event));
	return status;
}

static trz_status cuda_stream_wait(void *self, trz_context context, trz_stream stream, trz_event event)
{
	const struct cuda_api *cu = self;
	bool pushed;
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuStreamWaitEvent, stream, event, 0));
	return status;
}

/* Drivers before CUDA 12.0 have no ids: the handle stands in, so an id comes back with the next stream that gets that
 * handle. NULL and 1 are one stream; 2 is one stream per thread. Handles are aligned, so none has a low half of 2. */
static uint64_t stream_id_of_handle(trz_stream stream)
{
	uint64_t handle = (uintptr_t)stream;
	if (handle == 2)
		return (uint64_t)gettid() << 32 | handle;
	return handle ? handle : 1;
}

static trz_status cuda_stream_id(void *self, trz_context context, trz_stream stream, uint64_t *id)
{
	const struct cuda_api *cu = self;
	bool pushed;
	uint64_t found = 0;
	if (!cu->cuStreamGetId) {
		*id = stream_id_of_handle(stream);
		return TRZ_OK;
	}
	trz_status status = enter(cu, context, &pushed);
	if (status == TRZ_OK)
		status = leave(cu, pushed, CALL(cu, cuStreamGetId, stream, &found));
	if (status == TRZ_OK)
		*id = found;
	return status;
}

/* For a stream of a green context the older form returns that context, converted. It can be current in only one thread
 * at a time, perhaps another one; the newer form returns the primary context, whose events the stream takes as well. */
static trz_status cuda_stream_context(void *self, trz_context context, trz_stream stream, trz_context *of)
{
	const struct cuda_api *cu = self;
	bool pushed;
	void *found = context, *green;
	trz_status status = TRZ_OK;
	if ((uintptr_t)stream <= 2) {
		if (!context)
			status = CALL(cu, cuCtxGetCurrent, &found);
		if (status == TRZ_OK)
			*of = found;
		return status;
	}
	status = enter(cu, context, &pushed);
	if (status != TRZ_OK)
		return status;
	status = cu->stream_contexts ? translate(cu, cu->stream_contexts(stream, &found, &green), "cuStreamGetCtx")
	                             : CALL(cu, cuStreamGetCtx, stream, &found);
	status = leave(cu, pushed, status);
	if (status == TRZ_OK)
		*of = found;
	return status;
}

/* On the legacy stream only cuStreamIsCapturing is documented to leave the captures of blocking streams intact, so it
 * is asked first. */
static trz_status cuda_stream_capture(void *self, trz_context context, trz_stream stream,
                                      trz_capture_status *status, uint64_t *id)
{
	const struct cuda_api *cu = self;
	bool pushed;
	int capturing = TRZ_CU_STREAM_CAPTURE_STATUS_NONE;
	uint64_t capture = 0;
	trz_status answer = enter(cu, context, &pushed);
	if (answer != TRZ_OK)
		return answer;
	answer = CALL(cu, cuStreamIsCapturing, stream, &capturing);
	if (answer == TRZ_OK && capturing == TRZ_CU_STREAM_CAPTURE_STATUS_ACTIVE)
		answer = CALL(cu, cuStreamGetCaptureInfo, stream, &capturing, &capture);
	answer = leave(cu, pushed, answer);
	if (answer == TRZ_OK) {
		*status = (trz_capture_status)capturing;
		*id = capturing == TRZ_CU_STREAM_CAPTURE_STATUS_ACTIVE ? capture : 0;
	}
	return answer;
}

static trz_status cuda_capture_mode(void *self, trz_capture_mode *mode)
{
	const struct cuda_api *cu = self;
	int exchanged = (int)*mode;
	trz_status status = CALL(cu, cuThreadExchangeStreamCaptureMode, &exchanged);
	if (status == TRZ_OK)
		*mode = (trz_capture_mode)exchanged;
	return status;
}

/* ---- sharing, time --------------------------------------------------------------------------------- */

static trz_status cuda_peer_access(void *self, int device, int peer, bool *can)
{
	const struct cuda_api *cu = self;
	cuda_device from, to;
	int answer = 1; /* a device can access itself, which the driver would deny */
	trz_status status = find_device(cu, device, &from);
	if (status == TRZ_OK)
		status = find_device(cu, peer, &to);
	if (status == TRZ_OK && from != to)
		status = CALL(cu, cuDeviceCanAccessPeer, &answer, from, to);
	if (status == TRZ_OK)
		*can = answer != 0;
	return status;
}

static trz_status cuda_export_handle(void *self, trz_handle handle, unsigned kind, void *shareable)
{
	const struct cuda_api *cu = self;
	return permitted(CALL(cu, cuMemExportToShareableHandle, shareable, handle, (int)kind, 0), kind);
}

/* The driver takes a descriptor in the pointer itself, a fabric handle behind the pointer. */
static trz_status cuda_import_handle(void *self, unsigned kind, const void *shareable, trz_handle *handle)
{
	const struct cuda_api *cu = self;
	cuda_mem made = 0;
	void *source = (void *)shareable;
	if (kind == TRZ_EXPORT_FD)
		source = (void *)(intptr_t)*(const int *)shareable;
	trz_status status = permitted(CALL(cu, cuMemImportFromShareableHandle, &made, source, (int)kind), kind);
	if (status == TRZ_OK)
		*handle = made;
	return status;
}

static trz_status cuda_clock_ns(void *self, uint64_t *ns)
{
	(void)self;
	*ns = monotonic_ns();
	return TRZ_OK;
}

/* ---- loading --------------------------------------------------------------------------------------- */

enum symbol_need { REQUIRED, VMM, OPTIONAL };

struct symbol {
	const char *name;     /* as cuGetProcAddress knows it */
	const char *exported; /* as the library exports it */
	int version;
	enum symbol_need need;
	size_t offset; /* of its field in struct cuda_api */
};

static const struct symbol symbols[] = {
#define CUDA_SYMBOL_ROW(need, name, suffix, version, parameters)                                            \
	{#name, #name suffix, version, need, offsetof(struct cuda_api, name)},
	CUDA_ABI_SYMBOLS(CUDA_SYMBOL_ROW)
#undef CUDA_SYMBOL_ROW
#define CUDA_SYMBOL_ROW(own, need, name, suffix, version, parameters)                                       \
	{#name, #name suffix, version, need, offsetof(struct cuda_api, own)},
	CUDA_ABI_YOUNGER(CUDA_SYMBOL_ROW)
#undef CUDA_SYMBOL_ROW
};

typedef cuda_result version_call(int *version);
typedef cuda_result init_call(unsigned flags);
typedef cuda_result lookup_v1(const char *name, void **found, int version, uint64_t flags);
typedef cuda_result lookup_v2(const char *name, void **found, int version, uint64_t flags, int *why);

/* An attempt to load the driver. */
struct attempt {
	struct cuda_api api;
	trz_status status;
	char reason[256];  /* why it failed */
};

/* The first attempt to end is the one that counts. Several threads may try at the same time: no lock is held while the
 * dynamic linker is asked, since a thread that has its lock may come here, from a constructor (docs/lock-order.md). */
static struct attempt first;
static pthread_mutex_t first_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool tried;

static const trz_driver cuda_table = {
	.version = TRZ_DRIVER_VERSION,
	.size = sizeof(trz_driver),
	.name = "cuda",
	.self = &first.api,
#define CUDA_SLOT(slot) .slot = cuda_##slot,
	TRZ_DRIVER_SLOTS(CUDA_SLOT)
#undef CUDA_SLOT
};

/* How to ask the library for a symbol: by version (CUDA 12, then 11.3), else by the name that it exports. */
struct library {
	void *handle;
	lookup_v1 *by_version;
	lookup_v2 *by_version2;
	int version; /* what the driver serves; newer functions are not looked for */
};

__attribute__((format(printf, 2, 3)))
static trz_status refuse(struct attempt *a, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(a->reason, sizeof a->reason, format, args);
	va_end(args);
	return TRZ_ERROR_NO_DRIVER;
}

static void *find_symbol(const struct library *library, const struct symbol *symbol)
{
	const uint64_t legacy = TRZ_CU_GET_PROC_ADDRESS_LEGACY_STREAM;
	void *found = NULL;
	cuda_result result = TRZ_CUDA_ERROR_NOT_FOUND;
	if (symbol->version > library->version)
		return NULL;
	if (library->by_version2)
		result = library->by_version2(symbol->name, &found, symbol->version, legacy, NULL);
	else if (library->by_version)
		result = library->by_version(symbol->name, &found, symbol->version, legacy);
	return result == TRZ_CUDA_SUCCESS && found ? found : dlsym(library->handle, symbol->exported);
}

static trz_status load_symbols(struct attempt *a, const struct library *library)
{
	a->api.vmm = true;
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		const struct symbol *symbol = &symbols[i];
		void *found = find_symbol(library, symbol);
		if (!found && symbol->need == REQUIRED)
			return refuse(a, "libcuda.so.1 lacks %s: update the driver", symbol->exported);
		if (!found && symbol->need == VMM)
			a->api.vmm = false;
		memcpy((char *)&a->api + symbol->offset, &found, sizeof found);
	}
	return TRZ_OK;
}

static trz_status check_version(struct attempt *a, struct library *library)
{
	version_call *get_version = (version_call *)dlsym(library->handle, "cuDriverGetVersion");
	if (!get_version || get_version(&library->version) != TRZ_CUDA_SUCCESS)
		return refuse(a, "libcuda.so.1 did not report its version: reinstall the driver");
	if (library->version >= OLDEST_DRIVER)
		return TRZ_OK;
	return refuse(a, "the driver is for CUDA %d.%d: 11.2 is the oldest supported",
	              library->version / 1000, library->version % 1000 / 10);
}

static trz_status start_driver(struct attempt *a, const struct library *library)
{
	init_call *init = (init_call *)dlsym(library->handle, "cuInit");
	cuda_result result = init ? init(0) : TRZ_CUDA_ERROR_NOT_FOUND;
	if (result == TRZ_CUDA_SUCCESS)
		return TRZ_OK;
	refuse(a, "%s (%d) from cuInit: check nvidia-smi and CUDA_VISIBLE_DEVICES", result_name(&a->api, result), result);
	return result == TRZ_CUDA_ERROR_NO_DEVICE ? TRZ_ERROR_NO_DEVICE : TRZ_ERROR_NO_DRIVER;
}

static trz_status load_driver(struct attempt *a)
{
	struct library library = {.handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
	if (!library.handle)
		return refuse(a, "%s: install the driver or set LD_LIBRARY_PATH", dlerror());
	library.by_version = (lookup_v1 *)dlsym(library.handle, "cuGetProcAddress");
	library.by_version2 = (lookup_v2 *)dlsym(library.handle, "cuGetProcAddress_v2");
	trz_status status = check_version(a, &library);
	if (status == TRZ_OK)
		status = load_symbols(a, &library);
	if (status == TRZ_OK)
		status = start_driver(a, &library);
	return status;
}

static void try_driver(void)
{
	struct attempt a = {0};
	a.status = load_driver(&a);
	pthread_mutex_lock(&first_lock);
	if (!atomic_load(&tried)) {
		first = a;
		atomic_store_explicit(&tried, true, memory_order_release);
	}
	pthread_mutex_unlock(&first_lock);
}

trz_status driver_cuda_table(const trz_driver **out)
{
	if (!atomic_load_explicit(&tried, memory_order_acquire))
		try_driver();
	if (first.status != TRZ_OK)
		return trz_fail(first.status, "%s", first.reason);
	*out = &cuda_table;
	return TRZ_OK;
}
