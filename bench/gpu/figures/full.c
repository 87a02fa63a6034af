/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device that is nearly full still gives: handles of one size are created, mapped and opened until the driver
 * refuses; how many bytes came of those that it had called free, how many it calls free then, which call refused, and
 * what comes in smaller handles after that.
 */
#include <stdlib.h>

#include "gpu.h"

enum { MOST_HANDLES = 1 << 18, SIZES = 4 };

static struct {
	trz_addr address;
	uint64_t bytes;              /* mapped from `address` on */
	unsigned count;
	trz_handle handles[MOST_HANDLES];
} filled;

static uint64_t device_free(void)
{
	uint64_t free_bytes, total;
	table_must(gpu.driver->mem_info(gpu.self, gpu.context, &free_bytes, &total));
	return free_bytes;
}

/* One more handle, mapped and open. Returns the call that was refused for want of memory, or NULL. */
static const char *add_handle(uint64_t size)
{
	const trz_tile_props props = {.device = 0};
	const int device = 0;
	trz_handle handle;
	trz_status status = gpu.driver->create(gpu.self, &props, size, &handle);
	if (status == TRZ_ERROR_OUT_OF_MEMORY)
		return "create";
	table_must(status);
	trz_addr at = filled.address + filled.bytes;
	const char *refused = "map";
	status = gpu.driver->map(gpu.self, at, size, handle);
	if (status == TRZ_OK) {
		refused = "set_access";
		status = gpu.driver->set_access(gpu.self, at, size, &device, 1);
		if (status != TRZ_OK)
			gpu_unmap(at, size);
	}
	if (status != TRZ_OK) {
		table_must(gpu.driver->release(gpu.self, handle));
		if (status != TRZ_ERROR_OUT_OF_MEMORY)
			table_require(status, refused);
		return refused;
	}
	filled.handles[filled.count++] = handle;
	filled.bytes += size;
	return NULL;
}

/* Adds handles until one is refused, or `most` bytes are there; returns the call that was refused. */
static const char *fill(uint64_t size, uint64_t most)
{
	const char *refused = NULL;
	while (!refused && filled.count < MOST_HANDLES && filled.bytes + size <= most)
		refused = add_handle(size);
	return refused ? refused : "nothing";
}

static void empty(void)
{
	if (filled.bytes)
		gpu_unmap(filled.address, filled.bytes);
	for (unsigned i = 0; i < filled.count; i++)
		table_must(gpu.driver->release(gpu.self, filled.handles[i]));
	filled.bytes = filled.count = 0;
}

static void fill_with(uint64_t size, uint64_t least)
{
	uint64_t before = device_free();
	const uint64_t most = quick ? GIB(1) : before + GIB(1);
	const char *refused = fill(size, most);
	const uint64_t had = filled.bytes, left = device_free();
	const char *then = fill(least, most);
	const uint64_t more = filled.bytes - had, last = device_free();
	empty();
	const double lost = ((double)before - (double)had - (double)left) / 1024;
	result_line("  %5.0f MiB: %10.2f of %10.2f MiB, then %s is refused with %.2f MiB free (%.0f KiB for tables); "
	            "2 MiB: %.0f MiB more, %.2f left", (double)size / MIB(1), (double)had / MIB(1),
	            (double)before / MIB(1), refused, (double)left / MIB(1), lost, (double)more / MIB(1),
	            (double)last / MIB(1));
	result_json("{\"part\": \"full\", \"size\": %llu, \"free\": %llu, \"had\": %llu, \"refused\": \"%s\", "
	            "\"left\": %llu, \"then\": \"%s\", \"more\": %llu, \"last\": %llu}",
	            (unsigned long long)size, (unsigned long long)before, (unsigned long long)had, refused,
	            (unsigned long long)left, then, (unsigned long long)more, (unsigned long long)last);
}

/* The largest plain allocation, to 2 MiB. */
static void largest_plain(void)
{
	const uint64_t before = device_free();
	uint64_t fits = 0, refused = before / MIB(2) + 1;
	while (fits + 1 < refused) {
		const uint64_t middle = fits + (refused - fits) / 2;
		trz_addr at;
		trz_status status = gpu.driver->mem_alloc(gpu.self, gpu.context, middle * MIB(2), &at);
		if (status == TRZ_OK)
			table_must(gpu.driver->mem_free(gpu.self, gpu.context, at));
		else if (status != TRZ_ERROR_OUT_OF_MEMORY)
			table_require(status, "mem_alloc");
		*(status == TRZ_OK ? &fits : &refused) = middle;
	}
	result_line("  one plain allocation: %llu of %.2f MiB", (unsigned long long)fits * 2, (double)before / MIB(1));
	result_json("{\"part\": \"full\", \"plain\": %llu, \"free\": %llu}", (unsigned long long)(fits * MIB(2)),
	            (unsigned long long)before);
}

void part_full(void)
{
	static const uint64_t sizes[SIZES] = {MIB(64), MIB(20), MIB(1024), MIB(2)};
	gpu_open();
	filled.address = gpu_reserve((gpu.info.total_bytes + GIB(2)) & ~(GIB(1) - 1));
	result_line("a device that is filled with handles of one size");
	for (int i = 0; i < SIZES && !time_is_short("all sizes on a full device"); i++)
		fill_with(sizes[i], MIB(2));
	largest_plain();
}
