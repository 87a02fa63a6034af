/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: primary ones, each thread's stack of contexts, limits, peers.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdatomic.h>

#include "bits.h"

enum { STACK_DEPTH = 256, LIMITS = 16 };

/* ---- primary contexts ------------------------------------------------------------ */

/* By device: how often its primary context is retained in this process, and the context while that is above 0. */
static struct {
	pthread_mutex_t lock;
	int retains[LOOK_DEVICES];
	unsigned flags[LOOK_DEVICES];
	trz_context context[LOOK_DEVICES];
} primary = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_device(cuda_device device)
{
	return device >= 0 && device < look.devices;
}

cuda_result cuDevicePrimaryCtxRetain(void **context, cuda_device device)
{
	LOOK_ENTER(cuDevicePrimaryCtxRetain);
	LOOK_NEED(context, INVALID_VALUE);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	pthread_mutex_lock(&primary.lock);
	cuda_result result = look_result(sim_context_primary(look.sim, device, &primary.context[device]));
	if (result == TRZ_CUDA_SUCCESS) {
		primary.retains[device]++;
		*context = primary.context[device];
	}
	pthread_mutex_unlock(&primary.lock);
	look_answered("cuDevicePrimaryCtxRetain", look.overhead_bytes, device, result);
	return result;
}

static cuda_result release(cuda_device device, int times)
{
	cuda_result result = TRZ_CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&primary.lock);
	bool retained = primary.retains[device] > 0;
	for (; times > 0 && primary.retains[device] > 0; times--) {
		result = LOOK_SLOT(context_release, device, primary.context[device]);
		primary.retains[device]--;
	}
	trz_context ended = retained && primary.retains[device] == 0 ? primary.context[device] : NULL;
	pthread_mutex_unlock(&primary.lock);
	if (ended)
		look_pools_end_context(ended);
	return result;
}

cuda_result cuDevicePrimaryCtxRelease_v2(cuda_device device)
{
	LOOK_ENTER(cuDevicePrimaryCtxRelease_v2);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	return release(device, 1);
}

