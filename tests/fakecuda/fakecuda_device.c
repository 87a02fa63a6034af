/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices and contexts: what devices say of themselves, primary contexts, each thread's stack of contexts.
 */
#include "fakecuda.h"

#include <pthread.h>
#include <stdio.h>

enum { MOST_DEVICES = 16, STACK_DEPTH = 16 };

/* ---- devices ------------------------------------------------------------ */

cuda_result cuDeviceGetCount(int *count)
{
	return FAKE_SLOT(device_count, count);
}

/* A device is its ordinal. */
cuda_result cuDeviceGet(cuda_device *device, int ordinal)
{
	trz_device_info info;
	cuda_result result = FAKE_SLOT(device_info, ordinal, &info);
	if (result == TRZ_CUDA_SUCCESS)
		*device = ordinal;
	return result;
}

cuda_result cuDeviceGetName(char *name, int size, cuda_device device)
{
	trz_device_info info;
	cuda_result result = FAKE_SLOT(device_info, device, &info);
	if (result == TRZ_CUDA_SUCCESS)
		snprintf(name, (size_t)size, "%s", info.name);
	return result;
}

cuda_result cuDeviceTotalMem_v2(size_t *bytes, cuda_device device)
{
	trz_device_info info;
	cuda_result result = FAKE_SLOT(device_info, device, &info);
	if (result == TRZ_CUDA_SUCCESS)
		*bytes = info.total_bytes;
	return result;
}

cuda_result cuDeviceGetAttribute(int *value, int attribute, cuda_device device)
{
	trz_device_info info;
	cuda_result result = FAKE_SLOT(device_info, device, &info);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	switch (attribute) {
	case TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = info.compute_major;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = info.compute_minor;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		*value = info.vmm;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		*value = info.export_fd;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
		*value = info.rdma_with_vmm;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
		*value = info.export_fabric;
		return TRZ_CUDA_SUCCESS;
	default:
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	}
}

cuda_result cuDeviceCanAccessPeer(int *can, cuda_device device, cuda_device peer)
{
	bool answer = false;
	cuda_result result = FAKE_SLOT(peer_access, device, peer, &answer);
	if (result == TRZ_CUDA_SUCCESS)
		*can = answer;
	return result;
}

/* ---- primary contexts ------------------------------------------------------------ */

/* Per device: how often it is retained here, and the context while that is above 0. */
static struct {
	pthread_mutex_t lock;
	int retains[MOST_DEVICES];
	trz_context context[MOST_DEVICES];
} primary = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_device(cuda_device device)
{
	cuda_device same;
	return device < MOST_DEVICES && cuDeviceGet(&same, device) == TRZ_CUDA_SUCCESS;
}

cuda_result cuDevicePrimaryCtxRetain(void **context, cuda_device device)
{
	if (!is_device(device))
		return TRZ_CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&primary.lock);
	cuda_result result = FAKE_SIM(sim_context_primary, device, &primary.context[device]);
	if (result == TRZ_CUDA_SUCCESS) {
		primary.retains[device]++;
		*context = primary.context[device];
	}
	pthread_mutex_unlock(&primary.lock);
	return result;
}

cuda_result cuDevicePrimaryCtxRelease_v2(cuda_device device)
{
	cuda_result result = TRZ_CUDA_ERROR_INVALID_CONTEXT;
	if (!is_device(device))
		return TRZ_CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&primary.lock);
	if (primary.retains[device] > 0)
		result = FAKE_SLOT(context_release, device, primary.context[device]);
	if (result == TRZ_CUDA_SUCCESS)
		primary.retains[device]--;
	pthread_mutex_unlock(&primary.lock);
	return result;
}

cuda_result cuDevicePrimaryCtxGetState(cuda_device device, unsigned *flags, int *active)
{
	if (!is_device(device))
		return TRZ_CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&primary.lock);
	*flags = 0;
	*active = primary.retains[device] > 0;
	pthread_mutex_unlock(&primary.lock);
	return TRZ_CUDA_SUCCESS;
}

/* ---- each thread's contexts ------------------------------------------------------------ */

/* The contexts below the current one, which the simulator keeps. NULL may be among them. */
static _Thread_local struct {
	trz_context below[STACK_DEPTH];
	int depth;
} stack;

trz_context fake_context(void)
{
	return fake.sim ? sim_context_current(fake.sim) : NULL;
}

cuda_result cuCtxGetCurrent(void **context)
{
	if (!fake.sim)
		return TRZ_CUDA_ERROR_NOT_INITIALIZED;
	*context = fake_context();
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxSetCurrent(void *context)
{
	if (!fake.sim)
		return TRZ_CUDA_ERROR_NOT_INITIALIZED;
	sim_context_set_current(fake.sim, context);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxPushCurrent_v2(void *context)
{
	if (!fake.sim)
		return TRZ_CUDA_ERROR_NOT_INITIALIZED;
	if (!context || stack.depth == STACK_DEPTH)
		return TRZ_CUDA_ERROR_INVALID_CONTEXT;
	stack.below[stack.depth++] = fake_context();
	sim_context_set_current(fake.sim, context);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxPopCurrent_v2(void **context)
{
	trz_context top = fake_context();
	if (!top)
		return TRZ_CUDA_ERROR_INVALID_CONTEXT;
	sim_context_set_current(fake.sim, stack.depth ? stack.below[--stack.depth] : NULL);
	*context = top;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxGetDevice(cuda_device *device)
{
	int devices = 0;
	trz_context context = fake_context(), same;
	if (!context)
		return TRZ_CUDA_ERROR_INVALID_CONTEXT;
	cuda_result result = FAKE_SLOT(device_count, &devices);
	for (int i = 0; i < devices && result == TRZ_CUDA_SUCCESS; i++) {
		if (FAKE_SLOT(context_retain, i, context, &same) != TRZ_CUDA_SUCCESS)
			continue;
		*device = i;
		return FAKE_SLOT(context_release, i, context);
	}
	return TRZ_CUDA_ERROR_INVALID_CONTEXT;
}

cuda_result cuCtxCreate_v2(void **context, unsigned flags, cuda_device device)
{
	trz_context made;
	(void)flags;
	cuda_result result = FAKE_SIM(sim_context_create, device, &made);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	*context = made;
	return cuCtxPushCurrent_v2(made);
}

cuda_result cuCtxDestroy_v2(void *context)
{
	void *popped;
	if (context && context == fake_context())
		cuCtxPopCurrent_v2(&popped);
	return FAKE_SIM(sim_context_destroy, context);
}

cuda_result cuCtxSynchronize(void)
{
	cuda_device device;
	cuda_result result = cuCtxGetDevice(&device);
	return result == TRZ_CUDA_SUCCESS ? FAKE_SIM(sim_device_sync, device) : result;
}
