/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots: of the heaps, and of memory that PyTorch's own allocator serves.
 */
#include "shim_snapshots.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <shared_mutex>

#include "shim_allocator.hpp"
#include "shim_history.hpp"
#include "shim_statistics.hpp"

namespace shim {

MempoolId_t Walk::id_of(unsigned number) const
{
	return number ? pool_id(trz_torch_pool_by_number(device, number)) : MempoolId_t{0, 0};
}

void Walk::segment(const trz_segment_info &s)
{
	MempoolId_t id = id_of(s.pool);
	in_segment = all || id == wanted;
	if (!in_segment)
		return;
	SegmentInfo info;
	info.device = device;
	info.address = s.address;
	info.total_size = s.size;
	info.is_large = !s.small;
	info.is_expandable = s.expandable;
	info.owner_private_pool_id = id;
	segments.push_back(std::move(info));
}

void Walk::block(const trz_block_info &b)
{
	if (!in_segment)
		return;
	auto &s = segments.back();
	BlockInfo info;
	info.size = b.size;
	info.requested_size = b.requested;
	info.allocated = b.state == TRZ_BLOCK_HELD;
	info.active = b.state != TRZ_BLOCK_FREE;
	if (info.active)
		info.context_when_allocated = history().held(b.address);
	/* A slot is longer than its counted bytes. */
	size_t counted = info.allocated ? counted_bytes(b.requested) : b.size;
	s.requested_size += info.active ? b.requested : 0;
	s.allocated_size += info.allocated ? counted : 0;
	s.active_size += info.active ? counted : 0;
	s.blocks.push_back(std::move(info));
}

void Walk::add_note(TraceEntry &entry, const trz_event_info &e)
{
	uint64_t number = e.frames;
	if (entry.action_ == TraceEntry::FREE_REQUESTED)
		freed[e.address] = number;
	else if (auto found = freed.find(e.address); entry.action_ == TraceEntry::FREE_COMPLETED && found != freed.end())
		number = found->second;
	set_note(entry, "N/A", e.tag);
	history().complete(entry, number);
	if (entry.action_ == TraceEntry::SEGMENT_MAP || entry.action_ == TraceEntry::SEGMENT_ALLOC)
		mapped[e.address] = entry.context_;
	else if (entry.action_ == TraceEntry::SEGMENT_UNMAP || entry.action_ == TraceEntry::SEGMENT_FREE)
		if (!entry.context_)
			entry.context_ = mapped[e.address];
}

void Walk::event(const trz_event_info &e)
{
	TraceEntry entry = trace_entry(parseTraceEntryAction(e.action), device, e.address, e.size, e.stream,
	                               id_of(e.pool));
	add_note(entry, e);
	entry.time_.t_ = static_cast<time_t>(e.time_ns / 1000);
	if (!history().skips(e.action))
		entries.push_back(std::move(entry));
}

void Walk::run(trz_heap *heap, bool traces)
{
	trz_visitor v = {};
	v.user = this;
	v.segment = [](void *user, const trz_segment_info *s) { static_cast<Walk *>(user)->segment(*s); };
	v.block = [](void *user, const trz_block_info *b) { static_cast<Walk *>(user)->block(*b); };
	if (traces)
		v.event = [](void *user, const trz_event_info *e) { static_cast<Walk *>(user)->event(*e); };
	check_heap(trz_walk(heap, &v));
}

Walk Allocator::walk(DeviceIndex device, MempoolId_t id, bool all, bool traces)
{
	Walk w = {};
	w.device = device;
	w.wanted = id;
	w.all = all;
	trz_heap *heap;
	check(trz_torch_heap(device, false, &heap));
	if (heap)
		w.run(heap, traces);
	return w;
}

/* Adds the memory and the events of PyTorch's own allocator inside. */
static void add_native(cca::SnapshotInfo &info, cca::SnapshotInfo rest)
{
	std::move(rest.segments.begin(), rest.segments.end(), std::back_inserter(info.segments));
	std::sort(info.segments.begin(), info.segments.end(),
	          [](const auto &a, const auto &b) { return a.address < b.address; });
	for (size_t i = 0; i < rest.device_traces.size() && i < info.device_traces.size(); i++) {
		auto &to = info.device_traces[i];
		std::move(rest.device_traces[i].begin(), rest.device_traces[i].end(), std::back_inserter(to));
		std::stable_sort(to.begin(), to.end(), [](const auto &a, const auto &b) { return a.time_.t_ < b.time_.t_; });
	}
}

cca::SnapshotInfo Allocator::snapshot(MempoolId_t id, bool include_traces)
{
	cca::SnapshotInfo info;
	bool all = id == MempoolId_t{0, 0};
	std::unique_lock<std::shared_mutex> alone(history().gate);
	info.config_metadata = config_info();
	info.external_annotations = history().sections();
	for (int device = 0; device < device_count_; device++) {
		Walk w = walk(static_cast<DeviceIndex>(device), id, all, include_traces);
		if (include_traces)
			history().add_annotations(w.entries, static_cast<DeviceIndex>(device));
		std::move(w.segments.begin(), w.segments.end(), std::back_inserter(info.segments));
		info.device_traces.push_back(std::move(w.entries));
	}
	if (native_used_)
		add_native(info, snapshot_of(*native_, id, include_traces));
	for (auto &entries : info.device_traces)
		history().keep_newest(entries);
	return info;
}

std::vector<StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex device)
{
	std::vector<StreamSegmentSize> sizes;
	for (const auto &s : walk(device, {0, 0}, true, false).segments)
		if (s.is_expandable)
			sizes.emplace_back(nullptr, !s.is_large, s.total_size);
	return sizes;
}

} // namespace shim