cuda_result cuDevicePrimaryCtxReset_v2(cuda_device device)
{
	LOOK_ENTER(cuDevicePrimaryCtxReset_v2);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	release(device, INT32_MAX);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDevicePrimaryCtxSetFlags_v2(cuda_device device, unsigned flags)
{
	LOOK_ENTER(cuDevicePrimaryCtxSetFlags_v2);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	primary.flags[device] = flags;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDevicePrimaryCtxGetState(cuda_device device, unsigned *flags, int *active)
{
	LOOK_ENTER(cuDevicePrimaryCtxGetState);
	LOOK_NEED(flags && active, INVALID_VALUE);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	pthread_mutex_lock(&primary.lock);
	*flags = primary.flags[device];
	*active = primary.retains[device] > 0;
	pthread_mutex_unlock(&primary.lock);
	return TRZ_CUDA_SUCCESS;
}

/* ---- each thread's contexts ------------------------------------------------------------ */

/* The contexts below the current one; the simulator keeps the current one. NULL may be among them. */
static _Thread_local struct {
	trz_context below[STACK_DEPTH];
	int depth;
} stack;

trz_context look_context(void)
{
	return look.sim ? sim_context_current(look.sim) : NULL;
}

trz_context look_stream_context(void *stream)
{
	trz_context context = (uintptr_t)stream > 2 ? sim_stream_context(look.sim, stream) : NULL;
	return context ? context : look_context();
}

trz_context look_memory_context(void *stream, uint64_t address)
{
	trz_context context = (uintptr_t)stream > 2 ? sim_stream_context(look.sim, stream) : NULL;
	struct sim_place place;
	if (!context && sim_place_at(look.sim, address, &place)) {
		pthread_mutex_lock(&primary.lock);
		context = primary.retains[place.device] > 0 ? primary.context[place.device] : NULL;
		pthread_mutex_unlock(&primary.lock);
	}
	return context ? context : look_context();
}

trz_context look_event_context(void *event)
{
	trz_context context = sim_event_context(look.sim, event);
	return context ? context : look_context();
}

/* ---- the current context ------------------------------------------------------------ */

static _Thread_local struct look_green *current_green;

void *look_green(void)
{
	struct look_green *g = current_green;
	return g && g->primary && g->primary == look_context() ? g : NULL;
}

static trz_context current(void)
{
	void *green = look_green();
	return green ? green : look_context();
}

static void set_current(trz_context context)
{
	current_green = look_green_of(context);
	sim_context_set_current(look.sim, current_green ? current_green->primary : context);
}

trz_context look_bind(void)
{
	void *context = look_context();
	if (context)
		return context;
	pthread_mutex_lock(&primary.lock);
	context = primary.retains[0] > 0 ? primary.context[0] : NULL;
	pthread_mutex_unlock(&primary.lock);
	if (!context && cuDevicePrimaryCtxRetain(&context, 0) != TRZ_CUDA_SUCCESS)
		return NULL;
	set_current(context);
	return context;
}

cuda_result cuCtxGetCurrent(void **context)
{
	LOOK_ENTER(cuCtxGetCurrent);
	LOOK_NEED(context, INVALID_VALUE);
	*context = current();
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxSetCurrent(void *context)
{
	LOOK_ENTER(cuCtxSetCurrent);
	set_current(context);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxPushCurrent_v2(void *context)
{
	LOOK_ENTER(cuCtxPushCurrent_v2);
	LOOK_NEED(context && stack.depth < STACK_DEPTH, INVALID_CONTEXT);
	stack.below[stack.depth++] = current();
	set_current(context);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxPopCurrent_v2(void **context)
{
	LOOK_ENTER(cuCtxPopCurrent_v2);
	trz_context top = current();
	LOOK_NEED(top, INVALID_CONTEXT);
	set_current(stack.depth ? stack.below[--stack.depth] : NULL);
	if (context)
		*context = top;
	return TRZ_CUDA_SUCCESS;
}

/* `asked`: NULL means the current context. */
cuda_result cuCtxGetDevice_v2(cuda_device *device, void *asked)
{
	LOOK_ENTER(cuCtxGetDevice_v2);
	LOOK_NEED(device, INVALID_VALUE);
	const struct look_green *green = look_green_of(asked);
	trz_context context = green ? green->primary : asked ? asked : look_context();
	int found = context ? sim_context_device(look.sim, context) : -1;
	LOOK_NEED(found >= 0, INVALID_CONTEXT);
	*device = found;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxGetDevice(cuda_device *device)
{
	return cuCtxGetDevice_v2(device, NULL);
}

cuda_result cuCtxCreate_v2(void **context, unsigned flags, cuda_device device)
{
	trz_context made;
	LOOK_ENTER(cuCtxCreate_v2);
	LOOK_NEED(context, INVALID_VALUE);
	LOOK_NEED(stack.depth < STACK_DEPTH, INVALID_CONTEXT);
	(void)flags;
	cuda_result result = look_result(sim_context_create(look.sim, device, &made));
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	*context = made;
	return cuCtxPushCurrent_v2(made);
}

cuda_result cuCtxCreate_v3(void **context, void *affinity, int count, unsigned flags, cuda_device device)
{
	LOOK_NEED(!affinity && count == 0, NOT_SUPPORTED);
	return cuCtxCreate_v2(context, flags, device);
}

/* Refuses contexts with a share of a device, and those for graphics. */
cuda_result cuCtxCreate_v4(void **context, const struct cuda_context_params *params, unsigned flags,
                           cuda_device device)
{
	LOOK_NEED(!params || (!params->affinity && params->affinity_count == 0 && !params->graphics), NOT_SUPPORTED);
	return cuCtxCreate_v2(context, flags, device);
}

cuda_result cuCtxDestroy_v2(void *context)
{
	void *popped;
	LOOK_ENTER(cuCtxDestroy_v2);
	LOOK_NEED(context, INVALID_VALUE);
	if (context == look_context())
		cuCtxPopCurrent_v2(&popped);
	cuda_result result = look_result(sim_context_destroy(look.sim, context));
	if (result == TRZ_CUDA_SUCCESS)
		look_pools_end_context(context);
	return result;
}

cuda_result cuCtxSynchronize_v2(void *context)
{
	cuda_device device;
	LOOK_ENTER(cuCtxSynchronize_v2);
	cuda_result result = cuCtxGetDevice_v2(&device, context);
	if (result == TRZ_CUDA_SUCCESS)
		result = look_result(sim_device_sync(look.sim, device));
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	look_note(SIM_RECORDED_DEVICE_SYNC, context ? context : look_context(), NULL, 0);
	look_pools_trim(device, false);
	return result;
}

cuda_result cuCtxSynchronize(void)
{
	return cuCtxSynchronize_v2(NULL);
}

/* ---- what contexts say ------------------------------------------------------------ */

/* Flags that were set, newest first; they stay, since the simulator never uses a context's value again. */
struct context_flags {
	struct context_flags *next;
	trz_context context;
	unsigned flags;
};
static _Atomic(struct context_flags *) all_flags;

cuda_result cuCtxGetFlags(unsigned *flags)
{
	LOOK_ENTER(cuCtxGetFlags);
	LOOK_NEED(flags, INVALID_VALUE);
	LOOK_NEED(look_context(), INVALID_CONTEXT);
	const struct context_flags *f = all_flags;
	while (f && f->context != look_context())
		f = f->next;
	*flags = f ? f->flags : 0;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxSetFlags(unsigned flags)
{
	LOOK_ENTER(cuCtxSetFlags);
	LOOK_NEED(look_context(), INVALID_CONTEXT);
	struct context_flags *f = malloc(sizeof *f);
	LOOK_NEED(f, OUT_OF_MEMORY);
	*f = (struct context_flags){all_flags, look_context(), flags};
	while (!atomic_compare_exchange_weak(&all_flags, &f->next, f))
		continue;
	return TRZ_CUDA_SUCCESS;
}

/* The simulator never uses a context's value again. */
cuda_result cuCtxGetId(void *context, unsigned long long *id)
{
	LOOK_ENTER(cuCtxGetId);
	LOOK_NEED(id, INVALID_VALUE);
	*id = (uintptr_t)(context ? context : look_context());
	return *id ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_INVALID_CONTEXT;
}

cuda_result cuCtxGetApiVersion(void *context, unsigned *version)
{
	LOOK_ENTER(cuCtxGetApiVersion);
	LOOK_NEED(version, INVALID_VALUE);
	(void)context;
	*version = 3020;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	LOOK_ENTER(cuCtxGetStreamPriorityRange);
	if (least)
		*least = LOOK_LEAST_PRIORITY;
	if (greatest)
		*greatest = LOOK_GREATEST_PRIORITY;
	return TRZ_CUDA_SUCCESS;
}

/* Kept for queries; kernels ignore them. */
static size_t limits[LIMITS] = {
	[TRZ_CU_LIMIT_STACK_SIZE] = KIB(1),
	[TRZ_CU_LIMIT_PRINTF_FIFO_SIZE] = MIB(1),
	[TRZ_CU_LIMIT_MALLOC_HEAP_SIZE] = MIB(8),
};

cuda_result cuCtxGetLimit(size_t *value, int limit)
{
	LOOK_ENTER(cuCtxGetLimit);
	LOOK_NEED(value, INVALID_VALUE);
	LOOK_NEED(limit >= 0 && limit < LIMITS, UNSUPPORTED_LIMIT);
	*value = limits[limit];
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxSetLimit(int limit, size_t value)
{
	LOOK_ENTER(cuCtxSetLimit);
	LOOK_NEED(limit >= 0 && limit < LIMITS, UNSUPPORTED_LIMIT);
	limits[limit] = value;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxGetCacheConfig(int *config)
{
	LOOK_ENTER(cuCtxGetCacheConfig);
	LOOK_NEED(config, INVALID_VALUE);
	*config = 0;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxSetCacheConfig(int config)
{
	LOOK_ENTER(cuCtxSetCacheConfig);
	(void)config;
	return TRZ_CUDA_SUCCESS;
}

/* Which device reaches whose plain memory; memory from cuMemCreate has access rights of its own. */
static bool peers[LOOK_DEVICES][LOOK_DEVICES];

bool look_peer_enabled(int device, int peer)
{
	return __atomic_load_n(&peers[device][peer], __ATOMIC_RELAXED);
}

static cuda_result peer_pair(void *peer, cuda_device *from, cuda_device *to)
{
	*to = sim_context_device(look.sim, peer);
	LOOK_NEED(*to >= 0, INVALID_CONTEXT);
	return cuCtxGetDevice(from);
}

cuda_result cuCtxEnablePeerAccess(void *peer, unsigned flags)
{
	cuda_device from, to;
	bool can = false;
	LOOK_ENTER(cuCtxEnablePeerAccess);
	LOOK_NEED(flags == 0, INVALID_VALUE);
	cuda_result result = peer_pair(peer, &from, &to);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	result = LOOK_SLOT(peer_access, from, to, &can);
	LOOK_NEED(result == TRZ_CUDA_SUCCESS && can && from != to, PEER_ACCESS_UNSUPPORTED);
	LOOK_NEED(!__atomic_exchange_n(&peers[from][to], true, __ATOMIC_RELAXED), PEER_ACCESS_ALREADY_ENABLED);
	result = look_result(sim_plain_peer(look.sim, to, from, true));
	if (result != TRZ_CUDA_SUCCESS)
		__atomic_store_n(&peers[from][to], false, __ATOMIC_RELAXED);
	return result;
}

cuda_result cuCtxDisablePeerAccess(void *peer)
{
	cuda_device from, to;
	LOOK_ENTER(cuCtxDisablePeerAccess);
	cuda_result result = peer_pair(peer, &from, &to);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	LOOK_NEED(__atomic_exchange_n(&peers[from][to], false, __ATOMIC_RELAXED), PEER_ACCESS_NOT_ENABLED);
	if (look_pools_reach(to, from))
		return TRZ_CUDA_SUCCESS;
	return look_result(sim_plain_peer(look.sim, to, from, false));
}
