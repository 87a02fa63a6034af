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

/* nvmlPciInfo_v2_t, of both older forms of nvmlDeviceGetPciInfo: without the longer text. */
struct nvml_pci_v2 {
	char legacy_id[16];
	unsigned domain, bus, device, pci_id, subsystem_id, reserved[4];
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

/* nvmlTemperature_v1_t */
struct nvml_temperature {
	unsigned version;
	int sensor, celsius;
};

/* nvmlFieldValue_t */
struct nvml_field {
	unsigned id, scope;
	long long time, latency;
	int type, result;
	unsigned long long value;
};

/* X(name, parameters): all functions that return a result, but for those below. */
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
	X(nvmlDeviceGetPciInfo, (nvml_device, struct nvml_pci_v2 *))                                            \
	X(nvmlDeviceGetPciInfo_v2, (nvml_device, struct nvml_pci_v2 *))                                         \
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
	X(nvmlDeviceGetTopologyCommonAncestor, (nvml_device, nvml_device, int *))                               \
	X(nvmlDeviceGetGraphicsRunningProcesses, (nvml_device, unsigned *, struct nvml_process_v1 *))           \
	X(nvmlDeviceGetGraphicsRunningProcesses_v2, (nvml_device, unsigned *, struct nvml_process *))           \
	X(nvmlDeviceGetMPSComputeRunningProcesses, (nvml_device, unsigned *, struct nvml_process_v1 *))         \
	X(nvmlDeviceGetMPSComputeRunningProcesses_v2, (nvml_device, unsigned *, struct nvml_process *))         \
	X(nvmlDeviceGetMPSComputeRunningProcesses_v3, (nvml_device, unsigned *, struct nvml_process *))         \
	X(nvmlDeviceGetProcessUtilization, (nvml_device, void *, unsigned *, unsigned long long))               \
	X(nvmlDeviceGetArchitecture, (nvml_device, unsigned *))                                                 \
	X(nvmlDeviceGetBrand, (nvml_device, int *))                                                             \
	X(nvmlDeviceGetMemoryBusWidth, (nvml_device, unsigned *))                                               \
	X(nvmlDeviceGetTemperatureV, (nvml_device, struct nvml_temperature *))                                  \
	X(nvmlDeviceGetMaxClockInfo, (nvml_device, int, unsigned *))                                            \
	X(nvmlDeviceGetApplicationsClock, (nvml_device, int, unsigned *))                                       \
	X(nvmlDeviceGetDefaultApplicationsClock, (nvml_device, int, unsigned *))                                \
	X(nvmlDeviceGetPcieThroughput, (nvml_device, int, unsigned *))                                          \
	X(nvmlDeviceGetTotalEccErrors, (nvml_device, int, int, unsigned long long *))                           \
	X(nvmlDeviceGetMemoryErrorCounter, (nvml_device, int, int, int, unsigned long long *))                  \
	X(nvmlDeviceGetRemappedRows, (nvml_device, unsigned *, unsigned *, unsigned *, unsigned *))             \
	X(nvmlDeviceGetFieldValues, (nvml_device, int, struct nvml_field *))                                    \
	X(nvmlDeviceGetCpuAffinity, (nvml_device, unsigned, unsigned long *))                                   \
	X(nvmlDeviceGetCpuAffinityWithinScope, (nvml_device, unsigned, unsigned long *, unsigned))              \
	X(nvmlDeviceGetMemoryAffinity, (nvml_device, unsigned, unsigned long *, unsigned))                      \
	X(nvmlDeviceSetCpuAffinity, (nvml_device))                                                              \
	X(nvmlDeviceClearCpuAffinity, (nvml_device))                                                            \
	X(nvmlUnitGetCount, (unsigned *))

/* X(name, type, value): what is the same on every device. */
#define LOOKALIKE_NVML_STATES(X)                                    \
	X(nvmlDeviceGetComputeMode, int, 0)             /* default */   \
	X(nvmlDeviceGetPersistenceMode, int, 1)                         \
	X(nvmlDeviceGetDisplayMode, int, 0)                             \
	X(nvmlDeviceGetDisplayActive, int, 0)                           \
	X(nvmlDeviceGetPerformanceState, int, 0)        /* P0 */        \
	X(nvmlDeviceGetPowerState, int, 0)                              \
	X(nvmlDeviceGetPowerManagementMode, int, 0)                     \
	X(nvmlDeviceGetVirtualizationMode, int, 0)                      \
	X(nvmlDeviceGetAccountingMode, int, 0)                          \
	X(nvmlDeviceGetBusType, unsigned, 2)            /* PCI Express */ \
	X(nvmlDeviceGetMultiGpuBoard, unsigned, 0)                      \
	X(nvmlDeviceGetNumFans, unsigned, 0)                            \
	X(nvmlDeviceGetPcieReplayCounter, unsigned, 0)                  \
	X(nvmlDeviceIsMigDeviceHandle, unsigned, 0)                     \
	X(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, 0)   \
	X(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 1)  /* idle */ \
	X(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 1)

/* X(name, first, second): the same, of two numbers. */
#define LOOKALIKE_NVML_PAIRS(X)                                                     \
	X(nvmlDeviceGetMigMode, 0, 0)                          /* now, pending */       \
	X(nvmlDeviceGetEccMode, 1, 1)                                                   \
	X(nvmlDeviceGetEncoderUtilization, 0, 1000000)         /* percent, of so many us */ \
	X(nvmlDeviceGetDecoderUtilization, 0, 1000000)                                  \
	X(nvmlDeviceGetJpgUtilization, 0, 1000000)                                      \
	X(nvmlDeviceGetOfaUtilization, 0, 1000000)

/* X(name): what the profile does not tell, or no such device has. The driver answers so for devices without it. */
#define LOOKALIKE_NVML_UNSUPPORTED(X)                                                                    \
	X(nvmlDeviceGetAccountingBufferSize) X(nvmlDeviceGetAccountingPids) X(nvmlDeviceGetAccountingStats)  \
	X(nvmlDeviceGetAttributes) X(nvmlDeviceGetAttributes_v2) X(nvmlDeviceGetAutoBoostedClocksEnabled)    \
	X(nvmlDeviceGetBAR1MemoryInfo) X(nvmlDeviceGetBoardId) X(nvmlDeviceGetBoardPartNumber)               \
	X(nvmlDeviceGetBridgeChipInfo) X(nvmlDeviceGetComputeInstanceId)                                     \
	X(nvmlDeviceGetCurrPcieLinkGeneration) X(nvmlDeviceGetCurrPcieLinkWidth)                             \
	X(nvmlDeviceGetDetailedEccErrors) X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)                    \
	X(nvmlDeviceGetDriverModel) X(nvmlDeviceGetDriverModel_v2) X(nvmlDeviceGetEnforcedPowerLimit)        \
	X(nvmlDeviceGetFanSpeed) X(nvmlDeviceGetFanSpeed_v2) X(nvmlDeviceGetGpuInstanceId)                   \
	X(nvmlDeviceGetGpuOperationMode) X(nvmlDeviceGetInforomImageVersion) X(nvmlDeviceGetInforomVersion)  \
	X(nvmlDeviceGetMaxMigDeviceCount) X(nvmlDeviceGetMaxPcieLinkGeneration)                              \
	X(nvmlDeviceGetMaxPcieLinkWidth) X(nvmlDeviceGetMigDeviceHandleByIndex) X(nvmlDeviceGetModuleId)     \
	X(nvmlDeviceGetNumaNodeId) X(nvmlDeviceGetNvLinkCapability) X(nvmlDeviceGetNvLinkErrorCounter)       \
	X(nvmlDeviceGetNvLinkRemotePciInfo) X(nvmlDeviceGetNvLinkUtilizationCounter)                         \
	X(nvmlDeviceGetNvLinkVersion) X(nvmlDeviceGetPowerManagementDefaultLimit)                            \
	X(nvmlDeviceGetPowerManagementLimit) X(nvmlDeviceGetPowerManagementLimitConstraints)                 \
	X(nvmlDeviceGetRetiredPages) X(nvmlDeviceGetRetiredPages_v2)                                         \
	X(nvmlDeviceGetRetiredPagesPendingStatus) X(nvmlDeviceGetSamples) X(nvmlDeviceGetSerial)             \
	X(nvmlDeviceGetSupportedClocksEventReasons) X(nvmlDeviceGetSupportedClocksThrottleReasons)           \
	X(nvmlDeviceGetSupportedGraphicsClocks) X(nvmlDeviceGetSupportedMemoryClocks)                        \
	X(nvmlDeviceGetTemperatureThreshold) X(nvmlDeviceGetThermalSettings) X(nvmlDeviceGetVbiosVersion)    \
	X(nvmlDeviceGetViolationStatus)

