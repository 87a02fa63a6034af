/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of device_figures share: the CUDA driver, loaded as driver_cuda loads it; the kernels; time; results.
 *
 * Each part runs in a process of its own, with a time limit, since an error of the device ends a context for good. What
 * it has found up to then counts: results lie in memory that all processes share.
 */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bits.h"
#include "terrazzo_driver.h"

/* ---- the driver's functions: X(name, exported name, parameters) ----------------------------------------- */

#define GPU_FUNCTIONS(X)                                                                                     \
	X(init, "cuInit", (unsigned))                                                                        \
	X(driver_version, "cuDriverGetVersion", (int *))                                                     \
	X(error_name, "cuGetErrorName", (int, const char **))                                                \
	X(attribute, "cuDeviceGetAttribute", (int *, int, int))                                              \
	X(set_context, "cuCtxSetCurrent", (void *))                                                          \
	X(synchronize, "cuCtxSynchronize", (void))                                                           \
	X(load_module, "cuModuleLoadData", (void **, const void *))                                          \
	X(get_function, "cuModuleGetFunction", (void **, void *, const char *))                              \
	X(launch, "cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
	                             unsigned, void *, void **, void **))                                    \
	X(launch_with, "cuLaunchKernelEx", (const struct gpu_launch *, void *, void **, void **))            \
	X(stream_create, "cuStreamCreate", (void **, unsigned))                                              \
	X(stream_sync, "cuStreamSynchronize", (void *))                                                      \
	X(stream_wait, "cuStreamWaitEvent", (void *, void *, unsigned))                                      \
	X(event_create, "cuEventCreate", (void **, unsigned))                                                \
	X(event_record, "cuEventRecord", (void *, void *))                                                   \
	X(event_query, "cuEventQuery", (void *))                                                             \
	X(event_sync, "cuEventSynchronize", (void *))                                                        \
	X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *))                                    \
	X(mem_alloc, "cuMemAlloc_v2", (trz_addr *, size_t))                                                  \
	X(mem_free, "cuMemFree_v2", (trz_addr))                                                              \
	X(host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned))                                         \
	X(host_free, "cuMemFreeHost", (void *))                                                              \
	X(copy_in_device, "cuMemcpyDtoDAsync_v2", (trz_addr, trz_addr, size_t, void *))                      \
	X(copy_to_device, "cuMemcpyHtoDAsync_v2", (trz_addr, const void *, size_t, void *))                  \
	X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void *, trz_addr, size_t, void *))                          \
	X(fill, "cuMemsetD32Async", (trz_addr, unsigned, size_t, void *))

/* CUlaunchConfig and CUlaunchAttribute. */
struct gpu_launch_attribute {
	int id;
	char pad[4];
	union {
		int number;
		uint64_t words[8];
	} value;
};

struct gpu_launch {
	unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
	void *stream;
	struct gpu_launch_attribute *attributes;
	unsigned attribute_count;
};

enum { GPU_PROGRAMMATIC_STREAM_SERIALIZATION = 6, GPU_NOT_READY = 600, GPU_NON_BLOCKING = 1 };

struct gpu_functions {
#define GPU_MEMBER(name, exported, parameters) int(*name) parameters;
	GPU_FUNCTIONS(GPU_MEMBER)
#undef GPU_MEMBER
};

#define GPU_KERNELS(X)                                                                                       \
	X(spin) X(write_all) X(read_all) X(copy_all) X(stride_all) X(gather_all) X(write_late)               \
	X(write_late_trigger) X(check) X(check_waits) X(check_reads_waits) X(within_kernel) X(within_fence)  \
	X(within_alias_fence)

/* Device 0 with its context, current in the calling thread. */
struct gpu {
	struct gpu_functions cuda;
	const trz_driver *driver;    /* trz_driver_cuda */
	void *self;
	trz_context context;
	trz_device_info info;
	int multiprocessors;
	trz_stream stream;           /* non-blocking */
	bool computes;               /* kernels do what they say: not so on the simulated device */
	struct {
#define GPU_KERNEL(name) void *name;
		GPU_KERNELS(GPU_KERNEL)
#undef GPU_KERNEL
	} kernel;
};

