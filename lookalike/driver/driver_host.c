/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory that devices know, allocated here or registered. They use it at its own address.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bits.h"

struct host_range {
	uint64_t address, size;
	unsigned flags;
	bool own;
};

/* Sorted by address, disjoint. */
static struct {
	pthread_mutex_t lock;
	struct host_range *range;
	size_t count, room;
} hosts = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The first range that starts above the address. */
static size_t range_above(uint64_t address)
{
	size_t low = 0, high = hosts.count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (hosts.range[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static cuda_result add(struct host_range new)
{
	cuda_result result = TRZ_CUDA_SUCCESS;
	pthread_mutex_lock(&hosts.lock);
	if (hosts.count == hosts.room) {
		size_t room = hosts.room ? hosts.room * 2 : 64;
		struct host_range *grown = realloc(hosts.range, room * sizeof *grown);
		if (!grown) {
			pthread_mutex_unlock(&hosts.lock);
			return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
		}
		hosts.range = grown;
		hosts.room = room;
	}
	size_t at = range_above(new.address);
	bool below = at > 0 && hosts.range[at - 1].address + hosts.range[at - 1].size > new.address;
	bool above = at < hosts.count && hosts.range[at].address < new.address + new.size;
	if (below || above) {
		result = TRZ_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	} else {
		memmove(&hosts.range[at + 1], &hosts.range[at], (hosts.count - at) * sizeof new);
		hosts.range[at] = new;
		hosts.count++;
	}
	pthread_mutex_unlock(&hosts.lock);
	return result;
}

/* Removes the range that starts at exactly this address. */
static bool take_out(const void *address, bool own, struct host_range *out)
{
	pthread_mutex_lock(&hosts.lock);
	size_t at = range_above((uintptr_t)address);
	bool found = at > 0 && hosts.range[at - 1].address == (uintptr_t)address && hosts.range[at - 1].own == own;
	if (found) {
		*out = hosts.range[at - 1];
		memmove(&hosts.range[at - 1], &hosts.range[at], (hosts.count - at) * sizeof *out);
		hosts.count--;
	}
	pthread_mutex_unlock(&hosts.lock);
	return found;
}

bool look_pinned(const void *address, uint64_t *start, uint64_t *size, unsigned *flags)
{
	pthread_mutex_lock(&hosts.lock);
	size_t at = range_above((uintptr_t)address);
	const struct host_range *r = at > 0 ? &hosts.range[at - 1] : NULL;
	bool found = r && (uintptr_t)address - r->address < r->size;
	if (found) {
		*start = r->address;
		*size = r->size;
		*flags = r->flags;
	}
	pthread_mutex_unlock(&hosts.lock);
	return found;
}

cuda_result cuMemHostAlloc(void **address, size_t size, unsigned flags)
{
	LOOK_ENTER(cuMemHostAlloc);
	LOOK_NEED(address && size > 0 && flags < 8, INVALID_VALUE);
	uint64_t bytes = align_up(size, KIB(4));
	LOOK_NEED(bytes >= size, OUT_OF_MEMORY);
	cuda_result result = look_result(sim_capture_check(look.sim, "cuMemHostAlloc"));
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	LOOK_NEED(made != MAP_FAILED, OUT_OF_MEMORY);
	result = add((struct host_range){(uintptr_t)made, bytes, flags, true});
	if (result == TRZ_CUDA_SUCCESS)
		*address = made;
	else
		munmap(made, bytes);
	return result;
}

cuda_result cuMemAllocHost_v2(void **address, size_t size)
{
	return cuMemHostAlloc(address, size, 0);
}

/* Waits for work that may use the memory, as a real driver does. */
cuda_result cuMemFreeHost(void *address)
{
	struct host_range range;
	LOOK_ENTER(cuMemFreeHost);
	LOOK_NEED(take_out(address, true, &range), INVALID_VALUE);
	do
		sim_wake(look.sim);
	while (sim_unfinished(look.sim) > 0 && sim_nudge(look.sim, UINT64_MAX) > 0);
	munmap(address, range.size);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemHostRegister_v2(void *address, size_t size, unsigned flags)
{
	LOOK_ENTER(cuMemHostRegister_v2);
	LOOK_NEED(address && size > 0, INVALID_VALUE);
	cuda_result result = look_result(sim_capture_check(look.sim, "cuMemHostRegister"));
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	return add((struct host_range){(uintptr_t)address, size, flags, false});
}

cuda_result cuMemHostUnregister(void *address)
{
	struct host_range range;
	LOOK_ENTER(cuMemHostUnregister);
	LOOK_NEED(take_out(address, false, &range), HOST_MEMORY_NOT_REGISTERED);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemHostGetDevicePointer_v2(cuda_addr *device, void *address, unsigned flags)
{
	uint64_t start, size;
	unsigned own;
	LOOK_ENTER(cuMemHostGetDevicePointer_v2);
	LOOK_NEED(device && flags == 0 && look_pinned(address, &start, &size, &own), INVALID_VALUE);
	*device = (uintptr_t)address;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemHostGetFlags(unsigned *flags, void *address)
{
	uint64_t start, size;
	LOOK_ENTER(cuMemHostGetFlags);
	LOOK_NEED(look_pinned(address, &start, &size, flags), INVALID_VALUE);
	*flags |= TRZ_CU_MEMHOSTREGISTER_DEVICEMAP;
	return TRZ_CUDA_SUCCESS;
}
