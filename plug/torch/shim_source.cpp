/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls a pool's allocator for PyTorch: counts its memory, and gives it another try when the heap has given memory
 * back.
 */
#include "shim_source.hpp"

#include <c10/cuda/CUDAFunctions.h>

namespace shim {

struct Inside {
	Inside()
	{
		Source::inside++;
	}
	~Inside()
	{
		Source::inside--;
	}
};

Source::Source(std::shared_ptr<cca::CUDAAllocator> of, std::function<bool(DeviceIndex)> make_room)
	: CUDAPluggableAllocator(no_alloc, no_free), of_(std::move(of)), make_room_(std::move(make_room))
{
}

void *Source::raw_alloc(size_t size)
{
	if (only_cached)
		return nullptr;
	Inside here;
	DeviceIndex device = c10::cuda::current_device();
	void *ptr = take(size, device);
	if (!ptr || trz_torch_owner(ptr))  /* memory of the heap is counted there */
		return ptr;
	if (!count(size, device)) {
		of_->raw_delete(ptr);
		return nullptr;
	}
	std::lock_guard<std::mutex> guard(lock_);
	taken_[ptr] = {device, size};
	return ptr;
}

void Source::raw_delete(void *ptr)
{
	Inside here;
	of_->raw_delete(ptr);
	std::unique_lock<std::mutex> guard(lock_);
	auto found = taken_.find(ptr);
	if (found == taken_.end())
		return;
	auto [device, size] = found->second;
	taken_.erase(found);
	guard.unlock();
	trz_torch_give_elsewhere(device, size);
}

void *Source::take(size_t size, DeviceIndex device)
{
	try {
		if (void *ptr = of_->raw_alloc(size))
			return ptr;
	} catch (...) {
		if (!make_room_(device))
			throw;
		return of_->raw_alloc(size);
	}
	return make_room_(device) ? of_->raw_alloc(size) : nullptr;
}

bool Source::count(size_t size, DeviceIndex device)
{
	return trz_torch_take_elsewhere(device, size) == TRZ_OK ||
	       (make_room_(device) && trz_torch_take_elsewhere(device, size) == TRZ_OK);
}

} // namespace shim
