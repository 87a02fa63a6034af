/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap with the interface of cub::CachingDeviceAllocator, for programs written for it. Needs only CUDA's runtime
 * headers.
 */
#ifndef TERRAZZO_CUB_HPP
#define TERRAZZO_CUB_HPP

#include <cuda_runtime_api.h>

#include <terrazzo.hpp>

namespace terrazzo {

/* Allocates on its heap's device. Memory is allocated and freed in the order of the stream given at its allocation. The
 * heap must outlive the allocations. */
class cub_allocator {
public:
	explicit cub_allocator(heap_ref heap) noexcept : heap_(heap) {}

	cudaError_t DeviceAllocate(void **memory, std::size_t size, cudaStream_t stream = nullptr) const noexcept
	{
		return error_of(trz_alloc(heap_.get(), size, 0, stream, memory));
	}

	cudaError_t DeviceFree(void *memory) const noexcept
	{
		return error_of(trz_free(heap_.get(), memory));
	}

	/* Returns free memory to the driver. */
	cudaError_t FreeAllCached() const noexcept
	{
		return error_of(trz_trim(heap_.get(), 0, nullptr));
	}

private:
	/* Only when memory is short do programs free what they can and try again, not for any other failure. */
	static cudaError_t error_of(trz_status status) noexcept
	{
		switch (status) {
		case TRZ_OK:
			return cudaSuccess;
		case TRZ_ERROR_SIZE:
		case TRZ_ERROR_OUT_OF_MEMORY:
		case TRZ_ERROR_LIMIT:
		case TRZ_ERROR_HOST_MEMORY:
		case TRZ_ERROR_ADDRESS_SPACE:
			return cudaErrorMemoryAllocation;
		case TRZ_ERROR_INVALID_ARGUMENT:
		case TRZ_ERROR_UNKNOWN_POINTER:
		case TRZ_ERROR_DOUBLE_FREE:
			return cudaErrorInvalidValue;
		case TRZ_ERROR_CAPTURE:
			return cudaErrorStreamCaptureUnsupported;
		case TRZ_ERROR_NOT_PERMITTED:
			return cudaErrorNotPermitted;
		case TRZ_ERROR_CONTEXT_DEAD:
			return cudaErrorContextIsDestroyed;
		default:
			return cudaErrorUnknown;
		}
	}

	heap_ref heap_;
};

} // namespace terrazzo

#endif
