/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation and free, and their failures: the long way, with notes, trackers, profilers and pools. The short way is in
 * the class. Also thin wrappers of the plug: limits, the cache, observers.
 */
#include "shim_allocator.hpp"

#include <c10/cuda/CUDAGuard.h>

#include <exception>
#include <utility>

#include "shim_history.hpp"
#include "shim_source.hpp"
#include "shim_statistics.hpp"
#include "shim_trackers.hpp"

namespace shim {

Allocator *Allocator::installed;

Allocator::Allocator(cca::CUDAAllocator *native)
	: Newest(no_alloc, no_free), native_(native)
{
	initialized_ = true;
}

void Allocator::init(int device_count)
{
	device_count_ = device_count;
	trz_torch_init(device_count);
}

void Allocator::take_over()
{
	installed = this;
	trz_torch_on_open(opened);
	c10::SetAllocator(c10::DeviceType::CUDA, this, 255);
}

std::string Allocator::name()
{
	return "terrazzo";
}

/* Calls the callbacks that PyTorch's own allocator calls when memory is short, to collect memory that PyTorch holds
 * back. That allocator also waits for the device before it gives up; here that is worthwhile only if there is enough
 * memory, kept apart by unfinished work. */
bool Allocator::collect(void *device, const trz_oom_info *info)
{
	bool freed = false;
	try {
		for (const auto &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
			freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
		installed->end_broken_captures();
		freed |= installed->empty_native();
		if (info->missing == 0)
			freed |= installed->await_device(static_cast<DeviceIndex>(reinterpret_cast<intptr_t>(device)));
	} catch (const std::exception &e) {
		TORCH_WARN("terrazzo: memory that PyTorch holds back could not be collected: ", e.what());
	}
	return freed;
}

/* Sets up a heap that has just been opened. The thread that opens it holds a lock, so no exception may get out: better
 * a heap without a history than none. */
void Allocator::opened(int device, trz_heap *heap)
{
	try {
		check_heap(trz_set_oom_callback(heap, collect, reinterpret_cast<void *>(static_cast<intptr_t>(device))));
		if (installed->watched_ & WATCH_TRACKERS)
			watch_mappings(device, heap);
		history().join(device, heap);
	} catch (const std::exception &e) {
		TORCH_WARN("terrazzo: history and callbacks are incomplete on device ", device, ": ", e.what());
	}
}

/* With the option throw_on_cudamalloc_oom, a request that only the limit has refused counts as a rejection, not as an
 * out-of-memory error. */
void Allocator::reject(size_t size, DeviceIndex device, const trz_oom_info &info, const std::string &text)
{
	std::vector<OomRejectionObserver> observers;
	{
		std::lock_guard<std::mutex> guard(lock_);
		rejections_[device]++;
		observers = rejection_observers_;
	}
	for (const auto &observer : observers)
		observer(device, size, info.allocated, info.device_total);
	TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. ", text);
}

void Allocator::refuse(trz_status status, size_t size, DeviceIndex device)
{
	TORCH_CHECK(trz_torch_is_want_of_memory(status), "terrazzo: ", trz_torch_last_error());
	trz_heap *heap = heap_of(device);
	if (status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT)
		trz_print_failure(heap);  /* and the error's text says what the report says */
	std::string text = trz_torch_oom_text(device, size);
	TORCH_CHECK_WITH(OutOfMemoryError, size < TRZ_TORCH_TOO_LARGE, "CUDA out of memory. ", text);
	Statistics now(heap);
	trz_oom_info info;
	trz_torch_oom_info(device, size, &info);
	if (status == TRZ_ERROR_LIMIT && rejects_at_limit())
		reject(size, device, info, text);
	c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), now["allocated_bytes.all.current"],
	                                 now["reserved_bytes.all.current"], c10::Device(c10::DeviceType::CUDA, device));
	std::vector<cca::OutOfMemoryObserver> observers;
	{
		std::lock_guard<std::mutex> guard(lock_);
		observers = observers_;
		outsized_[device] += status == TRZ_ERROR_SIZE;
	}
	for (const auto &observer : observers)
		observer(device, size, info.limit ? info.limit : info.device_total, info.device_free);
	/* PyTorch's users and their programs look for the first words. */
	TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. ", text);
}

