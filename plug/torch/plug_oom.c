/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of an out-of-memory error for PyTorch's users: first PyTorch's own words, which programs and tests look for,
 * then the heap's.
 */
#include "plug.h"

#include <inttypes.h>
#include <stdio.h>

#include "decimal.h"
#include "terrazzo_driver.h"

enum { SIZE_TEXT = 32 };

/* Sizes as PyTorch writes them. */
static const char *size_text(uint64_t bytes, char *text)
{
	if (bytes > 1u << 30)
		return decimal_size(bytes, 30, "GiB", text, SIZE_TEXT);
	if (bytes > 1u << 20)
		return decimal_size(bytes, 20, "MiB", text, SIZE_TEXT);
	if (bytes > 1u << 10)
		return decimal_size(bytes, 10, "KiB", text, SIZE_TEXT);
	snprintf(text, SIZE_TEXT, "%" PRIu64 " bytes", bytes);
	return text;
}

static size_t read_stat(trz_heap *heap, const char *name)
{
	uint64_t value = 0;
	trz_stat(heap, name, &value);
	return (size_t)value;
}

/* The figures for a request that failed before the heap looked at its memory. */
static trz_oom_info ask(trz_heap *heap, int device, size_t size)
{
	const trz_driver *driver;
	trz_context context;
	uint64_t free_bytes = 0, total = 0;
	trz_oom_info info = {.requested = size};
	if (trz_driver_cuda(&driver) == TRZ_OK &&
	    driver->context_retain(driver->self, device, NULL, &context) == TRZ_OK) {
		driver->mem_info(driver->self, context, &free_bytes, &total);
		driver->context_release(driver->self, device, context);
	}
	info.device_free = (size_t)free_bytes;
	info.device_total = (size_t)total;
	info.reserved = read_stat(heap, "reserved_bytes.all.current");
	info.allocated = read_stat(heap, "allocated_bytes.all.current");
	trz_get_limit(heap, &info.limit);
	return info;
}

/* PyTorch counts free memory of pools that graphs rely on as allocated, since it serves no other requests. */
static size_t write_facts(char *text, size_t room, int device, const trz_oom_info *i)
{
	char asked[SIZE_TEXT], total[SIZE_TEXT], free_text[SIZE_TEXT], allowed[SIZE_TEXT];
	char held[SIZE_TEXT], pinned[SIZE_TEXT], cached[SIZE_TEXT];
	size_t taken = i->allocated + i->pinned;
	int length = snprintf(text, room,
	                      "Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. %s%sOf the "
	                      "allocated memory %s is allocated by PyTorch, %s%s%sand %s is reserved by PyTorch but "
	                      "unallocated. ",
	                      size_text(i->requested, asked), device, size_text(i->device_total, total),
	                      size_text(i->device_free, free_text), i->limit ? size_text(i->limit, allowed) : "",
	                      i->limit ? " allowed; " : "", size_text(taken, held), i->pinned ? "with " : "",
	                      i->pinned ? size_text(i->pinned, pinned) : "",
	                      i->pinned ? " allocated in private pools (e.g., CUDA Graphs), " : "",
	                      size_text(i->reserved > taken ? i->reserved - taken : 0, cached));
	return length < 0 ? 0 : (size_t)length < room ? (size_t)length : room - 1;
}

void trz_torch_oom_info(int device, size_t size, trz_oom_info *info)
{
	trz_heap *heap;
	char failure[PLUG_TEXT];
	snprintf(failure, sizeof failure, "%s", trz_torch_last_error());
	*info = (trz_oom_info){0};
	if (trz_torch_heap(device, false, &heap) == TRZ_OK && heap &&
	    (trz_last_oom(heap, info) != TRZ_OK || info->requested != size))
		*info = ask(heap, device, size);
	plug_fail(TRZ_ERROR_OUT_OF_MEMORY, "%s", failure);  /* the questions have changed it */
}

const char *trz_torch_oom_text(int device, size_t size)
{
	static _Thread_local char text[2048];
	size_t length;
	trz_oom_info info;
	trz_torch_oom_info(device, size, &info);
	if (size >= TRZ_TORCH_TOO_LARGE)
		length = (size_t)snprintf(text, sizeof text, "Tried to allocate more than 1EB memory. ");
	else
		length = info.requested ? write_facts(text, sizeof text, device, &info) : 0;
	snprintf(text + length, sizeof text - length, "terrazzo: %s", trz_torch_last_error());
	return text;
}
