/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools that bring their own allocator stay with PyTorch's allocator ("native"): when it is used, the memory that it
 * lends to others, and the memory that it gets from the heaps.
 */
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <exception>
#include <mutex>
#include <thread>

#include "shim_allocator.hpp"
#include "shim_history.hpp"
#include "shim_source.hpp"
#include "shim_statistics.hpp"
#include "shim_trackers.hpp"

namespace shim {

/* lock_ is held. */
cca::CUDAAllocator *Allocator::use_native_locked()
{
	if (!native_used_) {
		native_->init(device_count_);
		for (const auto &tracker : *trackers_)
			native_->attachAllocatorTraceTracker(tracker);
		for (const auto &observer : observers_)
			native_->attachOutOfMemoryObserver(observer);
		for (DeviceIndex device : captures_)
			mark_capture_begin(*native_, device);
		history().tell(*native_);
		native_used_ = true;
	}
	return native_;
}

/* Whether the host may wait for the device: not in captures. If PyTorch does not announce captures, each diversion may
 * be for one. */
bool Allocator::may_wait()
{
	std::lock_guard<std::mutex> guard(lock_);
	return tells_captures<cca::CUDAAllocator> ? captures_.empty() : diversions_.empty();
}

/* Waits for all work of the device, if it may; whether it has. */
bool Allocator::await_device(DeviceIndex device)
{
	if (!may_wait())
		return false;
	const c10::cuda::CUDAGuard guard(device);
	c10::cuda::device_synchronize();
	return true;
}

/* Gives the free memory of a heap back to its device, after waiting for all of the device's work: PyTorch's own
 * allocator gives memory back by cudaFree, which waits, and so covers uses that nobody has told it of. Returns the
 * bytes. Nothing here waits for the interpreter's lock. */
size_t Allocator::give_back(DeviceIndex device, trz_heap *heap, const std::shared_ptr<c10::GatheredContext> &context)
{
	Statistics now(heap);
	waits_[device]++;
	if (now["cached_bytes.current"] + now["pending_bytes.current"] != 0 && may_wait()) {
		c10::cuda::CUDAGuard guard(device);
		c10::cuda::device_synchronize();
	}
	return trim_noted(heap, 0, context);
}

/* Gives a heap's free memory back, for a request that cannot use it in a stream's order; returns whether there was any.
 * The native allocator may be holding its locks. */
bool Allocator::make_room(DeviceIndex device)
{
	trz_heap *heap;
	size_t released = 0;
	if (trz_torch_heap(device, false, &heap) != TRZ_OK || !heap)
		return false;
	std::exception_ptr failure = thrown_in([&] { released = give_back(device, heap, nullptr); });
	if (failure)
		std::rethrow_exception(failure);
	return released != 0;
}

/* Gives back the free memory of all heaps. */
void Allocator::empty_heaps()
{
	auto context = history().gather(RecordContext::ALL);
	for (int device = 0; device < device_count_; device++) {
		trz_heap *heap;
		if (trz_torch_heap(device, false, &heap) == TRZ_OK && heap)
			give_back(static_cast<DeviceIndex>(device), heap, context);
	}
}

/* Gives back the free memory of native pools that have ended; returns whether there was any. */
bool Allocator::empty_native()
{
	if (!native_used_ || Source::inside || !may_wait())
		return false;
	auto reserved = [this] {
		int64_t sum = 0;
		for (int device = 0; device < device_count_; device++)
			sum += native_->getDeviceStats(static_cast<DeviceIndex>(device)).reserved_bytes[0].current;
		return sum;
	};
	int64_t before = reserved();
	empty_cache(*native_, {0, 0});
	return reserved() < before;
}

void *Allocator::keep_native(void *ptr, DeviceIndex device)
{
	std::lock_guard<std::mutex> held(lock_);
	if (ptr)
		native_pointers_.emplace(ptr, device);
	return ptr;
}

bool Allocator::is_of_native(void *ptr)
{
	std::lock_guard<std::mutex> held(lock_);
	return native_pointers_.count(ptr) != 0;
}

/* The native allocator takes note only of memory whose deleter is its own; tensors have ours. */
void Allocator::record_native(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream)
{
	struct Lent : c10::DataPtr {
		using c10::DataPtr::DataPtr;
		~Lent()
		{
			release_context();
		}
	} const lent(ptr.get(), ptr.get(), native_->raw_deleter(), ptr.device());
	native_->recordStream(lent, stream);
}

/* Serves a request from the free memory of native pools meant for that, when the heap has none. */
void *Allocator::lend(size_t size, DeviceIndex device, cudaStream_t stream)
{
	std::unique_lock<std::mutex> guard(lock_);
	auto lenders = lenders_;
	guard.unlock();
	for (const auto &[on, id] : lenders)
		if (void *ptr = on == device ? lend(id, size, device, stream) : nullptr) {
			guard.lock();
			lent_[device]++;
			return ptr;
		}
	return nullptr;
}

void *Allocator::lend(MempoolId_t id, size_t size, DeviceIndex device, cudaStream_t stream)
{
	constexpr size_t SMALL = 1 << 20;  /* the native allocator keeps blocks up to this size separately */
	bool fits = false;
	for (const auto &s : snapshot_of(*native_, id, false).segments)
		for (const auto &b : s.blocks)
			fits |= s.device == device && s.owner_private_pool_id == id && s.stream == stream &&
			        s.is_large == (size > SMALL) && !b.active && b.size >= size;
	if (!fits)
		return nullptr;
	void *ptr = nullptr;
	c10::cuda::CUDAGuard guard(device);
	auto thread = std::this_thread::get_id();
	native_->beginAllocateToPool(device, id, [thread](cudaStream_t) { return thread == std::this_thread::get_id(); });
	Source::only_cached = true;
	try {
		ptr = native_->raw_alloc_with_stream(size, stream);
	} catch (const c10::OutOfMemoryError &) {
		/* another thread has taken it */
	}
	Source::only_cached = false;
	native_->endAllocateToPool(device, id);
	native_->releasePool(device, id);
	return keep_native(ptr, device);
}

/* Whether another library stands before the runtime's own cudaMalloc. */
static bool malloc_is_replaced()
{
	cudaError_t (*found)(void **, size_t) = cudaMalloc;
	Dl_info malloc_is_in, runtime;
	return dladdr(reinterpret_cast<void *>(found), &malloc_is_in) != 0 &&
	       dladdr(reinterpret_cast<void *>(cudaRuntimeGetVersion), &runtime) != 0 &&
	       malloc_is_in.dli_fbase != runtime.dli_fbase;
}

/* Whether the native allocator serves a new pool though it brings no allocator: such a library gets to see the memory
 * of pools, which some programs make for that (torch_memory_saver takes it from the device while it is not needed). */
bool Allocator::begins_native(DeviceIndex device, MempoolId_t id)
{
	static const bool replaced = malloc_is_replaced();
	return replaced && !is_native(device, id) && trz_torch_pool_references(device, pool_id(id)) == 0;
}

/* Hands one of our pools, from which nothing has been allocated yet, to PyTorch's allocator, with its references. */
void Allocator::hand_over(DeviceIndex device, MempoolId_t id)
{
	if (is_native(device, id))
		return;
	unsigned references = trz_torch_pool_references(device, pool_id(id));
	for (unsigned i = 0; i < references; i++)
		check(trz_torch_pool_close(device, pool_id(id)));
	for (unsigned i = 0; i < references; i++)
		open_pool(*native(), device, id, nullptr);
	std::lock_guard<std::mutex> guard(lock_);
	servers_[{device, id}] = Server::NATIVE;
	watch(WATCH_POOLS, true);
}

} // namespace shim
