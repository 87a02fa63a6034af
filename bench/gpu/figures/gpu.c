/* SPDX-License-Identifier: Apache-2.0
 *
 * The device, and the measuring of time.
 */
#include "gpu.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__asm__(".pushsection .rodata\n"
        ".globl bench_gpu_ptx\n"
        ".hidden bench_gpu_ptx\n"
        "bench_gpu_ptx: .incbin \"kernels.ptx\"\n"
        ".byte 0\n"
        ".popsection\n");

#pragma GCC visibility push(hidden)
extern const char bench_gpu_ptx[];
#pragma GCC visibility pop

struct gpu gpu;
double clock_cost_ns;
struct results *results;
bool quick;
uint64_t part_ends_ns;

/* ---- failures ------------------------------------------------------------------------------------------- */

static void give_up(const char *call, const char *why)
{
	result_line("  failed: %s: %s", call, why);
	fprintf(stderr, "failed: %s: %s\n", call, why);
	_Exit(1);
}

void gpu_require(int result, const char *call)
{
	const char *name = NULL;
	if (result == 0)
		return;
	if (!gpu.cuda.error_name || gpu.cuda.error_name(result, &name) != 0)
		name = "an unknown error";
	char why[80];
	snprintf(why, sizeof why, "%s (%d)", name, result);
	give_up(call, why);
}

void table_require(trz_status status, const char *call)
{
	if (status != TRZ_OK) {
		char why[200];
		snprintf(why, sizeof why, "%s; %s", trz_status_name(status), trz_driver_last_error());
		give_up(call, why);
	}
}

/* ---- the device ----------------------------------------------------------------------------------------- */

static void load_functions(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		give_up("libcuda.so.1", dlerror());
	static const struct {
		const char *exported;
		size_t offset;
	} functions[] = {
#define GPU_OFFSET(name, exported, parameters) {exported, offsetof(struct gpu_functions, name)},
		GPU_FUNCTIONS(GPU_OFFSET)
#undef GPU_OFFSET
	};
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		void *function = dlsym(library, functions[i].exported);
		if (!function)
			give_up(functions[i].exported, "the driver library lacks it");
		memcpy((char *)&gpu.cuda + functions[i].offset, &function, sizeof function);
	}
}

/* Costs of calls need none, so without them a part may still go far. */
static bool load_kernels(void)
{
	void *module;
	int result = gpu.cuda.load_module(&module, bench_gpu_ptx);
	if (result != 0) {
		result_line("  the driver does not take the kernels (%d): what needs them fails", result);
		return false;
	}
#define GPU_LOAD(name) gpu_must(gpu.cuda.get_function(&gpu.kernel.name, module, #name));
	GPU_KERNELS(GPU_LOAD)
#undef GPU_LOAD
	return true;
}

/* Launches every kernel once, on nothing to do: the first launch loads the code, which may wait for the device. Then
 * sees whether kernels compute. */
static void warm_up(void)
{
	enum { WORDS = 4096 };
	static uint32_t words[WORDS];
	trz_addr at, found;
	uint64_t none = 0, count = WORDS / 4;
	uint32_t seed = 7;
	gpu_must(gpu.cuda.mem_alloc(&at, sizeof words));
	gpu_must(gpu.cuda.mem_alloc(&found, 64));
	gpu_spin(gpu.stream, at, 1000);
	LAUNCH(gpu.kernel.read_all, 1, gpu.stream, &at, &none, &found);
	LAUNCH(gpu.kernel.copy_all, 1, gpu.stream, &at, &at, &none);
	LAUNCH(gpu.kernel.stride_all, 1, gpu.stream, &at, &count, &none, &found);
	LAUNCH(gpu.kernel.gather_all, 1, gpu.stream, &at, &count, &none, &found);
	LAUNCH(gpu.kernel.write_late, 1, gpu.stream, &at, &none, &seed, &none);
	LAUNCH(gpu.kernel.write_late_trigger, 1, gpu.stream, &at, &none, &seed, &none);
	LAUNCH(gpu.kernel.check, 1, gpu.stream, &at, &none, &seed, &found);
	LAUNCH(gpu.kernel.check_waits, 1, gpu.stream, &at, &none, &seed, &found);
	LAUNCH(gpu.kernel.check_reads_waits, 1, gpu.stream, &at, &none, &seed, &found);
	LAUNCH(gpu.kernel.within_kernel, 1, gpu.stream, &at, &at, &none, &seed, &found);
	LAUNCH(gpu.kernel.within_fence, 1, gpu.stream, &at, &at, &none, &seed, &found);
	LAUNCH(gpu.kernel.within_alias_fence, 1, gpu.stream, &at, &at, &none, &seed, &found);
	gpu_must(gpu.cuda.fill(at, 0, WORDS, gpu.stream));
	LAUNCH(gpu.kernel.write_all, 4, gpu.stream, &at, &count, &seed);
	gpu_must(gpu.cuda.copy_to_host(words, at, sizeof words, gpu.stream));
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	gpu.computes = true;
	for (uint32_t i = 0; i < WORDS; i++)
		gpu.computes &= words[i] == i * 2654435761u + seed * 0x9e3779b9u;
	results->computes = gpu.computes;
	gpu_must(gpu.cuda.mem_free(at));
	gpu_must(gpu.cuda.mem_free(found));
}

