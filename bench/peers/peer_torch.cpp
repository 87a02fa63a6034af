/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch's CUDACachingAllocator, from an installed wheel, by its C++ interface. Its options are those of
 * PYTORCH_ALLOC_CONF, which the benchmark sets before it starts.
 */
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#define HAS_PEER_CACHE 1
#endif

#include <cstdio>
#include <exception>

#include "bench_peer.h"

/* No header of the wheel declares this. */
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*has)(DeviceIndex));
}

namespace cache = c10::cuda::CUDACachingAllocator;

static bool has_context(c10::DeviceIndex)
{
	return true;
}

/* What ATen does when CUDA is first used. */
static int open_cache(const char *)
{
	try {
		c10::cuda::_internal::setHasPrimaryContext(has_context);
		cache::init(1);
#if HAS_PEER_CACHE
		c10::cuda::detail::init_p2p_access_cache(1);
#endif
	} catch (const std::exception &error) {
		std::fprintf(stderr, "torch: %s\n", error.what());
		return -1;
	}
	return 0;
}

static void empty_cache()
{
	cache::emptyCache();
}

static void *take(size_t size, void *stream)
{
	try {
		return cache::raw_alloc_with_stream(size, static_cast<cudaStream_t>(stream));
	} catch (const c10::OutOfMemoryError &) {
		return nullptr;
	}
}

/* The allocator accepts only pointers that it has made, so this one is wrapped as such for the call. */
static void record_stream(void *pointer, void *stream)
{
	c10::DataPtr data(pointer, pointer, cache::get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
	cache::recordStream(data, c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), 0));
	data.release_context();
}

static void give(void *pointer, size_t, void *own, void *last)
{
	if (own != last)
		record_stream(pointer, last);
	cache::raw_delete(pointer);
}

static struct peer make_peer()
{
	struct peer made = {};
	made.open = open_cache;
	made.close = empty_cache;
	made.alloc = take;
	made.free = give;
	made.record_stream = record_stream;
	made.empty_cache = empty_cache;
	return made;
}

const struct peer bench_peer = make_peer();
