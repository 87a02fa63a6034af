/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools and diversions to them, captures, and the checkpoints by which graph trees restore pools.
 */
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>

#include "plug_pools.hpp"
#include "shim_allocator.hpp"
#include "shim_history.hpp"
#include "shim_source.hpp"

namespace shim {

Server Allocator::server_of(int device, MempoolId_t id)
{
	std::lock_guard<std::mutex> guard(lock_);
	auto found = servers_.find({device, id});
	return found == servers_.end() ? Server::HEAP : found->second;
}

Server Allocator::server_for(int device, cudaStream_t stream)
{
	std::unique_lock<std::mutex> guard(lock_);
	std::vector<Diversion> diversions = diversions_;
	guard.unlock();
	for (auto d = diversions.rbegin(); d != diversions.rend(); ++d)
		if (d->device == device && d->filter(stream))
			return d->server;
	return Server::HEAP;
}

void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<cca::CUDAAllocator> allocator)
{
	if (!allocator && !is_native(device, id) && !begins_native(device, id)) {
		check(trz_torch_pool_open(device, pool_id(id)));
		return;
	}
	std::shared_ptr<Source> source;
	if (allocator)
		source = std::make_shared<Source>(std::move(allocator), [this](DeviceIndex on) { return make_room(on); });
	open_pool(*native(), device, id, source);
	std::lock_guard<std::mutex> guard(lock_);
	if (source && !keeps_allocators<cca::CUDAAllocator>)
		borrowed_.push_back(source);
	servers_[{device, id}] = Server::NATIVE;
	watch(WATCH_POOLS, true);
}

void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use)
{
	/* Free memory of our pools always serves others before an allocation fails, unless graphs know its addresses. */
	if (!is_native(device, id))
		return;
	std::lock_guard<std::mutex> guard(lock_);
	if (use)
		lenders_.insert({device, id});
	else
		lenders_.erase({device, id});
	watch(WATCH_POOLS, true);
}

void Allocator::setNoSplit(DeviceIndex device, MempoolId_t id)
{
	if (is_native(device, id)) {
		set_no_split(*native_, device, id);
		return;
	}
	std::lock_guard<std::mutex> guard(lock_);
	servers_[{device, id}] = Server::HEAP_ALONE;
	watch(WATCH_POOLS, true);
}

int Allocator::getPoolUseCount(DeviceIndex device, MempoolId_t id)
{
	return is_native(device, id) ? native_->getPoolUseCount(device, id)
	                             : static_cast<int>(trz_torch_pool_references(device, pool_id(id)));
}

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter)
{
	end_broken_captures();
	if (brings_allocator(id) || begins_native(device, id))
		hand_over(device, id);
	Server server = server_of(device, id);
	if (server == Server::NATIVE) {
		native_->beginAllocateToPool(device, id, filter);
	} else {
		check(trz_torch_pool_open(device, pool_id(id)));
		trz_status status = trz_torch_pool_begin(device, pool_id(id), [filter](trz_stream stream) {
			return filter(static_cast<cudaStream_t>(stream));
		});
		if (status != TRZ_OK)
			trz_torch_pool_close(device, pool_id(id));
		check(status);
	}
	std::lock_guard<std::mutex> guard(lock_);
	diversions_.push_back({device, id, server, std::this_thread::get_id(), std::move(filter)});
}

void Allocator::forget_diversion(int device, MempoolId_t id)
{
	std::lock_guard<std::mutex> guard(lock_);
	/* As the plug does: the newest that this thread began, else the newest. */
	auto of_pool = [&](const Diversion &d) { return d.device == device && d.id == id; };
	auto mine = [&](const Diversion &d) { return of_pool(d) && d.thread == std::this_thread::get_id(); };
	auto ended = std::find_if(diversions_.rbegin(), diversions_.rend(), mine);
	if (ended == diversions_.rend())
		ended = std::find_if(diversions_.rbegin(), diversions_.rend(), of_pool);
	if (ended != diversions_.rend())
		diversions_.erase(std::next(ended).base());
}

void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t id)
{
	if (in_child())
		return;
	bool native = is_native(device, id);
	if (native)
		native_->endAllocateToPool(device, id);
	else
		check(trz_torch_pool_end(device, pool_id(id)));
	forget_diversion(device, id);
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t id)
{
	if (in_child())
		return;
	if (is_native(device, id))
		native_->releasePool(device, id);
	else
		check(trz_torch_pool_close(device, pool_id(id)));
	forget_pool(device, id);
}

