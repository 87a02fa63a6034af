/* SPDX-License-Identifier: Apache-2.0
 *
 * What monitoring programs ask of a device beside memory and processes. A device that computes nothing is idle, cold
 * and without errors; of what its profile does not tell it says, as a driver does, that it is not supported.
 */
#include <limits.h>
#include <sched.h>
#include <string.h>

#include "lookalike/driver/driver_symbols.h"
#include "lookalike/lookalike.h"
#include "nvml_abi.h"

#define X(name, type, number)                    \
	int name(nvml_device device, type *value)    \
	{                                            \
		NVML_NEED_DEVICE(device);                \
		*value = number;                         \
		return NVML_SUCCESS;                     \
	}
LOOKALIKE_NVML_STATES(X)
#undef X

#define X(name, one, two)                                                 \
	int name(nvml_device device, unsigned *first, unsigned *second)       \
	{                                                                     \
		NVML_NEED_DEVICE(device);                                         \
		*first = one;                                                     \
		*second = two;                                                    \
		return NVML_SUCCESS;                                              \
	}
LOOKALIKE_NVML_PAIRS(X)
#undef X

/* One form serves them all, since the caller removes arguments from the stack. */
#define X(name)                       \
	int name(nvml_device device)      \
	{                                 \
		NVML_NEED_DEVICE(device);     \
		return NVML_NOT_SUPPORTED;    \
	}
LOOKALIKE_NVML_UNSUPPORTED(X)
#undef X

/* ---- other processes ------------------------------------------------------------ */

static int no_processes(nvml_device device, unsigned *count)
{
	NVML_NEED_DEVICE(device);
	*count = 0;
	return NVML_SUCCESS;
}

#define X(name, process)                                                          \
	int name(nvml_device device, unsigned *count, struct process *processes)      \
	{                                                                             \
		(void)processes;                                                          \
		return no_processes(device, count);                                       \
	}
X(nvmlDeviceGetGraphicsRunningProcesses, nvml_process_v1)
X(nvmlDeviceGetGraphicsRunningProcesses_v2, nvml_process)
X(nvmlDeviceGetGraphicsRunningProcesses_v3, nvml_process)
X(nvmlDeviceGetMPSComputeRunningProcesses, nvml_process_v1)
X(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvml_process)
X(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvml_process)
#undef X

/* There are no samples of processes that have used the device. */
int nvmlDeviceGetProcessUtilization(nvml_device device, void *samples, unsigned *count, unsigned long long since)
{
	NVML_NEED_DEVICE(device);
	(void)samples, (void)since;
	*count = 0;
	return NVML_NOT_FOUND;
}

/* ---- the device ------------------------------------------------------------ */

/* nvmlDeviceArchitecture_t, by compute capability. */
int nvmlDeviceGetArchitecture(nvml_device device, unsigned *architecture)
{
	enum { VOLTA = 5, TURING, AMPERE, ADA, HOPPER, BLACKWELL };
	int major = 0, minor = 0;
	int result = nvmlDeviceGetCudaComputeCapability(device, &major, &minor);
	if (result != NVML_SUCCESS)
		return result;
	if (major == 7)
		*architecture = minor < 5 ? VOLTA : TURING;
	else if (major == 8)
		*architecture = minor < 9 ? AMPERE : ADA;
	else
		*architecture = major == 9 ? HOPPER : BLACKWELL;
	return NVML_SUCCESS;
}

/* nvmlBrandType_t */
int nvmlDeviceGetBrand(nvml_device device, int *brand)
{
	enum { TESLA = 2, GEFORCE = 5, NVIDIA = 14 };
	NVML_NEED_DEVICE(device);
	const char *title = trz_lookalike_title();
	*brand = strstr(title, "GeForce") ? GEFORCE : strstr(title, "Tesla") ? TESLA : NVIDIA;
	return NVML_SUCCESS;
}

