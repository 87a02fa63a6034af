/* SPDX-License-Identifier: Apache-2.0
 *
 * A tracker of PyTorch's allocator, as NCCL's registration of memory is one, which writes down what it is told.
 */
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>

using c10::cuda::CUDACachingAllocator::TraceEntry;

static std::mutex lock;
static std::string told;
static void (*inside)();
static int failures;  /* so many more mappings that come or go are refused */

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
		told += std::string(name_of(e.action_)) + " " + std::to_string(e.device_) + " " + std::to_string(e.addr_) +
		        " " + std::to_string(e.size_) + " " + std::to_string(reinterpret_cast<uintptr_t>(e.stream_)) + " " +
		        std::to_string(e.mempool_.first) + " " + std::to_string(e.mempool_.second) + "\n";
	}
	bool mapping = e.action_ == TraceEntry::SEGMENT_MAP || e.action_ == TraceEntry::SEGMENT_UNMAP;
	if (mapping && failures > 0) {
		failures--;
		throw std::runtime_error("the card refuses");
	}
	if (inside)
		inside();
}

extern "C" __attribute__((visibility("default"))) void tracker_fail(int count)
{
	failures = count;
}

/* Allocations are diverted by a filter that throws, between the call with `on` and that without. */
extern "C" __attribute__((visibility("default"))) void tracker_divert(bool on)
{
	auto *allocator = c10::cuda::CUDACachingAllocator::get();
	if (on)
		allocator->beginAllocateToPool(0, {77, 7}, [](cudaStream_t) -> bool {
			throw std::runtime_error("no such stream");
		});
	else
		allocator->endAllocateToPool(0, {77, 7});
}

/* The memory that an allocation lies in: its first byte, and *size; NULL: it is not one. */
extern "C" __attribute__((visibility("default"))) void *tracker_base(void *ptr, size_t *size)
{
	try {
		return c10::cuda::CUDACachingAllocator::getBaseAllocation(ptr, size);
	} catch (const c10::Error &) {
		return nullptr;
	}
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
