/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo as PyTorch's allocator: the class. The marks below name the file that each part is in.
 *
 * Pools that bring their own allocator stay with PyTorch's allocator ("native" below), which knows how to cache memory
 * that is not terrazzo's.
 */
#ifndef TRZ_SHIM_ALLOCATOR_HPP
#define TRZ_SHIM_ALLOCATOR_HPP

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "shim_calls.hpp"

namespace shim {

/* A request to the allocator; address NULL: anywhere. */
struct Wanted {
	size_t size;
	DeviceIndex device;
	cudaStream_t stream;
	void *address;
};

/* What serves a pool: the heap, the heap with a tile for each allocation, or the native allocator. */
enum class Server { HEAP, HEAP_ALONE, NATIVE };

/* A diversion to a pool; the heap knows only diversions to its own pools. */
struct Diversion {
	int device;
	MempoolId_t id;
	Server server;
	std::thread::id thread;
	std::function<bool(cudaStream_t)> filter;
};

struct Walk;

class Allocator final : public Newest {
public:
	explicit Allocator(cca::CUDAAllocator *native);

	/* From now on PyTorch allocates here; until then it can still switch to another allocator. */
	void take_over();

	/* -- shim_allocator.cpp -- */

	c10::DataPtr allocate(size_t size) override;
	/* Only the newest PyTorch calls it, as a virtual function. */
	c10::DataPtr allocateWithAddress(size_t size, void *address);
	void *raw_alloc(size_t size) override;
	void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
	void raw_delete(void *ptr) override;
	c10::DeleterFnPtr raw_deleter() const override;
	void recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream) override;
	void *getBaseAllocation(void *ptr, size_t *size) override;
	double getMemoryFraction(DeviceIndex device) override;
	void setMemoryFraction(double fraction, DeviceIndex device) override;
	void emptyCache(MempoolId_t id) override;
	void cacheInfo(DeviceIndex device, size_t *largest) override;
	/* Off: freed memory goes back to the device as soon as its work has completed. */
	void enable(bool value) override;
	bool isEnabled() const override;
	void attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer) override;
	void attachOomRejectionObserver(OomRejectionObserver observer) override;
	void init(int device_count) override;
	std::string name() override;

	/* -- shim_statistics.cpp -- */

	DeviceStats getDeviceStats(DeviceIndex device) override;
	void resetAccumulatedStats(DeviceIndex device) override;
	void resetPeakStats(DeviceIndex device) override;

	/* -- shim_history.cpp -- */

	void recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
	                   const std::vector<std::string> &skip_actions) override;
	bool isHistoryEnabled() override;
	std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *ptr) override;
	void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata) override;
	void annotateMemory(const void *ptr, const std::string &metadata) override;
	void pushCompileContext(std::string &metadata) override;
	void popCompileContext() override;
	bool supportsUserMetadata() override;
	void setUserMetadata(const std::string &metadata) override;
	std::string getUserMetadata() override;

	/* -- shim_snapshots.cpp -- */

	cca::SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override;
	std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;

	/* -- shim_trackers.cpp -- */

	void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;

	/* -- shim_pools.cpp -- */

	void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<cca::CUDAAllocator> allocator) override;
	void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use) override;
	void setNoSplit(DeviceIndex device, MempoolId_t id) override;
	int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
	void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
	void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
	void releasePool(DeviceIndex device, MempoolId_t id) override;
	/* Older PyTorch does not announce captures. */
	void markCaptureBegin(DeviceIndex device);
	void markCaptureEnd(DeviceIndex device);
	bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
	                              const std::unordered_set<void *> &expected) override;
	std::shared_ptr<cca::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
	cca::CheckpointDelta setCheckpointPoolState(DeviceIndex device,
	                                            std::shared_ptr<cca::AllocatorState> state) override;

	/* -- shim_share.cpp -- */

	cca::ShareableHandle shareIpcHandle(void *ptr) override;
	std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
	/* From now on `device` may use memory of `owner`. */
	void enablePeerAccess(DeviceIndex device, DeviceIndex owner) override;
	cudaError_t memcpyAsync(void *dst, int dst_device, const void *src, int src_device, size_t count,
	                        cudaStream_t stream, bool p2p_enabled) override;

