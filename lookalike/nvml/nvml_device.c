/* SPDX-License-Identifier: Apache-2.0
 *
 * A libnvidia-ml.so.1 over the look-alike driver: queries about devices, their memory and processes. It sees all
 * devices, whatever CUDA_VISIBLE_DEVICES says, and does not initialize CUDA. A device handle is the number plus one.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lookalike/driver/driver_symbols.h"
#include "lookalike/lookalike.h"
#include "nvml_abi.h"

enum { MOST_PROCESSES = 64 };

/* The library is open until it has been shut down as often as it was started. */
static unsigned started;

static int begin(void)
{
	if (trz_lookalike_open() == 0)
		return NVML_DRIVER_NOT_LOADED;
	__atomic_fetch_add(&started, 1, __ATOMIC_RELAXED);
	return NVML_SUCCESS;
}

static int device_of(nvml_device handle)
{
	return (int)(uintptr_t)handle - 1;
}

static bool is_device(nvml_device handle)
{
	int device = device_of(handle);
	return device >= 0 && device < trz_lookalike_open();
}

int trz_nvml_device_fault(nvml_device device)
{
	return !started ? NVML_UNINITIALIZED : is_device(device) ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

/* ---- the library ------------------------------------------------------------ */

int nvmlInit_v2(void)
{
	return begin();
}

int nvmlInit(void)
{
	return begin();
}

int nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	return begin();
}

int nvmlShutdown(void)
{
	unsigned before = __atomic_load_n(&started, __ATOMIC_RELAXED);
	while (before && !__atomic_compare_exchange_n(&started, &before, before - 1, true, __ATOMIC_RELAXED,
	                                              __ATOMIC_RELAXED))
		continue;
	return before ? NVML_SUCCESS : NVML_UNINITIALIZED;
}

const char *nvmlErrorString(int result)
{
	switch (result) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_UNINITIALIZED:
		return "Uninitialized";
	case NVML_INVALID_ARGUMENT:
		return "Invalid Argument";
	case NVML_NOT_SUPPORTED:
		return "Not Supported";
	case NVML_NOT_FOUND:
		return "Not Found";
	case NVML_INSUFFICIENT_SIZE:
		return "Insufficient Size";
	case NVML_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	default:
		return "Unknown Error";
	}
}

static int write_text(char *to, unsigned size, const char *text)
{
	return snprintf(to, size, "%s", text) < (int)size ? NVML_SUCCESS : NVML_INSUFFICIENT_SIZE;
}

/* The oldest driver that this version of CUDA runs on: programs parse and compare the numbers. */
int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
	int cuda = 0;
	cuDriverGetVersion(&cuda);
	return write_text(version, size, cuda >= 13000 ? "580.0" : "525.0");
}

int nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
	int cuda = 0;
	cuDriverGetVersion(&cuda);
	return write_text(version, size, cuda >= 13000 ? "13.580.0" : "12.525.0");
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	return cuDriverGetVersion(version) == TRZ_CUDA_SUCCESS ? NVML_SUCCESS : NVML_UNKNOWN;
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
	return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* Confidential computing is off. */
int nvmlSystemGetConfComputeState(struct nvml_confidential *state)
{
	if (!started)
		return NVML_UNINITIALIZED;
	if (!state)
		return NVML_INVALID_ARGUMENT;
	*state = (struct nvml_confidential){0};
	return NVML_SUCCESS;
}

int nvmlSystemGetConfComputeSettings(struct nvml_confidential_v1 *settings)
{
	if (!started)
		return NVML_UNINITIALIZED;
	if (!settings)
		return NVML_INVALID_ARGUMENT;
	if (settings->version != (1u << 24 | sizeof *settings))
		return NVML_VERSION_MISMATCH;
	*settings = (struct nvml_confidential_v1){.version = settings->version};
	return NVML_SUCCESS;
}

/* The name of a process is the first word of its command. */
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	FILE *f = fopen(path, "r");
	if (!f)
		return NVML_NOT_FOUND;
	size_t read = fread(name, 1, size - 1, f);
	name[read] = '\0';
	fclose(f);
	return NVML_SUCCESS;
}

/* ---- handles ------------------------------------------------------------ */

int nvmlDeviceGetCount_v2(unsigned *count)
{
	if (!started)
		return NVML_UNINITIALIZED;
	*count = (unsigned)trz_lookalike_open();
	return NVML_SUCCESS;
}

