/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's own stream-ordered allocator, from the device's default pool: cudaMallocAsync by its driver's name. Option:
 * "keep" raises the release threshold to the maximum, so that synchronisations return nothing to the device.
 */
#include <cstdint>
#include <cstring>

#include "../../peers/bench_peer.h"
#include "../../peers/stream_users.h"

extern "C" {
int cuMemAllocAsync(std::uint64_t *address, std::size_t size, void *stream);
int cuMemFreeAsync(std::uint64_t address, void *stream);
int cuDeviceGetDefaultMemPool(void **pool, int device);
int cuMemPoolSetAttribute(void *pool, int attribute, void *value);
int cuMemPoolTrimTo(void *pool, std::size_t keep);
int cuCtxSynchronize(void);
}

enum { RELEASE_THRESHOLD = 4 };

static void *pool;
static stream_users users;

static int ready(const char *options)
{
	std::uint64_t most = UINT64_MAX;
	if (cuDeviceGetDefaultMemPool(&pool, 0) != 0)
		return -1;
	return std::strcmp(options, "keep") == 0 ? cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &most) : 0;
}

static void empty(void)
{
	cuCtxSynchronize();
	cuMemPoolTrimTo(pool, 0);
}

static void *take(std::size_t size, void *stream)
{
	std::uint64_t address = 0;
	return cuMemAllocAsync(&address, size, stream) == 0 ? reinterpret_cast<void *>(address) : nullptr;
}

static void record_stream(void *pointer, void *stream)
{
	users.add(pointer, stream);
}

static void give(void *pointer, std::size_t, void *, void *last)
{
	users.order_before(last, pointer);
	cuMemFreeAsync(reinterpret_cast<std::uint64_t>(pointer), last);
}

static struct peer make_peer()
{
	struct peer made = {};
	made.open = ready;
	made.close = empty;
	made.alloc = take;
	made.free = give;
	made.record_stream = record_stream;
	made.empty_cache = empty;
	return made;
}

const struct peer bench_peer = make_peer();