void gpu_open(void)
{
	enum { MULTIPROCESSORS = 16 };
	if (trz_driver_cuda(&gpu.driver) != TRZ_OK)
		give_up("trz_driver_cuda", trz_last_error());
	gpu.self = gpu.driver->self;
	load_functions();
	table_must(gpu.driver->device_info(gpu.self, 0, &gpu.info));
	table_must(gpu.driver->context_retain(gpu.self, 0, NULL, &gpu.context));
	gpu_must(gpu.cuda.set_context(gpu.context));
	gpu_must(gpu.cuda.attribute(&gpu.multiprocessors, MULTIPROCESSORS, 0));
	gpu.stream = gpu_new_stream();
	if (load_kernels())
		warm_up();
	int version = 0;
	gpu_must(gpu.cuda.driver_version(&version));
	snprintf(results->machine, sizeof results->machine,
	         "\"device\": \"%s\", \"memory_mib\": %llu, \"multiprocessors\": %d, \"compute\": \"%d.%d\", "
	         "\"cuda_driver\": \"%d.%d\", \"computes\": %s",
	         gpu.info.name, (unsigned long long)(gpu.info.total_bytes / MIB(1)), gpu.multiprocessors,
	         gpu.info.compute_major, gpu.info.compute_minor, version / 1000, version % 1000 / 10,
	         gpu.computes ? "true" : "false");
	clock_cost_ns = 1e9;
	for (int i = 0; i < 10000; i++) {
		uint64_t from = now_ns(), took = now_ns() - from;
		clock_cost_ns = (double)took < clock_cost_ns ? (double)took : clock_cost_ns;
	}
}

void gpu_launch(void *kernel, unsigned blocks, trz_stream stream, void **arguments)
{
	gpu_must(gpu.cuda.launch(kernel, blocks, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
}

void gpu_spin(trz_stream stream, trz_addr at, uint64_t ns)
{
	void *arguments[] = {&at, &ns};
	gpu_must(gpu.cuda.launch(gpu.kernel.spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

trz_stream gpu_new_stream(void)
{
	trz_stream stream;
	gpu_must(gpu.cuda.stream_create(&stream, GPU_NON_BLOCKING));
	return stream;
}

trz_event gpu_new_event(void)
{
	trz_event event;
	gpu_must(gpu.cuda.event_create(&event, 0));
	return event;
}

trz_handle gpu_create(uint64_t size)
{
	trz_tile_props props = {.device = 0};
	trz_handle handle;
	table_must(gpu.driver->create(gpu.self, &props, size, &handle));
	return handle;
}

trz_addr gpu_reserve(uint64_t size)
{
	trz_addr address;
	table_must(gpu.driver->reserve(gpu.self, size, 0, 0, &address));
	return address;
}

void gpu_map(trz_addr address, uint64_t size, trz_handle handle)
{
	int device = 0;
	table_must(gpu.driver->map(gpu.self, address, size, handle));
	table_must(gpu.driver->set_access(gpu.self, address, size, &device, 1));
}

void gpu_unmap(trz_addr address, uint64_t size)
{
	table_must(gpu.driver->unmap(gpu.self, address, size));
}

/* ---- time ----------------------------------------------------------------------------------------------- */

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void series_add(struct series *s, double ns)
{
	if (s->count == s->capacity) {
		s->capacity = s->capacity ? 2 * s->capacity : 4096;
		s->ns = realloc(s->ns, s->capacity * sizeof *s->ns);
		if (!s->ns)
			give_up("realloc", "no host memory");
	}
	s->ns[s->count++] = ns < 0 ? 0 : ns;
}

void series_clear(struct series *s)
{
	s->count = 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

struct summary series_summary(const struct series *s)
{
	struct summary r = {.samples = s->count};
	if (s->count == 0)
		return r;
	size_t skip = s->count > 1, n = s->count - skip;
	double *sorted = malloc(n * sizeof *sorted), sum = 0;
	if (!sorted)
		give_up("malloc", "no host memory");
	memcpy(sorted, s->ns + skip, n * sizeof *sorted);
	qsort(sorted, n, sizeof *sorted, by_value);
	size_t kept = n - (n + 99) / 100;
	kept = kept ? kept : 1;
	for (size_t i = 0; i < kept; i++)
		sum += sorted[i];
	r.first = s->ns[0];
	r.least = sorted[0];
	r.median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
	r.p90 = sorted[n * 9 / 10];
	r.mean = sum / (double)kept;
	free(sorted);
	return r;
}

/* ---- results -------------------------------------------------------------------------------------------- */

void result_figure(const char *slot, const char *what, uint64_t size, unsigned handles, unsigned live,
                   const struct series *s)
{
	if (results->figure_count == FIGURES || s->count == 0)
		return;
	struct figure *f = &results->figures[results->figure_count];
	*f = (struct figure){.mib = (double)size / MIB(1), .handles = handles, .live = live,
	                     .ns = series_summary(s), .waits = -1};
	snprintf(f->slot, sizeof f->slot, "%s", slot);
	snprintf(f->what, sizeof f->what, "%s", what);
	results->figure_count++;
}

void result_line(const char *format, ...)
{
	va_list arguments;
	if (results->line_count == LINES)
		return;
	va_start(arguments, format);
	vsnprintf(results->lines[results->line_count], LINE, format, arguments);
	va_end(arguments);
	results->line_count++;
}

void result_json(const char *format, ...)
{
	va_list arguments;
	size_t room = sizeof results->json - results->json_used;
	va_start(arguments, format);
	int length = vsnprintf(results->json + results->json_used, room, format, arguments);
	va_end(arguments);
	if (length > 0 && (size_t)length + 2 < room) {
		results->json_used += (size_t)length;
		memcpy(results->json + results->json_used, ",\n", 3);
		results->json_used += 2;
	}
}

bool time_is_short(const char *what)
{
	static bool said;
	if (now_ns() < part_ends_ns)
		return false;
	if (!said)
		result_line("  out of time before %s: what follows in this part is missing", what);
	said = true;
	return true;
}