int nvmlDeviceGetCount(unsigned *count)
{
	return nvmlDeviceGetCount_v2(count);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
	nvml_device handle = (nvml_device)(uintptr_t)(index + 1);
	NVML_NEED_DEVICE(handle);
	*device = handle;
	return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device *device)
{
	unsigned domain, bus;
	if (!started)
		return NVML_UNINITIALIZED;
	if (sscanf(id, "%x:%x:", &domain, &bus) != 2 || bus < 1 || (int)bus > trz_lookalike_open())
		return NVML_NOT_FOUND;
	return nvmlDeviceGetHandleByIndex_v2(bus - 1, device);
}

int nvmlDeviceGetHandleByPciBusId(const char *id, nvml_device *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

static void uuid_text(int device, char text[NVML_UUID_BYTES])
{
	unsigned char b[16];
	trz_lookalike_uuid(device, b);
	snprintf(text, NVML_UUID_BYTES, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
	         b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device)
{
	char text[NVML_UUID_BYTES];
	unsigned count = 0;
	int result = nvmlDeviceGetCount_v2(&count);
	for (unsigned i = 0; i < count && result == NVML_SUCCESS; i++) {
		uuid_text((int)i, text);
		if (strcmp(text, uuid) == 0)
			return nvmlDeviceGetHandleByIndex_v2(i, device);
	}
	return result == NVML_SUCCESS ? NVML_NOT_FOUND : result;
}

/* ---- facts ------------------------------------------------------------ */

int nvmlDeviceGetIndex(nvml_device device, unsigned *index)
{
	NVML_NEED_DEVICE(device);
	*index = (unsigned)device_of(device);
	return NVML_SUCCESS;
}

int nvmlDeviceGetMinorNumber(nvml_device device, unsigned *number)
{
	return nvmlDeviceGetIndex(device, number);
}

int nvmlDeviceGetName(nvml_device device, char *name, unsigned size)
{
	NVML_NEED_DEVICE(device);
	snprintf(name, size, "%s", trz_lookalike_title());
	return NVML_SUCCESS;
}

int nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned size)
{
	char text[NVML_UUID_BYTES];
	NVML_NEED_DEVICE(device);
	uuid_text(device_of(device), text);
	return write_text(uuid, size, text);
}

int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci *pci)
{
	NVML_NEED_DEVICE(device);
	memset(pci, 0, sizeof *pci);
	pci->bus = ((unsigned)device_of(device) + 1) & 0xff;
	snprintf(pci->legacy_id, sizeof pci->legacy_id, "0000:%02X:00.0", pci->bus);
	snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus);
	return NVML_SUCCESS;
}

int nvmlDeviceGetPciInfo_v2(nvml_device device, struct nvml_pci_v2 *pci)
{
	struct nvml_pci newer;
	int result = nvmlDeviceGetPciInfo_v3(device, &newer);
	if (result != NVML_SUCCESS)
		return result;
	*pci = (struct nvml_pci_v2){.bus = newer.bus};
	memcpy(pci->legacy_id, newer.legacy_id, sizeof pci->legacy_id);
	return NVML_SUCCESS;
}

int nvmlDeviceGetPciInfo(nvml_device device, struct nvml_pci_v2 *pci)
{
	return nvmlDeviceGetPciInfo_v2(device, pci);
}

int nvmlDeviceGetCudaComputeCapability(nvml_device device, int *major, int *minor)
{
	NVML_NEED_DEVICE(device);
	*major = trz_lookalike_attribute(TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	*minor = trz_lookalike_attribute(TRZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	return NVML_SUCCESS;
}

int nvmlDeviceGetNumGpuCores(nvml_device device, unsigned *cores)
{
	NVML_NEED_DEVICE(device);
	*cores = (unsigned)trz_lookalike_attribute(TRZ_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) * 128;
	return NVML_SUCCESS;
}

/* Nothing is computed, and nothing grows warm. */
int nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilization *rates)
{
	NVML_NEED_DEVICE(device);
	*rates = (struct nvml_utilization){0, 0};
	return NVML_SUCCESS;
}

int nvmlDeviceGetTemperature(nvml_device device, int sensor, unsigned *celsius)
{
	NVML_NEED_DEVICE(device);
	(void)sensor;
	*celsius = 0;
	return NVML_SUCCESS;
}

int nvmlDeviceGetPowerUsage(nvml_device device, unsigned *milliwatts)
{
	NVML_NEED_DEVICE(device);
	*milliwatts = 0;
	return NVML_SUCCESS;
}

int nvmlDeviceGetClockInfo(nvml_device device, int clock, unsigned *mhz)
{
	enum { MEMORY_CLOCK = 2 };
	NVML_NEED_DEVICE(device);
	*mhz = (unsigned)trz_lookalike_attribute(clock == MEMORY_CLOCK ? TRZ_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE
	                                                               : TRZ_CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000;
	return NVML_SUCCESS;
}

/* ---- memory and processes ------------------------------------------------------------ */

int nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory)
{
	uint64_t total = 0, used = 0;
	NVML_NEED_DEVICE(device);
	trz_lookalike_memory(device_of(device), &total, &used);
	*memory = (struct nvml_memory){total, total - used, used};
	return NVML_SUCCESS;
}

/* The version stays what the caller wrote. */
int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory)
{
	uint64_t total = 0, used = 0;
	NVML_NEED_DEVICE(device);
	trz_lookalike_memory(device_of(device), &total, &used);
	memory->total = total;
	memory->reserved = 0;
	memory->unused = total - used;
	memory->used = used;
	return NVML_SUCCESS;
}

