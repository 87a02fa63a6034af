/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools and their memory for other processes. A pool's handle is the descriptor of an unnamed file that tells the
 * pool's device; exported pointers lead to the memory.
 */
#include "driver_lookalike.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char magic[8] = "trz-pol";

/* What the file of a pool says. */
struct shared_pool {
	char magic[8];
	int device;                  /* its number on the machine */
};

cuda_result cuMemPoolExportToShareableHandle(void *handle, void *pool, int kind, uint64_t flags)
{
	int device;
	LOOK_ENTER(cuMemPoolExportToShareableHandle);
	LOOK_NEED(handle && flags == 0 && kind == TRZ_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, INVALID_VALUE);
	LOOK_NEED(look_pool_shared(pool, &device), INVALID_VALUE);
	struct shared_pool told = {.device = look.number[device]};
	memcpy(told.magic, magic, sizeof magic);
	int fd = memfd_create("terrazzo-pool", MFD_CLOEXEC);
	bool written = fd >= 0 && pwrite(fd, &told, sizeof told, 0) == sizeof told;
	if (!written && fd >= 0)
		close(fd);
	LOOK_NEED(written, OPERATING_SYSTEM);
	memcpy(handle, &fd, sizeof fd);
	return TRZ_CUDA_SUCCESS;
}

/* `handle` itself holds the descriptor, which stays the caller's. */
cuda_result cuMemPoolImportFromShareableHandle(void **pool, void *handle, int kind, uint64_t flags)
{
	struct shared_pool told;
	LOOK_ENTER(cuMemPoolImportFromShareableHandle);
	LOOK_NEED(pool && flags == 0 && kind == TRZ_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, INVALID_VALUE);
	LOOK_NEED(pread((int)(intptr_t)handle, &told, sizeof told, 0) == sizeof told, INVALID_VALUE);
	LOOK_NEED(memcmp(told.magic, magic, sizeof magic) == 0, INVALID_VALUE);
	int device = look_device_of(told.device);
	LOOK_NEED(device >= 0, INVALID_DEVICE);
	return look_pool_import(device, pool);
}

cuda_result cuMemPoolExportPointer(struct cuda_ipc *share, cuda_addr address)
{
	LOOK_ENTER(cuMemPoolExportPointer);
	LOOK_NEED(share && look_pool_exports(address), INVALID_VALUE);
	return look_ipc_export(share, address);
}

cuda_result cuMemPoolImportPointer(cuda_addr *address, void *pool, const struct cuda_ipc *share)
{
	uint32_t access;
	LOOK_ENTER(cuMemPoolImportPointer);
	LOOK_NEED(address && share && look_pool_imported(pool, &access), INVALID_VALUE);
	return look_ipc_open(address, share, access, true);
}
