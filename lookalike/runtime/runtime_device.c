/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime itself: its start, errors, versions, and devices.
 */
#include "runtime_lookalike.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* 11.8, 12.9, 13.2 */
enum {
	MOST_DEVICES = 16,
	RUNTIME_VERSION = RUNTIME_MAJOR * 1000 + (RUNTIME_MAJOR < 12 ? 80 : RUNTIME_MAJOR < 13 ? 90 : 20)
};

/* Counts the few calls before the start. */
static uint64_t early_calls[RT_CALLS];
uint64_t *rt_calls = early_calls;

/* ---- errors ------------------------------------------------------------ */

static _Thread_local cuda_error last_error;

/* Keeps the last error, but no refusal in a host function, which a real driver runs in a thread of its own, and not
 * that work is not ready, which CUDA considers no error. */
cuda_error rt_result(int result)
{
	if (result && result != RT_NOT_PERMITTED && result != RT_NOT_READY)
		last_error = result;
	return result;
}

cuda_error cudaGetLastError(void)
{
	RT_COUNT(cudaGetLastError);
	cuda_error error = last_error;
	last_error = RT_SUCCESS;
	return error;
}

cuda_error cudaPeekAtLastError(void)
{
	RT_COUNT(cudaPeekAtLastError);
	return last_error;
}

LOOKALIKE_API const char *cudaGetErrorString(cuda_error error);
LOOKALIKE_API const char *cudaGetErrorName(cuda_error error);

static const struct {
	cuda_error error;
	const char *name, *text;
} errors[] = {
#define BOTH(value, driver, runtime, text) {value, #runtime, text},
#define DRIVER(value, driver, text)
#define RUNTIME(value, runtime, text) {value, #runtime, text},
#include "lookalike/lookalike_errors.def"
#undef BOTH
#undef DRIVER
#undef RUNTIME
};

const char *cudaGetErrorString(cuda_error error)
{
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (errors[i].error == error)
			return errors[i].text;
	return "unrecognized error code";
}

const char *cudaGetErrorName(cuda_error error)
{
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
		if (errors[i].error == error)
			return errors[i].name;
	return "unrecognized error code";
}

/* ---- start ------------------------------------------------------------ */

static const char *const call_names[] = {
#define CALL_NAME(name, parameters) #name,
	LOOKALIKE_RUNTIME_SYMBOLS(CALL_NAME)
#undef CALL_NAME
};

static pthread_once_t started = PTHREAD_ONCE_INIT;
static int start_result;

static void start(void)
{
	uint64_t *counts = trz_lookalike_calls(call_names, RT_CALLS);
	if (counts) {
		for (int i = 0; i < RT_CALLS; i++)
			__atomic_fetch_add(&counts[i], early_calls[i], __ATOMIC_RELAXED);
		__atomic_store_n(&rt_calls, counts, __ATOMIC_RELEASE);
	}
	start_result = cuInit(0);
}

int rt_init(void)
{
	pthread_once(&started, start);
	return start_result;
}

/* By this name lookalike/redirect tells this runtime from NVIDIA's. */
LOOKALIKE_API __attribute__((used)) int __cudaTerrazzoLookalike(void);

int __cudaTerrazzoLookalike(void)
{
	return RUNTIME_MAJOR;
}

/* ---- the thread's device ------------------------------------------------------------ */

static _Thread_local int device;
/* The number of resets, from 1, that the thread knew of when it was given its context; 0: it has none. */
static _Thread_local uint64_t bound;
static uint64_t resets = 1;

/* False after a reset: the thread must look again whether its context is alive. */
static bool is_bound(void)
{
	return bound == __atomic_load_n(&resets, __ATOMIC_ACQUIRE);
}

/* The primary contexts that this library has retained, each once. */
static struct {
	pthread_mutex_t lock;
	void *context[MOST_DEVICES];
} primary = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int primary_context(int wanted, void **context)
{
	pthread_mutex_lock(&primary.lock);
	int result = primary.context[wanted] ? RT_SUCCESS : cuDevicePrimaryCtxRetain(&primary.context[wanted], wanted);
	*context = primary.context[wanted];
	pthread_mutex_unlock(&primary.lock);
	return result;
}

static int make_current(int wanted)
{
	void *context;
	uint64_t known = __atomic_load_n(&resets, __ATOMIC_ACQUIRE);
	int result = primary_context(wanted, &context);
	if (result == RT_SUCCESS)
		result = cuCtxSetCurrent(context);
	bound = result == RT_SUCCESS ? known : 0;
	return result;
}

int rt_device(void)
{
	return device;
}