static int list_processes(nvml_device device, unsigned *count, struct nvml_process *processes)
{
	uint64_t pids[MOST_PROCESSES], bytes[MOST_PROCESSES];
	NVML_NEED_DEVICE(device);
	unsigned room = processes ? *count : 0;
	unsigned found = trz_lookalike_processes(device_of(device), pids, bytes, MOST_PROCESSES);
	*count = found;
	if (found > room)
		return NVML_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < found; i++)
		processes[i] = (struct nvml_process){(unsigned)pids[i], bytes[i], UINT32_MAX, UINT32_MAX};
	return NVML_SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count, struct nvml_process *processes)
{
	return list_processes(device, count, processes);
}

int nvmlDeviceGetComputeRunningProcesses_v2(nvml_device device, unsigned *count, struct nvml_process *processes)
{
	return list_processes(device, count, processes);
}

/* This first form has no fields for instances. */
int nvmlDeviceGetComputeRunningProcesses(nvml_device device, unsigned *count, struct nvml_process_v1 *processes)
{
	struct nvml_process found[MOST_PROCESSES];
	unsigned room = processes ? *count : 0, all = MOST_PROCESSES;
	int result = list_processes(device, &all, found);
	*count = all;
	if (result != NVML_SUCCESS || all > room)
		return result != NVML_SUCCESS ? result : all ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
	for (unsigned i = 0; i < all; i++)
		processes[i] = (struct nvml_process_v1){found[i].pid, found[i].bytes};
	return NVML_SUCCESS;
}

/* ---- how devices are joined ------------------------------------------------------------ */

/* The state says that the card is in no fabric, not the result: PyTorch 2.13 would fail itself, before it reserves its
 * first expandable segment. */
int nvmlDeviceGetGpuFabricInfoV(nvml_device device, struct nvml_fabric *info)
{
	NVML_NEED_DEVICE(device);
	if (!info)
		return NVML_INVALID_ARGUMENT;
	if (info->version >> 24 < 2 && info->version != 2)  /* PyTorch gives the version alone, without the size */
		return NVML_VERSION_MISMATCH;
	*info = (struct nvml_fabric){.version = info->version, .state = NVML_FABRIC_NOT_SUPPORTED};
	return NVML_SUCCESS;
}

int nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, int *active)
{
	NVML_NEED_DEVICE(device);
	(void)link;
	*active = 0;
	return NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device device, unsigned link, int *type)
{
	NVML_NEED_DEVICE(device);
	(void)link, (void)type;
	return NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned link, struct nvml_pci *pci)
{
	NVML_NEED_DEVICE(device);
	(void)link, (void)pci;
	return NVML_NOT_SUPPORTED;
}

/* 0 is fine, 5 not supported. */
int nvmlDeviceGetP2PStatus(nvml_device device, nvml_device peer, int index, int *status)
{
	NVML_NEED_DEVICE(device);
	(void)index;
	*status = is_device(peer) && peer != device ? 0 : 5;
	return NVML_SUCCESS;
}

/* 10: the devices are joined by one switch. */
int nvmlDeviceGetTopologyCommonAncestor(nvml_device device, nvml_device peer, int *level)
{
	NVML_NEED_DEVICE(device);
	*level = device == peer ? 0 : 10;
	return NVML_SUCCESS;
}
