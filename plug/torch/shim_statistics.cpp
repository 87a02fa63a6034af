/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of a heap in PyTorch's form, and the allocator's: with its own counts, those of pools, and those of memory
 * that PyTorch's own allocator has served.
 */
#include "shim_statistics.hpp"

#include <algorithm>
#include <map>

#include "shim_allocator.hpp"

namespace shim {

Statistics::Statistics(trz_heap *heap)
{
	size_t count;
	check_heap(trz_stats(heap, nullptr, 0, &count));
	values_.resize(count);
	check_heap(trz_stats(heap, values_.data(), count, &count));
	static const index *made = make_index(values_);
	index_ = made;
}

int64_t Statistics::operator[](const std::string &name) const
{
	auto found = index_->find(name);
	return found == index_->end() ? 0 : static_cast<int64_t>(values_[found->second].value);
}

const Statistics::index *Statistics::make_index(const std::vector<trz_stat_value> &values)
{
	auto *made = new index;
	for (size_t i = 0; i < values.size(); i++)
		made->emplace(values[i].name, i);
	return made;
}

/* In the order of PyTorch's StatType. */
constexpr const char *POOLS[] = {"all", "small_pool", "large_pool"};

DeviceStats read_stats(const Statistics &from)
{
	DeviceStats stats;
	auto flow = [&](StatArray &to, const std::string &name) {
		for (size_t i = 0; i < to.size(); i++) {
			std::string prefix = name + "." + POOLS[i] + ".";
			to[i].current = from[prefix + "current"];
			to[i].peak = from[prefix + "peak"];
			to[i].allocated = from[prefix + "allocated"];
			to[i].freed = from[prefix + "freed"];
		}
	};
	flow(stats.allocation, "allocation");
	flow(stats.segment, "segment");
	flow(stats.allocated_bytes, "allocated_bytes");
	flow(stats.reserved_bytes, "reserved_bytes");
	flow(stats.requested_bytes, "requested_bytes");
	/* Pending memory has been freed, but is still active. */
	auto active = [&](StatArray &to, const StatArray &held, const std::string &name) {
		for (size_t i = 0; i < to.size(); i++) {
			std::string prefix = name + "." + POOLS[i] + ".";
			to[i].current = from[prefix + "current"];
			to[i].peak = from[prefix + "peak"];
			to[i].allocated = held[i].allocated;
			to[i].freed = to[i].allocated - to[i].current;
		}
	};
	active(stats.active, stats.allocation, "active");
	active(stats.active_bytes, stats.allocated_bytes, "active_bytes");
	stats.num_alloc_retries = from["num_alloc_retries"];
	stats.num_ooms = from["num_ooms"];
	stats.num_device_alloc = from["num_device_alloc"];
	stats.num_device_free = from["num_device_free"];
	return stats;
}

void subtract(DeviceStats &stats, const DeviceStats &base)
{
	using array = StatArray DeviceStats::*;
	for (array member : {&DeviceStats::allocation, &DeviceStats::segment, &DeviceStats::active,
	                     &DeviceStats::allocated_bytes, &DeviceStats::reserved_bytes,
	                     &DeviceStats::active_bytes, &DeviceStats::requested_bytes})
		for (size_t i = 0; i < (stats.*member).size(); i++) {
			(stats.*member)[i].allocated -= (base.*member)[i].allocated;
			(stats.*member)[i].freed -= (base.*member)[i].freed;
		}
	stats.num_alloc_retries -= base.num_alloc_retries;
	stats.num_ooms -= base.num_ooms;
	stats.num_sync_all_streams -= base.num_sync_all_streams;
	set_rejections(stats, rejections_of(stats) - rejections_of(base));
	stats.num_device_alloc -= base.num_device_alloc;
	stats.num_device_free -= base.num_device_free;
}

void add(DeviceStats &stats, const DeviceStats &other)
{
	using array = StatArray DeviceStats::*;
	for (array member : {&DeviceStats::allocation, &DeviceStats::segment, &DeviceStats::active,
	                     &DeviceStats::allocated_bytes, &DeviceStats::reserved_bytes,
	                     &DeviceStats::active_bytes, &DeviceStats::requested_bytes})
		for (size_t i = 0; i < (stats.*member).size(); i++) {
			(stats.*member)[i].current += (other.*member)[i].current;
			(stats.*member)[i].peak += (other.*member)[i].peak;
			(stats.*member)[i].allocated += (other.*member)[i].allocated;
			(stats.*member)[i].freed += (other.*member)[i].freed;
		}
	stats.num_device_alloc += other.num_device_alloc;
	stats.num_device_free += other.num_device_free;
	add_pools_of(stats, other);
}

/* The heap asks how far the streams are only when it needs memory; PyTorch's own allocator asks at each allocation, so
 * its readers take what stays active for what is in use. */
static Statistics settled_statistics(trz_heap *heap)
{
	Statistics now(heap);
	if (now["pending.current"] == 0)
		return now;
	trz_poll(heap);  /* a heap that cannot ask still has figures */
	return Statistics(heap);
}

DeviceStats Allocator::getDeviceStats(DeviceIndex device)
{
	trz_heap *heap = open_heap_of(device);
	DeviceStats stats = heap ? read_stats(settled_statistics(heap)) : DeviceStats();
	stats.max_split_size = -1;  /* PyTorch's word for none */
	std::unique_lock<std::mutex> guard(lock_);
	add_own_counts(stats, device);
	auto base = bases_.find(device);
	if (base != bases_.end())
		subtract(stats, base->second);
	guard.unlock();
	if (heap)
		add_pools(stats, heap, device);
	if (native_used_)
		add(stats, native_->getDeviceStats(device));
	return stats;
}

/* Adds counts that the heap does not have. lock_ is held. */
void Allocator::add_own_counts(DeviceStats &stats, DeviceIndex device)
{
	stats.num_ooms += outsized_[device] - rejections_[device] - lent_[device];
	set_rejections(stats, rejections_[device]);
	stats.num_sync_all_streams = waits_[device];
}

/* Adds the newest figures of all pools that readers have seen, ended ones included; the heap itself keeps none. */
void Allocator::add_pools(DeviceStats &stats, trz_heap *heap, DeviceIndex device)
{
	std::map<MempoolId_t, int64_t> now;
	std::vector<trz_torch_pool_id> ids(trz_torch_pool_list(device, nullptr, 0));
	ids.resize(std::min(ids.size(), trz_torch_pool_list(device, ids.data(), ids.size())));
	for (trz_torch_pool_id id : ids) {
		trz_pool_info info;
		trz_pool *pool = trz_torch_pool_find(device, id);
		if (pool && trz_pool_query(heap, pool, &info) == TRZ_OK)
			now[pool_id(id)] = static_cast<int64_t>(info.reserved);
	}
	std::lock_guard<std::mutex> guard(lock_);
	auto &flows = pool_flows_[device];
	for (const auto &[id, reserved] : now)
		flows.try_emplace(id);
	for (auto &[id, flow] : flows) {
		auto found = now.find(id);
		int64_t change = (found == now.end() ? 0 : found->second) - flow.current;
		if (change > 0)
			flow.increase(static_cast<size_t>(change));
		else if (change < 0)
			flow.decrease(static_cast<size_t>(-change));
		set_pool(stats, id, flow);
	}
}

void Allocator::resetAccumulatedStats(DeviceIndex device)
{
	trz_heap *heap = open_heap_of(device);
	if (native_used_)
		native_->resetAccumulatedStats(device);
	std::lock_guard<std::mutex> guard(lock_);
	if (heap) {
		bases_[device] = read_stats(Statistics(heap));
		add_own_counts(bases_[device], device);
	}
	for (auto &[id, flow] : pool_flows_[device])
		flow.reset_accumulated();
}

void Allocator::resetPeakStats(DeviceIndex device)
{
	trz_heap *heap = open_heap_of(device);
	if (heap)
		check_heap(trz_reset_peaks(heap));
	if (native_used_)
		native_->resetPeakStats(device);
	std::lock_guard<std::mutex> guard(lock_);
	for (auto &[id, flow] : pool_flows_[device])
		flow.reset_peak();
}

} // namespace shim
