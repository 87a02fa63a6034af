/* SPDX-License-Identifier: Apache-2.0
 *
 * Trackers of the allocator, by which NCCL, for one, registers memory.
 */
#include "shim_trackers.hpp"

#include <iterator>
#include <memory>
#include <vector>

#include "shim_allocator.hpp"

namespace shim {

/* The thread is receiving the notices of all existing mappings. */
static thread_local bool learning;

TraceEntry Mapping::entry(uint64_t address, bool comes) const
{
	TraceEntry::Action action = expandable ? comes ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP
	                                       : comes ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_FREE;
	return trace_entry(action, device, address, size, stream, pool, c10::getApproximateTime());
}

static int in_pool(const Mapping &m)
{
	return m.pool != MempoolId_t{0, 0};
}

bool Mappings::add(DeviceIndex device, uint64_t address, Mapping *out)
{
	trz_segment_info info;
	if (trz_query_mapping(heap_of(device), reinterpret_cast<void *>(address), &info) != TRZ_OK)
		return false;
	MempoolId_t pool = info.pool ? pool_id(trz_torch_pool_by_number(device, info.pool)) : MempoolId_t{0, 0};
	*out = {device, static_cast<size_t>(info.size), allocating, pool, info.expandable};
	std::lock_guard<std::mutex> guard(lock_);
	Mapping &kept = all_[address];
	in_pools_ += in_pool(*out) - in_pool(kept);
	kept = *out;
	return true;
}

bool Mappings::remove(uint64_t address, Mapping *out)
{
	std::lock_guard<std::mutex> guard(lock_);
	auto found = all_.find(address);
	if (found == all_.end())
		return false;
	*out = found->second;
	in_pools_ -= in_pool(*out);
	all_.erase(found);
	return true;
}

MempoolId_t Mappings::pool_at(uint64_t address)
{
	if (!in_pools_.load(std::memory_order_relaxed))
		return {0, 0};
	std::lock_guard<std::mutex> guard(lock_);
	auto after = all_.upper_bound(address);
	return after == all_.begin() ? MempoolId_t{0, 0} : std::prev(after)->second.pool;
}

Mappings &mappings()
{
	static Mappings *m = new Mappings;
	return *m;
}

void Allocator::tell_trackers(const TraceEntry &entry)
{
	std::shared_ptr<const std::vector<AllocatorTraceTracker>> trackers;
	{
		std::lock_guard<std::mutex> guard(lock_);
		trackers = trackers_;
	}
	for (const auto &tracker : *trackers)
		tracker(entry);
}

void Allocator::tell_trackers(TraceEntry::Action action, DeviceIndex device, void *ptr, size_t size,
                              cudaStream_t stream)
{
	auto address = reinterpret_cast<uint64_t>(ptr);
	if ((watched_ & WATCH_TRACKERS) && ptr)
		tell_trackers(trace_entry(action, device, address, size, stream, mappings().pool_at(address),
		                          c10::getApproximateTime()));
}

/* The heap calls this with no lock held, after memory has been mapped and before it is unmapped. */
void Allocator::mapping_changed(void *device, trz_map_event event, void *address, size_t)
{
	auto at = reinterpret_cast<uint64_t>(address);
	bool comes = event == TRZ_MAP;
	Mapping mapping;
	try {
		if (comes ? mappings().add(static_cast<DeviceIndex>(reinterpret_cast<intptr_t>(device)), at, &mapping)
		          : mappings().remove(at, &mapping))
			if (!learning)
				installed->tell_trackers(mapping.entry(at, comes));
	} catch (...) {
		thrown = thrown ? thrown : std::current_exception();
	}
}

/* Existing mappings are noted but not reported: PyTorch's users take a snapshot to learn of them. */
void Allocator::watch_mappings(int device, trz_heap *heap)
{
	learning = true;
	trz_status status = trz_set_map_callback(heap, mapping_changed, reinterpret_cast<void *>(intptr_t{device}));
	learning = false;
	check_heap(status);
}

void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker)
{
	if (native_used_)
		native_->attachAllocatorTraceTracker(tracker);
	std::unique_lock<std::mutex> guard(lock_);
	bool first = trackers_->empty();
	std::vector<AllocatorTraceTracker> more = *trackers_;
	more.push_back(std::move(tracker));
	trackers_ = std::make_shared<const std::vector<AllocatorTraceTracker>>(std::move(more));
	watch(WATCH_TRACKERS, true);
	guard.unlock();
	for (int device = 0; first && device < TRZ_TORCH_DEVICES; device++) {
		trz_heap *heap;
		check(trz_torch_heap(device, false, &heap));
		if (heap)
			watch_mappings(device, heap);
	}
}

} // namespace shim
