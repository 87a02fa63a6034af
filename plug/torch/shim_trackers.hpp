/* SPDX-License-Identifier: Apache-2.0
 *
 * What PyTorch's trackers are told of: mappings as they come and go. And what they throw meanwhile.
 */
#ifndef TRZ_SHIM_TRACKERS_HPP
#define TRZ_SHIM_TRACKERS_HPP

#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "shim_calls.hpp"

namespace shim {

/* The stream of the allocation that the thread is making: what is mapped meanwhile is mapped for it. */
inline thread_local cudaStream_t allocating;

/* What a tracker threw meanwhile: the heap tells it, and an exception must not pass through that. */
inline thread_local std::exception_ptr thrown;

/* What trackers threw first while `call` called the heap; inside a tracker that is another operation's. */
template <typename Call>
std::exception_ptr thrown_in(Call call)
{
	std::exception_ptr outer = std::exchange(thrown, nullptr);
	call();
	return std::exchange(thrown, outer);
}

/* A mapping, as trackers are told of it when it comes and when it goes. */
struct Mapping {
	DeviceIndex device;
	size_t size;
	cudaStream_t stream;
	MempoolId_t pool;
	bool expandable;

	TraceEntry entry(uint64_t address, bool comes) const;
};

/* All mappings, while there are trackers. */
class Mappings {
public:
	/* False: it is none of the heap's own, or the heap does not know it. */
	bool add(DeviceIndex device, uint64_t address, Mapping *out);

	bool remove(uint64_t address, Mapping *out);

	/* The pool of the memory at an address. */
	MempoolId_t pool_at(uint64_t address);

private:
	std::mutex lock_;
	std::map<uint64_t, Mapping> all_;
};

Mappings &mappings();

} // namespace shim

#endif
