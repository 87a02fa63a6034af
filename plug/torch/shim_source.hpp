/* SPDX-License-Identifier: Apache-2.0
 *
 * Part of shim.cpp: allocators that pools bring along, as PyTorch's own allocator sees them. What they take of a device
 * counts as the process's, and the heap gives back what it has free before there is nothing left for them.
 */
#ifndef TRZ_SHIM_SOURCE_HPP
#define TRZ_SHIM_SOURCE_HPP

/* Whether PyTorch tells of captures, and keeps the allocator of a pool alive. */
template <typename A> constexpr bool tells_captures = requires(A &a) { a.markCaptureBegin(DeviceIndex{}); };
template <typename A> constexpr bool keeps_allocators = requires(A &a, std::shared_ptr<A> own) {
	a.createOrIncrefPool(DeviceIndex{}, MempoolId_t{}, own);
};

void *no_alloc(size_t, int, cudaStream_t)
{
	return nullptr;
}

void no_free(void *, size_t, int, cudaStream_t)
{
}

class Source final : public torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
public:
	/* While the thread wants what a pool has free, and no more. */
	static inline thread_local bool only_cached;

	/* How often the thread is inside a pool's allocator, with a lock of PyTorch's held. */
	static inline thread_local unsigned inside;

	/* `make_room` gives free memory of the heap back and says whether another try is worth while. */
	Source(std::shared_ptr<cca::CUDAAllocator> of, std::function<bool(DeviceIndex)> make_room)
		: CUDAPluggableAllocator(no_alloc, no_free), of_(std::move(of)), make_room_(std::move(make_room))
	{
	}

	/* After NULL PyTorch gives back what it has free itself, tries again, and then fails. */
	void *raw_alloc(size_t size) override
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

	void raw_delete(void *ptr) override
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

private:
	struct Inside {
		Inside()
		{
			inside++;
		}
		~Inside()
		{
			inside--;
		}
	};

	void *take(size_t size, DeviceIndex device)
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

	bool count(size_t size, DeviceIndex device)
	{
		return trz_torch_take_elsewhere(device, size) == TRZ_OK ||
		       (make_room_(device) && trz_torch_take_elsewhere(device, size) == TRZ_OK);
	}

	const std::shared_ptr<cca::CUDAAllocator> of_;
	const std::function<bool(DeviceIndex)> make_room_;
	std::mutex lock_;
	std::unordered_map<void *, std::pair<DeviceIndex, size_t>> taken_;
};

#endif