extern struct gpu gpu;

/* Opens device 0. Ends the process, with a line that says why, if it cannot. */
void gpu_open(void);

/* Each ends the process with a line that names the call if `result` is not success. */
#define gpu_must(call) gpu_require((call), #call)
void gpu_require(int result, const char *call);
#define table_must(call) table_require((call), #call)
void table_require(trz_status status, const char *call);

/* Launches with arguments that lie where `arguments` points; a block has 256 threads. */
void gpu_launch(void *kernel, unsigned blocks, trz_stream stream, void **arguments);
#define LAUNCH(kernel, blocks, stream, ...) gpu_launch(kernel, blocks, stream, (void *[]){__VA_ARGS__})

/* Keeps a stream busy for `ns` with one thread, which touches the word at `at`. */
void gpu_spin(trz_stream stream, trz_addr at, uint64_t ns);

trz_stream gpu_new_stream(void);
trz_event gpu_new_event(void);

/* ---- memory by tiles ------------------------------------------------------------------------------------ */

struct tiles {
	trz_addr address;
	uint64_t size, count;        /* of a tile; tiles */
	trz_handle *handles;
};

trz_handle gpu_create(uint64_t size);
trz_addr gpu_reserve(uint64_t size);
void gpu_map(trz_addr address, uint64_t size, trz_handle handle);
void gpu_unmap(trz_addr address, uint64_t size);

/* ---- time ----------------------------------------------------------------------------------------------- */

uint64_t now_ns(void);

/* Samples of one call, in nanoseconds. */
struct series {
	double *ns;
	size_t count, capacity;
};

struct summary {
	size_t samples;
	double first, least, median, p90, mean;  /* `mean` leaves out the slowest hundredth */
};

void series_add(struct series *s, double ns);
void series_clear(struct series *s);

/* Of all samples but the first, which stands apart; of the first if it is the only one. */
struct summary series_summary(const struct series *s);

/* Times one call; what reading the clock takes is not part of it. */
extern double clock_cost_ns;
#define TIMED(series, call)                                                                                  \
	do {                                                                                                 \
		uint64_t timed_from = now_ns();                                                              \
		table_must(call);                                                                            \
		series_add((series), (double)(now_ns() - timed_from) - clock_cost_ns);                       \
	} while (0)

/* ---- results -------------------------------------------------------------------------------------------- */

/* A measured cost; texts are static or short. */
struct figure {
	char slot[16], what[40];
	double mib;                  /* of a handle */
	unsigned handles, live;      /* in the call or the round; mapped before it */
	struct summary ns;
	int waits;                   /* of `samples`, how many returned only when the kernel had ended; -1: not asked */
};

enum { FIGURES = 4096, LINES = 512, LINE = 160 };

struct results {
	struct figure figures[FIGURES];
	unsigned figure_count;
	char lines[LINES][LINE];     /* tables for people */
	unsigned line_count;
	char json[1 << 20];          /* other parts' rows: objects, each on a line that ends with a comma */
	size_t json_used;
	char machine[512];           /* members of the head object */
	bool computes;
};

extern struct results *results;
extern bool quick;                   /* a short run, to see that everything works */

void result_figure(const char *slot, const char *what, uint64_t size, unsigned handles, unsigned live,
                   const struct series *s);
void result_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void result_json(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether the part has used up so much of its time that it should not begin another round; says so once. */
bool time_is_short(const char *what);
extern uint64_t part_ends_ns;

/* ---- parts ---------------------------------------------------------------------------------------------- */

void part_first(void);       /* costs_memory.c: the first calls of a process */
void part_memory(void);      /* handles by size and number */
void part_live(void);        /* beside many live handles */
void part_busy(void);        /* beside running kernels */
void part_small(void);       /* costs_streams.c: events, streams, queries */
void part_full(void);        /* full.c: until the driver refuses */
void part_bandwidth(void);   /* bandwidth.c */
void part_aliasing(void);    /* aliasing.c */
void part_move(void);
void part_fault(void);

/* cost_table.c: writes a cost table of the simulator from the figures, and what it leaves unexplained. */
void cost_table_write(char *text, size_t size, const char *sources);

#endif
