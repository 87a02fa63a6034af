/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap with the interface of cub::CachingDeviceAllocator, for programs written for that one. Needs CUDA's runtime
 * headers only.
 */
#ifndef TERRAZZO_CUB_HPP
#define TERRAZZO_CUB_HPP

#include <cuda_runtime_api.h>

#include <terrazzo.hpp>

namespace terrazzo {

/* For the device of its heap. Memory is allocated, and freed, in the order of the stream given at its allocation. The
 * heap has to outlive what was allocated. */
class cub_allocator {
public:
	explicit cub_allocator(heap_ref heap) noexcept : heap_(heap) {}

	cudaError_t DeviceAllocate(void **memory, std::size_t size, cudaStream_t stream = nullptr) const noexcept
	{
		switch (trz_alloc(heap_.get(), size, 0, stream, memory)) {
		case TRZ_OK:
			return cudaSuccess;
		case TRZ_ERROR_INVALID_ARGUMENT:
			return cudaErrorInvalidValue;
		case TRZ_ERROR_CAPTURE:
			return cudaErrorStreamCaptureUnsupported;
		case TRZ_ERROR_NOT_PERMITTED:
			return cudaErrorNotPermitted;
		default:
			return cudaErrorMemoryAllocation;
		}
	}

	cudaError_t DeviceFree(void *memory) const noexcept
	{
		return trz_free(heap_.get(), memory) == TRZ_OK ? cudaSuccess : cudaErrorInvalidValue;
	}

	/* Returns to the driver what is free. */
	cudaError_t FreeAllCached() const noexcept
	{
		return trz_trim(heap_.get(), 0, nullptr) == TRZ_OK ? cudaSuccess : cudaErrorUnknown;
	}

private:
	heap_ref heap_;
};

} // namespace terrazzo

#endif
