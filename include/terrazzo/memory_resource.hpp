/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap as a memory resource for CCCL, by the concepts of both generations: cuda::mr::resource and async_resource
 * before CCCL 3.1 (the macro LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE, set here, must be set before any header of
 * CCCL is included), and cuda::mr::synchronous_resource and resource since. Needs CCCL, and linking CUDA's runtime.
 */
#ifndef TERRAZZO_MEMORY_RESOURCE_HPP
#define TERRAZZO_MEMORY_RESOURCE_HPP

#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda/version>
#include <cuda_runtime_api.h>

#include <terrazzo.hpp>

namespace terrazzo {

/* Copies are the same resource: they are equal exactly if their heaps are. The heap must outlive what they allocate.
 * Errors are terrazzo's exceptions; running out of memory is a std::bad_alloc. */
class memory_resource {
public:
	static constexpr std::size_t default_alignment = 256;

	memory_resource(heap_ref heap) noexcept : heap_(heap) {}

	heap_ref heap() const noexcept { return heap_; }

	/* -- in the order of streams, as since CCCL 3.1 -- */

	void *allocate(cuda::stream_ref stream, std::size_t size, std::size_t alignment = default_alignment)
	{
		return heap_.allocate(size, stream.get(), alignment);
	}

	/* The caller has ordered all uses of the memory, on any stream, before what is enqueued on this one from now on. */
	void deallocate(cuda::stream_ref stream, void *memory, std::size_t, std::size_t = default_alignment) noexcept
	{
		detail::freed(trz_free_on(heap_.get(), memory, stream.get()));
	}

	/* The memory may be used on any stream at once: this waits for the work on the legacy default stream of the heap's
	 * device, which need not be the current device. */
	void *allocate_sync(std::size_t size, std::size_t alignment = default_alignment)
	{
		void *memory = heap_.allocate(size, cudaStreamLegacy, alignment);
		cudaError_t result = wait_where(memory);
		if (result != cudaSuccess) {
			detail::freed(trz_free(heap_.get(), memory));
			throw error(TRZ_ERROR_DRIVER, cudaGetErrorString(result));
		}
		return memory;
	}

	/* The caller has made sure that all work that uses the memory is complete. */
	void deallocate_sync(void *memory, std::size_t, std::size_t = default_alignment) noexcept
	{
		detail::freed(trz_free(heap_.get(), memory));
	}

	/* -- the same under the names before CCCL 3.1 -- */

	void *allocate(std::size_t size, std::size_t alignment = default_alignment)
	{
		return allocate_sync(size, alignment);
	}
	void deallocate(void *memory, std::size_t size, std::size_t alignment = default_alignment) noexcept
	{
		deallocate_sync(memory, size, alignment);
	}
	void *allocate_async(std::size_t size, std::size_t alignment, cuda::stream_ref stream)
	{
		return allocate(stream, size, alignment);
	}
	void *allocate_async(std::size_t size, cuda::stream_ref stream) { return allocate(stream, size); }
	void deallocate_async(void *memory, std::size_t size, std::size_t alignment, cuda::stream_ref stream) noexcept
	{
		deallocate(stream, memory, size, alignment);
	}
	void deallocate_async(void *memory, std::size_t size, cuda::stream_ref stream) noexcept
	{
		deallocate(stream, memory, size);
	}

	friend bool operator==(const memory_resource &a, const memory_resource &b) noexcept { return a.heap_ == b.heap_; }
	friend bool operator!=(const memory_resource &a, const memory_resource &b) noexcept { return a.heap_ != b.heap_; }

	friend constexpr void get_property(const memory_resource &, cuda::mr::device_accessible) noexcept {}
#if CCCL_VERSION >= 3002000
	using default_queries = cuda::mr::properties_list<cuda::mr::device_accessible>;
#endif

private:
	cudaError_t wait_where(const void *memory) const noexcept
	{
		trz_pointer_info info;
		int current;
		if (trz_query(heap_.get(), memory, &info) != TRZ_OK)
			return cudaSuccess; /* no memory was wanted */
		cudaError_t result = cudaGetDevice(&current);
		bool elsewhere = result == cudaSuccess && current != info.device;
		if (elsewhere)
			result = cudaSetDevice(info.device);
		if (result == cudaSuccess)
			result = cudaStreamSynchronize(cudaStreamLegacy);
		if (elsewhere)
			cudaSetDevice(current);
		return result;
	}

	heap_ref heap_;
};

#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::synchronous_resource_with<memory_resource, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::async_resource_with<memory_resource, cuda::mr::device_accessible>);
#endif
static_assert(cuda::mr::resource_with<memory_resource, cuda::mr::device_accessible>);

} // namespace terrazzo

#endif