#define NVML_PROTOTYPE(name, parameters) __attribute__((visibility("default"))) int name parameters;
LOOKALIKE_NVML_SYMBOLS(NVML_PROTOTYPE)
#undef NVML_PROTOTYPE
#define NVML_STATE_PROTOTYPE(name, type, value) \
	__attribute__((visibility("default"))) int name(nvml_device, type *);
LOOKALIKE_NVML_STATES(NVML_STATE_PROTOTYPE)
#undef NVML_STATE_PROTOTYPE
#define NVML_PAIR_PROTOTYPE(name, first, second) \
	__attribute__((visibility("default"))) int name(nvml_device, unsigned *, unsigned *);
LOOKALIKE_NVML_PAIRS(NVML_PAIR_PROTOTYPE)
#undef NVML_PAIR_PROTOTYPE
#define NVML_UNSUPPORTED_PROTOTYPE(name) __attribute__((visibility("default"))) int name(nvml_device);
LOOKALIKE_NVML_UNSUPPORTED(NVML_UNSUPPORTED_PROTOTYPE)
#undef NVML_UNSUPPORTED_PROTOTYPE
__attribute__((visibility("default"))) const char *nvmlErrorString(int result);

/* NVML_SUCCESS, or why a function that is about this device fails. */
int trz_nvml_device_fault(nvml_device device);

/* Begins every function that is about a device. */
#define NVML_NEED_DEVICE(handle)                        \
	do {                                                \
		int fault_ = trz_nvml_device_fault(handle);     \
		if (fault_ != NVML_SUCCESS)                     \
			return fault_;                              \
	} while (0)

#endif