/* Forgets a pool that has ended: its id may be another pool's later. */
void Allocator::forget_pool(DeviceIndex device, MempoolId_t id)
{
	if (getPoolUseCount(device, id) != 0)
		return;
	std::lock_guard<std::mutex> guard(lock_);
	servers_.erase({device, id});
	lenders_.erase({device, id});
}

void Allocator::end_broken_captures()
{
	int device;
	trz_torch_pool_id ended;
	while (!ends_broken_captures && trz_torch_pool_end_broken(&device, &ended)) {
		const MempoolId_t id = {ended.first, ended.second};
		forget_diversion(device, id);
		forget_pool(static_cast<DeviceIndex>(device), id);
	}
}

/* The native allocator, too, puts off in a capture what a capture forbids. */
void Allocator::markCaptureBegin(DeviceIndex device)
{
	std::unique_lock<std::mutex> held(lock_);
	captures_.insert(device);
	bool tell = native_used_;
	held.unlock();
	if (tell)
		mark_capture_begin(*native_, device);
}

void Allocator::markCaptureEnd(DeviceIndex device)
{
	std::unique_lock<std::mutex> held(lock_);
	captures_.extract(device);
	bool tell = native_used_;
	held.unlock();
	if (tell)
		mark_capture_end(*native_, device);
}

static std::vector<void *> live(trz_heap *heap, trz_pool *pool)
{
	std::vector<void *> list;
	size_t count = 0;
	do {
		list.resize(count);
		check_heap(trz_pool_live(heap, pool, list.data(), list.size(), &count));
	} while (count > list.size());
	list.resize(count);
	return list;
}

static trz_pool *find_pool(DeviceIndex device, MempoolId_t id)
{
	trz_pool *pool = trz_torch_pool_find(device, pool_id(id));
	TORCH_CHECK(pool, "terrazzo: device ", static_cast<int>(device), " has no pool (", id.first, ", ", id.second, ")");
	return pool;
}

struct Checkpoint : cca::AllocatorState {
	Checkpoint(DeviceIndex on, MempoolId_t of, trz_pool_state *kept) : device(on), id(of), state(kept)
	{
	}
	~Checkpoint() override
	{
		trz_pool_state_free(state);
	}
	DeviceIndex device;
	MempoolId_t id;
	trz_pool_state *state;
};

bool Allocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                         const std::unordered_set<void *> &expected)
{
	if (is_native(device, id))
		return native_->checkPoolLiveAllocations(device, id, expected);
	std::vector<void *> held = live(heap_of(device), find_pool(device, id));
	return held.size() == expected.size() &&
	       std::all_of(held.begin(), held.end(), [&](void *ptr) { return expected.count(ptr) != 0; });
}

std::shared_ptr<cca::AllocatorState> Allocator::getCheckpointState(DeviceIndex device, MempoolId_t id)
{
	if (is_native(device, id))
		return native_->getCheckpointState(device, id);
	trz_pool_state *state;
	check_heap(trz_pool_checkpoint(heap_of(device), find_pool(device, id), &state));
	return std::make_shared<Checkpoint>(device, id, state);
}

static void restore(DeviceIndex device, trz_pool *pool, const trz_pool_state *state,
                    std::shared_ptr<c10::GatheredContext> context)
{
	std::optional<Noted> note;
	if (history().on)
		note.emplace(std::move(context));
	trz_status status = trz_pool_restore(heap_of(device), pool, state);
	if (status == TRZ_NOT_READY) {
		c10::cuda::CUDAGuard guard(device);
		c10::cuda::device_synchronize();
		status = trz_pool_restore(heap_of(device), pool, state);
	}
	check_heap(status);
}

cca::CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex device, std::shared_ptr<cca::AllocatorState> state)
{
	auto *ours = dynamic_cast<Checkpoint *>(state.get());
	if (!ours)
		return native_->setCheckpointPoolState(device, std::move(state));
	trz_heap *heap = heap_of(device);
	trz_pool *pool = find_pool(device, ours->id);
	cca::CheckpointDelta delta;
	auto context = history().gather(RecordContext::STATE);
	Together hold;
	delta.ptrs_freed = live(heap, pool);
	restore(device, pool, ours->state, context);
	std::unordered_set<void *> dead(delta.ptrs_freed.begin(), delta.ptrs_freed.end());
	for (void *ptr : live(heap, pool)) {
		if (!dead.erase(ptr))
			history().hold(reinterpret_cast<uint64_t>(ptr), context);
		delta.dataptrs_allocd.push_back({ptr, ptr, &free_any, c10::Device(c10::DeviceType::CUDA, device)});
	}
	for (void *ptr : dead)
		history().let_go(reinterpret_cast<uint64_t>(ptr));
	return delta;
}

} // namespace shim