int nvmlDeviceGetMemoryBusWidth(nvml_device device, unsigned *bits)
{
	NVML_NEED_DEVICE(device);
	*bits = (unsigned)trz_lookalike_attribute(TRZ_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
	return NVML_SUCCESS;
}

int nvmlDeviceGetTemperatureV(nvml_device device, struct nvml_temperature *temperature)
{
	NVML_NEED_DEVICE(device);
	if (temperature->version != (1u << 24 | sizeof *temperature))
		return NVML_VERSION_MISMATCH;
	temperature->celsius = 0;
	return NVML_SUCCESS;
}

/* Clocks do not change. */
int nvmlDeviceGetMaxClockInfo(nvml_device device, int clock, unsigned *mhz)
{
	return nvmlDeviceGetClockInfo(device, clock, mhz);
}

int nvmlDeviceGetApplicationsClock(nvml_device device, int clock, unsigned *mhz)
{
	return nvmlDeviceGetClockInfo(device, clock, mhz);
}

int nvmlDeviceGetDefaultApplicationsClock(nvml_device device, int clock, unsigned *mhz)
{
	return nvmlDeviceGetClockInfo(device, clock, mhz);
}

int nvmlDeviceGetPcieThroughput(nvml_device device, int direction, unsigned *kib)
{
	NVML_NEED_DEVICE(device);
	(void)direction;
	*kib = 0;
	return NVML_SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(nvml_device device, int kind, int since, unsigned long long *count)
{
	NVML_NEED_DEVICE(device);
	(void)kind, (void)since;
	*count = 0;
	return NVML_SUCCESS;
}

int nvmlDeviceGetMemoryErrorCounter(nvml_device device, int kind, int since, int place, unsigned long long *count)
{
	(void)place;
	return nvmlDeviceGetTotalEccErrors(device, kind, since, count);
}

int nvmlDeviceGetRemappedRows(nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed)
{
	NVML_NEED_DEVICE(device);
	*corrected = *uncorrected = *pending = *failed = 0;
	return NVML_SUCCESS;
}

/* Each field tells its own result. */
int nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field *fields)
{
	NVML_NEED_DEVICE(device);
	if (!fields)
		return NVML_INVALID_ARGUMENT;
	for (int i = 0; i < count; i++)
		fields[i].result = NVML_NOT_SUPPORTED;
	return NVML_SUCCESS;
}

/* ---- the host's side ------------------------------------------------------------ */

/* A device is as near to one processor as to another: those that this process may use. */
int nvmlDeviceGetCpuAffinity(nvml_device device, unsigned words, unsigned long *set)
{
	enum { BITS = sizeof *set * CHAR_BIT };
	cpu_set_t processors;
	NVML_NEED_DEVICE(device);
	memset(set, 0, words * sizeof *set);
	if (sched_getaffinity(0, sizeof processors, &processors) != 0)
		return NVML_UNKNOWN;
	for (unsigned i = 0; i < words * BITS && i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &processors))
			set[i / BITS] |= 1ul << i % BITS;
	return NVML_SUCCESS;
}

int nvmlDeviceGetCpuAffinityWithinScope(nvml_device device, unsigned words, unsigned long *set, unsigned scope)
{
	(void)scope;
	return nvmlDeviceGetCpuAffinity(device, words, set);
}

/* There is one node of memory, 0. */
int nvmlDeviceGetMemoryAffinity(nvml_device device, unsigned words, unsigned long *set, unsigned scope)
{
	NVML_NEED_DEVICE(device);
	(void)scope;
	for (unsigned i = 0; i < words; i++)
		set[i] = i == 0;
	return NVML_SUCCESS;
}

int nvmlDeviceSetCpuAffinity(nvml_device device)
{
	NVML_NEED_DEVICE(device);
	return NVML_SUCCESS;
}

int nvmlDeviceClearCpuAffinity(nvml_device device)
{
	NVML_NEED_DEVICE(device);
	return NVML_SUCCESS;
}

int nvmlUnitGetCount(unsigned *count)
{
	*count = 0;
	return NVML_SUCCESS;
}