/* Gives the thread a context, unless the program itself has made one current. */
int rt_bind(void)
{
	void *context = NULL;
	if (is_bound())
		return RT_SUCCESS;
	uint64_t known = __atomic_load_n(&resets, __ATOMIC_ACQUIRE);
	int result = rt_init();
	if (result == RT_SUCCESS)
		result = cuCtxGetCurrent(&context);
	if (result == RT_SUCCESS && context) {
		bound = known;
		return cuCtxGetDevice(&device);
	}
	return result == RT_SUCCESS ? make_current(device) : result;
}

static bool is_device(int wanted)
{
	int count = 0;
	return cuDeviceGetCount(&count) == RT_SUCCESS && wanted >= 0 && wanted < count;
}

cuda_error cudaGetDeviceCount(int *count)
{
	if (count)
		*count = 0;
	RT_INIT(cudaGetDeviceCount);
	return rt_result(cuDeviceGetCount(count));
}

cuda_error cudaGetDevice(int *current)
{
	RT_INIT(cudaGetDevice);
	if (!current)
		return rt_result(RT_INVALID_VALUE);
	*current = device;
	return RT_SUCCESS;
}

cuda_error cudaSetDevice(int wanted)
{
	void *context = NULL;
	RT_INIT(cudaSetDevice);
	if (wanted == device && is_bound() && cuCtxGetCurrent(&context) == RT_SUCCESS && context == primary.context[device])
		return RT_SUCCESS;
	if (!is_device(wanted))
		return rt_result(RT_INVALID_DEVICE);
	int result = make_current(wanted);
	if (result == RT_SUCCESS)
		device = wanted;
	return rt_result(result);
}

cuda_error cudaInitDevice(int wanted, unsigned device_flags, unsigned flags)
{
	void *context;
	RT_INIT(cudaInitDevice);
	(void)device_flags, (void)flags;
	return rt_result(is_device(wanted) ? primary_context(wanted, &context) : RT_INVALID_DEVICE);
}

cuda_error cudaSetDeviceFlags(unsigned flags)
{
	RT_INIT(cudaSetDeviceFlags);
	return rt_result(cuDevicePrimaryCtxSetFlags_v2(device, flags));
}

cuda_error cudaGetDeviceFlags(unsigned *flags)
{
	int active;
	RT_INIT(cudaGetDeviceFlags);
	return rt_result(cuDevicePrimaryCtxGetState(device, flags, &active));
}

cuda_error cudaDeviceSynchronize(void)
{
	RT_ENTER(cudaDeviceSynchronize);
	return rt_result(cuCtxSynchronize());
}

cuda_error cudaDeviceReset(void)
{
	RT_INIT(cudaDeviceReset);
	cuCtxSetCurrent(NULL);
	int result = cuDevicePrimaryCtxReset_v2(device);
	/* Only now, lest another thread retain the context again before the reset and keep a dead one for ever. */
	pthread_mutex_lock(&primary.lock);
	primary.context[device] = NULL;
	pthread_mutex_unlock(&primary.lock);
	__atomic_fetch_add(&resets, 1, __ATOMIC_RELEASE);
	return rt_result(result);
}

/* ---- facts ------------------------------------------------------------ */

cuda_error cudaDeviceGetAttribute(int *value, int attribute, int wanted)
{
	RT_INIT(cudaDeviceGetAttribute);
	return rt_result(cuDeviceGetAttribute(value, attribute, wanted));
}

static int attribute(int which, int wanted)
{
	int value = 0;
	cuDeviceGetAttribute(&value, which, wanted);
	return value;
}

static void fill_limits(struct rt_properties *p, int d)
{
	p->shared_per_block = (size_t)attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, d);
	p->registers_per_block = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, d);
	p->warp = attribute(TRZ_CU_DEVICE_ATTRIBUTE_WARP_SIZE, d);
	p->pitch = (size_t)attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_PITCH, d);
	p->threads_per_block = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, d);
	for (int i = 0; i < 3; i++) {
		p->block[i] = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i, d);
		p->grid[i] = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i, d);
	}
	p->constant_memory = (size_t)attribute(TRZ_CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, d);
	p->texture_alignment = (size_t)attribute(TRZ_CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, d);
	p->texture_pitch_alignment = (size_t)attribute(TRZ_CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, d);
	p->surface_alignment = (size_t)attribute(TRZ_CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, d);
	p->threads_per_multiprocessor = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, d);
	p->shared_per_multiprocessor = (size_t)attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, d);
	p->registers_per_multiprocessor = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, d);
	p->shared_per_block_optin = (size_t)attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, d);
	p->blocks_per_multiprocessor = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, d);
	p->reserved_shared_per_block = (size_t)attribute(TRZ_CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, d);
}

