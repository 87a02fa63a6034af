/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap as a memory resource for RMM. RMM before 26.06 has a base class for resources, device_memory_resource, and
 * rmm_resource derives from it. Later versions take whatever satisfies CCCL's concepts, and rmm_resource is a
 * memory_resource. Either way it throws RMM's exceptions, which RMM's adaptors look for. Needs RMM's headers.
 */
#ifndef TERRAZZO_RMM_HPP
#define TERRAZZO_RMM_HPP

#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#if __has_include(<rmm/error.hpp>)
#include <rmm/error.hpp>
#else
#include <rmm/detail/error.hpp>
#endif
#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define TERRAZZO_RMM_BASE 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define TERRAZZO_RMM_BASE 1
#else
#include <terrazzo/memory_resource.hpp>
#define TERRAZZO_RMM_BASE 0
#endif

#include <terrazzo.hpp>

namespace terrazzo {

namespace detail {

/* As RMM defines them: out_of_memory if that is the reason, bad_alloc for any other. */
template <class Allocate> void *allocate_for_rmm(Allocate allocate)
{
	try {
		return allocate();
	} catch (const out_of_memory &failed) {
		throw rmm::out_of_memory(failed.what());
	} catch (const failure &failed) {
		throw rmm::bad_alloc(failed.message());
	}
}

} // namespace detail

#if TERRAZZO_RMM_BASE

/* The heap must outlive what the resource allocates. Two resources are equal if their heaps are. */
class rmm_resource final : public rmm::mr::device_memory_resource {
public:
	explicit rmm_resource(heap_ref heap) noexcept : heap_(heap) {}

	heap_ref heap() const noexcept { return heap_; }

private:
	/* RMM aligns to 256 bytes, the heap to 512. */
	void *do_allocate(std::size_t size, rmm::cuda_stream_view stream) override
	{
		return detail::allocate_for_rmm([&] { return heap_.allocate(size, stream.value()); });
	}

	void do_deallocate(void *memory, std::size_t, rmm::cuda_stream_view stream) noexcept override
	{
		detail::freed(trz_free_on(heap_.get(), memory, stream.value()));
	}

	bool do_is_equal(const rmm::mr::device_memory_resource &other) const noexcept override
	{
		const auto *same_kind = dynamic_cast<const rmm_resource *>(&other);
		return same_kind && same_kind->heap_ == heap_;
	}

	heap_ref heap_;
};

#else

/* The heap must outlive what the resource and its copies allocate. Two resources are equal if their heaps are. */
class rmm_resource {
public:
	static constexpr std::size_t default_alignment = memory_resource::default_alignment;

	explicit rmm_resource(heap_ref heap) noexcept : resource_(heap) {}

	heap_ref heap() const noexcept { return resource_.heap(); }

	void *allocate(cuda::stream_ref stream, std::size_t size, std::size_t alignment = default_alignment)
	{
		return detail::allocate_for_rmm([&] { return resource_.allocate(stream, size, alignment); });
	}
	void deallocate(cuda::stream_ref stream, void *memory, std::size_t size,
	                std::size_t alignment = default_alignment) noexcept
	{
		resource_.deallocate(stream, memory, size, alignment);
	}

	void *allocate_sync(std::size_t size, std::size_t alignment = default_alignment)
	{
		return detail::allocate_for_rmm([&] { return resource_.allocate_sync(size, alignment); });
	}
	void deallocate_sync(void *memory, std::size_t size, std::size_t alignment = default_alignment) noexcept
	{
		resource_.deallocate_sync(memory, size, alignment);
	}

	friend bool operator==(const rmm_resource &a, const rmm_resource &b) noexcept { return a.resource_ == b.resource_; }
	friend bool operator!=(const rmm_resource &a, const rmm_resource &b) noexcept { return a.resource_ != b.resource_; }

	friend constexpr void get_property(const rmm_resource &, cuda::mr::device_accessible) noexcept {}
	using default_queries = cuda::mr::properties_list<cuda::mr::device_accessible>;

private:
	memory_resource resource_;
};

static_assert(cuda::mr::resource_with<rmm_resource, cuda::mr::device_accessible>);

#endif

} // namespace terrazzo

#endif
