/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: primary ones, each thread's stack of contexts, limits, peers.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdlib.h>

#include "bits.h"

enum { STACK_DEPTH = 256, LIMITS = 7 };  /* the limits from 7 on are of contexts for graphics */

/* ---- what is known of a context ------------------------------------------------------------ */

/* A context's flags and limits; kernels ignore both. The simulator never uses a context's value again. */
struct facts {
	struct facts *next;
	trz_context context;
	unsigned flags;
	size_t limit[LIMITS];
	uint64_t stack_bytes;        /* device memory for stacks, beyond what every context has */
};
static struct {
	pthread_mutex_t lock;
	struct facts *first;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock; NULL: no host memory. */
static struct facts *facts_of(trz_context context)
{
	struct facts *f = known.first;
	while (f && f->context != context)
		f = f->next;
	if (f || !(f = calloc(1, sizeof *f)))
		return f;
	*f = (struct facts){
		.next = known.first, .context = context,
		.limit = {
			[TRZ_CU_LIMIT_STACK_SIZE] = KIB(1), [TRZ_CU_LIMIT_PRINTF_FIFO_SIZE] = MIB(1),
			[TRZ_CU_LIMIT_MALLOC_HEAP_SIZE] = MIB(8), [TRZ_CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
			[TRZ_CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
		},
	};
	known.first = f;
	return f;
}

/* `device`: the context's, which has ended. */
static void forget_facts(trz_context context, int device)
{
	struct facts **at;
	pthread_mutex_lock(&known.lock);
	for (at = &known.first; *at && (*at)->context != context;)
		at = &(*at)->next;
	struct facts *f = *at;
	if (f) {
		*at = f->next;
		sim_give(look.sim, device, f->stack_bytes);
	}
	pthread_mutex_unlock(&known.lock);
	free(f);
}

static bool are_flags(unsigned flags)
{
	const unsigned all = 0xff;   /* CU_CTX_FLAGS_MASK */
	unsigned schedule = flags & 7;
	return !(flags & ~all) && (schedule <= 2 || schedule == 4);
}

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
	if (ended) {
		look_pools_end_context(ended);
		forget_facts(ended, device);
	}
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
	LOOK_NEED(are_flags(flags), INVALID_VALUE);
	pthread_mutex_lock(&primary.lock);
	primary.flags[device] = flags;
	pthread_mutex_unlock(&primary.lock);
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

/* The device whose primary context it is; -1: none. */
static int primary_of(trz_context context)
{
	int found = -1;
	pthread_mutex_lock(&primary.lock);
	for (int i = 0; i < look.devices; i++)
		if (primary.retains[i] > 0 && primary.context[i] == context)
			found = i;
	pthread_mutex_unlock(&primary.lock);
	return found;
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

/* Whether it is a context that lives. */
static bool is_context(const void *context)
{
	return look_green_of(context) || sim_context_device(look.sim, (trz_context)context) >= 0;
}

/* Replaces the top of the thread's stack; NULL pops it. */
cuda_result cuCtxSetCurrent(void *context)
{
	LOOK_ENTER(cuCtxSetCurrent);
	LOOK_NEED(!context || is_context(context), INVALID_CONTEXT);
	set_current(context || !stack.depth ? context : stack.below[--stack.depth]);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxPushCurrent_v2(void *context)
{
	LOOK_ENTER(cuCtxPushCurrent_v2);
	LOOK_NEED(context && is_context(context) && stack.depth < STACK_DEPTH, INVALID_CONTEXT);
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
	LOOK_NEED(context && are_flags(flags), INVALID_VALUE);
	LOOK_NEED(stack.depth < STACK_DEPTH, INVALID_CONTEXT);
	cuda_result result = look_result(sim_context_create(look.sim, device, &made));
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	*context = made;
	result = cuCtxPushCurrent_v2(made);
	return result == TRZ_CUDA_SUCCESS ? cuCtxSetFlags(flags) : result;
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
	int device = sim_context_device(look.sim, context);
	if (context == look_context())
		cuCtxPopCurrent_v2(&popped);
	cuda_result result = look_result(sim_context_destroy(look.sim, context));
	if (result == TRZ_CUDA_SUCCESS) {
		look_pools_end_context(context);
		forget_facts(context, device);
	}
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

/* A primary context's flags are those that its device has been given. */
cuda_result cuCtxGetFlags(unsigned *flags)
{
	LOOK_ENTER(cuCtxGetFlags);
	LOOK_NEED(flags, INVALID_VALUE);
	trz_context context = look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	int device = primary_of(context);
	if (device >= 0) {
		*flags = primary.flags[device];
		return TRZ_CUDA_SUCCESS;
	}
	pthread_mutex_lock(&known.lock);
	const struct facts *f = facts_of(context);
	*flags = f ? f->flags : 0;
	pthread_mutex_unlock(&known.lock);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxSetFlags(unsigned flags)
{
	LOOK_ENTER(cuCtxSetFlags);
	trz_context context = look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(are_flags(flags), INVALID_VALUE);
	int device = primary_of(context);
	if (device >= 0)
		return cuDevicePrimaryCtxSetFlags_v2(device, flags);
	pthread_mutex_lock(&known.lock);
	struct facts *f = facts_of(context);
	if (f)
		f->flags = flags;
	pthread_mutex_unlock(&known.lock);
	LOOK_NEED(f, OUT_OF_MEMORY);
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

/* Kernels of newer devices do not wait for those that they launch. */
static bool is_limit(int limit)
{
	bool depth = limit == TRZ_CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH;
	return limit >= 0 && limit < LIMITS && (!depth || look.profile->compute_major < 9);
}

cuda_result cuCtxGetLimit(size_t *value, int limit)
{
	LOOK_ENTER(cuCtxGetLimit);
	LOOK_NEED(value, INVALID_VALUE);
	LOOK_NEED(is_limit(limit), UNSUPPORTED_LIMIT);
	trz_context context = look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	pthread_mutex_lock(&known.lock);
	const struct facts *f = facts_of(context);
	if (f)
		*value = f->limit[limit];
	pthread_mutex_unlock(&known.lock);
	LOOK_NEED(f, OUT_OF_MEMORY);
	return TRZ_CUDA_SUCCESS;
}

/* With the lock. The driver reserves a stack for each thread that the device can run at a time; what every context
 * takes of its device includes those of 1 KiB. */
static cuda_result resize_stacks(struct facts *f, int device, size_t value)
{
	const struct sim_profile *p = look.profile;
	uint64_t bytes = 0, threads = (uint64_t)p->sms * p->threads;
	LOOK_NEED(!__builtin_mul_overflow(value > KIB(1) ? value - KIB(1) : 0, threads, &bytes), OUT_OF_MEMORY);
	if (bytes > f->stack_bytes) {
		cuda_result result = look_result(sim_take(look.sim, device, bytes - f->stack_bytes));
		if (result != TRZ_CUDA_SUCCESS)
			return result;
	} else {
		sim_give(look.sim, device, f->stack_bytes - bytes);
	}
	f->stack_bytes = bytes;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxSetLimit(int limit, size_t value)
{
	LOOK_ENTER(cuCtxSetLimit);
	LOOK_NEED(is_limit(limit), UNSUPPORTED_LIMIT);
	trz_context context = look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	int device = sim_context_device(look.sim, context);
	pthread_mutex_lock(&known.lock);
	struct facts *f = facts_of(context);
	cuda_result result = f ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	if (f && limit == TRZ_CU_LIMIT_STACK_SIZE)
		result = resize_stacks(f, device, value);
	if (result == TRZ_CUDA_SUCCESS)
		f->limit[limit] = value;
	pthread_mutex_unlock(&known.lock);
	return result;
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
