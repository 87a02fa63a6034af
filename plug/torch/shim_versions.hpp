/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch's allocator in the shape of 2.15, for every PyTorch since 2.6: the rest of the shim knows no other shape. A
 * version never calls functions that it lacks; this file fills in arguments that it does not pass.
 */
#ifndef TRZ_SHIM_VERSIONS_HPP
#define TRZ_SHIM_VERSIONS_HPP

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/version.h>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/* Whether this PyTorch is 2.`minor` or newer. */
#define TORCH_SINCE(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

#if !TORCH_SINCE(6)
#error terrazzo knows PyTorch from 2.6 on
#endif

namespace versions {

/* PyTorch has gradually moved its structures from the second namespace to the first. */
using namespace c10::CachingDeviceAllocator;
using namespace c10::cuda::CUDACachingAllocator;
namespace cca = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::cuda::MempoolId_t;

#if !TORCH_SINCE(10)
struct StreamSegmentSize {
	StreamSegmentSize(cudaStream_t s, bool small, size_t size) : stream(s), is_small_pool(small), total_size(size)
	{
	}
	cudaStream_t stream;
	bool is_small_pool;
	size_t total_size;
};
#endif
#if !TORCH_SINCE(12)
using OomRejectionObserver = std::function<void(int64_t, size_t, size_t, size_t)>;
#endif

/* ---- what PyTorch calls ----------------------------------------------------------------------------------------- */

/* The pool that the thread has chosen, before 2.8; from 2.8 on PyTorch names the pool where it matters. */
#if !TORCH_SINCE(8)
inline c10::cuda::MemPool *chosen_pool()
{
	return c10::cuda::MemPoolContext::getActiveMemPool();
}
#endif

/* Whether a pool that the thread begins to use has brought its own allocator: from 2.8 on PyTorch says so when it opens
 * the pool. */
inline bool brings_allocator(MempoolId_t id)
{
#if TORCH_SINCE(8)
	(void)id;
	return false;
#else
	return chosen_pool() && chosen_pool()->id() == id && chosen_pool()->allocator();
#endif
}

/* Functions that PyTorch's class requires but never calls: the classes here override their callers. */
inline void *no_alloc(size_t, int, cudaStream_t)
{
	return nullptr;
}

inline void no_free(void *, size_t, int, cudaStream_t)
{
}

/* PyTorch's class with all functions of the newest PyTorch: calls of older ones arrive in the form of 2.15. */
class Newest : public torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator {
public:
	using CUDAPluggableAllocator::CUDAPluggableAllocator;

#if !TORCH_SINCE(8)
	void emptyCache() final
	{
		emptyCache(MempoolId_t{0, 0});
	}

	cca::SnapshotInfo snapshot() final
	{
		return snapshot(chosen_pool() ? chosen_pool()->id() : MempoolId_t{0, 0}, true);
	}

	void recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when) final
	{
		recordHistory(enabled, recorder, entries, when, false, {});
	}

	void ensureExistsAndIncrefPool(DeviceIndex device, MempoolId_t id) final
	{
		createOrIncrefPool(device, id, std::shared_ptr<cca::CUDAAllocator>());
	}

	virtual void emptyCache(MempoolId_t id) = 0;
	virtual void pushCompileContext(std::string &metadata) = 0;
	virtual void popCompileContext() = 0;
#elif !TORCH_SINCE(11)
	cca::SnapshotInfo snapshot(MempoolId_t id) final
	{
		return snapshot(id, true);
	}

	void recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear) final
	{
		recordHistory(enabled, recorder, entries, when, clear, {});
	}

	/* The pool's allocator outlives the pool: the pool's creator ensures that. */
	void createOrIncrefPool(DeviceIndex device, MempoolId_t id, cca::CUDAAllocator *allocator) final
	{
		createOrIncrefPool(device, id, std::shared_ptr<cca::CUDAAllocator>(std::shared_ptr<void>(), allocator));
	}

	void setUseOnOOM(DeviceIndex device, MempoolId_t id) final
	{
		setUseOnOOM(device, id, true);
	}
#endif
#if !TORCH_SINCE(10)
	virtual void setNoSplit(DeviceIndex device, MempoolId_t id) = 0;
	virtual std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) = 0;
	virtual void setUserMetadata(const std::string &metadata) = 0;
	virtual std::string getUserMetadata() = 0;
