/* SPDX-License-Identifier: Apache-2.0
 *
 * RMM's memory resources, of the last version that is all headers. Options: "pool", which begins with 1 GiB and doubles
 * while the device has room; "binning", RMM's bins of 256 KiB to 4 MiB over such a pool; "pool:N" and "arena:N", which
 * take N % of the device's free memory when they open, and no more later; "async": cudaMallocAsync by way of RMM.
 * RMM_DEBUG_LOG_FILE names RMM's log, else it is a file in the current folder.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>

#include "bench_peer.h"
#include "stream_users.h"

namespace mr = rmm::mr;
using pool_resource = mr::pool_memory_resource<mr::cuda_memory_resource>;
using arena_resource = mr::arena_memory_resource<mr::cuda_memory_resource>;
using binning_resource = mr::binning_memory_resource<pool_resource>;

enum { LEAST_BIN = 18, MOST_BIN = 22 };  /* exponents of 2: those of RMM's own benchmarks */
static constexpr std::size_t first_pool = std::size_t(1) << 30;

static std::unique_ptr<mr::cuda_memory_resource> device;
static std::unique_ptr<pool_resource> pool;
static std::unique_ptr<mr::device_memory_resource> resource;
static stream_users users;

static std::size_t share_of_device(const char *percent)
{
	return rmm::percent_of_free_device_memory(std::atoi(percent));
}

static std::unique_ptr<mr::device_memory_resource> make_resource(const char *options)
{
	if (std::strncmp(options, "arena:", 6) == 0)
		return std::make_unique<arena_resource>(device.get(), share_of_device(options + 6));
	if (std::strncmp(options, "pool:", 5) == 0) {
		const std::size_t all = share_of_device(options + 5);
		return std::make_unique<pool_resource>(device.get(), all, all);
	}
	if (std::strcmp(options, "pool") == 0)
		return std::make_unique<pool_resource>(device.get(), first_pool);
	if (std::strcmp(options, "binning") == 0) {
		pool = std::make_unique<pool_resource>(device.get(), first_pool);
		return std::make_unique<binning_resource>(pool.get(), LEAST_BIN, MOST_BIN);
	}
	if (std::strcmp(options, "async") == 0)
		return std::make_unique<mr::cuda_async_memory_resource>();
	std::fprintf(stderr, "rmm: there is no option %s\n", options);
	return nullptr;
}

static int ready(const char *options)
{
	try {
		device = std::make_unique<mr::cuda_memory_resource>();
		resource = make_resource(options);
	} catch (const std::exception &error) {
		std::fprintf(stderr, "rmm: %s\n", error.what());
	}
	return resource ? 0 : -1;
}

static void done(void)
{
	resource.reset();
	pool.reset();
	device.reset();
}

static rmm::cuda_stream_view view(void *stream)
{
	return rmm::cuda_stream_view(static_cast<cudaStream_t>(stream));
}

static void *take(std::size_t size, void *stream)
{
	try {
		return resource->allocate(size, view(stream));
	} catch (const std::exception &) {
		return nullptr;
	}
}

static void record_stream(void *pointer, void *stream)
{
	users.add(pointer, stream);
}

static void give(void *pointer, std::size_t size, void *, void *last)
{
	users.order_before(last, pointer);
	resource->deallocate(pointer, size, view(last));
}

static struct peer make_peer()
{
	struct peer made = {};
	made.open = ready;
	made.close = done;
	made.alloc = take;
	made.free = give;
	made.record_stream = record_stream;
	return made;
}

const struct peer bench_peer = make_peer();