private:
	/* Why an operation takes the long way. */
	enum {
		WATCH_HISTORY = 1,
		WATCH_TRACKERS = 2,
		WATCH_POOLS = 4,
		WATCH_UNCACHED = 8,
		WATCH_HELD = 16  /* contexts of an earlier recording are left: concerns only frees */
	};

	void watch(unsigned what, bool on)
	{
		if (on)
			watched_ |= what;
		else
			watched_ &= ~what;
	}

	/* The device of the thread's newest allocation: where a free is tried first. */
	static int &hint()
	{
		static thread_local int device;
		return device;
	}

	/* For PyTorch's sanitizer, among others. */
	static void *traced(void *ptr)
	{
		const c10::impl::PyInterpreter *tracer = c10::impl::GPUTrace::get_trace();
		if (C10_UNLIKELY(tracer != nullptr && ptr))
			(*tracer)->trace_gpu_memory_allocation(c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(ptr));
		return ptr;
	}

	/* The native allocator traces its own. */
	static void trace_free(void *ptr)
	{
		const c10::impl::PyInterpreter *tracer = c10::impl::GPUTrace::get_trace();
		if (C10_UNLIKELY(tracer != nullptr))
			(*tracer)->trace_gpu_memory_deallocation(c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(ptr));
	}

	void *alloc(size_t size, DeviceIndex device, cudaStream_t stream)
	{
		void *ptr = nullptr;
		hint() = device;
		if (C10_UNLIKELY((watched_ & ~WATCH_HELD) || c10::memoryProfilingEnabled()))
			return alloc_watched({size, device, stream, nullptr});
		trz_status status = trz_torch_try_alloc(size, device, stream, &ptr);
		if (C10_UNLIKELY(status != TRZ_OK))
			refuse(status, size, device);
		return traced(ptr);
	}

	/* -- shim_allocator.cpp -- */

	static void free_any(void *ptr);
	bool is_live(void *ptr);
	static bool collect(void *device, const trz_oom_info *info);
	static void opened(int device, trz_heap *heap);
	void *alloc_watched(const Wanted &wanted);
	trz_status alloc_noted(const Wanted &wanted, bool alone, void **ptr);
	void free_noted(void *ptr, DeviceIndex device);
	void free_watched(void *ptr);
	void tell_profiler(void *ptr, int64_t size, DeviceIndex device);
	[[noreturn]] void reject(size_t size, DeviceIndex device, const trz_oom_info &info, const std::string &text);
	[[noreturn]] void refuse(trz_status status, size_t size, DeviceIndex device);

	/* -- shim_statistics.cpp -- */

	void add_own_counts(DeviceStats &stats, DeviceIndex device);
	void add_pools(DeviceStats &stats, trz_heap *heap, DeviceIndex device);

	/* -- shim_snapshots.cpp -- */

	Walk walk(DeviceIndex device, MempoolId_t id, bool all, bool traces);

	/* -- shim_trackers.cpp -- */

	static void watch_mappings(int device, trz_heap *heap);
	static void mapping_changed(void *device, trz_map_event event, void *address, size_t size);
	void tell_trackers(TraceEntry::Action action, DeviceIndex device, void *ptr, size_t size, cudaStream_t stream);
	void tell_trackers(const TraceEntry &entry);

	/* -- shim_pools.cpp -- */

	Server server_of(int device, MempoolId_t id);
	Server server_for(int device, cudaStream_t stream);
	void forget_diversion(int device, MempoolId_t id);
	void forget_pool(DeviceIndex device, MempoolId_t id);
	/* Ends the calling thread's diversions for broken captures, if this PyTorch does not. */
	void end_broken_captures();

	bool is_native(int device, MempoolId_t id)
	{
		return server_of(device, id) == Server::NATIVE;
	}

	/* -- shim_native.cpp -- */

	cca::CUDAAllocator *use_native_locked();

	cca::CUDAAllocator *native()
	{
		std::lock_guard<std::mutex> guard(lock_);
		return use_native_locked();
	}

	bool begins_native(DeviceIndex device, MempoolId_t id);
	void hand_over(DeviceIndex device, MempoolId_t id);
	bool may_wait();
	size_t give_back(DeviceIndex device, trz_heap *heap, const std::shared_ptr<c10::GatheredContext> &context);
	bool make_room(DeviceIndex device);
	void empty_heaps();
	bool empty_native();
	bool await_device(DeviceIndex device);
	void *keep_native(void *ptr, DeviceIndex device);
	bool is_of_native(void *ptr);
	void record_native(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream);
	void *lend(size_t size, DeviceIndex device, cudaStream_t stream);
	void *lend(MempoolId_t id, size_t size, DeviceIndex device, cudaStream_t stream);

	/* -- shim_share.cpp -- */

	cca::ShareableHandle share_plain(void *ptr, DeviceIndex device);

	static Allocator *installed;
	cca::CUDAAllocator *const native_;
	std::atomic<bool> native_used_{false};
	std::atomic<unsigned> watched_{0};
	std::atomic<int64_t> waits_[TRZ_TORCH_DEVICES] = {};  /* the host's waits for all work of a device */
	int device_count_ = 1;

	/* Guards what follows. It is not held when the native allocator is called, which calls a pool's allocator, and so
	 * us, under locks of its own. */
	std::mutex lock_;
	std::vector<cca::OutOfMemoryObserver> observers_;
	std::vector<OomRejectionObserver> rejection_observers_;
	std::map<int, int64_t> rejections_, lent_;  /* by device: failures of the heap that are not failures to PyTorch */
	std::map<int, int64_t> outsized_;  /* failures to PyTorch for which the heap did not look at its memory */
	std::shared_ptr<const std::vector<AllocatorTraceTracker>> trackers_ =
		std::make_shared<const std::vector<AllocatorTraceTracker>>();  /* replaced, never changed */
	std::map<std::pair<int, MempoolId_t>, Server> servers_;  /* of pools that are not just Server::HEAP */
	std::set<std::pair<int, MempoolId_t>> lenders_;  /* native pools whose free memory may serve other requests */
	std::vector<Diversion> diversions_;  /* the newest last */
	std::multiset<DeviceIndex> captures_;  /* the device of each capture that is under way */
	std::map<int, DeviceStats> bases_;
	std::map<int, std::map<MempoolId_t, StatArray::value_type>> pool_flows_;
	std::unordered_map<void *, DeviceIndex> native_pointers_;
	std::vector<std::shared_ptr<cca::CUDAAllocator>> borrowed_;  /* kept alive for older PyTorch's native allocator */
};

} // namespace shim

#endif
