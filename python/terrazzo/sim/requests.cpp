/* SPDX-License-Identifier: Apache-2.0
 *
 * For `terrazzo sim --record`: tells the look-alike driver of each of a program's requests to PyTorch's allocator, when
 * and in the thread where it is made. Compiled once for each PyTorch, like terrazzo's shim; recorder.py loads it.
 *
 * A tracker tells of allocations and frees. Uses on other streams and pools have no tracker: our functions replace the
 * allocator's own in its table of virtual functions, and call those.
 */
#include <c10/cuda/CUDACachingAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "sim_recording.h"

namespace {

using c10::DataPtr;
using c10::DeviceIndex;
using c10::cuda::CUDAStream;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using c10::cuda::CUDACachingAllocator::TraceEntry;
using Pool = c10::cuda::MempoolId_t;

void (*request)(int kind, int device, uint64_t address, uint64_t size, void *stream, uint32_t pool);
void (*inside)(bool enter);

/* While one exists, calls of the driver are the allocator's own. */
struct Inside {
	Inside()
	{
		inside(true);
	}
	~Inside()
	{
		inside(false);
	}
};

/* One of the two numbers is always 0; the result 0 means no pool. */
uint32_t number_of(const Pool &pool)
{
	return static_cast<uint32_t>(pool.first ? 2 * pool.first : pool.second ? 2 * pool.second + 1 : 0);
}

/* PyTorch before 2.9 does not tell the pool; captured allocations go to their capture's pool all the same. */
template <typename Entry>
uint32_t pool_of(const Entry &e)
{
	if constexpr (requires { e.mempool_; })
		return number_of(e.mempool_);
	else
		return 0;
}

void hear(const TraceEntry &e)
{
	auto tell = [&](int kind) {
		request(kind, e.device_, e.addr_, e.size_, reinterpret_cast<void *>(e.stream_), pool_of(e));
	};
	if (e.action_ == TraceEntry::ALLOC)
		tell(SIM_RECORDED_ALLOC);
	else if (e.action_ == TraceEntry::FREE_REQUESTED)
		tell(SIM_RECORDED_FREE);
}

/* ---- the table of virtual functions ---- */

/* A function's slot in the table: by the C++ ABI of all systems on which PyTorch has CUDA, a pointer to a virtual
 * function is 1 + its offset there. */
template <typename Function>
void **slot_of(CUDAAllocator *allocator, Function function)
{
	static_assert(sizeof function == 2 * sizeof(void *), "a pointer to a member function");
	uintptr_t place[2];
	std::memcpy(place, &function, sizeof place);
	if (place[0] % sizeof(void *) != 1 || place[1] != 0)
		throw std::runtime_error("PyTorch's allocator has no such virtual function");
	return reinterpret_cast<void **>(*reinterpret_cast<char **>(allocator) + place[0] - 1);
}

/* Puts `own` into the slot, and returns what was there. The table lies in memory that is only writable while a library
 * is loaded. */
void *replace(void **slot, void *own)
{
	auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
	void *page = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(slot) / size * size);
	if (mprotect(page, size, PROT_READ | PROT_WRITE) != 0)
		throw std::runtime_error("PyTorch's allocator cannot be followed here: its table cannot be written");
	void *before = *slot;
	*slot = own;
	mprotect(page, size, PROT_READ);
	return before;
}

/* A function that replaces another; it calls `before`, the old one, with the allocator as first argument. */
template <auto Function, typename Type = decltype(Function)>
struct Followed;

template <auto Function, typename Class, typename Result, typename... Arguments>
struct Followed<Function, Result (Class::*)(Arguments...)> {
	static inline Result (*before)(CUDAAllocator *, Arguments...);

	static Result quiet(CUDAAllocator *allocator, Arguments... arguments)
	{
		Inside here;
		return before(allocator, std::forward<Arguments>(arguments)...);
	}
	static void install(CUDAAllocator *allocator, Result (*own)(CUDAAllocator *, Arguments...))
	{
		void *found = replace(slot_of(allocator, Function), reinterpret_cast<void *>(own));
		before = reinterpret_cast<Result (*)(CUDAAllocator *, Arguments...)>(found);
	}
};

