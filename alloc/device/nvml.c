/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking libnvidia-ml.so.1, which is loaded at the first question and stays.
 */
#include "device/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "device/driver_cuda.h"

enum { BUS_ID_BYTES = 32, PROCESSES_MOST = 128 };

/* nvmlProcessInfo_v2_t. `bytes` with all bits set: the library cannot tell. */
struct process {
	unsigned pid;
	unsigned long long bytes;
	unsigned gpu_instance, compute_instance;
};

struct nvml {
	int (*init)(void);
	int (*device)(const char *bus_id, void **device);
	int (*processes)(void *device, unsigned *count, struct process *list);
	int (*bus_id)(char *text, int size, int device);  /* the CUDA driver's: its device numbers are not the library's */
	bool ready;
};

/* What the first thread to finish looking has found. No lock is held while the dynamic linker is asked
 * (docs/lock-order.md). */
static struct nvml nvml;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool tried;

static void find(void *library, const char *name, void *function)
{
	void *symbol = library ? dlsym(library, name) : NULL;
	memcpy(function, &symbol, sizeof symbol);
}

static void load(void)
{
	struct nvml found;
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *library = cuda ? dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
	find(library, "nvmlInit_v2", &found.init);
	find(library, "nvmlDeviceGetHandleByPciBusId_v2", &found.device);
	find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &found.processes);
	find(cuda, "cuDeviceGetPCIBusId", &found.bus_id);
	found.ready = found.init && found.device && found.processes && found.bus_id && found.init() == 0;
	pthread_mutex_lock(&lock);
	if (!atomic_load(&tried)) {
		nvml = found;
		atomic_store_explicit(&tried, true, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
}

/* Whether the heap's table is the CUDA driver's: a program's own, such as the simulated device's, says nothing about
 * CUDA's devices. */
static bool is_cuda(const struct driver *d)
{
	const trz_driver *cuda;
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (!library)
		return false;
	dlclose(library);
	return driver_cuda_table(&cuda) == TRZ_OK && cuda == d->table;
}

static bool add_up(const struct process *list, unsigned count, struct nvml_usage *out)
{
	bool seen = false;
	*out = (struct nvml_usage){0};
	for (unsigned i = 0; i < count; i++) {
		if (list[i].bytes == ~0ull)
			return false;
		if (list[i].pid == (unsigned)getpid()) {
			seen = true;
			out->own += list[i].bytes;
			continue;
		}
		out->others += list[i].bytes;
		out->processes++;
	}
	return seen;
}

bool nvml_ask(const struct driver *d, struct nvml_usage *out)
{
	char bus_id[BUS_ID_BYTES];
	struct process list[PROCESSES_MOST];
	unsigned count = PROCESSES_MOST;
	void *device;
	if (!is_cuda(d))
		return false;
	if (!atomic_load_explicit(&tried, memory_order_acquire))
		load();
	return nvml.ready && nvml.bus_id(bus_id, sizeof bus_id, d->device) == 0 && nvml.device(bus_id, &device) == 0 &&
	       nvml.processes(device, &count, list) == 0 && add_up(list, count, out);
}
