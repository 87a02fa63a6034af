/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocators that pools bring along, as PyTorch's own allocator sees them. Memory that they take from a device counts
 * towards the process's limit, and the heap gives its free memory back before they run out.
 */
#ifndef TRZ_SHIM_SOURCE_HPP
#define TRZ_SHIM_SOURCE_HPP

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "shim_calls.hpp"

namespace shim {

class Source final : public torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
public:
	/* The thread wants only the free memory of a pool. */
	static inline thread_local bool only_cached;

	/* How deep the thread is inside a pool's allocator, with a lock of PyTorch's held. */
	static inline thread_local unsigned inside;

	/* `make_room` gives back free memory of the heap, and says whether another try is worthwhile. */
	Source(std::shared_ptr<cca::CUDAAllocator> of, std::function<bool(DeviceIndex)> make_room);

	/* If this returns NULL, PyTorch gives back its own free memory, tries again, and then fails. */
	void *raw_alloc(size_t size) override;
	void raw_delete(void *ptr) override;

private:
	void *take(size_t size, DeviceIndex device);
	bool count(size_t size, DeviceIndex device);

	const std::shared_ptr<cca::CUDAAllocator> of_;
	const std::function<bool(DeviceIndex)> make_room_;
	std::mutex lock_;
	std::unordered_map<void *, std::pair<DeviceIndex, size_t>> taken_;
};

} // namespace shim

#endif