static trz_status try_alloc(const Wanted &wanted, bool alone, void **ptr)
{
	if (wanted.address)
		return trz_torch_try_alloc_at(wanted.size, wanted.device, wanted.stream, wanted.address, ptr);
	return alone ? trz_torch_try_alloc_alone(wanted.size, wanted.device, wanted.stream, ptr)
	             : trz_torch_try_alloc(wanted.size, wanted.device, wanted.stream, ptr);
}

trz_status Allocator::alloc_noted(const Wanted &wanted, bool alone, void **ptr)
{
	if (!history().on)
		return try_alloc(wanted, alone, ptr);
	heap_of(wanted.device);  /* so that its history begins before its first note */
	auto context = history().gather(RecordContext::STATE);
	Together hold;
	Noted note(context);
	trz_status status = try_alloc(wanted, alone, ptr);
	if (status == TRZ_OK && *ptr && history().on)
		history().hold(reinterpret_cast<uint64_t>(*ptr), std::move(context));
	if (status == TRZ_ERROR_SIZE && wanted.size < TRZ_TORCH_TOO_LARGE)
		history().note_outsized(wanted.device, wanted.size, wanted.stream, note.number);
	return status;
}

void *Allocator::alloc_watched(const Wanted &wanted)
{
	auto [size, device, stream, address] = wanted;
	void *ptr = nullptr;
	Server server = watched_ & WATCH_POOLS ? server_for(device, stream) : Server::HEAP;
	if (server == Server::NATIVE) {
		c10::cuda::CUDAGuard guard(device);
		return keep_native(native_->raw_alloc_with_stream(size, stream), device);
	}
	cudaStream_t outer = std::exchange(allocating, stream);  /* trackers may allocate */
	trz_status status = TRZ_OK;
	trz_hold_reports(true);  /* a native pool may yet lend the memory */
	std::exception_ptr failure = thrown_in([&] {
		status = alloc_noted(wanted, server == Server::HEAP_ALONE, &ptr);
	});
	trz_hold_reports(false);
	allocating = outer;
	/* The words of PyTorch's allocator, which programs may look for. */
	TORCH_CHECK(status == TRZ_OK || !address, "Could not allocate CUDA storage at exact address ", address,
	            ": terrazzo: ", trz_torch_last_error());
	if (trz_torch_is_want_of_memory(status))
		if (void *lent = lend(size, device, stream))
			return lent;
	if (status != TRZ_OK)
		refuse(status, size, device);
	if (failure) {
		free_noted(ptr, device);
		std::rethrow_exception(failure);
	}
	tell_profiler(ptr, static_cast<int64_t>(counted_bytes(size)), device);
	tell_trackers(TraceEntry::ALLOC, device, ptr, size, stream);
	return traced(ptr);
}

void Allocator::free_any(void *ptr)
{
	if (!ptr)
		return;
	unsigned watched = installed->watched_;
	if (C10_UNLIKELY((watched & ~WATCH_HELD) || c10::memoryProfilingEnabled())) {
		installed->free_watched(ptr);
		return;
	}
	trace_free(ptr);
	if (C10_UNLIKELY(watched && !in_child()))
		history().let_go(reinterpret_cast<uint64_t>(ptr));
	trz_torch_free(ptr, 0, hint(), nullptr);
}

void Allocator::free_noted(void *ptr, DeviceIndex device)
{
	if (!history().on) {
		history().let_go(reinterpret_cast<uint64_t>(ptr));
		trz_torch_free(ptr, 0, device, nullptr);
		return;
	}
	auto context = history().gather(RecordContext::ALL);
	Together hold;
	auto made = history().let_go(reinterpret_cast<uint64_t>(ptr));
	Noted note(context ? std::move(context) : std::move(made));
	trz_torch_free(ptr, 0, device, nullptr);
}

void Allocator::free_watched(void *ptr)
{
	if (in_child())
		return;
	if (native_used_) {
		std::unique_lock<std::mutex> held(lock_);
		if (native_pointers_.erase(ptr)) {
			held.unlock();
			native_->raw_delete(ptr);
			return;
		}
	}
	trace_free(ptr);
	trz_pointer_info info = {};
	trz_heap *owner = trz_torch_owner(ptr);
	if (owner)
		trz_query(owner, ptr, &info);
	auto device = static_cast<DeviceIndex>(info.device);
	if (owner)
		tell_trackers(TraceEntry::FREE_REQUESTED, device, ptr, info.requested, static_cast<cudaStream_t>(info.stream));
	free_noted(ptr, device);
	tell_profiler(ptr, -static_cast<int64_t>(counted_bytes(info.requested)), device);
	if (!isEnabled())
		trim_noted(nullptr, 0, history().gather(RecordContext::ALL));
}

