/* SPDX-License-Identifier: Apache-2.0
 *
 * RMM's memory resources, of the last version that is all headers. Option: "pool" (grows from 1 GiB; what is missing
 * comes from cudaMalloc), "arena" (as RMM sizes it by itself) or "async" (cudaMallocAsync by way of RMM).
 */
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <unordered_map>

#include "../../peers/bench_peer.h"
#include "stream_users.h"

namespace mr = rmm::mr;

static std::unique_ptr<mr::cuda_memory_resource> device;
static std::unique_ptr<mr::device_memory_resource> resource;
static std::unordered_map<void *, std::size_t> sizes;
static stream_users users;

static int ready(const char *options)
{
	try {
		device = std::make_unique<mr::cuda_memory_resource>();
		if (std::strcmp(options, "pool") == 0)
			resource = std::make_unique<mr::pool_memory_resource<mr::cuda_memory_resource>>(device.get(),
			                                                                                std::size_t(1) << 30);
		else if (std::strcmp(options, "arena") == 0)
			resource = std::make_unique<mr::arena_memory_resource<mr::cuda_memory_resource>>(device.get());
		else
			resource = std::make_unique<mr::cuda_async_memory_resource>();
	} catch (const std::exception &error) {
		std::fprintf(stderr, "rmm: %s\n", error.what());
		return -1;
	}
	return 0;
}

static void done(void)
{
	resource.reset();
	device.reset();
}

static rmm::cuda_stream_view view(void *stream)
{
	return rmm::cuda_stream_view(static_cast<cudaStream_t>(stream));
}

/* RMM's deallocation is told the size: its users keep it in their containers. */
static void *take(std::size_t size, void *stream)
{
	try {
		void *pointer = resource->allocate(size, view(stream));
		sizes[pointer] = size;
		return pointer;
	} catch (const std::exception &) {
		return nullptr;
	}
}

static void record_stream(void *pointer, void *stream)
{
	users.add(pointer, stream);
}

static void give(void *pointer, void *, void *last)
{
	auto found = sizes.find(pointer);
	users.order_before(last, pointer);
	resource->deallocate(pointer, found->second, view(last));
	sizes.erase(found);
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