#endif
#if !TORCH_SINCE(11)
	virtual cca::SnapshotInfo snapshot(MempoolId_t id, bool include_traces) = 0;
	virtual void recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
	                           const std::vector<std::string> &skip_actions) = 0;
	virtual void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
	                                std::shared_ptr<cca::CUDAAllocator> allocator) = 0;
	virtual void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use) = 0;
#endif
#if !TORCH_SINCE(12)
	virtual std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *ptr) = 0;
	virtual void attachOomRejectionObserver(OomRejectionObserver observer) = 0;
#endif
#if !TORCH_SINCE(14)
	virtual bool supportsUserMetadata() = 0;
	virtual void annotateMemory(const void *ptr, const std::string &metadata) = 0;
#endif
};

/* Whether PyTorch announces captures; whether it keeps the allocator of a pool alive. */
template <typename A> constexpr bool tells_captures = requires(A &a) { a.markCaptureBegin(DeviceIndex{}); };
template <typename A> constexpr bool keeps_allocators = requires(A &a, std::shared_ptr<A> own) {
	a.createOrIncrefPool(DeviceIndex{}, MempoolId_t{}, own);
};

/* Whether PyTorch itself ends the diversion of a capture that a call has broken. */
constexpr bool ends_broken_captures = TORCH_SINCE(14);

/* ---- what is called of PyTorch's own allocator ------------------------------------------------------------------ */

inline c10::DataPtr allocate_with_address(cca::CUDAAllocator &native, size_t size, void *address)
{
#if TORCH_SINCE(15)
	return native.allocateWithAddress(size, address);
#else
	(void)size;
	TORCH_CHECK(false, native.name(), " cannot allocate at a given address (", address, ") before PyTorch 2.15");
#endif
}

template <typename A> void mark_capture_begin(A &native, DeviceIndex device)
{
	if constexpr (tells_captures<A>)
		native.markCaptureBegin(device);
}

template <typename A> void mark_capture_end(A &native, DeviceIndex device)
{
	if constexpr (tells_captures<A>)
		native.markCaptureEnd(device);
}

inline void empty_cache(cca::CUDAAllocator &native, MempoolId_t id)
{
#if TORCH_SINCE(8)
	native.emptyCache(id);
#else
	(void)id;
	native.emptyCache();
#endif
}

inline cca::SnapshotInfo snapshot_of(cca::CUDAAllocator &native, MempoolId_t id, bool include_traces)
{
#if TORCH_SINCE(11)
	return native.snapshot(id, include_traces);
#elif TORCH_SINCE(8)
	(void)include_traces;
	return native.snapshot(id);
#else
	(void)id;
	(void)include_traces;
	return native.snapshot();
#endif
}

inline void record_history(cca::CUDAAllocator &native, bool enabled, CreateContextFn recorder, size_t entries,
                           RecordContext when, bool clear, const std::vector<std::string> &skip_actions)
{
#if TORCH_SINCE(11)
	native.recordHistory(enabled, recorder, entries, when, clear, skip_actions);
#elif TORCH_SINCE(8)
	(void)skip_actions;
	native.recordHistory(enabled, recorder, entries, when, clear);
#else
	(void)clear;
	(void)skip_actions;
	native.recordHistory(enabled, recorder, entries, when);
#endif
}

inline void open_pool(cca::CUDAAllocator &native, DeviceIndex device, MempoolId_t id,
                      std::shared_ptr<cca::CUDAAllocator> allocator)
{
#if TORCH_SINCE(11)
	native.createOrIncrefPool(device, id, std::move(allocator));
#elif TORCH_SINCE(8)
	native.createOrIncrefPool(device, id, allocator.get());
#else
	(void)allocator;
	native.ensureExistsAndIncrefPool(device, id);
#endif
}

inline void set_no_split(cca::CUDAAllocator &native, DeviceIndex device, MempoolId_t id)
{
#if TORCH_SINCE(10)
	native.setNoSplit(device, id);
#endif
}

/* ---- structures ------------------------------------------------------------------------------------------------- */

#if !TORCH_SINCE(11)
inline TraceEntry::Action parseTraceEntryAction(std::string_view action)
{
	constexpr std::string_view names[] = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
	                                      "segment_map", "segment_unmap", "snapshot", "oom"};
	size_t i = 0;
	while (i < std::size(names) && names[i] != action)
		i++;
	TORCH_CHECK(i < std::size(names), "terrazzo: PyTorch has no event ", action);
	return static_cast<TraceEntry::Action>(i);
}
#endif

