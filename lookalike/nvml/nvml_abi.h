/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NVML's binary interface that the look-alike has: results, structures, functions.
 */
#ifndef NVML_ABI_H
#define NVML_ABI_H

#include <stdint.h>

enum {
	NVML_SUCCESS = 0, NVML_UNINITIALIZED = 1, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6,
	NVML_INSUFFICIENT_SIZE = 7, NVML_DRIVER_NOT_LOADED = 9, NVML_VERSION_MISMATCH = 25, NVML_UNKNOWN = 999,
	NVML_FABRIC_NOT_SUPPORTED = 0,
	NVML_UUID_BYTES = 64,
};

typedef void *nvml_device;

/* nvmlPciInfo_t */
struct nvml_pci {
	char legacy_id[16];
	unsigned domain, bus, device, pci_id, subsystem_id;
	char id[32];
};

/* nvmlUtilization_t */
struct nvml_utilization {
	unsigned gpu, memory;
};

/* nvmlMemory_t, nvmlMemory_v2_t */
struct nvml_memory {
	unsigned long long total, unused, used;
};
struct nvml_memory_v2 {
	unsigned version;
	unsigned long long total, reserved, unused, used;
};

/* nvmlProcessInfo_v2_t, nvmlProcessInfo_v1_t */
struct nvml_process {
	unsigned pid;
	unsigned long long bytes;
	unsigned gpu_instance, compute_instance;
};
struct nvml_process_v1 {
	unsigned pid;
	unsigned long long bytes;
};

/* nvmlConfComputeSystemState_t: 0, all is off */
struct nvml_confidential {
	unsigned environment, feature, tools;
};

/* nvmlSystemConfComputeSettings_v1_t */
struct nvml_confidential_v1 {
	unsigned version, environment, feature, tools, devices;
};

/* nvmlGpuFabricInfo_v2_t */
struct nvml_fabric {
	unsigned version;          /* in its upper 8 bits; below them the size */
	unsigned char cluster[16];
	int status;
	unsigned clique;
	unsigned char state;
	unsigned health;
};

/* X(name, parameters): all functions that return a result. */
#define LOOKALIKE_NVML_SYMBOLS(X)                                                                           \
	X(nvmlInit, (void))                                                                                     \
	X(nvmlInit_v2, (void))                                                                                  \
	X(nvmlInitWithFlags, (unsigned))                                                                        \
	X(nvmlShutdown, (void))                                                                                 \
	X(nvmlSystemGetDriverVersion, (char *, unsigned))                                                       \
	X(nvmlSystemGetNVMLVersion, (char *, unsigned))                                                         \
	X(nvmlSystemGetCudaDriverVersion, (int *))                                                              \
	X(nvmlSystemGetCudaDriverVersion_v2, (int *))                                                           \
	X(nvmlSystemGetConfComputeState, (struct nvml_confidential *))                                          \
	X(nvmlSystemGetConfComputeSettings, (struct nvml_confidential_v1 *))                                    \
	X(nvmlSystemGetProcessName, (unsigned, char *, unsigned))                                               \
	X(nvmlDeviceGetCount, (unsigned *))                                                                     \
	X(nvmlDeviceGetCount_v2, (unsigned *))                                                                  \
	X(nvmlDeviceGetHandleByIndex, (unsigned, nvml_device *))                                                \
	X(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvml_device *))                                             \
	X(nvmlDeviceGetHandleByPciBusId, (const char *, nvml_device *))                                         \
	X(nvmlDeviceGetHandleByPciBusId_v2, (const char *, nvml_device *))                                      \
	X(nvmlDeviceGetHandleByUUID, (const char *, nvml_device *))                                             \
	X(nvmlDeviceGetIndex, (nvml_device, unsigned *))                                                        \
	X(nvmlDeviceGetMinorNumber, (nvml_device, unsigned *))                                                  \
	X(nvmlDeviceGetName, (nvml_device, char *, unsigned))                                                   \
	X(nvmlDeviceGetUUID, (nvml_device, char *, unsigned))                                                   \
	X(nvmlDeviceGetPciInfo_v3, (nvml_device, struct nvml_pci *))                                            \
	X(nvmlDeviceGetCudaComputeCapability, (nvml_device, int *, int *))                                      \
	X(nvmlDeviceGetNumGpuCores, (nvml_device, unsigned *))                                                  \
	X(nvmlDeviceGetUtilizationRates, (nvml_device, struct nvml_utilization *))                              \
	X(nvmlDeviceGetTemperature, (nvml_device, int, unsigned *))                                             \
	X(nvmlDeviceGetPowerUsage, (nvml_device, unsigned *))                                                   \
	X(nvmlDeviceGetClockInfo, (nvml_device, int, unsigned *))                                               \
	X(nvmlDeviceGetMemoryInfo, (nvml_device, struct nvml_memory *))                                         \
	X(nvmlDeviceGetMemoryInfo_v2, (nvml_device, struct nvml_memory_v2 *))                                   \
	X(nvmlDeviceGetComputeRunningProcesses, (nvml_device, unsigned *, struct nvml_process_v1 *))            \
	X(nvmlDeviceGetComputeRunningProcesses_v2, (nvml_device, unsigned *, struct nvml_process *))            \
	X(nvmlDeviceGetComputeRunningProcesses_v3, (nvml_device, unsigned *, struct nvml_process *))            \
	X(nvmlDeviceGetGraphicsRunningProcesses_v3, (nvml_device, unsigned *, struct nvml_process *))           \
	X(nvmlDeviceGetGpuFabricInfoV, (nvml_device, struct nvml_fabric *))                                     \
	X(nvmlDeviceGetNvLinkState, (nvml_device, unsigned, int *))                                             \
	X(nvmlDeviceGetNvLinkRemoteDeviceType, (nvml_device, unsigned, int *))                                  \
	X(nvmlDeviceGetNvLinkRemotePciInfo_v2, (nvml_device, unsigned, struct nvml_pci *))                      \
	X(nvmlDeviceGetP2PStatus, (nvml_device, nvml_device, int, int *))                                       \
	X(nvmlDeviceGetTopologyCommonAncestor, (nvml_device, nvml_device, int *))

#define NVML_PROTOTYPE(name, parameters) __attribute__((visibility("default"))) int name parameters;
LOOKALIKE_NVML_SYMBOLS(NVML_PROTOTYPE)
#undef NVML_PROTOTYPE
__attribute__((visibility("default"))) const char *nvmlErrorString(int result);

#endif
