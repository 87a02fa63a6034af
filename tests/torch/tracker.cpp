/* SPDX-License-Identifier: Apache-2.0
 *
 * A tracker of PyTorch's allocator, as NCCL's registration of memory is one, which writes down what it is told.
 */
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstring>
#include <mutex>
#include <string>

using c10::CachingDeviceAllocator::TraceEntry;

static std::mutex lock;
static std::string told;
static void (*inside)();

static const char *name_of(TraceEntry::Action action)
{
	switch (action) {
	case TraceEntry::ALLOC:
		return "alloc";
	case TraceEntry::FREE_REQUESTED:
		return "free_requested";
	case TraceEntry::FREE_COMPLETED:
		return "free_completed";
	case TraceEntry::SEGMENT_ALLOC:
		return "segment_alloc";
	case TraceEntry::SEGMENT_FREE:
		return "segment_free";
	case TraceEntry::SEGMENT_MAP:
		return "segment_map";
	case TraceEntry::SEGMENT_UNMAP:
		return "segment_unmap";
	default:
		return "other";
	}
}

static void write_down(const TraceEntry &e)
{
	{
		std::lock_guard<std::mutex> guard(lock);
		told += std::string(name_of(e.action_)) + " " + std::to_string(e.device_) + " " + std::to_string(e.addr_) + " " +
		        std::to_string(e.size_) + " " + std::to_string(reinterpret_cast<uintptr_t>(e.stream_)) + " " +
		        std::to_string(e.mempool_.first) + " " + std::to_string(e.mempool_.second) + "\n";
	}
	if (inside)
		inside();
}

/* `callback` is called after each entry, where it is not NULL. */
extern "C" __attribute__((visibility("default"))) void tracker_attach(void (*callback)())
{
	inside = callback;
	c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(write_down);
}

/* What has been told since the last call: "ACTION DEVICE ADDRESS SIZE STREAM POOL POOL\n" for each entry, as a text to
 * be freed with free(). */
extern "C" __attribute__((visibility("default"))) char *tracker_take()
{
	std::lock_guard<std::mutex> guard(lock);
	char *text = strdup(told.c_str());
	told.clear();
	return text;
}
