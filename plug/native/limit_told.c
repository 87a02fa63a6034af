/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the process's heaps of the limit, so that a failure says what refused the request, and who holds the rest.
 */
#include "limit.h"
#include "preload.h"
#include "terrazzo.h"

/* The driver's own figures for a device, in its primary context unless the thread is in one of its contexts. */
static bool ask_device(cuda_device device, size_t *unused, size_t *total)
{
	cuda_device current;
	void *primary = NULL, *popped;
	unsigned flags;
	int active = 0;
	if (native_driver.cuCtxGetDevice(&current) == TRZ_CUDA_SUCCESS && current == device)
		return DRIVER(cuMemGetInfo_v2)(unused, total) == TRZ_CUDA_SUCCESS;
	if (native_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != TRZ_CUDA_SUCCESS || !active ||
	    DRIVER(cuDevicePrimaryCtxRetain)(&primary, device) != TRZ_CUDA_SUCCESS)
		return false;
	bool known = native_driver.cuCtxPushCurrent_v2(primary) == TRZ_CUDA_SUCCESS;
	if (known) {
		known = DRIVER(cuMemGetInfo_v2)(unused, total) == TRZ_CUDA_SUCCESS;
		native_driver.cuCtxPopCurrent_v2(&popped);
	}
	native_driver.cuDevicePrimaryCtxRelease_v2(device);
	return known;
}

static bool tell(void *user, int device, trz_shared_limit *told)
{
	struct limit_process processes[TRZ_LIMIT_PROCESSES];
	uint64_t own, others;
	(void)user;
	told->limit = limit_bytes;
	told->process_count = limit_look(&own, &others, processes, TRZ_LIMIT_PROCESSES);
	told->own = own;
	told->others = others;
	for (unsigned i = 0; i < told->process_count; i++) {
		told->processes[i].process = (uint64_t)processes[i].process;
		told->processes[i].bytes = processes[i].held;
	}
	if (!native_load() || !ask_device(device, &told->device_free, &told->device_total))
		told->device_free = told->device_total = 0;
	return true;
}

void limit_tell_heaps(void)
{
	trz_set_shared_limit(tell, NULL);
}