/* In the order of cudaDeviceProp. */
static void fill_extents(struct rt_properties *p, int d)
{
#define EXTENT(name) TRZ_CU_DEVICE_ATTRIBUTE_MAXIMUM_##name
	static const int textures[] = {
		EXTENT(TEXTURE2D_WIDTH), EXTENT(TEXTURE2D_HEIGHT), EXTENT(TEXTURE2D_MIPMAPPED_WIDTH),
		EXTENT(TEXTURE2D_MIPMAPPED_HEIGHT), EXTENT(TEXTURE2D_LINEAR_WIDTH), EXTENT(TEXTURE2D_LINEAR_HEIGHT),
		EXTENT(TEXTURE2D_LINEAR_PITCH), EXTENT(TEXTURE2D_GATHER_WIDTH), EXTENT(TEXTURE2D_GATHER_HEIGHT),
		EXTENT(TEXTURE3D_WIDTH), EXTENT(TEXTURE3D_HEIGHT), EXTENT(TEXTURE3D_DEPTH),
		EXTENT(TEXTURE3D_WIDTH_ALTERNATE), EXTENT(TEXTURE3D_HEIGHT_ALTERNATE), EXTENT(TEXTURE3D_DEPTH_ALTERNATE),
		EXTENT(TEXTURECUBEMAP_WIDTH), EXTENT(TEXTURE1D_LAYERED_WIDTH), EXTENT(TEXTURE1D_LAYERED_LAYERS),
		EXTENT(TEXTURE2D_LAYERED_WIDTH), EXTENT(TEXTURE2D_LAYERED_HEIGHT), EXTENT(TEXTURE2D_LAYERED_LAYERS),
		EXTENT(TEXTURECUBEMAP_LAYERED_WIDTH), EXTENT(TEXTURECUBEMAP_LAYERED_LAYERS),
	};
#undef EXTENT
	const int first_surface = TRZ_CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH;
	p->texture_1d[0] = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, d);
	p->texture_1d[1] = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, d);
#if RUNTIME_MAJOR < 13
	p->texture_1d_linear = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, d);
#endif
	for (size_t i = 0; i < sizeof p->textures / sizeof p->textures[0]; i++)
		p->textures[i] = attribute(textures[i], d);
	for (size_t i = 0; i < sizeof p->surfaces / sizeof p->surfaces[0]; i++)
		p->surfaces[i] = attribute(first_surface + (int)i, d);
}

static void fill_abilities(struct rt_properties *p, int d)
{
	p->maps_host_memory = attribute(TRZ_CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, d);
	p->concurrent_kernels = attribute(TRZ_CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, d);
	p->ecc = attribute(TRZ_CU_DEVICE_ATTRIBUTE_ECC_ENABLED, d);
	p->copy_engines = attribute(TRZ_CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, d);
	p->unified_addressing = attribute(TRZ_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, d);
	p->stream_priorities = attribute(TRZ_CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, d);
	p->global_l1 = attribute(TRZ_CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, d);
	p->local_l1 = attribute(TRZ_CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, d);
	p->managed = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, d);
	p->concurrent_managed = attribute(TRZ_CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, d);
	p->preemption = attribute(TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, d);
	p->host_pointer_for_registered =
		attribute(TRZ_CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, d);
	p->cooperative = attribute(TRZ_CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, d);
#if RUNTIME_MAJOR >= 12
	p->host_register = attribute(TRZ_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, d);
	p->pools = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, d);
	p->pool_handle_types = (unsigned)attribute(TRZ_CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, d);
	p->clusters = attribute(TRZ_CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, d);
#endif
}

cuda_error cudaGetDeviceProperties(struct rt_properties *p, int d)
{
	struct cuda_uuid uuid;
	RT_INIT(cudaGetDeviceProperties);
	if (!p)
		return rt_result(RT_INVALID_VALUE);
	if (!is_device(d))
		return rt_result(RT_INVALID_DEVICE);
	memset(p, 0, sizeof *p);
	cuDeviceGetName(p->name, sizeof p->name, d);
	cuDeviceGetUuid_v2(&uuid, d);
	memcpy(p->uuid, uuid.bytes, sizeof p->uuid);
	cuDeviceTotalMem_v2(&p->memory, d);
	p->major = attribute(TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d);
	p->minor = attribute(TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d);
	p->multiprocessors = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d);
	p->pci_bus = attribute(TRZ_CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, d);
	p->bus_bits = attribute(TRZ_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, d);
	p->l2_bytes = attribute(TRZ_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, d);
#if RUNTIME_MAJOR < 13
	p->clock_khz = attribute(TRZ_CU_DEVICE_ATTRIBUTE_CLOCK_RATE, d);
	p->memory_khz = attribute(TRZ_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, d);
	p->overlap = 1;