void Allocator::tell_profiler(void *ptr, int64_t size, DeviceIndex device)
{
	if (!ptr || !c10::memoryProfilingEnabled())
		return;
	Statistics now(heap_of(device));
	c10::reportMemoryUsageToProfiler(ptr, size, now["allocated_bytes.all.current"], now["reserved_bytes.all.current"],
	                                 c10::Device(c10::DeviceType::CUDA, device));
}

c10::DataPtr Allocator::allocate(size_t size)
{
	DeviceIndex device = c10::cuda::current_device();
	void *ptr = alloc(size, device, c10::cuda::getCurrentCUDAStream(device).stream());
	return {ptr, ptr, &free_any, c10::Device(c10::DeviceType::CUDA, device)};
}

c10::DataPtr Allocator::allocateWithAddress(size_t size, void *address)
{
	DeviceIndex device = c10::cuda::current_device();
	cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
	if (server_for(device, stream) == Server::NATIVE)
		return allocate_with_address(*native_, size, address);
	void *ptr = alloc_watched({size, device, stream, address});
	return {ptr, ptr, &free_any, c10::Device(c10::DeviceType::CUDA, device)};
}

c10::DeleterFnPtr Allocator::raw_deleter() const
{
	return &free_any;
}

void *Allocator::raw_alloc(size_t size)
{
	DeviceIndex device = c10::cuda::current_device();
	return alloc(size, device, c10::cuda::getCurrentCUDAStream(device).stream());
}

void *Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream)
{
	return alloc(size, c10::cuda::current_device(), stream);
}

/* False for an address inside an allocation, too. */
bool Allocator::is_live(void *ptr)
{
	if (native_used_ && is_of_native(ptr))
		return true;
	trz_pointer_info info;
	trz_heap *owner = trz_torch_owner(ptr);
	return owner && trz_query(owner, ptr, &info) == TRZ_OK && info.base == ptr;
}

/* Deleters of tensors must not throw; this is called by its name. The words are those of PyTorch's allocator. */
void Allocator::raw_delete(void *ptr)
{
	TORCH_CHECK(!ptr || in_child() || is_live(ptr), "invalid device pointer: ", ptr);
	free_any(ptr);
}

void Allocator::recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream)
{
	if (!ptr.get())
		return;
	if (trz_torch_owner(ptr.get()))
		trz_torch_record_stream(ptr.get(), stream.stream());
	else if (native_used_ && is_of_native(ptr.get()))
		record_native(ptr, stream);
}

void *Allocator::getBaseAllocation(void *ptr, size_t *size)
{
	if (native_used_ && is_of_native(ptr))
		return native_->getBaseAllocation(ptr, size);
	TORCH_CHECK(trz_torch_owner(ptr), "invalid device pointer: ", ptr);
	return trz_torch_base_alloc(ptr, size);
}

double Allocator::getMemoryFraction(DeviceIndex device)
{
	open_heap_of(device);  /* throws if there is no such device */
	return trz_torch_get_fraction(device);
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex device)
{
	open_heap_of(device);  /* throws if there is no such device */
	check(trz_torch_set_fraction(device, fraction));
}

void Allocator::emptyCache(MempoolId_t id)
{
	/* PyTorch names a pool when it drops it: the pool's free memory is the heap's by then, and stays there. */
	std::exception_ptr failure;
	end_broken_captures();
	if (id == MempoolId_t{0, 0})
		failure = thrown_in([this] { empty_heaps(); });
	if (native_used_)
		empty_cache(*native_, id);
	if (failure)
		std::rethrow_exception(failure);
}

void Allocator::cacheInfo(DeviceIndex device, size_t *largest)
{
	check_heap(trz_largest_block(heap_of(device), c10::cuda::getCurrentCUDAStream(device).stream(), largest));
}

void Allocator::enable(bool value)
{
	watch(WATCH_UNCACHED, !value);
}

bool Allocator::isEnabled() const
{
	return !(watched_ & WATCH_UNCACHED);
}

void Allocator::attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer)
{
	if (native_used_)
		native_->attachOutOfMemoryObserver(observer);
	std::lock_guard<std::mutex> guard(lock_);
	observers_.push_back(std::move(observer));
}

void Allocator::attachOomRejectionObserver(OomRejectionObserver observer)
{
	std::lock_guard<std::mutex> guard(lock_);
	rejection_observers_.push_back(std::move(observer));
}

} // namespace shim