constexpr auto raw_alloc = &CUDAAllocator::raw_alloc;
constexpr auto raw_alloc_with_stream = &CUDAAllocator::raw_alloc_with_stream;
constexpr auto record_stream =
    static_cast<void (CUDAAllocator::*)(const DataPtr &, CUDAStream)>(&CUDAAllocator::recordStream);
constexpr auto begin_pool = &CUDAAllocator::beginAllocateToPool;
constexpr auto end_pool = &CUDAAllocator::endAllocateToPool;
constexpr auto release_pool = &CUDAAllocator::releasePool;
constexpr auto allocate = &CUDAAllocator::allocate;
constexpr auto empty_cache = &CUDAAllocator::emptyCache;

void on_record_stream(CUDAAllocator *allocator, const DataPtr &memory, CUDAStream stream)
{
	if (memory.get())
		request(SIM_RECORDED_USE, stream.device_index(), reinterpret_cast<uintptr_t>(memory.get()), 0, stream.stream(),
		        0);
	Inside here;
	Followed<record_stream>::before(allocator, memory, stream);
}

/* The function that adds a holder to a pool; its name depends on PyTorch's version. */
template <typename Allocator>
constexpr auto opener()
{
	if constexpr (requires { &Allocator::createOrIncrefPool; })
		return &Allocator::createOrIncrefPool;
	else
		return &Allocator::ensureExistsAndIncrefPool;
}

template <typename Type = decltype(opener<CUDAAllocator>())>
struct Opened;

template <typename... Rest>
struct Opened<void (CUDAAllocator::*)(DeviceIndex, Pool, Rest...)> {
	static void on_open(CUDAAllocator *allocator, DeviceIndex device, Pool pool, Rest... rest)
	{
		request(SIM_RECORDED_POOL_OPEN, device, 0, 0, nullptr, number_of(pool));
		Inside here;
		Followed<opener<CUDAAllocator>()>::before(allocator, device, pool, std::move(rest)...);
	}
};

void on_begin_pool(CUDAAllocator *allocator, DeviceIndex device, Pool pool, std::function<bool(cudaStream_t)> filter)
{
	request(SIM_RECORDED_POOL_BEGIN, device, 0, 0, nullptr, number_of(pool));
	Inside here;
	Followed<begin_pool>::before(allocator, device, pool, std::move(filter));
}

void on_end_pool(CUDAAllocator *allocator, DeviceIndex device, Pool pool)
{
	request(SIM_RECORDED_POOL_END, device, 0, 0, nullptr, number_of(pool));
	Inside here;
	Followed<end_pool>::before(allocator, device, pool);
}

void on_release_pool(CUDAAllocator *allocator, DeviceIndex device, Pool pool)
{
	request(SIM_RECORDED_POOL_RELEASE, device, 0, 0, nullptr, number_of(pool));
	Inside here;
	Followed<release_pool>::before(allocator, device, pool);
}

void follow(CUDAAllocator *allocator)
{
	allocator->attachAllocatorTraceTracker(hear);
	Followed<raw_alloc>::install(allocator, Followed<raw_alloc>::quiet);
	Followed<raw_alloc_with_stream>::install(allocator, Followed<raw_alloc_with_stream>::quiet);
	Followed<allocate>::install(allocator, Followed<allocate>::quiet);
	Followed<empty_cache>::install(allocator, Followed<empty_cache>::quiet);
	Followed<record_stream>::install(allocator, on_record_stream);
	Followed<opener<CUDAAllocator>()>::install(allocator, Opened<>::on_open);
	Followed<begin_pool>::install(allocator, on_begin_pool);
	Followed<end_pool>::install(allocator, on_end_pool);
	Followed<release_pool>::install(allocator, on_release_pool);
	Inside here;  /* from now on requests to the driver do not count as the program's */
}

}  // namespace

/* NULL, or why the allocator cannot be followed. */
extern "C" __attribute__((visibility("default"))) const char *requests_follow(
    void (*on_request)(int, int, uint64_t, uint64_t, void *, uint32_t), void (*on_inside)(bool))
{
	static std::string failure;  /* PyTorch's error, without the stack below it */
	request = on_request;
	inside = on_inside;
	try {
		follow(c10::cuda::CUDACachingAllocator::get());
		return nullptr;
	} catch (const std::exception &error) {
		failure = error.what();
		failure.resize(std::min(failure.find('\n'), failure.size()));
		return failure.c_str();
	}
}