inline TraceEntry trace_entry(TraceEntry::Action action, DeviceIndex device, size_t address, size_t size, void *stream,
                              MempoolId_t pool, c10::approx_time_t time = 0)
{
#if TORCH_SINCE(8)
	return {action, device, address, size, static_cast<cudaStream_t>(stream), pool, time};
#else
	(void)pool;
	return {action, device, address, size, static_cast<cudaStream_t>(stream), time};
#endif
}

/* Templates from here on, so that PyTorch may lack the member. */

template <typename E> void set_note(E &entry, const std::string &compile_context, const std::string &user_metadata)
{
	if constexpr (requires { entry.compile_context_; })
		entry.compile_context_ = compile_context;
	if constexpr (requires { entry.user_metadata_; })
		if (!user_metadata.empty())
			entry.user_metadata_ = user_metadata;
}

/* The kind of an annotation. */
template <typename T> constexpr auto annotation(int) -> decltype(T::ANNOTATE)
{
	return T::ANNOTATE;
}

template <typename T> constexpr auto annotation(long)
{
	return T::SNAPSHOT;
}

template <typename S> void add_pools_of(S &stats, const S &other)
{
	if constexpr (requires { stats.reserved_bytes_by_private_pools; })
		for (const auto &[id, stat] : other.reserved_bytes_by_private_pools)
			stats.reserved_bytes_by_private_pools[id] = stat;
}

template <typename S, typename F> void set_pool(S &stats, MempoolId_t id, const F &flow)
{
	if constexpr (requires { stats.reserved_bytes_by_private_pools; })
		stats.reserved_bytes_by_private_pools[id][0] = flow;
}

template <typename S> int64_t rejections_of(const S &stats)
{
	if constexpr (requires { stats.num_oom_rejections; })
		return stats.num_oom_rejections;
	return 0;
}

template <typename S> void set_rejections(S &stats, int64_t count)
{
	if constexpr (requires { stats.num_oom_rejections; })
		stats.num_oom_rejections = count;
}

/* Whether the option throw_on_cudamalloc_oom is on. */
template <typename O = CUDAAllocatorConfig> bool rejects_at_limit()
{
	if constexpr (requires { O::throw_on_cudamalloc_oom(); })
		return O::throw_on_cudamalloc_oom();
	return false;
}

/* Annotates memory of PyTorch's own allocator; false: that cannot do it. */
template <typename A> bool annotate_native(A &native, const void *ptr, const std::string &metadata)
{
	if constexpr (requires { native.annotateMemory(ptr, metadata); }) {
		native.annotateMemory(ptr, metadata);
		return true;
	}
	return false;
}

/* The calling thread's metadata and compile context, which PyTorch's own allocator keeps for its events. */
template <typename A> void set_metadata(A &native, const std::string &metadata)
{
	if constexpr (requires { native.setUserMetadata(metadata); })
		native.setUserMetadata(metadata);
}

template <typename A> void push_compile_context(A &native, std::string &metadata)
{
	if constexpr (requires { native.pushCompileContext(metadata); })
		native.pushCompileContext(metadata);
}

template <typename A> void pop_compile_context(A &native)
{
	if constexpr (requires { native.popCompileContext(); })
		native.popCompileContext();
}

/* The context of an allocation of PyTorch's own allocator. */
template <typename A> std::shared_ptr<c10::GatheredContext> context_of_native(A &native, const void *ptr)
{
	if constexpr (requires { native.getContextForPointer(ptr); })
		return native.getContextForPointer(ptr);
	return nullptr;
}

/* Options of pinned memory are PyTorch's, as they were set. */
template <typename C = cca::AllocatorConfigInfo, typename O = CUDAAllocatorConfig> C config_info()
{
	C c = {};
	const char *settings = getenv("TERRAZZO_CONF");
	c.max_split_size = std::numeric_limits<size_t>::max();
	c.expandable_segments = true;
	c.release_lock_on_malloc = true;
	c.pinned_num_register_threads = O::pinned_num_register_threads();
	c.last_allocator_settings = settings ? settings : "";
	if constexpr (requires { c.pinned_use_host_register; })
		c.pinned_use_host_register = O::pinned_use_cuda_host_register();
#if TORCH_SINCE(13)
	c.max_round_threshold = c10::CachingAllocator::AcceleratorAllocatorConfig::pinned_max_round_threshold();
	c.max_cached_size = c10::CachingAllocator::AcceleratorAllocatorConfig::pinned_max_cached_size();
#endif
	return c;
}

} // namespace versions

#endif
