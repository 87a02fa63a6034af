/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices' answers about themselves, from their profiles.
 */
#include "driver_lookalike.h"

#include <stdio.h>
#include <string.h>

#include "bits.h"

static bool is_device(cuda_device device)
{
	return device >= 0 && device < look.devices;
}

cuda_result cuDeviceGetCount(int *count)
{
	LOOK_ENTER(cuDeviceGetCount);
	LOOK_NEED(count, INVALID_VALUE);
	*count = look.devices;
	return TRZ_CUDA_SUCCESS;
}

/* A device is its ordinal. */
cuda_result cuDeviceGet(cuda_device *device, int ordinal)
{
	LOOK_ENTER(cuDeviceGet);
	LOOK_NEED(device, INVALID_VALUE);
	LOOK_NEED(is_device(ordinal), INVALID_DEVICE);
	*device = ordinal;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceGetName(char *name, int size, cuda_device device)
{
	LOOK_ENTER(cuDeviceGetName);
	LOOK_NEED(name && size > 0, INVALID_VALUE);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	snprintf(name, (size_t)size, "%s", look.profile->title);
	return TRZ_CUDA_SUCCESS;
}

const char *trz_lookalike_title(void)
{
	return look.profile->title;
}

cuda_result cuDeviceGetUuid_v2(struct cuda_uuid *uuid, cuda_device device)
{
	LOOK_ENTER(cuDeviceGetUuid_v2);
	LOOK_NEED(uuid, INVALID_VALUE);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	trz_lookalike_uuid(look.number[device], uuid->bytes);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceGetUuid(struct cuda_uuid *uuid, cuda_device device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

cuda_result cuDeviceTotalMem_v2(size_t *bytes, cuda_device device)
{
	LOOK_ENTER(cuDeviceTotalMem_v2);
	LOOK_NEED(bytes, INVALID_VALUE);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	*bytes = look.capacity_bytes;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceComputeCapability(int *major, int *minor, cuda_device device)
{
	LOOK_ENTER(cuDeviceComputeCapability);
	LOOK_NEED(major && minor, INVALID_VALUE);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	*major = (int)look.profile->compute_major;
	*minor = (int)look.profile->compute_minor;
	return TRZ_CUDA_SUCCESS;
}

/* Attributes that are not plain figures of the profile, and those common to all devices; 0: not one of these. */
static int fixed_attribute(int attribute, bool vmm)
{
	switch (attribute) {
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
		return 1024;
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
		return 64;
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_PITCH:
		return INT32_MAX;
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
		return 65535;
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
		return (int)KIB(48);
	case TRZ_CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
		return 65536;
	case TRZ_CU_DEVICE_ATTRIBUTE_WARP_SIZE:
	case TRZ_CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
		return 32;
	case TRZ_CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
	case TRZ_CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
		return 512;
	case TRZ_CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		return 3;
	case TRZ_CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
		return TRZ_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	case TRZ_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case TRZ_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case TRZ_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
		return vmm;
#define EXTENT(name, value, extent)       \
	case TRZ_CU_DEVICE_ATTRIBUTE_##name: \
		return extent;
	DRIVER_ABI_EXTENTS(EXTENT)
#undef EXTENT
	default:
		return 0;
	}
}

/* Figures of the profile; 0: not one of these. */
static uint64_t profile_attribute(int attribute, int number)
{
	const struct sim_profile *p = look.profile;
	switch (attribute) {
	case TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return p->compute_major;
	case TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		return p->compute_minor;
	case TRZ_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return p->sms;
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		return p->threads;
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
		return p->blocks;
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
		return p->shared_bytes;
	case TRZ_CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
		return p->compute_major >= 8 ? KIB(1) : 0;
	case TRZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		return p->shared_bytes - (p->compute_major >= 8 ? KIB(1) : 0);
	case TRZ_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		return p->l2_bytes;
	case TRZ_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
		return p->bus_bits;
	case TRZ_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
		return p->memory_mhz * 1000;
	case TRZ_CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		return p->clock_mhz * 1000;
	case TRZ_CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return (uint64_t)number + 1;
	case TRZ_CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
	case TRZ_CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
		return p->compute_major >= 9;
	default:
		return 0;
	}
}

/* Whether an attribute is a property that every device has. */
static bool is_common(int attribute)
{
	static const int common[] = {
		TRZ_CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, TRZ_CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
		TRZ_CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, TRZ_CU_DEVICE_ATTRIBUTE_ECC_ENABLED,
		TRZ_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, TRZ_CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED,
		TRZ_CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, TRZ_CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED,
		TRZ_CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, TRZ_CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
		TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED,
		TRZ_CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
		TRZ_CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, TRZ_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
		TRZ_CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, TRZ_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1,
		TRZ_CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, TRZ_CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES,
		TRZ_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, TRZ_CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR,
		TRZ_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, TRZ_CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
	};
	for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
		if (common[i] == attribute)
			return true;
	return false;
}

cuda_result cuDeviceGetAttribute(int *value, int attribute, cuda_device device)
{
	enum { MOST_ATTRIBUTE = 200 };
	trz_device_info info;
	LOOK_ENTER(cuDeviceGetAttribute);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	LOOK_NEED(value && attribute > 0 && attribute < MOST_ATTRIBUTE, INVALID_VALUE);
	cuda_result result = LOOK_SLOT(device_info, device, &info);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	int fixed = fixed_attribute(attribute, info.vmm);
	*value = fixed ? fixed : is_common(attribute) ? 1 : (int)profile_attribute(attribute, look.number[device]);
	return TRZ_CUDA_SUCCESS;
}

int trz_lookalike_attribute(int attribute)
{
	return (int)profile_attribute(attribute, 0);
}

/* Device number i is on bus i + 1. */
cuda_result cuDeviceGetPCIBusId(char *id, int size, cuda_device device)
{
	LOOK_ENTER(cuDeviceGetPCIBusId);
	LOOK_NEED(id && size > 0, INVALID_VALUE);
	LOOK_NEED(is_device(device), INVALID_DEVICE);
	snprintf(id, (size_t)size, "0000:%02X:00.0", (unsigned)look.number[device] + 1);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceGetByPCIBusId(cuda_device *device, const char *id)
{
	unsigned domain, bus;
	LOOK_ENTER(cuDeviceGetByPCIBusId);
	LOOK_NEED(device && id, INVALID_VALUE);
	LOOK_NEED(sscanf(id, "%x:%x:", &domain, &bus) == 2 && is_device(look_device_of((int)bus - 1)), INVALID_DEVICE);
	*device = look_device_of((int)bus - 1);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceCanAccessPeer(int *can, cuda_device device, cuda_device peer)
{
	bool answer = false;
	LOOK_ENTER(cuDeviceCanAccessPeer);
	LOOK_NEED(can, INVALID_VALUE);
	cuda_result result = LOOK_SLOT(peer_access, device, peer, &answer);
	if (result == TRZ_CUDA_SUCCESS)
		*can = answer && device != peer;
	return result;
}

cuda_result cuDeviceGetP2PAttribute(int *value, int attribute, cuda_device device, cuda_device peer)
{
	enum { PERFORMANCE_RANK = 1, ACCESS, ATOMICS, ARRAYS, PARTIAL_ATOMICS };
	int can = false;
	LOOK_ENTER(cuDeviceGetP2PAttribute);
	LOOK_NEED(value && attribute >= PERFORMANCE_RANK && attribute <= PARTIAL_ATOMICS, INVALID_VALUE);
	LOOK_NEED(is_device(device) && is_device(peer) && device != peer, INVALID_DEVICE);
	cuda_result result = cuDeviceCanAccessPeer(&can, device, peer);
	*value = attribute == ACCESS && can;
	return result;
}

int trz_lookalike_machine_fd(void)
{
	return look.machine ? sim_machine_fd(look.machine) : -1;
}

int trz_lookalike_memory(int number, uint64_t *total, uint64_t *used)
{
	int device = look_device_of(number);
	if (!look.machine || device < 0)
		return TRZ_CUDA_ERROR_INVALID_DEVICE;
	*total = look.capacity_bytes;
	*used = sim_device_used(look.machine, device);
	return TRZ_CUDA_SUCCESS;
}

unsigned trz_lookalike_processes(int number, uint64_t *pids, uint64_t *bytes, unsigned room)
{
	enum { MOST = 64 };
	struct sim_process found[MOST];
	if (!look.machine)
		return 0;
	unsigned count = sim_processes(look.machine, look_device_of(number), found, MOST);
	for (unsigned i = 0; i < count && i < room; i++) {
		pids[i] = found[i].pid;
		bytes[i] = found[i].bytes;
	}
	return count;
}
