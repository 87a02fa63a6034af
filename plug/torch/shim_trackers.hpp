/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports to PyTorch's trackers: mappings as they come and go; and the exceptions that trackers throw.
 */
#ifndef TRZ_SHIM_TRACKERS_HPP
#define TRZ_SHIM_TRACKERS_HPP

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "shim_calls.hpp"

namespace shim {

/* The stream of the allocation that the thread is making: mappings made meanwhile are for it. */
inline thread_local cudaStream_t allocating;

/* A tracker's exception, kept here since it must not pass through the heap, which called the tracker. */
inline thread_local std::exception_ptr thrown;

/* The first exception of a tracker while `call` calls the heap. Exceptions from an outer operation, inside whose
 * tracker this may run, are set aside meanwhile. */
template <typename Call>
std::exception_ptr thrown_in(Call call)
{
	std::exception_ptr outer = std::exchange(thrown, nullptr);
	call();
	return std::exchange(thrown, outer);
}

/* A mapping, as reported to trackers when it comes and when it goes. */
struct Mapping {
	DeviceIndex device = 0;
	size_t size = 0;
	cudaStream_t stream = nullptr;
	MempoolId_t pool{0, 0};
	bool expandable = false;

	TraceEntry entry(uint64_t address, bool comes) const;
};

/* All mappings, while there are trackers. */
class Mappings {
public:
	/* False: the mapping is not the heap's own, or the heap does not know it. */
	bool add(DeviceIndex device, uint64_t address, Mapping *out);

	bool remove(uint64_t address, Mapping *out);

	/* The pool of the memory at an address. */
	MempoolId_t pool_at(uint64_t address);

private:
	std::mutex lock_;
	std::map<uint64_t, Mapping> all_;
	std::atomic<int> in_pools_{0};  /* how many of them are in pools; changes under the lock */
};

Mappings &mappings();

} // namespace shim

#endif
