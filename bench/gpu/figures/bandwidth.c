/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast kernels and copies are on stitched memory, beside memory of cuMemAlloc: the same kernels on the same number
 * of bytes, in tiles of several sizes, laid in the order in which they were created or in a random one, with every
 * second tile left out, so that neighbours in the address are none in the device's memory. Bytes read and bytes written
 * both count.
 */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prng.h"
#include "terrazzo.h"

enum { TIMES = 14, WARM = 2, KINDS = 8, BLOCKS_PER_MULTIPROCESSOR = 8 };

static const char *const kind_names[KINDS] = {"read", "write", "copy", "stride", "gather", "DtoD", "HtoD", "DtoH"};

struct bench {
	trz_addr total;              /* where kernels add up what they have read */
	void *host;
	uint64_t host_bytes, whole;  /* `whole`: bytes of each memory */
	trz_event begins[TIMES], ends[TIMES];
	double plain[2][KINDS];      /* GB/s of the first plain memory, by span */
	uint64_t sums[2];            /* of the pattern: by the host, and by reading the first plain memory */
};

static int by_value(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

/* One run of a kind over the first `span` bytes; returns the bytes moved. */
static uint64_t run_once(const struct bench *b, int kind, trz_addr at, uint64_t span)
{
	unsigned blocks = (unsigned)gpu.multiprocessors * BLOCKS_PER_MULTIPROCESSOR;
	const uint64_t step = (uint64_t)blocks * 256 * 4, unit = 16, page = MIB(2), line = 128, sector = 32;
	uint64_t count = span / unit / step * step, half_count = span / 2 / unit / step * step, half = half_count * unit;
	uint64_t pages = span / page, sectors = span / sector, lines = span / line / step * step;
	uint64_t gathers = span / 4 / unit / step * step;
	trz_addr middle = at + half;
	uint64_t host = b->host_bytes;
	uint32_t seed = 1;
	switch (kind) {
	case 0:
		LAUNCH(gpu.kernel.read_all, blocks, gpu.stream, &at, &count, (void *)&b->total);
		return count * unit;
	case 1:
		LAUNCH(gpu.kernel.write_all, blocks, gpu.stream, &at, &count, &seed);
		return count * unit;
	case 2:
		LAUNCH(gpu.kernel.copy_all, blocks, gpu.stream, &middle, &at, &half_count);
		return half * 2;
	case 3:
		LAUNCH(gpu.kernel.stride_all, blocks, gpu.stream, &at, &pages, &lines, (void *)&b->total);
		return lines * sector;
	case 4:
		LAUNCH(gpu.kernel.gather_all, blocks, gpu.stream, &at, &sectors, &gathers, (void *)&b->total);
		return gathers * unit;
	case 5:
		gpu_must(gpu.cuda.copy_in_device(middle, at, half, gpu.stream));
		return half * 2;
	case 6:
		gpu_must(gpu.cuda.copy_to_device(at, b->host, host, gpu.stream));
		return host;
	default:
		gpu_must(gpu.cuda.copy_to_host(b->host, at, host, gpu.stream));
		return host;
	}
}

/* GB/s: the median of the timed runs. */
static double measure(struct bench *b, int kind, trz_addr at, uint64_t span)
{
	const int times = quick ? WARM + 2 : TIMES, timed = times - WARM;
	float ms[TIMES - WARM];
	uint64_t bytes = 0;
	for (int i = 0; i < times; i++) {
		gpu_must(gpu.cuda.event_record(b->begins[i], gpu.stream));
		bytes = run_once(b, kind, at, span);
		gpu_must(gpu.cuda.event_record(b->ends[i], gpu.stream));
	}
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	for (int i = WARM; i < times; i++)
		gpu_must(gpu.cuda.event_elapsed(&ms[i - WARM], b->begins[i], b->ends[i]));
	qsort(ms, (size_t)timed, sizeof ms[0], by_value);
	double median = ((double)ms[timed / 2 - 1] + (double)ms[timed / 2]) / 2;
	return median > 0 ? (double)bytes / median / 1e6 : 0;
}

/* Writes the pattern, reads it back, and returns the sum. */
static uint64_t sum_of(const struct bench *b, trz_addr at, uint64_t span)
{
	static uint64_t sum[1024];   /* more than the look-alike takes for a scalar */
	gpu_must(gpu.cuda.fill(at, 0, span / 4, gpu.stream));
	run_once(b, 1, at, span);
	gpu_must(gpu.cuda.fill(b->total, 0, sizeof sum / 4, gpu.stream));
	run_once(b, 0, at, span);
	gpu_must(gpu.cuda.copy_to_host(sum, b->total, sizeof sum, gpu.stream));
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	return sum[0];
}

/* Until the clocks have risen. */
static void warm_up(const struct bench *b, trz_addr at)
{
	for (int i = 0; i < 20; i++)
		run_once(b, 0, at, b->whole);
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
}

/* What sum_of gives, by the host. */
static uint64_t expected_sum(uint64_t span)
{
	uint64_t step = (uint64_t)gpu.multiprocessors * BLOCKS_PER_MULTIPROCESSOR * 256 * 4;
	uint64_t words = span / 16 / step * step * 4, sum = 0;
	for (uint64_t i = 0; i < words; i++)
		sum += (uint32_t)i * 2654435761u + 0x9e3779b9u;
	return sum;
}

static void bench_memory(struct bench *b, const char *name, trz_addr at, bool is_reference)
{
	const uint64_t spans[2] = {quick ? MIB(128) : GIB(1), b->whole};
	const char *const unit = quick ? "M" : "G";
	warm_up(b, at);
	for (int s = 0; s < 2; s++) {
		double rate[KINDS];
		char line[LINE], row[2 * LINE];
		int used = snprintf(line, sizeof line, "  %-24.24s %4.0f%s", name,
		                                 (double)spans[s] / (quick ? MIB(1) : GIB(1)), unit);
		int put = 0;
		uint64_t sum = sum_of(b, at, spans[s]);
		if (is_reference)
			b->sums[s] = s == 0 && gpu.computes ? expected_sum(spans[s]) : sum;
		for (int k = 0; k < KINDS; k++) {
			rate[k] = measure(b, k, at, spans[s]);
			if (is_reference)
				b->plain[s][k] = rate[k];
			double ratio = b->plain[s][k] > 0 ? rate[k] / b->plain[s][k] : 0;
			if (is_reference)
				used += snprintf(line + used, sizeof line - (size_t)used, " %7.0f", rate[k]);
			else
				used += snprintf(line + used, sizeof line - (size_t)used, " %7.3f", ratio);
			put += snprintf(row + put, sizeof row - (size_t)put, "%s\"%s\": %.1f", k ? ", " : "", kind_names[k],
			                rate[k]);
		}
		const char *verdict = !gpu.computes ? "" : sum == b->sums[s] ? "  ok" : "  WRONG SUM";
		if (s == 1)
			result_line("%s%s", line, verdict);
		result_json("{\"part\": \"bandwidth\", \"memory\": \"%s\", \"mib\": %llu, \"gb_per_s\": {%s}, \"sum_ok\": %s}",
		            name, (unsigned long long)(spans[s] / MIB(1)), row, sum == b->sums[s] ? "true" : "false");
	}
}

/* ---- memories ------------------------------------------------------------------------------------------- */

static void shuffle(trz_handle *handles, uint64_t count)
{
	uint64_t random = 1;
	for (uint64_t i = count; i > 1; i--) {
		uint64_t k = prng_below(&random, i);
		trz_handle other = handles[k];
		handles[k] = handles[i - 1];
		handles[i - 1] = other;
	}
}

/* Tiles in order; or shuffled, from twice as many. */
static struct tiles stitch(uint64_t whole, uint64_t size, bool shuffled)
{
	int device = 0;
	uint64_t count = (whole + size - 1) / size, made = shuffled ? 2 * count : count;
	struct tiles t = {.size = size, .count = count, .handles = calloc(made, sizeof *t.handles)};
	for (uint64_t i = 0; i < made; i++)
		t.handles[i] = gpu_create(size);
	for (uint64_t i = 0; i < count && shuffled; i++) {
		table_must(gpu.driver->release(gpu.self, t.handles[2 * i + 1]));
		t.handles[i] = t.handles[2 * i];
	}
	if (shuffled)
		shuffle(t.handles, count);
	t.address = gpu_reserve(size * count);
	for (uint64_t i = 0; i < count; i++)
		table_must(gpu.driver->map(gpu.self, t.address + i * size, size, t.handles[i]));
	table_must(gpu.driver->set_access(gpu.self, t.address, size * count, &device, 1));
	return t;
}

static void unstitch(struct tiles *t)
{
	gpu_must(gpu.cuda.synchronize());
	gpu_unmap(t->address, t->size * t->count);
	for (uint64_t i = 0; i < t->count; i++)
		table_must(gpu.driver->release(gpu.self, t->handles[i]));
	table_must(gpu.driver->unreserve(gpu.self, t->address, t->size * t->count));
	free(t->handles);
}

static void bench_plain(struct bench *b, const char *name, bool is_reference)
{
	trz_addr at;
	gpu_must(gpu.cuda.mem_alloc(&at, b->whole));
	bench_memory(b, name, at, is_reference);
	gpu_must(gpu.cuda.synchronize());
	gpu_must(gpu.cuda.mem_free(at));
}

/* ---- through the library: a heap with holes, which must gather them ------------------------------------- */

static unsigned maps;
static const trz_driver *under;

static trz_status counting_map(void *self, trz_addr address, uint64_t size, trz_handle handle)
{
	maps++;
	return under->map(self, address, size, handle);
}

static void heap_must(trz_status status, const char *call)
{
	if (status != TRZ_OK)
		result_line("  failed: %s: %s", call, trz_last_error());
	table_require(status, call);
}

static void bench_heap(struct bench *b)
{
	enum { MOST = 4096, KEPT = 3 };  /* of so many blocks one is kept */
	static void *block[MOST];
	static size_t size[MOST];
	trz_driver driver = *gpu.driver;
	trz_open_params params = {.device = 0, .context = gpu.context, .driver = &driver};
	trz_heap *heap;
	uint64_t random = 2;
	size_t filled = 0, count = 0;
	void *big;
	under = gpu.driver;
	driver.map = counting_map;
	heap_must(trz_open(&params, &heap), "trz_open");
	while (filled < 2 * b->whole + b->whole / 2 && count < MOST) {
		size[count] = MIB(10 + prng_below(&random, 80));
		heap_must(trz_alloc(heap, size[count], 0, gpu.stream, &block[count]), "trz_alloc");
		filled += size[count++];
	}
	heap_must(trz_set_limit(heap, filled + b->whole / 8), "trz_set_limit");
	for (size_t i = 0; i < count; i++)
		if (i % KEPT > 0)
			heap_must(trz_free(heap, block[i]), "trz_free");
	gpu_must(gpu.cuda.synchronize());
	maps = 0;
	heap_must(trz_alloc(heap, b->whole, 0, gpu.stream, &big), "trz_alloc of the whole");
	char name[40];
	snprintf(name, sizeof name, "heap, %u gathered", maps);
	bench_memory(b, name, (trz_addr)(uintptr_t)big, false);
	gpu_must(gpu.cuda.synchronize());
	heap_must(trz_free(heap, big), "trz_free");
	heap_must(trz_close(heap), "trz_close");
}

void part_bandwidth(void)
{
	static const unsigned tiles_mib[] = {2, 20, 64, 512};
	static struct bench b;
	gpu_open();
	uint64_t third = gpu.info.total_bytes / 3;
	b.whole = quick ? MIB(256) : third < GIB(8) ? third / MIB(64) * MIB(64) : GIB(8);
	b.host_bytes = quick ? MIB(16) : MIB(256);
	gpu_must(gpu.cuda.mem_alloc(&b.total, MIB(2)));
	gpu_must(gpu.cuda.host_alloc(&b.host, b.host_bytes, 0));
	memset(b.host, 1, b.host_bytes);
	for (int i = 0; i < TIMES; i++) {
		b.begins[i] = gpu_new_event();
		b.ends[i] = gpu_new_event();
	}
	result_line("bandwidth of %s: GB/s of cuMemAlloc'ed memory, then ratios to it%s", gpu.info.name,
	            gpu.computes ? "" : " (kernels compute nothing here: without meaning)");
	result_line("  %-24s %5s %7s %7s %7s %7s %7s %7s %7s %7s", "memory", "span", kind_names[0], kind_names[1],
	            kind_names[2], kind_names[3], kind_names[4], kind_names[5], kind_names[6], kind_names[7]);
	bench_plain(&b, "cuMemAlloc", true);
	bench_plain(&b, "cuMemAlloc again", false);
	for (size_t i = 0; i < sizeof tiles_mib / sizeof tiles_mib[0]; i++)
		for (int shuffled = 0; shuffled < 2 && !time_is_short("all tile sizes"); shuffled++) {
			char name[40];
			snprintf(name, sizeof name, "tiles of %u MiB%s", tiles_mib[i], shuffled ? ", mixed" : "");
			struct tiles t = stitch(b.whole, MIB(tiles_mib[i]), shuffled);
			bench_memory(&b, name, t.address, false);
			unstitch(&t);
		}
	bench_plain(&b, "cuMemAlloc at last", false);
	if (!time_is_short("the heap"))
		bench_heap(&b);
}
