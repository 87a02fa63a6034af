/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's functions without a communicator, and those that move no data: registration, memory.
 */
#include "nccl.h"

#include <stdlib.h>
#include <string.h>

WEAK int cuMemAlloc_v2(uint64_t *address, size_t size);
WEAK int cuMemFree_v2(uint64_t address);

int ncclGetVersion(int *version)
{
	NCCL_NEED(version);
	*version = STANDIN_MAJOR * 10000 + STANDIN_MINOR * 100 + STANDIN_PATCH;
	return NCCL_SUCCESS;
}

const char *ncclGetErrorString(int status)
{
	static const char *const texts[] = { "no error", "the simulated device refused it", "no memory or no file",
		                                 "internal error", "invalid argument", "invalid usage",
		                                 "ranks disagree, or one is gone", "in progress" };
	return status >= 0 && (size_t)status < sizeof texts / sizeof texts[0] ? texts[status] : "unknown error";
}

/* Registration only makes transfers faster. */
int ncclCommRegister(const void *communicator, void *buffer, size_t size, void **handle)
{
	NCCL_NEED(communicator && handle);
	(void)communicator, (void)size;
	*handle = buffer;
	return NCCL_SUCCESS;
}

int ncclCommDeregister(const void *communicator, void *handle)
{
	NCCL_NEED(communicator);
	(void)communicator, (void)handle;
	return NCCL_SUCCESS;
}

int ncclCommWindowRegister(void *communicator, void *buffer, size_t size, void **window, int flags)
{
	NCCL_NEED(communicator && window);
	(void)communicator, (void)size, (void)flags;
	*window = buffer;
	return NCCL_SUCCESS;
}

int ncclCommWindowDeregister(void *communicator, void *window)
{
	(void)communicator, (void)window;
	return NCCL_SUCCESS;
}

/* Allocates whole granules of the device, as NCCL does. */
int ncclMemAlloc(void **memory, size_t size)
{
	NCCL_NEED(memory);
	const size_t granule = 2 << 20;
	uint64_t address = 0;
	int result = cuMemAlloc_v2 ? cuMemAlloc_v2(&address, (size + granule - 1) / granule * granule) : -1;
	*memory = (void *)(uintptr_t)address;
	return result ? NCCL_UNHANDLED_CUDA_ERROR : NCCL_SUCCESS;
}

int ncclMemFree(void *memory)
{
	return cuMemFree_v2 && cuMemFree_v2((uintptr_t)memory) ? NCCL_UNHANDLED_CUDA_ERROR : NCCL_SUCCESS;
}