#endif
	fill_limits(p, d);
	fill_extents(p, d);
	fill_abilities(p, d);
	return RT_SUCCESS;
}

#if RUNTIME_MAJOR < 13
cuda_error cudaGetDeviceProperties_v2(struct rt_properties *p, int d)
{
	return cudaGetDeviceProperties(p, d);
}
#endif

cuda_error cudaDeviceGetPCIBusId(char *id, int size, int d)
{
	RT_INIT(cudaDeviceGetPCIBusId);
	return rt_result(cuDeviceGetPCIBusId(id, size, d));
}

cuda_error cudaDeviceGetByPCIBusId(int *d, const char *id)
{
	RT_INIT(cudaDeviceGetByPCIBusId);
	return rt_result(cuDeviceGetByPCIBusId(d, id));
}

cuda_error cudaDeviceCanAccessPeer(int *can, int d, int peer)
{
	RT_INIT(cudaDeviceCanAccessPeer);
	return rt_result(cuDeviceCanAccessPeer(can, d, peer));
}

cuda_error cudaDeviceGetP2PAttribute(int *value, int which, int d, int peer)
{
	RT_INIT(cudaDeviceGetP2PAttribute);
	return rt_result(cuDeviceGetP2PAttribute(value, which, d, peer));
}

cuda_error cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
	void *context;
	RT_ENTER(cudaDeviceEnablePeerAccess);
	int result = is_device(peer) ? primary_context(peer, &context) : RT_INVALID_DEVICE;
	return rt_result(result == RT_SUCCESS ? cuCtxEnablePeerAccess(context, flags) : result);
}

cuda_error cudaDeviceDisablePeerAccess(int peer)
{
	void *context;
	RT_ENTER(cudaDeviceDisablePeerAccess);
	int result = is_device(peer) ? primary_context(peer, &context) : RT_INVALID_DEVICE;
	return rt_result(result == RT_SUCCESS ? cuCtxDisablePeerAccess(context) : result);
}

cuda_error cudaDeviceGetLimit(size_t *value, int limit)
{
	RT_ENTER(cudaDeviceGetLimit);
	return rt_result(cuCtxGetLimit(value, limit));
}

cuda_error cudaDeviceSetLimit(int limit, size_t value)
{
	RT_ENTER(cudaDeviceSetLimit);
	return rt_result(cuCtxSetLimit(limit, value));
}

cuda_error cudaDeviceGetCacheConfig(int *config)
{
	RT_ENTER(cudaDeviceGetCacheConfig);
	return rt_result(cuCtxGetCacheConfig(config));
}

cuda_error cudaDeviceSetCacheConfig(int config)
{
	RT_ENTER(cudaDeviceSetCacheConfig);
	return rt_result(cuCtxSetCacheConfig(config));
}

cuda_error cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	RT_ENTER(cudaDeviceGetStreamPriorityRange);
	return rt_result(cuCtxGetStreamPriorityRange(least, greatest));
}

/* ---- versions and entry points ------------------------------------------------------------ */

cuda_error cudaDriverGetVersion(int *version)
{
	RT_COUNT(cudaDriverGetVersion);
	return rt_result(cuDriverGetVersion(version));
}

cuda_error cudaRuntimeGetVersion(int *version)
{
	RT_COUNT(cudaRuntimeGetVersion);
	if (!version)
		return rt_result(RT_INVALID_VALUE);
	*version = RUNTIME_VERSION;
	return RT_SUCCESS;
}

/* If the caller passes a status, a missing function is told there and is no error. */
cuda_error cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                            unsigned long long flags, int *status)
{
	int why = 0;
	RT_INIT(cudaGetDriverEntryPointByVersion);
	int result = cuGetProcAddress_v2(name, function, (int)version, flags, &why);
	if (status)
		*status = why;
	return rt_result(result && why && status ? RT_SUCCESS : result);
}

#if RUNTIME_MAJOR < 12
cuda_error cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags)
{
	RT_COUNT(cudaGetDriverEntryPoint);
	return cudaGetDriverEntryPointByVersion(name, function, RUNTIME_VERSION, flags, NULL);
}
#else
cuda_error cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status)
{
	RT_COUNT(cudaGetDriverEntryPoint);
	return cudaGetDriverEntryPointByVersion(name, function, RUNTIME_VERSION, flags, status);
}
#endif

cuda_error cudaProfilerStart(void)
{
	RT_COUNT(cudaProfilerStart);
	return rt_result(cuProfilerStart());
}

cuda_error cudaProfilerStop(void)
{
	RT_COUNT(cudaProfilerStop);
	return rt_result(cuProfilerStop());
}
